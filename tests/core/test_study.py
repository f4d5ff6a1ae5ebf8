"""Study files: the contract's example whole, every kind of mistake, and what a study answers."""

import math
import subprocess
import sys
import tomllib
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunerd.core.observation import FeasibilityLabel, Observation, Status, Value
from tunerd.core.searchers.optuna import OptunaOptions
from tunerd.core.searchers.reinforce import ReinforceOptions
from tunerd.core.study import Guard, Study
from tunerd.core.study.context_key import BucketKey
from tunerd.core.study.shapes import StudyFileTable
from tunerd.core.study_file import parse_study, study_schema
from tunerd.core.study_file.keys import PredictorTable, SearchTable
from tunerd.core.study_file.plugins import options_by_plugin
from tunerd.core.study_file.reference import study_page
from tunerd.errors import MisconfiguredError

CONTRACT = (Path(__file__).parents[1] / "studies" / "contract.toml").read_text()
SMALL = """
schema = 1
name = "small"
[objective]
metric = "qps"
goal = "maximize"
[context]
gpu = { type = "category" }
n_gpus = { type = "int" }
[lookup.gpu]
H100 = { hbm = 80 }
[parameters]
tp = { type = "int", values = [1, 2, 4] }
layer = { type = "category", values = ["A", "B"], repeat = 3 }
[derived]
dp = "n_gpus // tp"
[constraints]
fits = "tp * dp == n_gpus"
[[baseline]]
config = { tp = 2 }
"""


def small(**replaced: str) -> str:
    """The small study with lines replaced by what they start with; ``""`` takes one out."""
    lines = SMALL.splitlines()
    for start, line in replaced.items():
        [at] = [i for i, old in enumerate(lines) if old.split(" ")[0].strip("[]") == start]
        lines[at] = line
    return "\n".join(lines)


def problems(text: str) -> list[str]:
    with pytest.raises(MisconfiguredError) as caught:
        parse_study(text, "s.toml")
    assert all(problem.where.startswith("s.toml") for problem in caught.value.problems)
    return [str(problem).removeprefix("s.toml: ") for problem in caught.value.problems]


# ── the contract's example ───────────────────────────────────────────────────────────────────


def test_the_contracts_example_whole() -> None:
    study = parse_study(CONTRACT)
    assert (study.name, study.mode) == ("llm-pretrain", "observe")
    assert (study.explore_share, study.min_feasible) == (0.1, 0.8)
    assert study.objective.metric == "tokens_per_second_per_gpu"
    assert (study.objective.goal, study.objective.scale) == ("maximize", "log")
    assert study.objective.unit == "tokens/s/GPU"
    assert study.guards == (Guard("peak_memory_gib", None, 76, "GiB"),)
    assert [(f.name, f.type, f.scale, f.key) for f in study.context] == [
        ("model_params", "float", "log", "value"),
        ("gpu", "category", "linear", "value"),
        ("n_gpus", "int", "log", "value"),
        ("global_batch", "int", "log", "value"),
    ]
    assert study.lookups["gpu"]["A100"] == {"tflops": 312, "hbm_gib": 80, "link_gbps": 300}
    assert {p.name: p.choices for p in study.parameters} == {
        "tp": (1, 2, 4, 8),
        "pp": (1, 2, 4, 8, 16),
        "cp": (1, 2, 4),
        "micro_batch": (1, 2, 4, 8),
        "precision": ("bf16", "fp8"),
        "hbm_reserved": (0.77, 0.78, 0.79, 0.8, 0.81, 0.82, 0.83, 0.84, 0.85),
        "sharding": ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"),
    }
    assert {p.name: p.repeat for p in study.parameters if p.repeated} == {"sharding": 8}
    assert [d.name for d in study.derived] == ["dp"]
    assert [c.name for c in study.constraints] == [
        "fills_the_cluster",
        "whole_batches",
        "few_unsharded",
    ]
    assert study.baseline({"n_gpus": 1024}) == {"tp": 8, "pp": 8}
    assert study.baseline({"n_gpus": 1023}) is None
    assert study.baseline({}) is None
    assert (study.search.searcher, study.search.seeds) == ("reinforce", (1, 2, 3))
    assert study.predictor.name == "committee"


