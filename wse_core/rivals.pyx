# cython: overflowcheck=False
"""Rivals of a stream: colors with which it shares an output of a router, and the first cycle in which they may ask.

Whoever asks for a shared output delays others that ask for it in the same cycle.  `earliest` gives a bound for a color
that has no wavelet in a queue of a router: it goes upstream, against the way that a wavelet would have to come, and
adds up what each piece of that way takes at least, until the sum is enough or something may happen there now.

* A link takes router.hop cycles, and the way down a ramp, through a CE and up again ramp.in + ramp.execute + ramp.out.
* A CE whose main thread, alone, waits for words of some color sends nothing before one of these has come; if it is not
  this operation that sends, not before all that are missing have come, one per cycle.  So the search goes on with that
  color.
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

cdef inline bint waits_for_words(ce_t* ce) noexcept nogil:
    # The main thread, alone, for the next word of its input queue, which is empty.
    cdef inq_t* q
    if ce.main_state != MAIN_VECTOR or ce.main.kind != KIND_FLOW or ce.uts or ce.main.inq == NO_PLACE:
        return False
    q = inq_at(ce, ce.main.inq)
    return not is_valid(q.slots[q.head])

cdef uint64_t earliest(region_t* s, int color, uint32_t cell, uint64_t enough) noexcept nogil:
    # No wavelet of a color can be granted by a router before this cycle, or, if that is later, before `enough`.
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
        ins = all_rx(route)
        if ins == 0:
            return NEVER
        if route & GENERAL or ins & (ins - 1):
            return t
        port = ctz64(ins)
        q = &s.plane[color * N_PORTS + port]
        if q.queues == NULL:
            return NEVER
        if is_valid(plane_head(q, cell)[0]) or (q.timed and granted_at(q, cell)[0] > s.now):
            return t                            # one is there, or those of a train are still to pass
        if port == DIR_R:
            ce = s.f.ce[cell]
            if ce == NULL:
                return NEVER
            if ce.prog == NULL:
                return t
            plus += s.f.p.execute + s.f.p.ramp_out
            t = max(t, max(s.now, ce.acct) + plus)
            if not waits_for_words(ce):
                return t
            plus += s.f.p.ramp_in
            color = inq_at(ce, ce.main.inq).color
            if ce.main.plane != plane_number(q):
                if ce.main.n == NO_END:
                    return t
                if not (s.controls >> color) & 1:       # a control wavelet may end the operation
                    plus += (ce.main.n - ce.main.k + ce.main.form.group - 1) // ce.main.form.group
            continue
        up = cell + s.f.delta[port]
        if is_border(s, up):
            return t
        source = source_of(s, color)
        sends = &s.plane[color * N_PORTS + DIR_R]
        if source != MANY and sends.queues != NULL and moved_out(q, cell) == moved_out(sends, source):
            plus += s.f.p.hop * distance(s, cell, source)
            cell = source
            continue
        if not (all_tx(s.f.route[color][up]) >> (port ^ 1)) & 1:
            return NEVER
        plus += s.f.p.hop
        cell = up
    return t

cdef bint undisturbed(region_t* s, int color, uint32_t cell, uint32_t outs, uint64_t until) noexcept nogil:
    # Whether no other color asks for any of these outputs of a router before cycle `until`.
    cdef uint64_t route
    cdef int c
    for c in range(N_COLORS):
        if c == color or s.f.route[c] == NULL:
            continue
        route = s.f.route[c][cell]
        if all_tx(route) & outs and earliest(s, c, cell, until) < until:
            return False
    return True
