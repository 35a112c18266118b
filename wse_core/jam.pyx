# cython: overflowcheck=False
"""Where the words of a stream stand that has been held up, and when each moves on once the way ahead of it is free.

A stream waits where a switch is still to be moved on, or a CE still to begin: its words then fill the queues behind
that place, back to the PE that sends them.  When the way is free at last, they move on as room comes back, queue by
queue against the flow.  A *station* is a queue and who takes words out of it, a router or a CE; the last one is the
memory that the stream comes from.  Word i is taken out of station j in cycle

::

    take[j][i] = max(take[j][i - 1] + 1,                    one per cycle
                     take[j + 1][i] + delay,                it must be here,
                     take[j - 1][i - places] + 1)           and have a place in the next queue

with what waits in the queues at the beginning in place of what lies before.  `jam_runs` computes that word by word,
`jam_moves` brings all stations to their ends: queues empty, what CEs have computed, sent, waited for.  A stream that
has just begun is a jam of one queue.

What must hold: the stations are one line, each queue has one input and one output in the present positions of all
switches, each CE is alone in a flow and does not end it with these words, no other color disturbs (`wse_core.rivals`),
and no router of the line has been promised to a request that waits.  `wse_core.train` has the way ahead.
"""
from wse_core.account cimport *
from wse_core.bitmap cimport map_clear, row_of
from wse_core.block cimport *
from wse_core.builtins cimport *
from wse_core.flow cimport taking_ends
from wse_core.operand cimport *
from wse_core.queue cimport *
from wse_core.records cimport *
from wse_core.rivals cimport undisturbed
from wse_core.route cimport *
from wse_core.stream cimport compute
from wse_core.wake cimport schedule


cdef uint64_t GENERAL = (<uint64_t>1 << RT_TEARDOWN) | (<uint64_t>1 << RT_SPECIAL)


# --- which stations there are -----------------------------------------------------------------------------------------
cdef inline bint waiting_words(jam_t* jam, station_t* at, uint32_t* words) noexcept nogil:
    # Number the words that wait in the station's queue.
    cdef uint64_t word
    at.first = jam.held
    at.held = 0
    while at.held < at.cap:
        word = at.places[(at.head + at.held) % at.cap]
        if not is_valid(word):
            break
        if is_control(word) or jam.held == HELD:
            return False
        words[jam.held] = <uint32_t>word
        jam.held += 1
        at.held += 1
    return True

cdef bint router_stands(region_t* s, jam_t* jam, plane_t* q, uint32_t cell, uint32_t outs, uint32_t row,
                        uint32_t* words) noexcept nogil:
    # Add the router of a cell, which takes the stream out of this queue.
    cdef station_t* at = &jam.at[jam.n]
    if jam.n + 2 >= STATIONS or cap_of(q, cell) > PLACES or (not s.one_clock and row_of(&s.f.grid, cell) != row):
        return False
    if jam.n and (s.f.arb[2 * cell] | s.f.arb[2 * cell + 1]) >> q.color & 1:
        return False
    at.ce = NULL
    at.q = q
    at.inq = NULL
    at.m = queue_at(q, cell)
    at.places = at.m + 1
    at.cell = cell
    at.cap = cap_of(q, cell)
    at.head = at.m[0] & HEAD
    at.outs = outs
    at.delay = s.f.p.execute + s.f.p.ramp_out if q.port == DIR_R else s.f.p.hop
    if not waiting_words(jam, at, words):
        return False
    jam.n += 1
    return True

