"""Where the loops of a function are, and the block before each."""

from __future__ import annotations

from fabric.csl.ir import Block, Function, Instr
from fabric.csl.optimise.flow import predecessors

__all__ = ["before", "exits", "loops_of"]


def loops_of(function: Function) -> list[tuple[Block, set[Block]]]:
    """Return the loops of a function, inner ones first: the block where each begins, and all of its blocks."""
    dominators = _dominators(function)
    leading = predecessors(function)
    found: dict[Block, set[Block]] = {}
    for block in function.blocks:
        for head in block.successors():
            if head in dominators[block]:
                body = found.setdefault(head, {head})
                stack = [block]
                while stack:
                    here = stack.pop()
                    if here not in body:
                        body.add(here)
                        stack += leading[here]
    return sorted(found.items(), key=lambda item: len(item[1]))


def _dominators(function: Function) -> dict[Block, set[Block]]:
    leading = predecessors(function)
    everything = set(function.blocks)
    found = {block: set(everything) for block in function.blocks}
    first = function.blocks[0]
    found[first] = {first}
    changed = True
    while changed:
        changed = False
        for block in function.blocks[1:]:
            sets = [found[b] for b in leading[block]]
            new = set.intersection(*sets) | {block} if sets else {block}
            if new != found[block]:
                found[block], changed = new, True
    return found


def before(function: Function, head: Block, body: set[Block]) -> Block:
    """Return the block that leads into a loop; made if there is none of its own."""
    outside = [block for block in predecessors(function)[head] if block not in body]
    if len(outside) == 1 and outside[0].code[-1].op == "jmp":
        return outside[0]
    made = _between(function, head, max(0, head.depth - 1))
    for block in outside:
        _redirect(block, head, made)
    function.blocks.insert(function.blocks.index(head), made)
    return made


def exits(function: Function, body: set[Block]) -> list[Block]:
    """Return a block on each way out of a loop, through which nothing else goes; made where there is none."""
    leading = predecessors(function)
    found = []
    for block in [entry for entry in function.blocks if entry in body]:
        for after in block.successors():
            if after in body:
                continue
            if len(leading[after]) == 1:
                found.append(after)
                continue
            made = _between(function, after, after.depth)
            _redirect(block, after, made)
            function.blocks.insert(function.blocks.index(block) + 1, made)
            found.append(made)
    return found


def _between(function: Function, after: Block, depth: int) -> Block:
    made = Block(max(block.number for block in function.blocks) + 1, depth)
    made.code.append(Instr("jmp", None, (), after, after.code[0].span))
    return made


def _redirect(block: Block, old: Block, new: Block) -> None:
    last = block.code[-1]
    if last.op == "jmp":
        last.data = new
    else:
        row, condition, then, otherwise = last.data
        last.data = (row, condition, new if then is old else then, new if otherwise is old else otherwise)
