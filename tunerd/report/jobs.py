"""Judged jobs as arrays, in units that contexts share.

Everything is in *relative units*: a difference of 0.1 is about 10 % of the metric, whatever the
study's scale and the context's size. On a log scale scores are that already; on a linear one they
are divided by the typical size of their context's.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray, IntArray
from tunerd.core.evidence.prequential import (
    PrequentialOutcome,
    PrequentialRecord,
    TargetPrediction,
)
from tunerd.core.study import Study

__all__ = [
    "STRATUM",
    "JobArrays",
    "Named",
    "TargetArrays",
    "jobs_of",
    "medians",
    "relative_gain",
    "saved_share",
    "strata",
]

STRATUM = 30
"""Jobs of a context that are compared with each other: those that ended about the same time, so
that a cluster that slowed down halfway is not taken for a bad configuration."""
LARGEST = 50.0
"""Relative units beyond which a difference says that something else is wrong: a factor of e^50."""

Named = Literal["incumbent", "first"]


@dataclass(frozen=True)
class TargetArrays:
    """What was recommended when each of n jobs came."""

    predicted: FloatArray
    """(n,) expected of it at that moment; NaN where there was nothing."""
    spread: FloatArray
    feasible: FloatArray
    same: BoolArray
    """(n,) whether it is what the job ran."""
    config: IntArray
    """(n,) number of the configuration; −1 for none."""


@dataclass(frozen=True)
class JobArrays:
    """n live jobs (or imported ones) in the order in which they were learned. NaN for nothing."""

    keys: tuple[str, ...]
    """Distinct context keys, by number."""
    context: IntArray
    """(n,) number of the context."""
    at: FloatArray
    """(n,) when they ended, in seconds since 1970."""
    score: FloatArray
    """(n,) what came, relative units; larger is better."""
    predicted: FloatArray
    low: FloatArray
    high: FloatArray
    unit: FloatArray
    """(n,) score units per relative unit."""
    feasible: FloatArray
    ran: FloatArray
    """(n,) 1 it runs, 0 it does not, NaN says nothing."""
    followed: BoolArray
    following: tuple[str | None, ...]
    config: IntArray
    """(n,) number of the configuration within all contexts."""
    tried: IntArray
    """(n,) jobs of it that its context knew before."""
    candidate: BoolArray
    """(n,) whether it ran a candidate because it was told to."""
    gpu_hours: FloatArray
    targets: Mapping[Named, TargetArrays]
    first_better: BoolArray
    """(n,) whether the first candidate was thought to be better than the incumbent."""

    def __len__(self) -> int:
        return len(self.context)

    @property
    def judged(self) -> BoolArray:
        """(n,) predicted, and with an objective."""
        return np.isfinite(self.score) & np.isfinite(self.predicted)

    @property
    def sound(self) -> BoolArray:
        """(n,) with an objective, and within the guards: what broke one gained nothing."""
        runs: BoolArray = self.ran != 0.0
        return np.isfinite(self.score) & runs


def strata(group: IntArray) -> IntArray:
    """Number of each job's stratum: its group's consecutive :data:`STRATUM` jobs."""
    numbers = np.empty(len(group), dtype=np.int64)
    first_seen: dict[int, tuple[int, int]] = {}
    following = 0
    for i, own in enumerate(group.tolist()):
        number, count = first_seen.get(own, (-1, STRATUM))
        if count >= STRATUM:
            number, count, following = following, 0, following + 1
        numbers[i] = number
        first_seen[own] = number, count + 1
    return numbers


def jobs_of(study: Study, judged: Sequence[PrequentialRecord]) -> JobArrays:
    """Bring judged jobs into arrays."""
    outcomes = [record.outcome for record in judged]
    keys = tuple(dict.fromkeys(record.context_key for record in judged))
    numbers = {key: i for i, key in enumerate(keys)}
    context = np.array([numbers[record.context_key] for record in judged], dtype=np.int64)
    names: dict[str, int] = {}
    config = [names.setdefault(outcome.config_id, len(names)) for outcome in outcomes]
    score = _floats(outcome.score for outcome in outcomes)
    unit = _units(study, context, score, len(keys))

    def relative(values: FloatArray) -> FloatArray:
        return values / unit

    def targets(told: Sequence[TargetPrediction | None]) -> TargetArrays:
        return TargetArrays(
            predicted=relative(_floats(None if t is None else t.score for t in told)),
            spread=relative(_floats(None if t is None else t.spread for t in told)),
            feasible=_floats(None if t is None else t.feasible for t in told),
            same=np.array(
                [
                    t is not None and t.config_id == o.config_id
                    for t, o in zip(told, outcomes, strict=True)
                ],
                dtype=bool,
            ),
            config=np.array(
                [-1 if t is None else names.setdefault(t.config_id, len(names)) for t in told],
                dtype=np.int64,
            ),
        )

    return JobArrays(
        keys=keys,
        context=context,
        at=np.array([outcome.finished_at.timestamp() for outcome in judged], dtype=np.float64),
        score=relative(score),
        predicted=relative(_floats(outcome.predicted for outcome in outcomes)),
        low=relative(_floats(outcome.low for outcome in outcomes)),
        high=relative(_floats(outcome.high for outcome in outcomes)),
        unit=unit,
        feasible=_floats(outcome.feasible for outcome in outcomes),
        ran=_floats(outcome.ran for outcome in outcomes),
        followed=np.array([outcome.following == "followed" for outcome in outcomes], dtype=bool),
        following=tuple(outcome.following for outcome in outcomes),
        config=np.array(config, dtype=np.int64),
        tried=np.array([outcome.tried for outcome in outcomes], dtype=np.int64),
        candidate=np.array([outcome.told_to_try for outcome in outcomes], dtype=bool),
        gpu_hours=_floats(outcome.gpu_hours for outcome in outcomes),
        targets={
            "incumbent": targets([outcome.incumbent for outcome in outcomes]),
            "first": targets([outcome.first for outcome in outcomes]),
        },
        first_better=np.array(list(map(_first_is_better, outcomes)), dtype=bool),
    )


def _first_is_better(outcome: PrequentialOutcome) -> bool:
    """Whether the first candidate that a job could run was believed to be better."""
    return outcome.first is not None and outcome.first.kind in ("exploit", "confirm")


def relative_gain(study: Study, difference: float) -> float:
    """The gain in the raw metric that a difference in relative units stands for: 0.042 is 4.2 %
    better, whatever the goal."""
    difference = min(max(difference, -LARGEST), LARGEST)
    return study.gain(difference, 0.0) if study.objective.scale == "log" else difference


def saved_share(study: Study, difference: FloatArray) -> FloatArray:
    """Share of a job's time that it would have saved for the same work, were its metric better by
    this much, provided that the metric is a speed (to maximize) or a duration (to minimize)."""
    difference = np.clip(difference, -LARGEST, LARGEST)
    if study.objective.scale == "log":
        return -np.expm1(-difference)
    if study.objective.goal == "minimize":
        return difference
    return 1.0 - 1.0 / (1.0 + np.maximum(difference, -0.9))


def medians(values: FloatArray, group: IntArray, count: int) -> FloatArray:
    """(count,) median by group; 0 where a group is empty."""
    middles = np.zeros(count)
    order = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group, minlength=count))
    for number, part in enumerate(np.split(values[order], ends[:-1])):
        if len(part):
            middles[number] = np.median(part)
    return middles


def _floats(values: Iterable[float | None]) -> FloatArray:
    return np.array([math.nan if v is None else float(v) for v in values], dtype=np.float64)


def _units(study: Study, context: IntArray, score: FloatArray, contexts: int) -> FloatArray:
    if study.objective.scale == "log" or not len(score):
        return np.ones(len(score))
    there = np.isfinite(score)
    sizes = medians(np.abs(score[there]), context[there], contexts)
    sizes = np.where(sizes > 0, sizes, math.nan)
    unit: FloatArray = sizes[context]
    return unit