def test_content_hash_sees_content_only() -> None:
    plain = parse_study(CONTRACT)
    squeezed = "\n".join(line.split("  #")[0].rstrip() for line in CONTRACT.splitlines())
    assert squeezed != CONTRACT
    assert parse_study(squeezed).content_hash == plain.content_hash
    assert plain.content_hash.startswith("sha256:")
    changed = parse_study(CONTRACT.replace("max = 76", "max = 77"))
    assert changed.content_hash != plain.content_hash
    assert changed.text != plain.text


def test_every_key_is_described() -> None:
    schema = study_schema()
    tables = [schema, *schema["$defs"].values()]
    for table in tables:
        for key, entry in table["properties"].items():
            assert entry.get("description"), (table["title"], key)
    assert "schema" in schema["required"]


def test_the_page_about_study_files_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "studies.md"
    assert page.read_text() == study_page(), "run tunerd schema study --markdown"


# ── values ───────────────────────────────────────────────────────────────────────────────────


def choices(line: str, baseline: str = "") -> tuple[Any, ...]:
    study = parse_study(small(tp=f"tp = {line}", config=baseline or "config = { layer = 'A' }"))
    return study.parameters[0].choices


def test_steps_are_exact_decimals() -> None:
    found = choices('{ type = "float", low = 0.77, high = 0.85, step = 0.01 }')
    assert [str(value) for value in found] == (
        "0.77 0.78 0.79 0.8 0.81 0.82 0.83 0.84 0.85".split()  # noqa: SIM905
    )
    assert choices('{ type = "float", low = -0.1, high = 0.2, step = 0.1 }')[1:3] == (0.0, 0.1)
    assert choices('{ type = "int", low = 8, high = 30, step = 8 }') == (8, 16, 24)
    assert choices('{ type = "float", low = 1, high = 2, step = 0.4 }') == (1.0, 1.4, 1.8)


def test_ranges_without_a_step() -> None:
    assert choices('{ type = "int", low = -2, high = 2 }') == (-2, -1, 0, 1, 2)
    assert len(choices('{ type = "int", low = 1, high = 16384 }')) == 16_384
    wide = choices('{ type = "int", low = 1, high = 1_000_000, scale = "log" }')
    assert (wide[0], wide[-1]) == (1, 1_000_000)
    assert 200 < len(wide) <= 257
    assert sum(value <= 1_000 for value in wide) > 90  # spread by ratios
    floats = choices('{ type = "float", low = 1e-5, high = 1e-1, scale = "log" }')
    assert len(floats) == 33
    assert (floats[0], floats[16], floats[-1]) == (1e-5, 1e-3, 1e-1)
    assert choices('{ type = "float", low = 0, high = 1 }')[:2] == (0.0, 0.03125)


def test_a_range_of_floats_holds_what_the_baselines_use() -> None:
    line = '{ type = "float", low = 0.0, high = 1.0 }'
    assert 0.3 not in choices(line)
    assert 0.3 in choices(line, "config = { tp = 0.3 }")


def test_booleans_need_no_values() -> None:
    assert choices('{ type = "bool" }') == (False, True)
    assert choices('{ type = "bool", values = [true] }') == (True,)


def test_floats_are_found_though_they_are_rounded() -> None:
    parameter = parse_study(CONTRACT).parameters[5]
    assert parameter.index(0.83) == parameter.index(0.77 + 6 * 0.01) == 6
    assert parameter.index(float(np.float32(0.83))) == 6
    assert parameter.index("0.83") == 6
    for outside in (0.831, 0.76, 0.86, True, None, "x", math.nan, math.inf, [0.83]):
        assert parameter.index(outside) is None
    assert parameter.clean(0.77 + 6 * 0.01) == 0.83
    assert parameter.clean(0.5) == 0.5


def test_values_of_other_types() -> None:
    study = parse_study(CONTRACT)
    tp, sharding = study.parameters[0], study.parameters[6]
    assert tp.index(8.0) == tp.index("8") == 3
    assert tp.index(True) is tp.index(3) is tp.index("eight") is None
    assert sharding.index("NO_SHARD") == 2
    assert sharding.clean("NO_SHARD") == ["NO_SHARD"] * 8
    assert sharding.clean(["NO_SHARD"] * 7) is None
    assert sharding.clean(None) is None


