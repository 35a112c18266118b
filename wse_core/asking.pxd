# cython: overflowcheck=False
# Colors of a router that need arbitration: who asks in this cycle, and who still may.
from wse_core.bitmap cimport map_add, map_begin
from wse_core.builtins cimport ctz64, unlikely
from wse_core.records cimport *


cdef inline void asks(region_t* s, uint32_t cell) noexcept nogil:
    if unlikely(not map_add(&s.asking, cell)):
        map_begin(&s.asking, &s.f.grid, cell)

cdef inline uint64_t rivals(region_t* s, plane_t* q, uint32_t row, uint32_t w, uint64_t cells) noexcept nogil:
    # Of one word of cells, or at least of those given, the ones in which a queue of another color may ask in this
    # cycle. What comes into the activity maps from now on is not ready in it; colors that share nothing do not ask.
    cdef uint64_t found = 0, planes
    cdef int half, own = q.color * N_PORTS
    cdef int at
    cdef plane_t* other
    for half in range(2):
        planes = s.rows[row].planes[half]
        while planes:
            at = half * 64 + ctz64(planes)
            planes &= planes - 1
            other = &s.plane[at]
            if other.timed and <uint32_t>(at - own) >= N_PORTS:
                found |= other.map.bits[w] & s.f.shared_bits[other.color][w]
                if cells & ~found == 0:
                    return found
    return found
