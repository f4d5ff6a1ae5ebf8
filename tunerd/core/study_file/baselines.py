"""Baselines of a study: conditions on the context, and values that are in the space."""

from collections.abc import Mapping
from typing import Any

from tunerd.core.expressions import Expression, suggestion
from tunerd.core.observation import Value
from tunerd.core.study.parts import Baseline, Parameter
from tunerd.core.study_file.keys import StudyFile
from tunerd.core.study_file.messages import Path, shown
from tunerd.core.study_file.scope import NameScope, reads

__all__ = ["baselines_of", "values_of"]


def baselines_of(
    table: StudyFile, scope: NameScope, parameters: Mapping[str, Parameter]
) -> tuple[Baseline, ...]:
    """Return the baselines of a file, in its order; mistakes are noted in ``scope``."""
    return _BaselineReader(scope, parameters).found(table)


class _BaselineReader:
    def __init__(self, scope: NameScope, parameters: Mapping[str, Parameter]) -> None:
        self.scope, self.parameters = scope, parameters
        self.mistake = scope.mistake

    def found(self, file: StudyFile) -> tuple[Baseline, ...]:
        baselines, unconditional = [], False
        for place, table in enumerate(file.baseline):
            if ("baseline", place) in self.scope.reading.left_out:
                continue
            if unconditional:
                message = "is never used: the baseline before it has no condition"
                self.mistake(("baseline", place), message)
            unconditional = unconditional or table.when is None
            when = self.condition(("baseline", place, "when"), table.when)
            config = self.config(("baseline", place, "config"), table.config)
            baselines.append(Baseline(when, config))
        return tuple(baselines)

    def condition(self, path: Path, text: str | None) -> Expression | None:
        if text is None:
            return None
        tunable = sorted(
            n for n in reads(text) if self.scope.owner.get(n) in ("parameters", "derived")
        )
        if tunable:
            message = f"a baseline is chosen by the context; {tunable[0]!r} is not part of it"
            self.mistake(path, message)
            return None
        names = self.scope.names.items()
        context = {name: kind for name, kind in names if self.scope.owns("context", name)}
        expression = self.scope.parsed(path, text, context)
        return expression if expression and self.scope.is_truth(path, expression) else None

    def config(self, path: Path, values: Mapping[str, Any]) -> dict[str, Value]:
        if not values:
            self.mistake(path, "is empty")
        completed: dict[str, Value] = {}
        for name, value in values.items():
            if name in self.parameters:
                clean = self.value((*path, name), self.parameters[name], value)
                if clean is not None:
                    completed[name] = clean
            elif self.scope.owner.get(name) == "derived":
                self.mistake((*path, name), "is derived from the others: leave it out")
            elif self.scope.owner.get(name) == "context":
                self.mistake((*path, name), "is part of the context: put it into `when`")
            elif not self.scope.owns("parameters", name):
                hint = suggestion(name, self.parameters)
                self.mistake((*path, name), f"there is no parameter {name!r}{hint}")
        return completed

    def value(self, path: Path, parameter: Parameter, value: Any) -> Value:
        if isinstance(value, list) and not parameter.repeated:
            self.mistake(path, "should be a single value, not a list")
            return None
        if isinstance(value, list) and len(value) != parameter.repeat:
            self.mistake(path, f"has {len(value)} values; {parameter.repeat} are needed")
            return None
        for entry in value if isinstance(value, list) else [value]:
            if parameter.index(entry) is None:
                self.mistake(path, f"{shown(entry)} is outside the space: {values_of(parameter)}")
                return None
        return parameter.clean(value)


def values_of(parameter: Parameter) -> str:
    """Say which values a parameter has."""
    texts = [shown(choice) for choice in parameter.choices]
    if len(texts) > 12:
        return f"its {len(texts):,} values go from {texts[0]} to {texts[-1]}"
    return f"its values are {', '.join(texts)}"
