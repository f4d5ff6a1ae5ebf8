"""How well jobs were predicted, and what those that asked came out with: known answers."""

import math
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from tests.core.tuning import study
from tests.report.world import START, world
from tunerd.core.evidence.prequential import PrequentialOutcome, PrequentialRecord
from tunerd.core.observation import Status
from tunerd.report.followers import beside_others, candidates_tried, first_candidates
from tunerd.report.jobs import JobArrays, jobs_of
from tunerd.report.quality import judge_quality, reliability, share

STUDY = study()


def row(number: int, context: int = 0, **outcome: Any) -> PrequentialRecord:
    values: dict[str, Any] = {"config_id": "c-1", "status": Status.SUCCEEDED, "ran": True}
    return PrequentialRecord(
        number, START, False, f"toy|n={context}", PrequentialOutcome(**values | outcome)
    )


def predicted(score: float, by: float, half: float = 0.1, **more: Any) -> dict[str, Any]:
    """A job whose prediction was off by ``by``."""
    told = score + by
    return {"score": score, "predicted": told, "low": told - half, "high": told + half, **more}


def jobs(rows: list[PrequentialRecord]) -> JobArrays:
    return jobs_of(STUDY, rows)


def test_predictions_that_were_right() -> None:
    rows = [row(i, i % 2, **predicted(i / 10, 0.0)) for i in range(1, 61)]
    found = judge_quality(STUDY, jobs(rows))
    assert found is not None
    assert (found.jobs, found.kendall.middle, found.spearman.middle) == (60, 1.0, 1.0)
    assert found.kendall.low == found.kendall.high == 1.0
    assert found.coverage.middle == 1.0
    assert found.coverage.low < 1.0
    assert found.mape == pytest.approx(0.0)
    assert found.half_width == pytest.approx(0.1)


def test_predictions_that_were_off_by_a_known_amount() -> None:
    off = math.log(1.1)
    rows = [row(i, **predicted(i / 10, off, half=0.05)) for i in range(1, 31)]
    rows += [row(i, **predicted(i / 10, 0.0)) for i in range(31, 41)]
    found = judge_quality(STUDY, jobs(rows))
    assert found is not None
    assert found.mape == pytest.approx(0.075)
    assert found.median_error == pytest.approx(0.1)
    assert found.coverage.middle == 0.25


def test_ranks_are_compared_within_contexts() -> None:
    """Contexts are told apart perfectly, and within each everything is upside down."""
    rows = [
        row(i, i % 2, **predicted(10.0 * (i % 2) + i / 100, -2 * i / 100)) for i in range(1, 61)
    ]
    found = judge_quality(STUDY, jobs(rows))
    assert found is not None
    assert found.kendall.middle == pytest.approx(-1.0)


def test_few_jobs_say_nothing() -> None:
    assert judge_quality(STUDY, jobs([])) is None
    assert judge_quality(STUDY, jobs([row(i, **predicted(i, 0.0)) for i in range(7)])) is None
    assert judge_quality(STUDY, jobs([row(i) for i in range(50)])) is None
    few = judge_quality(STUDY, jobs([row(i, **predicted(i / 10, 0.0)) for i in range(8)]))
    assert few is not None
    assert math.isnan(few.kendall.low)
    assert few.periods == ()


@pytest.mark.slow
def test_error_over_time_falls_when_it_does() -> None:
    rng = np.random.default_rng(1)
    rows = [
        structs.replace(
            row(i, **predicted(1.0, float(rng.normal(0, 0.5 / (1 + i / 50))))),
            finished_at=world(0).run(i)[0][-1].finished_at,
        )
        for i in range(1, 241, 2)
    ]
    found = judge_quality(STUDY, jobs(rows))
    assert found is not None
    assert len(found.periods) == 8
    assert sum(one.jobs for one in found.periods) == len(rows)
    errors = [one.error for one in found.periods]
    assert errors[-1] < errors[0] / 2
    assert [one.since for one in found.periods] == sorted(one.since for one in found.periods)


