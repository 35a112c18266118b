# cython: overflowcheck=False
"""Vector operations: set-up, one step in general, completion.

`vec_setup` turns an instruction into a running operation and decides of which kind it is (`KIND_*`): flows have a room
of their own (`wse_core.flow`), so have operations in memory of the main thread (`wse_core.bulk`); the others advance
here, step by step.  All end in `vec_complete`.

Rules and costs: docs/machine.md, "CE".  Reads and writes: its own CE, SRAM, input queues (taking), R queues (pushing).
"""
from libc.string cimport memset

from wse_core.account cimport *
from wse_core.alu cimport alu
from wse_core.block cimport *
from wse_core.builtins cimport *
from wse_core.emit cimport emit
from wse_core.fifo cimport fifo_ends, fifo_lacks, fifo_moved
from wse_core.forms cimport form_kept
from wse_core.opcodes cimport *
from wse_core.shadow cimport touches
from wse_core.operand cimport *
from wse_core.queue cimport *
from wse_core.records cimport *

cdef enum:
    LEAST_PACKED = 4        # elements from which on a kernel is worth its call

cdef uint64_t ADVANCE_WORD = ADVANCE_PAYLOAD | (<uint64_t>1 << SHIFT_CTRL) | (<uint64_t>1 << SHIFT_OWN)


# --- set-up -----------------------------------------------------------------------------------------------------------
cdef bint setup_operand(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, opnd_t* o, int32_t* base, int field,
                        int words, int dest, const instr_t* ins) noexcept nogil:
    # Fill `o`, zero so far, and `base` from an operand field. dest: 1 destination, 0 source. False after a fault.
    cdef dsr_t* r
    cdef desc_t* d
    cdef int file = field >> 4
    cdef int number = field & 15
    cdef int k
    o.words = words
    o.dsr = NO_PLACE
    base[0] = 0
    if words == 0:
        return True
    if file == FILE_REG:
        o.reg = number
        if dest or (ins.a >> 4 == FILE_REG and ins.a & 15 == number and ins.wa):
            o.mode = OPND_REG
        else:
            o.mode = OPND_CONST
            base[0] = <int32_t>reg_read(ce, number, words)
        return True
    o.dsr = ce.prog.dsr_slot[file][number]
    r = dsr_at(ce, o.dsr)
    if r.number == 0:
        fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_DSR_EMPTY, field)
        return False
    d = desc_of(ce, r)
    o.flags = d.flags
    o.queue = d.queue & (N_BINDINGS - 1)
    base[0] = base_in(ce, r)
    if d.kind == DSD_MEM1D:
        o.mode = OPND_MEM1D
        o.step = <int32_t>stride_in(ce, r) * words
    elif d.kind == DSD_MEM4D:
        o.mode = OPND_MEM4D
        for k in range(1, d.ndim if 1 <= d.ndim <= 4 else 5):
            if k == 4 or d.extent[k] == 0:
                fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_LENGTH_ZERO, field)
                return False
        o.step = <int32_t>(stride_in(ce, r) if d.ndim == 1 else d.stride[d.ndim - 1]) * words
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

cdef inline uint32_t stride_lanes(region_t* s, const opnd_t* o, uint32_t lanes) noexcept nogil:
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

cdef inline int packing(const opnd_t* o) noexcept nogil:
    # -1 no fabric operand, else whether it is packed
    if not is_fabric(o):
        return -1
    return 1 if (o.flags & F_PACKED and o.words == 1) else 0

cdef inline void reach_of(ce_t* ce, const opnd_t* o, uint32_t n, int64_t* before, int64_t* behind) noexcept nogil:
    # How far the first words of n elements, in one dimension or in several, lie before the base, and behind it.
    cdef int64_t reach
    cdef int k
    before[0] = behind[0] = 0
    if o.mode == OPND_MEM1D:
        reach = <int64_t>(n - 1) * o.step
        before[0] = min(reach, <int64_t>0)
        behind[0] = max(reach, <int64_t>0)
        return
    for k in range(desc(ce, o).ndim):
        reach = <int64_t>(extent_of(ce, o, k) - 1) * stride_of(ce, o, k) * o.words
        before[0] += min(reach, <int64_t>0)
        behind[0] += max(reach, <int64_t>0)

