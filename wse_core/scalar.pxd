from wse_core.records cimport ce_t, region_t, uint32_t, uint64_t

cdef uint64_t main_when(region_t* s, ce_t* ce, uint64_t t) noexcept nogil
cdef uint64_t exec_plain(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, uint64_t* n) noexcept nogil
cdef void exec_main(region_t* s, ce_t* ce, uint32_t cell, uint64_t t) noexcept nogil

cdef inline bint takes_heads(region_t* s, ce_t* ce) noexcept nogil:
    # Whether the picker can ever take a wavelet as things stand: control wavelets, or those of data tasks.
    return s.controls or ce.prog.data_tasks & ~ce.blocked != 0
