# cython: overflowcheck=False
# What is to be done in a row of cells, and when: a ring of maps for the next RING cycles, a timing wheel for what lies
# farther ahead, per row, as each row may have a clock of its own.
from wse_core.bitmap cimport map_set, row_of
from wse_core.builtins cimport set_bits
from wse_core.records cimport *


cdef inline void row_live(region_t* s, uint32_t row) noexcept nogil:
    # Something is to be done in the row.
    if not s.rows[row].live:
        s.rows[row].live = True
        set_bits(&s.live[row >> 6], <uint64_t>1 << (row & 63))

cdef inline void row_timed(region_t* s, uint32_t row, uint64_t cycle) noexcept nogil:
    # Something is to be done in the row in a certain cycle.
    if cycle < s.rows[row].timer:
        s.rows[row].timer = cycle
    row_live(s, row)

cdef inline void ring_set(region_t* s, uint32_t cell, uint64_t cycle) noexcept nogil:
    cdef uint32_t slot = <uint32_t>(cycle & (RING - 1))
    cdef uint32_t row = map_set(&s.ring[slot], &s.f.grid, cell)
    if row:
        s.rows[row].ring_any |= <uint16_t>(1 << slot)
        row_timed(s, row, cycle)

cdef inline void wheel_remove(region_t* s, row_t* r, uint32_t cell) noexcept nogil:
    cdef uint32_t bucket = <uint32_t>(s.f.wheel_time[cell] & (WHEEL - 1))
    cdef uint32_t after = s.f.wheel_next[cell]
    cdef uint32_t before = s.f.wheel_prev[cell]
    if before:
        s.f.wheel_next[before] = after
    else:
        r.wheel_head[bucket] = after
        if after == 0:
            r.wheel_used[bucket >> 6] &= ~(<uint64_t>1 << (bucket & 63))
    if after:
        s.f.wheel_prev[after] = before
    s.f.wheel_time[cell] = 0
    r.wheel_count -= 1

cdef inline void schedule(region_t* s, uint32_t cell, uint64_t cycle, uint64_t since) noexcept nogil:
    # Have the CE of `cell` looked at in `cycle` (> now, or == now before the CE phase).  A CE that is looked at decides
    # anew when it must be looked at next, so one entry in the wheel is enough: the earliest not before `since`, up to
    # which the CE has run ahead and hears nothing.
    cdef uint32_t bucket, first, row
    cdef row_t* r
    if cycle - s.now < RING:
        ring_set(s, cell, cycle)
        return
    row = row_of(&s.f.grid, cell)
    r = &s.rows[row]
    if s.f.wheel_time[cell]:
        if since <= s.f.wheel_time[cell] <= cycle:
            return
        wheel_remove(s, r, cell)
    bucket = <uint32_t>(cycle & (WHEEL - 1))
    first = r.wheel_head[bucket]
    s.f.wheel_next[cell] = first
    s.f.wheel_prev[cell] = 0
    if first:
        s.f.wheel_prev[first] = cell
    r.wheel_head[bucket] = cell
    r.wheel_used[bucket >> 6] |= <uint64_t>1 << (bucket & 63)
    s.f.wheel_time[cell] = cycle
    r.wheel_count += 1
    row_timed(s, row, cycle)
