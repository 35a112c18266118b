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
    "FieldAccess",
    "File",
    "Float",
    "FnDecl",
    "FnType",
    "For",
    "FunctionParameter",
    "If",
    "IfExpr",
    "Index",
    "Init",
    "Int",
    "Labelled",
    "LayoutBlock",
    "Name",
    "ParamDecl",
    "PointerType",
    "Return",
    "String",
    "StructLiteral",
    "StructType",
    "Switch",
    "SyntaxNode",
    "TupleLiteral",
    "Unary",
    "VarDecl",
    "While",
    "children",
    "walk",
]


@dataclass(slots=True)
class SyntaxNode:
    """A `SyntaxNode` is anything of the syntax tree, with its place in the source."""

    span: Span = field(compare=False, repr=False, kw_only=True)


# ---- file and declarations


@dataclass(slots=True)
class File(SyntaxNode):
    """A `File` is a whole source: its declarations in order."""

    items: list[SyntaxNode]


@dataclass(slots=True)
class Attribute(SyntaxNode):
    """An `Attribute` is ``align(16)``, ``linksection("s")`` or ``linkname("n")`` of a declaration."""

    name: str
    value: SyntaxNode


@dataclass(slots=True)
class VarDecl(SyntaxNode):
    """A `VarDecl` declares a ``const`` or ``var``, global or local.  `imports` is filled when somebody asked."""

    kind: str
    name: str
    type: SyntaxNode | None
    value: SyntaxNode | None
    storage: str | None = None
    attributes: tuple[Attribute, ...] = ()
    comptime: bool = False
    imports: bool | None = field(default=None, compare=False, repr=False)

    @property
    def begins_with(self) -> SyntaxNode | None:
        """The value that the variable begins with; None if it has none, or is said to be ``undefined``."""
        return None if isinstance(self.value, Name) and self.value.name == "undefined" else self.value


@dataclass(slots=True)
class ParamDecl(SyntaxNode):
    """A `ParamDecl` declares a ``param`` of a module."""

    name: str
    type: SyntaxNode | None
    value: SyntaxNode | None
    attributes: tuple[Attribute, ...] = ()


@dataclass(slots=True)
class ColorDecl(SyntaxNode):
    """A `ColorDecl` is the declaration ``color name;`` of old programs."""

    name: str
    value: SyntaxNode | None


@dataclass(slots=True)
class FunctionParameter(SyntaxNode):
    """A `FunctionParameter` is one of a function; it has no name in ``extern`` declarations."""

    name: str | None
    type: SyntaxNode
    comptime: bool = False


@dataclass(slots=True)
class FnDecl(SyntaxNode):
    """``fn`` or ``task``; `body` is None for ``extern``.  `generic` is filled when somebody asked."""

    kind: str
    name: str
    params: list[FunctionParameter]
    result: SyntaxNode
    body: Block | None
    storage: str | None = None
    inline: str | None = None
    attributes: tuple[Attribute, ...] = ()
    generic: bool | None = field(default=None, compare=False, repr=False)


@dataclass(slots=True)
class ComptimeBlock(SyntaxNode):
    """A `ComptimeBlock` is ``comptime { ... }``, global or as a statement."""

    body: Block


@dataclass(slots=True)
class LayoutBlock(SyntaxNode):
    """A `LayoutBlock` is ``layout { ... }``, which places programs on the wafer."""

    body: Block


# ---- statements


@dataclass(slots=True)
class Block(SyntaxNode):
    """A `Block` is statements in braces, ``{ ... }``."""

    body: list[SyntaxNode]


@dataclass(slots=True)
class ExprStatement(SyntaxNode):
    """An `ExprStatement` is an expression whose value is dropped."""

    value: SyntaxNode


@dataclass(slots=True)
class Assign(SyntaxNode):
    """An `Assign` is the statement ``target op value`` with `op` such as ``=`` or ``+=``."""

    target: SyntaxNode
    op: str
    value: SyntaxNode


@dataclass(slots=True)
class Return(SyntaxNode):
    """A `Return` is the statement ``return value``, the value optional."""

    value: SyntaxNode | None


@dataclass(slots=True)
class Break(SyntaxNode):
    """A `Break` is the statement ``break :label value``, label and value optional."""

    label: str | None
    value: SyntaxNode | None


@dataclass(slots=True)
class Continue(SyntaxNode):
    """A `Continue` is the statement ``continue :label``, the label optional."""

    label: str | None


@dataclass(slots=True)
class If(SyntaxNode):
    """An `If` is an ``if`` used as a statement, its ``else`` optional."""

    condition: SyntaxNode
    then: SyntaxNode
    otherwise: SyntaxNode | None


@dataclass(slots=True)
class For(SyntaxNode):
    """A `For` is the loop ``for (sequence) |item, index| body``."""

    sequence: SyntaxNode
    item: str
    index: str | None
    body: SyntaxNode
    inline: bool = False


@dataclass(slots=True)
class While(SyntaxNode):
    """A `While` is the loop ``while (condition) : (step) body``, the step optional."""

    condition: SyntaxNode
    step: SyntaxNode | None
    body: SyntaxNode
    inline: bool = False


@dataclass(slots=True)
class Case(SyntaxNode):
    """A branch of a switch; `values` is None for ``else``."""

    values: list[SyntaxNode] | None
    body: SyntaxNode


@dataclass(slots=True)
class Switch(SyntaxNode):
    """A `Switch` is a ``switch``, used as a statement or as a value."""

    subject: SyntaxNode
    cases: list[Case]


@dataclass(slots=True)
class Labelled(SyntaxNode):
    """A `Labelled` is a block or loop behind a ``label:``."""

    label: str
    body: SyntaxNode


