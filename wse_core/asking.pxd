# cython: overflowcheck=False
# Colors of a router that need arbitration: who asks in this cycle, and who still may.
from wse_core.bitmap cimport map_add, map_begin
from wse_core.builtins cimport ctz64, unlikely
from wse_core.records cimport *


cdef inline void asks(region_t* s, uint32_t cell) noexcept nogil:
    if unlikely(not map_add(&s.asking, cell)):
        map_begin(&s.asking, &s.f.grid, cell)

cdef inline uint64_t rivals(region_t* s, plane_t* q, uint32_t row, uint32_t w) noexcept nogil:
    # Of one word of cells those in which a queue of another color may ask in this cycle. What comes into the activity
    # maps from now on is not ready in it.
    cdef uint64_t found = 0, planes
    cdef int half, own = q.color * N_PORTS
    cdef int at
    for half in range(2):
        planes = s.rows[row].planes[half]
        while planes:
            at = half * 64 + ctz64(planes)
            planes &= planes - 1
            if <uint32_t>(at - own) >= N_PORTS:
                found |= s.plane[at].map.bits[w]
    return found
