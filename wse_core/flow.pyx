# cython: overflowcheck=False
"""Flows: vector operations between fabric and memory that need none of the questions of the general step.

A flow has one fabric input at most, and no operand with flags or that could fault; a pair has two fabric inputs.  Each
step takes a wavelet, computes, stores or sends.  Two ways to do many steps in one look, and two with little or none:

* `flow_run`: the main thread alone, as many steps as are able back to back with what is in the queues now
  (`flow_last`: the last one, in short);
* `flows_in_turn` (`wse_core.turns`): microthreads of one level, cycle after cycle as long as it is certain which of
  them issues;
* `flow_takes`: the main thread alone and starved, a step per wavelet, done by the router that delivers it;
* `flow_looks`: the same, where that would need more room than there is, in the cycle of the step.

A control wavelet at the head is for the general step (`wse_core.vecop`).
"""
from wse_core.account cimport *
from wse_core.alu cimport alu
from wse_core.arithmetic cimport f32_add
from wse_core.block cimport *
from wse_core.builtins cimport *
from wse_core.fetch cimport stream_begins
from wse_core.operand cimport *
from wse_core.queue cimport *
from wse_core.records cimport *
from wse_core.report cimport traced_send, traced_take
from wse_core.vecop cimport last_is_advance, vec_complete
from wse_core.wake cimport schedule


cdef inline uint32_t flow_take(const uint16_t* m, const opnd_t* o, int32_t base, uint32_t k, uint32_t j,
                               uint32_t word, bint rows=True) noexcept nogil:
    # Element k of a source; j-th of this step, `word` is the payload of the step's wavelet; `m` is address 0.
    # `rows`: it may be one of a row.
    if o.mode == OPND_MEM1D or rows and o.mode == OPND_MEM4D:
        m += base + <int64_t>k * o.step
        return (<const uint32_t*>m)[0] if o.words == 2 else m[0]
    if o.mode == OPND_FABIN:
        return word if o.words == 2 else (word >> (16 * j)) & 0xFFFF
    return <uint32_t>base

cdef inline void flow_put(uint16_t* m, const opnd_t* o, int32_t base, uint32_t k, uint32_t value) noexcept nogil:
    m += base + <int64_t>k * o.step
    if o.words == 2:
        (<uint32_t*>m)[0] = value
    else:
        m[0] = <uint16_t>value

cdef inline void flow_zero(uint16_t* m, const opnd_t* o, int32_t base, uint32_t k) noexcept nogil:
    # Element k of a source becomes zero.
    flow_put(m, o, base, k, 0)

cdef inline uint32_t quick_sum(const uint16_t* m, const opnd_t* o, int32_t base, uint32_t k, const num_t* num,
                               uint32_t word) noexcept nogil:
    return f32_add((<const uint32_t*>(m + base + <int64_t>k * o.step))[0], word, num.ftz)

cdef inline uint32_t flow_value(const num_t* num, const thread_t* th, const uint16_t* m, uint32_t k, uint32_t j,
                                uint32_t word, uint32_t word2) noexcept nogil:
    # Element k of a flow's result, j-th of its step; `word`, `word2`: payloads of b and c, if they are fabric inputs.
    # Gain of the short ways: 25 instructions of a step.
    cdef const form_t* f = th.form
    if f.quick == QUICK_SUM_B:
        return quick_sum(m, &f.b, th.base_b, k, num, word2)
    if f.quick == QUICK_COPY:
        return (<const uint32_t*>(m + th.base_b + <int64_t>k * f.b.step))[0]
    if f.quick == QUICK_SUM_C:
        return quick_sum(m, &f.c, th.base_c, k, num, word)
    if f.quick == QUICK_HALF:
        return (m + th.base_b + <int64_t>k * f.b.step)[0]
    if f.quick == QUICK_TAKE:
        return word if f.b.words == 2 else word & 0xFFFF
    return alu(f.op, num, flow_take(m, &f.b, th.base_b, k, j, word), flow_take(m, &f.c, th.base_c, k, j, word2),
               th.scalar)

