"""What is far too much for the registers goes to memory before the graph is made, whose edges grow with the square.

A function with thousands of values that are alive at once would make the allocator slow, and most of them lie in memory
in the end.  Which ones: those that are read seldom, and among them those that were set first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fabric.csl.allocate.spill import spill
from fabric.csl.ir import BasicBlock, IrFunction, StaticMemory, Vreg
from fabric.csl.ir.liveness import live_out

__all__ = ["CROWDED", "thin"]

CROWDED = 64
"""Up to so many values alive at once the graph decides: many times what sixteen registers hold, and still fast."""


def thin(function: IrFunction, frame: Callable[[int], StaticMemory]) -> set[Vreg]:
    """Keep values in memory where more than `CROWDED` are alive at once; return what takes their place."""
    out = live_out(function)
    if not any(len(live) > CROWDED for live in _alive(function, out, set())):
        return set()
    uses: dict[Vreg, float] = {}
    for block in function.blocks:
        weight = 10.0 ** min(block.depth, 4)
        for instr in block.code:
            for reg in (*instr.uses(), *instr.defs()):
                uses[reg] = uses.get(reg, 0.0) + weight
    chosen: set[Vreg] = set()
    for live in _alive(function, out, chosen):
        if len(live) > CROWDED:
            own = sorted((reg for reg in live if reg.fixed is None), key=lambda reg: (uses[reg], reg.number))
            chosen.update(own[: len(live) - CROWDED // 2])
    return spill(function, chosen, frame)


def _alive(function: IrFunction, out: dict[BasicBlock, set[Vreg]], kept: set[Vreg]) -> Iterator[set[Vreg]]:
    """Yield the values but for `kept` that are alive before each operation, the last one of each block first."""
    for block in function.blocks:
        live = set(out[block])
        for instr in reversed(block.code):
            live.difference_update(instr.defs())
            live.update(instr.uses())
            if len(live) > CROWDED:
                live -= kept
            yield live
