"""What the keys of a study file mean together: names, expressions, values; every mistake found."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tunerd.core.context import INT64, Bucket, value_text
from tunerd.core.expressions import (
    RESERVED,
    Expression,
    ExpressionError,
    Kind,
    NameKind,
    names_in,
    parse,
    parse_expression,
    suggestion,
)
from tunerd.core.observation import Value
from tunerd.core.predictors import PREDICTORS
from tunerd.core.searchers import SEARCHERS
from tunerd.core.study.choices import choices_of
from tunerd.core.study.file import FeatureTable, StudyFile
from tunerd.core.study.messages import Path
from tunerd.core.study.parts import (
    Baseline,
    Constraint,
    ContextFeature,
    Derived,
    Guard,
    Objective,
    Parameter,
    PredictorOptions,
    SearchOptions,
)
from tunerd.core.study.read import Reading

__all__ = ["compile_study"]

MAX_DIMENSIONS = 4_096
UNKNOWN = NameKind(Kind("any"))


def compile_study(reading: Reading) -> dict[str, Any]:
    """Return the fields of a ``Study``; mistakes are added to ``reading``."""
    assert reading.table is not None
    return _Compiler(reading, reading.table).fields()


class _Compiler:
    def __init__(self, reading: Reading, table: StudyFile) -> None:
        self.reading, self.table = reading, table
        self.names: dict[str, NameKind] = {}
        """Everything that an expression may read; wrong definitions are ``UNKNOWN``."""
        self.owner: dict[str, str] = {}

    def mistake(self, path: Path, message: str) -> None:
        self.reading.mistake(path, message)

    def fields(self) -> dict[str, Any]:
        table = self.table
        for section in ("context", "parameters", "derived"):
            self.claim(section, getattr(table, section))
        context = self.context()
        lookups = self.lookups()
        parameters = self.parameters()
        self.engines()
        return {
            "name": table.name,
            "mode": table.mode,
            "explore_share": table.explore_share,
            "min_feasible": table.min_feasible,
            "objective": Objective(**table.objective.model_dump()),
            "guards": self.guards(),
            "context": context,
            "lookups": lookups,
            "parameters": parameters,
            "derived": self.derived(),
            "constraints": self.constraints(),
            "baselines": self.baselines({parameter.name: parameter for parameter in parameters}),
            "search": SearchOptions(
                **{**table.search.model_dump(), "seeds": tuple(table.search.seeds)}
            ),
            "predictor": PredictorOptions(**table.predictor.model_dump()),
        }

    # ── names ────────────────────────────────────────────────────────────────────────────────

    def claim(self, section: str, entries: Iterable[str]) -> None:
        """Take the names of a section; what was left out for a mistake is known, but not how."""
        left_out = sorted(
            str(path[1]) for path in self.reading.left_out if _entry_of(section, path)
        )
        for name in [*entries, *left_out]:
            if name in self.owner:
                message = f"{name!r} is the name of an entry in [{self.owner[name]}] too"
                self.mistake((section, name), message)
            elif name in RESERVED:
                self.mistake((section, name), f"{name!r} is a word of expressions")
            elif not self.speakable((section, name)):
                continue
            self.owner.setdefault(name, section)
            self.names.setdefault(name, UNKNOWN)

    def speakable(self, path: Path) -> bool:
        """Whether a name can stand in an expression."""
        name = str(path[-1])
        good = name.isidentifier() and name.isascii() and len(name) <= 64
        if not good:
            message = "a name has ASCII letters, digits and underscores, at most 64, no digit first"
            self.mistake(path, message)
        return good

    def owns(self, section: str, name: str) -> bool:
        return self.owner.get(name) == section

    # ── context ──────────────────────────────────────────────────────────────────────────────

    def context(self) -> tuple[ContextFeature, ...]:
        found = []
        for name, table in self.table.context.items():
            if self.owns("context", name):
                attributes = self.lookup_kinds(name)
                kind = "text" if table.type == "category" else table.type
                self.names[name] = NameKind(Kind(kind), attributes)
            found.append(ContextFeature(name, table.type, table.scale, self.key(name, table)))
        return tuple(found)

    def key(self, name: str, table: FeatureTable) -> Any:
        if table.type in ("category", "bool"):
            if table.scale == "log":
                self.mistake(("context", name, "scale"), f"a {table.type} has no scale")
            if not isinstance(table.key, str):
                self.mistake(("context", name, "key"), f"a {table.type} has no buckets")
        return table.key if isinstance(table.key, str) else Bucket(table.key.bucket)

    def lookup_kinds(self, feature: str) -> dict[str, Kind]:
        types: dict[str, set[type]] = {}
        for numbers in self.table.lookup.get(feature, {}).values():
            for attribute, number in numbers.items():
                types.setdefault(attribute, set()).add(type(number))
        return {
            attribute: Kind("int" if seen == {int} else "float")
            for attribute, seen in types.items()
        }

    def lookups(self) -> dict[str, dict[str, dict[str, float]]]:
        for feature, values in self.table.lookup.items():
            self.lookup_owner(feature)
            named = {name for numbers in values.values() for name in numbers}
            for attribute in sorted(named):
                if not attribute.isidentifier() or not attribute.isascii():
                    message = f"the name {attribute!r} cannot stand in an expression"
                    self.mistake(("lookup", feature), message)
            for value, numbers in values.items():
                for attribute, number in numbers.items():
                    if isinstance(number, int) and number not in INT64:
                        self.mistake(("lookup", feature, value, attribute), "does not fit 64 bits")
        return {
            feature: {value: dict(numbers) for value, numbers in values.items()}
            for feature, values in self.table.lookup.items()
        }

    def lookup_owner(self, feature: str) -> None:
        owner = self.owner.get(feature)
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
        found = []
        for name, table in self.table.parameters.items():
            wrong = len(self.reading.problems)
            wanted = [b.config[name] for b in self.table.baseline if name in b.config]
            choices = choices_of(table, wanted, self.reading, ("parameters", name))
            if len(self.reading.problems) > wrong or not choices:
                continue
            repeat = table.repeat or 1
            found.append(Parameter(name, table.type, table.scale, choices, repeat))
            if self.owns("parameters", name):
                texts = tuple(map(str, choices)) if table.type == "category" else None
                kind = "text" if table.type == "category" else table.type
                self.names[name] = NameKind(Kind(kind, table.repeat or 0, texts))
        dimensions = sum(parameter.repeat for parameter in found)
        if dimensions > MAX_DIMENSIONS:
            message = f"{dimensions:,} values in one configuration, at most {MAX_DIMENSIONS:,}"
            self.mistake(("parameters",), message)
        return tuple(found)

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
        self.known("searcher", ("search", "searcher"), self.table.search.searcher, SEARCHERS)
        self.known("predictor", ("predictor", "name"), self.table.predictor.name, PREDICTORS)
        if len(set(self.table.search.seeds)) < len(self.table.search.seeds):
            self.mistake(("search", "seeds"), "the same seed twice searches the same again")

    def known(self, what: str, path: Path, name: str, registered: Collection[str]) -> None:
        if name not in registered:
            hint = suggestion(name, registered) or f"; there are {', '.join(registered)}"
            self.mistake(path, f"there is no {what} {name!r}{hint}")

    # ── expressions ──────────────────────────────────────────────────────────────────────────

    def parsed(self, path: Path, text: str, names: Mapping[str, NameKind]) -> Expression | None:
        try:
            return parse_expression(text, names)
        except ExpressionError as error:
            self.mistake(path, str(error))
            return None

    def derived(self) -> tuple[Derived, ...]:
        found = []
        for name in self.in_order():
            expression = self.parsed(("derived", name), self.table.derived[name], self.names)
            if expression is None:
                continue
            if expression.kind.repeat:
                message = f"these are {expression.kind}: a derived value is one; use sum, count …"
                self.mistake(("derived", name), message)
                continue
            if self.owns("derived", name):
                self.names[name] = NameKind(expression.kind)
            found.append(Derived(name, expression))
        return tuple(found)

    def in_order(self) -> list[str]:
        """Names of derived values, each after those that it needs; cycles are mistakes."""
        texts = self.table.derived
        needs = {name: _reads(text) & texts.keys() for name, text in texts.items()}
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
        found = []
        for name, text in self.table.constraints.items():
            path = ("constraints", name)
            self.speakable(path)
            expression = self.parsed(path, text, self.names)
            if expression is not None and self.is_truth(path, expression):
                found.append(Constraint(name, expression))
        return tuple(found)

    def is_truth(self, path: Path, expression: Expression) -> bool:
        kind = expression.kind
        if not kind.truth:
            self.mistake(path, f"must be true or false, this is {kind}; compare it with something")
        elif kind.repeat:
            self.mistake(path, f"these are {kind}, one for each position; use all(...) or any(...)")
        return kind.truth and not kind.repeat

    # ── baselines ────────────────────────────────────────────────────────────────────────────

    def baselines(self, parameters: Mapping[str, Parameter]) -> tuple[Baseline, ...]:
        found, unconditional = [], False
        for place, table in enumerate(self.table.baseline):
            if ("baseline", place) in self.reading.left_out:
                continue
            if unconditional:
                message = "is never used: the baseline before it has no condition"
                self.mistake(("baseline", place), message)
            unconditional = unconditional or table.when is None
            when = self.condition(("baseline", place, "when"), table.when)
            config = self.config(("baseline", place, "config"), table.config, parameters)
            found.append(Baseline(when, config))
        return tuple(found)

    def condition(self, path: Path, text: str | None) -> Expression | None:
        if text is None:
            return None
        tunable = sorted(n for n in _reads(text) if self.owner.get(n) in ("parameters", "derived"))
        if tunable:
            message = f"a baseline is chosen by the context; {tunable[0]!r} is not part of it"
            self.mistake(path, message)
            return None
        context = {name: self.names[name] for name in self.names if self.owns("context", name)}
        expression = self.parsed(path, text, context)
        if expression is not None and self.is_truth(path, expression):
            return expression
        return None

    def config(
        self, path: Path, values: Mapping[str, Any], parameters: Mapping[str, Parameter]
    ) -> dict[str, Value]:
        if not values:
            self.mistake(path, "is empty")
        found: dict[str, Value] = {}
        for name, value in values.items():
            if name in parameters:
                clean = self.baseline_value((*path, name), parameters[name], value)
                if clean is not None:
                    found[name] = clean
            elif self.owner.get(name) == "derived":
                self.mistake((*path, name), "is derived from the others: leave it out")
            elif self.owner.get(name) == "context":
                self.mistake((*path, name), "is part of the context: put it into `when`")
            elif not self.owns("parameters", name):
                hint = suggestion(name, self.table.parameters)
                self.mistake((*path, name), f"there is no parameter {name!r}{hint}")
        return found

    def baseline_value(self, path: Path, parameter: Parameter, value: Any) -> Value:
        if isinstance(value, list) != parameter.repeated and isinstance(value, list):
            self.mistake(path, "should be a single value, not a list")
            return None
        if isinstance(value, list) and len(value) != parameter.repeat:
            self.mistake(path, f"has {len(value)} values; {parameter.repeat} are needed")
            return None
        for one in value if isinstance(value, list) else [value]:
            if parameter.index(one) is None:
                self.mistake(path, f"{_shown(one)} is outside the space: {_range(parameter)}")
                return None
        return parameter.clean(value)


def _entry_of(section: str, path: Path) -> bool:
    return len(path) == 2 and path[0] == section


def _reads(text: str) -> frozenset[str]:
    try:
        return names_in(parse(text))
    except ExpressionError:  # reported where the expression is parsed for good
        return frozenset()


def _cycle(needs: Mapping[str, Collection[str]], circular: list[str]) -> list[str]:
    """Walk along what is needed, among names that all wait for another, until one comes again."""
    walk = [circular[0]]
    while True:
        following = next(name for name in circular if name in needs[walk[-1]])
        if following in walk:
            return walk[walk.index(following) :]
        walk.append(following)


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else value_text(value)


def _range(parameter: Parameter) -> str:
    texts = [_shown(choice) for choice in parameter.choices]
    if len(texts) > 12:
        return f"its {len(texts):,} values go from {texts[0]} to {texts[-1]}"
    return f"its values are {', '.join(texts)}"
