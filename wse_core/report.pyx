# cython: overflowcheck=False
"""What a CE reports besides its counters: its fault, and the waits that it books while events are recorded.

A wait is reported when another one begins or when the CE goes on, not cycle by cycle: `watch_t` holds the last one.
Reads a CE and its input queues, writes the trace buffer, the watches and the fault of the state.
"""
from wse_core.block cimport *
from wse_core.builtins cimport *
from wse_core.emit cimport emit, record_fault
from wse_core.queue cimport *
from wse_core.records cimport *


cdef void fault(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, int kind, int64_t address, int color, int detail,
                int64_t value) noexcept nogil:
    ce.main_state = MAIN_FAULT
    ce.uts = 0
    ce.wait = WAIT_IDLE
    record_fault(s, kind, cell, t, address, color, detail, value)

cdef void close_wait(region_t* s, uint32_t cell) noexcept nogil:
    # Report the wait that was booked last.
    cdef watch_t* w = &s.watch[cell]
    if w.end > w.begin:
        emit(s, cell, w.end, EV_WAIT, w.color, w.reason - WAIT_RESOURCE, w.end - w.begin, w.queue << 1)
    w.begin = w.end

cdef void add_wait(region_t* s, uint32_t cell, int reason, int queue, int color, uint64_t begin,
                   uint64_t end) noexcept nogil:
    # Cycles begin .. end - 1 of a wait: more of the last one, or a new one.
    cdef watch_t* w = &s.watch[cell]
    if begin >= end:
        return
    if not (w.end == begin and w.end > w.begin and w.reason == reason and w.queue == queue and w.color == color):
        close_wait(s, cell)
        w.begin = begin
        w.reason = reason
        w.queue = queue
        w.color = color
    w.end = end

cdef void traced_wait(region_t* s, ce_t* ce, uint32_t cell, uint64_t end) noexcept nogil:
    # Cycles ce.acct .. end - 1 are about to be booked as ce.wait. Of two inputs the first one counts while it lacks.
    cdef thread_t* th
    cdef const opnd_t* ops[2]
    cdef uint64_t begin = ce.acct, until, word
    cdef inq_t* q
    cdef int k
    if ce.wait < WAIT_RESOURCE:
        return
    if ce.wait == WAIT_RESOURCE or ce.wait == WAIT_FIFO:
        add_wait(s, cell, ce.wait, 0, NO_COLOR, begin, end)
        return
    th = &ce.main if ce.main_state != MAIN_IDLE else ut_of(ce, ctz64(ce.uts))
    if ce.wait == WAIT_OUTPUT:
        add_wait(s, cell, ce.wait, th.form.a.queue & (N_QUEUES - 1), th.form.a.plane // N_PORTS, begin, end)
        return
    ops[0] = &th.form.b
    ops[1] = &th.form.c
    for k in range(2):
        if ops[k].mode != OPND_FABIN:
            continue
        q = inq_of(ce, ops[k].queue)
        word = q.slots[q.head]
        until = ready_cycle(word, end) if is_valid(word) else end
        if until > end:
            until = end
        if until > begin:
            add_wait(s, cell, ce.wait, ops[k].queue & (N_QUEUES - 1), q.color, begin, until)
            begin = until
