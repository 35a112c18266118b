from wse_core.records cimport region_t

cdef void router_phase(region_t* s) noexcept nogil