def test_new_configurations_can_be_looked_at_alone() -> None:
    rows = [row(i, tried=i % 2, **predicted(i / 10, 0.2 * (i % 2 == 0))) for i in range(40)]
    made = jobs(rows)
    found = judge_quality(STUDY, made, np.flatnonzero(made.tried == 0))
    assert found is not None
    assert found.jobs == 20
    assert found.median_error == pytest.approx(math.expm1(0.2))


def test_the_probability_to_run_is_held_against_what_ran() -> None:
    rng = np.random.default_rng(2)
    said = rng.choice([0.1, 0.5, 0.97], 600)
    rows = [
        row(i, feasible=float(p), ran=bool(rng.random() < p)) for i, p in enumerate(said.tolist())
    ]
    found = reliability(jobs([*rows, row(601, feasible=0.5, ran=None), row(602)]))
    assert found is not None
    assert found.jobs == 600
    assert [(one.low, one.high) for one in found.bins] == [(0.0, 0.2), (0.4, 0.6), (0.95, 1.0)]
    for one in found.bins:
        assert one.observed.low < one.observed.middle < one.observed.high
        assert one.observed.middle == pytest.approx(one.predicted, abs=0.08)
    assert found.brier < found.plain
    assert reliability(jobs([])) is None


def test_a_share_has_wilsons_interval() -> None:
    half = share(50, 100)
    assert (half.middle, half.low, half.high) == pytest.approx((0.5, 0.4188, 0.5812), abs=1e-4)
    assert share(0, 10).low == 0.0
    assert share(0, 10).high > 0.15


# -- jobs that asked ------------------------------------------------------------------------


def test_followers_are_held_against_others_of_their_context_and_time() -> None:
    rng = np.random.default_rng(3)
    rows = []
    for i in range(400):
        context, followed = i % 4, bool(rng.random() < 0.3)
        # Contexts differ a lot, and the cluster slows down; both must not matter.
        level = 3.0 * context - 0.5 * (i > 200)
        score = level + 0.1 * followed + float(rng.normal(0, 0.05))
        rows.append(row(i, context, score=score, following="followed" if followed else "ignored"))
    found = beside_others(jobs(rows), trying=False)
    assert found.jobs == sum(one.outcome.following == "followed" for one in rows)
    assert found.gap is not None
    assert found.gap.low < 0.1 < found.gap.high
    assert found.gap.high - found.gap.low < 0.08


def test_what_is_tried_to_learn_is_told_apart_from_what_is_kept() -> None:
    rows = []
    for i in range(300):
        kind = i % 3
        rows.append(
            row(
                i,
                score=(0.0, 0.2, -0.1)[kind],
                following="ignored" if kind == 0 else "followed",
                told_to_try=kind == 2,
            )
        )
    kept = beside_others(jobs(rows), trying=False)
    tried = beside_others(jobs(rows), trying=True)
    assert (kept.jobs, tried.jobs) == (100, 100)
    assert kept.gap is not None
    assert tried.gap is not None
    assert (kept.gap.middle, tried.gap.middle) == pytest.approx((0.2, -0.1))


def test_with_too_few_others_followers_are_compared_with_nobody() -> None:
    rows = [row(i, score=1.0, following="followed") for i in range(50)]
    assert beside_others(jobs(rows), trying=False).gap is None
    ignored = jobs([row(1, score=1.0, following="ignored")])
    assert beside_others(ignored, trying=False).jobs == 0


def test_candidates_that_were_tried_show_how_far_a_search_overrates() -> None:
    """The predictor is wrong about untried ones by 20 %, and its search picks the worst of it."""
    rows = []
    for seed in range(12):
        made, _ = world(seed, error=0.2, following=0.4, explore=0.5).run(150)
        rows += [structs.replace(one, context_key=f"{one.context_key}{seed}") for one in made]
    found = candidates_tried(jobs(rows))
    assert found is not None
    assert found.jobs > 100
    assert found.came is not None
    assert found.came.high < found.predicted
    told = first_candidates(jobs(rows))
    assert told is not None
    assert told.predicted > 0.1
    assert told.feasible == pytest.approx(0.95)


def test_candidates_that_nobody_was_told_to_run_show_nothing() -> None:
    made = jobs(world(1).run(150)[0])
    assert candidates_tried(made) is None
    assert first_candidates(made) is not None
    assert first_candidates(jobs([])) is None
