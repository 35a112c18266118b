"""The syntax tree: one class per form of the language.

Types and values share one expression grammar, so a type is an expression here too.  `span` takes no part in
comparisons: two trees are equal if they say the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from fabric.csl.diagnostics import Span

__all__ = [
    "Access",
    "ArrayType",
    "Asm",
    "Assign",
    "Attribute",
    "Binary",
    "Block",
    "BlockExpr",
    "Break",
    "Builtin",
    "Call",
    "Case",
    "ColorDecl",
    "Comptime",
    "ComptimeBlock",
    "Continue",
    "Deref",
    "EnumType",
    "ExprStatement",
    "Field",
    "File",
    "Float",
    "FnDecl",
    "FnType",
    "For",
    "If",
    "IfExpr",
    "Index",
    "Init",
    "Int",
    "Labelled",
    "LayoutBlock",
    "Name",
    "Node",
    "ParamDecl",
    "Parameter",
    "PointerType",
    "Return",
    "String",
    "StructLiteral",
    "StructType",
    "Switch",
    "TupleLiteral",
    "Unary",
    "VarDecl",
    "While",
    "children",
    "walk",
]


@dataclass(slots=True)
class Node:
    """Anything of the tree."""

    span: Span = field(compare=False, repr=False, kw_only=True)


# ---- file and declarations


@dataclass(slots=True)
class File(Node):
    """A whole source."""

    items: list[Node]


@dataclass(slots=True)
class Attribute(Node):
    """``align(16)``, ``linksection("s")`` or ``linkname("n")``."""

    name: str
    value: Node


@dataclass(slots=True)
class VarDecl(Node):
    """``const`` or ``var``, global or local.  `imports` is filled when somebody asked."""

    kind: str
    name: str
    type: Node | None
    value: Node | None
    storage: str | None = None
    attributes: tuple[Attribute, ...] = ()
    comptime: bool = False
    imports: bool | None = field(default=None, compare=False, repr=False)

    @property
    def begins_with(self) -> Node | None:
        """The value that the variable begins with; None if it has none, or is said to be ``undefined``."""
        return None if isinstance(self.value, Name) and self.value.name == "undefined" else self.value


@dataclass(slots=True)
class ParamDecl(Node):
    """``param`` of a module."""

    name: str
    type: Node | None
    value: Node | None
    attributes: tuple[Attribute, ...] = ()


@dataclass(slots=True)
class ColorDecl(Node):
    """``color name;`` of old programs."""

    name: str
    value: Node | None


@dataclass(slots=True)
class Parameter(Node):
    """A parameter of a function; without a name in ``extern`` declarations."""

    name: str | None
    type: Node
    comptime: bool = False


@dataclass(slots=True)
class FnDecl(Node):
    """``fn`` or ``task``; `body` is None for ``extern``.  `generic` is filled when somebody asked."""

    kind: str
    name: str
    params: list[Parameter]
    result: Node
    body: Block | None
    storage: str | None = None
    inline: str | None = None
    attributes: tuple[Attribute, ...] = ()
    generic: bool | None = field(default=None, compare=False, repr=False)


@dataclass(slots=True)
class ComptimeBlock(Node):
    """``comptime { ... }``, global or as a statement."""

    body: Block


@dataclass(slots=True)
class LayoutBlock(Node):
    """``layout { ... }``."""

    body: Block


# ---- statements


@dataclass(slots=True)
class Block(Node):
    """``{ ... }``."""

    body: list[Node]


@dataclass(slots=True)
class ExprStatement(Node):
    """An expression whose value is dropped."""

    value: Node


@dataclass(slots=True)
class Assign(Node):
    """``target op value`` with `op` such as ``=`` or ``+=``."""

    target: Node
    op: str
    value: Node


@dataclass(slots=True)
class Return(Node):
    """``return value``."""

    value: Node | None


@dataclass(slots=True)
class Break(Node):
    """``break :label value``."""

    label: str | None
    value: Node | None


@dataclass(slots=True)
class Continue(Node):
    """``continue :label``."""

    label: str | None


@dataclass(slots=True)
class If(Node):
    """``if`` as a statement."""

    condition: Node
    then: Node
    otherwise: Node | None


@dataclass(slots=True)
class For(Node):
    """``for (sequence) |item, index| body``."""

    sequence: Node
    item: str
    index: str | None
    body: Node
    inline: bool = False


@dataclass(slots=True)
class While(Node):
    """``while (condition) : (step) body``."""

    condition: Node
    step: Node | None
    body: Node
    inline: bool = False


@dataclass(slots=True)
class Case(Node):
    """A branch of a switch; `values` is None for ``else``."""

    values: list[Node] | None
    body: Node


@dataclass(slots=True)
class Switch(Node):
    """``switch``, as a statement or a value."""

    subject: Node
    cases: list[Case]


@dataclass(slots=True)
class Labelled(Node):
    """``label:`` before a block or loop."""

    label: str
    body: Node


# ---- expressions


@dataclass(slots=True)
class Name(Node):
    """An identifier."""

    name: str


@dataclass(slots=True)
class Int(Node):
    """An integer literal or a character, which keeps its form in `text`."""

    value: int
    text: str = field(default="", compare=False)


@dataclass(slots=True)
class Float(Node):
    """A literal with point or exponent."""

    value: float


@dataclass(slots=True)
class String(Node):
    """A string; characters stand for bytes."""

    value: str


@dataclass(slots=True)
class Unary(Node):
    """``-x``, ``!x``, ``~x``, ``&x``."""

    op: str
    value: Node


@dataclass(slots=True)
class Binary(Node):
    """Two operands and an operator; ``and`` and ``or`` too."""

    op: str
    left: Node
    right: Node


@dataclass(slots=True)
class Comptime(Node):
    """``comptime x``."""

    value: Node


@dataclass(slots=True)
class IfExpr(Node):
    """``if`` as a value."""

    condition: Node
    then: Node
    otherwise: Node | None


@dataclass(slots=True)
class BlockExpr(Node):
    """A block as a value, left by ``break``."""

    label: str | None
    body: Block


@dataclass(slots=True)
class Access(Node):
    """``|i, j|{M, N} -> base[e1, e2]``."""

    names: list[str]
    extents: list[Node]
    base: Node
    subscripts: list[Node]


@dataclass(slots=True)
class Field(Node):
    """``base.name``."""

    base: Node
    name: str


@dataclass(slots=True)
class Deref(Node):
    """``base.*``."""

    base: Node


@dataclass(slots=True)
class Index(Node):
    """``base[i, j]``."""

    base: Node
    subscripts: list[Node]


@dataclass(slots=True)
class Call(Node):
    """``callee(arguments)``."""

    callee: Node
    arguments: list[Node]


@dataclass(slots=True)
class Builtin(Node):
    """``@name(arguments)``; the name carries its ``@``."""

    name: str
    arguments: list[Node]


@dataclass(slots=True)
class StructLiteral(Node):
    """``.{ .a = 1 }``; also the empty ``.{}``."""

    fields: list[tuple[str, Node]]


@dataclass(slots=True)
class TupleLiteral(Node):
    """``.{ 1, 2 }``."""

    items: list[Node]


@dataclass(slots=True)
class Init(Node):
    """A literal of a named type: ``[3]i16{1, 2, 3}`` or ``T{ .a = 1 }``."""

    type: Node
    body: Node


@dataclass(slots=True)
class PointerType(Node):
    """``*T``, ``*const T``, ``[*]T``, ``[*]const T``."""

    target: Node
    const: bool
    many: bool


@dataclass(slots=True)
class ArrayType(Node):
    """``[M, N]T``."""

    dims: list[Node]
    element: Node


@dataclass(slots=True)
class FnType(Node):
    """``fn(i16)void`` or ``task()void``."""

    kind: str
    params: list[Node]
    result: Node


@dataclass(slots=True)
class StructType(Node):
    """``struct { a: i16, }`` with `form` struct or union and `packing` extern, packed or None."""

    form: str
    packing: str | None
    fields: list[tuple[str, Node]]


@dataclass(slots=True)
class EnumType(Node):
    """``enum(u16) { A, B = 4 }``."""

    base: Node | None
    members: list[tuple[str, Node | None]]


@dataclass(slots=True)
class Asm(Node):
    """Inline assembly: parsed, refused."""

    text: str


def children(node: Node) -> list[Node]:
    """Return the nodes directly below a node, in the order of the source."""
    found: list[Node] = []
    for name in _parts(node.__class__):
        _collect(getattr(node, name), found)
    return found


_PARTS: dict[type, tuple[str, ...]] = {}
"""Per class of nodes the fields in which nodes may be."""


def _parts(kind: type) -> tuple[str, ...]:
    found = _PARTS.get(kind)
    if found is None:
        found = _PARTS[kind] = tuple(entry.name for entry in fields(kind) if entry.name != "span")
    return found


def _collect(value: Any, found: list[Node]) -> None:
    if isinstance(value, Node):
        found.append(value)
    elif value.__class__ is list or value.__class__ is tuple:
        for item in value:
            _collect(item, found)


def walk(node: Node) -> list[Node]:
    """Return a node and all below it."""
    found, todo = [], [node]
    while todo:
        found.append(here := todo.pop())
        todo += reversed(children(here))
    return found
