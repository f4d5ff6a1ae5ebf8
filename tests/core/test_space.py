"""Spaces: what is feasible is exactly what the constraints say, and is found wherever it is."""

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.core.reference import UNDEFINED, reference
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.errors import NothingFeasibleError

CONTRACT = (Path(__file__).parents[1] / "studies" / "contract.toml").read_text()
BIG = {"model_params": 70e9, "gpu": "H100", "n_gpus": 16_384, "global_batch": 16_384}


def study_of(parameters: str, constraints: str = "", rest: str = "") -> Study:
    return parse_study(
        f"""
        schema = 1
        name = "some"
        objective = {{ metric = "qps", goal = "maximize" }}
        {rest}
        [context]
        n = {{ type = "int" }}
        gpu = {{ type = "category" }}
        [lookup.gpu]
        H100 = {{ hbm = 80 }}
        [parameters]
        {parameters}
        [constraints]
        {constraints}
        """
    )


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def satisfied(study: Study, context: dict[str, Any], config: dict[str, Any]) -> bool:
    """Whether a configuration keeps all constraints, the slow way."""
    row: dict[str, Any] = {f.name: UNDEFINED for f in study.context}
    row["gpu.hbm"] = study.lookups["gpu"].get(context.get("gpu", ""), {}).get("hbm", UNDEFINED)
    row |= {name: value for name, value in context.items() if value is not None} | config
    for derived in study.derived:
        row[derived.name] = reference(derived.expression.text, row)
    return all(reference(c.expression.text, row) is True for c in study.constraints)


def every_config(study: Study) -> Iterator[dict[str, Any]]:
    sides = [
        [list(values) for values in itertools.product(p.choices, repeat=p.repeat)]
        if p.repeated
        else list(p.choices)
        for p in study.parameters
    ]
    for values in itertools.product(*sides):
        yield {p.name: value for p, value in zip(study.parameters, values, strict=True)}


# ── small spaces against brute force ─────────────────────────────────────────────────────────

PARAMETERS = """
a = { type = "int", values = [1, 2, 4] }
b = { type = "int", low = 0, high = 3 }
c = { type = "category", values = ["X", "Y"] }
d = { type = "bool" }
r = { type = "int", values = [0, 1, 5], repeat = 3 }
"""
RULES = [
    "a * b == n",
    "q >= 2",
    "q % a == 0 or d",
    "a <= b < 3",
    "c == 'X' or b > 1",
    "not (d and c == 'Y')",
    "count(r == 5) <= 1 and any(r == 1)",
    "sum(r) == n",
    "all(r < 5) if d else max(r) == 5",
    "r[0] <= r[1] and r[1] <= r[2]",
    "r[b - 1] == 1",
    "n > 2",
    "n % b == 0",
    "min(r) + a != 4",
    "c in ['Y'] or r[-1] in [0, 5]",
    "d",
    "gpu.hbm * a > 100",
]


@st.composite
def small_studies(draw: st.DrawFn) -> tuple[Study, dict[str, Any]]:
    rules = draw(st.lists(st.sampled_from(RULES), max_size=4, unique=True))
    constraints = "\n".join(f'rule_{i} = "{rule}"' for i, rule in enumerate(rules))
    study = study_of(PARAMETERS, constraints, 'derived = { q = "n // (a * b)" }')
    n = draw(st.sampled_from([None, 0, 2, 4, 7, 8]))
    return study, {"n": n, "gpu": draw(st.sampled_from([None, "H100", "B200"]))}


