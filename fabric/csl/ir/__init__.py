"""The intermediate form lies between the typed tree and instructions: blocks of operations on virtual registers.

Operations are those of the machine (`wse_core.isa`) and a few of our own; see `fabric.csl.ir.code`.
"""

from __future__ import annotations

from fabric.csl.ir.code import BasicBlock, Instr, IrFunction, Operand, StaticMemory, Sym, Vreg, signed
from fabric.csl.ir.machine import AutoDsr, Ending, ExplicitDsr, Fifo, IrProgram, NamedTask, Template, Vector

__all__ = [
    "AutoDsr",
    "BasicBlock",
    "Ending",
    "ExplicitDsr",
    "Fifo",
    "Instr",
    "IrFunction",
    "IrProgram",
    "NamedTask",
    "Operand",
    "StaticMemory",
    "Sym",
    "Template",
    "Vector",
    "Vreg",
    "signed",
]
