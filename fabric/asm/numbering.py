"""Numbers that the assembler chooses: queues of data tasks, task ids, DSRs; what they allow and what clashes."""

from __future__ import annotations

import numpy as np

from fabric.asm.operands import Async, Dsr, Queue, Task
from fabric.asm.values import WORDS
from wse_core import image as im
from wse_core import isa
from wse_core.errors import ProgramError

__all__ = ["Numbering"]

N_DATA_IDS = 24  # ids 0 .. 23 are colors (arch §6)
LOCAL_IDS = (24, 25, 26, 27, 28, 30, *range(N_DATA_IDS - 1, -1, -1))


class Numbering:
    """Choice of ids for one finished program, `p`."""

    def __init__(self, program):
        self.p = program
        self.sizes = {}  # DSR -> words per element of the operations on it

    # --- ids ----------------------------------------------------------------------------------------------------------

    def pick_queues(self):
        """Bind an input queue to the color of each data task that has none."""
        p = self.p
        queues = p._queues["input"]
        for task in p._tasks.values():
            if task.kind != "data" or any(q.color == task._id for q in queues.values()):
                continue
            free = [k for k, depth in enumerate(p.machine["queue.in_depth"]) if depth and k not in queues]
            if not free:
                raise p._error(f"data task {task.name!r}: no input queue left for color {task._id}", where=task.where)
            queues[free[0]] = Queue("input", free[0], task._id)

    def pick_task_ids(self):
        """Give every task that has none the first free id of its kind."""
        p = self.p
        colors = {q.color for q in p._queues["input"].values()}
        used = {t._id for t in p._tasks.values() if t.kind != "control" and t._id is not None}
        control = {t._id for t in p._tasks.values() if t.kind == "control" and t._id is not None}
        for task in p._tasks.values():
            if task.kind == "local" and task._id in colors:
                raise p._error(
                    f"local task {task.name!r}: id {task._id} is a color with an input queue, whose "
                    "wavelets share its bits",
                    where=task.where,
                    hint="leave id out, or take another",
                )
            if task._id is not None:
                continue
            if task.kind == "control":
                free = [k for k in range(im.N_CONTROL_IDS) if k not in control and k != im.TASK_NULL]
                pool = control
            else:
                free = [k for k in LOCAL_IDS if k not in used and k not in colors]
                pool = used
            if not free:
                raise p._error(f"task {task.name!r}: no task id is left", where=task.where)
            task._id = free[0]
            pool.add(free[0])

    def task_id(self, ref, where=None):
        """Return the id that a reference means, checking that it can be used so."""
        p = self.p
        target = ref.task
        if isinstance(target, Task):
            if p._tasks.get(target.name) is not target:
                raise p._error(f"{ref.use}: task {target.name!r} belongs to another program", where=where)
        elif isinstance(target, str):
            if target not in p._tasks:
                raise p._error(
                    f"{ref.use}: there is no task {target!r}",
                    where=where,
                    hint=f"tasks: {', '.join(p._tasks) or 'none'}",
                )
            target = p._tasks[target]
        else:
            if not isinstance(target, (int, np.integer)) or not 0 <= target < im.N_TASK_IDS:
                raise p._error(f"{ref.use}: {target!r} is not a task", where=where)
            owner = [t for t in p._tasks.values() if t.kind != "control" and t._id == target]
            if not owner:
                if ref.use in ("activate", "start"):
                    raise p._error(f"{ref.use}: no task has the id {target}", where=where)
                return int(target)
            target = owner[0]
        if target.kind == "control":
            raise p._error(
                f"{ref.use}: {target.name!r} is a control task; only a control wavelet starts it", where=where
            )
        return target._id

    def initial_bits(self):
        """Return the activated, blocked and high-priority bits with which the program begins."""
        p = self.p
        bits = {}
        for key, refs in (("start", p._starts), ("blocked", p._blocks), ("unblocked", p._unblocks)):
            bits[key] = 0
            for ref, where in refs:
                bits[key] |= 1 << self.task_id(ref, where)
        bound = {t._id for t in p._tasks.values() if t.kind != "control"}
        empty = sum(1 << c for c in range(N_DATA_IDS) if c not in bound)
        blocked = (empty | bits["blocked"]) & ~bits["unblocked"]
        high = sum(1 << t._id for t in p._tasks.values() if t.high and t.kind != "control")
        return bits["start"], blocked, high

    # --- DSRs ---------------------------------------------------------------------------------------------------------

    def pick_dsrs(self):
        """Give every DSR its number: chosen ones, their partners, free ones, then those made by the assembler."""
        p = self.p
        count = p.machine["dsr.count"]
        auto = [x for ins in p._ins for x in (ins.a, ins.b, ins.c) if isinstance(x, Dsr) and x.thread is not None]
        own = list(p._dsrs)
        taken = {file: {} for file in isa.FILES[:3]}
        groups = {}
        for dsr in own:
            groups.setdefault(self.root(dsr), []).append(dsr)
        for members in groups.values():
            for dsr in members:
                if dsr.chosen:
                    taken[dsr.file][dsr._id] = dsr
        for root, members in groups.items():
            files = [d.file for d in members]
            if len(set(files)) < len(files):
                twice = next(f for f in files if files.count(f) > 1)
                both = [d for d in members if d.file == twice]
                raise p._error(
                    f"{both[0]} and {both[1]} are both used with one and the same partner; on WSE-2 a dest "
                    "DSR and a src0 DSR of one operation must have the same id",
                    where=both[1].where,
                    hint="one partner for each, or load one DSR with both descriptors in turn",
                )
            chosen = {d._id for d in members if d.chosen}
            number = (
                chosen.pop()
                if chosen
                else next((k for k in range(count) if all(k not in taken[f] for f in files)), None)
            )
            for dsr in members:
                holder = taken[dsr.file].get(number) if number is not None else dsr
                if number is None or holder not in (None, dsr):
                    raise p._error(
                        f"{dsr}: no number left in its file"
                        if number is None
                        else f"{dsr} must have number {number} like its partner, which {holder} has",
                        where=dsr.where,
                    )
                taken[dsr.file][number] = dsr
                dsr._id = number
            root._id = members[0]._id
        self.pick_automatic(auto, taken, count)

    def root(self, dsr):
        """Return the DSR that stands for all those which must carry the id of `dsr`."""
        while dsr.group is not dsr:
            dsr = dsr.group
        return dsr

    def pick_automatic(self, auto, taken, count):
        """Number the DSRs made by the assembler: one id per thread, or that of a reserved partner."""
        p = self.p
        free = [k for k in range(count) if all(k not in taken[f] for f in taken)]
        threads = sorted({d.thread for d in auto})
        number = {}
        for k, thread in enumerate(threads):
            if not free:
                raise p._error(
                    "the program reserves all DSRs, none is left for descriptors given to operations",
                    hint="fewer p.dsr(...), or load all descriptors explicitly",
                )
            number[thread] = free[min(k, len(free) - 1)]
        for dsr in auto:
            if dsr._id is not None:
                continue
            root = self.root(dsr)
            if root.thread is None:  # partner of a DSR that the program reserved
                number_here = root._id
                holder = taken[dsr.file].get(number_here)
                if holder is not None:
                    raise p._error(
                        f"a descriptor must go into {dsr.file} DSR {number_here}, the partner of {root}, "
                        f"but the program reserves that one as {holder}",
                        where=dsr.where,
                        hint="load that descriptor explicitly",
                    )
                dsr._id = number_here
            else:
                dsr._id = number[dsr.thread]

    def check_explicit_dsrs(self):
        """Check operations on DSRs that the program loads itself against everything it ever loads into them."""
        p = self.p
        extended = {}
        for ins in p._ins:
            if ins.op.form not in ("alu", "dfilt", "dsr"):
                continue
            for key, x, letter in zip("abc", (ins.a, ins.b, ins.c), ins.op.types, strict=False):
                if not isinstance(x, Dsr):
                    continue
                if not x.loads:
                    raise p._error(f"{ins.op.name}: nothing is ever loaded into {x}", ins=ins, hint="p.load(dsr, dsd)")
                for dsd in x.loads:
                    if ins.op.form == "dfilt" and dsd.kind != "fabin":
                        raise p._error(f"dfilt: {dsd} is not a fabin", ins=ins)
                    if key == "a" and dsd.kind == "fabin" and ins.op.form == "alu":
                        raise p._error(f"{ins.op.name}: {dsd} cannot be the destination", ins=ins)
                    if dsd.kind in ("circular", "mem4d"):
                        extended[(x.file, x._id)] = dsd
                    if ins.op.form == "alu" and x.thread is None:
                        try:
                            p._check_type(ins.op, dsd, letter, "destination" if key == "a" else "source")
                        except ProgramError as error:
                            raise p._error(error.what, hint=error.hint, ins=ins) from None
            if ins.op.form == "alu":
                self.check_packing(ins)
            if isinstance(ins.imm, Async):
                p._thread(ins.op, [x for x in (ins.b, ins.c, ins.a) if isinstance(x, Dsr)], ins.imm, ins)
        n = p._fifos + len(extended)
        if n > p.machine["dsr.xdsr"]:
            raise p._error(
                f"{p._fifos} FIFOs and {len(extended)} DSRs with circular or four-dimensional descriptors "
                f"need {n} extended DSRs, the PE has {p.machine['dsr.xdsr']}"
            )

    def check_packing(self, ins):
        """Refuse fabric operands of one operation that are loaded with different packings."""
        p = self.p
        seen = set()
        for x, letter in zip((ins.a, ins.b, ins.c), ins.op.types, strict=False):
            if isinstance(x, Dsr):
                seen |= {(p._packing(dsd, letter)) for dsd in x.loads if dsd.is_fabric}
        if len(seen) > 1:
            raise p._error(
                f"{ins.op.name}: its fabric operands are loaded with packed and with unpacked descriptors",
                ins=ins,
                hint="packed=False, or packed=True, for all of them",
            )

    def packed(self, dsd, dsr):
        """Return the packed flag of a fabric descriptor that is loaded into `dsr`."""
        if not dsd.is_fabric:
            return False
        sizes = {WORDS[dsd.dtype]} if dsd.dtype is not None else self.sizes.get(id(dsr), set())
        if sizes == {2}:
            return False
        if dsd.packed is not None:
            return dsd.packed
        if len(sizes) > 1:
            raise self.p._error(
                f"{dsr} holds {dsd} for operations on 16-bit and on 32-bit elements",
                where=dsr.where,
                hint="dtype=... or packed=... of the descriptor",
            )
        return True
