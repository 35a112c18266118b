# cython: overflowcheck=False
# When a CE is looked at next: a ring of maps for the next RING cycles, a timing wheel for what lies farther ahead.
from wse_core.bitmap cimport map_set
from wse_core.records cimport *


cdef inline void ring_set(region_t* s, uint32_t cell, uint64_t cycle) noexcept nogil:
    cdef uint32_t slot = <uint32_t>(cycle & (RING - 1))
    if map_set(&s.ring[slot], cell):
        s.ring_any |= <uint32_t>1 << slot

cdef inline void wheel_remove(region_t* s, uint32_t cell) noexcept nogil:
    cdef uint32_t bucket = <uint32_t>(s.f.wheel_time[cell] & (WHEEL - 1))
    cdef uint32_t after = s.f.wheel_next[cell]
    cdef uint32_t before = s.f.wheel_prev[cell]
    if before:
        s.f.wheel_next[before] = after
    else:
        s.wheel_head[bucket] = after
        if after == 0:
            s.wheel_used[bucket >> 6] &= ~(<uint64_t>1 << (bucket & 63))
    if after:
        s.f.wheel_prev[after] = before
    s.f.wheel_time[cell] = 0
    s.wheel_count -= 1

cdef inline void schedule(region_t* s, uint32_t cell, uint64_t cycle, uint64_t since) noexcept nogil:
    # Have the CE of `cell` looked at in `cycle` (> now, or == now before the CE phase).  A CE that is looked at decides
    # anew when it must be looked at next, so one entry in the wheel is enough: the earliest not before `since`, up to
    # which the CE has run ahead and hears nothing.
    cdef uint32_t bucket, first
    if cycle - s.now < RING:
        ring_set(s, cell, cycle)
        return
    if s.f.wheel_time[cell]:
        if since <= s.f.wheel_time[cell] <= cycle:
            return
        wheel_remove(s, cell)
    bucket = <uint32_t>(cycle & (WHEEL - 1))
    first = s.wheel_head[bucket]
    s.f.wheel_next[cell] = first
    s.f.wheel_prev[cell] = 0
    if first:
        s.f.wheel_prev[first] = cell
    s.wheel_head[bucket] = cell
    s.wheel_used[bucket >> 6] |= <uint64_t>1 << (bucket & 63)
    s.f.wheel_time[cell] = cycle
    s.wheel_count += 1
