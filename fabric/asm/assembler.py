"""The assembler makes a `wse_core.image.ProgramImage` of a finished `fabric.asm.unit.Unit`."""

from __future__ import annotations

from functools import cache
from itertools import accumulate
from os import path
from typing import TYPE_CHECKING, Any

import numpy as np

from fabric.asm.instruction import Instruction, TaskRef
from fabric.asm.numbering import Numbering
from fabric.asm.operands import Address, Async, Dsd, Dsr, Label, Var
from wse_core import image as im
from wse_core import isa
from wse_core.encoding import N_BINDINGS, N_QUEUES
from wse_core.image import NO_TASK, ProgramImage, Symbol

if TYPE_CHECKING:
    from fabric.asm.unit import Unit

__all__ = ["Assembler"]

FILE = {name: number for number, name in enumerate(isa.FILES)}
basename = cache(path.basename)


class Assembler(Numbering):
    """One pass over a finished `Unit`; the order of everything is that of the source, so results are equal."""

    def __init__(self, unit: Unit) -> None:
        super().__init__(unit)
        self.descriptors: dict[tuple[Any, ...], int] = {}
        self.entry = np.full(im.N_TASK_IDS, -1, np.int32)
        self.control_entry = np.full(im.N_CONTROL_IDS, -1, np.int32)

    def image(self) -> ProgramImage:
        """Return the image; the unit has its numbers and addresses from then on."""
        u = self.unit
        self.pick_queues()
        self.pick_task_ids()
        self.pick_dsrs()
        self.check_explicit_dsrs()
        self.offsets = offsets = [0, *accumulate(1 + (ins.imm is not None) for ins in u.instructions)]
        code_words, footprint = self.place(offsets[-1])
        for task in u.tasks.values():
            begin = offsets[task.label.at]  # type: ignore[index]  # a task is entered when its body begins
            (self.control_entry if task.kind == "control" else self.entry)[task.id] = begin
        words = []
        for ins in u.instructions:
            a, b, c, d, imm = ins.a, ins.b, ins.c, ins.d, ins.imm
            words += isa.encode(
                ins.op,
                a if type(a) is int else self.field(a, ins),
                b if type(b) is int else self.field(b, ins),
                c if type(c) is int else self.field(c, ins),
                d if type(d) is int else self.field(d, ins),
                imm if imm is None or type(imm) is int else self.immediate(ins),
            )
        code = frozen(np.array(words, np.uint32))
        descriptors = np.array([*self.descriptors], im.DESC_DTYPE)
        active, blocked, high = self.initial_bits()
        in_color = self.bound("input", "queue.in_depth")
        out_color = self.bound("output", "queue.out_depth")
        data = tuple(
            (var.address, frozen(np.array(var.init, np.uint16)))
            for var in u.variables.values()
            if var.init is not None and np.any(var.init)
        )
        symbols = {name: Symbol(name, var.address, var.count, var.dtype) for name, var in u.variables.items()}
        labels = {name: offsets[label.at] for name, label in u.labels.items() if label.at is not None}
        data_tasks = sum(1 << t.id for t in u.tasks.values() if t.kind == "data")
        return ProgramImage(
            name=u.name,
            code=code,
            code_words=code_words,
            footprint=footprint,
            descriptors=frozen(descriptors),
            entry=frozen(self.entry),
            control_entry=frozen(self.control_entry),
            data_tasks=data_tasks,
            active=active,
            blocked=blocked,
            high=high,
            inq_color=in_color,
            outq_color=out_color,
            half=u.half,
            main_priority=im.MAIN_PRIORITY[u.main_priority],
            data=data,
            symbols=symbols,
            labels=labels,
            lines={
                offset: f"{basename(ins.at.file)}:{ins.at.line}"
                for ins, offset in zip(u.instructions, offsets, strict=False)
                if ins.at is not None and ins.op.form in ("alu", "dfilt")
            },
            registers=u.registers,
        )

    def bound(self, kind: str, key: str) -> tuple[int, ...]:
        """Return the color of each binding of a kind of queue, -1 for those that are not used."""
        queues = self.unit.queues[kind]
        colors = [-1] * max(len(self.unit.machine[key]), N_BINDINGS if queues and max(queues) >= N_QUEUES else 0)
        for queue in queues.values():
            colors[queue.id] = queue.color
        return tuple(colors)

    # --- code ---------------------------------------------------------------------------------------------------------

    def field(self, x: Any, ins: Instruction) -> int:
        """Return an operand as the bits of its field."""
        if isinstance(x, Dsr):
            return FILE[x.file] << 4 | x.id
        if isinstance(x, TaskRef):
            return self.task_id(x, ins.at)
        return x

    def immediate(self, ins: Instruction) -> int:
        """Return the extension word of an instruction that has one."""
        imm = ins.imm
        if isinstance(imm, Address):
            return imm.var.address + imm.offset & 0xFFFF
        if isinstance(imm, Async):
            activate = None if imm.activate is None else self.task_id(TaskRef(imm.activate, "activate"), ins.at)
            unblock = None if imm.unblock is None else self.task_id(TaskRef(imm.unblock, "unblock"), ins.at)
            return isa.async_word(imm.priority, imm.ut, activate, unblock)
        if isinstance(imm, tuple):
            dsd, dsr = imm
            return self.descriptor(dsd, dsr, ins)
        if isinstance(imm, (str, Label)):
            return self.target(imm, ins)
        return imm

    def target(self, imm: Label | str, ins: Instruction) -> int:
        """Return the code word that a label or a name stands for."""
        u = self.unit
        label = u.labels.get(imm) if isinstance(imm, str) else imm
        if ins.op.name == "call" and (label is None or u.functions.get(label.name) is not label):
            raise u.error(
                f"call: there is no function {imm if isinstance(imm, str) else imm.name!r}",
                ins=ins,
                hint=f"functions: {', '.join(u.functions) or 'none'}",
            )
        if label is None or u.labels.get(label.name) is not label:
            raise u.error(f"{ins.op.name}: there is no label {imm!r}", ins=ins)
        if label.at is None:
            raise u.error(f"{ins.op.name}: label {label.name!r} is never placed", ins=ins)
        return self.offsets[label.at]

    def descriptor(self, dsd: Dsd, dsr: Dsr, ins: Instruction) -> int:
        """Return the number of a descriptor in the program's table."""
        extent = dsd.extent or ()
        on_control = dsd.on_control[0] if dsd.on_control else 0
        row = (  # in the order of `im.DESC_DTYPE`
            im.DSD_KINDS.index(dsd.kind),
            dsd.flags | (im.F_PACKED if self.packed(dsd, dsr) else 0),
            0 if dsd.queue is None else dsd.queue.id,
            dsd.fifo,
            on_control,
            self._task(dsd.control_task, ins, "activate" if on_control & im.ON_ACTIVATE else "unblock"),
            self._task(dsd.push_task, ins),
            self._task(dsd.pop_task, ins),
            0 if dsd.base is None else dsd.base.var.address + dsd.base.offset & 0xFFFF,
            dsd.index or 0,
            dsd.length,
            len(extent),
            0,
            (*extent, 0, 0, 0, 0)[:4],
            (*dsd.stride, 0, 0, 0, 0)[:4],
        )
        return self.descriptors.setdefault(row, len(self.descriptors))

    def _task(self, task: object, ins: Instruction, use: str = "activate") -> int:
        """Return the id of a task that a descriptor names."""
        return NO_TASK if task is None else self.task_id(TaskRef(task, use), ins.at)

    # --- SRAM ---------------------------------------------------------------------------------------------------------

    def place(self, n_code: int) -> tuple[int, int]:
        """Give every variable its address; return the words that code takes, and those that all takes.

        An instruction has one or two words of 32 bits here; in binaries of the vendor's compiler it has 2 or 4 bytes.
        A unit that is `dense` takes so few where it would not fit otherwise.
        """
        u, most = self.unit, self.unit.machine["mem.words"]
        for size in (2, 1) if u.dense else (2,):
            code_words = -(-size * n_code // 4) * 4
            footprint = self.place_variables(code_words)
            if footprint <= most:
                return code_words, footprint
        sizes = {"code": code_words} | {f"{v.name!r}": v.words for v in u.variables.values()}
        lines = ", ".join(f"{name} {words}" for name, words in sorted(sizes.items(), key=lambda item: -item[1]))
        for var in u.variables.values():
            var.placed = None
        raise u.error(
            f"the program needs {footprint} words, a PE has {most}",
            at=None,
            hint=f"smaller or fewer variables; words per part: {lines}",
            limit="memory",
            needed=footprint,
            available=most,
        )

    def place_variables(self, code_words: int) -> int:
        """Give every variable its address, first fit behind the code, and return the words taken, code included."""
        u = self.unit
        banks = u.machine["mem.banks"]
        gaps: list[tuple[int, int]] = []
        end = max(code_words, u.data_from)
        for var in u.variables.values():
            for k, (low, high) in enumerate(gaps):
                at = self.fit(var, low, banks)
                if at + var.words <= high:
                    gaps[k : k + 1] = [g for g in ((low, at), (at + var.words, high)) if g[0] < g[1]]
                    break
            else:
                at = self.fit(var, end, banks)
                if at > end:
                    gaps.append((end, at))
                end = at + var.words
            var.placed = at
        return -(-end // 4) * 4

    @staticmethod
    def fit(var: Var, at: int, banks: int) -> int:
        """Return the first address from `at` on that the alignment and the bank of `var` allow."""
        at = -(-at // var.align) * var.align
        if var.bank is not None:
            while at % banks != var.bank:
                at += var.align
        return at


def frozen(array: np.ndarray) -> np.ndarray:
    """Return `array`, made read-only."""
    array.setflags(write=False)
    return array
