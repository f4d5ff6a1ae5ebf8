"""Evidence that something began to be different, job by job: a Shiryaev–Roberts mixture.

For each alternative a job carries the logarithm of how much likelier it is if that is true than if
nothing changed. Their running sums over every moment at which the change may have begun::

    M ← (1 + M) · exp(gain)          level = log(mean over the alternatives of M)

As long as nothing has changed, M − (jobs) has mean 0 (a martingale), so that the level passes log A
once in A jobs at most *on average*, whatever the alternatives: a bound that holds without looking
at data, where the gains are honest. :mod:`.calibration` looks at data for where they are not.

Beside it a cumulative sum per alternative remembers since when it has been rising: the estimate of
when the change began (Page; Pollak and Siegmund on both).
"""

import math
from collections.abc import Sequence
from typing import Self

from tunerd.core.saved_state import SavedState

__all__ = ["Moment", "ShiryaevRoberts"]

Moment = tuple[int, float]
"""A job's sequence, and when it finished in seconds since 1970."""
NEVER: Moment = (0, 0.0)
MOST = 1e250
"""Where M stops growing: far above every threshold, below what a float holds."""


class ShiryaevRoberts(SavedState):
    """Bounded. One per place that is watched; each list has an entry for each alternative."""

    mass: list[float]
    sums: list[float]
    starts: list[Moment]

    @classmethod
    def of(cls, alternatives: int) -> Self:
        """Nothing was seen yet."""
        return cls([0.0] * alternatives, [0.0] * alternatives, [NEVER] * alternatives)

    def add(self, gains: Sequence[float], at: Moment) -> float:
        """Take in a job's gain for each alternative; returns the level."""
        total = 0.0
        for i, gain in enumerate(gains):
            mass = self.mass[i] = min((1.0 + self.mass[i]) * math.exp(min(gain, 50.0)), MOST)
            total += mass
            grown = self.sums[i] + gain
            if grown <= 0.0:
                self.sums[i], self.starts[i] = 0.0, NEVER
            else:
                if self.sums[i] == 0.0:
                    self.starts[i] = at
                self.sums[i] = grown
        return math.log(total / len(self.mass)) if total > 0 else -math.inf

    @property
    def best(self) -> int:
        """The alternative that has most behind it."""
        return max(range(len(self.mass)), key=self.mass.__getitem__)

    @property
    def since(self) -> Moment:
        """First job since which the best alternative has been rising."""
        return self.starts[max(range(len(self.sums)), key=self.sums.__getitem__)]

    @property
    def quiet(self) -> bool:
        """Whether jobs were seen since it began, and none of the alternatives is rising."""
        return any(self.mass) and not any(self.sums)

    def reset(self) -> None:
        """Begin again."""
        fresh = self.of(len(self.mass))
        self.mass, self.sums, self.starts = fresh.mass, fresh.sums, fresh.starts
