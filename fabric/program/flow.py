"""Control flow consists of labels, branches, loops and conditions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np

from fabric.asm.operands import Label, Reg, is_number
from fabric.asm.unit import Unit
from fabric.program.blocks import Blocks
from fabric.program.operations import Operations
from fabric.program.registers import Registers
from fabric.program.scalar import Scalars
from wse_core import isa

__all__ = ["Flow"]

INVERSE = {
    "eq": "ne",
    "ne": "eq",
    "lt": "ge",
    "ge": "lt",
    "le": "gt",
    "gt": "le",
    "ltu": "geu",
    "geu": "ltu",
    "leu": "gtu",
    "gtu": "leu",
}
"""The condition that holds when another does not (of integers: NaN has no opposite)."""
SWAPPED = {"gt": "lt", "ge": "le", "gtu": "ltu", "geu": "leu"}
"""The machine lacks these conditions: they are written with operands exchanged."""
Kind = Literal["16", "32", "h", "s"]
KINDS = {"16": ("br16", "i"), "32": ("br32", "l"), "h": ("brh", "h"), "s": ("brs", "s")}
"""Each kind of comparison has an instruction and an element type."""


class Flow:
    """A `Flow` writes the control flow of one program."""

    def __init__(
        self, unit: Unit, registers: Registers, blocks: Blocks, operations: Operations, scalars: Scalars
    ) -> None:
        self.unit, self.registers, self.blocks = unit, registers, blocks
        self.operations, self.scalars = operations, scalars

    def new_label(self, name: str | None = None) -> Label:
        """Return a label to be put somewhere later by `place`."""
        return self.unit.new_label(name)

    def place(self, label: Label) -> Label:
        """Put a label here."""
        return self.unit.place_label(label)

    def label(self, name: str | None = None) -> Label:
        """Put a new label here and return it."""
        return self.place(self.new_label(name))

    def jump(self, target: Label | str) -> None:
        """Jump to a label (object or name, which may be placed later)."""
        self.unit.emit("jmp", imm=target)

    def branch(self, cond: str, a: Reg | float, b: Reg | float, target: Label | str, kind: Kind | None = None) -> None:
        """Jump to `target` if ``a cond b``.

        Parameters
        ----------
        cond : str
            ``eq ne lt le gt ge`` (signed, or floating point), ``ltu leu gtu geu`` (unsigned).
        a : Reg
        b : Reg or number
            A number other than 0 goes through a free register.
        target : Label or str
        kind : {"16", "32", "h", "s"}, optional
            Integers of 16 or 32 bits, 16-bit floats, f32; default: from the sizes of the registers, and float if `b`
            is a Python float.
        """
        op, letter = self._kind(kind, a, b)
        if cond not in INVERSE:
            raise self.unit.error(f"{op}: unknown condition {cond!r}", hint=" ".join(INVERSE))
        if letter in "hs" and cond.endswith("u"):
            raise self.unit.error(f"{op}: no unsigned comparison of floats", hint="eq ne lt le gt ge")
        held: list[Reg] = []
        if isinstance(b, (Reg,)) and cond in SWAPPED:
            a, b, cond = b, a, SWAPPED[cond]
        x = (
            self.unit.register_field(a, letter, op)
            if isinstance(a, Reg)
            else self.registers.hold(a, letter, isa.BY_NAME[op], held)
        )
        if isinstance(b, Reg):
            y = self.unit.register_field(b, letter, op)
        elif cond not in SWAPPED and is_number(b) and b == 0:
            y = 0
        else:
            y = self.registers.hold(b, letter, isa.BY_NAME[op], held)
        if cond in SWAPPED:
            x, y, cond = y, x, SWAPPED[cond]
        self.unit.emit(op, a=x, b=y, d=isa.CONDITIONS.index(cond), imm=target)
        self.registers.release(held)

    def br16(self, cond: str, a: Reg | float, b: Reg | float, target: Label | str) -> None:
        """Compare 16-bit integers and `branch`."""
        self.branch(cond, a, b, target, "16")

    def br32(self, cond: str, a: Reg | float, b: Reg | float, target: Label | str) -> None:
        """Compare 32-bit integers and `branch`."""
        self.branch(cond, a, b, target, "32")

    def brh(self, cond: str, a: Reg | float, b: Reg | float, target: Label | str) -> None:
        """Compare 16-bit floats and `branch`; quiet, false with NaN except ne."""
        self.branch(cond, a, b, target, "h")

    def brs(self, cond: str, a: Reg | float, b: Reg | float, target: Label | str) -> None:
        """Compare f32 numbers and `branch`; quiet, false with NaN except ne."""
        self.branch(cond, a, b, target, "s")

    def _kind(self, kind: str | None, a: Reg | float, b: Reg | float) -> tuple[str, str]:
        if kind is None:
            sizes = {x.size for x in (a, b) if isinstance(x, Reg)} - {0}
            wide = 2 in sizes
            floating = any(isinstance(x, (float, np.floating)) for x in (a, b))
            kind = ("s" if wide else "h") if floating else ("32" if wide else "16")
        if kind not in KINDS:
            raise self.unit.error(f"unknown kind of comparison {kind!r}", hint=", ".join(KINDS))
        return KINDS[kind]

    def _branch_unless(self, cond: str, a: Reg | float, b: Reg | float, target: Label, kind: Kind | None) -> None:
        """Jump to `target` unless ``a cond b``: exact also for NaN."""
        letter = self._kind(kind, a, b)[1]
        if cond not in INVERSE:
            raise self.unit.error(f"unknown condition {cond!r}", hint=" ".join(INVERSE))
        if letter in "il" or cond in ("eq", "ne"):
            self.branch(INVERSE[cond], a, b, target, kind)
            return
        body = self.new_label()
        self.branch(cond, a, b, body, kind)
        self.jump(target)
        self.place(body)

    @contextmanager
    def loop(self, count: int | Reg, index: bool = False, counter: Reg | None = None) -> Iterator[Reg]:
        """Repeat the body `count` times.

        Parameters
        ----------
        count : int or Reg
            A register is copied, and may be 0.
        index : bool
            Count up in a second register as well (one instruction more per turn).
        counter : Reg, optional
            16-bit register to count down in; default: a free one.

        Yields
        ------
        Reg
            With `index` the register that holds 0, 1, 2 ..., else the one that holds `count` .. 1.
        """
        with self.blocks.whole():
            down = counter or self.registers.take("loop", 1)
            up = self.registers.take("index", 1) if index else None
            end = None
            if isinstance(count, Reg):
                end = self.new_label()
                self.operations.emit("mov16", down, count)
                self.branch("eq", down, 0, end, "16")
            else:
                if not isinstance(count, (int, np.integer)) or not 0 <= count <= 0xFFFF:
                    raise self.unit.error(f"loop: {count!r} is not a number of turns in 0 .. {0xFFFF}")
                if count == 0:
                    end = self.new_label()
                    self.jump(end)
                self.scalars.ldi(down, int(count))
            if up is not None:
                self.scalars.ldi(up, 0)
            start = self.label()
            yield down if up is None else up
            if up is not None:
                self.operations.emit("add16", up, up, 1)
            self.operations.emit("sub16", down, down, 1)
            self.branch("ne", down, 0, start, "16")
            if end is not None:
                self.place(end)
            self.registers.release([reg for reg in (up, None if counter is not None else down) if reg is not None])

    @contextmanager
    def while_(self, cond: str, a: Reg | float, b: Reg | float, kind: Kind | None = None) -> Iterator[None]:
        """Repeat the body while ``a cond b`` holds; arguments as `branch`."""
        with self.blocks.whole():
            end = self.new_label()
            start = self.label()
            self._branch_unless(cond, a, b, end, kind)
            yield
            self.jump(start)
            self.place(end)

    @contextmanager
    def if_(self, cond: str, a: Reg | float, b: Reg | float, kind: Kind | None = None) -> Iterator[None]:
        """Execute the body if ``a cond b`` holds; arguments as `branch`.  `else_` may follow."""
        with self.blocks.whole():
            end = self.new_label()
            self._branch_unless(cond, a, b, end, kind)
            yield
            self.place(end)
            self.blocks.last_if = end, self.unit.body

    @contextmanager
    def else_(self) -> Iterator[None]:
        """Execute the body if the condition of the `if_` right before did not hold."""
        with self.blocks.whole():
            skip, body = self.blocks.last_if or (None, None)
            if skip is None or body is not self.unit.body or skip.at != len(self.unit.instructions):
                raise self.unit.error("else_ without an if_ right before it")
            end = self.new_label()
            self.jump(end)
            skip.at = len(self.unit.instructions)
            yield
            self.place(end)
