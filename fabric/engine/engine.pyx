# cython: overflowcheck=False
"""The engine, the compiled machine: owns its memory, runs the cycle loop, reports events.

`Engine` implements the machine interface of docs/internals.md.  It is single-owner: one thread per Engine.  The cycle
loop runs without the GIL and comes back every few million events to let Python see a Ctrl-C.

Its parts: `fabric.engine.memory` holds the tables of `wse_core.records` and gives the host access to them,
`fabric.engine.load` fills them from a `FabricSpec`, `fabric.engine.inspect` looks into them.

Phases of a cycle, in this order: `router_phase`, `ce_phase`; see docs/machine.md.  If in a cycle no wavelet moved and
none is under way, time jumps to the next cycle in which a CE has something to do: nothing active costs nothing.
"""
import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from fabric.engine.memory cimport Memory
from wse_core cimport traced_ce, traced_router
from wse_core.ce cimport ce_phase, ce_settle
from wse_core.block cimport inq_at
from wse_core.builtins cimport unlikely
from wse_core.emit cimport emit
from wse_core.float_mode cimport float_mode_enter, float_mode_leave, float_mode_t
from wse_core.queue cimport usable
from wse_core.records cimport *
from wse_core.router cimport router_phase
from wse_core.wake cimport schedule

from fabric.engine import inspect
from fabric.engine.load import load
from wse_core.errors import ConfigError
from wse_core.events import EVENT_DTYPE, KINDS, TraceFilter

cdef enum:
    RUN_LIMIT = 0
    RUN_QUIET = 1           # nothing can ever change
    RUN_FAULT = 2
    RUN_BREAK = 3           # let Python look for signals
    EVENTS_PER_BREAK = 2000000
    REPORT = 1 << 19        # events that are reported together
    REFRESH = 1 << 28       # cycles between sweeps of stamps and counters; stamps older than that are rewritten
    AHEAD = 1 << 22         # cycles that a CE may run ahead of the clock


cdef int run_cycles(region_t* s, uint64_t limit) noexcept nogil:
    # Advance to cycle `limit` at most. A program that never ends must not keep Python from seeing a Ctrl-C, hence
    # AHEAD.
    cdef uint64_t stop = s.events + EVENTS_PER_BREAK
    cdef uint64_t next
    while s.now < limit:
        if s.now >= s.next_refresh:
            stamps_refresh(s)
        s.ahead = limit if limit - s.now < AHEAD else s.now + AHEAD
        if unlikely(s.watch != NULL):
            traced_router.router_phase(s)
            traced_ce.ce_phase(s)
        else:
            router_phase(s)
            ce_phase(s)
        s.events += s.moved
        if s.fault.kind and s.fault.cycle <= s.now:
            s.now += 1
            return RUN_FAULT
        if s.moved or s.waiting or s.n_later:
            s.now += 1
        else:
            next = earlier(next_wake(s), next_at_edge(s))
            if s.fault.kind and (next == 0 or next > s.fault.cycle):
                next = s.fault.cycle        # found by a CE that ran ahead
            if next == 0:
                return RUN_QUIET
            s.now = min(next, limit, s.next_refresh)
        if s.events >= stop or s.n_traced >= REPORT:
            return RUN_BREAK
    return RUN_LIMIT

cdef uint64_t next_wake(region_t* s) noexcept nogil:
    # First cycle after now in which a CE must be looked at; 0 = never.
    cdef uint64_t best = 0, t
    cdef uint32_t k, cell, bucket
    if s.ring_any:
        for k in range(1, RING + 1):
            if (s.ring_any >> ((s.now + k) & (RING - 1))) & 1:
                best = s.now + k
                break
    if s.wheel_count:
        for k in range(1, WHEEL + 1):
            bucket = <uint32_t>((s.now + k) & (WHEEL - 1))
            if best and s.now + k >= best:
                return best
            if not (s.wheel_used[bucket >> 6] >> (bucket & 63)) & 1:
                continue
            cell = s.wheel_head[bucket]
            while cell:
                if s.f.wheel_time[cell] == s.now + k:
                    return s.now + k
                cell = s.f.wheel_next[cell]
        if best == 0:                   # all of them more than a turn of the wheel ahead
            for bucket in range(WHEEL):
                cell = s.wheel_head[bucket]
                while cell:
                    t = s.f.wheel_time[cell]
                    if best == 0 or t < best:
                        best = t
                    cell = s.f.wheel_next[cell]
    return best

