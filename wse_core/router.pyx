# cython: overflowcheck=False
"""The router phase of a cycle: every wavelet that can move moves one router further.

Reads: queue words stamped no later than the cycle, route words, filters.  Writes: queue words stamped later, route
words and filters (for the next cycle on), wake-ups of CEs.  Because of the stamps the order in which cells and planes
are visited cannot matter (see queue.pxd); the phase costs work per wavelet in a router, nothing per idle router.

Two paths.  *Fast*: a wavelet without a command for the router, of a color that shares no output link of this router
with another color (or none that may ask in this cycle), has one input, no filter, swap, injection or teardown: nothing
to arbitrate.  *General*: all queues of the sharing colors of a router are arbitrated together, once per cycle, in the
order least recently granted first.  A color on the fast path is one for which the general path would give the same
result; the reference model knows only the general rule.

Timing and rules: docs/machine.md, "Router".  Sources: arch §8.  What is not public about it: docs/accuracy.md.
"""
from wse_core.asking cimport asks, asks_general, contested
from wse_core.bitmap cimport map_clear
from wse_core.block cimport ce_awaken, inq_at
from wse_core.builtins cimport TRACE, clz64, ctz64, keep, unlikely
from wse_core.emit cimport emit, record_fault, vary
from wse_core.flow cimport flow_takes, taking_ends
from wse_core.link cimport all_have_room, has_outputs, host_at, later, not_ready, plain_has_room, \
    plane_there, room_at, sleep_on_link, sleep_on_ramp, soon, stream_take, take_head, wake_upstream
from wse_core.queue cimport *
from wse_core.records cimport *
from wse_core.route cimport *
from wse_core.train cimport train_leaves
from wse_core.wake cimport ring_set

cdef uint64_t PAYLOAD = ((<uint64_t>1 << SHIFT_CTRL) << 1) - 1   # payload and control bit
cdef uint64_t GENERAL = (<uint64_t>1 << RT_TEARDOWN) | (<uint64_t>1 << RT_SPECIAL)

ctypedef struct request_t:
    plane_t* q
    uint64_t word
    uint64_t route          # route word of the effective color
    uint64_t granted
    int color               # effective
    uint32_t outs
    int counts              # moves the filter's counter


# --- the general path -------------------------------------------------------------------------------------------------
cdef inline bint held_at_start(region_t* s, int color, int port, uint32_t cell) noexcept nogil:
    # Whether a link queue held a wavelet when this cycle began (one pushed in this cycle is ready in now + hop).
    cdef plane_t* q = &s.plane[color * N_PORTS + port]
    cdef uint64_t word
    if not has_queue(q, cell):
        return False
    word = plane_head(q, cell)[0]
    if not is_valid(word):
        return False
    return port == DIR_R or usable(word, s.now + s.f.p.hop - 1)

cdef bint filter_passes(filter_t* f, uint64_t word, int* counts) noexcept nogil:
    cdef bint control = is_control(word)
    cdef uint32_t index = <uint32_t>(word >> 16) & 0xFFFF
    counts[0] = 0
    if f.kind == FILTER_RANGE:
        return control or (f.min_idx <= index <= f.max_idx)
    if f.kind == FILTER_COUNTER:
        if (f.count_control if control else f.count_data):
            counts[0] = 1
        if f.filter_control:
            return control and f.counter == f.max
        return control or not counts[0] or f.counter <= f.max
    return True

