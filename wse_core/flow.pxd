# Flows: the questions asked at every look, inline; `flow_run` and others do the steps.
from wse_core.arithmetic cimport f32_add
from wse_core.block cimport *
from wse_core.builtins cimport *
from wse_core.emit cimport emit, record_fault
from wse_core.operand cimport *
from wse_core.queue cimport *
from wse_core.records cimport *

cdef enum:
    BY_LOOK = 128           # ce_t.takes, beside the queue: words go through it, and looks take them (`flow_looks`)

cdef enum:                  # whether a microthread can issue in a cycle, as far as that is known now
    NOT_ABLE = 0
    ABLE = 1                # it did
    UNCERTAIN = 2           # or a control wavelet, which is for the general step
    STARVED = 3             # not able in any cycle for which it is known that nothing comes
    TOOK_LAST = 4           # it did, and will be starved

cdef enum:
    SOON = 16               # elements after the begin of a flow, or before its end

cdef uint64_t flow_run(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t start, bint alone) noexcept nogil
cdef bint flow_last(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t) noexcept nogil
cdef bint flow_takes(region_t* s, ce_t* ce, uint32_t cell, uint64_t payload) noexcept nogil
cdef bint flow_takes_any(region_t* s, ce_t* ce, uint32_t cell, uint64_t payload) noexcept nogil
cdef bint flow_looks(region_t* s, ce_t* ce, uint32_t cell) noexcept nogil
cdef void taking_counts(ce_t* ce, uint32_t sign) noexcept nogil
cdef int any_in_turn(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t, uint64_t heard) noexcept nogil

cdef inline void brief_put(const num_t* num, thread_t* th, uint16_t* m, uint32_t value) noexcept nogil:
    # What a step of BRIEF_TAKES does with the word that has come: to memory, or added to what is there.
    cdef const form_t* f = th.form
    cdef uint32_t k = th.k
    cdef uint16_t* a = m + (th.base_a + <int64_t>k * f.a.step)
    if f.quick != QUICK_TAKE:
        m += th.base_b + <int64_t>k * f.b.step if f.quick == QUICK_SUM_B else th.base_c + <int64_t>k * f.c.step
        value = f32_add((<const uint32_t*>m)[0], value, num.ftz)
    elif f.b.words == 1:
        value &= 0xFFFF
    if f.a.words == 2:
        (<uint32_t*>a)[0] = value
    else:
        a[0] = <uint16_t>value
    th.k = k + 1

cdef inline bint flow_on(ce_t* ce, thread_t* th) noexcept nogil:
    # A flow with no control wavelet at its head.
    cdef inq_t* q
    if th.kind != KIND_FLOW:
        return False
    if th.form.inq == NO_PLACE:
        return True
    q = inq_at(ce, th.form.inq)
    return not is_control(q.slots[q.head])

cdef inline void taking_begins(region_t* s, ce_t* ce, uint32_t cell) noexcept nogil:
    # After a look: from now on the router hands what arrives to the main thread's flow (`flow_takes`), if that is alone
    # and waits for nothing but the next wavelet of its queue.  Nothing then lies ahead of the cycle in which the next
    # one can be ready; and as many places as the ramp is long suffice, so that there is always room.  What it sends
    # takes a place from now on until the router has it; in a shorter queue most wavelets would find none, so they go
    # through the queue (`flow_looks`).
    cdef thread_t* th = &ce.main
    cdef uint64_t next = s.now + s.f.p.ramp_in + 1
    cdef inq_t* q
    cdef uint8_t how = 0
    if (TRACE or ce.wait != WAIT_INPUT or th.form.inq == NO_PLACE or ce.uts or th.form.group != 1 or ce.rr != MAIN
            or th.n - th.k < 2 or ce.acct > next or ce.resume > next or th.next > ce.acct or ce.pipe_free > ce.acct
            or s.f.injects):
        return
    q = inq_at(ce, th.form.inq)
    if is_valid(q.slots[q.head]):
        return
    if (q.cap <= s.f.p.ramp_in or th.form.plane != NO_PLACE
            and s.plane[th.form.plane].cap[cell] <= s.f.p.ramp_in + s.f.p.execute + s.f.p.ramp_out):
        how = BY_LOOK
    ce.takes = th.form.inq + 1 | how
    taking_counts(ce, 0xFFFFFFFF)

cdef inline void taking_ends(ce_t* ce) noexcept nogil:
    # Before anything else is done to the CE: what `flow_takes` has left to be booked.
    ce.takes = 0
    taking_counts(ce, 1)
    ce.main.next = ce.acct
    ce.pipe_free = ce.acct
    if ce.acct > ce.resume:
        ce.resume = ce.acct

cdef inline void train_wanted(region_t* s, ce_t* ce) noexcept nogil:
    # After a look at the main thread in a flow, alone: if that sends what lies in memory and waits for room, the words
    # may leave as a train when the first one moves.
    if not TRACE and ce.want_space and ce.main.form.inq == NO_PLACE and s.f.trains and ce.uts == 0:
        ce.want_space = WANTS_TRAIN

cdef inline void way_wanted(region_t* s, ce_t* ce) noexcept nogil:
    # The same at the begin of a flow that sends on what it takes: words may have been held up before it began, which
    # can leave as a train when the first one that it has sent moves.
    if (not TRACE and s.f.trains and ce.main.form.inq != NO_PLACE and ce.main.form.plane != NO_PLACE and ce.uts == 0
            and ce.main.k < SOON and ce.main.n - ce.main.k > SOON):
        ce.want_space = WANTS_TRAIN

cdef inline bint pair_on(ce_t* ce, thread_t* th) noexcept nogil:
    # The same with two fabric inputs.
    cdef inq_t* q
    cdef inq_t* q2
    if th.kind != KIND_PAIR:
        return False
    q = inq_at(ce, th.form.inq)
    q2 = inq_at(ce, th.form.inq2)
    return not is_control(q.slots[q.head]) and not is_control(q2.slots[q2.head])

cdef inline uint64_t flow_when(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t) noexcept nogil:
    # vec_when for a flow, or one with two fabric inputs, with no control wavelet at its head.
    cdef uint64_t when = ce.acct, word, r
    cdef inq_t* q
    if th.form.inq != NO_PLACE:
        q = inq_at(ce, th.form.inq)
        word = q.slots[q.head]
        if not is_valid(word):
            th.wait = WAIT_INPUT
            when = NEVER
        else:
            r = ready_cycle(word, t)
            if r > when:
                th.wait = WAIT_INPUT
                when = r
        if unlikely(th.form.inq2 != NO_PLACE):
            q = inq_at(ce, th.form.inq2)
            word = q.slots[q.head]
            r = ready_cycle(word, t) if is_valid(word) else NEVER
            if r > when:
                th.wait = WAIT_INPUT
                when = r
    if th.form.plane != NO_PLACE:
        word = plane_tail(&s.plane[th.form.plane], cell)[0]
        if is_valid(word):
            ce.want_space = 1
            r = NEVER
        else:
            r = ready_cycle(word, t)
        if r > when:
            if th.wait == WAIT_PIPE:
                th.wait = WAIT_OUTPUT
            when = r
    return when
