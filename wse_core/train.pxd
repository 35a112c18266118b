from wse_core.records cimport plane_t, region_t, uint32_t

cdef enum:
    LEAST = 8               # words: fewer, beyond those that wait in queues, are not worth a walk

cdef bint train_leaves(region_t* s, plane_t* q, uint32_t cell) noexcept nogil
