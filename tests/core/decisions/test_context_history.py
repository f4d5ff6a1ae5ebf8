"""A context is told of each job, each correction and each drift once; all of its parts hear it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from msgspec import structs

from tests.core.tuning import job, study
from tunerd.core.decisions.context_history import ContextHistory
from tunerd.core.drift import Drift
from tunerd.core.evidence.prequential import NamedJob
from tunerd.core.observation import FeasibilityLabel, Observation, Status, Value, corrected
from tunerd.core.study.parts import LimitOptions

STUDY = study()
CONFIG: dict[str, Value] = {"x": 1, "y": "a", "z": False}


def named(one: Observation, name: str = "c-1", config: Mapping[str, Value] = CONFIG) -> NamedJob:
    return NamedJob(one, name, config, 0)


def with_incumbent() -> ContextHistory:
    """One whose incumbent ran three times, and a challenger once beside it."""
    history = ContextHistory({"n": 8})
    for sequence in range(1, 4):
        history.learn(STUDY, named(job(sequence, {"n": 8}, CONFIG, speed=1.0)), 1.0, 1.0)
    history.introduction.incumbent, history.introduction.established = "c-1", True
    history.learn(
        STUDY, named(job(4, {"n": 8}, CONFIG, speed=1.0), "c-2", {**CONFIG, "x": 2}), 2.0, 1.0
    )
    return history


def test_a_job_is_told_to_estimates_tests_and_shares() -> None:
    history = with_incumbent()
    assert (history.tried("c-1"), history.tried("c-2"), history.tried("c-3")) == (3, 1, 0)
    assert history.introduction.duels["c-2"].runs == 1
    assert history.influence.configs["c-2"][""] == 1


def test_what_is_above_a_share_counts_for_nothing_but_is_a_job() -> None:
    limited = replace(STUDY, limits=LimitOptions(max_user_share=0.5))
    history = ContextHistory({"n": 8})
    counted = []
    for sequence in range(1, 9):
        user = "ann" if sequence > 4 else f"u{sequence}"
        one = structs.replace(job(sequence, {"n": 8}, CONFIG, speed=1.0), user=user)
        config_id = "c-1" if sequence > 4 else "c-2"
        counted.append(history.learn(limited, named(one, config_id), 1.0, 1.0))
    assert counted[4] == (1.0, FeasibilityLabel.YES)
    assert counted[7] == (None, FeasibilityLabel.UNKNOWN)
    assert history.evidence.jobs == 8
    assert history.evidence.trials["c-1"].runs < 4


def test_a_correction_puts_right_what_was_learned() -> None:
    history = with_incumbent()
    history.learn(STUDY, named(before := job(5, {"n": 8}, CONFIG, speed=1.0), "c-2"), 0.0, 1.0)
    after = corrected(job(6, {"n": 8}, CONFIG, status=Status.OUT_OF_MEMORY), before)
    history.correct(STUDY, "c-2", after, 5, None)
    stats = history.evidence.trials["c-2"]
    assert (stats.runs, stats.ran, stats.failures) == (1, 1, 1)


def test_a_drift_begins_estimates_and_tests_again() -> None:
    history = with_incumbent()
    at = datetime(2026, 1, 1, tzinfo=UTC)
    drift = Drift("d", "speed", 4, at, 4, at, moved=-0.5)
    history.restart(STUDY, drift, 4, at.isoformat())
    assert history.evidence.begun == [(4, -0.5)]
    assert history.evidence.trials["c-1"].runs == 0
    assert history.introduction.level is None
    assert list(history.introduction.duels) == ["c-2"]  # it saw nothing from before
