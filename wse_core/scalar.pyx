# cython: overflowcheck=False
"""The main thread: its next instruction, from a register operation to a write of the router's configuration.

`main_when` says in which cycle it can issue, `exec_main` issues it; a vector instruction becomes an operation of
`wse_core.vecop`, on the main thread or on a microthread.  Costs: docs/machine.md, "CE".  Reads and writes: its own CE,
SRAM, route words and filters of its router (in real time only).
"""
from libc.string cimport memcpy

from wse_core.account cimport *
from wse_core.alu cimport alu, condition
from wse_core.block cimport *
from wse_core.builtins cimport *
from wse_core.emit cimport emit
from wse_core.mapped cimport clock_of, exec_mapped
from wse_core.opcodes cimport *
from wse_core.operand cimport *
from wse_core.queue cimport *
from wse_core.records cimport *
from wse_core.report cimport fault
from wse_core.routing cimport set_route_word
from wse_core.shadow cimport touches
from wse_core.vecop cimport hold, last_is_advance, threads_changed, vec_complete, vec_setup
from wse_core.whole cimport vec_whole


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
            return d.queue & (N_QUEUES - 1)
    return -1

cdef uint64_t registers_when(ce_t* ce, const instr_t* ins, uint64_t when) noexcept nogil:
    # First cycle from `when` on in which all registers that the instruction reads are ready.
    cdef ready_t* ready = ready_of(ce)
    cdef uint32_t regs = ins.reads
    while regs:
        when = max(when, ready.base + ready.after[ctz64(regs)])
        regs &= regs - 1
    return when

cdef inline uint64_t issues_when(ce_t* ce, const instr_t* ins) noexcept nogil:
    # First cycle in which the main thread and all registers that the instruction reads are ready.
    return ce.next if ce.ready_max <= ce.next else registers_when(ce, ins, ce.next)

cdef inline bint dsr_in_use(ce_t* ce, const instr_t* ins) noexcept nogil:
    # A microthread uses a DSR that the instruction names.
    return ins.dsrs[0] & ce.dsr_busy[0] or ins.dsrs[1] & ce.dsr_busy[1] or ins.dsrs[2] & ce.dsr_busy[2]

cdef uint64_t main_waits(region_t* s, ce_t* ce, uint64_t t) noexcept nogil:
    cdef const instr_t* ins = ce.prog.code + ce.pc
    cdef uint64_t when = issues_when(ce, ins)
    ce.main.wait = WAIT_PIPE
    if ce.uts and when <= t + 1:
        if dsr_in_use(ce, ins) or (ins.flags & I_ASYNC and (<int>ce.uts << 1) >> (async_ut(ce, ins) + 1) & 1):
            if when > t and ce.acct < when:
                return when                     # until then it waits for the pipeline, from then on for the resource
            ce.main.wait = WAIT_RESOURCE
            return NEVER
    return when

cdef void issue_vector(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, const instr_t* ins) noexcept nogil:
    cdef thread_t* th = &ce.main
    cdef int ut = MAIN
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
    if TRACE:
        s.watch[cell].at[ut] = ins.at
        s.watch[cell].begun[ut] = t
    if not vec_setup(s, ce, cell, t, ins, th, ut):
        return
    if TRACE:
        s.watch[cell].lost[ut] = 0
        emit(s, cell, t, EV_OP_START, NO_COLOR, ut, ins.at | <uint32_t>ins.op << 16, 0)
    if asynchronous:
        ce.uts |= <uint32_t>1 << ut
        threads_changed(s, ce)
        ce.next = t + 1
    else:
        ce.main_state = MAIN_VECTOR
        if th.n and is_late(s, ce, t, th.form, th.base_b, th.base_c):
            th.next = ce.wrote_when
    if th.n == 0:
        if th.form.a.mode == OPND_FABOUT and th.form.a.flags & (F_ADVANCE | F_FLUSH):
            last_is_advance(s, ce, th)
        else:
            vec_complete(s, ce, cell, th, t, 1 + s.f.p.start)

cdef uint32_t draw(region_t* s, ce_t* ce) noexcept nogil:
    cdef uint32_t x = lfsr_of(ce)[ce.prng]
    cdef int k = s.f.p.prng_steps
    while k:
        k -= 1
        x = (x << 1) | (((x >> 22) ^ (x >> 17)) & 1)
    lfsr_of(ce)[ce.prng] = x
    return x & 0xFFFF

