"""Puts operations into blocks of a function, with the place in the source of the moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fabric.csl.diagnostics import Fault, Span
from fabric.csl.ir import BasicBlock, Instr, IrFunction, Operand, Vreg
from wse_core import isa

__all__ = ["Builder"]

MOST_WRITTEN = 60_000
"""A function has at most so many instructions before any pass: several times what fits into a PE."""
INVERSE = {"eq": "ne", "ne": "eq"}


class Builder:
    """A `Builder` appends operations to one function of the intermediate form.

    Attributes
    ----------
    function : IrFunction
    block : BasicBlock
        Where operations go.
    span : Span
        The place that they get.
    depth : int
        Loops around it.
    """

    function: IrFunction
    block: BasicBlock
    span: Span
    depth = 0
    _blocks = 0
    _written = 0

    def begin(self, function: IrFunction) -> None:
        """Begin a function with its first block."""
        self.function, self.depth, self._blocks, self._written = function, 0, 0, 0
        self.span = function.span
        self.place(self.new_block())

    def new_block(self) -> BasicBlock:
        """Return a block to be placed later."""
        self._blocks += 1
        return BasicBlock(self._blocks)

    def place(self, block: BasicBlock) -> None:
        """Go on in a block; the one before falls through to it."""
        if self.function.blocks and not self.block.ended:
            self.jump(block)
        block.depth = self.depth
        self.function.blocks.append(block)
        self.block = block

    def put(self, op: str, dst: Vreg | None = None, *args: Any, data: Any = None) -> Vreg | None:
        """Append an operation; what follows a jump is never reached and is left out."""
        if not self.block.ended:
            self._written += 1
            if self._written > MOST_WRITTEN:
                what = f"'{self.function.name}' takes more than {MOST_WRITTEN:,} instructions"
                raise Fault(what, self.span, "a loop that is not inline, functions that are not written in place")
            self.block.code.append(Instr(op, dst, args, data, self.span))
        return dst

    def new(self, size: int, name: str = "") -> Vreg:
        """Return a new register."""
        return Vreg(size, name)

    def alu(self, op: str, *args: Operand) -> Vreg:
        """Append an operation of the op table with a new register for its result."""
        dst = self.new(isa.WORDS[isa.BY_NAME[op].types[0]])
        self.put(op, dst, *args)
        return dst

    def reg(self, value: Operand, size: int) -> Vreg:
        """Return a register that holds a value."""
        if isinstance(value, Vreg):
            return value
        dst = self.new(size)
        self.put("const", dst, value)
        return dst

    def copied(self, value: Operand, size: int, name: str = "") -> Vreg:
        """Return a new register with a value."""
        dst = self.new(size, name)
        self.set(dst, value)
        return dst

    def set(self, dst: Vreg, value: Operand) -> None:
        """Give a register a value."""
        self.put("copy" if isinstance(value, Vreg) else "const", dst, value)

    def jump(self, block: BasicBlock) -> None:
        """End the block with a jump."""
        self.put("jmp", data=block)

    def branch(self, row: str, condition: str, a: Operand, b: Operand, then: BasicBlock, otherwise: BasicBlock) -> None:
        """End the block with a choice."""
        self.put("br", None, a, b, data=(row, condition, then, otherwise))

    def select(self, which: Vreg, numbers: Sequence[int], write: Callable[[int], object]) -> None:
        """Write code for each of some numbers, by its place among them; the last is chosen without a comparison."""
        done = self.new_block()
        for place, number in enumerate(numbers):
            after = self.new_block()
            if place < len(numbers) - 1:
                here = self.new_block()
                self.branch("br16", "eq", which, number, here, after)
                self.place(here)
            write(place)
            self.jump(done)
            self.place(after)
        self.jump(done)
        self.place(done)
