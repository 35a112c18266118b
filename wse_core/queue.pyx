# cython: overflowcheck=False
"""What happens to queues rarely: those that wait go back into the activity maps, a list of the ring grows.

Everything else about queues: queue.pxd.
"""
from libc.stdlib cimport realloc

from wse_core.builtins cimport ctz64
from wse_core.emit cimport record_fault
from wse_core.records cimport *


cdef void wake_color(region_t* s, int color, uint32_t cell, uint32_t ports) noexcept nogil:
    # Put the queues of some input ports that hold wavelets back into the activity maps.
    cdef plane_t* q
    while ports:
        q = &s.plane[color * N_PORTS + ctz64(ports)]
        ports &= ports - 1
        if q.slots != NULL and is_valid(plane_head(q, cell)[0]):
            plane_mark(s, q, cell)

cdef void wake_inputs(region_t* s, int color, uint32_t cell) noexcept nogil:
    # The queues that a color's route takes from now. (Others slept until a change of the route, which wakes all.)
    cdef uint64_t route = s.f.route[color][cell]
    wake_color(s, color, cell, <uint32_t>(route >> (POSITION_BITS * (<int>(route >> RT_POS) & 3))) & ALL_PORTS)

cdef bint later_grow(region_t* s, later_t* due) noexcept nogil:
    # Room for more queues in the list of a cycle; False if the host has no memory.
    cdef uint64_t room = 2 * due.room + 64
    cdef uint64_t* grown = <uint64_t*>realloc(due.items, room * sizeof(uint64_t))
    if grown == NULL:
        record_fault(s, FAULT_MEMORY, 0, s.now, 0, -1, 0, 0)
        return False
    due.items = grown
    due.room = room
    return True
