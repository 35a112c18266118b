# cython: overflowcheck=False
"""Bringing into cache what a row needs next, while another row is being done.

On a large fabric where little moves per row, a run waits for memory at each wavelet: its queue, the next one, the CE.
The maps of a row say where they are a row's time before.  Where much moves in a row, neighbours follow each other
evenly and the host's own prefetching is as good; so a few members of each word of a map are enough.
"""
from wse_core.bitmap cimport row_of
from wse_core.builtins cimport ctz64
from wse_core.queue cimport queue_at
from wse_core.records cimport *
from wse_core.route cimport RAMP, pos_of, tx_of
from wse_core.wake cimport ring_word

cdef extern from *:
    """
    #define WSE_FETCH(p) __builtin_prefetch((const void*)(p))
    """
    void fetch "WSE_FETCH"(const void* p) noexcept nogil

cdef enum:
    FEW = 6                 # members of a word that are fetched
    LINES = 5               # cache lines of a CE block that a look touches, or more


cdef inline void fetch_ce(region_t* s, uint32_t cell) noexcept nogil:
    cdef const char* ce = <const char*>s.f.ce[cell]
    cdef int k
    if ce == NULL:
        return
    for k in range(LINES):
        fetch(ce + 64 * k)

cdef inline void fetch_queues(region_t* s, plane_t* q, uint32_t row) noexcept nogil:
    # Queues of a plane that may move, and where their routes lead.
    cdef uint64_t words = q.map.top[row], b
    cdef const uint64_t* routes = s.f.route[q.color]
    cdef uint32_t w, cell, tx, d
    cdef int n
    while words:
        w = row * s.f.grid.words + ctz64(words)
        words &= words - 1
        b = q.map.bits[w]
        n = 0
        while b and n < FEW:
            cell = w * 64 + ctz64(b)
            b &= b - 1
            n += 1
            fetch(queue_at(q, cell))
            tx = tx_of(routes[cell], pos_of(routes[cell]))
            if tx & RAMP:
                fetch_ce(s, cell)
            tx &= RAMP - 1
            if tx:
                d = ctz64(tx)
                fetch(queue_at(q - q.port + (d ^ 1), cell + s.f.delta[d]))

cdef void stream_fetch(region_t* s, plane_t* q, uint32_t cell) noexcept nogil:
    # `cell` begins to send into the ramp's queue `q`.  If that leads along the row, PEs downstream are likely to begin
    # one after the other, each with what the one before has sent: the CE of the third is fetched, and of the second,
    # whose CE has been by now, what its first steps touch besides.  Within the row: another thread may be at others.
    # Gain: a tenth of a hop of chains over a whole wafer.
    cdef const uint64_t* routes = s.f.route[q.color]
    cdef uint32_t links = tx_of(routes[cell], pos_of(routes[cell])) & (RAMP - 1), second, third
    cdef int d = DIR_W if links == 1 << DIR_W else DIR_E
    cdef plane_t* there = q - DIR_R + (d ^ 1)
    cdef ce_t* ce
    if links != <uint32_t>1 << d:
        return
    second = cell + 2 * s.f.delta[d]
    third = cell + 3 * s.f.delta[d]
    if row_of(&s.f.grid, third) != row_of(&s.f.grid, cell):
        return
    fetch(queue_at(q, second))
    if there.queues != NULL:
        fetch(queue_at(there, second))
    ce = s.f.ce[second]
    if ce != NULL:
        fetch(ce.sram)
    fetch(routes + third)
    fetch_ce(s, third)

cdef void row_fetch(region_t* s, uint32_t row, uint64_t cycle) noexcept nogil:
    # For what the row will do in `cycle`, as far as that is known now.
    cdef row_t* r = &s.rows[row]
    cdef uint32_t slot = <uint32_t>(cycle & (RING - 1)), w
    cdef uint64_t planes, words, b
    cdef int half, n
    if row + 1 < s.f.n_rows:
        fetch(&s.rows[row + 1])
    for half in range(2):
        planes = r.planes[half]
        while planes:
            fetch_queues(s, &s.plane[half * 64 + ctz64(planes)], row)
            planes &= planes - 1
    if not (r.ring_any >> slot) & 1:
        return
    words = s.ring_top[row * RING + slot]
    while words:
        w = row * s.f.grid.words + ctz64(words)
        words &= words - 1
        b = ring_word(s, w, slot)[0]
        n = 0
        while b and n < FEW:
            fetch_ce(s, w * 64 + ctz64(b))
            b &= b - 1
            n += 1
