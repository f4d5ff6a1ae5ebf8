"""From what was gathered to the report. Pure."""

import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from msgspec import structs

from tunerd import __version__
from tunerd.core.decisions.reasons import telling
from tunerd.core.evidence.prequential import PrequentialRecord
from tunerd.core.observation import Scalar
from tunerd.core.recommendation import Recommendation
from tunerd.core.study import Study
from tunerd.events.times import UNDATED
from tunerd.report import discount, followers
from tunerd.report import quality as q
from tunerd.report.followers import beside_others, candidates_tried, first_candidates
from tunerd.report.formatting import beyond, headline, sentence
from tunerd.report.gains import ConfidenceInterval, ContextGain, GainEstimate, Z, estimate_gains
from tunerd.report.gather import CurrentRecommendation, ReportInputs
from tunerd.report.jobs import JobArrays, jobs_of, relative_gain
from tunerd.report.model import (
    CandidateSummary,
    CounterfactualGain,
    FollowerGains,
    ImportedSummary,
    JobCounts,
    ReportAdvice,
    ReportCandidate,
    ReportComparison,
    ReportContext,
    ReportGainBin,
    ReportIncumbent,
    ReportInterval,
    ReportObjective,
    ReportPeriod,
    ReportPoint,
    ReportQuality,
    ReportReliability,
    ReportReliabilityBin,
    StudyReport,
    Verdict,
)
from tunerd.report.notes import notes

__all__ = ["MOST_CONTEXTS", "compute"]

MOST_CONTEXTS = 50
"""Contexts that are told of one by one: those with most jobs."""
SMALL = 0.01
"""A gain below this is not worth mentioning."""


def compute(material: ReportInputs, now: datetime) -> StudyReport:
    """Make the report."""
    study = material.study
    jobs = jobs_of(study, material.live)
    gains = estimate_gains(study, jobs)
    would = None if gains is None else _would(study, jobs, gains)
    counts = _counts(material, jobs)
    contexts, contexts_total = _contexts(material, jobs, gains)
    quality = _quality(study, jobs, q.judge_quality(study, jobs))
    past = _past(material)
    return StudyReport(
        study=study.name,
        mode=study.mode,
        generation=material.generation,
        objective=ReportObjective(
            metric=study.objective.metric, goal=study.objective.goal, unit=study.objective.unit
        ),
        made_at=now,
        since=material.since,
        until=material.until,
        tunerd=__version__,
        headline=headline(counts, would, quality, past),
        counts=counts,
        would=would,
        candidates=_candidates(study, jobs),
        followed=_followed(study, jobs),
        quality=quality,
        fresh=_fresh(study, jobs),
        reliability=_reliability(q.reliability(jobs)),
        contexts=contexts,
        contexts_total=contexts_total,
        history=past,
        notes=notes(material, counts, would),
        changed=list(material.changed),
    )


# ── jobs ─────────────────────────────────────────────────────────────────────────────────────


def _counts(material: ReportInputs, jobs: JobArrays) -> JobCounts:
    live = material.live
    outcomes = [job.outcome for job in live]
    hours = jobs.gpu_hours[np.isfinite(jobs.gpu_hours)]
    ends = [job.finished_at for job in live]
    followed = Counter(followed_one for followed_one in jobs.following if followed_one is not None)
    return JobCounts(
        jobs=len(live),
        contexts=len(jobs.keys),
        predicted=int(jobs.judged.sum()),
        did_not_run=sum(outcome.ran is False for outcome in outcomes),
        said_nothing=sum(outcome.ran is None and outcome.score is None for outcome in outcomes),
        following=dict(sorted(followed.items())),
        gpu_hours=float(hours.sum()) if len(hours) else None,
        gpu_hours_jobs=len(hours),
        first_at=min(ends, default=None),
        last_at=max(ends, default=None),
        left_out=material.live_total - len(live),
    )


# ── gains ────────────────────────────────────────────────────────────────────────────────────


def _would(study: Study, jobs: JobArrays, found: GainEstimate) -> CounterfactualGain:
    verdict = _verdict(found)
    tested = verdict != "untested"
    made = CounterfactualGain(
        verdict=verdict,
        sentence="",
        jobs=found.jobs,
        of=int((jobs.judged & ~jobs.followed).sum()),
        matched=found.matched,
        compared=round(found.weight, 1),
        near=found.near,
        predicted=_finite(relative_gain(study, found.predicted)),
        came_true=_range(found.discount) if tested else None,
        gain=_gain(study, found.gain) if tested else None,
        above_zero=found.positive if tested else None,
        gpu_hours=_range(found.gpu_hours) if tested else None,
        gpu_hours_of=found.hours or None,
        steps=[_step(study, context) for context in found.steps],
    )
    return structs.replace(made, sentence=sentence(made))


