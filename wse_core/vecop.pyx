# cython: overflowcheck=False
"""Vector operations: set-up, one step in general, completion.

`vec_setup` turns an instruction into a running operation and decides of which kind it is (`KIND_*`): flows have a room
of their own (`wse_core.flow`), so have operations in memory of the main thread (`wse_core.bulk`); the others advance
here, step by step.  All end in `vec_complete`.

Rules and costs: docs/machine.md, "CE".  Reads and writes: its own CE, SRAM, input queues (taking), R queues (pushing).
"""
from wse_core.account cimport *
from wse_core.alu cimport alu
from wse_core.block cimport *
from wse_core.builtins cimport *
from wse_core.emit cimport emit
from wse_core.opcodes cimport *
from wse_core.operand cimport *
from wse_core.queue cimport *
from wse_core.records cimport *

cdef uint64_t ADVANCE_WORD = <uint64_t>ADVANCE_PAYLOAD | (<uint64_t>1 << SHIFT_CTRL)


# --- set-up -----------------------------------------------------------------------------------------------------------
cdef bint setup_operand(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, opnd_t* o, int field, int words, int dest,
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

cdef inline uint32_t stride_lanes(region_t* s, opnd_t* o, uint32_t lanes) noexcept nogil:
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
        limit = s.f.p.stride4
    elif m == 1 or m == 7:
        limit = 2
    else:
        return lanes
    return limit if limit < lanes else lanes

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

cdef inline bint plain_source(opnd_t* o) noexcept nogil:
    return o.mode == OPND_FABIN or o.mode == OPND_CONST or o.mode == OPND_NONE or (o.mode == OPND_MEM1D and o.checked)

cdef inline void no_flow(thread_t* th) noexcept nogil:
    th.inq = NO_PLACE
    th.inq2 = NO_PLACE
    th.plane = NO_PLACE

cdef void flow_operand(ce_t* ce, flow_t* to, opnd_t* o) noexcept nogil:
    to.words = o.words
    to.step = 0
    to.at = <uint32_t>o.base
    if o.mode == OPND_MEM1D:
        to.source = FLOW_MEMORY
        to.at = <uint32_t>(o.base - <int32_t>ce.prog.code_words)
        to.step = <int16_t>o.step
    elif o.mode == OPND_FABIN:
        to.source = FLOW_FABRIC
    else:
        to.source = FLOW_CONST if o.mode == OPND_CONST else FLOW_NONE

cdef void set_flow(region_t* s, ce_t* ce, thread_t* th) noexcept nogil:
    # Whether the operation is a flow: one fabric input at most, the rest checked memory, constants or a fabric
    # output without flags. Such operations need none of the questions of the general step.
    no_flow(th)
    if in_memory(th) or th.op == OP_DFILT or th.one_bank:
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
    flow_operand(ce, &th.to, &th.a)
    flow_operand(ce, &th.from_b, &th.b)
    flow_operand(ce, &th.from_c, &th.c)
    if th.b.mode != OPND_FABIN or th.c.mode != OPND_FABIN:
        th.kind = KIND_FLOW
    elif th.group <= th.lanes:
        th.kind = KIND_PAIR
        th.inq2 = ce.prog.inq_slot[th.c.queue]

cdef bint set_up(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, const instr_t* ins, thread_t* th) noexcept nogil:
    # `vec_setup` from the DSRs as they are.
    cdef opnd_t* ops[3]
    cdef int pack = -1, k, p
    cdef bint streams = False
    th.op = ins.op
    th.latency = ins.latency
    th.k = 0
    th.scalar = reg_read(ce, ins.d & 15, ins.wd) if ins.wd else 0
    th.sending_advance = 0
    th.next = t + 1 + s.f.p.start
    th.wait = WAIT_PIPE
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
    if streams:
        th.kind = KIND_GENERAL
    else:
        th.kind = KIND_BULK if th.a.checked and th.b.checked and th.c.checked else KIND_MEMORY
    th.one_bank = (s.f.p.write_cycles and th.a.mode == OPND_MEM1D and th.a.step != 0 and th.a.step % s.f.p.banks == 0
                   and th.n > 1)
    set_flow(s, ce, th)
    return True

cdef inline void recall_operand(ce_t* ce, thread_t* th, opnd_t* o, flow_t* flow) noexcept nogil:
    # What differs from one set-up of an instruction to the next: where an operand begins, or the value that it has.
    if o.mode == OPND_MEM1D:
        o.base = dsr_at(ce, o.dsr).base
        flow.at = <uint32_t>(o.base - <int32_t>ce.prog.code_words)
    elif o.mode == OPND_CONST:
        o.base = <int32_t>reg_read(ce, o.reg, o.words)
        flow.at = <uint32_t>o.base

cdef inline bint shape_operand(ce_t* ce, shape_t* shape, opnd_t* o, int k) noexcept nogil:
    # Note for which DSR an operand is as it is; False: it depends on more than that.
    cdef dsr_t* r
    cdef int64_t reach, lowest = 0, highest = 0xFFFF
    shape.number[k] = 0
    shape.odd[k] = 0
    if o.dsr == NO_PLACE:
        return True
    if not (is_fabric(o) or o.mode == OPND_MEM1D and o.checked):
        return False
    r = dsr_at(ce, o.dsr)
    shape.number[k] = r.number
    shape.extent[k] = r.extent
    shape.stride[k] = r.stride
    if o.mode == OPND_MEM1D and shape.th.n:
        reach = <int64_t>(shape.th.n - 1) * o.step
        lowest = <int64_t>ce.prog.code_words - (reach if reach < 0 else 0)
        highest = <int64_t>ce.prog.code_words + ce.prog.data_words - o.words - (reach if reach > 0 else 0)
        shape.odd[k] = o.words - 1
    shape.lowest[k] = <uint16_t>lowest
    shape.highest[k] = <uint16_t>highest
    return True

cdef inline bint fits(ce_t* ce, const shape_t* shape, const opnd_t* o, int k) noexcept nogil:
    cdef const dsr_t* r
    if shape.number[k] == 0:
        return True
    r = dsr_at(ce, o.dsr)
    return (r.number == shape.number[k] and r.extent == shape.extent[k] and r.stride == shape.stride[k]
            and shape.lowest[k] <= r.base <= shape.highest[k] and not r.base & shape.odd[k])

cdef bint vec_setup(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, const instr_t* ins, thread_t* th) noexcept nogil:
    # Turn a vector instruction into a running operation; False after a fault. What the last set-up of the instruction
    # came to, on any PE, holds as long as its DSRs differ in their bases only.  Gain: 260 instructions of 430.
    cdef shape_t* shape = &s.shapes[ins.shape]
    cdef uint8_t task = th.task
    if shape.known and fits(ce, shape, &shape.th.b, 0) and fits(ce, shape, &shape.th.c, 1) and fits(
            ce, shape, &shape.th.a, 2):
        th[0] = shape.th
        th.task = task
        if ins.wd:
            th.scalar = reg_read(ce, ins.d & 15, ins.wd)
        th.next = t + 1 + s.f.p.start
        recall_operand(ce, th, &th.b, &th.from_b)
        recall_operand(ce, th, &th.c, &th.from_c)
        recall_operand(ce, th, &th.a, &th.to)
        return True
    if not set_up(s, ce, cell, t, ins, th):
        return False
    shape.th = th[0]
    shape.known = (shape_operand(ce, shape, &th.b, 0) and shape_operand(ce, shape, &th.c, 1)
                   and shape_operand(ce, shape, &th.a, 2))
    return True


# --- completion -------------------------------------------------------------------------------------------------------
cdef inline bint one_cycle_steps(const thread_t* th) noexcept nogil:
    return th.kind == KIND_PAIR or (th.kind == KIND_FLOW and th.group <= th.lanes)

cdef void threads_changed(ce_t* ce) noexcept nogil:
    # After a microthread began or ended, or ceased to be a flow.
    cdef uint32_t uts = ce.uts
    cdef int level = -1, ut, f
    cdef thread_t* th
    ce.in_turn = uts != 0
    for f in range(FILE_REG):
        ce.dsr_busy[f] = 0
    while uts:
        ut = ctz64(uts)
        uts &= uts - 1
        th = ut_of(ce, ut)
        for f in range(FILE_REG):
            ce.dsr_busy[f] |= th.dsrs[f]
        if not one_cycle_steps(th) or (level >= 0 and level != ut_of(ce, ut).level):
            ce.in_turn = 0
        level = ut_of(ce, ut).level

cdef void last_is_advance(ce_t* ce, thread_t* th) noexcept nogil:
    # All elements are done; the operation ends with an advance_switch wavelet.
    th.sending_advance = 1
    th.kind = KIND_GENERAL
    if th.id != MAIN:
        threads_changed(ce)

cdef void vec_complete(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t, uint32_t cost) noexcept nogil:
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
        ce.next = t + cost + s.f.p.drain
    else:
        ce.uts &= ~(<uint32_t>1 << th.id)
        threads_changed(ce)
    if th.a.mode == OPND_REG:
        wait_reg(ce, th.a.reg, th.a.words, t, cost if cost > th.latency else th.latency)
    if th.unblock_task != NO_TASK:
        unblock(ce, th.unblock_task)
    if th.act_task != NO_TASK:
        activate(s, ce, cell, t, th.act_task)


# --- one step ---------------------------------------------------------------------------------------------------------
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
    if g > 1 and in_memory(th):
        g = row_left(ce, &th.a, th.k, row_left(ce, &th.b, th.k, row_left(ce, &th.c, th.k, g)))
    return g

cdef uint64_t vec_when(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t) noexcept nogil:
    # First cycle in which the next step of an operation that is stepped can issue as things stand in cycle t; NEVER =
    # something must happen first. th.next lies no later than the cycles to be booked; th.wait is WAIT_PIPE, and becomes
    # the cause of waiting.
    cdef uint64_t when = ce.acct, r, word, diverted = NEVER
    cdef int control, k
    cdef uint32_t g
    cdef opnd_t* ops[3]
    cdef fifo_t* f
    cdef bint starved = False
    cdef uint64_t when0 = when
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

cdef bint diverted_step(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t) noexcept nogil:
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

cdef inline bint fifo_task(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, int task) noexcept nogil:
    # A step has pushed to a FIFO, or popped from it.
    return task == NO_TASK or activate(s, ce, cell, t, task)

cdef void vec_step(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t) noexcept nogil:
    # One step of an operation that is able in cycle t.
    cdef uint32_t g, busy, conflict = 0, j, bv, cv, r, word_b = 0, word_c = 0, word_a = 0, offset = 0, index
    cdef int64_t address
    cdef uint64_t payload
    if th.sending_advance:
        end_step(ce, th, t, 1, 0)
        send(s, ce, cell, th.a.plane, ADVANCE_WORD, t, 1)
        vec_complete(s, ce, cell, th, t, 1)
        return
    if not in_memory(th) and diverted_step(s, ce, cell, th, t):
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
