"""The form of a function: what it does, whichever memories, registers and programs it is about.

Programs of one source differ in a few numbers, so most of their functions have a form that was met before.  A form is a
tuple; two functions of one form differ only in what their tables hold at the same places: memories, registers, blocks,
FIFOs, functions that they call, and descriptors, whose lengths, strides, colors and queues no pass looks at unless
the function edits one.  All that a pass can see is in the form, so a pass does the same to both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fabric.csl.ir.code import BasicBlock, IrFunction, StaticMemory, Sym, Vreg
from fabric.csl.ir.machine import AutoDsr, Ending, ExplicitDsr, Fifo, Template, Vector

__all__ = ["Form", "Tables"]

Part = int | str | tuple[Any, ...] | None
"""A `Part` stands for a value in a form."""
EDITS = ("dsr_base", "dsr_len", "dsr_stride")


class Tables:
    """`Tables` say what the places of a form stand for in one function."""

    def __init__(self) -> None:
        self.registers: list[Vreg] = []
        self.memories: list[StaticMemory] = []
        self.dsrs: list[AutoDsr] = []
        self.blocks: list[BasicBlock] = []
        self.fifos: list[Fifo] = []
        self.functions: list[IrFunction] = []
        self.templates: list[Template] = []


class Form:
    """A `Form` turns a function into a tuple that is the same for all functions that no pass can tell apart.

    Parameters
    ----------
    function : IrFunction
        As it is now.

    Attributes
    ----------
    whole : tuple
        The form.
    tables : Tables
        What its places stand for; they grow as what became of the function is looked at (`code`).

    Raises
    ------
    KeyError
        If the function names something that has no form.
    """

    def __init__(self, function: IrFunction) -> None:
        self.tables = Tables()
        self._of: dict[Any, Any] = {}
        self._open = not any(instr.op in EDITS for instr in function.instructions())
        code = self.code(function)
        registers, frame = self.tables.registers, set(function.frame)
        named = {slot for i in function.instructions() if i.op == "vector" for slot in i.data.slots}
        self.whole = (
            function.kind, function.result, function.circle, tuple(function.places), function.span, code,
            tuple(map(self.of, function.params)),
            tuple((slot, self.of(held)) for slot, held in function.named.items() if slot in named),
            tuple((reg.size, reg.fixed) for reg in registers),
            # Passes take registers in the order in which they were made.
            tuple(sorted(range(len(registers)), key=lambda k: registers[k].number)),
            tuple((m.apart, m.noted, m.words, m in frame, m.init is None) for m in self.tables.memories),
            tuple((dsr.file, dsr.thread) for dsr in self.tables.dsrs),
        )  # fmt: skip

    def code(self, function: IrFunction) -> tuple[Any, ...]:
        """Return the form of the blocks of a function."""
        of = self.of
        for block in function.blocks:
            of(block)
        return tuple(
            (
                of(block), block.number, block.depth,
                tuple((i.op, of(i.dst), tuple(map(of, i.args)), of(i.data), i.span) for i in block.code),
            )
            for block in function.blocks
        )  # fmt: skip

    def of(self, value: Any) -> Part:
        """Return what stands for a value in a form."""
        kind = value.__class__
        if kind is int or kind is str or value is None:
            return value
        if kind in SPELLED:
            return _PARTS[kind](self, value)
        found = self._of.get(value)
        if found is None:
            found = self._of[value] = _PARTS[kind](self, value)
        return found

    def _template(self, t: Template) -> tuple[Any, ...]:
        seen = (t.kind, self.of(t.base), t.packed, t.flags, t.index, t.on_control, self.of(t.fifo))
        if not self._open:
            return ("template", *seen, t.extents, t.strides, t.color, t.queue, t.length)
        self.tables.templates.append(t)
        return ("templates", len(self.tables.templates) - 1, seen)


def _place(name: str) -> Callable[[Form, Any], tuple[Any, ...]]:
    """Return what gives a value the next place of a table."""

    def enter(form: Form, value: Any) -> tuple[Any, ...]:
        table = getattr(form.tables, name)
        table.append(value)
        return (name, len(table) - 1)

    return enter


def _fifo(form: Form, value: Fifo) -> tuple[Any, ...]:
    form.tables.fifos.append(value)
    return ("fifos", len(form.tables.fifos) - 1, form.of(value.memory))


SPELLED = (tuple, Sym, Vector)
"""Classes of values that stand in a form with their parts; all others have one place, however often they occur."""
_PARTS: dict[type, Callable[[Form, Any], Any]] = {
    bool: lambda form, value: ("bool", value),
    tuple: lambda form, value: ("tuple", *map(form.of, value)),
    Sym: lambda form, value: ("sym", form.of(value.memory), value.offset),
    Vector: lambda form, value: ("vector", value.op, tuple(map(form.of, value.slots)), form.of(value.ending)),
    ExplicitDsr: lambda form, value: ("value", value),
    Ending: lambda form, value: ("value", value),
    Vreg: _place("registers"),
    StaticMemory: _place("memories"),
    AutoDsr: _place("dsrs"),
    BasicBlock: _place("blocks"),
    IrFunction: _place("functions"),
    Fifo: _fifo,
    Template: Form._template,
}
