# cython: overflowcheck=False
"""Vector operations in bulk: all steps of an operation in memory that fall into a span of cycles, in one call.

For the main thread only, while nobody else of its PE issues; most operations are done as a whole, by `wse_core.whole`
with what is here.  Elements go through the kernels of `wse_core.vector` where one fits; cycles lost to bank conflicts
follow a pattern, because addresses advance evenly.
"""
from libc.string cimport memset

from wse_core.account cimport *
from wse_core.alu cimport alu
from wse_core.arithmetic cimport bits_of_f32, f32_add, f32_fma, f32_max, f32_min, f32_mul, f32_of_bits, f32_sub
from wse_core.block cimport *
from wse_core.builtins cimport *
from wse_core.opcodes cimport *
from wse_core.operand cimport *
from wse_core.queue cimport *
from wse_core.records cimport *
from wse_core.vecop cimport vec_complete, vec_step
from wse_core.vector cimport (
    vec_faddh, vec_faddhs, vec_fadds, vec_fmach, vec_fmachs, vec_fmacs, vec_fmulh, vec_fmuls, vec_fsubh, vec_fsubs)


for _k in range(MINUS_ZEROS):
    minus_zeros[_k] = 0x80000000U

cdef inline bint apart(const uint16_t* a, const uint16_t* o, int a_words, int words, uint32_t n) noexcept nogil:
    # Whether a contiguous source is the destination itself or does not touch it: the condition of vec_*.
    return a == o and a_words == words or o + <int64_t>n * words <= a or a + <int64_t>n * a_words <= o

cdef inline bint vec_contiguous(ce_t* ce, const form_t* f, const places_t* at, uint32_t n) noexcept nogil:
    # n elements of contiguous operands through a bulk kernel, if there is one. Gain over the loop below: 10-60x.
    cdef const num_t* num = &ce.prog.num
    cdef uint16_t* pa = at.a
    cdef uint16_t* pb = at.b
    cdef uint16_t* pc = at.c
    cdef int op = f.op
    if not (apart(pa, pb, f.a.words, f.b.words, n) and apart(pa, pc, f.a.words, f.c.words, n)):
        return False
    if op == OP_FMACS:
        vec_fmacs(num, <uint32_t*>pa, <uint32_t*>pb, <uint32_t*>pc, at.scalar, n)
    elif op == OP_FMACHS:
        vec_fmachs(num, <uint32_t*>pa, <uint32_t*>pb, pc, <uint16_t>at.scalar, n)
    elif op == OP_FMACH:
        vec_fmach(num, pa, pb, pc, <uint16_t>at.scalar, n)
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

cdef inline bint walks(const opnd_t* o) noexcept nogil:
    # In memory, element after element; of several dimensions along a row.
    return o.mode == OPND_MEM1D or o.mode == OPND_MEM4D

cdef inline bint in_words(const opnd_t* o) noexcept nogil:
    # f32 numbers, or one of them.
    return o.words == 2 and (walks(o) or o.mode == OPND_CONST)

cdef inline uint32_t word_at(const uint16_t* m, int words) noexcept nogil:
    return <uint32_t>m[0] | (<uint32_t>m[1] << 16) if words == 2 else m[0]

cdef inline void word_to(uint16_t* m, int words, uint32_t value) noexcept nogil:
    m[0] = <uint16_t>value
    if words == 2:
        m[1] = <uint16_t>(value >> 16)

cdef inline void vec_each(ce_t* ce, const form_t* f, const places_t* at, uint32_t n, int op) noexcept nogil:
    # n elements, one after the other; where `op` is a constant, what it does is known to the compiler.
    # A source that is a register is the destination, which each element reads anew.
    cdef const num_t* num = &ce.prog.num
    cdef const opnd_t* a = &f.a
    cdef const opnd_t* b = &f.b
    cdef const opnd_t* c = &f.c
    cdef bint from_b = walks(b), from_c = walks(c), to_memory = walks(a)
    cdef uint16_t* pa = at.a
    cdef const uint16_t* pb = at.b
    cdef const uint16_t* pc = at.c
    cdef uint32_t vb = at.b_value, vc = at.c_value, r
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
        r = alu(op, num, vb, vc, reg_read(ce, a.reg, a.words) if unlikely(f.live) else at.scalar)
        if to_memory:
            word_to(pa, a.words, r)
            pa += a.step
        else:
            reg_write(ce, a.reg, a.words, r)

