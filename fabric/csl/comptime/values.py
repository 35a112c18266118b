"""Values at compile time are known, and names stand for them.

An operand, the result of evaluating an expression, is one of three things, told apart by their class:

=============  ========================================================================================================
`Value`        known; `data` is an int, float, bool, str, `Type`, `Struct`, `Pointer`, a list (of an array), ...
`LaneValue`    known, but one per iteration of the loops of a layout that are evaluated all at once (`lanes`)
`tree.Expr`    not known: code that computes it at run time
=============  ========================================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fabric.csl.diagnostics import Source, Span
from fabric.csl.syntax import nodes as n
from fabric.csl.tree import Variable
from fabric.csl.types import (
    BOOL,
    COMPTIME_FLOAT,
    COMPTIME_INT,
    COMPTIME_STRING,
    COMPTIME_STRUCT,
    DIRECTION,
    MODULE,
    TYPE,
    VOID,
    ArrayType,
    EnumType,
    FloatType,
    FnType,
    IdType,
    IntType,
    PointerType,
    StructType,
    Type,
)

__all__ = [
    "DIRECTIONS",
    "EMPTY",
    "FALSE",
    "FAULTY",
    "NOTHING",
    "TRUE",
    "ComptimeVariable",
    "DsdValue",
    "FunctionValue",
    "Global",
    "Module",
    "Pointer",
    "Range",
    "Scope",
    "Struct",
    "TensorAccess",
    "Value",
    "blank",
    "boolean",
    "copied",
    "element",
    "frozen",
    "integer",
    "of_type",
    "record",
    "shown",
    "string",
    "struct_type",
]

DIRECTIONS = ("NORTH", "SOUTH", "EAST", "WEST", "RAMP")


class Value:
    """A `Value` is a known value of CSL with its type."""

    __slots__ = ("data", "type")

    def __init__(self, type: Type, data: Any) -> None:
        self.type = type
        self.data = data

    def __repr__(self) -> str:
        return f"Value({self.type}, {self.data!r})"


class Struct:
    """Fields of an anonymous struct in their order; a tuple has the names "0", "1" and so on.

    A field may be any operand: options of operations carry run-time values.
    """

    __slots__ = ("fields", "is_tuple", "parts")

    def __init__(self, fields: dict[str, Any], is_tuple: bool = False) -> None:
        self.fields = fields
        self.is_tuple = is_tuple
        self.parts = len(fields)
        """The struct has so many fields, those of structs inside included."""
        for value in fields.values():
            if value.__class__ is Value and value.data.__class__ is Struct:
                self.parts += value.data.parts


@dataclass(frozen=True, slots=True)
class Range:
    """``@range(T, start, stop, step)``; parts are operands."""

    start: Any
    stop: Any
    step: Any


@dataclass(eq=False, slots=True)
class ComptimeVariable:
    """A variable that lives at compile time; `level` is the depth of lanes at which it was made."""

    type: Type | None
    value: Any
    const: bool
    name: str
    level: int = 0


@dataclass(frozen=True, slots=True)
class Pointer:
    """A `Pointer` is an address known up to the place of the variable: element `offset` of a variable or cell, or all
    of it (None).
    """

    target: Variable | ComptimeVariable
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class TensorAccess:
    """A `TensorAccess` is ``|i, j|{M, N} -> a[...]`` in normal form: element offset, and per induction variable extent
    and stride.

    `base` is an operand of pointer type, or None in a void access.
    """

    base: Any
    offset: Any
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    element: Type | None = None


@dataclass(frozen=True, slots=True)
class DsdValue:
    """A `DsdValue` is a descriptor as the program wrote it: fields by name, each an operand or a `TensorAccess`, and
    edits in order.
    """

    kind: str
    fields: dict[str, Any]
    span: Span
    edits: tuple[tuple[str, tuple[Any, ...]], ...] = ()


@dataclass(eq=False, slots=True)
class Module:
    """A `Module` is an instance of a file: its globals and the values bound to its params."""

    source: Source
    tree: n.File
    name: str
    bindings: dict[str, Any]
    globals: dict[str, Global] = field(default_factory=dict)
    scope: Scope | None = None
    builtin: bool = False
    chain: tuple[str, ...] = ()
    """These are the files that import each other down to this one."""
    site: Span | None = None
    """The module is imported at this place; None if the compiler takes it by itself."""

    def path_of(self, name: str) -> str:
        """Return the symbol of a global of this module."""
        return f"{self.name}.{name}" if self.name else name


@dataclass(eq=False, slots=True)
class Global:
    """A `Global` is a global name of a module, evaluated when it is first needed.

    `state` is ``new``, ``busy``, ``done``, ``faulty``, or ``old`` if it is from an earlier program; `value` is an
    operand, `variable` its memory if it has any, which is its `own` if it is a ``var``.  `needs` is what it was made
    of; it is `lasting` if making it does nothing else; `bound` is what a param was bound to.  It `changed` last, and
    was `held` to be as it was last, in these rounds of `fabric.csl.comptime.earlier`.
    """

    name: str
    decl: Any
    module: Module
    state: str = "new"
    value: Any = None
    variable: Variable | None = None
    type: Type | None = None
    own: bool = False
    needs: dict[Any, None] = field(default_factory=dict)
    lasting: bool = True
    bound: Any = None
    changed: int = 0
    held: int = 0


@dataclass(eq=False, slots=True)
class FunctionValue:
    """A `FunctionValue` is a function or task as a value: a declaration in an instance of a module."""

    decl: n.FnDecl
    module: Module
    type: FnType | None = None

    @property
    def name(self) -> str:
        """The function has this symbol, which is unique in the program."""
        return self.module.path_of(self.decl.name)


class Scope:
    """Names of a block; `parent` is the next scope outwards, `module` where it ends."""

    __slots__ = ("module", "names", "parent")

    def __init__(self, module: Module, parent: Scope | None = None) -> None:
        self.module = module
        self.parent = parent
        self.names: dict[str, Any] = {}

    def find(self, name: str) -> Any:
        """Return what a local name stands for, or None."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.names.get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None