@pytest.mark.slow
@settings(max_examples=30)
@given(small_studies(), st.integers(0, 2**32 - 1))
def test_a_space_is_what_its_constraints_say(
    drawn: tuple[Study, dict[str, Any]], seed: int
) -> None:
    study, context = drawn
    wanted = [config for config in every_config(study) if satisfied(study, context, config)]
    if not wanted:
        with pytest.raises(NothingFeasibleError, match="rule_"):
            SearchSpace(study, context)
        return
    space, rng = SearchSpace(study, context), generator(seed)
    table = space.table(10_000)
    assert table is not None
    assert len(table) == space.size == len(wanted)
    assert sorted(map(str, map(space.decode, table))) == sorted(map(str, wanted))
    assert len(wanted) == 1 or space.table(len(wanted) - 1) is None

    everything = np.array(list(itertools.product(*map(range, space.sizes))), np.int32)
    inside = {row.tobytes() for row in table}
    assert [row.tobytes() in inside for row in everything] == space.feasible(everything).tolist()

    for codes in (space.sample(20, rng), space.spread(20, rng), space.repair(everything, rng)):
        assert codes.dtype == np.int32
        assert space.feasible(codes).all()
        for code in codes[:5]:
            config = space.decode(code)
            encoded = space.encode(config)
            assert encoded is not None
            assert (encoded == code).all()
    repaired = space.repair(everything, rng)
    kept = space.feasible(everything)
    assert (repaired[kept] == everything[kept]).all()
    assert len(np.unique(space.spread(20, rng), axis=0)) == min(20, len(wanted))


@pytest.mark.slow
@settings(max_examples=30)
@given(small_studies())
def test_blocks_are_independent(drawn: tuple[Study, dict[str, Any]]) -> None:
    study, context = drawn
    try:
        space = SearchSpace(study, context)
    except NothingFeasibleError:
        assume(False)
        raise
    dimensions = np.concatenate([block.dimensions for block in space.blocks])
    assert sorted(dimensions) == list(range(len(space.dimensions)))
    codes, rng = np.zeros((50, len(space.sizes)), np.int32), generator()
    for block in space.blocks:
        assert block.table is not None
        rows = rng.integers(len(block.table), size=50)
        codes[:, block.dimensions] = block.table[rows]
    assert space.feasible(codes).all()


def test_fixed_positions_tie_only_themselves() -> None:
    rules = [
        'ends = "sharding[0] == sharding[-1] and x[3] <= 1"',
        "first = \"sharding[0] == 'FULL' or sharding[1] != 'NONE'\"",
    ]
    numbers = 'x = { type = "int", low = 0, high = 9, repeat = 6 }'
    space = SearchSpace(study_of(f"{LAYERS}\n{numbers}", "\n".join(rules)), {})
    assert [b.dimensions.tolist() for b in space.blocks if len(b.dimensions) > 1] == [[0, 1, 47]]
    assert space.size == (3 + 2 * 2) * 3**45 * 10**5 * 2
    columns = space.columns(space.sample(500, generator()))
    assert (columns["sharding"][:, 0] == columns["sharding"][:, 47]).all()
    assert (columns["x"][:, 3] <= 1).all()


def test_dimensions_and_columns() -> None:
    study = study_of(PARAMETERS, rest='derived = { q = "n // (a * b)", big = "a > 1" }')
    space = SearchSpace(study, {"n": 8})
    assert [d.name for d in space.dimensions] == ["a", "b", "c", "d", "r[0]", "r[1]", "r[2]"]
    assert [d.position for d in space.dimensions][-3:] == [0, 1, 2]
    assert space.sizes.tolist() == [3, 4, 2, 2, 3, 3, 3]
    codes = np.array([[2, 1, 0, 1, 0, 1, 2], [0, 0, 1, 0, 2, 2, 2]], np.int32)
    columns = space.columns(codes)
    assert list(columns) == ["a", "b", "c", "d", "r", "q", "big"]
    assert columns["a"].tolist() == [4, 1]
    assert columns["c"].tolist() == ["X", "Y"]
    assert columns["d"].tolist() == [True, False]
    assert columns["r"].tolist() == [[0, 1, 5], [5, 5, 5]]
    assert columns["q"][0] == 2
    assert np.isnan(columns["q"][1])
    assert columns["big"].tolist() == [True, False]
    assert space.columns(codes[:0])["r"].shape == (0, 3)


def test_what_cannot_be_encoded() -> None:
    space = SearchSpace(study_of(PARAMETERS, 'one = "a * b == n"'), {"n": 4})
    good: dict[str, Any] = {"a": 2, "b": 2, "c": "X", "d": True, "r": [0, 1, 5]}
    assert space.encode(good) is not None
    assert space.encode({**good, "a": 2.0, "r": 5, "extra": None}) is not None
    mistakes: list[dict[str, Any]] = [
        {"a": 3},
        {"a": None},
        {"a": [2]},
        {"b": 1},
        {"c": "Z"},
        {"d": 2},
        {"r": [0, 1]},
        {"r": [0, 1, 2]},
        {"r": None},
        {"r": {}},
    ]
    for wrong in mistakes:
        assert space.encode({**good, **wrong}) is None, wrong
    del good["a"]
    assert space.encode(good) is None


