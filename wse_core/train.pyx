# cython: overflowcheck=False
"""Trains: many words of a stream moved along their whole way in one walk, instead of hop by hop.

When the router of a PE is about to move the first word of a full queue, and the main thread of that PE is alone in a
flow from memory that waits for room in it, all that the words will meet may be known already: every router of the way
passes words of this color as they come, every CE takes each in the cycle in which it is ready, and nothing can hold
them up.  Then the cycle of each event follows from the cycles in which the first router grants the words:

::

    grant here             t[k] + shift                     shift grows by router.hop from router to router,
    step of a CE           t[k] + shift + ramp.in           and by ramp.in + ramp.execute + ramp.out where a CE
    grant of what it sends t[k] + shift + ramp.in + ...     sends on what it has computed

`walk` goes along the way twice: first it asks whether all this holds and how many words may go, and changes nothing;
then it moves them: for each CE all elements at once, by the kernels of vector operations, and counters, and what queues
remember.  No word is left in a queue on the way, and the last element of each operation stays for the ordinary way,
which also ends it.  A train is over before the horizon of the run (`region_t.ahead`), so a run may be cut anywhere.

What holds on a way that is free:

* each queue on it is empty, and only its own stream comes into it: a queue has one color and one router that fills it;
* a CE on it waits for nothing but this stream, with the main thread alone in a flow: it hears nothing else before the
  next word; so it does not send or change routes either (programs that write routes switch trains off);
* words come at most one per cycle, so that queues as deep as what lies between them is long never fill;
* a color that shares an output with others is arbitrated: none of them may ask while the train passes
  (`wse_core.rivals`); a control wavelet of the color itself comes behind the words.

Rows at clocks of their own: the way must not leave the row.  Gain: docs/performance.md.
"""
from libc.string cimport memset

from wse_core.account cimport *
from wse_core.bitmap cimport row_of
from wse_core.block cimport *
from wse_core.builtins cimport *
from wse_core.flow cimport BY_LOOK, taking_counts, taking_ends
from wse_core.jam cimport *
from wse_core.operand cimport *
from wse_core.queue cimport *
from wse_core.records cimport *
from wse_core.rivals cimport undisturbed
from wse_core.route cimport *
from wse_core.stream cimport compute


cdef enum:
    ROOM = WORDS + HELD
    TRIES = 64              # so many words of an operation may find the way free, then so many of the next WORDS
    BRANCHES = 64           # of a way that are still to be walked
    BUFFERS = 4             # in which words are kept while several branches need them as they were
    PER_EVENT = 8           # words that take about as long as one that is moved hop by hop

cdef uint64_t GENERAL = (<uint64_t>1 << RT_TEARDOWN) | (<uint64_t>1 << RT_SPECIAL)

ctypedef struct branch_t:   # a queue that the words come to
    uint64_t shift          # cycles from their grants in the first router to those in this one
    uint32_t cell
    uint8_t plane
    uint8_t buffer          # the words as they are there

ctypedef struct way_t:
    uint32_t n              # words; on the first walk no more than so many
    uint32_t least          # and no fewer than so many; 0: whether rivals may ask is left open
    uint32_t row
    uint64_t far            # the longest shift of a router,
    uint64_t reach          # and of anything that happens
    uint64_t grants[ROOM]
    uint32_t n_branches
    branch_t branches[BRANCHES]
    uint32_t users[BUFFERS]     # branches that still need the words of a buffer
    uint32_t words[BUFFERS][ROOM]


# --- the first walk: what must hold -----------------------------------------------------------------------------------
cdef inline bint starved(region_t* s, ce_t* ce, uint32_t cell, int slot, uint64_t lands) noexcept nogil:
    # Whether a CE to which the router does not hand words yet waits for them all the same, and has room for whatever
    # comes down the ramp from cycle `lands` on.
    cdef thread_t* th = &ce.main
    cdef inq_t* q
    cdef int k
    if (ce.main_state != MAIN_VECTOR or th.kind != KIND_FLOW or th.form.inq != slot or ce.wait != WAIT_INPUT or ce.uts
            or th.form.group != 1 or ce.rr != MAIN or th.n - th.k < 2 or th.next > ce.acct or ce.pipe_free > ce.acct
            or ce.resume > lands + s.f.p.ramp_in):
        return False
    q = inq_at(ce, slot)
    if q.cap <= s.f.p.ramp_in or q.sleeper:
        return False
    for k in range(q.cap):
        if not has_room(q.slots[k], lands):
            return False
    return True

