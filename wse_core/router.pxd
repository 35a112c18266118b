from wse_core.records cimport state_t

cdef void router_phase(state_t* s) noexcept nogil
