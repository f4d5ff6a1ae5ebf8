"""Saying why nothing is feasible: which constraints, in which context, and what is missing.

A constraint is named alone when it cannot be satisfied by itself, otherwise together with the
fewest others that it clashes with.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import numpy as np

from tunerd.core.arrays import IntArray
from tunerd.core.observation import Scalar
from tunerd.core.space.constrained_sampling import ConstrainedSampler
from tunerd.core.space.feasible_tables import FeasibleTable, join
from tunerd.core.space.rules import ConstraintRule, reads_of
from tunerd.core.study import Study
from tunerd.core.study.context_key import value_text
from tunerd.errors import NothingFeasibleError

__all__ = ["explain_empty", "explain_not_found", "explain_outright"]

ATTEMPTS = 40
"""Constraints that are tried without, to name as few as possible."""


def explain_outright(
    study: Study, context: Mapping[str, Scalar], rules: Sequence[ConstraintRule]
) -> None:
    """Raise for a constraint on the context alone that does not hold."""
    nothing = np.zeros((1, 0), np.int32)
    for rule in rules:
        if not len(rule.dimensions) and not rule.satisfied(nothing)[0]:
            _raise(study, context, [rule.constraint], "cannot be satisfied")


def explain_empty(
    study: Study,
    context: Mapping[str, Scalar],
    sizes: IntArray,
    rules: Sequence[ConstraintRule],
    cell: FeasibleTable,
) -> NoReturn:
    """Raise for a cell without rows."""

    def clash(names: Sequence[str]) -> bool:
        return join(sizes, [r for r in rules if r.constraint in names]).empty is not None

    _raise(study, context, _fewest(cell.constraints, clash), "cannot be satisfied")


def explain_not_found(
    study: Study, context: Mapping[str, Scalar], wide: ConstrainedSampler
) -> NoReturn:
    """Raise for wide rules under which no feasible configuration was found."""
    names = tuple(dict.fromkeys(rule.constraint for rule in wide.rules))
    width = max(int(cell.dimensions.max()) for cell in wide.cells) + 1
    width = max([width, *(rule.layout.width for rule in wide.rules)])

    def clash(some: Sequence[str]) -> bool:
        part = ConstrainedSampler(
            wide.cells, [rule for rule in wide.rules if rule.constraint in some]
        )
        codes = np.zeros((8, width), np.int32)
        return not part.sample(codes, np.random.default_rng(0)).all()

    listed = [name for cell in wide.cells for name in cell.constraints]
    fewest = _fewest(names, clash)
    _raise(study, context, [*fewest, *dict.fromkeys(listed)], "is not satisfied by anything found")


def _fewest(names: Sequence[str], clash: Callable[[Sequence[str]], bool]) -> list[str]:
    """Leave out every name without which the others still clash."""
    fewest = list(names)
    for name in names[:ATTEMPTS]:
        others = [other for other in fewest if other != name]
        if others and clash(others):
            fewest = others
    return fewest


def _raise(
    study: Study, context: Mapping[str, Scalar], names: Sequence[str], what: str
) -> NoReturn:
    texts = {c.name: c.expression.text for c in study.constraints}
    first, *others = (f"{name!r} ({texts[name]})" for name in names)
    together = f" together with {' and '.join(others)}" if others else ""
    shown = ", ".join(
        f"{name}={'missing' if value is None else value_text(value)}"
        for name, value in context.items()
    )
    lacking = "".join(f"; {text}" for text in _lacking(study, context, names))
    raise NothingFeasibleError(
        f"constraint {first} {what}{together} in the context {shown or '(empty)'}{lacking}"
    )


def _lacking(study: Study, context: Mapping[str, Scalar], names: Sequence[str]) -> list[str]:
    """Say which values that the constraints need are not there."""
    lacking = {}
    for constraint in study.constraints:
        if constraint.name not in names:
            continue
        reads = reads_of(study.derived, constraint.expression)
        for name, value in context.items():
            if name not in reads:
                continue
            if value is None:
                lacking[name] = f"{name!r} is missing there, which {constraint.name!r} needs"
            elif name in study.lookups and value not in study.lookups[name]:
                lacking[name] = f"[lookup.{name}] says nothing about {value!r}"
    return list(lacking.values())
