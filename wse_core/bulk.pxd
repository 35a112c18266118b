from wse_core.records cimport ce_t, instr_t, region_t, thread_t, uint32_t, uint64_t

cdef void vec_bulk(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t start, uint64_t end) noexcept nogil
cdef bint vec_whole(region_t* s, ce_t* ce, uint64_t t, const instr_t* ins) noexcept nogil
