from wse_core.records cimport region_t, uint32_t

cdef void row_opens(region_t* s, uint32_t row) noexcept nogil
cdef void row_moves(region_t* s, uint32_t row) noexcept nogil
