# cython: overflowcheck=False
# Operands of instructions: registers, SRAM, descriptors, queues, FIFOs; addresses of elements; bank conflicts.
#
# Leaf functions of the innermost loops, inline in every room of the CE that uses them.  A step reads its elements with
# `read_element`, writes with `write_element`, sends with `send`; `conflict_of` says what the step loses in memory.
# Rules: docs/machine.md, "CE".
from libc.string cimport memcpy, memset

from wse_core.block cimport *
from wse_core.builtins cimport *
from wse_core.emit cimport emit, record_fault
from wse_core.queue cimport *
from wse_core.records cimport *
from wse_core.report cimport fault, traced_send, traced_take

cdef inline bint in_memory(const thread_t* th) noexcept nogil:
    # No fabric or FIFO operand.
    return th.kind >= KIND_MEMORY

cdef inline uint32_t reg_read(ce_t* ce, int r, int words) noexcept nogil:
    if words == 2:
        return <uint32_t>ce.regs[r & 15] | (<uint32_t>ce.regs[(r + 1) & 15] << 16)
    return ce.regs[r & 15]

cdef inline void reg_write(ce_t* ce, int r, int words, uint32_t value) noexcept nogil:
    ce.regs[r & 15] = <uint16_t>value
    if words == 2:
        ce.regs[(r + 1) & 15] = <uint16_t>(value >> 16)

cdef inline void wait_reg(ce_t* ce, int r, int words, uint64_t t, uint32_t latency) noexcept nogil:
    # Register r is ready in cycle t + latency. Ready cycles are kept relative to a base that moves on when all are
    # past.
    cdef ready_t* to = ready_of(ce)
    cdef uint64_t ready = t + latency
    cdef uint64_t gone = t - to.base
    cdef int k
    if ce.ready_max <= t:
        to.base = t
        memset(to.after, 0, sizeof(to.after))
    elif gone > 30000:
        to.base = t
        for k in range(N_REGS):
            to.after[k] = to.after[k] - <uint16_t>gone if to.after[k] > gone else 0
    to.after[r & 15] = <uint16_t>(ready - to.base)
    if words == 2:
        to.after[(r + 1) & 15] = to.after[r & 15]
    if ready > ce.ready_max:
        ce.ready_max = ready

cdef inline uint64_t inq_take(region_t* s, ce_t* ce, uint32_t cell, inq_t* q, uint64_t t) noexcept nogil:
    cdef uint64_t word = q.slots[q.head]
    q.slots[q.head] = stamp_of(t + 1)
    q.head += 1
    if q.head == q.cap:
        q.head = 0
    inq_freed(s, cell, q)
    if TRACE:
        traced_take(s, ce, cell, q, word, t)
    ce.counts[COUNT_RECEIVED] += 1
    s.waiting = 1                   # the router can use the place from the next cycle on
    return word

cdef inline bint sram_at(ce_t* ce, int64_t address, int words, uint32_t* index) noexcept nogil:
    # Index of a legal access into the PE's data; 0 = fault.
    cdef int64_t i = address - <int64_t>ce.prog.code_words
    if i < 0 or i + words > <int64_t>ce.prog.data_words or (words == 2 and address & 1):
        return False
    index[0] = <uint32_t>i
    return True

cdef inline void sram_fault(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, int64_t address,
                            int words) noexcept nogil:
    cdef int64_t i = address - <int64_t>ce.prog.code_words
    if words == 2 and address & 1 and i >= 0 and i + words <= <int64_t>ce.prog.data_words:
        fault(s, ce, cell, t, FAULT_SRAM_ALIGN, address, -1, 0, words)
    else:
        fault(s, ce, cell, t, FAULT_SRAM_RANGE, address, -1, 0, words)

cdef inline uint32_t sram_read(ce_t* ce, uint32_t index, int words) noexcept nogil:
    if words == 2:
        return <uint32_t>ce.sram[index] | (<uint32_t>ce.sram[index + 1] << 16)
    return ce.sram[index]

