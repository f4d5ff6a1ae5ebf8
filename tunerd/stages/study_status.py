"""How a study stands, for those who overhear the tune stage: metrics, and ``tunerd status`` by the
step's row. Nothing is decided by it."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tunerd import telemetry
from tunerd.core.evidence.prequential import PrequentialRecord
from tunerd.core.observation import CorrectedObservation, Observation
from tunerd.core.study import Study
from tunerd.stages.drift_events import drifting
from tunerd.stages.study_session import StudySession
from tunerd.store import StudyRow

__all__ = ["following", "outside", "scores", "standing", "taken"]


def standing(
    row: StudyRow, books: StudySession, active: int, scores: telemetry.PrequentialScores
) -> dict[str, Any]:
    """The fields of :class:`telemetry.StudyStatus`; so many contexts are active."""
    gains = books.tuner.gains
    return {
        "study": row.name,
        "sequence": books.tuner.sequence,
        "waiting": max(row.last_sequence - books.tuner.sequence, 0),
        "contexts_active": active,
        "scores": scores,
        "gain_predicted": _mean([promised for promised, _ in gains.pairs]),
        "gain_realised": _mean([realised for _, realised in gains.pairs]),
        "gain_jobs": len(gains.pairs),
        "overrated": gains.overrated if gains.gaps else None,
        "running": len(books.recommended.running),
        "proposed": len(books.recommended.proposed),
        "paused": books.tuner.orders.all_paused is not None,
        "drifting": drifting(books.tuner.watch),
        "quarantined": books.in_quarantine,
    }


def scores(books: StudySession) -> telemetry.PrequentialScores:
    """How well the latest jobs were predicted before they were learned, and how much runs of one
    configuration differ."""
    window = books.tuner.window.scores(books.study.metric_value)
    noise, repeats = books.tuner.noise()

    def known(value: float) -> float | None:
        return value if math.isfinite(value) else None

    return telemetry.PrequentialScores(
        observations=window.rows,
        kendall=known(window.kendall_within),
        spearman=known(window.spearman_within),
        pearson=known(window.pearson_within),
        mape=known(window.mape),
        coverage=known(window.coverage),
        noise=known(noise),
        repeats=repeats,
    )


def following(judged: Sequence[PrequentialRecord]) -> dict[str, int]:
    """Live jobs by what they did with advice."""
    followed = (record.outcome.following for record in judged)
    return dict(Counter(how for how in followed if how is not None))


def outside(study: Study, jobs: Sequence[Observation]) -> dict[str, int]:
    """Jobs that have a value which the study does not have, by parameter; under an empty name those
    with a parameter that it does not know, whose names are a sender's. One that counted before was
    counted then."""
    jobs = [job for job in jobs if not isinstance(job, CorrectedObservation)]
    outside_of = Counter(name for job in jobs for name in study.outside(job.config))
    if foreign := sum(study.is_foreign(job.config) for job in jobs):
        outside_of[""] = foreign
    return dict(outside_of)


def taken(counts: Counter[str]) -> dict[str, int]:
    """What was counted since the last time."""
    taken = dict(counts)
    counts.clear()
    return taken


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