cdef bint make_request(region_t* s, uint32_t cell, int color, int port, request_t* r) noexcept nogil:
    # Fill `r` and return whether the queue asks to move its head in this cycle.
    cdef plane_t* q = &s.plane[color * N_PORTS + port]
    cdef uint64_t word, route, other
    cdef int e = color, inject, axis, k, f
    if not has_queue(q, cell):
        return False
    word = plane_head(q, cell)[0]
    if not is_valid(word):
        return False
    if not usable(word, s.now):
        s.waiting = 1
        return False
    route = s.f.route[color][cell]
    if (route >> RT_SWAP) & 3 and s.f.route[color ^ 1] != NULL:
        other = s.f.route[color ^ 1][cell]
        axis = 1 if port < 2 else (2 if port < 4 else 3)
        if ((route & other) >> RT_SWAP) & axis == axis:
            e = color ^ 1
            route = other
    if (route >> RT_TEARDOWN) & 1:
        return False
    inject = <int>(route >> RT_INJECT) & 3
    if inject and port == DIR_R:
        if inject == INJECT_LOW:
            for k in range(4):
                if held_at_start(s, color, k, cell):
                    return False
    elif not (rx_of(route, pos_of(route)) >> port) & 1:
        return False
    elif inject == INJECT_HIGH and held_at_start(s, color, DIR_R, cell):
        return False
    r.q = q
    r.word = word
    r.route = route
    r.granted = granted_at(q, cell)[0] if q.timed else 0
    r.color = e
    r.outs = outs_of(word, tx_of(route, pos_of(route)))
    if tx_of(route, pos_of(route)) == 0 and not is_own(word) and s.f.sinks[e] != NULL and s.f.sinks[e][cell]:
        r.outs = TO_HOST
    r.counts = 0
    f = <int>(route >> RT_FILTER) & 7
    if f and r.outs & RAMP and not filter_passes(&s.f.filters[<uint64_t>cell * N_FILTERS + f - 1], word, &r.counts):
        r.outs &= ~<uint32_t>RAMP
    return True

cdef inline void deliver(region_t* s, uint32_t cell, uint64_t route, uint64_t payload) noexcept nogil:
    # Down the ramp: into the CE's input queue, or at once to the operation that waits for it.
    cdef ce_t* ce = s.f.ce[cell]
    cdef int slot = <int>(route >> RT_INQ) & (N_BINDINGS - 1)
    if ce.takes != slot + 1 or not flow_takes(s, ce, cell, payload):
        push_to_queue(s, cell, inq_at(ce, slot), payload)

cdef void grant(region_t* s, uint32_t cell, request_t* r) noexcept nogil:
    # Move the wavelet of `r`; all its outputs have room.
    cdef uint32_t links, d, to
    cdef uint64_t payload = r.word & PAYLOAD, route
    cdef int plane, cmd, pop, pos
    cdef filter_t* f
    cdef bint control = is_control(r.word)
    cmd = <int>(payload >> 22) & 3
    if control and not is_own(r.word):
        pop = <int>(r.route >> RT_POP) & 3
        if (pop == POP_ALWAYS
                or (pop == POP_ON_ADVANCE and cmd == CMD_ADV and advanced(r.route, pos_of(r.route)) != pos_of(r.route))
                or (pop == POP_ON_ADVANCE_NOP and cmd <= CMD_ADV)):
            payload = popped(payload)
    if TRACE:
        emit(s, cell, s.now, EV_DEPART, r.color, r.outs, payload,
             control | r.q.port << 1 | (r.q.color != r.color) << 4)
    take_head(s, r.q, cell)
    links = r.outs & 15
    while links:
        d = ctz64(links)
        links &= links - 1
        plane = r.color * N_PORTS + (d ^ 1)
        to = cell + s.f.delta[d]
        if (r.route >> RT_SPECIAL) & 1 and is_border(s, to):
            stream_take(s, &s.outs[host_at(&s.plane[plane], to) - 1], s.now + s.f.p.hop, payload)
        else:
            plane_push(s, &s.plane[plane], to, payload, s.now + s.f.p.hop)
    if r.outs & RAMP:
        deliver(s, cell, r.route, payload)
    if r.outs & TO_HOST:
        stream_take(s, &s.outs[s.f.sinks[r.color][cell] - 1], s.now + s.f.p.hop, payload)
    if r.counts:
        f = &s.f.filters[<uint64_t>cell * N_FILTERS + ((r.route >> RT_FILTER) & 7) - 1]
        f.counter = 0 if f.counter >= f.limit else f.counter + 1
    if control and cmd:
        route = s.f.route[r.color][cell]
        if cmd == CMD_TEARDOWN:
            route |= <uint64_t>1 << RT_TEARDOWN
            s.f.route[r.color][cell] = route
            if TRACE:
                emit(s, cell, s.now, EV_TEARDOWN, r.color, 1, 0, 0)
            if s.f.ce[cell] != NULL:
                if s.f.ce[cell].prog == NULL:
                    ce_awaken(s, cell)
                s.f.ce[cell].teardown_due |= <uint32_t>1 << ((s.now + s.f.p.ramp_in) & 15)
                ring_set(s, cell, s.now + s.f.p.ramp_in)
        else:
            pos = advanced(route, pos_of(route)) if cmd == CMD_ADV else 0
            route = (route & ~(<uint64_t>3 << RT_POS)) | (<uint64_t>pos << RT_POS)
            s.f.route[r.color][cell] = route
            if TRACE:
                emit(s, cell, s.now, EV_SWITCH, r.color, pos, 0, 0)
            # Queues of other inputs cannot move before the next change of the route, which wakes those it takes.
            wake_color(s, r.color, cell, ALL_PORTS if (route >> RT_SPECIAL) & 1 else rx_of(route, pos))
        if (route >> RT_SHARED) & 1:
            note_leads(s, r.color, cell, route)

