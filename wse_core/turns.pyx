# cython: overflowcheck=False
"""Microthreads in turn: several steps of a CE whose busy microthreads are all flows or pairs, in one look.

What is certain: a wavelet in a queue and its ready cycle; that a queue without one stays so up to `heard`, since what
the routers of the next cycle deliver is ready ramp.in later; that a full output queue is full in the next cycle.  A
thread that comes later in the cyclic order is not asked, so what is uncertain about it does not matter.

Steps of single elements from a queue into memory, or from memory into one, are done right here.  The others are a call
(`any_in_turn` in `wse_core.flow`): inline, they would take registers from those that are short.
"""
from wse_core.account cimport *
from wse_core.block cimport *
from wse_core.builtins cimport *
from wse_core.flow cimport ABLE, NOT_ABLE, STARVED, TOOK_LAST, UNCERTAIN, any_in_turn, brief_put
from wse_core.operand cimport *
from wse_core.queue cimport *
from wse_core.records cimport *
from wse_core.scalar cimport main_waits, takes_heads
from wse_core.vecop cimport last_is_advance, vec_complete


cdef enum:                  # sets of microthreads, each of them twice: what is behind the last is what is before it
    TWICE = 257
    NEXT = 510              # all in turn after number 0; shifted, after another one

cdef inline bint is_past(uint64_t word, uint64_t stamp) noexcept nogil:
    # Whether the stamp of a word lies before this one: `usable` in the cycle before.
    return <int64_t>(word - stamp) < 0

cdef inline int takes_in_turn(region_t* s, const program_t* g, ce_t* ce, uint32_t cell, thread_t* th,
                              uint16_t* m, uint64_t stamp, bint heard) noexcept nogil:
    # A step of BRIEF_TAKES, if it is able: the word that has come goes to memory, or is added to what is there.
    # `stamp`: of the next cycle.
    cdef const form_t* f = th.form
    cdef inq_t* q = <inq_t*>(<char*>ce + g.inq_at[f.inq])
    cdef uint32_t head = q.head
    cdef uint64_t word = q.slots[head]
    if not is_valid(word):
        return STARVED if heard else UNCERTAIN
    if is_control(word):
        return UNCERTAIN
    if not is_past(word, stamp):
        return NOT_ABLE
    brief_put(&g.num, th, m, <uint32_t>word)
    q.slots[head] = stamp
    head += 1
    if head == q.cap:
        head = 0
    q.head = <uint8_t>head
    inq_freed(s, cell, q)
    return ABLE if is_valid(q.slots[head]) or not heard else TOOK_LAST

cdef inline int sends_in_turn(region_t* s, uint32_t cell, thread_t* th, const uint16_t* m, uint64_t stamp,
                              bint seen, uint64_t behind) noexcept nogil:
    # The same of BRIEF_SENDS, out of memory.  `seen`: a queue that is full is so still in this cycle; `behind`: the
    # upper part of the word, less `stamp`.
    cdef const form_t* f = th.form
    cdef plane_t* q = &s.plane[f.plane]
    cdef uint64_t* queue = queue_at(q, cell)
    cdef uint64_t state = queue[0]
    cdef uint32_t tail = (state >> TAIL) & HEAD, k = th.k, cap = q.cap[cell]
    cdef uint64_t* place = queue + 1 + tail
    if is_valid(place[0]):
        return NOT_ABLE if seen else UNCERTAIN
    if not is_past(place[0], stamp):
        return NOT_ABLE
    m += th.base_b + <int64_t>k * f.b.step
    th.k = k + 1
    behind += stamp
    place[0] = behind | ((<const uint32_t*>m)[0] if f.quick == QUICK_COPY else m[0])
    queue[0] = state + (1 << TAIL) if tail + 1 != cap else state - (<uint64_t>tail << TAIL)
    if tail == state & HEAD:                            # it was empty
        comes_due(s, f.plane, cell, ready_cycle(behind, s.now))
    return ABLE