cdef enum:
    # What `route` does with its sets: see wse_core/isa.py, ROUTE_MODES
    ROUTE_RX = 1, ROUTE_TX, ROUTE_OFF, ROUTE_ADD, ROUTE_REMOVE, ROUTE_TOGGLE, ROUTE_SWITCH
    ROUTE_MODE = 12         # where an immediate says it

cdef inline uint64_t sets_of(uint64_t word, int position, uint64_t given, int mode) noexcept nogil:
    # The sets of inputs and outputs of a switch position after a `route`.
    cdef uint64_t old = (word >> (POSITION_BITS * position)) & POSITION_MASK
    if mode == ROUTE_RX:
        return (given & ALL_PORTS) | (word & POSITION_MASK & ~<uint64_t>ALL_PORTS)
    if mode == ROUTE_TX:
        return (given & ~<uint64_t>ALL_PORTS) | (word & ALL_PORTS)
    if mode == ROUTE_OFF:
        return 0
    if mode == ROUTE_ADD:
        return old | given
    if mode == ROUTE_REMOVE:
        return old & ~given
    return old ^ given if mode == ROUTE_TOGGLE else given

cdef void exec_route(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, const instr_t* ins) noexcept nogil:
    # Writes to the router's configuration, in real time: they count from the next cycle on.
    cdef uint64_t word, bits = 0
    cdef int c = ins.a, k = (ins.imm >> POSITION_BITS) & 3, mode = (ins.imm >> ROUTE_MODE) & 7
    if c >= N_COLORS or s.f.route[c] == NULL:
        return
    word = s.f.route[c][cell]
    if ins.op == OP_ROUTE and mode == ROUTE_SWITCH:
        k = 0
        bits = word & POSITION_MASK
    elif ins.op == OP_ROUTE:
        bits = sets_of(word, k, ins.imm & POSITION_MASK, mode)
    if TRACE:
        if ins.op == OP_SW_POS:
            emit(s, cell, t, EV_SWITCH, c, ins.imm & 3, 1, 0)
        elif ins.op == OP_TD_EXIT:
            emit(s, cell, t, EV_TEARDOWN, c, 0, 0, 0)
        else:
            emit(s, cell, t, EV_ROUTE, c, k, bits, 0)
    if ins.op == OP_SW_POS:
        word = (word & ~(<uint64_t>3 << RT_POS)) | (<uint64_t>(ins.imm & 3) << RT_POS)
    elif ins.op == OP_TD_EXIT:
        word &= ~(<uint64_t>1 << RT_TEARDOWN)
    elif mode == ROUTE_SWITCH:
        if ins.imm >> N_PORTS & 1:
            word = (word & ~(<uint64_t>3 << RT_POP)) | (<uint64_t>(ins.imm & 3) << RT_POP)
        if ins.imm >> N_PORTS & 2:
            word = (word & ~(<uint64_t>1 << RT_RING)) | (<uint64_t>(ins.imm >> 2 & 1) << RT_RING)
    else:
        word = (word & ~(<uint64_t>POSITION_MASK << (POSITION_BITS * k))) | (bits << (POSITION_BITS * k))
        if mode == ROUTE_OFF:
            word &= ~(<uint64_t>1 << (RT_VALID + k))
        else:
            word |= <uint64_t>1 << (RT_VALID + k)
    set_route_word(s, c, cell, word)
    s.waiting = 1

cdef uint32_t queues_that_are(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, uint32_t which) noexcept nogil:
    # Set of queues that are empty (0 inputs, 2 outputs) or full (1, 3) in cycle t, by their numbers.
    cdef program_t* g = ce.prog
    cdef uint32_t there = 0, yes = 0, no = 0, bit
    cdef int k
    cdef bint answer
    cdef inq_t* q
    cdef plane_t* p
    for k in range(N_BINDINGS):
        bit = <uint32_t>1 << (k & (N_QUEUES - 1))
        if which < 2:
            if g.inq_slot[k] < 0:
                continue
            q = inq_of(ce, k)
            answer = not takeable(q.slots[q.head], t) if which == 0 else not has_room(q.slots[q.tail], t)
        else:
            if g.outq_color[k] < 0:
                continue
            p = &s.plane[g.outq_color[k] * N_PORTS + DIR_R]
            answer = has_room(plane_last(p, cell)[0], t) if which == 2 else not has_room(plane_tail(p, cell)[0], t)
        there |= bit
        if answer:
            yes |= bit
        else:
            no |= bit
    # A queue of two colors is empty if both of its rings are, full if one of them is.
    return yes & ~no if which & 1 == 0 else yes

