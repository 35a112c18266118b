# cython: overflowcheck=False
"""The clock of an engine: cycle after cycle of the whole fabric, or rows at clocks of their own.

`run_cycles` advances all rows together.  In a cycle each row that has something to do does its router phase, then its
CE phase; since what happens in a cycle is stamped for later ones, the order of rows cannot matter, nor does it matter
that a row computes before the next one has routed.  If in a cycle no wavelet moved and none is under way, time jumps to
the next cycle in which a CE has something to do: nothing active costs nothing.

`run_bands` advances a large busy fabric in bands of rows, for memory's sake and for several threads.  A row in cycle t
needs of its neighbours what they did up to t - 1, and does not see what they do in t.  So a band may run many cycles
while its memory is in cache, if it goes up by a row per cycle: the band that begins with rows lo .. hi - 1 does rows
lo - k .. hi - 1 - k in its k-th cycle.

::

    rows     band 0   band 1   band 2          k = 0: 000000111111222222
    0 ..     each goes up by a row per cycle   k = 1: 000001111112222223
                                               k = 2: 000011111122222233

The row above a band has then done exactly the cycle that the band is about to do, by the band before; the row below has
done exactly the one before it, by the band itself.  Bands are run one after the other, TURN cycles each; after a turn
all rows stand at the same cycle.  With several threads, each takes the next band and keeps TRAIL cycles behind the band
before it: the two then never touch the same row, nor one next to it.  State that depends on a thread is its `region_t`:
a copy of the fabric's, whose sums are added up after the turn.

Reads and writes: everything.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from wse_core cimport traced_ce, traced_router
from wse_core.block cimport inq_at
from wse_core.builtins cimport NEVER, clear_bits, clz64, ctz64, popcount64, unlikely
from wse_core.ce cimport ce_settle, row_computes
from wse_core.emit cimport record_fault, vary
from wse_core.fetch cimport FETCH_FROM, row_fetch
from wse_core.float_mode cimport float_mode_enter, float_mode_leave, float_mode_t
from wse_core.queue cimport has_queue, queue_at, stamp_of, usable
from wse_core.records cimport *
from wse_core.router cimport row_moves, row_opens
from wse_core.wake cimport ring_word

cdef extern from *:
    """
    #include <pthread.h>
    #include <sched.h>
    #include <time.h>
    #define WSE_READ(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
    #define WSE_BITS(p) __atomic_load_n((p), __ATOMIC_RELAXED)
    #define WSE_WRITE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
    #define WSE_NEXT(p) __atomic_fetch_add((p), 1, __ATOMIC_RELAXED)
    #if defined(__x86_64__)
    #define WSE_PAUSE() __builtin_ia32_pause()
    #else
    #define WSE_PAUSE() ((void)0)
    #endif
    static void wse_nap(unsigned n) {   /* the n-th wait in a row: spin, then let others run, then sleep */
        struct timespec t = {0, 50000};
        if (n < 200) WSE_PAUSE();
        else if (n < 220) sched_yield();
        else nanosleep(&t, NULL);
    }
    """
    ctypedef struct pthread_t:
        pass
    int pthread_create(pthread_t* thread, const void* attr, void* (*start)(void*) noexcept nogil,
                       void* arg) noexcept nogil
    int pthread_join(pthread_t thread, void** result) noexcept nogil
    uint64_t read "WSE_READ"(uint64_t* p) noexcept nogil
    uint64_t bits_of "WSE_BITS"(uint64_t* p) noexcept nogil     # a word of which other threads may change other bits
    void write "WSE_WRITE"(uint64_t* p, uint64_t value) noexcept nogil
    uint64_t next_of "WSE_NEXT"(uint64_t* p) noexcept nogil
    void nap "wse_nap"(unsigned int n) noexcept nogil

cdef enum:
    REPORT = 1 << 19        # events that are reported together
    TRAIL = 4               # cycles that a band keeps behind the band before it, if another thread runs that


# --- a cycle ----------------------------------------------------------------------------------------------------------
cdef inline void row_closes(region_t* s, uint32_t row) noexcept nogil:
    # After a row's cycle: when is there something to do in it again?
    cdef row_t* r = &s.rows[row]
    cdef uint64_t timer = NEVER
    cdef uint32_t slots = <uint32_t>(r.ring_any | r.due_any), k, bucket
    cdef uint64_t used
    if s.moved and r.planes[0] | r.planes[1]:
        return                      # it is asked in the next cycle anyhow, and time does not jump over that
    if slots:
        k = <uint32_t>(s.now + 1) & (RING - 1)
        slots = (slots >> k | slots << (RING - k)) & ((1 << RING) - 1)
        timer = s.now + 1 + ctz64(slots)
    if r.wheel_count and timer > s.now + 1:
        # The first bucket in use: no entry is earlier. It may be of a later turn of the wheel, then it is in vain.
        bucket = <uint32_t>(s.now + 1) & (WHEEL - 1)
        k = 0
        while k < WHEEL:
            used = r.wheel_used[bucket >> 6] >> (bucket & 63)
            if used:
                k += ctz64(used)
                break
            k += 64 - (bucket & 63)
            bucket = (bucket + 64 - (bucket & 63)) & (WHEEL - 1)
        timer = min(timer, s.now + 1 + k)
    r.timer = timer
    if r.live and timer == NEVER and not (r.planes[0] | r.planes[1] | s.asking.top[row]):
        r.live = False
        clear_bits(&s.live[row >> 6], <uint64_t>1 << (row & 63))

cdef inline bint has_work(region_t* s, uint32_t row) noexcept nogil:
    cdef row_t* r = &s.rows[row]
    return (r.planes[0] | r.planes[1] | s.asking.top[row]) != 0 or r.timer <= s.now or r.n_awake != 0

cdef inline void row_begins(region_t* s, uint32_t row) noexcept nogil:
    cdef row_t* r = &s.rows[row]
    if unlikely(s.watch != NULL):
        traced_router.row_opens(s, row)
    elif ((r.due_any >> (s.now & (RING - 1))) & 1
            or r.planes[0] & s.f.from_north[0] | r.planes[1] & s.f.from_north[1]):
        row_opens(s, row)

cdef inline void row_ends(region_t* s, uint32_t row) noexcept nogil:
    # In sparse traffic most rows that have something to do have it for routers or for CEs.
    cdef row_t* r = &s.rows[row]
    if unlikely(s.watch != NULL):
        traced_router.row_moves(s, row)
        traced_ce.row_computes(s, row)
    else:
        if r.planes[0] | r.planes[1] | s.asking.top[row] | r.n_awake:
            row_moves(s, row)
        if (r.ring_any >> (s.now & (RING - 1))) & 1 or r.wheel_count:
            row_computes(s, row)
    row_closes(s, row)

cdef void rows_of_cycle(region_t* s, uint32_t first, uint32_t end, bint fetches) noexcept nogil:
    # What rows first .. end - 1 do in a cycle.
    cdef uint32_t w, row, last = 0
    cdef uint64_t b
    cdef bint up = False, any = False
    if unlikely(s.order != 0):
        up = vary(s, 2)
    for w in range(first >> 6, (end + 63) >> 6):
        b = bits_of(&s.live[w]) | s.fed[w]
        if w == first >> 6:
            b &= ~<uint64_t>0 << (first & 63)
        if w == end >> 6:
            b &= (<uint64_t>1 << (end & 63)) - 1
        while b:
            row = w * 64 + ctz64(b)
            if unlikely(up):
                row = w * 64 + 63 - clz64(b)
            b &= ~(<uint64_t>1 << (row & 63))
            if fetches and row + 1 < end:
                row_fetch(s, row + 1, s.now)
            if not has_work(s, row):
                continue
            row_begins(s, row)
            if any:
                row_ends(s, last)
            last = row
            any = True
    if any:
        row_ends(s, last)

cdef void cycle_of(region_t* s, uint32_t first, uint32_t end, bint fetches) noexcept nogil:
    # Cycle `now` of rows first .. end - 1; `fetches`: they are more than a cache holds.
    s.moved = 0
    s.waiting = 0
    s.hop_word = stamp_of(s.now + s.f.p.hop) | <uint64_t>1 << SHIFT_VALID
    s.ramp_word = stamp_of(s.now + s.f.p.ramp_in) | <uint64_t>1 << SHIFT_VALID
    if end != first + 1:
        rows_of_cycle(s, first, end, fetches)
    elif has_work(s, first):            # a small fabric, or a band of a row
        row_begins(s, first)
        row_ends(s, first)
    s.events += s.moved
    if s.moved:
        s.hops += s.moved
        if s.last_active < <int64_t>s.now:          # a CE may have run ahead
            s.last_active = <int64_t>s.now
    if s.moved or s.waiting:
        s.seen = max(s.seen, s.now + 1)


# --- all rows at one clock --------------------------------------------------------------------------------------------
cdef inline uint64_t horizon(region_t* s, uint64_t limit) noexcept nogil:
    # A program that never ends must not keep Python from seeing a Ctrl-C, hence AHEAD.
    return limit if limit - s.now < AHEAD else s.now + AHEAD

cdef inline bint trains_go(region_t* s, uint64_t hops) noexcept nogil:
    # Whether trains carry most: then rows stay at one clock, where others that cross rows may leave as well, until a
    # sixteenth as many wavelets have moved hop by hop.  `hops`: as many as there were before this cycle.
    cdef uint64_t moved = <uint64_t>s.moved
    s.carried += (s.hops - hops - moved) // 16
    s.carried -= min(s.carried, moved)
    return s.carried != 0

cdef int run_cycles(region_t* s, uint64_t limit, int busy, uint64_t piece, uint64_t events) noexcept nogil:
    # Advance to cycle `limit` at most, or until `busy` wavelets or more have moved in each of some cycles. Breaks,
    # after `piece` cycles or so many `events`, change nothing: a CE may run ahead of them.
    cdef uint64_t stop = s.events + events
    cdef uint64_t pause = s.now + piece, hops
    s.one_clock = True
    while s.now < limit:
        if s.now >= s.next_refresh:
            stamps_refresh(s)
        s.ahead = horizon(s, limit)
        hops = s.hops
        cycle_of(s, 0, s.f.n_rows, s.f.n_cells > FETCH_FROM)
        if s.fault.kind and s.fault.cycle <= s.now:
            s.now += 1
            stop_at_fault(s)
            return RUN_FAULT
        if s.moved or s.waiting or s.n_due:
            s.now += 1
        elif not jump(s, limit):
            s.now = max(s.now, s.passed)
            return RUN_QUIET
        s.n_busy = s.n_busy + 1 if not trains_go(s, hops) and s.moved >= busy else 0
        if s.n_busy >= BUSY_CYCLES:
            return RUN_BUSY
        if s.events >= stop or s.now >= pause or s.n_traced >= REPORT:
            return RUN_BREAK
    return RUN_LIMIT

cdef void stop_at_fault(region_t* s) noexcept nogil:
    # Some CE has a fault.  Those that have put something off may have an earlier one: the clock goes back to the first.
    cdef uint32_t k
    for k in range(s.n_awake):
        if s.watch != NULL:
            traced_ce.ce_settle(s, s.awake[k])
        else:
            ce_settle(s, s.awake[k])
    s.now = s.fault.cycle + 1

cdef bint jump(region_t* s, uint64_t limit) noexcept nogil:
    # Nothing is under way after cycle `now`: to the next cycle in which something is to be done; False = never.
    cdef uint64_t next = earlier(next_wake(s), next_at_edge(s))
    if s.fault.kind and (next == 0 or next > s.fault.cycle):
        next = s.fault.cycle        # found by a CE that ran ahead
    if next == 0:
        return False
    s.now = min(next, limit, s.next_refresh)
    s.seen = max(s.seen, s.now)
    return True

cdef uint64_t next_wake(region_t* s) noexcept nogil:
    # No CE has to be looked at before this cycle; 0 = never.
    cdef uint64_t best = NEVER, b
    cdef uint32_t w
    for w in range((s.f.n_rows + 63) >> 6):
        b = s.live[w]
        while b:
            best = min(best, s.rows[w * 64 + ctz64(b)].timer)
            b &= b - 1
    return 0 if best == NEVER else best

cdef uint64_t earlier(uint64_t a, uint64_t b) noexcept nogil:
    # The earlier of two cycles; 0 = never.
    return b if a == 0 or (b and b < a) else a

cdef uint64_t next_at_edge(region_t* s) noexcept nogil:
    # First cycle after now in which a word of the host may enter, or the host takes one; 0 = never.
    cdef uint64_t best = 0
    cdef int k
    for k in range(s.n_ins):
        if s.ins[k].at < s.ins[k].n and s.ins[k].cycles[s.ins[k].at] > s.now:
            best = earlier(best, s.ins[k].cycles[s.ins[k].at])
    for k in range(s.n_outs):
        if s.outs[k].places != NULL and s.outs[k].at < s.outs[k].n_places and s.outs[k].places[s.outs[k].at] > s.now:
            best = earlier(best, s.outs[k].places[s.outs[k].at])
    return best


# --- sweeps -----------------------------------------------------------------------------------------------------------
cdef inline void refresh_words(uint64_t* words, uint64_t n, uint64_t now) noexcept nogil:
    # Rewrite stamps older than a quarter of the range as that old.
    cdef uint64_t k
    cdef uint64_t old = (now - REFRESH) << SHIFT_STAMP
    cdef uint64_t low = (<uint64_t>1 << SHIFT_STAMP) - 1
    for k in range(n):
        if words[k] and usable(words[k], now - REFRESH):
            words[k] = (words[k] & low) | old

cdef void counts_fold(region_t* s, uint32_t cell) noexcept nogil:
    # Move the counters of a CE to where they have 64 bits. A CE books at most 8 per cycle, and never more than AHEAD
    # cycles ahead, so 32 bits are enough for what happens between two sweeps.
    cdef uint32_t* now = s.f.ce[cell].counts
    cdef uint64_t* sums = s.f.counts + <uint64_t>cell * N_COUNTS
    cdef int k
    if s.watch != NULL:
        traced_ce.ce_settle(s, cell)
    else:
        ce_settle(s, cell)
    for k in range(N_COUNTS):
        sums[k] += now[k]
        now[k] = 0

cdef void stamps_refresh(region_t* s) noexcept nogil:
    # Keeps every stamp within half of its 29-bit range; a word never touched (0) stays 0 while now < 2^28, then is
    # stamped too.
    cdef int k
    cdef uint32_t cell, q, w
    cdef plane_t* p
    cdef uint64_t* m
    cdef ce_t* ce
    cdef inq_t* i
    for k in range(N_PLANES):
        p = &s.plane[k]
        if p.queues != NULL:
            for cell in range(s.f.n_cells):
                if not has_queue(p, cell):
                    continue
                m = queue_at(p, cell)
                if m[0] or m[1]:
                    refresh_words(m + 1, p.depth, s.now)
    for w in range(s.n_awake):
        ce = s.f.ce[s.awake[w]]
        for q in range(<uint32_t>ce.prog.n_inq):
            i = inq_at(ce, q)
            refresh_words(i.slots, i.cap, s.now)
        counts_fold(s, s.awake[w])
    s.next_refresh = s.now + s.f.sweep


# --- bands of rows at clocks of their own -----------------------------------------------------------------------------
cdef void do_band(region_t* s, turn_t* t, uint64_t band) noexcept nogil:
    # All cycles of a turn for one band, from that in which its first row comes in to that in which its last one goes.
    cdef int64_t rows = <int64_t>s.f.n_rows, first, k
    cdef int64_t begin = max(<int64_t>t.edges[band] - rows + 1, 0)
    cdef int64_t end = min(<int64_t>t.edges[band + 1], <int64_t>t.cycles)
    cdef uint64_t before = 0
    cdef unsigned int waits
    for k in range(begin, end):
        if t.threads > 1 and band:
            waits = 0
            while before < min(<uint64_t>k + TRAIL, t.cycles):
                before = read(&t.done[(band - 1) * APART])
                if before < min(<uint64_t>k + TRAIL, t.cycles):
                    nap(waits)
                    waits += 1
        first = max(<int64_t>t.edges[band] - k, 0)
        s.now = t.start + <uint64_t>k
        cycle_of(s, <uint32_t>first, <uint32_t>min(<int64_t>t.edges[band + 1] - k, rows), False)
        if first:
            row_fetch(s, <uint32_t>first - 1, s.now + 1)        # it comes in with the next cycle
        if t.threads > 1:
            write(&t.done[band * APART], <uint64_t>k + 1)
    write(&t.done[band * APART], t.cycles)

cdef uint32_t looks_now(region_t* s) noexcept nogil:
    # CEs that are to be looked at in the cycle that comes.
    cdef uint32_t w, slot = <uint32_t>s.now & (RING - 1), n = 0
    for w in range(s.f.n_words):
        n += popcount64(ring_word(s, w, slot)[0])
    return n

cdef void do_bands(region_t* s, turn_t* t) noexcept nogil:
    # Bands that nobody has begun, until none is left. Each is taken after the one before it, so no two wait for each
    # other.
    cdef uint64_t band = next_of(&t.next)
    while band < t.n_bands:
        do_band(s, t, band)
        band = next_of(&t.next)

cdef void* worker(void* what) noexcept nogil:
    cdef mate_t* mate = <mate_t*>what
    cdef float_mode_t was = float_mode_enter()
    do_bands(mate.s, mate.turn)
    float_mode_leave(was)
    return NULL

cdef void lend(region_t* s, region_t* copy) noexcept nogil:
    # Make a thread's region one of this fabric at this cycle, its sums at zero.
    cdef uint32_t* awake = copy.awake
    cdef shape_t* shapes = copy.shapes
    cdef uint64_t* work = copy.work
    memcpy(copy, s, sizeof(region_t))
    copy.awake = awake
    copy.shapes = shapes
    copy.work = work        # added when the run ends
    copy.n_awake = 0
    copy.n_due = 0
    copy.hops = 0
    copy.events = 0
    copy.passed = 0

cdef void give_back(region_t* s, region_t* copy) noexcept nogil:
    # Add what a thread's region has seen to the fabric's.
    cdef int k
    memcpy(s.awake + s.n_awake, copy.awake, copy.n_awake * sizeof(uint32_t))
    s.n_awake += copy.n_awake
    s.n_due += copy.n_due
    s.hops += copy.hops
    s.events += copy.events
    s.seen = max(s.seen, copy.seen)
    s.passed = max(s.passed, copy.passed)
    s.last_active = max(s.last_active, copy.last_active)
    for k in range(N_PLANES):
        s.plane[k].used |= copy.plane[k].used
    if copy.fault.kind:
        record_fault(s, copy.fault.kind, copy.fault.cell, copy.fault.cycle, copy.fault.address, copy.fault.color,
                     copy.fault.detail, copy.fault.value)

cdef int run_bands(region_t* s, uint64_t limit, turn_t* t, mate_t* mates) noexcept nogil:
    # Advance by one turn, to cycle `limit` at most.
    cdef pthread_t threads[MATES]
    cdef int begun[MATES]
    cdef int k
    cdef uint64_t end
    if s.now >= limit:
        return RUN_LIMIT
    if s.now >= s.next_refresh:
        stamps_refresh(s)
    end = min(limit, s.next_refresh, s.now + t.turn)
    s.ahead = horizon(s, limit)
    s.one_clock = False
    t.start = s.now
    t.cycles = end - s.now
    t.next = 0
    for k in range(<int>t.n_bands):
        t.done[k * APART] = 0
    for k in range(t.threads - 1):
        lend(s, mates[k].s)
        mates[k].turn = t
        begun[k] = pthread_create(&threads[k], NULL, worker, &mates[k]) == 0
    do_bands(s, t)
    for k in range(t.threads - 1):
        if begun[k]:
            pthread_join(threads[k], NULL)
            give_back(s, mates[k].s)
    s.now = end
    if s.fault.kind and s.fault.cycle < end:
        stop_at_fault(s)
        return RUN_FAULT
    if s.seen != end and not s.n_due:
        s.now = end - 1
        if not jump(s, limit):
            s.now = quiet_since(s)
            return RUN_QUIET
    return RUN_BREAK if s.now < limit else RUN_LIMIT

cdef uint64_t quiet_since(region_t* s) noexcept nogil:
    # The cycle in which `run_cycles` would have found that nothing is left to do: the last one that it looks at.
    cdef uint64_t last = max(s.seen, s.passed)
    cdef int k
    for k in range(s.n_ins):
        if s.ins[k].at < s.ins[k].n:
            last = max(last, s.ins[k].cycles[s.ins[k].at])
    for k in range(s.n_outs):
        if s.outs[k].places != NULL and s.outs[k].at < s.outs[k].n_places:
            last = max(last, s.outs[k].places[s.outs[k].at])
    return last
