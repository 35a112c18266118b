"""A program in intermediate form is written into a `Unit` and assembled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fabric.asm import checks
from fabric.asm.instruction import Instruction, SourcePlace, TaskRef
from fabric.asm.operands import Address, Async, Dsd, Dsr, Label, Queue, Var
from fabric.asm.unit import Unit
from fabric.csl.diagnostics import Source, Span
from fabric.csl.emit.queues import bind_named_queues, bind_queues, colors_of_tasks
from fabric.csl.emit.refusals import HINTS, in_source
from fabric.csl.ir import (
    AutoDsr,
    BasicBlock,
    ExplicitDsr,
    Instr,
    IrFunction,
    Operand,
    StaticMemory,
    Sym,
    Template,
    Vreg,
)
from fabric.csl.ir.machine import LONE, MULTIPLIERS, IrProgram
from fabric.csl.rules import NAMED_BASE
from wse_core import image as im
from wse_core import isa
from wse_core.encoding import N_QUEUES, N_TASK_IDS
from wse_core.errors import ProgramError, UnsupportedError
from wse_core.image import ProgramImage
from wse_core.params import Machine

__all__ = ["Emitted", "emit"]

INVERSE = {"eq": "ne", "ne": "eq"}
SWAPPED = {"lt": "le", "le": "lt", "ltu": "leu", "leu": "ltu"}
"""A condition on exchanged operands holds when this other one does not."""
PAST_THE_END = 256
"""Words behind the last variable that a program may touch: on the machine memory goes on there, and public programs
(the inverse FFT) walk over it."""


@dataclass(eq=False)
class Emitted:
    """An `Emitted` is an assembled program with the places of its instructions in the source.

    Attributes
    ----------
    image : ProgramImage
    places : dict
        Per code word that begins an instruction where that stands in the source.
    """

    image: ProgramImage
    places: dict[int, SourcePlace] = field(default_factory=dict)


class Emitter:
    """An `Emitter` writes one program in intermediate form into a unit of the assembler."""

    def __init__(self, unit: Unit, program: IrProgram) -> None:
        self.unit, self.program = unit, program
        self.vars: dict[StaticMemory, Var] = {}
        self.dsrs: dict[Any, Dsr] = {}
        self.names: dict[IrFunction, str] = {}
        self.fifos: dict[int, int] = {}
        self.queues: dict[tuple[str, int | None, int | None], Queue] = {}
        self.color_of: dict[int, int] = {}
        """Wavelets of a data task, given by its id, come on this color."""
        self.at: SourcePlace | None = None
        self.places: dict[tuple[Source, int], SourcePlace] = {}
        self.spans: dict[str, Span] = {}

    def place(self, span: Span) -> SourcePlace:
        """Return a place of the assembler; an error about it comes back to the span."""
        key = span.source, span.start
        found = self.places.get(key)
        if found is None:
            found = self.places[key] = place_of(span)
            self.spans.setdefault(str(found), span)
        return found

    # ---- memory

    def variables(self) -> None:
        """Declare a variable of the unit for every memory of the program."""
        for memory in self.program.memories:
            name, k = memory.name, 1
            while name in self.unit.variables:
                k += 1
                name = f"{memory.name}#{k}"
            dtype = self.unit.half if memory.dtype == "half" else memory.dtype
            var = self.unit.variable(name, memory.count, dtype, None, memory.align, at=None)
            if memory.init is not None:
                var.init = memory.init
            self.vars[memory] = var

    def address(self, sym: Sym) -> Address:
        """Return an address of the assembler."""
        return Address(self.vars[sym.memory], sym.offset)

    # ---- functions

    def function(self, function: IrFunction, task: tuple[str, int, bool] | None) -> None:
        """Write a function or task."""
        name = self.names[function]
        at = self.place(function.span)
        if task is None:
            self.unit.begin_function(name, at)
        else:
            kind, number, high = task
            if kind == "data":
                self.unit.begin_task(name, "data", None, self.color_of[number], high, at)
            else:
                self.unit.begin_task(name, kind, number, None, high, at)
        labels = {block: self.unit.new_label(at=None) for block in function.blocks}
        for k, block in enumerate(function.blocks):
            self.unit.place_label(labels[block], None)
            following = function.blocks[k + 1] if k + 1 < len(function.blocks) else None
            code = block.code
            if _is_machine_loop(block):
                self.at = self.place(code[0].span) if code[0].span is not None else at
                self._vector(code[0], isa.again_word(reg(code[1].dst) & 15))
                code = [Instr("jmp", None, data=code[2].data[3])]
            for place, instr in enumerate(code):
                self.at = self.place(instr.span) if instr.span is not None else at
                if place and _is_based(code[place - 1], instr):
                    continue  # written with the load before it
                if place + 1 < len(code) and _is_based(instr, code[place + 1]):
                    self._load_based(instr, code[place + 1].args[0])
                else:
                    self._instr(instr, labels, following, task is not None)
        self.unit.body = None

    def put(
        self, name: str, a: object = 0, b: object = 0, c: object = 0, d: object = 0, imm: object = None
    ) -> Instruction:
        """Append an instruction to the unit, at the place of the source that is at work."""
        return self.unit.emit(name, a, b, c, d, imm=imm, at=self.at)

    def _instr(
        self, instr: Instr, labels: dict[BasicBlock, Label], following: BasicBlock | None, is_task: bool
    ) -> None:
        op = instr.op
        if op == "entry":
            return
        if op in ("const", "copy"):
            self._move(instr)
        elif op in ("low", "high"):
            assert instr.dst is not None
            assert isinstance(instr.args[0], Vreg)
            source = (instr.args[0].fixed or 0) + (op == "high")
            if source != instr.dst.fixed:
                self.put("mov16", reg(instr.dst), isa.FILE_REG << 4 | source)
        elif op in ("load", "store", "peek", "poke"):
            self._memory(instr)
        elif op == "br":
            self._branch(instr, labels, following)
        elif op == "jmp":
            if instr.data is not following:
                self.put("jmp", imm=labels[instr.data])
        elif op == "ret":
            self.put("done" if is_task else "ret")
        elif op == "call":
            self.put("call", imm=self.names[instr.data])
        elif op == "tail":
            self.put("jmp", imm=self.names[instr.data])
        elif op == "vector":
            self._vector(instr)
        elif op.startswith("dsr_"):
            self._dsr(instr)
        else:
            self._machine(instr)

    def _move(self, instr: Instr) -> None:
        assert instr.dst is not None
        source, wide = instr.args[0], instr.dst.size == 2
        if isinstance(source, Vreg):
            self.put("mov32" if wide else "mov16", reg(instr.dst), reg(source))
        else:
            self.put("ldi32" if wide else "ldi", reg(instr.dst), imm=self._immediate(source, wide))

    def _immediate(self, value: int | Sym, wide: bool = False) -> int | Address:
        if isinstance(value, Sym):
            return self.address(value)
        return value & (0xFFFFFFFF if wide else 0xFFFF)

    def _memory(self, instr: Instr) -> None:
        loads = instr.op in ("load", "peek")
        if loads:
            value, base = instr.dst, instr.args[0] if instr.args else None
        else:
            value, base = instr.args[0], instr.args[1] if len(instr.args) > 1 else None
        assert isinstance(value, Vreg)
        name = ("ld" if loads else "st") + ("32" if value.size == 2 else "16")
        self.put(name, reg(value), 0 if base is None else reg(base), imm=self._immediate(instr.data))

    def _branch(self, instr: Instr, labels: dict[BasicBlock, Label], following: BasicBlock | None) -> None:
        row, condition, then, otherwise = instr.data
        a, b = instr.args
        x, y = reg(a), reg(b) if isinstance(b, Vreg) else 0
        if then is following and (condition in INVERSE or (row in ("br16", "br32") and y)):
            if condition in INVERSE:
                condition = INVERSE[condition]
            else:
                x, y, condition = y, x, SWAPPED[condition]
            then, otherwise = otherwise, then
        self.put(row, x, y, d=isa.CONDITIONS.index(condition), imm=labels[then])
        if otherwise is not following:
            self.put("jmp", imm=labels[otherwise])

    def _machine(self, instr: Instr) -> None:
        op = instr.op
        row = isa.BY_NAME.get(op)
        if op == "task":
            name, number = instr.data
            self.put(name, number if number >= N_TASK_IDS else TaskRef(number, name))  # beyond tasks: a microthread
        elif op == "tsc":
            self.put("tsc", reg(instr.data[0]))
        elif op == "rand16":
            self.put(op, reg(instr.dst))
        elif op in ("in_td", "q_state"):
            self.put(op, reg(instr.dst), imm=instr.data)
        elif op == "idle":
            for _ in range(instr.data):
                self.put("nop")
        elif op == "prng":
            self.put(op, instr.data)
        elif op == "trap":
            self.put(op, imm=instr.data)
        elif op == "td_exit":
            self.put(op, instr.data)
        elif op == "sw_pos":
            self.put(op, instr.data[0], imm=instr.data[1])
        elif op == "route":
            color, rx, tx, position, mode = instr.data
            sets = [sum(1 << im.DIRS.index(letter) for letter in text) for text in (rx, tx)]
            self.put(op, color, imm=sets[0] | sets[1] << 5 | position << 10 | isa.ROUTE_MODES.index(mode) << 12)
        elif op == "flt_set":
            self.put(op, instr.data[0], reg(instr.args[0]), imm=instr.data[1])
        else:
            assert row is not None
            assert row.form == "alu", op
            self._alu(instr, row)

    def _alu(self, instr: Instr, row: isa.Op) -> None:
        fields: list[int] = []
        imm = None
        for k, value in enumerate(instr.args):
            if isinstance(value, Vreg):
                fields.append(reg(value))
            else:
                imm = self._immediate(value, isa.WORDS[row.types[k + 1]] == 2)
                fields.append(isa.FILE_REG << 4)
        self.unit.emit(row.name, reg(instr.dst), *fields, imm=imm, at=self.at)

    # ---- vectors

    def dsr(self, which: AutoDsr | ExplicitDsr) -> Dsr:
        """Return a DSR of the assembler."""
        found = self.dsrs.get(which)
        if found is None:
            if isinstance(which, ExplicitDsr):
                found = self.unit.dsr(which.file, which.number, at=self.at)
            elif which.thread == MULTIPLIERS:  # one for all, as none is used while another one is
                found = next((dsr for one, dsr in self.dsrs.items() if _is_of_multipliers(one)), None)
                found = found or self.unit.dsr(which.file, at=self.at)
            else:
                found = self.unit.automatic_dsr(which.file, which.thread, self.at)
            self.dsrs[which] = found
        return found

    def _dsr(self, instr: Instr) -> None:
        if instr.op == "dsr_load":
            which, template = instr.data
            dsr, dsd = self.dsr(which), self.dsd(template)
            self.put("dsr_load", dsr, imm=(dsd, dsr))
            if isinstance(template.base, int) and template.base:
                self.put("dsr_base", dsr, imm=template.base)
            return
        value = instr.args[0]
        dsr = self.dsr(instr.data)
        if instr.op == "dsr_base" and isinstance(instr.data, ExplicitDsr):
            for _ in range(NAMED_BASE - 1):
                self.put("nop")
        if isinstance(value, Vreg):
            self.put(instr.op, dsr, reg(value))
        else:
            self.put(instr.op, dsr, imm=self._immediate(value))

    def _load_based(self, instr: Instr, base: Operand) -> None:
        """Write the load of a descriptor of one dimension with a base that the program computes: one instruction."""
        which, template = instr.data
        dsr, register = self.dsr(which), 0
        if isinstance(base, Vreg):
            register = reg(base)
        else:
            template = replace(template, base=base)
        self.put("dsr_load", dsr, register, imm=(self.dsd(template), dsr))
        for _ in range(NAMED_BASE):
            self.put("nop")

    def dsd(self, template: Template) -> Dsd:
        """Return a descriptor of the assembler."""
        t = template
        common: dict[str, Any] = {}
        if t.kind in ("fabin", "fabout"):
            queue = self.queues["input" if t.kind == "fabin" else "output", t.color, t.queue]
            bits, task = t.on_control
            common = {"queue": queue, "packed": t.packed, "flags": t.flags}
            if bits:
                common |= {"on_control": (bits,), "control_task": task}
            return Dsd(t.kind, None, t.extents, (0,), **common)
        if t.kind == "fifo":
            assert t.fifo is not None
            number = self.fifos.get(id(t.fifo))
            if number is None:
                number = self.fifos[id(t.fifo)] = self.unit.fifo(at=self.at)
            memory = t.fifo.memory
            return Dsd(
                "fifo", None, t.extents, (1,), self.address(Sym(memory)), length=memory.count, fifo=number,
                flags=t.flags, push_task=t.fifo.push, pop_task=t.fifo.pop,
            )  # fmt: skip
        base = self.address(t.base) if isinstance(t.base, Sym) else None
        return Dsd(t.kind, None, t.extents, t.strides, base, length=t.length, flags=t.flags)

    def _vector(self, instr: Instr, ending: Async | int | None = None) -> None:
        """Write an operation; `ending`: the extension word of a synchronous one."""
        vector = instr.data
        row = isa.BY_NAME[vector.op]
        if vector.ending is not None:
            e = vector.ending
            alone = self._is_lone(vector.slots)
            thread = self._lone_thread(vector.slots) if alone and e.thread is None else e.thread
            ending = Async(e.priority, thread, e.activate, e.unblock)
        fields: list[Any] = []
        for slot in vector.slots:
            if slot == "dst":
                fields.append(reg(instr.dst))
            elif isinstance(slot, int):
                fields.append(reg(instr.args[slot]))
            else:
                fields.append(self.dsr(slot))
        if row.form == "dfilt":
            self.put("dfilt", b=fields[0], imm=ending)
            return
        checks.pair(self.unit, self.unit.emit(vector.op, *fields, imm=ending, at=self.at))

    def _is_lone(self, slots: tuple[Any, ...]) -> bool:
        """Whether an operation surely has no operand on the fabric, so that no queue gives it a microthread."""
        dsrs = [slot for slot in slots if isinstance(slot, (AutoDsr, ExplicitDsr))]
        if any(isinstance(slot, ExplicitDsr) for slot in dsrs):
            return False  # loaded with whatever other functions say
        return not any(dsd.is_fabric for slot in dsrs for dsd in self.dsr(slot).loads)

    def _lone_thread(self, slots: tuple[Any, ...]) -> int:
        """Return the microthread of an operation between memory and a FIFO: no queue's, and another for each end."""
        end = next(slot.thread - LONE for slot in slots if isinstance(slot, AutoDsr))
        taken = {number % N_QUEUES for queues in self.unit.queues.values() for number in queues}
        free = [k for k in range(N_QUEUES - 1, -1, -1) if k not in taken] or [N_QUEUES - 1]
        return free[end % len(free)]


