"""Attempts that counted before and are known better now.

Of an attempt that ran, its end tells how fast it was and whether it ran well. Mostly that is what
was known already: then no model learns it twice. Else the earlier speed is taken back where that
can be done, and what a context knows of the configuration is put right.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
from msgspec import structs

from tunerd.core.evidence.prequential import NamedJob, PrequentialRecord, shortened
from tunerd.core.features.rows import FeatureRows
from tunerd.core.observation import CorrectedObservation
from tunerd.core.study import Study

__all__ = ["as_known", "corrections_of", "muted", "put_right", "silent"]


def corrections_of(jobs: Sequence[NamedJob]) -> dict[int, CorrectedObservation]:
    """By place, the jobs that counted before."""
    return {
        i: job.observation
        for i, job in enumerate(jobs)
        if isinstance(job.observation, CorrectedObservation)
    }


def silent(rows: FeatureRows, places: Mapping[int, object]) -> FeatureRows:
    """The rows, those at these places without a score: nobody predicted what was known."""
    if not places:
        return rows
    score = rows.score.copy()
    score[list(places)] = np.nan
    return replace(rows, score=score)


def as_known(jobs: Sequence[NamedJob]) -> list[NamedJob]:
    """The jobs, those that counted before as ones that nothing was recommended for."""
    return [
        job._replace(observation=structs.replace(job.observation, history=True))
        if isinstance(job.observation, CorrectedObservation)
        else job
        for job in jobs
    ]


def muted(
    study: Study,
    records: Sequence[PrequentialRecord],
    jobs: Sequence[NamedJob],
    levels: Mapping[str, float | None],
    quarantined: Collection[int],
) -> list[PrequentialRecord]:
    """The records, those of jobs in quarantine without what came of them: the ledger counts nothing
    of these. How far one was ahead of its context's ``levels`` is kept for its release."""
    kept = []
    for record, job in zip(records, jobs, strict=True):
        if record.sequence in quarantined:
            outcome, entry = record.outcome, record.outcome.entry
            score, level = study.score(job.observation.metrics), levels[record.context_key]
            if entry is not None and score is not None and level is not None:
                entry = structs.replace(entry, lead=shortened(score - level))
            outcome = structs.replace(outcome, score=None, ran=None, gpu_hours=None, entry=entry)
            record = structs.replace(record, outcome=outcome)
        kept.append(record)
    return kept


def put_right(
    study: Study,
    jobs: Sequence[NamedJob],
    judged: Sequence[PrequentialRecord],
    quarantined: Collection[int],
) -> list[PrequentialRecord]:
    """The records, those of jobs that counted before as what puts their first one right."""
    records = []
    for job, record in zip(jobs, judged, strict=True):
        observation = job.observation
        if isinstance(observation, CorrectedObservation):
            score = study.score(observation.metrics)
            held = observation.sequence in quarantined
            outcome = structs.replace(record.outcome, score=None if held else score)
            record = structs.replace(
                record,
                history=observation.history,
                outcome=outcome,
                corrects=observation.earlier.sequence,
            )
        records.append(record)
    return records
