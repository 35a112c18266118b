"""Constants and copies of registers are carried through the whole function if they are set once."""

from __future__ import annotations

from fabric.csl.ir import IrFunction, Operand, Vreg
from fabric.csl.optimise.fold import needs_register

__all__ = ["propagate"]


def propagate(function: IrFunction) -> bool:
    """Replace registers that are set once, to a constant or to another register that is set once."""
    once = function.single()
    values: dict[Vreg, Operand] = {}
    for reg, instr in once.items():
        if instr.op == "const" or (instr.op == "copy" and instr.args[0] in once):
            values[reg] = instr.args[0]
    if not values:
        return False

    def final(reg: Operand, register: bool) -> Operand:
        while isinstance(reg, Vreg) and reg in values:
            if register and not isinstance(values[reg], Vreg):
                break
            reg = values[reg]
        return reg

    changed = False
    for instr in function.instructions():
        if not any(arg.__class__ is Vreg and arg in values for arg in instr.args):
            continue
        new = tuple(final(arg, needs_register(instr, k)) for k, arg in enumerate(instr.args))
        if new == instr.args:
            continue
        changed = True
        if instr.op == "copy" and not isinstance(new[0], Vreg):
            instr.op = "const"
        instr.args = new
    return changed
