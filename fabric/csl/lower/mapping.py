"""`@map` is a function in turns, with an operand of each kind that moves on by one element per turn.

The machine has a loop for it that costs nothing beside the function: a product of a matrix with 10 to 80 elements of x
takes n + 1 cycles per element (MATVEC), and its code does not grow with them.  A function that is a multiply-add of
DSRs is one instruction here that takes its multipliers from memory and is done as often as a register says.  Of other
functions as many turns as a loop may be unrolled to (`fabric.csl.rules`) are written one after the other, and more are
a loop with a counter; those that are no multiply-add have their elements loaded, an instruction each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Any

from fabric.csl import tree
from fabric.csl.diagnostics import Fault
from fabric.csl.ir import AutoDsr, ExplicitDsr, Operand, Vector, Vreg
from fabric.csl.ir.machine import MULTIPLIERS
from fabric.csl.lower.dsd import Descriptor, Fixed
from fabric.csl.lower.ranges import Ranges
from fabric.csl.rules import MAP_SETUP, UNROLLED
from fabric.csl.types import DsdType, DsrType, Type

__all__ = ["Mapping"]

FABRIC = ("fabin", "fabout")
MULTIPLY_ADDS = ("@fmach", "@fmacs", "@fmachs")
HELD = ("base", "extent", "stride")
"""These numbers of a DSR are kept in memory where `@map` walks over it."""


class Mapping(Ranges):
    """`Mapping` writes the loops of `@map`; a mix-in of `fabric.csl.lower.function.FunctionLowering`."""

    mapped = 0
    """The code that is being written stands in so many `@map`."""

    def map(self, expr: tree.BuiltinCall) -> None:
        """Write a `@map`; it ends when the first of its vectors does."""
        function, *operands = expr.arguments
        params = function.params
        has_result = len(operands) > len(params)
        kinds: list[Type] = [param.type for param in params] + ([function.result] if has_result else [])
        taken = _multiplier(function) if self.program.has_room_for_multipliers else None
        walks = [
            self._walk(value, kind.words or 1, k < len(params) and params[k] is taken)
            for k, (value, kind) in enumerate(zip(operands, kinds, strict=True))
        ]
        count = self._shortest([walk.turns for walk in walks if isinstance(walk, Walk)])
        if count == 0:
            return
        multiplies = any(isinstance(walk, Multipliers) for walk in walks)
        alone = multiplies and _works_on_dsrs(function)
        self.put("idle", None, data=MAP_SETUP - (alone and isinstance(count, int)))  # a counter takes one to set
        if not alone and isinstance(count, int) and count * (1 if multiplies else 3) <= UNROLLED:
            for turn in range(count):
                self._turn(function, walks, turn < count - 1)
        else:
            self._in_a_loop(function, walks, count)
        for walk in walks:
            if isinstance(walk, Walk):
                walk.end(self)

    def _in_a_loop(self, function: tree.Function, walks: list[Any], count: Operand) -> None:
        body, done = self.new_block(), self.new_block()
        left = self.copied(count, 1, "left")
        if isinstance(count, Vreg):
            self.branch("br16", "ne", left, 0, body, done)
        self.depth += 1
        self.place(body)
        self._turn(function, walks, True)
        self.put("sub16", left, left, 1)
        self.branch("br16", "ne", left, 0, body, done)
        self.depth -= 1
        self.place(done)

    def _turn(self, function: tree.Function, walks: list[Any], goes_on: bool) -> None:
        """Write a turn: elements, the function, its result; then go on to the next elements."""
        params = function.params
        arguments = [
            walk.taken(self, param.type.words or 1) if isinstance(walk, Walk) else walk
            for walk, param in zip(walks, params, strict=False)
        ]
        self.mapped += 1
        result = self.expand(function, arguments)
        self.mapped -= 1
        if len(walks) > len(params):
            target = walks[-1]
            assert result is not None
            size = function.result.words or 1
            if isinstance(target, Walk):
                target.given(self, self.reg(result, size), size)
            else:
                base, offset = self._split(target)
                self.store_at(base, offset, result, size)
        for walk in walks:
            if goes_on and isinstance(walk, Walk):
                walk.step(self)

    def _shortest(self, turns: list[Operand]) -> Operand:
        """Return the least of some lengths."""
        known = [turn for turn in turns if isinstance(turn, int)]
        others = [turn for turn in turns if not isinstance(turn, int)]
        if not others:
            return min(known)
        found = self.copied(min(known) if known else others.pop(0), 1, "turns")
        for turn in others:
            less, after = self.new_block(), self.new_block()
            self.branch("br16", "ltu", turn, found, less, after)
            self.place(less)
            self.set(found, turn)
            self.place(after)
        return found

    @abstractmethod
    def expand(self, function: tree.Function, arguments: list[Any]) -> Operand | None:
        """Write a function's body here."""

    @abstractmethod
    def explicit(self, value: Any) -> ExplicitDsr:
        """Return a DSR that the program names."""

    def _walk(self, value: Any, words: int, multiplies: bool) -> Any:
        """Return how an operand moves from turn to turn; a number stays as it is."""
        if isinstance(value.type, DsrType):
            return self._walk_dsr(self.explicit(value), words, multiplies)
        if not isinstance(value.type, DsdType):
            return self.value(value)
        dsd = self.descriptor(value)
        if self.program.rebinding.of(dsd) is not None:
            raise Fault("@map over a queue that gets another color while the program runs is not supported", self.span)
        if dsd.fixed.kind == "mem1d":
            return self._along(dsd, words, multiplies)
        if dsd.fixed.kind == "mem4d":
            return Grid(self, dsd, words)
        if dsd.fixed.kind in FABRIC:
            return Wavelets(dsd)
        raise Fault(f"@map over a {value.type} is not supported", self.span)

    def _along(self, dsd: Descriptor, words: int, multiplies: bool) -> Walk:
        if multiplies:
            dsr = AutoDsr("src1")
            dsr.thread = MULTIPLIERS
            self.load_dsr(dsr, dsd)
            return Multipliers(dsr, dsd.extent if dsd.extent is not None else 0)
        at = self.copied(dsd.base if dsd.base is not None else 0, 1, "at")
        stride = dsd.stride if dsd.stride is not None else 1
        return StridedMemory(dsd.extent if dsd.extent is not None else 0, at, self._times(stride, words))

    def _walk_dsr(self, dsr: ExplicitDsr, words: int, multiplies: bool) -> Walk:
        """Return how a DSR moves: one that saves its address, or that is of the fabric, by operations of one element;
        of any other the numbers lie in memory since it was loaded."""
        kind, saves = self.program.held_by(dsr, self.span)
        if kind == "mem1d_dsd" and not saves and (known := self.program.loaded_before(dsr, self.block)) is not None:
            return self._along(known, words, multiplies)
        numbers: dict[str, Any] = {n: self.load_at(None, self.program.held_number(dsr, n), 1) for n in HELD}
        if kind == "mem1d_dsd" and not saves:
            return self._along(Descriptor(Fixed("mem1d"), **numbers), words, multiplies)
        if kind == "mem1d_dsd" and multiplies:
            return Multipliers(dsr, numbers["extent"])
        if kind in ("mem1d_dsd", "fabin_dsd", "fabout_dsd"):
            self.put("dsr_len", None, self.reg(1, 1), data=dsr)
            return Stepped(dsr, numbers["extent"])
        raise Fault(f"@map over a DSR that holds a {kind} is not supported", self.span, "give it the DSD")


