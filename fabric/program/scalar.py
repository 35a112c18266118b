"""Scalar instructions of special form: loads and stores, counters and generators, configuration of the router."""

from __future__ import annotations

import numpy as np

from fabric.asm.operands import Address, Reg, Var, is_number
from wse_core import image as im
from wse_core import isa

__all__ = ["Scalar"]


class Scalar:
    """Part of `fabric.program.program.Program`: scalar instructions of special form."""

    def nop(self):
        """Do nothing for a cycle."""
        self._emit("nop")

    def ldi(self, dst, value):
        """Load a number, or the address of a variable, into a 16-bit register; a float is encoded in the half type."""
        letter = "h" if isinstance(value, (float, np.floating)) else "i"
        self._emit("ldi", a=self._reg_field(dst, "i", "ldi"), imm=self._imm(value, letter, "ldi"))

    def ldi32(self, dst, value):
        """Load a number into a register pair; a float is encoded as f32."""
        letter = "s" if isinstance(value, (float, np.floating)) else "l"
        self._emit("ldi32", a=self._reg_field(dst, "l", "ldi32"), imm=self._imm(value, letter, "ldi32"))

    def ld16(self, dst, base, offset=0, index=None):
        """Load 16 bits.

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

    def ld32(self, dst, base, offset=0, index=None):
        """Load 32 bits into a register pair from an even address; see `ld16`."""
        self._memory("ld32", dst, base, offset, index)

    def st16(self, src, base, offset=0, index=None):
        """Store a 16-bit register; see `ld16`."""
        self._memory("st16", src, base, offset, index)

    def st32(self, src, base, offset=0, index=None):
        """Store a register pair to an even address; see `ld16`."""
        self._memory("st32", src, base, offset, index)

    def _memory(self, op, reg, base, offset, index):
        wide = op.endswith("32")
        a = self._reg_field(reg, "l" if wide else "i", op)
        if isinstance(base, Reg):
            if index is not None:
                raise self._error(f"{op}: base and index are both registers; one address register fits the instruction")
            index, imm = base, self._imm(offset, "i", op)
        elif isinstance(base, (Var, Address)):
            base = Address(base) if isinstance(base, Var) else base
            if base.var._program is not self:
                raise self._error(
                    f"{op}: the variable belongs to program {base.var._program.name!r}", symbol=base.var.name
                )
            if base.words != 1 + wide:
                raise self._error(
                    f"{op}: the variable has elements of type {base.var.dtype}",
                    symbol=base.var.name,
                    hint=f"{op[:2]}{16 * base.words}",
                )
            imm = base + offset
        else:
            imm = self._imm(base + offset if is_number(base) else base, "i", op)
        b = 0 if index is None else self._reg_field(index, "i", f"{op} address")
        self._emit(op, a=a, b=b, imm=imm)

    def tsc(self, dst):
        """Read the 48-bit cycle counter into three consecutive registers, low first; `dst` from `regs` (3) or a Reg."""
        first = dst[0] if isinstance(dst, (tuple, list)) else dst
        if isinstance(dst, (tuple, list)) and [reg.id for reg in dst] != [first.id + k for k in range(3)]:
            raise self._error("tsc: three consecutive registers needed", hint="p.regs(3)")
        if not isinstance(first, Reg) or first.id + 2 >= isa.N_REGS:
            raise self._error(f"tsc: {first} and the two registers after it do not exist")
        self._emit("tsc", a=isa.FILE_REG << 4 | first.id)

    def store_tsc(self, var):
        """Read the cycle counter and store it as three 16-bit words at `var` (u16, at least 3 elements).

        The counter is sampled in the first cycle; the stores follow.
        """
        base = Address(var) if isinstance(var, Var) else var
        low = self.regs(3, "tsc")
        self.tsc(low)
        for k, reg in enumerate(low):
            self.st16(reg, base, offset=k)
        self._release([r for r in self._body.regs if r.id == low[0].id and r.size == 3])

    def rand16(self, dst):
        """Draw 16 bits from the active random generator into a register."""
        self._emit("rand16", a=self._reg_field(dst, "i", "rand16"))

    def prng(self, number):
        """Make random generator `number` (0 .. 3) the active one."""
        if number not in range(4):
            raise self._error(f"prng: generator {number!r} does not exist", hint="0 .. 3")
        self._emit("prng", a=number)

    def trap(self, code=0):
        """Stop the machine with a ProgramFault that carries `code`."""
        self._emit("trap", imm=self._imm(code, "l", "trap"))

    # --- router configuration -----------------------------------------------------------------------------------------

    def _color(self, color, what):
        if not isinstance(color, (int, np.integer)) or not 0 <= color < self.machine["router.colors"]:
            raise self._error(
                f"{what}: color {color!r} is not routable", hint=f"colors 0 .. {self.machine['router.colors'] - 1}"
            )
        return int(color)

    def sw_pos(self, color, position):
        """Set the switch position of `color` at this PE's router."""
        if position not in range(4):
            raise self._error(f"sw_pos: position {position!r} is outside 0 .. 3")
        self._emit("sw_pos", a=self._color(color, "sw_pos"), imm=position)

    def route(self, color, rx, tx, position=0):
        """Rewrite one switch position of `color` at this PE: `rx`, `tx` are strings of directions W E N S R."""
        if position not in range(4):
            raise self._error(f"route: position {position!r} is outside 0 .. 3")
        word = position << 10
        for shift, text, key in ((0, rx, "rx"), (5, tx, "tx")):
            for letter in text:
                if letter not in im.DIRS:
                    raise self._error(f"route: {letter!r} in {key} is not a direction", hint="W E N S R")
                word |= 1 << shift + im.DIRS.index(letter)
        self._emit("route", a=self._color(color, "route"), imm=word)

    def td_exit(self, color):
        """End teardown of `color` at this PE."""
        self._emit("td_exit", a=self._color(color, "td_exit"))

    def in_td(self, dst, color):
        """Set a register to 1 if `color` is in teardown at this PE, else to 0."""
        self._emit("in_td", a=self._reg_field(dst, "i", "in_td"), imm=self._color(color, "in_td"))

    def flt_set(self, filter, field, value):
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
            raise self._error(f"flt_set: unknown field {field!r}", hint=", ".join(names))
        if not isinstance(filter, int) or not 0 <= filter < max(1, self.machine["router.filters"]):
            raise self._error(f"flt_set: filter {filter!r} does not exist")
        held = []
        b = (
            self._reg_field(value, "i", "flt_set")
            if isinstance(value, Reg)
            else self._held(value, "i", isa.BY_NAME["flt_set"], held)
        )
        self._emit("flt_set", a=filter, b=b, imm=names.index(field))
        self._release(held)