def _is_machine_loop(block: BasicBlock) -> bool:
    """Whether a block is a multiply-add with multipliers in memory, done as often as a counter says: a `@map`."""
    if [instr.op for instr in block.code] != ["vector", "sub16", "br"]:
        return False
    operation, count, back = block.code
    row, condition, then, _ = back.data
    takes = isa.BY_NAME[operation.data.op].is_mac and isinstance(operation.data.slots[-1], (AutoDsr, ExplicitDsr))
    assert count.dst is not None
    one = count.dst.fixed
    counts = [(_fixed(x), y) for x, y in (count.args, back.args)] == [(one, 1), (one, 0)]
    return takes and operation.data.ending is None and counts and (row, condition, then) == ("br16", "ne", block)


def _fixed(value: Operand) -> int | None:
    """Return the register of an operand, None for a number."""
    return value.fixed if isinstance(value, Vreg) else None


def _is_of_multipliers(dsr: AutoDsr | ExplicitDsr) -> bool:
    return isinstance(dsr, AutoDsr) and dsr.thread == MULTIPLIERS


def _is_based(load: Instr, edit: Instr) -> bool:
    """Whether an operation sets the base of what the one before it loads, a descriptor of one dimension in memory."""
    return (
        load.op == "dsr_load"
        and edit.op == "dsr_base"
        and edit.data == load.data[0]
        and load.data[1].kind == "mem1d"
        and isinstance(edit.args[0], (Vreg, Sym))
    )


