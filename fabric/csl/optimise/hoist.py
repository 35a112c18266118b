"""Steady values of a loop are computed before it, and globals that it adds to lie in registers.

A value that leaves a loop takes a register in all of it.  What is loaded leaves only as long as there are registers
free; what is computed also where another value then lies in memory, as in the public loops of sparse products, which
take as long by rows as by columns (`fabric.csl.rules`).  Constants stay: a comparison with one is two instructions
wherever the constant lies.
"""

from __future__ import annotations

from typing import Any

from fabric.csl.ir import BasicBlock, Instr, IrFunction, Sym, Vreg
from fabric.csl.ir.liveness import live_out
from fabric.csl.optimise.fold import PURE
from fabric.csl.optimise.loops import before, exits, loops_of
from fabric.csl.optimise.memory import Touched, templates
from fabric.csl.rules import VALUES
from wse_core.encoding import N_REGS

__all__ = ["hoist", "keep"]

Once = dict[Vreg, Instr]
Held = dict[Any, Any]
REGISTERS = VALUES - 2
"""Words of registers that a loop may fill with what is loaded; two are left for what lives for an instruction."""


def hoist(function: IrFunction) -> bool:
    """Move values out of loops; tell whether some were moved."""
    changed = False
    once, held = function.single(), templates(function)  # which moving values does not change
    for head, body in loops_of(function):
        changed |= _empty(function, head, body, once, held)
    return changed


def _empty(function: IrFunction, head: BasicBlock, body: set[BasicBlock], once: Once, held: Held) -> bool:
    found = _steady(function, head, body, once, held)
    if not found:
        return False
    moved = _chosen(function, body, found)
    if not moved:
        return False
    chosen = set(map(id, moved))
    for block in body:
        block.code = [instr for instr in block.code if id(instr) not in chosen]
    before(function, head, body).code[-1:-1] = moved
    return True


THROUGH = ("peek", "poke")


def _steady(function: IrFunction, head: BasicBlock, body: set[BasicBlock], once: Once, held: Held) -> list[Instr]:
    """Return operations of a loop whose results are the same in all turns, each after those that it needs."""
    blocks = [block for block in function.blocks if block in body]
    touched = Touched([instr for block in blocks for instr in block.code], held)
    inside: set[Vreg] = {reg for block in blocks for instr in block.code for reg in instr.defs()}
    found: list[Instr] = []
    changed = True
    while changed:
        changed = False
        for block in blocks:
            for instr in block.code:
                dst = instr.dst
                if dst is None or dst not in once or dst not in inside:
                    continue
                if instr.op == "load":
                    place = instr.data
                    # At a known address a load can do no harm; others must be sure to be done.
                    sure = not instr.args or block is head
                    fits = sure and isinstance(place, Sym) and not touched.may_write(place.memory)
                else:
                    fits = instr.op in PURE and instr.op not in ("const", "copy")
                if fits and not any(reg in inside or reg.fixed is not None for reg in instr.uses()):
                    found.append(instr)
                    inside.discard(dst)
                    changed = True
    return found


def _chosen(function: IrFunction, body: set[BasicBlock], found: list[Instr]) -> list[Instr]:
    """Return as many operations as there are registers for what the rest of the loop needs of them."""
    made = {instr.dst: instr for instr in found}
    ids = set(map(id, found))
    rest = [instr for block in function.blocks if block in body for instr in block.code if id(instr) not in ids]
    needed = {reg for instr in rest for reg in instr.uses()}
    out = live_out(function)
    needed |= {reg for block in body for after in block.successors() if after not in body for reg in out[block]}
    pressure = _pressure(function, body, made, out)
    taken: dict[Vreg, Instr] = {}
    for instr in found:
        dst = instr.dst
        if dst is None or dst not in needed:
            continue
        if pressure + dst.size > (REGISTERS if instr.op == "load" else N_REGS):
            continue
        pressure += dst.size
        for step in _chain(instr, made, taken):
            assert step.dst is not None
            taken[step.dst] = step
    return [instr for instr in found if instr.dst in taken]


