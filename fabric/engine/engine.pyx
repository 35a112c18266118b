# cython: overflowcheck=False
"""The compiled machine: owns the tables of `wse_core.state`, runs the cycle loop, gives the host access.

`Engine` implements the machine interface of docs/internals.md.  It is single-owner: one thread per Engine.  The cycle
loop runs without the GIL and comes back every few million events to let Python see a Ctrl-C.

Memory: every table is a private no-reserve mapping, so what no wavelet and no program touches costs nothing: an idle PE
costs its bits in the activity maps.  SRAM is backed for the words that the program declares (code is kept once per
program).

Phases of a cycle, in this order: `router_phase`, `ce_phase`; see docs/machine.md.  If in a cycle no wavelet moved and
none is under way, time jumps to the next cycle in which a CE has something to do: nothing active costs nothing.
"""
import numpy as np

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint8_t, uint16_t, int16_t, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from wse_core cimport traced_ce, traced_router
from wse_core.ce cimport ce_phase, ce_settle
from wse_core.router cimport refresh_shared, router_phase
from wse_core.state cimport *

from wse_core.events import EVENT_DTYPE, KINDS, TraceFilter
from wse_core import image as _image
from wse_core import isa as _isa
from wse_core.errors import ConfigError, InternalError, MemoryLimitError, SramFault

cdef extern from "sys/mman.h" nogil:
    void* mmap(void* addr, size_t length, int prot, int flags, int fd, int64_t offset)
    int munmap(void* addr, size_t length)
    int mincore(void* addr, size_t length, unsigned char* vec)
    int madvise(void* addr, size_t length, int advice)
    enum:
        PROT_READ
        PROT_WRITE
        MAP_PRIVATE
        MAP_ANONYMOUS
        MAP_NORESERVE
        MAP_FAILED
        MADV_DONTNEED

cdef extern from *:
    """
    #ifdef MADV_HUGEPAGE
    #define WSE_LARGE_PAGES(p, n) madvise(p, n, MADV_HUGEPAGE)
    #else
    #define WSE_LARGE_PAGES(p, n) ((void)(p), (void)(n))
    #endif
    """
    void large_pages "WSE_LARGE_PAGES"(void* addr, size_t length) noexcept nogil

cdef enum:
    RUN_LIMIT = 0
    RUN_QUIET = 1           # nothing can ever change
    RUN_FAULT = 2
    RUN_BREAK = 3           # let Python look for signals
    EVENTS_PER_BREAK = 2000000
    REPORT = 1 << 19        # events that are reported together
    REFRESH = 1 << 28       # cycles between sweeps of stamps and counters; stamps older than that are rewritten
    AHEAD = 1 << 22         # cycles that a CE may run ahead of the clock
    LARGE = 1 << 30         # bytes of all PEs up to which they lie in large pages: what these can waste at most

FAULT_KINDS = ("none", "sram_range", "sram_align", "program", "queue", "collision", "memory")
FAULT_DETAILS = ("", "a DSR that holds no descriptor", "a DSR whose descriptor cannot stand in this place",
                 "fabric operands that pack differently", "trap", "calls nested too deeply", "return without a call",
                 "a circular buffer or FIFO of length 0", "dfilt needs a fabric input and must be asynchronous",
                 "an activated task without an entry", "a queue, color or filter that the program has not bound",
                 "the program ran off its end", "an asynchronous operation from whose operands no microthread follows",
                 "two sources of one operation from the same queue or FIFO")
THREADS = tuple(f"ut{k}" for k in range(8)) + ("main",)

if (sizeof(desc_t) != _image.DESC_DTYPE.itemsize or sizeof(route_t) != _image.ROUTE_DTYPE.itemsize
        or sizeof(filter_t) != _image.FILTER_DTYPE.itemsize):
    raise InternalError("state.pxd and image.py disagree about a record; rebuild the extension modules")
if _isa.FORMS != ("none", "alu", "dfilt", "ldi", "ld", "st", "br", "jmp", "task", "dsr", "tsc", "rand", "route",
                  "in_td", "flt"):
    raise InternalError("ce.pyx and isa.py disagree about the instruction forms; rebuild the extension modules")


cdef int run_cycles(state_t* s, uint64_t limit) noexcept nogil:
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
            next = next_wake(s)
            if s.fault.kind and (next == 0 or next > s.fault.cycle):
                next = s.fault.cycle        # found by a CE that ran ahead
            if next == 0:
                return RUN_QUIET
            s.now = min(next, limit, s.next_refresh)
        if s.events >= stop or s.n_traced >= REPORT:
            return RUN_BREAK
    return RUN_LIMIT

cdef uint64_t next_wake(state_t* s) noexcept nogil:
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
                if s.wheel_time[cell] == s.now + k:
                    return s.now + k
                cell = s.wheel_next[cell]
        if best == 0:                   # all of them more than a turn of the wheel ahead
            for bucket in range(WHEEL):
                cell = s.wheel_head[bucket]
                while cell:
                    t = s.wheel_time[cell]
                    if best == 0 or t < best:
                        best = t
                    cell = s.wheel_next[cell]
    return best

cdef inline void refresh_words(uint64_t* words, uint64_t n, uint64_t now) noexcept nogil:
    # Rewrite stamps older than a quarter of the range as that old.
    cdef uint64_t k
    cdef uint64_t old = (now - REFRESH) << SHIFT_STAMP
    cdef uint64_t low = (<uint64_t>1 << SHIFT_STAMP) - 1
    for k in range(n):
        if words[k] and usable(words[k], now - REFRESH):
            words[k] = (words[k] & low) | old

cdef void counts_fold(state_t* s, uint32_t cell) noexcept nogil:
    # Move the counters of a CE to where they have 64 bits. A CE books at most 8 per cycle, and never more than AHEAD
    # cycles ahead, so 32 bits are enough for what happens between two sweeps.
    cdef uint32_t* now = &s.ce[cell].busy
    cdef uint64_t* sums = s.counts + <uint64_t>cell * N_COUNTS
    cdef int k
    if s.watch != NULL:
        traced_ce.ce_settle(s, cell)
    else:
        ce_settle(s, cell)
    for k in range(N_COUNTS):
        sums[k] += now[k]
        now[k] = 0

cdef void stamps_refresh(state_t* s) noexcept nogil:
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
            for cell in range(s.n_cells):
                if p.tail[cell] or p.heads[cell] or p.slots[<uint64_t>cell * p.depth]:
                    refresh_words(p.slots + <uint64_t>cell * p.depth, p.depth, s.now)
    for w in range(s.n_awake):
        ce = s.ce[s.awake[w]]
        for q in range(<uint32_t>ce.prog.n_inq):
            i = inq_at(ce, q)
            refresh_words(i.slots, i.cap, s.now)
        counts_fold(s, s.awake[w])
    s.next_refresh = s.now + s.sweep


