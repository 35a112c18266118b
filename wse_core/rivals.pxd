from wse_core.records cimport region_t, uint32_t, uint64_t

cdef uint64_t undisturbed(region_t* s, int color, uint32_t cell, uint32_t outs, uint64_t enough) noexcept nogil
