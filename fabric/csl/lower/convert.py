"""Numbers are converted from type to type at run time."""

from __future__ import annotations

from fabric.csl.diagnostics import Fault
from fabric.csl.ir import Operand, Vreg
from fabric.csl.lower.builder import Builder
from fabric.csl.types import BOOL, BoolType, EnumType, FloatType, IdType, IntType, PointerType, Type

__all__ = ["Conversions"]

HIGH_BIT = 0x8000_0000
TWO_31 = 0x4F00_0000
"""These are the bits of 2^31 as f32."""


class Conversions(Builder):
    """`Conversions` writes what converts a number to another type; a mix-in of
    `fabric.csl.lower.function.FunctionLowering`.
    """

    def converted(self, value: Operand, source: Type, target: Type) -> Operand:
        """Return a value as a number of another type, as `@as` means it."""
        source, target = (kind.base if isinstance(kind, EnumType) else kind for kind in (source, target))
        if isinstance(source, (IdType, PointerType)):
            source = IntType(16, False)
        if isinstance(target, (IdType, PointerType)):
            target = IntType(16, False)
        if source == target:
            return value
        if target == BOOL:
            return self.as_bool(value, source)
        if isinstance(source, BoolType):
            source = IntType(16, False)
            if isinstance(target, IntType) and target.words == 1:
                return value
        if isinstance(source, IntType) and isinstance(target, IntType):
            return self._integer(value, source, target)
        if isinstance(source, IntType) and isinstance(target, FloatType):
            return self._to_float(value, source, target)
        if isinstance(source, FloatType) and isinstance(target, IntType):
            return self._to_integer(value, source, target)
        if isinstance(source, FloatType) and isinstance(target, FloatType):
            if source.bits == target.bits:
                return value
            return self.alu("fh2s" if source.bits == 16 else "fs2h", value)
        raise Fault(f"the back end has no conversion of {source} to {target}", self.span)

    def narrowed(self, value: Operand, kind: IntType) -> Operand:
        """Return a number cut to an integer type that does not fill its one or two words."""
        size = 16 * kind.words
        rest = size - kind.bits
        if not kind.signed:
            return self.alu(f"and{size}", value, (1 << kind.bits) - 1)
        return self.alu(f"sar{size}", self.alu(f"sll{size}", value, rest), rest)

    def _integer(self, value: Operand, source: IntType, target: IntType) -> Operand:
        if max(source.bits, target.bits) > 32:
            raise Fault(f"the back end has no conversion of {source} to {target}", self.span)
        if target.words == 2 and source.words == 1:
            value = self.alu("sx32" if source.signed else "zx32", value)
        elif target.words == 1 and source.words == 2:
            low = self.new(1)
            self.put("low", low, self.reg(value, 2))
            value = low
        holds = target.low <= source.low and source.high <= target.high
        return self.narrowed(value, target) if target.bits % 16 and not holds else value

    def _to_float(self, value: Operand, source: IntType, target: FloatType) -> Operand:
        if source.words == 1 and source.signed:
            return self.alu("xp162fs" if target.bits == 32 else "xp162fh", value)
        if source.words == 1:
            made: Operand = self.alu("xp322fs", self.alu("zx32", value))
        elif source.signed:
            made = self.alu("xp322fs", value)
        else:
            made = self._from_u32(self.reg(value, 2))
        return made if target.bits == 32 else self.alu("fs2h", made)

    def _from_u32(self, value: Vreg) -> Vreg:
        """Numbers of 2^31 and more are halved, the lost bit kept at the bottom so that it rounds right."""
        done, big = self.new_block(), self.new_block()
        result = self.new(2)
        self.put("xp322fs", result, value)
        self.branch("br32", "le", 0, value, done, big)
        self.place(big)
        half = self.alu("or32", self.alu("slr32", value, 1), self.alu("and32", value, 1))
        there = self.alu("xp322fs", half)
        self.put("fadds", result, there, there)
        self.place(done)
        return result

    def _to_integer(self, value: Operand, source: FloatType, target: IntType) -> Operand:
        if target.words == 1 and target.signed:
            return self._fitted(self.alu("fs2xp16" if source.bits == 32 else "fh2xp16", value), target)
        wide = value if source.bits == 32 else self.alu("fh2s", value)
        if target.words == 1:
            low = self.new(1)
            self.put("low", low, self.alu("fs2xp32", wide))
            return self._fitted(low, target)
        made = self.alu("fs2xp32", wide) if target.signed else self._to_u32(self.reg(wide, 2))
        return self._fitted(made, target)

    def _fitted(self, value: Operand, target: IntType) -> Operand:
        return self.narrowed(value, target) if target.bits % 16 else value

    def _to_u32(self, value: Vreg) -> Vreg:
        done, big = self.new_block(), self.new_block()
        result = self.new(2)
        self.put("fs2xp32", result, value)
        self.branch("brs", "lt", value, TWO_31, done, big)
        self.place(big)
        less = self.alu("fs2xp32", self.alu("fsubs", value, TWO_31))
        self.put("xor32", result, less, HIGH_BIT)
        self.place(done)
        return result

    def as_bool(self, value: Operand, source: Type) -> Vreg:
        result, done, zero = self.new(1), self.new_block(), self.new_block()
        wide = source.words == 2
        row = ("brs" if wide else "brh") if isinstance(source, FloatType) else ("br32" if wide else "br16")
        self.put("const", result, 1)
        self.branch(row, "ne", value, 0, done, zero)
        self.place(zero)
        self.put("const", result, 0)
        self.place(done)
        return result
