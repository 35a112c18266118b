# cython: overflowcheck=False
"""What happens to queues rarely: those that wait go back into the activity maps.

Everything else about queues: queue.pxd.
"""
from wse_core.builtins cimport ctz64
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
