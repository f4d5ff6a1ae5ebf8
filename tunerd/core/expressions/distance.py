"""How far a truth value is from being true: what guides a search for feasible configurations.

0 where it is true, otherwise more the further away: for a comparison the gap between its sides,
relative to their size; ``and`` adds, ``or`` takes the nearest. Undefined is further than anything
that is defined.
"""

from collections.abc import Callable, Mapping
from functools import reduce

import numpy as np

from tunerd.core.arrays import Array, FloatArray
from tunerd.core.expressions.columns import ValueColumn, aligned, numeric
from tunerd.core.expressions.evaluation import compare, evaluate
from tunerd.core.expressions.tree import (
    CallNode,
    CompareNode,
    ConditionalNode,
    LogicalNode,
    Node,
    NotNode,
)

__all__ = ["distance"]

UNDEFINED = 4.0
FALSE = 1.0
BARELY = 1e-3
"""Distance of ``a < b`` where they are equal."""

_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def distance(node: Node, columns: Mapping[str, ValueColumn]) -> FloatArray:
    """Return how far each configuration is from satisfying a truth value, (n,) or ()."""
    with np.errstate(all="ignore"):
        return _distance(node, columns, wanted=True)


def _distance(node: Node, columns: Mapping[str, ValueColumn], *, wanted: bool) -> FloatArray:
    match node:
        case NotNode():
            return _distance(node.operand, columns, wanted=not wanted)
        case LogicalNode():
            parts = [_distance(part, columns, wanted=wanted) for part in node.operands]
            return _joined(parts, every=(node.operator == "and") == wanted)
        case CompareNode():
            sides = [evaluate(part, columns) for part in node.operands]
            pairs = zip(sides, sides[1:], node.operators, strict=False)
            gaps = [
                _gap(name if wanted else _OPPOSITE[name], left, right)
                for left, right, name in pairs
            ]
            return _joined(gaps, every=wanted)
        case CallNode(function="any" | "all"):
            inner = _distance(node.arguments[0], columns, wanted=wanted)
            every = (node.function == "all") == wanted
            return np.asarray(inner.sum(axis=-1) if every else inner.min(axis=-1))
        case ConditionalNode():
            return _chosen(node, columns, wanted=wanted)
    return _plain(evaluate(node, columns), wanted=wanted)


def _joined(parts: list[FloatArray], *, every: bool) -> FloatArray:
    combine: Callable[[Array, Array], Array] = np.add if every else np.minimum
    if max(part.ndim for part in parts) == 2:
        parts = [part[:, None] if part.ndim == 1 else part for part in parts]
    return reduce(combine, parts)


def _gap(name: str, left: ValueColumn, right: ValueColumn) -> FloatArray:
    if left.texts is not None or name == "!=" or left.values.dtype == bool:
        return _plain(compare(name, left, right), wanted=True)
    truth = compare(name, left, right)
    left, right = aligned(left, right)
    x, y = numeric(left).astype(np.float64), numeric(right).astype(np.float64)
    gap = np.abs(x - y) / (1 + np.abs(x) + np.abs(y))
    gap = np.where(truth.values, 0.0, BARELY + gap)
    return gap if truth.undefined is None else np.where(truth.undefined, UNDEFINED, gap)


def _plain(truth: ValueColumn, *, wanted: bool) -> FloatArray:
    far = np.where(truth.values == wanted, 0.0, FALSE)
    return far if truth.undefined is None else np.where(truth.undefined, UNDEFINED, far)


def _chosen(
    node: ConditionalNode, columns: Mapping[str, ValueColumn], *, wanted: bool
) -> FloatArray:
    condition = evaluate(node.condition, columns)
    sides = [_distance(part, columns, wanted=wanted) for part in (node.then, node.otherwise)]
    width = max(part.ndim for part in (condition.values, *sides))
    values, undefined = condition.values, condition.undefined
    if width == 2:
        sides = [part[:, None] if part.ndim == 1 else part for part in sides]
        values = values[:, None] if values.ndim == 1 else values
        if undefined is not None and undefined.ndim == 1:
            undefined = undefined[:, None]
    far = np.where(values, *sides)
    return far if undefined is None else np.where(undefined, UNDEFINED, far)
