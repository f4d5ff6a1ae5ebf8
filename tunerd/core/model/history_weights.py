"""How much of history counts in a fit: windows, half-lives, and regimes that have ended.

Everything is relative to the newest job that is known, never to a clock: the same jobs count the
same whenever they are learned. The newest is the one that ended last. Old jobs may well be told
last, by an import, and are old all the same.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray
from tunerd.core.features.replay import ReplaySample
from tunerd.core.features.rows import FeatureRows
from tunerd.core.observation import Observation
from tunerd.core.saved_state import FrozenState
from tunerd.core.study.parts import HistoryOptions

__all__ = ["Regime", "days", "faded", "within"]

LEAST = 1e-3
"""What a faded row still weighs: enough to say which way is up where nothing newer does."""


class Regime(FrozenState, frozen=True):
    """Since when jobs behave differently, and where."""

    since: int
    """Sequence of its first job."""
    keys: tuple[str, ...] | None = None
    """Contexts in which it began; None for all of them."""
    before: float = 0.1
    """What a job from before it weighs there."""
    moved: float = 0.0
    """By how much scores moved when it began: jobs from before count as if it had been there."""


def days(observations: Sequence[Observation]) -> FloatArray:
    """(n,) when the jobs ended, in days since 1970."""
    return np.array([job.finished_at.timestamp() / 86_400 for job in observations], np.float64)


def within(sample: ReplaySample, options: HistoryOptions, now: float) -> BoolArray:
    """(n,) which rows are in the study's window; ``now`` is when the newest job ended, in days."""
    if options.window_days is None or len(sample.rows) == 0:
        return np.ones(len(sample.rows), bool)
    inside: BoolArray = sample.finished >= now - options.window_days
    return inside


def faded(
    sample: ReplaySample, options: HistoryOptions, regimes: Sequence[Regime], now: float
) -> FeatureRows:
    """Let each row's score weigh by its age, and by whether a newer regime has begun where it
    comes from. What a job says about whether its configuration runs does not fade. ``now`` is when
    the newest job ended, in days.

    Only age is *fading*. Right after a drift there are ten jobs of the new regime: how far off
    predictions are, and what who makes them is worth, cannot be read off those alone.
    """
    rows = sample.rows
    if len(rows) == 0 or (options.half_life_days is None and not regimes):
        return rows
    factor, score, fading = np.ones(len(rows)), rows.score, None
    if options.half_life_days is not None:
        factor = np.exp2((sample.finished - now) / options.half_life_days)
        fading = np.maximum(factor, LEAST) if (factor < 1.0).any() else None
    for regime in regimes:
        before = sample.sequences < regime.since
        if regime.keys is not None:
            before &= np.isin(np.array(rows.context_key), np.array(regime.keys))
        factor = np.where(before, factor * regime.before, factor)
        score = np.where(before, score + regime.moved, score)
    weight = rows.weight * np.maximum(factor, LEAST)
    return replace(rows, score=score, weight=weight, fading=fading)
