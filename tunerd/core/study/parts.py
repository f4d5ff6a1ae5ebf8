"""What a study consists of, checked and frozen."""

import bisect
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

from tunerd.core.expressions import Expression
from tunerd.core.observation import Scalar, Value
from tunerd.core.study.context_key import BucketKey, ValueType, clean_value
from tunerd.core.study.continuous_range import BETWEEN, ContinuousRange, continuum
from tunerd.core.study.shapes import PluginOptions
from tunerd.core.study.signals import SignalQuery

__all__ = [
    "Baseline",
    "Constraint",
    "ContextFeature",
    "DerivedValue",
    "DriftOptions",
    "ForecastOptions",
    "Guard",
    "HistoryOptions",
    "LimitOptions",
    "Objective",
    "Parameter",
    "PlausibilityOptions",
    "PredictorOptions",
    "RunningOptions",
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
    key: Literal["value", "ignore"] | BucketKey
    was: tuple[str, ...] = ()
    """Earlier names, the latest first."""
    absent: Scalar = None
    """Its value in jobs that do not have it."""
    signal: SignalQuery | None = None
    """The signal that it comes from, where jobs do not bring it."""

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
    """Its values as printed; a configuration is kept as indices into this. Of a continuous range
    those on which it is searched, its ends among them."""
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

    @cached_property
    def continuous(self) -> bool:
        """Whether there are values between the choices."""
        if self.type == "int":
            return self.ranged and len(self.choices) <= int(self.choices[-1]) - int(self.choices[0])
        return self.ranged and self.type == "float"

    def index(self, value: object) -> int | None:
        """Return the code of one value, ``None`` when it is outside the space: its place among the
        choices, or for what lies between those of a continuous range a code from
        :data:`~tunerd.core.study.continuous_range.BETWEEN` on.

        Values are brought into the type first, as in a context. A float may be off by a
        millionth, as what passed through 32 bits or through ``0.77 + 6 * 0.01`` is.
        """
        clean: Any = clean_value(value, self.type)
        if clean is None:
            return None
        place = self._place(clean)
        if place is not None or not self.continuous:
            return place
        between = self._continuum.rounded(clean)
        if between is None:
            return None
        place = self._place(between)
        return self._continuum.code(between) if place is None else place

    def value(self, code: int) -> bool | int | float | str:
        """Return the value of a code that :meth:`index` gave."""
        return self.choices[code] if code < BETWEEN else self._continuum.value(code)

    def finer(self) -> "Parameter":
        """Return it with a choice more between any two of a continuous range, midway on its scale;
        itself where there is nothing between choices."""
        if not self.continuous:
            return self
        choices: set[Any] = set(self.choices)
        for low, other in pairwise(map(float, self.choices)):
            log = self.scale == "log"
            middle = math.sqrt(low) * math.sqrt(other) if log else low / 2 + other / 2
            code = self.index(round(middle) if self.type == "int" else middle)
            if code is not None:
                choices.add(self.value(code))
        return replace(self, choices=tuple(sorted(choices)))

    def nearest_place(self, code: int) -> int:
        """Return the place of the choice that is nearest, on the range's scale, to a code."""
        if code < BETWEEN:
            return code
        value, numbers = float(self.value(code)), [float(choice) for choice in self.choices]
        if self.scale == "log":
            value, numbers = math.log(value), [math.log(number) for number in numbers]
        return min(range(len(numbers)), key=lambda place: abs(numbers[place] - value))

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
        code = self.index(value)
        return clean_value(value, self.type) if code is None else self.value(code)

    def _place(self, clean: Any) -> int | None:
        return self._nearest(float(clean)) if self.type == "float" else self._places.get(clean)

    @cached_property
    def _continuum(self) -> ContinuousRange:
        low, high = self.choices[0], self.choices[-1]
        assert not isinstance(low, str)
        assert not isinstance(high, str)
        return continuum(self.type, low, high)

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
        of_zero = 1e-12 if self.continuous else 1e-6
        tolerance = min(1e-6 * abs(near[0]) if near[0] else of_zero * gap, 1e-3 * gap)
        return near[1] if abs(near[0] - value) <= tolerance else None


@dataclass(frozen=True, slots=True)
class DerivedValue:
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
    seeds: tuple[int, ...]
    evaluations: int
    keep: int
    own: tuple[PluginOptions, ...] = ()
    """Where the file sets options that one searcher has for itself: ``ItsOptions.among(own)``."""

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
    own: tuple[PluginOptions, ...] = ()
    """Where the file sets options that one predictor has for itself: ``ItsOptions.among(own)``."""


@dataclass(frozen=True, slots=True)
class HistoryOptions:
    """How much of history counts when a model is built (study file: ``[history]``)."""

    window_days: float | None = None
    half_life_days: float | None = None


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """How far candidates may go, and how much one user, node or label may count
    (``[limits]``)."""

    max_changes: int | None = None
    max_steps: Mapping[str, int] = field(default_factory=dict)
    """By parameter."""
    max_user_share: float = 0.5
    max_node_share: float = 0.5
    max_label_share: Mapping[str, float] = field(default_factory=dict)
    """By label."""

    @property
    def of_steps(self) -> tuple[str, ...]:
        """Limits on steps, as a reason names them."""
        named = []
        if self.max_changes is not None:
            named.append(f"max_changes = {self.max_changes}")
        return (*named, *(f"max_steps of {name} = {n}" for name, n in self.max_steps.items()))


@dataclass(frozen=True, slots=True)
class PlausibilityOptions:
    """What a job may report before it is put into quarantine (``[plausibility]``)."""

    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Metric → smallest and largest value that are believed."""
    unit_slips: bool = True
    beyond_best: float = 1000.0

    def broken_by(self, metrics: Mapping[str, float]) -> str | None:
        """Which metric lies outside its bounds, in words; None where none does."""
        for metric, (low, high) in self.bounds.items():
            value = metrics.get(metric)
            if value is not None and not math.isnan(value) and not low <= value <= high:
                return f"{metric} = {value:g} is outside {low:g} to {high:g}"
        return None


@dataclass(frozen=True, slots=True)
class DriftOptions:
    """What is done about drift (study file: ``[drift]``)."""

    quiet_jobs: int = 10_000
    act: bool = True


@dataclass(frozen=True, slots=True)
class ForecastOptions:
    """How far signals and contexts are foreseen, and what follows from it."""

    ahead: bool = True
    """Whether contexts that are to come are searched before their first job."""
    rhythm: bool = True
    """Whether contexts are foreseen by the hours of the week at which their jobs come."""
    growth: bool = False
    """Whether the next larger context is foreseen where a number of the context grows."""
    profiling: int = 0
    """Configurations that such a context asks profiling jobs for."""
    horizon_hours: float = 24.0
    min_probability: float = 0.1
    """Of a context within the horizon, from which it is searched."""
    switching_cost: float = 0.0
    """Gain, as a share of the objective, that a change of the plan has to bring."""
    quantile: float | None = None
    """Of the signal, at its worst within the hour, that the plan is made for; None for the most
    probable context."""


@dataclass(frozen=True, slots=True)
class RunningOptions:
    """Whether jobs count before they end (study file: ``[running]``)."""

    counts: bool = True
    min_steps: int = 100
    min_hours: float = 1.0


def _called(name: str, was: Sequence[str], values: Mapping[str, object], absent: object) -> object:
    value = values.get(name)
    if value is not None:
        return value
    for earlier in was:
        value = values.get(earlier)
        if value is not None:
            return value
    return absent
