"""From text to a syntax tree: a tokenizer and a Pratt parser for the study's small language.

The language is Python's for what it has: arithmetic, comparisons (chained too), ``and or not``,
``in [...]``, ``a if c else b``, functions, indexing and ``name.attribute``. Length and depth are
limited, so that no text can exhaust the stack.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

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
    depth,
)

__all__ = ["FUNCTIONS", "RESERVED", "ExpressionError", "parse"]

MAX_LENGTH = 4_000
MAX_DEPTH = 100
"""Levels of the tree. Evaluation recurses twice a level, far from Python's limit of 1,000."""

FUNCTIONS = ("count", "sum", "any", "all", "min", "max", "abs", "log2", "ceil", "floor", "round")
RESERVED = frozenset({"and", "or", "not", "in", "if", "else", "true", "false", *FUNCTIONS})
"""Words that no parameter, context feature or derived value may be called."""


class ExpressionError(Exception):
    """Raised when an expression is wrong. Says what, and points at the column."""

    def __init__(self, message: str, text: str, at: int) -> None:
        self.message, self.text, self.at = message, text, at
        super().__init__(message)

    def __str__(self) -> str:
        before = self.text[: self.at]
        line_start = before.rfind("\n") + 1
        line = self.text[line_start:].split("\n", 1)[0].replace("\t", " ")
        start = max(0, self.at - line_start - 60)
        caret = " " * (self.at - line_start - start) + "^"
        number = f"line {before.count(chr(10)) + 1}, " if "\n" in self.text else ""
        where = f"{number}column {self.at - line_start + 1}"
        return f"{self.message} ({where})\n    {line[start : start + 100]}\n    {caret}"


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    """``number``, ``text``, ``name``, ``operator`` (keywords too) or ``end``."""
    text: str
    at: int


