# cython: overflowcheck=False
# Registers by address: see mapped.pyx.
from wse_core.block cimport mapped_of
from wse_core.records cimport *


cdef inline uint64_t clock_of(region_t* s, ce_t* ce, uint64_t t) noexcept nogil:
    # The cycle counter in cycle t; a program may have set it by its address.
    return (t - mapped_of(ce).begun if ce.prog.registers else t) & s.f.p.tsc_mask

cdef void exec_mapped(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, const instr_t* ins,
                      uint32_t address) noexcept nogil