# ── mistakes ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "schema: is missing"),
        ("x = 1\ny 2", "this is not TOML: Expected '=' after a key in a key/value pair (at line 2"),
        ("\ud800", "this is not Unicode text"),
        ("a." * 5_000 + "a = 1", "nested too deeply"),
        ("x = " + "[" * 50_000, "nested too deeply"),
        ("#" * 2_000_000, "larger than"),
        (small(schema="schema = 2"), "schema: unknown version"),
        (small(name='name = "Small"'), "name: should be lower-case"),
        (small(name='name = "a\\n"'), "name: should be lower-case"),
        (small(name="name = 3"), "name: should be lower-case"),
        (small(name='name = "s"\nmoode = "observe"'), "moode: unknown key; did you mean 'mode'?"),
        (small(name='name = "s"\nmode = "observed"'), "did you mean 'observe'?"),
        (small(name='name = "s"\nexplore_share = 1.1'), "explore_share: should be less than"),
        (small(name='name = "s"\nmin_feasible = -1'), "min_feasible: should be greater than"),
        (small(name='name = "s"\nexplore_share = "1"'), "explore_share: should be a number"),
        (small(name='name = "s"\nexplore_share = true'), "should be a number, not true"),
        (small(goal='goal = "maximise"'), "objective.goal: should be 'maximize' or 'minimize'"),
        (small(goal=""), "objective.goal: is missing: Which way is better."),
        (small(metric='metrik = "qps"'), "objective.metrik: unknown key; did you mean 'metric'?"),
        (small(gpu='gpu = { type = "string" }'), "context.gpu.type: should be 'int', 'float'"),
        (small(gpu='gpu = { type = "category", scale = "log" }'), "a category has no scale"),
        (small(gpu='gpu = { type = "bool", key = { bucket = 2 } }'), "a bool has no buckets"),
        (small(n_gpus='n_gpus = { type = "int", key = "skip" }'), 'should be "value", "ignore"'),
        (small(n_gpus='n_gpus = { type = "int", key = { bucket = 1 } }'), "a bucket such as"),
        (small(gpu='tp = { type = "int" }'), "parameters.tp: 'tp' is the name of an entry in"),
        (small(gpu='or = { type = "int" }'), "context.or: 'or' is a word of expressions"),
        (small(gpu='"a-b" = { type = "int" }'), "a name has ASCII letters"),
        (small(gpu='"größe" = { type = "int" }'), "a name has ASCII letters"),
        (small(H100="H100 = { hbm = 'x' }"), "lookup.gpu.H100.hbm: should be a number, not 'x'"),
        (small(H100="H100 = { 'h b' = 1 }"), "lookup.gpu: the name 'h b' cannot stand in"),
        (SMALL.replace("[lookup.gpu]", "[lookup.cpu]"), "no context feature 'cpu'; did you mean"),
        (SMALL.replace("[lookup.gpu]", "[lookup.n_gpus]"), "a lookup describes a category"),
        (SMALL.replace("[lookup.gpu]", "[lookup.tp]"), "a lookup describes a category of it"),
        (SMALL.replace("[parameters]", "[parameter]"), "parameter: unknown key; did you mean"),
        (small(tp='tp = { type = "int", valeus = [1] }'), "did you mean 'values'?"),
        (small(tp='tp = { type = "int" }'), "parameters.tp: needs `values`, or `low` and `high`"),
        (small(tp='tp = { type = "int", values = [] }'), "should have at least 1 item"),
        (small(tp='tp = { type = "int", low = 1 }'), "parameters.tp: has no `high`"),
        (small(tp='tp = { type = "int", low = 3, high = 3 }'), "low 3 should be below high 3"),
        (small(tp='tp = { type = "int", low = 1, high = 2.5 }'), "2.5 should be an integer"),
        (small(tp='tp = { type = "int", low = 1, high = 9, step = 0 }'), "greater than 0"),
        (small(tp='tp = { type = "int", low = 1, high = 9, step = 10 }'), "larger than the range"),
        (small(tp='tp = { type = "float", low = 0, high = 1, step = 1e-9 }'), "32,768 values"),
        (small(tp='tp = { type = "float", low = 1e16, high = 2e16, step = 0.5e12 }'), "config.tp"),
        (small(tp='tp = { type = "int", low = 0, high = 9, scale = "log" }'), "is not positive"),
        (small(tp='tp = { type = "int", values = [0, 1], scale = "log" }'), "is not positive"),
        (small(tp='tp = { type = "int", values = [1], low = 1 }'), "a list or a range, not both"),
        (small(tp='tp = { type = "int", values = [1, 1] }'), "values: 1 is there twice"),
        (small(tp='tp = { type = "int", values = [1, 2.0] }'), "2.0 should be an integer"),
        (small(tp='tp = { type = "int", values = [1, true] }'), "true should be an integer"),
        (small(tp='tp = { type = "category", values = [1] }'), "put it in quotes"),
        (small(tp='tp = { type = "category" }'), "needs `values`, a list of texts"),
        (small(tp='tp = { type = "category", low = 1, high = 2 }'), "has no range"),
        (small(tp='tp = { type = "bool", scale = "log" }'), "a bool has no scale"),
        (small(tp='tp = { type = "int", values = [1], repeat = 1 }'), "greater than or equal to 2"),
        (small(tp="tp = { type = 'int', values = [1], repeat = 4096 }"), "4,099 values in one"),
        (small(tp=f"tp = {{ type = 'int', values = [0x{'f' * 6000}] }}"), "such a long number"),
        (small(tp='tp = { type = "float", low = 0, high = inf }'), "should be a finite number"),
        (small(tp='tp = { type = "int", values = [1979-05-27] }'), "not a date or time"),
        (small(tp="tp = 3"), "parameters.tp: should be a table, not 3"),
        (small(dp='dp = "n_gpu // tp"'), "derived.dp: unknown name 'n_gpu'; did you mean 'n_gpus'"),
        (small(dp='dp = "dp + 1"'), "derived.dp: depends on itself: dp → dp"),
        (small(dp='a = "b"\nb = "dp"\ndp = "a"'), "derived.a: depends on itself: a → b → dp → a"),
        (small(dp="dp = \"layer == 'A'\""), "these are 3 truth values: a derived value is one"),
        (small(dp="dp = 3"), "derived.dp: should be a text, not 3"),
        (small(fits='fits = "tp * dp"'), "must be true or false, this is a number"),
        (small(fits="fits = \"layer == 'A'\""), "use all(...) or any(...)"),
        (small(fits='fits = "tp * dp = 3"'), "    tp * dp = 3\n            ^"),
        (small(fits='"1st" = "tp == 1"'), "constraints.1st: a name has"),
        (small(config="config = { tp = 3 }"), "tp: 3 is outside the space: its values are 1, 2, 4"),
        (small(config="config = { tp = [1] }"), "should be a single value, not a list"),
        (small(config="config = { layer = ['A', 'B'] }"), "has 2 values; 3 are needed"),
        (small(config="config = { layer = ['A', 'B', 'C'] }"), "'C' is outside the space"),
        (small(config="config = { layr = 1 }"), "no parameter 'layr'; did you mean 'layer'?"),
        (small(config="config = { dp = 1 }"), "is derived from the others: leave it out"),
        (small(config="config = { n_gpus = 1 }"), "put it into `when`"),
        (small(config="config = {}"), "baseline[0].config: is empty"),
        (small(config="when = 'tp > 1'\nconfig = { tp = 1 }"), "'tp' is not part of it"),
        (small(config="when = 'n_gpus'\nconfig = { tp = 1 }"), "must be true or false"),
        (SMALL + "[[baseline]]\nconfig = { tp = 1 }", "baseline[1]: is never used"),
        (SMALL + "[baseline2]", "baseline2: unknown key; did you mean 'baseline'?"),
        (SMALL + "[guards]\nm = {}", "guards.m: needs `max`, `min` or both"),
        (SMALL + "[guards]\nm = { min = 2, max = 1 }", "every run would break it"),
        (SMALL + '[search]\nsearcher = "randm"', "no searcher 'randm'; did you mean 'random'?"),
        (SMALL + "[search]\nseeds = [1, 1]", "search.seeds: the same seed twice"),
        (SMALL + "[search]\nseeds = []", "search.seeds: should have at least 1 item"),
        (SMALL + '[predictor]\nname = "trees"', "predictor.name: there is no predictor 'trees'"),
        (SMALL + "[search]\nstep = 9", "search.step: unknown key; did you mean 'steps'?"),
        (SMALL + "[search]\nsteps = 0", "search.steps: should be greater than or equal to 1"),
        (SMALL + '[search]\nsearcher = "random"\nbatch = 1.5', "batch: should be an integer"),
    ],
)
def test_a_mistake_says_what_and_where(text: str, wanted: str) -> None:
    assert wanted in "\n".join(problems(text))


