"""Vector operations of a CE have a set-up, steps and a completion, which are here.

What      `issue_vector` makes a `VectorOperation` of one, `vec_step` lets it take a step, `vec_complete` ends it.
Ports     `ce` is the record of `wse_core.reference.ce`; elements go through `wse_core.reference.operand`.
Contract  a step that faults leaves what its elements have stored in memory and registers so far, and nothing else.
Timing    docs/machine.md, "Vector operations"; costs come from wse_core/numbers.py.
Known     step order, pipeline latencies and FIFO details are assumptions of that page.
differences
Sources   docs/machine.md; arch §3 to §6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wse_core import isa
from wse_core.encoding import ADVANCE_PAYLOAD, MAIN, N_QUEUES, column_of
from wse_core.image import (
    DSD_CIRCULAR,
    DSD_FABIN,
    DSD_FABOUT,
    DSD_FIFO,
    DSD_MEM1D,
    DSD_MEM4D,
    DSD_NONE,
    F_ADVANCE,
    F_CONTROL,
    F_FLUSH,
    F_INDEX,
    F_SAVE,
    F_TERMINATE,
    F_ZERO,
    NO_TASK,
    ON_ACTIVATE,
    ON_TERMINATE,
    ON_UNBLOCK,
    UT_PRIORITY,
)
from wse_core.reference.alu import ALU
from wse_core.reference.operand import (
    FABRIC_KINDS,
    LOW16,
    MEMORY_KINDS,
    DsrState,
    Operand,
    ReferenceFault,
    conflict_of,
    dsr_of,
    fifo_of,
    move_fifo,
    queue_of,
    read_element,
    reg_read,
    send,
    sram_read,
    sram_write,
    write_element,
)
from wse_core.reference.queue import Wavelet

if TYPE_CHECKING:
    from wse_core.reference.ce import CE
    from wse_core.reference.scalar import DecodedInstruction

__all__ = [
    "VectorOperation",
    "async_ut",
    "control_operand",
    "discard",
    "ends_event",
    "fifo_ends",
    "fifo_lacks",
    "finish_microthread",
    "group_of",
    "issue_vector",
    "lanes_of",
    "take_control",
    "vec_complete",
    "vec_elements",
    "vec_setup",
    "vec_step",
    "vec_waits_for",
]


class VectorOperation:
    """An `VectorOperation` is a vector operation in flight."""

    def __init__(
        self,
        op: isa.Op,
        dest: Operand | None,
        sources: dict[str, Operand],
        level: int,
        activate: int | None = None,
        unblock: int | None = None,
    ) -> None:
        self.op, self.dest, self.sources = op, dest, sources  # sources: dict place -> Operand
        self.level, self.activate, self.unblock = level, activate, unblock
        self.dsr_names: set[tuple[int, int]] = set()
        self.n: int | None = 0  # length, None = endless
        self.k = 0  # elements done
        self.first_step = 0
        self.lost = 0  # cycles to bank conflicts
        self.known: dict[tuple[int, ...], list[Operand]] = {}  # what `of_kind` found: operands stay what they are

    def operands(self) -> list[Operand]:
        """Return all operands: sources in the order b, c, d, then the destination."""
        return [*self.sources.values(), *([] if self.dest is None else [self.dest])]

    def of_kind(self, *kinds: int) -> list[Operand]:
        """Return the operands whose descriptor is of one of `kinds`, sources first."""
        found = self.known.get(kinds)
        if found is None:
            found = self.known[kinds] = [operand for operand in self.operands() if operand.kind in kinds]
        return found

    @property
    def destination(self) -> Operand:
        """The destination of an operation that has one, as all have but dfilt."""
        assert self.dest is not None
        return self.dest

    @property
    def fills(self) -> bool:
        """Whether a register goes into all elements of a destination in memory."""
        fills = self.dest is not None and self.dest.kind in MEMORY_KINDS
        return fills and all(operand.kind == DSD_NONE for operand in self.sources.values())

    @property
    def advances(self) -> bool:
        """Whether something follows the last element: a control wavelet that moves the own switch, or a flush."""
        if self.dest is None or self.dest.kind != DSD_FABOUT:
            return False
        return self.dest.has(F_ADVANCE) or (self.dest.has(F_FLUSH) and self.n == 0)

    @property
    def has_all_elements(self) -> bool:
        """Whether no element is left to do."""
        return self.n is not None and self.k >= self.n


# --- set-up -----------------------------------------------------------------------------------------------------------


def issue_vector(ce: CE, ins: DecodedInstruction, t: int) -> None:
    """Issue a vector operation in cycle t."""
    counter = ins.counter
    if counter is not None:
        ce.regs[counter] = ce.regs[counter] - 1 & LOW16
    operation = vec_setup(ce, ins)
    thread = async_ut(ce, ins) if ins.is_async else MAIN
    if thread is None:
        raise ReferenceFault("program", f"{ins.op.name}: asynchronous, but no microthread follows from its operands")
    if thread == MAIN and operation.of_kind(DSD_FIFO):
        ce.cut = 0
    ce.book(t, 1)
    ce.emit(ce.x, ce.y, t, "op_start", None, thread, ce.pc | ins.op.code << 16)
    if counter is None or not ce.regs[counter]:
        ce.pc = ins.next
    operation.first_step = t + 1 + ce.machine["vec.start"]
    if thread == MAIN and operation.n != 0 and ce.machine["vec.raw"]:
        word, readable = ce.wrote
        if word in [one.dsr.address(0, one.words) for one in operation.sources.values() if one.kind in MEMORY_KINDS]:
            operation.first_step = max(operation.first_step, readable)
    if operation.has_all_elements and not operation.advances:  # n = 0
        ce.emit(ce.x, ce.y, t, "op_end", None, thread, 0)
        if thread == MAIN:
            ce.main_next = t + 1 + ce.machine["vec.start"] + ce.machine["vec.drain"]
            ce.wrote = None, 0
        else:
            ce.main_next = t + 1
            finish_microthread(ce, operation)
        return
    ce.operations[thread] = operation
    if thread == MAIN:
        ce.main = "vector"
    else:
        ce.main_next = t + 1


def vec_setup(ce: CE, ins: DecodedInstruction) -> VectorOperation:
    """Return the `VectorOperation` of an instruction, its scalars captured, or raise a `ReferenceFault`."""
    op = ins.op
    if ce.machine.lanes(op) == 0:
        raise ReferenceFault("program", f"{op.name} has no vector form")
    dest: Operand | None = None
    sources: dict[str, Operand] = {}
    fetched: DsrState | None = None
    for place, field, letter in ins.operands:
        dsr = dsr_of(ce, op, place, field)
        if place == "d" and dsr is not None:
            fetched, dsr = dsr, None  # a number as one from a register is
        operand = Operand(field, letter, dsr)
        if place == "a":
            dest = operand
        else:
            sources[place] = operand
    for operand in sources.values():
        if fetched is not None and operand is sources.get("d"):
            continue
        is_destination = dest is not None and operand.field == dest.field
        if operand.is_register and not is_destination:
            operand.scalar = reg_read(ce, operand.field, operand.words)
    if ins.is_async:
        get = isa.async_fields(ins.immediate)
        level = UT_PRIORITY[isa.PRIORITIES.index(get["priority"])]
        if ce.registers is not None:
            queues = [source.dsr.queue for source in sources.values() if source.kind == DSD_FABIN]
            level = max(level, UT_PRIORITY[ce.registers.priority(queues)])
        operation = VectorOperation(op, dest, sources, level, get["activate"], get["unblock"])
    else:
        operation = VectorOperation(op, dest, sources, ce.image.main_priority)
    operation.dsr_names = set(ins.dsrs)
    if op.form == "dfilt" and (sources["b"].kind != DSD_FABIN or not ins.is_async):
        raise ReferenceFault("program", "dfilt needs a fabin and is asynchronous only")
    for operand in operation.of_kind(*FABRIC_KINDS):
        queue_of(ce, operand)
    inputs = [operand.dsr.queue for operand in operation.of_kind(DSD_FABIN)]
    if len(set(inputs)) < len(inputs):
        raise ReferenceFault("program", f"{op.name}: both sources take from input queue {inputs[0]}")
    fifos = [operand.dsr.fifo for operand in operation.of_kind(DSD_FIFO) if operand is not dest]
    if len(set(fifos)) < len(fifos):
        raise ReferenceFault("program", f"{op.name}: both sources take from FIFO {fifos[0]}")
    inputs = [operand.dsr.queue for operand in sources.values() if operand.kind == DSD_FABIN]
    if len(set(inputs)) < len(inputs):
        raise ReferenceFault("program", f"{op.name}: two fabric inputs from the same queue")
    if len({operand.is_packed for operand in operation.of_kind(*FABRIC_KINDS)}) > 1:
        raise ReferenceFault("program", f"{op.name}: packed and unpacked fabric operands")
    for operand in operation.of_kind(DSD_CIRCULAR, DSD_FIFO):
        if operand.dsr.length == 0:
            raise ReferenceFault("program", f"{op.name}: circular buffer or FIFO of length 0")
    for operand in operation.of_kind(DSD_MEM4D):
        if 0 in operand.dsr.extent[1 : operand.dsr.ndim]:
            raise ReferenceFault("program", f"{op.name}: four-dimensional descriptor with an inner extent of 0")
    measure = next(operand for operand in operation.operands() if not operand.is_register)
    operation.n = measure.dsr.elements()
    if fetched is not None:
        words = sources["d"].words
        sources["d"].scalar = sram_read(ce, fetched.base, words)
        fetched.base = fetched.address(1, words) & LOW16
        ce.work[isa.BY_NAME["ld32" if words == 2 else "ld16"].code, 0] += 1
    return operation


def async_ut(ce: CE, ins: DecodedInstruction) -> int | None:
    """Return the microthread of an asynchronous operation, None if it has none."""
    named = isa.async_fields(ins.immediate)["ut"]
    if named is not None:
        return named if named < ce.machine["ut.count"] else None
    for kind in (DSD_FABOUT, DSD_FABIN):
        for name in ins.dsrs:  # in the order a, b, c
            dsr = ce.dsrs.get(name)
            if dsr is not None and dsr.kind == kind:
                number = dsr.queue % N_QUEUES
                return number if number < ce.machine["ut.count"] else None
    return None


# --- when and how much ------------------------------------------------------------------------------------------------


def vec_waits_for(ce: CE, operation: VectorOperation, t: int) -> str | None:
    """Return why a vector operation cannot step in cycle t, None if it can."""
    if t < operation.first_step:
        return "pipe"
    fabins, fabouts = operation.of_kind(DSD_FABIN), operation.of_kind(DSD_FABOUT)
    if not operation.has_all_elements:
        if control_operand(ce, operation, t) is not None or fifo_ends(ce, operation):
            return None
        if any(queue_of(ce, operand).head(t) is None for operand in fabins):
            return "input"
        if fifo_lacks(ce, operation):
            return "fifo"
    for operand in fabouts:
        queue = queue_of(ce, operand)
        if not (queue.is_empty(t) if operation.has_all_elements and operand.has(F_FLUSH) else queue.has_room(t)):
            return "output"
    return None


def control_operand(ce: CE, operation: VectorOperation, t: int) -> Operand | None:
    """Return the first fabin (b, then c) with a ready control wavelet at its head, or None."""
    for operand in operation.of_kind(DSD_FABIN):
        wavelet = queue_of(ce, operand).head(t)
        if wavelet is not None and wavelet.control:
            return operand
    return None


def fifo_lacks(ce: CE, operation: VectorOperation) -> list[Operand]:
    """Return the FIFO operands that hold too few elements, or have too little room, for the next step."""
    fifos = operation.of_kind(DSD_FIFO)
    if operation.op.form == "dfilt" or not fifos:
        return []
    group = group_of(ce, operation)
    lacking = []
    for operand in fifos:
        count = fifo_of(ce, operand).count
        enough = count + group <= operand.dsr.length if operand is operation.dest else count >= group
        if not enough:
            lacking.append(operand)
    return lacking


def fifo_ends(ce: CE, operation: VectorOperation) -> bool:
    """Whether a FIFO that is full or empty ends the operation instead of holding it."""
    return any(operand.has(F_TERMINATE) for operand in fifo_lacks(ce, operation))


def ends_event(ce: CE, operation: VectorOperation, operand: Operand, group: int, t: int) -> bool:
    """Whether the step of cycle t, which has just moved `group` elements, ends an event of the other side of a FIFO.

    An event is a step that found too few elements, or too little room: of another operation, which still waits, or of
    one that the FIFO has ended.  It ends when there is enough.
    """
    fifo, pushed = fifo_of(ce, operand), operand is operation.dest
    there = fifo.count if pushed else operand.dsr.length - fifo.count
    waiting = set()
    for other in ce.operations.values():
        if other is None or other is operation or t < other.first_step or other.has_all_elements:
            continue
        for side in other.of_kind(DSD_FIFO):
            if fifo_of(ce, side) is fifo and (side is other.dest) != pushed:
                waiting.add(group_of(ce, other))
    lacked = {wanted for wanted in waiting if wanted > there - group} | fifo.ended[not pushed]
    satisfied = {wanted for wanted in lacked if wanted <= there}
    fifo.ended[not pushed] -= satisfied
    return bool(satisfied)


def lanes_of(ce: CE, operation: VectorOperation) -> int:
    """Return the SIMD width of an operation with its strides."""
    lanes = ce.machine.lanes(operation.op)
    for operand in operation.of_kind(DSD_MEM1D, DSD_MEM4D):
        stride = operand.dsr.innermost_stride()
        if stride in (0, 1):
            continue
        residue = abs(stride) % 8
        if residue in (1, 7):
            lanes = min(lanes, 2)
        elif residue == 0:
            lanes = 1
        elif residue == 4:
            lanes = min(lanes, ce.machine["vec.stride4_lanes"])
    return lanes


def group_of(ce: CE, operation: VectorOperation) -> int:
    """Return the number of elements of the next step."""
    dest = operation.destination
    left = None if operation.n is None else operation.n - operation.k
    if operation.of_kind(*FABRIC_KINDS, DSD_FIFO):
        group = 2 if any(operand.is_packed for operand in operation.operands()) else 1
    else:
        more_than_one = operation.n is None or operation.n > 1
        to_one_place = dest.kind == DSD_NONE or (dest.kind == DSD_MEM1D and dest.dsr.stride[0] == 0)
        group = 1 if to_one_place and more_than_one else lanes_of(ce, operation)
        for operand in operation.of_kind(DSD_MEM4D):
            row = operand.dsr.extent[operand.dsr.ndim - 1]
            group = min(group, row - operation.k % row)
    return group if left is None else min(group, left)


# --- steps ------------------------------------------------------------------------------------------------------------


def vec_step(ce: CE, thread: int, t: int) -> None:
    """Let a vector operation take one step in cycle t."""
    operation = ce.operations[thread]
    assert operation is not None
    if operation.has_all_elements:
        if not operation.destination.has(F_FLUSH):
            send(ce, operation.destination, ADVANCE_PAYLOAD, True, t, 1, own=True)
        cost, conflict, ended = 1, 0, True
    elif operation.op.form == "dfilt":
        cost, conflict, ended = 1, 0, discard(ce, operation, t)
    elif (control := control_operand(ce, operation, t)) is not None:
        cost, conflict, ended = 1, 0, take_control(ce, control, t)
    elif fifo_ends(ce, operation):
        for operand in fifo_lacks(ce, operation):
            if operand.has(F_TERMINATE):
                fifo_of(ce, operand).ended[operand is operation.dest].add(group_of(ce, operation))
        if thread == MAIN:
            ce.cut = 0xFFFF if operation.n is None else min(operation.n - operation.k, 0xFFFF)
        cost, conflict, ended = 1, 0, True
    else:
        group = group_of(ce, operation)
        conflict = conflict_of(ce, operation, group)
        cost = -(-group // lanes_of(ce, operation)) + conflict
        vec_elements(ce, operation, group, cost, t)
        operation.k += group
        ce.counters["elements"] += group
        ce.counters["macs"] += group if operation.op.is_mac else 0
        ended = operation.has_all_elements and not operation.advances
    ce.counters["steps"] += 1
    operation.lost += conflict
    ce.book(t, cost, conflict)
    if ended:
        vec_complete(ce, thread, t, cost)


def discard(ce: CE, operation: VectorOperation, t: int) -> bool:
    """Take one wavelet of a dfilt; return whether that was its last one."""
    wavelet = ce.inq_take(queue_of(ce, operation.sources["b"]), t)
    if wavelet.control:
        operation.k += 1
        ce.counters["elements"] += 1
        ce.work[operation.op.code, column_of(0, 0)] += 1
    return operation.has_all_elements


def take_control(ce: CE, operand: Operand, t: int) -> bool:
    """Take a control wavelet and do what the descriptor says; return whether the operation ends."""
    ce.inq_take(queue_of(ce, operand), t)
    if operand.dsr.on_control & ON_ACTIVATE:
        ce.activate(operand.dsr.control_task)
    if operand.dsr.on_control & ON_UNBLOCK:
        ce.unblock(operand.dsr.control_task)
    return bool(operand.dsr.on_control & ON_TERMINATE)


def vec_elements(ce: CE, operation: VectorOperation, group: int, cost: int, t: int) -> None:
    """Do the elements k .. k + group - 1, one after the other."""
    heads: dict[str, Wavelet] = {}
    for place, operand in operation.sources.items():
        head = queue_of(ce, operand).head(t) if operand.kind == DSD_FABIN else None
        if head is not None:
            heads[place] = head
    dest, outgoing = operation.destination, 0
    for j in range(group):
        read, written = ce.words_read, ce.words_written
        values = {"b": 0, "c": 0, "d": 0}
        for place, operand in operation.sources.items():
            values[place] = read_element(ce, operation, operand, heads.get(place), j)
        value = ALU[operation.op.name](ce.num, **values)
        if dest.kind == DSD_FABOUT:
            outgoing |= value << 16 * j
            source = operation.sources["b"]
            if dest.has(F_ZERO) and source.kind in MEMORY_KINDS:
                sram_write(ce, source.dsr.address(operation.k + j, source.words), source.words, 0)
        else:
            write_element(ce, operation, heads, j, value)
        ce.work[operation.op.code, column_of(ce.words_read - read, ce.words_written - written)] += 1
    for place in heads:
        ce.inq_take(queue_of(ce, operation.sources[place]), t)
    if dest.kind == DSD_FABOUT:
        if dest.words == 1 and not dest.is_packed and dest.has(F_INDEX):
            outgoing |= dest.dsr.index << 16
        send(ce, dest, outgoing, dest.has(F_CONTROL), t, cost)
    for operand in operation.of_kind(DSD_FIFO):
        move_fifo(ce, operand, operand is dest, group)
    for operand in operation.of_kind(DSD_FIFO):
        if ends_event(ce, operation, operand, group, t):
            task = operand.dsr.push_task if operand is dest else operand.dsr.pop_task
            if task != NO_TASK:
                ce.activate(task)


# --- completion -------------------------------------------------------------------------------------------------------


def vec_complete(ce: CE, thread: int, t: int, cost: int) -> None:
    """End the operation of a thread with its step of cycle t."""
    operation = ce.operations[thread]
    assert operation is not None
    ce.operations[thread] = None
    ce.emit(ce.x, ce.y, t, "op_end", None, thread, operation.k)
    if operation.lost:
        ce.emit(ce.x, ce.y, t, "conflict", None, thread, operation.lost)
    dest, word = operation.dest, None
    if dest is not None and dest.kind in MEMORY_KINDS and operation.k > 0:
        word = dest.dsr.address(operation.k - 1, dest.words)
    saved: list[DsrState] = []
    for operand in operation.operands():
        if not operand.has(F_SAVE) or any(dsr is operand.dsr for dsr in saved):
            continue
        saved.append(operand.dsr)
        if operand.kind == DSD_MEM1D:
            moved = operation.k * operand.dsr.stride[0] * operand.words
            operand.dsr.base = operand.dsr.base + moved & LOW16
        elif operand.kind == DSD_CIRCULAR:
            operand.dsr.index = (operand.dsr.index + operation.k) % operand.dsr.length
    if dest is not None and dest.kind == DSD_NONE:
        latency = ce.machine["ce.fp_latency" if operation.op.cost == "fp" else "ce.int_latency"]
        for k in range(dest.words):
            ce.reg_ready[(dest.field & 15) + k] = t + max(cost, latency)
    if thread == MAIN:
        late = 0
        if operation.op.is_mac:
            late = operation.k * ce.machine["vec.mac_late"] // 16
        elif operation.fills:
            late = operation.k * ce.machine["vec.fill_late"] // 1000
        ce.main, ce.main_next = "run", t + cost + ce.machine["vec.drain"] + late
        ce.wrote = word, t + cost + 1 + ce.machine["vec.raw"]
    else:
        finish_microthread(ce, operation)


def finish_microthread(ce: CE, operation: VectorOperation) -> None:
    """Let the end of an asynchronous operation take effect on tasks."""
    if operation.activate is not None:
        ce.activate(operation.activate)
    if operation.unblock is not None:
        ce.unblock(operation.unblock)
