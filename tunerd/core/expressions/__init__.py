"""The small, safe language of a study's constraints, derived values and conditions.

Text is parsed into a tree (:mod:`.syntax`), checked for mistakes that can be seen without values
(:mod:`.type_check`), and evaluated on whole numpy arrays (:mod:`.evaluation`). Python's own
``eval`` never sees it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tunerd.core.arrays import FloatArray
from tunerd.core.expressions.columns import ValueColumn, constant, looked_up
from tunerd.core.expressions.distance import distance
from tunerd.core.expressions.evaluation import evaluate
from tunerd.core.expressions.syntax import FUNCTIONS, RESERVED, ExpressionError, parse
from tunerd.core.expressions.tree import (
    AttributeNode,
    IndexNode,
    LiteralNode,
    LogicalNode,
    NameNode,
    Node,
    children,
)
from tunerd.core.expressions.type_check import ExpressionType, NameType, check, closest, suggestion

__all__ = [
    "FUNCTIONS",
    "RESERVED",
    "Expression",
    "ExpressionError",
    "ExpressionType",
    "NameType",
    "ValueColumn",
    "closest",
    "constant",
    "looked_up",
    "names_in",
    "parse",
    "parse_expression",
    "suggestion",
    "uses_in",
]


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed and checked expression."""

    text: str
    node: Node
    kind: ExpressionType
    names: frozenset[str]
    """Parameters, derived values and context features that it reads."""

    def evaluate(self, columns: Mapping[str, ValueColumn]) -> ValueColumn:
        """Return its value in every configuration that ``columns`` hold, by name."""
        return evaluate(self.node, columns)

    def distance(self, columns: Mapping[str, ValueColumn]) -> FloatArray:
        """Return how far each configuration is from making this truth value true; 0 where it is."""
        return distance(self.node, columns)

    def conjuncts(self) -> tuple["Expression", ...]:
        """The parts joined by ``and`` at the top: all must hold, each can be tested alone."""
        if not isinstance(self.node, LogicalNode) or self.node.operator != "and":
            return (self,)
        parts = (
            Expression(self.text, operand, ExpressionType("bool"), names_in(operand))
            for operand in self.node.operands
        )
        return tuple(conjunct for part in parts for conjunct in part.conjuncts())


def parse_expression(text: str, names: Mapping[str, NameType]) -> Expression:
    """Parse and check an expression over ``names``; raises :class:`ExpressionError`."""
    node = parse(text)
    return Expression(text, node, check(node, names, text), names_in(node))


def names_in(node: Node) -> frozenset[str]:
    """Return every name that a tree reads."""
    return frozenset(name for name, _ in uses_in(node))


def uses_in(node: Node) -> Iterator[tuple[str, int | None]]:
    """Find every name that a tree reads, with the position where it is a fixed one."""
    waiting = [node]
    while waiting:
        match waiting.pop():
            case IndexNode(name=NameNode(name=name), index=LiteralNode(value=int(position))):
                yield name, position
            case NameNode(name=name) | AttributeNode(name=name):
                yield name, None
            case other:
                waiting += children(other)