cdef void check_landing(region_t* s, uint32_t cell, int color, uint64_t route) noexcept nogil:
    # Two inputs of one color in one cycle: the vendor's simulator stops here, and so do we.
    cdef uint32_t rx = rx_of(route, pos_of(route)), landed = 0, p, k
    cdef plane_t* q
    cdef uint64_t word
    if (route >> RT_INJECT) & 3:
        rx &= RAMP - 1
    if (rx & (rx - 1)) == 0 or (route >> RT_SWAP) & 3:
        return
    while rx:
        p = ctz64(rx)
        rx &= rx - 1
        q = &s.plane[color * N_PORTS + p]
        if not has_queue(q, cell):
            continue
        for k in range(cap_of(q, cell)):
            word = queue_at(q, cell)[1 + k]
            if is_valid(word) and word >> SHIFT_STAMP == stamp_of(s.now) >> SHIFT_STAMP:
                landed |= <uint32_t>1 << p
    if landed & (landed - 1):
        record_fault(s, FAULT_COLLISION, cell, s.now, 0, color, 0, landed)

cdef inline void again(region_t* s, plane_t* q, uint32_t cell) noexcept nogil:
    # After a grant: the next wavelet of the queue, if there is one, asks in the next cycle.
    if is_valid(plane_head(q, cell)[0]):
        plane_mark(s, q, cell)

cdef inline void moves_plain(region_t* s, plane_t* q, uint32_t cell, uint64_t route, uint32_t outs,
                             uint64_t payload) noexcept nogil:
    # `grant` for a wavelet that does nothing to the router.
    cdef uint32_t links, d
    cdef plane_t* row = q - q.port
    payload &= PAYLOAD
    if TRACE:
        emit(s, cell, s.now, EV_DEPART, q.color, outs, payload, is_control(payload) | q.port << 1)
    take_head(s, q, cell)
    links = outs & 15
    while links:
        d = ctz64(links)
        links &= links - 1
        plane_push(s, row + (d ^ 1), cell + s.f.delta[d], payload, s.now + s.f.p.hop)
    if outs & RAMP:
        deliver(s, cell, route, payload)

cdef inline void grant_plain(region_t* s, uint32_t cell, int color) noexcept nogil:
    # The same for a request that `ask` has found able.
    cdef uint64_t route = s.f.route[color][cell]
    cdef int pos = pos_of(route)
    cdef plane_t* q = &s.plane[color * N_PORTS + ctz64(rx_of(route, pos))]
    moves_plain(s, q, cell, route, tx_of(route, pos), plane_head(q, cell)[0])
    again(s, q, cell)

cdef inline bint grant_command(region_t* s, uint32_t cell, int color) noexcept nogil:
    # The same for a command that nothing competes with (a third of it gained), if `ask` looked for room; else False.
    cdef uint64_t route = s.f.route[color][cell]
    cdef uint32_t ports = rx_of(route, pos_of(route))
    cdef request_t r
    if route & GENERAL or ports & (ports - 1):
        return False
    s.f.arb[2 * cell + 1] = 0
    r.q = &s.plane[color * N_PORTS + ctz64(ports)]
    r.word = plane_head(r.q, cell)[0]
    r.route = route
    r.color = color
    r.outs = outs_of(r.word, tx_of(route, pos_of(route)))
    r.counts = 0
    grant(s, cell, &r)
    return True

