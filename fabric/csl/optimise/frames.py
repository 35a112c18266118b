"""Arrays and structs of a function lie in registers if they are only reached at known places."""

from __future__ import annotations

from fabric.csl.ir import Instr, IrFunction, StaticMemory, Sym, Vreg
from fabric.csl.optimise.memory import addresses

__all__ = ["promote", "unused"]

LARGEST = 8
"""An array or struct of at most so many words may lie in registers."""

Place = tuple[int, int]
"""A `Place` is the offset and size of a number in an array or struct, in words."""


def promote(function: IrFunction) -> bool:
    """Put locals into registers; tell whether some were."""
    places = _places(function)
    if not places:
        return False
    registers: dict[tuple[StaticMemory, Place], Vreg] = {}
    first: list[Instr] = []
    for memory, found in places.items():
        for place in sorted(found):
            made = registers[memory, place] = Vreg(place[1], memory.name.rpartition(":")[2].partition("#")[0])
            first.append(Instr("const", made, (0,), None, function.span))
    for instr in function.instructions():
        if instr.op in ("load", "store") and isinstance(instr.data, Sym) and instr.data.memory in places:
            register = registers[instr.data.memory, (instr.data.offset, _value(instr).size)]
            if instr.op == "load":
                instr.op, instr.args, instr.data = "copy", (register,), None
            else:
                instr.op, instr.dst, instr.args, instr.data = "copy", register, instr.args[:1], None
    code = function.blocks[0].code
    start = 1 if code[0].op == "entry" else 0
    code[start:start] = first
    return True


def unused(function: IrFunction) -> list[StaticMemory]:
    """Return the locals that nothing in a function reaches any more."""
    if not function.frame:
        return []
    reached = {sym.memory for instr in function.instructions() for sym in addresses(instr)}
    return [memory for memory in function.frame if memory not in reached]


def _value(instr: Instr) -> Vreg:
    value = instr.dst if instr.op == "load" else instr.args[0]
    assert isinstance(value, Vreg)
    return value


def _places(function: IrFunction) -> dict[StaticMemory, set[Place]]:
    """Return the locals that are only loaded and stored at known places, with those places."""
    found: dict[StaticMemory, set[Place]] = {m: set() for m in function.frame if m.words <= LARGEST and m.init is None}
    if not found:
        return found
    for instr in function.instructions():
        plain = instr.op in ("load", "store") and len(instr.args) == (instr.op == "store")
        for sym in addresses(instr):
            if sym.memory not in found:
                continue
            inside = plain and instr.data == sym and 0 <= sym.offset <= sym.memory.words - _value(instr).size
            if not inside:
                del found[sym.memory]
            else:
                found[sym.memory].add((sym.offset, _value(instr).size))
    return {memory: places for memory, places in found.items() if places and not _overlap(places)}


def _overlap(places: set[Place]) -> bool:
    words = [offset + k for offset, size in places for k in range(size)]
    return len(words) != len(set(words))