cdef inline uint64_t earlier(uint64_t a, uint64_t b) noexcept nogil:
    # The earlier of two cycles; 0 = never.
    return b if a == 0 or (b and b < a) else a

cdef uint64_t next_at_edge(region_t* s) noexcept nogil:
    # First cycle after now in which a word of the host may enter, or the host takes one; 0 = never.
    cdef uint64_t best = 0
    cdef int k
    for k in range(s.n_ins):
        if s.ins[k].at < s.ins[k].n and s.ins[k].cycles[s.ins[k].at] > s.now:
            best = earlier(best, s.ins[k].cycles[s.ins[k].at])
    for k in range(s.n_outs):
        if s.outs[k].places != NULL and s.outs[k].at < s.outs[k].n_places and s.outs[k].places[s.outs[k].at] > s.now:
            best = earlier(best, s.outs[k].places[s.outs[k].at])
    return best

cdef inline void refresh_words(uint64_t* words, uint64_t n, uint64_t now) noexcept nogil:
    # Rewrite stamps older than a quarter of the range as that old.
    cdef uint64_t k
    cdef uint64_t old = (now - REFRESH) << SHIFT_STAMP
    cdef uint64_t low = (<uint64_t>1 << SHIFT_STAMP) - 1
    for k in range(n):
        if words[k] and usable(words[k], now - REFRESH):
            words[k] = (words[k] & low) | old

cdef void counts_fold(region_t* s, uint32_t cell) noexcept nogil:
    # Move the counters of a CE to where they have 64 bits. A CE books at most 8 per cycle, and never more than AHEAD
    # cycles ahead, so 32 bits are enough for what happens between two sweeps.
    cdef uint32_t* now = s.f.ce[cell].counts
    cdef uint64_t* sums = s.f.counts + <uint64_t>cell * N_COUNTS
    cdef int k
    if s.watch != NULL:
        traced_ce.ce_settle(s, cell)
    else:
        ce_settle(s, cell)
    for k in range(N_COUNTS):
        sums[k] += now[k]
        now[k] = 0

cdef void stamps_refresh(region_t* s) noexcept nogil:
    # Keeps every stamp within half of its 30-bit range; a word never touched (0) stays 0 while now < 2^29, then is
    # stamped too.
    cdef int k
    cdef uint32_t cell, q, w
    cdef plane_t* p
    cdef ce_t* ce
    cdef inq_t* i
    for k in range(N_PLANES):
        p = &s.plane[k]
        if p.slots != NULL:
            for cell in range(s.f.n_cells):
                if p.tail[cell] or p.heads[cell] or p.slots[<uint64_t>cell * p.depth]:
                    refresh_words(p.slots + <uint64_t>cell * p.depth, p.depth, s.now)
    for w in range(s.n_awake):
        ce = s.f.ce[s.awake[w]]
        for q in range(<uint32_t>ce.prog.n_inq):
            i = inq_at(ce, q)
            refresh_words(i.slots, i.cap, s.now)
        counts_fold(s, s.awake[w])
    s.next_refresh = s.now + s.f.sweep


