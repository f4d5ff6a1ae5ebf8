"""Which values an expression has: mistakes that can be seen before anything is evaluated."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from tunerd.core.expressions.syntax import FUNCTIONS, ExpressionError
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

__all__ = ["ExpressionType", "NameType", "check", "closest", "suggestion"]


@dataclass(frozen=True, slots=True)
class ExpressionType:
    """What a value is, and how many of it there are."""

    type: Literal["int", "float", "bool", "text", "any"]
    """``any`` stands for a name whose own definition is wrong: it takes part in no mistake."""
    repeat: int = 0
    """Values per configuration of a ``repeat`` parameter; 0 for a plain value."""
    texts: tuple[str, ...] | None = None
    """The only texts that it can be; ``None`` when it is open."""

    @property
    def number(self) -> bool:
        return self.type in ("int", "float", "any")

    @property
    def truth(self) -> bool:
        return self.type in ("bool", "any")

    def __str__(self) -> str:
        words = {"int": "a number", "float": "a number", "bool": "true or false", "text": "a text"}
        plural = {"int": "numbers", "float": "numbers", "bool": "truth values", "text": "texts"}
        if self.repeat:
            return f"{self.repeat} {plural.get(self.type, 'values')}"
        return words.get(self.type, "a value")


@dataclass(frozen=True, slots=True)
class NameType:
    """What a name stands for in an expression."""

    kind: ExpressionType
    attributes: Mapping[str, ExpressionType] = field(default_factory=dict)
    """The numbers that a lookup gives for this category, by name."""


def check(node: Node, names: Mapping[str, NameType], text: str) -> ExpressionType:
    """Return what the expression's value is; raises :class:`ExpressionError` for a mistake."""
    return _TypeChecker(names, text).kind(node)


