"""What is kept of a job's prediction, and of what was recommended in its place."""

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec import structs

from tests.core.evidence.test_following import CONTEXT, KEY, NEW, OTHER, STAY, TOLD, named
from tests.core.tuning import Inline, job, learned_tuner, random_jobs, study, true_speed
from tunerd.core.evidence.prequential import AdvisedRecommendation, PrequentialRecord
from tunerd.core.observation import Observation, Status
from tunerd.core.tuner import Tuner


def tuned(jobs: int = 80) -> Tuner:
    return learned_tuner(random_jobs(jobs), jobs)


def judged(tuner: Tuner, one: Observation, *, published: bool = False) -> PrequentialRecord:
    def advises(key: str) -> AdvisedRecommendation | None:
        return AdvisedRecommendation(TOLD, published) if key == KEY else None

    (found,) = tuner.learn([one], advises).judged
    return found


def ran(config: Mapping[str, Any], sequence: int = 81, **changes: Any) -> Observation:
    one = job(sequence, CONTEXT, config, speed=true_speed(CONTEXT, config))
    return structs.replace(one, **changes)


def test_before_there_is_a_model_a_row_says_what_came() -> None:
    tuner = Tuner(study(), Inline())
    (one,) = tuner.learn([job(1, CONTEXT, STAY, speed=math.e)]).judged
    assert (one.sequence, one.history, one.context_key) == (1, False, KEY)
    outcome = one.outcome
    assert outcome.score == pytest.approx(1.0)
    assert (outcome.predicted, outcome.low, outcome.feasible) == (None, None, None)
    assert (outcome.ran, outcome.following, outcome.incumbent) == (True, "unasked", None)
    assert outcome.config_id == named(STAY)


def test_a_job_is_judged_beside_what_was_recommended() -> None:
    tuner = tuned()
    before = tuner.model
    assert before is not None
    outcome = judged(tuner, ran(OTHER)).outcome
    assert outcome.recommendation_id == TOLD.recommendation_id
    assert outcome.ran_as is None
    assert outcome.incumbent is not None
    assert outcome.first is not None
    assert (outcome.incumbent.config_id, outcome.incumbent.kind) == (named(STAY), "incumbent")
    assert (outcome.first.config_id, outcome.first.kind) == (named(NEW), "exploit")
    assert outcome.predicted is not None
    assert outcome.low is not None
    assert outcome.high is not None
    assert outcome.low < outcome.predicted < outcome.high
    # The toy's truth: NEW is far better than STAY.
    gain = outcome.first.score - outcome.incumbent.score
    truth = np.log(true_speed(CONTEXT, NEW) / true_speed(CONTEXT, STAY))
    assert gain == pytest.approx(truth, abs=0.35)


@pytest.mark.slow
def test_what_is_expected_of_a_target_is_what_is_expected_of_a_job_that_runs_it() -> None:
    outcome = judged(tuned(), ran(NEW)).outcome
    assert outcome.first is not None
    assert outcome.first.score == outcome.predicted
    assert outcome.ran_as == "first"
    assert judged(tuned(), ran(STAY)).outcome.ran_as == "incumbent"


@pytest.mark.slow
def test_only_what_was_published_can_be_ignored() -> None:
    assert judged(tuned(), ran(OTHER)).outcome.following == "unasked"
    assert judged(tuned(), ran(OTHER), published=True).outcome.following == "ignored"


@pytest.mark.slow
def test_a_job_that_was_told_to_try_a_candidate_is_told_apart() -> None:
    told = ran(NEW, recommendation_id="r-older", candidate_id=named(NEW))
    outcome = judged(tuned(), told, published=True).outcome
    assert (outcome.following, outcome.told_to_try) == ("followed", True)
    kept = ran(STAY, recommendation_id=TOLD.recommendation_id)
    outcome = judged(tuned(), kept, published=True).outcome
    assert (outcome.following, outcome.told_to_try) == ("followed", False)
    other = ran(OTHER, recommendation_id="r-older", candidate_id=named(NEW))
    outcome = judged(tuned(), other, published=True).outcome
    assert (outcome.following, outcome.told_to_try) == ("changed", False)


@pytest.mark.slow
def test_a_job_that_failed_says_so() -> None:
    one = job(81, CONTEXT, OTHER, status=Status.OUT_OF_MEMORY)
    outcome = judged(tuned(), one).outcome
    assert (outcome.status, outcome.ran, outcome.score) == (Status.OUT_OF_MEMORY, False, None)
    assert outcome.feasible is not None
    gone = job(81, CONTEXT, OTHER, status=Status.PREEMPTED)
    assert judged(tuned(), gone).outcome.ran is None


@pytest.mark.parametrize(
    ("gpus", "started", "hours"),
    [
        (64, timedelta(hours=2), 128.0),
        (None, timedelta(hours=2), None),
        (0, timedelta(hours=2), None),
        (64, None, None),
        (64, timedelta(hours=-2), None),
        (64, timedelta(days=4000), None),
    ],
)
def test_gpu_hours_are_those_that_the_event_tells(
    gpus: int | None, started: timedelta | None, hours: float | None
) -> None:
    one = ran(OTHER, gpus=gpus)
    if started is not None:
        one = structs.replace(one, extra={"started_at": (one.finished_at - started).isoformat()})
    assert judged(tuned(), one).outcome.gpu_hours == hours


@pytest.mark.parametrize("started", ["yesterday", 5, "2026-11-01T00:00:00"])
def test_a_start_that_cannot_be_read_gives_no_hours(started: object) -> None:
    one = ran(OTHER, gpus=8, extra={"started_at": started})
    assert judged(tuned(), one).outcome.gpu_hours is None


def test_an_imported_job_is_predicted_and_followed_nothing() -> None:
    one = judged(tuned(), ran(NEW, history=True), published=True)
    assert one.history
    assert one.outcome.predicted is not None
    assert (one.outcome.following, one.outcome.first, one.outcome.ran_as) == (None, None, None)


def test_a_row_says_how_often_its_configuration_was_tried_before() -> None:
    tuner = tuned()
    assert judged(tuner, ran({"x": 3, "y": "a", "z": True})).outcome.tried <= 3
    before = judged(tuner, ran(NEW, 82)).outcome.tried
    assert judged(tuner, ran(NEW, 83)).outcome.tried == before + 1


@pytest.mark.slow
def test_a_batch_is_judged_as_its_jobs_are_one_by_one_before_learning() -> None:
    jobs = random_jobs(20, seed=3, first=81)
    batch = tuned().learn(jobs, lambda _: AdvisedRecommendation(TOLD, True)).judged
    first = tuned().learn(jobs[:1], lambda _: AdvisedRecommendation(TOLD, True)).judged
    assert batch[0] == first[0]
    assert [one.sequence for one in batch] == list(range(81, 101))


def test_a_row_is_small_and_comes_back_from_json() -> None:
    outcome = judged(tuned(), ran(OTHER, gpus=8), published=True).outcome
    text = msgspec.json.encode(outcome)
    assert len(text) < 700
    assert msgspec.json.decode(text, type=type(outcome)) == outcome


@pytest.mark.slow
def test_the_window_knows_how_often_bands_held() -> None:
    tuner = tuned(200)
    tuner.learn(random_jobs(100, seed=5, first=201))
    scores = tuner.window.scores(tuner.study.metric_value)
    assert 0.5 < scores.coverage <= 1.0
    again = type(tuner.window).load(tuner.window.dump())
    assert again.scores().coverage == scores.coverage
