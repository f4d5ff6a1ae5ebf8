"""A study: one tuning problem, checked and frozen, and what it knows about contexts and metrics."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.core.expressions import ValueColumn, constant
from tunerd.core.observation import (
    CorrectedObservation,
    FeasibilityLabel,
    Observation,
    Scalar,
    Status,
    Value,
)
from tunerd.core.study.columns import context_columns, parameter_columns
from tunerd.core.study.context_key import BucketKey, BucketValue, canonical_context_key, clean_value
from tunerd.core.study.continuous_range import BETWEEN
from tunerd.core.study.mapping import MappingTable
from tunerd.core.study.parts import (
    Baseline,
    Constraint,
    ContextFeature,
    DerivedValue,
    DriftOptions,
    ForecastOptions,
    Guard,
    HistoryOptions,
    LimitOptions,
    Objective,
    Parameter,
    PlausibilityOptions,
    PredictorOptions,
    RunningOptions,
    SearchOptions,
)

__all__ = ["Study", "Unusable"]

Unusable = Literal["missing", "impossible"]
"""Why the objective of a job cannot be used: it has none, or a value that it cannot have."""

LARGEST_GAIN = 1e300
"""A share of what is next to nothing is still a number: no message holds another."""


SAME_SPEED = 0.01
"""Relative difference up to which the speed of a job's end is the one that it ran with."""


