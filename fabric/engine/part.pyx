# cython: overflowcheck=False
"""A part of a fabric: the rows of one rank, and what crosses its two borders.

Each rank has an engine with the places of the whole fabric, of which it advances its own rows only.  The row beyond a
border is the neighbour's; of it this rank keeps the queues into which its own routers push.  Two things cross a border,
and both are stamped for a later cycle, as everything is that happens in one:

* a wavelet that a router of the border row has pushed into a queue of the neighbour: the queue word as it stands,
* a wavelet that left a queue of the border row which the neighbour fills: a free place, and who waits for it is woken.

A wake-up is no third thing: who waits marks its own copy of the queue, and hears when the place becomes free there.
The row beyond the border is never advanced, so its activity maps hold exactly what was pushed since the last exchange.

Timing: what happens in cycle t is seen in t + 1 at the earliest, so two ranks exchange after each cycle in which
something may cross.  `give` says with its message the first cycle in which that may be so again: what is active k rows
from the border reaches it k cycles later at the earliest.

Reads: everything of the rank's own rows.  Writes: the same, the queues beyond the borders and their activity maps.
"""
import numpy as np

from libc.stdint cimport uint32_t, uint64_t

from fabric.engine.cycles cimport AHEAD, cycle_of, earlier, next_at_edge, next_wake, quiet_since, stamps_refresh
from fabric.engine.memory cimport Memory
from wse_core.builtins cimport NEVER, clear_bits, ctz64
from wse_core.fetch cimport FETCH_FROM
from wse_core.float_mode cimport float_mode_enter, float_mode_leave, float_mode_t
from wse_core.link cimport wake_upstream
from wse_core.queue cimport (
    head_in, head_moves, is_valid, note_commands, plane_head, plane_mark, queue_at, stamp_of, tail_in, tail_moves
)
from wse_core.records cimport *

from wse_core.errors import InternalError

cdef enum:
    UP = 0                  # the border to the rank above, and to the rank below
    DOWN = 1
    HEADER = 2              # words of a message before what crosses: next cycle, number of wavelets

ctypedef struct held_t:     # a queue of the border row that the neighbour fills, and that holds something
    uint64_t moved          # wavelets that had left it when the neighbour was last told
    uint32_t cell
    uint32_t plane

cdef uint64_t PLANE = 255


