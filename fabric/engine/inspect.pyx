# cython: overflowcheck=False
"""Looking into an engine that stands still: counters, state for comparison, what it waits for, its fault.

Everything here reads the tables of a `Memory` and returns Python objects in the form of the machine interface
(docs/internals.md).  Counters are brought up to date on the way; no result of the run depends on that.
"""
from libc.string cimport memcpy, memset

import numpy as np

from fabric.engine.memory cimport Memory
from wse_core.block cimport *
from wse_core.builtins cimport ctz64
from wse_core.link cimport host_at, host_takes
from wse_core.opcodes cimport N_OPS
from wse_core.operand cimport done_by, length_of
from wse_core.queue cimport *
from wse_core.records cimport *
from wse_core.route cimport is_border

from wse_core import isa as _isa
from wse_core.work import found_in
from wse_core.encoding import COUNTERS, DIRS, FAULT_DETAILS, FAULT_KINDS, MAIN_STATES, THREADS


def fault(Memory m):
    """None, or a dict that describes the fault that stopped the run."""
    cdef fault_t* f = &m.s.fault
    if not f.kind:
        return None
    return {"kind": FAULT_KINDS[f.kind],
            "x": int(f.cell % m.s.f.stride) - 1, "y": int(f.cell // m.s.f.stride) - 1,
            "cycle": f.cycle,
            "address": f.address if f.kind in (FAULT_SRAM_RANGE, FAULT_SRAM_ALIGN) or f.address else None,
            "color": f.color if f.color >= 0 else None, "value": f.value,
            "detail": _collision(f.value) if f.kind == FAULT_COLLISION else FAULT_DETAILS[f.detail]}


cdef str _collision(ports):
    return "two inputs of one color in one cycle: " + " and ".join(
        DIRS[k] for k in range(N_PORTS) if ports >> k & 1)


cdef void _counts(Memory m, uint32_t cell, uint64_t* sums) noexcept nogil:
    # The counters of a PE that has been awake, up to the clock.
    cdef ce_t* ce = m.s.f.ce[cell]
    cdef uint64_t total, over, part
    cdef int k
    for k in range(N_COUNTS):
        sums[k] = m.s.f.counts[<uint64_t>cell * N_COUNTS + k] + ce.counts[k]
    if ce.acct > m.s.now:            # booked ahead of the clock: conflict cycles come last
        over = ce.acct - m.s.now
        part = over if over < ce.tail_conflict else ce.tail_conflict
        sums[COUNT_STALL_CONFLICT] -= part
        over -= part
        part = over if over < sums[COUNT_BUSY] else sums[COUNT_BUSY]
        sums[COUNT_BUSY] -= part
        over -= part
        for k in range(COUNT_IDLE + 1, COUNT_IDLE + N_WAITS):   # only after a fault elsewhere stopped the clock
            part = over if over < sums[k] else sums[k]
            sums[k] -= part
            over -= part
    total = sums[COUNT_BUSY]
    for k in range(COUNT_IDLE + 1, COUNT_IDLE + N_WAITS):
        total += sums[k]
    sums[COUNT_IDLE] = m.s.now - total


def counters(Memory m, spec):
    """Return dict name -> uint64 array (height, width); see docs/internals.md."""
    out = np.zeros((N_COUNTS, m.s.f.height, m.s.f.width), np.uint64)
    out[COUNT_IDLE][spec.program_index >= 0] = m.s.now       # those that have never done anything are idle
    cdef uint64_t[:, :, ::1] v = out
    cdef int k
    cdef uint32_t n, cell
    cdef uint64_t[N_COUNTS] sums
    m.settle()
    for n in range(m.s.n_awake):
        cell = m.s.awake[n]
        _counts(m, cell, sums)
        for k in range(N_COUNTS):
            v[k, cell // m.s.f.stride - 1, cell % m.s.f.stride - 1] = sums[k]
    return dict(zip(COUNTERS, out))


def totals(Memory m, spec, int low, int high):
    """Return dict name -> sum of a counter over the PEs of rows `low` to `high` - 1.

    Gain: 0.08 s instead of 0.29 after an all-reduce over the 753,972 PEs of a wafer, whose arrays would be 90 MB.
    """
    cdef uint64_t[N_COUNTS] sums
    cdef uint64_t[N_COUNTS] found
    cdef uint32_t n, cell
    cdef uint64_t idle = np.count_nonzero(spec.program_index[low:high] >= 0)
    cdef int k
    memset(found, 0, sizeof(found))
    m.settle()
    for n in range(m.s.n_awake):
        cell = m.s.awake[n]
        if low <= <int>(cell // m.s.f.stride) - 1 < high:
            _counts(m, cell, sums)
            idle -= 1
            for k in range(N_COUNTS):
                found[k] += sums[k]
    found[COUNT_IDLE] += idle * m.s.now      # those that have never done anything
    return {name: found[k] for k, name in enumerate(COUNTERS)}


def no_work():
    """Return a table of no work, as `work` does."""
    return np.zeros((N_OPS, N_HALVES, WORK_COLUMNS), np.uint64)


def work(Memory m):
    """Return the table of instructions and elements done so far (`wse_core.work`)."""
    out = no_work()
    cdef uint64_t[:, :, ::1] view = out
    cdef uint64_t* found = &view[0, 0, 0]
    cdef uint32_t n, uts
    cdef ce_t* ce
    m.settle()
    memcpy(found, m.s.work, out.nbytes)
    for n in range(m.s.n_awake):        # of operations that go on
        ce = m.s.f.ce[m.s.awake[n]]
        if ce.main_state == MAIN_VECTOR:
            found[ce.main.form.work] += done_by(&ce.main)
        uts = ce.uts
        while uts:
            found[ut_of(ce, ctz64(uts)).form.work] += ut_of(ce, ctz64(uts)).k
            uts &= uts - 1
    return out


def link_counts(Memory m, spec):
    """Return dict color -> uint64 (height, width, 5): wavelets that left each input port's queue."""
    result = {}
    cdef uint64_t[:, :, ::1] v
    cdef int c, p, x, y
    for c in spec.routes:
        out = np.zeros((m.s.f.height, m.s.f.width, N_PORTS), np.uint64)
        v = out
        for p in range(N_PORTS):
            if m.s.plane[c * N_PORTS + p].queues == NULL:
                continue
            for y in range(m.s.f.height):
                for x in range(m.s.f.width):
                    if has_queue(&m.s.plane[c * N_PORTS + p], m.cell(x, y)):
                        v[y, x, p] = queue_at(&m.s.plane[c * N_PORTS + p], m.cell(x, y))[0] >> MOVED
        result[c] = out
    return result


cdef list _ring(Memory m, uint64_t* slots, int head, int cap):
    cdef int k
    out = []
    for k in range(cap):
        word = slots[(head + k) % cap]
        if not is_valid(word):
            break
        out.append((<uint32_t>word, int(is_control(word)), ready_cycle(word, m.s.now)))
    return out

cdef list _input(Memory m, ce_t* ce, int queue):
    cdef inq_t* q = inq_at(ce, ce.prog.inq_slot[queue])
    return _ring(m, q.slots, q.head, q.cap)

cdef list _queue(Memory m, int c, int p, uint32_t cell):
    cdef plane_t* q = &m.s.plane[c * N_PORTS + p]
    if not has_queue(q, cell):
        return []
    cap = cap_of(q, cell)
    return _ring(m, queue_at(q, cell) + 1, queue_at(q, cell)[0] & HEAD, cap) if cap else []

cdef dict _ce_snapshot(Memory m, int x, int y):
    cdef ce_t* ce = m.ce(x, y)
    cdef program_t* g = ce.prog
    cdef int k, f
    cdef thread_t* th
    cdef dsr_t* d
    state = MAIN_STATES[ce.main_state]
    if ce.main_state == MAIN_STARTING and m.s.now > ce.next:
        state = "run"
    threads = {}
    for k in range(8):
        if ce.uts >> k & 1:
            th = ut_of(ce, k)
            threads[k] = (th.k, _length(th.n))
    if ce.main_state == MAIN_VECTOR:
        threads[MAIN] = (done_by(&ce.main), _whole(ce))
    queues = {k: _input(m, ce, k) for k in range(N_BINDINGS) if g.inq_slot[k] >= 0}
    fifos = {}
    for k in range(g.n_fifo):
        fifos[k] = _fifo(m, ce, k)
    registers = {}
    for f in range(3):
        for k in range(16):
            if g.dsr_slot[f][k] >= 0 and dsr_at(ce, g.dsr_slot[f][k]).number:
                d = dsr_at(ce, g.dsr_slot[f][k])
                registers[f, k] = (base_in(ce, d), extent_in(ce, d), stride_in(ce, d), index_in(ce, d))
    return {
        "regs": [ce.regs[k] for k in range(N_REGS)], "main": state,
        "pc": -1 if ce.main_state == MAIN_IDLE else (g.code[ce.pc].at if ce.pc < g.n_code else -1),
        "threads": threads, "activated": ce.activated, "blocked": ce.blocked, "held": ce.held,
        "inq": {k: words for k, words in queues.items() if words},
        "fifo": fifos, "dsr": registers,
        "prng": (ce.prng, [lfsr_of(ce)[k] if g.draws else m.s.f.seed for k in range(4)]),
    }

cdef list _fifo(Memory m, ce_t* ce, int number):
    cdef int k
    cdef desc_t* d
    cdef fifo_t* fifo = <fifo_t*>(<char*>ce + ce.prog.fifo_at) + number
    cdef program_t* g = ce.prog
    for k in range(<int>g.n_desc):
        d = &g.descriptors[k]
        if d.kind == DSD_FIFO and d.xdsr == number and d.length:
            return [(fifo.head + k) % d.length for k in range(fifo.count)]
    return []


def snapshot(Memory m, spec):
    """Return the canonical state for comparison with another machine; see docs/internals.md."""
    cdef int c, p
    cdef uint32_t cell
    cdef uint64_t word
    counted = counters(m, spec)
    pes = {}
    for y, x in np.argwhere(spec.program_index >= 0).tolist():
        pes[x, y] = _ce_snapshot(m, x, y)
        pes[x, y]["counters"] = {name: int(values[y, x]) for name, values in counted.items()}
    routers = {}
    for y in range(m.s.f.height):
        for x in range(m.s.f.width):
            cell = m.cell(x, y)
            entry = {}
            for c in spec.routes:
                word = m.s.f.route[c][cell]
                queues = {p: _queue(m, c, p, cell) for p in range(N_PORTS)}
                entry[c] = {"pos": word >> RT_POS & 3, "teardown": word >> RT_TEARDOWN & 1,
                            "queues": {p: q for p, q in queues.items() if q},
                            "moved": [queue_at(&m.s.plane[c * N_PORTS + p], cell)[0] >> MOVED
                                      if has_queue(&m.s.plane[c * N_PORTS + p], cell) else 0
                                      for p in range(N_PORTS)]}
            if m.s.f.filters != NULL and spec.filters["kind"][y, x].any():
                counts = [m.s.f.filters[<uint64_t>cell * N_FILTERS + p].counter
                          for p in range(spec.filters.shape[2])]
                entry.update({-1: {"filters": counts}})
            routers[x, y] = entry
    return {"cycle": m.s.now, "pe": pes, "router": routers, "work": found_in(work(m))}


def waiters(Memory m, spec):
    """Return what is left to do and why it cannot go on; see docs/internals.md."""
    cdef int c, p, k
    cdef ce_t* ce
    cdef thread_t* th
    cdef uint32_t cell
    out = []
    for cell in sorted(_busy(m)):
        x, y = cell % m.s.f.stride - 1, cell // m.s.f.stride - 1
        ce = m.s.f.ce[cell]
        if ce.main_state == MAIN_FAULT:
            continue
        if ce.main_state == MAIN_VECTOR and not (ce.main.n == NO_END and _reason(m, ce, cell, &ce.main) == WAIT_INPUT):
            out.append(_thread(m, x, y, ce, &ce.main))
        elif ce.main_state == MAIN_RUN or ce.main_state == MAIN_STARTING:
            out.append({"kind": "thread", "x": x, "y": y, "thread": "main",
                        "op": _isa.OPS[ce.prog.code[ce.pc].op].name,
                        "reason": "resource", "color": None, "queue": None, "done": 0, "length": 0})
        for k in range(8):
            if ce.uts >> k & 1:
                th = ut_of(ce, k)
                if not (th.n == NO_END and _reason(m, ce, cell, th) == WAIT_INPUT):
                    out.append(_thread(m, x, y, ce, th))
        for k in range(N_BINDINGS):
            if ce.prog.inq_slot[k] >= 0:
                words = _input(m, ce, k)
                if words:
                    out.append({"kind": "queue", "x": x, "y": y, "queue": k, "color": ce.prog.inq_color[k],
                                "wavelets": len(words)})
        for k in range(32):
            if (ce.activated & ce.prog.bound) >> k & 1:
                out.append({"kind": "task", "x": x, "y": y, "task": k})
    for c in spec.routes:
        for p in range(N_PORTS):
            for cell in _marked(m, c * N_PORTS + p):
                words = _queue(m, c, p, cell)
                if words:
                    x, y = cell % m.s.f.stride - 1, cell // m.s.f.stride - 1
                    out.append(_stuck(m, x, y, c, p, len(words), words[0]))
    for k in range(m.s.n_ins):
        if m.s.ins[k].at < m.s.ins[k].n:
            out.append({"kind": "stream", "index": k, "left": m.s.ins[k].n - m.s.ins[k].at})
    return out


def lost(Memory m):
    """Return the tasks, (x, y, id), that were activated again before they had begun."""
    cdef uint32_t i, cell
    found = []
    for i in range(m.s.n_awake):
        cell = m.s.awake[i]
        lost = m.s.f.ce[cell].lost
        if lost:
            found += [(cell % m.s.f.stride - 1, cell // m.s.f.stride - 1, k) for k in range(32) if lost >> k & 1]
    return sorted(found)


cdef list _busy(Memory m):
    # Cells whose CEs have something left to do; nothing is made for the others, of which there may be many.
    cdef uint32_t k, q
    cdef ce_t* ce
    cdef inq_t* i
    cdef bint left
    cells = []
    for k in range(m.s.n_awake):
        ce = m.s.f.ce[m.s.awake[k]]
        left = ce.main_state != MAIN_IDLE or ce.uts or ce.activated & ce.prog.bound
        for q in range(<uint32_t>ce.prog.n_inq):
            i = inq_at(ce, q)
            left = left or is_valid(i.slots[i.head])
        if left:
            cells.append(m.s.awake[k])
    return cells

cdef list _marked(Memory m, int plane):
    # Cells whose queues of this plane hold wavelets; those that wait for room are not in the activity maps.
    cdef uint32_t cell, w
    cdef uint64_t there
    cdef plane_t* q = &m.s.plane[plane]
    cells = []
    for w in range(m.s.f.n_words if q.used else 0):
        there = q.own[w] if q.own != NULL else ~<uint64_t>0
        while there:
            cell = w * 64 + ctz64(there)
            there &= there - 1
            if cell >= m.s.f.n_cells:
                break                       # the last word of a set is not full
            if q.cap != NULL and q.cap[cell] == 0:
                continue                    # not even looked at: reading would make it resident
            if is_valid(plane_head(q, cell)[0]):
                cells.append(cell)
    return cells

cdef _whole(ce_t* ce):
    # The length of the main thread's operation.
    cdef const form_t* f = ce.main.form
    if not f.row:
        return _length(ce.main.n)
    return length_of(ce, &f.b if f.b.mode == OPND_MEM4D else &f.c if f.c.mode == OPND_MEM4D else &f.a)

cdef int _lacking(Memory m, ce_t* ce, thread_t* th):
    # The input queue whose next wavelet an operation lacks in the cycle that comes next; -1: none.
    cdef int k
    cdef uint64_t word
    cdef inq_t* q
    cdef const opnd_t* o
    if th.kind == KIND_ADVANCE:
        return -1
    for k in range(2):
        o = &th.form.b if k == 0 else &th.form.c
        if o.mode == OPND_FABIN:
            q = inq_at(ce, ce.prog.inq_slot[o.queue])
            word = q.slots[q.head]
            if not takeable(word, m.s.now):
                return o.queue
    return -1

cdef int _reason(Memory m, ce_t* ce, uint32_t cell, thread_t* th):
    # WAIT_* of an operation as its queues stand now: what a look found (`thread_t.wait`) may be long ago, since streams
    # are taken without one.  Operations on FIFOs are looked at in each step.
    cdef uint64_t word
    if _lacking(m, ce, th) >= 0:
        return WAIT_INPUT
    if th.wait == WAIT_FIFO:
        return WAIT_FIFO
    if th.form.a.mode == OPND_FABOUT:
        if th.kind == KIND_ADVANCE and th.form.a.flags & F_FLUSH:
            word = plane_last(&m.s.plane[th.form.a.plane], cell)[0]
        else:
            word = plane_tail(&m.s.plane[th.form.a.plane], cell)[0]
        if not has_room(word, m.s.now):
            return WAIT_OUTPUT
    return WAIT_RESOURCE

cdef dict _thread(Memory m, int x, int y, ce_t* ce, thread_t* th):
    cdef int lacks, why = _reason(m, ce, m.cell(x, y), th)
    reason = {WAIT_INPUT: "input", WAIT_OUTPUT: "output", WAIT_FIFO: "fifo"}.get(why, "resource")
    queue = color = None
    if why == WAIT_OUTPUT:
        queue, color = th.form.a.queue, ce.prog.outq_color[th.form.a.queue]
    elif why == WAIT_INPUT:
        lacks = _lacking(m, ce, th)
        if not _input(m, ce, lacks):        # else it is only not ready yet
            queue, color = lacks, ce.prog.inq_color[lacks]
    return {"kind": "thread", "x": x, "y": y, "thread": THREADS[th.form.id], "op": _isa.OPS[th.form.op].name,
            "reason": reason, "color": color, "queue": queue, "done": done_by(th),
            "length": _whole(ce) if th.form.id == MAIN else _length(th.n)}

cdef dict _stuck(Memory m, int x, int y, int c, int p, int n, head):
    cdef uint32_t cell = m.cell(x, y), to
    cdef uint64_t word = m.s.f.route[c][cell]
    cdef int pos = word >> RT_POS & 3
    cdef int d
    cdef uint32_t tx = (word >> (POSITION_BITS * pos + N_PORTS)) & ALL_PORTS
    cdef plane_t* q
    cdef inq_t* i
    reason, blocked = "room", []
    if word >> RT_TEARDOWN & 1:
        reason = "teardown"
    elif word >> RT_INJECT & 3:
        reason = "inject"
    elif not word >> (POSITION_BITS * pos + p) & 1:
        reason = "rx"
    if reason == "room" or reason == "inject":
        for d in range(N_PORTS):
            if not tx >> d & 1:
                continue
            if d == DIR_R:
                if not word >> RT_HAS_INQ & 1:
                    blocked.append(d)
                else:
                    i = inq_at(m.s.f.ce[cell], word >> RT_INQ & (N_BINDINGS - 1))
                    if is_valid(i.slots[i.tail]):
                        blocked.append(d)
            else:
                q = &m.s.plane[c * N_PORTS + (d ^ 1)]
                to = cell + m.s.f.delta[d]
                if q.queues == NULL:
                    blocked.append(d)
                elif is_border(m.s, to):
                    if host_at(q, to) == 0 or not host_takes(&m.s.outs[host_at(q, to) - 1], m.s.now):
                        blocked.append(d)
                elif is_valid(plane_tail(q, to)[0]):
                    blocked.append(d)
        if (tx == 0 and m.s.f.sinks[c] != NULL and m.s.f.sinks[c][cell]
                and not host_takes(&m.s.outs[m.s.f.sinks[c][cell] - 1], m.s.now)):
            blocked.append(DIR_HOST)
    return {"kind": "router", "x": x, "y": y, "color": c, "port": p, "wavelets": n, "reason": reason,
            "blocked": blocked}


cdef int _length(uint32_t n):
    # The length of an operation as its descriptor has it.
    return ENDLESS if n == NO_END else n
