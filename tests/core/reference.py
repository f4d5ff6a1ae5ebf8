"""What an expression means, the slow way: Python's own parser, one configuration, plain values."""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["UNDEFINED", "reference"]


class Undefined:
    """The third value."""

    def __repr__(self) -> str:
        return "undefined"


UNDEFINED = Undefined()
Row = Mapping[str, Any]
"""One configuration: plain values, lists for repeat parameters, a lookup's as ``gpu.hbm``."""

_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARISON: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, values: value in values,
    ast.NotIn: lambda value, values: value not in values,
}
_MAPPED: dict[str, Callable[[Any], Any]] = {
    "abs": abs,
    "ceil": math.ceil,
    "floor": math.floor,
    "round": round,
    "log2": math.log2,
}
_REDUCED: dict[str, Callable[[Any], Any]] = {"count": sum, "sum": sum, "min": min, "max": max}


def reference(text: str, row: Row) -> Any:
    """Return an expression's value in one configuration, or ``UNDEFINED``."""
    return _value(ast.parse(text.strip(), mode="eval").body, row, None)


def _value(node: ast.expr, row: Row, at: int | None) -> Any:
    """``at`` is the position of repeat parameters, inside what goes over all positions."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=parts):
            return [_value(part, row, at) for part in parts]
        case ast.Name(id="true" | "false" as word):
            return word == "true"
        case ast.Name(id=name):
            value = row[name]
            return value[at] if isinstance(value, list) and at is not None else value
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            return row[f"{name}.{attribute}"]
        case ast.Subscript(value=ast.Name(id=name), slice=index):
            return _indexed(row[name], _value(index, row, at))
        case ast.Call(func=ast.Name(id=function), args=arguments):
            return _called(function, arguments, row, at)
    return _operation(node, row, at)


def _operation(node: ast.expr, row: Row, at: int | None) -> Any:
    match node:
        case ast.BoolOp(op=op, values=parts):
            return _kleene([_value(part, row, at) for part in parts], isinstance(op, ast.Or))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _defined(operator.not_, _value(operand, row, at))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _defined(lambda a: _checked(-a), _value(operand, row, at))
        case ast.BinOp(left=left, op=op, right=right):
            sides = _value(left, row, at), _value(right, row, at)
            return _defined(lambda a, b: _arithmetic(op, a, b), *sides)
        case ast.Compare(left=left, ops=ops, comparators=others):
            values = [_value(part, row, at) for part in (left, *others)]
            pairs = zip(ops, values, values[1:], strict=False)
            return _kleene([_compared(op, a, b) for op, a, b in pairs], decides=False)
        case ast.IfExp(test=test, body=body, orelse=otherwise):
            chosen = _value(test, row, at)
            return _defined(lambda c: _value(body if c else otherwise, row, at), chosen)
    raise AssertionError(ast.dump(node))


def _defined(function: Callable[..., Any], *values: Any) -> Any:
    return UNDEFINED if any(value is UNDEFINED for value in values) else function(*values)


def _checked(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else UNDEFINED
    return int(value) if -(2**63) <= value < 2**63 else UNDEFINED


def _arithmetic(op: ast.operator, a: Any, b: Any) -> Any:
    if isinstance(op, ast.Div) or isinstance(a, float) or isinstance(b, float):
        a, b = float(a), float(b)
    elif isinstance(op, ast.Pow):
        if b < 0 or (b > 64 and abs(a) > 1):
            return UNDEFINED
        b = b if b <= 64 else 64 + b % 2  # the same for 0, 1 and -1, and much less to do
    try:
        value = _ARITHMETIC[type(op)](a, b)
    except ArithmeticError:
        return UNDEFINED
    return UNDEFINED if isinstance(value, complex) else _checked(value)


def _compared(op: ast.cmpop, a: Any, b: Any) -> Any:
    if isinstance(a, float) != isinstance(b, float) and not isinstance(b, list):
        a, b = (value if value is UNDEFINED else float(value) for value in (a, b))
    return _defined(_COMPARISON[type(op)], a, b)


def _kleene(values: list[Any], decides: bool) -> Any:
    if any(value is not UNDEFINED and bool(value) == decides for value in values):
        return decides
    return UNDEFINED if any(value is UNDEFINED for value in values) else not decides


def _indexed(values: list[Any], index: Any) -> Any:
    inside = index is not UNDEFINED and -len(values) <= index < len(values)
    return values[index] if inside else UNDEFINED


def _called(function: str, arguments: list[ast.expr], row: Row, at: int | None) -> Any:
    if function in _MAPPED:
        return _defined(lambda value: _mapped(function, value), _value(arguments[0], row, at))
    if len(arguments) > 1:
        values = [_value(part, row, at) for part in arguments]
        return _defined(lambda *v: _REDUCED[function](v), *values)
    repeat = max(len(value) for value in row.values() if isinstance(value, list))
    values = [_value(arguments[0], row, position) for position in range(repeat)]
    if function in ("any", "all"):
        return _kleene(values, function == "any")
    return _defined(lambda *v: _checked(_REDUCED[function](v)), *values)


def _mapped(function: str, value: Any) -> Any:
    if function == "log2" and value <= 0:
        return UNDEFINED
    return _checked(_MAPPED[function](value))