def test_floats_survive_decoding_and_encoding() -> None:
    space = SearchSpace(parse_study(CONTRACT), BIG)
    [code] = space.sample(1, generator())
    for place, text in enumerate("0.77 0.78 0.79 0.8 0.81 0.82 0.83 0.84 0.85".split()):  # noqa: SIM905
        code[5] = place
        config = space.decode(code)
        assert str(config["hbm_reserved"]) == text
        sloppy = space.encode({**config, "hbm_reserved": 0.77 + place * 0.01})
        assert sloppy is not None
        assert (sloppy == code).all()


# ── the contract's study on a large cluster ──────────────────────────────────────────────────


def test_the_contracts_study_at_16384_gpus() -> None:
    study = parse_study(CONTRACT)
    space, rng = SearchSpace(study, BIG), generator()
    codes = space.sample(1_000, rng)
    columns = space.columns(codes)
    assert space.feasible(codes).all()
    assert (columns["tp"] * columns["pp"] * columns["cp"] * columns["dp"] == 16_384).all()
    assert (16_384 % (columns["dp"] * columns["micro_batch"]) == 0).all()
    assert ((columns["sharding"] == "NO_SHARD").sum(axis=1) <= 4).all()
    for code in codes[:50]:
        assert satisfied(study, BIG, space.decode(code))
    # Nothing of the space is out of reach.
    assert {tuple(row) for row in codes[:, :3]} >= {(3, 4, 2), (0, 0, 0)}


def test_a_factor_may_have_thousands_of_values() -> None:
    without = CONTRACT.replace('whole_batches = "global_batch % (dp * micro_batch) == 0"', "")
    text = without.replace('dp = "n_gpus // (tp * pp * cp)"', "").replace(
        "[parameters]", '[parameters]\ndp = { type = "int", low = 1, high = 16384 }'
    )
    free, derived = SearchSpace(parse_study(text), BIG), SearchSpace(parse_study(without), BIG)
    assert free.size == derived.size
    columns = free.columns(free.sample(500, generator()))
    assert (columns["tp"] * columns["pp"] * columns["cp"] * columns["dp"] == 16_384).all()


def test_sampling_a_table_is_uniform() -> None:
    space = SearchSpace(study_of(PARAMETERS, 'one = "a * b == n"\ntwo = "sum(r) <= 6"'), {"n": 4})
    size = space.size
    assert size is not None
    counts = Counter(row.tobytes() for row in space.sample(200 * size, generator()))
    assert len(counts) == size
    chi_square = sum((count - 200) ** 2 / 200 for count in counts.values())
    assert chi_square < size + 5 * (2 * size) ** 0.5  # five standard deviations


# ── spaces that cannot be listed ─────────────────────────────────────────────────────────────

