"""A job's error in units of what errors are usually: near a standard normal while nothing changes.

Two kinds of jobs say something about speed. A *repeat* is measured against its configuration's own
level (:mod:`.context_monitor`); a *first* job of a configuration against what the predictor said,
whose bias in this context and whose idea of its own spread are taken out. What tunerd itself chose
for looking good is expected to fall short (a searcher hunts the predictor's errors, and luck), so
such jobs say nothing before their configuration has been seen a few times.

Scales start by themselves and are held against outliers; nothing is said before they are known.
"""

import math
from typing import NamedTuple

from msgspec import field

from tunerd.core.drift.context_monitor import ContextMonitor
from tunerd.core.drift.shiryaev_roberts import Moment
from tunerd.core.saved_state import SavedState

__all__ = ["CHOSEN", "CLIP", "ResidualScaler", "StandardizedResidual"]

CLIP = 3.0
"""No job says more than this: one that was measured wrongly is not a drift."""
CLIP_FIRST = 2.0
ENOUGH_REPEATS = 12
ENOUGH_FIRST = 12
ENOUGH_HERE = 3
"""Jobs of a context before the predictor's word counts there."""
CHOSEN = 3.0
"""Jobs that the configuration of a follower must count as."""
MEMORY = 500.0
PRIOR_HERE = 20.0
"""Repeats that the study's noise counts as in a context's own."""
MOST_HERE = 200.0
FLOOR = 0.01
"""Noise is at least this share of how much scores differ within contexts: where jobs repeat to the
last digit, any change at all would be infinitely unlikely."""
TINY = 1e-300
NORMAL = math.sqrt(math.pi / 2)
"""Standard deviations in a normal's mean absolute error."""


class StandardizedResidual(NamedTuple):
    """What one job says about speed."""

    u: float
    """Standardised error, clipped; positive is faster than before."""
    lean: float
    """The same, less how the context's other latest jobs lean: what is this configuration's."""
    repeat: bool


class _RunningScale(SavedState, array_like=True):
    """Mean absolute size, as a standard deviation."""

    jobs: float = 0.0
    size: float = 0.0

    @property
    def sd(self) -> float:
        return NORMAL * self.size

    def learn(self, error: float, enough: int) -> None:
        if self.jobs >= enough:
            error = min(error, 4.0 * self.sd)
        self.jobs = min(self.jobs + 1.0, MEMORY)
        self.size += (error - self.size) / self.jobs


class ResidualScaler(SavedState):
    """The study's scales. Bounded; part of the watch's state."""

    repeat: _RunningScale = field(default_factory=_RunningScale)
    first: _RunningScale = field(default_factory=_RunningScale)
    scores: _RunningScale = field(default_factory=_RunningScale)

    def judge(
        self,
        here: ContextMonitor,
        name: str,
        score: float,
        predicted: tuple[float, float] | None,
        at: Moment,
        *,
        chosen: bool,
    ) -> StandardizedResidual | None:
        """Measure a job against what was known before it, then learn it.

        Args:
            here: its context.
            name: its configuration.
            score: what came.
            predicted: mean and spread that the predictor gave it.
            at: which job it is.
            chosen: whether tunerd had it run, or predictions are off for other reasons.

        Returns:
            None where it says nothing.
        """
        cell = here.cell(name)
        vote = None
        if cell.weight > 0:
            vote = self._repeated(here, cell.weight, score - cell.level)
            if chosen and cell.weight < CHOSEN:
                vote = None
        elif predicted is not None:
            z = (score - predicted[0]) / max(predicted[1], TINY)
            vote = None if chosen else self._seen_first(here, z)
            if not chosen and self.first.jobs >= ENOUGH_FIRST:
                cell.weight, cell.level = self._trust(predicted[1]), predicted[0]
        if here.jobs:
            self.scores.learn(abs(score - here.mean), ENOUGH_REPEATS)
        cell.learn(score)
        here.scored(name, score, at)
        if vote is None:
            return None
        return StandardizedResidual(vote[0], _leaning(here, vote[0]), vote[1])

    def _repeated(
        self, here: ContextMonitor, weight: float, error: float
    ) -> tuple[float, bool] | None:
        error /= math.sqrt(1.0 + 1.0 / weight)
        u = None
        if self.repeat.jobs >= ENOUGH_REPEATS:
            u = error / self.noise(here)
        self.repeat.learn(abs(error), ENOUGH_REPEATS)
        held = max(min(error, CLIP * self.repeat.sd), -CLIP * self.repeat.sd)
        jobs, squares = here.errors
        if jobs >= MOST_HERE:
            squares *= (MOST_HERE - 1.0) / jobs
            jobs = MOST_HERE - 1.0
        here.errors = [jobs + 1.0, squares + held * held]
        return None if u is None else (max(-CLIP, min(u, CLIP)), True)

    def _seen_first(self, here: ContextMonitor, z: float) -> tuple[float, bool] | None:
        u = None
        jobs, mean = here.fresh
        if self.first.jobs >= ENOUGH_FIRST and here.jobs >= ENOUGH_HERE:
            # Self-started: less the mean so far, drawn to 0.
            left = (z / self.first.sd - mean * jobs / (jobs + 2.0)) if self.first.sd > 0 else 0.0
            u = left * math.sqrt((jobs + 2.0) / (jobs + 3.0))
        if self.first.sd > 0:
            jobs = min(jobs + 1.0, MEMORY)
            held = max(-CLIP, min(z / self.first.sd, CLIP))
            here.fresh = [jobs, mean + (held - mean) / jobs]
        self.first.learn(abs(z), ENOUGH_FIRST)
        return None if u is None else (max(-CLIP_FIRST, min(u, CLIP_FIRST)), False)

    def noise(self, here: ContextMonitor) -> float:
        """Standard deviation of a repeat in a context."""
        study = self.repeat.sd
        jobs, squares = here.errors
        own = math.sqrt((PRIOR_HERE * study * study + squares) / (PRIOR_HERE + jobs))
        return max(own, FLOOR * self.scores.sd, TINY)

    def _trust(self, spread: float) -> float:
        """Jobs that a prediction is worth as the beginning of a level."""
        noise = self.repeat.sd**2
        error = (spread * self.first.sd) ** 2
        return min(max(noise / (error - noise), 0.02), 0.9) if error > noise else 0.9


def _leaning(here: ContextMonitor, u: float) -> float:
    """The vote less how the context leans, which it then tells."""
    jobs, mean = here.lean
    left = (u - mean * jobs / (jobs + 1.0)) * math.sqrt((jobs + 1.0) / (jobs + 2.0))
    jobs = min(jobs + 1.0, 6.0)
    here.lean = [jobs, mean + (u - mean) / jobs]
    return left