def _step(study: Study, one: discount.GainBin) -> ReportGainBin:
    half = Z * one.error
    came = ConfidenceInterval(one.came, one.came - half, one.came + half)
    return ReportGainBin(
        jobs=one.jobs,
        predicted=relative_gain(study, one.predicted),
        came=_gain(study, came),
    )


def _verdict(found: GainEstimate) -> Verdict:
    if not found.supported:
        return "untested"
    gain = found.gain
    if gain.low > 0 and gain.middle >= SMALL:
        return "shown" if found.tested else "likely"
    if gain.high < 0 and gain.middle <= -SMALL:
        return "worse"
    return "small" if gain.high < SMALL or gain.low > 0 else "unclear"


def _followed(study: Study, jobs: JobArrays) -> FollowerGains | None:
    if not jobs.followed.any():
        return None
    return FollowerGains(
        kept=_beside(study, beside_others(jobs, trying=False)),
        tried=_beside(study, beside_others(jobs, trying=True)),
    )


def _beside(study: Study, found: followers.FollowerComparison) -> ReportComparison:
    return ReportComparison(
        jobs=found.jobs,
        compared=round(found.compared, 1),
        gain=None if found.gap is None else _gain(study, found.gap),
    )


def _candidates(study: Study, jobs: JobArrays) -> CandidateSummary | None:
    first, ran = first_candidates(jobs), candidates_tried(jobs)
    if first is None and ran is None:
        return None
    made = CandidateSummary(
        sentence="",
        jobs=first.jobs if first else 0,
        predicted=_finite(relative_gain(study, first.predicted)) if first else None,
        feasible=_finite(first.feasible) if first else None,
        tried=ran.jobs if ran else 0,
        tried_said=ran.said if ran else 0,
        tried_ran=ran.ran or 0 if ran else 0,
        tried_predicted=_finite(relative_gain(study, ran.predicted)) if ran else None,
        came=_gain(study, ran.came) if ran and ran.came else None,
    )
    return structs.replace(made, sentence=beyond(made))


# ── contexts ─────────────────────────────────────────────────────────────────────────────────


def _contexts(
    material: ReportInputs, jobs: JobArrays, gains: GainEstimate | None
) -> tuple[list[ReportContext], int]:
    """The contexts with most jobs, and how many there are in all."""
    count = np.bincount(jobs.context, minlength=len(jobs.keys)).tolist()
    came = dict(zip(jobs.keys, count, strict=True))
    gained = {jobs.keys[context.context]: context for context in gains.contexts} if gains else {}
    tested = gains is not None and _verdict(gains) != "untested"
    past = Counter(job.context_key for job in material.history)
    known = came.keys() | past.keys() | material.told.keys()
    order = sorted(known, key=lambda key: (-came.get(key, 0), -past[key], key))
    contexts = [
        _context(
            material.study,
            key,
            (came.get(key, 0), past[key]),
            gained.get(key),
            tested,
            material.told.get(key),
        )
        for key in order[:MOST_CONTEXTS]
    ]
    return contexts, len(order)


def _context(
    study: Study,
    key: str,
    jobs: tuple[int, int],
    gained: ContextGain | None,
    tested: bool,
    known: CurrentRecommendation | None,
) -> ReportContext:
    """``jobs`` are live and imported ones."""
    return ReportContext(
        key=key,
        values=_values(study, known),
        jobs=jobs[0],
        imported=jobs[1],
        elsewhere=gained.jobs if gained else 0,
        matched=gained.matched if gained else 0,
        predicted=_finite(relative_gain(study, gained.predicted)) if gained else None,
        gain=_gain(study, gained.gain) if gained and tested else None,
        gpu_hours=_range(gained.gpu_hours) if gained and tested else None,
        advice=_advice(known) if known else None,
    )


def _values(study: Study, known: CurrentRecommendation | None) -> dict[str, Scalar]:
    """In the order of the study file."""
    if known is None:
        return {}
    context = known.recommendation.context
    return {
        feature.name: context[feature.name] for feature in study.context if feature.name in context
    }


