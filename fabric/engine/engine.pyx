# cython: overflowcheck=False
"""The engine, the compiled machine: owns its memory, runs the cycle loop, reports events.

`Engine` implements the machine interface of docs/internals.md.  It is single-owner: one thread per Engine.  The cycle
loop runs without the GIL and comes back every few million events to let Python see a Ctrl-C.

Its parts: `fabric.engine.memory` holds the tables of `wse_core.records` and gives the host access to them,
`fabric.engine.load` fills them from a `FabricSpec`, `fabric.engine.cycles` advances them, `fabric.engine.inspect` looks
into them.  `Engine` chooses how rows are advanced: all at one clock, or, where much moves, in bands.
"""
import os
import time

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from fabric.engine.cycles cimport *
from fabric.engine.memory cimport Memory
from wse_core cimport traced_ce
from wse_core.emit cimport emit
from wse_core.fetch cimport FETCH_FROM
from wse_core.float_mode cimport float_mode_enter, float_mode_leave, float_mode_t
from wse_core.opcodes cimport N_OPS
from wse_core.records cimport *
from wse_core.wake cimport schedule

from fabric.engine import inspect
from fabric.engine.load import load
from wse_core.described import check_fabric
from wse_core.errors import ConfigError
from wse_core.events import EVENT_DTYPE, KINDS, TraceFilter

cdef enum:
    BUSY = 4000             # wavelets per cycle from which bands are worth their beginnings and ends,
    BUSY_LARGE = 1000       # and on a fabric that no cache holds, where each of them waits for memory
    BAND_EVENTS = 32        # looks and moves per cycle and band, 1 us of work, from which threads are (they wait for
    # each other for each cycle of a band, which takes a tenth of that),
    TURN_EVENTS = 512       # and per cycle, about a millisecond in a turn, which a thread takes a twentieth of to begin
    BREAK_EVENTS = 2000000  # looks and moves at one clock before Python may see a Ctrl-C,
    GLANCE_EVENTS = 100000  # or, a few milliseconds, before it is asked whether threads would pay
    LOOK = 200              # milliseconds after which it is asked whether threads got cores of their own; where others
    ALONE = 5               # had these, one thread goes on for so many times as long
    HEIGHT = 8              # rows of a band
    TURN = 32               # cycles that a band runs: so many,
    LONG_TURN = 128         # or up to so many where little moves,
    THREADS_TURN = 512      # or so many by threads, which wait for each other where turns end, as long as a turn moves
    SLACK = 2048            # cycles in which little has moved end bands of threads: bursts follow each other
    HOPS_OF_TURN = 4000000  # no more than so many wavelets, about 0.2 s of work: Python hears of a Ctrl-C after a turn
    NEVER_BUSY = 0x7FFFFFFF

cdef double PAYS = 1.3      # cores that threads must have had on average, to go on: what they wait for costs a tenth

