from wse_core.builtins cimport unlikely
from wse_core.records cimport *

cdef enum:
    FETCH_FROM = 0x8000     # cells from which a fabric is larger than caches that a core has for itself

cdef void row_fetch(region_t* s, uint32_t row, uint64_t cycle) noexcept nogil
cdef void stream_fetch(region_t* s, plane_t* q, uint32_t cell) noexcept nogil

cdef inline void stream_begins(region_t* s, int plane, uint32_t cell, uint32_t k) noexcept nogil:
    # A CE sends element k of an operation: with the first one a wave begins that comes to PEs downstream soon.
    if unlikely(k == 0) and s.f.n_cells > FETCH_FROM:
        stream_fetch(s, &s.plane[plane], cell)