cdef void check_range(ce_t* ce, opnd_t* o, int32_t base, uint32_t n) noexcept nogil:
    # Mark an operand none of whose n elements can fault, so that nobody has to watch each step.
    cdef int64_t lo = 0, hi
    o.checked = o.mode == OPND_CONST or o.mode == OPND_REG or o.mode == OPND_NONE or n == 0
    if o.checked or n == NO_END or not is_memory(o):
        return
    if o.mode == OPND_CIRCULAR:
        hi = <int64_t>(desc(ce, o).length - 1) * o.words
    elif o.mode == OPND_MEM4D and n > length_of(ce, o):
        return
    else:
        reach_of(ce, o, n, &lo, &hi)
    lo += base
    hi += base
    o.checked = (lo >= <int64_t>ce.prog.code_words
                 and hi + o.words <= <int64_t>ce.prog.code_words + <int64_t>ce.prog.data_words
                 and (o.words == 1 or (base & 1) == 0))

cdef inline bint wide(const opnd_t* o) noexcept nogil:
    return o.mode == OPND_MEM1D and o.words == 2

cdef inline bint in_row(const opnd_t* o) noexcept nogil:
    # Of a flow: in memory, where the elements of a row lie evenly.
    return o.mode == OPND_MEM1D or o.mode == OPND_MEM4D

cdef inline bint moves(const form_t* f) noexcept nogil:
    return f.op == OP_MOV32 or f.op == OP_FMOVS or f.op == OP_MOV16 or f.op == OP_FMOVH

cdef inline uint8_t quick_way(const form_t* f) noexcept nogil:
    # Of a flow: the sums and copies that most streams are made of.
    if f.op == OP_FADDS and in_row(&f.b) and f.c.mode == OPND_FABIN:
        return QUICK_SUM_B
    if f.op == OP_FADDS and in_row(&f.c) and f.b.mode == OPND_FABIN:
        return QUICK_SUM_C
    if moves(f):
        if in_row(&f.b):
            return QUICK_COPY if f.b.words == 2 else QUICK_HALF
        if f.b.mode == OPND_FABIN and f.group == 1:
            return QUICK_TAKE
    return QUICK_NOT

cdef inline bint plain_source(const opnd_t* o) noexcept nogil:
    return o.mode == OPND_FABIN or o.mode == OPND_CONST or o.mode == OPND_NONE or (in_row(o) and o.checked)

cdef inline bint row_found(ce_t* ce, const opnd_t* o, uint32_t n, uint32_t* row) noexcept nogil:
    # Of an operand of a flow of n elements: the length of its rows, if it has any; False: others have another one.
    cdef desc_t* d
    if o.mode == OPND_FABIN and desc(ce, o).on_control & ON_TERMINATE:
        row[0] |= <uint32_t>1 << 31         # it may end within a row
    if o.mode != OPND_MEM4D:
        return True
    d = desc(ce, o)
    if d.ndim != 2 or n != length_of(ce, o) or row[0] & 0xFFFF and row[0] & 0xFFFF != d.extent[1]:
        return False
    row[0] |= d.extent[1]
    return True

cdef bint set_row(ce_t* ce, const instr_t* ins, form_t* f, uint32_t n) noexcept nogil:
    # Note the rows of a flow, which are then done one after the other; False: it is none. Gain: two thirds of the
    # instructions of an element, and a twentieth of those of a decoder's step.
    cdef uint32_t row = 0
    if f.a.mode != OPND_MEM4D and f.b.mode != OPND_MEM4D and f.c.mode != OPND_MEM4D:
        return True
    if (ins.flags & I_ASYNC or ins.wd or f.group != 1 or n == 0 or n == NO_END or f.a.flags & (F_ADVANCE | F_FLUSH)
            or not (row_found(ce, &f.b, n, &row) and row_found(ce, &f.c, n, &row) and row_found(ce, &f.a, n, &row))
            or row >> 31):
        return False
    f.row = <uint16_t>row
    return True

cdef inline int32_t row_step(ce_t* ce, const thread_t* th, const opnd_t* o) noexcept nogil:
    # From the first element of a row to that of the next one, in words.
    if o.mode == OPND_MEM4D:
        return stride_of(ce, o, 0) * o.words
    return <int32_t>th.n * o.step if o.mode == OPND_MEM1D else 0

cdef inline bint next_row(ce_t* ce, thread_t* th) noexcept nogil:
    # At the end of a row of a flow: goes on with the next one; False: it was the last one.
    cdef const form_t* f = th.form
    if th.scalar + th.k == length_of(ce, &f.b if f.b.mode == OPND_MEM4D else &f.c if f.c.mode == OPND_MEM4D else &f.a):
        return False
    th.base_a = <uint16_t>(th.base_a + row_step(ce, th, &f.a))
    th.base_b += row_step(ce, th, &f.b)
    th.base_c += row_step(ce, th, &f.c)
    th.scalar += th.k
    th.k = 0
    return True

