# cython: overflowcheck=False
"""Waiting queues of a router: out of the activity map until what they wait for is there; what the host takes.

What they wait for, and why this is apart from the rest: link.pxd.
"""
from libc.stdlib cimport realloc

from wse_core.bitmap cimport map_clear, row_of
from wse_core.builtins cimport unlikely
from wse_core.emit cimport record_fault
from wse_core.queue cimport due_later, is_valid, mark_due, plane_number, queue_at, ready_cycle, wake_inputs
from wse_core.records cimport *
from wse_core.route cimport is_border


cdef void later(region_t* s, plane_t* q, uint32_t cell, uint64_t word) noexcept nogil:
    # Out of the activity map until the stamp of `word` has come.
    map_clear(&q.map, cell)
    mark_due(s, plane_number(q), cell, ready_cycle(word, s.now))

cdef void wake_upstream(region_t* s, plane_t* q, uint32_t cell) noexcept nogil:
    # A place became free for which a queue of the neighbour waits, or the host; it can be used from the next cycle on.
    cdef uint32_t to = cell + s.f.delta[q.port], k
    cdef row_t* r
    cdef stream_in_t* i
    queue_at(q, cell)[0] &= ~<uint64_t>SLEEPER
    if unlikely(is_border(s, to)):          # the host
        r = &s.rows[row_of(&s.f.grid, cell)]
        for k in range(r.first_in, r.first_in + r.n_in):
            i = &s.ins[s.f.ins_of[k]]
            if i.cell == cell and i.color == q.color and i.port == q.port and not i.awake and i.at < i.n:
                i.awake = True
                r.n_awake += 1
        s.waiting = 1
        return
    wake_inputs(s, q.color, to)

cdef bint sleep_on_link(region_t* s, plane_t* q, uint32_t cell, plane_t* t, uint32_t to, uint64_t place) noexcept nogil:
    # The queue waits for a place of the neighbour's queue `t`. Full: out of the activity map until that queue's next
    # pop. Free in a later cycle: as `not_ready`.  Always False.
    if is_valid(place):
        queue_at(t, to)[0] |= SLEEPER
        map_clear(&q.map, cell)
    else:
        not_ready(s, q, cell, place)
    return False

cdef bint sleep_on_ramp(region_t* s, plane_t* q, uint32_t cell, inq_t* i, uint64_t place) noexcept nogil:
    # The same for the CE's input queue, from which a CE that runs ahead may have taken a wavelet long before its cycle.
    cdef uint64_t free
    if is_valid(place):
        i.sleeper = FOR_ROOM
        map_clear(&q.map, cell)
        return False
    if soon(place, s.now):
        s.waiting = 1
        return False
    free = ready_cycle(place, s.now)
    if free - s.now >= RING:
        i.sleeper = FOR_TIME
        map_clear(&q.map, cell)
        due_later(s, cell, free)
    else:
        later(s, q, cell, place)
    return False

cdef void stream_take(region_t* s, stream_out_t* o, uint64_t cycle, uint64_t payload) noexcept nogil:
    cdef uint64_t room
    cdef uint64_t* grown
    if o.n == o.room:
        room = 2 * o.room + 256
        grown = <uint64_t*>realloc(o.words, room * sizeof(uint64_t))
        if grown != NULL:
            o.words = grown
            grown = <uint64_t*>realloc(o.cycles, room * sizeof(uint64_t))
        if grown == NULL:
            record_fault(s, FAULT_MEMORY, 0, s.now, 0, o.color, 0, 0)
            return
        o.cycles = grown
        o.room = room
    o.cycles[o.n] = cycle
    o.words[o.n] = payload
    o.n += 1
    o.at += 1
