"""Blocks of a program are written whole or not at all.

Each ``with`` of `Program` (task, function, loop, while_, if_, else_) stands inside `Blocks.whole`: an exception takes
back what the block added, to the unit and to what the parts of the program remember.  So a cell of a notebook with a
mistake in it can be corrected and run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fabric.asm.instruction import Body
from fabric.asm.mark import Mark
from fabric.asm.operands import Label
from fabric.asm.unit import Unit
from fabric.program.registers import Registers

__all__ = ["Blocks"]


class Blocks:
    """A `Blocks` has the blocks that one program has opened.

    Attributes
    ----------
    last_if : tuple or None
        Where the `if_` that was written last ends, and in which task or function; `else_` joins it.
    """

    def __init__(self, unit: Unit, registers: Registers) -> None:
        self.unit, self.registers = unit, registers
        self.last_if: tuple[Label, Body | None] | None = None

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Keep what the block adds to the program, unless it ends by an exception (Ctrl-C too)."""
        mark, registers, last_if = Mark(self.unit), self.registers.state(), self.last_if
        try:
            yield
        except BaseException:
            mark.undo()
            self.registers.restore(registers)
            self.last_if = last_if
            raise