cdef bint ce_stands(region_t* s, jam_t* jam, plane_t* q, uint32_t cell, uint32_t* words) noexcept nogil:
    # Add the CE of a cell, which sends into this queue.
    cdef station_t* at = &jam.at[jam.n]
    cdef ce_t* ce = s.f.ce[cell]
    cdef thread_t* th
    cdef uint32_t rest
    if ce == NULL or ce.prog == NULL:
        return False
    th = &ce.main
    if (ce.main_state != MAIN_VECTOR or th.kind != KIND_FLOW or th.form.plane != plane_number(q) or th.form.group != 1
            or th.form.zeroes or ce.uts or ce.rr != MAIN or ce.teardown_due or th.n - th.k < 2
            or not ce.takes and (th.next > ce.acct or ce.pipe_free > ce.acct)
            or ce.wait != WAIT_OUTPUT and (ce.wait != WAIT_INPUT or th.form.inq == NO_PLACE)):
        return False
    at.ce = ce
    at.q = q
    at.cell = cell
    at.delay = s.f.p.ramp_in
    at.inq = NULL
    at.cap = 0
    at.first = jam.held
    at.held = 0
    if th.form.inq != NO_PLACE:
        at.inq = inq_at(ce, th.form.inq)
        at.places = at.inq.slots
        at.cap = at.inq.cap
        at.head = at.inq.head
        if at.cap > PLACES or not waiting_words(jam, at, words):
            return False
    rest = th.n - th.k - 1
    if th.form.inq == NO_PLACE:
        rest = min(rest, WORDS - th.k % WORDS)
    jam.most = min(jam.most, at.first + rest)
    jam.n += 1
    return True

cdef bint jam_stands(region_t* s, jam_t* jam, plane_t* q, uint32_t cell, uint32_t* words) noexcept nogil:
    # Find the stations of the stream that comes out of a ramp's queue, and the words that wait in them.  False: it is
    # not such a stream.
    cdef uint32_t row = row_of(&s.f.grid, cell), outs, ports
    cdef uint64_t route
    cdef int color
    jam.n = 0
    jam.held = 0
    jam.most = 0xFFFFFFFF
    if not router_stands(s, jam, q, cell, 0, row, words):
        return False
    while ce_stands(s, jam, q, cell, words):
        if jam.at[jam.n - 1].inq == NULL:
            return True
        color = jam.at[jam.n - 1].inq.color
        outs = RAMP
        while True:
            if s.f.route[color] == NULL:
                return False
            route = s.f.route[color][cell]
            ports = rx_of(route, pos_of(route))
            if route & GENERAL or ports == 0 or ports & (ports - 1) or tx_of(route, pos_of(route)) != outs:
                return False
            q = &s.plane[color * N_PORTS + ctz64(ports)]
            if q.queues == NULL or not router_stands(s, jam, q, cell, outs, row, words):
                return False
            if q.port == DIR_R:
                break
            cell += s.f.delta[q.port]
            outs = <uint32_t>1 << (q.port ^ 1)
            if is_border(s, cell):
                return False
    return False


# --- when they move ---------------------------------------------------------------------------------------------------
cdef inline uint64_t place_free(region_t* s, station_t* at, uint32_t i) noexcept nogil:
    # The first cycle in which word i may be put into a station's queue.
    cdef uint32_t k = i - at.first
    if k < at.cap:
        return ready_cycle(at.places[(at.head + k) % at.cap], s.now)
    return at.takes[(i - at.cap) % PLACES] + 1

cdef void begins(region_t* s, station_t* at) noexcept nogil:
    cdef uint32_t before = at.head + at.cap - 1
    at.hungry = 0
    at.blocked = 0
    if at.ce != NULL:
        at.next = at.ce.acct
    else:
        at.next = s.now
        if at.held < at.cap:            # the place before its head became free when it moved last
            at.next = max(s.now, ready_cycle(at.places[before % at.cap], s.now))

cdef void jam_runs(region_t* s, jam_t* jam, uint32_t n, uint64_t* grants) noexcept nogil:
    # When n words are taken out of each station; `grants`: out of the first one.
    cdef station_t* at
    cdef uint32_t i, j, last = 0
    cdef uint64_t t, ready
    for j in range(jam.n):
        begins(s, &jam.at[j])
    for i in range(n):
        while last + 1 < jam.n and i >= jam.at[last].first + jam.at[last].held:
            last += 1                   # the station in which the word is, or the memory that it comes from
        ready = 0
        if i < jam.at[last].first + jam.at[last].held:
            ready = ready_cycle(jam.at[last].places[(jam.at[last].head + i - jam.at[last].first) % jam.at[last].cap],
                                s.now)
        j = last + 1
        while j:
            j -= 1
            at = &jam.at[j]
            t = max(at.next, ready)
            if t > at.next:
                at.hungry += t - at.next
            if j:
                ready = place_free(s, &jam.at[j - 1], i)
                if ready > t:
                    at.blocked += ready - t
                    t = ready
                ready = t + jam.at[j - 1].delay
            at.takes[i % PLACES] = t
            at.next = t + 1
        grants[i] = jam.at[0].next - 1

