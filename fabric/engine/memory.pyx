# cython: overflowcheck=False
"""The memory of an engine: who owns its tables, how the host reaches SRAM, how a state is kept.

`Memory` owns the one `region_t` of an engine and every table it points to.  A table is a private no-reserve mapping, so
what no wavelet and no program touches costs nothing.  What grows during a run (streams, events) is allocated
apart; `free_buffers`, `save` and `restore` are the three places that know which these are.

`fabric.engine.load` fills the tables, `fabric.engine.inspect` reads them, `fabric.engine.engine` runs them; none of
the three is known here.
"""
import numpy as np

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from wse_core.ce cimport ce_settle
from wse_core.block cimport ce_awaken
from wse_core.float_mode cimport float_mode_enter, float_mode_leave, float_mode_t
from wse_core.bitmap cimport row_of
from wse_core.queue cimport note_commands
from wse_core.records cimport (
    ce_t, event_t, region_t, shadow_t, stream_in_t, stream_out_t, uint16_t, uint32_t, uint64_t, watch_t
)

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


cdef uint64_t* _joined(const uint64_t* old, uint64_t n, more) except NULL:
    # A buffer of its own with n words of another one and then those of an array.
    cdef const uint64_t[::1] view = np.ascontiguousarray(more, np.uint64)
    cdef uint64_t* found = <uint64_t*>malloc(max(1, (n + view.shape[0]) * sizeof(uint64_t)))
    if found == NULL:
        raise MemoryLimitError(f"the host has no memory for a stream of {n + view.shape[0]} wavelets")
    if n:
        memcpy(found, old, n * sizeof(uint64_t))
    if view.shape[0]:
        memcpy(found + n, &view[0], view.shape[0] * sizeof(uint64_t))
    return found


