"""The compute element of one PE, one cycle at a time.

What      task picker, issue arbitration, scalar instructions, vector operations and their steps, FIFOs, accounting.
Ports     `in_queues` (the router pushes), `out_queues` (the ramp queues of the router; the CE pushes), `teardowns`
          (cycles in which the teardown task becomes activated), `router` (configuration instructions).
Contract  `CE.phase` is called once per cycle after the phase of all routers; it reads and writes the own PE only.
          What the hardware forbids raises `Fault` inside and ends up in `CE.fault`. A step that faults leaves what its
          elements have stored in memory and registers so far, and nothing else.
Timing    docs/machine.md, "CE"; costs come from wse_core/params.py.
Known     picker and issue order, pipeline latencies and FIFO details are assumptions of that page.
differences
Sources   docs/machine.md; arch §3 to §6.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from wse_core import isa
from wse_core.events import WAITS
from wse_core.image import (
    DSD_CIRCULAR,
    DSD_FABIN,
    DSD_FABOUT,
    DSD_FIFO,
    DSD_MEM1D,
    DSD_MEM4D,
    DSD_NONE,
    ENDLESS,
    F_ADVANCE,
    F_CONTROL,
    F_INDEX,
    F_PACKED,
    F_SAVE,
    F_TERMINATE,
    F_ZERO,
    N_TASK_IDS,
    NO_TASK,
    ON_ACTIVATE,
    ON_TERMINATE,
    ON_UNBLOCK,
    TASK_TEARDOWN,
    UT_PRIORITY,
)
from wse_core.reference.alu import ALU, CONDITION
from wse_core.reference.numerics import FMT_CB16, FMT_F16, Num
from wse_core.reference.router import Queue, no_trace

__all__ = ["CE", "COUNTERS", "Fault"]

MAIN = 8  # number of the main thread beside the microthreads 0 .. 7
THREADS = range(9)
IN_ORDER_OF_BOOKING = (MAIN, *range(8))
MEMORY_KINDS = (DSD_MEM1D, DSD_MEM4D, DSD_CIRCULAR)
FABRIC_KINDS = (DSD_FABIN, DSD_FABOUT)
ADVANCE_WAVELET = 0x095F9249  # command 0 ADV, no command delivered, task id 31
LOW16, LOW32 = 0xFFFF, 0xFFFFFFFF

COUNTERS = (
    "busy",
    "idle",
    "stall_pipe",
    "stall_conflict",
    "stall_resource",
    "stall_input",
    "stall_output",
    "stall_fifo",
    "instructions",
    "steps",
    "elements",
    "macs",
    "tasks",
    "sent",
    "received",
)


class Fault(Exception):
    """Something that the hardware forbids; `kind` is sram_range, sram_align, program or queue."""

    def __init__(self, kind, detail, **more):
        super().__init__(detail)
        self.record = {"kind": kind, "address": None, "color": None, "detail": detail, **more}


class Instruction(NamedTuple):
    """A decoded instruction and the code word index of the one after it."""

    op: isa.Op
    a: int
    b: int
    c: int
    d: int
    imm: int | None
    next: int

    def operands(self):
        """Return (place, field, type letter) of the operands that an ALU form has, destination first."""
        places = zip("abcd", (self.a, self.b, self.c, self.d), self.op.types, strict=True)
        return [(place, field, letter) for place, field, letter in places if letter != "-"]

    def dsrs(self):
        """Return the DSRs that the instruction names, as (file, id)."""
        if self.op.form == "dsr":
            fields = [self.a]
        elif self.op.form in ("alu", "dfilt"):
            fields = [field for _, field, _ in self.operands()] if self.is_vector() else []
        else:
            fields = []
        return [divmod(field, 16) for field in fields if field >> 4 != isa.FILE_REG]

    def is_vector(self):
        """Whether it is a vector operation."""
        return isa.is_vector(self.op, self.a, self.b, self.c)

    def is_async(self):
        """Whether it is an asynchronous vector operation."""
        return self.is_vector() and self.imm is not None and bool(self.imm & 1)


class Dsr:
    """A data structure register: the descriptor that was loaded into it; `row` is a record of `DESC_DTYPE`."""

    def __init__(self, row):
        self.kind, self.flags = int(row["kind"]), int(row["flags"])
        self.queue, self.fifo = int(row["queue"]), int(row["xdsr"])
        self.on_control, self.control_task = int(row["on_control"]), int(row["control_task"])
        self.push_task, self.pop_task = int(row["push_task"]), int(row["pop_task"])
        self.base, self.index, self.length = int(row["base"]), int(row["index"]), int(row["length"])
        self.ndim = int(row["ndim"])
        self.extent = [int(v) for v in row["extent"]]
        self.stride = [int(v) for v in row["stride"]]

    def elements(self):
        """Return the number of elements, None if endless."""
        if self.extent[0] == ENDLESS:
            return None
        return prod(self.extent[: self.ndim]) if self.kind == DSD_MEM4D else self.extent[0]

    def innermost_stride(self):
        """Return the stride from one element to the next of a mem1d or mem4d."""
        return self.stride[self.ndim - 1] if self.kind == DSD_MEM4D else self.stride[0]

    def address(self, k, words):
        """Return the word address of element k of a mem1d, mem4d or circular descriptor."""
        if self.kind == DSD_MEM1D:
            return self.base + k * self.stride[0] * words
        if self.kind == DSD_CIRCULAR:
            return self.base + (self.index + k) % self.length * words
        offset = 0
        for dimension in reversed(range(self.ndim)):
            if dimension > 0:
                k, i = divmod(k, self.extent[dimension])
            else:
                i = k
            offset += i * self.stride[dimension]
        return self.base + offset * words


class Fifo:
    """State of one FIFO number: where the oldest element stands, how many there are, words of one; data are in SRAM."""

    def __init__(self):
        self.head, self.count, self.words, self.base, self.length = 0, 0, 1, 0, 1


class Operand:
    """One operand of a vector operation in flight.

    Attributes
    ----------
    field : int
        Operand field of the instruction.
    words : int
        SRAM words of an element, 1 or 2.
    dsr : Dsr or None
        None for a register.
    scalar : int or None
        Value captured from a register; None for one that is read anew for each element.
    """

    def __init__(self, field, letter, dsr):
        self.field, self.words, self.dsr = field, isa.WORDS[letter], dsr
        self.scalar = None

    @property
    def kind(self):
        """Kind of its descriptor, DSD_NONE for a register."""
        return DSD_NONE if self.dsr is None else self.dsr.kind

    def has(self, flag):
        """Whether its descriptor has a flag."""
        return self.dsr is not None and bool(self.dsr.flags & flag)

    @property
    def is_packed(self):
        """Whether it is a fabric operand with two elements per wavelet."""
        return self.kind in FABRIC_KINDS and self.has(F_PACKED) and self.words == 1


class Operation:
    """A vector operation in flight."""

    def __init__(self, op, dest, sources, level, activate=None, unblock=None):
        self.op, self.dest, self.sources = op, dest, sources  # sources: dict place -> Operand
        self.level, self.activate, self.unblock = level, activate, unblock
        self.dsr_names = set()
        self.n, self.k = 0, 0  # n: length, None = endless; k: elements done
        self.first_step = 0
        self.lost = 0  # cycles to bank conflicts

    def operands(self):
        """Return all operands: sources in the order b, c, d, then the destination."""
        return [*self.sources.values(), *([] if self.dest is None else [self.dest])]

    def of_kind(self, *kinds):
        """Return the operands whose descriptor is of one of `kinds`, sources first."""
        return [operand for operand in self.operands() if operand.kind in kinds]

    @property
    def advances(self):
        """Whether a control wavelet that advances switches follows the last element."""
        return self.dest is not None and self.dest.kind == DSD_FABOUT and self.dest.has(F_ADVANCE)

    @property
    def has_all_elements(self):
        """Whether no element is left to do."""
        return self.n is not None and self.k >= self.n


class CE:
    """Compute element of PE (x, y) with a program.

    Parameters
    ----------
    x, y : int
    machine : Machine
    image : ProgramImage
    router : Router
        Of the same PE.
    """

    def __init__(self, x, y, machine, image, router):
        self.x, self.y, self.machine, self.image, self.router = x, y, machine, image, router
        self.lane_column = 0 if machine.preset == "wse2" else 1
        self.num = Num(FMT_CB16 if image.half == "cb16" else FMT_F16, machine["num.cb16_bias"], machine["num.ftz"])
        self.code = {}
        for at, op, a, b, c, d, imm in isa.decode(image.code):
            self.code[at] = Instruction(op, a, b, c, d, imm, at + (1 if imm is None else 2))

        self.memory = [0] * image.footprint
        for word_index, word in enumerate(image.code):
            self.memory[2 * word_index] = int(word) & LOW16
            self.memory[2 * word_index + 1] = int(word) >> 16
        for address, words in image.data:
            for offset, word in enumerate(words):
                self.memory[address + offset] = int(word)

        self.regs = [0] * isa.N_REGS
        self.reg_ready = [0] * isa.N_REGS
        self.activated, self.blocked = int(image.active), int(image.blocked)
        self.last_picked = N_TASK_IDS - 1
        self.main = "idle"  # idle, starting, run, vector, fault
        self.pc = -1
        self.main_next = 0
        self.return_to = []
        # Of the scalar instruction that is being executed: where its result is ready, what comes next and when.
        self.result_ready, self.go_to, self.next_in = 0, -1, 1
        self.operations = dict.fromkeys(THREADS)  # thread -> Operation or None
        self.last_issued = MAIN
        self.pipe_free = 0
        self.busy_until = 0  # an issue books the cycles before this one as busy, those before pipe_free as conflict
        self.dsrs, self.fifos = {}, {}
        self.active_prng = 0
        self.prng = [machine["prng.seed"]] * 4
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.teardowns = []
        self.fault = None
        self.emit = no_trace  # see wse_core/events.py
        self.now = 0
        self.waits, self.wait_since = (None, None, None), 0

        self.in_queues, self.out_queues = {}, {}
        for number, color in enumerate(image.inq_color):
            if color >= 0:
                depth = machine["queue.in_depth"][number] + machine["ramp.in_buffer"]
                self.in_queues[number] = Queue(depth, color)
        for number, color in enumerate(image.outq_color):
            if color >= 0:
                depth = machine["queue.out_depth"][number] + machine["router.depth"]
                self.out_queues[number] = Queue(depth, color)

    # --- the phase -------------------------------------------------------------------------------------------------

    def phase(self, t):
        """Run the CE phase of cycle t; return whether anything started, issued or ended."""
        self.now = t
        if t in self.teardowns:
            self.teardowns.remove(t)
            self.set_activated(TASK_TEARDOWN)
        if self.main == "starting" and t >= self.main_next:
            self.main = "run"
        acted = False
        if self.fault is None:
            acted = self.pick(t)
            acted = self.issue(t) or acted
        self.account(t)
        return acted

    # --- picker ----------------------------------------------------------------------------------------------------

    def pick(self, t):
        """Start a task if the main thread is idle and one can start; return whether something was picked."""
        if self.main != "idle":
            return False
        candidates = [task for task in range(N_TASK_IDS) if self.can_start(task, t)]
        if not candidates:
            return False
        high = [task for task in candidates if self.image.high >> task & 1]
        group = high if high else candidates
        if self.machine["task.priority_rule"] == "round_robin":
            task = min(group, key=lambda task: (task - self.last_picked - 1) % N_TASK_IDS)
        else:
            task = min(group)
        self.last_picked = task
        if self.activated >> task & 1 and self.image.entry[task] >= 0:
            self.activated &= ~(1 << task)
            self.start(int(self.image.entry[task]), t)
            return True
        wavelet = self.receive(self.queue_of_color(task), t)
        if wavelet.control:
            entry = int(self.image.control_entry[wavelet.payload >> 16 & 63])
        else:
            entry = int(self.image.entry[task])
        if entry >= 0:
            self.regs[0], self.regs[1] = wavelet.data, wavelet.index
            self.reg_ready[0] = self.reg_ready[1] = t
            self.start(entry, t)
        return True

    def queue_of_color(self, color):
        """Return the input queue bound to a color, or None."""
        for queue in self.in_queues.values():
            if queue.color == color:
                return queue
        return None

    def can_start(self, task, t):
        """Whether the picker may choose task id `task` in cycle t."""
        if self.blocked >> task & 1:
            return False
        has_entry = self.image.entry[task] >= 0
        if self.activated >> task & 1 and has_entry:
            return True
        queue = self.queue_of_color(task)
        wavelet = None if queue is None else queue.head(t)
        if wavelet is None:
            return False
        return wavelet.control or bool(self.image.data_tasks >> task & 1 and has_entry)

    def start(self, entry, t):
        """Start the task that was picked at code word index `entry`."""
        self.emit(self.x, self.y, t, "task_start", None, self.last_picked, entry)
        self.main, self.pc, self.return_to = "starting", entry, []
        self.main_next = t + self.machine["task.start"]
        self.counters["tasks"] += 1
        if t >= self.main_next:
            self.main = "run"

    # --- issue -----------------------------------------------------------------------------------------------------

    def level(self, thread):
        """Return the issue priority of a thread."""
        return self.image.main_priority if thread == MAIN else self.operations[thread].level

    def issue(self, t):
        """Let one able thread issue; return whether one did."""
        if t < self.pipe_free:
            return False
        able = [thread for thread in THREADS if self.waits_for(thread, t) is None]
        if not able:
            return False
        highest = max(self.level(thread) for thread in able)
        able = [thread for thread in able if self.level(thread) == highest]
        thread = min(able, key=lambda thread: (thread - self.last_issued - 1) % len(THREADS))
        self.last_issued = thread
        try:
            if self.operations[thread] is not None:
                self.step(thread, t)
            else:
                self.execute(t)
        except Fault as fault:
            self.fault = {"x": self.x, "y": self.y, "cycle": t, **fault.record}
            self.main = "fault"
            self.book(t, 0)
        return True

    def waits_for(self, thread, t):
        """Return why a thread cannot issue in cycle t: free, pipe, resource, input, fifo, output; None if it can."""
        operation = self.operations[thread]
        if operation is not None:
            return self.operation_waits_for(operation, t)
        if thread != MAIN or self.main == "idle":
            return "free"
        return self.instruction_waits_for(t)

    def book(self, t, cost, conflict=0):
        """Book cycles t .. t + cost - 1 for an issue; the last `conflict` of them are lost to a bank conflict."""
        self.pipe_free = t + cost
        self.busy_until = t + cost - conflict

    # --- main thread, between instructions -------------------------------------------------------------------------

    def instruction_waits_for(self, t):
        """Return why the main thread's next instruction cannot issue in cycle t, None if it can."""
        if t < self.main_next:
            return "pipe"
        ins = self.code.get(self.pc)
        if ins is None:
            return None  # it can, and faults
        if any(t < self.reg_ready[r] for r in self.source_registers(ins)):
            return "pipe"
        for thread in range(MAIN):
            operation = self.operations[thread]
            if operation is not None and operation.dsr_names & set(ins.dsrs()):
                return "resource"
        if ins.is_async():
            microthread = self.microthread(ins)
            if microthread is not None and self.operations[microthread] is not None:
                return "resource"
        return None

    def source_registers(self, ins):
        """Return the ids of the registers that an instruction reads at its issue."""
        form, types = ins.op.form, ins.op.types
        fields = []  # (field, words)
        if form in ("alu", "dfilt"):
            for place, field, letter in ins.operands():
                replaced = place == "c" and ins.imm is not None and not ins.is_vector()
                if place != "a" and not replaced:
                    fields.append((field, isa.WORDS[letter]))
        elif form == "ld":
            fields = [(ins.b, 1)]
        elif form == "st":
            fields = [(ins.a, isa.WORDS[types[0]]), (ins.b, 1)]
        elif form == "br":
            fields = [(ins.a, isa.WORDS[types[0]]), (ins.b, isa.WORDS[types[1]])]
        elif form == "flt" or (form == "dsr" and ins.imm is None):
            fields = [(ins.b, 1)]
        found = []
        for field, words in fields:
            if field >> 4 == isa.FILE_REG:  # a field of 0 is an absent operand
                found += [(field & 15) + k for k in range(words)]
        return found

    def microthread(self, ins):
        """Return the microthread of an asynchronous operation, None if it has none."""
        named = isa.async_fields(ins.imm)["ut"]
        if named is not None:
            return named if named < self.machine["ut.count"] else None
        for kind in (DSD_FABOUT, DSD_FABIN):
            for name in ins.dsrs():  # in the order a, b, c
                dsr = self.dsrs.get(name)
                if dsr is not None and dsr.kind == kind:
                    return dsr.queue if dsr.queue < self.machine["ut.count"] else None
        return None

    # --- registers and memory --------------------------------------------------------------------------------------

    def read_register(self, field, words):
        """Return the value of a register (1 word) or of a pair (2)."""
        number = field & 15
        if words == 1:
            return self.regs[number]
        return self.regs[number] | self.regs[number + 1] << 16

    def write_register(self, field, words, value, ready=None):
        """Set a register or a pair; `ready` is the first cycle in which an instruction can use it."""
        for k in range(words):
            self.regs[(field & 15) + k] = value >> 16 * k & LOW16
            if ready is not None:
                self.reg_ready[(field & 15) + k] = ready

    def check_address(self, address, words):
        """Raise a `Fault` unless `words` words at `address` are data and aligned."""
        if not (self.image.code_words <= address and address + words <= self.image.footprint):
            raise Fault("sram_range", "", address=address)
        if words == 2 and address % 2:
            raise Fault("sram_align", "", address=address)

    def load(self, address, words):
        """Return the value of 16 or 32 bits at a word address."""
        self.check_address(address, words)
        if words == 1:
            return self.memory[address]
        return self.memory[address] | self.memory[address + 1] << 16

    def store(self, address, words, value):
        """Set the value of 16 or 32 bits at a word address."""
        self.check_address(address, words)
        for k in range(words):
            self.memory[address + k] = value >> 16 * k & LOW16

    # --- tasks -----------------------------------------------------------------------------------------------------

    def activate(self, task):
        """Set the activated bit of a task that has an entry."""
        if task >= N_TASK_IDS or self.image.entry[task] < 0:
            raise Fault("program", f"activate of id {task}, which has no entry")
        self.set_activated(task)

    def set_activated(self, task):
        """Set the activated bit of a task."""
        self.activated |= 1 << task
        self.emit(self.x, self.y, self.now, "activate", None, task)

    def unblock(self, task):
        """Clear the blocked bit of a task."""
        self.blocked &= ~(1 << task)

    # --- scalar instructions ---------------------------------------------------------------------------------------

    def execute(self, t):
        """Issue the main thread's next instruction in cycle t."""
        ins = self.code.get(self.pc)
        if ins is None:
            raise Fault("program", f"no instruction at code word {self.pc}")
        if ins.is_vector():
            self.start_vector(ins, t)
            self.counters["instructions"] += 1
            return
        cost = ins.op.cost
        slots = {"divide": "ce.divide", "dsr_edit": "ce.dsr_edit", "tsc": "ce.tsc_read", "config": "ce.config"}.get(
            cost
        )
        slots = 1 if slots is None else self.machine[slots]
        latency = {
            "int": self.machine["ce.int_latency"],
            "fp": self.machine["ce.fp_latency"],
            "load": self.machine["ce.load_latency"],
        }.get(cost, slots)
        self.result_ready = t + max(slots, latency)
        self.go_to, self.next_in = ins.next, slots
        getattr(self, "do_" + ins.op.form)(ins, t)
        self.counters["instructions"] += 1
        self.book(t, slots)
        self.main_next = t + self.next_in
        self.pc = self.go_to

    def result(self, field, words, value):
        """Write the result of a scalar instruction."""
        self.write_register(field, words, value, self.result_ready)

    def do_none(self, ins, t):
        """nop, ret, done"""
        if ins.op.name == "ret":
            if not self.return_to:
                raise Fault("program", "ret without call")
            self.go_to, self.next_in = self.return_to.pop(), self.machine["ce.ret"]
        elif ins.op.name == "done":
            self.main, self.go_to, self.return_to = "idle", -1, []
            self.emit(self.x, self.y, t, "task_end", None, self.last_picked)

    def do_alu(self, ins, t):
        """Arithmetic on registers."""
        values = {"b": 0, "c": 0, "d": 0}
        for place, field, letter in ins.operands():
            if place == "a":
                continue
            if place == "c" and ins.imm is not None:
                values[place] = ins.imm & (LOW16 if isa.WORDS[letter] == 1 else LOW32)
            else:
                values[place] = self.read_register(field, isa.WORDS[letter])
        self.result(ins.a, isa.WORDS[ins.op.types[0]], ALU[ins.op.name](self.num, **values))
        if ins.op.is_mac:
            self.counters["macs"] += 1

    def do_dfilt(self, ins, t):
        """Only the vector form exists."""
        raise Fault("program", "dfilt of a register")

    def do_ldi(self, ins, t):
        """Immediate to register."""
        words = isa.WORDS[ins.op.types[0]]
        self.result(ins.a, words, ins.imm & (LOW16 if words == 1 else LOW32))

    def effective_address(self, ins):
        """Return immediate + register b, modulo 2^16; b is absent if its field is 0."""
        register = self.read_register(ins.b, 1) if ins.b >> 4 == isa.FILE_REG else 0
        return register + ins.imm & LOW16

    def do_ld(self, ins, t):
        """Memory to register."""
        words = isa.WORDS[ins.op.types[0]]
        self.result(ins.a, words, self.load(self.effective_address(ins), words))

    def do_st(self, ins, t):
        """Register to memory."""
        words = isa.WORDS[ins.op.types[0]]
        self.store(self.effective_address(ins), words, self.read_register(ins.a, words))

    def do_br(self, ins, t):
        """Conditional branch."""
        words = isa.WORDS[ins.op.types[0]]
        a = self.read_register(ins.a, words)
        b = self.read_register(ins.b, words) if ins.b >> 4 == isa.FILE_REG else 0
        condition = isa.CONDITIONS[ins.d] if ins.d < len(isa.CONDITIONS) else None
        if condition not in CONDITION[ins.op.name]:
            raise Fault("program", f"{ins.op.name} with condition {ins.d}")
        self.next_in = self.machine["ce.branch_not_taken"]
        if CONDITION[ins.op.name][condition](self.num, a, b):
            self.go_to, self.next_in = ins.imm, self.machine["ce.branch_taken"]

    def do_jmp(self, ins, t):
        """jmp, call, trap"""
        if ins.op.name == "trap":
            raise Fault("program", f"trap {ins.imm}", value=ins.imm)
        if ins.op.name == "call":
            if len(self.return_to) >= isa.RETURN_DEPTH:
                raise Fault("program", f"call deeper than {isa.RETURN_DEPTH}")
            self.return_to.append(ins.next)
        self.go_to = ins.imm
        self.next_in = self.machine["ce.call" if ins.op.name == "call" else "ce.branch_taken"]

    def do_task(self, ins, t):
        """activate, block, unblock, prng"""
        if ins.op.name == "activate":
            self.activate(ins.a)
        elif ins.op.name == "block":
            self.blocked |= 1 << ins.a
        elif ins.op.name == "unblock":
            self.unblock(ins.a)
        else:
            self.active_prng = ins.a

    def do_dsr(self, ins, t):
        """Load a DSR, or change one of its fields."""
        name = divmod(ins.a, 16)
        if ins.op.name == "dsr_load":
            self.dsrs[name] = dsr = Dsr(self.image.descriptors[ins.imm])
            further = dsr.ndim - 1 if dsr.kind == DSD_MEM4D else 0
            self.next_in = self.machine["ce.dsr_load"] + further * self.machine["ce.dsr_dimension"]
            return
        dsr = self.dsrs.get(name)
        if dsr is None or dsr.kind == DSD_NONE:
            raise Fault("program", f"{ins.op.name} of an empty DSR")
        value = (self.read_register(ins.b, 1) if ins.imm is None else ins.imm) & LOW16
        signed = value - 0x10000 if value & 0x8000 else value
        if ins.op.name == "dsr_base":
            dsr.base = value
        elif ins.op.name == "dsr_off":
            dsr.base = dsr.base + signed & LOW16
        elif ins.op.name == "dsr_len":
            dsr.extent[0] = value
        else:
            dsr.stride[0] = signed

    def do_tsc(self, ins, t):
        """Cycle counter to three registers."""
        stamp = t % (1 << self.machine["tsc.bits"])
        for k in range(3):
            self.result(ins.a + k, 1, stamp >> 16 * k & LOW16)

    def do_rand(self, ins, t):
        """Draw 16 bits from the active generator."""
        s = self.prng[self.active_prng]
        for _ in range(self.machine["prng.steps"]):
            bit = (s >> 22 ^ s >> 17) & 1
            s = (s << 1 | bit) & LOW32
        self.prng[self.active_prng] = s
        self.result(ins.a, 1, s & LOW16)

    def do_route(self, ins, t):
        """sw_pos, route, td_exit; routers see it from cycle t + 1 on"""
        if ins.op.name == "sw_pos":
            self.router.set_position(ins.a, ins.imm, t)
        elif ins.op.name == "route":
            self.router.set_route(ins.a, ins.imm >> 10 & 3, ins.imm & 31, ins.imm >> 5 & 31, t)
        else:
            self.router.exit_teardown(ins.a, t)

    def do_in_td(self, ins, t):
        """Ask whether a color is in teardown."""
        self.result(ins.a, 1, int(self.router.in_teardown(ins.imm)))

    def do_flt(self, ins, t):
        """Set a field of a filter."""
        self.router.set_filter(ins.a, ins.imm, self.read_register(ins.b, 1))

    # --- vector operations: issue ----------------------------------------------------------------------------------

    def start_vector(self, ins, t):
        """Issue a vector operation in cycle t."""
        operation = self.make_operation(ins)
        thread = MAIN
        if ins.is_async():
            thread = self.microthread(ins)
            if thread is None:
                raise Fault("program", f"{ins.op.name}: asynchronous, but no microthread follows from its operands")
        self.book(t, 1)
        self.emit(self.x, self.y, t, "op_start", None, thread, self.pc | ins.op.code << 16)
        self.pc = ins.next
        operation.first_step = t + 1 + self.machine["vec.start"]
        if operation.has_all_elements and not operation.advances:  # n = 0
            self.emit(self.x, self.y, t, "op_end", None, thread, 0)
            if thread == MAIN:
                self.main_next = t + 1 + self.machine["vec.start"] + self.machine["vec.drain"]
            else:
                self.main_next = t + 1
                self.finish_microthread(operation)
            return
        self.operations[thread] = operation
        if thread == MAIN:
            self.main = "vector"
        else:
            self.main_next = t + 1

    def make_operation(self, ins):
        """Return the `Operation` of an instruction, its scalars captured, or raise a `Fault`."""
        op = ins.op
        if op.lanes[self.lane_column] == 0:
            raise Fault("program", f"{op.name} has no vector form")
        dest, sources = None, {}
        for place, field, letter in ins.operands():
            operand = Operand(field, letter, self.dsr_of(op, place, field))
            if place == "a":
                dest = operand
            else:
                sources[place] = operand
        for operand in sources.values():
            is_destination = dest is not None and operand.field == dest.field
            if operand.dsr is None and not is_destination:
                operand.scalar = self.read_register(operand.field, operand.words)
        if ins.is_async():
            get = isa.async_fields(ins.imm)
            level = UT_PRIORITY[isa.PRIORITIES.index(get["priority"])]
            operation = Operation(op, dest, sources, level, get["activate"], get["unblock"])
        else:
            operation = Operation(op, dest, sources, self.image.main_priority)
        operation.dsr_names = set(ins.dsrs())
        if op.form == "dfilt" and (sources["b"].kind != DSD_FABIN or not ins.is_async()):
            raise Fault("program", "dfilt needs a fabin and is asynchronous only")
        for operand in operation.of_kind(*FABRIC_KINDS):
            self.queue_of(operand)
        inputs = [operand.dsr.queue for operand in operation.of_kind(DSD_FABIN)]
        if len(set(inputs)) < len(inputs):
            raise Fault("program", f"{op.name}: both sources take from input queue {inputs[0]}")
        fifos = [operand.dsr.fifo for operand in operation.of_kind(DSD_FIFO) if operand is not dest]
        if len(set(fifos)) < len(fifos):
            raise Fault("program", f"{op.name}: both sources take from FIFO {fifos[0]}")
        inputs = [operand.dsr.queue for operand in sources.values() if operand.kind == DSD_FABIN]
        if len(set(inputs)) < len(inputs):
            raise Fault("program", f"{op.name}: two fabric inputs from the same queue")
        if len({operand.is_packed for operand in operation.of_kind(*FABRIC_KINDS)}) > 1:
            raise Fault("program", f"{op.name}: packed and unpacked fabric operands")
        for operand in operation.of_kind(DSD_CIRCULAR, DSD_FIFO):
            if operand.dsr.length == 0:
                raise Fault("program", f"{op.name}: circular buffer or FIFO of length 0")
        for operand in operation.of_kind(DSD_MEM4D):
            if 0 in operand.dsr.extent[1 : operand.dsr.ndim]:
                raise Fault("program", f"{op.name}: four-dimensional descriptor with an inner extent of 0")
        measure = next(operand for operand in operation.operands() if operand.dsr is not None)
        operation.n = measure.dsr.elements()
        return operation

    def dsr_of(self, op, place, field):
        """Return the DSR of an operand field (None for a register), or raise a `Fault` if it does not fit its place."""
        file, number = divmod(field, 16)
        if file == isa.FILE_REG:
            return None
        dsr = self.dsrs.get((file, number))
        if dsr is None or dsr.kind == DSD_NONE:
            raise Fault("program", f"{op.name}: {isa.FILES[file]} DSR {number} is empty")
        if place == "d":
            raise Fault("program", f"{op.name}: the multiplier is a DSR")
        if dsr.kind == (DSD_FABIN if place == "a" else DSD_FABOUT):
            raise Fault("program", f"{op.name}: {isa.FILES[file]} DSR {number} is of the wrong kind for its place")
        return dsr

    def queue_of(self, operand):
        """Return the queue of a fabric operand, or raise a `Fault`."""
        queues = self.in_queues if operand.kind == DSD_FABIN else self.out_queues
        if operand.dsr.queue not in queues:
            direction = "input" if operand.kind == DSD_FABIN else "output"
            raise Fault("queue", f"{direction} queue {operand.dsr.queue} is not bound to a color")
        return queues[operand.dsr.queue]

    def fifo_of(self, operand):
        """Return the state of the FIFO of an operand."""
        return self.fifos.setdefault(operand.dsr.fifo, Fifo())

    # --- vector operations: steps ----------------------------------------------------------------------------------

    def operation_waits_for(self, operation, t):
        """Return why a vector operation cannot step in cycle t, None if it can."""
        if t < operation.first_step:
            return "pipe"
        fabins, fabouts = operation.of_kind(DSD_FABIN), operation.of_kind(DSD_FABOUT)
        if not operation.has_all_elements:
            if self.control_operand(operation, t) is not None or self.fifo_ends(operation):
                return None
            if any(self.queue_of(operand).head(t) is None for operand in fabins):
                return "input"
            if self.fifo_lacks(operation):
                return "fifo"
        if any(not self.queue_of(operand).has_room(t) for operand in fabouts):
            return "output"
        return None

    def control_operand(self, operation, t):
        """Return the first fabin (b, then c) with a ready control wavelet at its head, or None."""
        for operand in operation.of_kind(DSD_FABIN):
            wavelet = self.queue_of(operand).head(t)
            if wavelet is not None and wavelet.control:
                return operand
        return None

    def fifo_lacks(self, operation):
        """Return the FIFO operands that hold too few elements, or have too little room, for the next step."""
        if operation.op.form == "dfilt":
            return []
        group = self.group(operation)
        lacking = []
        for operand in operation.of_kind(DSD_FIFO):
            count = self.fifo_of(operand).count
            enough = count + group <= operand.dsr.length if operand is operation.dest else count >= group
            if not enough:
                lacking.append(operand)
        return lacking

    def fifo_ends(self, operation):
        """Whether a FIFO that is full or empty ends the operation instead of holding it."""
        return any(operand.has(F_TERMINATE) for operand in self.fifo_lacks(operation))

    def lanes(self, operation):
        """Return the SIMD width of an operation with its strides."""
        lanes = operation.op.lanes[self.lane_column]
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
                lanes = min(lanes, self.machine["vec.stride4_lanes"])
        return lanes

    def group(self, operation):
        """Return the number of elements of the next step."""
        dest = operation.dest
        left = None if operation.n is None else operation.n - operation.k
        if operation.of_kind(*FABRIC_KINDS, DSD_FIFO):
            group = 2 if any(operand.is_packed for operand in operation.operands()) else 1
        else:
            more_than_one = operation.n is None or operation.n > 1
            to_one_place = dest.kind == DSD_NONE or (dest.kind == DSD_MEM1D and dest.dsr.stride[0] == 0)
            group = 1 if to_one_place and more_than_one else self.lanes(operation)
            for operand in operation.of_kind(DSD_MEM4D):
                row = operand.dsr.extent[operand.dsr.ndim - 1]
                group = min(group, row - operation.k % row)
        return group if left is None else min(group, left)

    def conflict(self, operation):
        """Return the cycles that the next step loses in memory.

        Two sources in one bank are read one after the other; what counts are the first elements of the step, and all of
        them if both sources are 32 bits wide.  A destination whose elements all lie in one bank is
        written there while the next elements are read: a source in this bank waits for it.
        """
        sources = [
            operand
            for operand in (operation.sources.get(place) for place in "bc")
            if operand is not None and operand.kind in MEMORY_KINDS
        ]
        reads = [self.banks(operation, operand, 1) for operand in sources]
        group = self.group(operation) if all(operand.words == 2 for operand in sources) else 1
        lost = 0
        if len(sources) == 2 and (
            self.machine["mem.read_ports"] == 1
            or self.collide(*(self.banks(operation, operand, group) for operand in sources))
        ):
            lost = self.machine["mem.conflict_cycles"]
        dest, n = operation.dest, operation.n
        if (
            dest.kind == DSD_MEM1D
            and (n is None or n > 1)
            and dest.dsr.stride[0]
            and dest.dsr.stride[0] * dest.words % self.machine["mem.banks"] == 0
        ):
            written = self.banks(operation, dest, 1)
            lost += self.machine["mem.write_cycles"] * any(self.collide(written, banks) for banks in reads)
        return lost

    def banks(self, operation, operand, group):
        """Return the banks, as far as conflicts distinguish them, of the first `group` elements of the next step."""
        count = self.machine["mem.banks"]
        if self.machine["mem.conflict_rule"] == "mod4":
            count = max(1, count // 2)
        return {operand.dsr.address(operation.k + i, operand.words) % count for i in range(group)}

    def collide(self, first, second):
        """Whether accesses to two sets of banks cannot happen in one cycle."""
        return self.machine["mem.conflict_rule"] != "none" and not first.isdisjoint(second)

    def step(self, thread, t):
        """Let a vector operation take one step in cycle t."""
        operation = self.operations[thread]
        if operation.has_all_elements:
            self.send(operation.dest, ADVANCE_WAVELET, True, t, 1)
            cost, conflict, ended = 1, 0, True
        elif operation.op.form == "dfilt":
            cost, conflict, ended = 1, 0, self.discard(operation, t)
        elif self.control_operand(operation, t) is not None:
            cost, conflict, ended = 1, 0, self.take_control(self.control_operand(operation, t), t)
        elif self.fifo_ends(operation):
            cost, conflict, ended = 1, 0, True
        else:
            group, conflict = self.group(operation), self.conflict(operation)
            cost = -(-group // self.lanes(operation)) + conflict
            self.do_elements(operation, group, cost, t)
            operation.k += group
            self.counters["elements"] += group
            self.counters["macs"] += group if operation.op.is_mac else 0
            ended = operation.has_all_elements and not operation.advances
        self.counters["steps"] += 1
        operation.lost += conflict
        self.book(t, cost, conflict)
        if ended:
            self.complete(thread, t, cost)

    def discard(self, operation, t):
        """Take one wavelet of a dfilt; return whether that was its last one."""
        wavelet = self.receive(self.queue_of(operation.sources["b"]), t)
        if wavelet.control:
            operation.k += 1
            self.counters["elements"] += 1
        return operation.has_all_elements

    def take_control(self, operand, t):
        """Take a control wavelet and do what the descriptor says; return whether the operation ends."""
        self.receive(self.queue_of(operand), t)
        if operand.dsr.on_control & ON_ACTIVATE:
            self.activate(operand.dsr.control_task)
        if operand.dsr.on_control & ON_UNBLOCK:
            self.unblock(operand.dsr.control_task)
        return bool(operand.dsr.on_control & ON_TERMINATE)

    def do_elements(self, operation, group, cost, t):
        """Do the elements k .. k + group - 1, one after the other."""
        heads = {
            place: self.queue_of(operand).head(t)
            for place, operand in operation.sources.items()
            if operand.kind == DSD_FABIN
        }
        dest, outgoing = operation.dest, 0
        for j in range(group):
            values = {"b": 0, "c": 0, "d": 0}
            for place, operand in operation.sources.items():
                values[place] = self.element(operation, operand, heads.get(place), j)
            value = ALU[operation.op.name](self.num, **values)
            if dest.kind == DSD_FABOUT:
                outgoing |= value << 16 * j
                source = operation.sources["b"]
                if dest.has(F_ZERO) and source.kind in MEMORY_KINDS:
                    self.store(source.dsr.address(operation.k + j, source.words), source.words, 0)
            else:
                self.put(operation, heads, j, value)
        for place in heads:
            self.receive(self.queue_of(operation.sources[place]), t)
        if dest.kind == DSD_FABOUT:
            if dest.words == 1 and not dest.is_packed and dest.has(F_INDEX):
                outgoing |= dest.dsr.index << 16
            self.send(dest, outgoing, dest.has(F_CONTROL), t, cost)
        for operand in operation.of_kind(DSD_FIFO):
            self.move_fifo(operand, operand is dest, group)

    def element(self, operation, operand, wavelet, j):
        """Return element k + j of a source; `wavelet` is the one at the head of a fabin."""
        if operand.kind == DSD_NONE:
            return self.read_register(operand.field, operand.words) if operand.scalar is None else operand.scalar
        if operand.kind == DSD_FABIN:
            if operand.words == 2:
                return wavelet.payload
            return wavelet.index if operand.is_packed and j == 1 else wavelet.data
        if operand.kind == DSD_FIFO:
            place = (self.fifo_of(operand).head + j) % operand.dsr.length
            return self.load(operand.dsr.base + place * operand.words, operand.words)
        return self.load(operand.dsr.address(operation.k + j, operand.words), operand.words)

    def put(self, operation, heads, j, value):
        """Write element k + j to a destination in memory, a register or a FIFO."""
        dest = operation.dest
        if dest.kind == DSD_NONE:
            self.write_register(dest.field, dest.words, value)
        elif dest.kind == DSD_FIFO:
            fifo = self.fifo_of(dest)
            place = (fifo.head + fifo.count + j) % dest.dsr.length
            self.store(dest.dsr.base + place * dest.words, dest.words, value)
        else:
            address = dest.dsr.address(operation.k + j, dest.words)
            if dest.kind == DSD_MEM1D and dest.has(F_INDEX) and heads:
                address += heads["b" if "b" in heads else "c"].index
            self.store(address, dest.words, value)

    def move_fifo(self, operand, pushed, group):
        """Move head or tail of a FIFO by `group` elements and activate the task that its descriptor names."""
        fifo, dsr = self.fifo_of(operand), operand.dsr
        fifo.words, fifo.base, fifo.length = operand.words, dsr.base, dsr.length
        if pushed:
            fifo.count += group
        else:
            fifo.head = (fifo.head + group) % dsr.length
            fifo.count -= group
        task = dsr.push_task if pushed else dsr.pop_task
        if task != NO_TASK:
            self.activate(task)

    def send(self, operand, payload, control, t, cost):
        """Push a wavelet to the ramp in the step of cycle t that costs `cost`."""
        ready = t + (cost - 1) + self.machine["ramp.execute"] + self.machine["ramp.out"]
        queue = self.queue_of(operand)
        queue.push(payload, control, ready)
        self.counters["sent"] += 1
        self.emit(self.x, self.y, t, "inject", queue.color, operand.dsr.queue, payload, control)

    def receive(self, queue, t):
        """Take the wavelet at the head of an input queue and return it."""
        wavelet = queue.take(t)
        self.counters["received"] += 1
        number = next(number for number, one in self.in_queues.items() if one is queue)
        self.emit(self.x, self.y, t, "take", queue.color, number, wavelet.payload, wavelet.control)
        return wavelet

    def complete(self, thread, t, cost):
        """End the operation of a thread with its step of cycle t."""
        operation = self.operations[thread]
        self.operations[thread] = None
        self.emit(self.x, self.y, t, "op_end", None, thread, operation.k)
        if operation.lost:
            self.emit(self.x, self.y, t, "conflict", None, thread, operation.lost)
        saved = []
        for operand in operation.operands():
            if not operand.has(F_SAVE) or any(dsr is operand.dsr for dsr in saved):
                continue
            saved.append(operand.dsr)
            if operand.kind == DSD_MEM1D:
                moved = operation.k * operand.dsr.stride[0] * operand.words
                operand.dsr.base = operand.dsr.base + moved & LOW16
            elif operand.kind == DSD_CIRCULAR:
                operand.dsr.index = (operand.dsr.index + operation.k) % operand.dsr.length
        dest = operation.dest
        if dest is not None and dest.kind == DSD_NONE:
            latency = self.machine["ce.fp_latency" if operation.op.cost == "fp" else "ce.int_latency"]
            for k in range(dest.words):
                self.reg_ready[(dest.field & 15) + k] = t + max(cost, latency)
        if thread == MAIN:
            self.main, self.main_next = "run", t + cost + self.machine["vec.drain"]
        else:
            self.finish_microthread(operation)

    def finish_microthread(self, operation):
        """Let the end of an asynchronous operation take effect on tasks."""
        if operation.activate is not None:
            self.activate(operation.activate)
        if operation.unblock is not None:
            self.unblock(operation.unblock)

    # --- accounting ------------------------------------------------------------------------------------------------

    def account(self, t):
        """Book cycle t."""
        use, thread = self.use_of(t)
        self.counters[use] += 1
        if self.emit is no_trace:
            return
        waits = use.removeprefix("stall_"), *self.queue_waited_for(thread, t)
        if waits != self.waits:
            self.end_wait(t)
            self.waits, self.wait_since = waits, t

    def end_wait(self, t):
        """Report the wait that is over in cycle t, if there was one."""
        reason, queue, color = self.waits
        if reason in WAITS and t > self.wait_since:
            self.emit(self.x, self.y, t, "wait", color, WAITS.index(reason), t - self.wait_since, (queue or 0) << 1)
            self.wait_since = t

    def use_of(self, t):
        """Return the counter to which cycle t belongs, and the thread whose wait it is or None."""
        if t < self.busy_until:
            return "busy", None
        if t < self.pipe_free:
            return "stall_conflict", None
        if self.fault is not None:
            return "idle", None
        for thread in IN_ORDER_OF_BOOKING:
            reason = self.waits_for(thread, t)
            if reason != "free":
                return "stall_" + reason, thread
        return "idle", None

    def queue_waited_for(self, thread, t):
        """Return number and color of the first queue that keeps a thread's operation waiting, or (None, None)."""
        operation = None if thread is None else self.operations[thread]
        reason = None if operation is None else self.waits_for(thread, t)
        for operand in operation.operands() if reason in ("input", "output") else ():
            if operand.kind == DSD_FABIN:
                lacks = reason == "input" and self.queue_of(operand).head(t) is None
            else:
                lacks = reason == "output" and operand.kind == DSD_FABOUT
            if lacks:
                return operand.dsr.queue, self.queue_of(operand).color
        return None, None

    # --- views -----------------------------------------------------------------------------------------------------

    def future(self, t):
        """Whether something here is due after cycle t."""
        times = [self.pipe_free, *self.teardowns]
        if self.main != "idle":
            times += [self.main_next, *self.reg_ready]
        times += [operation.first_step for operation in self.operations.values() if operation is not None]
        times += [wavelet.ready for queue in self.in_queues.values() for wavelet in queue.wavelets]
        return any(time > t for time in times)

    def unfinished(self, t):
        """Whether something here is left to do although nothing moves any more."""
        if any(queue.wavelets for queue in self.in_queues.values()):
            return True
        if any(self.activated >> task & 1 and self.image.entry[task] >= 0 for task in range(N_TASK_IDS)):
            return True
        for thread in THREADS:
            operation = self.operations[thread]
            endless = operation is not None and operation.n is None
            reason = self.waits_for(thread, t)
            if reason != "free" and not (endless and reason == "input"):
                return True
        return False

    def snapshot(self):
        """Return the state as plain data (docs/internals.md)."""
        fifos = {}
        for number, fifo in sorted(self.fifos.items()):
            places = [(fifo.head + j) % fifo.length for j in range(fifo.count)]
            if places:
                fifos[number] = [self.load(fifo.base + place * fifo.words, fifo.words) for place in places]
        threads = {
            thread: (operation.k, ENDLESS if operation.n is None else operation.n)
            for thread, operation in self.operations.items()
            if operation is not None
        }
        return {
            "regs": list(self.regs),
            "main": self.main,
            "pc": self.pc,
            "threads": threads,
            "activated": self.activated,
            "blocked": self.blocked,
            "inq": {number: queue.contents() for number, queue in self.in_queues.items() if queue.wavelets},
            "fifo": fifos,
            "dsr": {
                name: (dsr.base, dsr.extent[0], dsr.stride[0], dsr.index) for name, dsr in sorted(self.dsrs.items())
            },
            "prng": (self.active_prng, list(self.prng)),
            "counters": dict(self.counters),
        }

    def waiters(self, t):
        """Return who waits here, as a list of dicts (docs/internals.md)."""
        found, here = [], {"x": self.x, "y": self.y}
        taken = set()
        for thread in IN_ORDER_OF_BOOKING:
            operation, reason = self.operations[thread], self.waits_for(thread, t)
            if operation is not None:
                taken |= {operand.dsr.queue for operand in operation.of_kind(DSD_FABIN)}
            if reason in ("free", "pipe", None):
                continue
            entry = {
                "kind": "thread",
                **here,
                "thread": "main" if thread == MAIN else f"ut{thread}",
                "op": None,
                "reason": reason,
                "color": None,
                "queue": None,
                "done": 0,
                "length": 0,
            }
            if operation is None:
                entry["op"] = self.code[self.pc].op.name
            else:
                queue, color = self.queue_waited_for(thread, t)
                entry |= {
                    "op": operation.op.name,
                    "done": operation.k,
                    "length": operation.n,
                    "queue": queue,
                    "color": color,
                }
            found.append(entry)
        for number, queue in self.in_queues.items():
            if queue.wavelets and number not in taken:
                found.append(
                    {"kind": "queue", **here, "queue": number, "color": queue.color, "wavelets": len(queue.wavelets)}
                )
        for task in range(N_TASK_IDS):
            if self.activated >> task & 1 and self.image.entry[task] >= 0:
                found.append({"kind": "task", **here, "task": task})
        return found