class Walk(ABC):
    """A `Walk` is an operand of `@map` that moves on by one element per turn; `turns` is its length."""

    turns: Operand
    size = 2
    """An element takes so many instructions, beside those that become constants where turns are unrolled."""

    @abstractmethod
    def taken(self, code: Mapping, size: int) -> Operand | AutoDsr | ExplicitDsr:
        """Write what reads an element; or return the DSR from which an operation does."""

    @abstractmethod
    def given(self, code: Mapping, value: Vreg, size: int) -> None:
        """Write what stores an element."""

    def step(self, code: Mapping) -> None:
        """Write what goes on to the next element."""
        return

    def end(self, code: Mapping) -> None:
        """Write what comes after the loop."""
        return


class StridedMemory(Walk):
    """Memory with one stride; `at` is the register with the address."""

    size = 1

    def __init__(self, turns: Operand, at: Vreg, stride: Operand) -> None:
        self.turns, self.at, self.stride = turns, at, stride

    def taken(self, code: Mapping, size: int) -> Operand:
        return code.load_at(self.at, 0, size)

    def given(self, code: Mapping, value: Vreg, size: int) -> None:
        code.store_at(self.at, 0, value, size)

    def step(self, code: Mapping) -> None:
        code.put("add16", self.at, self.at, self.stride)


