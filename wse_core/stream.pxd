from wse_core.records cimport ce_t, uint32_t

cdef void compute(ce_t* ce, uint32_t* into, uint32_t* out, uint32_t n) noexcept nogil
