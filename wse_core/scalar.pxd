from wse_core.constants cimport WAIT_PIPE
from wse_core.records cimport ce_t, instr_t, region_t, uint32_t, uint64_t

cdef uint64_t main_waits(region_t* s, ce_t* ce, uint64_t t) noexcept nogil
cdef uint64_t exec_alone(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, uint64_t* n) noexcept nogil
cdef uint64_t exec_beside(region_t* s, ce_t* ce, uint32_t cell, uint64_t end, uint64_t* n) noexcept nogil
cdef void exec_main(region_t* s, ce_t* ce, uint32_t cell, uint64_t t) noexcept nogil

cdef void exec_scalar(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, const instr_t* ins) noexcept nogil

cdef inline uint64_t main_when(region_t* s, ce_t* ce, uint64_t t) noexcept nogil:
    # First cycle in which the main thread can issue its next instruction, as things stand in cycle t.
    if ce.uts or ce.ready_max > ce.next:
        return main_waits(s, ce, t)
    ce.main.wait = WAIT_PIPE
    return ce.next

cdef inline uint32_t takes_heads(region_t* s, ce_t* ce) noexcept nogil:
    # The ids of which the picker can ever take a wavelet as things stand: those of data tasks, and those of which
    # control wavelets may come.
    return (ce.prog.data_tasks | s.controls | ce.prog.controlled) & ce.prog.inq_ids & ~ce.blocked
