# cython: overflowcheck=False
"""Vector operations in bulk: all steps of an operation in memory that fall into a span of cycles, in one call.

For the main thread only, while nobody else of its PE issues.  Elements go through the kernels of `wse_core.vector`
where one fits; cycles lost to bank conflicts follow a pattern, because addresses advance evenly.
"""
from wse_core.account cimport *
from wse_core.alu cimport alu
from wse_core.block cimport *
from wse_core.builtins cimport *
from wse_core.opcodes cimport *
from wse_core.operand cimport *
from wse_core.queue cimport *
from wse_core.records cimport *
from wse_core.vecop cimport vec_complete, vec_step
from wse_core.vector cimport (
    vec_faddh, vec_faddhs, vec_fadds, vec_fmach, vec_fmachs, vec_fmacs, vec_fmulh, vec_fmuls, vec_fsubh, vec_fsubs)


cdef inline bint disjoint(const opnd_t* a, int32_t base_a, const opnd_t* o, int32_t base, uint32_t k,
                          uint32_t n) noexcept nogil:
    # Whether contiguous source `o` is the destination itself or does not touch it: the condition of vec_*.
    cdef int64_t a0, o0
    if o.mode != OPND_MEM1D:
        return o.mode != OPND_REG
    a0 = base_a + <int64_t>k * a.step
    o0 = base + <int64_t>k * o.step
    if a0 == o0 and a.words == o.words:
        return True
    return o0 + <int64_t>n * o.words <= a0 or a0 + <int64_t>n * a.words <= o0

cdef inline bint contiguous(const opnd_t* o) noexcept nogil:
    return o.mode == OPND_MEM1D and o.step == o.words

cdef bint vec_contiguous(ce_t* ce, thread_t* th, uint32_t n) noexcept nogil:
    # n elements from k on through a bulk kernel, if there is one for this shape. Gain over the loop below: 10-60x.
    cdef const num_t* num = &ce.prog.num
    cdef uint16_t* m = ce.sram - ce.prog.code_words
    cdef const opnd_t* a = &th.form.a
    cdef const opnd_t* b = &th.form.b
    cdef const opnd_t* c = &th.form.c
    cdef uint16_t* pa
    cdef uint16_t* pb
    cdef uint16_t* pc
    cdef int op = th.form.op
    if not (contiguous(a) and contiguous(b) and contiguous(c) and disjoint(a, th.base_a, b, th.base_b, th.k, n)
            and disjoint(a, th.base_a, c, th.base_c, th.k, n)):
        return False
    pa = m + th.base_a + <int64_t>th.k * a.step
    pb = m + th.base_b + <int64_t>th.k * b.step
    pc = m + th.base_c + <int64_t>th.k * c.step
    if op == OP_FMACS:
        vec_fmacs(num, <uint32_t*>pa, <uint32_t*>pb, <uint32_t*>pc, th.scalar, n)
    elif op == OP_FMACHS:
        vec_fmachs(num, <uint32_t*>pa, <uint32_t*>pb, pc, <uint16_t>th.scalar, n)
    elif op == OP_FMACH:
        vec_fmach(num, pa, pb, pc, <uint16_t>th.scalar, n)
    elif op == OP_FADDS:
        vec_fadds(num, <uint32_t*>pa, <uint32_t*>pb, <uint32_t*>pc, n)
    elif op == OP_FSUBS:
        vec_fsubs(num, <uint32_t*>pa, <uint32_t*>pb, <uint32_t*>pc, n)
    elif op == OP_FMULS:
        vec_fmuls(num, <uint32_t*>pa, <uint32_t*>pb, <uint32_t*>pc, n)
    elif op == OP_FADDH:
        vec_faddh(num, pa, pb, pc, n)
    elif op == OP_FSUBH:
        vec_fsubh(num, pa, pb, pc, n)
    elif op == OP_FMULH:
        vec_fmulh(num, pa, pb, pc, n)
    elif op == OP_FADDHS:
        vec_faddhs(num, <uint32_t*>pa, pb, <uint32_t*>pc, n)
    else:
        return False
    return True

