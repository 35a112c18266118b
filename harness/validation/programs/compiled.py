"""What the recipe of the wave equation, which is not compiled from CSL, takes from the compiler's rules.

*Descriptors*: an operation whose descriptors are variables (DSDs) loads each into a DSR right before and adds the
offset that was computed for it; the destination and the first source have a DSR each, even where they are the same.

*Asynchronous operations* have low priority (`PRIORITY`) where the program says nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable

from fabric.asm.operands import Dsd, Dsr, Reg
from fabric.program.program import Program

__all__ = ["PRIORITY", "load_at"]

PRIORITY = "low"
"""Of an asynchronous operation that names none (CSL page on DSDs)."""


def load_at(p: Program, dsrs: Iterable[Dsr], dsd: Dsd, offset: Reg | int | None = None) -> None:
    """Load a descriptor into DSRs, its base moved by the words in the register `offset`, or by a number of them."""
    for dsr in dsrs:
        p.load(dsr, dsd)
        if offset is not None:
            p.dsr_off(dsr, offset)