cdef inline void f32_each(const form_t* f, const places_t* at, uint32_t n, int op) noexcept nogil:
    # n results of two f32 numbers each, in memory or constants; `op`, an `OP_*`, is known to the compiler.
    cdef uint16_t* pa = at.a
    cdef uint32_t vb = at.b_value, vc = at.c_value
    cdef uint32_t[2] constants
    cdef const uint16_t* pb = at.b
    cdef const uint16_t* pc = at.c
    cdef int64_t a = f.a.step, b = f.b.step, c = f.c.step       # 0 of what is no memory
    constants[0], constants[1] = vb, vc
    if not walks(&f.b):
        pb = <const uint16_t*>&constants[0]
    if not walks(&f.c):
        pc = <const uint16_t*>&constants[1]
    while n:
        n -= 1
        vb = (<const uint32_t*>pb)[0]
        vc = (<const uint32_t*>pc)[0]
        if op == OP_FADDS:
            vb = f32_add(vb, vc, 0)
        elif op == OP_FSUBS:
            vb = f32_sub(vb, vc, 0)
        elif op == OP_FMULS:
            vb = f32_mul(vb, vc, 0)
        elif op == OP_FMAXS:
            vb = f32_max(vb, vc, 0)
        elif op == OP_FMINS:
            vb = f32_min(vb, vc, 0)
        else:
            vb = f32_fma(vc, at.scalar, vb, 0)
        (<uint32_t*>pa)[0] = vb
        pa += a
        pb += b
        pc += c

cdef inline void f32_most(ce_t* ce, const form_t* f, const uint16_t* p, uint32_t n, int op) noexcept nogil:
    # The largest, or the smallest, of what a register holds and n f32 numbers in memory goes to the register.
    cdef uint32_t value = reg_read(ce, f.a.reg, 2), other
    while n:
        n -= 1
        other = (<const uint32_t*>p)[0]
        value = f32_max(value, other, 0) if op == OP_FMAXS else f32_min(value, other, 0)
        p += f.c.step
    reg_write(ce, f.a.reg, 2, value)

cdef inline void vec_sum(ce_t* ce, const form_t* f, const places_t* at, uint32_t n) noexcept nogil:
    # n f32 numbers added to a register one after the other. A NaN stays one, so it is enough to make the last sum
    # canonical.
    cdef const uint16_t* p = at.b if f.b.mode == OPND_MEM1D else at.c
    cdef int32_t step = f.b.step if f.b.mode == OPND_MEM1D else f.c.step
    cdef float sum = f32_of_bits(reg_read(ce, f.a.reg, 2))
    while n > 1:
        n -= 1
        sum += f32_of_bits(word_at(p, 2))
        p += step
    reg_write(ce, f.a.reg, 2, f32_add(bits_of_f32(sum), word_at(p, 2), 0))

cdef inline bint vec_widened(ce_t* ce, const form_t* f, const places_t* at, uint32_t n) noexcept nogil:
    # 16-bit numbers to f32, if both are contiguous: sums with minus zero, which changes nothing.
    cdef uint32_t* a = <uint32_t*>at.a
    cdef uint16_t* b = at.b
    cdef uint32_t part
    if not (contiguous(&f.a) and contiguous(&f.b) and apart(at.a, b, 2, 1, n)):
        return False
    while n:
        part = n if n < MINUS_ZEROS else MINUS_ZEROS
        vec_faddhs(&ce.prog.num, a, b, minus_zeros, part)
        a += part
        b += part
        n -= part
    return True

cdef inline bint f32_elements(ce_t* ce, const form_t* f, const places_t* at, uint32_t n) noexcept nogil:
    # The operations on f32 numbers that programs do most, without a look at what they are for each element. False:
    # nothing was done.  Gain: half of the instructions of an element, and more of a maximum.
    if walks(&f.a) and in_words(&f.b) and in_words(&f.c):
        if f.op == OP_FMULS:
            f32_each(f, at, n, OP_FMULS)
        elif f.op == OP_FADDS:
            f32_each(f, at, n, OP_FADDS)
        elif f.op == OP_FSUBS:
            f32_each(f, at, n, OP_FSUBS)
        elif f.op == OP_FMAXS:
            f32_each(f, at, n, OP_FMAXS)
        elif f.op == OP_FMINS:
            f32_each(f, at, n, OP_FMINS)
        elif f.op == OP_FMACS and not ce.prog.num.separate:
            f32_each(f, at, n, OP_FMACS)
        else:
            return False
        return True
    if f.a.mode == OPND_REG and f.b.mode == OPND_REG and f.c.words == 2 and walks(&f.c):
        if f.op == OP_FMAXS:
            f32_most(ce, f, at.c, n, OP_FMAXS)
            return True
        if f.op == OP_FMINS:
            f32_most(ce, f, at.c, n, OP_FMINS)
            return True
    return False