cdef void set_flow(ce_t* ce, const instr_t* ins, form_t* f, uint32_t n) noexcept nogil:
    # Whether the operation is a flow: one fabric input at most, the rest checked memory, constants or a fabric
    # output of plain data. Such operations need none of the questions of the general step.
    f.inq = NO_PLACE
    f.inq2 = NO_PLACE
    f.plane = NO_PLACE
    if f.kind >= KIND_MEMORY or f.op == OP_DFILT or f.one_bank:
        return
    if is_memory(&f.b) and is_memory(&f.c):
        return
    if not (plain_source(&f.b) and plain_source(&f.c)):
        return
    if f.a.mode == OPND_FABOUT:
        if f.a.flags & (F_INDEX | F_CONTROL):
            return
        f.plane = f.a.plane
        f.zeroes = f.a.flags & F_ZERO and in_row(&f.b)
    elif not in_row(&f.a) or not f.a.checked or f.a.flags & F_INDEX:
        f.plane = NO_PLACE
        return
    if not set_row(ce, ins, f, n):
        f.plane = NO_PLACE
        f.zeroes = False
        return
    if f.b.mode == OPND_FABIN or f.c.mode == OPND_FABIN:
        f.inq = ce.prog.inq_slot[f.b.queue if f.b.mode == OPND_FABIN else f.c.queue]
    if f.b.mode != OPND_FABIN or f.c.mode != OPND_FABIN:
        f.kind = KIND_FLOW
    elif f.group <= f.lanes:
        f.kind = KIND_PAIR
        f.inq2 = ce.prog.inq_slot[f.c.queue]
    if f.kind == KIND_FLOW:
        f.quick = quick_way(f)
    if not f.zeroes and (f.inq == NO_PLACE) != (f.plane == NO_PLACE) and f.kind == KIND_FLOW:
        if f.quick != QUICK_NOT and f.group == 1:
            f.brief = BRIEF_TAKES if f.plane == NO_PLACE else BRIEF_SENDS
        elif f.group == 2 and (f.quick == QUICK_HALF if f.inq == NO_PLACE else moves(f) and f.a.words == 1):
            f.brief = BRIEF_HALVES

cdef inline uint32_t words_in(const opnd_t* o) noexcept nogil:
    # Words of SRAM that an element of an operand is.
    return o.words if is_memory(o) or o.mode == OPND_FIFO else 0

cdef inline uint16_t work_of(const form_t* f, int half) noexcept nogil:
    # Where the elements of an operation are counted: by operation, format, words that each reads and writes.
    cdef uint32_t written = words_in(&f.a)
    if f.a.mode == OPND_FABOUT and f.a.flags & F_ZERO and is_memory(&f.b):
        written = f.b.words             # what was read becomes zero
    return <uint16_t>((f.op * N_HALVES + half) * WORK_COLUMNS + WORK_ELEMENTS
                      + (words_in(&f.b) + words_in(&f.c)) * WORK_WORDS + written)

cdef inline void set_issue(form_t* f, const instr_t* ins, int id) noexcept nogil:
    # What the instruction says about the thread.
    cdef int k
    f.id = id
    f.act_task = NO_TASK
    f.unblock_task = NO_TASK
    if not ins.flags & I_ASYNC:
        return
    if f.kind == KIND_BULK:                 # another thread may issue between any two of its steps
        f.kind = KIND_MEMORY
    f.level = UT_LEVELS * ((ins.imm >> ASYNC_PRIORITY) & 3)
    if (ins.imm >> ASYNC_HAS_ACTIVATE) & 1:
        f.act_task = (ins.imm >> ASYNC_ACTIVATE) & 63
    if (ins.imm >> ASYNC_HAS_UNBLOCK) & 1:
        f.unblock_task = (ins.imm >> ASYNC_UNBLOCK) & 63
    for k in range(FILE_REG):
        f.dsrs[k] = ins.dsrs[k]

cdef inline void begin(region_t* s, ce_t* ce, uint64_t t, const instr_t* ins, thread_t* th,
                       const form_t* f) noexcept nogil:
    # A thread at the beginning of an operation; what it is about is known.
    th.form = f
    th.k = 0
    th.scalar = reg_read(ce, ins.d & 15, ins.wd) if ins.wd else 0
    th.next = t + 1 + s.f.p.start
    th.kind = f.kind
    th.wait = WAIT_PIPE