def test_all_mistakes_come_at_once_and_none_twice() -> None:
    text = (
        SMALL.replace('"maximize"', '"more"')
        .replace('{ type = "category" }', '{ type = "string" }')
        .replace("values = [1, 2, 4]", "valus = [1, 2, 2]")
        .replace('fits = "tp * dp == n_gpus"', 'fits = "gpu == 3 and tq == 1"\nfew = "tp + 1"')
        .replace("config = { tp = 2 }", "config = { tp = 3 }")
    )
    assert [problem.split("\n")[0].split(": ")[0] for problem in problems(text)] == [
        "parameters.tp.valus",
        "objective.goal",
        "context.gpu.type",
        "parameters.tp.values",
        "constraints.fits",
        "constraints.few",
    ]


# ── options of single searchers and predictors ───────────────────────────────────────────────


def test_options_of_a_searcher_are_read_whichever_is_named() -> None:
    """So they were before searchers declared them, and files that have them stay as they are."""
    text = '[search]\nsampler = "QMCSampler"\nsteps = 7\n'
    for searcher in ("reinforce", "random"):
        search = parse_study(f'{SMALL}{text}searcher = "{searcher}"').search
        assert ReinforceOptions.among(search.own) == ReinforceOptions(steps=7)
        assert OptunaOptions.among(search.own).sampler == "QMCSampler"
    assert parse_study(SMALL).search.own == ()
    assert ReinforceOptions.among(()).batch == 8


