# cython: overflowcheck=False
"""What a CE does with many words of a stream at once: the next elements of its main thread's flow, one per word."""
from libc.string cimport memcpy

from wse_core.builtins cimport *
from wse_core.bulk cimport elements, places_t
from wse_core.opcodes cimport OP_FMOVS, OP_MOV32
from wse_core.operand cimport *
from wse_core.records cimport *


cdef inline uint16_t* place_in(uint16_t* m, opnd_t* o, int32_t base, uint32_t k, uint32_t* words) noexcept nogil:
    # Where element k of an operand is; one of the fabric becomes one in memory, a word per element.
    if o.mode == OPND_FABIN or o.mode == OPND_FABOUT:
        o.mode = OPND_MEM1D
        o.step = 2
        return <uint16_t*>words
    if o.mode == OPND_MEM4D:            # within a row
        o.mode = OPND_MEM1D
    return m + base + <int64_t>k * o.step if o.mode == OPND_MEM1D else m

cdef void compute(ce_t* ce, uint32_t* into, uint32_t* out, uint32_t n) noexcept nogil:
    # `into` are the words that it takes, `out`, the same or others, those that it sends.
    cdef thread_t* th = &ce.main
    cdef form_t f = th.form[0]
    cdef uint16_t* m = ce.sram - ce.prog.code_words
    cdef places_t at
    cdef uint32_t k
    at.a = place_in(m, &f.a, th.base_a, th.k, out)
    at.b = place_in(m, &f.b, th.base_b, th.k, into)
    at.c = place_in(m, &f.c, th.base_c, th.k, into)
    at.b_value = <uint32_t>th.base_b
    at.c_value = <uint32_t>th.base_c
    at.scalar = th.scalar
    if (f.op == OP_MOV32 or f.op == OP_FMOVS) and contiguous(&f.a) and contiguous(&f.b):
        memcpy(at.a, at.b, n * sizeof(uint32_t))
    else:
        elements(ce, &f, &at, n, contiguous(&f.a) and contiguous(&f.b) and contiguous(&f.c))
    if th.form.plane != NO_PLACE and f.a.words == 1:
        for k in range(n):
            out[k] &= 0xFFFF