# --- keeping a state --------------------------------------------------------------------------------------------------
cdef inline bint _holds_something(const unsigned char* there, size_t address, size_t k) noexcept:
    # Whether 4 KiB page k of a mapping is in memory and not all zero (a large page brings many that are).
    cdef const uint64_t* words = <const uint64_t*><size_t>(address + k * 4096)
    cdef int i
    if there[k] & 1:
        for i in range(512):
            if words[i]:
                return True
    return False

cdef list _touched_pages(size_t address, size_t size):
    # [(offset, bytes)] of the parts of a mapping that hold something; the others were never written, or are zero again.
    cdef size_t pages = size // 4096, k = 0, first
    cdef unsigned char[::1] there = np.zeros(pages, np.uint8)
    found = []
    if mincore(<void*>address, size, &there[0]) != 0:
        raise InternalError("the host does not say which pages are in memory")
    while k < pages:
        if not _holds_something(&there[0], address, k):
            k += 1
            continue
        first = k
        while k < pages and _holds_something(&there[0], address, k):
            k += 1
        found.append((first * 4096, PyBytes_FromStringAndSize(<char*>(address + first * 4096), (k - first) * 4096)))
    return found

cdef bytes _bytes_of(uint64_t* words, uint64_t n):
    return PyBytes_FromStringAndSize(<char*>words, n * sizeof(uint64_t)) if n else b""