LAYERS = 'sharding = { type = "category", values = ["FULL", "GRAD", "NONE"], repeat = 48 }'
DEGREES = """
tp = { type = "int", values = [1, 2, 4, 8] }
pp = { type = "int", values = [1, 2, 4, 8, 16] }
dp = { type = "int", low = 1, high = 4096 }
"""
WIDE = {
    "few": (LAYERS, "few = \"count(sharding == 'NONE') <= 4\""),
    "exactly": (LAYERS, "few = \"count(sharding == 'NONE') == 4\""),
    "most": (LAYERS, "few = \"count(sharding == 'NONE') >= 44\""),
    "every": (LAYERS, "few = \"all(sharding != 'NONE')\""),
    "loose": (LAYERS, "few = \"count(sharding == 'FULL') >= 12\""),
    "total": (
        'x = { type = "int", low = 0, high = 9, repeat = 24 }',
        'total = "sum(x) == 31"\nends = "x[0] > x[23] and max(x) <= 5"',
    ),
    "tied": (
        LAYERS + DEGREES,
        'fills = "tp * pp * dp == n"\nfew = "count(sharding == \'NONE\') <= tp"',
    ),
    "two groups": (
        LAYERS + '\nrecompute = { type = "bool", repeat = 48 }',
        "few = \"count(sharding == 'NONE') <= 2\"\n"
        "need = \"count(sharding == 'NONE') + count(recompute) == 20\"",
    ),
    "budget": (
        "\n".join(f'p{i} = {{ type = "int", low = 0, high = 1000 }}' for i in range(12)),
        f'spent = "{" + ".join(f"p{i}" for i in range(12))} == 3000"',
    ),
    "fractions": (
        'x = { type = "float", low = 0, high = 1, step = 0.001, repeat = 12 }',
        'whole = "abs(sum(x) - 1) < 0.0005"',
    ),
    "large numbers": (
        'x = { type = "int", low = 0, high = 9_999, repeat = 8 }',
        'total = "sum(x) == 20000"',
    ),
    "factors": (
        "\n".join(
            f"p{i} = {{ type = 'int', values = {[2**k for k in range(24)]} }}" for i in range(8)
        ),
        f'filled = "{" * ".join(f"p{i}" for i in range(8))} == {2**40}"',
    ),
    "branches": (
        LAYERS + '\noffload = { type = "bool" }',
        "few = \"count(sharding == 'NONE') <= 2 if offload else not any(sharding == 'FULL')\"",
    ),
}


@pytest.mark.parametrize("name", WIDE)
def test_wide_constraints_are_kept(name: str) -> None:
    study, rng = study_of(*WIDE[name]), generator()
    space = SearchSpace(study, {"n": 512})
    assert space.size is None
    assert space.table(10**9) is None
    for codes in (space.sample(256, rng), space.spread(64, rng)):
        assert space.feasible(codes).all()
        for code in codes[:20]:
            assert satisfied(study, {"n": 512}, space.decode(code))
        assert len(np.unique(codes, axis=0)) == len(codes)
    broken = rng.integers(0, space.sizes, size=(64, len(space.sizes))).astype(np.int32)
    repaired = space.repair(broken.copy(), rng)
    assert space.feasible(repaired).all()
    kept = space.feasible(broken)
    assert (repaired[kept] == broken[kept]).all()
    wild = space.repair(np.full((3, len(space.sizes)), 9_999, np.int32), rng)
    assert space.feasible(wild).all()


def test_what_is_a_little_off_an_equality_is_repaired_where_it_is() -> None:
    study, rng = study_of(*WIDE["large numbers"]), generator()
    space = SearchSpace(study, {})
    codes = space.sample(100, rng)
    off = codes.copy()
    off[:, 0] = (off[:, 0] + 37) % 10_000
    repaired = space.repair(off, rng)
    assert space.feasible(repaired).all()
    assert (repaired != off).sum(axis=1).mean() < 4


def test_a_repair_changes_few_dimensions() -> None:
    space, rng = SearchSpace(study_of(*WIDE["few"]), {}), generator()
    broken = rng.integers(0, 3, size=(100, 48)).astype(np.int32)
    needed = np.maximum((broken == 2).sum(axis=1) - 4, 0)
    changed = (space.repair(broken, rng) != broken).sum(axis=1)
    assert (changed >= needed).all()
    assert changed.mean() < needed.mean() + 3


def test_repaired_samples_spread_evenly() -> None:
    layers = LAYERS.replace("48", "20")
    space = SearchSpace(study_of(layers, "few = \"count(sharding == 'NONE') <= 1\""), {})
    codes = space.sample(3_000, generator())
    unsharded = codes == 2
    # Of 2^20 + 20 * 2^19 configurations one in eleven has none at all; five standard deviations.
    assert abs((~unsharded.any(axis=1)).mean() - 1 / 11) < 5 * (1 / 11 / 3_000) ** 0.5
    assert abs(unsharded.mean(axis=0) - 1 / 22).max() < 5 * (1 / 22 / 3_000) ** 0.5
    assert abs((codes == 0).mean() - 21 / 44) < 0.02