cdef bint jam_undisturbed(region_t* s, jam_t* jam) noexcept nogil:
    # Whether no other color asks for an output of the line before the last word has passed.  (The first station is the
    # begin of the way ahead.)
    cdef station_t* at
    cdef uint32_t j
    for j in range(1, jam.n):
        at = &jam.at[j]
        if at.ce == NULL and (s.f.route[at.q.color][at.cell] >> RT_SHARED) & 1 and undisturbed(
                s, at.q.color, at.cell, at.outs, at.next) < at.next:
            return False
    return True


# --- moving them ------------------------------------------------------------------------------------------------------
cdef inline uint32_t emptied(station_t* at, uint32_t n) noexcept nogil:
    # Words up to n have gone through a queue: when its places became free, where it goes on.
    cdef uint32_t through = n - at.first, k = through - min(through, at.cap)
    while k < through:
        at.places[(at.head + k) % at.cap] = stamp_of(at.takes[(at.first + k) % PLACES] + 1)
        k += 1
    return (at.head + through) % at.cap

cdef void router_moves(region_t* s, station_t* at, uint32_t n, bint passes) noexcept nogil:
    # `passes`: as a part of the way ahead it is counted there.
    cdef uint32_t head = emptied(at, n)
    cdef uint64_t moved = at.m[0] >> MOVED
    if not passes:
        moved += n - at.first
        s.hops += n - at.first
        at.q.used = True
        if at.q.timed:
            at.m[at.q.size - 1] = at.next
    at.m[0] = moved << MOVED | head | head << TAIL
    map_clear(&at.q.map, at.cell)

cdef void ce_moves(region_t* s, station_t* at, uint32_t n, uint32_t* words) noexcept nogil:
    cdef ce_t* ce = at.ce
    cdef thread_t* th = &ce.main
    cdef uint32_t through = n - at.first
    if ce.takes:
        taking_ends(ce)
    compute(ce, words + at.first, words + at.first, through)
    ce.counts[COUNT_STALL_INPUT] += <uint32_t>at.hungry
    ce.counts[COUNT_STALL_OUTPUT] += <uint32_t>at.blocked
    ce.counts[COUNT_BUSY] += through
    ce.counts[COUNT_STEPS] += through
    ce.counts[COUNT_ELEMENTS] += through
    ce.counts[COUNT_SENT] += through
    if is_mac(th.form.op):
        ce.counts[COUNT_MACS] += through
    if at.inq != NULL:
        ce.counts[COUNT_RECEIVED] += through
        at.inq.head = <uint8_t>emptied(at, n)
        at.inq.tail = at.inq.head
        at.inq.sleeper = 0
    ce.wait = WAIT_OUTPUT if at.inq == NULL else WAIT_INPUT
    ce.acct = ce.pipe_free = th.next = ce.resume = at.next
    ce.tail_conflict = 0
    ce.want_space = 0
    th.k += through

cdef void jam_moves(region_t* s, jam_t* jam, uint32_t n, uint32_t* words) noexcept nogil:
    # All is as `jam_runs` has found for n words; `words` become what the first station's router moves.
    cdef station_t* at
    cdef uint64_t room
    cdef uint32_t j = jam.n
    while j:
        j -= 1
        at = &jam.at[j]
        if at.ce == NULL:
            router_moves(s, at, n, j == 0)
        else:
            ce_moves(s, at, n, words)
        s.events += 1
    for j in range(jam.n):
        at = &jam.at[j]
        if at.ce != NULL:               # it goes on behind the words, where there is room for what it sends
            room = ready_cycle(plane_tail(at.q, at.cell)[0], at.next)
            schedule(s, at.cell, max(at.next, room), at.next)
