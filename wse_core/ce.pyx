# cython: overflowcheck=False
"""The CE phase of a cycle: tasks, the scalar pipeline, vector operations on the main thread and on microthreads.

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

Rules, costs and accounting: docs/machine.md, "CE".  Reads and writes: its own `ce_t`, SRAM, input queues (taking),
R queues of its router (pushing), route words and filters of its router (in real time only).
"""
from libc.string cimport memset

from wse_core.alu cimport alu, condition
from wse_core.opcodes cimport *
from wse_core.router cimport set_route_word
from wse_core.state cimport *
from wse_core.vector cimport (
    vec_faddh, vec_faddhs, vec_fadds, vec_fmach, vec_fmachs, vec_fmacs, vec_fmulh, vec_fmuls, vec_fsubh, vec_fsubs)

cdef enum:
    NEVER_BITS = 62

cdef uint64_t NEVER = <uint64_t>1 << NEVER_BITS
cdef uint64_t ADVANCE_WORD = <uint64_t>ADVANCE_PAYLOAD | (<uint64_t>1 << SHIFT_CTRL)


# --- small helpers ----------------------------------------------------------------------------------------------------
cdef void fault(state_t* s, ce_t* ce, uint32_t cell, uint64_t t, int kind, int64_t address, int color, int detail,
                int64_t value) noexcept nogil:
    ce.main_state = MAIN_FAULT
    ce.uts = 0
    ce.wait = WAIT_IDLE
    record_fault(s, kind, cell, t, address, color, detail, value)

cdef inline uint32_t reg_read(ce_t* ce, int r, int words) noexcept nogil:
    if words == 2:
        return <uint32_t>ce.regs[r & 15] | (<uint32_t>ce.regs[(r + 1) & 15] << 16)
    return ce.regs[r & 15]

cdef inline void reg_write(ce_t* ce, int r, int words, uint32_t value) noexcept nogil:
    ce.regs[r & 15] = <uint16_t>value
    if words == 2:
        ce.regs[(r + 1) & 15] = <uint16_t>(value >> 16)

cdef inline void touched(state_t* s, uint64_t t) noexcept nogil:
    if <int64_t>t > s.last_active:
        s.last_active = <int64_t>t

cdef inline inq_t* inq_of(ce_t* ce, int queue) noexcept nogil:
    return inq_at(ce, ce.prog.inq_slot[queue])

cdef inline void traced_take(state_t* s, ce_t* ce, uint32_t cell, inq_t* q, uint64_t word, uint64_t t) noexcept nogil:
    emit(s, cell, t, EV_TAKE, q.color, ce.prog.inq_of_task[q.color], word, is_control(word))

cdef inline void traced_send(state_t* s, ce_t* ce, uint32_t cell, int plane, uint64_t word, uint64_t t) noexcept nogil:
    cdef int color = plane // N_PORTS, k
    for k in range(N_QUEUES):
        if ce.prog.outq_color[k] == color:
            emit(s, cell, t, EV_INJECT, color, k, word, is_control(word))
            return

cdef void close_wait(state_t* s, uint32_t cell) noexcept nogil:
    # Report the wait that was booked last.
    cdef watch_t* w = &s.watch[cell]
    if w.end > w.begin:
        emit(s, cell, w.end, EV_WAIT, w.color, w.reason - WAIT_RESOURCE, w.end - w.begin, w.queue << 1)
    w.begin = w.end

cdef void add_wait(state_t* s, uint32_t cell, int reason, int queue, int color, uint64_t begin,
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

cdef void traced_wait(state_t* s, ce_t* ce, uint32_t cell, uint64_t end) noexcept nogil:
    # Cycles ce.acct .. end - 1 are about to be booked as ce.wait. Of two inputs the first one counts while it lacks.
    cdef thread_t* th
    cdef opnd_t* ops[2]
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
        add_wait(s, cell, ce.wait, th.a.queue, th.a.plane // N_PORTS, begin, end)
        return
    ops[0] = &th.b
    ops[1] = &th.c
    for k in range(2):
        if ops[k].mode != OPND_FABIN:
            continue
        q = inq_of(ce, ops[k].queue)
        word = q.slots[q.head]
        until = ready_cycle(word, end) if is_valid(word) else end
        if until > end:
            until = end
        if until > begin:
            add_wait(s, cell, ce.wait, ops[k].queue, q.color, begin, until)
            begin = until

cdef inline uint64_t inq_take(state_t* s, ce_t* ce, uint32_t cell, inq_t* q, uint64_t t) noexcept nogil:
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

cdef inline void sram_fault(state_t* s, ce_t* ce, uint32_t cell, uint64_t t, int64_t address, int words) noexcept nogil:
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

cdef inline void book(ce_t* ce, uint64_t t, uint32_t busy, uint32_t conflict) noexcept nogil:
    # An issue in cycle t that takes busy + conflict cycles.
    ce.counts[COUNT_BUSY] += busy
    ce.counts[COUNT_STALL_CONFLICT] += conflict
    ce.acct = t + busy + conflict
    ce.pipe_free = ce.acct
    ce.tail_conflict = conflict

cdef inline bint activate(state_t* s, ce_t* ce, uint32_t cell, uint64_t t, int task) noexcept nogil:
    if task >= N_TASK_IDS or ce.prog.entry[task] < 0:
        fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_NO_ENTRY, task)
        return False
    ce.activated |= <uint32_t>1 << task
    if TRACE:
        emit(s, cell, t, EV_ACTIVATE, NO_COLOR, task, 0, 0)
    return True

cdef inline void unblock(ce_t* ce, int task) noexcept nogil:
    ce.blocked &= ~(<uint32_t>1 << (task & 31))


# --- vector operations: set-up ----------------------------------------------------------------------------------------
cdef bint setup_operand(state_t* s, ce_t* ce, uint32_t cell, uint64_t t, opnd_t* o, int field, int words, int dest,
                        const instr_t* ins) noexcept nogil:
    # Fill `o` from an operand field. dest: 1 destination, 0 source. Return False after a fault.
    cdef dsr_t* r
    cdef desc_t* d
    cdef int file = field >> 4
    cdef int number = field & 15
    cdef int k
    o.mode = OPND_NONE
    o.words = words
    o.checked = 0
    o.flags = 0
    o.dsr = NO_PLACE
    if words == 0:
        return True
    if file == FILE_REG:
        o.reg = number
        if dest or (ins.a >> 4 == FILE_REG and ins.a & 15 == number and ins.wa):
            o.mode = OPND_REG
        else:
            o.mode = OPND_CONST
            o.base = <int32_t>reg_read(ce, number, words)
        return True
    o.dsr = ce.prog.dsr_slot[file][number]
    r = dsr_at(ce, o.dsr)
    if r.number == 0:
        fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_DSR_EMPTY, field)
        return False
    d = desc_of(ce, r)
    o.flags = d.flags
    o.queue = d.queue & 7
    o.base = r.base
    if d.kind == DSD_MEM1D:
        o.mode = OPND_MEM1D
        o.step = <int32_t>r.stride * words
    elif d.kind == DSD_MEM4D:
        o.mode = OPND_MEM4D
        for k in range(1, d.ndim if 1 <= d.ndim <= 4 else 5):
            if k == 4 or d.extent[k] == 0:
                fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_LENGTH_ZERO, field)
                return False
        o.step = <int32_t>(r.stride if d.ndim == 1 else d.stride[d.ndim - 1]) * words
    elif d.kind == DSD_CIRCULAR or d.kind == DSD_FIFO:
        o.mode = OPND_CIRCULAR if d.kind == DSD_CIRCULAR else OPND_FIFO
        if d.length == 0:
            fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_LENGTH_ZERO, field)
            return False
    elif d.kind == DSD_FABIN and not dest:
        o.mode = OPND_FABIN
        if ce.prog.inq_slot[o.queue] < 0:
            fault(s, ce, cell, t, FAULT_QUEUE, 0, -1, D_NO_QUEUE, o.queue)
            return False
    elif d.kind == DSD_FABOUT and dest:
        o.mode = OPND_FABOUT
        if ce.prog.outq_color[o.queue] < 0:
            fault(s, ce, cell, t, FAULT_QUEUE, 0, -1, D_NO_QUEUE, o.queue)
            return False
        o.plane = ce.prog.outq_color[o.queue] * N_PORTS + DIR_R
    else:
        fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_DSR_EMPTY if d.kind == DSD_NONE else D_DSR_PLACE, field)
        return False
    return True

cdef inline desc_t* desc(ce_t* ce, opnd_t* o) noexcept nogil:
    return desc_of(ce, dsr_at(ce, o.dsr))

cdef inline uint32_t extent_of(ce_t* ce, opnd_t* o, int k) noexcept nogil:
    # Extent of dimension k; that of the outermost one can be changed.
    return dsr_at(ce, o.dsr).extent if k == 0 else desc(ce, o).extent[k]

cdef inline int32_t stride_of(ce_t* ce, opnd_t* o, int k) noexcept nogil:
    return dsr_at(ce, o.dsr).stride if k == 0 else desc(ce, o).stride[k]

cdef uint32_t length_of(ce_t* ce, opnd_t* o) noexcept nogil:
    cdef uint32_t n = dsr_at(ce, o.dsr).extent
    cdef desc_t* d = desc(ce, o)
    cdef int k
    if n == ENDLESS:
        return NO_END
    if d.kind == DSD_MEM4D:
        for k in range(1, d.ndim):
            n *= d.extent[k]
    return n

cdef inline uint32_t stride_lanes(state_t* s, opnd_t* o, uint32_t lanes) noexcept nogil:
    # SIMD width left by the stride of a memory operand (arch §4.2).
    cdef int32_t e, m
    cdef uint32_t limit
    if o.mode != OPND_MEM1D and o.mode != OPND_MEM4D:
        return lanes
    e = o.step // o.words
    if e == 0 or e == 1:
        return lanes
    m = (-e if e < 0 else e) & 7
    if m == 0:
        limit = 1
    elif m == 4:
        limit = s.p.stride4
    elif m == 1 or m == 7:
        limit = 2
    else:
        return lanes
    return limit if limit < lanes else lanes

cdef inline bint is_fabric(opnd_t* o) noexcept nogil:
    return o.mode == OPND_FABIN or o.mode == OPND_FABOUT

cdef inline int packing(opnd_t* o) noexcept nogil:
    # -1 no fabric operand, else whether it is packed
    if not is_fabric(o):
        return -1
    return 1 if (o.flags & F_PACKED and o.words == 1) else 0