cdef inline void half_each(ce_t* ce, const form_t* f, const places_t* at, uint32_t n, int op,
                           int b_words) noexcept nogil:
    # n results of 16 bits each, of numbers in memory or constants; `op` and `b_words` are known to the compiler.
    cdef uint16_t* pa = at.a
    cdef uint16_t[4] constants
    cdef const uint16_t* pb = at.b
    cdef const uint16_t* pc = at.c
    cdef int64_t a = f.a.step, b = f.b.step, c = f.c.step       # 0 of what is no memory
    word_to(&constants[0], 2, at.b_value)
    word_to(&constants[2], 2, at.c_value)
    if not walks(&f.b):
        pb = &constants[0]
    if not walks(&f.c):
        pc = &constants[2]
    while n:
        n -= 1
        pa[0] = <uint16_t>alu(op, &ce.prog.num, word_at(pb, b_words), pc[0], 0)
        pa += a
        pb += b
        pc += c

cdef inline bint half_elements(ce_t* ce, const form_t* f, const places_t* at, uint32_t n) noexcept nogil:
    # The same of 16 bits, of which exponentials are made.  Gain: half of the instructions of an element.
    if not walks(&f.a) or not (walks(&f.b) or f.b.mode == OPND_CONST):
        return False
    if f.op == OP_FS2H:
        half_each(ce, f, at, n, OP_FS2H, 2)
        return True
    if f.op == OP_MOV16:
        half_each(ce, f, at, n, OP_MOV16, 1)
        return True
    if not (walks(&f.c) or f.c.mode == OPND_CONST):
        return False
    if f.op == OP_ADD16:
        half_each(ce, f, at, n, OP_ADD16, 1)
    elif f.op == OP_SUB16:
        half_each(ce, f, at, n, OP_SUB16, 1)
    elif f.op == OP_AND16:
        half_each(ce, f, at, n, OP_AND16, 1)
    else:
        return False
    return True

cdef void elements(ce_t* ce, const form_t* f, const places_t* at, uint32_t n, bint packed) noexcept nogil:
    # n elements of an operation all of whose operands are flat and checked; `packed`: contiguous too.
    if packed and n >= 4 and vec_contiguous(ce, f, at, n):
        return
    if f.a.words == 1:
        if half_elements(ce, f, at, n):
            return
    elif not ce.prog.num.ftz and f32_elements(ce, f, at, n):
        return
    if f.op == OP_FADDS:
        if not ce.prog.num.ftz and (f.b.mode == OPND_REG and f.c.mode == OPND_MEM1D
                                    or f.b.mode == OPND_MEM1D and f.c.mode == OPND_REG):
            vec_sum(ce, f, at, n)
        else:
            vec_each(ce, f, at, n, OP_FADDS)
    elif f.op == OP_FH2S:
        if n < 4 or not vec_widened(ce, f, at, n):
            vec_each(ce, f, at, n, OP_FH2S)
    elif f.op == OP_MOV32:
        vec_each(ce, f, at, n, OP_MOV32)
    elif f.op == OP_FMACHS:
        vec_each(ce, f, at, n, OP_FMACHS)
    else:
        vec_each(ce, f, at, n, f.op)

cdef inline uint16_t* place_of(uint16_t* m, const opnd_t* o, int32_t base, uint32_t k) noexcept nogil:
    return m + base + <int64_t>k * o.step if o.mode == OPND_MEM1D else m

cdef void vec_elements(ce_t* ce, thread_t* th, uint32_t n) noexcept nogil:
    # The same for a running operation, from k on.
    cdef const form_t* f = th.form
    cdef uint16_t* m = ce.sram - ce.prog.code_words
    cdef places_t at
    at.a = place_of(m, &f.a, th.base_a, th.k)
    at.b = place_of(m, &f.b, th.base_b, th.k)
    at.c = place_of(m, &f.c, th.base_c, th.k)
    at.b_value = <uint32_t>th.base_b
    at.c_value = <uint32_t>th.base_c
    at.scalar = th.scalar
    elements(ce, f, &at, n, contiguous(&f.a) and contiguous(&f.b) and contiguous(&f.c))
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
        s.watch[cell].lost[th.form.id] += <uint32_t>lost
    ce.tail_conflict = cost - 1
    ce.acct = t
    ce.pipe_free = t
    th.next = t
    ce.rr = MAIN
    touched(s, t - cost)
    if th.k == th.n:
        vec_complete(s, ce, cell, th, t - cost, cost)

ctypedef struct span_t:     # steps that issue back to back
    uint64_t steps
    uint64_t lost           # conflict cycles of all of them
    uint32_t last           # conflict cycles of the last one
    uint32_t n              # elements