def reg(value: Vreg | None) -> int:
    """Return the operand field of a register, which has its place by now."""
    assert value is not None
    assert value.fixed is not None
    return isa.FILE_REG << 4 | value.fixed


def place_of(span: Span) -> SourcePlace:
    """Return a place of the assembler."""
    line, column = span.source.position(span.start)
    return SourcePlace(span.source.name, line, column)


def emit(
    program: IrProgram,
    name: str,
    whole: Span,
    machine: Machine | None = None,
    half: str = "f16",
    initial: dict[str, Any] | None = None,
) -> Emitted:
    """Return a program, assembled.

    Parameters
    ----------
    program : IrProgram
        With machine registers.
    name : str
    whole : Span
        Stands for the program in messages about all of it.
    machine : Machine, optional
    half : str
        The 16-bit float.
    initial : dict
        ``queues``: per (``input`` or ``output``, number) the color of a queue; ``controlled``: colors that only bring
        control wavelets; ``active``, ``blocked``, ``unblocked``: ids; ``main``: priority; ``rebound``: per queue that
        gets other colors all of them.

    Raises
    ------
    Fault
        For what no PE can do.
    """
    initial = initial or {}
    unit = Unit(name, machine, half, initial.get("main", "medium_low"), initial.get("by_address", False), hints=HINTS)
    unit.dense = True  # sources that fit on a PE as the vendor's compiler writes them fit here
    emitter = Emitter(unit, program)
    try:
        image = _assembled(emitter, initial)
    except (ProgramError, UnsupportedError) as error:
        code = sum(1 + (ins.imm is not None) for ins in unit.instructions)
        raise in_source(error, emitter.spans, emitter.vars, code, whole) from None
    undefined = tuple(var.name for memory, var in emitter.vars.items() if memory.undefined)
    end = min(image.footprint + PAST_THE_END, unit.machine["mem.words"])
    image = replace(image, footprint=end, undefined=undefined)
    return Emitted(image, _places(unit))