cdef inline int64_t address_named(ce_t* ce, const instr_t* ins) noexcept nogil:
    # Of a load or store.
    return (ins.imm + (ce.regs[ins.b & 15] if ins.b >> 4 == FILE_REG else 0)) & 0xFFFF

cdef inline int taken_to(region_t* s, const instr_t* target) noexcept nogil:
    # What a taken branch costs: less if all that follows is the end of the task.
    return s.f.p.taken_end if target.op == OP_DONE else s.f.p.taken

cdef inline bint do_plain(region_t* s, ce_t* ce, const instr_t* ins, const instr_t** following,
                          uint32_t* gap) noexcept nogil:
    # What a plain instruction does to registers, SRAM and DSRs; a branch says what follows, and when.  False: it
    # faults, and nothing was done.
    cdef int form = ins.form
    cdef dsr_t* d
    cdef desc_t* loaded
    cdef uint32_t value, index
    if form == FORM_ALU:
        value = alu(ins.op, &ce.prog.num, reg_read(ce, ins.b, ins.wb),
                    ins.imm if ins.flags & I_IMM else (reg_read(ce, ins.c, ins.wc) if ins.wc else 0),
                    reg_read(ce, ins.d, ins.wd) if ins.wd else 0)
        reg_write(ce, ins.a, ins.wa, value)
        executed(s, ins)
        if ins.flags & I_MAC:
            ce.counts[COUNT_MACS] += 1
    elif form == FORM_DSR:
        d = <dsr_t*>(<char*>ce + ins.place)
        value = ins.imm if ins.flags & I_IMM else ce.regs[ins.b & 15]
        if ins.op == OP_DSR_LOAD:
            d.number = <uint16_t>(ins.imm + 1)
            loaded = desc_of(ce, d)
            if ce.prog.moves:
                d.base = <uint16_t>ce.regs[ins.b & 15] if ins.b >> 4 == FILE_REG else loaded.base
            if ce.prog.edits:
                d.index = loaded.index
                d.extent = loaded.extent[0]
                d.stride = loaded.stride[0]
        elif d.number == 0:
            return False
        else:
            executed(s, ins)
            if ins.op == OP_DSR_BASE:
                d.base = <uint16_t>value
            elif ins.op == OP_DSR_OFF:
                d.base = <uint16_t>(d.base + value)
            elif ins.op == OP_DSR_LEN:
                d.extent = <uint16_t>value
            else:
                d.stride = <int16_t><uint16_t>value
    elif form == FORM_LDI:
        reg_write(ce, ins.a, ins.wa, ins.imm)
    elif form == FORM_BR:
        executed(s, ins)
        value = reg_read(ce, ins.b, ins.wb) if ins.b >> 4 == FILE_REG else 0
        if condition(ins.op, ins.d, &ce.prog.num, reg_read(ce, ins.a, ins.wa), value):
            following[0] = ce.prog.code + ins.target
            gap[0] = ins.slots - 1 + taken_to(s, following[0])
        else:
            gap[0] = ins.slots - 1 + s.f.p.not_taken
    elif form == FORM_JMP:
        following[0] = ce.prog.code + ins.target
        gap[0] = s.f.p.taken
    else:
        if not sram_at(ce, address_named(ce, ins), ins.wa, &index):
            return False
        executed(s, ins)
        if form == FORM_LD:
            reg_write(ce, ins.a, ins.wa, sram_read(ce, index, ins.wa))
        else:
            sram_write(ce, index, ins.wa, reg_read(ce, ins.a, ins.wa))
    return True

cdef void plain_fault(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, const instr_t* ins) noexcept nogil:
    # The fault of a plain instruction.
    if ins.form == FORM_DSR:
        fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_DSR_EMPTY, ins.a)
    else:
        sram_fault(s, ce, cell, t, address_named(ce, ins), ins.wa)