cdef inline void sram_write(ce_t* ce, uint32_t index, int words, uint32_t value) noexcept nogil:
    ce.sram[index] = <uint16_t>value
    if words == 2:
        ce.sram[index + 1] = <uint16_t>(value >> 16)

cdef inline desc_t* desc(ce_t* ce, const opnd_t* o) noexcept nogil:
    return desc_of(ce, dsr_at(ce, o.dsr))

cdef inline uint32_t extent_of(ce_t* ce, const opnd_t* o, int k) noexcept nogil:
    # Extent of dimension k; that of the outermost one can be changed.
    return extent_in(ce, dsr_at(ce, o.dsr)) if k == 0 else desc(ce, o).extent[k]

cdef inline int32_t stride_of(ce_t* ce, const opnd_t* o, int k) noexcept nogil:
    return stride_in(ce, dsr_at(ce, o.dsr)) if k == 0 else desc(ce, o).stride[k]

cdef inline uint32_t length_of(ce_t* ce, const opnd_t* o) noexcept nogil:
    cdef uint32_t n = extent_in(ce, dsr_at(ce, o.dsr))
    cdef desc_t* d = desc(ce, o)
    cdef int k
    if n == ENDLESS:
        return NO_END
    if d.kind == DSD_MEM4D:
        for k in range(1, d.ndim):
            n *= d.extent[k]
    return n

cdef inline uint32_t done_by(const thread_t* th) noexcept nogil:
    # Elements that an operation has done.
    return th.k + th.scalar if th.form.row else th.k

cdef inline bint is_fabric(const opnd_t* o) noexcept nogil:
    return o.mode == OPND_FABIN or o.mode == OPND_FABOUT

cdef inline bint contiguous(const opnd_t* o) noexcept nogil:
    return o.mode == OPND_MEM1D and o.step == o.words

cdef inline bint is_memory(const opnd_t* o) noexcept nogil:
    return o.mode == OPND_MEM1D or o.mode == OPND_MEM4D or o.mode == OPND_CIRCULAR

cdef inline int64_t address_of(ce_t* ce, const opnd_t* o, int32_t base, uint32_t k) noexcept nogil:
    # Word address of element k of a memory operand whose element 0 is at `base`.
    cdef desc_t* d
    cdef int64_t offset = 0
    cdef uint32_t rest = k, e
    cdef int i
    if o.mode == OPND_MEM1D:
        return base + <int64_t>k * o.step
    d = desc(ce, o)
    if o.mode == OPND_CIRCULAR:
        return base + <int64_t>((<uint32_t>index_in(ce, dsr_at(ce, o.dsr)) + k) % d.length) * o.words
    i = d.ndim - 1
    while i > 0:
        e = d.extent[i]
        offset += <int64_t>(rest % e) * d.stride[i]
        rest //= e
        i -= 1
    offset += <int64_t>rest * stride_of(ce, o, 0)       # the outermost dimension has no end here, as in one dimension
    return base + offset * o.words

cdef inline uint32_t row_left(ce_t* ce, const opnd_t* o, uint32_t k, uint32_t g) noexcept nogil:
    # A step does not cross the end of the innermost row of a 4-D operand.
    cdef uint32_t e
    if o.mode != OPND_MEM4D:
        return g
    e = extent_of(ce, o, desc(ce, o).ndim - 1)
    e = e - k % e
    return e if e < g else g

cdef inline uint32_t group_of(ce_t* ce, thread_t* th) noexcept nogil:
    cdef const form_t* f = th.form
    cdef uint32_t g = f.group
    if g > th.n - th.k:
        g = th.n - th.k
    if g > 1 and in_memory(th):
        g = row_left(ce, &f.a, th.k, row_left(ce, &f.b, th.k, row_left(ce, &f.c, th.k, g)))
    return g

cdef inline uint64_t all_but_base(const dsr_t* r, uint64_t kept) noexcept nogil:
    cdef uint64_t found
    memcpy(&found, &r.number, 8)            # of a short DSR this is more than there is of it
    return found & kept

