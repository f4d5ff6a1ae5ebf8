"""The entry for the empty context: what is sound to launch where nothing is known."""

import math

import numpy as np
import pytest

from tests.core.tuning import study
from tunerd.core.decisions.fallback import HARM, PoolEstimates, entry
from tunerd.core.observation import Value
from tunerd.errors import NothingFeasibleError

CONFIGS: list[dict[str, Value]] = [{"x": x, "y": "a", "z": False} for x in (1, 2, 3)]


def seen(
    gains: list[float], *, runs: list[float] | None = None, jobs: float = 2.0
) -> PoolEstimates:
    """One context: gains of the configurations over what people launch, in scores."""
    count = len(gains)
    return PoolEstimates(
        reference=4.0,
        mean=np.array(gains) + 4.0,
        spread=np.full(count, 0.01),
        runs=np.array(runs or [1.0] * count),
        jobs=np.full(count, jobs),
    )


def chosen(places: list[PoolEstimates]) -> int:
    advice = entry(study(), CONFIGS, places)
    assert advice.candidates == ()
    assert advice.incumbent is not None
    return int(str(advice.incumbent.config["x"])) - 1


def why(places: list[PoolEstimates]) -> str:
    with pytest.raises(NothingFeasibleError) as caught:
        entry(study(), CONFIGS, places)
    return str(caught.value)


def test_what_is_best_on_average_is_chosen() -> None:
    assert chosen([seen([0.1, 0.2, 0.05])] * 6) == 1


def test_of_equals_the_one_with_the_better_worst() -> None:
    even = [seen([0.3, 0.2, 0.0]), seen([0.09, 0.19, 0.0])] * 5
    assert chosen(even) == 1


def test_what_does_not_run_in_some_is_not() -> None:
    places = [seen([0.3, 0.1, 0.0])] * 6 + [seen([math.nan, 0.1, 0.0], runs=[0.0, 1.0, 1.0])] * 2
    assert chosen(places) == 1


def test_what_does_harm_in_some_is_not() -> None:
    places = [seen([0.5, 0.1, 0.0])] * 6 + [seen([-2 * HARM, 0.1, 0.0])] * 2
    assert chosen(places) == 1


def test_a_handful_of_contexts_proves_nothing() -> None:
    assert chosen([seen([0.1, 0.2, 0.0])] * 4) == 1
    assert "nearly all" in why([seen([0.1, 0.2, 0.0])] * 3)


def test_predictions_alone_prove_nothing() -> None:
    assert "measured" in why([seen([0.1, 0.2, 0.0], jobs=0.0)] * 8)
    with pytest.raises(NothingFeasibleError):
        entry(study(), [], [])


def test_what_may_as_well_be_chance_is_not() -> None:
    mixed = [seen([0.04, 0.0, 0.0]), seen([-0.03, 0.0, 0.0])] * 4
    assert "surely better" in why(mixed)


def test_it_says_what_it_reached() -> None:
    advice = entry(study(), CONFIGS, [seen([0.1, 0.2, 0.0])] * 5)
    assert advice.incumbent is not None
    assert advice.incumbent.jobs == 10
    assert advice.incumbent.low <= advice.incumbent.median <= advice.incumbent.high
    assert advice.incumbent.median == pytest.approx(math.exp(4.2))
    assert "+22.1%" in advice.reason
    assert advice.baseline == {"x": 1, "y": "a", "z": False}


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_half_of_what_should_be_small_is_half_better_on_any_scale(scale: str) -> None:
    minimize = study(goal='"minimize"', scale=f'"{scale}"')

    def score(seconds: float) -> float:
        found = minimize.score({"speed": seconds})
        assert found is not None
        return found

    means = np.array([score(seconds) for seconds in (8.0, 5.0, 12.0)])
    places = [PoolEstimates(score(10.0), means, np.full(3, 0.1), np.ones(3), np.ones(3))] * 5
    advice = entry(minimize, CONFIGS, places)
    assert advice.reason.count("+50.0%") == 2  # on average, and in the worst


def test_a_smaller_objective_is_better_where_the_study_says_so() -> None:
    minimize = study(goal='"minimize"', scale='"linear"')
    places = [
        PoolEstimates(-10.0, np.array([-9.0, -8.0, -12.0]), np.full(3, 0.1), np.ones(3), np.ones(3))
    ] * 5
    advice = entry(minimize, CONFIGS, places)
    assert advice.incumbent is not None
    assert advice.incumbent.config["x"] == 2
    assert advice.incumbent.median == pytest.approx(8.0)
    assert "+20.0%" in advice.reason
