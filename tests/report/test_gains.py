"""What jobs would have gained: made-up clusters in which the truth is known.

Each claim is held over many of them, for an estimate that is right once may be lucky.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from tests.core.tuning import study
from tests.report.world import World, world
from tunerd.core.evidence.prequential import PrequentialRecord
from tunerd.core.study_file import parse_study
from tunerd.report.gains import GainEstimate, estimate_gains
from tunerd.report.jobs import JobArrays, jobs_of, relative_gain

STUDY = study()


@dataclass(frozen=True)
class Seen:
    """One made-up month."""

    truth: float
    found: GainEstimate

    @property
    def covered(self) -> bool:
        return self.found.gain.low <= self.truth <= self.found.gain.high

    @property
    def claimed(self) -> bool:
        return self.found.supported and self.found.gain.low > 0 and self.found.gain.middle >= 0.01


def months(seeds: int, jobs: int = 150, **options: Any) -> list[Seen]:
    seen = []
    for seed in range(seeds):
        rows, truth = world(seed, **options).run(jobs)
        found = estimate_gains(STUDY, jobs_of(STUDY, rows))
        if found is not None:
            seen.append(Seen(truth["incumbent"], found))
    return seen


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"contexts": 1, "jobs": 80},
        {"signal": 0.5, "error": 0.03, "doubt": 0.06},
        {"following": 0.3, "explore": 0.5},
        {"shift": -0.2 * (np.arange(150) > 75)},
    ],
    ids=["people vary", "one context", "a timid predictor", "some follow", "the cluster slows"],
)
def test_a_true_gain_of_ten_per_cent_is_found(options: dict[str, Any]) -> None:
    seen = months(24, **options)
    assert len(seen) >= 20
    truth = mean([one.truth for one in seen])
    assert 0.08 < truth < 0.15
    assert mean([one.found.gain.middle for one in seen]) == pytest.approx(truth, abs=0.015)
    assert mean([one.covered for one in seen]) >= 0.8
    assert mean([one.claimed for one in seen]) >= 0.8


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"error": 0.08, "doubt": 0.04},
        {"error": 0.08},
        {"error": 0.05, "contexts": 1, "jobs": 80},
        {"error": 0.08, "doubt": 0.05, "configs": 400, "popular": 200},
        {"error": 0.08, "doubt": 0.05, "following": 0.3},
        {"error": 0.05, "shift": -0.2 * (np.arange(150) > 75)},
    ],
    ids=[
        "a predictor that believes itself",
        "a wild predictor",
        "one context",
        "nobody runs anything twice",
        "some follow",
        "the cluster slows down",
    ],
)
def test_where_there_is_nothing_to_gain_nothing_is_claimed(options: dict[str, Any]) -> None:
    seen = months(24, effect=0.0, **options)
    assert mean([one.found.predicted for one in seen]) > 0.005  # the predictor would have claimed
    assert mean([one.claimed for one in seen]) <= 0.1
    assert mean([one.covered for one in seen]) >= 0.8
    assert abs(mean([one.found.gain.middle for one in seen])) < 0.008


@pytest.mark.slow
def test_a_predictor_that_exaggerates_is_taken_at_a_discount() -> None:
    seen = months(16, effect=0.05, signal=2.0, error=0.03, doubt=0.06)
    assert mean([one.found.discount.middle for one in seen]) < 0.85
    assert mean([one.found.gain.middle for one in seen]) < mean([one.truth for one in seen]) + 0.005


@pytest.mark.slow
def test_without_anybody_who_ran_it_the_predictor_is_believed_as_far_as_it_was_right() -> None:
    seen = months(12, jobs=200, configs=400, popular=200)
    assert not any(one.found.tested for one in seen)
    assert mean([one.claimed for one in seen]) >= 0.8
    middle = mean([one.found.gain.middle for one in seen])
    assert middle == pytest.approx(mean([one.truth for one in seen]), abs=0.02)


def test_where_all_run_the_same_there_is_nothing_to_compare() -> None:
    assert months(3, popular=1) == []


def test_one_straggler_decides_nothing() -> None:
    rows, _ = world(1).run(150)
    place = next(
        i
        for i, one in enumerate(rows)
        if one.outcome.incumbent is not None
        and one.outcome.config_id != one.outcome.incumbent.config_id
    )
    slow = list(rows)
    slow[place] = structs.replace(
        rows[place], outcome=structs.replace(rows[place].outcome, score=-20.0)
    )
    before, after = gains(rows), gains(slow)
    assert after.gain.middle == pytest.approx(before.gain.middle, abs=0.02)


def test_the_same_jobs_give_the_same_estimate() -> None:
    rows, _ = world(1).run(150)
    assert gains(rows) == gains(rows)


def test_contexts_add_up_to_the_whole() -> None:
    rows, _ = world(2).run(200)
    found = gains(rows)
    assert [one.jobs for one in found.contexts] == sorted(
        (one.jobs for one in found.contexts), reverse=True
    )
    jobs = sum(one.jobs for one in found.contexts)
    assert jobs == found.jobs
    whole = sum(one.jobs * one.gain.middle for one in found.contexts) / jobs
    assert found.gain.middle == pytest.approx(whole)
    assert found.gpu_hours is not None
    hours = sum(one.gpu_hours.middle for one in found.contexts if one.gpu_hours)
    assert found.gpu_hours.middle == pytest.approx(hours)
    assert found.hours == 10.0 * found.jobs
    assert 0 < found.gpu_hours.middle < found.hours
    # e^gain times as fast is 1 - e^-gain less time.
    assert found.gpu_hours.middle / found.hours == pytest.approx(
        -np.expm1(-found.gain.middle), abs=0.02
    )


def test_what_was_predicted_and_what_came_lie_on_a_line() -> None:
    steps = gains(world(3).run(300)[0]).steps
    assert len(steps) == 8
    assert sum(step.jobs for step in steps) > 200
    predicted = [step.predicted for step in steps]
    assert predicted == sorted(predicted)
    assert np.corrcoef(predicted, [step.came for step in steps])[0, 1] > 0.97


@pytest.mark.parametrize("goal", ["maximize", "minimize"])
def test_on_a_linear_scale_gains_are_relative_to_the_context(goal: str) -> None:
    text = STUDY.text.replace('scale = "log"\n[context]', 'scale = "linear"\n[context]').replace(
        'goal = "maximize"', f'goal = "{goal}"'
    )
    linear = parse_study(text)
    assert linear.objective.scale == "linear"
    rows, truth = world(4).run(200)
    found = estimate_gains(linear, jobs_of(linear, [in_units(one) for one in rows]))
    assert found is not None
    assert found.gain.middle == pytest.approx(truth["incumbent"], abs=0.04)
    assert relative_gain(linear, found.gain.middle) == found.gain.middle
    assert found.gpu_hours is not None
    assert 0 < found.gpu_hours.middle < found.hours


def in_units(one: PrequentialRecord) -> PrequentialRecord:
    """The same job where contexts differ by a factor of a thousand and levels add up."""
    size = 10.0 ** int(one.context_key[-1])
    told = one.outcome

    def moved(score: float | None) -> float:
        assert score is not None
        return size * (1.0 + score)

    stay, first = told.incumbent, told.first
    return structs.replace(
        one,
        outcome=structs.replace(
            told,
            score=moved(told.score),
            predicted=moved(told.predicted),
            low=moved(told.low),
            high=moved(told.high),
            incumbent=stay
            and structs.replace(stay, score=moved(stay.score), spread=size * stay.spread),
            first=first
            and structs.replace(first, score=moved(first.score), spread=size * first.spread),
        ),
    )


def gains(rows: list[PrequentialRecord]) -> GainEstimate:
    found = estimate_gains(STUDY, jobs_of(STUDY, rows))
    assert found is not None
    return found


@pytest.mark.slow
def test_a_hundred_thousand_jobs_take_seconds() -> None:
    """Strata, cells and draws must not cost a job the others' time: 30 times as many jobs."""
    rows, _ = world(5, contexts=40).run(1000)
    many: JobArrays = jobs_of(STUDY, rows * 30)
    found = estimate_gains(STUDY, many)
    assert found is not None
    assert found.jobs > 10_000


def test_worlds_are_what_they_claim() -> None:
    one: World = world(8)
    rows, truth = one.run(100)
    assert len(rows) == 100
    assert truth["first"] > truth["incumbent"] > 0.02
