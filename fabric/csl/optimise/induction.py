"""Some indices are only used as multiples; they count in those multiples: no shift in each turn of a loop.

An index of 32-bit elements that steps by one and is shifted left by one for each address becomes a number that steps by
two.  An index that is also used as it is, or in products that take more than a shift, stays: see `fabric.csl.rules`.
"""

from __future__ import annotations

from fabric.csl.ir import Instr, IrFunction, Vreg

__all__ = ["scale"]


def scale(function: IrFunction) -> bool:
    """Let indices count in multiples where they can; tell whether some do."""
    sets: dict[Vreg, list[Instr]] = {}
    uses: dict[Vreg, list[Instr]] = {}
    for instr in function.instructions():
        for reg in instr.defs():
            sets.setdefault(reg, []).append(instr)
        for reg in instr.uses():
            uses.setdefault(reg, []).append(instr)
    changed = False
    for reg, defined in sets.items():
        shift = _shift(reg, defined, uses.get(reg, []))
        if shift:
            _rewrite(reg, shift, defined, uses[reg])
            changed = True
    return changed


def _shift(reg: Vreg, defined: list[Instr], used: list[Instr]) -> int:
    """Return by how much all uses of an index shift it, 0 if it must stay as it is."""
    if reg.size != 1 or reg.fixed is not None or len(defined) < 2:
        return 0
    first = [instr for instr in defined if instr.op == "const" and isinstance(instr.args[0], int)]
    steps = [
        instr for instr in defined if instr.op == "add16" and instr.args[0] is reg and isinstance(instr.args[1], int)
    ]
    if len(first) + len(steps) != len(defined) or not steps:
        return 0
    shifts = {instr.args[1] for instr in used if instr.op == "sll16" and instr.args[0] is reg}
    ends = [instr for instr in used if instr.op == "br" and instr.args[0] is reg]
    others = [instr for instr in used if instr not in steps and instr.op != "sll16" and instr not in ends]
    if len(shifts) != 1 or others or any(instr.op == "sll16" and instr.args[1] is reg for instr in used):
        return 0
    (shift,) = shifts
    if not isinstance(shift, int):
        return 0
    # A comparison must not meet a multiple that has lost its upper bits: the index walks from below to its end.
    limit = 1 << 16 - shift
    for instr in ends:
        _, condition, _, _ = instr.data
        end = instr.args[1]
        fits = condition in ("eq", "ne") and isinstance(end, int) and end < limit
        if not fits or len(first) != 1 or len(steps) != 1:
            return 0
        start, step = first[0].args[0], steps[0].args[1]
        if not (start <= end and 0 < step < limit and (end - start) % step == 0):
            return 0
    return shift


def _rewrite(reg: Vreg, shift: int, defined: list[Instr], used: list[Instr]) -> None:
    for instr in defined:
        if instr.op == "const":
            instr.args = (instr.args[0] << shift & 0xFFFF,)
        else:
            instr.args = (reg, instr.args[1] << shift & 0xFFFF)
    for instr in used:
        if instr.op == "sll16":
            instr.op, instr.args = "copy", (reg,)
        elif instr.op == "br":
            instr.args = (reg, instr.args[1] << shift)