cdef uint8_t level_of_queues(ce_t* ce, const form_t* f) noexcept nogil:
    # The priority that the configuration of the operation's input queues asks for, written by its address.
    cdef uint16_t word = 0
    if f.b.mode == OPND_FABIN:
        word |= mapped_of(ce).queues[f.b.queue & (N_QUEUES - 1)]
    if f.c.mode == OPND_FABIN:
        word |= mapped_of(ce).queues[f.c.queue & (N_QUEUES - 1)]
    return UT_LEVELS * (2 if (word >> (REG_PRIORITY + 1)) & 1 else (word >> REG_PRIORITY) & 1)

cdef inline void check_operand(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, const opnd_t* o, int id, int32_t base,
                               uint32_t k, uint32_t offset, bint writes) noexcept nogil:
    # Tell the checks of memory of an element.
    if is_memory(o):
        touches(s, ce, cell, t, id, <uint32_t>base, address_of(ce, o, base, k) + offset, o.words, writes, offset != 0)

cdef void check_alone(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, thread_t* th, const form_t* f) noexcept nogil:
    # Tell the checks of memory of a whole operation in memory of the main thread, while no microthread runs.
    cdef uint32_t k
    for k in range(th.n):
        check_operand(s, ce, cell, t, &f.b, MAIN, th.base_b, k, 0, False)
        check_operand(s, ce, cell, t, &f.c, MAIN, th.base_c, k, 0, False)
        check_operand(s, ce, cell, t, &f.a, MAIN, th.base_a, k, 0, True)

cdef bint set_up(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, const instr_t* ins, thread_t* th,
                 int id) noexcept nogil:
    # `vec_setup` from the DSRs as they are.
    cdef form_t form
    cdef form_t* f = &form
    cdef const form_t* kept
    cdef opnd_t* ops[3]
    cdef int pack = -1, k, p
    cdef bint streams = False
    cdef int32_t base_a
    memset(f, 0, sizeof(form_t))
    f.op = ins.op
    f.latency = ins.latency
    if not setup_operand(s, ce, cell, t, &f.b, &th.base_b, ins.b, ins.wb, 0, ins):
        return False
    if not setup_operand(s, ce, cell, t, &f.c, &th.base_c, ins.c, ins.wc, 0, ins):
        return False
    if not setup_operand(s, ce, cell, t, &f.a, &base_a, ins.a, ins.wa, 1, ins):
        return False
    th.base_a = <uint16_t>base_a
    f.live = ins.wd != 0 and f.a.mode == OPND_REG and ins.d == ins.a
    th.n = length_of(ce, &f.b if f.b.dsr != NO_PLACE else (&f.c if f.c.dsr != NO_PLACE else &f.a))
    ops[0] = &f.b
    ops[1] = &f.c
    ops[2] = &f.a
    f.lanes = ins.lanes
    for k in range(3):
        f.lanes = stride_lanes(s, ops[k], f.lanes)
        p = packing(ops[k])
        if p >= 0:
            streams = True
            if pack >= 0 and pack != p:
                fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_PACKING, 0)
                return False
            pack = p
        if ops[k].mode == OPND_FIFO:
            streams = True
            if id == MAIN:
                ce.cut = 0
    if streams:
        f.group = 2 if pack == 1 else 1
    elif f.a.mode == OPND_REG or (f.a.mode == OPND_MEM1D and f.a.step == 0 and th.n > 1):
        f.group = 1
    else:
        f.group = f.lanes
    if ins.form == FORM_DFILT and f.b.mode != OPND_FABIN:
        fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_DFILT, 0)
        return False
    if (f.b.mode == OPND_FABIN and f.c.mode == OPND_FABIN and f.b.queue == f.c.queue
            or f.b.mode == OPND_FIFO and f.c.mode == OPND_FIFO and fifo_of(ce, &f.b) == fifo_of(ce, &f.c)):
        fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_SAME_QUEUE, f.b.queue)
        return False
    check_range(ce, &f.a, th.base_a, th.n)
    check_range(ce, &f.b, th.base_b, th.n)
    check_range(ce, &f.c, th.base_c, th.n)
    if streams:
        f.kind = KIND_GENERAL
    else:
        f.kind = KIND_BULK if f.a.checked and f.b.checked and f.c.checked else KIND_MEMORY
    f.one_bank = (s.f.p.write_cycles and f.a.mode == OPND_MEM1D and f.a.step != 0 and f.a.step % s.f.p.banks == 0
                  and th.n > 1)
    if TRACE and s.checks != NULL and f.kind == KIND_BULK and ce.uts == 0 and not ins.flags & I_ASYNC:
        check_alone(s, ce, cell, t, th, f)      # no other thread until it ends
    elif TRACE and s.checks != NULL:            # every element one by one
        f.kind = KIND_GENERAL if streams else KIND_MEMORY
        f.inq = f.inq2 = f.plane = NO_PLACE
    else:
        set_flow(ce, ins, f, th.n)
    f.work = work_of(f, ce.prog.num.half)
    set_issue(f, ins, id)
    if ce.prog.registers and ins.flags & I_ASYNC:
        f.level = max(f.level, level_of_queues(ce, f))
    kept = form_kept(s.f.forms, f)
    if kept == NULL:
        fault(s, ce, cell, t, FAULT_MEMORY, 0, -1, D_FORMS, 0)
        return False
    begin(s, ce, t, ins, th, kept)
    return True

