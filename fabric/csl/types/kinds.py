"""The types of CSL are values: equal if they are the same type.

`words` is the size of a value in memory in 16-bit words; None where a value exists at compile time only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

__all__ = [
    "BOOL",
    "COMPTIME_FLOAT",
    "COMPTIME_INT",
    "COMPTIME_STRING",
    "COMPTIME_STRUCT",
    "DIRECTION",
    "F32",
    "I16",
    "MODULE",
    "PREDEFINED",
    "TYPE",
    "U8",
    "U16",
    "U32",
    "VOID",
    "AnyType",
    "ArrayType",
    "BoolType",
    "ComptimeType",
    "DsdType",
    "DsrType",
    "EnumType",
    "FloatType",
    "FnType",
    "IdType",
    "IntType",
    "PointerType",
    "RangeType",
    "StructType",
    "Type",
    "VoidType",
    "is_byte",
    "leads_to_bytes",
    "named_type",
]

MAX_BITS = 16_777_215


@dataclass(frozen=True)
class Type:
    """A `Type` is the base of all types of CSL."""

    @property
    def words(self) -> int | None:
        """A value has this size in memory, in 16-bit words; None for what exists at compile time only."""
        return None

    @property
    def align(self) -> int:
        """Words of which its addresses are multiples: numbers of two words and more lie at even ones."""
        return 2 if (self.words or 1) > 1 else 1


@dataclass(frozen=True)
class IntType(Type):
    """An `IntType` is ``i16``, ``u32`` or an integer of another width."""

    bits: int
    signed: bool

    @property
    def low(self) -> int:
        """This is the smallest number of the type."""
        return -(1 << self.bits - 1) if self.signed else 0

    @property
    def high(self) -> int:
        """This is the largest number of the type."""
        return (1 << self.bits - self.signed) - 1

    def holds(self, value: int) -> bool:
        """Whether a number is a value of this type."""
        return self.low <= value <= self.high

    def wrap(self, value: int) -> int:
        """Return the value with the same low bits."""
        value &= (1 << self.bits) - 1
        return value - (1 << self.bits) if self.signed and value >> self.bits - 1 else value

    @property
    def words(self) -> int:
        return (self.bits + 15) // 16

    def __str__(self) -> str:
        return f"{'i' if self.signed else 'u'}{self.bits}"


def is_byte(kind: Type) -> bool:
    """Whether a type is ``u8`` or ``i8``, of which an array has two per word."""
    return isinstance(kind, IntType) and kind.bits == 8


@dataclass(frozen=True)
class FloatType(Type):
    """A `FloatType` is ``f16``, ``cb16``, ``bf16`` or ``f32``."""

    name: str

    @property
    def bits(self) -> int:
        """A number of the type has so many bits."""
        return 32 if self.name == "f32" else 16

    @property
    def words(self) -> int:
        return self.bits // 16

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class BoolType(Type):
    """The type ``bool`` takes a word in memory."""

    @property
    def words(self) -> int:
        return 1

    def __str__(self) -> str:
        return "bool"


@dataclass(frozen=True)
class VoidType(Type):
    """The type ``void`` has one value, written ``{}``."""

    @property
    def words(self) -> int:
        return 0

    def __str__(self) -> str:
        return "void"


@dataclass(frozen=True)
class ComptimeType(Type):
    """A `ComptimeType` exists at compile time only: unbounded integers, doubles, strings, types, structs, modules."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class AnyType(Type):
    """``anytype`` of a parameter stands for any type; the function has one instance per type."""

    def __str__(self) -> str:
        return "anytype"


@dataclass(frozen=True)
class IdType(Type):
    """An `IdType` is that of numbers of machine things that are no integers: colors, task ids, queues, directions."""

    name: str

    @property
    def words(self) -> int:
        return 1

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class DsdType(Type):
    """``mem1d_dsd`` and its kin; a value's size in memory is the back end's choice."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class DsrType(Type):
    """A `DsrType` is ``dsr_dest`` or its kin: the type of the DSRs of one file."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class RangeType(Type):
    """A `RangeType` is the type of what ``@range`` gives."""

    element: Type

    def __str__(self) -> str:
        return f"range of {self.element}"


@dataclass(frozen=True)
class ArrayType(Type):
    """An `ArrayType` is ``[M, N]T``, an array of known sizes."""

    dims: tuple[int, ...]
    element: Type

    @property
    def count(self) -> int:
        """The array has so many elements."""
        return prod(self.dims)

    @property
    def words(self) -> int | None:
        one = self.element.words
        if is_byte(self.element):
            return -(-self.count // 2)
        return None if one is None else one * self.count

    @property
    def align(self) -> int:
        return self.element.align

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.dims))}]{self.element}"


@dataclass(frozen=True)
class PointerType(Type):
    """A `PointerType` is ``*T``, ``*const T``, ``[*]T`` or ``[*]const T``."""

    target: Type
    const: bool = False
    many: bool = False

    @property
    def words(self) -> int:
        return 1

    def __str__(self) -> str:
        return f"{'[*]' if self.many else '*'}{'const ' if self.const else ''}{self.target}"


def leads_to_bytes(kind: Type) -> bool:
    """Whether a type is an array of bytes, or a pointer that may lead to either half of a word."""
    if isinstance(kind, PointerType):
        target = kind.target.element if isinstance(kind.target, ArrayType) else kind.target
        return is_byte(target) or target == ComptimeType("anyopaque")
    return isinstance(kind, ArrayType) and is_byte(kind.element)


