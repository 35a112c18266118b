# cython: overflowcheck=False
"""What happens to queues rarely: those that wait go back into the activity maps.

Everything else about queues: queue.pxd.
"""
from wse_core.bitmap cimport map_begin, row_of
from wse_core.block cimport inq_at
from wse_core.builtins cimport ctz64
from wse_core.records cimport *
from wse_core.wake cimport row_live, row_timed, wheel_add


cdef void plane_begin(region_t* s, plane_t* q, uint32_t cell) noexcept nogil:
    # The first queue of a word of an activity map.
    cdef uint32_t row = map_begin(&q.map, &s.f.grid, cell)
    cdef int plane = plane_number(q)
    s.rows[row].planes[plane >> 6] |= <uint64_t>1 << (plane & 63)
    row_live(s, row)
    q.used = True

cdef void due_begin(region_t* s, int plane, uint32_t cell, uint64_t cycle) noexcept nogil:
    # The first queue of a word of those that become ready in a cycle.
    cdef uint32_t slot = <uint32_t>(cycle & (RING - 1)), row = row_of(&s.f.grid, cell)
    cdef row_t* r = &s.rows[row]
    s.plane[plane].used = True
    r.due[slot][plane >> 6] |= <uint64_t>1 << (plane & 63)
    r.due_words[slot] |= <uint64_t>1 << ((cell >> 6) - row * s.f.grid.words)
    if not (r.due_any >> slot) & 1:
        r.due_any |= <uint16_t>(1 << slot)
        s.n_due += 1
    row_timed(s, row, cycle)

cdef void comes_due(region_t* s, int plane, uint32_t cell, uint64_t cycle) noexcept nogil:
    # `mark_due` for those that have no registers to spare.
    mark_due(s, plane, cell, cycle)

cdef void due_later(region_t* s, uint32_t cell, uint64_t cycle) noexcept nogil:
    # Queues of a router that wait for a ramp, beyond the ring: one entry in the wheel for all of a PE, the earliest.
    wheel_add(s, cell + s.f.n_cells, cycle - 1, s.now)

cdef void wake_ramps(region_t* s, uint32_t cell) noexcept nogil:
    # That cycle comes next: who waits for one of the PE's ramps up to then looks again, others go on waiting.
    cdef ce_t* ce = s.f.ce[cell]
    cdef uint64_t word
    cdef inq_t* q
    cdef plane_t* r
    cdef int k
    for k in range(ce.prog.n_inq):
        q = inq_at(ce, k)
        if q.sleeper == FOR_TIME:
            word = q.slots[q.tail]
            if is_valid(word) or usable(word, s.now + 1):
                q.sleeper = 0
                wake_inputs(s, q.color, cell)
            else:
                due_later(s, cell, ready_cycle(word, s.now))
    for k in range(N_BINDINGS):
        if ce.prog.outq_color[k] >= 0:
            r = &s.plane[ce.prog.outq_color[k] * N_PORTS + DIR_R]
            word = plane_head(r, cell)[0]
            if not is_valid(word):
                continue
            if usable(word, s.now + 1):
                plane_mark(s, r, cell)
            else:
                mark_due(s, plane_number(r), cell, ready_cycle(word, s.now))
    s.waiting = 1

cdef void wake_color(region_t* s, int color, uint32_t cell, uint32_t ports) noexcept nogil:
    # Put the queues of some input ports that hold wavelets back into the activity maps.
    cdef plane_t* q
    while ports:
        q = &s.plane[color * N_PORTS + ctz64(ports)]
        ports &= ports - 1
        if has_queue(q, cell) and is_valid(plane_head(q, cell)[0]):
            plane_mark(s, q, cell)

cdef void wake_inputs(region_t* s, int color, uint32_t cell) noexcept nogil:
    # The queues that a color's route takes from now. (Others slept until a change of the route, which wakes all.)
    cdef uint64_t route = s.f.route[color][cell]
    cdef uint32_t ports = <uint32_t>(route >> (POSITION_BITS * (<int>(route >> RT_POS) & 3))) & ALL_PORTS
    cdef plane_t* q
    if ports == 0 or ports & (ports - 1):
        wake_color(s, color, cell, ports)
        return
    q = &s.plane[color * N_PORTS + ctz64(ports)]            # one, the usual case; there may be no queue
    if has_queue(q, cell) and is_valid(plane_head(q, cell)[0]):
        plane_mark(s, q, cell)