cdef uint64_t* _buffer(bytes data) except? NULL:
    # A buffer of its own with these bytes; NULL for none.
    cdef uint64_t* found
    cdef const unsigned char[::1] view = data
    if not data:
        return NULL
    found = <uint64_t*>malloc(len(data))
    if found == NULL:
        raise MemoryLimitError("the host has no memory for the streams of a saved state")
    memcpy(found, &view[0], len(data))
    return found


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

    cdef state_t* s
    cdef list maps              # (address, bytes) of every mapping
    cdef watch_t* watch         # kept when recording ends
    cdef object sink, filter
    cdef bint running
    cdef readonly object spec
    cdef readonly int64_t cycle_offset
    cdef readonly str status

    def __cinit__(self, spec, order=0, sweep=REFRESH):
        self.maps = []
        self.s = <state_t*>self._map(sizeof(state_t))

    def __init__(self, spec, order=0, sweep=REFRESH):
        self.spec = spec
        self.s.order = order
        self.status = "new"
        self._params(spec.machine)
        self._tables(spec)
        self._routes(spec)
        self._programs(spec)
        self._planes(spec)
        self._streams(spec)
        self.s.last_active = -1
        self.s.next_refresh = self.s.sweep = sweep

    def __dealloc__(self):
        if self.s != NULL:
            free(self.s.traced)
            self._free_buffers()
        for address, size in self.maps or ():
            munmap(<void*><size_t>address, size)

    cdef void _free_buffers(self) noexcept:
        # What grows during a run and therefore is no mapping; `save_state` and `restore_state` know the same.
        cdef int k
        for k in range(RING):
            free(self.s.later[k].items)
        for k in range(self.s.n_ins):
            free(self.s.ins[k].words)
        for k in range(self.s.n_outs):
            free(self.s.outs[k].words)
            free(self.s.outs[k].cycles)

    cdef void* _map(self, uint64_t size) except NULL:
        cdef uint64_t n = (size + 4095) & ~<uint64_t>4095
        cdef void* p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
        if p == <void*><size_t>MAP_FAILED:
            raise MemoryLimitError(f"the host cannot map {n / 2**20:.0f} MiB for the fabric's tables; "
                                   "simulate a smaller rectangle or raise the limit on address space")
        self.maps.append((<size_t>p, n))
        return p

    # --- building ---------------------------------------------------------------------------------------------------
    def _params(self, machine):
        cdef params_t* p = &self.s.p
        p.hop = machine["router.hop"]
        p.ramp_in = machine["ramp.in"]
        p.ramp_out = machine["ramp.out"]
        p.execute = machine["ramp.execute"]
        p.task_start = machine["task.start"]
        p.round_robin = machine["task.priority_rule"] == "round_robin"
        p.drain = machine["vec.drain"]
        p.start = machine["vec.start"]
        p.stride4 = machine["vec.stride4_lanes"]
        p.banks = machine["mem.banks"]
        p.conflict_rule = ("none", "mod4", "bank").index(machine["mem.conflict_rule"])
        p.conflict_cycles = machine["mem.conflict_cycles"]
        p.write_cycles = machine["mem.write_cycles"]
        p.read_ports = machine["mem.read_ports"]
        p.taken = machine["ce.branch_taken"]
        p.not_taken = machine["ce.branch_not_taken"]
        p.call = machine["ce.call"]
        p.ret = machine["ce.ret"]
        p.prng_steps = machine["prng.steps"]
        p.tsc_mask = (1 << machine["tsc.bits"]) - 1

    def _tables(self, spec):
        cdef state_t* s = self.s
        s.width = spec.width
        s.height = spec.height
        s.stride = spec.width + 2
        s.n_cells = s.stride * (spec.height + 2)
        s.n_words = (s.n_cells + 63) // 64
        s.n_words2 = (s.n_words + 63) // 64
        s.n_words3 = (s.n_words2 + 63) // 64
        s.delta[DIR_W] = -1
        s.delta[DIR_E] = 1
        s.delta[DIR_N] = -<int32_t>s.stride
        s.delta[DIR_S] = <int32_t>s.stride
        s.shared = <uint32_t*>self._map(s.n_cells * sizeof(uint32_t))
        s.arb_bits = <uint64_t*>self._map(s.n_words * sizeof(uint64_t))
        s.arb_bits2 = <uint64_t*>self._map(s.n_words2 * sizeof(uint64_t))
        s.arb = <uint32_t*>self._map(<uint64_t>s.n_cells * 2 * sizeof(uint32_t))
        s.ce = <ce_t**>self._map(s.n_cells * sizeof(ce_t*))
        self.watch = <watch_t*>self._map(s.n_cells * sizeof(watch_t))
        s.counts = <uint64_t*>self._map(<uint64_t>s.n_cells * N_COUNTS * sizeof(uint64_t))
        s.ring_bits = <uint64_t*>self._map(<uint64_t>RING * s.n_words * sizeof(uint64_t))
        s.ring_bits2 = <uint64_t*>self._map(<uint64_t>RING * s.n_words2 * sizeof(uint64_t))
        s.ring_bits3 = <uint64_t*>self._map(<uint64_t>RING * s.n_words3 * sizeof(uint64_t))
        s.wheel_next = <uint32_t*>self._map(s.n_cells * sizeof(uint32_t))
        s.wheel_prev = <uint32_t*>self._map(s.n_cells * sizeof(uint32_t))
        s.wheel_time = <uint64_t*>self._map(s.n_cells * sizeof(uint64_t))

    def _routes(self, spec):
        # Route words, vectorised over bands of rows; only rows that use a color are written.
        cdef state_t* s = self.s
        cdef uint64_t[:, ::1] words
        cdef int c, y
        queue_slots = self._queue_slots(spec)
        for c, table in sorted(spec.routes.items()):
            s.route[c] = <uint64_t*>self._map(s.n_cells * sizeof(uint64_t))
            s.shared_bits[c] = <uint64_t*>self._map(s.n_words * sizeof(uint64_t))
            for band in self._bands():
                words = self._route_words(table[band], queue_slots[:, c][spec.program_index[band]],
                                          band.start == 0, band.stop == spec.height)
                for y in range(words.shape[0]):
                    if np.any(words[y]):
                        memcpy(s.route[c] + <uint64_t>(band.start + y + 1) * s.stride + 1, &words[y, 0],
                               s.width * sizeof(uint64_t))
        s.injects = any(table["inject"].any() for table in spec.routes.values())
        self._mark_shared(spec)
        if spec.filters is not None:
            self._filters(spec)

    def _bands(self):
        # Bands of rows: what is computed for one of them is small, whatever the size of the fabric.
        return [slice(y, min(y + 16, self.s.height)) for y in range(0, self.s.height, 16)]

    def _route_words(self, table, slot, first, last):
        # Route words of some rows; first, last: those at the edges of the rectangle are among them.
        word = np.zeros(table.shape, np.uint64)
        for k in range(4):
            valid = (table["valid"] >> k & 1).astype(np.uint64)     # an invalid position has no inputs and no outputs
            word |= valid * table["rx"][..., k] << np.uint64(10 * k)
            word |= valid * table["tx"][..., k] << np.uint64(10 * k + 5)
        for name, shift in (("pos", RT_POS), ("valid", RT_VALID), ("ring", RT_RING), ("pop", RT_POP),
                            ("teardown", RT_TEARDOWN), ("filter", RT_FILTER), ("swap", RT_SWAP_X),
                            ("inject", RT_INJECT)):
            word |= table[name].astype(np.uint64) << np.uint64(shift)
        word |= np.where(slot >= 0,
                         slot.astype(np.uint64) << np.uint64(RT_INQ) | np.uint64(<uint64_t>1 << RT_HAS_INQ),
                         np.uint64(0))
        special = (table["filter"] != 0) | (table["swap"] != 0) | (table["inject"] != 0)
        leaves = np.bitwise_or.reduce(np.where(table["valid"][..., None] >> np.arange(4) & 1, table["tx"], 0), -1)
        for d, edge in ((DIR_W, np.s_[:, :1]), (DIR_E, np.s_[:, -1:]),
                        (DIR_N, np.s_[:first]), (DIR_S, np.s_[len(special) - last:])):
            special[edge] |= leaves[edge] >> d & 1 != 0
        return np.ascontiguousarray(word | special.astype(np.uint64) << np.uint64(RT_SPECIAL))

    def _queue_slots(self, spec):
        # Place of the input queue of each color in the CE blocks of each program; last row: no program.
        slots = np.full((len(spec.programs) + 1, N_COLORS), -1, np.int64)
        for g, program in enumerate(spec.programs):
            bound = [q for q, color in enumerate(program.inq_color) if color >= 0]
            for k, q in enumerate(bound):
                slots[g, program.inq_color[q]] = k
        return slots

    def _mark_shared(self, spec):
        # refresh_shared for every cell that two colors or an arbitrated color use; the rest needs none.
        cdef state_t* s = self.s
        cdef uint32_t cell
        for band in self._bands():
            count = np.zeros((band.stop - band.start, spec.width), np.uint8)
            for table in spec.routes.values():
                table = table[band]
                used = table["valid"] != 0
                rx = np.bitwise_or.reduce(np.where(table["valid"][..., None] >> np.arange(4) & 1, table["rx"], 0), -1)
                many = ((rx & (rx - 1)) != 0) | (table["swap"] != 0) | (table["inject"] != 0)
                count += used + 2 * many.astype(np.uint8)
            for at in np.flatnonzero(count > 1):
                cell = <uint32_t>((band.start + at // spec.width + 1) * s.stride + at % spec.width + 1)
                refresh_shared(s, cell)

    def _filters(self, spec):
        cdef state_t* s = self.s
        cdef const unsigned char[::1] raw
        cdef uint32_t cell
        s.filters = <filter_t*>self._map(<uint64_t>s.n_cells * N_FILTERS * sizeof(filter_t))
        n = spec.filters.shape[2]
        for y, x in np.argwhere((spec.filters["kind"] != 0).any(-1)):
            raw = np.frombuffer(np.ascontiguousarray(spec.filters[y, x]).tobytes(), np.uint8)
            cell = self._cell(x, y)
            memcpy(&s.filters[<uint64_t>cell * N_FILTERS], &raw[0], n * sizeof(filter_t))

    def _programs(self, spec):
        cdef state_t* s = self.s
        cdef program_t* g
        cdef int k
        cdef uint32_t index
        cdef int64_t at
        cdef uint64_t room = 0
        cdef const int64_t[::1] cells
        cdef const uint16_t[::1] values
        s.n_programs = len(spec.programs)
        s.programs = <program_t*>self._map(max(1, s.n_programs) * sizeof(program_t))
        s.program_of = <int16_t*>self._map(s.n_cells * sizeof(int16_t))
        s.awake = <uint32_t*>self._map(s.n_cells * sizeof(uint32_t))
        s.seed = spec.machine["prng.seed"]
        depths = spec.machine["queue.in_depth"]
        for k in range(8):
            s.in_caps[k] = depths[k] + spec.machine["ramp.in_buffer"]
        for number, program in enumerate(spec.programs):
            g = &s.programs[number]
            cells = self._cells_of(spec, number)
            self._program(number, program, spec.machine)
            g.n_pe = cells.shape[0]
            if g.n_pe == 0:
                continue
            g.active = program.active
            g.blocked = program.blocked
            ce_layout(s, g)
            g.blocks = <char*>self._map(g.n_pe * g.block_bytes)
            g.sram = <uint16_t*>self._map(max(1, <uint64_t>g.n_pe * g.data_words * 2))
            room += g.n_pe * (g.block_bytes + <uint64_t>g.data_words * 2)
            if room <= LARGE:
                # Each PE touches pages of its own, more of them than the host's address translation holds. Gain: a
                # sixth for chains over 128 x 128 PEs, a tenth over 64 x 64.
                large_pages(g.blocks, g.n_pe * g.block_bytes)
                large_pages(g.sram, <uint64_t>g.n_pe * g.data_words * 2)
            for index in range(g.n_pe):
                at = cells[index]
                s.ce[at] = <ce_t*>(g.blocks + index * g.block_bytes)
                s.program_of[at] = number
                if g.active & ~g.blocked:
                    schedule(s, <uint32_t>at, s.now, s.now)
            for address, words in program.data:
                values = np.ascontiguousarray(words, np.uint16)
                for index in range(g.n_pe):
                    memcpy(g.sram + <uint64_t>index * g.data_words + (<int>address - <int>g.code_words), &values[0],
                           2 * values.shape[0])

    def _cells_of(self, spec, number):
        # Cells of the PEs that run a program, in row-major order.
        y, x = np.nonzero(spec.program_index == number)
        return (y.astype(np.int64) + 1) * self.s.stride + x + 1

    def _program(self, number, program, machine):
        # Decode one image into a program_t.
        cdef state_t* s = self.s
        cdef program_t* g = &s.programs[number]
        cdef instr_t* i
        cdef int k
        cdef const unsigned char[::1] raw
        decoded = list(_isa.decode(program.code))
        index_of = {at: n for n, (at, *_) in enumerate(decoded)}
        g.n_code = len(decoded)
        g.code = <instr_t*>self._map((g.n_code + 1) * sizeof(instr_t))
        g.code_words = program.code_words
        g.data_words = program.footprint - program.code_words
        g.data_tasks = program.data_tasks
        g.high = program.high
        g.main_level = program.main_priority
        g.num.half = 1 if program.half == "cb16" else 0
        g.num.bias = machine["num.cb16_bias"]
        g.num.ftz = machine["num.ftz"]
        for k in range(32):
            g.entry[k] = index_of[int(program.entry[k])] if program.entry[k] >= 0 else -1
            g.inq_of_task[k] = -1
            if g.entry[k] >= 0:
                g.bound |= <uint32_t>1 << k
        for k in range(64):
            g.control_entry[k] = index_of[int(program.control_entry[k])] if program.control_entry[k] >= 0 else -1
        for k in range(8):
            color = program.inq_color[k] if k < len(program.inq_color) else -1
            g.inq_color[k] = color
            g.inq_slot[k] = -1
            if color >= 0:
                g.inq_slot[k] = g.n_inq
                g.inq_of_task[<int>color] = k
                g.n_inq += 1
            g.outq_color[k] = program.outq_color[k] if k < len(program.outq_color) else -1
        n_desc = len(program.descriptors)
        g.n_desc = n_desc
        g.descriptors = <desc_t*>self._map(max(1, n_desc) * sizeof(desc_t))
        if n_desc:
            raw = np.frombuffer(np.ascontiguousarray(program.descriptors).tobytes(), np.uint8)
            memcpy(g.descriptors, &raw[0], n_desc * sizeof(desc_t))
            sends = program.descriptors["kind"] == _image.DSD_FABOUT
            if (program.descriptors["flags"][sends] & (_image.F_CONTROL | _image.F_ADVANCE)).any():
                s.controls = True
            fifos = program.descriptors[program.descriptors["kind"] == _image.DSD_FIFO]
            g.n_fifo = int(fifos["xdsr"].max()) + 1 if len(fifos) else 0
        microthreads, registers = set(), set()
        for n, (at, op, a, b, c, d, imm) in enumerate(decoded):
            i = &g.code[n]
            self._instruction(i, op, a, b, c, d, imm, machine)
            if op.name == "dsr_load":
                i.gap = machine["ce.dsr_load"]
                if g.descriptors[imm].kind == _image.DSD_MEM4D:
                    i.gap += machine["ce.dsr_dimension"] * (g.descriptors[imm].ndim - 1)
            i.at = at
            i.next = n + 1
            s.reroutes |= op.name == "route"
            g.calls |= op.name in ("call", "ret")
            g.delays |= i.a >> 4 == _isa.FILE_REG if i.flags & I_VECTOR else i.latency > i.slots
            g.draws |= op.form == "rand"
            if op.form in ("jmp", "br") and op.name != "trap":
                i.target = index_of[imm]
            for f in range(3):
                registers |= {(f, k) for k in range(16) if i.dsrs[f] >> k & 1}
            if i.flags & I_ASYNC:
                named = _isa.async_fields(imm)["ut"]
                if named is None:
                    microthreads |= {k for k in range(8) if g.inq_color[k] >= 0 or g.outq_color[k] >= 0}
                else:
                    microthreads.add(named)
        i = &g.code[g.n_code]
        i.op = _isa.BY_NAME["trap"].code
        i.form = _isa.FORMS.index("jmp")
        i.slots = i.gap = 1
        i.at = 0xFFFFFFFF
        for k in sorted(microthreads):
            g.ut_at[<int>k] = 1
            g.n_ut += 1
        for f in range(3):
            for k in range(16):
                g.dsr_slot[f][k] = -1
        for f, k in sorted(registers):
            g.dsr_slot[<int>f][<int>k] = g.n_dsr
            g.n_dsr += 1

    cdef _instruction(self, instr_t* i, op, a, b, c, d, imm, machine):
        i.op = op.code
        i.form = _isa.FORMS.index(op.form)
        i.a, i.b, i.c, i.d = a, b, c, d
        i.wa, i.wb, i.wc, i.wd = (_isa.WORDS[letter] for letter in op.types)
        i.imm = imm or 0
        i.flags = I_IMM if imm is not None else 0
        slots, latency = cost_of(op, machine)
        i.slots = i.gap = slots
        i.latency = latency
        i.lanes = max(1, op.lanes[_preset_index(machine)])
        reads, writes = set(), set()

        def registers(field, words):
            return {(field & 15) + k for k in range(words)} if field >> 4 == _isa.FILE_REG else set()

        if op.form in ("alu", "dfilt"):
            fields = [(field, words) for field, words in zip((a, b, c), (i.wa, i.wb, i.wc)) if words]
            if _isa.is_vector(op, a, b, c):
                i.flags |= I_VECTOR
                if imm is not None and imm & 1:
                    i.flags |= I_ASYNC
                for field, _ in fields:
                    if field >> 4 != _isa.FILE_REG:
                        i.dsrs[<int>(field >> 4)] |= 1 << (field & 15)
            reads |= registers(b, i.wb) | registers(d, i.wd)
            if imm is None or i.flags & I_VECTOR:
                reads |= registers(c, i.wc)
            if not i.flags & I_VECTOR:
                writes |= registers(a, i.wa)
        elif op.form in ("ldi", "ld", "rand", "in_td"):
            writes |= registers(a, i.wa)
            if op.form == "ld":
                reads |= registers(b, 1)
        elif op.form == "st":
            reads |= registers(a, i.wa) | registers(b, 1)
        elif op.form == "br":
            reads |= registers(a, i.wa) | registers(b, i.wb)
        elif op.form == "tsc":
            writes |= {((a & 15) + k) & 15 for k in range(3)}
        elif op.form == "flt":
            reads |= registers(b, 1)
        elif op.form == "dsr":
            i.dsrs[<int>(a >> 4)] |= 1 << (a & 15)
            if op.name != "dsr_load" and imm is None:
                reads |= registers(b, 1)
        if op.form in ("route", "in_td", "flt"):
            i.flags |= I_REAL
        i.reads = sum(1 << r for r in reads)
        i.writes = sum(1 << r for r in writes)

    def _planes(self, spec):
        cdef state_t* s = self.s
        cdef plane_t* p
        cdef int c, port
        cdef Py_ssize_t k
        cdef const int64_t[::1] cells
        depth = spec.machine["router.depth"]
        out_depth = spec.machine["queue.out_depth"]
        for c in spec.routes:
            arbitrated = False
            for k in range(s.n_words):
                if s.shared_bits[c][k]:
                    arbitrated = True
                    break
            for port in range(N_PORTS):
                p = &s.plane[c * N_PORTS + port]
                p.color = c
                p.port = port
                p.depth = depth
                if port == DIR_R:
                    caps = {}
                    for g, program in enumerate(spec.programs):
                        for q, color in enumerate(program.outq_color):
                            if color == c:
                                caps[g] = out_depth[q] + depth
                    if not caps:
                        continue
                    p.depth = max(caps.values())
                    p.cap = <uint8_t*>self._map(s.n_cells)
                    for g, cap in caps.items():
                        cells = self._cells_of(spec, g)
                        for k in range(cells.shape[0]):
                            p.cap[cells[k]] = cap
                p.slots = <uint64_t*>self._map(<uint64_t>s.n_cells * p.depth * sizeof(uint64_t))
                p.heads = <uint64_t*>self._map(<uint64_t>s.n_cells * sizeof(uint64_t))
                if s.reroutes or arbitrated:
                    p.granted = <uint64_t*>self._map(<uint64_t>s.n_cells * sizeof(uint64_t))
                p.tail = <uint8_t*>self._map(s.n_cells)
                p.bits = <uint64_t*>self._map(s.n_words * sizeof(uint64_t))
                p.bits2 = <uint64_t*>self._map(s.n_words2 * sizeof(uint64_t))
                p.bits3 = <uint64_t*>self._map(s.n_words3 * sizeof(uint64_t))

    def _streams(self, spec):
        cdef state_t* s = self.s
        cdef int k
        s.n_ins = len(spec.inputs)
        s.n_outs = len(spec.outputs)
        s.ins = <stream_in_t*>self._map(max(1, s.n_ins) * sizeof(stream_in_t))
        s.outs = <stream_out_t*>self._map(max(1, s.n_outs) * sizeof(stream_out_t))
        for k, (x, y, d, color) in enumerate(spec.inputs):
            s.ins[k].cell = self._cell(x, y)
            s.ins[k].plane = color * N_PORTS + d
        for k, (x, y, d, color) in enumerate(spec.outputs):
            s.outs[k].cell = self._cell(x, y) + s.delta[<int>d]
            s.outs[k].color = color
            s.outs[k].port = d ^ 1
            s.plane[color * N_PORTS + (d ^ 1)].heads[s.outs[k].cell] = k + 1

    # --- host access --------------------------------------------------------------------------------------------------
    cdef uint32_t _cell(self, int x, int y):
        return <uint32_t>((y + 1) * <int>self.s.stride + x + 1)

    cdef ce_t* _ce(self, int x, int y) except NULL:
        if not (0 <= x < self.s.width and 0 <= y < self.s.height):
            raise ConfigError(f"PE ({x}, {y}) is outside the {self.s.width} x {self.s.height} rectangle")
        cdef ce_t* ce = self.s.ce[self._cell(x, y)]
        if ce == NULL:
            raise ConfigError(f"PE ({x}, {y}) has no program")
        if ce.prog == NULL:
            ce_awaken(self.s, self._cell(x, y))
        ce_settle(self.s, self._cell(x, y))
        return ce

    cdef uint16_t* _words(self, int x, int y, int address, int count) except NULL:
        cdef ce_t* ce = self._ce(x, y)
        cdef int at = address - <int>ce.prog.code_words
        if at < 0 or count < 0 or at + count > <int>ce.prog.data_words:
            raise SramFault(f"host access to words {address} .. {address + count - 1} of PE ({x}, {y}): its program "
                            f"declares data in {ce.prog.code_words} .. {ce.prog.code_words + ce.prog.data_words - 1}",
                            x=x, y=y, cycle=self.cycle, address=address)
        return ce.sram + at

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
        cdef uint16_t* at = self._words(x, y, address, count)
        out = np.empty(count, np.uint16)
        cdef uint16_t[::1] view = out
        if count:
            memcpy(&view[0], at, 2 * count)
        return out

    def write_words(self, int x, int y, int address, words):
        """Write words (uint16) into one PE's SRAM."""
        self._still("write_words")
        cdef const uint16_t[::1] view = np.ascontiguousarray(words, np.uint16)
        cdef uint16_t* at = self._words(x, y, address, view.shape[0])
        if view.shape[0]:
            memcpy(at, &view[0], 2 * view.shape[0])

    def read_rect(self, int address, int count, int x, int y, int w, int h):
        """Return the words of every PE of a rectangle, shape (h, w, count)."""
        out = np.empty((h, w, count), np.uint16)
        cdef uint16_t[:, :, ::1] view = out
        cdef int i, j
        if count:
            for j in range(h):
                for i in range(w):
                    memcpy(&view[j, i, 0], self._words(x + i, y + j, address, count), 2 * count)
        return out

    def write_rect(self, int address, words, int x, int y):
        """Write words of shape (h, w, count) into the rectangle whose corner is (x, y)."""
        self._still("write_rect")
        cdef const uint16_t[:, :, ::1] view = np.ascontiguousarray(words, np.uint16)
        cdef int i, j
        if view.shape[2]:
            for j in range(view.shape[0]):
                for i in range(view.shape[1]):
                    memcpy(self._words(x + i, y + j, address, view.shape[2]), &view[j, i, 0], 2 * view.shape[2])

    def activate(self, int task_id, int x, int y, int w, int h):
        """Set the activated bit of a task in every PE of a rectangle that has a program."""
        self._still("activate")
        cdef int i, j
        cdef uint32_t cell
        cdef ce_t* ce
        for j in range(y, y + h):
            for i in range(x, x + w):
                cell = self._cell(i, j)
                if self.s.ce[cell] != NULL:
                    ce = self._ce(i, j)
                    if not 0 <= task_id < 32 or ce.prog.entry[task_id] < 0:
                        raise ConfigError(f"task {task_id} is not bound in the program of PE ({i}, {j})")
                    ce.activated |= <uint32_t>1 << task_id
                    if self.sink is not None:
                        emit(self.s, cell, self.s.now, EV_ACTIVATE, NO_COLOR, task_id, 0, 0)
                    schedule(self.s, cell, self.s.now, self.s.now)

    def push_input(self, int index, payload, control=None):
        """Append wavelets (uint32 payloads, optional control flags) to an input stream."""
        self._still("push_input")
        cdef stream_in_t* i = &self.s.ins[index]
        values = np.asarray(payload, np.uint32).astype(np.uint64)
        if control is not None:
            control = np.asarray(control, bool)
            values |= control.astype(np.uint64) << np.uint64(32)
            if control.any():
                self.s.controls = True
        cdef const uint64_t[::1] view = np.ascontiguousarray(values)
        cdef uint64_t left = i.n - i.at
        cdef uint64_t* grown = <uint64_t*>malloc(max(1, (left + view.shape[0]) * sizeof(uint64_t)))
        if grown == NULL:
            raise MemoryLimitError(f"the host has no memory for an input stream of {left + view.shape[0]} wavelets")
        if left:
            memcpy(grown, i.words + i.at, left * sizeof(uint64_t))
        if view.shape[0]:
            memcpy(grown + left, &view[0], view.shape[0] * sizeof(uint64_t))
        free(i.words)
        i.words = grown
        i.at = 0
        i.n = left + view.shape[0]

    def pop_output(self, int index):
        """Return (cycles, payloads, controls) that arrived at an output stream since the last call."""
        self._still("pop_output")
        cdef stream_out_t* o = &self.s.outs[index]
        cycles = np.empty(o.n, np.int64)
        words = np.empty(o.n, np.uint64)
        cdef int64_t[::1] c = cycles
        cdef uint64_t[::1] v = words
        if o.n:
            memcpy(&c[0], o.cycles, o.n * 8)
            memcpy(&v[0], o.words, o.n * 8)
        o.n = 0
        return (cycles, (words & np.uint64(0xFFFFFFFF)).astype(np.uint32),
                (words >> np.uint64(32) & np.uint64(1)).astype(bool))

    # --- running ------------------------------------------------------------------------------------------------------
    cdef int _still(self, what) except -1:
        """Refuse to change a machine in which another thread is inside `run`, which does not hold the GIL."""
        if self.running:
            raise ConfigError(f"{what} while the machine runs in another thread", where="machine",
                              hint="wait for the run to end")
        return 0

    def run(self, limit):
        """Run to cycle `limit` at most; return ``limit``, ``complete``, ``stuck`` or ``fault``."""
        cdef uint64_t stop = min(int(limit), (1 << 62) - 1)
        cdef int code = RUN_BREAK
        if self.status == "fault":
            return self.status
        self._still("run")
        self.running = True
        try:
            while code == RUN_BREAK:
                with nogil:
                    code = run_cycles(self.s, stop)
                if self.sink is not None:
                    self._report(False)
                PyErr_CheckSignals()
        finally:
            self.running = False
        if code == RUN_QUIET:
            self.s.now = max(<int64_t>self.s.now, self.s.last_active) + 1
            self.status = "stuck" if self.waiters() else "complete"
        else:
            self.status = "limit" if code == RUN_LIMIT else "fault"
        return self.status

    @property
    def fault(self):
        """None, or a dict that describes the fault that stopped the run."""
        cdef fault_t* f = &self.s.fault
        if not f.kind:
            return None
        return {"kind": FAULT_KINDS[f.kind],
                "x": int(f.cell % self.s.stride) - 1, "y": int(f.cell // self.s.stride) - 1,
                "cycle": f.cycle, "address": f.address if f.kind in (FAULT_SRAM_RANGE, FAULT_SRAM_ALIGN) else None,
                "color": f.color if f.kind == FAULT_COLLISION else None, "value": f.value,
                "detail": self._collision(f.value) if f.kind == FAULT_COLLISION else FAULT_DETAILS[f.detail]}

    def _collision(self, ports):
        return "two inputs of one color in one cycle: " + " and ".join(
            _image.DIRS[k] for k in range(N_PORTS) if ports >> k & 1)

    # --- events -------------------------------------------------------------------------------------------------------
    def trace(self, sink, filter=None):
        """Report events to ``sink(events, clock)`` from now on, or no longer if `sink` is None.

        Parameters
        ----------
        sink : callable or None
            Gets an array of `wse_core.events.EVENT_DTYPE` now and then, in no order, and the cycle before which none will
            follow.
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
        self.s.watch = self.watch
        for k in range(<int>self.s.n_awake):            # waits count from here on
            ce_settle(self.s, self.s.awake[k])
            self.watch[self.s.awake[k]].begin = self.watch[self.s.awake[k]].end = 0

    cdef _report(self, bint last):
        cdef uint32_t k
        cdef const unsigned char[::1] view
        for k in range(self.s.n_awake):
            traced_ce.ce_report(self.s, self.s.awake[k], last)
        data = bytearray(self.s.n_traced * sizeof(event_t))
        if len(data):
            view = data
            memcpy(<void*>&view[0], self.s.traced, len(data))
        self.s.n_traced = 0
        events = np.frombuffer(data, EVENT_DTYPE)
        cells = events["x"].astype(np.uint32) | events["y"].astype(np.uint32) << np.uint32(16)
        rows = cells // np.uint32(self.s.stride)
        events["x"], events["y"] = cells - rows * np.uint32(self.s.stride) - 1, rows - 1
        self.sink(self.filter.chosen(events), int(self.s.now))

    # --- keeping a state ----------------------------------------------------------------------------------------------
    def save_state(self):
        """Return the whole state, for `restore_state` of this very machine; costs what the machine has touched."""
        self._still("save_state")
        cdef int k
        parts = []
        for number, (address, size) in enumerate(self.maps):
            parts += [(number, first, data) for first, data in _touched_pages(address, size)]
        streams = []
        for k in range(RING):
            streams.append(_bytes_of(self.s.later[k].items, self.s.later[k].n))
        for k in range(self.s.n_ins):
            streams.append(_bytes_of(self.s.ins[k].words, self.s.ins[k].n))
        for k in range(self.s.n_outs):
            streams.append(_bytes_of(self.s.outs[k].words, self.s.outs[k].n))
            streams.append(_bytes_of(self.s.outs[k].cycles, self.s.outs[k].n))
        return {"maps": len(self.maps), "parts": parts, "streams": streams, "status": self.status}

    def restore_state(self, saved):
        """Go back to a state that `save_state` of this machine returned."""
        self._still("restore_state")
        cdef int k, at = 0
        cdef const unsigned char[::1] view
        if saved["maps"] != len(self.maps):
            raise ConfigError("a state of another machine cannot be restored")
        cdef event_t* traced = self.s.traced
        cdef uint64_t room = self.s.room_traced
        self._free_buffers()
        for address, size in self.maps:
            madvise(<void*><size_t>address, size, MADV_DONTNEED)
        for number, first, data in saved["parts"]:
            view = data
            memcpy(<void*><size_t>(self.maps[number][0] + first), &view[0], view.shape[0])
        for k in range(RING):
            self.s.later[k].items = _buffer(saved["streams"][at])
            self.s.later[k].room = self.s.later[k].n
            at += 1
        for k in range(self.s.n_ins):
            self.s.ins[k].words = _buffer(saved["streams"][at])
            at += 1
        for k in range(self.s.n_outs):
            self.s.outs[k].words = _buffer(saved["streams"][at])
            self.s.outs[k].cycles = _buffer(saved["streams"][at + 1])
            self.s.outs[k].room = self.s.outs[k].n
            at += 2
        self.s.traced, self.s.room_traced, self.s.n_traced = traced, room, 0
        self.s.watch = self.watch if self.sink is not None else NULL
        self.status = saved["status"]

    # --- looking inside -----------------------------------------------------------------------------------------------
    def counters(self):
        """Return dict name -> uint64 array (height, width); see docs/internals.md."""
        names = ("busy", "idle", "stall_pipe", "stall_conflict", "stall_resource", "stall_input", "stall_output",
                 "stall_fifo", "instructions", "steps", "elements", "macs", "tasks", "sent", "received")
        out = np.zeros((len(names), self.s.height, self.s.width), np.uint64)
        out[1][self.spec.program_index >= 0] = self.s.now       # those that have never done anything are idle
        cdef uint64_t[:, :, ::1] v = out
        cdef int x, y, k
        cdef uint32_t n
        cdef uint32_t cell
        cdef uint64_t total, over, part
        cdef ce_t* ce
        cdef uint64_t waits[7]
        cdef uint64_t[15] sums
        for n in range(self.s.n_awake):
            cell = self.s.awake[n]
            ce = self.s.ce[cell]
            x = cell % self.s.stride - 1
            y = cell // self.s.stride - 1
            ce_settle(self.s, cell)
            for k in range(N_COUNTS):
                sums[k] = self.s.counts[<uint64_t>cell * N_COUNTS + k] + (&ce.busy)[k]
            v[0, y, x] = sums[0]
            for k in range(7):
                waits[k] = sums[6 + k]
            if ce.acct > self.s.now:            # booked ahead of the clock: conflict cycles come last
                over = ce.acct - self.s.now
                part = over if over < ce.tail_conflict else ce.tail_conflict
                waits[WAIT_CONFLICT] -= part
                over -= part
                part = over if over < v[0, y, x] else v[0, y, x]
                v[0, y, x] -= part
                over -= part
                for k in range(1, 7):           # only after a fault elsewhere stopped the clock early
                    part = over if over < waits[k] else waits[k]
                    waits[k] -= part
                    over -= part
            total = v[0, y, x]
            for k in range(1, 7):
                v[1 + k, y, x] = waits[k]
                total += waits[k]
            v[1, y, x] = self.s.now - total
            v[8, y, x] = sums[13]               # the order of ce_t
            for k in range(9, 12):
                v[k, y, x] = sums[k - 8]
            v[12, y, x] = sums[14]
            v[13, y, x] = sums[4]
            v[14, y, x] = sums[5]
        return dict(zip(names, out))

    def link_counts(self):
        """Return dict color -> uint64 (height, width, 5): wavelets that left each input port's queue."""
        result = {}
        cdef uint64_t[:, :, ::1] v
        cdef int c, p, x, y
        for c in self.spec.routes:
            out = np.zeros((self.s.height, self.s.width, N_PORTS), np.uint64)
            v = out
            for p in range(N_PORTS):
                if self.s.plane[c * N_PORTS + p].slots != NULL:
                    for y in range(self.s.height):
                        for x in range(self.s.width):
                            v[y, x, p] = self.s.plane[c * N_PORTS + p].heads[self._cell(x, y)] >> 8
            result[c] = out
        return result

    cdef list _ring(self, uint64_t* slots, int head, int cap):
        cdef int k
        out = []
        for k in range(cap):
            word = slots[(head + k) % cap]
            if not is_valid(word):
                break
            out.append((<uint32_t>word, int(is_control(word)), ready_cycle(word, self.s.now)))
        return out

    cdef list _input(self, ce_t* ce, int queue):
        cdef inq_t* q = inq_at(ce, ce.prog.inq_slot[queue])
        return self._ring(q.slots, q.head, q.cap)

    cdef list _queue(self, int c, int p, uint32_t cell):
        cdef plane_t* q = &self.s.plane[c * N_PORTS + p]
        if q.slots == NULL:
            return []
        cap = q.cap[cell] if q.cap != NULL else q.depth
        return self._ring(q.slots + <uint64_t>cell * q.depth, q.heads[cell] & HEAD, cap) if cap else []

    cdef dict _ce_snapshot(self, int x, int y):
        cdef ce_t* ce = self._ce(x, y)
        cdef program_t* g = ce.prog
        cdef int k, f
        cdef thread_t* th
        state = ("idle", "starting", "run", "vector", "fault")[ce.main_state]
        if ce.main_state == MAIN_STARTING and self.s.now > ce.next:
            state = "run"
        threads = {}
        for k in range(8):
            if ce.uts >> k & 1:
                th = ut_of(ce, k)
                threads[k] = (th.k, _length(th.n))
        if ce.main_state == MAIN_VECTOR:
            threads[MAIN] = (ce.main.k, _length(ce.main.n))
        queues = {k: self._input(ce, k) for k in range(8) if g.inq_slot[k] >= 0}
        fifos = {}
        for k in range(g.n_fifo):
            fifos[k] = self._fifo(ce, k)
        registers = {}
        for f in range(3):
            for k in range(16):
                if g.dsr_slot[f][k] >= 0 and dsr_at(ce, g.dsr_slot[f][k]).number:
                    d = dsr_at(ce, g.dsr_slot[f][k])[0]
                    registers[f, k] = (d.base, d.extent, d.stride, d.index)
        return {
            "regs": [ce.regs[k] for k in range(N_REGS)], "main": state,
            "pc": -1 if ce.main_state == MAIN_IDLE else (g.code[ce.pc].at if ce.pc < g.n_code else -1),
            "threads": threads, "activated": ce.activated, "blocked": ce.blocked,
            "inq": {k: words for k, words in queues.items() if words},
            "fifo": fifos, "dsr": registers,
            "prng": (ce.prng, [lfsr_of(ce)[k] if g.draws else self.s.seed for k in range(4)]),
        }

    cdef list _fifo(self, ce_t* ce, int number):
        cdef int k
        cdef desc_t* d
        cdef fifo_t* fifo = <fifo_t*>(<char*>ce + ce.prog.fifo_at) + number
        cdef program_t* g = ce.prog
        for k in range(<int>g.n_desc):
            d = &g.descriptors[k]
            if d.kind == _image.DSD_FIFO and d.xdsr == number and d.length:
                return [(fifo.head + k) % d.length for k in range(fifo.count)]
        return []

    def snapshot(self):
        """Return the canonical state for comparison with another machine; see docs/internals.md."""
        cdef int c, p
        cdef uint32_t cell
        cdef uint64_t word
        counters = self.counters()
        pes = {}
        for y, x in np.argwhere(self.spec.program_index >= 0).tolist():
            pes[x, y] = self._ce_snapshot(x, y)
            pes[x, y]["counters"] = {name: int(values[y, x]) for name, values in counters.items()}
        routers = {}
        for y in range(self.s.height):
            for x in range(self.s.width):
                cell = self._cell(x, y)
                entry = {}
                for c in self.spec.routes:
                    word = self.s.route[c][cell]
                    queues = {p: self._queue(c, p, cell) for p in range(N_PORTS)}
                    entry[c] = {"pos": word >> RT_POS & 3, "teardown": word >> RT_TEARDOWN & 1,
                                "queues": {p: q for p, q in queues.items() if q},
                                "moved": [self.s.plane[c * N_PORTS + p].heads[cell] >> 8
                                          if self.s.plane[c * N_PORTS + p].slots != NULL else 0
                                          for p in range(N_PORTS)]}
                if self.s.filters != NULL and self.spec.filters["kind"][y, x].any():
                    counts = [self.s.filters[<uint64_t>cell * N_FILTERS + p].counter
                              for p in range(self.spec.filters.shape[2])]
                    entry.update({-1: {"filters": counts}})
                routers[x, y] = entry
        return {"cycle": self.cycle, "pe": pes, "router": routers}

    def waiters(self):
        """Return what is left to do and why it cannot go on; see docs/internals.md."""
        cdef int c, p, k
        cdef ce_t* ce
        cdef thread_t* th
        cdef uint32_t cell
        out = []
        for cell in sorted(self._busy()):
            x, y = cell % self.s.stride - 1, cell // self.s.stride - 1
            ce = self.s.ce[cell]
            if ce.main_state == MAIN_FAULT:
                continue
            if ce.main_state == MAIN_VECTOR and not (ce.main.n == 0xFFFFFFFF and ce.main.wait == WAIT_INPUT):
                out.append(self._thread(x, y, ce, &ce.main))
            elif ce.main_state == MAIN_RUN or ce.main_state == MAIN_STARTING:
                out.append({"kind": "thread", "x": x, "y": y, "thread": "main",
                            "op": _isa.OPS[ce.prog.code[ce.pc].op].name,
                            "reason": "resource", "color": None, "queue": None, "done": 0, "length": 0})
            for k in range(8):
                if ce.uts >> k & 1:
                    th = ut_of(ce, k)
                    if not (th.n == 0xFFFFFFFF and th.wait == WAIT_INPUT):
                        out.append(self._thread(x, y, ce, th))
            for k in range(8):
                if ce.prog.inq_slot[k] >= 0:
                    words = self._input(ce, k)
                    if words:
                        out.append({"kind": "queue", "x": x, "y": y, "queue": k, "color": ce.prog.inq_color[k],
                                    "wavelets": len(words)})
            for k in range(32):
                if (ce.activated & ce.prog.bound) >> k & 1:
                    out.append({"kind": "task", "x": x, "y": y, "task": k})
        for c in self.spec.routes:
            for p in range(N_PORTS):
                for cell in self._marked(c * N_PORTS + p):
                    words = self._queue(c, p, cell)
                    if words:
                        x, y = cell % self.s.stride - 1, cell // self.s.stride - 1
                        out.append(self._stuck(x, y, c, p, len(words), words[0]))
        for k in range(self.s.n_ins):
            if self.s.ins[k].at < self.s.ins[k].n:
                out.append({"kind": "stream", "index": k, "left": self.s.ins[k].n - self.s.ins[k].at})
        return out

    cdef list _busy(self):
        # Cells whose CEs have something left to do; nothing is made for the others, of which there may be many.
        cdef uint32_t k, q
        cdef ce_t* ce
        cdef inq_t* i
        cdef bint left
        cells = []
        for k in range(self.s.n_awake):
            ce = self.s.ce[self.s.awake[k]]
            left = ce.main_state != MAIN_IDLE or ce.uts or ce.activated & ce.prog.bound
            for q in range(<uint32_t>ce.prog.n_inq):
                i = inq_at(ce, q)
                left = left or is_valid(i.slots[i.head])
            if left:
                cells.append(self.s.awake[k])
        return cells

    cdef list _marked(self, int plane):
        # Cells whose queues of this plane hold wavelets; those that wait for room are not in the activity maps.
        cdef uint32_t cell
        cdef plane_t* q = &self.s.plane[plane]
        cells = []
        if q.used:
            for cell in range(self.s.n_cells):
                if q.cap != NULL and q.cap[cell] == 0:
                    continue                    # not even looked at: reading would make it resident
                if is_valid(q.slots[<uint64_t>cell * q.depth + (q.heads[cell] & HEAD)]):
                    cells.append(cell)
        return cells

    cdef dict _thread(self, int x, int y, ce_t* ce, thread_t* th):
        reason = {WAIT_INPUT: "input", WAIT_OUTPUT: "output", WAIT_FIFO: "fifo"}.get(th.wait, "resource")
        queue = color = None
        if th.wait == WAIT_OUTPUT:
            queue, color = th.a.queue, ce.prog.outq_color[th.a.queue]
        elif th.wait == WAIT_INPUT:
            for o in (0, 1):
                if (th.b.mode if o == 0 else th.c.mode) == OPND_FABIN:
                    q = th.b.queue if o == 0 else th.c.queue
                    if not self._input(ce, q):
                        queue, color = q, ce.prog.inq_color[<int>q]
                        break
        return {"kind": "thread", "x": x, "y": y, "thread": THREADS[th.id], "op": _isa.OPS[th.op].name,
                "reason": reason, "color": color, "queue": queue, "done": th.k, "length": _length(th.n)}

    cdef dict _stuck(self, int x, int y, int c, int p, int n, head):
        cdef uint32_t cell = self._cell(x, y)
        cdef uint64_t word = self.s.route[c][cell]
        cdef int pos = word >> RT_POS & 3
        cdef int d
        cdef uint32_t tx = (word >> (10 * pos + 5)) & 31
        cdef plane_t* q
        cdef inq_t* i
        reason, blocked = "room", []
        if word >> RT_TEARDOWN & 1:
            reason = "teardown"
        elif word >> RT_INJECT & 3:
            reason = "inject"
        elif not word >> (10 * pos + p) & 1:
            reason = "rx"
        if reason == "room" or reason == "inject":
            for d in range(N_PORTS):
                if not tx >> d & 1:
                    continue
                if d == DIR_R:
                    if not word >> RT_HAS_INQ & 1:
                        blocked.append(d)
                    else:
                        i = inq_at(self.s.ce[cell], word >> RT_INQ & 7)
                        if is_valid(i.slots[i.tail]):
                            blocked.append(d)
                else:
                    q = &self.s.plane[c * N_PORTS + (d ^ 1)]
                    if q.slots == NULL or is_valid(plane_tail(q, cell + self.s.delta[d])[0]):
                        blocked.append(d)
        return {"kind": "router", "x": x, "y": y, "color": c, "port": p, "wavelets": n, "reason": reason,
                "blocked": blocked}


def cost_of(op, machine):
    """Return (issue slots, cycles from issue to use of the result) of a scalar instruction on `machine`."""
    one = {"int": "ce.int_latency", "fp": "ce.fp_latency", "load": "ce.load_latency"}
    many = {"divide": "ce.divide", "dsr_edit": "ce.dsr_edit", "tsc": "ce.tsc_read", "config": "ce.config"}
    if op.cost in one:
        return 1, machine[one[op.cost]]
    if op.cost in many:
        return machine[many[op.cost]], machine[many[op.cost]]
    return 1, 1


cdef int _length(uint32_t n):
    # The length of an operation as its descriptor has it.
    return _image.ENDLESS if n == 0xFFFFFFFFU else n


def _preset_index(machine):
    return ("wse2", "wse3").index(machine.preset)
