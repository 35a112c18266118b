"""Operands become what the machine takes: one immediate per operation, in the place of the second source."""

from __future__ import annotations

from fabric.csl.ir import Instr, IrFunction, Operand, Sym, Vreg
from fabric.csl.optimise.fold import COMMUTE
from wse_core import isa

__all__ = ["legalise"]

REGISTERS = ("store", "poke", "vector", "flt_set")


def legalise(function: IrFunction) -> None:
    """Put constants that an operation cannot hold into registers."""
    for block in function.blocks:
        out: list[Instr] = []
        for instr in block.code:
            _legal(instr, out)
            out.append(instr)
        block.code = out


def _legal(instr: Instr, out: list[Instr]) -> None:
    args = list(instr.args)
    row = isa.BY_NAME.get(instr.op)

    def hold(value: Operand, size: int) -> Vreg:
        if isinstance(value, Vreg):
            return value
        made = Vreg(size)
        out.append(Instr("const", made, (value,), None, instr.span))
        return made

    if instr.op == "br":
        kind, condition, then, otherwise = instr.data
        size = isa.WORDS[isa.BY_NAME[kind].types[0]]
        if not isinstance(args[0], Vreg) and isinstance(args[1], Vreg) and condition in ("eq", "ne"):
            args.reverse()
        args[0] = hold(args[0], size)
        if args[1].__class__ is not int or args[1] != 0:
            args[1] = hold(args[1], size)
        instr.data = (kind, condition, then, otherwise)
    elif row is not None and row.form == "alu":
        if len(args) == 2 and instr.op in COMMUTE and not isinstance(args[0], Vreg):
            args.reverse()
        letters = row.types[1:]
        for k, letter in enumerate(letters):
            if letter != "-" and not (k == 1 and not isinstance(args[k], Vreg)):
                args[k] = hold(args[k], isa.WORDS[letter])
    elif instr.op in REGISTERS:
        args = [arg if isinstance(arg, Vreg) else hold(arg, 1) for arg in args]
    elif instr.op in ("low", "high") and not isinstance(args[0], Vreg):
        args[0] = hold(args[0], 2)
    elif instr.op in ("load", "peek") and args and not isinstance(args[0], Vreg):
        args[0] = hold(args[0], 1)
    instr.args = tuple(args)
    if instr.op in ("load", "store") and len(args) > (instr.op == "store") and isinstance(instr.data, Sym):
        _displaced(instr, out)


def _displaced(instr: Instr, out: list[Instr]) -> None:
    """Add the address of a global to an index: the vendor's compiler folds no displacement (rules, indices)."""
    at = Vreg(1, "address")
    out.append(Instr("add16", at, (instr.args[-1], instr.data), None, instr.span))
    instr.args, instr.data = (*instr.args[:-1], at), 0