@pytest.mark.slow
def test_no_plugin_is_imported_for_a_file_that_sets_none_of_their_options() -> None:
    program = (
        "import sys\nfrom tunerd.core.study_file.read import read\n"
        "for text in sys.argv[1:]:\n    assert not read(text, '').problems\n"
        "    names = ('reinforce', 'optuna')\n"
        "    print(*(m for m in names if f'tunerd.core.searchers.{m}' in sys.modules))"
    )
    texts = [SMALL + "[search]\nkeep = 3", SMALL + "[search]\nsteps = 3"]
    done = subprocess.run(
        [sys.executable, "-c", program, *texts], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["", "reinforce"]


@pytest.mark.parametrize(
    ("section", "shared"), [("search", SearchTable), ("predictor", PredictorTable)]
)
def test_options_have_defaults_and_names_of_their_own(
    section: str, shared: type[StudyFileTable]
) -> None:
    tables = [shared, *dict.fromkeys(options_by_plugin(section).values())]
    assert all(isinstance(table(), table) for table in tables)
    keys = [key for table in tables for key in table.model_fields]
    assert len(set(keys)) == len(keys)


def test_a_wrong_definition_is_not_blamed_on_who_uses_it() -> None:
    text = small(layer="layer = 3", fits="fits = \"count(layer == 'A') <= tp and any(layer)\"")
    assert problems(text) == ["parameters.layer: should be a table, not 3"]
    assert problems(small(derived="[[derived]]")) == ["derived: should be a table, not a list"]
    text = small(dp='dp = "n_gpus // ("')
    assert [problem.split(":")[0] for problem in problems(text)] == ["derived.dp"]


@pytest.mark.slow
@given(st.text(max_size=200) | st.text("[]{}=\".,'#\n ab1", max_size=60))
def test_any_text_is_a_study_or_mistakes(text: str) -> None:
    with pytest.raises(MisconfiguredError):
        parse_study(text)


def toml(value: Any) -> str:
    """Write a value as inline TOML."""
    match value:
        case bool():
            return str(value).lower()
        case dict():
            return "{" + ", ".join(f"{quoted(k)} = {toml(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(toml, value)) + "]"
        case str():
            return quoted(value)
    return str(value)


def quoted(text: str) -> str:
    escaped = "".join(
        char if char.isprintable() and char not in '"\\' else f"\\U{ord(char):08x}" for char in text
    )
    return f'"{escaped}"'


def spots(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if not isinstance(value, dict | list):
        return [path]
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [path, *(spot for key, inner in items for spot in spots(inner, (*path, key)))]


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    | st.sampled_from(["tp", "tp > 1", "count(sharding == 'NO_SHARD')", "x", "int", "log"])
    | st.just(date(2026, 11, 20)),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["tp", "type", "values", "max", "x", "a b"]), inner)
    ),
    max_leaves=4,
)


