from wse_core.records cimport ce_t, form_t, region_t, shape_t, thread_t, uint16_t, uint32_t, uint64_t

cdef enum:
    MINUS_ZEROS = 64

cdef uint32_t minus_zeros[MINUS_ZEROS]

ctypedef struct places_t:   # where an operation goes on: addresses of its next elements, or values
    uint16_t* a
    uint16_t* b
    uint16_t* c
    uint32_t b_value
    uint32_t c_value
    uint32_t scalar         # multiplier of a multiply-add

cdef void vec_bulk(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t start, uint64_t end) noexcept nogil
cdef void elements(ce_t* ce, const form_t* f, const places_t* at, uint32_t n, bint packed) noexcept nogil
cdef void learn(region_t* s, ce_t* ce, shape_t* shape, uint32_t distance) noexcept nogil