cdef inline bint shape_operand(ce_t* ce, shape_t* shape, const opnd_t* o, int k) noexcept nogil:
    # Note for which DSR an operand is as it is; False: it depends on more than that.
    cdef dsr_t* r
    cdef int64_t lowest = 0, highest = 0xFFFF, before = 0, behind = 0
    shape.same[k] = 0
    shape.odd[k] = 0
    if o.dsr == NO_PLACE:
        return True
    if not (is_fabric(o) or (o.mode == OPND_MEM1D or o.mode == OPND_MEM4D) and o.checked):
        return False
    r = dsr_at(ce, o.dsr)
    shape.same[k] = all_but_base(r, shape.kept)
    shape.place[k] = <uint16_t>(<char*>r - <char*>ce)
    if is_memory(o) and shape.n:
        reach_of(ce, o, shape.n, &before, &behind)
        lowest = <int64_t>ce.prog.code_words - before
        highest = <int64_t>ce.prog.code_words + ce.prog.data_words - o.words - behind
        shape.odd[k] = o.words - 1
    if not ce.prog.moves:       # what stands before the number says nothing
        lowest = highest = desc_of(ce, r).base
        shape.odd[k] = 0
    shape.lowest[k] = <uint16_t>lowest
    shape.span[k] = <uint16_t>(highest - lowest)
    return True

cdef inline uint8_t whole_way(const num_t* num, const shape_t* shape, const form_t* f) noexcept nogil:
    if num.ftz:
        return WAY_ANY
    if f.op == OP_FADDS and f.a.mode == OPND_REG and (f.b.mode == OPND_REG and wide(&f.c)
                                                      or wide(&f.b) and f.c.mode == OPND_REG):
        return WAY_SUM
    if not shape.packed or shape.n < LEAST_PACKED:
        return WAY_ANY
    if f.op == OP_FMACHS:
        return WAY_FMACHS
    if f.op == OP_FMULS:
        return WAY_FMULS
    return WAY_FH2S if f.op == OP_FH2S else WAY_ANY

cdef inline bint in_one(const opnd_t* o) noexcept nogil:
    # Of an operand that never faults: in one dimension, if in memory.
    return o.mode != OPND_MEM4D

cdef void note_whole(region_t* s, const num_t* num, const instr_t* ins, shape_t* shape,
                     const form_t* f) noexcept nogil:
    # What `vec_whole` asks about a shape.
    cdef int64_t period = bank_period(s)
    shape.distances = 1
    if s.f.p.conflict_rule != RULE_NONE and f.b.mode == OPND_MEM1D and f.c.mode == OPND_MEM1D:
        shape.distances = <uint8_t>period
    shape.learned = 0
    shape.packed = (contiguous(&f.a) and contiguous(&f.b)
                    and (contiguous(&f.c) or f.op == OP_FH2S and f.c.mode == OPND_NONE))
    shape.saves = (f.a.flags | f.b.flags | f.c.flags) & F_SAVE != 0
    shape.mac = is_mac(f.op)
    shape.steps = (shape.n + f.group - 1) // f.group
    shape.drain = <uint32_t>drain_of(s, f, shape.n)
    shape.way = WAY_NOT
    if (shape.form != NULL and f.kind == KIND_BULK and in_one(&f.a) and in_one(&f.b) and in_one(&f.c)
            and shape.n > 0 and not f.one_bank and not f.live and not ins.flags & I_FETCH
            and not is_done_again(ins)
            and shape.distances <= N_DISTANCES and shape.distances & (shape.distances - 1) == 0):
        shape.way = whole_way(num, shape, f)