class Grid(StridedMemory):
    """A `Grid` is memory with up to four strides: a counter for each dimension that has another one around it."""

    def __init__(self, code: Mapping, dsd: Descriptor, words: int) -> None:
        extents, strides = dsd.fixed.extents, dsd.fixed.strides
        turns = 1
        for extent in extents:
            turns *= extent
        super().__init__(turns, code.copied(dsd.base if dsd.base is not None else 0, 1, "at"), 0)
        inner = list(zip(extents, strides, strict=True))[::-1]
        self.size = 2 + 4 * (len(extents) - 1)
        self.stride = inner[0][1] * words & 0xFFFF
        self.rows = []
        """Each dimension but the outermost has an extent, a counter, and what the end of it adds to the address."""
        for (extent, stride), (_, outer) in pairwise(inner):
            back = (outer - extent * stride) * words & 0xFFFF
            self.rows.append((extent, code.copied(extent, 1, "row"), back))

    def step(self, code: Mapping) -> None:
        super().step(code)
        done = code.new_block()
        for extent, counter, back in self.rows:
            ended = code.new_block()
            code.put("sub16", counter, counter, 1)
            code.branch("br16", "eq", counter, 0, ended, done)
            code.place(ended)
            code.set(counter, extent)
            code.put("add16", self.at, self.at, back)
        code.jump(done)
        code.place(done)


class Multipliers(Walk):
    """A `Multipliers` is memory from which a multiply-add takes an element itself, by a DSR that then goes on."""

    def __init__(self, dsr: AutoDsr | ExplicitDsr, turns: Operand) -> None:
        self.dsr, self.turns = dsr, turns

    def taken(self, code: Mapping, size: int) -> AutoDsr | ExplicitDsr:
        return self.dsr

    def given(self, code: Mapping, value: Vreg, size: int) -> None:
        raise AssertionError("an argument gets no result")


class Wavelets(Walk):
    """A `Wavelets` is an operand of `@map` on the fabric: one wavelet comes or goes per turn."""

    def __init__(self, dsd: Descriptor) -> None:
        self.dsd = dsd
        self.turns = dsd.extent if dsd.extent is not None else 0

    def taken(self, code: Mapping, size: int) -> Operand:
        dsr = AutoDsr("src1")
        code.load_dsr(dsr, self.dsd.with_(extent=1))
        return _moved_in(code, dsr, size)

    def given(self, code: Mapping, value: Vreg, size: int) -> None:
        dsr = AutoDsr("dest")
        code.load_dsr(dsr, self.dsd.with_(extent=1))
        _moved_out(code, dsr, value, size)


class Stepped(Walk):
    """A `Stepped` is a DSR that goes on by itself: operations of one element until its length is set again."""

    def __init__(self, dsr: ExplicitDsr, turns: Operand) -> None:
        self.dsr, self.turns = dsr, turns

    def taken(self, code: Mapping, size: int) -> Operand:
        return _moved_in(code, self.dsr, size)

    def given(self, code: Mapping, value: Vreg, size: int) -> None:
        _moved_out(code, self.dsr, value, size)

    def end(self, code: Mapping) -> None:
        code.put("dsr_len", None, code.reg(self.turns, 1), data=self.dsr)


def _lone_multiply_add(function: tree.Function) -> tree.BuiltinCall | None:
    """Return the multiply-add that a function is, if it is nothing else."""
    body = function.body.body if function.body is not None else []
    call = body[0].value if len(body) == 1 and isinstance(body[0], tree.Evaluate) else None
    if not isinstance(call, tree.BuiltinCall) or call.name not in MULTIPLY_ADDS or "async" in call.options:
        return None
    return call


def _multiplier(function: tree.Function) -> tree.Local | None:
    """Return the parameter of a function that does nothing but a multiply-add, if that is its multiplier alone."""
    call = _lone_multiply_add(function)
    if call is None:
        return None
    *others, last = call.arguments
    used = [node.place.variable for node in tree.nodes(others) if _is_variable(node)]
    if not _is_variable(last) or last.place.variable not in function.params or last.place.variable in used:
        return None
    return None if last.place.variable.addressed else last.place.variable


def _works_on_dsrs(function: tree.Function) -> bool:
    """Whether a function that does nothing but a multiply-add loads no descriptors for it."""
    call = _lone_multiply_add(function)
    return call is not None and all(isinstance(operand.type, DsrType) for operand in call.arguments[:-1])


def _is_variable(node: Any) -> bool:
    return isinstance(node, tree.Load) and isinstance(node.place, tree.VariablePlace)


def _moved_in(code: Mapping, dsr: AutoDsr | ExplicitDsr, size: int) -> Vreg:
    dst: Vreg = code.new(size)
    code.put("vector", dst, data=Vector("mov32" if size == 2 else "mov16", ("dst", dsr)))
    return dst


def _moved_out(code: Mapping, dsr: AutoDsr | ExplicitDsr, value: Vreg, size: int) -> None:
    code.put("vector", None, value, data=Vector("mov32" if size == 2 else "mov16", (dsr, 0)))
