# cython: overflowcheck=False
"""Microthreads in turn: several steps of a CE whose busy microthreads are all flows or pairs, in one look.

What is certain: a wavelet in a queue and its ready cycle; that a queue without one stays so up to `heard`, since what
the routers of the next cycle deliver is ready ramp.in later; that a full output queue is full in the next cycle.  A
thread that comes later in the cyclic order is not asked, so what is uncertain about it does not matter.

Steps of single elements from a queue into memory, or from memory into one, are done right here.  The others are a call
(`any_in_turn` in `wse_core.flow`): inline, they would take registers from those that are short.
"""
from wse_core.account cimport *
from wse_core.arithmetic cimport f32_add
from wse_core.block cimport *
from wse_core.builtins cimport *
from wse_core.flow cimport ABLE, NOT_ABLE, STARVED, UNCERTAIN, any_in_turn
from wse_core.operand cimport *
from wse_core.queue cimport *
from wse_core.records cimport *
from wse_core.scalar cimport main_when, takes_heads
from wse_core.vecop cimport last_is_advance, vec_complete


cdef inline bint is_past(uint64_t word, uint64_t stamp) noexcept nogil:
    # Whether the stamp of a word lies before this one: `usable` in the cycle before.
    return <int64_t>(word - stamp) < 0

cdef inline uint32_t taken(const num_t* num, const thread_t* th, const uint16_t* m, uint32_t word) noexcept nogil:
    # The next element of BRIEF_TAKES: with the word that has come, a sum with memory or the word as it is.
    cdef const form_t* f = th.form
    if f.quick == QUICK_TAKE:
        return word if f.b.words == 2 else word & 0xFFFF
    if f.quick == QUICK_SUM_B:
        m += th.base_b + <int64_t>th.k * f.b.step
    else:
        m += th.base_c + <int64_t>th.k * f.c.step
    return f32_add((<const uint32_t*>m)[0], word, num.ftz)

cdef inline int takes_in_turn(region_t* s, const program_t* g, ce_t* ce, uint32_t cell, thread_t* th,
                              uint16_t* m, uint64_t stamp, bint heard) noexcept nogil:
    # A step of BRIEF_TAKES, if it is able; `stamp`: of the next cycle.
    cdef inq_t* q = <inq_t*>(<char*>ce + g.inq_at[th.form.inq])
    cdef uint32_t k = q.head, value
    cdef uint64_t word = q.slots[k]
    if not is_valid(word):
        return STARVED if heard else UNCERTAIN
    if is_control(word):
        return UNCERTAIN
    if not is_past(word, stamp):
        return NOT_ABLE
    value = taken(&g.num, th, m, <uint32_t>word)
    m += th.base_a + <int64_t>th.k * th.form.a.step
    if th.form.a.words == 2:
        (<uint32_t*>m)[0] = value
    else:
        m[0] = <uint16_t>value
    th.k += 1
    q.slots[k] = stamp
    k += 1
    q.head = 0 if k == q.cap else <uint8_t>k
    inq_freed(s, cell, q)
    return ABLE

cdef inline int sends_in_turn(region_t* s, uint32_t cell, thread_t* th, const uint16_t* m, uint64_t stamp,
                              uint64_t t, uint64_t latency) noexcept nogil:
    # The same of BRIEF_SENDS, in cycle t.
    cdef const form_t* f = th.form
    cdef uint64_t* queue = queue_at(&s.plane[f.plane], cell)
    cdef uint64_t place = tail_in(queue)[0]
    if is_valid(place):
        return UNCERTAIN if t > s.now + 1 else NOT_ABLE
    if not is_past(place, stamp):
        return NOT_ABLE
    m += th.base_b + <int64_t>th.k * f.b.step
    th.k += 1
    push_to_record(s, f.plane, cell, queue, (<const uint32_t*>m)[0] if f.quick == QUICK_COPY else m[0], t + latency)
    return ABLE