cdef void check_range(ce_t* ce, opnd_t* o, uint32_t n) noexcept nogil:
    # Mark an operand none of whose n elements can fault, so that nobody has to watch each step.
    cdef int64_t lo, hi, reach
    cdef int k
    o.checked = o.mode == OPND_CONST or o.mode == OPND_REG or o.mode == OPND_NONE or n == 0
    if o.checked or n == NO_END or not is_memory(o):
        return
    lo = o.base
    hi = o.base
    if o.mode == OPND_MEM1D:
        reach = <int64_t>(n - 1) * o.step
        lo += reach if reach < 0 else 0
        hi += reach if reach > 0 else 0
    elif o.mode == OPND_CIRCULAR:
        hi += <int64_t>(desc(ce, o).length - 1) * o.words
    else:
        if n > length_of(ce, o):
            return
        for k in range(desc(ce, o).ndim):
            reach = <int64_t>(extent_of(ce, o, k) - 1) * stride_of(ce, o, k) * o.words
            lo += reach if reach < 0 else 0
            hi += reach if reach > 0 else 0
    o.checked = (lo >= <int64_t>ce.prog.code_words
                 and hi + o.words <= <int64_t>ce.prog.code_words + <int64_t>ce.prog.data_words
                 and (o.words == 1 or (o.base & 1) == 0))

cdef inline bint solid_operand(ce_t* ce, opnd_t* o, int field, int words, uint32_t n) noexcept nogil:
    # Fill `o` if the field names n contiguous elements of memory none of which can fault; False: look closer.
    cdef dsr_t* r
    cdef desc_t* d
    cdef int64_t at
    if words == 0 or field >> 4 == FILE_REG:
        return False
    o.dsr = ce.prog.dsr_slot[field >> 4][field & 15]
    r = dsr_at(ce, o.dsr)
    if r.number == 0 or r.stride != 1 or (words == 2 and r.base & 1):
        return False
    d = desc_of(ce, r)
    at = <int64_t>r.base - <int64_t>ce.prog.code_words
    if d.kind != DSD_MEM1D or at < 0 or at + <int64_t>n * words > <int64_t>ce.prog.data_words:
        return False
    o.mode = OPND_MEM1D
    o.words = words
    o.flags = d.flags
    o.checked = 1
    o.base = r.base
    o.step = words
    return True

cdef inline bint solid_setup(state_t* s, ce_t* ce, const instr_t* ins, thread_t* th) noexcept nogil:
    # `vec_setup` for the usual operation of compute loops: three contiguous operands in memory. False: nothing decided.
    # Gain: 420 instructions of 570.
    cdef uint32_t n
    if ins.form != FORM_ALU or ins.b >> 4 == FILE_REG or (ins.wd and ins.d >> 4 != FILE_REG):
        return False
    n = dsr_at(ce, ce.prog.dsr_slot[ins.b >> 4][ins.b & 15]).extent
    if n == 0 or n == ENDLESS:
        return False
    if not (solid_operand(ce, &th.b, ins.b, ins.wb, n) and solid_operand(ce, &th.c, ins.c, ins.wc, n)
            and solid_operand(ce, &th.a, ins.a, ins.wa, n)):
        return False
    th.n = n
    th.live = 0
    th.lanes = ins.lanes
    th.group = ins.lanes
    th.memory = 1
    th.bulk = 1
    th.one_bank = s.p.write_cycles and th.a.step % s.p.banks == 0 and n > 1
    no_stream(th)
    return True

cdef bint vec_setup(state_t* s, ce_t* ce, uint32_t cell, uint64_t t, const instr_t* ins, thread_t* th) noexcept nogil:
    # Turn a vector instruction into a running operation; False after a fault.
    cdef opnd_t* ops[3]
    cdef int pack = -1, k, p
    cdef bint streams = False
    th.op = ins.op
    th.latency = ins.latency
    th.k = 0
    th.scalar = reg_read(ce, ins.d & 15, ins.wd) if ins.wd else 0
    th.sending_advance = 0
    th.next = t + 1 + s.p.start
    th.wait = WAIT_PIPE
    if solid_setup(s, ce, ins, th):
        return True
    if not setup_operand(s, ce, cell, t, &th.b, ins.b, ins.wb, 0, ins):
        return False
    if not setup_operand(s, ce, cell, t, &th.c, ins.c, ins.wc, 0, ins):
        return False
    if not setup_operand(s, ce, cell, t, &th.a, ins.a, ins.wa, 1, ins):
        return False
    th.live = ins.wd != 0 and th.a.mode == OPND_REG and ins.d == ins.a
    th.n = length_of(ce, &th.b if th.b.dsr != NO_PLACE else (&th.c if th.c.dsr != NO_PLACE else &th.a))
    ops[0] = &th.b
    ops[1] = &th.c
    ops[2] = &th.a
    th.lanes = ins.lanes
    for k in range(3):
        th.lanes = stride_lanes(s, ops[k], th.lanes)
        p = packing(ops[k])
        if p >= 0:
            streams = True
            if pack >= 0 and pack != p:
                fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_PACKING, 0)
                return False
            pack = p
        if ops[k].mode == OPND_FIFO:
            streams = True
    if streams:
        th.group = 2 if pack == 1 else 1
    elif th.a.mode == OPND_REG or (th.a.mode == OPND_MEM1D and th.a.step == 0 and th.n > 1):
        th.group = 1
    else:
        th.group = th.lanes
    th.memory = not streams
    if ins.form == FORM_DFILT and th.b.mode != OPND_FABIN:
        fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_DFILT, 0)
        return False
    if (th.b.mode == OPND_FABIN and th.c.mode == OPND_FABIN and th.b.queue == th.c.queue
            or th.b.mode == OPND_FIFO and th.c.mode == OPND_FIFO and fifo_of(ce, &th.b) == fifo_of(ce, &th.c)):
        fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_SAME_QUEUE, th.b.queue)
        return False
    if ins.wd and ins.d >> 4 != FILE_REG:
        fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_DSR_PLACE, ins.d)
        return False
    for k in range(3):
        check_range(ce, ops[k], th.n)
    th.bulk = th.memory and th.a.checked and th.b.checked and th.c.checked
    th.one_bank = (s.p.write_cycles and th.a.mode == OPND_MEM1D and th.a.step != 0 and th.a.step % s.p.banks == 0
                   and th.n > 1)
    set_stream(s, ce, th)
    return True


cdef inline void no_stream(thread_t* th) noexcept nogil:
    th.stream = 0
    th.turn = 0
    th.inq = NO_PLACE
    th.inq2 = NO_PLACE
    th.plane = NO_PLACE

cdef void set_stream(state_t* s, ce_t* ce, thread_t* th) noexcept nogil:
    # Whether the operation is a plain stream: one fabric input at most, the rest checked memory, constants or a fabric
    # output without flags. Such operations need none of the questions of the general step.
    no_stream(th)
    if th.memory or th.op == OP_DFILT or th.one_bank:
        return
    if is_memory(&th.b) and is_memory(&th.c):
        return
    if not (plain_source(&th.b) and plain_source(&th.c)):
        return
    if th.a.mode == OPND_FABOUT:
        if th.a.flags & (F_INDEX | F_CONTROL | F_ZERO):
            return
        th.plane = th.a.plane
    elif th.a.mode != OPND_MEM1D or not th.a.checked or th.a.flags & F_INDEX:
        return
    if th.b.mode == OPND_FABIN or th.c.mode == OPND_FABIN:
        th.inq = ce.prog.inq_slot[th.b.queue if th.b.mode == OPND_FABIN else th.c.queue]
    stream_operand(ce, &th.to, &th.a)
    stream_operand(ce, &th.from_b, &th.b)
    stream_operand(ce, &th.from_c, &th.c)
    th.turn = th.group <= th.lanes          # each step issues in one cycle
    if th.b.mode == OPND_FABIN and th.c.mode == OPND_FABIN:
        th.inq2 = ce.prog.inq_slot[th.c.queue]
    else:
        th.stream = 1

cdef void stream_operand(ce_t* ce, stream_t* to, opnd_t* o) noexcept nogil:
    to.words = o.words
    to.step = 0
    to.at = <uint32_t>o.base
    if o.mode == OPND_MEM1D:
        to.source = STREAM_MEMORY
        to.at = <uint32_t>(o.base - <int32_t>ce.prog.code_words)
        to.step = <int16_t>o.step
    elif o.mode == OPND_FABIN:
        to.source = STREAM_FABRIC
    else:
        to.source = STREAM_CONST if o.mode == OPND_CONST else STREAM_NONE

cdef inline bint streams_on(ce_t* ce, thread_t* th) noexcept nogil:
    # A plain stream with no control wavelet at its head.
    cdef inq_t* q
    if not th.stream:
        return False
    if th.inq == NO_PLACE:
        return True
    q = inq_at(ce, th.inq)
    return not is_control(q.slots[q.head])

cdef inline bint pair_on(ce_t* ce, thread_t* th) noexcept nogil:
    # The same with two fabric inputs.
    cdef inq_t* q
    cdef inq_t* q2
    if not th.turn or th.inq2 == NO_PLACE:
        return False
    q = inq_at(ce, th.inq)
    q2 = inq_at(ce, th.inq2)
    return not is_control(q.slots[q.head]) and not is_control(q2.slots[q2.head])

cdef inline bint plain_source(opnd_t* o) noexcept nogil:
    return o.mode == OPND_FABIN or o.mode == OPND_CONST or o.mode == OPND_NONE or (o.mode == OPND_MEM1D and o.checked)


# --- vector operations: one step --------------------------------------------------------------------------------------
cdef inline int64_t address_of(ce_t* ce, opnd_t* o, uint32_t k) noexcept nogil:
    # Word address of element k of a memory operand.
    cdef desc_t* d
    cdef int64_t offset = 0
    cdef uint32_t rest = k, e
    cdef int i
    if o.mode == OPND_MEM1D:
        return o.base + <int64_t>k * o.step
    d = desc(ce, o)
    if o.mode == OPND_CIRCULAR:
        return o.base + <int64_t>((<uint32_t>dsr_at(ce, o.dsr).index + k) % d.length) * o.words
    i = d.ndim - 1
    while i > 0:
        e = d.extent[i]
        offset += <int64_t>(rest % e) * d.stride[i]
        rest //= e
        i -= 1
    offset += <int64_t>rest * stride_of(ce, o, 0)       # the outermost dimension has no end here, as in one dimension
    return o.base + offset * o.words

cdef inline uint32_t row_left(ce_t* ce, opnd_t* o, uint32_t k, uint32_t g) noexcept nogil:
    # A step does not cross the end of the innermost row of a 4-D operand.
    cdef uint32_t e
    if o.mode != OPND_MEM4D:
        return g
    e = extent_of(ce, o, desc(ce, o).ndim - 1)
    e = e - k % e
    return e if e < g else g

cdef inline uint32_t group_of(ce_t* ce, thread_t* th) noexcept nogil:
    cdef uint32_t g = th.group
    if g > th.n - th.k:
        g = th.n - th.k
    if g > 1 and th.memory:
        g = row_left(ce, &th.a, th.k, row_left(ce, &th.b, th.k, row_left(ce, &th.c, th.k, g)))
    return g

