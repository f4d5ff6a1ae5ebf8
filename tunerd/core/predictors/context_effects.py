"""How far each context lies above or below what its columns explain.

One number per context, moved by every job of it in constant time: a Kalman filter of a level
that starts at 0 with the variance of contexts around the trend, and never trusts its past more
than :data:`MEMORY` jobs, so that a context that slowed down is followed.
"""

from collections.abc import Sequence

import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.core.saved_state import SavedState

__all__ = ["ContextEffects"]

MEMORY = 30.0
"""Jobs that a level remembers."""
MAX_CONTEXTS = 2_000
"""Contexts kept, the latest ones; a study has at most 1,000 active ones. Others stand at 0."""
SHRINKAGE = 5.0
"""Jobs that a context's mean is drawn to 0 by in a fit: the trees see the context's columns too,
so that what is left of its level here they find by themselves. With one or two jobs a raw mean
does harm."""
FIRST_JOBS = (0.1, 2.0)
"""Least and most jobs that an unseen context's prior of 0 counts as."""


class ContextEffects(SavedState):
    """Shrunken mean residual per context, in score units."""

    unseen: float
    """Jobs that the prior of an unseen context counts as."""
    levels: dict[str, tuple[float, float]]
    """Context key → level, and the jobs it counts as; the latest last."""

    @classmethod
    def fit(cls, keys: Sequence[str], residual: FloatArray, weight: FloatArray) -> "ContextEffects":
        """Estimate from the residuals of a fit's rows, in the order in which they were learned."""
        total: dict[str, tuple[float, float]] = {}
        for key, value, w in zip(keys, residual.tolist(), weight.tolist(), strict=True):
            summed, jobs = total.pop(key, (0.0, 0.0))
            total[key] = (summed + w * value, jobs + w)
        levels = {
            key: (summed / (jobs + SHRINKAGE), min(jobs + SHRINKAGE, MEMORY))
            for key, (summed, jobs) in total.items()
        }
        return cls(FIRST_JOBS[1], levels)

    def expect(self, noise: float) -> None:
        """Set how fast the level of an unseen context follows its first jobs, given the variance
        of a job around its prediction: the more contexts differ beyond the trend, the faster."""
        values = np.array([level for level, _ in self.levels.values()])
        between = float(np.mean(values**2)) if len(values) else 0.0
        jobs = noise / between if between > 0 else FIRST_JOBS[1]
        self.unseen = float(np.clip(jobs, *FIRST_JOBS))

    def of(self, keys: Sequence[str]) -> tuple[FloatArray, FloatArray]:
        """(n,) level of each row's context, and (n,) jobs that it counts as."""
        unseen = (0.0, self.unseen)
        if len(keys) and keys.count(keys[0]) == len(keys):  # candidates share one context
            level, jobs = self.levels.get(keys[0], unseen)
            return np.full(len(keys), level), np.full(len(keys), jobs)
        effects = np.array([self.levels.get(key, unseen) for key in keys]).reshape(-1, 2)
        return effects[:, 0], effects[:, 1]

    def learn(
        self, keys: Sequence[str], residual: FloatArray, counts: FloatArray | None = None
    ) -> None:
        """Move the levels by new jobs; ``residual`` is what the rest of the model leaves, and
        ``counts`` what is left of each job, 1 without."""
        counts = np.ones(len(keys)) if counts is None else counts
        for key, value, count in zip(keys, residual.tolist(), counts.tolist(), strict=True):
            level, jobs = self.levels.pop(key, (0.0, self.unseen))
            jobs = min(jobs + count, MEMORY)
            self.levels[key] = (level + count * (value - level) / jobs, jobs)
        while len(self.levels) > MAX_CONTEXTS:
            del self.levels[next(iter(self.levels))]
