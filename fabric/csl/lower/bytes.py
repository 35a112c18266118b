"""Bytes: arrays of u8 and i8 hold two per word, the first in the lower half; pointers to them reach either half.

The machine loads and stores words.  A pointer to a byte is the address of its word, with the highest bit set for the
upper half, so that pointers to words are pointers to their first byte as they are; turned by one bit to the left it is
the number of the byte in memory.  A byte whose place is known is cut out of its word, any other is loaded and stored by
a routine of the run-time library.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from fabric.csl import tree
from fabric.csl.ir import Operand, Sym, Vreg, signed
from fabric.csl.lower.wide import WideNumbers
from fabric.csl.types import ArrayType, PointerType, Type, is_byte, leads_to_bytes

__all__ = ["UPPER", "Bytes", "is_byte_place"]

UPPER = 0x8000
"""This bit is set in a pointer to the upper half of a word."""
Known = tuple[int | Sym, tuple[int, int]]


def is_byte_place(place: Any) -> bool:
    """Whether a place is a byte in an array or behind a pointer; one in a variable or struct has a word of its own."""
    if not is_byte(place.type):
        return False
    return isinstance(place, tree.Deref) or (isinstance(place, tree.Element) and leads_to_bytes(place.base.type))


class Bytes(WideNumbers):
    """`Bytes` loads and stores single bytes; a mix-in of `fabric.csl.lower.function.FunctionLowering`."""

    def byte_at(self, place: Any) -> tuple[Operand, Operand]:
        """Return where a byte lies: a pointer, and how many bytes behind it."""
        if isinstance(place, tree.Deref):
            return self.value(place.pointer), 0
        kind = place.base.type
        if isinstance(kind, PointerType):
            pointer = self.value(place.base)
            dims: tuple[int, ...] = (1,)
        else:
            assert isinstance(kind, ArrayType)
            pointer, dims = self.joined(*self.address(place.base)), kind.dims
        index: Operand = 0
        for size, subscript in zip(dims, place.subscripts, strict=True):
            here, more = self._subscript(subscript)
            here = self._plus(here, more & 0xFFFF) if more else here
            index = self._plus(self._times(index, size), here) if index != 0 else here
        return pointer, index

    def load_byte(self, at: tuple[Operand, Operand], kind: Type) -> Operand:
        """Return the byte at a place, extended to a word."""
        if (found := _known(*at)) is not None:
            offset, part = found
            return self.taken_out(self.load_at(None, offset, 1), *part, kind)
        made = self.routine(f"load_{kind}", at)
        assert made is not None
        return made

    def store_byte(self, at: tuple[Operand, Operand], value: Operand) -> None:
        """Put a byte into a place; the other half of its word stays."""
        if (found := _known(*at)) is not None:
            offset, part = found
            self.put_into(None, offset, part, value)
            return
        self.routine("store_byte", (*at, value))

    def byte_pointer(self, at: tuple[Operand, Operand]) -> Operand:
        """Return a pointer to a byte."""
        if (found := _known(*at)) is not None:
            offset, (first, _) = found
            return offset + (UPPER if first else 0)
        made = self.routine("byte_pointer", at)
        assert made is not None
        return made

    def converted_pointer(self, value: Operand, source: Type, target: Type) -> Operand:
        """Return a pointer as one of another type: to words it leads to the word that a byte is in."""
        if not leads_to_bytes(source) or leads_to_bytes(target):
            return value
        if isinstance(value, Sym):
            return Sym(value.memory, value.offset & (UPPER - 1))
        return value & (UPPER - 1) if isinstance(value, int) else self.alu("and16", value, UPPER - 1)

    def number_of_pointer(self, value: Operand, kind: Type) -> Operand:
        """Return the address in bytes that a pointer holds."""
        shifted = self.alu("sll16", value, 1)
        return self.alu("or16", shifted, self.alu("slr16", value, 15)) if leads_to_bytes(kind) else shifted

    def pointer_of_number(self, value: Operand, kind: Type) -> Operand:
        """Return a pointer with an address in bytes."""
        shifted = self.alu("slr16", value, 1)
        return self.alu("or16", shifted, self.alu("sll16", value, 15)) if leads_to_bytes(kind) else shifted

    # ---- what other parts of the lowering have

    @abstractmethod
    def joined(self, base: Vreg | None, offset: int | Sym) -> Operand:
        """Return an address as one number."""

    @abstractmethod
    def _subscript(self, expr: tree.Expr) -> tuple[Operand, int]:
        """Return a subscript as a value and a number that comes on top."""

    @abstractmethod
    def _plus(self, left: Operand, right: Operand) -> Operand:
        """Return the sum of two operands."""

    @abstractmethod
    def _times(self, value: Operand, factor: int) -> Operand:
        """Return an operand times a known factor."""

    @abstractmethod
    def taken_out(self, word: Operand, at: int, bits: int, kind: Type) -> Operand:
        """Return a field of some bits of a word."""

    @abstractmethod
    def put_into(self, base: Vreg | None, offset: int | Sym, part: tuple[int, int], value: Operand) -> None:
        """Store a field of some bits of a word; the others stay."""


def _known(pointer: Operand, index: Operand) -> Known | None:
    """Return word, and first bit and width, of a byte whose place is known."""
    if isinstance(pointer, Vreg) or not isinstance(index, int):
        return None
    offset = pointer.offset if isinstance(pointer, Sym) else pointer
    number = signed(index, 16) + bool(offset & UPPER)
    even = Sym(pointer.memory, offset & (UPPER - 1)) if isinstance(pointer, Sym) else offset & (UPPER - 1)
    return even + (number >> 1), (8 * (number & 1), 8)