cdef inline bint is_memory(opnd_t* o) noexcept nogil:
    return o.mode == OPND_MEM1D or o.mode == OPND_MEM4D or o.mode == OPND_CIRCULAR

cdef inline int64_t bank_period(state_t* s) noexcept nogil:
    # Addresses that agree modulo this number conflict; at least 1.
    cdef int64_t m = s.p.banks // 2 if s.p.conflict_rule == RULE_MOD4 else s.p.banks
    return m if m > 1 else 1

cdef inline int64_t modulo(int64_t x, int64_t m) noexcept nogil:
    # The residue 0 .. m - 1; m is a power of two on every machine that exists.
    if m & (m - 1) == 0:
        return x & (m - 1)
    x %= m
    return x + m if x < 0 else x

cdef inline bint collide(state_t* s, int64_t first, int64_t second) noexcept nogil:
    # Whether one cycle cannot serve both addresses.
    return s.p.conflict_rule != RULE_NONE and modulo(first - second, bank_period(s)) == 0

cdef inline bint reads_collide(state_t* s, ce_t* ce, thread_t* th, uint32_t k, uint32_t g) noexcept nogil:
    # Whether the two memory sources of a step of g elements conflict: in their first elements, in any two if both are
    # 32 bits wide.
    cdef uint32_t i, j
    if g == 1 or th.b.words == 1 or th.c.words == 1:
        return collide(s, address_of(ce, &th.b, k), address_of(ce, &th.c, k))
    for i in range(g):
        for j in range(g):
            if collide(s, address_of(ce, &th.b, k + i), address_of(ce, &th.c, k + j)):
                return True
    return False

cdef inline uint32_t conflict_of(state_t* s, ce_t* ce, thread_t* th, uint32_t k, uint32_t g) noexcept nogil:
    # Cycles that the step of elements k .. k + g - 1 loses in memory.
    cdef bint b = is_memory(&th.b), c = is_memory(&th.c)
    cdef uint32_t lost = 0
    cdef int64_t to
    if b and c and (s.p.read_ports < 2 or reads_collide(s, ce, th, k, g)):
        lost = s.p.conflict_cycles
    if th.one_bank:
        to = address_of(ce, &th.a, k)
        if b and collide(s, to, address_of(ce, &th.b, k)) or c and collide(s, to, address_of(ce, &th.c, k)):
            lost += s.p.write_cycles
    return lost

cdef inline fifo_t* fifo_of(ce_t* ce, opnd_t* o) noexcept nogil:
    return <fifo_t*>(<char*>ce + ce.prog.fifo_at) + desc(ce, o).xdsr

cdef inline uint64_t fabin_ready(ce_t* ce, opnd_t* o, uint64_t t, int* control) noexcept nogil:
    # First cycle in which the head of a fabric input is ready; NEVER if nothing is queued.
    cdef inq_t* q = inq_of(ce, o.queue)
    cdef uint64_t word = q.slots[q.head]
    if not is_valid(word):
        return NEVER
    control[0] = is_control(word)
    return ready_cycle(word, t)

cdef uint64_t vec_when(state_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t) noexcept nogil:
    # First cycle in which the next step can issue as things stand in cycle t; NEVER = something must happen first.
    # Sets th.wait to the cause of waiting.
    cdef uint64_t when = th.next if th.next > ce.acct else ce.acct, r, word, diverted = NEVER
    cdef int control, k
    cdef uint32_t g
    cdef opnd_t* ops[3]
    cdef fifo_t* f
    cdef bint starved = False
    cdef uint64_t when0 = when
    # A cause counts only for cycles still to be booked, those from ce.acct on.
    th.wait = WAIT_PIPE
    if th.bulk or th.next > ce.acct:
        return th.next
    if streams_on(ce, th) or pair_on(ce, th):
        return stream_when(s, ce, cell, th, t)
    ops[0] = &th.b
    ops[1] = &th.c
    ops[2] = &th.a
    if not th.sending_advance:
        g = group_of(ce, th)
        for k in range(3):
            if ops[k].mode == OPND_FABIN:
                control = 0
                r = fabin_ready(ce, ops[k], t, &control)
                if r < when0:
                    r = when0
                if control and r < diverted:        # a control wavelet makes the step able by itself
                    diverted = r
                if r > when:
                    when = r
                    th.wait = WAIT_INPUT
            elif ops[k].mode == OPND_FIFO:
                f = fifo_of(ce, ops[k])
                if (f.count < g) if k < 2 else (f.count + g > desc(ce, ops[k]).length):
                    if ops[k].flags & F_TERMINATE:  # so does a FIFO that ends the operation
                        diverted = when0
                    else:
                        starved = True
        if diverted < NEVER:
            return diverted
        if starved:
            if th.wait == WAIT_PIPE:
                th.wait = WAIT_FIFO
            return NEVER
    if th.a.mode == OPND_FABOUT:
        word = plane_tail(&s.plane[th.a.plane], cell)[0]
        if is_valid(word):
            ce.want_space = 1
            r = NEVER
        else:
            r = ready_cycle(word, t)
        if r > when:
            when = r
            if th.wait == WAIT_PIPE:
                th.wait = WAIT_OUTPUT
    return when

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

cdef void threads_changed(ce_t* ce) noexcept nogil:
    # After a microthread began or ended, or ceased to be a plain stream.
    cdef uint32_t uts = ce.uts
    cdef int level = -1, ut, f
    cdef thread_t* th
    ce.plain = uts != 0
    for f in range(FILE_REG):
        ce.dsr_busy[f] = 0
    while uts:
        ut = ctz64(uts)
        uts &= uts - 1
        th = ut_of(ce, ut)
        for f in range(FILE_REG):
            ce.dsr_busy[f] |= th.dsrs[f]
        if not th.turn or (level >= 0 and level != ut_of(ce, ut).level):
            ce.plain = 0
        level = ut_of(ce, ut).level

cdef void last_is_advance(ce_t* ce, thread_t* th) noexcept nogil:
    # All elements are done; the operation ends with an advance_switch wavelet.
    th.sending_advance = 1
    th.stream = 0
    th.turn = 0
    if th.id != MAIN:
        threads_changed(ce)

cdef void vec_complete(state_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t, uint32_t cost) noexcept nogil:
    # The operation ends with the step of this cost that issued in cycle t.
    cdef opnd_t* ops[3]
    cdef dsr_t* d
    cdef int k
    ops[0] = &th.b
    ops[1] = &th.c
    ops[2] = &th.a
    for k in range(3):
        if ops[k].flags & F_SAVE and ops[k].dsr != NO_PLACE and not (k == 2 and ops[2].dsr == ops[0].dsr):
            if ops[k].mode == OPND_MEM1D:
                dsr_at(ce, ops[k].dsr).base = <uint16_t>(ops[k].base + <int32_t>th.k * ops[k].step)
            elif ops[k].mode == OPND_CIRCULAR:
                d = dsr_at(ce, ops[k].dsr)
                d.index = <uint16_t>((<uint32_t>d.index + th.k) % desc(ce, ops[k]).length)
    th.active = 0
    if TRACE:
        emit(s, cell, t, EV_OP_END, NO_COLOR, th.id, th.k, 0)
        if s.watch[cell].lost[th.id]:
            emit(s, cell, t, EV_CONFLICT, NO_COLOR, th.id, s.watch[cell].lost[th.id], 0)
            s.watch[cell].lost[th.id] = 0
    if th.id == MAIN:
        ce.main_state = MAIN_RUN
        ce.next = t + cost + s.p.drain
    else:
        ce.uts &= ~(<uint32_t>1 << th.id)
        threads_changed(ce)
    if th.a.mode == OPND_REG:
        wait_reg(ce, th.a.reg, th.a.words, t, cost if cost > th.latency else th.latency)
    if th.unblock_task != NO_TASK:
        unblock(ce, th.unblock_task)
    if th.act_task != NO_TASK:
        activate(s, ce, cell, t, th.act_task)

cdef inline bint read_element(state_t* s, ce_t* ce, uint32_t cell, uint64_t t, opnd_t* o, uint32_t k, uint32_t j,
                              uint32_t word, uint32_t* out) noexcept nogil:
    # Element k of a source; j-th of this step; `word`: payload taken in this step if the source is a fabric input.
    cdef uint32_t index
    cdef int64_t address
    cdef fifo_t* f
    if o.mode == OPND_MEM1D:
        if not sram_at(ce, o.base + <int64_t>k * o.step, o.words, &index):
            sram_fault(s, ce, cell, t, o.base + <int64_t>k * o.step, o.words)
            return False
        out[0] = sram_read(ce, index, o.words)
    elif o.mode == OPND_FABIN:
        if o.words == 2:
            out[0] = word
        else:
            out[0] = (word >> (16 * j)) & 0xFFFF
    elif o.mode == OPND_CONST:
        out[0] = <uint32_t>o.base
    elif o.mode == OPND_REG:
        out[0] = reg_read(ce, o.reg, o.words)
    elif o.mode == OPND_NONE:
        out[0] = 0
    else:
        if o.mode == OPND_FIFO:
            f = fifo_of(ce, o)
            address = o.base + <int64_t>f.head * o.words
            f.head = 0 if f.head + 1 >= desc(ce, o).length else f.head + 1
            f.count -= 1
        else:
            address = address_of(ce, o, k)
        if not sram_at(ce, address, o.words, &index):
            sram_fault(s, ce, cell, t, address, o.words)
            return False
        out[0] = sram_read(ce, index, o.words)
    return True

cdef inline uint32_t multiplier(ce_t* ce, thread_t* th) noexcept nogil:
    return reg_read(ce, th.a.reg, th.a.words) if unlikely(th.live) else th.scalar

cdef inline bint write_element(state_t* s, ce_t* ce, uint32_t cell, uint64_t t, opnd_t* o, uint32_t k, uint32_t j,
                               uint32_t offset, uint32_t value, uint32_t* word) noexcept nogil:
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
        address = o.base + <int64_t>k * o.step + offset
    elif o.mode == OPND_FIFO:
        f = fifo_of(ce, o)
        address = o.base + <int64_t>((<uint32_t>f.head + f.count) % desc(ce, o).length) * o.words
        f.count += 1
    elif o.mode == OPND_NONE:
        return True
    else:
        address = address_of(ce, o, k)
    if not sram_at(ce, address, o.words, &index):
        sram_fault(s, ce, cell, t, address, o.words)
        return False
    sram_write(ce, index, o.words, value)
    return True

