"""A walk goes through the code of a PE: instructions issue one after the other, each when the machine lets it.

`Walker` keeps what `fabric.price.state` knows and the cycles of the pipeline: threads, issue slots, latencies, steps of
vector operations that share the pipeline with the main thread.  No data are computed but whole numbers that say where
the program goes on; what comes from or goes to the fabric never has to be waited for.

*Fabric.*  A synchronous operation with an operand on the fabric takes its steps one after the other and is noted as a
`Meeting`.  Of an asynchronous one the issue counts; its steps come when its wavelets do, so they are added up in
`beside` and take no slot here, and whatever waits for it finds it done.

*Known differences.*  Where operands move over the rows of an array, the row is chosen by the caller (`row`).

Timing: docs/machine.md, "CE".
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from fabric.asm.disasm import format_instruction
from fabric.price import costs
from fabric.price.code import Choice, Code, Coded, Meeting, NotKnown, fetches
from fabric.price.content import FABRIC, MEMORY, Content, Walked
from fabric.price.state import KnownArithmetic, State, is_register, joined_states
from fabric.price.steps import Steps, offset_of, steps_of
from wse_core import isa
from wse_core.encoding import MAIN, N_QUEUES, N_TASK_IDS
from wse_core.image import (
    DSD_FABIN,
    DSD_FABOUT,
    DSD_FIFO,
    DSD_MEM1D,
    DSD_MEM4D,
    ENDLESS,
    F_SAVE,
    F_TERMINATE,
    F_ZERO,
    NO_TASK,
    UT_PRIORITY,
    ProgramImage,
)
from wse_core.params import Machine

__all__ = ["Walker"]

NEVER = float("inf")
MOST = 1_000_000
"""At most so many instructions and steps are followed one by one."""


class _Plan(NamedTuple):
    """A `_Plan` is what a vector operation does with operands of some shapes at some banks; operands go by number."""

    n: int
    steps: Steps
    takes: tuple[int, ...]  # input queues, and output queues
    sends: tuple[int, ...]
    meets: bool
    moved: bool
    fifos: tuple[tuple[int, bool], ...]  # and whether the operation pushes
    firsts: tuple[tuple[int, int], ...]  # sources in memory, and how far from the base they begin
    writes: tuple[tuple[int, int], ...]  # what is overwritten, and the words of an element
    saves: tuple[tuple[int, int], ...]  # what keeps an advanced base, and the words of an element
    last: int | None  # how far from its base the last element of the destination lies, which is the last operand
    fills: bool  # whether registers go to memory


@dataclass(slots=True)
class _Flight:
    """A `_Flight` is a vector operation in flight."""

    ins: Coded
    plan: _Plan
    operands: list[Content]
    first: float
    level: int
    step: int = 0
    done: int = 0
    taken: int = 0  # cycles of the last step

    def fifos(self) -> list[tuple[Walked, bool]]:
        """Return the operands that are FIFOs, and whether the operation pushes."""
        return [(self.operands[k].shape, pushes) for k, pushes in self.plan.fifos]

    def group(self) -> int:
        """Return the elements of the next step."""
        return self.plan.steps.groups[self.step]


@dataclass
class Walker:
    """A `Walker` is one PE at work.

    Parameters
    ----------
    image : ProgramImage
    machine : Machine
    code : Code
    arithmetic : KnownArithmetic
    state : State
        Changed by the walk.
    row : int
        Of operands whose base moves.
    array : int, optional
        Address from which those move that a register points anywhere.
    fabric : bool
        Whether wavelets come and go as if nothing had to be waited for; else an operation that meets the fabric is what
        is not known.
    """

    image: ProgramImage
    machine: Machine
    code: Code
    arithmetic: KnownArithmetic
    state: State
    row: int = 0
    array: int | None = None
    fabric: bool = True
    choice: bool | None = None
    pc: int = -1
    main: str = "idle"
    main_next: float = 0
    pipe_free: float = 0
    last_issued: int = MAIN
    now: float = 0
    ready: list[float] = field(default_factory=lambda: [0.0] * isa.N_REGS)
    returns: list[int] = field(default_factory=list)
    flights: dict[int, _Flight] = field(default_factory=dict)
    meetings: list[Meeting] = field(default_factory=list)
    beside: float = 0
    endless: set[int] = field(default_factory=set)
    activated: list[tuple[str, int]] = field(default_factory=list)
    lines: dict[int, float] = field(default_factory=dict)
    since: tuple[int, float] = (-1, 0)
    moved: bool = False
    turns: int = 0
    deciding: set[int] = field(default_factory=set)
    counting: set[int] = field(default_factory=set)
    followed: int = 0
    wrote: tuple[int | None, float] = None, 0
    """The last synchronous operation wrote last here, if that matters to the next one, and it can be read at this
    time.
    """

    def copy(self) -> Walker:
        """Return a walker at the same place, to go on by itself."""
        other = copy.copy(self)
        other.state = self.state.copy()
        for name in ("ready", "returns", "meetings", "activated", "lines", "endless", "deciding", "counting"):
            setattr(other, name, getattr(self, name).copy())
        other.flights = {thread: copy.copy(one) for thread, one in self.flights.items()}
        return other

    def situation(self) -> tuple[object, ...]:
        """Return on what the way from here on depends: walkers in one situation differ in times, in what
        they count for others than branches, and in addresses."""
        clocks = tuple(max(0, at - self.now) for at in (self.main_next, self.pipe_free, *self.ready))
        counters = tuple((r, self.state.registers[r]) for r in sorted(self.deciding))
        counters += tuple((at, self.state.memory.get(at)) for at in sorted(self.counting))
        word, readable = self.wrote
        late = (word, readable - self.now) if readable > self.now else None
        return self.pc, clocks, tuple(self.returns), counters, bool(self.meetings), late

    def join(self, other: Walker, share: float) -> None:
        """Take the mean time with a walker in the same situation that has a share of the weight."""
        self.state = joined_states(self.state, other.state)
        self.deciding |= other.deciding
        self.counting |= other.counting
        later = (other.now - self.now) * share
        self.now += later
        self.main_next += later
        self.pipe_free += later
        self.wrote = self.wrote[0], self.wrote[1] + later
        self.ready = [at + later for at in self.ready]
        self.since = self.since[0], self.since[1] + later
        self.beside += (other.beside - self.beside) * share
        for at in self.lines.keys() | other.lines.keys():
            mine, its = self.lines.get(at, 0), other.lines.get(at, 0)
            self.lines[at] = mine + (its - mine) * share
        if self.meetings:
            mean = [a + (b - a) * share for a, b in zip(self.meetings[0][1:3], other.meetings[0][1:3], strict=True)]
            self.meetings[0] = self.meetings[0]._replace(first=mean[0], length=mean[1])

    # --- the main loop ------------------------------------------------------------------------------------------------

    def start(self, entry: int, picked: float = 0) -> None:
        """Start a task that the picker chose in a cycle."""
        self.pc, self.main, self.returns = entry, "run", []
        self.main_next = picked + self.machine["task.start"]
        self.wrote = None, 0
        self.since = entry, picked

    def finish(self) -> None:
        """Go on until the task has ended."""
        while self.main != "idle":
            self.issue()

    def issue(self) -> None:
        """Let the thread issue that can do so first."""
        self.followed += 1
        if self.followed > MOST:
            raise NotKnown(f"more than {MOST:,} instructions", max(self.pc, 0))
        if self.flights:
            self._issue_one()
            return
        ins = self.code.get(self.pc) if self.main == "run" else None
        if ins is None:
            raise self._nobody()
        t, ready = max(self.pipe_free, self.main_next), self.ready
        for r in ins.reads:
            if ready[r] > t:
                t = ready[r]
        self.last_issued, self.now = MAIN, t
        self._instruction(ins, t)

    def _nobody(self) -> NotKnown:
        """Return the error where nothing can issue."""
        ends = self.main == "run" and self.pc not in self.code
        what = "the program runs off its end" if ends else "waits for a FIFO that no other operation fills or empties"
        return NotKnown(what, max(self.pc, 0))

    def _issue_one(self) -> None:
        """Let one of several threads issue, or one that may have to wait for another."""
        at = {thread: self._able(thread) for thread in (*self.flights, *((MAIN,) if self.main == "run" else ()))}
        t = min(at.values(), default=NEVER)
        if t == NEVER:
            raise self._nobody()
        able = [thread for thread, cycle in at.items() if cycle <= t]
        highest = max(self._level(thread) for thread in able)
        able = [thread for thread in able if self._level(thread) == highest]
        thread = min(able, key=lambda thread: (thread - self.last_issued - 1) % (MAIN + 1))
        self.last_issued, self.now = thread, t
        if thread in self.flights:
            alone = all(cycle == NEVER for other, cycle in at.items() if other != thread)
            self._step(thread, t, alone)
        else:
            self._instruction(self.code[self.pc], t)

    def _level(self, thread: int) -> int:
        return self.flights[thread].level if thread in self.flights else self.image.main_priority

    def _able(self, thread: int) -> float:
        """Return when a thread can issue as things stand, `NEVER` if others must go on first."""
        flight = self.flights.get(thread)
        if flight is not None:
            if self._lacking(flight) and not self._ended_by_fifo(flight):
                return NEVER
            return max(self.pipe_free, flight.first)
        ins = self.code.get(self.pc)
        if ins is None:
            raise self._nobody()
        if ins.dsrs and any(ins.dsrs & flight.ins.dsrs for flight in self.flights.values()):
            return NEVER
        if ins.asynchronous and self._thread_of(ins) in self.flights:
            return NEVER
        return max(self.pipe_free, self.main_next, *(self.ready[r] for r in ins.reads))

    # --- the main thread ----------------------------------------------------------------------------------------------

    def _instruction(self, ins: Coded, t: float) -> None:
        """Issue an instruction of the main thread."""
        op, at, slots, follow = ins.op, self.pc, ins.slots, ins.follow
        taken = op.form == "br" and self._taken(ins, at)
        before, since = self.since  # the cycles since the last issue belong to the instruction that had it
        if before >= 0:
            self.lines[before] = self.lines.get(before, 0) + t - since
        self.since = at, t
        if ins.vector:
            self._vector(ins, t)
            return
        name, self.pc = op.name, at + ins.size
        if name == "dsr_load":
            follow, longer = self._load(ins)
            slots += longer
        elif op.form == "dsr":
            self._edit(ins)
        elif op.form == "br":
            if taken:
                self.pc = int(ins.imm or 0)
                ends = self.pc in self.code and self.code[self.pc].op.name == "done"
                follow = costs.follow(self.machine, op, True, ends=ends)
        elif op.form in ("alu", "ldi", "ld", "st", "tsc", "rand", "in_td"):
            self._scalar(ins, t)
        else:
            self._control(ins, at)
        self.pipe_free = t + slots
        self.main_next = t + follow

    def _taken(self, ins: Coded, at: int) -> bool:
        """Return whether a branch is taken."""
        op = ins.op
        taken = self.arithmetic.taken(op, (ins.a, ins.b, ins.d), self.state)
        if taken is not None:
            self.deciding |= set(ins.reads)
            self.turns += taken and int(ins.imm or 0) <= at
        else:
            taken, self.choice = self.choice, None
        if taken is None:
            raise Choice(f"{format_instruction(op, ins.a, ins.b, ins.c, ins.d, ins.imm)} of unknown data", at)
        return taken

    def _control(self, ins: Coded, at: int) -> None:
        """Jump, return, end a task or change what others do."""
        name = ins.op.name
        if name == "trap":
            raise NotKnown("trap", at)
        if name in ("jmp", "call"):
            if name == "call":
                self.returns.append(at + ins.size)
            self.pc = int(ins.imm or 0)
        elif name == "ret":
            if not self.returns:
                raise NotKnown("return without a call", at)
            self.pc = self.returns.pop()
        elif name == "done":
            self.main = "idle"
            self.lines[at] = self.lines.get(at, 0) + 1
        elif name in ("block", "unblock") and ins.a >= N_TASK_IDS:
            raise NotKnown("a microthread that is blocked", at)
        elif name in ("activate", "block", "unblock"):
            self.activated.append((name, ins.a))

    def _load(self, ins: Coded) -> tuple[int, int]:
        """Load a descriptor; return when the next instruction follows, and for how much longer the pipeline is kept."""
        content = self.code.contents[int(ins.imm or 0)]
        based = is_register(ins.b)
        if based:
            content = self._based(content, self.state.read(ins.b, 1))
        self.state.held[ins.a] = content
        dimensions = content.shape.ndim if content.kind == DSD_MEM4D else 1
        fabric = content.kind in FABRIC
        behind = self.code.get(self.pc)
        in_row = content.kind == DSD_MEM1D and not based and behind is not None and behind.op.name == "dsr_load"
        longer = fabric * int(self.machine["ce.fabric_load"])
        return costs.follow(self.machine, ins.op, False, dimensions, False, fabric, in_row), longer

    def _scalar(self, ins: Coded, t: float) -> None:
        """Write what a scalar instruction makes."""
        op, state = ins.op, self.state
        words = isa.WORDS[op.types[0]] if op.form != "tsc" else 3
        if op.form in ("ld", "st"):
            base = state.read(ins.b, 1) if is_register(ins.b) else 0
            address = None if base is None else base + int(ins.imm or 0) & 0xFFFF
            if op.form == "st":
                state.store(address, words, state.read(ins.a, words))
                return
            value = None if address is None else state.load(address, words)
            if address is not None and value is not None:
                self.counting |= {address + k for k in range(words)}
        elif op.form in ("alu", "ldi"):
            value = self.arithmetic.value(op, (ins.b, ins.c, ins.d), ins.imm, state)
        else:
            value = None
        state.write(ins.a, words, value)
        known = t + costs.result(self.machine, op)
        for k in range(ins.a & 15, (ins.a & 15) + words):
            self.ready[k] = known

    def _based(self, content: Content, base: int | None) -> Content:
        """Return what a DSR holds with another base; None is one that is not known."""
        if base is None:
            return content.at(content.base if self.array is None else self.array, True)
        return content.at(base)

    def _edit(self, ins: Coded) -> None:
        """Change a field of what a DSR holds."""
        name, state = ins.op.name, self.state
        content = state.held.get(ins.a)
        if content is None:
            return
        value = state.read(ins.b, 1) if ins.imm is None else int(ins.imm) & 0xFFFF
        if name == "dsr_base" or (name == "dsr_off" and value is None):
            content = self._based(content, value)
        elif name == "dsr_off":
            content = content.at(content.base + int(value or 0) & 0xFFFF, content.moves)
        elif name == "dsr_len":
            content = content.changed(extent=(value, *content.shape.extent[1:]))
        else:
            signed = None if value is None else value - 0x10000 if value & 0x8000 else value
            content = content.changed(stride=(signed, *content.shape.stride[1:]))
        state.held[ins.a] = content

    # --- vector operations --------------------------------------------------------------------------------------------

    def _planned(self, ins: Coded) -> tuple[_Plan, list[Content]]:
        """Return what a vector operation does, and its operands that are no registers: sources, then the destination.

        What it does changes with the shapes of the operands and the banks at which they lie, which are few.
        """
        held, modulus = self.state.held, self.code.modulus
        operands: list[Content] = []
        key: list[int] = []
        row = 0  # which matters to operands that move
        for f, _ in ins.operands:
            content = held.get(f)
            if content is None:
                why = "holds one of several descriptors" if f in held else "has not been loaded"
                raise NotKnown(f"DSR {isa.FILES[f >> 4]}[{f & 15}] {why}", self.pc)
            operands.append(content)
            key += content.number, content.base % modulus, content.moves
            if content.moves:
                row = self.row % modulus
        key.append(row)
        plan = ins.plans.get(tuple(key))
        if plan is None:
            plan = ins.plans[tuple(key)] = self._plan(ins, operands)
        if plan.meets and not self.fabric:
            raise NotKnown(f"{ins.op.name} meets the fabric", self.pc)
        return plan, operands

    def _plan(self, ins: Coded, operands: list[Content]) -> _Plan:
        """Find out what a vector operation does with such operands."""
        op, n = ins.op, operands[0].elements
        if n is None:
            raise NotKnown(f"how many elements {op.name} has", self.pc)
        meets = any(one.kind in FABRIC for one in operands)
        if meets and not self.fabric:
            raise NotKnown(f"{op.name} meets the fabric", self.pc)
        for one in operands:
            if one.kind in MEMORY and (one.innermost is None or None in one.shape.extent[1 : one.shape.ndim]):
                raise NotKnown(f"how {op.name} walks over its operands", self.pc)
        if n == ENDLESS and not (ins.asynchronous and meets):
            raise NotKnown(f"{op.name} has no end", self.pc)
        content = {f: one for (f, _), one in zip(ins.operands, operands, strict=True)}
        places = (ins.a, ins.b, ins.c)
        dest, *sources = (content.get(f) if x != "-" else None for f, x in zip(places, op.types, strict=False))
        steps = Steps((), (), 0) if n == ENDLESS else steps_of(self.machine, op, n, dest, sources, self.row)
        clears = any(one.kind == DSD_FABOUT and one.shape.flags & F_ZERO for one in operands)
        firsts, writes, fifos, last = [], [], [], None
        saves: dict[int, tuple[int, int]] = {}
        for k, ((f, words), one) in enumerate(zip(ins.operands, operands, strict=True)):
            written = f == ins.a and op.types[0] != "-" and k == len(operands) - 1
            offset = offset_of(one, max(0, n - 1) if written and n != ENDLESS else 0, words)
            if written:
                last = offset if n and n != ENDLESS else None
            elif offset is not None:
                firsts.append((k, offset))
            if (written or (f == ins.b and clears)) and one.kind in (*MEMORY, DSD_FIFO):
                writes.append((k, words))
            if one.kind == DSD_FIFO:
                fifos.append((k, written))
            if one.shape.flags & F_SAVE:
                saves.setdefault(f, (k, words))
        return _Plan(
            n,
            steps,
            tuple(one.shape.queue for one in operands if one.kind == DSD_FABIN),
            tuple(one.shape.queue for one in operands if one.kind == DSD_FABOUT),
            meets,
            any(one.moves and one.kind in MEMORY for one in operands),
            tuple(fifos),
            tuple(firsts),
            tuple(writes),
            tuple(saves.values()),
            last,
            dest is not None and dest.kind in MEMORY and not any(sources),
        )

    def _vector(self, ins: Coded, t: float) -> None:
        """Issue a vector operation."""
        plan, operands = self._planned(ins)
        steps, n, m = plan.steps, plan.n, self.machine
        self.moved |= plan.moved
        first = t + 1 + m["vec.start"]
        if not ins.asynchronous and n:
            word, readable = self.wrote
            late = word is not None and readable > first
            if late and any(operands[k].base + offset == word for k, offset in plan.firsts):
                first = readable
        at, self.pc = self.pc, self.pc + (0 if self._goes_on(ins) else ins.size)
        self.pipe_free = self.main_next = t + 1
        thread, level = MAIN, self.image.main_priority
        if ins.attributes is not None:
            thread, level = self._thread_of(ins), UT_PRIORITY[isa.PRIORITIES.index(ins.attributes["priority"])]
        if ins.d in ins.dsrs and fetches(ins.op, ins.d):
            self._fetch(ins)
        flight = _Flight(ins, plan, operands, first, level)
        if not steps.costs and n != ENDLESS:
            if not ins.asynchronous:
                self.main_next = first + m["vec.drain"]
                if plan.meets:
                    self._meet(at, first, first, plan)
            self._finished(flight)
            return
        if ins.asynchronous and plan.meets:
            self.beside += steps.total
            flight.done, flight.step, flight.taken = n, len(steps.costs), 1
            self._complete(thread, flight, first + max(0, steps.total - 1))
            return
        if thread == MAIN and not self.flights and not plan.fifos:
            flight.done, flight.taken = n, steps.costs[-1]
            self.now = first + steps.total - flight.taken
            self._complete(MAIN, flight, self.now)
        else:
            self.flights[thread] = flight
            self.main = "vector" if thread == MAIN else "run"
        if plan.meets:
            self._meet(at, first, first + steps.total, plan)

    def _goes_on(self, ins: Coded) -> bool:
        """Return whether an operation issues again, and take 1 from the register that says so."""
        counter = isa.again_register(ins.imm)
        if counter is None:
            return False
        field = isa.FILE_REG << 4 | counter
        left = self.state.read(field, 1)
        if left is None:
            raise NotKnown(f"how often an operation is done again, in r{counter}", self.pc)
        self.deciding.add(counter)
        self.state.write(field, 1, left - 1 & 0xFFFF)
        return left != 1

    def _fetch(self, ins: Coded) -> None:
        """Let the DSR of a multiplier in memory go on by an element."""
        content = self.state.held.get(ins.d)
        if content is None:
            raise NotKnown(f"DSR {isa.FILES[ins.d >> 4]}[{ins.d & 15}] has no known multiplier", self.pc)
        stride = content.shape.stride[0]
        step = None if stride is None else content.base + stride * isa.WORDS[ins.op.types[3]] & 0xFFFF
        self.state.held[ins.d] = content.moved() if step is None else content.at(step, content.moves)

    def _meet(self, at: int, first: float, end: float, plan: _Plan) -> None:
        """Note a synchronous operation that meets the fabric."""
        advances = not all(plan.steps.groups)
        wavelets = len(plan.steps.costs)
        self.meetings.append(Meeting(at, first, end - first, plan.takes, plan.sends, wavelets, advances))

    def _thread_of(self, ins: Coded) -> int:
        """Return the microthread of an asynchronous operation."""
        named = (ins.attributes or {})["ut"]
        if named is not None:
            return int(named)
        for kind in (DSD_FABOUT, DSD_FABIN):
            for f in (ins.a, ins.b, ins.c):
                content = self.state.held.get(f) if f in ins.dsrs else None
                if content is not None and content.kind == kind:
                    return max(0, content.shape.queue) % N_QUEUES
        raise NotKnown("of which microthread an operation is", self.pc)

    def _step(self, thread: int, t: float, alone: bool) -> None:
        """Let a vector operation take its next step, or all that are left if nothing else can come between."""
        flight = self.flights[thread]
        if self._ended_by_fifo(flight):
            for one, pushes in self._lacking(flight):
                if one.flags & F_TERMINATE:
                    self.state.fifos.ended.setdefault((one.fifo, pushes), set()).add(flight.group())
            self.pipe_free, flight.taken = t + 1, 1
            self._complete(thread, flight, t)
            return
        every = flight.plan.steps.costs
        last = len(every)
        if alone and not flight.plan.fifos:
            rest = every[flight.step :]
            t, flight.taken = t + sum(rest[:-1]), rest[-1]
            flight.step, flight.done = last, flight.plan.n
            self.now = t
        else:
            group, flight.taken = flight.group(), every[flight.step]
            flight.done += group
            self._move_fifos(thread, flight, group, t)
            flight.step += 1
        self.pipe_free = t + flight.taken
        if flight.step == last:
            self._complete(thread, flight, t)

    def _complete(self, thread: int, flight: _Flight, t: float) -> None:
        """End an operation with its step of cycle t."""
        if self.flights:
            self.flights.pop(thread, None)
        self._finished(flight)
        ins, plan = flight.ins, flight.plan
        op = ins.op
        if op.types[0] != "-" and is_register(ins.a) and plan.n:
            for k in range(isa.WORDS[op.types[0]]):
                self.ready[(ins.a & 15) + k] = t + costs.result(self.machine, op, flight.taken)
        if thread == MAIN and not ins.asynchronous:
            m, over = self.machine, t + flight.taken
            if m["vec.raw"]:
                offset, last = plan.last, flight.operands[-1]
                if offset is not None and flight.done != plan.n:
                    offset = offset_of(last, flight.done - 1, ins.operands[-1][1]) if flight.done else None
                self.wrote = None if offset is None else last.base + offset, over + 1 + m["vec.raw"]
            late = 0
            if op.is_mac:
                late = flight.done * m["vec.mac_late"] // 16
            elif plan.fills:
                late = flight.done * m["vec.fill_late"] // 1000
            self.main, self.main_next = "run", over + m["vec.drain"] + late
            self.pipe_free = max(self.pipe_free, over)

    def _finished(self, flight: _Flight) -> None:
        """Take what an operation of which nothing is left has changed."""
        ins, state, plan = flight.ins, self.state, flight.plan
        if state.memory and plan.n:
            for k, words in plan.writes:
                self._overwrite(flight.operands[k], words, plan.n)
        for k, words in plan.saves:
            f, one = ins.operands[k][0], flight.operands[k]
            if state.held.get(f) == one:
                state.held[f] = one.behind(None if plan.n == ENDLESS else flight.done, words)
        if ins.op.types[0] != "-" and is_register(ins.a) and plan.n:
            state.write(ins.a, isa.WORDS[ins.op.types[0]], None)
        if ins.attributes is not None:
            for what in ("activate", "unblock"):
                if ins.attributes[what] is not None:
                    self.activated.append((what, int(ins.attributes[what])))

    def _overwrite(self, one: Content, words: int, n: int) -> None:
        """Forget what memory held where an operation of n elements may write."""
        memory, shape = self.state.memory, one.shape
        if one.moves or n == ENDLESS or one.kind == DSD_FIFO or shape.flags & 2:
            self.state.store(None, 1, None)
            return
        if one.kind == DSD_MEM4D:  # all between its ends, which is more than it writes
            inner = prod(size or 1 for size in shape.extent[1 : shape.ndim])
            sides = list(zip((-(-n // inner), *shape.extent[1:]), shape.stride, strict=True))[: shape.ndim]
            ends = [((size or 1) - 1) * (step or 0) for size, step in sides]
            first = one.base + words * sum(min(0, end) for end in ends)
            last = one.base + words * (sum(max(0, end) for end in ends) + 1)
            whole = range(first, last)
            words = 1
        else:
            stride = 1 if shape.length else shape.stride[0] or 0
            whole = range(one.base, one.base + (shape.length or n) * stride * words, stride * words or 1)
            whole = whole or range(one.base, one.base + 1)  # all elements at one place
        for _ in range(words):
            if not memory.keys().isdisjoint(whole):
                for at in memory.keys() & whole:
                    del memory[at]
            whole = range(whole.start + 1, whole.stop + 1, whole.step)

    # --- FIFOs --------------------------------------------------------------------------------------------------------

    def _lacking(self, flight: _Flight) -> list[tuple[Walked, bool]]:
        """Return the FIFOs that hold too few elements, or have too little room, for the next step."""
        found, fifos = [], self.state.fifos
        for one, pushes in flight.fifos():
            if one.fifo in fifos.unknown:
                continue
            count, group = fifos.counts.get(one.fifo, 0), flight.group()
            if not (count + group <= one.length if pushes else count >= group):
                found.append((one, pushes))
        return found

    def _ended_by_fifo(self, flight: _Flight) -> bool:
        """Whether a FIFO that is full or empty ends an operation instead of holding it."""
        return any(one.flags & F_TERMINATE for one, _ in self._lacking(flight))

    def _move_fifos(self, thread: int, flight: _Flight, group: int, t: float) -> None:
        """Push and pop, and activate the tasks of those who waited for it."""
        counts = self.state.fifos.counts
        for one, pushes in flight.fifos():
            counts[one.fifo] = counts.get(one.fifo, 0) + (group if pushes else -group)
        for one, pushes in flight.fifos():
            if one.fifo not in self.state.fifos.unknown and self._ends_event(thread, one, pushes, group, t):
                task = one.push_task if pushes else one.pop_task
                if task != NO_TASK:
                    self.activated.append(("activate", task))

    def _ends_event(self, thread: int, content: Walked, pushed: bool, group: int, t: float) -> bool:
        """Whether a step that has just moved elements ends the wait of the other side of a FIFO (docs/machine.md)."""
        fifos = self.state.fifos
        count = fifos.counts[content.fifo]
        there = count if pushed else content.length - count
        waiting = set()
        for other, flight in self.flights.items():
            if other == thread or t < flight.first or flight.done >= flight.plan.n:
                continue
            sides = [side for side, pushes in flight.fifos() if side.fifo == content.fifo and pushes != pushed]
            if sides:
                waiting.add(flight.group())
        ended = fifos.ended.setdefault((content.fifo, not pushed), set())
        lacked = {wanted for wanted in waiting if wanted > there - group} | ended
        satisfied = {wanted for wanted in lacked if wanted <= there}
        ended -= satisfied
        return bool(satisfied)
