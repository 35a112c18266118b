"""Scalar instructions of special form are loads and stores, counters and generators, configuration of the router."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fabric.asm.operands import Address, Reg, Var, is_number
from fabric.asm.unit import Unit
from fabric.program.registers import Registers
from wse_core import image as im
from wse_core import isa

__all__ = ["Scalars"]

QUEUE_STATES = ("empty_inputs", "full_inputs", "empty_outputs", "full_outputs", "cut")
"""`Scalars.q_state` asks for one of these, in the order of its numbers."""


class Scalars:
    """A `Scalars` writes scalar instructions of special form into one program."""

    def __init__(self, unit: Unit, registers: Registers) -> None:
        self.unit, self.registers = unit, registers

    def nop(self) -> None:
        """Do nothing for a cycle."""
        self.unit.emit("nop")

    def ldi(self, dst: Reg, value: float | Var | Address) -> None:
        """Load a number, or the address of a variable, into a 16-bit register; a float is encoded in the half type."""
        letter = "h" if isinstance(value, (float, np.floating)) else "i"
        self.unit.emit(
            "ldi", a=self.unit.register_field(dst, "i", "ldi"), imm=self.unit.immediate(value, letter, "ldi")
        )

    def ldi32(self, dst: Reg, value: float) -> None:
        """Load a number into a register pair; a float is encoded as f32."""
        letter = "s" if isinstance(value, (float, np.floating)) else "l"
        self.unit.emit(
            "ldi32", a=self.unit.register_field(dst, "l", "ldi32"), imm=self.unit.immediate(value, letter, "ldi32")
        )

    def ld16(self, dst: Reg, base: Var | Address | Reg | int, offset: int = 0, index: Reg | None = None) -> None:
        """Load 16 bits into a register.

        Parameters
        ----------
        dst : Reg
        base : Var, Address, Reg or int
            Variable, ``var[i]``, a register with a word address, or a word address.
        offset : int
            Words to add.
        index : Reg, optional
            Register with words to add, when `base` is no register.
        """
        self._memory("ld16", dst, base, offset, index)

    def ld32(self, dst: Reg, base: Var | Address | Reg | int, offset: int = 0, index: Reg | None = None) -> None:
        """Load 32 bits into a register pair from an even address; see `ld16`."""
        self._memory("ld32", dst, base, offset, index)

    def st16(self, src: Reg, base: Var | Address | Reg | int, offset: int = 0, index: Reg | None = None) -> None:
        """Store a 16-bit register; see `ld16`."""
        self._memory("st16", src, base, offset, index)

    def st32(self, src: Reg, base: Var | Address | Reg | int, offset: int = 0, index: Reg | None = None) -> None:
        """Store a register pair to an even address; see `ld16`."""
        self._memory("st32", src, base, offset, index)

    def _memory(self, op: str, reg: Reg, base: Var | Address | Reg | int, offset: int, index: Reg | None) -> None:
        wide = op.endswith("32")
        a = self.unit.register_field(reg, "l" if wide else "i", op)
        if isinstance(base, Reg):
            if index is not None:
                raise self.unit.error(
                    f"{op}: base and index are both registers; one address register fits the instruction"
                )
            index, imm = base, self.unit.immediate(offset, "i", op)
        elif isinstance(base, (Var, Address)):
            base = Address(base) if isinstance(base, Var) else base
            if base.var.unit is not self.unit:
                raise self.unit.error(
                    f"{op}: the variable belongs to program {base.var.unit.name!r}", symbol=base.var.name
                )
            if base.words != 1 + wide:
                raise self.unit.error(
                    f"{op}: the variable has elements of type {base.var.dtype}",
                    symbol=base.var.name,
                    hint=f"{op[:2]}{16 * base.words}",
                )
            imm = base + offset
        else:
            imm = self.unit.immediate(base + offset if is_number(base) else base, "i", op)
        b = 0 if index is None else self.unit.register_field(index, "i", f"{op} address")
        self.unit.emit(op, a=a, b=b, imm=imm)

    def tsc(self, dst: Reg | Sequence[Reg]) -> None:
        """Read the 48-bit cycle counter into three consecutive registers, low first; `dst` from `regs` (3) or a Reg."""
        first = dst[0] if isinstance(dst, Sequence) else dst
        if isinstance(dst, Sequence) and [reg.id for reg in dst] != [first.id + k for k in range(3)]:
            raise self.unit.error("tsc: three consecutive registers needed", hint="p.regs(3)")
        if not isinstance(first, Reg) or first.id + 2 >= isa.N_REGS:
            raise self.unit.error(f"tsc: {first} and the two registers after it do not exist")
        self.unit.emit("tsc", a=isa.FILE_REG << 4 | first.id)

    def store_tsc(self, var: Var | Address | Reg) -> None:
        """Read the cycle counter and store it as three 16-bit words at `var` (u16, at least 3 elements).

        A register holds the address.

        The counter is sampled in the first cycle; the stores follow.
        """
        base = Address(var) if isinstance(var, Var) else var
        low = self.registers.regs(3, "tsc")
        self.tsc(low)
        for k, reg in enumerate(low):
            self.st16(reg, base, offset=k)
        self.registers.release_run(low[0], 3)

    def rand16(self, dst: Reg) -> None:
        """Draw 16 bits from the active random generator into a register."""
        self.unit.emit("rand16", a=self.unit.register_field(dst, "i", "rand16"))

    def prng(self, number: int) -> None:
        """Make random generator `number` (0 .. 3) the active one."""
        if number not in range(4):
            raise self.unit.error(f"prng: generator {number!r} does not exist", hint="0 .. 3")
        self.unit.emit("prng", a=number)

    def trap(self, code: int = 0) -> None:
        """Stop the machine with a ProgramFault that carries `code`."""
        self.unit.emit("trap", imm=self.unit.immediate(code, "l", "trap"))

    # --- router configuration -----------------------------------------------------------------------------------------

    def sw_pos(self, color: int, position: int) -> None:
        """Set the switch position of `color` at this PE's router."""
        if position not in range(4):
            raise self.unit.error(f"sw_pos: position {position!r} is outside 0 .. 3")
        self.unit.emit("sw_pos", a=self.unit.color(color, "sw_pos"), imm=position)

    def route(self, color: int, rx: str, tx: str, position: int = 0, mode: str = "set") -> None:
        """Rewrite one switch position of `color` at this PE.

        Parameters
        ----------
        color : int
        rx, tx : str
            Directions W E N S R.
        position : int
            From 0 to 3.
        mode : str
            One of `wse_core.isa.ROUTE_MODES`: ``set``; ``rx`` or ``tx``, where the other set is that of position 0;
            ``off``, after which the position is not valid; ``add``, ``remove`` or ``toggle`` directions; ``switch`` has
            bits in the place of directions.
        """
        if position not in range(4):
            raise self.unit.error(f"route: position {position!r} is outside 0 .. 3")
        if mode not in isa.ROUTE_MODES:
            raise self.unit.error(f"route: there is no mode {mode!r}", hint=", ".join(isa.ROUTE_MODES))
        word = position << 10 | isa.ROUTE_MODES.index(mode) << 12
        for shift, text, key in ((0, rx, "rx"), (5, tx, "tx")):
            for letter in text:
                if letter not in im.DIRS:
                    raise self.unit.error(f"route: {letter!r} in {key} is not a direction", hint="W E N S R")
                word |= 1 << shift + im.DIRS.index(letter)
        self.unit.emit("route", a=self.unit.color(color, "route"), imm=word)

    def td_exit(self, color: int) -> None:
        """End teardown of `color` at this PE."""
        self.unit.emit("td_exit", a=self.unit.color(color, "td_exit"))

    def in_td(self, dst: Reg, color: int) -> None:
        """Set a register to 1 if `color` is in teardown at this PE, else to 0."""
        self.unit.emit("in_td", a=self.unit.register_field(dst, "i", "in_td"), imm=self.unit.color(color, "in_td"))

    def q_state(self, dst: Reg, what: str) -> None:
        """Set a register to the set of queues, bit k for queue k, that are in a state, or to what a FIFO left.

        Parameters
        ----------
        dst : Reg
        what : str
            ``empty_inputs``, ``full_inputs``, ``empty_outputs`` or ``full_outputs``; ``cut``: the number of elements
            that a FIFO left of the main thread's last operation with one, because it was empty or full.
        """
        if what not in QUEUE_STATES:
            raise self.unit.error(f"q_state: there is no state {what!r}", hint=", ".join(QUEUE_STATES))
        self.unit.emit("q_state", a=self.unit.register_field(dst, "i", "q_state"), imm=QUEUE_STATES.index(what))

    def flt_set(self, filter: int, field: Literal["counter", "max", "limit"], value: Reg | int) -> None:
        """Set a field of a counter filter of this PE.

        Parameters
        ----------
        filter : int
            Number of the filter at this PE: filters are numbered from 0 in the order of their colors.
        field : {"counter", "max", "limit"}
        value : Reg or int
        """
        names = ("counter", "max", "limit")
        if field not in names:
            raise self.unit.error(f"flt_set: unknown field {field!r}", hint=", ".join(names))
        if not isinstance(filter, int) or not 0 <= filter < max(1, self.unit.machine["router.filters"]):
            raise self.unit.error(f"flt_set: filter {filter!r} does not exist")
        held: list[Reg] = []
        b = (
            self.unit.register_field(value, "i", "flt_set")
            if isinstance(value, Reg)
            else self.registers.hold(value, "i", isa.BY_NAME["flt_set"], held)
        )
        self.unit.emit("flt_set", a=filter, b=b, imm=names.index(field))
        self.registers.release(held)