@pytest.mark.slow
@given(st.data())
def test_any_change_makes_a_study_or_mistakes(data: st.DataObject) -> None:
    content = tomllib.loads(CONTRACT)
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from(spots(content)[1:]))
        holder = content
        for key in path:
            holder = holder[key]
        change = data.draw(junk)
        if change is None:
            del holder[last]
        else:
            holder[last] = change
    text = "\n".join(f"{quoted(key)} = {toml(value)}" for key, value in content.items())
    try:
        study = parse_study(text)
    except MisconfiguredError as mistake:
        found = [str(problem) for problem in mistake.problems]
    else:
        study.baseline({"n_gpus": 2048})
        return
    assert len(found) == len(set(found)) > 0


# ── what a study answers ─────────────────────────────────────────────────────────────────────


def with_objective(goal: str, scale: str) -> Study:
    return parse_study(small(goal=f'goal = "{goal}"\nscale = "{scale}"'))


@pytest.mark.slow
@pytest.mark.parametrize("goal", ["maximize", "minimize"])
@pytest.mark.parametrize("scale", ["log", "linear"])
@given(value=st.floats(1e-3, 1e6), other=st.floats(1e-3, 1e6))
def test_scores_are_oriented_and_can_be_taken_back(
    goal: str, scale: str, value: float, other: float
) -> None:
    study = with_objective(goal, scale)
    score, reference = study.score({"qps": value}), study.score({"qps": other})
    assert score is not None
    assert reference is not None
    assert study.metric_value(score) == pytest.approx(value)
    gain = (value - other) / other * (1 if goal == "maximize" else -1)
    assert study.gain(score, reference) == pytest.approx(gain, rel=1e-9, abs=1e-9)
    if gain > 1e-9:
        assert score > reference


def test_what_cannot_be_scored() -> None:
    log, linear = with_objective("maximize", "log"), with_objective("maximize", "linear")
    for metrics in ({}, {"qps": math.nan}, {"qps": math.inf}, {"qps": True}):
        assert log.score(metrics) is linear.score(metrics) is None
    assert log.score({"qps": 0.0}) is log.score({"qps": -1.0}) is None
    assert linear.score({"qps": -1.0}) == -1.0
    assert linear.score({"qps": 1e101}) is linear.score({"qps": -1e101}) is None
    assert linear.gain(1.0, 0.0) == 0.0
    for score, reference in ((1e5, 5e-324), (-1e5, 5e-324), (1e100, -1e-310)):
        assert math.isfinite(linear.gain(score, reference))  # a message holds no other
        assert linear.gain(score, reference) * score > 0
    assert log.metric_value(1e9) == math.inf


def test_guards_are_bounds_on_both_sides() -> None:
    study = parse_study(SMALL + "[guards]\nmem = { max = 76 }\nloss = { min = 0, max = 9 }")
    assert study.guard_broken({"mem": 76, "loss": 0}) is None
    assert study.guard_broken({}) is None
    assert study.guard_broken({"mem": math.nan}) is None
    assert study.guard_broken({"mem": 76.1, "loss": -1}) == "mem"
    assert study.guard_broken({"loss": -0.1}) == "loss"
    assert study.guard_broken({"mem": math.inf}) == "mem"


