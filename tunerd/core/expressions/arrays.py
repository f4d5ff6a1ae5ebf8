"""Evaluating a syntax tree on whole arrays, with undefined as a third truth value.

Integers are 64-bit and never wrap: what would overflow is undefined, and so are division by zero,
``log2`` of what is not positive, results that are not finite, and missing values. ``and``, ``or``,
``any`` and ``all`` follow Kleene: ``false and undefined`` is false. Everything else that touches
an undefined value is undefined.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import Array, BoolArray, FloatArray
from tunerd.core.expressions.tree import (
    Attribute,
    Binary,
    Call,
    Compare,
    Conditional,
    Index,
    Literal,
    Logic,
    Membership,
    Name,
    Node,
    Not,
    Unary,
)

__all__ = ["Column", "Lookup", "constant", "evaluate", "looked_up"]

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
_FLOAT_LIMIT = 2.0**63


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """The values of a name or an expression in n configurations."""

    values: Array
    """() for a constant, (n,) for plain values, (n, repeat) for a repeat parameter; bool, int64
    or float64. Where undefined, anything."""
    undefined: BoolArray | None = None
    """Broadcasts to the shape of ``values``; ``None`` when everything is defined."""
    texts: tuple[str, ...] | None = None
    """For texts: ``values`` are indices into this."""
    attributes: Mapping[str, "Column"] | None = None
    """For categories with a lookup: its numbers, by name."""

    def satisfied(self) -> BoolArray:
        """Where a truth value is true and defined."""
        truth = self.values.astype(bool, copy=False)
        return truth if self.undefined is None else truth & ~self.undefined

    def plain(self, n: int) -> Array:
        """Return n rows as a plain array: text as text, NaN or ``None`` where undefined."""
        values = self.values
        if self.texts is not None:
            values = np.array(self.texts)[values]
        if self.undefined is not None:
            # An undefined number or truth value makes the column one of floats.
            text = self.texts is not None
            nothing = np.array(None if text else np.nan, dtype=object if text else np.float64)
            values = np.where(self.undefined, nothing, values)
        return np.broadcast_to(values, (n, *values.shape[1:]))

    def take(self, values: Array, undefined: BoolArray | None) -> "Column":
        """Return the same kind of column with other values."""
        return Column(values, undefined, self.texts, self.attributes)


def evaluate(node: Node, columns: Mapping[str, Column]) -> Column:
    """Evaluate a tree that :func:`~tunerd.core.expressions.kinds.check` has accepted."""
    with np.errstate(all="ignore"):
        return _evaluate(node, columns)


def _evaluate(node: Node, columns: Mapping[str, Column]) -> Column:
    match node:
        case Literal():
            return constant(node.value)
        case Name():
            return columns[node.name]
        case Attribute():
            return (columns[node.name].attributes or {})[node.attribute]
        case Index():
            return _index(columns[node.name.name], _evaluate(node.index, columns))
        case Unary():
            return _negative(node.operator, _evaluate(node.operand, columns))
        case Not():
            inner = _evaluate(node.operand, columns)
            return Column(~inner.values, inner.undefined)
        case Binary():
            left, right = _evaluate(node.left, columns), _evaluate(node.right, columns)
            return _ARITHMETIC[node.operator](*aligned(left, right))
        case _:
            return _compound(node, columns)


def _compound(node: Node, columns: Mapping[str, Column]) -> Column:
    match node:
        case Compare():
            parts = [_evaluate(operand, columns) for operand in node.operands]
            pairs = zip(parts, parts[1:], node.operators, strict=False)
            return _fold(False, [compare(name, left, right) for left, right, name in pairs])
        case Logic():
            parts = [_evaluate(operand, columns) for operand in node.operands]
            return _fold(node.operator == "or", parts)
        case Membership():
            return _membership(_evaluate(node.item, columns), node)
        case Conditional():
            condition = _evaluate(node.condition, columns)
            then, otherwise = _evaluate(node.then, columns), _evaluate(node.otherwise, columns)
            return _choose(condition, then, otherwise)
        case Call():
            return call(node.function, [_evaluate(part, columns) for part in node.arguments])
    raise AssertionError(node)


Lookup = Mapping[str, Mapping[str, float]]
"""Text → attribute → number."""


def constant(value: bool | int | float | str | None, lookup: Lookup | None = None) -> Column:
    """Return a value that is the same in every configuration; ``None`` is undefined."""
    if value is None:
        return looked_up(Column(np.zeros((), np.int64), np.ones((), bool), ("",)), lookup)
    if isinstance(value, str):
        return looked_up(Column(np.zeros((), np.int64), None, (value,)), lookup)
    kind = bool if isinstance(value, bool) else np.int64 if isinstance(value, int) else np.float64
    return Column(np.asarray(value, dtype=kind))


def looked_up(column: Column, lookup: Lookup | None) -> Column:
    """Give a text column the numbers of a lookup; undefined for texts that it does not have."""
    if not lookup:
        return column
    attributes = {}
    for name in dict.fromkeys(name for numbers in lookup.values() for name in numbers):
        known = [lookup.get(text, {}).get(name) for text in column.texts or ()]
        whole = all(isinstance(n.get(name, 0), int) for n in lookup.values())
        table = np.array([n or 0 for n in known], dtype=np.int64 if whole else np.float64)
        unknown = np.array([n is None for n in known])[column.values]
        attributes[name] = Column(table[column.values], _either(column.undefined, _where(unknown)))
    return Column(column.values, column.undefined, column.texts, attributes)


def aligned(*columns: Column) -> list[Column]:
    """Give plain values a second axis where another column has one, so that they broadcast."""
    if max(column.values.ndim for column in columns) < 2:
        return list(columns)
    return [_widened(column) if column.values.ndim == 1 else column for column in columns]


def _widened(column: Column) -> Column:
    undefined = column.undefined
    if undefined is not None and undefined.ndim:
        undefined = undefined[:, None]
    return column.take(column.values[:, None], undefined)


def _either(*masks: BoolArray | None) -> BoolArray | None:
    """Undefined where any part is."""
    found: BoolArray | None = None
    for mask in masks:
        if mask is not None:
            found = mask if found is None else found | mask
    return found


def _where(mask: BoolArray) -> BoolArray | None:
    return mask if mask.any() else None


def numeric(column: Column) -> Array:
    """Return the values as numbers: true counts as 1."""
    values = column.values
    return values.astype(np.int64) if values.dtype == bool else values


def _index(column: Column, index: Column) -> Column:
    """``sharding[i]``; negative positions count from the end, positions outside are undefined."""
    width = column.values.shape[-1]
    places = np.broadcast_to(index.values, column.values.shape[:-1])
    outside = _where((places < -width) | (places >= width))
    places = np.where(outside, 0, places) if outside is not None else places
    values = np.take_along_axis(column.values, places[..., None] % width, axis=-1)[..., 0]
    undefined = column.undefined
    if undefined is not None:
        undefined = np.broadcast_to(undefined, column.values.shape)
        undefined = np.take_along_axis(undefined, places[..., None] % width, axis=-1)[..., 0]
    return column.take(values, _either(undefined, index.undefined, outside))


def _negative(sign: str, column: Column) -> Column:
    values = numeric(column)
    if sign == "+":
        return Column(values, column.undefined)
    return Column(-values, _either(column.undefined, _smallest(values)))


def _smallest(values: Array) -> BoolArray | None:
    """Where an integer has no negative."""
    return _where(values == INT_MIN) if values.dtype == np.int64 else None


# ── arithmetic ───────────────────────────────────────────────────────────────────────────────


def _magnitude(values: Array) -> int:
    """The largest absolute value, as a Python integer, which never overflows."""
    return max(abs(int(values.max())), abs(int(values.min()))) if values.size else 0


def _operands(left: Column, right: Column) -> tuple[Array, Array, bool]:
    """Both sides as numbers of one type, and whether they are integers."""
    x, y = numeric(left), numeric(right)
    if x.dtype == y.dtype == np.int64:
        return x, y, True
    return x.astype(np.float64, copy=False), y.astype(np.float64, copy=False), False


def _finite(values: FloatArray, *undefined: BoolArray | None) -> Column:
    return Column(values, _either(*undefined, _where(~np.isfinite(values))))


def _add(left: Column, right: Column) -> Column:
    x, y, whole = _operands(left, right)
    result = x + y
    if not whole:
        return _finite(result, left.undefined, right.undefined)
    overflow = None
    if _magnitude(x) + _magnitude(y) > INT_MAX:  # rare: the exact look costs as much again
        overflow = _where(((x ^ result) & (y ^ result)) < 0)
    return Column(result, _either(left.undefined, right.undefined, overflow))


def _subtract(left: Column, right: Column) -> Column:
    x, y, whole = _operands(left, right)
    result = x - y
    if not whole:
        return _finite(result, left.undefined, right.undefined)
    overflow = None
    if _magnitude(x) + _magnitude(y) > INT_MAX:
        overflow = _where(((x ^ y) & (x ^ result)) < 0)
    return Column(result, _either(left.undefined, right.undefined, overflow))


def _multiply(left: Column, right: Column) -> Column:
    x, y, whole = _operands(left, right)
    result = x * y
    if not whole:
        return _finite(result, left.undefined, right.undefined)
    overflow = None
    if _magnitude(x) * _magnitude(y) > INT_MAX:
        overflow = _where(_product_overflows(x, y, result))
    return Column(result, _either(left.undefined, right.undefined, overflow))


def _product_overflows(x: Array, y: Array, wrapped: Array) -> BoolArray:
    """Where ``wrapped`` is not the product: it is far off then, so that floats can tell."""
    exact = x.astype(np.float64) * y.astype(np.float64)
    overflows: BoolArray = np.abs(exact - wrapped.astype(np.float64)) > 2.0**62
    return overflows


def _divide(left: Column, right: Column) -> Column:
    x, y = numeric(left).astype(np.float64), numeric(right).astype(np.float64)
    return _finite(x / y, left.undefined, right.undefined)


def _floor_divide(left: Column, right: Column) -> Column:
    return _by_zero_undefined(np.floor_divide, left, right)


def _modulo(left: Column, right: Column) -> Column:
    # numpy says x % 0 == 0 for integers: a constraint would hold where it means nothing.
    return _by_zero_undefined(np.remainder, left, right)


def _by_zero_undefined(
    function: Callable[[Array, Array], Array], left: Column, right: Column
) -> Column:
    x, y, whole = _operands(left, right)
    undefined = _either(left.undefined, right.undefined, _where(y == 0))
    result = function(x, y)
    if not whole:
        return _finite(result, undefined)
    if function is np.floor_divide and (lowest := _where((x == INT_MIN) & (y == -1))) is not None:
        undefined = _either(undefined, lowest)
    return Column(result, undefined)


def _power(left: Column, right: Column) -> Column:
    x, y, whole = _operands(left, right)
    undefined = _either(left.undefined, right.undefined)
    if not whole:
        return _finite(np.power(x, y), undefined)
    x, y = np.broadcast_arrays(x, y)
    negative = y < 0
    y = np.where(negative, 0, y)
    approximate = np.power(x.astype(np.float64), y.astype(np.float64))
    result = np.power(x, y)
    overflow = ~(np.abs(approximate) < 1.001 * _FLOAT_LIMIT)
    # So near the limit a wrapped power is 2**64 away from the float, which is easy to see.
    overflow |= np.abs(approximate - result) > _FLOAT_LIMIT / 2
    return Column(result, _either(undefined, _where(negative | overflow)))


_ARITHMETIC: dict[str, Callable[[Column, Column], Column]] = {
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "//": _floor_divide,
    "%": _modulo,
    "**": _power,
}


# ── truth ────────────────────────────────────────────────────────────────────────────────────

_COMPARISON: dict[str, Callable[[Array, Array], Array]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compare(name: str, left: Column, right: Column) -> Column:
    """Compare two columns; texts by what they say."""
    left, right = aligned(left, right)
    undefined = _either(left.undefined, right.undefined)
    if left.texts is None or right.texts is None:
        return Column(_COMPARISON[name](left.values, right.values), undefined)
    return Column(_COMPARISON[name](left.values, translated(right, left.texts)), undefined)


def translated(column: Column, texts: Sequence[str]) -> Array:
    """Return a text column's values as indices into other texts; -1 where there is none."""
    if column.texts == texts:
        return column.values
    places = {text: place for place, text in enumerate(texts)}
    table = np.array([places.get(text, -1) for text in column.texts or ()] or [-1])
    return table[column.values]