def _chain(instr: Instr, made: dict[Any, Instr], taken: dict[Vreg, Instr]) -> list[Instr]:
    """Return an operation with those that it needs and that are not taken yet."""
    found, stack = [], [instr]
    while stack:
        step = stack.pop()
        if step in found or step.dst in taken:
            continue
        found.append(step)
        stack += [made[reg] for reg in step.uses() if reg in made]
    return found


def _pressure(
    function: IrFunction, body: set[BasicBlock], made: dict[Any, Instr], out: dict[BasicBlock, set[Vreg]]
) -> int:
    """Return the most words of registers that are alive at once in a loop, without what can leave it."""
    most = 0
    for block in function.blocks:
        if block not in body:
            continue
        live = set(out[block])
        for instr in reversed(block.code):
            live.difference_update(instr.defs())
            live.update(instr.uses())
            most = max(most, sum(reg.size for reg in live if reg not in made))
    return most


def keep(function: IrFunction) -> bool:
    """Let loops that load and store one number of memory in each turn do so before and after; tell whether some do.

    The number must be the only one of its memory that the loop touches, be touched at the beginning of each turn, and
    nothing else in the loop may reach it.
    """
    changed = False
    held = templates(function)
    for head, body in loops_of(function):
        blocks = [block for block in function.blocks if block in body]
        code = [instr for block in blocks for instr in block.code]
        inside = {reg for instr in code for reg in instr.defs()}
        rest = Touched([instr for instr in code if instr.op not in ("load", "store")], held)
        if rest.calls:
            continue
        through = any(isinstance(instr.data, int) for instr in code if instr.op in (*THROUGH, "load", "store"))
        places: dict[Any, set[tuple[Any, ...]]] = {}
        stored: set[Any] = set()
        for instr in code:
            if instr.op in ("load", "store") and isinstance(instr.data, Sym):
                memory = instr.data.memory
                places.setdefault(memory, set()).add(_key(instr))
                if instr.op == "store":
                    stored.add(memory)
        first = {i.data.memory for i in head.code if i.op in ("load", "store") and isinstance(i.data, Sym)}
        fitting = []
        for memory, keys in places.items():
            ((base, offset, size), *more) = keys
            steady = not isinstance(base, Vreg) or (base not in inside and base.fixed is None)
            if more or memory not in stored or memory not in first or not steady or not size:
                continue
            if not (rest.may_touch(memory) or (through and not memory.apart)):
                fitting.append((memory, base, offset, size))
        free = REGISTERS - _pressure(function, body, {}, live_out(function)) if fitting else 0
        for memory, base, offset, size in fitting:
            if size > free:
                continue
            free -= size
            _into_register(function, head, body, Sym(memory, offset), base, size)
            changed = True
    return changed


def _key(instr: Instr) -> tuple[Any, ...]:
    """Return register, offset and size of a load or store; a size of 0 is unknown."""
    place = 0 if instr.op == "load" else 1
    base = instr.args[place] if len(instr.args) > place else None
    value = instr.dst if instr.op == "load" else instr.args[0]
    return base, instr.data.offset, value.size if isinstance(value, Vreg) else 0


def _into_register(
    function: IrFunction, head: BasicBlock, body: set[BasicBlock], place: Sym, base: Vreg | None, size: int
) -> None:
    register = Vreg(size, place.memory.name)
    address = () if base is None else (base,)
    span = head.code[0].span
    for block in body:
        for instr in block.code:
            if instr.op in ("load", "store") and isinstance(instr.data, Sym) and instr.data.memory is place.memory:
                if instr.op == "load":
                    instr.op, instr.args, instr.data = "copy", (register,), None
                else:
                    instr.op, instr.dst, instr.args, instr.data = "copy", register, (instr.args[0],), None
    before(function, head, body).code[-1:-1] = [Instr("load", register, address, place, span)]
    for block in exits(function, body):
        block.code.insert(0, Instr("store", None, (register, *address), place, block.code[0].span))
