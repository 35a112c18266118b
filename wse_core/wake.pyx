# cython: overflowcheck=False
"""When a CE is looked at next: the rare part, first entries of a word of a ring map, and the timing wheel of a row.

Everything else about it: wake.pxd.
"""
from wse_core.bitmap cimport row_of
from wse_core.builtins cimport set_bits
from wse_core.records cimport *


cdef void row_live(region_t* s, uint32_t row) noexcept nogil:
    # Something is to be done in the row.
    if not s.rows[row].live:
        s.rows[row].live = True
        set_bits(&s.live[row >> 6], <uint64_t>1 << (row & 63))

cdef void row_timed(region_t* s, uint32_t row, uint64_t cycle) noexcept nogil:
    # Something is to be done in the row in a certain cycle.
    if cycle < s.rows[row].timer:
        s.rows[row].timer = cycle
    row_live(s, row)

cdef void ring_begin(region_t* s, uint32_t cell, uint64_t cycle) noexcept nogil:
    cdef uint32_t slot = <uint32_t>(cycle & (RING - 1)), row = row_of(&s.f.grid, cell)
    s.ring_top[row * RING + slot] |= <uint64_t>1 << ((cell >> 6) - row * s.f.grid.words)
    s.rows[row].ring_any |= <uint16_t>(1 << slot)
    row_timed(s, row, cycle)

cdef void wheel_remove(region_t* s, row_t* r, uint32_t cell) noexcept nogil:
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

cdef void wheel_add(region_t* s, uint32_t cell, uint64_t cycle, uint64_t since) noexcept nogil:
    # `schedule` beyond the ring; from n_cells on, the queues of a router that wait for the ramps of a cell.
    cdef uint32_t bucket = <uint32_t>(cycle & (WHEEL - 1)), first
    cdef uint32_t row = row_of(&s.f.grid, cell if cell < s.f.n_cells else cell - s.f.n_cells)
    cdef row_t* r = &s.rows[row]
    if s.f.wheel_time[cell]:
        if since <= s.f.wheel_time[cell] <= cycle:
            return
        wheel_remove(s, r, cell)
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
