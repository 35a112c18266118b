from wse_core.float_mode cimport float_mode_t
from wse_core.arithmetic cimport num_t

cdef int settings(num_t* s, fmt, bias, ftz, bint arithmetic=*) except -1


cdef class DefaultMode:
    cdef float_mode_t was
