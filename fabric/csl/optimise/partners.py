"""Descriptors beside a chosen DSR are moved if their only place is another DSR that the program chose.

On WSE-2 a dest DSR and a src0 DSR of one operation have the same number.  So a descriptor that stands beside ``dest 1``
goes into ``src0 1``, even if the program loads that one itself elsewhere (WaferLLM's Prefill does).  Nothing is lost if
each of the program's own operations on it comes after a load in the same function.
"""

from __future__ import annotations

from fabric.csl.ir import AutoDsr, BasicBlock, ExplicitDsr, Instr, IrFunction, Vector
from fabric.csl.optimise.flow import predecessors

__all__ = ["settle_partners"]

OTHER = {"dest": "src0", "src0": "dest"}


def settle_partners(functions: list[IrFunction]) -> None:
    """Give such descriptors the DSR that the program chose for something else, where that is safe."""
    named = {dsr for function in functions for instr in function.instructions() for dsr in _explicit(instr)}
    wanted: dict[ExplicitDsr, list[tuple[IrFunction, Instr, AutoDsr]]] = {}
    for function in functions:
        for instr in function.instructions():
            if instr.op == "vector" and (found := _partner(instr.data)) is not None and found[0] in named:
                wanted.setdefault(found[0], []).append((function, instr, found[1]))
    for dsr, places in wanted.items():
        disturbed = {id(instr) for _, instr, _ in places}
        if not all(_loads_before_use(function, dsr, disturbed) for function in functions):
            continue
        for function, instr, auto in places:
            _rename(function, instr, auto, dsr)


def _explicit(instr: Instr) -> list[ExplicitDsr]:
    if instr.op == "vector":
        return [slot for slot in instr.data.slots if isinstance(slot, ExplicitDsr)]
    if instr.op.startswith("dsr_"):
        dsr = instr.data[0] if instr.op == "dsr_load" else instr.data
        return [dsr] if isinstance(dsr, ExplicitDsr) else []
    return []


def _partner(vector: Vector) -> tuple[ExplicitDsr, AutoDsr] | None:
    """Return the DSR that an automatic one of an operation must be, and that one; None if there is no such pair."""
    chosen = next((x for x in vector.slots if isinstance(x, ExplicitDsr) and x.file in OTHER), None)
    if chosen is None:
        return None
    auto = next((x for x in vector.slots if isinstance(x, AutoDsr) and x.file == OTHER[chosen.file]), None)
    return None if auto is None else (ExplicitDsr(auto.file, chosen.number), auto)


def _loads_before_use(function: IrFunction, dsr: ExplicitDsr, disturbed: set[int]) -> bool:
    """Whether each operation on a DSR finds what the function itself loaded, nothing having come between."""

    def passed(block: BasicBlock, loaded: bool) -> tuple[bool, bool]:
        """Return whether all operations of a block are well, and whether the DSR is loaded behind it."""
        good = True
        for instr in block.code:
            if instr.op == "dsr_load" and instr.data[0] == dsr:
                loaded = True
            elif instr.op in ("call", "tail") or id(instr) in disturbed:
                loaded = False
            elif dsr in _explicit(instr):
                good = good and loaded
        return good, loaded

    before = predecessors(function)
    behind = dict.fromkeys(function.blocks, True)
    changed = True
    while changed:
        changed = False
        for block in function.blocks:
            entered = bool(before[block]) and block is not function.blocks[0] and all(behind[b] for b in before[block])
            after = passed(block, entered)[1]
            changed |= after != behind[block]
            behind[block] = after
    return all(
        passed(
            block, block is not function.blocks[0] and bool(before[block]) and all(behind[b] for b in before[block])
        )[0]
        for block in function.blocks
    )


def _rename(function: IrFunction, instr: Instr, auto: AutoDsr, dsr: ExplicitDsr) -> None:
    vector = instr.data
    instr.data = Vector(vector.op, tuple(dsr if slot is auto else slot for slot in vector.slots), vector.ending)
    for other in function.instructions():
        if other.op == "dsr_load" and other.data[0] is auto:
            other.data = (dsr, other.data[1])
        elif other.op.startswith("dsr_") and other.data is auto:
            other.data = dsr
