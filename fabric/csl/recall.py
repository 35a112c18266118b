"""The back end keeps what it did to functions: another function of the same form gets the same, without the passes.

A layout of many programs repeats most of its functions, program after program (`fabric.csl.ir.form`).  What comes out
is what the passes would have made, bit for bit: tests compile with and without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fabric.csl.allocate import allocate
from fabric.csl.ir import BasicBlock, Instr, IrFunction, StaticMemory, Sym, Template, Vector, Vreg
from fabric.csl.ir.form import Form, Tables
from fabric.csl.optimise import optimise, prepare

__all__ = ["Recall"]


@dataclass(eq=False)
class Allocation:
    """An `Allocation` has the machine registers of a function, in the order of its table, and per block the operations
    left.
    """

    fixed: list[int | None]
    left: list[list[int]]
    clobbers: set[int]
    places: list[int]


@dataclass(eq=False)
class Outcome:
    """An `Outcome` is what optimising made of a form, kept for other functions of that form.

    Attributes
    ----------
    code : list of (place of the block, number, depth, operations)
    made : list of (place, size, name)
        Registers that were made, in that order.
    threads : list of int
        Of the automatic DSRs.
    allocations : dict
        Per key of `Recall.allocate` what the allocator did; None if it needed memory.
    """

    code: tuple[Any, ...]
    spans: list[list[Any]]
    made: list[tuple[int, int, str]]
    threads: list[int]
    allocations: dict[Any, Allocation | None] = field(default_factory=dict)

    def apply(self, function: IrFunction, tables: Tables) -> None:
        """Make of a function of the form what the passes would make of it."""
        new = {place: Vreg(size, name) for place, size, name in self.made}
        tables.registers += [new[place] for place in sorted(new)]
        for dsr, thread in zip(tables.dsrs, self.threads, strict=True):
            dsr.thread = thread
        blocks = {place: BasicBlock(number, depth) for (_, place), number, depth, _ in self.code}
        back = _Back(tables, blocks).of
        for ((_, place), _, _, code), spans in zip(self.code, self.spans, strict=True):
            blocks[place].code = [
                Instr(op, back(dst), tuple(map(back, args)), back(data), span)
                for (op, dst, args, data, _), span in zip(code, spans, strict=True)
            ]
        function.blocks = list(blocks.values())


class _Back:
    """A `_Back` turns what stands in a form back into values of a function."""

    def __init__(self, tables: Tables, blocks: dict[int, BasicBlock]) -> None:
        self.tables: dict[str, Any] = {**vars(tables), "blocks": blocks}

    def of(self, form: Any) -> Any:
        """Return what a part of a form stands for."""
        if form.__class__ is not tuple:
            return form
        kind = form[0]
        table = self.tables.get(kind)
        if table is not None:
            return table[form[1]]
        if kind == "sym":
            return Sym(self.of(form[1]), form[2])
        if kind == "vector":
            return Vector(form[1], tuple(map(self.of, form[2])), self.of(form[3]))
        if kind == "tuple":
            return tuple(map(self.of, form[1:]))
        if kind == "template":
            shape, base, packed, flags, index, control, fifo, extents, strides, color, queue, length = form[1:]
            return Template(
                shape, self.of(base), extents, strides, color, queue, self.of(packed), flags, index, control,
                self.of(fifo), length,
            )  # fmt: skip
        return form[1]


class Recall:
    """The passes of one compilation.

    Parameters
    ----------
    optimising : bool
        Whether functions are optimised, or only given the form that the allocator needs.
    """

    def __init__(self, optimising: bool = True) -> None:
        self.optimising = optimising
        self._outcomes: dict[Any, Outcome] = {}
        self._of: dict[IrFunction, tuple[Outcome, Tables]] = {}
        self.optimised = self.allocated = 0
        """The passes were run for so many functions."""

    def optimise(self, function: IrFunction) -> None:
        """Optimise a function, or recall what came of it."""
        form = Form(function)
        known = self._outcomes.get(form.whole)
        if known is not None:
            known.apply(function, form.tables)
        else:
            self.optimised += 1
            if self.optimising:
                optimise(function)
            else:
                prepare(function)
            known = _outcome(form, function)
            if known is None:
                return
            self._outcomes[form.whole] = known
        self._of[function] = (known, form.tables)

    def forget(self, function: IrFunction) -> None:
        """Take note that a function is no longer what optimising made of it."""
        self._of.pop(function, None)

    def allocate(self, function: IrFunction, frame: Callable[[int], StaticMemory], reserved: frozenset[int]) -> None:
        """Give the registers of an optimised function machine registers, or recall which ones they got."""
        known: Outcome | None = None
        tables = Tables()
        if function in self._of:
            known, tables = self._of[function]
        callees = tuple((tuple(callee.places), frozenset(callee.clobbers)) for callee in tables.functions)
        key = (reserved, callees)
        found = known.allocations.get(key) if known is not None else None
        if found is not None:
            for register, number in zip(tables.registers, found.fixed, strict=True):
                register.fixed = number
            for block, kept in zip(function.blocks, found.left, strict=True):
                block.code = [block.code[place] for place in kept]
            function.clobbers, function.places = set(found.clobbers), list(found.places)
            return
        self.allocated += 1
        places = {id(instr): place for block in function.blocks for place, instr in enumerate(block.code)}
        held = list(function.instructions())  # so that no other operation has the id of one that is dropped
        allocate(function, frame, reserved)
        if known is not None and all(id(instr) in places for instr in function.instructions()):
            left = [[places[id(instr)] for instr in block.code] for block in function.blocks]
            fixed = [register.fixed for register in tables.registers]
            known.allocations[key] = Allocation(fixed, left, set(function.clobbers), list(function.places))
        del held


def _outcome(form: Form, function: IrFunction) -> Outcome | None:
    """Return what became of a function, None if it cannot be had from another one's tables."""
    tables = form.tables
    before = len(tables.registers)
    steady = [len(table) for table in (tables.memories, tables.templates, tables.dsrs, tables.functions)]
    code = form.code(function)
    if steady != [len(table) for table in (tables.memories, tables.templates, tables.dsrs, tables.functions)]:
        return None
    new = sorted(range(before, len(tables.registers)), key=lambda place: tables.registers[place].number)
    made = [(place, tables.registers[place].size, tables.registers[place].name) for place in new]
    spans = [[instr.span for instr in block.code] for block in function.blocks]
    return Outcome(code, spans, made, [dsr.thread for dsr in tables.dsrs])