cdef void steps_between(region_t* s, ce_t* ce, thread_t* th, uint64_t start, uint64_t end,
                        span_t* found) noexcept nogil:
    # The steps of an operation in memory, from element k on, that issue in cycles start .. end - 1, start < end.
    cdef uint64_t t = start, left, rounds, turn
    cdef uint32_t conflict, period, n, hits = 0, group = th.form.group
    cdef uint8_t pattern[MAX_BANKS]   # no period is longer
    found.steps = 0
    found.lost = 0
    found.last = 0
    left = (th.n - th.k) // group
    if left:
        period = conflict_pattern(s, ce, th, <uint32_t>left, pattern)
        for n in range(period):
            hits += pattern[n]
        turn = period + hits
        rounds = left // period
        if rounds * turn > end - t:
            rounds = (end - t) // turn
        if rounds:
            found.steps = rounds * period
            t += rounds * turn
            found.lost = rounds * hits
            found.last = pattern[period - 1]
        n = 0
        while found.steps < left and t < end:
            conflict = pattern[n]
            t += 1 + conflict
            found.lost += conflict
            found.last = conflict
            found.steps += 1
            n = 0 if n + 1 == period else n + 1
    found.n = <uint32_t>(found.steps * group)
    if found.steps == left and t < end and found.n < th.n - th.k:       # a last step of fewer elements
        conflict = conflict_of(s, ce, th, th.k + found.n, th.n - th.k - found.n)
        found.lost += conflict
        found.last = conflict
        found.steps += 1
        found.n = th.n - th.k

cdef inline uint16_t* element_of(ce_t* ce, uint16_t* m, const opnd_t* o, int32_t base, uint32_t k) noexcept nogil:
    return m + address_of(ce, o, base, k) if is_memory(o) else m

cdef void vec_rows(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t start, uint64_t end) noexcept nogil:
    # `vec_bulk` where operands have several dimensions: a step lies in one row of each.  Gain over `vec_step`: half of
    # the instructions of an element.
    cdef const form_t* f = th.form
    cdef uint16_t* m = ce.sram - ce.prog.code_words
    cdef uint64_t t = start
    cdef uint32_t g, conflict
    cdef places_t at
    at.b_value = <uint32_t>th.base_b
    at.c_value = <uint32_t>th.base_c
    at.scalar = th.scalar
    while t < end and ce.main_state == MAIN_VECTOR:
        touched(s, t)
        g = group_of(ce, th)
        conflict = conflict_of(s, ce, th, th.k, g)
        at.a = element_of(ce, m, &f.a, th.base_a, th.k)
        at.b = element_of(ce, m, &f.b, th.base_b, th.k)
        at.c = element_of(ce, m, &f.c, th.base_c, th.k)
        end_step(ce, th, t, 1, conflict)
        elements(ce, f, &at, g, False)
        ce.counts[COUNT_ELEMENTS] += g
        if is_mac(f.op):
            ce.counts[COUNT_MACS] += g
        th.k += g
        if th.k == th.n:
            vec_complete(s, ce, cell, th, t, 1 + conflict)
        t = ce.pipe_free

cdef inline bint in_rows(const opnd_t* o) noexcept nogil:
    return o.mode != OPND_CIRCULAR

cdef void vec_bulk(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t start, uint64_t end) noexcept nogil:
    # All steps of a memory operation of the main thread that issue in cycles start .. end - 1, back to back.
    cdef uint64_t t = start
    cdef uint32_t cost, n
    cdef span_t span
    if flat(&th.form.a) and flat(&th.form.b) and flat(&th.form.c):
        if start >= end:
            return
        n = th.n - th.k
        if n <= th.form.group:          # one step. Gain: 100 instructions of 190.
            cost = 1 + conflict_of(s, ce, th, th.k, n)
            vec_elements(ce, th, n)
            book_bulk(s, ce, cell, th, start + cost, 1, cost - 1, cost)
            return
        steps_between(s, ce, th, start, end, &span)
        vec_elements(ce, th, span.n)
        book_bulk(s, ce, cell, th, start + span.steps + span.lost, span.steps, span.lost, 1 + span.last)
        return
    if not TRACE and in_rows(&th.form.a) and in_rows(&th.form.b) and in_rows(&th.form.c):
        vec_rows(s, ce, cell, th, start, end)
        return
    while t < end and ce.main_state == MAIN_VECTOR:
        touched(s, t)
        vec_step(s, ce, cell, th, t)
        t = ce.pipe_free


cdef void learn(region_t* s, ce_t* ce, shape_t* shape, uint32_t distance) noexcept nogil:
    # What an operation loses in memory whose sources are so far apart.
    cdef thread_t th
    cdef span_t span
    memset(&th, 0, sizeof(thread_t))
    th.form = shape.form
    th.n = shape.n
    th.base_b = <int32_t>distance
    steps_between(s, ce, &th, 0, NEVER, &span)
    shape.lost[distance] = <uint32_t>span.lost
    shape.last[distance] = <uint8_t>span.last
    shape.learned |= <uint8_t>(1 << distance)
