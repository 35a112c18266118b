# cython: overflowcheck=False
"""The CE phase of a cycle: which CEs are looked at, which task starts, which thread issues.

A CE is looked at (`step_ce`) only in cycles in which something can change: a wavelet becomes ready in one of its input
queues, room appears in an output queue it waits for, or a time that it set itself has come.  Each look books the cycles
since the last one, lets the picker choose, issues at most one thing, and computes when to look again.

Two ways to save looks, both exact (docs/internals.md, "What runs ahead"):

* *bulk*: a vector operation whose operands all lie in memory is not stepped; whenever the CE is looked at, the steps
  that fell into the cycles since then are done in one call.  Nothing else of this PE issued in these cycles, else it
  would have been looked at.
* *run ahead*: with no microthread busy, nobody can observe the main thread between two operations that touch the
  fabric, so it runs on in its own time up to the run's cycle limit.  64-element fp16 work: one look instead of
  hundreds.

What a thread then does: `wse_core.scalar` (the main thread's instructions), `wse_core.vecop`, `wse_core.flow`,
`wse_core.turns` and `wse_core.bulk` (vector operations), on `wse_core.operand` and `wse_core.account`.

Rules, costs and accounting: docs/machine.md, "CE".  Reads and writes: its own `ce_t`, SRAM, input queues (taking),
R queues of its router (pushing), route words and filters of its router (in real time only).
"""
from wse_core.account cimport *
from wse_core.block cimport *
from wse_core.builtins cimport *
from wse_core.bulk cimport vec_bulk
from wse_core.emit cimport emit, vary
from wse_core.flow cimport BY_LOOK, SOON, flow_last, flow_looks, flow_on, flow_run, flow_when, pair_on, \
    taking_begins, taking_ends, train_wanted, way_wanted
from wse_core.operand cimport *
from wse_core.queue cimport *
from wse_core.records cimport *
from wse_core.report cimport close_wait, traced_wait
from wse_core.scalar cimport exec_alone, exec_beside, exec_main, main_when, takes_heads
from wse_core.turns cimport TURN_GOES_ON, TURN_MAIN, TURN_NOBODY, flows_in_turn
from wse_core.vecop cimport vec_step, vec_when
from wse_core.wake cimport ring_set, ring_word, schedule, wheel_remove


cdef enum:
    PICKS = 1 << 14         # cycles that the picker may run ahead of the clock


# --- the picker -------------------------------------------------------------------------------------------------------
cdef inline void start_task(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, int32_t entry, int id,
                            bint control) noexcept nogil:
    if TRACE:
        emit(s, cell, t, EV_TASK_START, NO_COLOR, id, ce.prog.code[entry].at, control)
    ce.main_state = MAIN_STARTING
    ce.task = <uint8_t>(id + N_CONTROL_IDS if control else id)     # kept untraced too: a trace may begin later
    ce.pc = entry
    if ce.prog.calls:
        depth_of(ce)[0] = 0
    ce.next = t + (s.f.p.task_next if ce.next == t else s.f.p.task_start)   # t: the task before has just ended
    ce.counts[COUNT_TASKS] += 1
    touched(s, t)

cdef inline void take_arguments(ce_t* ce, uint64_t word) noexcept nogil:
    ce.regs[0] = <uint16_t>word
    ce.regs[1] = <uint16_t>(word >> 16)
    if ce.prog.delays:
        ready_of(ce).after[0] = 0
        ready_of(ce).after[1] = 0

ctypedef struct heads_t:    # of the queues that the picker takes wavelets from
    uint32_t ready          # ids whose head it could take now
    bint missing            # of some queue nothing has come yet
    uint64_t next           # first cycle after this one that adds to `ready`, as things stand