cdef uint64_t flows_in_turn(region_t* s, ce_t* ce, uint32_t cell, uint64_t start, int* known) noexcept nogil:
    # Steps of microthreads from cycle `start` on, all of them flows of one level, up to the cycle in which the
    # main thread can compete (idle, with nothing for the picker, or of a lower level, it cannot): cycle after cycle as
    # long as it is certain which thread issues.  Returns the first cycle not done; `known`: TURN_* of it.
    #
    # If control wavelets may come, data tasks are bound, or a router may tear down for the PE, an idle main thread must
    # look at each cycle: one is done.
    # Gain: 2.2x fewer instructions per step in saturated exchange than looks with arbitration and general steps; a
    # third fewer again by short steps, a thread whose queue is empty not asked again, and no set computed per cycle;
    # 11 of 450 since `ce.fed` keeps from look to look which queues are empty, and routers tell when a word comes.
    cdef const program_t* g = ce.prog
    cdef uint16_t* m = ce.sram - g.code_words
    cdef uint64_t t = start, when, heard = s.now + s.f.p.ramp_in, stop = s.ahead, stamp = stamp_of(start + 1)
    cdef uint64_t behind = stamp_of(s.f.p.execute + s.f.p.ramp_out - 1) | <uint64_t>1 << SHIFT_VALID
    cdef uint64_t soon = s.now + 1
    # Those whose queue may hold something; from the first cycle on of which nothing is heard yet: all.
    cdef uint32_t fed = (ce.fed & ce.uts if start <= heard else ce.uts) * TWICE
    cdef uint32_t id = ce.rr if ce.rr < MAIN else MAIN - 1  # that issued last; after the main thread comes number 0
    cdef uint32_t left, turn = 0, sent = 0, others = 0
    cdef thread_t* th = NULL
    cdef int able
    known[0] = TURN_ENDS
    if ce.main_state != MAIN_IDLE:
        if g.main_level >= ut_of(ce, ctz64(ce.uts)).form.level:
            when = main_waits(s, ce, t)
            if when < stop:
                stop = when
    elif takes_heads(s, ce) or (g.bound >> TASK_TEARDOWN) & 1:
        stop = t + 1
    while t < stop:
        able = NOT_ABLE
        left = fed & (NEXT << id)
        while left:
            turn = ctz64(left) & (MAIN - 1)
            left &= left - 1
            th = <thread_t*>(<char*>ce + g.ut_at[turn])
            if th.next > t:
                continue
            if not TRACE and likely(th.form.brief == BRIEF_TAKES):
                able = takes_in_turn(s, g, ce, cell, th, m, stamp, t <= heard)
                if able >= STARVED:
                    fed &= ~(<uint32_t>TWICE << turn)
                    if able == TOOK_LAST:
                        able = ABLE
                        break
                elif able != NOT_ABLE:
                    break
            elif not TRACE and likely(th.form.brief == BRIEF_SENDS):
                able = sends_in_turn(s, cell, th, m, stamp, t <= soon, behind)
                if able == ABLE:
                    sent += 1
                    break
                if able == UNCERTAIN:
                    break
            else:
                able = any_in_turn(s, ce, cell, th, t, heard)
                if able == STARVED:
                    fed &= ~(<uint32_t>TWICE << turn)
                elif able != NOT_ABLE:
                    others += able == ABLE
                    break
        if able != ABLE:
            if able == UNCERTAIN:
                known[0] = TURN_GOES_ON
            elif ce.main_state == MAIN_IDLE or g.main_level >= ut_of(ce, ctz64(ce.uts)).form.level:
                known[0] = TURN_NOBODY
            else:
                known[0] = TURN_MAIN
            break
        id = turn
        t += 1
        stamp += <uint64_t>1 << SHIFT_STAMP
        th.next = t
        if t == heard + 1:                                  # the others are to be asked again
            ce.fed = <uint8_t>fed
            fed = ce.uts * TWICE
        if unlikely(th.k == th.n) and th.n != NO_END:
            if th.form.plane != NO_PLACE and th.form.a.flags & F_ADVANCE:
                last_is_advance(s, ce, th)
            else:
                vec_complete(s, ce, cell, th, t - 1, 1)
            break
    else:
        known[0] = TURN_ENDS if stop == start + 1 else TURN_GOES_ON
    if t <= heard:
        ce.fed = <uint8_t>fed
    if t > start:
        ce.rr = <uint8_t>id
        book(ce, start, <uint32_t>(t - start), 0)
        touched(s, t - 1)
        others = <uint32_t>(t - start) - others             # those that were short
        ce.counts[COUNT_STEPS] += <uint32_t>(t - start)
        ce.counts[COUNT_ELEMENTS] += others
        ce.counts[COUNT_SENT] += sent
        ce.counts[COUNT_RECEIVED] += others - sent
        s.waiting = 1
    return t