cdef uint32_t arbitrate_plain(region_t* s, uint32_t cell, uint32_t ready) noexcept nogil:
    # `arbitrate` for two colors or more with one input each, all found able by `ask`, the usual case. Returns those
    # that were granted.
    cdef uint64_t granted[N_COLORS]
    cdef uint8_t outs[N_COLORS]
    cdef uint32_t colors = ready, left = ready, used = 0, taken = 0, common = ALL_PORTS
    cdef uint64_t route, oldest = ~<uint64_t>0
    cdef int c, best = 0
    while colors:
        c = ctz64(colors)
        colors &= colors - 1
        route = s.f.route[c][cell]
        route >>= POSITION_BITS * pos_of(route)
        outs[c] = <uint8_t>(route >> N_PORTS) & ALL_PORTS
        common &= outs[c]
        granted[c] = granted_at(&s.plane[c * N_PORTS + ctz64(route)], cell)[0]
        if granted[c] < oldest:
            oldest = granted[c]
            best = c
    while True:
        grant_plain(s, cell, best)
        taken |= <uint32_t>1 << best
        if common:                              # all want the same output
            return taken
        left ^= <uint32_t>1 << best
        used |= outs[best]
        oldest = ~<uint64_t>0
        colors = left
        while colors:
            c = ctz64(colors)
            colors &= colors - 1
            if outs[c] & used:
                left ^= <uint32_t>1 << c
            elif granted[c] < oldest:
                oldest = granted[c]
                best = c
        if left == 0:
            return taken

cdef void arbitrate(region_t* s, uint32_t cell) noexcept nogil:
    # The sharing colors of one router that ask for something, once per cycle: grant least recently granted first, then
    # color, then port. What `ask` found holds until the grant: nobody else takes the wavelet or fills the places.
    cdef request_t requests[N_COLORS * N_PORTS]
    cdef uint64_t route, oldest
    cdef uint32_t ready = s.f.arb[2 * cell], general = s.f.arb[2 * cell + 1], colors = ready | general
    cdef uint32_t used = 0, taken = 0, ports
    cdef int n = 0, c, p, k, best, left
    cdef request_t* r
    if not general:
        s.f.arb[2 * cell] = ready ^ arbitrate_plain(s, cell, ready)
        return
    s.f.arb[2 * cell + 1] = 0
    while colors:
        c = ctz64(colors)
        colors &= colors - 1
        route = s.f.route[c][cell]
        ports = rx_of(route, pos_of(route))
        r = &requests[n]
        if (ready >> c) & 1:
            p = ctz64(ports)
            r.q = &s.plane[c * N_PORTS + p]
            r.granted = granted_at(r.q, cell)[0]
            r.word = plane_head(r.q, cell)[0]
            r.outs = tx_of(route, pos_of(route))
            r.color = c
            r.route = route
            r.counts = 0
            n += 1
            continue
        check_landing(s, cell, c, route)
        if (route >> RT_INJECT) & 3:
            ports |= RAMP
        if (route >> RT_SWAP) & 3:
            ports = ALL_PORTS
        while ports:
            p = ctz64(ports)
            ports &= ports - 1
            r = &requests[n]
            if make_request(s, cell, c, p, r) and all_have_room(s, cell, r.color, r.outs, r.route):
                n += 1
    left = n
    while left:
        best = -1
        oldest = ~<uint64_t>0
        for k in range(n):
            if requests[k].granted < oldest:
                oldest = requests[k].granted
                best = k
        r = &requests[best]
        r.granted = ~<uint64_t>0            # looked at
        left -= 1
        if r.outs & used or (taken >> r.color) & 1:
            continue
        grant(s, cell, r)
        if (ready >> r.color) & 1:
            again(s, r.q, cell)
        used |= r.outs & ALL_PORTS
        taken |= <uint32_t>1 << r.color
    s.f.arb[2 * cell] &= ~taken