cdef class Memory:
    """The tables of one engine.

    Raises
    ------
    MemoryLimitError
        The host cannot map the tables.
    """

    def __cinit__(self):
        self.maps = []
        self.s = <region_t*>self.map(sizeof(region_t))

    def __dealloc__(self):
        if self.s != NULL:
            free(self.s.traced)
            self.free_buffers()
        for address, size in self.maps or ():
            munmap(<void*><size_t>address, size)

    cdef void free_buffers(self) noexcept:
        # What grows during a run and therefore is no mapping; `save` and `restore` know the same.
        cdef int k
        for k in range(self.s.n_ins):
            free(self.s.ins[k].words)
            free(self.s.ins[k].cycles)
        for k in range(self.s.n_outs):
            free(self.s.outs[k].words)
            free(self.s.outs[k].cycles)
            free(self.s.outs[k].places)

    cdef void* map(self, uint64_t size) except NULL:
        # A table of zeros, part of the state that `save` keeps.
        cdef uint64_t n = (size + 4095) & ~<uint64_t>4095
        cdef void* p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
        if p == <void*><size_t>MAP_FAILED:
            raise MemoryLimitError(f"the host cannot map {n / 2**20:.0f} MiB for the fabric's tables; "
                                   "simulate a smaller rectangle or raise the limit on address space")
        self.maps.append((<size_t>p, n))
        return p

    cdef void* share(self, uint64_t size) except NULL:
        # A table of zeros most of which will be touched; beside others in large pages, where a run touches more small
        # ones than the host's address translation holds.  Gain: a 25th of a decode step where all small tables did.
        cdef uint64_t n = (size + 63) & ~<uint64_t>63
        cdef char* p
        if not SHARED_FROM <= self.s.f.n_cells < SHARED_TO or n >= LARGE_PAGE:
            return self.map(size)
        if self.left < n:
            p = <char*>self.map(POOL + LARGE_PAGE)
            self.pool = <char*>((<uint64_t>p + LARGE_PAGE - 1) & ~<uint64_t>(LARGE_PAGE - 1))
            self.left = POOL
            large_pages(self.pool, POOL)
        p = self.pool
        self.pool += n
        self.left -= n
        return p

    cdef cells(self, map_t* maps, int n):
        # Empty sets of cells in one mapping.
        cdef uint64_t size = self.s.f.n_words + self.s.f.n_rows
        cdef uint64_t* at = <uint64_t*>self.map(n * size * sizeof(uint64_t))
        cdef int k
        for k in range(n):
            maps[k].bits = at + k * size
            maps[k].top = maps[k].bits + self.s.f.n_words

    # --- host access --------------------------------------------------------------------------------------------------
    cdef uint32_t cell(self, int x, int y):
        return <uint32_t>((y + 1) * <int>self.s.f.stride + x + 1)

    cdef ce_t* ce(self, int x, int y) except NULL:
        # The CE of a PE, its counters booked up to now.
        if not (0 <= x < self.s.f.width and 0 <= y < self.s.f.height):
            raise ConfigError(f"PE ({x}, {y}) is outside the {self.s.f.width} x {self.s.f.height} rectangle")
        cdef ce_t* ce = self.s.f.ce[self.cell(x, y)]
        if ce == NULL:
            raise ConfigError(f"PE ({x}, {y}) has no program")
        if ce.prog == NULL:
            ce_awaken(self.s, self.cell(x, y))
        cdef float_mode_t was = float_mode_enter()
        ce_settle(self.s, self.cell(x, y))
        float_mode_leave(was)
        return ce

    cdef void settle(self) noexcept:
        # Have every CE do what it has put off: elements of bulk operations, the booking of cycles.
        cdef float_mode_t was = float_mode_enter()
        cdef uint32_t k
        for k in range(self.s.n_awake):
            ce_settle(self.s, self.s.awake[k])
        float_mode_leave(was)

    cdef uint16_t* words(self, int x, int y, int address, int count) except NULL:
        # SRAM words of one PE, none outside its data.
        cdef ce_t* ce = self.ce(x, y)
        cdef int at = address - <int>ce.prog.code_words
        if at < 0 or count < 0 or at + count > <int>ce.prog.data_words:
            raise SramFault(f"host access to words {address} .. {address + count - 1} of PE ({x}, {y}): its program "
                            f"declares data in {ce.prog.code_words} .. {ce.prog.code_words + ce.prog.data_words - 1}",
                            x=x, y=y, cycle=self.s.now, address=address)
        return ce.sram + at

    def read_words(self, int x, int y, int address, int count):
        """Return `count` words of one PE's SRAM (uint16)."""
        cdef uint16_t* at = self.words(x, y, address, count)
        out = np.empty(count, np.uint16)
        cdef uint16_t[::1] view = out
        if count:
            memcpy(&view[0], at, 2 * count)
        return out

    cdef void given(self, int x, int y, int address, int count) noexcept:
        # While memory is checked: these words have a value now.
        cdef ce_t* ce = self.s.f.ce[self.cell(x, y)]
        cdef shadow_t* w
        cdef int k
        if self.s.checks == NULL:
            return
        w = self.s.checks.of[self.s.f.program_of[self.cell(x, y)]] + address - <int>ce.prog.code_words
        w += (<char*>ce - ce.prog.blocks) // <int64_t>ce.prog.block_bytes * ce.prog.data_words
        for k in range(count):
            w[k].unset = 0

    def write_words(self, int x, int y, int address, words):
        """Write words (uint16) into one PE's SRAM."""
        cdef const uint16_t[::1] view = np.ascontiguousarray(words, np.uint16)
        cdef uint16_t* at = self.words(x, y, address, view.shape[0])
        if view.shape[0]:
            memcpy(at, &view[0], 2 * view.shape[0])
            self.given(x, y, address, view.shape[0])

    def read_rect(self, int address, int count, int x, int y, int w, int h):
        """Return the words of every PE of a rectangle, shape (h, w, count)."""
        out = np.empty((h, w, count), np.uint16)
        cdef uint16_t[:, :, ::1] view = out
        cdef int i, j
        if count:
            for j in range(h):
                for i in range(w):
                    memcpy(&view[j, i, 0], self.words(x + i, y + j, address, count), 2 * count)
        return out

    def write_rect(self, int address, words, int x, int y):
        """Write words of shape (h, w, count) into the rectangle whose corner is (x, y)."""
        cdef const uint16_t[:, :, ::1] view = np.ascontiguousarray(words, np.uint16)
        cdef int i, j
        if view.shape[2]:
            for j in range(view.shape[0]):
                for i in range(view.shape[1]):
                    memcpy(self.words(x + i, y + j, address, view.shape[2]), &view[j, i, 0], 2 * view.shape[2])
                    self.given(x + i, y + j, address, view.shape[2])

    cdef stream_in_t* input_at(self, int index) except NULL:
        if not 0 <= index < self.s.n_ins:
            raise ConfigError(f"input stream {index} does not exist; there are {self.s.n_ins}")
        return &self.s.ins[index]

    cdef stream_out_t* output_at(self, int index) except NULL:
        if not 0 <= index < self.s.n_outs:
            raise ConfigError(f"output stream {index} does not exist; there are {self.s.n_outs}")
        return &self.s.outs[index]

    def push_input(self, int index, payload, control=None, cycles=None):
        """Append wavelets (uint32 payloads, optional control flags, optional first cycles) to an input stream."""
        cdef stream_in_t* i = self.input_at(index)
        values = np.asarray(payload, np.uint32).astype(np.uint64).ravel()
        if control is not None:
            control = np.asarray(control, bool)
            values |= control.astype(np.uint64) << np.uint64(32)
        due = np.zeros(len(values), np.uint64) if cycles is None else np.array(cycles, np.uint64).ravel()
        if len(due) != len(values):
            raise ConfigError(f"{len(due)} cycles given for {len(values)} wavelets of input stream {index}")
        if i.at < i.n and len(due):
            due[0] = max(due[0], np.uint64(i.cycles[i.n - 1]))
        due = np.maximum.accumulate(due)
        if control is not None and control.any():
            note_commands(self.s, i.color)
        # What has entered goes, if nobody wants to know when it did; the rest moves to the front.
        cdef uint64_t gone = i.told if i.logged else i.at, left = i.n - gone
        i.logged = i.logged or cycles is not None
        cdef uint64_t* words = _joined(i.words + gone, left, values)
        cdef uint64_t* first
        try:
            first = _joined(i.cycles + gone, left, due)
        except MemoryLimitError:
            free(words)
            raise
        free(i.words)
        free(i.cycles)
        i.words, i.cycles = words, first
        i.at -= gone
        i.told = 0
        i.n = left + <uint64_t>len(values)
        if i.at < i.n and not i.awake:
            i.awake = True
            self.s.rows[row_of(&self.s.f.grid, i.cell)].n_awake += 1

    def entered(self, int index):
        """Return the cycles (int64) in which words of an input stream entered since the last call."""
        cdef stream_in_t* i = self.input_at(index)
        i.logged = True
        found = np.empty(i.at - i.told, np.int64)
        cdef int64_t[::1] view = found
        if view.shape[0]:
            memcpy(&view[0], i.cycles + i.told, view.shape[0] * 8)
        i.told = i.at
        return found

    def limit_output(self, int index, cycles):
        """Let the host take a wavelet per entry of `cycles`, none before that cycle; None: all that comes."""
        cdef stream_out_t* o = self.output_at(index)
        cdef uint64_t left
        cdef uint64_t* places
        if cycles is None:
            free(o.places)
            o.places, o.n_places, o.at = NULL, 0, 0
            return
        if o.places == NULL:
            o.n_places = o.at = 0
        left = o.n_places - o.at
        more = np.array(cycles, np.uint64).ravel()
        if left and len(more):
            more[0] = max(more[0], np.uint64(o.places[o.n_places - 1]))
        places = _joined(o.places + o.at, left, np.maximum.accumulate(more))
        free(o.places)
        o.places, o.n_places, o.at = places, left + <uint64_t>len(more), 0

    def pop_output(self, int index):
        """Return (cycles, payloads, controls) that arrived at an output stream since the last call."""
        cdef stream_out_t* o = self.output_at(index)
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

    # --- keeping a state ----------------------------------------------------------------------------------------------
    def save(self):
        """Return the whole state, for `restore` of this very object; costs what the engine has touched."""
        cdef int k
        parts = []
        for number, (address, size) in enumerate(self.maps):
            parts += [(number, first, data) for first, data in _touched_pages(address, size)]
        streams = []
        for k in range(self.s.n_ins):
            streams.append(_bytes_of(self.s.ins[k].words, self.s.ins[k].n))
            streams.append(_bytes_of(self.s.ins[k].cycles, self.s.ins[k].n))
        for k in range(self.s.n_outs):
            streams.append(_bytes_of(self.s.outs[k].words, self.s.outs[k].n))
            streams.append(_bytes_of(self.s.outs[k].cycles, self.s.outs[k].n))
            streams.append(None if self.s.outs[k].places == NULL
                           else _bytes_of(self.s.outs[k].places, self.s.outs[k].n_places))
        return {"maps": len(self.maps), "parts": parts, "streams": streams}

    def restore(self, saved):
        """Go back to a state that `save` of this object returned; events not yet reported are dropped."""
        cdef int k, at = 0
        cdef const unsigned char[::1] view
        if saved["maps"] != len(self.maps):
            raise ConfigError("a state of another machine cannot be restored")
        cdef event_t* traced = self.s.traced
        cdef uint64_t room = self.s.room_traced
        cdef watch_t* watch = self.s.watch
        self.free_buffers()
        for address, size in self.maps:
            madvise(<void*><size_t>address, size, MADV_DONTNEED)
        for number, first, data in saved["parts"]:
            view = data
            memcpy(<void*><size_t>(self.maps[number][0] + first), &view[0], view.shape[0])
        for k in range(self.s.n_ins):
            self.s.ins[k].words = _buffer(saved["streams"][at])
            self.s.ins[k].cycles = _buffer(saved["streams"][at + 1])
            at += 2
        for k in range(self.s.n_outs):
            self.s.outs[k].words = _buffer(saved["streams"][at])
            self.s.outs[k].cycles = _buffer(saved["streams"][at + 1])
            self.s.outs[k].room = self.s.outs[k].n
            if saved["streams"][at + 2] is None:
                self.s.outs[k].places = NULL
            else:
                self.s.outs[k].places = _joined(NULL, 0, np.frombuffer(saved["streams"][at + 2], np.uint64))
            at += 3
        self.s.traced, self.s.room_traced, self.s.n_traced = traced, room, 0
        self.s.watch = watch            # who records now goes on, who does not does not begin
