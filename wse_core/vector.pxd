"""
Bulk forms of the arithmetic in arithmetic.pxd, for the long vector operations of a processing element.

Contract  d[i] = op(a[i], b[i]) for i = 0 .. n-1, each with exactly the bits of the scalar form (k is the scalar
          operand). n in elements, n <= 0 does nothing. d equals a or b (same address, same element width) or overlaps
          neither; anything else is the caller's loop. No alignment needed beyond the element's own. Nothing is raised;
          any thread may call.
"""
from libc.stdint cimport uint16_t, uint32_t

from wse_core.arithmetic cimport num_t

# d = a + b*k, one rounding
cdef void vec_fmacs(const num_t* s, uint32_t* d, const uint32_t* a, const uint32_t* b, uint32_t k,
                    Py_ssize_t n) noexcept nogil
cdef void vec_fmach(const num_t* s, uint16_t* d, const uint16_t* a, const uint16_t* b, uint16_t k,
                    Py_ssize_t n) noexcept nogil
# b and k 16-bit, a and d f32
cdef void vec_fmachs(const num_t* s, uint32_t* d, const uint32_t* a, const uint16_t* b, uint16_t k,
                     Py_ssize_t n) noexcept nogil

cdef void vec_fadds(const num_t* s, uint32_t* d, const uint32_t* a, const uint32_t* b, Py_ssize_t n) noexcept nogil
cdef void vec_fsubs(const num_t* s, uint32_t* d, const uint32_t* a, const uint32_t* b, Py_ssize_t n) noexcept nogil
cdef void vec_fmuls(const num_t* s, uint32_t* d, const uint32_t* a, const uint32_t* b, Py_ssize_t n) noexcept nogil
cdef void vec_faddh(const num_t* s, uint16_t* d, const uint16_t* a, const uint16_t* b, Py_ssize_t n) noexcept nogil
cdef void vec_fsubh(const num_t* s, uint16_t* d, const uint16_t* a, const uint16_t* b, Py_ssize_t n) noexcept nogil
cdef void vec_fmulh(const num_t* s, uint16_t* d, const uint16_t* a, const uint16_t* b, Py_ssize_t n) noexcept nogil
# a 16-bit, b and d f32
cdef void vec_faddhs(const num_t* s, uint32_t* d, const uint16_t* a, const uint32_t* b, Py_ssize_t n) noexcept nogil
