"""Promises that every pass keeps; a broken one is a defect of the compiler."""

from __future__ import annotations

from fabric.csl.ir.code import TERMINATORS, Function, Vreg
from fabric.csl.ir.printer import listing
from wse_core import isa
from wse_core.errors import InternalError

__all__ = ["verify"]


def verify(function: Function, after: str) -> None:
    """Check a function.

    Raises
    ------
    InternalError
        A block without an end, a jump to a block that is not there, an operand of the wrong size.
    """
    known = {id(block) for block in function.blocks}

    def wrong(what: str) -> InternalError:
        return InternalError(f"after {after}: {what}\n{listing(function)}", where=f"function {function.name!r}")

    for block in function.blocks:
        if not block.ended:
            raise wrong(f"{block} has no end")
        for place, instr in enumerate(block.code):
            if (instr.op in TERMINATORS) != (place == len(block.code) - 1):
                raise wrong(f"{block}: '{instr!r}' in a wrong place")
            row = isa.BY_NAME.get(instr.op)
            if row is not None and row.form == "alu":
                letters = [letter for letter in row.types if letter != "-"]
                if len(letters) != 1 + len(instr.args) or instr.dst is None:
                    raise wrong(f"'{instr!r}' has a wrong number of operands")
                for letter, value in zip(letters, (instr.dst, *instr.args), strict=True):
                    if isinstance(value, Vreg) and value.size != isa.WORDS[letter]:
                        raise wrong(f"'{instr!r}' has an operand of a wrong size")
        for after_block in block.successors():
            if id(after_block) not in known:
                raise wrong(f"{block} jumps to {after_block}, which is not there")
