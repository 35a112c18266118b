"""Lone loads between two vector operations begin before the first of them, so that nobody waits for them.

So the elements over which a `@map` runs are there when its function needs them.  In loops, where other instructions
stand before a load, the public trace of a matrix product has a load right before the operation that waits for it.
"""

from __future__ import annotations

from fabric.csl.ir import BasicBlock, Instr, IrFunction, Sym
from fabric.csl.optimise.memory import Touched, templates

__all__ = ["load_ahead"]


def load_ahead(function: IrFunction) -> None:
    """Move loads before the operation that they follow."""
    held = templates(function)
    for block in function.blocks:
        _reorder(block, held)


def _reorder(block: BasicBlock, held: dict) -> None:
    code = block.code
    k = 1
    while k < len(code):
        first = k
        while k < len(code) and code[k].op == "load":
            k += 1
        before, after = code[first - 1], code[k] if k < len(code) else None
        if k > first and _is_synchronous(before) and after is not None and _is_synchronous(after):
            touched = Touched([before], held)
            if all(_may_pass(load, before, touched) for load in code[first:k]):
                code[first - 1 : k] = [*code[first:k], before]
        k += 1


def _is_synchronous(instr: Instr) -> bool:
    return instr.op == "vector" and instr.data.ending is None


def _may_pass(load: Instr, before: Instr, touched: Touched) -> bool:
    place = load.data
    if not isinstance(place, Sym) or touched.may_write(place.memory):
        return False
    used = {*before.uses(), *before.defs()}
    return load.dst not in used and not any(reg in before.defs() for reg in load.uses())
