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
from dataclasses import dataclass, field, replace
from math import prod

from fabric.asm.disasm import format_instruction
from fabric.price import costs
from fabric.price.code import Choice, Code, Coded, Meeting, NotKnown
from fabric.price.content import FABRIC, MEMORY, Content, loaded
from fabric.price.state import Arithmetic, State, is_register, joined_states
from fabric.price.steps import Steps, place_of, steps_of
from wse_core import isa
from wse_core.encoding import MAIN, N_QUEUES, N_TASK_IDS
from wse_core.image import (
    DSD_FABIN,
    DSD_FABOUT,
    DSD_FIFO,
    DSD_MEM1D,
    DSD_MEM4D,
    ENDLESS,
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


@dataclass
class _Flight:
    """A `_Flight` is a vector operation in flight."""

    ins: Coded
    steps: Steps
    n: int
    first: float
    level: int
    operands: tuple[tuple[int, Content, int, bool], ...]  # field, content, words, whether it is the destination
    step: int = 0
    done: int = 0
    taken: int = 0  # cycles of the last step

    def fifos(self) -> list[tuple[int, Content, int, bool]]:
        """Return the operands that are FIFOs."""
        return [one for one in self.operands if one[1].kind == DSD_FIFO]

    def group(self) -> int:
        """Return the elements of the next step."""
        return self.steps.groups[self.step]


@dataclass
class Walker:
    """A `Walker` is one PE at work.

    Parameters
    ----------
    image : ProgramImage
    machine : Machine
    code : Code
    arithmetic : Arithmetic
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
    arithmetic: Arithmetic
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
        at = {thread: self._able(thread) for thread in (*self.flights, *((MAIN,) if self.main == "run" else ()))}
        t = min(at.values(), default=NEVER)
        if t == NEVER:
            raise NotKnown("waits for a FIFO that no other operation fills or empties", max(self.pc, 0))
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
            raise NotKnown("the program runs off its end", max(self.pc, 0))
        if ins.dsrs and any(ins.dsrs & flight.ins.dsrs for flight in self.flights.values()):
            return NEVER
        if ins.asynchronous and self._thread_of(ins) in self.flights:
            return NEVER
        return max(self.pipe_free, self.main_next, *(self.ready[r] for r in ins.reads))

    # --- the main thread ----------------------------------------------------------------------------------------------

    def _instruction(self, ins: Coded, t: float) -> None:
        """Issue an instruction of the main thread."""
        op, m, at = ins.op, self.machine, self.pc
        taken = None
        if op.form == "br":
            taken = self.arithmetic.taken(op, (ins.a, ins.b, ins.d), self.state)
            if taken is not None:
                self.deciding |= set(ins.reads)
                self.turns += taken and int(ins.imm or 0) <= at
            else:
                taken, self.choice = self.choice, None
            if taken is None:
                raise Choice(f"{format_instruction(op, ins.a, ins.b, ins.c, ins.d, ins.imm)} of unknown data", at)
        self._book(at, t)
        if ins.vector:
            self._vector(ins, t)
            return
        if op.name == "trap":
            raise NotKnown("trap", at)
        self.pc, dimensions, fabric, in_row = ins.next, 1, False, False
        if op.form == "br" and taken:
            self.pc = int(ins.imm or 0)
        elif op.name in ("jmp", "call"):
            if op.name == "call":
                self.returns.append(ins.next)
            self.pc = int(ins.imm or 0)
        elif op.name == "ret":
            if not self.returns:
                raise NotKnown("return without a call", at)
            self.pc = self.returns.pop()
        elif op.name == "done":
            self.main = "idle"
            self.lines[at] = self.lines.get(at, 0) + 1
        elif op.name in ("block", "unblock") and ins.a >= N_TASK_IDS:
            raise NotKnown("a microthread that is blocked", at)
        elif op.name in ("activate", "block", "unblock"):
            self.activated.append((op.name, ins.a))
        elif op.name == "dsr_load":
            content = loaded(self.image.descriptors[int(ins.imm or 0)])
            if is_register(ins.b):
                content = self._based(content, self.state.read(ins.b, 1))
            self.state.held[ins.a] = content
            dimensions = content.ndim if content.kind == DSD_MEM4D else 1
            fabric = content.kind in (DSD_FABIN, DSD_FABOUT)
            behind = self.code.get(ins.next)
            is_plain = content.kind == DSD_MEM1D and not is_register(ins.b)
            in_row = is_plain and behind is not None and behind.op.name == "dsr_load"
        elif op.form == "dsr":
            self._edit(ins, at)
        else:
            self._scalar(ins, t)
        self.pipe_free = t + costs.slots(m, op) + fabric * m["ce.fabric_load"]
        ends = bool(taken) and self.pc in self.code and self.code[self.pc].op.name == "done"
        self.main_next = t + costs.follow(m, op, bool(taken), dimensions, ends, fabric, in_row)

    def _book(self, at: int, t: float) -> None:
        """Add the cycles since the last issue of the main thread to the instruction that had it."""
        before, since = self.since
        if before >= 0:
            self.lines[before] = self.lines.get(before, 0) + t - since
        self.since = at, t

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
        elif op.form in ("tsc", "rand", "in_td"):
            value = None
        else:
            return
        state.write(ins.a, words, value)
        for k in range(words):
            self.ready[(ins.a & 15) + k] = t + costs.result(self.machine, op)

    def _based(self, content: Content, base: int | None) -> Content:
        """Return what a DSR holds with another base; None is one that is not known."""
        if base is None:
            return replace(content, moves=True, base=content.base if self.array is None else self.array)
        return replace(content, base=base, moves=False)

    def _edit(self, ins: Coded, at: int) -> None:
        """Change a field of what a DSR holds."""
        name, state = ins.op.name, self.state
        content = state.held.get(ins.a)
        if content is None:
            return
        value = state.read(ins.b, 1) if ins.imm is None else int(ins.imm) & 0xFFFF
        signed = None if value is None else value - 0x10000 if value & 0x8000 else value
        if name in ("dsr_base", "dsr_off"):
            if value is None or name == "dsr_base":
                content = self._based(content, value)
            else:
                content = replace(content, base=content.base + value & 0xFFFF)
        elif name == "dsr_len":
            content = replace(content, extent=(value, *content.extent[1:]))
        else:
            content = replace(content, stride=(signed, *content.stride[1:]))
        state.held[ins.a] = content

    # --- vector operations --------------------------------------------------------------------------------------------

    def _operands(self, ins: Coded) -> tuple[tuple[int, Content, int, bool], ...]:
        """Return the operands of a vector operation that are no registers: sources, then the destination."""
        op, found = ins.op, []
        for f, letter in ((ins.b, op.types[1]), (ins.c, op.types[2]), (ins.a, op.types[0])):
            if letter == "-" or is_register(f):
                continue
            content = self.state.held.get(f, ...)
            if content is ... or content is None:
                why = "has not been loaded" if content is ... else "holds one of several descriptors"
                raise NotKnown(f"DSR {isa.FILES[f >> 4]}[{f & 15}] {why}", self.pc)
            found.append((f, content, isa.WORDS[letter], False))
        if found and ins.a == found[-1][0] and ins.op.types[0] != "-":
            found[-1] = (*found[-1][:3], True)
        return tuple(found)

    def _vector(self, ins: Coded, t: float) -> None:
        """Issue a vector operation."""
        m, op = self.machine, ins.op
        operands = self._operands(ins)
        content = {f: one for f, one, *_ in operands}
        n = operands[0][1].elements
        if n is None:
            raise NotKnown(f"how many elements {op.name} has", self.pc)
        meets = any(one.kind in FABRIC for one in content.values())
        if meets and not self.fabric:
            raise NotKnown(f"{op.name} meets the fabric", self.pc)
        places = (ins.a, ins.b, ins.c)
        dest, *sources = (content.get(f) if x != "-" else None for f, x in zip(places, op.types, strict=False))
        self.moved |= any(one.moves and one.kind in MEMORY for one in content.values())
        for one in content.values():
            if one.kind in MEMORY and (one.innermost is None or None in one.extent[1 : one.ndim]):
                raise NotKnown(f"how {op.name} walks over its operands", self.pc)
        endless = n == ENDLESS
        if endless and not (ins.asynchronous and meets):
            raise NotKnown(f"{op.name} has no end", self.pc)
        steps = Steps((), (), 0) if endless else steps_of(m, op, n, dest, sources, self.row)
        first = t + 1 + m["vec.start"]
        if not ins.asynchronous and n:
            word, readable = self.wrote
            if word is not None and word in [
                place_of(one, 0, words) for _, one, words, written in operands if not written
            ]:
                first = max(first, readable)
        flight = _Flight(ins, steps, n, first, self.image.main_priority, operands)
        at, self.pc = self.pc, ins.next
        self.pipe_free = self.main_next = t + 1
        thread = self._thread_of(ins) if ins.asynchronous else MAIN
        if ins.asynchronous:
            get = isa.async_fields(int(ins.imm or 0))
            flight.level = UT_PRIORITY[isa.PRIORITIES.index(get["priority"])]
        if not steps.costs and not endless:
            if not ins.asynchronous:
                self.main_next = first + m["vec.drain"]
                if meets:
                    self._meet(at, first, first, flight)
            self._finished(flight, thread)
            return
        if ins.asynchronous and meets:
            self.beside += steps.total
            flight.done, flight.step, flight.taken = n, len(steps.costs), 1
            self._complete(thread, flight, first + max(0, steps.total - 1))
            return
        if thread == MAIN and not self.flights and not any(one.kind == DSD_FIFO for one in content.values()):
            flight.done, flight.taken = n, steps.costs[-1]
            self.now = first + steps.total - flight.taken
            self._complete(MAIN, flight, self.now)
        else:
            self.flights[thread] = flight
            self.main = "vector" if thread == MAIN else "run"
        if meets:
            self._meet(at, first, first + steps.total, flight)

    def _meet(self, at: int, first: float, end: float, flight: _Flight) -> None:
        """Note a synchronous operation that meets the fabric."""
        takes = tuple(one.queue for _, one, _, _ in flight.operands if one.kind == DSD_FABIN)
        sends = tuple(one.queue for _, one, _, _ in flight.operands if one.kind == DSD_FABOUT)
        advances = not all(flight.steps.groups)
        self.meetings.append(Meeting(at, first, end - first, takes, sends, len(flight.steps.costs), advances))

    def _thread_of(self, ins: Coded) -> int:
        """Return the microthread of an asynchronous operation."""
        named = isa.async_fields(int(ins.imm or 0))["ut"]
        if named is not None:
            return int(named)
        for kind in (DSD_FABOUT, DSD_FABIN):
            for f in (ins.a, ins.b, ins.c):
                content = self.state.held.get(f) if f in ins.dsrs else None
                if content is not None and content.kind == kind:
                    return max(0, content.queue) % N_QUEUES
        raise NotKnown("of which microthread an operation is", self.pc)

    def _step(self, thread: int, t: float, alone: bool) -> None:
        """Let a vector operation take its next step, or all that are left if nothing else can come between."""
        flight = self.flights[thread]
        if self._ended_by_fifo(flight):
            for _, one, _, pushes in self._lacking(flight):
                if one.flags & F_TERMINATE:
                    self.state.fifos.ended.setdefault((one.fifo, pushes), set()).add(flight.group())
            self.pipe_free, flight.taken = t + 1, 1
            self._complete(thread, flight, t)
            return
        last = len(flight.steps.costs)
        if alone and not flight.fifos():
            rest = flight.steps.costs[flight.step :]
            t, flight.taken = t + sum(rest[:-1]), rest[-1]
            flight.step, flight.done = last, flight.n
            self.now = t
        else:
            group, flight.taken = flight.group(), flight.steps.costs[flight.step]
            flight.done += group
            self._move_fifos(thread, flight, group, t)
            flight.step += 1
        self.pipe_free = t + flight.taken
        if flight.step == last:
            self._complete(thread, flight, t)

    def _complete(self, thread: int, flight: _Flight, t: float) -> None:
        """End an operation with its step of cycle t."""
        self.flights.pop(thread, None)
        self._finished(flight, thread)
        ins = flight.ins
        if ins.op.types[0] != "-" and is_register(ins.a) and flight.n:
            for k in range(isa.WORDS[ins.op.types[0]]):
                self.ready[(ins.a & 15) + k] = t + costs.result(self.machine, ins.op, flight.taken)
        if thread == MAIN and not ins.asynchronous:
            if self.machine["vec.raw"]:
                ends = [place_of(one, flight.done - 1, words) for _, one, words, written in flight.operands if written]
                self.wrote = (ends[0] if ends and flight.done else None), t + flight.taken + 1 + self.machine["vec.raw"]
            late = flight.done * self.machine["vec.mac_late"] // 16 if ins.op.is_mac else 0
            self.main, self.main_next = "run", t + flight.taken + self.machine["vec.drain"] + late
            self.pipe_free = max(self.pipe_free, t + flight.taken)

    def _finished(self, flight: _Flight, thread: int) -> None:
        """Take what an operation of which nothing is left has changed."""
        ins, state = flight.ins, self.state
        done = None if flight.n == ENDLESS else flight.done
        moved = set()
        for f, one, words, written in flight.operands:
            zeroed = f == ins.b and any(o.kind == DSD_FABOUT and o.flags & F_ZERO for _, o, _, _ in flight.operands)
            if (written or zeroed) and one.kind in (*MEMORY, DSD_FIFO):
                self._overwrite(one, words, flight.n)
            if f not in moved and state.held.get(f) == one:
                moved.add(f)
                state.held[f] = one.behind(done, words)
        if ins.op.types[0] != "-" and is_register(ins.a) and flight.n:
            state.write(ins.a, isa.WORDS[ins.op.types[0]], None)
        if ins.asynchronous:
            get = isa.async_fields(int(ins.imm or 0))
            for what in ("activate", "unblock"):
                if get[what] is not None:
                    self.activated.append((what, int(get[what])))

    def _overwrite(self, one: Content, words: int, n: int) -> None:
        """Forget what memory held where an operation of n elements may write."""
        memory = self.state.memory
        if not memory or n == 0:
            return
        if one.moves or n == ENDLESS or one.kind == DSD_FIFO or one.flags & 2:
            self.state.store(None, 1, None)
            return
        if one.kind == DSD_MEM4D:  # all between its ends, which is more than it writes
            inner = prod(size or 1 for size in one.extent[1 : one.ndim])
            sides = list(zip((-(-n // inner), *one.extent[1:]), one.stride, strict=True))[: one.ndim]
            ends = [((size or 1) - 1) * (step or 0) for size, step in sides]
            first = one.base + words * sum(min(0, end) for end in ends)
            last = one.base + words * (sum(max(0, end) for end in ends) + 1)
            self.state.memory = {at: word for at, word in memory.items() if not first <= at < last}
            return
        stride = 1 if one.length else one.stride[0] or 0
        written = range(one.base, one.base + (one.length or n) * stride * words, stride * words or 1)
        whole = written or range(one.base, one.base + 1)  # all elements at one place
        if len(memory) < words * len(whole):
            gone = [at for at in memory if at in whole or (words == 2 and at - 1 in whole)]
        else:
            gone = [at + k for at in whole for k in range(words)]
        for at in gone:
            memory.pop(at, None)

    # --- FIFOs --------------------------------------------------------------------------------------------------------

    def _lacking(self, flight: _Flight) -> list[tuple[int, Content, int, bool]]:
        """Return the FIFOs that hold too few elements, or have too little room, for the next step."""
        found, fifos = [], self.state.fifos
        for one in flight.fifos():
            _, content, _, pushes = one
            if content.fifo in fifos.unknown:
                continue
            count, group = fifos.counts.get(content.fifo, 0), flight.group()
            if not (count + group <= content.length if pushes else count >= group):
                found.append(one)
        return found

    def _ended_by_fifo(self, flight: _Flight) -> bool:
        """Whether a FIFO that is full or empty ends an operation instead of holding it."""
        return any(one.flags & F_TERMINATE for _, one, _, _ in self._lacking(flight))

    def _move_fifos(self, thread: int, flight: _Flight, group: int, t: float) -> None:
        """Push and pop, and activate the tasks of those who waited for it."""
        counts = self.state.fifos.counts
        for _, one, _, pushes in flight.fifos():
            counts[one.fifo] = counts.get(one.fifo, 0) + (group if pushes else -group)
        for _, one, _, pushes in flight.fifos():
            if one.fifo not in self.state.fifos.unknown and self._ends_event(thread, one, pushes, group, t):
                task = one.push_task if pushes else one.pop_task
                if task != NO_TASK:
                    self.activated.append(("activate", task))

    def _ends_event(self, thread: int, content: Content, pushed: bool, group: int, t: float) -> bool:
        """Whether a step that has just moved elements ends the wait of the other side of a FIFO (docs/machine.md)."""
        fifos = self.state.fifos
        count = fifos.counts[content.fifo]
        there = count if pushed else content.length - count
        waiting = set()
        for other, flight in self.flights.items():
            if other == thread or t < flight.first or flight.done >= flight.n:
                continue
            sides = [side for _, side, _, pushes in flight.fifos() if side.fifo == content.fifo and pushes != pushed]
            if sides:
                waiting.add(flight.group())
        ended = fifos.ended.setdefault((content.fifo, not pushed), set())
        lacked = {wanted for wanted in waiting if wanted > there - group} | ended
        satisfied = {wanted for wanted in lacked if wanted <= there}
        ended -= satisfied
        return bool(satisfied)
