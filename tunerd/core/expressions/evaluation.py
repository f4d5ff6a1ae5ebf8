"""Evaluating a syntax tree on whole arrays, with undefined as a third truth value.

Integers are 64-bit and never wrap: what would overflow is undefined, and so are division by zero,
``log2`` of what is not positive, results that are not finite, and missing values. ``and``, ``or``,
``any`` and ``all`` follow Kleene: ``false and undefined`` is false. Everything else that touches
an undefined value is undefined.
"""

import operator
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tunerd.core.arrays import Array
from tunerd.core.expressions.arithmetic import ARITHMETIC, extreme, mapped, reduced, signed
from tunerd.core.expressions.columns import (
    ValueColumn,
    aligned,
    constant,
    either,
    somewhere,
)
from tunerd.core.expressions.tree import (
    AttributeNode,
    BinaryNode,
    CallNode,
    CompareNode,
    ConditionalNode,
    IndexNode,
    LiteralNode,
    LogicalNode,
    MembershipNode,
    NameNode,
    Node,
    NotNode,
    UnaryNode,
)

__all__ = ["compare", "evaluate"]


def evaluate(node: Node, columns: Mapping[str, ValueColumn]) -> ValueColumn:
    """Evaluate a tree that :func:`~tunerd.core.expressions.type_check.check` has accepted."""
    with np.errstate(all="ignore"):
        return _evaluate(node, columns)


def _evaluate(node: Node, columns: Mapping[str, ValueColumn]) -> ValueColumn:
    match node:
        case LiteralNode():
            return constant(node.value)
        case NameNode():
            return columns[node.name]
        case AttributeNode():
            return (columns[node.name].attributes or {})[node.attribute]
        case IndexNode():
            return _index(columns[node.name.name], _evaluate(node.index, columns))
        case UnaryNode():
            return signed(node.operator, _evaluate(node.operand, columns))
        case NotNode():
            inner = _evaluate(node.operand, columns)
            return ValueColumn(~inner.values, inner.undefined)
        case BinaryNode():
            left, right = _evaluate(node.left, columns), _evaluate(node.right, columns)
            return ARITHMETIC[node.operator](*aligned(left, right))
        case _:
            return _compound(node, columns)


def _compound(node: Node, columns: Mapping[str, ValueColumn]) -> ValueColumn:
    match node:
        case CompareNode():
            parts = [_evaluate(operand, columns) for operand in node.operands]
            pairs = zip(parts, parts[1:], node.operators, strict=False)
            return _fold(False, [compare(name, left, right) for left, right, name in pairs])
        case LogicalNode():
            parts = [_evaluate(operand, columns) for operand in node.operands]
            return _fold(node.operator == "or", parts)
        case MembershipNode():
            return _membership(_evaluate(node.item, columns), node)
        case ConditionalNode():
            condition = _evaluate(node.condition, columns)
            then, otherwise = _evaluate(node.then, columns), _evaluate(node.otherwise, columns)
            return _choose(condition, then, otherwise)
        case CallNode():
            return call(node.function, [_evaluate(part, columns) for part in node.arguments])
    raise AssertionError(node)


def _index(column: ValueColumn, index: ValueColumn) -> ValueColumn:
    """``sharding[i]``; negative positions count from the end, positions outside are undefined."""
    width = column.values.shape[-1]
    places = np.broadcast_to(index.values, column.values.shape[:-1])
    outside = somewhere((places < -width) | (places >= width))
    places = np.where(outside, 0, places) if outside is not None else places
    values = np.take_along_axis(column.values, places[..., None] % width, axis=-1)[..., 0]
    undefined = column.undefined
    if undefined is not None:
        undefined = np.broadcast_to(undefined, column.values.shape)
        undefined = np.take_along_axis(undefined, places[..., None] % width, axis=-1)[..., 0]
    return column.take(values, either(undefined, index.undefined, outside))


# ── truth ────────────────────────────────────────────────────────────────────────────────────

