from wse_core.records cimport ce_t, instr_t, region_t, thread_t, uint32_t, uint64_t

cdef bint vec_setup(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, const instr_t* ins, thread_t* th,
                    int id) noexcept nogil
cdef uint64_t vec_when(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t) noexcept nogil
cdef void vec_step(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t) noexcept nogil
cdef void hold(region_t* s, ce_t* ce, int ut, bint blocked) noexcept nogil
cdef void threads_changed(region_t* s, ce_t* ce) noexcept nogil
cdef void last_is_advance(region_t* s, ce_t* ce, thread_t* th) noexcept nogil
cdef void vec_complete(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t, uint32_t cost) noexcept nogil