cdef uint64_t flows_in_turn(region_t* s, ce_t* ce, uint32_t cell, uint64_t start, int* known) noexcept nogil:
    # Steps of microthreads from cycle `start` on, all of them flows of one level, up to the cycle in which the
    # main thread can compete (idle, with nothing for the picker, or of a lower level, it cannot): cycle after cycle as
    # long as it is certain which thread issues.  Returns the first cycle not done; `known`: TURN_* of it.
    #
    # If control wavelets may come, data tasks are bound, or a router may tear down for the PE, an idle main thread must
    # look at each cycle: one is done.
    # Gain: 2.2x fewer instructions per step in saturated exchange than looks with arbitration and general steps; a
    # third fewer again by short steps, a thread whose queue is empty not asked again, and no set computed per cycle.
    cdef const program_t* g = ce.prog
    cdef uint16_t* m = ce.sram - g.code_words
    cdef uint64_t t = start, when, heard = s.now + s.f.p.ramp_in, stop = s.ahead, stamp = stamp_of(start + 1)
    cdef uint64_t latency = s.f.p.execute + s.f.p.ramp_out
    cdef uint32_t fed = ce.uts                              # those whose queue may hold something
    cdef uint32_t upto = (<uint32_t>2 << ce.rr) - 1         # the last issuer and those before it
    cdef uint32_t left, asked, sent = 0, received = 0
    cdef bint around
    cdef thread_t* th = NULL
    cdef int able
    known[0] = TURN_ENDS
    if ce.main_state != MAIN_IDLE:
        if g.main_level >= ut_of(ce, ctz64(fed)).form.level:
            when = main_when(s, ce, t)
            if when < stop:
                stop = when
    elif takes_heads(s, ce) or (g.bound >> TASK_TEARDOWN) & 1:
        stop = t + 1
    left = fed & ~upto                                      # those after the last issuer, then the others
    while t < stop:
        around = False
        while True:
            able = NOT_ABLE
            if left == 0:
                left = fed & upto
                if around or left == 0:
                    break
                around = True
            asked = left ^ (left - 1)
            th = <thread_t*>(<char*>ce + g.ut_at[ctz64(left)])
            left &= left - 1
            if th.next > t:
                continue
            if not TRACE and likely(th.form.brief == BRIEF_TAKES):
                able = takes_in_turn(s, g, ce, cell, th, m, stamp, t <= heard)
                received += able == ABLE
            elif not TRACE and likely(th.form.brief == BRIEF_SENDS):
                able = sends_in_turn(s, cell, th, m, stamp, t, latency)
                sent += able == ABLE
            else:
                able = any_in_turn(s, ce, cell, th, t, heard)
            if able == STARVED:
                fed &= ~(asked ^ asked >> 1)
            elif able != NOT_ABLE:
                break
        if able != ABLE:
            if able == UNCERTAIN:
                known[0] = TURN_GOES_ON
            elif ce.main_state == MAIN_IDLE or g.main_level >= th.form.level:
                known[0] = TURN_NOBODY
            else:
                known[0] = TURN_MAIN
            break
        upto = asked
        t += 1
        stamp += <uint64_t>1 << SHIFT_STAMP
        th.next = t
        if t > heard:
            fed = ce.uts
            left = fed & ~upto
        elif around:
            left = fed & ~upto
        if unlikely(th.k == th.n) and th.n != NO_END:
            if th.form.plane != NO_PLACE and th.form.a.flags & F_ADVANCE:
                last_is_advance(ce, th)
            else:
                vec_complete(s, ce, cell, th, t - 1, 1)
            break
    else:
        known[0] = TURN_ENDS if stop == start + 1 else TURN_GOES_ON
    if t > start:
        ce.rr = <uint8_t>ctz64(<uint64_t>upto + 1) - 1
        book(ce, start, <uint32_t>(t - start), 0)
        touched(s, t - 1)
        s.events += t - start
        ce.counts[COUNT_STEPS] += <uint32_t>(t - start)
        ce.counts[COUNT_ELEMENTS] += sent + received
        ce.counts[COUNT_SENT] += sent
        ce.counts[COUNT_RECEIVED] += received
        s.waiting = 1
    return t