cdef bint fetched(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, const instr_t* ins, thread_t* th,
                  int id) noexcept nogil:
    # Take the multiplier from memory, where its DSR points, which goes on by an element; False after a fault.
    cdef opnd_t o
    cdef int32_t base = 0
    cdef uint32_t index = 0
    memset(&o, 0, sizeof(opnd_t))
    if not setup_operand(s, ce, cell, t, &o, &base, ins.d, ins.wd, 0, ins):
        return False
    if o.mode != OPND_MEM1D:
        fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_DSR_PLACE, ins.d)
        return False
    if not sram_at(ce, base, o.words, &index):
        sram_fault(s, ce, cell, t, base, o.words)
        return False
    if TRACE and s.checks != NULL:
        touches(s, ce, cell, t, id, <uint32_t>base, base, o.words, False, False)
    th.scalar = sram_read(ce, index, o.words)
    dsr_at(ce, o.dsr).base = <uint16_t>(base + o.step)
    s.work[((OP_LD32 if o.words == 2 else OP_LD16) * N_HALVES + ce.prog.num.half) * WORK_COLUMNS] += 1
    return True

cdef bint vec_setup(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, const instr_t* ins, thread_t* th,
                    int id) noexcept nogil:
    # Turn a vector instruction into a running operation of thread `id`; False after a fault. What the last set-up of
    # the instruction came to, on any PE, holds as long as its DSRs differ in their bases only.  Gain: 260 instructions
    # of 430.
    cdef shape_t* shape = &s.shapes[ins.shape]
    cdef const form_t* f = shape.form
    cdef int32_t a = 0, b = 0, c = 0
    if (f != NULL and not ce.prog.registers and not (TRACE and s.checks != NULL)
            and fits(ce, shape, 0, &b) and fits(ce, shape, 1, &c) and fits(ce, shape, 2, &a)):
        begin(s, ce, t, ins, th, f)
        th.n = shape.n
        th.base_a = <uint16_t>a
        th.base_b = <int32_t>reg_read(ce, f.b.reg, f.b.words) if f.b.mode == OPND_CONST else b
        th.base_c = <int32_t>reg_read(ce, f.c.reg, f.c.words) if f.c.mode == OPND_CONST else c
        return not ins.flags & I_FETCH or fetched(s, ce, cell, t, ins, th, id)
    if not set_up(s, ce, cell, t, ins, th, id):
        return False
    f = th.form
    shape.n = th.n
    shape.kept = ce.prog.dsr_kept
    shape.moves = ce.prog.moves
    shape.form = f if (shape_operand(ce, shape, &f.b, 0) and shape_operand(ce, shape, &f.c, 1)
                       and shape_operand(ce, shape, &f.a, 2)) else NULL
    note_whole(s, &ce.prog.num, ins, shape, f)
    if f.row:
        th.n = shape.n = f.row
    return not ins.flags & I_FETCH or fetched(s, ce, cell, t, ins, th, id)


# --- completion -------------------------------------------------------------------------------------------------------
cdef inline bint one_cycle_steps(const thread_t* th) noexcept nogil:
    return th.kind == KIND_PAIR or (th.kind == KIND_FLOW and th.form.group <= th.form.lanes)

cdef void threads_changed(region_t* s, ce_t* ce) noexcept nogil:
    # After a microthread began or ended, or ceased to be a flow.
    cdef uint32_t uts = ce.uts
    cdef int level = -1, ut, f
    cdef thread_t* th
    ce.in_turn = uts != 0 and not s.f.injects
    ce.fed = <uint8_t>uts
    for f in range(FILE_REG):
        ce.dsr_busy[f] = 0
    while uts:
        ut = ctz64(uts)
        uts &= uts - 1
        th = ut_of(ce, ut)
        for f in range(FILE_REG):
            ce.dsr_busy[f] |= th.form.dsrs[f]
        if ce.held >> ut & 1 or not one_cycle_steps(th) or (level >= 0 and level != th.form.level):
            ce.in_turn = 0
        level = th.form.level
        if th.form.inq != NO_PLACE:
            inq_at(ce, th.form.inq).uts |= <uint8_t>(1 << ut)
        if th.form.inq2 != NO_PLACE:
            inq_at(ce, th.form.inq2).uts |= <uint8_t>(1 << ut)

cdef void hold(region_t* s, ce_t* ce, int ut, bint blocked) noexcept nogil:
    # The operation of a microthread makes no steps while that is blocked, or makes them again.
    if blocked:
        ce.held |= <uint8_t>(1 << ut)
    else:
        ce.held &= ~(<uint8_t>(1 << ut))
    threads_changed(s, ce)

cdef void last_is_advance(region_t* s, ce_t* ce, thread_t* th) noexcept nogil:
    # All elements are done; the operation ends with a word that moves the switch of the own router, or, for a flush,
    # when those before have left.
    th.kind = KIND_ADVANCE
    if th.form.id != MAIN:
        threads_changed(s, ce)

