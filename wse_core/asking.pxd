# cython: overflowcheck=False
# Colors of a router that need arbitration: who asks in this cycle, and who has nobody to ask against.
from wse_core.bitmap cimport map_add, map_begin
from wse_core.builtins cimport unlikely
from wse_core.records cimport *


# In asking.pyx: once per word and phase of a row.
cdef void count_rivals(region_t* s, uint32_t row, uint32_t w, uint64_t* found) noexcept nogil

cdef inline void asks(region_t* s, uint32_t cell) noexcept nogil:
    if unlikely(not map_add(&s.asking, cell)):
        map_begin(&s.asking, &s.f.grid, cell)

cdef inline void asks_general(region_t* s, uint32_t cell, int color) noexcept nogil:
    # A color asks for what is not plain: see `arbitrate`.
    s.f.arb[2 * cell + 1] |= <uint32_t>1 << color
    asks(s, cell)

cdef inline uint64_t contested(region_t* s, uint32_t row, uint32_t w) noexcept nogil:
    # Of one word of cells those in which a queue that needs arbitration has a rival, or a color has asked already.
    # In the others it would be granted, so it need not ask (a third of the cost of such a hop).
    cdef uint64_t low = s.rows[row].planes[0] & s.timed[0], high = s.rows[row].planes[1] & s.timed[1]
    cdef uint32_t k = w - row * s.f.grid.words
    if high == 0 and low & (low - 1) == 0:              # no other queue is live in the row
        return s.asking.bits[w]
    if not (s.counted >> k) & 1:
        count_rivals(s, row, w, &s.rivals[k])
        s.counted |= <uint64_t>1 << k
    return s.rivals[k] | s.asking.bits[w]