cdef inline uint32_t word_at(const uint16_t* m, int words) noexcept nogil:
    return <uint32_t>m[0] | (<uint32_t>m[1] << 16) if words == 2 else m[0]

cdef inline void word_to(uint16_t* m, int words, uint32_t value) noexcept nogil:
    m[0] = <uint16_t>value
    if words == 2:
        m[1] = <uint16_t>(value >> 16)

cdef inline void vec_each(ce_t* ce, thread_t* th, uint32_t n, int op) noexcept nogil:
    # n elements from k on, one after the other; where `op` is a constant, what it does is known to the compiler.
    # A source that is a register is the destination, which each element reads anew.
    cdef const num_t* num = &ce.prog.num
    cdef uint16_t* m = ce.sram - ce.prog.code_words
    cdef const opnd_t* a = &th.form.a
    cdef const opnd_t* b = &th.form.b
    cdef const opnd_t* c = &th.form.c
    cdef bint from_b = b.mode == OPND_MEM1D, from_c = c.mode == OPND_MEM1D
    cdef bint to_memory = a.mode == OPND_MEM1D
    cdef uint16_t* pa = m + th.base_a + <int64_t>th.k * a.step if to_memory else m
    cdef const uint16_t* pb = m + th.base_b + <int64_t>th.k * b.step if from_b else m
    cdef const uint16_t* pc = m + th.base_c + <int64_t>th.k * c.step if from_c else m
    cdef uint32_t vb = <uint32_t>th.base_b, vc = <uint32_t>th.base_c, r
    while n:
        n -= 1
        if from_b:
            vb = word_at(pb, b.words)
            pb += b.step
        elif b.mode == OPND_REG:
            vb = reg_read(ce, b.reg, b.words)
        if from_c:
            vc = word_at(pc, c.words)
            pc += c.step
        elif c.mode == OPND_REG:
            vc = reg_read(ce, c.reg, c.words)
        r = alu(op, num, vb, vc, multiplier(ce, th))
        if to_memory:
            word_to(pa, a.words, r)
            pa += a.step
        else:
            reg_write(ce, a.reg, a.words, r)

cdef void vec_elements(ce_t* ce, thread_t* th, uint32_t n) noexcept nogil:
    # n elements from k on of an operation all of whose operands are flat and checked.
    if n < 4 or not vec_contiguous(ce, th, n):
        if th.form.op == OP_FADDS:
            vec_each(ce, th, n, OP_FADDS)
        elif th.form.op == OP_FH2S:
            vec_each(ce, th, n, OP_FH2S)
        elif th.form.op == OP_FMACHS:
            vec_each(ce, th, n, OP_FMACHS)
        else:
            vec_each(ce, th, n, th.form.op)
    th.k += n
    ce.counts[COUNT_ELEMENTS] += n
    if is_mac(th.form.op):
        ce.counts[COUNT_MACS] += n

cdef inline bint flat(const opnd_t* o) noexcept nogil:
    return o.mode != OPND_MEM4D and o.mode != OPND_CIRCULAR