cdef inline heads_t heads_for_picker(region_t* s, ce_t* ce, uint64_t t) noexcept nogil:
    cdef program_t* g = ce.prog
    cdef uint32_t ids = takes_heads(s, ce)
    cdef uint64_t word, r
    cdef inq_t* q
    cdef int id
    cdef heads_t found
    found.ready = 0
    found.missing = False
    found.next = NEVER
    while ids:
        id = ctz64(ids)
        ids &= ids - 1
        q = inq_of(ce, g.inq_of_task[id])
        word = q.slots[q.head]
        if not is_valid(word):
            found.missing = True
        elif is_control(word) or (g.data_tasks >> id) & 1:
            r = ready_cycle(word, t)
            if r <= t:
                found.ready |= <uint32_t>1 << id
            elif r < found.next:
                found.next = r
    return found

cdef void pick(region_t* s, ce_t* ce, uint32_t cell, uint64_t t) noexcept nogil:
    # Let the picker choose in cycle t.
    cdef program_t* g = ce.prog
    cdef uint32_t able = ce.activated & ~ce.blocked & g.bound
    cdef uint32_t set = able | heads_for_picker(s, ce, t).ready
    cdef uint64_t word
    cdef inq_t* q
    cdef int k, id
    if set == 0:
        return
    if set & g.high:
        set &= g.high
    if s.f.p.round_robin and set & ~((<uint32_t>2 << ce.last_task) - 1):
        set &= ~((<uint32_t>2 << ce.last_task) - 1)
    id = ctz64(set)
    ce.last_task = id
    if (able >> id) & 1:
        ce.activated &= ~(<uint32_t>1 << id)
        start_task(s, ce, cell, t, g.entry[id], id, False)
        return
    q = inq_of(ce, g.inq_of_task[id])
    word = inq_take(s, ce, cell, q, t)
    if is_control(word):
        k = <int>(word >> 16) & 63
        if g.control_entry[k] < 0:
            touched(s, t)
            return
        take_arguments(ce, word)
        start_task(s, ce, cell, t, g.control_entry[k], k, True)
    else:
        take_arguments(ce, word)
        start_task(s, ce, cell, t, g.entry[id], id, False)


# --- a look at a CE ---------------------------------------------------------------------------------------------------
cdef uint64_t op_when(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t) noexcept nogil:
    # First cycle in which the next step of a vector operation can issue as things stand in cycle t; NEVER = something
    # must happen first. Sets th.wait to the cause of waiting.
    # A cause counts only for cycles still to be booked, those from ce.acct on.
    if th.form.id != MAIN and ce.held >> th.form.id & 1:
        th.wait = WAIT_RESOURCE
        return NEVER
    th.wait = WAIT_PIPE
    if th.kind == KIND_BULK or th.next > ce.acct:
        return th.next
    if flow_on(ce, th) or pair_on(ce, th):
        return flow_when(s, ce, cell, th, t)
    return vec_when(s, ce, cell, th, t)

cdef void op_step(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t) noexcept nogil:
    # One step of a vector operation that is able in cycle t.
    if flow_on(ce, th):
        flow_run(s, ce, cell, th, t, ce.uts == 0 and not s.f.injects)
    else:
        vec_step(s, ce, cell, th, t)

cdef inline bint between_instructions(ce_t* ce) noexcept nogil:
    return ce.main_state == MAIN_RUN or ce.main_state == MAIN_STARTING

cdef inline bint quiet_ahead(ce_t* ce) noexcept nogil:
    # Whether the main thread's next instructions are quiet, and none of them will wait for a DSR of a microthread: if
    # that waits for ever, so would the main thread, and the cycle in which it begins to is when the run ends.
    cdef const instr_t* ins = ce.prog.code + ce.pc
    return ins.quiet != 0 and not (ins.ahead[0] & ce.dsr_busy[0] or ins.ahead[1] & ce.dsr_busy[1]
                                   or ins.ahead[2] & ce.dsr_busy[2])

