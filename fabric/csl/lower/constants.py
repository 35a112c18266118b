"""Known values become the bits that memory and registers hold."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import numpy as np

from fabric.csl.comptime.numbers import bits_of
from fabric.csl.comptime.values import FunctionValue, Pointer, Struct, Value
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.ir import Sym
from fabric.csl.types import (
    ArrayType,
    BoolType,
    EnumType,
    FloatType,
    IdType,
    IntType,
    PointerType,
    StructType,
    Type,
    is_byte,
)

__all__ = ["element_of", "scalar_bits", "words_of", "words_of_type"]


def words_of_type(kind: Type, span: Span) -> int:
    """Return the size of a scalar in words, or refuse what registers cannot hold."""
    size = kind.words
    if size not in (1, 2) or isinstance(kind, (ArrayType, StructType)):
        raise Fault(f"the back end has no {kind}", span, "numbers of at most 32 bits")
    return size


def element_of(kind: Type) -> tuple[int, str]:
    """Return number and assembler type of the elements that a variable of a type takes in memory."""
    if isinstance(kind, ArrayType) and is_byte(kind.element):
        return kind.words or 0, "u16"
    if isinstance(kind, ArrayType):
        count, name = element_of(kind.element)
        return count * kind.count, name
    if isinstance(kind, IntType) and kind.bits in (16, 32):
        return 1, f"{'i' if kind.signed else 'u'}{kind.bits}"
    if isinstance(kind, FloatType):
        return 1, kind.name if kind.bits == 32 else "half"
    if isinstance(kind, IntType) and kind.bits < 16:
        return 1, "i16" if kind.signed else "u16"
    if isinstance(kind, EnumType):
        return element_of(kind.base)
    return max(1, kind.words or 1), "u16"


def scalar_bits(value: Value, span: Span) -> int:
    """Return the bits of a known number, extended to whole words."""
    kind, data = value.type, value.data
    if isinstance(kind, IntType):
        return int(data) & (1 << 16 * kind.words) - 1
    if isinstance(kind, FloatType):
        return bits_of(data, kind)
    if isinstance(kind, BoolType):
        return int(bool(data))
    if isinstance(kind, PointerType) and isinstance(data, int):
        return data & 0xFFFF
    if isinstance(kind, (IdType, EnumType)) and isinstance(data, int):
        return data & (1 << 16 * (kind.words or 1)) - 1
    raise Fault(f"a {kind} is no number at run time", span)


def words_of(value: Value, span: Span, address: Callable[[Any, Span], int | Sym]) -> tuple[np.ndarray, dict[int, Sym]]:
    """Return a known value as the words of memory, and which of them are addresses; `address` finds those."""
    found: list[int] = []
    relocations: dict[int, Sym] = {}
    kind = value.type
    if isinstance(kind, ArrayType) and isinstance(kind.element, (IntType, FloatType)) and not any(value.data):
        return np.zeros(kind.words or 0, np.uint16), relocations
    _collect(value, span, address, found, relocations)
    return np.array(found, np.uint16), relocations


def _collect(
    value: Value, span: Span, address: Callable[[Any, Span], int | Sym], found: list[int], relocations: dict[int, Sym]
) -> None:
    kind, data = value.type, value.data
    if isinstance(kind, ArrayType) and is_byte(kind.element):
        halves = [int(entry) & 0xFF for entry in data]
        found += [low | high << 8 for low, high in zip_longest(halves[::2], halves[1::2], fillvalue=0)]
        return
    if isinstance(kind, ArrayType):
        for entry in data:
            _collect(
                entry if entry.__class__ is Value else Value(kind.element, entry), span, address, found, relocations
            )
        return
    if isinstance(kind, StructType) and isinstance(data, Struct):
        begin = len(found)
        for name, part in kind.fields:
            if name in data.fields:  # a union has one of them
                entry = data.fields[name]
                if (part_of := kind.bits_of(name)) is not None:
                    at = begin + kind.offset(name)
                    found += [0] * (at + 1 - len(found))
                    bits = scalar_bits(entry if entry.__class__ is Value else Value(part, entry), span)
                    found[at] |= (bits & (1 << part_of[1]) - 1) << part_of[0]
                    continue
                found += [0] * (begin + kind.offset(name) - len(found))
                _collect(entry if entry.__class__ is Value else Value(part, entry), span, address, found, relocations)
        found += [0] * (begin + (kind.words or 0) - len(found))
        return
    if isinstance(kind, PointerType) and isinstance(data, (Pointer, FunctionValue)):
        where = address(value, span)
        if isinstance(where, Sym):
            relocations[len(found)] = where
        found.append(where if isinstance(where, int) else 0)
        return
    bits = scalar_bits(value, span)
    found += [bits >> 16 * k & 0xFFFF for k in range(kind.words or 1)]