cdef inline void send(state_t* s, ce_t* ce, uint32_t cell, int plane, uint64_t payload, uint64_t t,
                      uint32_t cost) noexcept nogil:
    ramp_push(s, plane, cell, payload, t + cost - 1 + s.p.execute + s.p.ramp_out)
    if TRACE:
        traced_send(s, ce, cell, plane, payload, t)
    ce.counts[COUNT_SENT] += 1
    s.waiting = 1

cdef void end_step(ce_t* ce, thread_t* th, uint64_t t, uint32_t busy, uint32_t conflict) noexcept nogil:
    book(ce, t, busy, conflict)
    th.next = ce.pipe_free
    ce.counts[COUNT_STEPS] += 1
    ce.rr = th.id

cdef bint diverted_step(state_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t) noexcept nogil:
    # A step that takes a control wavelet, is part of dfilt, or ends the operation at a full or empty FIFO.
    cdef opnd_t* ops[3]
    cdef int k, control
    cdef uint32_t g
    cdef uint8_t on
    cdef fifo_t* f
    cdef desc_t* d
    ops[0] = &th.b
    ops[1] = &th.c
    ops[2] = &th.a
    for k in range(2):
        if ops[k].mode != OPND_FABIN:
            continue
        control = 0
        if fabin_ready(ce, ops[k], t, &control) > t or not (control or th.op == OP_DFILT):
            continue
        inq_take(s, ce, cell, inq_of(ce, ops[k].queue), t)
        end_step(ce, th, t, 1, 0)
        if th.op == OP_DFILT:
            if control:
                th.k += 1
                ce.counts[COUNT_ELEMENTS] += 1
                if th.k == th.n:
                    vec_complete(s, ce, cell, th, t, 1)
            return True
        d = desc(ce, ops[k])
        on = d.on_control
        if on & ON_UNBLOCK:
            unblock(ce, d.control_task)
        if on & ON_ACTIVATE and not activate(s, ce, cell, t, d.control_task):
            return True
        if on & ON_TERMINATE:
            vec_complete(s, ce, cell, th, t, 1)
        return True
    g = group_of(ce, th)
    for k in range(3):
        if ops[k].mode == OPND_FIFO and ops[k].flags & F_TERMINATE:
            f = fifo_of(ce, ops[k])
            if (f.count < g) if k < 2 else (f.count + g > desc(ce, ops[k]).length):
                end_step(ce, th, t, 1, 0)
                vec_complete(s, ce, cell, th, t, 1)
                return True
    return False

cdef inline bint fifo_task(state_t* s, ce_t* ce, uint32_t cell, uint64_t t, int task) noexcept nogil:
    # A step has pushed to a FIFO, or popped from it.
    return task == NO_TASK or activate(s, ce, cell, t, task)

cdef void vec_step(state_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t) noexcept nogil:
    # One step of an operation that is able in cycle t.
    cdef uint32_t g, busy, conflict = 0, j, bv, cv, r, word_b = 0, word_c = 0, word_a = 0, offset = 0, index
    cdef int64_t address
    cdef uint64_t payload
    if streams_on(ce, th):
        stream_run(s, ce, cell, th, t, ce.uts == 0 and not s.injects)
        return
    if th.sending_advance:
        end_step(ce, th, t, 1, 0)
        send(s, ce, cell, th.a.plane, ADVANCE_WORD, t, 1)
        vec_complete(s, ce, cell, th, t, 1)
        return
    if not th.memory and diverted_step(s, ce, cell, th, t):
        return
    g = group_of(ce, th)
    busy = (g + th.lanes - 1) // th.lanes
    conflict = conflict_of(s, ce, th, th.k, g)
    if TRACE:
        s.watch[cell].lost[th.id] += conflict
    if th.b.mode == OPND_FABIN:
        word_b = <uint32_t>inq_take(s, ce, cell, inq_of(ce, th.b.queue), t)
    if th.c.mode == OPND_FABIN:
        word_c = <uint32_t>inq_take(s, ce, cell, inq_of(ce, th.c.queue), t)
    if th.a.mode == OPND_MEM1D and th.a.flags & F_INDEX:
        if th.b.mode == OPND_FABIN:
            offset = word_b >> 16
        elif th.c.mode == OPND_FABIN:
            offset = word_c >> 16
    end_step(ce, th, t, busy, conflict)
    for j in range(g):
        if not read_element(s, ce, cell, t, &th.b, th.k + j, j, word_b, &bv):
            return
        if not read_element(s, ce, cell, t, &th.c, th.k + j, j, word_c, &cv):
            return
        r = alu(th.op, &ce.prog.num, bv, cv, multiplier(ce, th))
        if not write_element(s, ce, cell, t, &th.a, th.k + j, j, offset, r, &word_a):
            return
        if th.a.mode == OPND_FABOUT and th.a.flags & F_ZERO and is_memory(&th.b):
            address = address_of(ce, &th.b, th.k + j)
            if sram_at(ce, address, th.b.words, &index):
                sram_write(ce, index, th.b.words, 0)
    if th.a.mode == OPND_FABOUT:
        payload = word_a
        if th.a.flags & F_INDEX and th.a.words == 1 and not th.a.flags & F_PACKED:
            payload |= <uint64_t>dsr_at(ce, th.a.dsr).index << 16
        if th.a.flags & F_CONTROL:
            payload |= <uint64_t>1 << SHIFT_CTRL
        send(s, ce, cell, th.a.plane, payload, t, busy + conflict)
    ce.counts[COUNT_ELEMENTS] += g
    if is_mac(th.op):
        ce.counts[COUNT_MACS] += g
    th.k += g
    if th.a.mode == OPND_FIFO and not fifo_task(s, ce, cell, t, desc(ce, &th.a).push_task):
        return
    if th.b.mode == OPND_FIFO and not fifo_task(s, ce, cell, t, desc(ce, &th.b).pop_task):
        return
    if th.c.mode == OPND_FIFO and not fifo_task(s, ce, cell, t, desc(ce, &th.c).pop_task):
        return
    if th.k == th.n and th.n != NO_END:
        if th.a.mode == OPND_FABOUT and th.a.flags & F_ADVANCE:
            last_is_advance(ce, th)
        else:
            vec_complete(s, ce, cell, th, t, busy + conflict)

cdef inline bint is_mac(int op) noexcept nogil:
    return op == OP_FMACS or op == OP_FMACH or op == OP_FMACHS


# --- plain streams ----------------------------------------------------------------------------------------------------
cdef inline uint64_t stream_when(state_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t) noexcept nogil:
    # vec_when for a plain stream, or one with two fabric inputs, with no control wavelet at its head.
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

cdef inline uint32_t stream_take(const uint16_t* sram, stream_t* o, uint32_t j, uint32_t word) noexcept nogil:
    # The next element of a source; j-th of this step, `word` is the payload of the step's wavelet.
    cdef uint32_t at = o.at
    if o.source == STREAM_MEMORY:
        o.at = at + o.step
        return (<const uint32_t*>(sram + at))[0] if o.words == 2 else sram[at]
    if o.source == STREAM_FABRIC:
        return word if o.words == 2 else (word >> (16 * j)) & 0xFFFF
    return at

cdef inline void stream_put(uint16_t* sram, stream_t* o, uint32_t value) noexcept nogil:
    if o.words == 2:
        (<uint32_t*>(sram + o.at))[0] = value
    else:
        sram[o.at] = <uint16_t>value
    o.at += o.step

cdef uint64_t stream_run(state_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t start, bint alone) noexcept nogil:
    # Steps of a plain stream from cycle `start` on: one that is able, or, if the main thread is alone, as many as are
    # able back to back with what is in the queues now. Returns when the next step can issue as things stand, like
    # `stream_when`.
    # Gain over general steps: 3x fewer instructions per element.
    cdef uint64_t t = start, word = 0
    cdef uint64_t latency = s.p.execute + s.p.ramp_out
    cdef uint32_t g, j, b, payload, cost = 1, k = th.k, n_steps = 0
    cdef bint receives = th.inq != NO_PLACE, sends = th.plane != NO_PLACE, single = th.group == 1
    cdef inq_t* q = inq_at(ce, th.inq if receives else 0)
    cdef plane_t* out = &s.plane[th.plane if sends else 0]
    cdef const num_t* num = &ce.prog.num
    cdef uint16_t* sram = ce.sram
    while True:
        if receives:
            word = q.slots[q.head]
            if not takeable(word, t) or is_control(word):
                break
        if sends:
            if not has_room(plane_tail(out, cell)[0], t):
                break
        if receives:
            q.slots[q.head] = stamp_of(t + 1)
            q.head = 0 if q.head + 1 == q.cap else q.head + 1
            inq_freed(s, cell, q)
            if TRACE:
                traced_take(s, ce, cell, q, word, t)
        if likely(single):
            b = stream_take(sram, &th.from_b, 0, <uint32_t>word)
            b = alu(th.op, num, b, stream_take(sram, &th.from_c, 0, <uint32_t>word), th.scalar)
            if sends:
                ramp_push(s, th.plane, cell, b, t + latency)
                if TRACE:
                    traced_send(s, ce, cell, th.plane, b, t)
            else:
                stream_put(sram, &th.to, b)
            k += 1
            t += 1
            n_steps += 1
            if not alone or t >= s.ahead or k == th.n:
                break
            continue
        g = th.group if th.group <= th.n - k else th.n - k
        cost = (g + th.lanes - 1) // th.lanes if g > th.lanes else 1     # a last step may be shorter
        payload = 0
        for j in range(g):
            b = stream_take(sram, &th.from_b, j, <uint32_t>word)
            b = alu(th.op, num, b, stream_take(sram, &th.from_c, j, <uint32_t>word), th.scalar)
            if sends:
                payload |= b << (16 * j)
            else:
                stream_put(sram, &th.to, b)
        if sends:
            ramp_push(s, th.plane, cell, payload, t + cost - 1 + latency)
            if TRACE:
                traced_send(s, ce, cell, th.plane, payload, t)
        k += g
        t += cost
        n_steps += 1
        if not alone or t >= s.ahead or k == th.n:
            break
    if n_steps:
        touched(s, t - cost)
        ce.counts[COUNT_ELEMENTS] += k - th.k
        if is_mac(th.op):
            ce.counts[COUNT_MACS] += k - th.k
        ce.counts[COUNT_STEPS] += n_steps
        s.waiting = 1               # the router must look at what was taken and sent
        if sends:
            ce.counts[COUNT_SENT] += n_steps
        if receives:
            ce.counts[COUNT_RECEIVED] += n_steps
        th.k = k
        book(ce, start, <uint32_t>(t - start), 0)
        th.next = t
        ce.rr = th.id
        if k == th.n and th.n != NO_END:
            if sends and th.a.flags & F_ADVANCE:
                last_is_advance(ce, th)
            else:
                vec_complete(s, ce, cell, th, t - cost, cost)
            return t
    if not alone or t >= s.ahead:
        return t
    th.wait = WAIT_PIPE
    return stream_when(s, ce, cell, th, t)      # stopped by a head that is not ready or by a full queue


