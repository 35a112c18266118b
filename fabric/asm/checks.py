"""Operands of vector operations must obey rules: types, packing, microthreads, DSRs that must be paired.

Front ends ask when an operation is written, the assembler again when it knows all that a DSR is ever loaded with.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fabric.asm.instruction import LETTER_NAME, MOVES, Instruction
from fabric.asm.operands import Async, Dsd, Dsr
from fabric.asm.values import WORDS
from wse_core import isa

if TYPE_CHECKING:
    from fabric.asm.unit import Unit

__all__ = ["LETTER", "check_type", "fits", "packing", "pair", "thread_of"]

LETTER = {"f16": "h", "cb16": "h", "i16": "i", "u16": "i", "f32": "s", "i32": "l", "u32": "l"}
"""Each element type has its letter of the op table."""
OPEN_THREAD = 8
"""An operation whose DSRs are loaded only further down in the code has this microthread."""


def check_type(unit: Unit, op: isa.Op, dsd: Dsd, letter: str, place: str, ins: Instruction | None = None) -> None:
    """Refuse a descriptor whose elements are not of the type that an operand of `op` has."""
    if dsd.dtype is None:
        return
    same_size = WORDS[dsd.dtype] == isa.WORDS[letter]
    if not (same_size if op.name in MOVES else LETTER[dsd.dtype] == letter):
        raise unit.error(
            f"{op.name} {place}: {dsd} has elements of type {dsd.dtype}, the operation wants {LETTER_NAME[letter]}",
            hint="dtype=... of the descriptor gives a view of equal size" if same_size else _sibling(op, dsd.dtype),
            ins=ins,
        )


def _sibling(op: isa.Op, dtype: str) -> str | None:
    """Return the operation that does the same to elements of another type: the last letter of its name is theirs."""
    name = op.name[:-1] + LETTER[dtype]
    return f"{name} works on these" if name in isa.BY_NAME else None


def packing(dsd: Dsd, letter: str) -> bool:
    """Return whether a fabric operand moves two elements per wavelet."""
    if isa.WORDS[letter] == 2:
        return False
    return True if dsd.packed is None else dsd.packed


def fits(unit: Unit, dsd: Dsd, file: str) -> None:
    """Refuse a descriptor in a DSR of a file that cannot use it."""
    if dsd.kind == "fabout" and file != "dest":
        raise unit.error(f"{dsd} can only be a destination, so it belongs into a dest DSR, not {file}")
    if dsd.kind == "fabin" and file == "dest":
        raise unit.error(f"{dsd} can only be a source, so it belongs into a src0 or src1 DSR")
    if dsd.kind == "fifo" and file == "src0":
        raise unit.error(f"{dsd}: a FIFO cannot be the first source", hint="a src1 or dest DSR")


def thread_of(
    unit: Unit, op: isa.Op, operands: Iterable[Dsd | Dsr], async_: Async | None, ins: Instruction | None = None
) -> int:
    """Return the microthread of an operation, -1 for the main thread; check what the machine allows.

    A DSR that is loaded only further down in the code leaves the microthread open (8); the assembler asks again.
    """
    if async_ is None:
        return -1
    operands = list(operands)
    is_open = any(isinstance(x, Dsr) and not x.loads for x in operands)
    fabric = [d for x in operands for d in (x.loads if isinstance(x, Dsr) else [x])]
    out = [d.queue.number for d in fabric if d.kind == "fabout" and d.queue is not None]
    into = [d.queue.number for d in fabric if d.kind == "fabin" and d.queue is not None]
    derived = next(iter(out or into), None)
    if derived is None and is_open:
        return OPEN_THREAD if async_.ut is None else async_.ut
    if derived is None and not any(d.kind == "fifo" for d in fabric):
        raise unit.error(f"{op.name}: an asynchronous operation needs an operand on the fabric or a FIFO", ins=ins)
    if async_.ut is None:
        if derived is None:
            raise unit.error(
                f"{op.name}: without an operand on the fabric the microthread must be named", ins=ins, hint="ut=0 .. 7"
            )
        return derived
    if unit.machine["ut.of_queue"] and derived is not None and async_.ut != derived:
        raise unit.error(
            f"{op.name}: microthread {async_.ut} asked for, but {unit.machine.preset} runs this operation on "
            f"microthread {derived}, the number of its queue",
            ins=ins,
            hint="leave ut out, or bind another queue",
        )
    return async_.ut


def pair(unit: Unit, ins: Instruction) -> None:
    """Note that a dest DSR and a src0 DSR of one operation carry the same number, where the machine asks for it."""
    if not unit.machine["dsr.paired"]:
        return
    left = ins.a
    if isinstance(left, Dsr) and left.file == "dest":
        for right in (ins.b, ins.c):
            if isinstance(right, Dsr) and right.file == "src0":
                _unite(unit, left, right, ins)


def _unite(unit: Unit, left: Dsr, right: Dsr, ins: Instruction) -> None:
    a, b = left.root, right.root
    if a is b:
        return
    if a.number is not None and b.number is not None and a.number != b.number:
        raise unit.error(
            f"{ins.op.name}: {left} and {right} are used together; on {unit.machine.preset} a dest DSR and a "
            "src0 DSR of one operation must have the same id",
            ins=ins,
            hint=unit.hint("dsr id", file=right.file, id=a.number),
        )
    if (a.number is None and b.number is not None) or (a.thread is not None and b.thread is None):
        a, b = b, a
    b.group = a
    unit.united.append(b)