cdef inline bint fits(ce_t* ce, const shape_t* shape, int k, int32_t* base) noexcept nogil:
    # Whether the DSR of an operand is as it was when the shape was noted, but for where it begins, which is where no
    # element can fault; and where that is.
    cdef const dsr_t* r
    if shape.same[k] == 0:
        return True
    r = <const dsr_t*>(<char*>ce + shape.place[k])
    if all_but_base(r, shape.kept) != shape.same[k]:
        return False
    if not shape.moves:
        base[0] = shape.lowest[k]
        return True
    base[0] = r.base
    return <uint16_t>(r.base - shape.lowest[k]) <= shape.span[k] and r.base & shape.odd[k] == 0

cdef inline fifo_t* fifo_of(ce_t* ce, const opnd_t* o) noexcept nogil:
    return <fifo_t*>(<char*>ce + ce.prog.fifo_at) + desc(ce, o).xdsr

cdef inline uint64_t fabin_ready(ce_t* ce, const opnd_t* o, uint64_t t, int* control) noexcept nogil:
    # First cycle in which the head of a fabric input is ready; NEVER if nothing is queued.
    cdef inq_t* q = inq_of(ce, o.queue)
    cdef uint64_t word = q.slots[q.head]
    if not is_valid(word):
        return NEVER
    control[0] = is_control(word)
    return ready_cycle(word, t)

cdef inline bint read_element(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, const opnd_t* o, int32_t base,
                              uint32_t k, uint32_t j, uint32_t word, uint32_t* out) noexcept nogil:
    # Element k of a source; j-th of this step; `word`: payload taken in this step if the source is a fabric input.
    cdef uint32_t index
    cdef int64_t address
    cdef fifo_t* f
    if o.mode == OPND_MEM1D:
        if not sram_at(ce, base + <int64_t>k * o.step, o.words, &index):
            sram_fault(s, ce, cell, t, base + <int64_t>k * o.step, o.words)
            return False
        out[0] = sram_read(ce, index, o.words)
    elif o.mode == OPND_FABIN:
        if o.words == 2:
            out[0] = word
        else:
            out[0] = (word >> (16 * j)) & 0xFFFF
    elif o.mode == OPND_CONST:
        out[0] = <uint32_t>base
    elif o.mode == OPND_REG:
        out[0] = reg_read(ce, o.reg, o.words)
    elif o.mode == OPND_NONE:
        out[0] = 0
    else:
        if o.mode == OPND_FIFO:
            f = fifo_of(ce, o)
            address = base + <int64_t>f.head * o.words
            f.head = 0 if f.head + 1 >= desc(ce, o).length else f.head + 1
            f.count -= 1
        else:
            address = address_of(ce, o, base, k)
        if not sram_at(ce, address, o.words, &index):
            sram_fault(s, ce, cell, t, address, o.words)
            return False
        out[0] = sram_read(ce, index, o.words)
    return True

cdef inline bint write_element(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, const opnd_t* o, int32_t base,
                               uint32_t k, uint32_t j, uint32_t offset, uint32_t value,
                               uint32_t* word) noexcept nogil:
    # Element k of the destination; `offset` is added to the address, `word` collects the payload of a fabric output.
    cdef uint32_t index
    cdef int64_t address
    cdef fifo_t* f
    if o.mode == OPND_FABOUT:
        if o.words == 2:
            word[0] = value
        else:
            word[0] |= value << (16 * j)
        return True
    if o.mode == OPND_REG:
        reg_write(ce, o.reg, o.words, value)
        return True
    if o.mode == OPND_MEM1D:
        address = base + <int64_t>k * o.step + offset
    elif o.mode == OPND_FIFO:
        f = fifo_of(ce, o)
        address = base + <int64_t>((<uint32_t>f.head + f.count) % desc(ce, o).length) * o.words
        f.count += 1
    elif o.mode == OPND_NONE:
        return True
    else:
        address = address_of(ce, o, base, k)
    if not sram_at(ce, address, o.words, &index):
        sram_fault(s, ce, cell, t, address, o.words)
        return False
    sram_write(ce, index, o.words, value)
    return True

cdef inline uint32_t multiplier(ce_t* ce, thread_t* th) noexcept nogil:
    return reg_read(ce, th.form.a.reg, th.form.a.words) if unlikely(th.form.live) else th.scalar

