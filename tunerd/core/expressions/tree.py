"""The syntax tree of an expression. Every node knows the column that it starts at."""

from dataclasses import dataclass

__all__ = [
    "Attribute",
    "Binary",
    "Call",
    "Compare",
    "Conditional",
    "Index",
    "Literal",
    "Logic",
    "Membership",
    "Name",
    "Node",
    "Not",
    "Unary",
    "children",
    "depth",
]


@dataclass(frozen=True, slots=True)
class Literal:
    value: bool | int | float | str
    at: int


@dataclass(frozen=True, slots=True)
class Name:
    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Attribute:
    """``gpu.hbm_gib``: a number that a lookup gives for a category."""

    name: str
    attribute: str
    at: int


@dataclass(frozen=True, slots=True)
class Index:
    name: Name
    index: "Node"
    at: int


@dataclass(frozen=True, slots=True)
class Unary:
    operator: str
    operand: "Node"
    at: int


@dataclass(frozen=True, slots=True)
class Not:
    operand: "Node"
    at: int


@dataclass(frozen=True, slots=True)
class Binary:
    operator: str
    left: "Node"
    right: "Node"
    at: int


@dataclass(frozen=True, slots=True)
class Compare:
    """``a < b <= c`` as operands and the operators between them."""

    operands: tuple["Node", ...]
    operators: tuple[str, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Membership:
    item: "Node"
    values: tuple[Literal, ...]
    negated: bool
    at: int


@dataclass(frozen=True, slots=True)
class Logic:
    operator: str
    operands: tuple["Node", ...]
    at: int


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    arguments: tuple["Node", ...]
    at: int


@dataclass(frozen=True, slots=True)
class Conditional:
    then: "Node"
    condition: "Node"
    otherwise: "Node"
    at: int


Node = (
    Literal
    | Name
    | Attribute
    | Index
    | Unary
    | Not
    | Binary
    | Compare
    | Membership
    | Logic
    | Call
    | Conditional
)


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes directly below a node."""
    match node:
        case Index():
            return (node.name, node.index)
        case Unary() | Not():
            return (node.operand,)
        case Binary():
            return (node.left, node.right)
        case Compare() | Logic():
            return node.operands
        case Membership():
            return (node.item, *node.values)
        case Call():
            return node.arguments
        case Conditional():
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
