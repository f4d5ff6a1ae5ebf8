"""What the keys of a study file mean together: names, expressions, values; every mistake found."""

from collections.abc import Collection, Mapping
from typing import Any

from tunerd.core.expressions import ExpressionType, NameType, suggestion
from tunerd.core.predictors import PREDICTORS
from tunerd.core.searchers import SEARCHERS, searcher_class
from tunerd.core.study.context_key import BucketKey, ValueType, clean_value
from tunerd.core.study.mapping import mapping_mistakes
from tunerd.core.study.parts import (
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
from tunerd.core.study.signals import SignalQuery, parse_duration, parse_signal
from tunerd.core.study_file.baselines import baselines_of
from tunerd.core.study_file.choices import choices_of
from tunerd.core.study_file.keys import FeatureTable, StudyFile
from tunerd.core.study_file.messages import Path
from tunerd.core.study_file.plugins import own_options
from tunerd.core.study_file.read import ParseResult
from tunerd.core.study_file.scope import NameScope, reads

__all__ = ["compile_study"]

MAX_DIMENSIONS = 4_096
SIGNAL_BUCKET = 1.25
"""Factor of the buckets of a feature that comes from a signal: its own values would make each job a
context."""


def compile_study(reading: ParseResult) -> dict[str, Any]:
    """Return the fields of a ``Study``; mistakes are added to ``reading``."""
    assert reading.table is not None
    return _StudyCompiler(reading, reading.table).fields()


class _StudyCompiler:
    def __init__(self, reading: ParseResult, table: StudyFile) -> None:
        self.reading, self.table = reading, table
        self.mistake = reading.mistake
        self.scope = NameScope(reading)
        self.earlier: dict[tuple[str, str], str] = {}
        """Who had an earlier name, by section and that name."""

    def fields(self) -> dict[str, Any]:
        table = self.table
        for section in ("context", "parameters", "derived"):
            self.scope.claim(section, getattr(table, section))
        context = self.context()
        lookups = self.lookups()
        parameters = self.parameters()
        self.engines()
        self.mapping()
        return {
            "name": table.name,
            "mode": table.mode,
            "explore_share": table.explore_share,
            "min_feasible": table.min_feasible,
            "objective": self.objective(),
            "guards": self.guards(),
            "context": context,
            "lookups": lookups,
            "parameters": parameters,
            "derived": self.derived(),
            "constraints": self.constraints(),
            "baselines": baselines_of(table, self.scope, {p.name: p for p in parameters}),
            "search": self.search(),
            "predictor": self.predictor(),
            "history": HistoryOptions(**table.history.model_dump()),
            "limits": self.limits(),
            "plausibility": self.plausibility(),
            "drift": DriftOptions(**table.drift.model_dump()),
            "running": RunningOptions(**table.running.model_dump()),
            "forecast": ForecastOptions(**table.forecast.model_dump()),
            "mapping": table.mapping,
        }

    def objective(self) -> Objective:
        table = self.table.objective
        low, high = table.min, table.max
        if low is not None and high is not None and low >= high:
            self.mistake(("objective", "min"), f"{low:g} is not below max = {high:g}")
        elif table.scale == "log" and high is not None and high <= 0:
            self.mistake(("objective", "max"), 'scale = "log" needs a positive metric')
        values = table.model_dump()
        return Objective(**values | {"failed_values": tuple(map(float, table.failed_values))})

    # ── context ──────────────────────────────────────────────────────────────────────────────

    def context(self) -> tuple[ContextFeature, ...]:
        features = []
        for name, table in self.table.context.items():
            if self.scope.owns("context", name):
                attributes = self.lookup_kinds(name)
                kind = "text" if table.type == "category" else table.type
                self.scope.names[name] = NameType(ExpressionType(kind), attributes)
            was = self.was("context", name, table.was)
            absent = self.absent(("context", name, "absent"), table.type, table.absent)
            key, signal = self.key(name, table), self.signal(name, table)
            if signal is not None and "key" not in table.model_fields_set:
                key = BucketKey(SIGNAL_BUCKET)
            features.append(ContextFeature(name, table.type, table.scale, key, was, absent, signal))
        return tuple(features)

    def signal(self, name: str, table: FeatureTable) -> SignalQuery | None:
        """The signal that a feature comes from."""
        over_s = 0.0
        try:
            over_s = parse_duration(table.over)
        except ValueError as error:
            self.mistake(("context", name, "over"), str(error))
        if table.signal is None:
            return None
        path: Path = ("context", name, "signal")
        if table.type not in ("int", "float"):
            self.mistake(path, f"a {table.type} comes from no signal: signals are numbers")
            return None
        try:
            query = parse_signal(table.signal, over_s)
        except ValueError as error:
            self.mistake(path, str(error))
            return None
        for _, feature in query.features:
            other = self.table.context.get(feature)
            if other is None:
                hint = suggestion(feature, self.table.context)
                self.mistake(path, f"there is no context feature {feature!r}{hint}")
            elif other.signal is not None:
                self.mistake(path, f"{feature!r} comes from a signal itself")
        return query

    def was(self, section: str, name: str, given: str | list[str] | None) -> tuple[str, ...]:
        """Earlier names of an entry, each of which only one entry may have."""
        earlier = [given] if isinstance(given, str) else given or []
        path: Path = (section, name, "was")
        for former in earlier:
            owner = self.earlier.setdefault((section, former), name)
            if former in getattr(self.table, section):
                what = "its own name" if former == name else f"the name of an entry in [{section}]"
                self.mistake(
                    path, f"{former!r} is {what} today: an earlier name is one that is gone"
                )
            elif owner != name:
                self.mistake(path, f"{former!r} is said to be the earlier name of {owner!r}, too")
        return tuple(earlier)

    def absent(self, path: Path, kind: ValueType, given: Any) -> Any:
        """The value of jobs that have none, in its type."""
        if given is None:
            return None
        values = given if isinstance(given, list) else [given]
        clean = [clean_value(value, kind) for value in values]
        if not clean or any(value is None for value in clean):
            words = {"int": "an integer", "float": "a number", "category": "a text"}
            self.mistake(path, f"{given!r} should be {words.get(kind, 'true or false')}")
        return clean if isinstance(given, list) else clean[0]

    def key(self, name: str, table: FeatureTable) -> Any:
        if table.type in ("category", "bool"):
            if table.scale == "log":
                self.mistake(("context", name, "scale"), f"a {table.type} has no scale")
            if not isinstance(table.key, str):
                self.mistake(("context", name, "key"), f"a {table.type} has no buckets")
        return table.key if isinstance(table.key, str) else BucketKey(table.key.bucket)

    def lookup_kinds(self, feature: str) -> dict[str, ExpressionType]:
        types: dict[str, set[type]] = {}
        for numbers in self.table.lookup.get(feature, {}).values():
            for attribute, number in numbers.items():
                types.setdefault(attribute, set()).add(type(number))
        return {
            attribute: ExpressionType("int" if kinds == {int} else "float")
            for attribute, kinds in types.items()
        }

    def lookups(self) -> dict[str, dict[str, dict[str, float]]]:
        for feature, values in self.table.lookup.items():
            self.lookup_owner(feature)
            named = {name for numbers in values.values() for name in numbers}
            for attribute in sorted(named):
                if not attribute.isidentifier() or not attribute.isascii():
                    message = f"the name {attribute!r} cannot stand in an expression"
                    self.mistake(("lookup", feature), message)
        return {
            feature: {value: dict(numbers) for value, numbers in values.items()}
            for feature, values in self.table.lookup.items()
        }

    def lookup_owner(self, feature: str) -> None:
        owner = self.scope.owner.get(feature)
        declared = self.table.context.get(feature)
        if owner == "context":
            if declared is not None and declared.type != "category":
                message = f"{feature!r} is {declared.type}: a lookup describes a category"
                self.mistake(("lookup", feature), message)
        elif owner is not None:
            message = f"{feature!r} is not in [context]: a lookup describes a category of it"
            self.mistake(("lookup", feature), message)
        else:
            hint = suggestion(feature, self.table.context)
            self.mistake(("lookup", feature), f"there is no context feature {feature!r}{hint}")

    # ── parameters, guards, engines ──────────────────────────────────────────────────────────

    def parameters(self) -> tuple[Parameter, ...]:
        parameters = []
        for name, table in self.table.parameters.items():
            wrong = len(self.reading.problems)
            wanted = [b.config[name] for b in self.table.baseline if name in b.config]
            choices = choices_of(table, wanted, self.reading, ("parameters", name))
            if len(self.reading.problems) > wrong or not choices:
                continue
            repeat = table.repeat or 1
            was = self.was("parameters", name, table.was)
            path: Path = ("parameters", name, "absent")
            absent = self.absent(path, table.type, table.absent)
            if isinstance(absent, list) and len(absent) != repeat:
                many = f"{repeat} values" if table.repeat else "a single value"
                self.mistake(path, f"has {len(absent)} values; it is {many}")
            ranged = table.type in ("int", "float") and not table.values and table.step is None
            parameters.append(
                Parameter(name, table.type, table.scale, choices, repeat, was, absent, ranged)
            )
            if self.scope.owns("parameters", name):
                texts = tuple(map(str, choices)) if table.type == "category" else None
                kind = "text" if table.type == "category" else table.type
                self.scope.names[name] = NameType(ExpressionType(kind, table.repeat or 0, texts))
        dimensions = sum(parameter.repeat for parameter in parameters)
        if dimensions > MAX_DIMENSIONS:
            message = f"{dimensions:,} values in one configuration, at most {MAX_DIMENSIONS:,}"
            self.mistake(("parameters",), message)
        return tuple(parameters)

    def guards(self) -> tuple[Guard, ...]:
        for metric, table in self.table.guards.items():
            if table.min is None and table.max is None:
                self.mistake(("guards", metric), "needs `max`, `min` or both")
            elif table.min is not None and table.max is not None and table.min > table.max:
                message = f"min {table.min} is above max {table.max}: every run would break it"
                self.mistake(("guards", metric), message)
        return tuple(
            Guard(metric, table.min, table.max, table.unit)
            for metric, table in self.table.guards.items()
        )

    def engines(self) -> None:
        searcher, path = self.table.search.searcher, ("search", "searcher")
        self.known("searcher", path, searcher, SEARCHERS)
        if searcher in SEARCHERS:
            problem = searcher_class(searcher).problem(self.search())
            if problem is not None:
                self.mistake(path, f"{searcher}: {problem}")
        self.known("predictor", ("predictor", "name"), self.table.predictor.name, PREDICTORS)
        if len(set(self.table.search.seeds)) < len(self.table.search.seeds):
            self.mistake(("search", "seeds"), "the same seed twice searches the same again")

    def limits(self) -> LimitOptions:
        table = self.table.limits
        for name, steps in table.max_steps.items():
            path = ("limits", "max_steps", name)
            self.known("parameter", path, name, self.table.parameters)
            if steps < 0:
                self.mistake(path, "must not be negative; 0 leaves the parameter as it is")
        return LimitOptions(**table.model_dump())

    def plausibility(self) -> PlausibilityOptions:
        table = self.table.plausibility
        bounds: dict[str, tuple[float, float]] = {}
        for metric, pair in table.bounds.items():
            path = ("plausibility", "bounds", metric)
            if len(pair) != 2:
                self.mistake(path, "has the smallest and the largest value: [10, 1000]")
            elif not pair[0] < pair[1]:
                self.mistake(path, f"{pair[0]:g} is not below {pair[1]:g}")
            else:
                bounds[metric] = (float(pair[0]), float(pair[1]))
        return PlausibilityOptions(bounds, table.unit_slips, table.beyond_best)

    def search(self) -> SearchOptions:
        table = self.table.search
        return SearchOptions(
            table.searcher,
            tuple(table.seeds),
            table.evaluations,
            table.keep,
            own_options(table),
        )

    def predictor(self) -> PredictorOptions:
        table = self.table.predictor
        return PredictorOptions(
            table.name, table.members, table.trees, table.seed, own_options(table)
        )

    def known(self, what: str, path: Path, name: str, registered: Collection[str]) -> None:
        if name not in registered:
            hint = suggestion(name, registered) or f"; there are {', '.join(registered)}"
            self.mistake(path, f"there is no {what} {name!r}{hint}")

    def mapping(self) -> None:
        table, lost = self.table, self.reading.left_out
        mistakes = mapping_mistakes(
            table.mapping,
            given=[*table.context, *table.parameters],
            metrics=[table.objective.metric, *table.guards],
            repeated={name for name, feature in table.parameters.items() if feature.repeat},
        )
        for path, message in mistakes:
            # What was left out for a mistake of its own is there all the same.
            if not any(entry[-1] == path[-1] or len(entry) == 1 for entry in lost):
                self.mistake(("mapping", *path), message)

    # ── expressions ──────────────────────────────────────────────────────────────────────────

    def derived(self) -> tuple[DerivedValue, ...]:
        derived = []
        for name in self.in_order():
            expression = self.scope.parsed(("derived", name), self.table.derived[name])
            if expression is None:
                continue
            if expression.kind.repeat:
                message = f"these are {expression.kind}: a derived value is one; use sum, count …"
                self.mistake(("derived", name), message)
                continue
            if self.scope.owns("derived", name):
                self.scope.names[name] = NameType(expression.kind)
            derived.append(DerivedValue(name, expression))
        return tuple(derived)

    def in_order(self) -> list[str]:
        """Names of derived values, each after those that it needs; cycles are mistakes."""
        texts = self.table.derived
        needs = {name: reads(text) & texts.keys() for name, text in texts.items()}
        order: list[str] = []
        settled: set[str] = set()
        while waiting := [name for name in texts if name not in settled]:
            ready = [name for name in waiting if needs[name] <= settled]
            if not ready:
                cycle = _cycle(needs, waiting)
                message = f"depends on itself: {' → '.join([*cycle, cycle[0]])}"
                self.mistake(("derived", cycle[0]), message)
                settled.update(cycle)
            order += ready
            settled.update(ready)
        return order

    def constraints(self) -> tuple[Constraint, ...]:
        constraints = []
        for name, text in self.table.constraints.items():
            path = ("constraints", name)
            self.scope.speakable(path)
            expression = self.scope.parsed(path, text)
            if expression is not None and self.scope.is_truth(path, expression):
                constraints.append(Constraint(name, expression))
        return tuple(constraints)


def _cycle(needs: Mapping[str, Collection[str]], circular: list[str]) -> list[str]:
    """Walk along what is needed, among names that all wait for another, until one comes again."""
    walk = [circular[0]]
    while True:
        following = next(name for name in circular if name in needs[walk[-1]])
        if following in walk:
            return walk[walk.index(following) :]
        walk.append(following)
