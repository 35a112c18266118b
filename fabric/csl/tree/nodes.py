"""The typed tree consists of these nodes: run-time code that was checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fabric.csl.diagnostics import Span
from fabric.csl.types import Type

__all__ = [
    "AddressOf",
    "Assign",
    "Binary",
    "Block",
    "BlockValue",
    "Break",
    "BuiltinCall",
    "Call",
    "Const",
    "Continue",
    "Convert",
    "Declare",
    "Deref",
    "Element",
    "Evaluate",
    "Expr",
    "ForArray",
    "ForRange",
    "Function",
    "If",
    "Load",
    "Local",
    "Lvalue",
    "Member",
    "PointerCall",
    "Return",
    "Select",
    "Statement",
    "Switch",
    "Unary",
    "Variable",
    "VariablePlace",
    "While",
]


@dataclass(eq=False, slots=True)
class Variable:
    """A `Variable` is a global in memory: a ``var``, or a ``const`` whose address is needed.

    `initial` is a value of `fabric.csl.comptime.values` or None; `name` is the symbol, with the constants that hold its
    modules in front (``mod.sub.x``).
    """

    name: str
    type: Type
    const: bool
    initial: Any
    span: Span
    align: int | None = None
    section: str | None = None
    exported: bool = False


@dataclass(eq=False, slots=True)
class Local:
    """A `Local` is a variable or a parameter of one function."""

    name: str
    type: Type
    const: bool
    span: Span
    addressed: bool = False


# ---- expressions: each has a type and is not known at compile time, except Const


@dataclass(eq=False, slots=True)
class Expr:
    """An `Expr` is a value of known type that is computed at run time."""

    type: Type
    span: Span


@dataclass(eq=False, slots=True)
class Const(Expr):
    """A value that is known: `value` is one of `fabric.csl.comptime.values`."""

    value: Any


@dataclass(eq=False, slots=True)
class Lvalue(Expr):
    """A `Lvalue` is something that has an address or a register."""

    @property
    def const(self) -> bool:
        """Whether it may not be stored to."""
        return False


@dataclass(eq=False, slots=True)
class VariablePlace(Lvalue):
    """A `VariablePlace` is a variable or local itself, as a place to load or store."""

    variable: Variable | Local

    @property
    def const(self) -> bool:
        return self.variable.const


@dataclass(eq=False, slots=True)
class Deref(Lvalue):
    """A `Deref` is the place that a pointer points to."""

    pointer: Expr

    @property
    def const(self) -> bool:
        return bool(getattr(self.pointer.type, "const", False))


@dataclass(eq=False, slots=True)
class Element(Lvalue):
    """An element: of an array (`base` is its place) or of what a many-pointer points to (`base` is the pointer)."""

    base: Expr
    subscripts: tuple[Expr, ...]

    @property
    def const(self) -> bool:
        if isinstance(self.base, Lvalue) and not getattr(self.base.type, "many", False):
            return self.base.const
        return bool(getattr(self.base.type, "const", False))


@dataclass(eq=False, slots=True)
class Member(Lvalue):
    """A `Member` is a field of a struct, as a place."""

    base: Expr
    name: str

    @property
    def const(self) -> bool:
        return isinstance(self.base, Lvalue) and self.base.const


@dataclass(eq=False, slots=True)
class Load(Expr):
    """A `Load` is the value that a place holds."""

    place: Lvalue


@dataclass(eq=False, slots=True)
class AddressOf(Expr):
    """An `AddressOf` is the address of a place as a value."""

    place: Lvalue


@dataclass(eq=False, slots=True)
class Unary(Expr):
    """A `Unary` is ``-``, ``!`` or ``~`` of a value."""

    op: str
    value: Expr


@dataclass(eq=False, slots=True)
class Binary(Expr):
    """An operator on two values of one type (the count of a shift has its own); ``and`` and ``or`` stop early."""

    op: str
    left: Expr
    right: Expr


@dataclass(eq=False, slots=True)
class Convert(Expr):
    """`kind`: ``as`` changes the number's form, ``bitcast`` the bits' meaning, ``pointer`` only the type."""

    kind: str
    value: Expr


@dataclass(eq=False, slots=True)
class Select(Expr):
    """A `Select` is an ``if`` used as a value."""

    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(eq=False, slots=True)
class Call(Expr):
    """A call of an instance of a function; `arguments` are those that exist at run time."""

    function: Function
    arguments: tuple[Expr, ...]


@dataclass(eq=False, slots=True)
class PointerCall(Expr):
    """A call through a pointer; `targets` are the functions that it may hold, with their numbers."""

    pointer: Expr
    arguments: tuple[Expr, ...]
    targets: list[tuple[int, Call]]


@dataclass(eq=False, slots=True)
class BlockValue(Expr):
    """A `BlockValue` is a labelled block that gives a value: that of the `Break` which leaves it."""

    block: Block


@dataclass(eq=False, slots=True)
class BuiltinCall(Expr):
    """A builtin that does something at run time; `arguments` are expressions, options a struct of values."""

    name: str
    arguments: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)


# ---- statements


@dataclass(eq=False, slots=True)
class Statement:
    """A `Statement` is something to be done at run time."""

    span: Span


@dataclass(eq=False, slots=True)
class Block(Statement):
    """Statements in order; `label` is what a ``break`` may name."""

    body: list[Statement]
    label: str | None = None


@dataclass(eq=False, slots=True)
class Declare(Statement):
    """A local begins; `value` is None if it is left undefined."""

    local: Local
    value: Expr | None


@dataclass(eq=False, slots=True)
class Assign(Statement):
    """A store; compound assignments keep their operator so that the place is computed once."""

    place: Lvalue
    op: str
    value: Expr


@dataclass(eq=False, slots=True)
class Evaluate(Statement):
    """An `Evaluate` computes an expression for its effect only."""

    value: Expr


@dataclass(eq=False, slots=True)
class If(Statement):
    """An `If` is a branch with a condition, its other side optional."""

    condition: Expr
    then: Block
    otherwise: Block | None


@dataclass(eq=False, slots=True)
class While(Statement):
    """A `While` is a loop with a condition and an optional continue step."""

    condition: Expr
    step: Statement | None
    body: Block
    label: str | None = None


@dataclass(eq=False, slots=True)
class ForRange(Statement):
    """A counted loop: `item` runs from start to stop (exclusive) by step."""

    item: Local
    index: Local | None
    start: Expr
    stop: Expr
    step: Expr
    body: Block
    label: str | None = None


@dataclass(eq=False, slots=True)
class ForArray(Statement):
    """A `ForArray` is a loop over the elements of an array."""

    item: Local
    index: Local | None
    array: Expr
    body: Block
    label: str | None = None


@dataclass(eq=False, slots=True)
class Switch(Statement):
    """A choice; each case has its constants, None for ``else``."""

    subject: Expr
    cases: list[tuple[tuple[Const, ...] | None, Block]]


@dataclass(eq=False, slots=True)
class Return(Statement):
    """A `Return` ends a function or task, with the value of its result."""

    value: Expr | None


@dataclass(eq=False, slots=True)
class Break(Statement):
    """A `Break` ends a loop or labelled block, with what the block gives."""

    label: str | None
    value: Expr | None = None


@dataclass(eq=False, slots=True)
class Continue(Statement):
    """A `Continue` goes on with the next round of a loop."""

    label: str | None


@dataclass(eq=False, slots=True)
class Function:
    """A `Function` is an instance of a function or task: one per module instance and set of comptime arguments.

    `body` is filled once the function was checked; `calls` are the functions that it calls, `sites` where.  `known`
    are the arguments that it is an instance for, `module` is the instance of the module that it belongs to.  `facts`
    are for stages that ask the same of a body in each program that has it.
    """

    name: str
    kind: str
    params: tuple[Local, ...]
    result: Type
    span: Span
    body: Block | None = None
    inline: str | None = None
    calls: list[Function] = field(default_factory=list)
    sites: list[Call] = field(default_factory=list)
    known: dict[str, Any] = field(default_factory=dict)
    module: Any = None
    facts: dict[str, Any] = field(default_factory=dict)

    def fact(self, name: str, find: Callable[[Function], Any]) -> Any:
        """Return what `find` says of the checked function; it is asked once."""
        if name not in self.facts:
            self.facts[name] = find(self)
        return self.facts[name]
