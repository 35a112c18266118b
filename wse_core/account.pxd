# Accounting of a CE: cycles booked, steps counted, tasks activated or unblocked by what it does.
from wse_core.block cimport *
from wse_core.builtins cimport *
from wse_core.emit cimport emit, record_fault
from wse_core.opcodes cimport OP_FMACH, OP_FMACHS, OP_FMACS
from wse_core.operand cimport is_memory
from wse_core.queue cimport *
from wse_core.records cimport *
from wse_core.report cimport fault

cdef inline void touched(region_t* s, uint64_t t) noexcept nogil:
    if <int64_t>t > s.last_active:
        s.last_active = <int64_t>t

cdef inline void book(ce_t* ce, uint64_t t, uint32_t busy, uint32_t conflict) noexcept nogil:
    # An issue in cycle t that takes busy + conflict cycles.
    ce.counts[COUNT_BUSY] += busy
    ce.counts[COUNT_STALL_CONFLICT] += conflict
    ce.acct = t + busy + conflict
    ce.pipe_free = ce.acct
    ce.tail_conflict = conflict

cdef inline bint is_mac(int op) noexcept nogil:
    return op == OP_FMACS or op == OP_FMACH or op == OP_FMACHS

cdef inline uint64_t drain_of(region_t* s, const form_t* f, uint64_t n) noexcept nogil:
    # Cycles from the last step of a synchronous operation of n elements to the thread's next issue.
    if is_mac(f.op):
        return s.f.p.drain + (n * s.f.p.mac_late >> 4)
    if unlikely(s.f.p.fill_late) and is_memory(&f.a) and f.b.dsr == NO_PLACE and f.c.dsr == NO_PLACE:
        return s.f.p.drain + n * s.f.p.fill_late // 1000
    return s.f.p.drain

cdef inline void end_step(ce_t* ce, thread_t* th, uint64_t t, uint32_t busy, uint32_t conflict) noexcept nogil:
    book(ce, t, busy, conflict)
    th.next = ce.pipe_free
    ce.counts[COUNT_STEPS] += 1
    ce.rr = th.form.id

cdef inline void executed(region_t* s, const instr_t* ins) noexcept nogil:
    # A scalar instruction that does more than be issued (`is_counted` in wse_core/isa.py).
    s.work[ins.work] += 1

cdef inline void worked(region_t* s, const form_t* f, uint64_t n) noexcept nogil:
    # An operation ends after n elements.
    s.work[f.work] += n

cdef inline bint activate(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, int task) noexcept nogil:
    if task >= N_TASK_IDS or ce.prog.entry[task] < 0:
        fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_NO_ENTRY, task)
        return False
    ce.lost |= ce.activated & (<uint32_t>1 << task)
    ce.activated |= <uint32_t>1 << task
    if TRACE:
        emit(s, cell, t, EV_ACTIVATE, NO_COLOR, task, 0, 0)
    return True

cdef inline void unblock(ce_t* ce, int task) noexcept nogil:
    ce.blocked &= ~(<uint32_t>1 << (task & 31))