@dataclass(frozen=True)
class Study:
    """One generation of a study, as :func:`tunerd.core.study_file.parse_study` makes it."""

    name: str
    mode: Literal["observe", "approve", "publish"]
    explore_share: float
    min_feasible: float
    objective: Objective
    guards: tuple[Guard, ...]
    context: tuple[ContextFeature, ...]
    lookups: Mapping[str, Mapping[str, Mapping[str, float]]]
    """Feature → value → attribute → number."""
    parameters: tuple[Parameter, ...]
    derived: tuple[DerivedValue, ...]
    """Each needs only earlier ones."""
    constraints: tuple[Constraint, ...]
    baselines: tuple[Baseline, ...]
    search: SearchOptions
    predictor: PredictorOptions
    history: HistoryOptions
    limits: LimitOptions
    plausibility: PlausibilityOptions
    drift: DriftOptions
    running: RunningOptions
    forecast: ForecastOptions
    mapping: MappingTable
    """How to read tables of old jobs."""
    text: str
    """The file as it was written."""
    content_hash: str
    """``sha256:…`` of what the file says, the mapping apart; comments and white space say
    nothing."""

    # ── context ──────────────────────────────────────────────────────────────────────────────

    def context_key(self, context: Mapping[str, object]) -> str:
        """Return the canonical key of a context (contract: context key).

        Values are brought into the study's types first; what the study does not know is not part
        of the key.
        """
        values: dict[str, Scalar | BucketValue] = {}
        for feature in self.context:
            if feature.key == "ignore":
                continue
            value = clean_value(feature.of(context), feature.type)
            if isinstance(feature.key, BucketKey) and isinstance(value, int | float):
                values[feature.name] = BucketValue(value, feature.key.factor)
            else:
                values[feature.name] = value
        return canonical_context_key(self.name, values)

    def clean_context(self, context: Mapping[str, object]) -> dict[str, Scalar]:
        """Return every feature of the study in its type; ``None`` where unusable or absent."""
        return {f.name: clean_value(f.of(context), f.type) for f in self.context}

    @cached_property
    def signals(self) -> tuple[ContextFeature, ...]:
        """Features of the context that come from a signal."""
        return tuple(feature for feature in self.context if feature.signal is not None)

    def signal_of(self, feature: ContextFeature, context: Mapping[str, object]) -> str | None:
        """Written name of the signal that a feature comes from in a context; None where it lacks
        what names it. Names and numbers are read as elsewhere: earlier names, and 4.0 as 4."""
        return None if feature.signal is None else feature.signal.of(self.clean_context(context))

    def named(self, config: Mapping[str, Value]) -> dict[str, Value]:
        """Return the study's own parameters of a job's raw configuration, by their present names,
        with what the study says of jobs that do not have one."""
        values: dict[str, Value] = {}
        for parameter in self.parameters:
            value: Any = parameter.of(config)
            if value is not None:
                values[parameter.name] = value
        return values

    def outside(self, config: Mapping[str, Value]) -> list[str]:
        """Return the names of the parameters of which a job's raw configuration has a value that
        the study does not have."""
        named = self.named(config)
        return [
            parameter.name
            for parameter in self.parameters
            if parameter.name in named
            and None in map(parameter.index, parameter.spread(named[parameter.name]))
        ]

    def is_foreign(self, config: Mapping[str, Value]) -> bool:
        """Return whether a job's raw configuration has a parameter that the study does not know."""
        return any(value is not None and name not in self._known for name, value in config.items())

    def finer(self, doublings: int) -> "Study":
        """Return the study with its continuous ranges on so many times twice the values."""
        parameters = self.parameters
        for _ in range(doublings):
            parameters = tuple(parameter.finer() for parameter in parameters)
        return self if parameters == self.parameters else replace(self, parameters=parameters)

    def with_choices(self, configs: Iterable[Mapping[str, object]]) -> "Study":
        """Return the study with what these configurations hold of its continuous ranges among the
        values on which those are searched."""
        extra: dict[str, set[int | float]] = {}
        between = {
            parameter.name: parameter for parameter in self.parameters if parameter.continuous
        }
        for config in configs if between else ():
            for name, parameter in between.items():
                for value in parameter.spread(config.get(name)):
                    code = parameter.index(value)
                    if code is not None and code >= BETWEEN:
                        number: Any = parameter.value(code)
                        extra.setdefault(name, set()).add(number)
        if not extra:
            return self
        return replace(
            self,
            parameters=tuple(
                replace(
                    parameter,
                    choices=tuple(sorted({*parameter.choices, *extra.get(parameter.name, ())})),
                )
                if parameter.name in extra
                else parameter
                for parameter in self.parameters
            ),
        )

    @cached_property
    def _known(self) -> frozenset[str]:
        own = {name for parameter in self.parameters for name in (parameter.name, *parameter.was)}
        return frozenset(own.union(value.name for value in self.derived))

    def baseline(self, context: Mapping[str, object]) -> dict[str, Value] | None:
        """Return the first baseline whose condition holds, possibly partial; ``None`` if none."""
        columns = self._constants(context)
        for baseline in self.baselines:
            if baseline.when is None or bool(baseline.when.evaluate(columns).satisfied()):
                return dict(baseline.config)
        return None

    def _constants(self, context: Mapping[str, object]) -> dict[str, ValueColumn]:
        return {
            feature.name: constant(
                clean_value(feature.of(context), feature.type),
                self.lookups.get(feature.name),
            )
            for feature in self.context
        }

    # ── what a job says ──────────────────────────────────────────────────────────────────────

    def score(self, metrics: Mapping[str, float]) -> float | None:
        """Return the oriented objective, larger is better; ``None`` if absent or impossible.

        On a log scale that is ± the natural logarithm of the metric.
        """
        if self.unusable(metrics) is not None:
            return None
        value = float(metrics[self.objective.metric])
        return (math.log(value) if self.objective.scale == "log" else value) * self._sign

    def unusable(self, metrics: Mapping[str, float]) -> Unusable | None:
        """Return why a job's objective is not usable; ``None`` where it is."""
        value = metrics.get(self.objective.metric)
        if value is None or isinstance(value, bool) or math.isnan(value):
            return "missing"
        if math.isinf(value) or not self.objective.possible(value):
            return "impossible"
        return None

    def metric_value(self, score: float) -> float:
        """Return the metric that a score stands for, in the objective's unit; the nearest value
        that it can have where there are bounds."""
        value = score * self._sign
        if self.objective.scale == "log":
            try:
                value = math.exp(value)
            except OverflowError:
                value = math.inf
        return self.objective.within(value)

    def gain(self, score: float, reference: float) -> float:
        """Return the relative gain in the raw metric: 0.042 is 4.2 % better, whatever the goal.

        0 where the reference metric is 0 and nothing can be said in percent, and within
        ± :data:`LARGEST_GAIN` where it is next to 0.
        """
        if self.objective.scale == "log":
            ratio = math.exp(min((score - reference) * self._sign, 700.0))
            return (ratio - 1) * self._sign
        # Between values that the metric can have: no energy falls by more than all of it.
        before, after = self.metric_value(reference), self.metric_value(score)
        gain = (after - before) * self._sign / abs(before) if before else 0.0
        return max(-LARGEST_GAIN, min(gain, LARGEST_GAIN))

    def may_be_zero(self, score: float, uncertainty: float) -> bool:
        """Whether a metric may as well be 0, as only one on a linear scale can: then nothing is a
        share of it."""
        return self.objective.scale == "linear" and abs(score) <= uncertainty

    def scores_like(self, other: "Study") -> bool:
        """Whether a score means the same under both, so that one can be held against the other."""
        own, its = self.objective, other.objective
        return (own.metric, own.goal, own.scale) == (its.metric, its.goal, its.scale)

    def unit(self, scores: FloatArray) -> float:
        """Return what a relative difference of 1 is in scores, given some (n,) scores.

        On a linear scale that depends on the metric's unit, as whatever is to mean the same
        everywhere must not; where nothing is known, or all is 0, it is 1.
        """
        if self.objective.scale == "log" or not len(scores):
            return 1.0
        return float(np.mean(np.abs(scores))) or 1.0

    @cached_property
    def _sign(self) -> int:
        return 1 if self.objective.goal == "maximize" else -1

    def guard_broken(self, metrics: Mapping[str, float]) -> str | None:
        """Return the metric of the first guard that a run broke, ``None`` if none."""
        for guard in self.guards:
            if guard.broken_by(metrics.get(guard.metric)):
                return guard.metric
        return None

    def margin(self, metrics: Mapping[str, float]) -> float:
        """Return how far a run stayed within the nearest of its guards' bounds; NaN without any.

        A tenth is about 10 % of the bound, negative is beyond it.
        """
        margins = (guard.margin(metrics.get(guard.metric)) for guard in self.guards)
        return min((m for m in margins if not math.isnan(m)), default=math.nan)

    def ran(self, observation: Observation) -> FeasibilityLabel:
        """Return what a job says about whether its configuration runs (design: what a job
        teaches)."""
        status = observation.status
        if status is Status.OUT_OF_MEMORY or self.guard_broken(observation.metrics) is not None:
            return FeasibilityLabel.NO
        why = self.unusable(observation.metrics)
        if why is None:
            return FeasibilityLabel.YES
        if status is Status.SUCCEEDED:
            says = self.objective.impossible if why == "impossible" else self.objective.missing
            return FeasibilityLabel.YES if says == "ran" else FeasibilityLabel.WEAK_NO
        return (
            FeasibilityLabel.WEAK_NO
            if status in (Status.FAILED, Status.TIMEOUT)
            else FeasibilityLabel.UNKNOWN
        )

    def teaches_anew(self, one: CorrectedObservation) -> bool:
        """Return whether what is known of a job now teaches something else than what it counted as
        before. A speed within :data:`SAME_SPEED` does not."""
        earlier = one.earlier
        if one.config != earlier.config or self.ran(one) is not self.ran(earlier):
            return True
        if self.context_key(one.context) != self.context_key(earlier.context):
            return True
        now, before = self.score(one.metrics), self.score(earlier.metrics)
        if now is None or before is None:
            return now is not before
        size = 1.0 if self.objective.scale == "log" else max(abs(now), abs(before))
        return abs(now - before) > SAME_SPEED * size

    # ── many jobs at once ────────────────────────────────────────────────────────────────────

    def columns(
        self, contexts: Sequence[Mapping[str, object]], configs: Sequence[Mapping[str, object]]
    ) -> dict[str, ValueColumn]:
        """Return context, parameters and derived values of n raw jobs as columns of n rows.

        Values need not be in the space; what is absent or not of its type is undefined, and so is
        what is derived from it. Texts that the study does not list are added to the column's.
        """
        columns = context_columns(self.context, self.lookups, contexts)
        columns |= parameter_columns(self.parameters, configs)
        return columns | self.derive(columns)

    def derive(self, columns: Mapping[str, ValueColumn]) -> dict[str, ValueColumn]:
        """Return the derived values that follow from columns of context and parameters."""
        known = dict(columns)
        for derived in self.derived:
            known[derived.name] = derived.expression.evaluate(known)
        return {derived.name: known[derived.name] for derived in self.derived}