_COMPARISON: dict[str, Callable[[Array, Array], Array]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compare(name: str, left: ValueColumn, right: ValueColumn) -> ValueColumn:
    """Compare two columns; texts by what they say."""
    left, right = aligned(left, right)
    undefined = either(left.undefined, right.undefined)
    if left.texts is None or right.texts is None:
        return ValueColumn(_COMPARISON[name](left.values, right.values), undefined)
    return ValueColumn(_COMPARISON[name](left.values, translated(right, left.texts)), undefined)


def translated(column: ValueColumn, texts: Sequence[str]) -> Array:
    """Return a text column's values as indices into other texts; -1 where there is none."""
    if column.texts == texts:
        return column.values
    places = {text: place for place, text in enumerate(texts)}
    table = np.array([places.get(text, -1) for text in column.texts or ()] or [-1])
    return table[column.values]


def _fold(decides: bool, parts: Sequence[ValueColumn]) -> ValueColumn:
    """``or`` (one true decides) or ``and`` (one false decides) over the parts."""
    parts = aligned(*parts)
    if all(part.undefined is None for part in parts):
        combine = np.logical_or if decides else np.logical_and
        values = parts[0].values
        for part in parts[1:]:
            values = combine(values, part.values)
        return ValueColumn(values)
    decided: Array = np.zeros((), bool)
    undefined: Array = np.zeros((), bool)
    for part in parts:
        unknown = np.zeros((), bool) if part.undefined is None else part.undefined
        decided = decided | ((part.values == decides) & ~unknown)
        undefined = undefined | unknown
    return ValueColumn(decided if decides else ~decided, somewhere(undefined & ~decided))


def _membership(item: ValueColumn, node: MembershipNode) -> ValueColumn:
    wanted = [value.value for value in node.values]
    if item.texts is not None:
        inside = np.array([text in wanted for text in item.texts] or [False])[item.values]
    else:
        inside = np.zeros(item.values.shape, bool)
        for value in wanted:
            inside = inside | (item.values == value)
    return ValueColumn(~inside if node.negated else inside, item.undefined)


def _choose(condition: ValueColumn, then: ValueColumn, otherwise: ValueColumn) -> ValueColumn:
    texts = None
    if then.texts is not None and otherwise.texts is not None:
        texts = tuple(dict.fromkeys((*then.texts, *otherwise.texts)))
        then = ValueColumn(translated(then, texts), then.undefined, texts)
        otherwise = ValueColumn(translated(otherwise, texts), otherwise.undefined, texts)
    condition, then, otherwise = aligned(condition, then, otherwise)
    values = np.where(condition.values, then.values, otherwise.values)
    if condition.undefined is None and then.undefined is None and otherwise.undefined is None:
        return ValueColumn(values, None, texts)
    nowhere = np.zeros((), bool)
    parts = (nowhere if part.undefined is None else part.undefined for part in (then, otherwise))
    undefined = either(condition.undefined, np.where(condition.values, *parts))
    return ValueColumn(values, undefined, texts)


# ── functions ────────────────────────────────────────────────────────────────────────────────


def call(function: str, arguments: Sequence[ValueColumn]) -> ValueColumn:
    """Apply one of the language's functions."""
    if len(arguments) > 1:
        return extreme(function, aligned(*arguments))
    column = arguments[0]
    if function in ("any", "all"):
        return _quantified(function == "any", column)
    if function in ("count", "sum", "min", "max"):
        return reduced(function, column)
    return mapped(function, column)


def _quantified(decides: bool, column: ValueColumn) -> ValueColumn:
    """``any`` (one true decides) or ``all`` (one false decides) over the positions."""
    if column.undefined is None:
        reduce = np.any if decides else np.all
        return ValueColumn(np.asarray(reduce(column.values, axis=-1)))
    undefined = np.broadcast_to(column.undefined, column.values.shape)
    decided = ((column.values == decides) & ~undefined).any(axis=-1)
    return ValueColumn(
        decided if decides else ~decided, somewhere(undefined.any(axis=-1) & ~decided)
    )