cdef void main_behind(region_t* s, ce_t* ce, uint32_t cell, uint64_t end) noexcept nogil:
    # What the main thread has done before cycle `end`, since the CE was last looked at: instructions and operations in
    # memory that nobody could notice, while no microthread could issue.  A fault is found late, which `run_cycles`
    # knows; the run's last cycle is always looked at.
    # Gain: microthreads that wait for words cost the main thread nothing.
    cdef uint64_t ahead = s.ahead, t, n = 0
    cdef thread_t* th = &ce.main
    s.ahead = end
    ce.wait = WAIT_PIPE
    while True:
        if between_instructions(ce):
            t = exec_beside(s, ce, cell, end, &n)
            if t == 0:
                break
            touched(s, t)
            n += 1
        elif ce.main_state == MAIN_VECTOR and in_memory(th):
            t = max(th.next, ce.pipe_free)
            if t >= end:
                break
            ce.counts[COUNT_STALL_PIPE] += t - ce.acct
            ce.acct = t
            if th.kind == KIND_BULK:
                vec_bulk(s, ce, cell, th, t, end)
            else:
                touched(s, t)
                vec_step(s, ce, cell, th, t)
        else:
            break
    s.ahead = ahead
    s.events += n

cdef inline bint may_put_off(region_t* s, ce_t* ce, uint64_t t) noexcept nogil:
    # Whether the main thread's next instructions may be left for later in cycle t, if no microthread can issue.
    return not TRACE and t + 1 < s.ahead and between_instructions(ce) and quiet_ahead(ce)

cdef inline uint64_t noticed(region_t* s, ce_t* ce, uint64_t when) noexcept nogil:
    # A main thread that issues in cycle `when`, or later: up to which cycle nobody notices it.  The last one before the
    # horizon is for a look that puts nothing off.
    when += ce.prog.code[ce.pc].quiet
    return when if when < s.ahead else s.ahead - 1

cdef inline void wait_until(region_t* s, ce_t* ce, uint32_t cell, uint64_t t) noexcept nogil:
    # Book the cycles before t as waits.
    if ce.acct < t:
        if TRACE:
            traced_wait(s, ce, cell, t)
        ce.counts[COUNT_IDLE + ce.wait] += t - ce.acct
        ce.acct = t

cdef void catch_up(region_t* s, ce_t* ce, uint32_t cell, uint64_t t) noexcept nogil:
    # Do and book everything that happened by itself in the cycles before t.
    cdef uint64_t start
    if ce.main_state == MAIN_VECTOR and ce.main.kind == KIND_BULK:
        start = ce.main.next if ce.main.next > ce.pipe_free else ce.pipe_free
        if start < t:
            if ce.acct < start:
                if TRACE:
                    traced_wait(s, ce, cell, start)
                ce.counts[COUNT_IDLE + ce.wait] += start - ce.acct
                ce.acct = start
            vec_bulk(s, ce, cell, &ce.main, start, t)
            if ce.main_state == MAIN_RUN:
                ce.wait = WAIT_PIPE
    if ce.uts and ce.next < t and between_instructions(ce) and quiet_ahead(ce):
        main_behind(s, ce, cell, t)
    wait_until(s, ce, cell, t)

cdef inline uint64_t when_of(region_t* s, ce_t* ce, uint32_t cell, int thread, uint64_t t) noexcept nogil:
    if thread < MAIN:
        return op_when(s, ce, cell, ut_of(ce, thread), t)
    if ce.main_state == MAIN_VECTOR:
        return op_when(s, ce, cell, &ce.main, t)
    if ce.main_state == MAIN_IDLE:
        return NEVER
    return main_when(s, ce, t)

cdef inline int level_of(ce_t* ce, int thread) noexcept nogil:
    return ce.prog.main_level if thread == MAIN else ut_of(ce, thread).form.level

cdef int arbitrate(region_t* s, ce_t* ce, uint32_t cell, uint64_t t) noexcept nogil:
    # The thread that issues in cycle t, -1 = none: highest level, then cyclic order after the one that issued last.
    cdef uint32_t set = ce.uts, left
    cdef int best = -1, best_level = -1, top = -1, thread, level
    if ce.main_state != MAIN_IDLE:
        set |= <uint32_t>1 << MAIN
    left = set
    while left:
        level = level_of(ce, ctz64(left))
        left &= left - 1
        if level > top:
            top = level
    left = set & ~((<uint32_t>2 << ce.rr) - 1)      # those after the last issuer, then the others
    set ^= left
    while True:
        if left == 0:
            if set == 0:
                break
            left = set
            set = 0
        thread = ctz64(left)
        left &= left - 1
        level = level_of(ce, thread)
        if level > best_level and when_of(s, ce, cell, thread, t) <= t:
            best = thread
            best_level = level
            if level == top:
                break
    return best

