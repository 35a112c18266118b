"""Blocks are put in an order in which what is likely goes on without a jump.

A number is taken to be seldom zero, as LLVM takes it, so what a task does only when a counter has come to zero stands
behind everything else.  Public counts of tiled stencils speak for it: eight tasks that count take 110 cycles together
with 16 set-ups (`harness.validation`).  What both ways do in the end, they do separately if it is to end.
"""

from __future__ import annotations

from fabric.csl.ir import BasicBlock, Instr, IrFunction
from fabric.csl.optimise.flow import clean, predecessors

__all__ = ["order"]


def order(function: IrFunction) -> None:
    """End tasks where they are, and move what is unlikely to their end."""
    if function.kind != "task":
        return  # the end of a function loads registers again, of which one copy is enough
    _end_at_once(function)
    clean(function)
    leading = predecessors(function)
    for block in list(function.blocks):
        seldom = _unlikely(block)
        if seldom is None or seldom.code[-1].op != "ret" or leading[seldom] != [block]:
            continue
        function.blocks.remove(seldom)
        function.blocks.append(seldom)


def _end_at_once(function: IrFunction) -> None:
    for block in function.blocks:
        last = block.code[-1]
        if last.op == "jmp" and len(last.data.code) == 1 and last.data.code[0].op == "ret":
            block.code[-1] = Instr("ret", None, (), None, last.span)


def _unlikely(block: BasicBlock) -> BasicBlock | None:
    """Return where a block leads when a number is zero."""
    last = block.code[-1]
    if last.op != "br":
        return None
    row, condition, then, otherwise = last.data
    if row not in ("br16", "br32") or condition not in ("eq", "ne") or last.args[1] != 0 or then is otherwise:
        return None
    return then if condition == "eq" else otherwise