cdef inline bint takes_all(region_t* s, way_t* way, uint32_t cell, uint64_t route, uint64_t shift) noexcept nogil:
    # Whether the CE takes every word in the cycle in which it is ready; of how many, at most.
    cdef ce_t* ce = s.f.ce[cell]
    cdef uint64_t lands = way.grants[0] + shift
    cdef int slot = <int>(route >> RT_INQ) & (N_BINDINGS - 1)
    if not (route >> RT_HAS_INQ) & 1 or ce == NULL or ce.prog == NULL or ce.teardown_due:
        return False
    if ce.takes != slot + 1 and (ce.takes and not ce.takes & BY_LOOK or not starved(s, ce, cell, slot, lands)):
        return False
    if ce.acct > lands + s.f.p.ramp_in or ce.main.n - ce.main.k < 2 or ce.main.form.zeroes:
        return False
    way.n = min(way.n, ce.main.n - ce.main.k - 1)
    way.reach = max(way.reach, shift + s.f.p.ramp_in)
    return way.n >= way.least

cdef inline bint passes(region_t* s, way_t* way, const branch_t* at, plane_t* q, uint64_t route) noexcept nogil:
    # Whether a router passes on what comes into this queue in the cycle in which it is ready.
    cdef uint64_t* m = queue_at(q, at.cell)
    cdef uint32_t delay = s.f.p.hop, cap, k
    cdef uint64_t until
    cdef uint64_t comes
    if route & GENERAL or rx_of(route, pos_of(route)) != <uint32_t>1 << q.port or tx_of(route, pos_of(route)) == 0:
        return False
    if at.shift:                    # not the sender's queue
        if q.port == DIR_R:
            delay = s.f.p.execute + s.f.p.ramp_out
        comes = way.grants[0] + at.shift - delay
        cap = cap_of(q, at.cell)
        if cap <= delay or m[0] & SLEEPER:
            return False
        for k in range(cap):
            if not has_room(m[1 + k], comes):
                return False
    if way.least and (route >> RT_SHARED) & 1:      # those that have passed before a rival may ask
        until = undisturbed(s, q.color, at.cell, tx_of(route, pos_of(route)), way.grants[way.n - 1] + at.shift + 1)
        while way.n >= way.least and way.grants[way.n - 1] + at.shift >= until:
            way.n -= 1
        if way.n < way.least:
            return False
    way.far = max(way.far, at.shift)
    way.reach = max(way.reach, at.shift)
    return True


# --- the second walk --------------------------------------------------------------------------------------------------
cdef inline void passed(region_t* s, way_t* way, const branch_t* at, plane_t* q) noexcept nogil:
    # A router has moved the words.
    cdef uint64_t* m = queue_at(q, at.cell)
    m[0] += <uint64_t>way.n << MOVED
    if q.timed:
        m[q.size - 1] = way.grants[way.n - 1] + at.shift + 1
    q.used = True
    s.hops += way.n
    s.events += 1 + way.n // PER_EVENT

cdef inline void taken(region_t* s, way_t* way, ce_t* ce, uint64_t shift, uint32_t* into,
                       uint32_t* out) noexcept nogil:
    # A CE has taken the words, as by as many calls of `flow_takes`.
    cdef bint begins = not ce.takes
    if begins:
        taking_counts(ce, 0xFFFFFFFF)
    compute(ce, into, out, way.n)
    ce.main.k += way.n
    ce.acct = way.grants[way.n - 1] + shift + s.f.p.ramp_in + 1
    if begins:
        taking_ends(ce)


# --- walking ----------------------------------------------------------------------------------------------------------
cdef inline bint branch(way_t* way, uint32_t cell, int plane, uint64_t shift, int buffer) noexcept nogil:
    cdef branch_t* to = &way.branches[way.n_branches]
    if way.n_branches == BRANCHES:
        return False
    way.n_branches += 1
    way.users[buffer] += 1
    to.cell = cell
    to.plane = <uint8_t>plane
    to.shift = shift
    to.buffer = <uint8_t>buffer
    return True

cdef inline int buffer_after(way_t* way, int buffer) noexcept nogil:
    # Where to write what is sent instead of the words of a buffer: there, or if other branches still need them, into
    # another one; BUFFERS: there is none.
    cdef int k = 0
    if way.users[buffer] == 0:
        return buffer
    while k < BUFFERS and way.users[k]:
        k += 1
    return k