cdef enum:
    NOT_ABLE = 0
    ABLE = 1
    UNCERTAIN = 2           # or a control wavelet, which is for the general step

cdef inline int able_in_turn(state_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t,
                             uint64_t heard) noexcept nogil:
    # Whether a microthread of `streams_in_turn` can issue in cycle t, as far as that is known now.
    cdef inq_t* q
    cdef uint64_t word, other
    if th.next > t:
        return NOT_ABLE
    if th.inq != NO_PLACE:
        q = inq_at(ce, th.inq)
        word = q.slots[q.head]
        if unlikely(th.inq2 != NO_PLACE):
            q = inq_at(ce, th.inq2)
            other = q.slots[q.head]
            if is_control(word) or is_control(other):
                return UNCERTAIN
            if is_valid(word) and (not is_valid(other) or not usable(other, t)):
                word = other                    # the one that is missing, or comes later
        if not is_valid(word):
            return UNCERTAIN if t > heard else NOT_ABLE
        if is_control(word):
            return UNCERTAIN
        if not usable(word, t):
            return NOT_ABLE
    if th.plane != NO_PLACE:
        word = plane_tail(&s.plane[th.plane], cell)[0]
        if not has_room(word, t):
            return UNCERTAIN if t > s.now + 1 and is_valid(word) else NOT_ABLE
    return ABLE

cdef uint64_t streams_in_turn(state_t* s, ce_t* ce, uint32_t cell, uint64_t start, bint* decided) noexcept nogil:
    # Steps of microthreads from cycle `start` on, all of them plain streams of one level, up to the cycle in which the
    # main thread can compete (idle, with nothing for the picker, or of a lower level, it cannot): cycle after cycle as
    # long as it is certain which thread issues.  Returns the first cycle not done;
    # `decided`: in it no thread can issue as things stand, or an operation has ended.
    #
    # What is certain: a wavelet in a queue and its ready cycle; that a queue without one stays so up to `heard`, since
    # what the routers of the next cycle deliver is ready ramp.in later; that a full output queue is full in the next
    # cycle.  A thread that comes later in the cyclic order is not asked, so what is uncertain about it does not matter.
    # If control wavelets may come, or data tasks are bound, an idle main thread must look at each cycle: one is done.
    # Gain: 2.2x fewer instructions per step in saturated exchange than looks with arbitration and general steps.
    cdef uint64_t t = start, word, word2 = 0, heard = s.now + s.p.ramp_in, stop = s.ahead
    cdef uint64_t latency = s.p.execute + s.p.ramp_out
    cdef uint32_t first, rest, b, g, other, uts = ce.uts
    cdef uint32_t n_steps = 0, n_elements = 0, n_sent = 0, n_received = 0, n_macs = 0
    cdef int id = ce.rr
    cdef thread_t* th = NULL
    cdef inq_t* q
    cdef inq_t* q2
    cdef int able = NOT_ABLE
    cdef const num_t* num = &ce.prog.num
    decided[0] = True
    if ce.main_state != MAIN_IDLE:
        if ce.prog.main_level >= ut_of(ce, ctz64(uts)).level:
            word = main_when(s, ce, t)
            if word < stop:
                stop = word
    elif takes_heads(s, ce):
        stop = t + 1
    while t < stop:
        first = uts & ~((<uint32_t>2 << id) - 1)    # those after the last issuer, then the others
        rest = uts ^ first
        if first == 0:
            first = rest
            rest = 0
        while True:
            id = ctz64(first)
            first &= first - 1
            th = ut_of(ce, id)
            able = able_in_turn(s, ce, cell, th, t, heard)
            if able != NOT_ABLE:
                break
            if first == 0:
                if rest == 0:
                    break
                first = rest
                rest = 0
        if able != ABLE:
            decided[0] = able == NOT_ABLE
            break
        word = 0
        word2 = 0
        if th.inq != NO_PLACE:
            q = inq_at(ce, th.inq)
            word = q.slots[q.head]
            word2 = word
            q.slots[q.head] = stamp_of(t + 1)
            q.head = 0 if q.head + 1 == q.cap else q.head + 1
            inq_freed(s, cell, q)
            n_received += 1
            if TRACE:
                traced_take(s, ce, cell, q, word, t)
            if unlikely(th.inq2 != NO_PLACE):
                q2 = inq_at(ce, th.inq2)
                word2 = q2.slots[q2.head]
                if TRACE:
                    traced_take(s, ce, cell, q2, word2, t)
                q2.slots[q2.head] = stamp_of(t + 1)
                q2.head = 0 if q2.head + 1 == q2.cap else q2.head + 1
                inq_freed(s, cell, q2)
                n_received += 1
        b = stream_take(ce.sram, &th.from_b, 0, <uint32_t>word)
        b = alu(th.op, num, b, stream_take(ce.sram, &th.from_c, 0, <uint32_t>word2), th.scalar)
        if th.plane == NO_PLACE:
            stream_put(ce.sram, &th.to, b)
        g = 1
        while unlikely(g < th.group) and th.k + g < th.n:
            other = stream_take(ce.sram, &th.from_b, g, <uint32_t>word)
            other = alu(th.op, num, other, stream_take(ce.sram, &th.from_c, g, <uint32_t>word2), th.scalar)
            if th.plane == NO_PLACE:
                stream_put(ce.sram, &th.to, other)
            else:
                b |= other << (16 * g)
            g += 1
        if th.plane != NO_PLACE:
            ramp_push(s, th.plane, cell, b, t + latency)
            n_sent += 1
            if TRACE:
                traced_send(s, ce, cell, th.plane, b, t)
        n_elements += g
        if is_mac(th.op):
            n_macs += g
        n_steps += 1
        ce.rr = id
        t += 1
        th.next = t
        th.k += g
        if th.k == th.n and th.n != NO_END:
            if th.plane != NO_PLACE and th.a.flags & F_ADVANCE:
                last_is_advance(ce, th)
            else:
                vec_complete(s, ce, cell, th, t - 1, 1)
            break
    else:
        decided[0] = stop == start + 1
    if n_steps:
        book(ce, start, <uint32_t>(t - start), 0)
        touched(s, t - 1)
        s.events += n_steps
        ce.counts[COUNT_ELEMENTS] += n_elements
        ce.counts[COUNT_MACS] += n_macs
        ce.counts[COUNT_STEPS] += n_steps
        ce.counts[COUNT_SENT] += n_sent
        ce.counts[COUNT_RECEIVED] += n_received
        s.waiting = 1
    return t


# --- vector operations in bulk ----------------------------------------------------------------------------------------
cdef inline bint apart(opnd_t* a, opnd_t* o, uint32_t k, uint32_t n) noexcept nogil:
    # Whether contiguous source `o` is the destination itself or does not touch it: the condition of vec_*.
    cdef int64_t a0, o0
    if o.mode != OPND_MEM1D:
        return o.mode != OPND_REG
    a0 = a.base + <int64_t>k * a.step
    o0 = o.base + <int64_t>k * o.step
    if a0 == o0 and a.words == o.words:
        return True
    return o0 + <int64_t>n * o.words <= a0 or a0 + <int64_t>n * a.words <= o0

cdef inline bint contiguous(opnd_t* o) noexcept nogil:
    return o.mode == OPND_MEM1D and o.step == o.words

cdef bint vec_contiguous(ce_t* ce, thread_t* th, uint32_t n) noexcept nogil:
    # n elements from k on through a bulk kernel, if there is one for this shape. Gain over the loop below: 10-60x.
    cdef const num_t* num = &ce.prog.num
    cdef uint16_t* m = ce.sram - ce.prog.code_words
    cdef opnd_t* a = &th.a
    cdef opnd_t* b = &th.b
    cdef opnd_t* c = &th.c
    cdef uint16_t* pa
    cdef uint16_t* pb
    cdef uint16_t* pc
    cdef int op = th.op
    if not (contiguous(a) and contiguous(b) and contiguous(c) and apart(a, b, th.k, n) and apart(a, c, th.k, n)):
        return False
    pa = m + a.base + <int64_t>th.k * a.step
    pb = m + b.base + <int64_t>th.k * b.step
    pc = m + c.base + <int64_t>th.k * c.step
    if op == OP_FMACS:
        vec_fmacs(num, <uint32_t*>pa, <uint32_t*>pb, <uint32_t*>pc, th.scalar, n)
    elif op == OP_FMACHS:
        vec_fmachs(num, <uint32_t*>pa, <uint32_t*>pb, pc, <uint16_t>th.scalar, n)
    elif op == OP_FMACH:
        vec_fmach(num, pa, pb, pc, <uint16_t>th.scalar, n)
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

cdef inline uint32_t read_bulk(ce_t* ce, opnd_t* o, uint32_t k) noexcept nogil:
    cdef uint16_t* m
    if o.mode == OPND_MEM1D:
        m = ce.sram - ce.prog.code_words + o.base + <int64_t>k * o.step
        return <uint32_t>m[0] | (<uint32_t>m[1] << 16) if o.words == 2 else m[0]
    if o.mode == OPND_REG:
        return reg_read(ce, o.reg, o.words)
    return <uint32_t>o.base

cdef void vec_elements(ce_t* ce, thread_t* th, uint32_t n) noexcept nogil:
    # n elements from k on of an operation all of whose operands are flat and checked.
    cdef uint32_t k, r
    cdef uint16_t* m
    if n < 4 or not vec_contiguous(ce, th, n):
        for k in range(th.k, th.k + n):
            r = alu(th.op, &ce.prog.num, read_bulk(ce, &th.b, k), read_bulk(ce, &th.c, k), multiplier(ce, th))
            if th.a.mode == OPND_REG:
                reg_write(ce, th.a.reg, th.a.words, r)
            else:
                m = ce.sram - ce.prog.code_words + th.a.base + <int64_t>k * th.a.step
                m[0] = <uint16_t>r
                if th.a.words == 2:
                    m[1] = <uint16_t>(r >> 16)
    th.k += n
    ce.counts[COUNT_ELEMENTS] += n
    if is_mac(th.op):
        ce.counts[COUNT_MACS] += n

cdef inline bint flat(opnd_t* o) noexcept nogil:
    return o.mode != OPND_MEM4D and o.mode != OPND_CIRCULAR

