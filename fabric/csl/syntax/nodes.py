"""The syntax tree has one class per form of the language.

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
    """A `Node` is anything of the syntax tree, with its place in the source."""

    span: Span = field(compare=False, repr=False, kw_only=True)


# ---- file and declarations


@dataclass(slots=True)
class File(Node):
    """A `File` is a whole source: its declarations in order."""

    items: list[Node]


@dataclass(slots=True)
class Attribute(Node):
    """An `Attribute` is ``align(16)``, ``linksection("s")`` or ``linkname("n")`` of a declaration."""

    name: str
    value: Node


@dataclass(slots=True)
class VarDecl(Node):
    """A `VarDecl` declares a ``const`` or ``var``, global or local.  `imports` is filled when somebody asked."""

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
    """A `ParamDecl` declares a ``param`` of a module."""

    name: str
    type: Node | None
    value: Node | None
    attributes: tuple[Attribute, ...] = ()


@dataclass(slots=True)
class ColorDecl(Node):
    """A `ColorDecl` is the declaration ``color name;`` of old programs."""

    name: str
    value: Node | None


@dataclass(slots=True)
class Parameter(Node):
    """A `Parameter` is one of a function; it has no name in ``extern`` declarations."""

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
    """A `ComptimeBlock` is ``comptime { ... }``, global or as a statement."""

    body: Block


@dataclass(slots=True)
class LayoutBlock(Node):
    """A `LayoutBlock` is ``layout { ... }``, which places programs on the wafer."""

    body: Block


# ---- statements


@dataclass(slots=True)
class Block(Node):
    """A `Block` is statements in braces, ``{ ... }``."""

    body: list[Node]


@dataclass(slots=True)
class ExprStatement(Node):
    """An `ExprStatement` is an expression whose value is dropped."""

    value: Node


@dataclass(slots=True)
class Assign(Node):
    """An `Assign` is the statement ``target op value`` with `op` such as ``=`` or ``+=``."""

    target: Node
    op: str
    value: Node


@dataclass(slots=True)
class Return(Node):
    """A `Return` is the statement ``return value``, the value optional."""

    value: Node | None


@dataclass(slots=True)
class Break(Node):
    """A `Break` is the statement ``break :label value``, label and value optional."""

    label: str | None
    value: Node | None


@dataclass(slots=True)
class Continue(Node):
    """A `Continue` is the statement ``continue :label``, the label optional."""

    label: str | None


@dataclass(slots=True)
class If(Node):
    """An `If` is an ``if`` used as a statement, its ``else`` optional."""

    condition: Node
    then: Node
    otherwise: Node | None


@dataclass(slots=True)
class For(Node):
    """A `For` is the loop ``for (sequence) |item, index| body``."""

    sequence: Node
    item: str
    index: str | None
    body: Node
    inline: bool = False


@dataclass(slots=True)
class While(Node):
    """A `While` is the loop ``while (condition) : (step) body``, the step optional."""

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
    """A `Switch` is a ``switch``, used as a statement or as a value."""

    subject: Node
    cases: list[Case]


@dataclass(slots=True)
class Labelled(Node):
    """A `Labelled` is a block or loop behind a ``label:``."""

    label: str
    body: Node


# ---- expressions


@dataclass(slots=True)
class Name(Node):
    """A `Name` is an identifier used as an expression."""

    name: str


@dataclass(slots=True)
class Int(Node):
    """An `Int` is an integer literal or a character, which keeps its form in `text`."""

    value: int
    text: str = field(default="", compare=False)


@dataclass(slots=True)
class Float(Node):
    """A `Float` is a number literal with a point or an exponent."""

    value: float


@dataclass(slots=True)
class String(Node):
    """A string; characters stand for bytes."""

    value: str


@dataclass(slots=True)
class Unary(Node):
    """A `Unary` is ``-x``, ``!x``, ``~x`` or ``&x``."""

    op: str
    value: Node


@dataclass(slots=True)
class Binary(Node):
    """A `Binary` is an operator between two operands; ``and`` and ``or`` are among them."""

    op: str
    left: Node
    right: Node


@dataclass(slots=True)
class Comptime(Node):
    """A `Comptime` is the expression ``comptime x``, to be evaluated at compile time."""

    value: Node


@dataclass(slots=True)
class IfExpr(Node):
    """An `IfExpr` is an ``if`` used as a value."""

    condition: Node
    then: Node
    otherwise: Node | None


@dataclass(slots=True)
class BlockExpr(Node):
    """A `BlockExpr` is a block used as a value, left by a ``break`` that gives it."""

    label: str | None
    body: Block


@dataclass(slots=True)
class Access(Node):
    """An `Access` is a tensor access expression, ``|i, j|{M, N} -> base[e1, e2]``."""

    names: list[str]
    extents: list[Node]
    base: Node
    subscripts: list[Node]


@dataclass(slots=True)
class Field(Node):
    """A `Field` is ``base.name``: a field, or a name of a module or enumeration."""

    base: Node
    name: str


@dataclass(slots=True)
class Deref(Node):
    """A `Deref` is ``base.*``: what a pointer points to."""

    base: Node


@dataclass(slots=True)
class Index(Node):
    """An `Index` is ``base[i, j]``: an element of an array."""

    base: Node
    subscripts: list[Node]


@dataclass(slots=True)
class Call(Node):
    """A `Call` is ``callee(arguments)``: a call of a function that is no builtin."""

    callee: Node
    arguments: list[Node]


@dataclass(slots=True)
class Builtin(Node):
    """``@name(arguments)``; the name carries its ``@``."""

    name: str
    arguments: list[Node]


@dataclass(slots=True)
class StructLiteral(Node):
    """A `StructLiteral` is an anonymous struct ``.{ .a = 1 }``; the empty ``.{}`` is one too."""

    fields: list[tuple[str, Node]]


@dataclass(slots=True)
class TupleLiteral(Node):
    """A `TupleLiteral` is an anonymous tuple such as ``.{ 1, 2 }``."""

    items: list[Node]


@dataclass(slots=True)
class Init(Node):
    """An `Init` is a literal of a named type: ``[3]i16{1, 2, 3}`` or ``T{ .a = 1 }``."""

    type: Node
    body: Node


@dataclass(slots=True)
class PointerType(Node):
    """A `PointerType` is written ``*T``, ``*const T``, ``[*]T`` or ``[*]const T``."""

    target: Node
    const: bool
    many: bool


@dataclass(slots=True)
class ArrayType(Node):
    """An `ArrayType` is written ``[M, N]T``, its sizes still expressions."""

    dims: list[Node]
    element: Node


@dataclass(slots=True)
class FnType(Node):
    """A `FnType` is written ``fn(i16)void`` or ``task()void``."""

    kind: str
    params: list[Node]
    result: Node


@dataclass(slots=True)
class StructType(Node):
    """A `StructType` is written ``struct { a: i16, }``, with `form` struct or union and `packing` extern, packed or
    None.
    """

    form: str
    packing: str | None
    fields: list[tuple[str, Node]]


@dataclass(slots=True)
class EnumType(Node):
    """An `EnumType` is written ``enum(u16) { A, B = 4 }``, the type of its numbers optional."""

    base: Node | None
    members: list[tuple[str, Node | None]]


@dataclass(slots=True)
class Asm(Node):
    """An `Asm` is inline assembly, which is parsed only to be refused."""

    text: str


def children(node: Node) -> list[Node]:
    """Return the nodes directly below a node, in the order of the source."""
    found: list[Node] = []
    for name in _parts(node.__class__):
        _collect(getattr(node, name), found)
    return found


_PARTS: dict[type, tuple[str, ...]] = {}
"""Each class of nodes has these fields in which nodes may be."""


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