cdef class Engine:
    """The compiled machine.

    Parameters
    ----------
    spec : FabricSpec
        A validated fabric (`fabric.layout.layout` builds it).
    order : int
        0, or a seed that varies the order in which queues and PEs are visited within a phase. No result depends on it;
        tests use it to show that.
    sweep : int
        Cycles between sweeps that keep stamps and 32-bit counters in range. No result depends on it either.

    Raises
    ------
    MemoryLimitError
        The host cannot map the tables.
    """

    cdef Memory memory
    cdef region_t* s             # of `memory`
    cdef object sink, filter
    cdef bint running
    cdef readonly object spec
    cdef readonly str status

    def __cinit__(self, spec, order=0, sweep=REFRESH):
        self.memory = Memory()
        self.s = self.memory.s

    def __init__(self, spec, order=0, sweep=REFRESH):
        if self.spec is not None:
            raise ConfigError("an engine is filled a second time", where="machine", hint="a new one for each fabric")
        self.spec = spec
        self.status = "new"
        load(self.memory, spec, order, sweep)

    # --- host access --------------------------------------------------------------------------------------------------
    cdef int _still(self, what) except -1:
        """Refuse to change a machine in which another thread is inside `run`, which does not hold the GIL."""
        if self.running:
            raise ConfigError(f"{what} while the machine runs in another thread", where="machine",
                              hint="wait for the run to end")
        return 0

    @property
    def cycle(self):
        """Cycles run so far."""
        return self.s.now

    @property
    def last_active(self):
        """Last cycle in which anything happened; -1 before the first."""
        return self.s.last_active

    @property
    def wavelet_hops(self):
        """Wavelets moved by routers so far (a multicast is one hop)."""
        return self.s.hops

    @property
    def events(self):
        """Looks at CEs and wavelet moves so far: a measure of the host's work."""
        return self.s.events

    def read_words(self, int x, int y, int address, int count):
        """Return `count` words of one PE's SRAM (uint16)."""
        return self.memory.read_words(x, y, address, count)

    def write_words(self, int x, int y, int address, words):
        """Write words (uint16) into one PE's SRAM."""
        self._still("write_words")
        self.memory.write_words(x, y, address, words)

    def read_rect(self, int address, int count, int x, int y, int w, int h):
        """Return the words of every PE of a rectangle, shape (h, w, count)."""
        return self.memory.read_rect(address, count, x, y, w, h)

    def write_rect(self, int address, words, int x, int y):
        """Write words of shape (h, w, count) into the rectangle whose corner is (x, y)."""
        self._still("write_rect")
        self.memory.write_rect(address, words, x, y)

    def push_input(self, int index, payload, control=None, cycles=None):
        """Append wavelets to an input stream.

        Parameters
        ----------
        index : int
        payload : array_like of uint32
        control : array_like of bool, optional
        cycles : array_like of int, optional
            First cycle in which each may enter, never earlier than the one before it; default as soon as there is room.
        """
        self._still("push_input")
        self.memory.push_input(index, payload, control, cycles)

    def entered(self, int index):
        """Return the cycles (int64) in which words of an input stream entered since the last call."""
        self._still("entered")
        return self.memory.entered(index)

    def limit_output(self, int index, cycles):
        """Let the host take one wavelet per entry of `cycles`, none before that cycle, after those allowed so far.

        None: it takes all that comes, as it does at first.
        """
        self._still("limit_output")
        self.memory.limit_output(index, cycles)

    def pop_output(self, int index):
        """Return (cycles, payloads, controls) that arrived at an output stream since the last call."""
        self._still("pop_output")
        return self.memory.pop_output(index)

    def save_state(self):
        """Return the whole state, for `restore_state` of this very machine; costs what the machine has touched."""
        self._still("save_state")
        return self.memory.save() | {"status": self.status}

    def restore_state(self, saved):
        """Go back to a state that `save_state` of this machine returned."""
        self._still("restore_state")
        self.memory.restore(saved)
        self.status = saved["status"]

    def activate(self, int task_id, int x, int y, int w, int h):
        """Set the activated bit of a task in every PE of a rectangle that has a program."""
        self._still("activate")
        cdef int i, j
        cdef uint32_t cell
        cdef ce_t* ce
        for j in range(y, y + h):
            for i in range(x, x + w):
                cell = self.memory.cell(i, j)
                if self.s.f.ce[cell] != NULL:
                    ce = self.memory.ce(i, j)
                    if not 0 <= task_id < 32 or ce.prog.entry[task_id] < 0:
                        raise ConfigError(f"task {task_id} is not bound in the program of PE ({i}, {j})")
                    ce.activated |= <uint32_t>1 << task_id
                    if self.sink is not None:
                        emit(self.s, cell, self.s.now, EV_ACTIVATE, NO_COLOR, task_id, 0, 0)
                    schedule(self.s, cell, self.s.now, self.s.now)

    # --- looking inside -----------------------------------------------------------------------------------------------
    @property
    def fault(self):
        """None, or a dict that describes the fault that stopped the run."""
        return inspect.fault(self.memory)

    def counters(self):
        """Return dict name -> uint64 array (height, width); see docs/internals.md."""
        return inspect.counters(self.memory, self.spec)

    def link_counts(self):
        """Return dict color -> uint64 (height, width, 5): wavelets that left each input port's queue."""
        return inspect.link_counts(self.memory, self.spec)

    def snapshot(self):
        """Return the canonical state for comparison with another machine; see docs/internals.md."""
        return inspect.snapshot(self.memory, self.spec)

    def waiters(self):
        """Return what is left to do and why it cannot go on; see docs/internals.md."""
        return inspect.waiters(self.memory, self.spec)

    # --- running ------------------------------------------------------------------------------------------------------
    def run(self, limit):
        """Run to cycle `limit` at most; return ``limit``, ``complete``, ``stuck`` or ``fault``."""
        cdef uint64_t stop = min(int(limit), (1 << 62) - 1)
        cdef int code = RUN_BREAK
        cdef float_mode_t was
        if self.status == "fault":
            return self.status
        self._still("run")
        self.running = True
        try:
            while code == RUN_BREAK:
                with nogil:
                    was = float_mode_enter()
                    code = run_cycles(self.s, stop)
                    float_mode_leave(was)
                if self.sink is not None:
                    self._report(False)
                PyErr_CheckSignals()
        finally:
            self.running = False
        if code == RUN_QUIET:
            self.s.now = max(<int64_t>self.s.now, self.s.last_active) + 1
            self.status = "stuck" if inspect.waiters(self.memory, self.spec) else "complete"
        else:
            self.status = "limit" if code == RUN_LIMIT else "fault"
        return self.status

    # --- events -------------------------------------------------------------------------------------------------------
    def trace(self, sink, filter=None):
        """Report events to ``sink(events, clock)`` from now on, or no longer if `sink` is None.

        Parameters
        ----------
        sink : callable or None
            Gets an array of `wse_core.events.EVENT_DTYPE` now and then, in no order, and the cycle before which none
            will follow.
        filter : TraceFilter, optional
            Which events; default all.
        """
        cdef int k
        cdef uint32_t kinds = 0
        self._still("trace")
        if self.sink is not None:
            self._report(True)
        self.sink, self.filter = sink, filter or TraceFilter()
        if sink is None:
            self.s.watch = NULL
            return
        for kind in self.filter.kinds:
            kinds |= <uint32_t>1 << <int>KINDS.index(kind)
        self.s.traced_kinds = kinds
        self.s.watch = self.memory.watch
        self.memory.settle()
        for k in range(<int>self.s.n_awake):            # waits count from here on
            self.s.watch[self.s.awake[k]].begin = self.s.watch[self.s.awake[k]].end = 0

    cdef _report(self, bint last):
        cdef uint32_t k
        cdef const unsigned char[::1] view
        cdef float_mode_t was = float_mode_enter()
        for k in range(self.s.n_awake):
            traced_ce.ce_report(self.s, self.s.awake[k], last)
        float_mode_leave(was)
        data = bytearray(self.s.n_traced * sizeof(event_t))
        if len(data):
            view = data
            memcpy(<void*>&view[0], self.s.traced, len(data))
        self.s.n_traced = 0
        events = np.frombuffer(data, EVENT_DTYPE)
        cells = events["x"].astype(np.uint32) | events["y"].astype(np.uint32) << np.uint32(16)
        rows = cells // np.uint32(self.s.f.stride)
        events["x"], events["y"] = cells - rows * np.uint32(self.s.f.stride) - 1, rows - 1
        self.sink(self.filter.chosen(events), int(self.s.now))
