"""Ranges without a step: any number within them is a configuration like any other."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.tuning import Inline, job
from tests.needs import without
from tunerd.core.decisions.overrides import Override, OverrideSet
from tunerd.core.observation import Value
from tunerd.core.recommendation import Advice
from tunerd.core.searchers import SEARCHERS, searcher_class
from tunerd.core.searchers.base import SearchBudget
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.core.study.continuous_range import BETWEEN
from tunerd.core.study_file import parse_study
from tunerd.core.tuner import Tuner
from tunerd.errors import NothingFeasibleError

ENDS = [
    (0.001, 0.01),
    (1e-8, 1e8),
    (-1.0, 1.0),
    (1_000_000.0, 1_000_001.0),
    (-1e308, 1e308),
    (0.1, 0.1000001),
    (0.0123456789, 0.5),
    (1e-300, 1e-290),
]


def study_of(parameters: str, rest: str = "") -> Study:
    return parse_study(
        f"""
        schema = 1
        name = "toy"
        objective = {{ metric = "speed", goal = "maximize" }}
        {rest}
        [parameters]
        {parameters}
        """
    )


def float_in(low: float, high: float, scale: str = "linear") -> Any:
    text = f'{{ type = "float", low = {low!r}, high = {high!r}, scale = "{scale}" }}'
    return study_of(f"x = {text}").parameters[0]


@given(ends=st.sampled_from(ENDS), share=st.floats(0, 1), decade=st.integers(-12, 12))
def test_every_float_of_a_range_has_a_code_that_gives_it_back(
    ends: tuple[float, float], share: float, decade: int
) -> None:
    low, high = ends
    parameter = float_in(low, high)
    for value in (low * (1 - share) + high * share, share * 10.0**decade):
        if not low <= value <= high:
            continue
        code = parameter.index(value)
        assert code is not None
        found = parameter.value(code)
        assert low <= found <= high
        zero = 1e-12 * (high / 2 - low / 2)
        assert abs(found - value) <= max(5.1e-6 * abs(value), zero)
        assert parameter.index(found) == code  # rounding again changes nothing
        assert 0 <= code < 2**31


@pytest.mark.parametrize(
    ("one", "other"),
    [(30.250000000003, 30.25), (30.25, 30.250001907), (33.3333333, 33.33333), (40.000001, 40.0)],
)
def test_floats_that_differ_by_rounding_are_one(one: float, other: float) -> None:
    parameter = float_in(20.0, 40.0)
    assert parameter.index(one) == parameter.index(other) is not None


@pytest.mark.parametrize(
    ("low", "high", "outside", "inside"),
    [
        (0.001, 0.0123456789, (0.0009999, 0.012346, 0.0, -1.0), (0.0123457, 0.00099999999)),
        (1_000_000.0, 1_000_001.0, (999_999.6, 1_000_001.4), (1_000_000.5, 1_000_001.0000001)),
        (0.0, 1.0, (-0.001, 1.0001), (1e-12, -1e-16, 0.99999999)),
    ],
)
def test_the_ends_belong_to_the_range_and_what_is_written_like_them(
    low: float, high: float, outside: tuple[float, ...], inside: tuple[float, ...]
) -> None:
    parameter = float_in(low, high)
    assert [parameter.index(value) for value in outside] == [None] * len(outside)
    assert None not in [parameter.index(value) for value in (low, high, *inside)]


@pytest.mark.parametrize(
    ("low", "high", "value"),
    [(1, 10**6, 123_457), (0, 2**40, 17_179_869_185), (-(2**62), 2**62, -(10**12) - 1)],
)
def test_integers_between_those_that_are_searched(low: int, high: int, value: int) -> None:
    parameter = study_of(f'x = {{ type = "int", low = {low}, high = {high} }}').parameters[0]
    code = parameter.index(value)
    assert code is not None
    found = parameter.value(code)
    assert isinstance(found, int)
    assert abs(found - value) <= abs(value) * 2**-24
    assert high > 2**31 or found == value
    assert parameter.index(found) == code
    assert parameter.index(high + 1) is None


def test_a_stepped_range_stays_a_grid() -> None:
    study = study_of('x = { type = "float", low = 0.77, high = 0.85, step = 0.01 }')
    assert not study.parameters[0].continuous
    assert study.parameters[0].index(0.8349) is None
    assert study.parameters[0].index(0.77 + 6 * 0.01) == 6


MIXED = """
lr = { type = "float", low = 1e-5, high = 1e-1, scale = "log" }
drop = { type = "float", low = 0.0, high = 0.5, repeat = 2 }
batch = { type = "int", low = 1, high = 1_000_000, scale = "log" }
kind = { type = "category", values = ["a", "b"] }
[derived]
heat = "lr * batch"
[constraints]
cool = "heat <= 100"
less = "drop[0] <= drop[1]"
"""
INSIDE: dict[str, Value] = {"lr": 0.00123456, "drop": [0.1234567, 0.3], "batch": 777, "kind": "b"}


def test_configurations_between_choices_are_feasible_as_the_constraints_say() -> None:
    space = SearchSpace(study_of(MIXED), {})
    code = space.encode(INSIDE)
    assert code is not None
    assert space.decode(code) == {**INSIDE, "drop": [0.1234567, 0.3]}
    assert space.columns(code[None])["heat"][0] == pytest.approx(0.00123456 * 777)
    assert space.encode({**INSIDE, "drop": [0.31, 0.3]}) is None
    assert space.encode({**INSIDE, "lr": 0.099, "batch": 123_457}) is None
    assert space.encode({**INSIDE, "lr": 0.11}) is None


def test_repair_leaves_what_is_feasible_and_moves_the_rest_onto_choices() -> None:
    space, rng = SearchSpace(study_of(MIXED), {}), np.random.default_rng(0)
    inside = space.encode(INSIDE)
    assert inside is not None
    broken = space.nearest({**INSIDE, "drop": [0.3123, 0.3]}, rng)
    assert broken is not None
    assert (broken < BETWEEN).all()
    assert space.feasible(broken[None]).all()
    drawn = space.sample(5, rng)
    both = np.concatenate([drawn, inside[None]])
    assert (space.repair(both, rng) == both).all()
    assert space.feasible(both).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SEARCHERS))
def test_searchers_begin_beside_what_ran_between_choices(name: str) -> None:
    study = study_of(MIXED, f"search.searcher = '{name}'")
    if searcher_class(name).problem(study.search) is not None:
        without(f"searcher {name}", "its library is missing: pip install -e '.[optuna]'")
    space = SearchSpace(study, {})
    code = space.encode(INSIDE)
    assert code is not None
    found = searcher_class(name)(study.search).search(
        space,
        lambda codes: -np.abs(codes - space.on_choices(code[None])).sum(axis=1).astype(float),
        np.random.default_rng(0),
        SearchBudget(200, 8),
        code[None],
    )
    assert (found.codes < BETWEEN).all()
    assert found.scores[0] == 0.0


@pytest.mark.parametrize(
    ("parameters", "constraint"),
    [
        ('x = { type = "float", low = 0.0, high = 1.0 }', "x > 0.501 and x < 0.51"),
        ('x = { type = "float", low = 1e-8, high = 1e8, scale = "log" }', "x >= 2 and x <= 2.1"),
    ],
)
def test_a_gap_between_the_points_of_a_search_is_found(parameters: str, constraint: str) -> None:
    space = SearchSpace(study_of(parameters, f'constraints.narrow = "{constraint}"'), {})
    assert space.feasible(space.sample(4, np.random.default_rng(0))).all()
    with pytest.raises(NothingFeasibleError, match="narrow"):
        SearchSpace(study_of(parameters, f'constraints.narrow = "{constraint} and x < 0.4"'), {})


# ── learning ─────────────────────────────────────────────────────────────────────────────────

TOY = 'x = { type = "float", low = 0.001, high = 0.01 }\ny = { type = "int", values = [1, 2, 4] }'


def speed(x: float, y: int) -> float:
    return float(100 * np.exp(-(((x - 0.0044) / 0.003) ** 2) + 0.05 * y))


def tuner_of(rest: str = "", best: float = 0.0044308381) -> Tuner:
    tuner = Tuner(study_of(TOY, f'predictor.name = "gaussian_process"\n{rest}'), Inline())
    rng = np.random.default_rng(1)
    xs = [*rng.uniform(0.001, 0.01, 14), *[best] * 4]
    jobs = [
        job(i + 1, {}, {"x": float(x), "y": 4 if x == best else 1}, speed=speed(float(x), 1))
        for i, x in enumerate(xs)
    ]
    for at in range(0, len(jobs), 6):
        tuner.learn(jobs[at : at + 6])
    return tuner


def advice_of(tuner: Tuner) -> Advice:
    return tuner.advise(tuner.study.context_key({}), None)


def test_the_best_that_ran_is_the_incumbent_whatever_its_number() -> None:
    advice = advice_of(tuner_of())
    assert advice.incumbent is not None
    assert advice.incumbent.config == {"x": 0.004430838, "y": 4}
    assert advice.incumbent.jobs == 4
    assert "18 jobs in this context" in advice.reason


@pytest.mark.parametrize("rest", ["", "limits = { max_changes = 1, max_steps = { x = 2 } }"])
def test_a_pin_between_choices_is_kept_to(rest: str) -> None:
    tuner = tuner_of(rest)
    order = Override(1, "pin", {}, {"x": 0.0051234})
    tuner.impose(OverrideSet(tuner.study, [order]))
    advice = advice_of(tuner)
    assert {c.config["x"] for c in advice.candidates} == {0.0051234}


def test_what_is_forbidden_between_choices_is_not_recommended() -> None:
    tuner = tuner_of()
    order = Override(1, "forbid", {}, {"x": 0.004430838})
    tuner.impose(OverrideSet(tuner.study, [order]))
    advice = advice_of(tuner)
    configs = [c.config for c in advice.candidates]
    assert advice.incumbent is None or advice.incumbent.config["x"] != 0.004430838
    assert configs
    assert all(config["x"] != 0.004430838 for config in configs)


def test_steps_are_counted_from_an_incumbent_between_choices() -> None:
    tuner = tuner_of("limits = { max_steps = { x = 0 } }")
    advice = advice_of(tuner)
    assert {c.config["x"] for c in advice.candidates} <= {0.004430838}


def test_the_same_jobs_written_with_more_digits_are_the_same_configuration() -> None:
    one, other = advice_of(tuner_of()), advice_of(tuner_of(best=0.004430838139193913))
    assert one.incumbent is not None
    assert other.incumbent is not None
    assert one.incumbent.config == other.incumbent.config