def _fold(decides: bool, parts: Sequence[Column]) -> Column:
    """``or`` (one true decides) or ``and`` (one false decides) over the parts."""
    parts = aligned(*parts)
    if all(part.undefined is None for part in parts):
        combine = np.logical_or if decides else np.logical_and
        values = parts[0].values
        for part in parts[1:]:
            values = combine(values, part.values)
        return Column(values)
    decided: Array = np.zeros((), bool)
    undefined: Array = np.zeros((), bool)
    for part in parts:
        unknown = np.zeros((), bool) if part.undefined is None else part.undefined
        decided = decided | ((part.values == decides) & ~unknown)
        undefined = undefined | unknown
    return Column(decided if decides else ~decided, _where(undefined & ~decided))


def _membership(item: Column, node: Membership) -> Column:
    wanted = [value.value for value in node.values]
    if item.texts is not None:
        inside = np.array([text in wanted for text in item.texts] or [False])[item.values]
    else:
        inside = np.zeros(item.values.shape, bool)
        for value in wanted:
            inside = inside | (item.values == value)
    return Column(~inside if node.negated else inside, item.undefined)


def _choose(condition: Column, then: Column, otherwise: Column) -> Column:
    texts = None
    if then.texts is not None and otherwise.texts is not None:
        texts = tuple(dict.fromkeys((*then.texts, *otherwise.texts)))
        then = Column(translated(then, texts), then.undefined, texts)
        otherwise = Column(translated(otherwise, texts), otherwise.undefined, texts)
    condition, then, otherwise = aligned(condition, then, otherwise)
    values = np.where(condition.values, then.values, otherwise.values)
    if condition.undefined is None and then.undefined is None and otherwise.undefined is None:
        return Column(values, None, texts)
    nowhere = np.zeros((), bool)
    parts = (nowhere if part.undefined is None else part.undefined for part in (then, otherwise))
    undefined = _either(condition.undefined, np.where(condition.values, *parts))
    return Column(values, undefined, texts)


