"""Arithmetic on columns that never wraps: what has no 64-bit or finite result is undefined."""

from collections.abc import Callable, Sequence

import numpy as np

from tunerd.core.arrays import Array, BoolArray, FloatArray
from tunerd.core.expressions.columns import ValueColumn, either, numeric, somewhere

__all__ = ["ARITHMETIC", "extreme", "mapped", "reduced", "signed"]

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
_FLOAT_LIMIT = 2.0**63


def signed(sign: str, column: ValueColumn) -> ValueColumn:
    """Apply a sign in front of a number."""
    values = numeric(column)
    if sign == "+":
        return ValueColumn(values, column.undefined)
    return ValueColumn(-values, either(column.undefined, _smallest(values)))


def _smallest(values: Array) -> BoolArray | None:
    """Where an integer has no negative."""
    return somewhere(values == INT_MIN) if values.dtype == np.int64 else None


def _magnitude(values: Array) -> int:
    """The largest absolute value, as a Python integer, which never overflows."""
    return max(abs(int(values.max())), abs(int(values.min()))) if values.size else 0


def _operands(left: ValueColumn, right: ValueColumn) -> tuple[Array, Array, bool]:
    """Both sides as numbers of one type, and whether they are integers."""
    x, y = numeric(left), numeric(right)
    if x.dtype == y.dtype == np.int64:
        return x, y, True
    return x.astype(np.float64, copy=False), y.astype(np.float64, copy=False), False


def _finite(values: FloatArray, *undefined: BoolArray | None) -> ValueColumn:
    return ValueColumn(values, either(*undefined, somewhere(~np.isfinite(values))))


def _add(left: ValueColumn, right: ValueColumn) -> ValueColumn:
    x, y, whole = _operands(left, right)
    result = x + y
    if not whole:
        return _finite(result, left.undefined, right.undefined)
    overflow = None
    if _magnitude(x) + _magnitude(y) > INT_MAX:  # rare: the exact look costs as much again
        overflow = somewhere(((x ^ result) & (y ^ result)) < 0)
    return ValueColumn(result, either(left.undefined, right.undefined, overflow))


def _subtract(left: ValueColumn, right: ValueColumn) -> ValueColumn:
    x, y, whole = _operands(left, right)
    result = x - y
    if not whole:
        return _finite(result, left.undefined, right.undefined)
    overflow = None
    if _magnitude(x) + _magnitude(y) > INT_MAX:
        overflow = somewhere(((x ^ y) & (x ^ result)) < 0)
    return ValueColumn(result, either(left.undefined, right.undefined, overflow))


def _multiply(left: ValueColumn, right: ValueColumn) -> ValueColumn:
    x, y, whole = _operands(left, right)
    result = x * y
    if not whole:
        return _finite(result, left.undefined, right.undefined)
    overflow = None
    if _magnitude(x) * _magnitude(y) > INT_MAX:
        about = x.astype(np.float64) * y.astype(np.float64)
        overflow = somewhere(_wrapped(about, result))
    return ValueColumn(result, either(left.undefined, right.undefined, overflow))


def _wrapped(about: FloatArray, result: Array) -> BoolArray:
    """Where a 64-bit result is not what it is ``about``: it is far off then, so that floats can
    tell."""
    wraps: BoolArray = np.abs(about - result.astype(np.float64)) > 2.0**62
    return wraps


def _divide(left: ValueColumn, right: ValueColumn) -> ValueColumn:
    x, y = numeric(left).astype(np.float64), numeric(right).astype(np.float64)
    return _finite(x / y, left.undefined, right.undefined)


def _floor_divide(left: ValueColumn, right: ValueColumn) -> ValueColumn:
    return _by_zero_undefined(np.floor_divide, left, right)


def _modulo(left: ValueColumn, right: ValueColumn) -> ValueColumn:
    # numpy says x % 0 == 0 for integers: a constraint would hold where it means nothing.
    return _by_zero_undefined(np.remainder, left, right)


def _by_zero_undefined(
    function: Callable[[Array, Array], Array], left: ValueColumn, right: ValueColumn
) -> ValueColumn:
    x, y, whole = _operands(left, right)
    undefined = either(left.undefined, right.undefined, somewhere(y == 0))
    result = function(x, y)
    if not whole:
        return _finite(result, undefined)
    if (
        function is np.floor_divide
        and (lowest := somewhere((x == INT_MIN) & (y == -1))) is not None
    ):
        undefined = either(undefined, lowest)
    return ValueColumn(result, undefined)


def _power(left: ValueColumn, right: ValueColumn) -> ValueColumn:
    x, y, whole = _operands(left, right)
    undefined = either(left.undefined, right.undefined)
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
    return ValueColumn(result, either(undefined, somewhere(negative | overflow)))


ARITHMETIC: dict[str, Callable[[ValueColumn, ValueColumn], ValueColumn]] = {
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "//": _floor_divide,
    "%": _modulo,
    "**": _power,
}


def extreme(function: str, parts: Sequence[ValueColumn]) -> ValueColumn:
    """``min`` or ``max`` of several aligned columns, row by row."""
    combine = np.minimum if function == "min" else np.maximum
    values = numeric(parts[0])
    for part in parts[1:]:
        values = combine(values, numeric(part))
    return ValueColumn(values, either(*(part.undefined for part in parts)))


def reduced(function: str, column: ValueColumn) -> ValueColumn:
    """``count``, ``sum``, ``min`` or ``max`` over the positions of a repeat parameter."""
    undefined = None if column.undefined is None else np.asarray(column.undefined.any(axis=-1))
    values = numeric(column)
    if function in ("min", "max"):
        return ValueColumn(
            values.min(axis=-1) if function == "min" else values.max(axis=-1), undefined
        )
    if function == "count":
        return ValueColumn(np.count_nonzero(column.values, axis=-1), undefined)
    if values.dtype == np.float64:
        return _finite(values.sum(axis=-1), undefined)
    total = values.sum(axis=-1)
    if _magnitude(values) * values.shape[-1] <= INT_MAX:
        return ValueColumn(total, undefined)
    about = values.astype(np.float64).sum(axis=-1)
    return ValueColumn(total, either(undefined, somewhere(_wrapped(about, total))))


def mapped(function: str, column: ValueColumn) -> ValueColumn:
    """``abs``, ``log2``, ``ceil``, ``floor`` or ``round`` of every value."""
    values = numeric(column)
    if function == "abs":
        return ValueColumn(np.abs(values), either(column.undefined, _smallest(values)))
    if function == "log2":
        return _log2(values, column.undefined)
    if values.dtype == np.int64:
        return ValueColumn(values, column.undefined)
    rounded = {"ceil": np.ceil, "floor": np.floor, "round": np.rint}[function](values)
    outside = ~((rounded >= -_FLOAT_LIMIT) & (rounded < _FLOAT_LIMIT))
    whole = np.where(outside, 0, rounded).astype(np.int64)
    return ValueColumn(whole, either(column.undefined, somewhere(outside)))


def _log2(values: Array, undefined: BoolArray | None) -> ValueColumn:
    values = values.astype(np.float64)
    result = np.log2(values)
    # log2(8) must be 3 on every processor, whatever its vector library rounds to.
    whole = np.rint(result)
    result = np.where(np.exp2(whole) == values, whole, result)
    return _finite(result, undefined)
