"""A study's constraints in one context, as rules over columns of choice indices."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import Array, BoolArray, Codes, FloatArray, IntArray
from tunerd.core.expressions import Expression, ValueColumn, constant, uses_in
from tunerd.core.expressions.columns import somewhere
from tunerd.core.observation import Scalar
from tunerd.core.study import DerivedValue, Parameter, Study
from tunerd.core.study.continuous_range import BETWEEN

__all__ = ["CodeLayout", "ConstraintRule", "rules_of"]


class CodeLayout:
    """Where the parameters lie in a configuration's codes, and what the codes stand for.

    A parameter that may be ``missing`` has one code more than choices, for just that.
    """

    def __init__(
        self, study: Study, context: Mapping[str, Scalar], missing: Collection[str] = ()
    ) -> None:
        self.study = study
        self.missing = missing
        self.parameters = {parameter.name: parameter for parameter in study.parameters}
        self.places: dict[str, IntArray] = {}
        """Parameter → its dimensions."""
        at = 0
        for parameter in study.parameters:
            self.places[parameter.name] = np.arange(at, at + parameter.repeat)
            at += parameter.repeat
        self.width = at
        self.constants = {
            feature.name: constant(context.get(feature.name), study.lookups.get(feature.name))
            for feature in study.context
        }
        self._choices: dict[str, Array] = {
            parameter.name: np.array(
                [*parameter.choices, *parameter.choices[: parameter.name in missing]]
            )
            for parameter in study.parameters
            if parameter.type != "category"
        }
        self._texts = {
            parameter.name: tuple(map(str, parameter.choices))
            for parameter in study.parameters
            if parameter.type == "category"
        }

    def column(self, parameter: Parameter, codes: Codes) -> ValueColumn:
        """Return a parameter's column from its own codes, (n, repeat)."""
        codes = codes if parameter.repeated else codes[:, 0]
        undefined = None
        if parameter.name in self.missing:
            undefined = somewhere(codes == len(parameter.choices))
        if parameter.type == "category":
            texts = self._texts[parameter.name]
            return ValueColumn(codes if undefined is None else codes % len(texts), undefined, texts)
        return ValueColumn(self._numbers(parameter, codes), undefined)

    def _numbers(self, parameter: Parameter, codes: Codes) -> Array:
        choices = self._choices[parameter.name]
        between = codes >= BETWEEN if parameter.continuous else None
        if between is None or not between.any():
            return choices[codes]
        numbers: Array = choices[np.where(between, 0, codes)]
        numbers[between] = [parameter.value(code) for code in codes[between].tolist()]
        return numbers


@dataclass(frozen=True)
class ConstraintRule:
    """One thing that must be true; a constraint is one or, joined by ``and``, several."""

    constraint: str
    expression: Expression
    layout: CodeLayout
    parameters: tuple[str, ...]
    derived: tuple[DerivedValue, ...]
    """Derived values that it needs, in order."""
    dimensions: IntArray
    """Dimensions that it ties together, ascending."""

    def satisfied(self, codes: Codes, where: IntArray | None = None) -> BoolArray:
        """Return which of (n, k) configurations keep the rule.

        ``where`` has the column of each dimension, when ``codes`` hold only the rule's own.
        """
        truth = self.expression.evaluate(self._columns(codes, where)).satisfied()
        return np.broadcast_to(truth, (len(codes),))

    def distance(self, codes: Codes) -> FloatArray:
        """Return how far each of (n, D) configurations is from keeping the rule."""
        return np.broadcast_to(self.expression.distance(self._columns(codes, None)), (len(codes),))

    def _columns(self, codes: Codes, where: IntArray | None) -> dict[str, ValueColumn]:
        columns = dict(self.layout.constants)
        for name in self.parameters:
            places = self.layout.places[name]
            parameter = self.layout.parameters[name]
            if where is None:
                part = codes[:, places[0] : places[0] + len(places)]
            else:
                # A position that the rule does not read may have no column: any value will do.
                part = np.minimum(codes[:, where[places]], len(parameter.choices) - 1)
            columns[name] = self.layout.column(parameter, part)
        for derived in self.derived:
            columns[derived.name] = derived.expression.evaluate(columns)
        return columns


def rules_of(layout: CodeLayout) -> tuple[ConstraintRule, ...]:
    """Return the rules of a study's constraints."""
    return tuple(
        _rule(layout, constraint.name, part)
        for constraint in layout.study.constraints
        for part in constraint.expression.conjuncts()
    )


def _rule(layout: CodeLayout, name: str, expression: Expression) -> ConstraintRule:
    reads = reads_of(layout.study.derived, expression)
    parameters = tuple(name for name in layout.places if name in reads)
    derived = tuple(derived for derived in layout.study.derived if derived.name in reads)
    tied: set[int] = set()
    for part in (expression, *(value.expression for value in derived)):
        for used, position in uses_in(part.node):
            if used in layout.places:
                places = layout.places[used]
                tied.update(places.tolist() if position is None else [int(places[position])])
    return ConstraintRule(
        name, expression, layout, parameters, derived, np.array(sorted(tied), np.int64)
    )


def reads_of(derived: Sequence[DerivedValue], expression: Expression) -> set[str]:
    """Return every name that an expression reads, those behind derived values included."""
    reads = set(expression.names)
    for value in reversed(derived):  # each needs only earlier ones
        if value.name in reads:
            reads |= value.expression.names
    return reads
