# cython: overflowcheck=False
"""A vector operation of the main thread, alone, from its issue to its completion at once.

For one that works in memory as when it was last set up, on whichever PE, but for where its operands begin: `shape_t`.
What it loses to bank conflicts depends on the distance of its sources only, and is learned once per distance.  Called
by the loop of `wse_core.scalar` that books instructions together; how elements are done: `wse_core.bulk`.
"""
from wse_core.account cimport worked
from wse_core.arithmetic cimport bits_of_f32, f32_add, f32_of_bits
from wse_core.builtins cimport unlikely
from wse_core.bulk cimport MINUS_ZEROS, elements, learn, minus_zeros, places_t
from wse_core.operand cimport *
from wse_core.records cimport *
from wse_core.vector cimport vec_faddhs, vec_fmachs, vec_fmuls


cdef extern from *:
    void fetch "__builtin_prefetch"(const void* place) noexcept nogil

cdef inline bint asunder(int32_t a, int32_t o, int32_t a_words, int32_t words, int32_t n) noexcept nogil:
    # Whether a contiguous source that is not the destination does not touch it.
    return o + n * words <= a or a + n * a_words <= o

cdef inline void sum_whole(ce_t* ce, const form_t* f, const uint16_t* p, int32_t step, uint32_t n) noexcept nogil:
    # n f32 numbers added to a register one after the other. A NaN stays one, so it is enough to make the last sum
    # canonical.
    cdef float sum = f32_of_bits(reg_read(ce, f.a.reg, 2))
    while n > 4:
        sum += f32_of_bits((<const uint32_t*>p)[0])
        sum += f32_of_bits((<const uint32_t*>(p + step))[0])
        sum += f32_of_bits((<const uint32_t*>(p + 2 * step))[0])
        sum += f32_of_bits((<const uint32_t*>(p + 3 * step))[0])
        p += 4 * step
        n -= 4
    while n > 1:
        sum += f32_of_bits((<const uint32_t*>p)[0])
        p += step
        n -= 1
    reg_write(ce, f.a.reg, 2, f32_add(bits_of_f32(sum), (<const uint32_t*>p)[0], 0))

cdef void any_whole(ce_t* ce, const shape_t* shape, const instr_t* ins, uint16_t* m, int32_t a, int32_t b,
                    int32_t c) noexcept nogil:
    cdef const form_t* f = shape.form
    cdef places_t at
    at.a = m + a
    at.b = m + b
    at.c = m + c
    at.b_value = reg_read(ce, f.b.reg, f.b.words) if f.b.mode == OPND_CONST else 0
    at.c_value = reg_read(ce, f.c.reg, f.c.words) if f.c.mode == OPND_CONST else 0
    at.scalar = reg_read(ce, ins.d & 15, ins.wd) if ins.wd else 0
    elements(ce, f, &at, shape.n, shape.packed)

cdef inline void save_base(ce_t* ce, const shape_t* shape, const opnd_t* o, int k, int32_t base) noexcept nogil:
    # The DSR of an operand goes on behind the elements, if it is asked to.
    if o.flags & F_SAVE and o.mode == OPND_MEM1D:
        (<dsr_t*>(<char*>ce + shape.place[k])).base = <uint16_t>(base + <int32_t>shape.n * o.step)

cdef uint64_t vec_whole(region_t* s, ce_t* ce, uint64_t t, const instr_t* ins, shape_t* shape,
                        uint32_t* conflict) noexcept nogil:
    cdef int32_t a = 0, b = 0, c = 0, n
    cdef uint32_t distance, lost, last
    cdef uint64_t over
    cdef const form_t* f
    cdef uint16_t* m
    if not (fits(ce, shape, 0, &b) and fits(ce, shape, 1, &c) and fits(ce, shape, 2, &a)):
        return 0
    if is_late(s, ce, t, shape.form, b, c):
        return 0
    distance = <uint32_t>(b - c) & (shape.distances - 1)
    if unlikely(not (shape.learned >> distance) & 1):
        learn(s, ce, shape, distance)
    lost = shape.lost[distance]
    over = t + 1 + s.f.p.start + shape.steps + lost
    if over > s.ahead:
        return 0
    last = shape.last[distance]
    conflict[0] = last
    f = shape.form
    n = <int32_t>shape.n
    ce.counts[COUNT_BUSY] += 1 + shape.steps
    ce.counts[COUNT_STALL_CONFLICT] += lost
    ce.counts[COUNT_STEPS] += shape.steps
    ce.counts[COUNT_ELEMENTS] += shape.n
    worked(s, f, shape.n)
    if shape.mac:
        ce.counts[COUNT_MACS] += shape.n
    m = ce.sram - ce.prog.code_words
    # A program that goes through an array goes on behind it, when the other PEs have had their turn: fetched.
    if shape.way == WAY_SUM:
        if shape.same[0]:
            sum_whole(ce, f, m + b, f.b.step, shape.n)
        else:
            sum_whole(ce, f, m + c, f.c.step, shape.n)
    elif shape.way == WAY_FMACHS and (a == b or asunder(a, b, 2, 2, n)) and asunder(a, c, 2, 1, n):
        fetch(m + c + n)
        vec_fmachs(&ce.prog.num, <uint32_t*>(m + a), <uint32_t*>(m + b), m + c, <uint16_t>reg_read(ce, ins.d & 15, 1),
                   n)
    elif shape.way == WAY_FH2S and n <= MINUS_ZEROS and asunder(a, b, 2, 1, n):
        fetch(m + b + n)
        vec_faddhs(&ce.prog.num, <uint32_t*>(m + a), m + b, minus_zeros, n)
    elif shape.way == WAY_FMULS and (a == b or asunder(a, b, 2, 2, n)) and (a == c or asunder(a, c, 2, 2, n)):
        vec_fmuls(&ce.prog.num, <uint32_t*>(m + a), <uint32_t*>(m + b), <uint32_t*>(m + c), n)
    else:
        any_whole(ce, shape, ins, m, a, b, c)
    if shape.saves:
        save_base(ce, shape, &f.b, 0, b)
        save_base(ce, shape, &f.c, 1, c)
        if f.a.dsr != f.b.dsr:
            save_base(ce, shape, &f.a, 2, a)
    note_written(s, ce, f, a, shape.n, over)
    if f.a.mode == OPND_REG:
        last += 1
        wait_reg(ce, f.a.reg, f.a.words, over - last, last if last > f.latency else f.latency)
    return over