cdef uint64_t flow_run(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t start, bint alone) noexcept nogil:
    # Steps of a flow from cycle `start` on: one that is able, or, if the main thread is alone, as many as are
    # able back to back with what is in the queues now. Returns when the next step can issue as things stand, like
    # `flow_when`.
    # Gain over general steps: 3x fewer instructions per element.
    cdef uint64_t t = start, word = 0
    cdef uint64_t latency = s.f.p.execute + s.f.p.ramp_out
    cdef uint32_t g, j, b, payload, cost = 1, k = th.k, n_steps = 0
    cdef bint receives = th.form.inq != NO_PLACE, sends = th.form.plane != NO_PLACE
    cdef const form_t* f = th.form
    cdef bint single = f.group == 1
    cdef inq_t* q = inq_at(ce, f.inq if receives else 0)
    cdef uint64_t* out = queue_at(&s.plane[f.plane], cell) if sends else NULL
    cdef const num_t* num = &ce.prog.num
    cdef uint16_t* m = ce.sram - ce.prog.code_words
    while True:
        if receives:
            word = q.slots[q.head]
            if not takeable(word, t) or is_control(word):
                break
        if sends:
            if not has_room(tail_in(out)[0], t):
                break
        if receives:
            q.slots[q.head] = stamp_of(t + 1)
            q.head = 0 if q.head + 1 == q.cap else q.head + 1
            inq_freed(s, cell, q)
            if TRACE:
                traced_take(s, ce, cell, q, word, t)
        if likely(single):
            b = flow_value(num, th, m, k, 0, <uint32_t>word, <uint32_t>word)
            if sends:
                if unlikely(f.zeroes):
                    flow_zero(m, &f.b, th.base_b, k)
                push_to_record(s, f.plane, cell, out, b, t + latency)
                if TRACE:
                    traced_send(s, ce, cell, f.plane, b, t)
            else:
                flow_put(m, &f.a, th.base_a, k, b)
            k += 1
            t += 1
            n_steps += 1
            if not alone or t >= s.ahead or k == th.n:
                break
            continue
        g = f.group if f.group <= th.n - k else th.n - k
        cost = (g + f.lanes - 1) // f.lanes if g > f.lanes else 1       # a last step may be shorter
        payload = 0
        for j in range(g):
            b = flow_value(num, th, m, k + j, j, <uint32_t>word, <uint32_t>word)
            if sends:
                payload |= b << (16 * j)
                if unlikely(f.zeroes):
                    flow_zero(m, &f.b, th.base_b, k + j)
            else:
                flow_put(m, &f.a, th.base_a, k + j, b)
        if sends:
            push_to_record(s, f.plane, cell, out, payload, t + cost - 1 + latency)
            if TRACE:
                traced_send(s, ce, cell, f.plane, payload, t)
        k += g
        t += cost
        n_steps += 1
        if not alone or t >= s.ahead or k == th.n:
            break
    if n_steps:
        touched(s, t - cost)
        ce.counts[COUNT_ELEMENTS] += k - th.k
        if is_mac(f.op):
            ce.counts[COUNT_MACS] += k - th.k
        ce.counts[COUNT_STEPS] += n_steps
        s.waiting = 1               # the router must look at what was taken and sent
        if sends:
            ce.counts[COUNT_SENT] += n_steps
            stream_begins(s, f.plane, cell, th.k)
        if receives:
            ce.counts[COUNT_RECEIVED] += n_steps
        th.k = k
        book(ce, start, <uint32_t>(t - start), 0)
        th.next = t
        ce.rr = f.id
        if k == th.n and th.n != NO_END:
            if sends and f.a.flags & F_ADVANCE:
                last_is_advance(s, ce, th)
            else:
                vec_complete(s, ce, cell, th, t - cost, cost)
            if f.row == 0 or th.k:          # else it goes on with the next row
                return t
    if not alone or t >= s.ahead:
        return t
    th.wait = WAIT_PIPE
    return flow_when(s, ce, cell, th, t)      # stopped by a head that is not ready or by a full queue

