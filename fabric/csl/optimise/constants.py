"""A constant is put into a register once if several operations of a block need it there.

Comparisons are left out: the traces of public programs have two instructions for them (`fabric.csl.rules`).  Where
registers run out, the allocator makes constants again.
"""

from __future__ import annotations

from typing import Any

from fabric.csl.ir import BasicBlock, Instr, IrFunction, Vreg

__all__ = ["share"]


def share(function: IrFunction) -> None:
    """Share constants inside of blocks."""
    once = function.single()
    users: dict[Vreg, list[tuple[BasicBlock, Instr]]] = {}
    for block in function.blocks:
        for instr in block.code:
            for reg in instr.uses():
                users.setdefault(reg, []).append((block, instr))
    for block in function.blocks:
        held: dict[Any, Vreg] = {}
        other: dict[Vreg, Vreg] = {}
        kept: list[Instr] = []
        for instr in block.code:
            dst = instr.dst
            if instr.op == "const" and dst in once and _fits(block, users.get(dst, [])):
                assert dst is not None
                same = held.setdefault((instr.args[0], dst.size), dst)
                if same is not dst:
                    other[dst] = same
                    continue
            elif other and any(reg in other for reg in instr.uses()):
                instr.args = tuple(other.get(arg, arg) if isinstance(arg, Vreg) else arg for arg in instr.args)
            kept.append(instr)
        block.code = kept


def _fits(block: BasicBlock, users: list[tuple[BasicBlock, Instr]]) -> bool:
    """Whether a constant is only used in its block, and not by a comparison."""
    return all(where is block and instr.op in ("vector", "store", "poke") for where, instr in users)