cdef inline void saves(ce_t* ce, thread_t* th, const opnd_t* o, int32_t base) noexcept nogil:
    # A DSR whose descriptor says so moves on by the elements done.
    cdef dsr_t* d
    if not o.flags & F_SAVE or o.dsr == NO_PLACE:
        return
    d = dsr_at(ce, o.dsr)
    if o.mode == OPND_MEM1D:
        d.base = <uint16_t>(base + <int32_t>th.k * o.step)
    elif o.mode == OPND_CIRCULAR:
        d.index = <uint16_t>((<uint32_t>d.index + th.k) % desc(ce, o).length)

cdef void vec_complete(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t, uint32_t cost) noexcept nogil:
    # The operation ends with the step of this cost that issued in cycle t.
    cdef const form_t* f = th.form
    if unlikely(f.row) and next_row(ce, th):
        return
    worked(s, f, done_by(th))
    if f.id == MAIN:
        note_written(s, ce, f, th.base_a, th.k, t + cost)
    saves(ce, th, &f.b, th.base_b)
    saves(ce, th, &f.c, th.base_c)
    if f.a.dsr != f.b.dsr:
        saves(ce, th, &f.a, th.base_a)
    if TRACE:
        emit(s, cell, t, EV_OP_END, NO_COLOR, f.id, done_by(th), 0)
        if s.watch[cell].lost[f.id]:
            emit(s, cell, t, EV_CONFLICT, NO_COLOR, f.id, s.watch[cell].lost[f.id], 0)
            s.watch[cell].lost[f.id] = 0
    if f.id == MAIN:
        ce.main_state = MAIN_RUN
        ce.next = t + cost + drain_of(s, f, th.k)
    else:
        ce.uts &= ~(<uint32_t>1 << f.id)
        threads_changed(s, ce)
    if f.a.mode == OPND_REG and th.n:       # with no element nothing was written, and nobody waits for it
        wait_reg(ce, f.a.reg, f.a.words, t, cost if cost > f.latency else f.latency)
    if f.unblock_task != NO_TASK:
        unblock(ce, f.unblock_task)
    if f.act_task != NO_TASK:
        activate(s, ce, cell, t, f.act_task)


# --- one step ---------------------------------------------------------------------------------------------------------
cdef uint64_t vec_when(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t) noexcept nogil:
    # First cycle in which the next step of an operation that is stepped can issue as things stand in cycle t; NEVER =
    # something must happen first. th.next lies no later than the cycles to be booked; th.wait is WAIT_PIPE, and becomes
    # the cause of waiting.
    cdef uint64_t when = ce.acct, r, word, diverted = NEVER
    cdef int control, k
    cdef uint32_t g
    cdef const opnd_t* ops[3]
    cdef bint starved = False
    cdef uint64_t when0 = when
    ops[0] = &th.form.b
    ops[1] = &th.form.c
    ops[2] = &th.form.a
    if th.kind != KIND_ADVANCE:
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
                if fifo_lacks(ce, ops[k], k == 2, g):
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
    if th.form.a.mode == OPND_FABOUT:
        if th.kind == KIND_ADVANCE and th.form.a.flags & F_FLUSH:
            word = plane_last(&s.plane[th.form.a.plane], cell)[0]
        else:
            word = plane_tail(&s.plane[th.form.a.plane], cell)[0]
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
    cdef const opnd_t* ops[3]
    cdef int k, control
    cdef uint32_t g
    cdef uint8_t on
    cdef desc_t* d
    cdef bint ended = False
    ops[0] = &th.form.b
    ops[1] = &th.form.c
    ops[2] = &th.form.a
    for k in range(2):
        if ops[k].mode != OPND_FABIN:
            continue
        control = 0
        if fabin_ready(ce, ops[k], t, &control) > t or not (control or th.form.op == OP_DFILT):
            continue
        inq_take(s, ce, cell, inq_of(ce, ops[k].queue), t)
        end_step(ce, th, t, 1, 0)
        if th.form.op == OP_DFILT:
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
        if ops[k].mode == OPND_FIFO and ops[k].flags & F_TERMINATE and fifo_lacks(ce, ops[k], k == 2, g):
            fifo_ends(ce, ops[k], k == 2, g)
            ended = True
    if ended:
        if th.form.id == MAIN:
            ce.cut = <uint16_t>(th.n - th.k if th.n - th.k < 0xFFFF else 0xFFFF)
        end_step(ce, th, t, 1, 0)
        vec_complete(s, ce, cell, th, t, 1)
    return ended

