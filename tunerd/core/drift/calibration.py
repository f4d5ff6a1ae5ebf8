"""From which level on a rise is an alarm: a stated budget, and the study's own history permuted.

Two bounds, of which the higher counts. The one needs no data: a level of log A comes once in A
quiet jobs at most (:mod:`.shiryaev_roberts`), where residuals are as wide and as independent as
they claim. The other is taken from the residuals that the study had while nothing was the matter:
they are put in another order, in short runs of neighbours so that what hangs together stays
together, and sent through the same recursion. What is asked for, one alarm in tens of thousands of
jobs, lies beyond what some hundred residuals can show, so the tail is extrapolated: the highest
levels of stretches without a change follow Gumbel's law, whose slope is never taken to be steeper
than theory says.
"""

import math
from typing import Self

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.saved_state import SavedState

__all__ = ["AlarmThreshold", "permuted_level", "safe_level"]

REPLICAS = 48
STRETCH = 1_024
"""Jobs of one replica: 48 · 1,024 steps of the recursion, about 10 ms."""
RUN = 4
"""Neighbours that stay together."""
STEEPEST = 0.9
"""Scale of the Gumbel tail at least; 1 for honest residuals."""
HIGHEST = 2.0
"""A threshold is at most so many times the safe one: a detector that has gone deaf helps nobody."""
FEW = 64
"""Residuals below which there is nothing to permute."""
GROWTH = 2.0
"""Thresholds are taken anew when there are so many times as many residuals as at the last time …"""
EVERY = 2_000
"""… and after so many at the latest: 10 ms then, 0.005 ms a job."""


def safe_level(quiet_jobs: float) -> float:
    """Level that comes once in so many quiet jobs at most."""
    return math.log(quiet_jobs)


def permuted_level(gains: FloatArray, runs: IntArray, quiet_jobs: float, seed: int) -> float:
    """Level that permuted history passes once in so many jobs.

    Args:
        gains: (n, A) log likelihood ratios of jobs while nothing was the matter, in their order.
        runs: (n,) what may stay together: equal numbers one after the other.
        quiet_jobs: the budget.
        seed: of the permutations.
    """
    n, alternatives = gains.shape
    rng = np.random.default_rng([seed, n])
    order = np.argsort(runs, kind="stable")
    steps = np.exp(np.minimum(gains[order], 50.0))
    starts = rng.integers(0, n, size=(REPLICAS, STRETCH // RUN))
    picked = ((starts[:, :, None] + np.arange(RUN)) % n).reshape(REPLICAS, STRETCH)
    mass = np.zeros((REPLICAS, alternatives))
    level, highest = np.zeros(REPLICAS), np.zeros(REPLICAS)
    share = np.full(alternatives, 1.0 / alternatives)
    for grown in steps[picked.T]:  # in place: new arrays would cost as much as the sums
        mass += 1.0
        mass *= grown
        np.minimum(mass, 1e250, out=mass)
        np.matmul(mass, share, out=level)
        np.maximum(highest, level, out=highest)
    levels = np.log(highest)
    scale = max(float(levels.std(ddof=1)) * math.sqrt(6.0) / math.pi, STEEPEST)
    place = float(levels.mean()) - 0.5772 * scale
    return place + scale * math.log(max(quiet_jobs / STRETCH, 1.0))


class AlarmThreshold(SavedState, array_like=True):
    """A threshold that is taken anew on a schedule. What it was taken from need not be kept."""

    quiet_jobs: float
    level: float
    next: float = float(FEW)
    """Residuals with which it is due."""

    @classmethod
    def of(cls, quiet_jobs: float) -> Self:
        """Nothing was seen yet: theory alone."""
        return cls(quiet_jobs, safe_level(quiet_jobs))

    def due(self, seen: int) -> bool:
        """Whether it is to be taken anew, with so many residuals seen."""
        return seen >= self.next

    def take(self, seen: int, gains: FloatArray, runs: IntArray, seed: int) -> None:
        """Take it anew."""
        self.next = min(seen * GROWTH, seen + EVERY)
        if len(gains) >= FEW:
            safe = safe_level(self.quiet_jobs)
            permuted = permuted_level(gains, runs, self.quiet_jobs, seed)
            self.level = min(max(safe, permuted), HIGHEST * safe)
