"""Symbolic instructions: how they are kept, how immediates and register operands become fields, where errors point.

An error names the line of the user's program: the first frame outside of this package.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import numpy as np

from fabric.asm.operands import Address, Reg, Var, is_number
from fabric.asm.values import encode_array
from wse_core import isa
from wse_core.errors import ProgramError, UnsupportedError

__all__ = ["LETTER_NAME", "MOVES", "Body", "Emission", "Instruction", "TaskRef"]

LETTER_NAME = {"h": "16-bit float", "i": "16-bit integer", "s": "f32", "l": "32-bit integer"}
MOVES = frozenset({"mov16", "mov32"})  # copies of bits: any element type of the right size
_INSIDE = (os.path.join(os.path.dirname(__file__), ""), "<string>")


@dataclass(slots=True, eq=False)
class Instruction:
    """One symbolic instruction: operand fields are ints or `Dsr`, imm is whatever `Assembler.immediate` understands."""

    op: isa.Op
    a: object = 0
    b: object = 0
    c: object = 0
    d: object = 0
    imm: object = None
    where: str = ""
    body: str = ""


@dataclass(slots=True)
class Body:
    """The task or function that is being written."""

    name: str
    kind: str
    regs: list


@dataclass(slots=True)
class TaskRef:
    """A task as an instruction or descriptor names it, and what for (the word of messages)."""

    task: object
    use: str


class Emission:
    """Part of `fabric.program.program.Program`: errors and the emission of instructions."""

    # --- errors -------------------------------------------------------------------------------------------------------

    def _where(self):
        """Return ``file:line`` of the caller outside this package and contextlib."""
        frame = sys._getframe(1)
        while frame is not None and (
            frame.f_code.co_filename.startswith(_INSIDE) or frame.f_code.co_filename.endswith("contextlib.py")
        ):
            frame = frame.f_back
        return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame is not None else None

    def _error(self, what, hint=None, ins=None, **fields):
        where = fields.pop("where", ins.where if ins is not None else self._where())
        body = ins.body if ins is not None else self._body.name if self._body else None
        index = self._ins.index(ins) if ins is not None else len(self._ins) if self._body else None
        return ProgramError(what, hint=hint, where=where, program=self.name, task=body, instruction=index, **fields)

    def _unsupported(self, feature, what=None):
        return UnsupportedError(
            f"{what or feature} is not modelled",
            feature=feature,
            cause=isa.UNSUPPORTED[feature],
            where=f"program {self.name!r}, {self._where()}",
        )

    def _changing(self):
        if self._image is not None:
            raise self._error(
                "the program is assembled and cannot be changed any more",
                hint="write everything before assemble(), Var.address or Layout.build()",
            )

    # --- emission -----------------------------------------------------------------------------------------------------

    def _emit(self, name, a=0, b=0, c=0, d=0, imm=None):
        self._changing()
        if self._body is None:
            raise self._error(f"{name}: an instruction outside a task or function", hint='with p.task("main"): ...')
        ins = Instruction(isa.BY_NAME[name], a, b, c, d, imm, self._where(), self._body.name)
        self._ins.append(ins)
        return ins

    def _imm(self, value, letter, what):
        """Return `value` as the bits of an element of type `letter`."""
        if isinstance(value, (Var, Address)) and letter == "i":
            return Address(value) if isinstance(value, Var) else value
        if not is_number(value):
            raise self._error(f"{what}: {value!r} is neither a register nor a number")
        if letter in "hs":
            words = encode_array(float(value), self.half if letter == "h" else "f32", self.machine["num.cb16_bias"])
        else:
            bits = 16 if letter == "i" else 32
            if isinstance(value, (float, np.floating)):
                raise self._error(f"{what}: {value} given where a {LETTER_NAME[letter]} belongs")
            if not -1 << bits - 1 <= value < 1 << bits:
                raise self._error(f"{what}: {value} does not fit {bits} bits")
            return int(value) & (1 << bits) - 1
        return int(words[0]) | (int(words[1]) << 16 if letter == "s" else 0)

    def _reg_field(self, reg, letter, what):
        """Return the operand field of a register that holds an element of type `letter`."""
        if not isinstance(reg, Reg):
            raise self._error(f"{what}: {reg!r} is not a register")
        need = 1 if letter in "hi" else 2
        if reg.size not in (0, need):
            raise self._error(
                f"{what}: {reg} has {16 * reg.size} bits, a {LETTER_NAME[letter]} has {16 * need}",
                hint="p.reg16() and p.reg32() make registers of either size; .low and .high are the halves of a pair",
            )
        if need == 2 and reg.id % 2:
            raise self._error(f"{what}: register pair r{reg.id}:r{reg.id + 1}: the first register of a pair is even")
        return isa.FILE_REG << 4 | reg.id

    @staticmethod
    def _moved(op, value, letter):
        """Return the type of an immediate: a float that is copied as bits stays a float."""
        if op.name in MOVES and isinstance(value, (float, np.floating)):
            return "h" if letter == "i" else "s"
        return letter

    def _held(self, value, letter, op, held):
        """Load an immediate into a register that lives until `_release` and return its operand field."""
        imm = self._imm(value, self._moved(op, value, letter), f"{op.name} source")
        if letter in "hi":
            reg = self._register("", 1)
            self._emit("ldi", a=isa.FILE_REG << 4 | reg.id, imm=imm)
        else:
            reg = self._register("", 2)
            self._emit("ldi32", a=isa.FILE_REG << 4 | reg.id, imm=imm)
        held.append(reg)
        return isa.FILE_REG << 4 | reg.id

    def _release(self, held):
        for reg in held:
            self._body.regs.remove(reg)
