from wse_core.records cimport region_t, uint32_t

cdef void row_computes(region_t* s, uint32_t row) noexcept nogil
cdef void ce_report(region_t* s, uint32_t cell, bint last) noexcept nogil
cdef void ce_settle(region_t* s, uint32_t cell) noexcept nogil