def _advice(known: CurrentRecommendation) -> ReportAdvice:
    message = known.recommendation
    best = message.incumbent
    return ReportAdvice(
        state=known.state,
        issued_at=message.issued_at,
        reason=message.reason,
        incumbent=None
        if best is None
        else ReportIncumbent(
            config=dict(best.config),
            median=best.median,
            low=best.low,
            high=best.high,
            jobs=best.jobs,
        ),
        baseline=None if message.baseline is None else dict(message.baseline),
        candidate=_candidate(message),
        candidates=len(message.candidates),
    )


def _candidate(told: Recommendation) -> ReportCandidate | None:
    if not told.candidates:
        return None
    first = telling(told.candidates)  # the one that the reason speaks of
    expected, gain = first.predicted, first.gain
    return ReportCandidate(
        config=dict(first.config),
        kind=first.kind.value,
        share=first.share,
        wanted=first.wanted,
        median=expected.median if expected else None,
        low=expected.low if expected else None,
        high=expected.high if expected else None,
        feasible=first.feasible,
        gain=gain.median if gain else None,
        gain_low=gain.low if gain else None,
    )


# ── predictions ──────────────────────────────────────────────────────────────────────────────


def _fresh(study: Study, jobs: JobArrays) -> ReportQuality | None:
    new = np.flatnonzero(jobs.tried == 0)
    return _quality(study, jobs, q.judge_quality(study, jobs, new))


def _quality(
    study: Study, jobs: JobArrays, found: q.PredictionQuality | None
) -> ReportQuality | None:
    if found is None:
        return None
    return ReportQuality(
        jobs=found.jobs,
        kendall=_range(found.kendall),
        spearman=_range(found.spearman),
        mape=_finite(found.mape),
        median_error=_finite(found.median_error),
        coverage=ReportInterval(found.coverage.middle, found.coverage.low, found.coverage.high),
        half_width=_finite(relative_gain(study, found.half_width)),
        periods=[
            ReportPeriod(
                since=_dated(datetime.fromtimestamp(period.since, UTC)),
                until=_dated(datetime.fromtimestamp(period.until, UTC)),
                jobs=period.jobs,
                error=_finite(period.error),
                kendall=_finite(period.kendall),
                coverage=period.coverage,
            )
            for period in found.periods
        ],
        points=_points(study, jobs, found),
    )


def _points(study: Study, jobs: JobArrays, found: q.PredictionQuality) -> list[ReportPoint]:
    points = []
    for i in found.points.tolist():
        predicted = study.metric_value(float(jobs.predicted[i] * jobs.unit[i]))
        actual = study.metric_value(float(jobs.score[i] * jobs.unit[i]))
        if math.isfinite(predicted) and math.isfinite(actual):
            held = bool(jobs.low[i] <= jobs.score[i] <= jobs.high[i])
            points.append(ReportPoint(predicted=predicted, actual=actual, held=held))
    return points


def _reliability(found: q.ReliabilityDiagram | None) -> ReportReliability | None:
    if found is None:
        return None
    return ReportReliability(
        jobs=found.jobs,
        ran=found.ran,
        brier=found.brier,
        plain=found.plain,
        bins=[
            ReportReliabilityBin(
                low=bin_.low,
                high=bin_.high,
                jobs=bin_.jobs,
                predicted=bin_.predicted,
                observed=ReportInterval(
                    bin_.observed.middle, bin_.observed.low, bin_.observed.high
                ),
            )
            for bin_ in found.bins
        ],
    )


def _past(material: ReportInputs) -> ImportedSummary | None:
    history: Sequence[PrequentialRecord] = material.history
    if not history:
        return None
    study = material.study
    jobs = jobs_of(study, history)
    ends = [job.finished_at for job in history]
    return ImportedSummary(
        jobs=material.history_total,
        contexts=len(jobs.keys),
        predicted=int(jobs.judged.sum()),
        first_at=_dated(min(ends)),
        last_at=_dated(max(ends)),
        left_out=material.history_total - len(history),
        quality=_quality(study, jobs, q.judge_quality(study, jobs)),
        fresh=_fresh(study, jobs),
        reliability=_reliability(q.reliability(jobs)),
    )


# ── numbers ──────────────────────────────────────────────────────────────────────────────────


def _gain(study: Study, found: ConfidenceInterval) -> ReportInterval:
    ends = (relative_gain(study, value) for value in (found.middle, found.low, found.high))
    return ReportInterval(*ends)


def _range(found: ConfidenceInterval | None) -> ReportInterval | None:
    if found is None or not math.isfinite(found.middle):
        return None
    return ReportInterval(found.middle, _finite(found.low), _finite(found.high))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _dated(at: datetime) -> datetime | None:
    """None for what imported jobs without dates are given."""
    return None if at <= UNDATED else at
