# cython: overflowcheck=False
# What is to be done in a row of cells, and when: a ring of maps for the next RING cycles, a timing wheel for what lies
# farther ahead, per row, as each row may have a clock of its own.
from wse_core.builtins cimport unlikely
from wse_core.records cimport *


# In wake.pyx: what is first in its word, or goes into the wheel.
cdef void row_live(region_t* s, uint32_t row) noexcept nogil
cdef void row_timed(region_t* s, uint32_t row, uint64_t cycle) noexcept nogil
cdef void ring_begin(region_t* s, uint32_t cell, uint64_t cycle) noexcept nogil
cdef void wheel_remove(region_t* s, row_t* r, uint32_t cell) noexcept nogil
cdef void wheel_add(region_t* s, uint32_t cell, uint64_t cycle, uint64_t since) noexcept nogil


cdef inline uint64_t* ring_word(region_t* s, uint32_t w, uint32_t slot) noexcept nogil:
    # A word's sets for all cycles lie together: a row of a large fabric that is at work for some cycles finds them in
    # cache.
    return s.ring + <uint64_t>w * RING + slot

cdef inline void ring_set(region_t* s, uint32_t cell, uint64_t cycle) noexcept nogil:
    cdef uint64_t* word = ring_word(s, cell >> 6, <uint32_t>cycle & (RING - 1))
    if unlikely(word[0] == 0):
        ring_begin(s, cell, cycle)
    word[0] |= <uint64_t>1 << (cell & 63)

cdef inline void schedule(region_t* s, uint32_t cell, uint64_t cycle, uint64_t since) noexcept nogil:
    # Have the CE of `cell` looked at in `cycle` (> now, or == now before the CE phase).  A CE that is looked at decides
    # anew when it must be looked at next, so one entry in the wheel is enough: the earliest not before `since`, up to
    # which the CE has run ahead and hears nothing.
    if cycle - s.now < RING:
        ring_set(s, cell, cycle)
    else:
        wheel_add(s, cell, cycle, since)
