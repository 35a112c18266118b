from wse_core.records cimport region_t, uint32_t, uint64_t

cdef void refresh_shared(region_t* s, uint32_t cell) noexcept nogil
cdef void set_route_word(region_t* s, int color, uint32_t cell, uint64_t word) noexcept nogil