cdef void results_late(ce_t* ce, const instr_t* ins, uint64_t t) noexcept nogil:
    # Note when the results of a scalar instruction that issued in cycle t are ready.
    cdef uint32_t regs = ins.writes
    while regs:
        wait_reg(ce, ctz64(regs), 1, t, ins.latency)
        regs &= regs - 1

cdef inline void results_wait(ce_t* ce, const instr_t* ins, uint64_t t) noexcept nogil:
    # The same, if it is not at once, or if an earlier result had them wait.
    if ins.flags & I_LATE or ce.ready_max > t + ins.slots:
        results_late(ce, ins, t)

cdef inline const instr_t* patched(region_t* s, ce_t* ce, const instr_t* ins, const patch_t* p, uint32_t* slots,
                                   uint32_t* cycles) noexcept nogil:
    # The instruction and those that follow it, as long as they only write constants to the CE block.  Returns the next
    # one, which may be one of them that faults.
    cdef const instr_t* end = ins + ins.writes_on
    cdef char* place
    slots[0] = p.slots
    cycles[0] = p.cycles
    while True:
        place = <char*>ce + p.place
        if p.kind == PATCH_DSR:
            memcpy(place, p.data, sizeof(dsr_t))
        elif p.kind == PATCH_WORDS:
            memcpy(place, p.data, 4)
        elif p.kind == PATCH_WORD:
            (<uint16_t*>place)[0] = p.data[0]
        elif (<dsr_t*>place).number == 0:
            slots[0] -= p.slots
            cycles[0] -= p.cycles
            return ins
        else:
            executed(s, ins)
            (<dsr_t*>place).base = p.data[0]
        ins += 1
        p += 1
        if ins == end:
            return ins

cdef inline void end_task(region_t* s, ce_t* ce, uint32_t cell, uint64_t t) noexcept nogil:
    ce.main_state = MAIN_IDLE
    if TRACE:
        emit(s, cell, t, EV_TASK_END, NO_COLOR, ce.task % N_CONTROL_IDS, 0, ce.task >= N_CONTROL_IDS)

cdef inline uint64_t issues_from(ce_t* ce, const instr_t* ins, uint64_t free) noexcept nogil:
    # First cycle from `free` on in which all registers that the instruction reads are ready.
    return free if ce.ready_max <= free else registers_when(ce, ins, free)

cdef inline bint done_together(region_t* s, ce_t* ce, uint32_t cell, uint64_t* at, uint64_t* n,
                               bint beside) noexcept nogil:
    # The instruction that issues in cycle `at` and those that follow it, booked together, as long as they are plain or
    # whole operations in memory, and the end of the task.  `at` becomes the cycle of the last issue.  True: it is the
    # cycle in which the next instruction, of another kind or one that faults, issues; it does not touch the router.
    # Adds to `n` how many were done, less one where none is to follow.  `beside`: with microthreads that wait, only
    # what is quiet.
    cdef const instr_t* ins = ce.prog.code + ce.pc
    cdef const instr_t* did = NULL              # the last one that was done, in cycle `issued`
    cdef const instr_t* following
    cdef const patch_t* patch
    cdef shape_t* shape
    cdef uint64_t begun = at[0], t = begun, issued = begun, free, acct, last = begun, ahead = s.ahead
    cdef uint64_t busy = 0, wholes = 0, over = 0    # cycles of plain instructions, of whole operations but the start
    cdef uint32_t done = 0, gap, lost = 0, slots = 0, cycles = 0
    cdef bint goes = True
    ce.main_state = MAIN_RUN
    while True:
        following = ins + 1
        if ins.flags & I_PLAIN:
            if not beside and ins.writes_on:
                patch = <const patch_t*>(<const char*>ce.prog.patches + ins.patch)
                if ce.ready_max <= t + 1 and t + patch.cycles <= ahead:
                    following = patched(s, ce, ins, patch, &slots, &cycles)
                    if following == ins:
                        break
                    done += <uint32_t>(following - ins)
                    did = following - 1
                    busy += slots
                    free = t + cycles
                    issued = free - did.gap
                    ins = following
                    t = issues_from(ce, ins, free)
                    if t >= ahead:
                        goes = False
                        break
                    continue
            gap = ins.gap
            if not do_plain(s, ce, ins, &following, &gap):
                break
            busy += ins.slots
            free = t + gap
            if unlikely(ins.flags & I_LATE or ce.ready_max > free):     # what is ready by then, nobody waits for
                results_wait(ce, ins, t)
        elif not TRACE and ins.flags & I_VECTOR:
            shape = s.shapes + ins.shape
            if shape.way == WAY_NOT:
                break
            over = vec_whole(s, ce, t, ins, shape, &lost)
            if over == 0:
                break
            last = over - 1 - lost
            wholes += over - t - s.f.p.start
            free = over + shape.drain
        elif not beside and ins.op == OP_DONE:
            end_task(s, ce, cell, t)
            done += 1
            busy += ins.slots
            free = t + ins.gap
            issued = t
            did = ins
            ins = following
            goes = False
            break
        else:
            goes = not ins.flags & I_REAL
            break
        done += 1
        issued = t
        did = ins
        ins = following
        t = issues_from(ce, ins, free)
        if t >= ahead or beside and ins.quiet == 0:
            goes = False
            break
    if did != NULL:
        acct = last + 1 + lost if did.flags & I_VECTOR else issued + did.slots
        ce.rr = MAIN
        ce.pc = <uint32_t>(ins - ce.prog.code)
        ce.next = free
        ce.pipe_free = acct
        ce.tail_conflict = <uint16_t>lost if did.flags & I_VECTOR else 0
        touched(s, last)
        n[0] += done - 1
        if goes:
            n[0] += 1
            acct = t
        else:
            at[0] = issued
        ce.acct = acct
        ce.counts[COUNT_INSTRUCTIONS] += done
        ce.counts[COUNT_BUSY] += busy
        ce.counts[COUNT_STALL_PIPE] += acct - begun - busy - wholes
    if goes:
        at[0] = t
    return goes

