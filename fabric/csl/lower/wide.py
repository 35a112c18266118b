"""Integers of 64 bits are two halves of 32 bits each, in pairs of registers or in four words of memory.

The machine has no carry that a program can read, so that a comparison finds it.  Products and quotients are functions
of the run-time library (``library/runtime.csl``), as those of 32 bits are.  How the vendor's compiler does it is not
public; cycles of 64-bit code are those of this one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fabric.csl import tree
from fabric.csl.comptime.values import Value
from fabric.csl.diagnostics import Fault
from fabric.csl.ir import BasicBlock, Operand, StaticMemory, Sym, Vreg
from fabric.csl.lower.constants import scalar_bits
from fabric.csl.lower.convert import Conversions
from fabric.csl.types import BOOL, BoolType, EnumType, FloatType, IntType, StructType, Type

__all__ = ["Halves", "WideNumbers", "is_wide"]

MASK = 0xFFFF_FFFF
I32, U32 = IntType(32, True), IntType(32, False)
BITWISE = {"&": "and32", "|": "or32", "^": "xor32"}
LONGEST = 64


def is_wide(kind: Type) -> bool:
    """Whether a number of a type takes two pairs of registers."""
    kind = kind.base if isinstance(kind, EnumType) else kind
    return isinstance(kind, IntType) and kind.bits == LONGEST


@dataclass(frozen=True)
class Halves:
    """A number of 64 bits; each half is a pair of registers or known."""

    low: Operand
    high: Operand

    @property
    def known(self) -> int | None:
        """The number is this if both halves are known, else None."""
        if isinstance(self.low, int) and isinstance(self.high, int):
            return self.low | self.high << 32
        return None


def _halves(bits: int) -> Halves:
    return Halves(bits & MASK, bits >> 32 & MASK)


class WideNumbers(Conversions):
    """`WideNumbers` writes arithmetic of 64-bit integers; a mix-in of `fabric.csl.lower.function.FunctionLowering`."""

    env: dict[int, Any]
    program: Any

    # ---- values

    def halves(self, expr: Any) -> Halves:
        """Return the value of an expression of 64 bits."""
        if isinstance(expr, Halves):
            return expr
        if isinstance(expr, (Value, tree.Const)):
            value = expr.value if isinstance(expr, tree.Const) else expr
            return _halves(scalar_bits(value, self.span))
        before, self.span = self.span, expr.span
        try:
            return self._wide(expr)
        finally:
            self.span = before

    def _wide(self, expr: Any) -> Halves:
        if isinstance(expr, tree.Load):
            return self.wide_load(expr.place)
        if isinstance(expr, tree.Unary):
            value = self.halves(expr.value)
            if expr.op == "~":
                return Halves(self.alu("xor32", value.low, MASK), self.alu("xor32", value.high, MASK))
            return self._difference(Halves(0, 0), value)
        if isinstance(expr, tree.Binary):
            return self.wide_binary(expr.op, expr.type, self.halves(expr.left), expr.right)
        if isinstance(expr, tree.Convert):
            return self._widened(expr)
        if isinstance(expr, tree.Select):
            result = self._registers()
            self._fork(
                lambda then, otherwise: self.condition(expr.condition, then, otherwise),
                lambda: self.wide_set(result, self.halves(expr.then)),
                lambda: self.wide_set(result, self.halves(expr.otherwise)),
            )
            return result
        if isinstance(expr, tree.BlockValue):
            result = self._registers()
            self.given(expr.block, result)
            return result
        if isinstance(expr, tree.Call):
            return self._from_memory(None, Sym(self.call(expr)))
        raise Fault(f"the back end does not take a {expr.type} here", expr.span, "numbers of at most 32 bits")

    def _registers(self) -> Halves:
        return Halves(self.new(2), self.new(2))

    def wide_copy(self, value: Halves, name: str = "") -> Halves:
        """Return new registers with a value."""
        return Halves(self.copied(value.low, 2, name), self.copied(value.high, 2, name))

    def wide_set(self, goal: Halves, value: Halves) -> None:
        """Give registers a value, which may lie in the same registers."""
        parts = [self.copied(part, 2) if isinstance(part, Vreg) else part for part in (value.low, value.high)]
        for register, part in zip((goal.low, goal.high), parts, strict=True):
            assert isinstance(register, Vreg)
            self.set(register, part)

    def wide_load(self, place: tree.Lvalue) -> Halves:
        """Return the number at a place."""
        if isinstance(place, tree.VariablePlace):
            where = self.env.get(id(place.variable))
            if isinstance(where, Halves):
                return where
        return self._from_memory(*self.address(place))

    def _from_memory(self, base: Vreg | None, offset: int | Sym) -> Halves:
        return Halves(self.load_at(base, offset, 2), self.load_at(base, offset + 2, 2))

    def wide_store_at(self, base: Vreg | None, offset: int | Sym, value: Halves) -> None:
        """Put a number at an address."""
        self.store_at(base, offset, value.low, 2)
        self.store_at(base, offset + 2, value.high, 2)

    def wide_assign(self, node: tree.Assign) -> None:
        """Write an assignment to a 64-bit place, with or without an operation."""
        place = node.place
        where = self.env.get(id(place.variable)) if isinstance(place, tree.VariablePlace) else None
        if isinstance(where, Halves):
            value = self._assigned(node, where) if node.op != "=" else self.halves(node.value)
            self.wide_set(where, value)
            return
        if node.op == "=":
            at = self.address(place)
            self.wide_store_at(*at, self.halves(node.value))
            return
        at = self.address(place)
        self.wide_store_at(*at, self._assigned(node, self._from_memory(*at)))

    def _assigned(self, node: tree.Assign, old: Halves) -> Halves:
        return self.wide_binary(node.op[:-1], node.place.type, old, node.value)

    # ---- operators

    def wide_binary(self, op: str, kind: Type, left: Halves, right: Any) -> Halves:
        """Return the result of an operator; `right` is an expression, for shifts of any type."""
        assert isinstance(kind, IntType)
        if op in ("<<", ">>"):
            count = self.halves(right).low if is_wide(right.type) else self.value(right)
            if is_wide(right.type) or right.type.words == 2:
                count = self.converted(count, U32, IntType(16, False))
            return self._shifted(op, kind.signed, left, count)
        other = self.halves(right)
        if op in BITWISE:
            return Halves(self._bits(op, left.low, other.low), self._bits(op, left.high, other.high))
        if op == "+":
            return self._sum(left, other)
        if op == "-":
            return self._difference(left, other)
        if op == "*":
            return self._product(left, other)
        if op in ("/", "%"):
            return self._divided(op, kind, left, other)
        raise Fault(f"the back end has no '{op}' of {kind}", self.span)

    def _bits(self, op: str, a: Operand, b: Operand) -> Operand:
        for one, other in ((a, b), (b, a)):
            if one == 0:
                return 0 if op == "&" else other
            if one == MASK and op != "^":
                return other if op == "&" else MASK
        return self.alu(BITWISE[op], a, b)

    def _sum(self, a: Halves, b: Halves) -> Halves:
        if b.low == 0:
            return Halves(a.low, self.alu("add32", a.high, b.high))
        low = self.alu("add32", a.low, b.low)
        high = self.alu("add32", a.high, b.high)
        return Halves(low, self._corrected("add32", high, low, b.low))

    def _difference(self, a: Halves, b: Halves) -> Halves:
        high = self.alu("sub32", a.high, b.high)
        if b.low == 0:
            return Halves(a.low, high)
        return Halves(self.alu("sub32", a.low, b.low), self._corrected("sub32", high, a.low, b.low))

    def _corrected(self, op: str, high: Vreg, a: Operand, b: Operand) -> Vreg:
        """Return the upper half after the carry: there is one if `a` is less than `b`."""
        carry, done = self.new_block(), self.new_block()
        self.branch("br32", "ltu", a, b, carry, done)
        self.place(carry)
        self.put(op, high, high, 1)
        self.place(done)
        return high

    def _product(self, a: Halves, b: Halves) -> Halves:
        low = self.alu("mul32", a.low, b.low)
        high = self.routine("product_high", (a.low, b.low))
        assert high is not None
        for x, y in ((a.low, b.high), (a.high, b.low)):
            if x != 0 and y != 0:
                high = self.alu("add32", self.alu("mul32", x, y), high)
        return Halves(low, high)

    def _shifted(self, op: str, signed: bool, a: Halves, count: Operand) -> Halves:
        near, far = (a.low, a.high) if op == "<<" else (a.high, a.low)
        along, back = ("sll32", "slr32") if op == "<<" else ("sar32" if signed else "slr32", "sll32")

        def made(new_near: Operand, new_far: Operand) -> Halves:
            return Halves(new_near, new_far) if op == "<<" else Halves(new_far, new_near)

        def emptied() -> Operand:
            return self.alu("sar32", near, 31) if along == "sar32" else 0

        if isinstance(count, int):
            if count == 0:
                return a
            if count >= 32:
                return made(emptied(), self.alu(along, near, count - 32) if count > 32 else near)
            over = self.alu("slr32" if op == "<<" else "sll32", near, 32 - count)
            kept = self.alu("sll32" if op == "<<" else "slr32", far, count)
            return made(self.alu(along, near, count), self.alu("or32", kept, over))
        new_near, new_far = self.new(2), self.new(2)

        def short() -> None:
            # What goes over is shifted by 32 - count, in two steps since that may be 32.
            over = self.alu(back, self.alu(back, near, 1), self.alu("sub16", 31, count))
            kept = self.alu("sll32" if op == "<<" else "slr32", far, count)
            self.put("or32", new_far, kept, over)
            self.put(along, new_near, near, count)

        def long() -> None:
            self.put(along, new_far, near, self.alu("sub16", count, 32))
            self.set(new_near, emptied())

        self._fork(lambda then, other: self.branch("br16", "ltu", count, 32, then, other), short, long)
        return made(new_near, new_far)

    def _divided(self, op: str, kind: IntType, a: Halves, b: Halves) -> Halves:
        power = b.known
        if power is not None and not kind.signed and power and power & power - 1 == 0:
            if op == "/":
                return self._shifted(">>", False, a, power.bit_length() - 1)
            rest = _halves(power - 1)
            return Halves(self._bits("&", a.low, rest.low), self._bits("&", a.high, rest.high))
        places = [self._kept(value) for value in (a, b)]
        self.routine(f"divide_{kind}", (Sym(places[0]), Sym(places[1])))
        return self._from_memory(None, Sym(places[0 if op == "/" else 1]))

    def _kept(self, value: Halves) -> StaticMemory:
        local = tree.Local("wide", IntType(LONGEST, False), True, self.span)
        memory: StaticMemory = self.program.frame(self.function, local)
        self.wide_store_at(None, Sym(memory), value)
        return memory

    def _fork(
        self,
        condition: Callable[[BasicBlock, BasicBlock], None],
        then: Callable[[], None],
        otherwise: Callable[[], None],
    ) -> None:
        """Write two ways that meet again."""
        first, second, done = self.new_block(), self.new_block(), self.new_block()
        condition(first, second)
        self.place(first)
        then()
        self.jump(done)
        self.place(second)
        otherwise()
        self.place(done)

    # ---- conditions

    def wide_compare(self, op: str, kind: Type, left: Any, right: Any, then: BasicBlock, otherwise: BasicBlock) -> None:
        """End the block with a choice by a comparison: the upper halves decide unless they are equal."""
        a, b = self.halves(left), self.halves(right)
        if op in (">", ">="):
            a, b = b, a
        equal = self.new_block()
        if op in ("==", "!="):
            yes, no = (then, otherwise) if op == "==" else (otherwise, then)
            self.branch("br32", "eq", a.high, b.high, equal, no)
            self.place(equal)
            self.branch("br32", "eq", a.low, b.low, yes, no)
            return
        kind = kind.base if isinstance(kind, EnumType) else kind
        less = "lt" if isinstance(kind, IntType) and kind.signed else "ltu"
        more = self.new_block()
        self.branch("br32", less, a.high, b.high, then, more)
        self.place(more)
        self.branch("br32", "eq", a.high, b.high, equal, otherwise)
        self.place(equal)
        self.branch("br32", "ltu" if op in ("<", ">") else "leu", a.low, b.low, then, otherwise)

    # ---- conversions

    def _widened(self, expr: tree.Convert) -> Halves:
        source = expr.value.type
        if isinstance(source, StructType):
            return self._from_memory(*self.address(expr.value))
        source = source.base if isinstance(source, EnumType) else source
        if is_wide(source):
            return self.halves(expr.value)
        value = self.value(expr.value)
        if isinstance(source, FloatType):
            return self._from_float(self.converted(value, source, FloatType("f32")), expr.type)
        signed = isinstance(source, IntType) and source.signed
        low = self.converted(
            value, IntType(16, False) if isinstance(source, BoolType) else source, I32 if signed else U32
        )
        if not signed:
            return Halves(low, 0)
        return Halves(low, self.alu("sar32", low, 31))

    def _from_float(self, value: Operand, target: Type) -> Halves:
        name = "i64" if isinstance(target, IntType) and target.signed else "u64"
        low, high = (self.routine(f"{name}_{half}", (value,)) for half in ("low", "high"))
        assert low is not None
        assert high is not None
        return Halves(low, high)

    def wide_narrowed(self, value: Halves, source: Type, target: Type) -> Operand:
        """Return a number of 64 bits as one of another type."""
        source, target = (kind.base if isinstance(kind, EnumType) else kind for kind in (source, target))
        if target == BOOL:
            return self.converted(self._bits("|", value.low, value.high), U32, BOOL)
        if isinstance(target, FloatType):
            name = "f32_of_i64" if isinstance(source, IntType) and source.signed else "f32_of_u64"
            made = self.routine(name, (value.low, value.high))
            assert made is not None
            return self.converted(made, FloatType("f32"), target)
        return self.converted(value.low, U32, target)

    # ---- loops

    def wide_range(
        self, node: tree.ForRange, index: Vreg | None, write: Callable[[Halves, BasicBlock, BasicBlock], None]
    ) -> None:
        """Write a counted loop; `write` gets the number, and the blocks where it goes on and ends.

        What is left between the number and the last one before the end is counted down by the size of the step.
        """
        kind, (stop, step) = node.item.type, (self._end_of(part) for part in (node.stop, node.step))
        assert isinstance(kind, IntType)
        item = self.wide_copy(self.halves(node.start), node.item.name)
        left, size = self._registers(), self.wide_copy(self._magnitude(node.step, step))
        rising, falling, top, more, again, done = (self.new_block() for _ in range(6))
        if isinstance(node.step, tree.Const):
            self.jump(falling if node.step.value.data < 0 else rising)
        elif kind.signed:
            self.branch("br32", "lt", step.high, 0, falling, rising)
        known = node.stop.value.data if isinstance(node.stop, tree.Const) else None
        for way, (a, b), beyond in ((rising, (item, stop), kind.high + 1), (falling, (stop, item), kind.low - 1)):
            self.place(way)
            if known is None or kind.holds(known):
                enough = self.new_block()
                self.wide_compare("<", kind, a, b, enough, done)
                self.place(enough)
            elif known != beyond:
                self.jump(done)
            self.wide_set(left, self._difference(self._difference(b, a), _halves(1)))
            self.jump(top)
        self.depth += 1
        self.place(top)
        write(item, again, done)
        self.place(again)
        self.wide_compare("<", IntType(LONGEST, False), left, size, done, more)
        self.place(more)
        self.wide_set(left, self._difference(left, size))
        self.wide_set(item, self._sum(item, step))
        if index is not None:
            self.put("add16", index, index, 1)
        self.jump(top)
        self.depth -= 1
        self.place(done)

    def _end_of(self, part: Any) -> Halves:
        """Return a stop or step in registers of its own, since the loop may change what it came from."""
        if isinstance(part, tree.Const):
            return _halves(int(part.value.data))
        return self.wide_copy(self.halves(part))

    def _magnitude(self, part: Any, step: Halves) -> Halves:
        """Return the size of a step without its sign."""
        if isinstance(part, tree.Const):
            return _halves(abs(int(part.value.data)))
        if not part.type.signed:
            return step
        size = self._registers()
        self._fork(
            lambda then, otherwise: self.branch("br32", "lt", step.high, 0, then, otherwise),
            lambda: self.wide_set(size, self._difference(_halves(0), step)),
            lambda: self.wide_set(size, step),
        )
        return size

    # ---- what other parts of the lowering have

    @abstractmethod
    def value(self, expr: Any) -> Operand:
        """Return a number of at most 32 bits."""

    @abstractmethod
    def condition(self, expr: Any, then: BasicBlock, otherwise: BasicBlock) -> None:
        """End the block with a choice by a condition."""

    @abstractmethod
    def routine(self, name: str, arguments: tuple[Operand, ...]) -> Operand | None:
        """Call a function of the run-time library."""

    @abstractmethod
    def given(self, block: tree.Block, result: Vreg | Halves) -> None:
        """Write a block whose value goes into registers."""

    @abstractmethod
    def call(self, expr: tree.Call) -> Any:
        """Call a function; the result is a number, or the memory of an array, struct or number of 64 bits."""

    @abstractmethod
    def address(self, place: Any) -> tuple[Vreg | None, int | Sym]:
        """Return where a place lies."""

    @abstractmethod
    def load_at(self, base: Vreg | None, offset: int | Sym, size: int) -> Vreg:
        """Return the number at an address."""

    @abstractmethod
    def store_at(self, base: Vreg | None, offset: int | Sym, value: Operand, size: int) -> None:
        """Put a number at an address."""
