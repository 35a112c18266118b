"""A refused program comes with what to try, in the words of `Program`: for each hint of the assembler."""

from __future__ import annotations

__all__ = ["HINTS"]

HINTS = {
    "assembled": "write everything before assemble(), Var.address or Layout.build()",
    "body": 'with p.task("main"): ...',
    "dsr id": 'p.dsr("{file}", id={id}), or leave the choice to the assembler',
    "dsrs": "fewer p.dsr(...), or load all descriptors explicitly",
    "half": "Program(..., half={dtype!r}); a PE has one 16-bit float format at a time",
    "load": "p.load(dsr, dsd)",
    "register": "p.reg16() and p.reg32() make registers of either size; .low and .high are the halves of a pair",
    "stride": "p.mem4d takes strides of 16 bits",
}
"""Each key of `fabric.asm.hints` has a hint in the words of a Python program."""
