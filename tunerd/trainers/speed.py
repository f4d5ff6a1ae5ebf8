"""Steps in, a speed out: the median over stretches of equally many steps, without the warm-up.

Single steps are no measure. On a GPU a step is only queued, and one in ten waits for the other
nine. A mean is none either: it counts each checkpoint. So steps are cut into at most 16 stretches
of equally many steps, and the middle one counts.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import NamedTuple

__all__ = ["MeasuredSpeed", "StepTimer"]

MOST_STRETCHES = 16
MOST_MARKS = 256
"""Then every second one is dropped; a training may last for months."""
LEAST_STEPS = 2
"""Steps without which there is no speed: the first one is warm-up, however short the run."""


@dataclass(frozen=True)
class MeasuredSpeed:
    """How fast a training was, and what that rests on."""

    rates: dict[str, float]
    """Per second, by what was counted; ``steps`` is always among them."""
    steps: int
    """That were measured."""
    seconds: float
    """Over which they were measured, without pauses."""
    stretches: int
    warmup_steps: int
    """That were left out."""


class _Mark(NamedTuple):
    at: float
    """Seconds since the start, without pauses."""
    steps: int
    amounts: dict[str, float]
    """Cumulated."""


class StepTimer:
    """Counts what steps did, in bounded memory. One thread steps; any other may :meth:`measure`."""

    def __init__(
        self, warmup_steps: int = 10, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """``warmup_steps`` are left out; of a run not twice as long, its first half."""
        self._warmup, self._clock = max(warmup_steps, 1), clock
        self._began, self._paused = clock(), 0.0
        self._pause_began: float | None = None
        self._amounts: dict[str, float] = {}
        self._early: list[_Mark] = []
        """What is looked at while the run is too short to leave out the whole warm-up."""
        self._marks: list[_Mark] = []
        self._every, self._next = 1, 1
        self.steps = 0

    def step(self, amounts: Mapping[str, float]) -> None:
        """One more step, and what it did."""
        if self._pause_began is not None:
            self.resume()
        self.steps += 1
        own = self._amounts
        for name, amount in amounts.items():
            own[name] = own.get(name, 0.0) + amount
        if self.steps >= self._next:
            self._mark()

    def _mark(self) -> None:
        mark = _Mark(self._clock() - self._began - self._paused, self.steps, dict(self._amounts))
        if len(self._marks) < MOST_MARKS:
            self._marks.append(mark)
        else:  # a new list: another thread may be reading the old one
            self._marks, self._every = [*self._marks, mark][::2], self._every * 2
        if self.steps == self._warmup:
            self._early, self._marks, self._every = self._marks[:-1], [mark], 1
        self._next = self.steps + self._every
        if self.steps < self._warmup < self._next:
            self._next = self._warmup

    def pause(self) -> None:
        """What comes now is no training: an evaluation, a checkpoint."""
        if self._pause_began is None:
            self._pause_began = self._clock()

    def resume(self) -> None:
        """Training goes on."""
        if self._pause_began is not None:
            self._paused += self._clock() - self._pause_began
            self._pause_began = None

    @property
    def warm(self) -> bool:
        """Whether the whole warm-up was left out, with as many steps after it."""
        return self.steps >= 2 * self._warmup

    def measure(self) -> MeasuredSpeed | None:
        """The speed so far; None before there are two steps."""
        marks, steps = list(self._marks), self.steps
        if steps < LEAST_STEPS:
            return None
        if not self.warm:
            marks = [mark for mark in (*self._early, *marks) if mark.steps >= steps // 2]
        # Equal numbers of steps; what is left over at the end is left out.
        stride = max(1, -(-(len(marks) - 1) // MOST_STRETCHES))
        chosen = marks[::stride]
        pairs = [(a, b) for a, b in pairwise(chosen) if b.at > a.at]
        if not pairs:
            return None
        first, last = pairs[0][0], pairs[-1][1]
        rates = {"steps": median((b.steps - a.steps) / (b.at - a.at) for a, b in pairs)}
        for name in last.amounts:
            each = [
                (b.amounts.get(name, 0.0) - a.amounts.get(name, 0.0)) / (b.at - a.at)
                for a, b in pairs
            ]
            rates[name] = median(each)
        return MeasuredSpeed(
            rates, last.steps - first.steps, last.at - first.at, len(pairs), first.steps
        )
