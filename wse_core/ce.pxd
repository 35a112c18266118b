from wse_core.state cimport ce_t, program_t, state_t, thread_t, uint32_t, uint64_t

cdef void ce_phase(state_t* s) noexcept nogil
cdef void ce_settle(state_t* s, uint32_t cell) noexcept nogil
cdef uint64_t ce_block_bytes(program_t* g) noexcept nogil
cdef void ce_init(state_t* s, uint32_t cell, program_t* g, uint32_t index, uint32_t active, uint32_t blocked,
                  const int* in_caps, uint32_t seed) noexcept nogil
