"""Registers of the router as words of memory: what a program reads and writes through a pointer with a known address.

The word at 0x7f20 plus a color holds the sets of switch position 0, a bit per direction: outputs from bit 0 on, inputs
from bit 5 on, in the order W, E, S, N, R.  The word at 0x7f40 plus a color holds the input of position 1 in its lowest
three bits (5: none) and the position of the moment in bits 13 and 14.  Other bits are kept, and mean nothing.  The
machine has instructions for each of these things instead, whose sets are known when the program is compiled; a word
that is known becomes one of them.  Where the program chooses while it runs, it mostly chooses among words that it
names: those are compared first (`_named`), and only a word that is none of them is taken apart bit by bit.  A store
takes ten to forty cycles more here than on a real PE.  Source: vendor example (comments of spmv-hypersparse).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fabric.csl.diagnostics import Fault
from fabric.csl.ir import Memory, Operand, Sym, Vreg

if TYPE_CHECKING:
    from fabric.csl.lower.values import Expressions
from wse_core.encoding import N_COLORS

__all__ = ["read_register", "register_at", "write_register"]

ROUTES, SWITCHES = 0x7F20, 0x7F40
ORDER = "WESNR"
NONE = 5
POSITION_BIT = 13
SETS, INPUT = 0x3FF, 7
MOST_NAMED, MOST_STEPS = 6, 256
"""Words that are compared before anything else, and operations that are looked at to find them."""


def register_at(address: Any) -> tuple[str, int] | None:
    """Return the kind of register and the color of an address; None for what is none."""
    for kind, first in (("route", ROUTES), ("switch", SWITCHES)):
        if isinstance(address, int) and first <= address < first + N_COLORS:
            return kind, address - first
    return None


def _config(code: Expressions, color: int) -> Any:
    found = code.program.checked.unit.configs.get(color)
    if found is None:
        fault = f"the register of color {color} is used here, but this program does not configure the color"
        raise Fault(fault, code.span, "@set_local_color_config")
    return found[0]


def _word(code: Expressions, kind: str, color: int) -> Memory:
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
    memory.init, memory.noted = np.array([bits], np.uint16), True
    return memory


def read_register(code: Expressions, kind: str, color: int) -> Vreg:
    """Return what a register holds."""
    value: Vreg = code.load_at(None, Sym(_word(code, kind, color)), 1)
    return value


def write_register(code: Expressions, kind: str, color: int, value: Operand) -> None:
    """Write what a store to a register does."""
    held = code.reg(value, 1)
    code.store_at(None, Sym(_word(code, kind, color)), held, 1)
    inputs = code.program.inputs_named.setdefault(color, [])
    if kind == "switch":
        inputs += [number for number in _named(code, held, INPUT, _is_input) if number not in inputs]
        _apply_switch(code, color, held, inputs)
        position = code.alu("and16", code.alu("slr16", held, POSITION_BIT), 3)
        code.select(position, range(4), lambda number: code.put("sw_pos", None, data=(color, number)))
        return
    _apply_sets(code, color, held)
    config = _config(code, color)
    if config.positions and config.positions[0].rx and not config.positions[0].tx:
        # The outputs of position 1 are those of position 0.
        _apply_switch(code, color, code.load_at(None, Sym(_word(code, "switch", color)), 1), inputs)


def _apply_sets(code: Expressions, color: int, held: Vreg) -> None:
    """Give position 0 the sets of a word."""
    done = code.new_block()
    sets = code.alu("and16", held, SETS)
    for word in _named(code, held, SETS, _is_route):
        here, after = code.new_block(), code.new_block()
        code.branch("br16", "eq", sets, word, here, after)
        code.place(here)
        code.put("route", None, data=(color, _letters(word >> len(ORDER)), _letters(word), 0, "set"))
        code.jump(done)
        code.place(after)
    for bit in range(2 * len(ORDER)):
        joins, leaves, following = code.new_block(), code.new_block(), code.new_block()
        letter = ORDER[bit % len(ORDER)]
        change = ("", letter) if bit < len(ORDER) else (letter, "")
        code.branch("br16", "ne", code.alu("and16", held, 1 << bit), 0, joins, leaves)
        code.place(joins)
        code.put("route", None, data=(color, *change, 0, "add"))
        code.jump(following)
        code.place(leaves)
        code.put("route", None, data=(color, *change, 0, "remove"))
        code.place(following)
    code.jump(done)
    code.place(done)


def _is_route(word: int) -> bool:
    """Whether a word has inputs and outputs."""
    return word >> len(ORDER) > 0 and word % (1 << len(ORDER)) > 0


def _is_input(word: int) -> bool:
    """Whether a word names an input, or none by its number; west, which is 0, is what any cleared word looks like."""
    return 0 < word <= NONE


def _letters(bits: int) -> str:
    return "".join(letter for k, letter in enumerate(ORDER) if bits >> k & 1)


def _apply_switch(code: Expressions, color: int, held: Vreg, named: list[int]) -> None:
    """Give position 1 the input of a word; those that the program names are compared first."""
    numbers = [*named, *(number for number in range(NONE + 1) if number not in named)]

    def write(place: int) -> None:
        number = numbers[place]
        if number < len(ORDER):
            code.put("route", None, data=(color, ORDER[number], "", 1, "rx"))
        else:
            code.put("route", None, data=(color, "", "", 1, "off"))

    code.select(code.alu("and16", held, INPUT), numbers, write)


def _named(code: Expressions, held: Vreg, mask: int, fits: Callable[[int], bool]) -> list[int]:
    """Return words that the program seems to store under a mask, the likeliest first, of those that fit.

    A word is made of constants that are joined to a value whose bits under the mask were cleared.  Where a register is
    set is looked for in the whole function, whatever the order of its parts: what comes out is a guess that only
    decides which words are compared first.
    """
    sets: dict[Vreg, list[Any]] = {}
    for instr in code.function.instructions():
        for reg in instr.defs():
            sets.setdefault(reg, []).append(instr)
    found: dict[int, None] = {}
    seen = {(held, 0)}
    waiting = deque(seen)
    for _ in range(MOST_STEPS):
        if not waiting or len(found) == MOST_NAMED:
            break
        reg, word = waiting.popleft()
        for instr in sets.get(reg, ()):
            constants = [arg for arg in instr.args if isinstance(arg, int)]
            joined = word | constants[0] if instr.op in ("const", "or16") and constants else word
            if instr.op == "const" or (instr.op == "and16" and constants and not constants[0] & mask):
                if constants and fits(joined & mask):
                    found[joined & mask] = None
            elif instr.op in ("and16", "or16", "copy"):
                entries = [(arg, joined) for arg in instr.args if isinstance(arg, Vreg)]
                waiting += [entry for entry in entries if entry not in seen]
                seen.update(entries)
    return list(found)
