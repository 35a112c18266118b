# cython: overflowcheck=False
# What the phases tell the outside: events while they are recorded, and the first fault; and the order of visits, which
# tests vary to show that nothing depends on it.
from libc.stdlib cimport realloc

from wse_core.builtins cimport unlikely
from wse_core.records cimport event_t, int64_t, region_t, uint32_t, uint64_t


cdef inline uint32_t vary(region_t* s, uint32_t n) noexcept nogil:
    # A number below n for a varied order of visits.
    s.order = s.order * <uint64_t>6364136223846793005 + <uint64_t>1442695040888963407
    return <uint32_t>(s.order >> 33) % n

cdef inline void emit(region_t* s, uint32_t cell, uint64_t cycle, int kind, int color, int aux, uint64_t data,
                      int flags) noexcept nogil:
    cdef event_t* e
    cdef event_t* grown
    cdef uint64_t room
    if not (s.traced_kinds >> kind) & 1:
        return
    if unlikely(s.n_traced == s.room_traced):
        room = 2 * s.room_traced + 4096
        grown = <event_t*>realloc(s.traced, room * sizeof(event_t))
        if grown == NULL:
            return
        s.traced = grown
        s.room_traced = room
    e = &s.traced[s.n_traced]
    e.cycle = cycle
    e.data = <uint32_t>data
    e.cell = cell
    e.kind = kind
    e.color = color
    e.aux = aux
    e.flags = flags
    s.n_traced += 1

cdef inline void record_fault(region_t* s, int kind, uint32_t cell, uint64_t cycle, int64_t address, int color,
                              int detail, int64_t value) noexcept nogil:
    # Keep the earliest fault; among those of one cycle, the first cell in row-major order.
    if s.fault.kind and (s.fault.cycle < cycle or (s.fault.cycle == cycle and s.fault.cell <= cell)):
        return
    s.fault.kind = kind
    s.fault.cell = cell
    s.fault.cycle = cycle
    s.fault.address = address
    s.fault.color = color
    s.fault.detail = detail
    s.fault.value = value