cdef void visit_general(region_t* s, uint32_t cell, int color, int port) noexcept nogil:
    cdef request_t r
    if make_request(s, cell, color, port, &r) and all_have_room(s, cell, r.color, r.outs, r.route):
        grant(s, cell, &r)

cdef void visit_control(region_t* s, plane_t* q, uint32_t cell, uint64_t word, uint64_t route) noexcept nogil:
    # A control wavelet of a color with nothing special: general is only what it does to the router when it goes. If
    # that may let another queue of the color move, or take an output from another color, it asks.
    cdef request_t r
    if not has_outputs(s, q, cell, outs_of(word, tx_of(route, pos_of(route))), route):
        return
    if (route >> RT_SHARED) & 1:
        asks_general(s, cell, q.color)
    elif make_request(s, cell, q.color, q.port, &r):
        grant(s, cell, &r)

cdef void visit_unusual(region_t* s, plane_t* q, uint32_t cell, uint64_t route, uint32_t ports) noexcept nogil:
    # A queue whose color has something special here, several inputs, or another input.
    if not route & GENERAL and ports & (ports - 1) == 0:
        map_clear(&q.map, cell)                         # until the route changes
    elif (route >> RT_SHARED) & 1:
        asks_general(s, cell, q.color)
    else:
        visit_general(s, cell, q.color, q.port)


# --- the fast path ----------------------------------------------------------------------------------------------------
cdef bint is_plain(region_t* s, plane_t* q, plain_t* plain, uint64_t route) noexcept nogil:
    # Note what a route comes to for the wavelets of a plane, if it is plain: taken from this input and no other, to one
    # neighbour, the CE or both. It holds wherever and as long as a route word is the same.
    cdef int shift = POSITION_BITS * pos_of(route)
    cdef uint32_t tx = <uint32_t>(route >> (shift + N_PORTS)) & ALL_PORTS, links = tx & 15, d
    if route & GENERAL or <uint32_t>(route >> shift) & ALL_PORTS != <uint32_t>1 << q.port:
        return False
    if links & (links - 1) or tx == 0 or tx & RAMP and not (route >> RT_HAS_INQ) & 1:
        return False
    plain.route = route
    plain.link = links != 0
    plain.down = 0
    if links:
        d = ctz64(links)
        plain.delta = s.f.delta[d]
        plain.there = <int16_t>((<int>(d ^ 1) - q.port) * <int>sizeof(plane_t))
    if tx & RAMP:
        plain.down = <uint8_t>(((route >> RT_INQ) & (N_BINDINGS - 1)) + 1)
    return True

cdef void visit_other(region_t* s, plane_t* q, uint32_t cell, uint64_t word, uint64_t route) noexcept nogil:
    # A queue with a wavelet that is ready, of a route for which there is no `plain_t`.
    cdef uint32_t ports = rx_of(route, pos_of(route)), tx = tx_of(route, pos_of(route))
    if route & GENERAL or ports != <uint32_t>1 << q.port:
        visit_unusual(s, q, cell, route, ports)
    elif does_something(word, route):
        visit_control(s, q, cell, word, route)
    elif has_outputs(s, q, cell, tx, route):
        if not TRACE and q.port == DIR_R and s.f.ce[cell].want_space == WANTS_TRAIN and train_leaves(s, q, cell):
            return
        moves_plain(s, q, cell, route, tx, word)
        word = plane_head(q, cell)[0]
        if not is_valid(word):
            map_clear(&q.map, cell)
        elif q.port == DIR_R and not soon(word, s.now):
            later(s, q, cell, word)

