"""Promises that every pass keeps; a broken one is a defect of the compiler."""

from __future__ import annotations

from fabric.csl.ir.code import TERMINATORS, Instr, IrFunction, Vreg
from fabric.csl.ir.printer import FunctionPrinter
from wse_core import isa
from wse_core.errors import InternalError

__all__ = ["verify"]


def verify(function: IrFunction, after: str) -> None:
    """Check that blocks end, jumps lead to blocks of the function, and operands have the right size.

    Raises
    ------
    InternalError
        A block without an end, a jump to a block that is not there, an operand of the wrong size.
    """
    known = set(function.blocks)

    def wrong(what: str, instr: Instr | None = None) -> InternalError:
        writer = FunctionPrinter(function)
        said = what if instr is None else f"'{writer.line(instr)}' {what}"
        return InternalError(f"after {after}: {said}\n{writer.text}", where=f"function {function.name!r}")

    for block in function.blocks:
        if not block.ended:
            raise wrong(f"{block} has no end")
        for place, instr in enumerate(block.code):
            if (instr.op in TERMINATORS) != (place == len(block.code) - 1):
                raise wrong(f"stands in a wrong place of {block}", instr)
            row = isa.BY_NAME.get(instr.op)
            if row is not None and row.form == "alu":
                letters = [letter for letter in row.types if letter != "-"]
                if len(letters) != 1 + len(instr.args) or instr.dst is None:
                    raise wrong("has a wrong number of operands", instr)
                for letter, value in zip(letters, (instr.dst, *instr.args), strict=True):
                    if isinstance(value, Vreg) and value.size != isa.WORDS[letter]:
                        raise wrong("has an operand of a wrong size", instr)
            elif instr.op == "copy" and instr.dst is not None and instr.dst.size != instr.args[0].size:
                raise wrong("has an operand of a wrong size", instr)
        for following in block.successors():
            if following not in known:
                raise wrong(f"{block} jumps to {following}, which is not there")