cdef void issue(region_t* s, ce_t* ce, uint32_t cell, int thread, uint64_t t) noexcept nogil:
    touched(s, t)
    if thread < MAIN:
        op_step(s, ce, cell, ut_of(ce, thread), t)
    elif ce.main_state == MAIN_VECTOR:
        op_step(s, ce, cell, &ce.main, t)
    else:
        exec_main(s, ce, cell, t)

cdef uint64_t look_ahead(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, bint issued, bint* sure) noexcept nogil:
    # After cycle t: when must this CE be looked at next, and what are the cycles until then booked as?
    # `sure`: then the picker chooses among what is known now.  Nobody else acts, and a queue of which nothing has come
    # yet stays so up to `now` + ramp.in.
    cdef uint64_t first = t + 1 if ce.pipe_free <= t else ce.pipe_free
    cdef uint64_t when, next = NEVER
    cdef uint32_t uts = ce.uts
    cdef heads_t heads
    cdef int k
    ce.wait = WAIT_IDLE
    ce.want_space = 0
    # (The picker does not wait for the pipeline: with an idle main thread the next cycle must be looked at.)
    if issued and ce.uts and ce.acct >= first and (first == t + 1 or ce.main_state != MAIN_IDLE):
        return first                # busy microthreads: somebody can issue again more often than not
    if ce.main_state == MAIN_IDLE:
        heads = heads_for_picker(s, ce, t)
        next = heads.next
        if heads.ready or ce.activated & ~ce.blocked & ce.prog.bound:
            next = t + 1
        sure[0] = not uts and (next <= s.now + s.f.p.ramp_in or not heads.missing)
    else:
        when = when_of(s, ce, cell, MAIN, t)
        ce.wait = ce.main.wait
        if uts and ce.in_turn and when < s.ahead and may_put_off(s, ce, t):
            when = noticed(s, ce, max(when, t, ce.pipe_free))
        if when < first:
            when = first
        if when < NEVER and ce.main_state == MAIN_VECTOR and ce.main.kind == KIND_BULK:
            # Looked at when it may be complete: no step costs less than a cycle.
            when += (ce.main.n - ce.main.k + ce.main.form.group - 1) // ce.main.form.group
            if ce.main.k < ce.main.n and not uts:   # a microthread may issue while the main thread drains
                when += s.f.p.drain
        if when < next:
            next = when
    while uts:
        if next == first and ce.acct >= first:      # somebody issues in the first cycle not booked: no more to know
            return next
        k = ctz64(uts)
        uts &= uts - 1
        when = when_of(s, ce, cell, k, t)
        if ce.wait == WAIT_IDLE:
            ce.wait = ut_of(ce, k).wait
        if (ce.main_state == MAIN_VECTOR and ce.main.kind == KIND_BULK and level_of(ce, k) < level_of(ce, MAIN)
                and ce.main.next <= first):
            continue                # cannot issue before the main thread's operation is complete
        if when < first:
            when = first
        if when < next:
            next = when
    return next

cdef inline bint runs_alone(region_t* s, ce_t* ce) noexcept nogil:
    # Whether the main thread's next action can be done ahead of time: no other thread competes, and what the action
    # needs from the router (a wavelet in an input queue, room in an output queue) is there with a known ready cycle.
    # What it gives to the router carries its own ready cycle.
    if ce.uts:
        return False
    if ce.main_state == MAIN_VECTOR:
        return in_memory(&ce.main) or not s.f.injects
    if ce.main_state == MAIN_RUN or ce.main_state == MAIN_STARTING:
        return not ce.prog.code[ce.pc].flags & I_REAL
    return False

