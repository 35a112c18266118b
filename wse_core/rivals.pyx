# cython: overflowcheck=False
"""Rivals of a stream: colors with which it shares an output of a router, and the first cycle in which they may ask.

Whoever asks for a shared output delays others that ask for it in the same cycle.  `earliest` gives a bound for a color
that has no wavelet in a queue of a router: it goes upstream, against the way that a wavelet would have to come, and
adds up what each piece of that way takes at least, until the sum is enough or something may happen there now.

* A link takes router.hop cycles, and the way down a ramp, through a CE and up again ramp.in + ramp.execute + ramp.out.
* A CE whose main thread, alone, waits for words of some color sends nothing before one of these has come; if it is not
  this operation that sends, not before all that are missing have come, one per cycle.  So the search goes on with that
  color.
* A switch changes only when a control wavelet of its color passes, which comes behind the words of its operation.
* Where one PE sends a color, the search jumps to it, if as many wavelets have left it as have passed here: none is on
  its way.

Reads queues, routes and CEs of all rows: they must stand at one clock.
"""
from wse_core.block cimport *
from wse_core.builtins cimport *
from wse_core.queue cimport *
from wse_core.records cimport *
from wse_core.route cimport *


cdef enum:
    MANY = 0xFFFFFFFF       # not one PE sends the color, or who does cannot be told
    STEPS = 1 << 16         # of a search, which may go round in a ring of PEs that wait for each other

cdef uint64_t GENERAL = (<uint64_t>1 << RT_TEARDOWN) | (<uint64_t>1 << RT_SPECIAL)


cdef inline uint32_t all_rx(uint64_t route) noexcept nogil:
    # Inputs in any position; invalid positions have none.
    return rx_of(route, 0) | rx_of(route, 1) | rx_of(route, 2) | rx_of(route, 3)

cdef inline uint32_t all_tx(uint64_t route) noexcept nogil:
    return tx_of(route, 0) | tx_of(route, 1) | tx_of(route, 2) | tx_of(route, 3)

cdef uint32_t source_of(region_t* s, int color) noexcept nogil:
    # The one PE from whose ramp a color comes, over routes that never change; MANY if it is not so.
    cdef uint32_t cell, found = 0, valid
    cdef uint64_t route
    cdef int k
    if s.f.source[color]:
        return s.f.source[color]
    s.f.source[color] = MANY
    if s.f.swaps:
        return MANY
    for k in range(s.n_ins):
        if s.ins[k].color == color:
            return MANY
    for cell in range(s.f.n_cells):
        route = s.f.route[color][cell]
        if route == 0:
            continue
        valid = <uint32_t>(route >> RT_VALID) & 15
        if valid & (valid - 1):
            return MANY
        if all_rx(route) & RAMP:
            if found:
                return MANY
            found = cell
    s.f.source[color] = found if found else MANY
    return s.f.source[color]

cdef inline uint64_t moved_out(plane_t* q, uint32_t cell) noexcept nogil:
    return queue_at(q, cell)[0] >> MOVED

