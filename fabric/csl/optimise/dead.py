"""Operations whose result nobody reads are removed."""

from __future__ import annotations

from collections.abc import Callable

from fabric.csl.ir import Instr, IrFunction, StaticMemory, Sym, Vreg
from fabric.csl.ir.liveness import live_out
from fabric.csl.optimise.fold import PURE

__all__ = ["merge_copies", "remove", "remove_notes"]


def remove_notes(functions: list[IrFunction], changed: Callable[[IrFunction], None]) -> set[StaticMemory]:
    """Drop stores to the compiler's own notes that nothing loads, and what only they needed; return those memories."""
    instructions = [instr for function in functions for instr in function.instructions()]
    noted = {instr.data.memory for instr in instructions if instr.op == "store" and isinstance(instr.data, Sym)}
    noted = {memory for memory in noted if memory.noted}
    noted -= {instr.data.memory for instr in instructions if instr.op == "load" and isinstance(instr.data, Sym)}
    for function in functions if noted else ():
        changed(function)
        for block in function.blocks:
            block.code = [
                instr
                for instr in block.code
                if not (instr.op == "store" and isinstance(instr.data, Sym) and instr.data.memory in noted)
            ]
        remove(function)
    return noted


def remove(function: IrFunction) -> bool:
    """Drop operations without effect; tell whether there were some."""
    removable = PURE | {"load"}
    changed = False
    while True:
        out = live_out(function)
        dropped = False
        for block in function.blocks:
            live = set(out[block])
            kept = []
            for instr in reversed(block.code):
                if instr.op in removable and instr.dst not in live and instr.dst.fixed is None:  # type: ignore[union-attr]
                    dropped = True
                    continue
                live.difference_update(instr.defs())
                live.update(instr.uses())
                kept.append(instr)
            block.code = kept[::-1]
        changed |= dropped
        if not dropped:
            return changed


def merge_copies(function: IrFunction) -> None:
    """Let an operation set the register that its result is copied to right after, where nobody else reads it."""
    reads: dict[Vreg, int] = {}
    for instr in function.instructions():
        for reg in instr.uses():
            reads[reg] = reads.get(reg, 0) + 1
    once = function.single()
    mergeable = (PURE - {"const", "copy"}) | {"load"}
    for block in function.blocks:
        kept: list[Instr] = []
        for instr in block.code:
            before = kept[-1] if kept else None
            if (
                instr.op == "copy"
                and before is not None
                and before.op in mergeable
                and before.dst is instr.args[0]
                and before.dst in once
                and reads[before.dst] == 1
            ):
                before.dst = instr.dst
                continue
            kept.append(instr)
        block.code = kept