cdef inline bint sees_next_cycle(region_t* s, ce_t* ce) noexcept nogil:
    # Whether cycle now + 1 can be done in the same look. Everything that a CE sees in it is there: what routers do in
    # now + 1 reaches a CE in now + 2 at the earliest. Exceptions: configuration, which the CE reads as the routers of
    # its own cycle left it, injection (see `runs_alone`), and task 29.
    return not (s.f.injects or ce.teardown_due
                or (ce.main_state == MAIN_RUN or ce.main_state == MAIN_STARTING)
                and ce.prog.code[ce.pc].flags & I_REAL)

cdef inline bint picks_ahead(region_t* s, ce_t* ce, uint64_t next) noexcept nogil:
    # Whether the picker may choose in cycle `next` already, if it is sure among what. A wavelet that a router tears
    # down for comes in real time; tasks that start each other for ever are left now and then.
    return next - s.now < PICKS and not s.f.injects and not (ce.prog.bound >> TASK_TEARDOWN) & 1

cdef inline void catch_up_alone(region_t* s, ce_t* ce, uint32_t cell) noexcept nogil:
    # Nobody can disturb this operation before the horizon: do all of it now.
    cdef uint64_t start = ce.main.next if ce.main.next > ce.pipe_free else ce.pipe_free
    if start < s.ahead:
        if ce.acct < start:
            ce.counts[COUNT_STALL_PIPE] += start - ce.acct
            ce.acct = start
        vec_bulk(s, ce, cell, &ce.main, start, s.ahead)

cdef inline uint64_t flow_at_once(region_t* s, ce_t* ce, uint32_t cell, uint64_t t) noexcept nogil:
    # The steps of a flow that was set up in cycle t, the main thread alone, as far as they are able with what is in the
    # queues now. Returns the last cycle done.
    cdef thread_t* th = &ce.main
    cdef uint64_t when
    if th.next >= s.ahead or not flow_on(ce, th):
        return t
    if ce.acct < th.next:
        ce.counts[COUNT_STALL_PIPE] += th.next - ce.acct
        ce.acct = th.next
    th.wait = WAIT_PIPE
    when = flow_when(s, ce, cell, th, t)
    if when >= s.ahead:
        return t
    ce.counts[COUNT_IDLE + th.wait] += when - ce.acct
    ce.acct = when
    if not flow_last(s, ce, cell, th, when):
        flow_run(s, ce, cell, th, when, True)
    return ce.acct - 1

cdef uint64_t run_scalar(region_t* s, ce_t* ce, uint32_t cell, uint64_t t) noexcept nogil:
    # The main thread alone, able in cycle t: its instructions and its vector operations in memory, up to the next one
    # that reads or feeds the fabric, ends the task, touches the router or lies beyond the horizon. Returns the last
    # cycle done. Gain over looks: 3x.
    cdef uint64_t when, issued, n = 1
    while True:
        if ce.prog.code[ce.pc].flags & (I_PLAIN | I_VECTOR):
            t = exec_alone(s, ce, cell, t, &n)
        else:
            exec_main(s, ce, cell, t)
        issued = t
        if ce.main_state == MAIN_VECTOR:
            if ce.main.kind == KIND_BULK:
                catch_up_alone(s, ce, cell)
            elif not TRACE and ce.main.kind == KIND_FLOW and not s.f.injects:
                t = flow_at_once(s, ce, cell, t)
        if ce.main_state != MAIN_RUN or ce.uts or ce.prog.code[ce.pc].flags & I_REAL:
            break
        when = ce.next if ce.ready_max <= ce.next else main_when(s, ce, t)
        if when >= s.ahead:
            break
        if ce.acct < when:
            ce.counts[COUNT_STALL_PIPE] += when - ce.acct
            ce.acct = when
        t = when
        n += 1
    s.events += n
    touched(s, issued)          # a flow's last step may take longer than the cycle in which it issues
    return t