# ── functions ────────────────────────────────────────────────────────────────────────────────


def call(function: str, arguments: Sequence[Column]) -> Column:
    """Apply one of the language's functions."""
    if len(arguments) > 1:
        return _extreme(function, aligned(*arguments))
    column = arguments[0]
    if function in ("any", "all"):
        return _quantified(function == "any", column)
    if function in ("count", "sum", "min", "max"):
        return _reduced(function, column)
    return _mapped(function, column)


def _extreme(function: str, parts: Sequence[Column]) -> Column:
    combine = np.minimum if function == "min" else np.maximum
    values = numeric(parts[0])
    for part in parts[1:]:
        values = combine(values, numeric(part))
    return Column(values, _either(*(part.undefined for part in parts)))


def _quantified(decides: bool, column: Column) -> Column:
    """``any`` (one true decides) or ``all`` (one false decides) over the positions."""
    if column.undefined is None:
        reduce = np.any if decides else np.all
        return Column(np.asarray(reduce(column.values, axis=-1)))
    undefined = np.broadcast_to(column.undefined, column.values.shape)
    decided = ((column.values == decides) & ~undefined).any(axis=-1)
    return Column(decided if decides else ~decided, _where(undefined.any(axis=-1) & ~decided))


def _reduced(function: str, column: Column) -> Column:
    undefined = None if column.undefined is None else np.asarray(column.undefined.any(axis=-1))
    values = numeric(column)
    if function in ("min", "max"):
        return Column(values.min(axis=-1) if function == "min" else values.max(axis=-1), undefined)
    if function == "count":
        return Column(np.count_nonzero(column.values, axis=-1), undefined)
    if values.dtype == np.float64:
        return _finite(values.sum(axis=-1), undefined)
    if _magnitude(values) * values.shape[-1] <= INT_MAX:
        return Column(values.sum(axis=-1), undefined)
    total = Column(values[..., 0], undefined)
    for position in range(1, values.shape[-1]):
        total = _add(total, Column(values[..., position]))
    return total


def _mapped(function: str, column: Column) -> Column:
    values = numeric(column)
    if function == "abs":
        return Column(np.abs(values), _either(column.undefined, _smallest(values)))
    if function == "log2":
        return _log2(values, column.undefined)
    if values.dtype == np.int64:
        return Column(values, column.undefined)
    rounded = {"ceil": np.ceil, "floor": np.floor, "round": np.rint}[function](values)
    outside = ~(np.abs(rounded) < _FLOAT_LIMIT)
    whole = np.where(outside, 0, rounded).astype(np.int64)
    return Column(whole, _either(column.undefined, _where(outside)))


def _log2(values: Array, undefined: BoolArray | None) -> Column:
    values = values.astype(np.float64)
    result = np.log2(values)
    # log2(8) must be 3 on every processor, whatever its vector library rounds to.
    whole = np.rint(result)
    result = np.where(np.exp2(whole) == values, whole, result)
    return _finite(result, undefined)