cdef inline void send(region_t* s, ce_t* ce, uint32_t cell, int plane, uint64_t payload, uint64_t t,
                      uint32_t cost) noexcept nogil:
    push_to_router(s, plane, cell, payload, t + cost - 1 + s.f.p.execute + s.f.p.ramp_out)
    if TRACE:
        traced_send(s, ce, cell, plane, payload, t)
    ce.counts[COUNT_SENT] += 1
    s.waiting = 1

cdef inline int64_t bank_period(region_t* s) noexcept nogil:
    # Addresses that agree modulo this number conflict; at least 1.
    cdef int64_t m = s.f.p.banks // 2 if s.f.p.conflict_rule == RULE_MOD4 else s.f.p.banks
    return m if m > 1 else 1

cdef inline int64_t modulo(int64_t x, int64_t m) noexcept nogil:
    # The residue 0 .. m - 1; m is a power of two on every machine that exists.
    if m & (m - 1) == 0:
        return x & (m - 1)
    x %= m
    return x + m if x < 0 else x

cdef inline bint collide(region_t* s, int64_t first, int64_t second) noexcept nogil:
    # Whether one cycle cannot serve both addresses.
    return s.f.p.conflict_rule != RULE_NONE and modulo(first - second, bank_period(s)) == 0

cdef inline bint reads_collide(region_t* s, ce_t* ce, thread_t* th, uint32_t k, uint32_t g) noexcept nogil:
    # Whether the two memory sources of a step of g elements conflict: in their first elements, in any two if both are
    # 32 bits wide.
    cdef const opnd_t* b = &th.form.b
    cdef const opnd_t* c = &th.form.c
    cdef uint32_t i, j
    if g == 1 or b.words == 1 or c.words == 1:
        return collide(s, address_of(ce, b, th.base_b, k), address_of(ce, c, th.base_c, k))
    for i in range(g):
        for j in range(g):
            if collide(s, address_of(ce, b, th.base_b, k + i), address_of(ce, c, th.base_c, k + j)):
                return True
    return False

cdef inline void note_written(region_t* s, ce_t* ce, const form_t* f, int32_t base, uint32_t n,
                              uint64_t over) noexcept nogil:
    # An operation of the main thread that ended with cycle over - 1 wrote n elements.
    if s.f.p.raw:
        ce.wrote = <uint32_t>address_of(ce, &f.a, base, n - 1) + 1 if n and is_memory(&f.a) else 0
        ce.wrote_when = over + 1 + s.f.p.raw

cdef inline bint reads_written(ce_t* ce, const opnd_t* o, int32_t base) noexcept nogil:
    return is_memory(o) and <uint32_t>address_of(ce, o, base, 0) + 1 == ce.wrote

cdef inline bint is_late(region_t* s, ce_t* ce, uint64_t t, const form_t* f, int32_t b, int32_t c) noexcept nogil:
    # Whether an operation of the main thread that issues in cycle t cannot read its first element when it could begin.
    return (s.f.p.raw and ce.wrote and ce.wrote_when > t + 1 + s.f.p.start
            and (reads_written(ce, &f.b, b) or reads_written(ce, &f.c, c)))

cdef inline uint32_t conflict_of(region_t* s, ce_t* ce, thread_t* th, uint32_t k, uint32_t g) noexcept nogil:
    # Cycles that the step of elements k .. k + g - 1 loses in memory.
    cdef const form_t* f = th.form
    cdef bint b = is_memory(&f.b), c = is_memory(&f.c)
    cdef uint32_t lost = 0
    cdef int64_t to
    if b and c and (s.f.p.read_ports < 2 or reads_collide(s, ce, th, k, g)):
        lost = s.f.p.conflict_cycles
    if f.one_bank:
        to = address_of(ce, &f.a, th.base_a, k)
        if (b and collide(s, to, address_of(ce, &f.b, th.base_b, k))
                or c and collide(s, to, address_of(ce, &f.c, th.base_c, k))):
            lost = max(lost, <uint32_t>s.f.p.write_cycles)
    return lost