def closest(wrong: str, known: Iterable[str]) -> str | None:
    """Return what looks most like ``wrong``, if anything does."""
    return next(iter(difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.6)), None)


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` when something known looks like ``wrong``, else nothing."""
    close = closest(wrong, known)
    return "" if close is None else f"; did you mean {close!r}?"


class _TypeChecker:
    def __init__(self, names: Mapping[str, NameType], text: str) -> None:
        self.names, self.text = names, text

    def error(self, message: str, node: Node) -> ExpressionError:
        return ExpressionError(message, self.text, node.at)

    def kind(self, node: Node) -> ExpressionType:
        match node:
            case LiteralNode():
                return _literal_kind(node)
            case NameNode():
                return self.named(node.name, node).kind
            case AttributeNode():
                return self.attribute(node)
            case IndexNode():
                return self.index(node)
            case UnaryNode():
                return replace(self.numeric(node.operand, f"`{node.operator}`"), texts=None)
            case NotNode():
                return self.truth(node.operand, "`not`")
            case BinaryNode():
                return self.binary(node)
            case _:
                return self.compound(node)

    def compound(self, node: Node) -> ExpressionType:
        match node:
            case CompareNode():
                return self.compare(node)
            case MembershipNode():
                return self.membership(node)
            case LogicalNode():
                kinds = [self.truth(part, f"`{node.operator}`") for part in node.operands]
                return ExpressionType("bool", self.common_repeat(kinds, node))
            case CallNode():
                return self.call(node)
            case ConditionalNode():
                return self.conditional(node)
        raise AssertionError(node)

    def named(self, name: str, node: Node) -> NameType:
        if name in self.names:
            return self.names[name]
        hint = suggestion(name, self.names)
        if name in FUNCTIONS:
            hint = f": it is a function, write {name}(...)"
        raise self.error(f"unknown name {name!r}{hint}", node)

    def attribute(self, node: AttributeNode) -> ExpressionType:
        named = self.named(node.name, node)
        if node.attribute in named.attributes or named.kind.type == "any":
            return named.attributes.get(node.attribute, ExpressionType("any"))
        if not named.attributes:
            message = f"{node.name!r} has no lookup: describe its values in [lookup.{node.name}]"
        else:
            hint = suggestion(node.attribute, named.attributes)
            message = f"[lookup.{node.name}] has no number {node.attribute!r}{hint}"
        raise self.error(message, node)

    def index(self, node: IndexNode) -> ExpressionType:
        kind = self.named(node.name.name, node).kind
        if not kind.repeat and kind.type != "any":
            message = f"{node.name.name!r} is a single value: only repeat parameters have positions"
            raise self.error(message, node)
        index = self.kind(node.index)
        if index.type not in ("int", "any") or index.repeat:
            raise self.error(f"a position must be an integer, this is {index}", node.index)
        position = node.index.value if isinstance(node.index, LiteralNode) else 0
        if kind.repeat and not -kind.repeat <= int(position) < kind.repeat:
            message = f"{node.name.name!r} has positions 0 to {kind.repeat - 1}"
            raise self.error(message, node.index)
        return replace(kind, repeat=0)

    def numeric(self, node: Node, what: str) -> ExpressionType:
        kind = self.kind(node)
        if kind.type == "bool":  # true counts as 1, as in Python
            return ExpressionType("int", kind.repeat)
        if not kind.number:
            raise self.error(f"{what} needs a number, this is {kind}", node)
        return kind

    def truth(self, node: Node, what: str) -> ExpressionType:
        kind = self.kind(node)
        if not kind.truth:
            hint = "; compare it with something" if kind.number else ""
            raise self.error(f"{what} needs true or false, this is {kind}{hint}", node)
        return ExpressionType("bool", kind.repeat)

    def common_repeat(self, kinds: Iterable[ExpressionType], node: Node) -> int:
        repeats = sorted({kind.repeat for kind in kinds if kind.repeat})
        if len(repeats) > 1:
            message = f"one side has {repeats[0]} values, the other {repeats[1]}"
            raise self.error(message, node)
        return repeats[0] if repeats else 0

    def binary(self, node: BinaryNode) -> ExpressionType:
        left = self.numeric(node.left, f"`{node.operator}`")
        right = self.numeric(node.right, f"`{node.operator}`")
        repeat = self.common_repeat((left, right), node)
        whole = left.type != "float" and right.type != "float" and node.operator != "/"
        if whole and node.operator == "**" and _negative(node.right):
            message = "an integer to a negative power is not an integer: write the base as a float"
            raise self.error(message, node.right)
        return ExpressionType("int" if whole else "float", repeat)

    def compare(self, node: CompareNode) -> ExpressionType:
        kinds = [self.kind(operand) for operand in node.operands]
        for position, operator in enumerate(node.operators):
            self.comparable(node, operator, position, kinds)
        return ExpressionType("bool", self.common_repeat(kinds, node))

    def comparable(
        self, node: CompareNode, operator: str, position: int, kinds: list[ExpressionType]
    ) -> None:
        left, right = kinds[position : position + 2]
        operands = node.operands[position : position + 2]
        if "any" in (left.type, right.type):
            return
        if _family(left) != _family(right):
            message = f"cannot compare {left} with {right}"
            raise self.error(message, operands[1])
        if left.type in ("text", "bool") and operator not in ("==", "!="):
            message = f"`{operator}` compares numbers, this is {left}: use == or !="
            raise self.error(message, operands[0])
        self.known_text(operands[1], left)
        self.known_text(operands[0], right)

    def known_text(self, node: Node, kind: ExpressionType) -> None:
        """A literal that a closed category never takes is a typing mistake."""
        if (
            not isinstance(node, LiteralNode)
            or not isinstance(node.value, str)
            or kind.texts is None
        ):
            return
        if node.value not in kind.texts:
            known = ", ".join(map(repr, kind.texts[:8]))
            hint = suggestion(node.value, kind.texts) or f"; the values are {known}"
            raise self.error(f"{node.value!r} is never a value here{hint}", node)

    def membership(self, node: MembershipNode) -> ExpressionType:
        item = self.kind(node.item)
        for value in node.values:
            kind = _literal_kind(value)
            if item.type != "any" and _family(kind) != _family(item):
                raise self.error(f"cannot compare {item} with {kind}", value)
            self.known_text(value, item)
        return ExpressionType("bool", item.repeat)

    def conditional(self, node: ConditionalNode) -> ExpressionType:
        condition = self.truth(node.condition, "`if`")
        then, otherwise = self.kind(node.then), self.kind(node.otherwise)
        repeat = self.common_repeat((condition, then, otherwise), node)
        if "any" in (then.type, otherwise.type):
            return ExpressionType("any", repeat)
        if _family(then) != _family(otherwise):
            message = f"both sides must be alike; one is {then}, the other {otherwise}"
            raise self.error(message, node)
        if then.type == "text":
            closed = then.texts is not None and otherwise.texts is not None
            texts = (*(then.texts or ()), *(otherwise.texts or ()))
            return ExpressionType("text", repeat, tuple(dict.fromkeys(texts)) if closed else None)
        return ExpressionType(then.type if then.type == otherwise.type else "float", repeat)

    def call(self, node: CallNode) -> ExpressionType:
        if node.function not in FUNCTIONS:
            hint = suggestion(node.function, FUNCTIONS) or f"; there are {', '.join(FUNCTIONS)}"
            raise self.error(f"unknown function {node.function!r}{hint}", node)
        if node.function in ("min", "max") and len(node.arguments) > 1:
            kinds = [self.numeric(part, f"{node.function}()") for part in node.arguments]
            floats = any(kind.type == "float" for kind in kinds)
            return ExpressionType("float" if floats else "int", self.common_repeat(kinds, node))
        if len(node.arguments) != 1:
            message = f"{node.function}() takes one value, not {len(node.arguments)}"
            raise self.error(message, node)
        if node.function in ("abs", "log2", "ceil", "floor", "round"):
            return self.mapped(node)
        return self.reduced(node)

    def mapped(self, node: CallNode) -> ExpressionType:
        kind = self.numeric(node.arguments[0], f"{node.function}()")
        if node.function == "abs":
            return kind
        return ExpressionType("float" if node.function == "log2" else "int", kind.repeat)

    def reduced(self, node: CallNode) -> ExpressionType:
        what = f"{node.function}()"
        if node.function in ("count", "any", "all"):
            kind = self.truth(node.arguments[0], what)
        else:
            kind = self.numeric(node.arguments[0], what)
        if not kind.repeat and kind.type != "any" and not self.in_doubt():
            message = f"{what} goes over a repeat parameter; this is a single value"
            raise self.error(message, node.arguments[0])
        if node.function in ("any", "all"):
            return ExpressionType("bool")
        return ExpressionType("int") if node.function == "count" else replace(kind, repeat=0)

    def in_doubt(self) -> bool:
        """Whether some name has a wrong definition, so that a repeat may not be known."""
        return any(kind.kind.type == "any" for kind in self.names.values())


def _family(kind: ExpressionType) -> str:
    return "number" if kind.type in ("int", "float") else kind.type


def _literal_kind(node: LiteralNode) -> ExpressionType:
    if isinstance(node.value, bool):
        return ExpressionType("bool")
    if isinstance(node.value, str):
        return ExpressionType("text", texts=(node.value,))
    return ExpressionType("int" if isinstance(node.value, int) else "float")


def _negative(node: Node) -> bool:
    return isinstance(node, LiteralNode) and not isinstance(node.value, str) and node.value < 0
