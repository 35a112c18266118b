from wse_core.records cimport state_t, uint32_t

cdef void ce_phase(state_t* s) noexcept nogil
cdef void ce_report(state_t* s, uint32_t cell, bint last) noexcept nogil
cdef void ce_settle(state_t* s, uint32_t cell) noexcept nogil