cdef bint flow_last(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t) noexcept nogil:
    # The last step of a flow of the main thread, alone, in cycle t, and the end of the operation. False: nothing was
    # done, since it is not able, or takes or sends more than one element.
    # Gain: half the instructions of a step by `flow_run`; gradients of streamed networks are flows of one element.
    cdef const form_t* f = th.form
    cdef uint64_t word = 0
    cdef uint16_t* m = ce.sram - ce.prog.code_words
    cdef inq_t* q = NULL
    cdef uint32_t k = th.k, b
    if TRACE or f.group != 1 or f.row or th.n - k != 1 or (f.a.flags | f.b.flags | f.c.flags) & (F_ADVANCE | F_SAVE):
        return False
    if f.inq != NO_PLACE:
        q = inq_at(ce, f.inq)
        word = q.slots[q.head]
        if not takeable(word, t) or is_control(word):
            return False
    if f.plane != NO_PLACE and not has_room(plane_tail(&s.plane[f.plane], cell)[0], t):
        return False
    if q != NULL:
        q.slots[q.head] = stamp_of(t + 1)
        q.head = 0 if q.head + 1 == q.cap else q.head + 1
        inq_freed(s, cell, q)
        ce.counts[COUNT_RECEIVED] += 1
    b = flow_take(m, &f.b, th.base_b, k, 0, <uint32_t>word, False)
    b = alu(f.op, &ce.prog.num, b, flow_take(m, &f.c, th.base_c, k, 0, <uint32_t>word, False), th.scalar)
    if f.plane == NO_PLACE:
        flow_put(m, &f.a, th.base_a, k, b)
    else:
        if f.zeroes:
            flow_zero(m, &f.b, th.base_b, k)
        push_to_router(s, f.plane, cell, b, t + s.f.p.execute + s.f.p.ramp_out)
        ce.counts[COUNT_SENT] += 1
        stream_begins(s, f.plane, cell, k)
    ce.counts[COUNT_ELEMENTS] += 1
    ce.counts[COUNT_STEPS] += 1
    s.waiting = 1
    touched(s, t)
    book(ce, t, 1, 0)
    th.k = k + 1
    worked(s, f, th.k)
    th.next = t + 1
    ce.rr = MAIN
    ce.main_state = MAIN_RUN
    ce.next = t + 1 + drain_of(s, f, th.k)
    if is_mac(f.op):
        ce.counts[COUNT_MACS] += 1
    note_written(s, ce, f, th.base_a, th.k, t + 1)
    return True

cdef bint flow_takes(region_t* s, ce_t* ce, uint32_t cell, uint64_t payload) noexcept nogil:
    # A router delivers to a CE that takes: the step with the wavelet, in the cycle in which it will be ready.  Who is
    # alone and waits for nothing but this wavelet sees nothing else before that cycle; room for what it sends stays
    # there.  False: not certain, or not a plain step; taking has ended, the wavelet goes into the queue.
    # Gain: 75 of 370 instructions of a hop (broadcast), since nobody wakes the CE, looks at it, or books; another 15
    # since steps into memory are done here, in few registers, and all others in a call at the end.
    cdef thread_t* th = &ce.main
    cdef uint64_t t = s.now + s.f.p.ramp_in
    if th.form.brief != BRIEF_TAKES or is_control(payload) or th.n - th.k < 2 or t >= s.ahead:
        return flow_takes_any(s, ce, cell, payload)
    brief_put(&ce.prog.num, th, ce.sram - ce.prog.code_words, <uint32_t>payload)
    ce.acct = t + 1
    touched(s, t)
    return True

