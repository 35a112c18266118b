# Flows: the questions asked at every look, inline; `flow_run` and `flows_in_turn` do the steps.
from wse_core.block cimport *
from wse_core.builtins cimport *
from wse_core.emit cimport emit, record_fault
from wse_core.operand cimport *
from wse_core.queue cimport *
from wse_core.records cimport *

cdef uint64_t flow_run(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t start, bint alone) noexcept nogil
cdef bint flow_arrives(region_t* s, ce_t* ce, uint32_t cell, inq_t* q, uint64_t payload) noexcept nogil
cdef uint64_t flows_in_turn(region_t* s, ce_t* ce, uint32_t cell, uint64_t start, bint* decided) noexcept nogil

cdef inline bint flow_on(ce_t* ce, thread_t* th) noexcept nogil:
    # A flow with no control wavelet at its head.
    cdef inq_t* q
    if th.kind != KIND_FLOW:
        return False
    if th.inq == NO_PLACE:
        return True
    q = inq_at(ce, th.inq)
    return not is_control(q.slots[q.head])

cdef inline bint pair_on(ce_t* ce, thread_t* th) noexcept nogil:
    # The same with two fabric inputs.
    cdef inq_t* q
    cdef inq_t* q2
    if th.kind != KIND_PAIR:
        return False
    q = inq_at(ce, th.inq)
    q2 = inq_at(ce, th.inq2)
    return not is_control(q.slots[q.head]) and not is_control(q2.slots[q2.head])

cdef inline uint64_t flow_when(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t) noexcept nogil:
    # vec_when for a flow, or one with two fabric inputs, with no control wavelet at its head.
    cdef uint64_t when = ce.acct, word, r
    cdef inq_t* q
    if th.inq != NO_PLACE:
        q = inq_at(ce, th.inq)
        word = q.slots[q.head]
        if not is_valid(word):
            th.wait = WAIT_INPUT
            when = NEVER
        else:
            r = ready_cycle(word, t)
            if r > when:
                th.wait = WAIT_INPUT
                when = r
        if unlikely(th.inq2 != NO_PLACE):
            q = inq_at(ce, th.inq2)
            word = q.slots[q.head]
            r = ready_cycle(word, t) if is_valid(word) else NEVER
            if r > when:
                th.wait = WAIT_INPUT
                when = r
    if th.plane != NO_PLACE:
        word = plane_tail(&s.plane[th.plane], cell)[0]
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