cdef inline void visit(region_t* s, plane_t* q, plain_t* plain, uint64_t now, const uint64_t* routes, uint32_t cell,
                       bint ramp) noexcept nogil:
    # `plain`: of the plane; it, `now` and `routes` are passed so that they stay in registers across the stores below.
    # `ramp`: the queue is that of the ramp; a constant where this is called.  If the color needs arbitration here,
    # nobody else asks for it in this cycle.
    # Gain of `plain_t`: a quarter of the instructions of a hop.
    cdef uint64_t* m = queue_at(q, cell)
    cdef uint64_t* head = head_in(m)
    cdef uint64_t word = head[0], route, state, after
    cdef uint64_t* there = NULL
    cdef uint64_t* place = NULL
    cdef uint32_t to = 0, next
    cdef plane_t* t = NULL
    cdef ce_t* ce = NULL
    cdef inq_t* i
    cdef uint8_t want = 0
    if not is_valid(word):
        map_clear(&q.map, cell)
        return
    if not usable(word, now):
        not_ready(s, q, cell, word)
        return
    route = routes[cell]
    if unlikely(route != plain.route) and not is_plain(s, q, plain, route):
        visit_other(s, q, cell, word, route)
        return
    if unlikely(does_something(word, route)):
        visit_control(s, q, cell, word, route)
        return
    if ramp:
        want = s.f.ce[cell].want_space
        if not TRACE and unlikely(want == WANTS_TRAIN) and train_leaves(s, q, cell):
            return
    if plain.link:
        t = plane_there(q, plain)
        to = cell + plain.delta
        there = queue_at(t, to)
        place = tail_in(there)
        if not has_room(place[0], now):
            sleep_on_link(s, q, cell, t, to, place[0])
            return
    if plain.down:
        ce = s.f.ce[cell]
        if ce.takes != plain.down:
            if unlikely(ce.prog == NULL):
                ce_awaken(s, cell)
            i = inq_at(ce, plain.down - 1)
            if not has_room(i.slots[i.tail], now):
                sleep_on_ramp(s, q, cell, i, i.slots[i.tail])
                return
    word &= PAYLOAD
    if TRACE:
        emit(s, cell, now, EV_DEPART, q.color, tx_of(route, pos_of(route)), word, is_control(word) | q.port << 1)
    # take_head
    head[0] = stamp_of(now + 1)
    state = head_moves(m, q.cap[cell] if ramp else q.depth)
    after = m[1 + (state & HEAD)]
    if q.timed:
        m[q.size - 1] = now + 1
        if not ramp and not is_valid(after):
            map_clear(&q.map, cell)                     # words of such colors come one by one
    s.moved += 1
    if ramp:
        if want & WANTS_ROOM:
            ring_set(s, cell, now + 1)
        if not is_valid(after):
            map_clear(&q.map, cell)
    if t != NULL:
        place[0] = word | s.hop_word
        tail_moves(there, t.depth)
        plane_mark(s, t, to)
    if ce != NULL and (ce.takes != plain.down or not flow_takes(s, ce, cell, word)):
        i = inq_at(ce, plain.down - 1)
        next = i.tail
        i.slots[next] = word | s.ramp_word
        next += 1
        i.tail = 0 if next == i.cap else next
        ce.fed |= i.uts
        ce_hears(s, cell, ce)
    if unlikely(state & SLEEPER != 0):
        wake_upstream(s, q, cell)
    if ramp and is_valid(after) and not soon(after, now):
        later(s, q, cell, after)


cdef void ask(region_t* s, plane_t* q, plain_t* plain, uint64_t now, uint32_t cell) noexcept nogil:
    # A queue of a color that needs arbitration in this router, and has rivals: if it can move, its color asks. Asking
    # queue by queue, only those that hold something, and once per wavelet, halves the cost of arbitration in saturated
    # exchange (350 -> 170 instructions per hop).
    cdef uint64_t word = plane_head(q, cell)[0], route
    cdef bint known
    if not is_valid(word):
        map_clear(&q.map, cell)
        return
    if not usable(word, now):
        not_ready(s, q, cell, word)
        return
    route = s.f.route[q.color][cell]
    known = route == plain.route or is_plain(s, q, plain, route)
    if unlikely(not known) and (route & GENERAL or rx_of(route, pos_of(route)) != <uint32_t>1 << q.port):
        visit_unusual(s, q, cell, route, rx_of(route, pos_of(route)))
        return
    if unlikely(does_something(word, route)):
        visit_control(s, q, cell, word, route)
        return
    if not (plain_has_room(s, q, plain, cell) if known
            else has_outputs(s, q, cell, tx_of(route, pos_of(route)), route)):
        return
    if not TRACE and q.port == DIR_R and s.f.ce[cell].want_space == WANTS_TRAIN and train_leaves(s, q, cell):
        return
    map_clear(&q.map, cell)                             # asks until it is granted
    s.f.arb[2 * cell] |= <uint32_t>1 << q.color
    asks(s, cell)

