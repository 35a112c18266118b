"""From a finished `fabric.program.program.Program` to a `wse_core.image.ProgramImage`."""

from __future__ import annotations

import numpy as np

from fabric.asm.numbering import Numbering
from fabric.asm.operands import Address, Async, Dsr, Label
from fabric.program.emission import TaskRef
from wse_core import image as im
from wse_core import isa
from wse_core.image import NO_TASK, ProgramImage, Symbol

__all__ = ["Assembler"]


class Assembler(Numbering):
    """One pass over a finished `Program`; the order of everything is that of the source, so results are equal."""

    def __init__(self, program):
        super().__init__(program)
        self.descriptors, self.numbers = [], {}
        self.entry = np.full(im.N_TASK_IDS, -1, np.int32)
        self.control_entry = np.full(im.N_CONTROL_IDS, -1, np.int32)

    def image(self):
        """Return the image; the program has its numbers and addresses from then on."""
        p = self.p
        self.pick_queues()
        self.pick_task_ids()
        self.pick_dsrs()
        self.check_explicit_dsrs()
        for ins in p._ins:
            if ins.op.form in ("alu", "dfilt"):
                for x, letter in zip((ins.a, ins.b, ins.c), ins.op.types, strict=False):
                    if isinstance(x, Dsr):
                        self.sizes.setdefault(id(x), set()).add(isa.WORDS[letter])
        offsets = np.zeros(len(p._ins) + 1, np.int64)
        for k, ins in enumerate(p._ins):
            offsets[k + 1] = offsets[k] + 1 + (ins.imm is not None)
        self.offsets = offsets
        n_code = int(offsets[-1])
        code_words = -(-2 * n_code // 4) * 4
        footprint = self.place_variables(code_words)
        for task in p._tasks.values():
            (self.control_entry if task.kind == "control" else self.entry)[task._id] = offsets[task.label.at]
        words = []
        for ins in p._ins:
            fields = [self.field(x, ins) for x in (ins.a, ins.b, ins.c, ins.d)]
            words += isa.encode(ins.op, *fields, imm=None if ins.imm is None else self.immediate(ins))
        code = frozen(np.array(words, np.uint32))
        descriptors = np.zeros(len(self.descriptors), im.DESC_DTYPE)
        for k, row in enumerate(self.descriptors):
            descriptors[k] = row
        active, blocked, high = self.initial_bits()
        in_color = self.bound("input", "queue.in_depth")
        out_color = self.bound("output", "queue.out_depth")
        data = tuple(
            (var._address, frozen(np.array(var.init, np.uint16)))
            for var in p._vars.values()
            if var.init is not None and np.any(var.init)
        )
        symbols = {name: Symbol(name, var._address, var.count, var.dtype) for name, var in p._vars.items()}
        labels = {name: int(offsets[label.at]) for name, label in p._labels.items() if label.at is not None}
        data_tasks = sum(1 << t._id for t in p._tasks.values() if t.kind == "data")
        return ProgramImage(
            name=p.name,
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
            half=p.half,
            main_priority=im.MAIN_PRIORITY[p.main_priority],
            data=data,
            symbols=symbols,
            labels=labels,
        )

    def bound(self, kind, key):
        """Return the color of each queue of a kind, -1 for those that are not bound."""
        colors = [-1] * len(self.p.machine[key])
        for queue in self.p._queues[kind].values():
            colors[queue.id] = queue.color
        return tuple(colors)

    # --- code ---------------------------------------------------------------------------------------------------------

    def field(self, x, ins):
        """Return an operand as the bits of its field."""
        if isinstance(x, Dsr):
            return isa.FILES.index(x.file) << 4 | x._id
        if isinstance(x, TaskRef):
            return self.task_id(x, ins.where)
        return x

    def immediate(self, ins):
        """Return the extension word of an instruction that has one."""
        imm = ins.imm
        if isinstance(imm, Address):
            return imm.var._address + imm.offset & 0xFFFF
        if isinstance(imm, Async):
            activate = None if imm.activate is None else self.task_id(TaskRef(imm.activate, "activate"), ins.where)
            unblock = None if imm.unblock is None else self.task_id(TaskRef(imm.unblock, "unblock"), ins.where)
            return isa.async_word(imm.priority, imm.ut, activate, unblock)
        if isinstance(imm, tuple):
            return self.descriptor(*imm, ins)
        if isinstance(imm, (str, Label)):
            return self.target(imm, ins)
        return imm

    def target(self, imm, ins):
        """Return the code word that a label or a name stands for."""
        p = self.p
        label = p._labels.get(imm) if isinstance(imm, str) else imm
        if ins.op.name == "call" and (label is None or p._functions.get(label.name) is not label):
            raise p._error(
                f"call: there is no function {imm if isinstance(imm, str) else imm.name!r}",
                ins=ins,
                hint=f"functions: {', '.join(p._functions) or 'none'}",
            )
        if label is None or p._labels.get(label.name) is not label:
            raise p._error(f"{ins.op.name}: there is no label {imm!r}", ins=ins)
        if label.at is None:
            raise p._error(f"{ins.op.name}: label {label.name!r} is never placed", ins=ins)
        return int(self.offsets[label.at])

    def descriptor(self, dsd, dsr, ins):
        """Return the number of a descriptor in the program's table."""
        row = np.zeros((), im.DESC_DTYPE)
        row["kind"] = im.DSD_KINDS.index(dsd.kind)
        row["flags"] = dsd.flags | (im.F_PACKED if self.packed(dsd, dsr) else 0)
        for key in ("control_task", "push_task", "pop_task"):
            task = getattr(dsd, key)
            if task is None:
                row[key] = NO_TASK
            else:
                use = "unblock" if key == "control_task" and not dsd.on_control[0] & im.ON_ACTIVATE else "activate"
                row[key] = self.task_id(TaskRef(task, use), ins.where)
        if dsd.queue is not None:
            row["queue"] = dsd.queue.id
        if dsd.on_control:
            row["on_control"] = dsd.on_control[0]
        if dsd.base is not None:
            row["base"] = dsd.base.var._address + dsd.base.offset & 0xFFFF
        row["index"], row["length"], row["xdsr"] = dsd.index or 0, dsd.length, dsd.fifo
        row["ndim"] = len(dsd.extent)
        row["extent"][: len(dsd.extent)] = dsd.extent
        row["stride"][: len(dsd.stride)] = dsd.stride
        key = row.tobytes()
        if key not in self.numbers:
            self.numbers[key] = len(self.descriptors)
            self.descriptors.append(row)
        return self.numbers[key]

    # --- SRAM ---------------------------------------------------------------------------------------------------------

    def place_variables(self, code_words):
        """Give every variable its address, first fit behind the code, and return the words taken, code included."""
        p = self.p
        banks = p.machine["mem.banks"]
        gaps, end = [], code_words
        for var in p._vars.values():
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
            var._address = at
        footprint = -(-end // 4) * 4
        if footprint > p.machine["mem.words"]:
            sizes = {"code": code_words} | {f"{v.name!r}": v.words for v in p._vars.values()}
            lines = ", ".join(f"{name} {words}" for name, words in sorted(sizes.items(), key=lambda item: -item[1]))
            for var in p._vars.values():
                var._address = None
            raise p._error(
                f"the program needs {footprint} words, a PE has {p.machine['mem.words']}",
                where=None,
                hint=f"smaller or fewer variables; words per part: {lines}",
                limit="memory",
                needed=footprint,
                available=p.machine["mem.words"],
            )
        return footprint

    @staticmethod
    def fit(var, at, banks):
        """Return the first address from `at` on that the alignment and the bank of `var` allow."""
        at = -(-at // var.align) * var.align
        if var.bank is not None:
            while at % banks != var.bank:
                at += var.align
        return at


def frozen(array):
    """Return `array`, made read-only."""
    array.setflags(write=False)
    return array
