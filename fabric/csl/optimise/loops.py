"""The loops of a function are found, and the block before each."""

from __future__ import annotations

from fabric.csl.ir import BasicBlock, Instr, IrFunction
from fabric.csl.optimise.flow import predecessors

__all__ = ["before", "exits", "loops_of"]


def loops_of(function: IrFunction) -> list[tuple[BasicBlock, set[BasicBlock]]]:
    """Return the loops of a function, inner ones first: the block where each begins, and all of its blocks."""
    spans = _dominators(function)
    leading = predecessors(function)
    found: dict[BasicBlock, set[BasicBlock]] = {}
    for block in (block for block in function.blocks if block in spans):
        begin, end = spans[block]
        for head in block.successors():
            if spans[head][0] <= begin and end <= spans[head][1]:
                body = found.setdefault(head, {head})
                stack = [block]
                while stack:
                    here = stack.pop()
                    if here not in body:
                        body.add(here)
                        stack += leading[here]
    return sorted(found.items(), key=lambda item: len(item[1]))


def _dominators(function: IrFunction) -> dict[BasicBlock, tuple[int, int]]:
    """Return per block an interval that those of the blocks which it dominates lie in: it is on every way to them.

    The tree of next dominators is found by walking up from the blocks before each (Cooper, Harvey and Kennedy), in an
    order in which what leads to a block mostly comes before it.
    """
    leading, order = predecessors(function), _order(function)
    place = {block: k for k, block in enumerate(order)}
    above = [0] * len(order)
    known = [True] + [False] * (len(order) - 1)
    changed = True
    while changed:
        changed = False
        for k, block in enumerate(order[1:], 1):
            new = -1
            for other in (place[b] for b in leading[block] if b in place and known[place[b]]):
                new = other if new < 0 else _meet(above, new, other)
            if not known[k] or above[k] != new:
                above[k], known[k], changed = new, True, True
    below: list[list[int]] = [[] for _ in order]
    for k in range(1, len(order)):
        below[above[k]].append(k)
    begins, ends = [0] * len(order), [0] * len(order)
    count, stack = 0, [(0, False)]
    while stack:
        k, left = stack.pop()
        count += 1
        if left:
            ends[k] = count
            continue
        begins[k] = count
        stack.append((k, True))
        stack += [(inner, False) for inner in below[k]]
    return {block: (begins[k], ends[k]) for block, k in place.items()}


def _meet(above: list[int], one: int, other: int) -> int:
    """Return the next block that is above both of two in the tree."""
    while one != other:
        if one > other:
            one = above[one]
        else:
            other = above[other]
    return one


def _order(function: IrFunction) -> list[BasicBlock]:
    """Return the blocks that can be reached, each before what it leads to unless that goes back."""
    first = function.blocks[0]
    seen, found = {first}, []
    stack = [(first, iter(first.successors()))]
    while stack:
        block, rest = stack[-1]
        after = next(rest, None)
        if after is None:
            found.append(block)
            stack.pop()
        elif after not in seen:
            seen.add(after)
            stack.append((after, iter(after.successors())))
    return found[::-1]


def before(function: IrFunction, head: BasicBlock, body: set[BasicBlock]) -> BasicBlock:
    """Return the block that leads into a loop; made if there is none of its own."""
    outside = [block for block in predecessors(function)[head] if block not in body]
    if len(outside) == 1 and outside[0].code[-1].op == "jmp":
        return outside[0]
    made = _between(function, head, max(0, head.depth - 1))
    for block in outside:
        _redirect(block, head, made)
    function.blocks.insert(function.blocks.index(head), made)
    return made


def exits(function: IrFunction, body: set[BasicBlock]) -> list[BasicBlock]:
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


def _between(function: IrFunction, after: BasicBlock, depth: int) -> BasicBlock:
    made = BasicBlock(max(block.number for block in function.blocks) + 1, depth)
    made.code.append(Instr("jmp", None, (), after, after.code[0].span))
    return made


def _redirect(block: BasicBlock, old: BasicBlock, new: BasicBlock) -> None:
    last = block.code[-1]
    if last.op == "jmp":
        last.data = new
    else:
        row, condition, then, otherwise = last.data
        last.data = (row, condition, new if then is old else then, new if otherwise is old else otherwise)