cdef bint flow_takes_any(region_t* s, ce_t* ce, uint32_t cell, uint64_t payload) noexcept nogil:
    # The same for any flow.
    cdef thread_t* th = &ce.main
    cdef const form_t* f = th.form
    cdef uint64_t t = s.now + s.f.p.ramp_in
    cdef uint16_t* m = ce.sram - ce.prog.code_words
    cdef uint32_t b, k = th.k
    if (is_control(payload) or th.n - k < 2 or t >= s.ahead
            or f.plane != NO_PLACE and not has_room(plane_tail(&s.plane[f.plane], cell)[0], t)):
        taking_ends(ce)
        return False
    b = flow_value(&ce.prog.num, th, m, k, 0, <uint32_t>payload, <uint32_t>payload)
    if f.plane == NO_PLACE:
        flow_put(m, &f.a, th.base_a, k, b)
    else:
        if unlikely(f.zeroes):
            flow_zero(m, &f.b, th.base_b, k)
        push_to_router(s, f.plane, cell, b, t + s.f.p.execute + s.f.p.ramp_out)
        stream_begins(s, f.plane, cell, k)
    th.k = k + 1
    ce.acct = t + 1
    touched(s, t)
    return True

cdef bint flow_looks(region_t* s, ce_t* ce, uint32_t cell) noexcept nogil:
    # A look at a CE that takes by looks: steps from this cycle on, each in the cycle in which it is able, as long as
    # that is known, and the next look. Cycles without a step are waits for input, as `taking_counts` books them; so a
    # step that waits for room, the last one and a control wavelet are for the general look.  False: nothing was done.
    # Gain: a quarter of the instructions of a hop in a chain, since nothing is booked, and nothing asked of the form.
    cdef thread_t* th = &ce.main
    cdef const form_t* f = th.form
    cdef inq_t* q = inq_at(ce, f.inq)
    cdef uint64_t* out = queue_at(&s.plane[f.plane], cell) if f.plane != NO_PLACE else NULL
    cdef uint64_t t = s.now, word = q.slots[q.head], latency = s.f.p.execute + s.f.p.ramp_out
    cdef uint16_t* m = ce.sram - ce.prog.code_words
    cdef uint32_t b, k = th.k
    while (takeable(word, t) and not is_control(word) and th.n - k >= 2 and t < s.ahead
            and (out == NULL or has_room(tail_in(out)[0], t))):
        q.slots[q.head] = stamp_of(t + 1)
        q.head = 0 if q.head + 1 == q.cap else q.head + 1
        inq_freed(s, cell, q)
        b = flow_value(&ce.prog.num, th, m, k, 0, <uint32_t>word, <uint32_t>word)
        if out == NULL:
            flow_put(m, &f.a, th.base_a, k, b)
        else:
            if unlikely(f.zeroes):
                flow_zero(m, &f.b, th.base_b, k)
            push_to_record(s, f.plane, cell, out, b, t + latency)
        k += 1
        t += 1
        word = q.slots[q.head]
    if k == th.k:
        return False
    if out != NULL:
        stream_begins(s, f.plane, cell, th.k)
    th.k = k
    ce.acct = t
    touched(s, t - 1)
    s.waiting = 1                           # the router must look at what was taken and sent
    if is_valid(word):
        schedule(s, cell, max(t, ready_cycle(word, s.now)), t)
    elif t > s.now + s.f.p.ramp_in:
        schedule(s, cell, t, t)             # wake-ups before that cycle are not heard
    return True

cdef void taking_counts(ce_t* ce, uint32_t sign) noexcept nogil:
    # `flow_takes` counts elements only.  When it begins, what has been done before is taken off the counters that go up
    # with them, modulo 2^32, and when it ends all that has been done is added.
    cdef uint32_t n = ce.main.k * sign
    ce.counts[COUNT_STALL_INPUT] += <uint32_t>ce.acct * sign - n
    ce.counts[COUNT_BUSY] += n
    ce.counts[COUNT_STEPS] += n
    ce.counts[COUNT_ELEMENTS] += n
    ce.counts[COUNT_RECEIVED] += n
    if ce.main.form.plane != NO_PLACE:
        ce.counts[COUNT_SENT] += n
    if is_mac(ce.main.form.op):
        ce.counts[COUNT_MACS] += n


