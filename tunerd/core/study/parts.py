"""What a study consists of, checked and frozen."""

import bisect
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from tunerd.core.expressions import Expression
from tunerd.core.observation import Scalar, Value
from tunerd.core.study.context_key import Bucket, ValueType, clean_value

__all__ = [
    "Baseline",
    "Constraint",
    "ContextFeature",
    "Derived",
    "DriftOptions",
    "Guard",
    "HistoryOptions",
    "LimitOptions",
    "Objective",
    "Parameter",
    "PredictorOptions",
    "SearchOptions",
]

FARTHEST = 1e3
"""Shares of a guard's bound, or logarithms, beyond which a value is far off and no more."""
LARGEST = 1e100
"""Values of the objective beyond are no measurements."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The metric to make better."""

    metric: str
    goal: Literal["maximize", "minimize"]
    unit: str
    scale: Literal["log", "linear"]
    min: float | None = None
    """Smallest value that it can have; None for any, on a log scale any above 0."""
    max: float | None = None
    failed_values: tuple[float, ...] = ()
    """Values that stand for a run that failed."""
    impossible: Literal["failed", "ran"] = "failed"
    """What a job says about its configuration that succeeded with a value that cannot be."""
    missing: Literal["failed", "ran"] = "failed"
    """… and without a value."""

    def possible(self, value: float) -> bool:
        """Whether the metric can have a finite value. What lies beyond ± :data:`LARGEST` is no
        measurement: squares of it would be no numbers."""
        if abs(value) > LARGEST or value in self.failed_values:
            return False
        if self.scale == "log" and value < 1.0 / LARGEST:
            return False
        return (self.min is None or value >= self.min) and (self.max is None or value <= self.max)

    def within(self, value: float) -> float:
        """The nearest value to this one that lies within ``min`` and ``max``."""
        if self.min is not None and value < self.min:
            return float(self.min)
        return float(self.max) if self.max is not None and value > self.max else value


@dataclass(frozen=True, slots=True)
class Guard:
    """A metric that must stay within a bound."""

    metric: str
    min: float | None
    max: float | None
    unit: str

    def broken_by(self, value: float | None) -> bool:
        """Whether a reported value is outside; one that was not reported breaks nothing."""
        if value is None or math.isnan(value):
            return False
        too_small = self.min is not None and value < self.min
        return too_small or (self.max is not None and value > self.max)

    def margin(self, value: float | None) -> float:
        """How far a reported value is within the nearer bound, in logarithms where both are
        positive and else in shares of the bound, at most :data:`FARTHEST`; negative beyond it, NaN
        when not reported."""
        if value is None or not math.isfinite(value):
            return math.nan
        margins = [math.inf]
        for bound, sign in ((self.min, 1.0), (self.max, -1.0)):
            if bound is None:
                continue
            if bound > 0 and value > 0:
                # A share that is too small for a float comes out as 0.
                margins.append(sign * math.log(value / bound or sys.float_info.min))
            else:
                margins.append(sign * (value - bound) / max(abs(bound), 1.0))
        return max(-FARTHEST, min(FARTHEST, *margins))


@dataclass(frozen=True, slots=True)
class ContextFeature:
    """What a job brings and nobody tunes."""

    name: str
    type: ValueType
    scale: Literal["linear", "log"]
    key: Literal["value", "ignore"] | Bucket
    was: tuple[str, ...] = ()
    """Earlier names, the latest first."""
    absent: Scalar = None
    """Its value in jobs that do not have it."""

    def of(self, context: Mapping[str, object]) -> object:
        """Return the raw value that a job's context has for it, under whatever name."""
        return _called(self.name, self.was, context, self.absent)