cdef inline bint goes_on(region_t* s, ce_t* ce, uint32_t cell, uint64_t* t) noexcept nogil:
    # After the last step of a flow in cycle t, the main thread alone: what follows, if it is nothing that touches the
    # router's configuration. False: nothing was done.
    cdef uint64_t when
    if TRACE or ce.main_state != MAIN_RUN or ce.prog.code[ce.pc].flags & I_REAL:
        return False
    when = ce.next if ce.ready_max <= ce.next else main_when(s, ce, t[0])
    if when >= s.ahead or when < ce.pipe_free:
        return False
    ce.counts[COUNT_STALL_PIPE] += when - ce.acct
    ce.acct = when
    t[0] = run_scalar(s, ce, cell, when)
    return True

cdef inline bint starves(region_t* s, ce_t* ce, uint32_t cell, uint64_t t) noexcept nogil:
    # The end of a look whose last issue, of the main thread, was in cycle t, if that is now alone in a flow for which
    # nothing has come: what the general look would find.  False: nothing was done.
    # Gain: a twentieth of the instructions of a gradient of streamed training.
    cdef thread_t* th = &ce.main
    if TRACE or ce.main_state != MAIN_VECTOR or th.kind != KIND_FLOW or th.form.inq == NO_PLACE or ce.uts:
        return False
    if is_valid(inq_at(ce, th.form.inq).slots[inq_at(ce, th.form.inq).head]) or th.next > ce.acct:
        return False
    th.wait = WAIT_INPUT
    ce.wait = WAIT_INPUT
    ce.want_space = th.form.plane != NO_PLACE and is_valid(plane_tail(&s.plane[th.form.plane], cell)[0])
    if ce.pipe_free > t + 1:
        t = ce.pipe_free - 1            # done with every cycle before pipe_free
    ce.resume = t + 1
    if t <= s.now + s.f.p.ramp_in and (t <= s.now or not ce.want_space):
        taking_begins(s, ce, cell)
    elif ce.want_space or th.n - th.k > SOON or t + 1 >= s.ahead:
        schedule(s, cell, t + 1, t + 1)             # wake-ups before that cycle are not heard
    else:
        ce.want_space = WANTS_WORD                  # but a word before it is: no look that would find nothing
        s.passed = max(s.passed, t + 1)
    way_wanted(s, ce)
    return True

cdef bint flow_alone(region_t* s, ce_t* ce, uint32_t cell, uint64_t t) noexcept nogil:
    # A look at a CE whose main thread does nothing but a flow: the general look in a few steps. False: not the
    # end of it, go on with the general look. Gain on streaming benchmarks: a fifth.
    cdef thread_t* th = &ce.main
    cdef uint64_t next
    if not flow_on(ce, th) or th.next > t or ce.pipe_free > t:
        return False
    wait_until(s, ce, cell, t)
    ce.want_space = 0
    if th.n - th.k == 1 and flow_last(s, ce, cell, th, t):
        return False
    next = flow_run(s, ce, cell, th, t, True)
    if ce.main_state != MAIN_VECTOR or th.kind != KIND_FLOW:
        return False                    # complete: general look at the cycle of its last step, no further issue in it
    if ce.acct == t:
        return False                    # not able
    t = ce.acct - 1
    if not flow_on(ce, th):
        next = t + 1
    ce.wait = th.wait
    ce.resume = t + 1
    train_wanted(s, ce)
    if next > t + 1 and t > s.now and next == NEVER and (ce.want_space or t > s.now + s.f.p.ramp_in):
        next = t + 1                    # wake-ups before that cycle are not heard
    if next < NEVER:
        schedule(s, cell, next, ce.resume)
    else:
        taking_begins(s, ce, cell)
    way_wanted(s, ce)
    return True

cdef inline void turns_go_on(region_t* s, ce_t* ce, uint32_t cell, uint64_t after) noexcept nogil:
    # The end of a look that has done all cycles before `after` and knows nothing of that one.
    ce.want_space = WANTS_NOTHING
    ce.resume = after
    schedule(s, cell, after, after)

cdef inline bint nothing_to_pick(region_t* s, ce_t* ce) noexcept nogil:
    return ce.activated & ~ce.blocked & ce.prog.bound == 0 and not takes_heads(s, ce)