cdef uint32_t conflict_pattern(state_t* s, ce_t* ce, thread_t* th, uint8_t* pattern) noexcept nogil:
    # Cycles lost by the full steps from element k on: periodic, because addresses advance evenly. Returns the period.
    cdef int64_t m = bank_period(s), first, by, at
    cdef int64_t a = <int64_t>th.a.step * th.group if th.a.mode == OPND_MEM1D else 0
    cdef int64_t b = <int64_t>th.b.step * th.group if th.b.mode == OPND_MEM1D else 0
    cdef int64_t c = <int64_t>th.c.step * th.group if th.c.mode == OPND_MEM1D else 0
    cdef uint32_t period = 1, n
    by = 0
    if s.p.conflict_rule != RULE_NONE and th.b.mode == OPND_MEM1D and th.c.mode == OPND_MEM1D:
        by = modulo(b - c, m)
    if by and not th.one_bank and s.p.read_ports >= 2 and (th.group == 1 or th.b.words == 1 or th.c.words == 1):
        # Only the first elements of the two sources count, whose distance changes evenly. Gain: 300 instructions.
        first = modulo(address_of(ce, &th.b, th.k) - address_of(ce, &th.c, th.k), m)
        at = first
        n = 0
        while True:
            pattern[n] = <uint8_t>s.p.conflict_cycles if at == 0 else 0
            n += 1
            at += by
            if at >= m:
                at -= m
            if at == first:
                return n
    pattern[0] = <uint8_t>conflict_of(s, ce, th, th.k, th.group)
    if by == 0 and not th.one_bank:
        return 1
    for n in range(1, <uint32_t>m):
        if modulo((b - c) * n, m) == 0 and (not th.one_bank or modulo((a - b) * n, m) == 0):
            break
        pattern[n] = <uint8_t>conflict_of(s, ce, th, th.k + n * th.group, th.group)
        period += 1
    return period

cdef void vec_bulk(state_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t start, uint64_t end) noexcept nogil:
    # All steps of a memory operation of the main thread that issue in cycles start .. end - 1, back to back.
    cdef uint64_t t = start, left, rounds, turn, steps = 0, lost = 0
    cdef uint32_t cost = 1, conflict, period, n, hits = 0
    cdef uint8_t pattern[MAX_BANKS]   # no period is longer
    if flat(&th.a) and flat(&th.b) and flat(&th.c):
        if start >= end:
            return
        left = (th.n - th.k) // th.group
        period = conflict_pattern(s, ce, th, pattern) if left else 1
        if left == 0:
            pattern[0] = 0
        for n in range(period):
            hits += pattern[n]
        turn = period + hits
        rounds = left // period
        if rounds * turn > end - t:
            rounds = (end - t) // turn
        if rounds:
            steps = rounds * period
            t += rounds * turn
            lost = rounds * hits
            cost = 1 + pattern[period - 1]
        n = 0
        while steps < left and t < end:
            conflict = pattern[n]
            cost = 1 + conflict
            t += cost
            lost += conflict
            steps += 1
            n = 0 if n + 1 == period else n + 1
        n = <uint32_t>(steps * th.group)
        if steps == left and t < end and n < th.n - th.k:       # a last step of fewer elements
            conflict = conflict_of(s, ce, th, th.k + n, th.n - th.k - n)
            cost = 1 + conflict
            t += cost
            lost += conflict
            steps += 1
            n = th.n - th.k
        vec_elements(ce, th, n)
        ce.counts[COUNT_STEPS] += steps
        ce.counts[COUNT_BUSY] += steps
        ce.counts[COUNT_STALL_CONFLICT] += lost
        if TRACE:
            s.watch[cell].lost[th.id] += <uint32_t>lost
        ce.tail_conflict = cost - 1
        ce.acct = t
        ce.pipe_free = t
        th.next = t
        ce.rr = MAIN
        touched(s, t - cost)
        if th.k == th.n:
            vec_complete(s, ce, cell, th, t - cost, cost)
        return
    while t < end and ce.main_state == MAIN_VECTOR:
        touched(s, t)
        vec_step(s, ce, cell, th, t)
        t = ce.pipe_free


# --- the main thread --------------------------------------------------------------------------------------------------
cdef inline int async_ut(ce_t* ce, const instr_t* ins) noexcept nogil:
    # Microthread of an asynchronous operation: named, else that of the output queue, else of the first fabric input.
    cdef int ut = (ins.imm >> ASYNC_UT) & 15
    cdef int k, field
    cdef dsr_t* r
    cdef desc_t* d
    if ut != UT_DERIVED:
        return ut & 7
    for k in range(3):
        field = ins.a if k == 0 else (ins.b if k == 1 else ins.c)
        if field >> 4 == FILE_REG or ((ins.wa if k == 0 else (ins.wb if k == 1 else ins.wc)) == 0):
            continue
        r = dsr_at(ce, ce.prog.dsr_slot[field >> 4][field & 15])
        if r.number == 0:
            continue
        d = desc_of(ce, r)
        if d.kind == (DSD_FABOUT if k == 0 else DSD_FABIN):
            return d.queue & 7
    return -1

cdef uint64_t main_when(state_t* s, ce_t* ce, uint64_t t) noexcept nogil:
    # First cycle in which the main thread can issue its next instruction, as things stand in cycle t.
    cdef const instr_t* ins = ce.prog.code + ce.pc
    cdef uint64_t when = ce.next
    cdef uint32_t regs
    cdef int r
    ce.main.wait = WAIT_PIPE
    if ce.ready_max > when:
        regs = ins.reads
        while regs:
            r = ctz64(regs)
            regs &= regs - 1
            if ready_of(ce).base + ready_of(ce).after[r] > when:
                when = ready_of(ce).base + ready_of(ce).after[r]
    if ce.uts and when <= t + 1:
        if (ins.dsrs[0] & ce.dsr_busy[0] or ins.dsrs[1] & ce.dsr_busy[1] or ins.dsrs[2] & ce.dsr_busy[2]
                or (ins.flags & I_ASYNC and (<int>ce.uts << 1) >> (async_ut(ce, ins) + 1) & 1)):
            if when > t and ce.acct < when:
                return when                     # until then it waits for the pipeline, from then on for the resource
            ce.main.wait = WAIT_RESOURCE
            return NEVER
    return when

cdef void issue_vector(state_t* s, ce_t* ce, uint32_t cell, uint64_t t, const instr_t* ins) noexcept nogil:
    cdef thread_t* th = &ce.main
    cdef int ut = MAIN, k
    cdef bint asynchronous = ins.flags & I_ASYNC
    if asynchronous:
        ut = async_ut(ce, ins)
        if ut < 0:
            fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_NO_MICROTHREAD, 0)
            return
        if ce.prog.ut_at[ut] == 0:
            fault(s, ce, cell, t, FAULT_QUEUE, 0, -1, D_NO_QUEUE, ut)
            return
        th = ut_of(ce, ut)
    elif ins.form == FORM_DFILT:
        fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_DFILT, 0)
        return
    th.id = ut
    th.act_task = NO_TASK
    th.unblock_task = NO_TASK
    if not vec_setup(s, ce, cell, t, ins, th):
        return
    th.active = 1
    if TRACE:
        s.watch[cell].lost[ut] = 0
        emit(s, cell, t, EV_OP_START, NO_COLOR, ut, ins.at | <uint32_t>ins.op << 16, 0)
    if asynchronous:
        th.bulk = 0
        th.level = UT_LEVELS * ((ins.imm >> ASYNC_PRIORITY) & 3)
        if (ins.imm >> ASYNC_HAS_ACTIVATE) & 1:
            th.act_task = (ins.imm >> ASYNC_ACTIVATE) & 63
        if (ins.imm >> ASYNC_HAS_UNBLOCK) & 1:
            th.unblock_task = (ins.imm >> ASYNC_UNBLOCK) & 63
        ce.uts |= <uint32_t>1 << ut
        for k in range(3):
            th.dsrs[k] = ins.dsrs[k]
        threads_changed(ce)
        ce.next = t + 1
    else:
        ce.main_state = MAIN_VECTOR
    if th.n == 0:
        if th.a.mode == OPND_FABOUT and th.a.flags & F_ADVANCE:
            last_is_advance(ce, th)
        else:
            if th.a.mode == OPND_REG:
                th.a.mode = OPND_NONE           # nothing was written: nobody waits for it
            vec_complete(s, ce, cell, th, t, 1 + s.p.start)

cdef uint32_t draw(state_t* s, ce_t* ce) noexcept nogil:
    cdef uint32_t x = lfsr_of(ce)[ce.prng]
    cdef int k = s.p.prng_steps
    while k:
        k -= 1
        x = (x << 1) | (((x >> 22) ^ (x >> 17)) & 1)
    lfsr_of(ce)[ce.prng] = x
    return x & 0xFFFF

cdef void exec_route(state_t* s, ce_t* ce, uint32_t cell, uint64_t t, const instr_t* ins) noexcept nogil:
    # Writes to the router's configuration, in real time: they count from the next cycle on.
    cdef uint64_t word, bits
    cdef int c = ins.a, k
    if c >= N_COLORS or s.route[c] == NULL:
        return
    word = s.route[c][cell]
    if TRACE:
        if ins.op == OP_SW_POS:
            emit(s, cell, t, EV_SWITCH, c, ins.imm & 3, 1, 0)
        elif ins.op == OP_TD_EXIT:
            emit(s, cell, t, EV_TEARDOWN, c, 0, 0, 0)
        else:
            emit(s, cell, t, EV_ROUTE, c, (ins.imm >> POSITION_BITS) & 3, ins.imm & POSITION_MASK, 0)
    if ins.op == OP_SW_POS:
        word = (word & ~(<uint64_t>3 << RT_POS)) | (<uint64_t>(ins.imm & 3) << RT_POS)
    elif ins.op == OP_TD_EXIT:
        word &= ~(<uint64_t>1 << RT_TEARDOWN)
    else:
        k = (ins.imm >> POSITION_BITS) & 3
        bits = ins.imm & POSITION_MASK
        word = (word & ~(<uint64_t>POSITION_MASK << (POSITION_BITS * k))) | (bits << (POSITION_BITS * k))
        word |= <uint64_t>1 << (RT_VALID + k)
    set_route_word(s, c, cell, word)
    s.waiting = 1

cdef void exec_dsr(state_t* s, ce_t* ce, uint32_t cell, uint64_t t, const instr_t* ins) noexcept nogil:
    cdef dsr_t* d = dsr_at(ce, ce.prog.dsr_slot[ins.a >> 4][ins.a & 15])
    cdef desc_t* loaded
    cdef uint32_t value = ins.imm if ins.flags & I_IMM else ce.regs[ins.b & 15]
    if ins.op == OP_DSR_LOAD:
        d.number = <uint16_t>(ins.imm + 1)
        loaded = desc_of(ce, d)
        d.base = loaded.base
        d.index = loaded.index
        d.extent = loaded.extent[0]
        d.stride = loaded.stride[0]
    elif d.number == 0:
        fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_DSR_EMPTY, ins.a)
    elif ins.op == OP_DSR_BASE:
        d.base = <uint16_t>value
    elif ins.op == OP_DSR_OFF:
        d.base = <uint16_t>(d.base + value)
    elif ins.op == OP_DSR_LEN:
        d.extent = <uint16_t>value
    else:
        d.stride = <int16_t><uint16_t>value