@dataclass(frozen=True)
class Parameter:
    """What may be tuned."""

    name: str
    type: ValueType
    scale: Literal["linear", "log"]
    choices: tuple[bool | int | float | str, ...]
    """Its values as printed; a configuration is kept as indices into this."""
    repeat: int = 1
    """How many of it there are; 1 is a plain value, more a list."""
    was: tuple[str, ...] = ()
    """Earlier names, the latest first."""
    absent: Value = None
    """Its value in jobs that do not have it."""
    ranged: bool = False
    """Whether its choices stand for all numbers from the first to the last."""

    def of(self, config: Mapping[str, object]) -> object:
        """Return the raw value that a job's configuration has for it, under whatever name."""
        return _called(self.name, self.was, config, self.absent)

    @property
    def repeated(self) -> bool:
        return self.repeat > 1

    def index(self, value: object) -> int | None:
        """Return the place of one value among the choices; ``None`` when it is not one.

        Values are brought into the type first, as in a context. A float may be off by a
        millionth, as what passed through 32 bits or through ``0.77 + 6 * 0.01`` is.
        """
        clean = clean_value(value, self.type)
        if clean is None:
            return None
        if self.type == "float":
            return self._nearest(float(clean))
        return self._places.get(clean)

    def holds(self, value: object) -> bool:
        """Return whether one value is a choice, or within the range that the choices stand for."""
        if self.index(value) is not None:
            return True
        clean: Any = clean_value(value, self.type)
        return self.ranged and clean is not None and self.choices[0] <= clean <= self.choices[-1]

    def clean(self, value: object) -> Value:
        """Bring a raw value into the type, inside the choices or not; ``None`` if unusable.

        A value that is a choice up to rounding becomes that choice. For a repeat parameter: a
        list, a single value standing for all positions; ``None`` if nothing of it is usable.
        """
        if not self.repeated:
            return self.clean_one(value)
        values = [self.clean_one(item) for item in self.spread(value)]
        return None if all(item is None for item in values) else values

    def spread(self, value: object) -> Sequence[object]:
        """Return one raw value for each position: a single one stands for all of them, and so
        does ``None`` for a list of the wrong length."""
        if not isinstance(value, list | tuple):
            return [value] * self.repeat
        return value if self.repeated and len(value) == self.repeat else [None] * self.repeat

    def clean_one(self, value: object) -> Scalar:
        """Bring one raw value into the type; ``None`` if unusable."""
        place = self.index(value)
        return clean_value(value, self.type) if place is None else self.choices[place]

    @cached_property
    def _places(self) -> dict[Scalar, int]:
        return {choice: place for place, choice in enumerate(self.choices)}

    @cached_property
    def _sorted(self) -> list[tuple[float, int]]:
        return sorted((float(choice), place) for place, choice in enumerate(self.choices))

    def _nearest(self, value: float) -> int | None:
        grid = self._sorted
        at = bisect.bisect_left(grid, (value, -1))
        near = min(grid[max(at - 1, 0) : at + 1], key=lambda point: abs(point[0] - value))
        gap = min(
            (
                abs(near[0] - other)
                for other, _ in grid[max(at - 2, 0) : at + 2]
                if other != near[0]
            ),
            default=1.0,
        )
        tolerance = min(1e-6 * abs(near[0]) if near[0] else 1e-6 * gap, 1e-3 * gap)
        return near[1] if abs(near[0] - value) <= tolerance else None


@dataclass(frozen=True, slots=True)
class Derived:
    """A value that follows from others."""

    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Constraint:
    """A rule that every configuration keeps."""

    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Baseline:
    """What people launch without tunerd in some contexts."""

    when: Expression | None
    config: Mapping[str, Value]
    """As printed in the space; may lack parameters."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How candidates are looked for (study file: ``[search]``)."""

    searcher: str
    sampler: str
    """Of the searcher ``optuna``."""
    seeds: tuple[int, ...]
    steps: int
    batch: int
    learning_rate: float
    evaluations: int
    keep: int

    @property
    def listed(self) -> int:
        """Configurations of a context up to which all are looked at, by no searcher. That is twice
        what a search may ask for, and takes no longer: they are asked about all at once, and the
        probability to run of a few only."""
        return 2 * self.evaluations


@dataclass(frozen=True, slots=True)
class PredictorOptions:
    """How speed is predicted (study file: ``[predictor]``)."""

    name: str
    members: int
    trees: int
    seed: int


@dataclass(frozen=True, slots=True)
class HistoryOptions:
    """How much of history counts when a model is built (study file: ``[history]``)."""

    window_days: float | None = None
    half_life_days: float | None = None


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """How far candidates may go, and how much one user or node may count (``[limits]``)."""

    max_changes: int | None = None
    max_steps: Mapping[str, int] = field(default_factory=dict)
    """By parameter."""
    max_user_share: float = 0.5
    max_node_share: float = 0.5

    @property
    def of_steps(self) -> tuple[str, ...]:
        """Limits on steps, as a reason names them."""
        named = []
        if self.max_changes is not None:
            named.append(f"max_changes = {self.max_changes}")
        return (*named, *(f"max_steps of {name} = {n}" for name, n in self.max_steps.items()))


@dataclass(frozen=True, slots=True)
class DriftOptions:
    """What is done about drift (study file: ``[drift]``)."""

    quiet_jobs: int = 10_000
    act: bool = True


def _called(name: str, was: Sequence[str], values: Mapping[str, object], absent: object) -> object:
    value = values.get(name)
    if value is not None:
        return value
    for earlier in was:
        value = values.get(earlier)
        if value is not None:
            return value
    return absent