@dataclass(frozen=True)
class FnType(Type):
    """A `FnType` is the type of a function or task: ``fn(i16)void``, ``task()void``."""

    kind: str
    params: tuple[Type, ...]
    result: Type

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(map(str, self.params))}){self.result}"


@dataclass(frozen=True)
class StructType(Type):
    """A `StructType` is a struct or union: anonymous if `name` is empty, else the same only if declared at the same
    place.
    """

    fields: tuple[tuple[str, Type], ...]
    name: str = ""
    form: str = "struct"
    packing: str | None = None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.fields, self.name, self.form, self.packing))

    # Kept, because a struct of structs asks each of its fields, and they theirs.

    @cached_property
    def words(self) -> int | None:
        if any(kind.words is None for _, kind in self.fields):
            return None
        if self.packing is not None:
            size = -(-max((at + size for at, size in self._packed().values()), default=0) // 16)
            return size if self.packing == "packed" else -(-size // self.align) * self.align
        ends = [self.offset(name) + (kind.words or 0) for name, kind in self.fields]
        return -(-max(ends, default=0) // self.align) * self.align

    @cached_property
    def align(self) -> int:
        if self.packing == "packed":
            return 2 if self.words == 2 else 1
        return max((kind.align for _, kind in self.fields), default=1)

    def offset(self, name: str) -> int:
        """Return the word at which a field begins: fields lie in order, each at a multiple of its alignment."""
        if self.packing is not None:
            return self._packed()[name][0] // 16
        words = 0
        for other, kind in self.fields:
            if self.form == "union":
                break
            words = -(-words // kind.align) * kind.align
            if other == name:
                break
            words += kind.words or 0
        return words

    def bits_of(self, name: str) -> tuple[int, int] | None:
        """Return first bit and width of a field that shares its word with others; None if it has words of its own."""
        if self.packing is None:
            return None
        at, size = self._packed()[name]
        return (at % 16, size) if size < 16 else None

    def _packed(self) -> dict[str, tuple[int, int]]:
        """Return first bit and width of each field of a packed or extern struct.

        In a packed one only what fits shares a word, in an extern one only bytes do, as in C.
        """
        found: dict[str, tuple[int, int]] = {}
        at = 0
        for name, kind in self.fields:
            if self.packing == "extern":
                size, step = (8, 8) if is_byte(kind) else (16 * (kind.words or 0), 16 * kind.align)
                at = -(-at // step) * step
                found[name] = (0 if self.form == "union" else at, size)
                at += size
                continue
            size = 1 if kind == BOOL else getattr(kind, "bits", 16 * (kind.words or 0))
            if at % 16 and at % 16 + size > 16:
                at = -(-at // 16) * 16
            found[name] = (0 if self.form == "union" else at, size)
            at += size
        return found

    def field(self, name: str) -> Type | None:
        """Return the type of a field, or None."""
        return next((kind for other, kind in self.fields if other == name), None)

    def __str__(self) -> str:
        if self.name:
            return self.name
        return f".{{{', '.join(f'.{name}: {kind}' for name, kind in self.fields)}}}"


@dataclass(frozen=True)
class EnumType(Type):
    """An `EnumType` is an enumeration, the same only if declared at the same place with the same members."""

    name: str
    base: IntType
    members: tuple[tuple[str, int], ...] = field(default=())

    @property
    def words(self) -> int:
        return self.base.words

    def __str__(self) -> str:
        return self.name


BOOL, VOID = BoolType(), VoidType()
U8, I16, U16, U32, F32 = IntType(8, False), IntType(16, True), IntType(16, False), IntType(32, False), FloatType("f32")
COMPTIME_INT, COMPTIME_FLOAT = ComptimeType("comptime_int"), ComptimeType("comptime_float")
COMPTIME_STRING, COMPTIME_STRUCT = ComptimeType("comptime_string"), ComptimeType("comptime_struct")
TYPE, MODULE = ComptimeType("type"), ComptimeType("imported_module")
DIRECTION = IdType("direction")

PREDEFINED: dict[str, Type] = {
    str(kind): kind
    for kind in (
        *(IntType(bits, signed) for bits in (8, 16, 32, 64) for signed in (True, False)),
        *map(FloatType, ("f16", "cb16", "bf16", "f32")),
        BOOL,
        VOID,
        COMPTIME_INT,
        COMPTIME_FLOAT,
        COMPTIME_STRING,
        COMPTIME_STRUCT,
        TYPE,
        MODULE,
        DIRECTION,
        AnyType(),
        *map(IdType, ("color", "data_task_id", "local_task_id", "control_task_id", "input_queue", "output_queue")),
        IdType("ut_id"),
        *map(DsdType, ("mem1d_dsd", "mem4d_dsd", "fabin_dsd", "fabout_dsd", "circbuf_dsd", "fifo_dsd")),
        *map(DsrType, ("dsr_dest", "dsr_src0", "dsr_src1", "dsr_fifo_dest", "dsr_fifo_src1", "xdsr", "sr")),
    )
}
PREDEFINED["anyopaque"] = ComptimeType("anyopaque")

WIDTH = re.compile(r"([iu])([1-9]\d*)$")


def named_type(name: str) -> Type | None:
    """Return the type that a name stands for everywhere, or None."""
    if found := PREDEFINED.get(name):
        return found
    if (match := WIDTH.match(name)) and int(match[2]) <= MAX_BITS:
        return IntType(int(match[2]), match[1] == "i")
    return None
