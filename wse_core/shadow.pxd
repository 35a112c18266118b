# cython: overflowcheck=False
# Checks of memory: what each word of SRAM was last used for.  Called by the modules that report events, only while
# memory is checked; see shadow.pyx.
from wse_core.records cimport *

cdef void touches(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, int thread, uint32_t base, int64_t address,
                  int words, bint writes, bint indexed) noexcept nogil