cdef inline bint at_router(region_t* s, way_t* way, const branch_t* at, bint moving) noexcept nogil:
    cdef plane_t* q = &s.plane[at.plane]
    cdef uint64_t route
    cdef uint32_t tx, links, ahead, d
    cdef ce_t* ce
    cdef int buffer
    if s.f.route[q.color] == NULL or (not s.one_clock and row_of(&s.f.grid, at.cell) != way.row):
        return False
    route = s.f.route[q.color][at.cell]
    if moving:
        passed(s, way, at, q)
    elif not passes(s, way, at, q, route):
        return False
    tx = tx_of(route, pos_of(route))
    links = tx & 15
    ahead = <uint32_t>1 << (q.port ^ 1) & links     # it is walked last, so that few wait where a line feeds others
    while links:
        d = ctz64(ahead if ahead else links)
        ahead = 0
        links ^= <uint32_t>1 << d
        if not branch(way, at.cell + s.f.delta[d], q.color * N_PORTS + (d ^ 1), at.shift + s.f.p.hop, at.buffer):
            return False
    if not tx & RAMP:
        return True
    if not moving and not takes_all(s, way, at.cell, route, at.shift):
        return False
    ce = s.f.ce[at.cell]
    buffer = at.buffer if ce.main.form.plane == NO_PLACE else buffer_after(way, at.buffer)
    if buffer == BUFFERS:
        return False
    if moving:
        taken(s, way, ce, at.shift, way.words[at.buffer], way.words[buffer])
    return ce.main.form.plane == NO_PLACE or branch(
        way, at.cell, ce.main.form.plane, at.shift + s.f.p.ramp_in + s.f.p.execute + s.f.p.ramp_out, buffer)

cdef bint walk(region_t* s, way_t* way, plane_t* q, uint32_t cell, bint moving) noexcept nogil:
    cdef branch_t at
    way.n_branches = 0
    memset(way.users, 0, sizeof(way.users))
    branch(way, cell, plane_number(q), 0, 0)
    while way.n_branches:
        way.n_branches -= 1
        at = way.branches[way.n_branches]
        way.users[at.buffer] -= 1
        if not at_router(s, way, &at, moving):
            return False
    return True


# --- leaving ----------------------------------------------------------------------------------------------------------
cdef inline bint first_is_free(region_t* s, plane_t* q, uint32_t cell) noexcept nogil:
    # Whether the queues behind the first router are empty; where words move hop by hop they are not.
    cdef uint64_t route = s.f.route[q.color][cell]
    cdef uint32_t links = tx_of(route, pos_of(route)) & 15, d
    while links:
        d = ctz64(links)
        links &= links - 1
        if is_valid(plane_head(q - q.port + (d ^ 1), cell + s.f.delta[d])[0]):
            return False
    return True

cdef inline bint may_go(region_t* s, jam_t* jam, way_t* way, plane_t* q, uint32_t cell, uint32_t n,
                        uint32_t least) noexcept nogil:
    # Whether n words find the way free, or as many of them as are left in `way`, no fewer than `least`.
    way.n = n
    way.least = least
    way.far = 0
    way.reach = 0
    jam_runs(s, jam, n, way.grants)
    return way.grants[0] == s.now and (not least or jam_undisturbed(s, jam)) and walk(s, way, q, cell, False)

cdef bint train_leaves(region_t* s, plane_t* q, uint32_t cell) noexcept nogil:
    # The router of `cell` is about to move the first word of the ramp's queue, and its CE has asked for a train.  True:
    # it has gone, with all that were in that queue, those held up behind it and those that follow.  False: nothing was
    # changed, but that the CE does not ask again before it has been looked at.
    # Most ways are not free for the first word, which takes a twentieth of the instructions of all of them to find out.
    cdef way_t way
    cdef jam_t jam
    cdef ce_t* ce = s.f.ce[cell]
    cdef uint32_t n
    ce.want_space = WANTS_PLACE         # it may wait for room all the same, in this queue or in another
    if (ce.main.k % WORDS >= TRIES or ce.main.n - ce.main.k <= LEAST or not first_is_free(s, q, cell)
            or not jam_stands(s, &jam, q, cell, way.words[0])):
        return False
    way.row = row_of(&s.f.grid, cell)
    n = min(jam.most, ROOM)
    if n < jam.held + LEAST or not may_go(s, &jam, &way, q, cell, 1, 0) or not may_go(
            s, &jam, &way, q, cell, n, jam.held + LEAST):
        return False
    while way.n and way.grants[way.n - 1] + way.reach >= s.ahead:
        way.n -= 1
    if way.n < way.least:
        return False
    if way.n < n:
        jam_runs(s, &jam, way.n, way.grants)
    jam_moves(s, &jam, way.n, way.words[0])
    walk(s, &way, q, cell, True)
    touched(s, way.grants[way.n - 1] + way.reach)
    s.passed = max(s.passed, way.grants[way.n - 1] + way.far + 1)
    s.waiting = 1
    return True