cdef uint32_t conflict_pattern(region_t* s, ce_t* ce, thread_t* th, uint32_t left, uint8_t* pattern) noexcept nogil:
    # Cycles lost by the `left` full steps from element k on: periodic, because addresses advance evenly. Returns the
    # period, or `left` if that is less.
    cdef const form_t* f = th.form
    cdef int64_t m = bank_period(s), first, by, at
    cdef int64_t a = <int64_t>f.a.step * f.group if f.a.mode == OPND_MEM1D else 0
    cdef int64_t b = <int64_t>f.b.step * f.group if f.b.mode == OPND_MEM1D else 0
    cdef int64_t c = <int64_t>f.c.step * f.group if f.c.mode == OPND_MEM1D else 0
    cdef uint32_t period = 1, n
    by = 0
    if s.f.p.conflict_rule != RULE_NONE and f.b.mode == OPND_MEM1D and f.c.mode == OPND_MEM1D:
        by = modulo(b - c, m)
    if by and not f.one_bank and s.f.p.read_ports >= 2 and (f.group == 1 or f.b.words == 1 or f.c.words == 1):
        # Only the first elements of the two sources count, whose distance changes evenly. Gain: 300 instructions.
        first = modulo(address_of(ce, &f.b, th.base_b, th.k) - address_of(ce, &f.c, th.base_c, th.k), m)
        at = first
        n = 0
        while True:
            pattern[n] = <uint8_t>s.f.p.conflict_cycles if at == 0 else 0
            n += 1
            at += by
            if at >= m:
                at -= m
            if at == first or n == left:
                return n
    pattern[0] = <uint8_t>conflict_of(s, ce, th, th.k, f.group)
    if by == 0 and not f.one_bank:
        return 1
    for n in range(1, <uint32_t>m if m < left else left):
        if modulo((b - c) * n, m) == 0 and (not f.one_bank or modulo((a - b) * n, m) == 0):
            break
        pattern[n] = <uint8_t>conflict_of(s, ce, th, th.k + n * f.group, f.group)
        period += 1
    return period

cdef inline void book_bulk(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t, uint64_t steps,
                           uint64_t lost, uint32_t cost) noexcept nogil:
    # Book steps up to cycle t, the last one of this cost; the operation may be complete.
    ce.counts[COUNT_STEPS] += steps
    ce.counts[COUNT_BUSY] += steps
    ce.counts[COUNT_STALL_CONFLICT] += lost
    if TRACE:
        s.watch[cell].lost[th.id] += <uint32_t>lost
    ce.tail_conflict = cost - 1
    ce.acct = t
    ce.pipe_free = t
    th.next = t
    ce.rr = MAIN
    touched(s, t - cost)
    if th.k == th.n:
        vec_complete(s, ce, cell, th, t - cost, cost)

cdef void vec_bulk(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t start, uint64_t end) noexcept nogil:
    # All steps of a memory operation of the main thread that issue in cycles start .. end - 1, back to back.
    cdef uint64_t t = start, left, rounds, turn, steps = 0, lost = 0
    cdef uint32_t cost = 1, conflict, period, n, hits = 0
    cdef uint8_t pattern[MAX_BANKS]   # no period is longer
    cdef uint32_t group = th.form.group
    if flat(&th.form.a) and flat(&th.form.b) and flat(&th.form.c):
        if start >= end:
            return
        n = th.n - th.k
        if n <= group:                  # one step. Gain: 100 instructions of 190.
            cost = 1 + conflict_of(s, ce, th, th.k, n)
            vec_elements(ce, th, n)
            book_bulk(s, ce, cell, th, start + cost, 1, cost - 1, cost)
            return
        left = n // group
        period = conflict_pattern(s, ce, th, <uint32_t>left, pattern)
        for n in range(period):
            hits += pattern[n]
        turn = period + hits
        rounds = left // period
        if rounds * turn > end - t:
            rounds = (end - t) // turn
        if rounds:
            steps = rounds * period
            t += rounds * turn
            lost = rounds * hits
            cost = 1 + pattern[period - 1]
        n = 0
        while steps < left and t < end:
            conflict = pattern[n]
            cost = 1 + conflict
            t += cost
            lost += conflict
            steps += 1
            n = 0 if n + 1 == period else n + 1
        n = <uint32_t>(steps * group)
        if steps == left and t < end and n < th.n - th.k:       # a last step of fewer elements
            conflict = conflict_of(s, ce, th, th.k + n, th.n - th.k - n)
            cost = 1 + conflict
            t += cost
            lost += conflict
            steps += 1
            n = th.n - th.k
        vec_elements(ce, th, n)
        book_bulk(s, ce, cell, th, t, steps, lost, cost)
        return
    while t < end and ce.main_state == MAIN_VECTOR:
        touched(s, t)
        vec_step(s, ce, cell, th, t)
        t = ce.pipe_free