cdef void exec_main(state_t* s, ce_t* ce, uint32_t cell, uint64_t t) noexcept nogil:
    # Issue the main thread's next instruction in cycle t; all its effects are in t.
    cdef const instr_t* ins = ce.prog.code + ce.pc
    cdef int form = ins.form
    cdef uint32_t value, index
    cdef int64_t address
    cdef filter_t* f
    ce.main_state = MAIN_RUN
    ce.counts[COUNT_INSTRUCTIONS] += 1
    ce.rr = MAIN
    if ins.flags & I_VECTOR:
        ce.pc = ins.next
        book(ce, t, 1, 0)
        issue_vector(s, ce, cell, t, ins)
        return
    book(ce, t, ins.slots, 0)
    ce.next = t + ins.gap
    ce.pc = ins.next
    if form == FORM_ALU:
        value = alu(ins.op, &ce.prog.num, reg_read(ce, ins.b, ins.wb),
                    ins.imm if ins.flags & I_IMM else (reg_read(ce, ins.c, ins.wc) if ins.wc else 0),
                    reg_read(ce, ins.d, ins.wd) if ins.wd else 0)
        reg_write(ce, ins.a, ins.wa, value)
        if is_mac(ins.op):
            ce.counts[COUNT_MACS] += 1
    elif form == FORM_LDI:
        reg_write(ce, ins.a, ins.wa, ins.imm)
    elif form == FORM_LD or form == FORM_ST:
        address = (ins.imm + (ce.regs[ins.b & 15] if ins.b >> 4 == FILE_REG else 0)) & 0xFFFF
        if not sram_at(ce, address, ins.wa, &index):
            sram_fault(s, ce, cell, t, address, ins.wa)
            return
        if form == FORM_LD:
            reg_write(ce, ins.a, ins.wa, sram_read(ce, index, ins.wa))
        else:
            sram_write(ce, index, ins.wa, reg_read(ce, ins.a, ins.wa))
    elif form == FORM_BR:
        value = reg_read(ce, ins.b, ins.wb) if ins.b >> 4 == FILE_REG else 0
        if condition(ins.op, ins.d, &ce.prog.num, reg_read(ce, ins.a, ins.wa), value):
            ce.pc = ins.target
            ce.next = t + s.p.taken
        else:
            ce.next = t + s.p.not_taken
    elif form == FORM_JMP:
        if ins.op == OP_TRAP:
            fault(s, ce, cell, t, FAULT_PROGRAM, ins.at, -1, D_RAN_OFF if ins.at == NOWHERE else D_TRAP, ins.imm)
            return
        if ins.op == OP_CALL:
            if depth_of(ce)[0] == RETURN_DEPTH:
                fault(s, ce, cell, t, FAULT_PROGRAM, ins.at, -1, D_CALL_DEPTH, RETURN_DEPTH)
                return
            stack_of(ce)[depth_of(ce)[0]] = ce.pc
            depth_of(ce)[0] += 1
            ce.next = t + s.p.call
        else:
            ce.next = t + s.p.taken
        ce.pc = ins.target
    elif form == FORM_NONE:
        if ins.op == OP_RET:
            if depth_of(ce)[0] == 0:
                fault(s, ce, cell, t, FAULT_PROGRAM, ins.at, -1, D_RETURN, 0)
                return
            depth_of(ce)[0] -= 1
            ce.pc = stack_of(ce)[depth_of(ce)[0]]
            ce.next = t + s.p.ret
        elif ins.op == OP_DONE:
            ce.main_state = MAIN_IDLE
            if TRACE:
                emit(s, cell, t, EV_TASK_END, NO_COLOR, ce.last_task, 0, 0)
    elif form == FORM_TASK:
        if ins.op == OP_ACTIVATE:
            activate(s, ce, cell, t, ins.a)
        elif ins.op == OP_BLOCK:
            ce.blocked |= <uint32_t>1 << (ins.a & 31)
        elif ins.op == OP_UNBLOCK:
            unblock(ce, ins.a)
        else:
            ce.prng = ins.a & 3
    elif form == FORM_DSR:
        exec_dsr(s, ce, cell, t, ins)
    elif form == FORM_TSC:
        ce.regs[ins.a & 15] = <uint16_t>(t & s.p.tsc_mask)
        ce.regs[(ins.a + 1) & 15] = <uint16_t>((t & s.p.tsc_mask) >> 16)
        ce.regs[(ins.a + 2) & 15] = <uint16_t>((t & s.p.tsc_mask) >> 32)
    elif form == FORM_RAND:
        ce.regs[ins.a & 15] = <uint16_t>draw(s, ce)
    elif form == FORM_ROUTE:
        exec_route(s, ce, cell, t, ins)
    elif form == FORM_IN_TD:
        value = 0
        if ins.imm < N_COLORS and s.route[ins.imm] != NULL:
            value = (s.route[ins.imm][cell] >> RT_TEARDOWN) & 1
        reg_write(ce, ins.a, 1, value)
    elif form == FORM_FLT:
        if s.filters == NULL or ins.a >= N_FILTERS:
            return
        f = &s.filters[<uint64_t>cell * N_FILTERS + ins.a]
        s.waiting = 1
        if ins.imm == 0:
            f.counter = ce.regs[ins.b & 15]
        elif ins.imm == 1:
            f.max = ce.regs[ins.b & 15]
        else:
            f.limit = ce.regs[ins.b & 15]
    if ins.latency > ins.slots or ce.ready_max > t + ins.slots:     # or its register waits for an earlier result
        value = ins.writes
        while value:
            wait_reg(ce, ctz64(value), 1, t, ins.latency)
            value &= value - 1


# --- tasks ------------------------------------------------------------------------------------------------------------
cdef inline void start_task(state_t* s, ce_t* ce, uint64_t t, int32_t entry) noexcept nogil:
    ce.main_state = MAIN_STARTING
    ce.pc = entry
    if ce.prog.calls:
        depth_of(ce)[0] = 0
    ce.next = t + s.p.task_start
    ce.counts[COUNT_TASKS] += 1
    touched(s, t)

cdef inline void take_arguments(ce_t* ce, uint64_t word) noexcept nogil:
    ce.regs[0] = <uint16_t>word
    ce.regs[1] = <uint16_t>(word >> 16)
    if ce.prog.delays:
        ready_of(ce).after[0] = 0
        ready_of(ce).after[1] = 0

cdef inline bint takes_heads(state_t* s, ce_t* ce) noexcept nogil:
    # Whether the picker can ever take a wavelet as things stand: control wavelets, or those of data tasks.
    return s.controls or ce.prog.data_tasks & ~ce.blocked != 0

cdef uint64_t heads_for_picker(ce_t* ce, uint64_t t, uint32_t* ready) noexcept nogil:
    # Colors whose head the picker could take in cycle t; returns the first cycle after t that adds to them.
    cdef program_t* g = ce.prog
    cdef uint64_t word, when = NEVER, r
    cdef inq_t* q
    cdef int k
    ready[0] = 0
    for k in range(g.n_inq):
        q = inq_at(ce, k)
        word = q.slots[q.head]
        if not is_valid(word) or (ce.blocked >> q.color) & 1:
            continue
        if not is_control(word) and not (g.data_tasks >> q.color) & 1:
            continue
        r = ready_cycle(word, t)
        if r <= t:
            ready[0] |= <uint32_t>1 << q.color
        elif r < when:
            when = r
    return when

cdef inline void traced_start(state_t* s, ce_t* ce, uint32_t cell, uint64_t t, int32_t entry) noexcept nogil:
    if TRACE:
        emit(s, cell, t, EV_TASK_START, NO_COLOR, ce.last_task, ce.prog.code[entry].at, 0)

cdef void pick(state_t* s, ce_t* ce, uint32_t cell, uint64_t t) noexcept nogil:
    # Let the picker choose in cycle t.
    cdef program_t* g = ce.prog
    cdef uint32_t able = ce.activated & ~ce.blocked & g.bound
    cdef uint32_t heads = 0, set
    cdef uint64_t word
    cdef inq_t* q
    cdef int k, id
    if takes_heads(s, ce):
        heads_for_picker(ce, t, &heads)
    set = able | heads
    if set == 0:
        return
    if set & g.high:
        set &= g.high
    if s.p.round_robin and set & ~((<uint32_t>2 << ce.last_task) - 1):
        set &= ~((<uint32_t>2 << ce.last_task) - 1)
    id = ctz64(set)
    ce.last_task = id
    if (able >> id) & 1:
        ce.activated &= ~(<uint32_t>1 << id)
        traced_start(s, ce, cell, t, g.entry[id])
        start_task(s, ce, t, g.entry[id])
        return
    q = inq_of(ce, g.inq_of_task[id])
    word = inq_take(s, ce, cell, q, t)
    if is_control(word):
        k = <int>(word >> 16) & 63
        if g.control_entry[k] < 0:
            touched(s, t)
            return
        take_arguments(ce, word)
        traced_start(s, ce, cell, t, g.control_entry[k])
        start_task(s, ce, t, g.control_entry[k])
    else:
        take_arguments(ce, word)
        traced_start(s, ce, cell, t, g.entry[id])
        start_task(s, ce, t, g.entry[id])


# --- a look at a CE ---------------------------------------------------------------------------------------------------
cdef void catch_up(state_t* s, ce_t* ce, uint32_t cell, uint64_t t) noexcept nogil:
    # Do and book everything that happened by itself in the cycles before t.
    cdef uint64_t start
    if ce.main_state == MAIN_VECTOR and ce.main.bulk:
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
    if ce.acct < t:
        if TRACE:
            traced_wait(s, ce, cell, t)
        ce.counts[COUNT_IDLE + ce.wait] += t - ce.acct
        ce.acct = t

cdef inline uint64_t when_of(state_t* s, ce_t* ce, uint32_t cell, int thread, uint64_t t) noexcept nogil:
    if thread < MAIN:
        return vec_when(s, ce, cell, ut_of(ce, thread), t)
    if ce.main_state == MAIN_VECTOR:
        return vec_when(s, ce, cell, &ce.main, t)
    if ce.main_state == MAIN_IDLE:
        return NEVER
    return main_when(s, ce, t)

cdef inline int level_of(ce_t* ce, int thread) noexcept nogil:
    return ce.prog.main_level if thread == MAIN else ut_of(ce, thread).level

cdef int arbitrate(state_t* s, ce_t* ce, uint32_t cell, uint64_t t) noexcept nogil:
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