@pytest.mark.parametrize(
    ("status", "metrics", "ran"),
    [
        ("succeeded", {}, FeasibilityLabel.WEAK_NO),
        ("succeeded", {"qps": math.nan}, FeasibilityLabel.WEAK_NO),
        ("succeeded", {"qps": 0.0}, FeasibilityLabel.WEAK_NO),
        ("succeeded", {"qps": -1.0}, FeasibilityLabel.WEAK_NO),
        ("succeeded", {"qps": 1.7976931348623157e308}, FeasibilityLabel.WEAK_NO),
        ("succeeded", {"qps": math.inf}, FeasibilityLabel.WEAK_NO),
        ("cancelled", {"qps": 0.0}, FeasibilityLabel.UNKNOWN),
        ("succeeded", {"qps": 5.0, "mem": 80}, FeasibilityLabel.NO),
        ("out_of_memory", {"qps": 5.0}, FeasibilityLabel.NO),
        ("failed", {"qps": 5.0}, FeasibilityLabel.YES),
        ("failed", {}, FeasibilityLabel.WEAK_NO),
        ("failed", {"qps": -5.0}, FeasibilityLabel.WEAK_NO),
        ("timeout", {}, FeasibilityLabel.WEAK_NO),
        ("timeout", {"qps": 5.0}, FeasibilityLabel.YES),
        ("cancelled", {}, FeasibilityLabel.UNKNOWN),
        ("preempted", {}, FeasibilityLabel.UNKNOWN),
        ("node_failure", {}, FeasibilityLabel.UNKNOWN),
        ("node_failure", {"qps": 5.0}, FeasibilityLabel.YES),
        ("cancelled", {"mem": 80}, FeasibilityLabel.NO),
    ],
)
def test_what_a_job_teaches(status: str, metrics: dict[str, float], ran: FeasibilityLabel) -> None:
    study = parse_study(SMALL + "[guards]\nmem = { max = 76 }")
    now = datetime(2026, 11, 20, tzinfo=UTC)
    job = Observation("small", "slurm", "1", "1", Status(status), now, {}, {}, metrics)
    assert study.ran(job) is ran


@pytest.mark.parametrize(
    ("keys", "metrics", "ran"),
    [
        ('impossible = "ran"', {"qps": 0.0}, FeasibilityLabel.YES),
        ('impossible = "ran"', {}, FeasibilityLabel.WEAK_NO),
        ('missing = "ran"', {}, FeasibilityLabel.YES),
        ('missing = "ran"', {"qps": 0.0}, FeasibilityLabel.WEAK_NO),
        ("failed_values = [1e20, 999999]", {"qps": 999999}, FeasibilityLabel.WEAK_NO),
        ("failed_values = [1e20, 999999]", {"qps": 5.0}, FeasibilityLabel.YES),
        ('scale = "linear"', {"qps": -1.0}, FeasibilityLabel.YES),
        ('scale = "linear"\nmin = 0', {"qps": 0.0}, FeasibilityLabel.YES),
        ('scale = "linear"\nmin = 0', {"qps": -1.0}, FeasibilityLabel.WEAK_NO),
        ("max = 100", {"qps": 101.0}, FeasibilityLabel.WEAK_NO),
    ],
)
def test_a_study_says_what_its_objective_can_be(
    keys: str, metrics: dict[str, float], ran: FeasibilityLabel
) -> None:
    study = parse_study(SMALL.replace("[objective]", f"[objective]\n{keys}"))
    now = datetime(2026, 11, 20, tzinfo=UTC)
    job = Observation("small", "slurm", "1", "1", Status.SUCCEEDED, now, {}, {}, metrics)
    assert study.ran(job) is ran
    usable = study.score(metrics) is not None
    assert usable is (ran is FeasibilityLabel.YES and "ran" not in keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("min = 2\nmax = 1", "2 is not below max = 1"),
        ("max = -1", 'scale = "log" needs a positive metric'),
    ],
)
def test_bounds_of_an_objective_that_nothing_can_keep(keys: str, message: str) -> None:
    with pytest.raises(MisconfiguredError, match=message):
        parse_study(SMALL.replace("[objective]", f"[objective]\n{keys}"))


def test_predictions_and_gains_stay_within_what_an_objective_can_be() -> None:
    text = SMALL.replace("[objective]", '[objective]\nscale = "linear"\nmin = 0\nmax = 50')
    study = parse_study(text.replace('goal = "maximize"', 'goal = "minimize"'))
    assert [study.metric_value(score) for score in (15e6, -20.0, -70.0)] == [0.0, 20.0, 50.0]
    assert study.gain(15e6, -20.0) == 1.0
    assert study.gain(-30.0, -20.0) == -0.5