cdef uint64_t exec_alone(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, uint64_t* n) noexcept nogil:
    # `exec_main` for the main thread alone: the instruction that issues in cycle t and those that follow it, and the
    # next one of another kind, unless it touches the router.  Returns the cycle of the last issue, adds their number
    # less one to `n`.  Gain: two thirds of the instructions of each.
    if TRACE and s.checks != NULL or done_together(s, ce, cell, &t, n, False):
        exec_main(s, ce, cell, t)
    return t

cdef uint64_t exec_beside(region_t* s, ce_t* ce, uint32_t cell, uint64_t end, uint64_t* n) noexcept nogil:
    # The same beside microthreads none of which can issue before cycle `end`, for instructions that are quiet and wait
    # for no DSR of theirs.  Returns the cycle of the last issue, 0 if none was possible.
    cdef const instr_t* ins = ce.prog.code + ce.pc
    cdef uint64_t t = max(issues_when(ce, ins), ce.pipe_free, ce.acct)
    if ins.quiet == 0 or t >= end:
        return 0
    ce.counts[COUNT_STALL_PIPE] += t - ce.acct
    ce.acct = t
    if done_together(s, ce, cell, &t, n, True):
        exec_main(s, ce, cell, t)
    return t

cdef inline bint counted_down(ce_t* ce, const instr_t* ins) noexcept nogil:
    # Whether an operation that is done again and again issues for the last time.
    cdef uint16_t* left = &ce.regs[(ins.imm >> AGAIN_REGISTER) & 15]
    left[0] -= 1
    return left[0] == 0

cdef void exec_main(region_t* s, ce_t* ce, uint32_t cell, uint64_t t) noexcept nogil:
    # Issue the main thread's next instruction in cycle t; all its effects are in t.
    cdef const instr_t* ins = ce.prog.code + ce.pc
    ce.main_state = MAIN_RUN
    ce.counts[COUNT_INSTRUCTIONS] += 1
    ce.rr = MAIN
    if ins.flags & I_VECTOR:
        if not is_done_again(ins) or counted_down(ce, ins):
            ce.pc += 1
        book(ce, t, 1, 0)
        issue_vector(s, ce, cell, t, ins)
        return
    book(ce, t, ins.slots, 0)
    ce.next = t + ins.gap
    ce.pc += 1
    if ins.op == OP_DONE:
        end_task(s, ce, cell, t)
    elif ins.op == OP_ACTIVATE:
        activate(s, ce, cell, t, ins.a)
    else:
        exec_scalar(s, ce, cell, t, ins)

