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
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Moment", "ShiryaevRoberts"]

Moment = tuple[int, float]
"""A job's sequence, and when it finished in seconds since 1970."""
NEVER: Moment = (0, 0.0)
MOST = 1e250
"""Where M stops growing: far above every threshold, below what a float holds."""


class ShiryaevRoberts:
    """Bounded, exact under :meth:`dump`. One per place that is watched."""

    __slots__ = ("_mass", "_starts", "_sums")

    def __init__(self, alternatives: int) -> None:
        self._mass = [0.0] * alternatives
        self._sums = [0.0] * alternatives
        self._starts = [NEVER] * alternatives

    def add(self, gains: Sequence[float], at: Moment) -> float:
        """Take in a job's gain for each alternative; returns the level."""
        total = 0.0
        for i, gain in enumerate(gains):
            mass = self._mass[i] = min((1.0 + self._mass[i]) * math.exp(min(gain, 50.0)), MOST)
            total += mass
            grown = self._sums[i] + gain
            if grown <= 0.0:
                self._sums[i], self._starts[i] = 0.0, NEVER
            else:
                if self._sums[i] == 0.0:
                    self._starts[i] = at
                self._sums[i] = grown
        return math.log(total / len(self._mass)) if total > 0 else -math.inf

    @property
    def best(self) -> int:
        """The alternative that has most behind it."""
        return max(range(len(self._mass)), key=self._mass.__getitem__)

    @property
    def since(self) -> Moment:
        """First job since which the best alternative has been rising."""
        return self._starts[max(range(len(self._sums)), key=self._sums.__getitem__)]

    @property
    def quiet(self) -> bool:
        """Whether jobs were seen since it began, and none of the alternatives is rising."""
        return any(self._mass) and not any(self._sums)

    def reset(self) -> None:
        """Begin again."""
        self.__init__(len(self._mass))  # type: ignore[misc]

    def dump(self) -> dict[str, Any]:
        """State as JSON values; empty while there is nothing to say."""
        if not any(self._mass):
            return {}
        return {
            "mass": list(self._mass),
            "sums": list(self._sums),
            "starts": [list(start) for start in self._starts],
        }

    @classmethod
    def load(cls, alternatives: int, state: Mapping[str, Any]) -> "ShiryaevRoberts":
        """Build from what :meth:`dump` gave; one for other alternatives begins again."""
        rise = cls(alternatives)
        if state and len(state["mass"]) == alternatives:
            rise._mass = [float(mass) for mass in state["mass"]]
            rise._sums = [float(total) for total in state["sums"]]
            rise._starts = [(int(sequence), float(at)) for sequence, at in state["starts"]]
        return rise
