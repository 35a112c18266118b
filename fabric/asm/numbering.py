"""The assembler chooses numbers: queues of data tasks, task ids, DSRs; here is what they allow and what clashes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fabric.asm.checks import check_type, packing, thread_of
from fabric.asm.instruction import Instruction, SourcePlace, TaskRef
from fabric.asm.operands import Async, Dsd, Dsr, Queue, Task
from fabric.asm.values import WORDS
from wse_core import image as im
from wse_core import isa
from wse_core.encoding import N_COLORS, N_QUEUES

if TYPE_CHECKING:
    from fabric.asm.unit import Unit

__all__ = ["Numbering"]

FORMS_OF_DSRS = frozenset(("alu", "dfilt", "dsr"))
"""Instructions of these forms may have DSRs as operands."""
LOCAL_IDS = (24, 25, 26, 27, 28, 30, *range(N_COLORS - 1, -1, -1))  # lower ids are colors (arch §6)


class Numbering:
    """A `Numbering` chooses the ids of one finished unit."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.sizes: dict[int, set[int]] = {}  # DSR -> words per element of the operations on it

    # --- ids ----------------------------------------------------------------------------------------------------------

    def pick_queues(self) -> None:
        """Bind an input queue to the color of each data task that has none."""
        u = self.unit
        queues = u.queues["input"]
        for task in u.tasks.values():
            if task.kind != "data":
                continue
            assert task.color is not None
            bound = next((q for q in queues.values() if q.color == task.color), None)
            if bound is None:
                free = [k for k, depth in enumerate(u.machine["queue.in_depth"]) if depth and k not in queues]
                if not free:
                    raise u.error(f"data task {task.name!r}: no input queue left for color {task.color}", at=task.at)
                bound = queues[free[0]] = Queue("input", free[0], task.color)
            if task.number is None:
                task.number = bound.number

    def pick_task_ids(self) -> None:
        """Give every task that has none the first free id of its kind."""
        u = self.unit
        by_queue = u.machine["task.by_queue"]
        colors = set(range(N_QUEUES)) if by_queue else {q.color for q in u.queues["input"].values()}
        used = {t.number for t in u.tasks.values() if t.kind != "control" and t.number is not None}
        control = {t.number for t in u.tasks.values() if t.kind == "control" and t.number is not None}
        for task in u.tasks.values():
            shares = task.kind == "local" and task.number in colors and task.number not in u.shared_ids
            if shares and not by_queue:
                raise u.error(
                    f"local task {task.name!r}: id {task.number} is a color with an input queue, whose "
                    "wavelets share its bits",
                    at=task.at,
                    hint="leave id out, or take another",
                )
            if task.number is not None:
                continue
            if task.kind == "control":
                free = [k for k in range(im.N_CONTROL_IDS) if k not in control and k != im.TASK_NULL]
                pool = control
            else:
                free = [k for k in LOCAL_IDS if k not in used and k not in colors]
                pool = used
            if not free:
                raise u.error(f"task {task.name!r}: no task id is left", at=task.at)
            task.number = free[0]
            pool.add(free[0])

    def task_id(self, ref: TaskRef, at: SourcePlace | None = None) -> int:
        """Return the id that a reference means, checking that it can be used so."""
        u = self.unit
        target = ref.task
        if isinstance(target, Task):
            if u.tasks.get(target.name) is not target:
                raise u.error(f"{ref.use}: task {target.name!r} belongs to another program", at=at)
        elif isinstance(target, Queue):
            return target.number if u.machine["task.by_queue"] else target.color
        elif isinstance(target, str):
            if target not in u.tasks:
                raise u.error(
                    f"{ref.use}: there is no task {target!r}", at=at, hint=f"tasks: {', '.join(u.tasks) or 'none'}"
                )
            target = u.tasks[target]
        else:
            if not isinstance(target, (int, np.integer)) or not 0 <= target < im.N_TASK_IDS:
                raise u.error(f"{ref.use}: {target!r} is not a task", at=at)
            owner = [t for t in u.tasks.values() if t.kind != "control" and t.number == target]
            if not owner:
                if ref.use in ("activate", "start"):
                    raise u.error(f"{ref.use}: no task has the id {target}", at=at)
                return int(target)
            target = owner[0]
        if target.kind == "control":
            raise u.error(f"{ref.use}: {target.name!r} is a control task; only a control wavelet starts it", at=at)
        return target.id

    def initial_bits(self) -> tuple[int, int, int]:
        """Return the activated, blocked and high-priority bits with which the program begins."""
        u = self.unit
        bits: dict[str, int] = {}
        for key, refs in (("start", u.starts), ("blocked", u.blocks), ("unblocked", u.unblocks)):
            bits[key] = 0
            for ref, at in refs:
                bits[key] |= 1 << self.task_id(ref, at)
        bound = {t.number for t in u.tasks.values() if t.kind != "control"}
        fed = N_QUEUES if u.machine["task.by_queue"] else N_COLORS  # ids that wavelets may start
        empty = sum(1 << c for c in range(fed) if c not in bound)
        blocked = (empty | bits["blocked"]) & ~bits["unblocked"]
        high = sum(1 << t.id for t in u.tasks.values() if t.high and t.kind != "control")
        return bits["start"], blocked, high

    # --- DSRs ---------------------------------------------------------------------------------------------------------

    def pick_dsrs(self) -> None:
        """Give every DSR its number: chosen ones, their partners, free ones, then those made by the assembler."""
        u = self.unit
        count = u.machine["dsr.count"]
        auto = [x for ins in u.instructions for x in (ins.a, ins.b, ins.c) if type(x) is Dsr and x.thread is not None]
        own = list(u.dsrs)
        taken: dict[str, dict[int, Dsr]] = {file: {} for file in isa.FILES[:3]}
        groups: dict[Dsr, list[Dsr]] = {}
        for dsr in own:
            groups.setdefault(dsr.root, []).append(dsr)
        for members in groups.values():
            for dsr in members:
                if dsr.chosen:
                    taken[dsr.file][dsr.id] = dsr
        for root, members in groups.items():
            files = [d.file for d in members]
            if len(set(files)) < len(files):
                twice = next(f for f in files if files.count(f) > 1)
                both = [d for d in members if d.file == twice]
                raise u.error(
                    f"{both[0]} and {both[1]} are both used with one and the same partner; on WSE-2 a dest "
                    "DSR and a src0 DSR of one operation must have the same id",
                    at=both[1].at,
                    hint="one partner for each, or load one DSR with both descriptors in turn",
                )
            chosen = {d.number for d in members if d.chosen}
            number = (
                chosen.pop()
                if chosen
                else next((k for k in range(count) if all(k not in taken[f] for f in files)), None)
            )
            for dsr in members:
                holder = taken[dsr.file].get(number) if number is not None else dsr
                if number is None or holder not in (None, dsr):
                    raise u.error(
                        f"{dsr}: no number left in its file"
                        if number is None
                        else f"{dsr} must have number {number} like its partner, which {holder} has",
                        at=dsr.at,
                    )
                taken[dsr.file][number] = dsr
                dsr.number = number
            root.number = members[0].number
        self.pick_automatic(auto, taken, count)

    def pick_automatic(self, auto: list[Dsr], taken: dict[str, dict[int, Dsr]], count: int) -> None:
        """Number the DSRs made by the assembler: one id per thread, or that of a reserved partner."""
        u = self.unit
        free = [k for k in range(count) if all(k not in taken[f] for f in taken)]
        threads = sorted({d.thread for d in auto if d.thread is not None})
        number: dict[int | None, int] = {}
        for k, thread in enumerate(threads):
            if not free:
                raise u.error(
                    "the program reserves all DSRs, none is left for descriptors given to operations",
                    hint=u.hint("dsrs"),
                )
            number[thread] = free[min(k, len(free) - 1)]
        for dsr in auto:
            if dsr.number is not None:
                continue
            root = dsr.root
            if root.thread is None:  # partner of a DSR that the program reserved
                number_here = root.id
                holder = taken[dsr.file].get(number_here)
                if holder is not None:
                    raise u.error(
                        f"a descriptor must go into {dsr.file} DSR {number_here}, the partner of {root}, "
                        f"but the program reserves that one as {holder}",
                        at=dsr.at,
                        hint="load that descriptor explicitly",
                    )
                dsr.number = number_here
            else:
                dsr.number = number[dsr.thread]

    def check_explicit_dsrs(self) -> None:
        """Check operations on DSRs that the program loads itself against everything it ever loads into them.

        Operations of one kind on the same DSRs are checked once.  Notes the sizes of their elements for `packed`.
        """
        u = self.unit
        extended: set[tuple[str, int | None]] = set()
        places, known = set(), set()
        for ins in u.instructions:
            op, a, b, c, d = ins.op, ins.a, ins.b, ins.c, ins.d
            if op.form not in FORMS_OF_DSRS or (type(a) is type(b) is type(c) is int):
                continue
            operands = op.code, a, b, c, d
            if operands not in known:
                known.add(operands)
                for key, x, letter in zip("abcd", operands[1:], op.types, strict=True):
                    if not isinstance(x, Dsr):
                        continue
                    if op.form != "dsr":
                        self.sizes.setdefault(id(x), set()).add(isa.WORDS[letter])
                    if (op.code, key, x) not in places:
                        places.add((op.code, key, x))
                        self.check_place(ins, key, x, letter)
                        extended |= {(x.file, x.number) for dsd in x.loads if dsd.kind in ("circular", "mem4d")}
                if op.form == "alu":
                    self.check_packing(ins)
            if isinstance(ins.imm, Async):
                thread_of(u, op, [x for x in (b, c, a) if isinstance(x, Dsr)], ins.imm, ins)
        n = u.fifos + len(extended)
        if n > u.machine["dsr.xdsr"]:
            raise u.error(
                f"{u.fifos} FIFOs and {len(extended)} DSRs with circular or four-dimensional descriptors "
                f"need {n} extended DSRs, the PE has {u.machine['dsr.xdsr']}"
            )

    def check_place(self, ins: Instruction, key: str, dsr: Dsr, letter: str) -> None:
        """Refuse a DSR as an operand, `key` of "abcd", that it is loaded for the wrong way."""
        u, form = self.unit, ins.op.form
        if not dsr.loads:
            raise u.error(f"{ins.op.name}: nothing is ever loaded into {dsr}", ins=ins, hint=u.hint("load"))
        for dsd in dsr.loads:
            if form == "dfilt" and dsd.kind != "fabin":
                raise u.error(f"dfilt: {dsd} is not a fabin", ins=ins)
            if key == "a" and dsd.kind == "fabin" and form == "alu":
                raise u.error(f"{ins.op.name}: {dsd} cannot be the destination", ins=ins)
            if key == "d" and form == "alu" and dsd.kind != "mem1d":
                raise u.error(f"{ins.op.name}: {dsd} cannot be the multiplier", ins=ins, hint="memory of one dimension")
            if form == "alu" and dsr.thread is None:
                check_type(u, ins.op, dsd, letter, "destination" if key == "a" else "source", ins)

    def check_packing(self, ins: Instruction) -> None:
        """Refuse fabric operands of one operation that are loaded with different packings."""
        u = self.unit
        seen = set()
        for x, letter in zip((ins.a, ins.b, ins.c), ins.op.types, strict=False):
            if isinstance(x, Dsr):
                seen |= {(packing(dsd, letter)) for dsd in x.loads if dsd.is_fabric}
        if len(seen) > 1:
            raise u.error(
                f"{ins.op.name}: its fabric operands are loaded with packed and with unpacked descriptors",
                ins=ins,
                hint="packed=False, or packed=True, for all of them",
            )

    def packed(self, dsd: Dsd, dsr: Dsr) -> bool:
        """Return the packed flag of a fabric descriptor that is loaded into `dsr`."""
        if not dsd.is_fabric:
            return False
        sizes = {WORDS[dsd.dtype]} if dsd.dtype is not None else self.sizes.get(id(dsr), set())
        if sizes == {2}:
            return False
        if dsd.packed is not None:
            return dsd.packed
        if len(sizes) > 1:
            raise self.unit.error(
                f"{dsr} holds {dsd} for operations on 16-bit and on 32-bit elements",
                at=dsr.at,
                hint="dtype=... or packed=... of the descriptor",
            )
        return True
