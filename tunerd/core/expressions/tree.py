"""The syntax tree of an expression. Every node knows the column that it starts at."""

from dataclasses import dataclass

__all__ = [
    "AttributeNode",
    "BinaryNode",
    "CallNode",
    "CompareNode",
    "ConditionalNode",
    "IndexNode",
    "LiteralNode",
    "LogicalNode",
    "MembershipNode",
    "NameNode",
    "Node",
    "NotNode",
    "UnaryNode",
    "children",
    "depth",
]


@dataclass(frozen=True, slots=True)
class LiteralNode:
    value: bool | int | float | str
    at: int


@dataclass(frozen=True, slots=True)
class NameNode:
    name: str
    at: int


@dataclass(frozen=True, slots=True)
class AttributeNode:
    """``gpu.hbm_gib``: a number that a lookup gives for a category."""

    name: str
    attribute: str
    at: int


@dataclass(frozen=True, slots=True)
class IndexNode:
    name: NameNode
    index: "Node"
    at: int


@dataclass(frozen=True, slots=True)
class UnaryNode:
    operator: str
    operand: "Node"
    at: int


@dataclass(frozen=True, slots=True)
class NotNode:
    operand: "Node"
    at: int


@dataclass(frozen=True, slots=True)
class BinaryNode:
    operator: str
    left: "Node"
    right: "Node"
    at: int


@dataclass(frozen=True, slots=True)
class CompareNode:
    """``a < b <= c`` as operands and the operators between them."""

    operands: tuple["Node", ...]
    operators: tuple[str, ...]
    at: int


@dataclass(frozen=True, slots=True)
class MembershipNode:
    item: "Node"
    values: tuple[LiteralNode, ...]
    negated: bool
    at: int


@dataclass(frozen=True, slots=True)
class LogicalNode:
    operator: str
    operands: tuple["Node", ...]
    at: int


@dataclass(frozen=True, slots=True)
class CallNode:
    function: str
    arguments: tuple["Node", ...]
    at: int


@dataclass(frozen=True, slots=True)
class ConditionalNode:
    then: "Node"
    condition: "Node"
    otherwise: "Node"
    at: int


Node = (
    LiteralNode
    | NameNode
    | AttributeNode
    | IndexNode
    | UnaryNode
    | NotNode
    | BinaryNode
    | CompareNode
    | MembershipNode
    | LogicalNode
    | CallNode
    | ConditionalNode
)


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes directly below a node."""
    match node:
        case IndexNode():
            return (node.name, node.index)
        case UnaryNode() | NotNode():
            return (node.operand,)
        case BinaryNode():
            return (node.left, node.right)
        case CompareNode() | LogicalNode():
            return node.operands
        case MembershipNode():
            return (node.item, *node.values)
        case CallNode():
            return node.arguments
        case ConditionalNode():
            return (node.then, node.condition, node.otherwise)
        case _:
            return ()


def depth(root: Node) -> int:
    """Levels of the tree, counted without recursion."""
    deepest, waiting = 0, [(root, 1)]
    while waiting:
        node, level = waiting.pop()
        deepest = max(deepest, level)
        waiting += [(child, level + 1) for child in children(node)]
    return deepest