cdef void exec_scalar(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, const instr_t* ins) noexcept nogil:
    # The others of them, booked already.
    cdef int form = ins.form
    cdef const instr_t* following = ins + 1
    cdef uint32_t value, gap = ins.gap
    cdef uint64_t stamp
    cdef filter_t* f
    if TRACE and s.checks != NULL and (form == FORM_LD or form == FORM_ST):
        s.watch[cell].at[MAIN] = ins.at
        touches(s, ce, cell, t, MAIN, <uint32_t>address_named(ce, ins), address_named(ce, ins), ins.wa, form == FORM_ST,
                False)
    if ins.flags & I_PLAIN:
        if not do_plain(s, ce, ins, &following, &gap):
            plain_fault(s, ce, cell, t, ins)
            return
        ce.pc = <uint32_t>(following - ce.prog.code)
        ce.next = t + gap
    elif form == FORM_JMP:
        if ins.op == OP_TRAP:
            fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_RAN_OFF if ins.at == NOWHERE else D_TRAP, ins.imm)
            return
        if ins.op == OP_CALL:
            if depth_of(ce)[0] == RETURN_DEPTH:
                fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_CALL_DEPTH, RETURN_DEPTH)
                return
            stack_of(ce)[depth_of(ce)[0]] = ce.pc
            depth_of(ce)[0] += 1
            ce.next = t + s.f.p.call
            ce.pc = ins.target
    elif form == FORM_NONE:
        if ins.op == OP_RET:
            if depth_of(ce)[0] == 0:
                fault(s, ce, cell, t, FAULT_PROGRAM, 0, -1, D_RETURN, 0)
                return
            depth_of(ce)[0] -= 1
            ce.pc = stack_of(ce)[depth_of(ce)[0]]
            ce.next = t + s.f.p.ret
    elif form == FORM_TASK:
        if ins.op != OP_BLOCK and ins.op != OP_UNBLOCK:
            ce.prng = ins.a & 3
        elif ins.a >= N_TASK_IDS:
            hold(s, ce, ins.a - N_TASK_IDS, ins.op == OP_BLOCK)
        elif ins.op == OP_BLOCK:
            ce.blocked |= <uint32_t>1 << (ins.a & 31)
        else:
            unblock(ce, ins.a)
    elif form == FORM_TSC:
        stamp = clock_of(s, ce, t)
        ce.regs[ins.a & 15] = <uint16_t>stamp
        ce.regs[(ins.a + 1) & 15] = <uint16_t>(stamp >> 16)
        ce.regs[(ins.a + 2) & 15] = <uint16_t>(stamp >> 32)
    elif form == FORM_RAND:
        ce.regs[ins.a & 15] = <uint16_t>draw(s, ce)
    elif form == FORM_ROUTE:
        exec_route(s, ce, cell, t, ins)
    elif form == FORM_IN_TD and ins.op == OP_Q_STATE:
        reg_write(ce, ins.a, 1, ce.cut if ins.imm == STATE_CUT else queues_that_are(s, ce, cell, t, ins.imm))
    elif form == FORM_IN_TD:
        value = 0
        if ins.imm < N_COLORS and s.f.route[ins.imm] != NULL:
            value = (s.f.route[ins.imm][cell] >> RT_TEARDOWN) & 1
        reg_write(ce, ins.a, 1, value)
    elif form == FORM_LD or form == FORM_ST:
        # Of a program whose loads and stores may reach registers.
        if not do_plain(s, ce, ins, &following, &gap):
            executed(s, ins)
            exec_mapped(s, ce, cell, t, ins, <uint32_t>address_named(ce, ins))
    elif form == FORM_FLT and s.f.filters != NULL and ins.a < N_FILTERS:
        f = &s.f.filters[<uint64_t>cell * N_FILTERS + ins.a]
        s.waiting = 1
        if ins.imm == 0:
            f.counter = ce.regs[ins.b & 15]
        elif ins.imm == 1:
            f.max = ce.regs[ins.b & 15]
        else:
            f.limit = ce.regs[ins.b & 15]
    if form >= FORM_TSC:        # they take several slots
        executed(s, ins)
    results_wait(ce, ins, t)