_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>[0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_]))
    | (?P<text>'[^'\n]*'|"[^"\n]*")
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<operator>\*\*|//|==|!=|<=|>=|[-+*/%<>()\[\],.])
    | (?P<end>\Z)
    )""",
    re.VERBOSE | re.ASCII,
)
_SPACE = re.compile(r"\s*", re.ASCII)
_HINTS = {
    "=": "write == to compare",
    "&": "write `and`",
    "|": "write `or`",
    "!": "write `not`, or != to compare",
    "^": "write ** for powers",
    "'": "this text never ends: a quote is missing",
    '"': "this text never ends: a quote is missing",
}
_KEYWORDS = frozenset({"and", "or", "not", "in", "if", "else"})

_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
# How tightly an operator holds its left operand; Python's order.
_STRENGTH = {
    "if": 1,
    "or": 2,
    "and": 3,
    **dict.fromkeys((*_COMPARISONS, "in", "not"), 5),
    **dict.fromkeys("+-", 6),
    **dict.fromkeys(("*", "/", "//", "%"), 7),
    "**": 9,
}
_NOT, _SIGN = 4, 8


def _tokens(text: str) -> Iterator[Token]:
    at = 0
    while True:
        match = _TOKEN.match(text, at)
        if match is None:
            at = _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing too
            wrong = text[at]
            hint = _HINTS.get(wrong, "this means nothing here")
            raise ExpressionError(f"unexpected {wrong!r}: {hint}", text, at)
        kind = match.lastgroup or "end"
        token = Token(kind, match[kind], match.start(kind))
        if token.text in _KEYWORDS and kind == "name":
            token = Token("operator", token.text, token.at)
        yield token
        if kind == "end":
            return
        at = match.end()


def parse(text: str) -> Node:
    """Return the syntax tree of an expression; raises :class:`ExpressionError`."""
    if len(text) > MAX_LENGTH:
        message = f"too long: {len(text):,} characters, at most {MAX_LENGTH:,}; use derived values"
        raise ExpressionError(message, text, MAX_LENGTH)
    return _PrattParser(text).whole()


class _PrattParser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(_tokens(text))
        self.next = 0
        self.nesting = 0

    def whole(self) -> Node:
        if self.peek().kind == "end":
            raise self.error("the expression is empty", self.peek())
        node = self.expression(0)
        if self.peek().kind != "end":
            raise self.error(f"unexpected {self.peek().text!r}", self.peek())
        if (levels := depth(node)) > MAX_DEPTH:
            message = f"{levels} levels deep, at most {MAX_DEPTH}: use derived values"
            raise ExpressionError(message, self.text, 0)
        return node

    def peek(self) -> Token:
        return self.tokens[self.next]

    def take(self) -> Token:
        token = self.tokens[self.next]
        self.next = min(self.next + 1, len(self.tokens) - 1)
        return token

    def accept(self, operator: str) -> bool:
        matches = self.peek().kind == "operator" and self.peek().text == operator
        self.next += matches
        return matches

    def expect(self, operator: str) -> None:
        if not self.accept(operator):
            token = self.peek().text or "the end"
            raise self.error(f"expected {operator!r}, found {token!r}", self.peek())

    def error(self, message: str, token: Token) -> ExpressionError:
        return ExpressionError(message, self.text, token.at)

    def expression(self, strength: int) -> Node:
        """Read operators that hold tighter than ``strength``."""
        self.nesting += 1
        if self.nesting > MAX_DEPTH:
            raise self.error(f"more than {MAX_DEPTH} levels deep", self.peek())
        left = self.operand()
        while self.binds(strength):
            left = self.continued(left, self.take())
        self.nesting -= 1
        return left

    def binds(self, strength: int) -> bool:
        token = self.peek()
        return token.kind == "operator" and _STRENGTH.get(token.text, 0) > strength

    def operand(self) -> Node:
        token = self.take()
        if token.kind == "number":
            return LiteralNode(self.number(token), token.at)
        if token.kind == "text":
            return LiteralNode(token.text[1:-1], token.at)
        if token.kind == "name":
            return self.named(token)
        if token.text == "(":
            inner = self.expression(0)
            self.expect(")")
            return inner
        if token.text in ("-", "+"):
            return self.signed(token)
        if token.text == "not":
            return NotNode(self.expression(_NOT), token.at)
        what = repr(token.text) if token.text else "the end"
        raise self.error(f"expected a value, found {what}", token)

    def number(self, token: Token) -> int | float:
        digits = token.text.replace("_", "")
        if digits.isdigit():
            if len(digits) > 19 or int(digits) >= 2**63:
                raise self.error("this number does not fit 64 bits", token)
            return int(digits)
        number = float(digits)
        if number == float("inf"):
            raise self.error("this number is too large", token)
        return number

    def signed(self, token: Token) -> Node:
        operand = self.expression(_SIGN)
        plain = isinstance(operand, LiteralNode) and not isinstance(operand.value, bool | str)
        if plain and token.text == "-":
            return LiteralNode(-operand.value, token.at)  # type: ignore[union-attr, operator]
        return UnaryNode(token.text, operand, token.at)

    def named(self, token: Token) -> Node:
        if token.text in ("true", "false"):
            return LiteralNode(token.text == "true", token.at)
        if self.accept("("):
            return CallNode(token.text, self.arguments(), token.at)
        if self.accept("."):
            attribute = self.take()
            if attribute.kind != "name":
                message = f"expected the name of a lookup's number after {token.text}."
                raise self.error(message, attribute)
            return AttributeNode(token.text, attribute.text, token.at)
        name = NameNode(token.text, token.at)
        if self.accept("["):
            index = self.expression(0)
            self.expect("]")
            return IndexNode(name, index, token.at)
        return name

    def arguments(self) -> tuple[Node, ...]:
        if self.accept(")"):
            return ()
        nodes = [self.expression(0)]
        while self.accept(","):
            nodes.append(self.expression(0))
        self.expect(")")
        return tuple(nodes)

    def continued(self, left: Node, token: Token) -> Node:
        """Read what follows ``left`` and the operator ``token``."""
        operator = token.text
        if operator == "if":
            condition = self.expression(_STRENGTH["if"])
            self.expect("else")
            return ConditionalNode(left, condition, self.expression(0), token.at)
        if operator in ("and", "or"):
            return self.logic(left, token)
        if operator in ("in", "not"):
            return self.membership(left, token)
        if operator in _COMPARISONS:
            return self.comparison(left, token)
        # ** holds its right side less tightly than its left: 2 ** 3 ** 2 is 2 ** 9, 2 ** -1 works.
        strength = _STRENGTH[operator] - 2 if operator == "**" else _STRENGTH[operator]
        return BinaryNode(operator, left, self.expression(strength), token.at)

    def logic(self, left: Node, token: Token) -> Node:
        operands = [left]
        while True:
            operands.append(self.expression(_STRENGTH[token.text]))
            if not self.accept(token.text):
                return LogicalNode(token.text, tuple(operands), token.at)

    def comparison(self, left: Node, token: Token) -> Node:
        operands, operators = [left], [token.text]
        while True:
            operands.append(self.expression(_STRENGTH[token.text]))
            if self.peek().kind != "operator" or self.peek().text not in _COMPARISONS:
                return CompareNode(tuple(operands), tuple(operators), token.at)
            operators.append(self.take().text)

    def membership(self, left: Node, token: Token) -> Node:
        if token.text == "not":
            self.expect("in")
        self.expect("[")
        values: list[LiteralNode] = []
        while not self.accept("]"):
            if values:
                self.expect(",")
            at = self.peek()
            value = self.expression(_STRENGTH["in"])
            if not isinstance(value, LiteralNode):
                raise self.error("a list after `in` holds numbers or texts only", at)
            values.append(value)
        return MembershipNode(left, tuple(values), token.text == "not", token.at)