TRUE, FALSE = Value(BOOL, True), Value(BOOL, False)
NOTHING = Value(VOID, None)
EMPTY = Value(COMPTIME_STRUCT, Struct({}))
FAULTY = object()
"""What a name stands for whose declaration was refused: what uses it is not reported again."""


def integer(number: int, type: Type = COMPTIME_INT) -> Value:
    """Return a known integer, a `comptime_int` unless a type is given."""
    return Value(type, number)


def boolean(truth: bool) -> Value:
    """Return a known bool, one of two shared values."""
    return TRUE if truth else FALSE


def string(text: str) -> Value:
    """Return a known `comptime_string`."""
    return Value(COMPTIME_STRING, text)


def of_type(type: Type) -> Value:
    """Return a type as a value."""
    return Value(TYPE, type)


def record(fields: dict[str, Any]) -> Value:
    """Return an anonymous struct."""
    return Value(COMPTIME_STRUCT, Struct(fields))


def element(array: Value, index: int) -> Value:
    """Return an element of an array by its place in row-major order."""
    assert isinstance(array.type, ArrayType)
    return Value(array.type.element, array.data[index])


def copied(value: Any) -> Any:
    """Return a value that shares no mutable data with another, as a variable must hold it."""
    if value.__class__ is Value:
        data = value.data
        if data.__class__ is list:
            return Value(value.type, list(data))
        if data.__class__ is Struct:
            fields = {name: copied(entry) for name, entry in data.fields.items()}
            return Value(value.type, Struct(fields, data.is_tuple))
    return value


def struct_type(value: Any) -> Type:
    """Return the type of an operand with anonymous structs spelled out, as `@type_of` compares them."""
    if value.__class__ is Value and value.data.__class__ is Struct and value.type == COMPTIME_STRUCT:
        return StructType(tuple((name, struct_type(entry)) for name, entry in value.data.fields.items()))
    return value.type


def frozen(value: Any) -> Any:
    """Return a hashable form of a value: equal for equal values, so programs of equal params are found."""
    if value.__class__ is not Value:
        return ("run-time", id(value))
    data = value.data
    if data.__class__ is Struct:
        return (value.type, data.is_tuple, tuple((name, frozen(entry)) for name, entry in data.fields.items()))
    if data.__class__ is list:
        return (value.type, tuple(frozen(e) if e.__class__ is Value else e for e in data))
    if data.__class__ is float:
        return (value.type, data.hex())
    if isinstance(data, (int, str, type(None), Type)):
        return (value.type, data)
    if isinstance(data, FunctionValue):
        return (value.type, id(data.decl), id(data.module))
    if isinstance(data, Pointer):
        return (value.type, id(data.target), data.offset)
    return (value.type, id(data))


def shown(value: Any) -> str:
    """Return a value as messages and `@comptime_print` show it."""
    if value.__class__ is not Value:
        return f"a run-time value of type {value.type}"
    data, kind = value.data, value.type
    if kind == VOID:
        return "{}"
    if data.__class__ is Struct:
        parts = [shown(v) if data.is_tuple else f".{k} = {shown(v)}" for k, v in data.fields.items()]
        return f".{{{', '.join(parts)}}}"
    if isinstance(kind, ArrayType):
        parts = [shown(e if e.__class__ is Value else Value(kind.element, e)) for e in data[:16]]
        return f"{kind}{{{', '.join(parts)}{', ...' if len(data) > 16 else ''}}}"
    if kind == DIRECTION:
        return DIRECTIONS[data]
    if kind == BOOL:
        return "true" if data else "false"
    if isinstance(kind, EnumType):
        return next((f"{kind}.{name}" for name, number in kind.members if number == data), str(data))
    if kind in (COMPTIME_INT, COMPTIME_FLOAT, COMPTIME_STRING, TYPE) or isinstance(data, (int, float)):
        return str(data)
    if isinstance(data, FunctionValue):
        return data.name
    if kind == MODULE:
        return f"module {data.source.name}"
    if isinstance(kind, PointerType):
        return f"&{data.target.name}{'' if data.offset is None else f'[{data.offset}]'}"
    return str(kind)


def blank(kind: Type) -> Value | None:
    """Return what a variable of some type holds before it is filled in piece by piece: zeros; None if it has no pieces.

    At compile time an array or struct without a value gets one element by element; a number without one has none.
    """
    if isinstance(kind, ArrayType):
        inner = _blank_data(kind.element)
        return None if inner is None else copied(Value(kind, [inner] * kind.count))
    if isinstance(kind, StructType) and kind.form == "struct":
        inner = _blank_data(kind)
        return None if inner is None else Value(kind, inner)
    return None


def _blank_data(kind: Type) -> Any:
    if isinstance(kind, FloatType):
        return 0.0
    if isinstance(kind, (IntType, EnumType, IdType)) or kind == DIRECTION:
        return 0
    if kind == BOOL:
        return False
    if isinstance(kind, StructType) and kind.form == "struct":
        fields = {name: blank(of) or _blank_value(of) for name, of in kind.fields}
        return None if None in fields.values() else Struct(fields)
    return None


def _blank_value(kind: Type) -> Value | None:
    data = _blank_data(kind)
    return None if data is None else Value(kind, data)