cdef void step_ce(region_t* s, uint32_t cell) noexcept nogil:
    cdef ce_t* ce = s.f.ce[cell]
    cdef uint64_t t = s.now, next, after, first
    cdef int thread = -1, known
    cdef bint sure, goes = False
    if ce == NULL:
        return
    if unlikely(ce.prog == NULL):
        ce_awaken(s, cell)
    if ce.takes:
        if t < ce.acct and not ce.teardown_due:
            return
        if not TRACE and ce.takes & BY_LOOK and not ce.teardown_due and flow_looks(s, ce, cell):
            s.events += 1
            return
        taking_ends(ce)
    if unlikely(ce.teardown_due != 0) and (ce.teardown_due >> (t & 15)) & 1:
        # In real time, also if the main thread has run ahead: only the picker looks at the bit, and it does not run
        # ahead.
        ce.teardown_due &= ~(<uint32_t>1 << (t & 15))
        ce.activated |= <uint32_t>1 << TASK_TEARDOWN
        if TRACE:
            emit(s, cell, t, EV_ACTIVATE, NO_COLOR, TASK_TEARDOWN, 0, 0)
        if t < ce.resume:
            schedule(s, cell, ce.resume, ce.resume)     # the picker has not seen it
    if t < ce.resume or ce.main_state == MAIN_FAULT:
        return
    s.events += 1
    if ce.in_turn:
        # Nothing but microthreads in turn, the usual case of them (4 instructions fewer per step in exchange).
        if (ce.acct == t and ce.pipe_free <= t and ce.main_state <= MAIN_RUN
                and (ce.main_state != MAIN_IDLE or nothing_to_pick(s, ce))):
            after = flows_in_turn(s, ce, cell, t, &known)
            if after > t:
                if known == TURN_GOES_ON:
                    turns_go_on(s, ce, cell, after)
                    return
                t = after - 1
                goes = True
    elif ce.main_state == MAIN_VECTOR and ce.main.kind == KIND_FLOW and not ce.uts and not s.f.injects:
        if flow_alone(s, ce, cell, t):
            return
        goes = goes_on(s, ce, cell, &t)
        thread = MAIN if goes else -1
    while True:
        if not goes:
            if ce.acct < t:
                catch_up(s, ce, cell, t)
            if ce.main_state == MAIN_FAULT:
                return
            if t > s.now and between_instructions(ce) and ce.prog.code[ce.pc].flags & I_REAL:
                ce.resume = t           # what was put off has come to it: not before the routers of t
                schedule(s, cell, t, t)
                return
        if ce.main_state == MAIN_IDLE and not goes:
            pick(s, ce, cell, t)
            if ce.main_state == MAIN_STARTING:
                if ce.prog.code[ce.pc].flags & I_REAL:
                    if t > s.now:
                        ce.resume = t       # its first instruction may issue in t, but not before the routers of t
                        schedule(s, cell, t, t)
                        return
                elif not ce.uts:
                    first = main_when(s, ce, t)
                    if first < ce.pipe_free:
                        first = ce.pipe_free
                    if first > t and first < s.ahead:       # it starts alone: nothing to see until then
                        ce.wait = WAIT_PIPE
                        wait_until(s, ce, cell, first)
                        t = first
        if not goes:
            thread = -1
        after = t
        known = TURN_GOES_ON
        if goes:
            goes = False
        elif ce.in_turn and ce.pipe_free <= t and ce.main_state <= MAIN_RUN:
            after = flows_in_turn(s, ce, cell, t, &known)
            if after > t and known == TURN_GOES_ON:
                turns_go_on(s, ce, cell, after)
                return
        if after > t:
            t = after - 1
        elif thread < 0 and ce.pipe_free <= t and ce.main_state != MAIN_FAULT:
            if ce.uts:
                if known != TURN_NOBODY and not (known == TURN_MAIN and may_put_off(s, ce, t)):
                    thread = arbitrate(s, ce, cell, t)
            else:
                thread = MAIN if when_of(s, ce, cell, MAIN, t) <= t else -1
            if (thread == MAIN and not ce.uts and ce.main_state != MAIN_VECTOR
                    and not ce.prog.code[ce.pc].flags & I_REAL):
                t = run_scalar(s, ce, cell, t)
            elif thread >= 0:
                issue(s, ce, cell, thread, t)
            elif t > s.now + 1 and ce.main_state != MAIN_IDLE:
                # Not able with what is known now; the router may still make it able by then.
                ce.resume = t
                schedule(s, cell, t, t)
                return
        if ce.main_state == MAIN_FAULT or thread == MAIN and starves(s, ce, cell, t):
            return
        if not ce.uts and ce.main_state != MAIN_IDLE:
            if ce.main_state == MAIN_VECTOR and ce.main.kind == KIND_BULK:
                catch_up_alone(s, ce, cell)
            if ce.pipe_free > t + 1:
                t = ce.pipe_free - 1        # done with every cycle before pipe_free
        sure = False
        next = look_ahead(s, ce, cell, t, thread >= 0, &sure)
        if next < s.ahead and (runs_alone(s, ce) or sure and picks_ahead(s, ce, next)
                               or (next == s.now + 1 and sees_next_cycle(s, ce))):
            t = next
            s.events += 1
            continue
        ce.resume = t + 1
        if t > s.now and (next == NEVER or not runs_alone(s, ce)) and (ce.want_space or t > s.now + s.f.p.ramp_in):
            next = t + 1                # wake-ups before that cycle are not heard
        if ce.main_state == MAIN_VECTOR and ce.main.kind == KIND_FLOW:
            train_wanted(s, ce)
        if next < NEVER:
            schedule(s, cell, next, ce.resume)
        elif ce.main_state == MAIN_VECTOR and ce.main.kind == KIND_FLOW:
            taking_begins(s, ce, cell)
        if ce.main_state == MAIN_VECTOR and ce.main.kind == KIND_FLOW:
            way_wanted(s, ce)
        return