cdef _heights(bands, int height):
    # The heights of the bands that `Engine.arrange` is asked for.
    if bands is None or isinstance(bands, int):
        number = (height + HEIGHT - 1) // HEIGHT if bands is None else bands
        if not 1 <= number <= height:
            raise ConfigError(f"{number} bands of {height} rows", where="machine",
                              hint=f"1 to {height} bands: each has a row or more")
        return [(k + 1) * height // number - k * height // number for k in range(number)]
    if min(bands, default=0) < 1 or sum(bands) != height:
        raise ConfigError(f"bands of {list(bands)} rows for {height} rows", where="machine",
                          hint="heights of a row or more that add up to the fabric's")
    return list(bands)


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
    pack : bool
        Have rows share words of 64 cells where that saves cells, or all narrow ones of a small fabric, and advance them
        together, which is faster; tests of bands say no.
    trains : bool
        Move many words of a stream along their whole way at once where nothing can hold them up, see `trains`.

    Raises
    ------
    MemoryLimitError
        The host cannot map the tables.
    """

    cdef readonly Memory memory
    cdef region_t* s             # of `memory`
    cdef object sink, filter
    cdef bint running
    cdef turn_t turn
    cdef mate_t mates[MATES]
    cdef list crew              # what `turn` and `mates` point to
    cdef bint automatic         # bands only while much moves,
    cdef bint few               # and threads only while more does,
    cdef bint same_turn         # and all turns as long as the first one
    cdef int n_bands, most
    cdef int busy               # wavelets per cycle from which bands are taken
    cdef uint64_t moved, worked     # wavelets, and looks and moves, per cycle of what was run last
    cdef double wall, cpu       # seconds of what threads have run since that was last asked; and until when one runs
    cdef double alone
    cdef readonly int bands, threads    # of the last run: bands of rows, and threads that ran them
    cdef readonly object spec
    cdef readonly str status

    def __cinit__(self, spec, order=0, sweep=REFRESH, pack=True, trains=True):
        self.memory = Memory()
        self.s = self.memory.s

    def __init__(self, spec, order=0, sweep=REFRESH, pack=True, trains=True):
        if self.spec is not None:
            raise ConfigError("an engine is filled a second time", where="machine", hint="a new one for each fabric")
        check_fabric(spec)
        self.spec = spec
        self.status = "new"
        load(self.memory, spec, order, sweep, pack)
        self.trains = trains
        self.bands = self.threads = 1
        self.busy = BUSY_LARGE if self.s.f.n_cells > FETCH_FROM else BUSY
        self.arrange()

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

    @property
    def trains(self):
        """Whether streams may be moved as trains; no result depends on it. Programs that write routes switch it off."""
        return bool(self.s.f.trains)

    @trains.setter
    def trains(self, bint wanted):
        self._still("trains")
        depth = self.spec.machine["router.depth"]       # enough for a word per cycle?
        self.s.f.trains = (wanted and depth > self.s.f.p.hop and not self.s.f.reroutes and not self.s.f.injects)

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
        cdef int k
        self.memory.restore(saved)
        self.status = saved["status"]
        for k in range(self.most - 1):      # they may remember forms that are not kept any more
            memset(self.mates[k].s.shapes, 0, self.s.f.n_shapes * sizeof(shape_t))

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

    def totals(self, rows=None):
        """Return dict name -> sum of the counter over all PEs, or over those of rows (first, behind the last)."""
        low, high = rows or (0, self.s.f.height)
        return inspect.totals(self.memory, self.spec, low, high)

    def work(self):
        """Return instructions and elements done so far, see `wse_core.work`."""
        return inspect.work(self.memory)

    def link_counts(self):
        """Return dict color -> uint64 (height, width, 5): wavelets that left each input port's queue."""
        return inspect.link_counts(self.memory, self.spec)

    def snapshot(self):
        """Return the canonical state for comparison with another machine; see docs/internals.md."""
        return inspect.snapshot(self.memory, self.spec)

    def lost(self):
        """Return the tasks, (x, y, id), that were activated again before they had begun."""
        return inspect.lost(self.memory)

    def waiters(self):
        """Return what is left to do and why it cannot go on; see docs/internals.md."""
        return inspect.waiters(self.memory, self.spec)

    # --- running ------------------------------------------------------------------------------------------------------
    def arrange(self, bands=None, threads=None, turn=None):
        """Say how runs advance the rows of the fabric; no result depends on it.

        Parameters
        ----------
        bands : int or sequence of int, optional
            Number of bands of rows with clocks of their own, or their heights; 1: all rows at one clock.  Rows that
            are advanced together (`pack`) stay in one band.  Default: bands while so much moves that memory is what a
            run waits for.  While events are recorded all rows stand at one clock.
        threads : int, optional
            Threads that run bands; default as many as the process may use while so much moves that they pay, else one.
        turn : int, optional
            Cycles that a band runs before the next one does; default 32 and, once it is known how much moves, up to 128
            where that is little, by threads up to 512.
        """
        self._still("arrange")
        cdef int height = self.s.f.height
        cdef uint32_t[::1] edges
        cdef uint64_t[::1] done
        self.few = threads is None
        self.same_turn = turn is not None
        if threads is None:
            threads = len(os.sched_getaffinity(0))
        if turn is None:
            turn = THREADS_TURN if threads > 1 else LONG_TURN
        if not 1 <= threads <= MATES + 1 or turn < 1:
            raise ConfigError(f"{threads} threads, turns of {turn} cycles", where="machine",
                              hint=f"1 to {MATES + 1} threads, turns of a cycle or more")
        heights = _heights(bands, height)
        self.automatic = bands is None
        # Rows that are advanced together stay so, and so do the borders with what lies beside them.
        rows = np.cumsum([1, *heights]) * self.s.f.stride // (64 * self.s.f.grid.words)
        rows[0], rows[len(heights)] = 0, self.s.f.n_rows
        rows = rows[np.diff(rows, prepend=-1) > 0]      # np.unique would load numpy.ma
        self.n_bands = len(rows) - 1
        self.turn.n_bands = 0
        if self.n_bands == 1:
            return
        step = int(np.diff(rows).max())
        below = self.s.f.n_rows + step * np.arange(1, -(-turn // step) + 1)      # these come up from below
        edges = np.concatenate([rows, below]).astype(np.uint32)
        done = np.zeros((len(edges) - 1) * APART, np.uint64)
        self.crew = [edges, done]
        self.turn.edges, self.turn.done = &edges[0], &done[0]
        self.turn.n_bands = len(edges) - 1
        self.turn.turn = turn
        self.most = threads
        self._hire(threads - 1)

    cdef _hire(self, int mates):
        # The regions of threads besides the first one.
        cdef int k
        cdef unsigned char[::1] region
        cdef uint32_t[::1] awake
        cdef uint64_t[:, :, ::1] work
        for k in range(mates):
            region = np.zeros(sizeof(region_t), np.uint8)
            awake = np.zeros(self.s.f.n_cells, np.uint32)
            shapes = np.zeros(max(1, self.s.f.n_shapes) * sizeof(shape_t), np.uint8)
            work = inspect.no_work()
            self.crew += [region, awake, shapes, work]
            self.mates[k].s = <region_t*>&region[0]
            self.mates[k].s.awake = &awake[0]
            region = shapes
            self.mates[k].s.shapes = <shape_t*>&region[0]
            self.mates[k].s.work = &work[0, 0, 0]

    cdef void _gather(self) noexcept:
        # Add to the table of work what other threads than the first have counted.
        cdef int k
        cdef uint32_t n
        for k in range(self.most - 1 if self.threads > 1 else 0):
            for n in range(N_OPS * N_HALVES * WORK_COLUMNS):
                self.s.work[n] += self.mates[k].s.work[n]
                self.mates[k].s.work[n] = 0

    cdef bint _begins_busy(self) noexcept:
        # Whether so many CEs of a large fabric are looked at in the first cycle that a run begins in bands: what they
        # send then moves while they are in cache.  Streams that may leave as trains across rows need one clock.
        return (self.s.f.n_cells > FETCH_FROM and not (self.s.f.trains and self.s.f.streams)
                and looks_now(self.s) >= <uint32_t>self.busy)

    cdef _look(self, double wall, double cpu):
        # Note what a turn of several threads took.  Where other processes have the cores, threads wait for each other
        # longer than they run, and one alone is done sooner.
        self.wall += wall
        self.cpu += cpu
        if self.few and self.wall * 1000 >= LOOK:
            if self.cpu < PAYS * self.wall:
                self.alone = time.monotonic() + ALONE * self.wall
            self.wall = self.cpu = 0

    def run(self, limit, on_break=None, piece=1 << 40):
        """Run to cycle `limit` at most; return ``limit``, ``complete``, ``stuck`` or ``fault``.

        Parameters
        ----------
        limit : int
        on_break : callable, optional
            Called now and then, after `piece` cycles at the latest (a turn, in bands); returns the next `piece`.
            Breaks change nothing, whereas no CE has run ahead of `limit`, which a clock that stops soon after shows.
        piece : int
        """
        cdef uint64_t stop = min(int(limit), (1 << 62) - 1), hops, events, begun
        cdef int code = RUN_BREAK
        cdef bint one = self.turn.n_bands == 0 or self.sink is not None or self.s.checks != NULL
        cdef bint may = not one and self.automatic and self.few and self.most > 1
        cdef bint glances
        cdef double clock, spent
        cdef uint64_t longest, slack = 0
        cdef bint banded = not one and (not self.automatic or self.s.n_busy >= BUSY_CYCLES)
        cdef uint64_t cycles = piece, much = max(TURN_EVENTS, BAND_EVENTS * self.n_bands)
        cdef float_mode_t was
        if self.status == "fault":
            return self.status
        self._still("run")
        if not (one or banded) and self._begins_busy():
            self.s.n_busy = BUSY_CYCLES
            banded = True
        self.running = True
        self.bands = self.threads = 1
        self.moved = 0
        events, begun = self.s.events, self.s.now
        self.s.seen = self.s.passed = self.s.now
        memset(self.s.told, 0, sizeof(self.s.told))     # the host may have done anything
        try:
            while (code == RUN_BREAK or code == RUN_BUSY) and self.s.now < stop:
                clock, spent = time.monotonic(), time.process_time()
                glances = may and clock >= self.alone
                if banded:
                    self.turn.threads = 1 if self.few and clock < self.alone else self.most
                    self.bands, self.threads = self.n_bands, max(self.threads, self.turn.threads)
                    if not self.same_turn:
                        # A longer turn does more with what it has brought into cache.
                        longest = THREADS_TURN if self.turn.threads > 1 else LONG_TURN
                        self.turn.turn = min(max(HOPS_OF_TURN // self.moved, TURN), longest) if self.moved else TURN
                hops = self.s.hops
                if banded or self.s.now - begun >= TURN:        # (in fewer cycles trains may not have begun yet)
                    events, begun = self.s.events, self.s.now
                with nogil:
                    was = float_mode_enter()
                    if banded:
                        code = run_bands(self.s, stop, &self.turn, self.mates)
                    else:
                        code = run_cycles(self.s, stop, NEVER_BUSY if one else self.busy, cycles,
                                          GLANCE_EVENTS if glances else BREAK_EVENTS)
                    float_mode_leave(was)
                if banded and self.turn.threads > 1:
                    self._look(time.monotonic() - clock, time.process_time() - spent)
                self.worked = (self.s.events - events) // max(1, self.s.now - begun)
                if banded:
                    self.moved = (self.s.hops - hops) // self.turn.cycles
                    # Turns in which little moves count.  (Where nothing has moved at all, programs have yet to send.)
                    if self.moved >= self.busy // 2 or (glances and self.worked >= much // 2):
                        slack = 0
                    elif self.s.hops != hops:
                        slack += self.s.now - begun
                    if self.automatic and slack >= (SLACK if glances else 1):
                        self.s.n_busy = slack = 0
                elif (glances and code == RUN_BREAK and self.s.now - begun >= TURN and self.worked >= much
                      and not self.s.carried):
                    self.s.n_busy = BUSY_CYCLES
                banded = not one and (not self.automatic or self.s.n_busy >= BUSY_CYCLES)
                if self.sink is not None:
                    self._report(False)
                PyErr_CheckSignals()
                if on_break is not None:
                    cycles = on_break()
        finally:
            self.running = False
            self._gather()
        if code == RUN_BREAK or code == RUN_BUSY:       # just there
            code = RUN_LIMIT
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
            self.s.traced_kinds = 0
            if self.s.checks == NULL:
                self.s.watch = NULL
            return
        for kind in self.filter.kinds:
            kinds |= <uint32_t>1 << <int>KINDS.index(kind)
        self.s.traced_kinds = kinds
        self.s.watch = self.memory.watch
        self.memory.settle()
        for k in range(<int>self.s.n_awake):            # waits count from here on
            self.s.watch[self.s.awake[k]].begin = self.s.watch[self.s.awake[k]].end = 0

    def check(self, owners, unset):
        """Check accesses to memory from now on; see `fabric.host.checks`.

        Parameters
        ----------
        owners : list of ndarray[uint16]
            Per program and word of its data the number of the variable that it belongs to, from 1; 0 = none.
        unset : list of ndarray[uint8]
            Per program and word of its data whether it has no value yet.
        """
        cdef const uint16_t[::1] owner
        cdef const unsigned char[::1] none
        cdef checks_t* c
        cdef program_t* g
        cdef shadow_t* w
        cdef int number
        cdef uint64_t k, n
        self._still("check")
        if self.s.now or self.s.checks != NULL:
            raise ConfigError("memory is checked from the beginning of a run, once", where="machine",
                              hint="fabric.check() before the first run")
        c = <checks_t*>self.memory.map(sizeof(checks_t))
        c.found = <finding_t*>self.memory.map(MOST_FINDINGS * sizeof(finding_t))
        c.of = <shadow_t**>self.memory.map(max(1, self.s.f.n_programs) * sizeof(void*))
        c.owner = <uint16_t**>self.memory.map(max(1, self.s.f.n_programs) * sizeof(void*))
        for number in range(self.s.f.n_programs):
            g = &self.s.f.programs[number]
            c.owner[number] = <uint16_t*>self.memory.map(max(1, g.data_words) * sizeof(uint16_t))
            owner = owners[number]
            none = unset[number]
            for k in range(g.data_words):
                c.owner[number][k] = owner[k]
            c.of[number] = <shadow_t*>self.memory.map(max(1, <uint64_t>g.n_pe * g.data_words) * sizeof(shadow_t))
            if np.any(unset[number]):
                for n in range(g.n_pe):
                    w = c.of[number] + n * g.data_words
                    for k in range(g.data_words):
                        if none[k]:
                            w[k].unset = 1
        self.s.checks = c
        self.s.watch = self.memory.watch

    def findings(self):
        """Return what checks of memory have found so far, as bytes of `fabric.host.checks.FINDING_DTYPE`."""
        if self.s.checks == NULL:
            return b""
        return PyBytes_FromStringAndSize(<char*>self.s.checks.found, self.s.checks.n_found * sizeof(finding_t))

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
