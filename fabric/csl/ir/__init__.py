"""The intermediate form lies between the typed tree and instructions: blocks of operations on virtual registers.

Operations are those of the machine (`wse_core.isa`) and a few of our own; see `fabric.csl.ir.code`.
"""

from __future__ import annotations

from fabric.csl.ir.code import Block, Function, Instr, Memory, Operand, Sym, Vreg, signed
from fabric.csl.ir.machine import AutoDsr, Ending, ExplicitDsr, Fifo, NamedTask, Program, Template, Vector

__all__ = [
    "AutoDsr",
    "Block",
    "Ending",
    "ExplicitDsr",
    "Fifo",
    "Function",
    "Instr",
    "Memory",
    "NamedTask",
    "Operand",
    "Program",
    "Sym",
    "Template",
    "Vector",
    "Vreg",
    "signed",
]
