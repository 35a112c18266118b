# cython: overflowcheck=False
# Queues: their words, the planes of the routers' queues, the two ways over a ramp, and waking who waits for a place.
#
# A queue word is one uint64: payload (bits 0-31), control (32), for the own router alone (33), valid (34), stamp
# (35-63).  The stamp is the first cycle, modulo 2^29, in which the word may be used by the other side: a valid word may
# be taken, a free place may be filled.  So a word has one writer per state and a cycle needs no commit phase: whatever
# happens in cycle t is stamped t + 1 or later and cannot be seen in t, in whatever order cells are visited.  Stamps are
# compared as signed distances; `stamps_refresh` keeps every stamp within half the range (the only cost of 29 bits: one
# sweep in 2^27 cycles).
from wse_core.bitmap cimport map_add
from wse_core.builtins cimport ctz64, unlikely
from wse_core.records cimport *
from wse_core.wake cimport ring_set, schedule


# --- words ------------------------------------------------------------------------------------------------------------
cdef inline uint64_t stamp_of(uint64_t cycle) noexcept nogil:
    return cycle << SHIFT_STAMP

cdef inline bint usable(uint64_t word, uint64_t now) noexcept nogil:
    # Whether the stamp of `word` is not in the future of `now`: sign of the distance modulo 2^29. What stands below the
    # stamp need not be masked when it is subtracted from ones.
    return <int64_t>(((now + 1) << SHIFT_STAMP) - 1 - word) >= 0

cdef inline bint is_valid(uint64_t word) noexcept nogil:
    return (word >> SHIFT_VALID) & 1

cdef inline bint is_control(uint64_t word) noexcept nogil:
    return (word >> SHIFT_CTRL) & 1

cdef inline bint is_own(uint64_t word) noexcept nogil:
    # Whether a control wavelet goes no further than the router of the PE that has sent it.
    return (word >> SHIFT_OWN) & 1

cdef inline bint takeable(uint64_t word, uint64_t now) noexcept nogil:
    return is_valid(word) and usable(word, now)

cdef inline bint has_room(uint64_t word, uint64_t now) noexcept nogil:
    return not is_valid(word) and usable(word, now)

cdef inline uint64_t ready_cycle(uint64_t word, uint64_t now) noexcept nogil:
    # The full cycle number of a stamp, which lies within 2^28 cycles of `now`.
    return now - <uint64_t>(<int64_t>((now << SHIFT_STAMP) - ((word >> SHIFT_STAMP) << SHIFT_STAMP)) >> SHIFT_STAMP)


# --- planes -----------------------------------------------------------------------------------------------------------
cdef inline int plane_number(plane_t* q) noexcept nogil:
    return q.color * N_PORTS + q.port

# In queue.pyx: queues that are the first ones in their words.
cdef void plane_begin(region_t* s, plane_t* q, uint32_t cell) noexcept nogil
cdef void due_begin(region_t* s, int plane, uint32_t cell, uint64_t cycle) noexcept nogil
cdef void comes_due(region_t* s, int plane, uint32_t cell, uint64_t cycle) noexcept nogil
cdef void due_later(region_t* s, uint32_t cell, uint64_t cycle) noexcept nogil
cdef void wake_ramps(region_t* s, uint32_t cell) noexcept nogil

cdef inline void plane_mark(region_t* s, plane_t* q, uint32_t cell) noexcept nogil:
    if unlikely(not map_add(&q.map, cell)):
        plane_begin(s, q, cell)

cdef inline bint has_queue(plane_t* q, uint32_t cell) noexcept nogil:
    # Whether the record of a cell is this plane's.  Need not be asked where a route leads into the queue, or from it.
    return q.queues != NULL and (q.own == NULL or (q.own[cell >> 6] >> (cell & 63)) & 1)

cdef inline uint64_t* queue_at(plane_t* q, uint32_t cell) noexcept nogil:
    return q.queues + <uint64_t>cell * q.size

cdef inline uint64_t* head_in(uint64_t* m) noexcept nogil:
    # The word of a queue that is taken next.
    return m + 1 + (m[0] & HEAD)

cdef inline uint64_t* tail_in(uint64_t* m) noexcept nogil:
    # The place that is filled next.
    return m + 1 + ((m[0] >> TAIL) & HEAD)

cdef inline void tail_moves(uint64_t* m, uint32_t cap) noexcept nogil:
    # After a push.
    cdef uint64_t state = m[0] + (1 << TAIL), end = <uint64_t>cap << TAIL
    if state & (HEAD << TAIL) == end:
        state -= end
    m[0] = state

cdef inline uint64_t head_moves(uint64_t* m, uint32_t cap) noexcept nogil:
    # After a pop; the new state.
    cdef uint64_t state = m[0] + (1 << MOVED) + 1
    if state & HEAD == cap:
        state -= cap
    m[0] = state
    return state

cdef inline uint64_t* plane_head(plane_t* q, uint32_t cell) noexcept nogil:
    return head_in(queue_at(q, cell))

cdef inline uint64_t* plane_tail(plane_t* q, uint32_t cell) noexcept nogil:
    return tail_in(queue_at(q, cell))

cdef inline uint64_t* plane_last(plane_t* q, uint32_t cell) noexcept nogil:
    # The place that was filled last: when that is free again, the queue is empty.
    cdef uint64_t* m = queue_at(q, cell)
    cdef uint64_t tail = (m[0] >> TAIL) & HEAD
    return m + (tail if tail else cap_of(q, cell))

