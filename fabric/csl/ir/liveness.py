"""Liveness tells which registers are read later."""

from __future__ import annotations

from fabric.csl.ir.code import BasicBlock, IrFunction, Vreg

__all__ = ["live_out"]


def live_out(function: IrFunction) -> dict[BasicBlock, set[Vreg]]:
    """Return per block the registers that are read after it."""
    gen: dict[BasicBlock, set[Vreg]] = {}
    kill: dict[BasicBlock, set[Vreg]] = {}
    for block in function.blocks:
        used: set[Vreg] = set()
        made: set[Vreg] = set()
        for instr in block.code:
            used |= {reg for reg in instr.uses() if reg not in made}
            made.update(instr.defs())
        gen[block], kill[block] = used, made
    out: dict[BasicBlock, set[Vreg]] = {block: set() for block in function.blocks}
    entry: dict[BasicBlock, set[Vreg]] = {block: set(gen[block]) for block in function.blocks}
    changed = True
    while changed:
        changed = False
        for block in reversed(function.blocks):
            after: set[Vreg] = set()
            for following in block.successors():
                after |= entry[following]
            if len(after) != len(out[block]):
                out[block] = after
                new = gen[block] | (after - kill[block])
                if len(new) != len(entry[block]):
                    entry[block] = new
                    changed = True
    return out
