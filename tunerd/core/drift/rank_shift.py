"""Whether what is known to be fast still is: a parameter's effect that fades or turns round.

Each parameter's values have an effect: how far jobs with that value lie above their context's mean,
learned as jobs come. A job's *leaning* error (what is its configuration's, and not its context's)
owes nothing to effects learned before it, while these hold. Where an effect turned round, jobs with
the good values come out slower than they were and those with the bad ones faster: their error leans
against the effect. So each job's error is weighed by its value's effect, and the negative sums rise
for the parameter concerned.
"""

import math
import zlib
from collections.abc import Iterable, Mapping
from typing import Self

import msgspec

from tunerd.core.drift.shiryaev_roberts import Moment, ShiryaevRoberts
from tunerd.core.observation import Value
from tunerd.core.saved_state import SavedState

__all__ = ["ORDER_ALTERNATIVES", "RankShiftDetector", "order_gains"]

ORDER_ALTERNATIVES = (0.5, 1.0, 2.0)
MOST_VALUES = 64
"""Values of one parameter that are told apart."""
MOST_PARAMETERS = 64
"""Parameters watched, the first ones: a job costs 2 µs for each."""
ENOUGH = 8
"""Jobs of a value, before its effect counts."""
MEMORY = 300.0
LARGEST = 1.5
SMALLEST = 0.5
"""An effect below half the noise turned round would be invisible."""
_MARK = msgspec.json.Encoder(order="deterministic").encode


class RankShiftDetector(SavedState):
    """One study's. Bounded; part of the watch's state."""

    effects: dict[str, dict[str, list[float]]]
    """Parameter → value → jobs and mean distance from their context's mean, in noises."""
    size: dict[str, float]
    """Mean size of a parameter's effect over jobs."""
    rise: ShiryaevRoberts
    jobs: float = 0.0

    @classmethod
    def of(cls, parameters: Iterable[str]) -> Self:
        """Nothing was seen yet."""
        watched = list(parameters)[:MOST_PARAMETERS]
        rise = ShiryaevRoberts.of(len(watched) * len(ORDER_ALTERNATIVES))
        return cls({name: {} for name in watched}, dict.fromkeys(watched, 0.0), rise)

    def see(
        self, config: Mapping[str, Value], off: float | None, lean: float | None, at: Moment
    ) -> float:
        """Take in a job; returns the level.

        Args:
            config: what it ran.
            off: distance of its score from its context's mean before it, in noises; None for the
                first jobs of a context.
            lean: its leaning error; None where it says nothing.
            at: which job it is.
        """
        marks = {name: _mark(config.get(name)) for name in self.effects}
        level = -math.inf
        if lean is not None:
            level = self.rise.add(self._gains(marks, lean), at)
        if off is not None:
            self._learn(marks, off)
        return level

    @property
    def parameter(self) -> str:
        """The one with most behind it."""
        return list(self.effects)[self.rise.best // len(ORDER_ALTERNATIVES)]

    def _gains(self, marks: Mapping[str, str], lean: float) -> list[float]:
        gains: list[float] = []
        for name, values in self.effects.items():
            jobs, effect = values.get(marks[name], (0.0, 0.0))
            weight = 0.0
            if jobs >= ENOUGH and abs(effect) >= SMALLEST:
                weight = max(-LARGEST, min(effect / max(self.size[name], 1e-9), LARGEST))
            against = -weight * lean
            gains += [d * against - 0.5 * (d * weight) ** 2 for d in ORDER_ALTERNATIVES]
        return gains

    def _learn(self, marks: Mapping[str, str], off: float) -> None:
        self.jobs = min(self.jobs + 1.0, MEMORY)
        for name, values in self.effects.items():
            effect = values.get(marks[name])
            if effect is None:
                if len(values) >= MOST_VALUES:
                    continue
                effect = values[marks[name]] = [0.0, 0.0]
            effect[0] = min(effect[0] + 1.0, MEMORY)
            effect[1] += (off - effect[1]) / effect[0]
            self.size[name] += (abs(effect[1]) - self.size[name]) / self.jobs


def order_gains(lean: float) -> list[float]:
    """Gains of a job whose effect is of usual size, for calibration."""
    return [d * lean - 0.5 * d * d for d in ORDER_ALTERNATIVES]


def _mark(value: Value) -> str:
    """A value as a short text."""
    text = _MARK(value)
    return text.decode() if len(text) <= 16 else f"#{zlib.crc32(text):08x}"