cdef inline void scan_row(region_t* s, plane_t* q, uint32_t row, bint down, bint ramp) noexcept nogil:
    cdef uint64_t b, sharing, now = s.now, words = q.map.top[row]
    cdef const uint64_t* routes = s.f.route[q.color]
    cdef plain_t* plain = &s.plain[plane_number(q)]
    cdef uint32_t first = row * s.f.grid.words, w
    cdef int at
    keep(q)
    while words:
        at = 63 - clz64(words) if down else ctz64(words)
        words ^= <uint64_t>1 << at
        w = first + at
        b = q.map.bits[w]
        sharing = b & s.f.shared_bits[q.color][w]
        if sharing:
            if not TRACE:
                sharing &= contested(s, row, w)
            b ^= sharing
            while sharing:
                ask(s, q, plain, now, w * 64 + ctz64(sharing))
                sharing &= sharing - 1
        while b:
            at = 63 - clz64(b) if down else ctz64(b)
            visit(s, q, plain, now, routes, w * 64 + at, ramp)
            b = b & ~(<uint64_t>1 << at) if down else b & (b - 1)
        if q.map.bits[w] == 0:
            q.map.top[row] &= ~(<uint64_t>1 << (w - first))

cdef void arbitrate_row(region_t* s, uint32_t row) noexcept nogil:
    cdef uint32_t cell, ready, general, first = row * s.f.grid.words, w
    cdef uint64_t b, words = s.asking.top[row]
    s.asking.top[row] = 0
    while words:
        w = first + ctz64(words)
        words &= words - 1
        b = s.asking.bits[w]
        s.asking.bits[w] = 0
        while b:
            cell = w * 64 + ctz64(b)
            b &= b - 1
            ready = s.f.arb[2 * cell]
            general = s.f.arb[2 * cell + 1]
            if general == 0 and ready & (ready - 1) == 0:       # one alone, the usual case
                if ready:                         # its route has not been written since it asked
                    s.f.arb[2 * cell] = 0
                    grant_plain(s, cell, ctz64(ready))
            elif ready == 0 and general & (general - 1) == 0 and grant_command(s, cell, ctz64(general)):
                pass
            else:
                arbitrate(s, cell)
                if s.f.arb[2 * cell]:             # some have lost
                    asks(s, cell)

cdef inline bint feed(region_t* s, stream_in_t* i, uint64_t payload) noexcept nogil:
    # Push a wavelet of the host into the queue behind its port; False: no room.  Into a CE it comes after what the
    # router of the PE delivered in this cycle.
    cdef plane_t* q
    cdef inq_t* to
    cdef ce_t* ce
    cdef uint64_t word
    if i.port != DIR_R:
        q = &s.plane[i.color * N_PORTS + i.port]
        word = plane_tail(q, i.cell)[0]
        if not room_at(s, word, s.now):
            if is_valid(word):              # full: nothing to ask before a wavelet of it moves
                queue_at(q, i.cell)[0] |= SLEEPER
                i.awake = False
            return False
        plane_push(s, q, i.cell, payload, s.now + s.f.p.hop)
        return True
    ce = s.f.ce[i.cell]
    if ce.prog == NULL:
        ce_awaken(s, i.cell)
    if ce.takes == i.slot + 1:
        taking_ends(ce)
        ring_set(s, i.cell, s.now + s.f.p.ramp_in + 1)      # what has come in this cycle was taken in the one before
    to = inq_at(ce, i.slot)
    if not room_at(s, to.slots[to.tail], s.now):
        return False
    push_to_queue(s, i.cell, to, payload)
    return True

