"""The compute element of one PE is advanced here one cycle at a time.

What      the state of a CE, task picker, issue arbitration, accounting.  Instructions of the main thread are in
          `scalar`, vector operations in `vecop`, accesses to their operands in `operand`, views in `inspect`; the
          modules of the compiled machine are cut the same way and use the same names.
Ports     `in_queues` (the router pushes), `out_queues` (the ramp queues of the router; the CE pushes), `teardowns`
          (cycles in which the teardown task becomes activated), `router` (configuration instructions).
Contract  `CE.phase` is called once per cycle after the phase of all routers; it reads and writes the own PE only.
          What the hardware forbids raises `ReferenceFault` inside and ends up in `CE.fault`. A step that faults leaves
          what its elements have stored in memory and registers so far, and nothing else.
Timing    docs/machine.md, "CE"; costs come from wse_core/numbers.py.
Known     picker and issue order, pipeline latencies and FIFO details are assumptions of that page.
differences
Sources   docs/machine.md; arch §3 to §6.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from wse_core import isa
from wse_core.encoding import COUNTERS, MAIN, N_QUEUES, WAITS
from wse_core.image import DSD_FABIN, DSD_FABOUT, N_TASK_IDS, TASK_TEARDOWN, ProgramImage
from wse_core.params import Machine
from wse_core.reference.mapped import MappedRegisters
from wse_core.reference.numerics import FMT_CB16, FMT_F16, Num
from wse_core.reference.operand import LOW16, DsrState, FifoState, ReferenceFault, queue_of
from wse_core.reference.queue import Emit, Wavelet, WaveletQueue, no_trace
from wse_core.reference.router import Router
from wse_core.reference.scalar import decoded, exec_main, main_waits_for
from wse_core.reference.vecop import VectorOperation, vec_step, vec_waits_for

__all__ = ["CE"]

THREADS = range(9)
IN_ORDER_OF_BOOKING = (MAIN, *range(8))


class CE:
    """A `CE` is the compute element of PE (x, y) with a program.

    Parameters
    ----------
    x, y : int
    machine : Machine
    image : ProgramImage
    router : Router
        Of the same PE.
    """

    def __init__(self, x: int, y: int, machine: Machine, image: ProgramImage, router: Router) -> None:
        self.x, self.y, self.machine, self.image, self.router = x, y, machine, image, router
        self.num = Num(
            FMT_CB16 if image.half == "cb16" else FMT_F16,
            machine["num.cb16_bias"],
            machine["num.ftz"],
            machine["num.fmac"] == "separate",
        )
        words = image.code.tolist()
        self.code = decoded(tuple(words))

        self.memory = [0] * image.footprint
        for word_index, word in enumerate(words):
            self.memory[2 * word_index] = word & LOW16
            self.memory[2 * word_index + 1] = word >> 16
        for address, words in image.data:
            for offset, word in enumerate(words):
                self.memory[address + offset] = int(word)

        self.regs = [0] * isa.N_REGS
        self.reg_ready = [0] * isa.N_REGS
        self.activated, self.blocked = int(image.active), int(image.blocked)
        self.held = 0  # set of blocked microthreads
        self.cut = 0  # elements that a FIFO left of the main thread's last operation with one
        self.lost = 0  # set of tasks that were activated again before they had begun
        self.last_picked = N_TASK_IDS - 1
        self.running, self.running_control = N_TASK_IDS - 1, False  # the task that was started last
        self.main = "idle"  # idle, starting, run, vector, fault
        self.pc = -1
        self.main_next = 0
        self.wrote: tuple[int | None, int] = None, 0  # last word of the last vector operation; when it can be read
        self.return_to: list[int] = []
        # Of the scalar instruction that is being executed: where its result is ready, what comes next and when.
        self.result_ready, self.go_to, self.next_in = 0, -1, 1
        self.operations: dict[int, VectorOperation | None] = dict.fromkeys(THREADS)
        self.last_issued = MAIN
        self.pipe_free = 0
        self.busy_until = 0  # an issue books the cycles before this one as busy, those before pipe_free as conflict
        self.dsrs: dict[tuple[int, int], DsrState] = {}  # by file and id
        self.fifos: dict[int, FifoState] = {}
        self.active_prng = 0
        self.prng = [machine["prng.seed"]] * 4
        self.registers = MappedRegisters(self) if image.registers and not machine["task.by_queue"] else None
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.words_read = self.words_written = 0  # of SRAM, by instructions and elements
        self.work: Counter[tuple[int, int]] = Counter()  # instructions and elements by op code and column
        self.teardowns: list[int] = []
        self.fault: dict[str, Any] | None = None
        self.emit: Emit = no_trace  # see wse_core/events.py
        self.now = 0
        self.waits: tuple[str | None, int | None, int | None] = None, None, None
        self.wait_since = 0

        self.in_queues: dict[int, WaveletQueue] = {}
        self.out_queues: dict[int, WaveletQueue] = {}
        for number, color in enumerate(image.inq_color):
            if color >= 0:
                depth = machine["queue.in_depth"][number % N_QUEUES] + machine["ramp.in_buffer"]
                self.in_queues[number] = WaveletQueue(depth, color)
        for number, color in enumerate(image.outq_color):
            if color >= 0:
                same = next((queue for queue in self.out_queues.values() if queue.color == color), None)
                depth = machine["queue.out_depth"][number % N_QUEUES] + machine["router.depth"]
                self.out_queues[number] = same or WaveletQueue(depth, color)

    # --- the phase ----------------------------------------------------------------------------------------------------

    def phase(self, t: int) -> bool:
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

    # --- picker -------------------------------------------------------------------------------------------------------

    def pick(self, t: int) -> bool:
        """Start a task if the main thread is idle and one can start; return whether something was picked."""
        if self.main != "idle":
            return False
        if not self.activated & ~self.blocked and not any(queue.wavelets for queue in self.in_queues.values()):
            return False  # as in most cycles
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
            self.start_task(int(self.image.entry[task]), t, task)
            return True
        queue = self.queue_of_task(task)
        assert queue is not None  # can_start saw a wavelet in it
        wavelet = self.inq_take(queue, t)
        if wavelet.control:
            task = wavelet.payload >> 16 & 63
            entry = int(self.image.control_entry[task])
        else:
            entry = int(self.image.entry[task])
        if entry >= 0:
            self.regs[0], self.regs[1] = wavelet.data, wavelet.index
            self.reg_ready[0] = self.reg_ready[1] = t
            self.start_task(entry, t, task, wavelet.control)
        return True

    def queue_of_color(self, color: int) -> WaveletQueue | None:
        """Return the input queue bound to a color, or None."""
        for queue in self.in_queues.values():
            if queue.color == color:
                return queue
        return None

    def queue_of_task(self, task: int) -> WaveletQueue | None:
        """Return the input queue whose wavelets start a task: its id is their color, or the queue's number."""
        if self.machine["task.by_queue"]:
            bound = [queue for number, queue in self.in_queues.items() if number % N_QUEUES == task]
            return bound[-1] if bound else None
        return self.queue_of_color(task)

    def queues_that_are(self, which: int, t: int) -> int:
        """Return the set of queues, by number, that are empty (0 inputs, 2 outputs) or full (1, 3) in cycle t.

        A queue of two colors is empty if both of its rings are, full if one of them is.
        """
        yes = no = 0
        for number, queue in (self.in_queues if which < 2 else self.out_queues).items():
            full, empty = not queue.has_room(t), queue.head(t) is None if which == 0 else queue.is_empty(t)
            if full if which % 2 else empty:
                yes |= 1 << number % N_QUEUES
            else:
                no |= 1 << number % N_QUEUES
        return yes if which % 2 else yes & ~no

    def can_start(self, task: int, t: int) -> bool:
        """Whether the picker may choose task id `task` in cycle t."""
        if self.blocked >> task & 1:
            return False
        has_entry = self.image.entry[task] >= 0
        if self.activated >> task & 1 and has_entry:
            return True
        queue = self.queue_of_task(task)
        wavelet = None if queue is None else queue.head(t)
        if wavelet is None:
            return False
        return wavelet.control or bool(self.image.data_tasks >> task & 1 and has_entry)

    def start_task(self, entry: int, t: int, task: int, control: bool = False) -> None:
        """Start the task that was picked, at code word index `entry`; control tasks have ids of their own."""
        self.emit(self.x, self.y, t, "task_start", None, task, entry, int(control))
        self.running, self.running_control = task, control
        self.main, self.pc, self.return_to = "starting", entry, []
        hidden = self.machine["task.overlap"] if self.main_next == t else 0  # the task before has just ended
        self.main_next = t + max(0, self.machine["task.start"] - hidden)
        self.counters["tasks"] += 1
        if t >= self.main_next:
            self.main = "run"

    # --- arbitration --------------------------------------------------------------------------------------------------

    def level_of(self, thread: int) -> int:
        """Return the issue priority of a thread."""
        if thread == MAIN:
            return self.image.main_priority
        operation = self.operations[thread]
        assert operation is not None
        return operation.level

    def issue(self, t: int) -> bool:
        """Let one able thread issue; return whether one did."""
        if t < self.pipe_free:
            return False
        able = []
        for thread, operation in self.operations.items():
            if operation is None and (thread != MAIN or self.main == "idle"):
                continue
            if self.waits_for(thread, t) is None:
                able.append(thread)
        if not able:
            return False
        if len(able) > 1:
            highest = max(self.level_of(thread) for thread in able)
            able = [thread for thread in able if self.level_of(thread) == highest]
        thread = min(able, key=lambda thread: (thread - self.last_issued - 1) % len(THREADS))
        self.last_issued = thread
        try:
            if self.operations[thread] is not None:
                vec_step(self, thread, t)
            else:
                exec_main(self, t)
        except ReferenceFault as fault:
            self.fault = {"x": self.x, "y": self.y, "cycle": t, **fault.record}
            self.main = "fault"
            self.book(t, 0)
        return True

    def waits_for(self, thread: int, t: int) -> str | None:
        """Return why a thread cannot issue in cycle t: free, pipe, resource, input, fifo, output; None if it can."""
        operation = self.operations[thread]
        if operation is not None and thread != MAIN and self.held >> thread & 1:
            return "resource"
        if operation is not None:
            return vec_waits_for(self, operation, t)
        if thread != MAIN or self.main == "idle":
            return "free"
        return main_waits_for(self, t)

    def book(self, t: int, cost: int, conflict: int = 0) -> None:
        """Book cycles t .. t + cost - 1 for an issue; the last `conflict` of them are lost to a bank conflict."""
        self.pipe_free = t + cost
        self.busy_until = t + cost - conflict

    # --- tasks and input queues ---------------------------------------------------------------------------------------

    def activate(self, task: int) -> None:
        """Set the activated bit of a task that has an entry."""
        if task >= N_TASK_IDS or self.image.entry[task] < 0:
            raise ReferenceFault("program", f"activate of id {task}, which has no entry")
        self.set_activated(task)

    def set_activated(self, task: int) -> None:
        """Set the activated bit of a task; one that is set already stays one activation."""
        self.lost |= self.activated & 1 << task
        self.activated |= 1 << task
        self.emit(self.x, self.y, self.now, "activate", None, task)

    def unblock(self, task: int) -> None:
        """Clear the blocked bit of a task."""
        self.blocked &= ~(1 << task)

    def inq_take(self, queue: WaveletQueue, t: int) -> Wavelet:
        """Take the wavelet at the head of an input queue and return it."""
        wavelet = queue.take(t)
        self.counters["received"] += 1
        number = next(number for number, one in self.in_queues.items() if one is queue)
        self.emit(self.x, self.y, t, "take", queue.color, number % N_QUEUES, wavelet.payload, wavelet.control)
        return wavelet

    # --- accounting ---------------------------------------------------------------------------------------------------

    def account(self, t: int) -> None:
        """Book cycle t in the counters: busy, idle, or what it waited for."""
        use, thread = self.use_of(t)
        self.counters[use] += 1
        if self.emit is no_trace:
            return
        waits = use.removeprefix("stall_"), *self.queue_waited_for(thread, t)
        if waits != self.waits:
            self.end_wait(t)
            self.waits, self.wait_since = waits, t

    def end_wait(self, t: int) -> None:
        """Report the wait that is over in cycle t, if there was one."""
        reason, queue, color = self.waits
        if reason in WAITS and t > self.wait_since:
            self.emit(
                self.x, self.y, t, "wait", color, WAITS.index(reason), t - self.wait_since, (queue or 0) % N_QUEUES << 1
            )
            self.wait_since = t

    def use_of(self, t: int) -> tuple[str, int | None]:
        """Return the counter to which cycle t belongs, and the thread whose wait it is or None."""
        if t < self.busy_until:
            return "busy", None
        if t < self.pipe_free:
            return "stall_conflict", None
        if self.fault is not None:
            return "idle", None
        for thread in IN_ORDER_OF_BOOKING:
            if self.operations[thread] is None and (thread != MAIN or self.main == "idle"):
                continue
            reason = self.waits_for(thread, t)
            if reason != "free":
                return f"stall_{reason}", thread
        return "idle", None

    def queue_waited_for(self, thread: int | None, t: int) -> tuple[int | None, int | None]:
        """Return number and color of the first queue that keeps a thread's operation waiting, or (None, None)."""
        operation = None if thread is None else self.operations[thread]
        if thread is None or operation is None:
            return None, None
        reason = self.waits_for(thread, t)
        for operand in operation.operands() if reason in ("input", "output") else ():
            if operand.kind == DSD_FABIN:
                lacks = reason == "input" and queue_of(self, operand).head(t) is None
            else:
                lacks = reason == "output" and operand.kind == DSD_FABOUT
            if lacks:
                return operand.dsr.queue, queue_of(self, operand).color
        return None, None

    # --- what is left -------------------------------------------------------------------------------------------------

    def future(self, t: int) -> bool:
        """Whether something here is due after cycle t."""
        times = [self.pipe_free, *self.teardowns]
        if self.main != "idle":
            times += [self.main_next, *self.reg_ready]
        times += [operation.first_step for operation in self.operations.values() if operation is not None]
        times += [wavelet.ready for queue in self.in_queues.values() for wavelet in queue.wavelets]
        return any(time > t for time in times)

    def unfinished(self, t: int) -> bool:
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
