"""Expressions of the typed tree become operations of the intermediate form."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from fabric.csl import tree
from fabric.csl.comptime.values import FunctionValue, Pointer, Value
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.ir import BasicBlock, Operand, StaticMemory, Sym, Vreg, signed
from fabric.csl.lower.bytes import UPPER, Bytes, is_byte_place
from fabric.csl.lower.constants import scalar_bits, words_of_type
from fabric.csl.lower.wide import is_wide
from fabric.csl.types import ArrayType, EnumType, FloatType, IntType, PointerType, StructType, Type, is_byte

__all__ = ["LoweredValues", "acts", "part_of_word"]

COMPARISONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "lt", ">=": "le"}
SWAPPED = (">", ">=")
HALVES = ((0, 8), (8, 8))
"""The two bytes of a word have these first bits and widths."""
INTEGER = {"+": "add", "-": "sub", "*": "mul", "&": "and", "|": "or", "^": "xor"}
FLOAT = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}


class LoweredValues(Bytes):
    """`LoweredValues` writes what values and places need; a mix-in of `fabric.csl.lower.function.FunctionLowering`."""

    env: dict[int, Any]
    """Each local, by its identity, has a register, a `StaticMemory`, or a descriptor."""
    program: Any

    # ---- values

    def value(self, expr: Any) -> Operand:
        """Return a number: a register, or bits, or an address."""
        if isinstance(expr, Value):
            return self.known(expr, self.span)
        before, self.span = self.span, expr.span
        try:
            return getattr(self, f"_value_{expr.__class__.__name__}")(expr)
        finally:
            self.span = before

    def known(self, value: Value, span: Span) -> Operand:
        """Return a known value."""
        if isinstance(value.data, Pointer) or (
            isinstance(value.data, FunctionValue) and isinstance(value.type, PointerType)
        ):
            return self.program.address_of(value, span)
        if isinstance(value.data, FunctionValue):
            return self.program.task_id(value.data, span)
        return scalar_bits(value, span)

    def _value_Const(self, expr: tree.Const) -> Operand:
        return self.known(expr.value, expr.span)

    def _value_Load(self, expr: tree.Load) -> Operand:
        return self.load(expr.place)

    def _value_AddressOf(self, expr: tree.AddressOf) -> Operand:
        if is_byte_place(expr.place):
            return self.byte_pointer(self.byte_at(expr.place))
        part = part_of_word(expr.place)
        if part is not None and (part not in HALVES or not is_byte(expr.place.type)):
            raise Fault("a field that shares its word with others has no address", expr.span)
        where = self.joined(*self.address(expr.place))
        if part != HALVES[1]:
            return where
        return self.alu("or16", where, UPPER) if isinstance(where, Vreg) else where + UPPER

    def _value_Unary(self, expr: tree.Unary) -> Operand:
        if expr.op == "!":
            return self.alu("xor16", self.value(expr.value), 1)
        value, kind = self.value(expr.value), expr.type
        wide = words_of_type(kind, expr.span) == 2
        if isinstance(kind, FloatType):
            return self.alu("fnegs" if wide else "fnegh", value)
        if expr.op == "~":
            return self._wrapped(
                self.alu("xor32", value, 0xFFFFFFFF) if wide else self.alu("xor16", value, 0xFFFF), kind
            )
        return self._wrapped(self.alu("sub32" if wide else "sub16", 0, value), kind)

    def _wrapped(self, value: Operand, kind: Type) -> Operand:
        """Return a result cut to an integer type that does not fill its words."""
        kind = kind.base if isinstance(kind, EnumType) else kind
        return self.narrowed(value, kind) if isinstance(kind, IntType) and kind.bits % 16 else value

    def _value_Binary(self, expr: tree.Binary) -> Operand:
        if expr.op in COMPARISONS or expr.op in ("and", "or"):
            return self._as_number(expr)
        if is_wide(expr.right.type):  # a count of 64 bits
            left = self.value(expr.left)
            return self.binary(expr.op, expr.type, left, self.halves(expr.right).low, IntType(32, False))
        left, right = self.value(expr.left), self.value(expr.right)
        return self.binary(expr.op, expr.type, left, right, expr.right.type)

    def binary(self, op: str, kind: Type, left: Operand, right: Operand, count: Type) -> Operand:
        """Return the result of an operator; `count` is the type of the right side, for shifts."""
        size = "32" if words_of_type(kind, self.span) == 2 else "16"
        if isinstance(kind, FloatType):
            if op == "%":
                raise Fault("the machine has no remainder of floats", self.span)
            return self.alu(FLOAT[op] + ("s" if size == "32" else "h"), left, right)
        if op in ("<<", ">>"):
            if count.words == 2:
                right = self.converted(right, IntType(32, False), IntType(16, False))
            signed = isinstance(kind, IntType) and kind.signed
            name = "sll" if op == "<<" else "sar" if signed else "slr"
            return self._wrapped(self.alu(name + size, left, right), kind)
        if op in ("/", "%"):
            return self._wrapped(self.divided(op, kind, left, right), kind)
        return self._wrapped(self.alu(INTEGER[op] + size, left, right), kind)

    def divided(self, op: str, kind: Type, left: Operand, right: Operand) -> Operand:
        """Return a quotient or remainder of integers."""
        assert isinstance(kind, IntType)
        wide = kind.words == 2
        bits, size = (32, "32") if wide else (16, "16")
        if isinstance(right, int) and not kind.signed and right and right & right - 1 == 0:
            if op == "%":
                return self.alu("and" + size, left, right - 1)
            return self.alu("slr" + size, left, right.bit_length() - 1)
        if isinstance(right, int) and kind.signed and 0 < right < 1 << bits - 1 and right & right - 1 == 0:
            shift = right.bit_length() - 1
            if shift == 0:
                return left if op == "/" else 0
            # Towards zero: a negative number first grows by what a shift would lose.
            bias = self.alu("and" + size, self.alu("sar" + size, left, bits - 1), right - 1)
            sum_ = self.alu("add" + size, left, bias)
            if op == "/":
                return self.alu("sar" + size, sum_, shift)
            mask = ~(right - 1) & (1 << bits) - 1
            return self.alu("sub" + size, left, self.alu("and" + size, sum_, mask))
        name = f"{'quotient' if op == '/' else 'remainder'}_{'i' if kind.signed else 'u'}{bits}"
        result = self.routine(name, (left, right))
        assert result is not None
        return result

    def _value_Convert(self, expr: tree.Convert) -> Operand:
        if isinstance(expr.value.type, StructType):
            return self.load_at(*self.address(expr.value), words_of_type(expr.type, expr.span))
        if is_wide(expr.value.type):
            return self.wide_narrowed(self.halves(expr.value), expr.value.type, expr.type)
        value = self.value(expr.value)
        if expr.kind == "as":
            return self.converted(value, expr.value.type, expr.type)
        source, target = expr.value.type, expr.type
        if isinstance(source, PointerType) and isinstance(target, PointerType):
            return self.converted_pointer(value, source, target)
        if expr.kind == "bitcast" and isinstance(source, PointerType):
            return self.number_of_pointer(value, source)
        if expr.kind == "bitcast" and isinstance(target, PointerType):
            return self.pointer_of_number(value, target)
        if expr.kind == "bitcast" and isinstance(target, IntType) and target.bits % 16 and source != target:
            return self.narrowed(value, target)
        return value

    def _value_Select(self, expr: tree.Select) -> Operand:
        size = words_of_type(expr.type, expr.span)
        then, otherwise, done = self.new_block(), self.new_block(), self.new_block()
        result = self.new(size)
        self.condition(expr.condition, then, otherwise)
        self.place(then)
        self.set(result, self.value(expr.then))
        self.jump(done)
        self.place(otherwise)
        self.set(result, self.value(expr.otherwise))
        self.place(done)
        return result

    def _value_BlockValue(self, expr: tree.BlockValue) -> Operand:
        result = self.new(words_of_type(expr.type, expr.span))
        self.given(expr.block, result)
        return result

    def _value_Call(self, expr: tree.Call) -> Operand:
        result = self.call(expr)
        assert result is not None
        return result

    def _value_BuiltinCall(self, expr: tree.BuiltinCall) -> Operand:
        result = self.builtin(expr)
        if result is None:
            raise Fault(f"the back end does not take {expr.name} here", expr.span)
        return result

    @abstractmethod
    def copy_words(
        self, target: tuple[Vreg | None, int | Sym], source: tuple[Vreg | None, int | Sym], words: int
    ) -> None:
        """Copy words of memory."""

    @abstractmethod
    def spread(self, base: Vreg | None, offset: int | Sym, kind: Any, value: Operand) -> None:
        """Fill an array with one number."""

    @abstractmethod
    def fill(self, base: Vreg | None, offset: int | Sym, kind: Type, value: Any) -> None:
        """Store a number, an array or a struct at an address."""

    @abstractmethod
    def builtin(self, expr: tree.BuiltinCall) -> Operand | None:
        """Do what a builtin says."""

    # ---- conditions

    def _as_number(self, expr: tree.Expr) -> Vreg:
        result, done, zero = self.new(1), self.new_block(), self.new_block()
        self.put("const", result, 1)
        self.condition(expr, done, zero)
        self.place(zero)
        self.put("const", result, 0)
        self.place(done)
        return result

    def condition(self, expr: Any, then: BasicBlock, otherwise: BasicBlock) -> None:
        """End the block with a choice by a condition."""
        if isinstance(expr, tree.Unary) and expr.op == "!":
            self.condition(expr.value, otherwise, then)
        elif isinstance(expr, tree.Binary) and expr.op in ("and", "or"):
            rest = self.new_block()
            if expr.op == "and":
                self.condition(expr.left, rest, otherwise)
            else:
                self.condition(expr.left, then, rest)
            self.place(rest)
            self.condition(expr.right, then, otherwise)
        elif isinstance(expr, tree.Binary) and expr.op in COMPARISONS and is_wide(expr.left.type):
            self.wide_compare(expr.op, expr.left.type, expr.left, expr.right, then, otherwise)
        elif isinstance(expr, tree.Binary) and expr.op in COMPARISONS:
            left, right = self.value(expr.left), self.value(expr.right)
            self._compare(expr.op, expr.left.type, left, right, then, otherwise)
        else:
            value = self.value(expr)
            if isinstance(value, int):
                self.jump(then if value else otherwise)
            else:
                self.branch("br16", "ne", value, 0, then, otherwise)

    def _compare(
        self, op: str, kind: Type, left: Operand, right: Operand, then: BasicBlock, otherwise: BasicBlock
    ) -> None:
        wide = (kind.words or 1) == 2
        kind = kind.base if isinstance(kind, EnumType) else kind
        condition = COMPARISONS[op]
        if isinstance(kind, FloatType):
            row = "brs" if wide else "brh"
        else:
            row = "br32" if wide else "br16"
            if condition in ("lt", "le") and not (isinstance(kind, IntType) and kind.signed):
                condition += "u"
        if op in SWAPPED:
            left, right = right, left
        self.branch(row, condition, left, right, then, otherwise)

    # ---- places

    def joined(self, base: Vreg | None, offset: int | Sym) -> Operand:
        """Return an address as one number."""
        if base is None:
            return offset
        if isinstance(offset, int) and offset == 0:
            return base
        return self.alu("add16", base, offset)

    def address(self, place: Any) -> tuple[Vreg | None, int | Sym]:
        """Return where a place lies: a register to add, and a known part."""
        if isinstance(place, tree.VariablePlace):
            variable = place.variable
            if isinstance(variable, tree.Variable):
                return None, Sym(self.program.memory_of(variable))
            where = self.env.get(id(variable))
            if isinstance(where, StaticMemory):
                return None, Sym(where)
            raise Fault(f"'{variable.name}' has no address", place.span)
        if is_byte_place(place):
            raise Fault("a byte has no address of a word", place.span)
        if isinstance(place, tree.Deref):
            return self._split(self.value(place.pointer))
        if isinstance(place, tree.Element):
            return self._element(place)
        if isinstance(place, tree.Member):
            base = place.base.place if isinstance(place.base, tree.Load) else place.base
            reg, offset = self.address(base)
            kind: Any = base.type
            assert isinstance(kind, StructType)
            return reg, offset + kind.offset(place.name)
        if isinstance(place, tree.Load):
            return self.address(place.place)
        if isinstance(place, tree.Expr) and isinstance(place.type, (ArrayType, StructType)):
            memory = self.program.frame(self.function, tree.Local("value", place.type, True, place.span))
            self.fill(None, Sym(memory), place.type, place)
            return None, Sym(memory)
        raise Fault("this has no address", getattr(place, "span", self.span))

    @staticmethod
    def _split(value: Operand) -> tuple[Vreg | None, int | Sym]:
        return (value, 0) if isinstance(value, Vreg) else (None, value)

    def _element(self, place: tree.Element) -> tuple[Vreg | None, int | Sym]:
        kind = place.base.type
        if isinstance(kind, PointerType) and kind.many:
            base, offset = self._split(self.value(place.base))
            dims: tuple[int, ...] = (1,)
            element = kind.target
        else:
            assert isinstance(kind, ArrayType)
            base, offset = self.address(place.base)
            dims, element = kind.dims, kind.element
        index: Operand = 0
        known = 0
        words = element.words or 1
        if self.depth and len(dims) == 1 and (terms := linear_terms(place.subscripts[0])) is not None:
            return self._sum_of_terms(base, offset, terms, words)
        for size, subscript in zip(dims, place.subscripts, strict=True):
            here, more = self._subscript(subscript)
            if isinstance(here, int):
                here, more = 0, more + here
            known = known * size + more
            index = self._plus(self._times(index, size), here) if index != 0 else here
        index = self._times(index, words)
        offset = offset + signed(known * words & 0xFFFF, 16)
        if isinstance(index, int):
            return base, offset + signed(index, 16)
        assert isinstance(index, Vreg)
        return (index if base is None else self.alu("add16", base, index)), offset

    def _sum_of_terms(
        self, base: Vreg | None, offset: int | Sym, terms: list[tuple[Any, int]], words: int
    ) -> tuple[Vreg | None, int | Sym]:
        """Return an address as a sum in which what changes less often comes first, so that it can leave inner loops."""
        order = {ident: number for number, ident in enumerate(self.env)}

        def changes(term: tuple[Any, int]) -> int:
            """Return a number that is larger for what is declared in a loop further inside, or lies in memory."""
            nodes = list(tree.nodes(term[0]))
            locals_ = [node.variable for node in nodes if isinstance(node, tree.VariablePlace)]
            return max((order.get(id(variable), len(order)) for variable in locals_), default=0)

        for expr, factor in sorted(terms, key=changes):
            made = self._times(self.value(expr), factor * words & 0xFFFF)
            if isinstance(made, int):
                offset = offset + signed(made, 16)
            else:
                assert isinstance(made, Vreg)
                base = made if base is None else self.alu("add16", base, made)
        return base, offset

    def _subscript(self, expr: tree.Expr) -> tuple[Operand, int]:
        """Return a subscript as a value and a number that comes on top; addresses are modulo 2^16, and so are both."""
        kind = expr.type
        plain = isinstance(kind, IntType) and kind.bits in (16, 32)
        if isinstance(expr, tree.Binary) and expr.op in ("+", "-") and plain:
            left, right = expr.left, expr.right
            if isinstance(left, tree.Const) and expr.op == "+":
                left, right = right, left
            if isinstance(right, tree.Const):
                value, more = self._subscript(left)
                number = int(right.value.data)
                return value, more + number if expr.op == "+" else more - number
        value = self.halves(expr).low if is_wide(kind) else self.value(expr)
        if kind.words in (2, 4):
            value = self.converted(value, IntType(32, False), IntType(16, False))
        return value, 0

    def _times(self, value: Operand, factor: int) -> Operand:
        if factor == 1:
            return value
        if isinstance(value, int):
            return value * factor & 0xFFFF
        return self.alu("mul16", value, factor)

    def _plus(self, left: Operand, right: Operand) -> Operand:
        if isinstance(left, int) and isinstance(right, int):
            return left + right & 0xFFFF
        return self.alu("add16", left, right) if isinstance(left, Vreg) else self.alu("add16", right, left)

    def load(self, place: tree.Lvalue) -> Operand:
        """Return the number at a place."""
        if isinstance(place, tree.VariablePlace):
            where = self.env.get(id(place.variable))
            if isinstance(where, (Vreg, int, Sym)):
                return where
        if is_byte_place(place):
            return self.load_byte(self.byte_at(place), place.type)
        base, offset = self.address(place)
        if (part := part_of_word(place)) is not None:
            word = self.load_at(base, offset, 1)
            return self.taken_out(word, *part, place.type)
        word = self.load_at(base, offset, words_of_type(place.type, place.span))
        return self.taken_out(word, *HALVES[0], place.type) if is_byte(place.type) else word

    def taken_out(self, word: Operand, at: int, bits: int, kind: Type) -> Operand:
        """Return a field of some bits of a word."""
        if isinstance(kind, IntType) and kind.signed:
            return self.alu("sar16", self.alu("sll16", word, 16 - at - bits), 16 - bits)
        return self.alu("and16", self.alu("slr16", word, at) if at else word, (1 << bits) - 1)

    def put_into(self, base: Vreg | None, offset: int | Sym, part: tuple[int, int], value: Operand) -> None:
        """Store a field of some bits of a word; the others stay."""
        at, bits = part
        mask = (1 << bits) - 1 << at
        rest = self.alu("and16", self.load_at(base, offset, 1), ~mask & 0xFFFF)
        value = self.alu("and16", self.alu("sll16", value, at), mask)
        self.store_at(base, offset, self.alu("or16", rest, value), 1)

    def load_at(self, base: Vreg | None, offset: int | Sym, size: int) -> Vreg:
        """Return the number at an address."""
        dst = self.new(size)
        op = "peek" if self.program.by_address and size == 1 and isinstance(offset, int) else "load"
        self.put(op, dst, *(() if base is None else (base,)), data=offset)
        return dst

    def store(self, place: tree.Lvalue, value: Operand) -> None:
        """Put a number into a place."""
        size = words_of_type(place.type, place.span)
        if isinstance(place, tree.VariablePlace):
            where = self.env.get(id(place.variable))
            if isinstance(where, Vreg):
                self.set(where, value)
                return
        if is_byte_place(place):
            self.store_byte(self.byte_at(place), value)
            return
        base, offset = self.address(place)
        if (part := part_of_word(place)) is not None:
            self.put_into(base, offset, part, value)
            return
        self.store_at(base, offset, value, size)

    def store_at(self, base: Vreg | None, offset: int | Sym, value: Operand, size: int) -> None:
        """Put a number at an address."""
        op = "poke" if self.program.by_address and size == 1 and isinstance(offset, int) else "store"
        self.put(op, None, self.reg(value, size), *(() if base is None else (base,)), data=offset)


def acts(value: Any) -> bool:
    """Whether an expression may change what another one reads, so that the order of the two matters."""
    return any(
        isinstance(node, (tree.Call, tree.PointerCall, tree.BlockValue))
        or (isinstance(node, tree.BuiltinCall) and node.name.startswith("@"))
        for node in tree.nodes(value)
    )


def part_of_word(place: Any) -> tuple[int, int] | None:
    """Return first bit and width of a place that shares its word with others, else None."""
    if not isinstance(place, tree.Member):
        return None
    kind = place.base.type
    kind = kind.target if isinstance(kind, PointerType) else kind
    return kind.bits_of(place.name) if isinstance(kind, StructType) else None


def linear_terms(expr: Any) -> list[tuple[Any, int]] | None:
    """Return a subscript of 16 bits as products of expressions and numbers; None unless there are several."""
    found: list[tuple[Any, int]] = []
    stack = [(expr, 1)]
    while stack:
        here, factor = stack.pop()
        narrow = isinstance(here.type, IntType) and here.type.bits == 16
        if narrow and isinstance(here, tree.Binary) and here.op in ("+", "-"):
            stack += [(here.right, factor if here.op == "+" else -factor), (here.left, factor)]
        elif narrow and isinstance(here, tree.Binary) and here.op == "*" and isinstance(here.right, tree.Const):
            stack.append((here.left, factor * int(here.right.value.data)))
        else:
            found.append((here, factor))
    varying = [term for term in found if not isinstance(term[0], tree.Const)]
    if acts(expr):
        return None
    return (
        found if len(varying) > 1 and all(isinstance(e.type, IntType) and e.type.bits == 16 for e, _ in found) else None
    )
