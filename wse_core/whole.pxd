from wse_core.records cimport ce_t, instr_t, region_t, shape_t, uint32_t, uint64_t

# A vector instruction, of this shape (whose `way` is not WAY_NOT), that issues in cycle t: all that it does to memory,
# DSRs and registers, and to the counters but for what every instruction counts and for the cycles until its first step.
# Returns the first cycle after its last step, which lost so many cycles to a `conflict`; 0, if it is not known as a
# whole or does not end before the horizon: nothing was done.
# Gain: nine tenths of the instructions of set-up, steps and completion one by one.
cdef uint64_t vec_whole(region_t* s, ce_t* ce, uint64_t t, const instr_t* ins, shape_t* shape,
                        uint32_t* conflict) noexcept nogil
