"""Values that do not change in a loop are computed before it."""

from __future__ import annotations

from fabric.csl.ir import Block, Function, Instr, Vreg
from fabric.csl.optimise.flow import predecessors
from fabric.csl.optimise.fold import PURE

__all__ = ["hoist"]

MOST = 4
"""Values that are taken out of a loop at most; each needs a register in all of it."""


def hoist(function: Function) -> bool:
    """Move values out of loops; tell whether some were moved."""
    changed = False
    for head, body in _loops(function):
        changed |= _empty(function, head, body)
    return changed


def _loops(function: Function) -> list[tuple[Block, set[Block]]]:
    """Return the loops of a function, inner ones first: the block where each begins, and all of its blocks."""
    dominators = _dominators(function)
    before = predecessors(function)
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
                        stack += before[here]
    return sorted(found.items(), key=lambda item: len(item[1]))


def _dominators(function: Function) -> dict[Block, set[Block]]:
    before = predecessors(function)
    everything = set(function.blocks)
    found = {block: set(everything) for block in function.blocks}
    first = function.blocks[0]
    found[first] = {first}
    changed = True
    while changed:
        changed = False
        for block in function.blocks[1:]:
            sets = [found[b] for b in before[block]]
            new = set.intersection(*sets) | {block} if sets else {block}
            if new != found[block]:
                found[block], changed = new, True
    return found


def _empty(function: Function, head: Block, body: set[Block]) -> bool:
    once = function.single()
    inside: set[Vreg] = set()
    for block in body:
        for instr in block.code:
            inside.update(instr.defs())
    moved: list[Instr] = []
    for block in [b for b in function.blocks if b in body]:
        kept = []
        for instr in block.code:
            dst = instr.dst
            steady = (
                len(moved) < MOST
                and instr.op in PURE
                and instr.op not in ("const", "copy")
                and dst in once
                and all(not isinstance(arg, Vreg) or (arg in once and arg not in inside) for arg in instr.args)
            )
            if steady and dst is not None:
                moved.append(instr)
                inside.discard(dst)
            else:
                kept.append(instr)
        block.code = kept
    if not moved:
        return False
    _before(function, head, body).code[-1:-1] = moved
    return True


def _before(function: Function, head: Block, body: set[Block]) -> Block:
    """Return the block that leads into a loop; made if there is none of its own."""
    outside = [block for block in predecessors(function)[head] if block not in body]
    if len(outside) == 1 and outside[0].code[-1].op == "jmp":
        return outside[0]
    made = Block(max(block.number for block in function.blocks) + 1, max(0, head.depth - 1))
    made.code.append(Instr("jmp", None, (), head, head.code[0].span))
    for block in outside:
        last = block.code[-1]
        if last.op == "jmp":
            last.data = made
        else:
            row, condition, then, otherwise = last.data
            last.data = (row, condition, made if then is head else then, made if otherwise is head else otherwise)
    function.blocks.insert(function.blocks.index(head), made)
    return made