def test_a_start_fills_the_space() -> None:
    space = SearchSpace(parse_study(CONTRACT), BIG)
    codes = space.spread(64, generator())
    assert len(np.unique(codes, axis=0)) == 64
    for place, size in enumerate(space.sizes):
        counts = np.bincount(codes[:, place], minlength=size)
        assert counts.min() > 0
    free = np.bincount(codes[:, 5], minlength=9)  # tied to nothing: as even as it can be
    assert free.max() - free.min() <= 2


@pytest.mark.slow
def test_the_same_seed_gives_the_same_configurations() -> None:
    for name in ("few", "tied"):
        one, other = (SearchSpace(study_of(*WIDE[name]), {"n": 512}) for _ in range(2))
        for call in ("sample", "spread"):
            first = getattr(one, call)(100, generator(7))
            assert (first == getattr(other, call)(100, generator(7))).all()
            assert (first != getattr(other, call)(100, generator(8))).any()
        broken = generator().integers(0, one.sizes, (20, len(one.sizes))).astype(np.int32)
        again = one.repair(broken, generator(7))
        assert (again == other.repair(broken, generator(7))).all()


def test_nothing_asked_nothing_given() -> None:
    space = SearchSpace(study_of(*WIDE["few"]), {})
    nothing = np.zeros((0, 48), np.int32)
    assert space.sample(0, generator()).shape == space.spread(0, generator()).shape == (0, 48)
    assert space.repair(nothing, generator()).shape == (0, 48)
    assert space.feasible(nothing).shape == (0,)


# ── nothing feasible ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("parameters", "constraints", "context", "said"),
    [
        (
            PARAMETERS,
            'fits = "a * b == n"\nother = "d"',
            {"n": 7},
            "constraint 'fits' (a * b == n) cannot be satisfied in the context n=7, gpu=missing",
        ),
        (
            PARAMETERS,
            'one = "a != 4"\nfree = "d"\ntwo = "b != 2"\nmore = "a * b == n"',
            {"n": 4},
            "constraint 'one' (a != 4) cannot be satisfied together with 'two' (b != 2) and 'more'",
        ),
        (
            PARAMETERS,
            'fits = "a * b == n"',
            {},
            "in the context n=missing, gpu=missing; 'n' is missing there, which 'fits' needs",
        ),
        (
            PARAMETERS,
            'fits = "a * 50 <= gpu.hbm"',
            {"gpu": "B200"},
            "gpu=B200; [lookup.gpu] says nothing about 'B200'",
        ),
        (PARAMETERS, 'large = "n >= 8"', {"n": 4}, "'large' (n >= 8) cannot be satisfied"),
        (PARAMETERS, 'large = "n >= 8"', {}, "'n' is missing there, which 'large' needs"),
        (
            LAYERS,
            "many = \"count(sharding == 'NONE') > 48\"",
            {},
            "constraint 'many' (count(sharding == 'NONE') > 48) is not satisfied by anything found",
        ),
        (
            LAYERS,
            "a = \"count(sharding == 'NONE') > 30\"\nb = \"count(sharding == 'FULL') > 30\"",
            {},
            "found together with 'b'",
        ),
        (LAYERS, "few = \"count(sharding == 'NONE') <= n\"", {}, "'n' is missing there"),
    ],
)
def test_nothing_feasible_names_constraints_and_context(
    parameters: str, constraints: str, context: dict[str, Any], said: str
) -> None:
    with pytest.raises(NothingFeasibleError) as caught:
        SearchSpace(study_of(parameters, constraints), context)
    assert said in str(caught.value)


def test_a_repair_in_a_large_table_changes_few_dimensions() -> None:
    study = study_of(
        'x = { type = "int", low = 0, high = 15, repeat = 4 }\ny = { type = "bool" }',
        'total = "sum(x) % 16 == 0"',
    )
    space, rng = SearchSpace(study, {}), generator()
    assert space.size == 2 * 16**3
    broken = rng.integers(0, space.sizes, size=(200, 5)).astype(np.int32)
    repaired = space.repair(broken, rng)
    assert space.feasible(repaired).all()
    assert ((repaired != broken).sum(axis=1) == ~space.feasible(broken)).all()