cdef class Part:
    """Rows `low` to `high` - 1 of a fabric.

    Parameters
    ----------
    engine : Engine
        Of the whole fabric's size, without programs elsewhere, `pack` False; nothing has run on it.
    low, high : int
        The same: no rows, where there are more ranks than rows.
    above, below : bool
        Whether some route leads over the border; one over which none does is never asked, unless programs write routes.
    """

    cdef Memory memory
    cdef region_t* s             # of `memory`
    cdef uint32_t first, end    # rows of cells
    cdef bint open[2]           # there is a rank beyond the border, and something may cross
    cdef object buffers
    cdef held_t* held[2]
    cdef uint64_t n_held[2]
    cdef readonly uint64_t room     # words that a message can come to have

    def __cinit__(self, engine, int low, int high, bint above, bint below):
        cdef unsigned char[::1] buffer
        cdef int k
        self.memory = engine.memory
        self.s = self.memory.s
        self.open[UP] = 0 < low < high and (above or self.s.f.reroutes)
        self.open[DOWN] = low < high < self.s.f.height and (below or self.s.f.reroutes)
        self.first = 0 if low == 0 else low + 1         # the borders of the fabric go with the rows beside them
        self.end = self.s.f.n_rows if low < high == self.s.f.height else high + 1
        queues = N_COLORS * self.s.f.width
        self.room = HEADER + 3 * queues
        self.buffers = [np.zeros(queues * sizeof(held_t), np.uint8) for _ in range(2)]
        for k in range(2):
            buffer = self.buffers[k]
            self.held[k] = <held_t*>&buffer[0]

    @property
    def sides(self):
        """The borders over which something may come: 0 above, 1 below."""
        return [k for k in range(2) if self.open[k]]

    @property
    def next_refresh(self):
        """The cycle in which stamps and counters want a sweep."""
        return self.s.next_refresh

    def begin(self, uint64_t limit):
        """Begin a piece of a run that goes to cycle `limit` at most."""
        if self.s.now >= self.s.next_refresh:
            stamps_refresh(self.s)
        self.s.ahead = limit if limit - self.s.now < AHEAD else self.s.now + AHEAD

    def settle(self):
        """Do what PEs have put off: some rank has a fault, and there may be an earlier one here."""
        self.memory.settle()

    def set_clock(self, uint64_t now):
        """Say which cycle comes next, when nothing is to be done before it."""
        self.s.now = now
        self.s.seen = now

    def advance(self, uint64_t until):
        """Advance the rows to cycle `until`, before which nothing crosses a border but in its last one."""
        cdef region_t* s = self.s
        cdef uint64_t next
        cdef bint fetches = s.f.n_cells > FETCH_FROM
        cdef float_mode_t was
        with nogil:
            was = float_mode_enter()
            while s.now < until:
                cycle_of(s, self.first, self.end, fetches)
                if s.moved or s.waiting or s.n_due:
                    s.now += 1
                    continue
                next = earlier(next_wake(s), next_at_edge(s))
                s.now = until if next == 0 or next > until else max(next, s.now + 1)
            float_mode_leave(was)

    # --- borders ------------------------------------------------------------------------------------------------------
    cdef uint64_t crossing(self, int side) noexcept:
        # The first cycle from now on in which something may cross a border.
        cdef region_t* s = self.s
        cdef row_t* r
        cdef uint32_t row, w
        cdef uint64_t b, at, far, best = NEVER
        for w in range(self.first >> 6, (self.end + 63) >> 6):
            b = s.live[w] | s.fed[w]
            while b:
                row = w * 64 + ctz64(b)
                b &= b - 1
                if not self.first <= row < self.end:
                    continue
                r = &s.rows[row]
                at = s.now
                if not (r.planes[0] | r.planes[1] | s.asking.top[row] or r.n_awake):
                    at = max(at, r.timer)
                far = row - self.first if side == UP else self.end - 1 - row
                best = min(best, at + far)
        if self.open[1 - side]:         # what comes in over the other border
            best = min(best, s.now + self.end - 1 - self.first)
        return best

    cdef uint64_t pushed(self, uint32_t row, uint64_t* out) noexcept:
        # Take the wavelets out of the activity maps of the row beyond a border; how many there are.
        cdef region_t* s = self.s
        cdef row_t* r = &s.rows[row]
        cdef uint32_t first = row * s.f.grid.words, w, cell
        cdef uint64_t planes, words, b, n = 0
        cdef uint64_t* m
        cdef plane_t* q
        cdef int half
        for half in range(2):
            planes = r.planes[half]
            r.planes[half] = 0
            while planes:
                q = &s.plane[half * 64 + ctz64(planes)]
                planes &= planes - 1
                words = q.map.top[row]
                q.map.top[row] = 0
                while words:
                    w = first + ctz64(words)
                    words &= words - 1
                    b = q.map.bits[w]
                    q.map.bits[w] = 0
                    while b:
                        cell = w * 64 + ctz64(b)
                        b &= b - 1
                        m = queue_at(q, cell)
                        out[2 * n] = <uint64_t>cell << 8 | <uint64_t>(q.color * N_PORTS + q.port)
                        out[2 * n + 1] = last_in(m, q.depth)
                        n += 1
        if r.live:
            r.live = False
            clear_bits(&s.live[row >> 6], <uint64_t>1 << (row & 63))
        return n

    cdef uint64_t popped(self, int side, uint64_t* out) noexcept:
        # Queues of the border row from which a wavelet has gone.
        cdef held_t* held = self.held[side]
        cdef held_t* h
        cdef plane_t* q
        cdef uint64_t k, left = 0, n = 0, moved
        for k in range(self.n_held[side]):
            h = &held[k]
            q = &self.s.plane[h.plane]
            moved = queue_at(q, h.cell)[0] >> MOVED
            if moved != h.moved:
                out[n] = <uint64_t>h.cell << 8 | h.plane
                n += 1
                h.moved = moved
            if is_valid(plane_head(q, h.cell)[0]):
                held[left] = h[0]
                left += 1
        self.n_held[side] = left
        return n

    def give(self, int side, uint64_t[::1] out):
        """Write a message about the last cycle into `out`; return (its words, whether something crossed)."""
        cdef uint64_t wavelets, places
        out[0] = self.crossing(side)
        wavelets = self.pushed(self.first - 1 if side == UP else self.end, &out[HEADER])
        places = self.popped(side, &out[HEADER + 2 * wavelets])
        out[1] = wavelets
        return HEADER + 2 * wavelets + places, wavelets + places > 0

    def take(self, int side, const uint64_t[::1] words):
        """Do what a message of the neighbour says; return (its next cycle, whether something crossed)."""
        cdef uint64_t k, at
        if words.shape[0] < HEADER or <uint64_t>words.shape[0] < HEADER + 2 * words[1]:
            raise InternalError(f"a message of {words.shape[0]} words between ranks", where="ranks")
        for k in range(words[1]):
            self.arrives(side, words[HEADER + 2 * k], words[HEADER + 2 * k + 1])
        at = HEADER + 2 * words[1]
        for k in range(at, <uint64_t>words.shape[0]):
            self.leaves(words[k])
        return words[0], words.shape[0] > HEADER

    cdef void arrives(self, int side, uint64_t key, uint64_t word) noexcept:
        # A wavelet of the neighbour.
        cdef plane_t* q = &self.s.plane[key & PLANE]
        cdef uint32_t cell = <uint32_t>(key >> 8)
        cdef uint64_t* m = queue_at(q, cell)
        cdef held_t* h
        if not is_valid(head_in(m)[0]):
            h = &self.held[side][self.n_held[side]]
            self.n_held[side] += 1
            h.cell, h.plane, h.moved = cell, key & PLANE, m[0] >> MOVED
        tail_in(m)[0] = word
        tail_moves(m, q.depth)
        plane_mark(self.s, q, cell)

    cdef void leaves(self, uint64_t key) noexcept:
        # The neighbour has taken a wavelet: the place is free from this cycle on, the one after it did.
        cdef plane_t* q = &self.s.plane[key & PLANE]
        cdef uint32_t cell = <uint32_t>(key >> 8)
        cdef uint64_t* m = queue_at(q, cell)
        head_in(m)[0] = stamp_of(self.s.now)
        if head_moves(m, q.depth) & SLEEPER:
            wake_upstream(self.s, q, cell)

    # --- all ranks together -------------------------------------------------------------------------------------------
    def facts(self):
        """Return what all ranks must know to go on, as `fabric.ranks.clock.Facts` names it."""
        cdef region_t* s = self.s
        cdef uint64_t quiet = quiet_since(s)
        s.now -= 1                      # what is next is told from the last cycle
        next = earlier(next_wake(s), next_at_edge(s))
        s.now += 1
        return np.array([s.fault.cycle if s.fault.kind else -1, s.fault.cell, s.seen, s.n_due > 0, next, quiet,
                         s.last_active, s.hops], np.int64)

    def note_controls(self, int color):
        """Say that the host sends control wavelets of a color into another part."""
        note_commands(self.s, color)


cdef inline uint64_t last_in(uint64_t* m, uint32_t cap) noexcept:
    # The word that was pushed last.
    cdef uint64_t place = (m[0] >> TAIL) & HEAD
    return m[1 + (place + cap - 1) % cap]
