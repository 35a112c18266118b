from wse_core.records cimport region_t, uint32_t, uint64_t

cdef enum:
    FETCH_FROM = 0x8000     # cells from which a fabric is larger than caches that a core has for itself

cdef void row_fetch(region_t* s, uint32_t row, uint64_t cycle) noexcept nogil
