from wse_core.records cimport state_t, uint32_t, uint64_t

cdef void refresh_shared(state_t* s, uint32_t cell) noexcept nogil
cdef void set_route_word(state_t* s, int color, uint32_t cell, uint64_t word) noexcept nogil