cdef inline uint64_t distance(region_t* s, uint32_t a, uint32_t b) noexcept nogil:
    cdef int64_t dx = <int64_t>(a % s.f.stride) - <int64_t>(b % s.f.stride)
    cdef int64_t dy = <int64_t>(a // s.f.stride) - <int64_t>(b // s.f.stride)
    return <uint64_t>((dx if dx > 0 else -dx) + (dy if dy > 0 else -dy))

cdef inline bint alone_in_flow(ce_t* ce) noexcept nogil:
    return ce.main_state == MAIN_VECTOR and ce.main.kind == KIND_FLOW and not ce.uts

cdef inline bint waits_for_words(ce_t* ce) noexcept nogil:
    # The main thread, alone, for the next word of its input queue, which is empty.
    cdef inq_t* q
    if not alone_in_flow(ce) or ce.main.inq == NO_PLACE:
        return False
    q = inq_at(ce, ce.main.inq)
    return not is_valid(q.slots[q.head])

cdef inline uint64_t words_left(ce_t* ce) noexcept nogil:
    return (ce.main.n - ce.main.k + ce.main.form.group - 1) // ce.main.form.group

cdef inline bint may_end_early(region_t* s, ce_t* ce) noexcept nogil:
    # Whether a control wavelet among the words may end the operation.
    cdef const form_t* f = ce.main.form
    cdef const opnd_t* o = &f.b if f.b.mode == OPND_FABIN else &f.c
    return ((s.controls >> inq_at(ce, ce.main.inq).color) & 1
            and desc_of(ce, dsr_at(ce, o.dsr)).on_control & ON_TERMINATE)

cdef inline bint holds(region_t* s, plane_t* q, uint32_t cell, bint control) noexcept nogil:
    # Whether something is in a queue, or a control wavelet.
    cdef uint64_t* m = queue_at(q, cell)
    cdef uint64_t* places = m + 1
    cdef uint32_t k
    if not control:
        return is_valid(head_in(m)[0]) or (q.timed and granted_at(q, cell)[0] > s.now)  # or a train is still to pass
    for k in range(cap_of(q, cell)):
        if is_valid(places[k]) and is_control(places[k]):
            return True
    return False

cdef uint64_t earliest(region_t* s, int color, uint32_t cell, bint control, uint64_t enough) noexcept nogil:
    # No wavelet of a color, or no control wavelet, can be granted by a router before this cycle, or, if that is later,
    # before `enough`.  Switches: the first to come does so in the present position, as only a control wavelet of the
    # color that has passed changes it.
    cdef uint64_t route, t = s.now, plus = 0
    cdef uint32_t ins, up, source
    cdef plane_t* q
    cdef plane_t* sends
    cdef ce_t* ce
    cdef int port, _step
    for _step in range(STEPS):
        t = max(t, s.now + plus)
        if t >= enough or s.f.route[color] == NULL:
            return t if t >= enough else NEVER
        route = s.f.route[color][cell]
        ins = rx_of(route, pos_of(route))
        if ins == 0:
            return NEVER
        if route & GENERAL or ins & (ins - 1):
            return t
        port = ctz64(ins)
        q = &s.plane[color * N_PORTS + port]
        if q.queues == NULL:
            return NEVER
        if holds(s, q, cell, control):
            return t
        if port == DIR_R:
            ce = s.f.ce[cell]
            if ce == NULL:
                return NEVER
            if ce.prog == NULL:
                return t
            plus += s.f.p.execute + s.f.p.ramp_out
            t = max(t, max(s.now, ce.acct) + plus)
            if not waits_for_words(ce):
                if control and alone_in_flow(ce) and ce.main.inq == NO_PLACE and ce.main.plane == plane_number(q):
                    t += words_left(ce)         # they go first, one per cycle
                return t
            plus += s.f.p.ramp_in
            if control or ce.main.plane != plane_number(q):
                if ce.main.n == NO_END:
                    return t
                if not may_end_early(s, ce):
                    plus += words_left(ce)
            color = inq_at(ce, ce.main.inq).color
            control = False
            continue
        up = cell + s.f.delta[port]
        if is_border(s, up):
            return t
        source = MANY if control else source_of(s, color)
        sends = &s.plane[color * N_PORTS + DIR_R]
        if source != MANY and sends.queues != NULL and moved_out(q, cell) == moved_out(sends, source):
            plus += s.f.p.hop * distance(s, cell, source)
            cell = source
            continue
        route = s.f.route[color][up]
        if not (all_tx(route) >> (port ^ 1)) & 1:
            return NEVER
        if not (tx_of(route, pos_of(route)) >> (port ^ 1)) & 1:
            control = True                      # must switch it first
        plus += s.f.p.hop
        cell = up
    return t

cdef bint undisturbed(region_t* s, int color, uint32_t cell, uint32_t outs, uint64_t until) noexcept nogil:
    # Whether no other color asks for any of these outputs of a router before cycle `until`: not in the present position
    # of its switch, and not in another one to which a control wavelet may take it.
    cdef uint64_t route
    cdef bint now
    cdef int c
    for c in range(N_COLORS):
        if c == color or s.f.route[c] == NULL:
            continue
        route = s.f.route[c][cell]
        if not all_tx(route) & outs:
            continue
        now = tx_of(route, pos_of(route)) & outs != 0
        if (now or (s.controls >> c) & 1) and earliest(s, c, cell, not now, until) < until:
            return False
    return True
