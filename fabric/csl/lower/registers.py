"""Registers of the router as words of memory: what a program reads and writes through a pointer with a known address.

The word at 0x7f20 plus a color holds the sets of switch position 0, a bit per direction: outputs from bit 0 on, inputs
from bit 5 on, in the order W, E, S, N, R.  The word at 0x7f40 plus a color holds the input of position 1 in its lowest
three bits (5: none) and the position of the moment in bits 13 and 14.  Other bits are kept, and mean nothing.  The
machine has instructions for each of these things instead, so a store becomes several of them: it takes more cycles
here than on a real PE.  Source: vendor example (comments of spmv-hypersparse).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fabric.csl.diagnostics import Fault
from fabric.csl.ir import Memory, Operand, Sym, Vreg

__all__ = ["read_register", "register_at", "write_register"]

ROUTES, SWITCHES = 0x7F20, 0x7F40
COLORS = 24
ORDER = "WESNR"
NONE = 5
POSITION_BIT = 13


def register_at(address: Any) -> tuple[str, int] | None:
    """Return the kind of register and the color of an address; None for what is none."""
    for kind, first in (("route", ROUTES), ("switch", SWITCHES)):
        if isinstance(address, int) and first <= address < first + COLORS:
            return kind, address - first
    return None


def _config(code: Any, color: int) -> Any:
    found = code.program.checked.unit.configs.get(color)
    if found is None:
        fault = f"the register of color {color} is used here, but this program does not configure the color"
        raise Fault(fault, code.span, "@set_local_color_config")
    return found[0]


def _word(code: Any, kind: str, color: int) -> Memory:
    """Return the word that stands for a register; it begins with what the program configures."""
    config = _config(code, color)
    memory: Memory = code.program.hidden(f"{kind}{color}")
    bits = 0
    if kind == "route":
        for shift, names in ((0, config.tx), (5, config.rx)):
            bits |= sum(1 << shift + ORDER.index(name[0]) for name in names)
    else:
        first = config.positions[0].rx if config.positions else ()
        bits = (ORDER.index(first[0][0]) if first else NONE) | config.current << POSITION_BIT
    memory.init = np.array([bits], np.uint16)
    return memory


def read_register(code: Any, kind: str, color: int) -> Vreg:
    """Return what a register holds."""
    value: Vreg = code.load_at(None, Sym(_word(code, kind, color)), 1)
    return value


def write_register(code: Any, kind: str, color: int, value: Operand) -> None:
    """Write what a store to a register does."""
    held = code.reg(value, 1)
    code.store_at(None, Sym(_word(code, kind, color)), held, 1)
    if kind == "switch":
        _apply_switch(code, color, held)
        position = code.alu("and16", code.alu("slr16", held, POSITION_BIT), 3)
        code.select(position, range(4), lambda number: code.put("sw_pos", None, data=(color, number)))
        return
    for bit in range(2 * len(ORDER)):
        joins, leaves, done = code.new_block(), code.new_block(), code.new_block()
        letter = ORDER[bit % len(ORDER)]
        sets = ("", letter) if bit < len(ORDER) else (letter, "")
        code.branch("br16", "ne", code.alu("and16", held, 1 << bit), 0, joins, leaves)
        code.place(joins)
        code.put("route", None, data=(color, *sets, 0, "add"))
        code.jump(done)
        code.place(leaves)
        code.put("route", None, data=(color, *sets, 0, "remove"))
        code.place(done)
    config = _config(code, color)
    if config.positions and config.positions[0].rx and not config.positions[0].tx:
        # The outputs of position 1 are those of position 0.
        _apply_switch(code, color, code.load_at(None, Sym(_word(code, "switch", color)), 1))


def _apply_switch(code: Any, color: int, held: Vreg) -> None:
    def write(number: int) -> None:
        if number < len(ORDER):
            code.put("route", None, data=(color, ORDER[number], "", 1, "rx"))
        else:
            code.put("route", None, data=(color, "", "", 1, "off"))

    code.select(code.alu("and16", held, 7), range(NONE + 1), write)
