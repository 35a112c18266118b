# What a CE reports besides its counters: faults, events, waits.  `traced_*` are called under `TRACE` only.
from wse_core.block cimport *
from wse_core.builtins cimport *
from wse_core.emit cimport emit, record_fault
from wse_core.queue cimport *
from wse_core.records cimport *

cdef void fault(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, int kind, int64_t address, int color, int detail,
                int64_t value) noexcept nogil
cdef void close_wait(region_t* s, uint32_t cell) noexcept nogil
cdef void traced_wait(region_t* s, ce_t* ce, uint32_t cell, uint64_t end) noexcept nogil

cdef inline void traced_take(region_t* s, ce_t* ce, uint32_t cell, inq_t* q, uint64_t word, uint64_t t) noexcept nogil:
    emit(s, cell, t, EV_TAKE, q.color, ce.prog.inq_of_color[q.color] & (N_QUEUES - 1), word, is_control(word))

cdef inline void traced_send(region_t* s, ce_t* ce, uint32_t cell, int plane, uint64_t word, uint64_t t) noexcept nogil:
    cdef int color = plane // N_PORTS, k
    for k in range(N_BINDINGS):
        if ce.prog.outq_color[k] == color:
            emit(s, cell, t, EV_INJECT, color, k & (N_QUEUES - 1), word, is_control(word))
            return
