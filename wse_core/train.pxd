from wse_core.records cimport plane_t, region_t, uint32_t

cdef bint train_leaves(region_t* s, plane_t* q, uint32_t cell) noexcept nogil
