"""Jumps: known choices, blocks that only jump on, blocks that nobody reaches, blocks that follow each other."""

from __future__ import annotations

from fabric.csl.ir import BasicBlock, Instr, IrFunction
from fabric.csl.optimise.fold import holds

__all__ = ["clean", "predecessors"]


def predecessors(function: IrFunction) -> dict[BasicBlock, list[BasicBlock]]:
    """Return per block those that lead to it."""
    found: dict[BasicBlock, list[BasicBlock]] = {block: [] for block in function.blocks}
    for block in function.blocks:
        for after in block.successors():
            found[after].append(block)
    return found


def clean(function: IrFunction) -> None:
    """Simplify the jumps of a function."""
    for block in function.blocks:
        _decide(block)
    _skip(function)
    _drop(function)
    _merge(function)


def _decide(block: BasicBlock) -> None:
    last = block.code[-1]
    if last.op != "br":
        return
    row, condition, then, otherwise = last.data
    if then is otherwise:
        block.code[-1] = Instr("jmp", None, (), then, last.span)
        return
    a, b = last.args
    known = holds(row, condition, a, b)
    if known is not None:
        block.code[-1] = Instr("jmp", None, (), then if known else otherwise, last.span)


def _skip(function: IrFunction) -> None:
    """Lead jumps past blocks that only jump on."""

    def target(block: BasicBlock) -> BasicBlock:
        seen = set()
        while len(block.code) == 1 and block.code[0].op == "jmp" and block not in seen:
            seen.add(block)
            block = block.code[0].data
        return block

    for block in function.blocks:
        last = block.code[-1]
        if last.op == "jmp":
            last.data = target(last.data)
        elif last.op == "br":
            row, condition, then, otherwise = last.data
            last.data = (row, condition, target(then), target(otherwise))


def _drop(function: IrFunction) -> None:
    """Drop blocks that cannot be reached."""
    seen = {function.blocks[0]}
    stack = [function.blocks[0]]
    while stack:
        for after in stack.pop().successors():
            if after not in seen:
                seen.add(after)
                stack.append(after)
    function.blocks = [block for block in function.blocks if block in seen]


def _merge(function: IrFunction) -> None:
    """Join a block with the only one that leads to it."""
    before = predecessors(function)
    joined: set[BasicBlock] = set()
    for block in function.blocks:
        if block in joined:
            continue
        while True:
            last = block.code[-1]
            if last.op != "jmp":
                break
            after = last.data
            if len(before[after]) != 1 or after is function.blocks[0]:
                break
            block.code[-1:] = after.code
            joined.add(after)
    function.blocks = [block for block in function.blocks if block not in joined]