cdef inline uint64_t* granted_at(plane_t* q, uint32_t cell) noexcept nogil:
    # Of a queue with a time: the cycle of its last grant + 1.
    return queue_at(q, cell) + q.size - 1

cdef inline uint32_t cap_of(plane_t* q, uint32_t cell) noexcept nogil:
    return q.cap[cell] if q.cap != NULL else q.depth

cdef inline void plane_push(region_t* s, plane_t* q, uint32_t cell, uint64_t payload,
                            uint64_t ready) noexcept nogil:
    # payload: bits 0-32 (control included).  The caller has checked that there is room.
    cdef uint64_t* m = queue_at(q, cell)
    tail_in(m)[0] = payload | (<uint64_t>1 << SHIFT_VALID) | stamp_of(ready)
    tail_moves(m, cap_of(q, cell))
    plane_mark(s, q, cell)

cdef inline uint64_t* due_word(plane_t* q, uint32_t w, uint32_t slot) noexcept nogil:
    # What becomes ready in one cycle and the next ones lies together, as with `ring_word`.
    return q.due + <uint64_t>w * RING + slot

cdef inline void mark_due(region_t* s, int plane, uint32_t cell, uint64_t cycle) noexcept nogil:
    # Put a queue into the activity map when the wavelet at its head is ready, instead of looking at it in every cycle
    # until then. A cycle beyond the ring is for the wheel if a CE has sent the wavelet ahead of time; else it is
    # reached in several rounds.
    cdef uint64_t* word
    if cycle - s.now >= RING:
        if s.plane[plane].port == DIR_R and s.f.ce[cell] != NULL and s.f.ce[cell].prog != NULL:
            s.plane[plane].used = True
            due_later(s, cell, cycle)
            return
        cycle = s.now + RING - 1
    word = due_word(&s.plane[plane], cell >> 6, <uint32_t>cycle & (RING - 1))
    if word[0] == 0:
        due_begin(s, plane, cell, cycle)
    word[0] |= <uint64_t>1 << (cell & 63)

# Waking is in queue.pyx: rare enough for a call, and the loops that take wavelets keep their registers.
cdef void wake_color(region_t* s, int color, uint32_t cell, uint32_t ports) noexcept nogil
cdef void wake_inputs(region_t* s, int color, uint32_t cell) noexcept nogil

cdef inline void inq_freed(region_t* s, uint32_t cell, inq_t* q) noexcept nogil:
    # The CE has taken a wavelet: a queue of the router may be waiting for the place.
    if unlikely(q.sleeper == FOR_ROOM):
        q.sleeper = 0
        wake_inputs(s, q.color, cell)


cdef inline void note_controls(region_t* s, int color) noexcept nogil:
    # Control wavelets of a color may be in routers from now on, and of the other color of its pair, if there are swaps.
    s.controls |= <uint32_t>1 << color
    if s.f.swaps:
        s.controls |= <uint32_t>1 << (color ^ 1)

cdef inline void note_commands(region_t* s, int color) noexcept nogil:
    # The same of control wavelets that go on to other PEs.
    note_controls(s, color)
    s.commands |= <uint32_t>(3 if s.f.swaps else 1) << (color & ~1 if s.f.swaps else color)


# --- ramps ------------------------------------------------------------------------------------------------------------
cdef inline void push_to_router(region_t* s, int plane, uint32_t cell, uint64_t payload, uint64_t ready) noexcept nogil:
    # From the CE up the ramp: `plane_push` for a wavelet that is not ready for some cycles. A queue that holds wavelets
    # is in the activity map, or will be.
    push_to_record(s, plane, cell, queue_at(&s.plane[plane], cell), payload, ready)

cdef inline void push_to_record(region_t* s, int plane, uint32_t cell, uint64_t* m, uint64_t payload,
                                uint64_t ready) noexcept nogil:
    # The same where the record of the queue has been looked up.
    tail_in(m)[0] = payload | (<uint64_t>1 << SHIFT_VALID) | stamp_of(ready)
    if (m[0] ^ m[0] >> TAIL) & HEAD == 0:
        mark_due(s, plane, cell, ready)
    tail_moves(m, s.plane[plane].cap[cell])

cdef inline void ce_hears(region_t* s, uint32_t cell, ce_t* ce) noexcept nogil:
    # A router delivers to a CE.  If that has done the cycle of the word already, it has asked for a look after it, or
    # it waits for a word: then the look is asked for now.
    if ce.want_space == WANTS_NOTHING:
        return
    if ce.resume <= s.now + s.f.p.ramp_in:
        ring_set(s, cell, s.now + s.f.p.ramp_in)
    elif ce.want_space == WANTS_WORD:
        schedule(s, cell, ce.resume, ce.resume)

cdef inline void push_to_queue(region_t* s, uint32_t cell, inq_t* q, uint64_t payload) noexcept nogil:
    # Down the ramp, into an input queue of the CE. The caller has checked that there is room.
    q.slots[q.tail] = payload | s.ramp_word
    q.tail += 1
    if q.tail == q.cap:
        q.tail = 0
    s.f.ce[cell].fed |= q.uts
    ce_hears(s, cell, s.f.ce[cell])
