# cython: overflowcheck=False
# A queue and the places that its head wants: is there room, wait if not, take the head if so.
#
# A queue that waits leaves the activity map, so blocked traffic is not visited cycle after cycle: for a full queue it
# is woken by that queue's next pop, for a place that becomes free in a later cycle by the set of that cycle.  Waiting
# is in link.pyx: within the loops that visit queues it would take registers from those that move (2 % of a hop).
from wse_core.bitmap cimport map_clear
from wse_core.block cimport ce_awaken, inq_at
from wse_core.builtins cimport ctz64, unlikely
from wse_core.queue cimport *
from wse_core.records cimport *
from wse_core.route cimport RAMP, TO_HOST, is_border
from wse_core.wake cimport ring_set


# --- waiting ----------------------------------------------------------------------------------------------------------
cdef void later(region_t* s, plane_t* q, uint32_t cell, uint64_t word) noexcept nogil
cdef void wake_upstream(region_t* s, plane_t* q, uint32_t cell) noexcept nogil
cdef bint sleep_on_link(region_t* s, plane_t* q, uint32_t cell, plane_t* t, uint32_t to, uint64_t place) noexcept nogil
cdef bint sleep_on_ramp(region_t* s, plane_t* q, uint32_t cell, inq_t* i, uint64_t place) noexcept nogil


cdef inline bint soon(uint64_t word, uint64_t now) noexcept nogil:
    # Whether what is not ready is so in one of the next two cycles: two looks in vain cost less than waking the queue
    # again.
    return usable(word, now + 2)

cdef inline void not_ready(region_t* s, plane_t* q, uint32_t cell, uint64_t word) noexcept nogil:
    # The head is still under way, or the place for it is free in a later cycle.
    if soon(word, s.now):
        s.waiting = 1
    else:
        later(s, q, cell, word)

# What leaves the fabric; in link.pyx too.
cdef void stream_take(region_t* s, stream_out_t* o, uint64_t cycle, uint64_t payload) noexcept nogil


# --- moving -----------------------------------------------------------------------------------------------------------
cdef inline bint room_at(region_t* s, uint64_t word, uint64_t now) noexcept nogil:
    # has_room; a place that will be free in a later cycle means that time must not jump over that cycle.
    if has_room(word, now):
        return True
    if not is_valid(word):
        s.waiting = 1
    return False

cdef inline bint has_outputs(region_t* s, plane_t* q, uint32_t cell, uint32_t outs, uint64_t route) noexcept nogil:
    # all_have_room for a queue whose route does not leave the rectangle; if not, the queue waits for what is missing.
    # Blocked traffic is not visited cycle after cycle.
    cdef uint32_t links = outs & 15
    cdef uint32_t d, to
    cdef plane_t* t
    cdef inq_t* i
    cdef uint64_t place
    if outs & RAMP:
        if not (route >> RT_HAS_INQ) & 1:
            return False
        if unlikely(s.f.ce[cell].prog == NULL):
            ce_awaken(s, cell)
        i = inq_at(s.f.ce[cell], (route >> RT_INQ) & (N_BINDINGS - 1))
        place = i.slots[i.tail]
        if not has_room(place, s.now):
            return sleep_on_ramp(s, q, cell, i, place)
    while links:
        d = ctz64(links)
        links &= links - 1
        t = &s.plane[q.color * N_PORTS + (d ^ 1)]
        to = cell + s.f.delta[d]
        place = plane_tail(t, to)[0]
        if not has_room(place, s.now):
            return sleep_on_link(s, q, cell, t, to, place)
    return True

cdef inline plane_t* plane_there(plane_t* q, plain_t* plain) noexcept nogil:
    # The plane of the neighbour's queue into which a plain route leads.
    return <plane_t*>(<char*>q + plain.there)

cdef inline bint plain_has_room(region_t* s, plane_t* q, plain_t* plain, uint32_t cell) noexcept nogil:
    # The same for a plain route.
    cdef inq_t* i
    cdef plane_t* t = plane_there(q, plain)
    cdef uint32_t to = cell + plain.delta
    cdef uint64_t place
    if plain.down:
        if unlikely(s.f.ce[cell].prog == NULL):
            ce_awaken(s, cell)
        i = inq_at(s.f.ce[cell], plain.down - 1)
        place = i.slots[i.tail]
        if not has_room(place, s.now):
            return sleep_on_ramp(s, q, cell, i, place)
    if plain.link:
        place = plane_tail(t, to)[0]
        if not has_room(place, s.now):
            return sleep_on_link(s, q, cell, t, to, place)
    return True

cdef inline bint ramp_has_room(region_t* s, uint32_t cell, uint64_t route) noexcept nogil:
    cdef inq_t* q
    if not (route >> RT_HAS_INQ) & 1:
        return False
    if unlikely(s.f.ce[cell].prog == NULL):
        ce_awaken(s, cell)
    q = inq_at(s.f.ce[cell], (route >> RT_INQ) & (N_BINDINGS - 1))
    return room_at(s, q.slots[q.tail], s.now)

cdef inline uint64_t host_at(plane_t* q, uint32_t cell) noexcept nogil:
    # Of a place of the border: number of the host's output stream behind it, from 1; 0 = none.
    return queue_at(q, cell)[0]

cdef inline bint host_takes(stream_out_t* o, uint64_t now) noexcept nogil:
    # Whether the host takes a wavelet from this stream in cycle `now`.
    return o.places == NULL or (o.at < o.n_places and o.places[o.at] <= now)

cdef inline bint all_have_room(region_t* s, uint32_t cell, int color, uint32_t outs, uint64_t route) noexcept nogil:
    # Whether every output has room. As the state is that of the start of the cycle, no grant of this cycle changes it:
    # a queue is fed by one color of one router, and a color is granted once.
    cdef uint32_t links = outs & 15
    cdef uint32_t d, to
    cdef int plane
    if outs & RAMP and not ramp_has_room(s, cell, route):
        return False
    if unlikely(outs & TO_HOST) and not host_takes(&s.outs[s.f.sinks[color][cell] - 1], s.now):
        return False
    while links:
        d = ctz64(links)
        links &= links - 1
        plane = color * N_PORTS + (d ^ 1)
        to = cell + s.f.delta[d]
        if unlikely(s.plane[plane].queues == NULL):
            return False
        if (route >> RT_SPECIAL) & 1 and is_border(s, to):
            if (host_at(&s.plane[plane], to) == 0
                    or not host_takes(&s.outs[host_at(&s.plane[plane], to) - 1], s.now)):
                return False
        elif not room_at(s, plane_tail(&s.plane[plane], to)[0], s.now):
            return False
    return True

cdef inline void take_head(region_t* s, plane_t* q, uint32_t cell) noexcept nogil:
    cdef uint64_t* m = queue_at(q, cell)
    cdef uint64_t state
    head_in(m)[0] = stamp_of(s.now + 1)
    state = head_moves(m, cap_of(q, cell))
    if q.timed:
        m[q.size - 1] = s.now + 1
    s.moved += 1
    if q.port == DIR_R and s.f.ce[cell].want_space & WANTS_ROOM:
        ring_set(s, cell, s.now + 1)
    if unlikely(state & SLEEPER != 0):
        wake_upstream(s, q, cell)
