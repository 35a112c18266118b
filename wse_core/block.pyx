# cython: overflowcheck=False
"""CE blocks: where their parts lie, and the state in which a CE begins.  Access to the parts: block.pxd."""
from wse_core.records cimport *


cdef inline uint64_t even(uint64_t n) noexcept nogil:
    return (n + 7) & ~<uint64_t>7

cdef inline uint64_t inputs_at(region_t* s, program_t* g, uint64_t at) noexcept nogil:
    # Place the input queues; what comes behind them.
    cdef int k
    for k in range(N_BINDINGS):
        if g.inq_slot[k] >= 0:
            g.inq_at[g.inq_slot[k]] = <uint16_t>at
            at += sizeof(inq_t) + (s.f.in_caps[k & (N_QUEUES - 1)] - 1) * sizeof(uint64_t)
    return at

cdef void ce_layout(region_t* s, program_t* g) noexcept nogil:
    # Everything one PE needs besides SRAM, as large as its program asks for: what a step touches, then the rest.
    cdef uint64_t at = sizeof(ce_t)
    cdef int k
    for k in range(N_UTS):
        if g.ut_at[k]:
            g.ut_at[k] = <uint16_t>at
            at += sizeof(thread_t)
    g.dsr_at = <uint16_t>(at if g.moves else at - sizeof(uint16_t))      # of a DSR without base the number comes first
    at = even(at + g.n_dsr * g.dsr_bytes)
    at = inputs_at(s, g, at)
    if g.delays:
        g.ready_at = <uint16_t>at
        at += sizeof(ready_t)
    if g.draws:
        g.lfsr_at = <uint16_t>at
        at += N_GENERATORS * sizeof(uint32_t)
    if g.registers:
        at = even(at)
        g.mapped_at = <uint16_t>at
        at += sizeof(mapped_t)
    g.fifo_at = <uint16_t>at
    at += g.n_fifo * sizeof(fifo_t)
    if g.calls:
        g.stack_at = <uint16_t>at
        at += (RETURN_DEPTH + 1) * sizeof(uint16_t)
    if g.n_dsr:                     # `all_but_base` of the last DSR stays within the block
        at = max(at, g.dsr_at + (g.n_dsr - 1) * g.dsr_bytes + sizeof(dsr_t))
    g.block_bytes = even(at)

cdef void ce_awaken(region_t* s, uint32_t cell) noexcept nogil:
    # Give a CE its initial state. Done when it first does something, so that idle PEs take no memory.
    cdef program_t* g = &s.f.programs[s.f.program_of[cell]]
    cdef ce_t* ce = s.f.ce[cell]
    cdef int k
    s.awake[s.n_awake] = cell
    s.n_awake += 1
    ce.prog = g
    ce.sram = g.sram + <uint64_t>(<char*>ce - g.blocks) // g.block_bytes * g.data_words
    ce.activated = g.active
    ce.blocked = g.blocked
    ce.rr = MAIN
    ce.last_task = N_TASK_IDS - 1
    if g.registers:
        mapped_of(ce).clock = CLOCK_RUNS
    if g.draws:
        for k in range(N_GENERATORS):
            lfsr_of(ce)[k] = s.f.seed
    for k in range(N_BINDINGS):
        if g.inq_slot[k] >= 0:
            inq_at(ce, g.inq_slot[k]).cap = s.f.in_caps[k & (N_QUEUES - 1)]
            inq_at(ce, g.inq_slot[k]).color = g.inq_color[k]