cdef void ce_settle(region_t* s, uint32_t cell) noexcept nogil:
    # Bring a CE's books and memory up to the cycle that is about to begin; the cell has a program.
    cdef ce_t* ce = s.f.ce[cell]
    if ce.prog != NULL and ce.main_state != MAIN_FAULT:
        if ce.takes:
            taking_ends(ce)
        catch_up(s, ce, cell, s.now)

cdef void ce_report(region_t* s, uint32_t cell, bint last) noexcept nogil:
    # Report what a CE has done before the cycle that is about to begin; `last`: also a wait that goes on.
    ce_settle(s, cell)
    if s.f.ce[cell].prog != NULL and (last or s.watch[cell].end < s.f.ce[cell].acct):
        close_wait(s, cell)

cdef void row_computes(region_t* s, uint32_t row) noexcept nogil:
    # The CE phase of a row.
    cdef uint32_t slot = <uint32_t>(s.now & (RING - 1))
    cdef uint32_t bucket = <uint32_t>(s.now & (WHEEL - 1))
    cdef uint32_t cell, after, first, w
    cdef uint64_t b, words
    cdef uint64_t* word
    cdef row_t* r = &s.rows[row]
    cdef int at
    if r.wheel_count:
        cell = r.wheel_head[bucket]
        while cell:
            after = s.f.wheel_next[cell]
            if s.f.wheel_time[cell] == s.now:
                wheel_remove(s, r, cell)
                if cell < s.f.n_cells:
                    ring_set(s, cell, s.now)
                else:
                    wake_ramps(s, cell - s.f.n_cells)
            cell = after
    if not (r.ring_any >> slot) & 1:
        return
    r.ring_any &= <uint16_t>~(1 << slot)
    s.seen = max(s.seen, s.now)
    words = s.ring_top[row * RING + slot]
    s.ring_top[row * RING + slot] = 0
    first = row * s.f.grid.words
    while words:
        w = first + ctz64(words)
        words &= words - 1
        word = ring_word(s, w, slot)
        b = word[0]
        word[0] = 0
        while b:
            at = ctz64(b)
            if unlikely(s.order != 0) and vary(s, 2):
                at = 63 - clz64(b)
            step_ce(s, w * 64 + at)
            b &= ~(<uint64_t>1 << at)
