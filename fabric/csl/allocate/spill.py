"""Virtual registers that are kept in memory: loaded before each use, stored after each definition."""

from __future__ import annotations

from collections.abc import Callable

from fabric.csl.ir import Instr, IrFunction, StaticMemory, Sym, Vreg

__all__ = ["spill"]


def spill(function: IrFunction, registers: set[Vreg], frame: Callable[[int], StaticMemory]) -> set[Vreg]:
    """Keep registers in memory; return the short-lived ones that take their place."""
    once = function.single()
    constants = {reg: once[reg] for reg in registers if reg in once and once[reg].op == "const"}
    kept = sorted((reg for reg in registers if reg not in constants), key=lambda reg: reg.number)
    slots = {reg: Sym(frame(reg.size)) for reg in kept}
    made: set[Vreg] = set()
    for block in function.blocks:
        out: list[Instr] = []
        for instr in block.code:
            if instr.dst in constants and instr.op == "const":
                continue
            held: dict[Vreg, Vreg] = {}
            for reg in dict.fromkeys(reg for reg in instr.uses() if reg in registers):
                new = held[reg] = Vreg(reg.size, reg.name)
                made.add(new)
                if reg in constants:
                    out.append(Instr("const", new, constants[reg].args, None, instr.span))
                else:
                    out.append(Instr("load", new, (), slots[reg], instr.span))
            if held:
                instr.args = tuple(held.get(arg, arg) if isinstance(arg, Vreg) else arg for arg in instr.args)
            out.append(instr)
            stores = []
            if instr.op in ("entry", "tsc"):
                stores += [(reg, reg) for reg in instr.data if reg in slots]
            elif instr.dst in slots:
                assert instr.dst is not None
                old = instr.dst
                # A running sum is read and set in one register.
                instr.dst = held[old] if instr.op == "vector" and old in held else Vreg(old.size, old.name)
                made.add(instr.dst)
                stores.append((old, instr.dst))
            for old, new in stores:
                out.append(Instr("store", None, (new,), slots[old], instr.span))
        block.code = out
    return made