cdef void check_step(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t, uint32_t g,
                     uint32_t offset) noexcept nogil:
    # Tell the checks of memory what a step reads and writes. FIFOs are how threads take turns: they are left out.
    cdef const form_t* f = th.form
    cdef uint32_t j
    for j in range(th.k, th.k + g):
        check_operand(s, ce, cell, t, &f.b, f.id, th.base_b, j, 0, False)
        check_operand(s, ce, cell, t, &f.c, f.id, th.base_c, j, 0, False)
        check_operand(s, ce, cell, t, &f.a, f.id, th.base_a, j, offset, True)
        if f.a.mode == OPND_FABOUT and f.a.flags & F_ZERO:
            check_operand(s, ce, cell, t, &f.b, f.id, th.base_b, j, 0, True)

cdef void vec_step(region_t* s, ce_t* ce, uint32_t cell, thread_t* th, uint64_t t) noexcept nogil:
    # One step of an operation that is able in cycle t.
    cdef uint32_t g, busy, conflict = 0, j, bv, cv, r, word_b = 0, word_c = 0, word_a = 0, offset = 0, index
    cdef int64_t address
    cdef uint64_t payload
    cdef const form_t* f = th.form
    if th.kind == KIND_ADVANCE:
        end_step(ce, th, t, 1, 0)
        if not f.a.flags & F_FLUSH:
            send(s, ce, cell, f.a.plane, ADVANCE_WORD, t, 1)
        vec_complete(s, ce, cell, th, t, 1)
        return
    if not in_memory(th) and diverted_step(s, ce, cell, th, t):
        return
    g = group_of(ce, th)
    busy = (g + f.lanes - 1) // f.lanes
    conflict = conflict_of(s, ce, th, th.k, g)
    if TRACE:
        s.watch[cell].lost[f.id] += conflict
    if f.b.mode == OPND_FABIN:
        word_b = <uint32_t>inq_take(s, ce, cell, inq_of(ce, f.b.queue), t)
    if f.c.mode == OPND_FABIN:
        word_c = <uint32_t>inq_take(s, ce, cell, inq_of(ce, f.c.queue), t)
    if f.a.mode == OPND_MEM1D and f.a.flags & F_INDEX:
        if f.b.mode == OPND_FABIN:
            offset = word_b >> 16
        elif f.c.mode == OPND_FABIN:
            offset = word_c >> 16
    end_step(ce, th, t, busy, conflict)
    if TRACE and s.checks != NULL:
        check_step(s, ce, cell, th, t, g, offset)
    for j in range(g):
        if not read_element(s, ce, cell, t, &f.b, th.base_b, th.k + j, j, word_b, &bv):
            return
        if not read_element(s, ce, cell, t, &f.c, th.base_c, th.k + j, j, word_c, &cv):
            return
        r = alu(f.op, &ce.prog.num, bv, cv, multiplier(ce, th))
        if not write_element(s, ce, cell, t, &f.a, th.base_a, th.k + j, j, offset, r, &word_a):
            return
        if f.a.mode == OPND_FABOUT and f.a.flags & F_ZERO and is_memory(&f.b):
            address = address_of(ce, &f.b, th.base_b, th.k + j)
            if sram_at(ce, address, f.b.words, &index):
                sram_write(ce, index, f.b.words, 0)
    if f.a.mode == OPND_FABOUT:
        payload = word_a
        if f.a.flags & F_INDEX and f.a.words == 1 and not f.a.flags & F_PACKED:
            payload |= <uint64_t>index_in(ce, dsr_at(ce, f.a.dsr)) << 16
        if f.a.flags & F_CONTROL:
            payload |= <uint64_t>1 << SHIFT_CTRL
        send(s, ce, cell, f.a.plane, payload, t, busy + conflict)
    ce.counts[COUNT_ELEMENTS] += g
    if is_mac(f.op):
        ce.counts[COUNT_MACS] += g
    th.k += g
    if f.a.mode == OPND_FIFO and not fifo_moved(s, ce, cell, t, th, &f.a, 1, g):
        return
    if f.b.mode == OPND_FIFO and not fifo_moved(s, ce, cell, t, th, &f.b, 0, g):
        return
    if f.c.mode == OPND_FIFO and not fifo_moved(s, ce, cell, t, th, &f.c, 0, g):
        return
    if th.k == th.n and th.n != NO_END:
        if f.a.mode == OPND_FABOUT and f.a.flags & F_ADVANCE:
            last_is_advance(s, ce, th)
        else:
            vec_complete(s, ce, cell, th, t, busy + conflict)