def _assembled(emitter: Emitter, initial: dict[str, Any]) -> ProgramImage:
    """Return the image of the program of an emitter."""
    unit, program = emitter.unit, emitter.program
    emitter.variables()
    used = [
        (instr.data[1], instr.span or function.span)
        for function in program.functions
        for instr in function.instructions()
        if instr.op == "dsr_load" and instr.data[1].kind in ("fabin", "fabout")
    ]
    data_tasks = [(number, function.span) for kind, number, function, _ in program.tasks if kind == "data"]
    queues = initial.get("queues", {})
    if unit.machine["task.by_queue"]:
        emitter.queues = bind_named_queues(unit, queues, used, initial.get("rebound", {}))
        emitter.color_of = colors_of_tasks(queues, data_tasks)
    else:
        emitter.color_of = {number: number for number, _ in data_tasks}
        data_tasks += initial.get("controlled", [])
        unit.shared_ids = frozenset(number for number, _ in initial.get("controlled", []))
        inputs = {number: color for (kind, number), color in queues.items() if kind == "input"}
        emitter.queues = bind_queues(unit, inputs, used, data_tasks)
    tasks: dict[IrFunction, list[tuple[str, int, bool]]] = {}
    for kind, number, function, high in program.tasks:
        tasks.setdefault(function, []).append((kind, number, high))
    for function in program.functions:
        emitter.names[function] = _unique(function.name, emitter.names.values())
    for function in program.functions:
        bound = tasks.get(function, [])
        emitter.function(function, bound[0] if bound else None)
        for k, other in enumerate(bound[1:]):
            emitter.names[function] = _unique(f"{function.name}@{k + 1}", emitter.names.values())
            emitter.function(function, other)
    for key, note in (("active", unit.start), ("blocked", unit.block), ("unblocked", unit.unblock)):
        for ident in initial.get(key, ()):
            note(ident, None)
    image = unit.assemble()
    return _relocated(image if unit.machine["task.by_queue"] else _one_table(image), emitter)