# ---- expressions


@dataclass(slots=True)
class Name(SyntaxNode):
    """A `Name` is an identifier used as an expression."""

    name: str


@dataclass(slots=True)
class Int(SyntaxNode):
    """An `Int` is an integer literal or a character, which keeps its form in `text`."""

    value: int
    text: str = field(default="", compare=False)


@dataclass(slots=True)
class Float(SyntaxNode):
    """A `Float` is a number literal with a point or an exponent."""

    value: float


@dataclass(slots=True)
class String(SyntaxNode):
    """A string; characters stand for bytes."""

    value: str


@dataclass(slots=True)
class Unary(SyntaxNode):
    """A `Unary` is ``-x``, ``!x``, ``~x`` or ``&x``."""

    op: str
    value: SyntaxNode


@dataclass(slots=True)
class Binary(SyntaxNode):
    """A `Binary` is an operator between two operands; ``and`` and ``or`` are among them."""

    op: str
    left: SyntaxNode
    right: SyntaxNode


@dataclass(slots=True)
class Comptime(SyntaxNode):
    """A `Comptime` is the expression ``comptime x``, to be evaluated at compile time."""

    value: SyntaxNode


@dataclass(slots=True)
class IfExpr(SyntaxNode):
    """An `IfExpr` is an ``if`` used as a value."""

    condition: SyntaxNode
    then: SyntaxNode
    otherwise: SyntaxNode | None


@dataclass(slots=True)
class BlockExpr(SyntaxNode):
    """A `BlockExpr` is a block used as a value, left by a ``break`` that gives it."""

    label: str | None
    body: Block


@dataclass(slots=True)
class Access(SyntaxNode):
    """An `Access` is a tensor access expression, ``|i, j|{M, N} -> base[e1, e2]``."""

    names: list[str]
    extents: list[SyntaxNode]
    base: SyntaxNode
    subscripts: list[SyntaxNode]


@dataclass(slots=True)
class FieldAccess(SyntaxNode):
    """A `FieldAccess` is ``base.name``: a field, or a name of a module or enumeration."""

    base: SyntaxNode
    name: str


@dataclass(slots=True)
class Deref(SyntaxNode):
    """A `Deref` is ``base.*``: what a pointer points to."""

    base: SyntaxNode


@dataclass(slots=True)
class Index(SyntaxNode):
    """An `Index` is ``base[i, j]``: an element of an array."""

    base: SyntaxNode
    subscripts: list[SyntaxNode]


@dataclass(slots=True)
class Call(SyntaxNode):
    """A `Call` is ``callee(arguments)``: a call of a function that is no builtin."""

    callee: SyntaxNode
    arguments: list[SyntaxNode]


@dataclass(slots=True)
class Builtin(SyntaxNode):
    """``@name(arguments)``; the name carries its ``@``."""

    name: str
    arguments: list[SyntaxNode]


@dataclass(slots=True)
class StructLiteral(SyntaxNode):
    """A `StructLiteral` is an anonymous struct ``.{ .a = 1 }``; the empty ``.{}`` is one too."""

    fields: list[tuple[str, SyntaxNode]]


@dataclass(slots=True)
class TupleLiteral(SyntaxNode):
    """A `TupleLiteral` is an anonymous tuple such as ``.{ 1, 2 }``."""

    items: list[SyntaxNode]


@dataclass(slots=True)
class Init(SyntaxNode):
    """An `Init` is a literal of a named type: ``[3]i16{1, 2, 3}`` or ``T{ .a = 1 }``."""

    type: SyntaxNode
    body: SyntaxNode


@dataclass(slots=True)
class PointerType(SyntaxNode):
    """A `PointerType` is written ``*T``, ``*const T``, ``[*]T`` or ``[*]const T``."""

    target: SyntaxNode
    const: bool
    many: bool


@dataclass(slots=True)
class ArrayType(SyntaxNode):
    """An `ArrayType` is written ``[M, N]T``, its sizes still expressions."""

    dims: list[SyntaxNode]
    element: SyntaxNode


@dataclass(slots=True)
class FnType(SyntaxNode):
    """A `FnType` is written ``fn(i16)void`` or ``task()void``."""

    kind: str
    params: list[SyntaxNode]
    result: SyntaxNode


@dataclass(slots=True)
class StructType(SyntaxNode):
    """A `StructType` is written ``struct { a: i16, }``, with `form` struct or union and `packing` extern, packed or
    None.
    """

    form: str
    packing: str | None
    fields: list[tuple[str, SyntaxNode]]


@dataclass(slots=True)
class EnumType(SyntaxNode):
    """An `EnumType` is written ``enum(u16) { A, B = 4 }``, the type of its numbers optional."""

    base: SyntaxNode | None
    members: list[tuple[str, SyntaxNode | None]]


@dataclass(slots=True)
class Asm(SyntaxNode):
    """An `Asm` is inline assembly, which is parsed only to be refused."""

    text: str


def children(node: SyntaxNode) -> list[SyntaxNode]:
    """Return the nodes directly below a node, in the order of the source."""
    found: list[SyntaxNode] = []
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


def _collect(value: Any, found: list[SyntaxNode]) -> None:
    if isinstance(value, SyntaxNode):
        found.append(value)
    elif value.__class__ is list or value.__class__ is tuple:
        for item in value:
            _collect(item, found)


def walk(node: SyntaxNode) -> list[SyntaxNode]:
    """Return a node and all below it."""
    found, todo = [], [node]
    while todo:
        found.append(here := todo.pop())
        todo += reversed(children(here))
    return found
