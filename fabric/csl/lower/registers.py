"""Registers of the router are read and written by address: what <tile_config> does for a color known at run time only.

A color that is known has instructions of its own (`fabric.csl.lower.routines.machine`); for any other the register is
read, changed and written, as a program on the machine does.  Layout of the words: docs/machine.md, "Registers by
address".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fabric.csl.comptime.values import DIRECTIONS
from fabric.csl.diagnostics import Fault
from fabric.csl.ir import Operand, Vreg
from wse_core.encoding import (
    DIRS,
    N_POSITIONS,
    REG_INPUT,
    REG_NONE,
    REG_ORDER,
    REG_POP,
    REG_POSITION,
    REG_RING,
    REG_ROUTES,
    REG_SWITCHES,
)

if TYPE_CHECKING:
    from fabric.csl.lower.routines.machine import MachineRoutines

__all__ = ["ColorRegisters", "color_of_address"]

SIDES = 0x3FF
"""This mask has the inputs and outputs of position 0 in a route register."""
POSITIONS = 0xFFF
NUMBERS = [REG_ORDER.index(DIRS.index(name[0])) for name in DIRECTIONS]
"""Directions, in the order of their numbers in CSL, have these numbers in registers."""


def color_of_address(address: int) -> int:
    """Return the color whose route register has an address in bytes."""
    return address // 2 - REG_ROUTES


class ColorRegisters:
    """A `ColorRegisters` writes code that changes the router's registers of one color.

    Parameters
    ----------
    code : MachineRoutines
        Where code is written.
    color : Operand
        The color, or with `is_address` the address of its route register in bytes.
    """

    def __init__(self, code: MachineRoutines, color: Operand, is_address: bool = False) -> None:
        if code.program.session.machine["task.by_queue"]:
            what = "the registers of this architecture by address are not modelled"
            raise Fault(what, code.span, "a color that is known when the program is compiled")
        self.code = code
        code.program.by_address = True
        color = code.alu("slr16", color, 1) if is_address else color
        self.base = code.reg(color, 1)
        self.routes = 0 if is_address else REG_ROUTES
        self.switches = self.routes + REG_SWITCHES - REG_ROUTES

    def _load(self, offset: int) -> Vreg:
        made = self.code.new(1)
        self.code.put("peek", made, self.base, data=offset)
        return made

    def _store(self, offset: int, value: Operand) -> None:
        self.code.put("poke", None, self.code.reg(value, 1), self.base, data=offset)

    def _field(self, offset: int, mask: int, value: Operand) -> None:
        """Change some bits of a register."""
        kept = self.code.alu("and16", self._load(offset), ~mask & 0xFFFF)
        self._store(offset, self.code.alu("or16", kept, value) if value != 0 else kept)

    def set_routes(self, inputs: str, outputs: str) -> None:
        """Give position 0 its inputs and outputs."""
        order = [DIRS[direction] for direction in REG_ORDER]
        bits = sum(1 << order.index(letter) for letter in outputs)
        bits |= sum(1 << order.index(letter) + len(order) for letter in inputs)
        self._field(self.routes, SIDES, bits)

    def set_pop_mode(self, mode: Operand) -> None:
        """Set the pop mode."""
        shifted = mode << REG_POP if isinstance(mode, int) else self.code.alu("sll16", mode, REG_POP)
        self._field(self.routes, 3 << REG_POP, shifted)

    def set_ring_mode(self, ring: bool) -> None:
        """Set or clear the ring mode."""
        self._field(self.switches, 1 << REG_RING, ring << REG_RING)

    def change(self, mode: str, io: Operand) -> None:
        """Let a direction, numbered by its bit, join or leave the sets of position 0."""
        code, held = self.code, self._load(self.routes)
        bit: Operand = 1 << io if isinstance(io, int) else code.alu("sll16", code.copied(1, 1, "bit"), io)
        if mode == "remove":
            bit = ~bit & 0xFFFF if isinstance(bit, int) else code.alu("xor16", bit, 0xFFFF)
        op = {"add": "or16", "remove": "and16", "toggle": "xor16"}[mode]
        self._store(self.routes, code.alu(op, held, bit))

    def set_position(self, position: Operand) -> None:
        """Set the switch position of the moment."""
        shifted = position << REG_POSITION if isinstance(position, int) else self.code.alu(
            "sll16", position, REG_POSITION
        )  # fmt: skip
        self._field(self.switches, 3 << REG_POSITION, shifted)

    def no_positions(self) -> None:
        """Make positions 1 to 3 invalid."""
        self._field(self.switches, POSITIONS, sum(REG_NONE << 4 * k for k in range(N_POSITIONS - 1)))

    def set_side(self, side: str, position: int, direction: Any) -> None:
        """Give a position from 1 on its input or output."""
        shift, kind = 4 * (position - 1), REG_INPUT if side == "rx" else 0
        if isinstance(direction, int):
            self._field(self.switches, 15 << shift, (NUMBERS[direction] | kind) << shift)
            return
        code = self.code
        code.select(direction, range(len(DIRECTIONS)), lambda number: self.set_side(side, position, number))
