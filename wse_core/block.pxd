# cython: overflowcheck=False
# CE blocks: all that a PE needs besides SRAM, as large as its program asks for, zero memory until it first does
# something.  The parts lie behind `ce_t` where `ce_layout` puts them, once per program.
from wse_core.records cimport *


cdef inline inq_t* inq_at(ce_t* ce, int slot) noexcept nogil:
    return <inq_t*>(<char*>ce + ce.prog.inq_at[slot])

cdef inline inq_t* inq_of(ce_t* ce, int queue) noexcept nogil:
    return inq_at(ce, ce.prog.inq_slot[queue])

cdef inline thread_t* ut_of(ce_t* ce, int ut) noexcept nogil:
    return <thread_t*>(<char*>ce + ce.prog.ut_at[ut])

cdef inline dsr_t* dsr_at(ce_t* ce, int slot) noexcept nogil:
    return <dsr_t*>(<char*>ce + ce.prog.dsr_at + slot * ce.prog.dsr_bytes)

cdef inline desc_t* desc_of(ce_t* ce, dsr_t* d) noexcept nogil:
    return ce.prog.descriptors + d.number - 1

cdef inline uint16_t base_in(ce_t* ce, const dsr_t* d) noexcept nogil:
    return d.base if ce.prog.moves else ce.prog.descriptors[d.number - 1].base

cdef inline uint16_t extent_in(ce_t* ce, dsr_t* d) noexcept nogil:
    return d.extent if ce.prog.edits else desc_of(ce, d).extent[0]

cdef inline int16_t stride_in(ce_t* ce, dsr_t* d) noexcept nogil:
    return d.stride if ce.prog.edits else desc_of(ce, d).stride[0]

cdef inline uint16_t index_in(ce_t* ce, dsr_t* d) noexcept nogil:
    return d.index if ce.prog.edits else desc_of(ce, d).index

cdef inline uint16_t* depth_of(ce_t* ce) noexcept nogil:
    # Number of return addresses on the stack, which lies before it.
    return <uint16_t*>(<char*>ce + ce.prog.stack_at)

cdef inline uint16_t* stack_of(ce_t* ce) noexcept nogil:
    return depth_of(ce) + 1

cdef inline ready_t* ready_of(ce_t* ce) noexcept nogil:
    return <ready_t*>(<char*>ce + ce.prog.ready_at)

cdef inline uint32_t* lfsr_of(ce_t* ce) noexcept nogil:
    return <uint32_t*>(<char*>ce + ce.prog.lfsr_at)

cdef inline mapped_t* mapped_of(ce_t* ce) noexcept nogil:
    return <mapped_t*>(<char*>ce + ce.prog.mapped_at)

cdef enum:
    CLOCK_RUNS = 7          # control of the cycle counter


# Rare enough for a call (block.pyx): inlined, they take registers from the loops that visit queues.
cdef void ce_layout(region_t* s, program_t* g) noexcept nogil
cdef void ce_awaken(region_t* s, uint32_t cell) noexcept nogil