cdef void issue(state_t* s, ce_t* ce, uint32_t cell, int thread, uint64_t t) noexcept nogil:
    touched(s, t)
    if thread < MAIN:
        vec_step(s, ce, cell, ut_of(ce, thread), t)
    elif ce.main_state == MAIN_VECTOR:
        vec_step(s, ce, cell, &ce.main, t)
    else:
        exec_main(s, ce, cell, t)

cdef uint64_t look_ahead(state_t* s, ce_t* ce, uint32_t cell, uint64_t t, bint issued) noexcept nogil:
    # After cycle t: when must this CE be looked at next, and what are the cycles until then booked as?
    cdef uint64_t first = t + 1 if ce.pipe_free <= t else ce.pipe_free
    cdef uint64_t when, next = NEVER
    cdef uint32_t uts = ce.uts, heads = 0
    cdef int k
    ce.wait = WAIT_IDLE
    ce.want_space = 0
    # (The picker does not wait for the pipeline: with an idle main thread the next cycle must be looked at.)
    if issued and ce.uts and ce.acct >= first and (first == t + 1 or ce.main_state != MAIN_IDLE):
        return first                # busy microthreads: somebody can issue again more often than not
    if ce.main_state == MAIN_IDLE:
        if takes_heads(s, ce):
            next = heads_for_picker(ce, t, &heads)
        if heads or ce.activated & ~ce.blocked & ce.prog.bound:
            next = t + 1
    else:
        when = when_of(s, ce, cell, MAIN, t)
        ce.wait = ce.main.wait
        if when < first:
            when = first
        if when < NEVER and ce.main_state == MAIN_VECTOR and ce.main.bulk:
            # Looked at when it may be complete: no step costs less than a cycle.
            when += (ce.main.n - ce.main.k + ce.main.group - 1) // ce.main.group
            if ce.main.k < ce.main.n and not uts:   # a microthread may issue while the main thread drains
                when += s.p.drain
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
        if (ce.main_state == MAIN_VECTOR and ce.main.bulk and level_of(ce, k) < level_of(ce, MAIN)
                and ce.main.next <= first):
            continue                # cannot issue before the main thread's operation is complete
        if when < first:
            when = first
        if when < next:
            next = when
    return next

cdef inline bint runs_alone(state_t* s, ce_t* ce) noexcept nogil:
    # Whether the main thread's next action can be done ahead of time: no other thread competes, and what the action
    # needs from the router (a wavelet in an input queue, room in an output queue) is there with a known ready cycle.
    # What it gives to the router carries its own ready cycle.
    if ce.uts:
        return False
    if ce.main_state == MAIN_VECTOR:
        return ce.main.memory or not s.injects
    if ce.main_state == MAIN_RUN or ce.main_state == MAIN_STARTING:
        return not ce.prog.code[ce.pc].flags & I_REAL
    return False

cdef inline bint sees_next_cycle(state_t* s, ce_t* ce) noexcept nogil:
    # Whether cycle now + 1 can be done in the same look. Everything that a CE sees in it is there: what routers do in
    # now + 1 reaches a CE in now + 2 at the earliest. Exceptions: configuration, which the CE reads as the routers of
    # its own cycle left it, injection (see `runs_alone`), and task 29.
    return not (s.injects or ce.teardown_due
                or (ce.main_state == MAIN_RUN or ce.main_state == MAIN_STARTING)
                and ce.prog.code[ce.pc].flags & I_REAL)

cdef uint64_t run_scalar(state_t* s, ce_t* ce, uint32_t cell, uint64_t t) noexcept nogil:
    # The main thread alone, able in cycle t: its instructions and its vector operations in memory, up to the next one
    # that reads or feeds the fabric, ends the task, touches the router or lies beyond the horizon. Returns the cycle of
    # the last issue. Gain over looks: 3x.
    cdef uint64_t when, n = 1
    while True:
        exec_main(s, ce, cell, t)
        if ce.main_state == MAIN_VECTOR and ce.main.bulk:
            catch_up_alone(s, ce, cell)
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
    touched(s, t)
    return t

cdef bint stream_alone(state_t* s, ce_t* ce, uint32_t cell, uint64_t t) noexcept nogil:
    # A look at a CE whose main thread does nothing but a plain stream: the general look in a few steps. False: not the
    # end of it, go on with the general look. Gain on streaming benchmarks: a fifth.
    cdef thread_t* th = &ce.main
    cdef uint64_t next
    if not streams_on(ce, th) or th.next > t or ce.pipe_free > t:
        return False
    if ce.acct < t:
        if TRACE:
            traced_wait(s, ce, cell, t)
        ce.counts[COUNT_IDLE + ce.wait] += t - ce.acct
        ce.acct = t
    ce.want_space = 0
    next = stream_run(s, ce, cell, th, t, True)
    if ce.main_state != MAIN_VECTOR or not th.stream:
        return False                    # complete: general look at the cycle of its last step, no further issue in it
    if ce.acct == t:
        return False                    # not able
    t = ce.acct - 1
    if not streams_on(ce, th):
        next = t + 1
    ce.wait = th.wait
    ce.resume = t + 1
    if next > t + 1 and t > s.now and next == NEVER and (ce.want_space or t > s.now + s.p.ramp_in):
        next = t + 1                    # wake-ups before that cycle are not heard
    if next < NEVER:
        schedule(s, cell, next, ce.resume)
    return True

cdef void step_ce(state_t* s, uint32_t cell) noexcept nogil:
    cdef ce_t* ce = s.ce[cell]
    cdef uint64_t t = s.now, next, after
    cdef int thread
    cdef bint decided
    if ce == NULL:
        return
    if unlikely(ce.prog == NULL):
        ce_awaken(s, cell)
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
    if ce.main_state == MAIN_VECTOR and ce.main.stream and not ce.uts and not s.injects:
        if stream_alone(s, ce, cell, t):
            return
    while True:
        catch_up(s, ce, cell, t)
        if ce.main_state == MAIN_IDLE:
            pick(s, ce, cell, t)
            if t > s.now and ce.main_state == MAIN_STARTING and ce.prog.code[ce.pc].flags & I_REAL:
                ce.resume = t               # its first instruction may issue in t, but not before the routers of t
                schedule(s, cell, t, t)
                return
        thread = -1
        after = t
        if ce.plain and ce.pipe_free <= t and ce.main_state <= MAIN_RUN and not s.injects:
            after = streams_in_turn(s, ce, cell, t, &decided)
            if after > t and not decided:
                ce.resume = after
                schedule(s, cell, after, after)
                return
        if after > t:
            t = after - 1
        elif ce.pipe_free <= t and ce.main_state != MAIN_FAULT:
            if ce.uts:
                thread = arbitrate(s, ce, cell, t)
            else:
                thread = MAIN if when_of(s, ce, cell, MAIN, t) <= t else -1
            if (thread == MAIN and not ce.uts and ce.main_state != MAIN_VECTOR
                    and not ce.prog.code[ce.pc].flags & I_REAL):
                t = run_scalar(s, ce, cell, t)
            elif thread >= 0:
                issue(s, ce, cell, thread, t)
            elif t > s.now + 1:
                # Not able with what is known now; the router may still make it able by then.
                ce.resume = t
                schedule(s, cell, t, t)
                return
        if ce.main_state == MAIN_FAULT:
            return
        if not ce.uts and ce.main_state != MAIN_IDLE:
            if ce.main_state == MAIN_VECTOR and ce.main.bulk:
                catch_up_alone(s, ce, cell)
            if ce.pipe_free > t + 1:
                t = ce.pipe_free - 1        # done with every cycle before pipe_free
        next = look_ahead(s, ce, cell, t, thread >= 0)
        if next < s.ahead and (runs_alone(s, ce) or (next == s.now + 1 and sees_next_cycle(s, ce))):
            t = next
            s.events += 1
            continue
        ce.resume = t + 1
        if t > s.now and (next == NEVER or not runs_alone(s, ce)) and (ce.want_space or t > s.now + s.p.ramp_in):
            next = t + 1                # wake-ups before that cycle are not heard
        if next < NEVER:
            schedule(s, cell, next, ce.resume)
        return

cdef inline void catch_up_alone(state_t* s, ce_t* ce, uint32_t cell) noexcept nogil:
    # Nobody can disturb this operation before the horizon: do all of it now.
    cdef uint64_t start = ce.main.next if ce.main.next > ce.pipe_free else ce.pipe_free
    if start < s.ahead:
        if ce.acct < start:
            ce.counts[COUNT_STALL_PIPE] += start - ce.acct
            ce.acct = start
        vec_bulk(s, ce, cell, &ce.main, start, s.ahead)

cdef void ce_settle(state_t* s, uint32_t cell) noexcept nogil:
    # Bring a CE's books and memory up to the cycle that is about to begin; the cell has a program.
    if s.ce[cell].prog != NULL and s.ce[cell].main_state != MAIN_FAULT:
        catch_up(s, s.ce[cell], cell, s.now)

cdef void ce_report(state_t* s, uint32_t cell, bint last) noexcept nogil:
    # Report what a CE has done before the cycle that is about to begin; `last`: also a wait that goes on.
    ce_settle(s, cell)
    if s.ce[cell].prog != NULL and (last or s.watch[cell].end < s.ce[cell].acct):
        close_wait(s, cell)

cdef void ce_phase(state_t* s) noexcept nogil:
    cdef uint32_t slot = <uint32_t>(s.now & (RING - 1))
    cdef uint32_t bucket = <uint32_t>(s.now & (WHEEL - 1))
    cdef uint32_t cell, after, w3, w2, w
    cdef uint64_t b3, b2, b
    cdef int at
    cdef uint64_t* bits3
    cdef uint64_t* bits
    cdef uint64_t* bits2
    cell = s.wheel_head[bucket]
    while cell:
        after = s.wheel_next[cell]
        if s.wheel_time[cell] == s.now:
            wheel_remove(s, cell)
            ring_set(s, cell, s.now)
        cell = after
    if not (s.ring_any >> slot) & 1:
        return
    s.ring_any &= ~(<uint32_t>1 << slot)
    bits = s.ring_bits + <uint64_t>slot * s.n_words
    bits2 = s.ring_bits2 + <uint64_t>slot * s.n_words2
    bits3 = s.ring_bits3 + <uint64_t>slot * s.n_words3
    for w3 in range(s.n_words3):
        b3 = bits3[w3]
        bits3[w3] = 0
        while b3:
            w2 = w3 * 64 + ctz64(b3)
            b3 &= b3 - 1
            b2 = bits2[w2]
            bits2[w2] = 0
            while b2:
                w = w2 * 64 + ctz64(b2)
                b2 &= b2 - 1
                b = bits[w]
                bits[w] = 0
                while b:
                    at = ctz64(b)
                    if unlikely(s.order != 0) and vary(s, 2):
                        at = 63 - clz64(b)
                    step_ce(s, w * 64 + at)
                    b &= ~(<uint64_t>1 << at)
