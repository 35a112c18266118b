"""Descriptors that are known stay in their DSRs: loaded once before a loop, and once in a row of operations.

A descriptor whose base is computed while the program runs is loaded where it is used: so the vendor's compiler does it
(`fabric.csl.rules`).  A DSR that is kept over a loop has a number that no other operation uses; a loop that calls a
function keeps none, since the function may do the same with the same numbers.
"""

from __future__ import annotations

from typing import Any

from fabric.csl.ir import AutoDsr, ExplicitDsr, Function, Instr, Vector
from fabric.csl.optimise.loops import before, loops_of
from fabric.csl.optimise.memory import templates

__all__ = ["free_numbers", "keep_descriptors"]

KEPT = 64
"""First class of numbers of DSRs that are kept; `fabric.asm` gives each class a number, those of threads before."""
MAIN = -1
FIXED = ("mem1d", "mem4d", "fabin", "fabout")
"""Kinds of descriptors that an operation leaves as they are; a FIFO's is not."""


def free_numbers(functions: list[Function], count: int) -> int:
    """Return how many numbers of DSRs are left in a program beside those that it names and those of its threads."""
    named: set[int] = set()
    threads: set[int] = set()
    for function in functions:
        for instr in function.instructions():
            if instr.op == "vector" or instr.op.startswith("dsr_"):
                for dsr in _dsrs(instr):
                    if isinstance(dsr, ExplicitDsr):
                        named.add(dsr.number)
                    else:
                        threads.add(dsr.thread)
    return max(0, count - len(named) - len(threads))


def _dsrs(instr: Instr) -> list[AutoDsr | ExplicitDsr]:
    if instr.op == "vector":
        return [slot for slot in instr.data.slots if isinstance(slot, (AutoDsr, ExplicitDsr))]
    return [instr.data[0] if instr.op == "dsr_load" else instr.data]


def keep_descriptors(function: Function, numbers: int) -> None:
    """Load what does not change before loops, at most for a number of operations, and what repeats once."""
    _out_of_loops(function, numbers)
    _once_in_a_row(function)


def _out_of_loops(function: Function, numbers: int) -> None:
    known = templates(function)
    edited = {id(i.data) for i in function.instructions() if i.op in ("dsr_base", "dsr_len", "dsr_stride", "dsr_off")}
    outer_first = loops_of(function)[::-1]
    for head, body in outer_first:
        blocks = [block for block in function.blocks if block in body]
        if any(instr.op in ("call", "tail") for block in blocks for instr in block.code):
            continue
        moved: list[Instr] = []
        for block in blocks:
            for instr in [entry for entry in block.code if entry.op == "vector"]:
                if numbers <= 0:
                    break
                steady = [dsr for dsr in _dsrs(instr) if _fits(dsr, instr.data, known, edited)]
                loads = [entry for entry in block.code if entry.op == "dsr_load" and entry.data[0] in steady]
                if len(loads) != len(steady) or not loads:
                    continue
                numbers -= 1
                for dsr in _dsrs(instr):
                    if isinstance(dsr, AutoDsr):
                        dsr.thread = KEPT + numbers
                moved += loads
                block.code = [entry for entry in block.code if entry not in loads]
        if moved:
            before(function, head, body).code[-1:-1] = moved


def _fits(dsr: AutoDsr | ExplicitDsr, vector: Vector, known: dict[Any, Any], edited: set[int]) -> bool:
    """Whether a DSR of an operation holds the same in all turns of any loop."""
    if vector.ending is not None or not isinstance(dsr, AutoDsr) or dsr.thread != MAIN or id(dsr) in edited:
        return False
    if any(isinstance(slot, ExplicitDsr) for slot in vector.slots):
        return False
    template = known.get(dsr)
    return template is not None and template.kind in FIXED and template.on_control == (0, None)


def _once_in_a_row(function: Function) -> None:
    """Let operations of a block that follow each other share a DSR that holds the same for both."""
    edited = {id(i.data) for i in function.instructions() if i.op in ("dsr_base", "dsr_len", "dsr_stride", "dsr_off")}
    for block in function.blocks:
        held: dict[str, tuple[AutoDsr, Any]] = {}
        other: dict[int, AutoDsr] = {}
        kept: list[Instr] = []
        for instr in block.code:
            if instr.op == "dsr_load" and isinstance(instr.data[0], AutoDsr) and instr.data[0].thread == MAIN:
                dsr, template = instr.data
                same = held.get(dsr.file)
                fixed = template.kind in FIXED and template.on_control == (0, None) and id(dsr) not in edited
                if same is not None and fixed and same[1] == template:
                    other[id(dsr)] = same[0]
                    continue
                held[dsr.file] = (dsr, template if fixed else None)
            elif instr.op in ("call", "tail"):
                held.clear()
            elif instr.op == "vector" and other:
                _replace(instr, other)
            kept.append(instr)
        block.code = kept


def _replace(instr: Instr, other: dict[int, AutoDsr]) -> None:
    vector = instr.data
    slots = tuple(other.get(id(slot), slot) for slot in vector.slots)
    if slots != vector.slots:
        instr.data = Vector(vector.op, slots, vector.ending)