cdef inline int able_in_turn(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t,
                             uint64_t heard) noexcept nogil:
    # Whether the step of a flow or pair is able in cycle t, as far as that is known now.
    cdef inq_t* q
    cdef inq_t* q2
    cdef uint64_t word, other
    if th.form.inq != NO_PLACE:
        q = inq_at(ce, th.form.inq)
        word = q.slots[q.head]
        if unlikely(th.form.inq2 != NO_PLACE):
            q2 = inq_at(ce, th.form.inq2)
            other = q2.slots[q2.head]
            if is_control(word) or is_control(other):
                return UNCERTAIN
            if is_valid(word) and (not is_valid(other) or not usable(other, t)):
                word = other                    # the one that is missing, or comes later
        if not is_valid(word):
            return UNCERTAIN if t > heard else STARVED
        if is_control(word):
            return UNCERTAIN
        if not usable(word, t):
            return NOT_ABLE
    if th.form.plane != NO_PLACE:
        word = plane_tail(&s.plane[th.form.plane], cell)[0]
        if not has_room(word, t):
            return UNCERTAIN if t > s.now + 1 and is_valid(word) else NOT_ABLE
    return ABLE

cdef inline void step_in_turn(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t) noexcept nogil:
    # That step, but for what `flows_in_turn` counts of all steps.
    cdef const num_t* num = &ce.prog.num
    cdef uint16_t* m = ce.sram - ce.prog.code_words
    cdef const form_t* f = th.form
    cdef uint64_t word = 0, word2 = 0
    cdef uint32_t b = 0, other, g = 0
    if f.inq != NO_PLACE:
        word = inq_take(s, ce, cell, inq_at(ce, f.inq), t)
        word2 = word
        if unlikely(f.inq2 != NO_PLACE):
            word2 = inq_take(s, ce, cell, inq_at(ce, f.inq2), t)
    while g < f.group and th.k + g < th.n:
        other = flow_value(num, th, m, th.k + g, g, <uint32_t>word, <uint32_t>word2)
        if f.plane == NO_PLACE:
            flow_put(m, &f.a, th.base_a, th.k + g, other)
        else:
            b |= other << (16 * g)
            if unlikely(f.zeroes):
                flow_zero(m, &f.b, th.base_b, th.k + g)
        g += 1
    if f.plane != NO_PLACE:
        send(s, ce, cell, f.plane, b, t, 1)
    ce.counts[COUNT_ELEMENTS] += g
    if is_mac(f.op):
        ce.counts[COUNT_MACS] += g
    th.k += g

cdef inline void halves_in_turn(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t) noexcept nogil:
    # The same of BRIEF_HALVES: two elements move between memory and a queue, as they are; one, if no other is left.
    # Gain: half the instructions of such a step, of which matrices of 16 bits that are shifted are made.
    cdef const form_t* f = th.form
    cdef uint16_t* m = ce.sram - ce.prog.code_words
    cdef uint32_t k = th.k, two = th.n - k > 1, word
    if f.plane == NO_PLACE:
        word = <uint32_t>inq_take(s, ce, cell, inq_at(ce, f.inq), t)
        m += th.base_a + <int64_t>k * f.a.step
        m[0] = <uint16_t>word
        if two:
            m[f.a.step] = <uint16_t>(word >> 16)
    else:
        m += th.base_b + <int64_t>k * f.b.step
        word = m[0]
        if two:
            word |= <uint32_t>m[f.b.step] << 16
        send(s, ce, cell, f.plane, word, t, 1)
    ce.counts[COUNT_ELEMENTS] += 1 + two
    th.k = k + 1 + two

cdef int any_in_turn(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t, uint64_t heard) noexcept nogil:
    # Of a flow or pair among microthreads that take turns: its step in cycle t, if it is able.
    cdef int able = able_in_turn(s, ce, cell, th, t, heard)
    if able == ABLE:
        if th.form.brief == BRIEF_HALVES:
            halves_in_turn(s, ce, cell, th, t)
        else:
            step_in_turn(s, ce, cell, th, t)
    return able