def _one_table(image: ProgramImage) -> ProgramImage:
    """Let a control wavelet start a data task by its id: WSE-2 has one table for tasks of all kinds."""
    entry = image.control_entry.copy()
    for number in range(N_TASK_IDS):
        if image.data_tasks >> number & 1 and entry[number] < 0:
            entry[number] = image.entry[number]
    entry.flags.writeable = False
    return replace(image, control_entry=entry)


def _unique(name: str, taken: Iterable[str]) -> str:
    taken, found, k = set(taken), name, 1
    while found in taken:
        k += 1
        found = f"{name}#{k}"
    return found


def _relocated(image: ProgramImage, emitter: Emitter) -> ProgramImage:
    """Return the image with the addresses that memory holds at the start."""
    data = dict(image.data)
    for memory, var in emitter.vars.items():
        if memory.relocations:
            words = np.array(data.get(var.address, np.zeros(var.words)), np.uint16)
            for k, sym in memory.relocations.items():
                words[k] = (emitter.vars[sym.memory].address + sym.offset) & 0xFFFF
            words.setflags(write=False)
            data[var.address] = words
    return replace(image, data=tuple(data.items()))


def _places(unit: Unit) -> dict[int, SourcePlace]:
    found: dict[int, SourcePlace] = {}
    offset = 0
    for ins in unit.instructions:
        if ins.at is not None:
            found[offset] = ins.at
        offset += 1 + (ins.imm is not None)
    return found