cdef void feed_row(region_t* s, row_t* r) noexcept nogil:
    # The host's streams into a row: those that are awake.
    cdef uint32_t k
    cdef stream_in_t* i
    r.n_awake = 0
    for k in range(r.first_in, r.first_in + r.n_in):
        i = &s.ins[s.f.ins_of[k]]
        if not i.awake:
            continue
        if i.cycles[i.at] <= s.now and feed(s, i, i.words[i.at]):
            if TRACE:
                emit(s, i.cell, s.now, EV_ENTER, i.color, i.port, i.words[i.at], is_control(i.words[i.at]))
            i.cycles[i.at] = s.now
            i.at += 1
            i.awake = i.at < i.n
            s.waiting = 1
        r.n_awake += i.awake

cdef void due_row(region_t* s, uint32_t row) noexcept nogil:
    # The queues whose heads become ready in this cycle go into the activity maps.
    cdef row_t* r = &s.rows[row]
    cdef uint32_t slot = <uint32_t>(s.now & (RING - 1)), first = row * s.f.grid.words, w
    cdef uint64_t planes, words, some = r.due_words[slot]
    cdef uint64_t* due
    cdef plane_t* q
    cdef int half
    r.due_words[slot] = 0
    r.due_any &= <uint16_t>~(1 << slot)
    s.n_due -= 1
    s.seen = max(s.seen, s.now)
    for half in range(2):
        planes = r.due[slot][half]
        r.due[slot][half] = 0
        r.planes[half] |= planes
        while planes:
            q = &s.plane[half * 64 + ctz64(planes)]
            planes &= planes - 1
            words = some
            while words:
                w = first + ctz64(words)
                due = due_word(q, w, slot)
                if due[0]:
                    q.map.bits[w] |= due[0]
                    q.map.top[row] |= words & -words
                    due[0] = 0
                words &= words - 1

cdef void scan_planes(region_t* s, uint32_t row, int half, uint64_t planes) noexcept nogil:
    # Planes of a row that may hold wavelets, of the first 64 or of the others. Within the row against the direction of
    # flow, so that a word pushed in this cycle is not met again in it (a third fewer visits).
    cdef plane_t* q
    cdef int at
    cdef bint down
    while planes:
        at = ctz64(planes)
        planes &= planes - 1
        q = &s.plane[half * 64 + at]
        down = q.port == DIR_W or q.port == DIR_N
        if unlikely(s.order != 0):
            down = vary(s, 2) == 1
        if q.port == DIR_R:
            if down:
                scan_row(s, q, row, True, True)
            else:
                scan_row(s, q, row, False, True)
        elif down:
            scan_row(s, q, row, True, False)
        else:
            scan_row(s, q, row, False, False)
        if q.map.top[row] == 0:
            s.rows[row].planes[half] &= ~(<uint64_t>1 << at)

cdef void row_opens(region_t* s, uint32_t row) noexcept nogil:
    # The first part of a row's router phase: wavelets that move south. Done before the row above is, whose wavelets
    # would be met again in the cycle in which they come.
    cdef row_t* r = &s.rows[row]
    if (r.due_any >> (s.now & (RING - 1))) & 1:
        due_row(s, row)
    s.counted = 0
    if r.planes[0] & s.f.from_north[0]:
        scan_planes(s, row, 0, r.planes[0] & s.f.from_north[0])
    if r.planes[1] & s.f.from_north[1]:
        scan_planes(s, row, 1, r.planes[1] & s.f.from_north[1])

cdef void row_moves(region_t* s, uint32_t row) noexcept nogil:
    # The rest of a row's router phase.
    cdef row_t* r = &s.rows[row]
    s.counted = 0
    if r.planes[0] & ~s.f.from_north[0]:
        scan_planes(s, row, 0, r.planes[0] & ~s.f.from_north[0])
    if r.planes[1] & ~s.f.from_north[1]:
        scan_planes(s, row, 1, r.planes[1] & ~s.f.from_north[1])
    if s.asking.top[row]:
        arbitrate_row(s, row)
    if r.n_awake:
        feed_row(s, r)