def test_the_first_baseline_that_holds_counts() -> None:
    study = parse_study(
        SMALL.split("[[baseline]]")[0]
        + """
        [[baseline]]
        when = "gpu.hbm > 70 and n_gpus >= 64"
        config = { tp = 4, layer = "B" }
        [[baseline]]
        when = "gpu == 'H100'"
        config = { tp = 2, layer = ["A", "A", "B"] }
        [[baseline]]
        config = { tp = 1 }
        """
    )
    assert study.baseline({"gpu": "H100", "n_gpus": 64.0}) == {"tp": 4, "layer": ["B"] * 3}
    assert study.baseline({"gpu": "H100"}) == {"tp": 2, "layer": ["A", "A", "B"]}
    assert study.baseline({"gpu": "B200", "n_gpus": 64}) == {"tp": 1}
    assert study.baseline({}) == {"tp": 1}


def test_contexts_come_in_the_types_of_the_study() -> None:
    study = parse_study(CONTRACT)
    raw = {"model_params": 7_000_000_000, "gpu": "H100", "n_gpus": 128.0, "other": 1}
    clean = study.clean_context(raw)
    assert clean == {"model_params": 7e9, "gpu": "H100", "n_gpus": 128, "global_batch": None}
    assert [type(value) for value in clean.values()] == [float, str, int, type(None)]


def test_keys_of_features_may_be_ignored_or_bucketed() -> None:
    text = small(
        gpu='gpu = { type = "category", key = "ignore" }',
        n_gpus='n_gpus = { type = "int", key = { bucket = 2 } }',
    )
    study = parse_study(text)
    assert [feature.key for feature in study.context] == ["ignore", BucketKey(2.0)]
    assert study.context_key({"gpu": "H100", "n_gpus": 100}) == "small|n_gpus=64"


def test_columns_of_raw_jobs() -> None:
    study = parse_study(SMALL)
    columns = study.columns(
        [{"gpu": "H100", "n_gpus": 8}, {"gpu": "B200"}, {}],
        [{"tp": 2, "layer": "A"}, {"tp": 3, "layer": ["A", "B", "C"]}, {"tp": "x", "layer": []}],
    )
    assert columns["dp"].plain(3).tolist() == pytest.approx([4, math.nan, math.nan], nan_ok=True)
    assert columns["tp"].plain(3).tolist()[:2] == [2, 3]
    assert columns["layer"].plain(3).tolist() == [["A"] * 3, ["A", "B", "C"], [None] * 3]
    assert columns["gpu"].plain(3).tolist() == ["H100", "B200", None]
    assert columns["gpu"].attributes is not None
    assert columns["gpu"].attributes["hbm"].plain(3).tolist()[0] == 80


def test_what_a_job_has_beside_the_study_is_named() -> None:
    found = parse_study(
        SMALL.partition("[parameters]")[0].partition("[lookup")[0]
        + """
[parameters]
tp = { type = "int", values = [1, 2, 4], was = "tensor" }
memory = { type = "float", low = 0.7, high = 0.9 }
share = { type = "float", low = 0.7, high = 0.9, step = 0.1 }
cut = { type = "category", values = ["a", "b"], repeat = 2 }
[derived]
twice = "2 * tp"
"""
    )
    inside: dict[str, Value] = {"tp": 2, "memory": 0.7123, "share": 0.8, "cut": ["a", "b"]}
    assert found.outside(inside) == []
    assert found.outside({"memory": 0.9001, "share": 0.75, "cut": ["a", "c"]}) == [
        "memory",
        "share",
        "cut",
    ]
    assert found.outside({"tensor": 3, "cut": ["a"]}) == ["tp", "cut"]
    assert not found.is_foreign({"tensor": 2, "twice": 4, "unsaid": None})
    assert found.is_foreign(inside | {"new": 1})


def test_a_misspelt_section_with_a_plugins_option_is_one_mistake() -> None:
    with pytest.raises(MisconfiguredError) as error:
        parse_study(SMALL + "[serch]\nsteps = 200")
    (problem,) = error.value.problems
    assert "did you mean 'search'?" in problem.message
