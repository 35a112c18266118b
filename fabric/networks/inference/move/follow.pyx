"""Entries of keys and values followed from PE to PE, for `fabric.networks.inference.move.cycles`.

Entries that leave a PE one after the other are kept as *runs*: a first time, a step, and how many.  A PE that passes a
run on is either always late for it, or always early, from some entry on; then the rest of the run is one run again.  So
the work is that of the runs, not of the entries, of which a large mesh has hundreds of millions.
"""
from libc.math cimport fabs
from libc.stdlib cimport free, realloc

cdef double SAME = 1e-6     # steps of runs that are one run: times are sums of thousands of cycles


cdef struct run_t:
    double first, step
    long n


cdef struct runs_t:
    run_t* at
    long n, room
    long k, used            # the run that is read, and how many of its entries have been


cdef int append(runs_t* to, double first, double step, long n) except -1 nogil:
    """Put entries behind those that are there."""
    cdef run_t* last
    cdef void* more
    if n < 1:
        return 0
    if to.n:
        last = &to.at[to.n - 1]
        if last.n == 1 and n == 1:
            last.step = first - last.first
            last.n = 2
            return 0
        if fabs(last.first + last.step * last.n - first) < SAME and (n == 1 or fabs(last.step - step) < SAME):
            last.n += n
            return 0
    if to.n == to.room:
        more = realloc(to.at, (2 * to.room + 8) * sizeof(run_t))
        if more == NULL:
            with gil:
                raise MemoryError
        to.at = <run_t*>more
        to.room = 2 * to.room + 8
    to.at[to.n] = run_t(first, step, n)
    to.n += 1
    return 0


cdef inline void clear(runs_t* runs) noexcept nogil:
    runs.n = 0
    runs.k = 0
    runs.used = 0


cdef struct pass_t:
    double late     # from when a PE goes on to when it does again, if the entry was there already
    double early    # from when an entry comes to when a PE goes on that had waited for it
    double ready    # from when a PE goes on to when it can take an entry
    double way      # from the first wavelet that leaves to its arrival at the next PE


cdef double passed(runs_t* coming, long n, double now, pass_t c, runs_t* leaving) except? -1 nogil:
    """Return when a PE can go on that took so many entries; what it passes on goes to `leaving` unless NULL."""
    cdef run_t* run
    cdef double arrival
    cdef long take
    cdef bint is_late, is_behind
    while n:
        run = &coming.at[coming.k]
        arrival = run.first + run.step * coming.used
        take = 1
        is_late = now + c.late >= arrival + c.early
        is_behind = now + c.ready >= arrival
        if is_late and is_behind and run.step <= c.late:
            take = min(n, run.n - coming.used)
            if leaving:
                append(leaving, now + c.ready + c.way, c.late, take)
            now += c.late * take
        elif not is_late and not is_behind and run.step >= max(c.late, c.early + c.ready):
            take = min(n, run.n - coming.used)
            if leaving:
                append(leaving, arrival + c.way, run.step, take)
            now = arrival + run.step * (take - 1) + c.early
        else:
            if leaving:
                append(leaving, max(now + c.ready, arrival) + c.way, 0, 1)
            now = max(now + c.late, arrival + c.early)
        n -= take
        coming.used += take
        if coming.used == run.n:
            coming.k += 1
            coming.used = 0
    return now


cdef class Follower:
    """All PEs of two meshes, layer by layer.

    Parameters
    ----------
    costs : dict of str to float
        Cycles of what a PE does, by the names of the attributes.
    shares : ndarray of int64, shape (rows, 5)
        Entries kept, sent, received, passed, and held in the end.
    ways : ndarray of uint8, shape (rows, 3)
        Whether a row gets and passes on entries of its neighbours, and whether it has a cache.
    down : bool
        Whether entries move to later rows.
    behind : int
        Rows of the other mesh.
    """

    cdef double turn, load, taken, end, put, own, sent_along, own_across, sent_across, pick, hop, root_hops
    cdef double root_rest, root_late, root_ready, root_end, drain, wavelets, places, flood, way, ready, edit
    cdef pass_t receive, along, across
    cdef long[:, ::1] shares
    cdef unsigned char[:, ::1] ways
    cdef bint down
    cdef long behind

    def __init__(self, dict costs, long[:, ::1] shares, unsigned char[:, ::1] ways, bint down, long behind):
        self.turn, self.load, self.taken, self.end = costs["turn"], costs["load"], costs["taken"], costs["end"]
        self.put, self.own, self.edit, self.drain = costs["put"], costs["own"], costs["edit"], costs["drain"]
        self.sent_along, self.sent_across = costs["sent_along"], costs["sent_across"]
        self.ready, self.way, self.pick, self.hop = costs["ready"], costs["way"], costs["pick"], costs["hop"]
        self.wavelets, self.places, self.flood = costs["wavelets"], costs["places"], costs["flood"]
        self.root_hops, self.root_rest, self.root_late = costs["root_hops"], costs["root_rest"], costs["root_late"]
        ready = self.turn + self.ready
        rest, late = costs["rest_along"], costs["late_along"]
        behind_it = self.drain + 1 + self.taken
        self.receive = pass_t(ready + self.edit + rest + behind_it, late + behind_it, ready + self.edit, self.way)
        behind_it = self.drain + self.taken
        self.along = pass_t(ready + rest + behind_it, late + behind_it, ready, self.way)
        rest, late = costs["rest_across"], costs["late_across"]
        self.across = pass_t(ready + rest + behind_it, late + behind_it, ready, self.way)
        self.shares, self.ways, self.down, self.behind = shares, ways, down, behind

    def layer(self, double[:, ::1] at, double[::1] taken):
        """Follow one layer: `at` is when each PE of the first mesh can go on, `taken` the same of the other's roots."""
        cdef long rows = self.shares.shape[0], width = at.shape[1], k, r, x
        cdef runs_t* columns = NULL
        cdef runs_t spare, coming
        spare = coming = runs_t(NULL, 0, 0, 0, 0)
        try:
            columns = <runs_t*>realloc(NULL, width * sizeof(runs_t))
            if columns == NULL:
                raise MemoryError
            for x in range(width):
                columns[x] = runs_t(NULL, 0, 0, 0, 0)
            with nogil:
                for k in range(rows):
                    r = k if self.down else rows - 1 - k
                    for x in range(width):
                        clear(&spare)
                        at[r, x] = self.go_along(at[r, x] + 1, r, &columns[x], &spare)
                        columns[x], spare = spare, columns[x]
                    if r < self.behind:
                        self.go_across(at, taken, r, &coming, &spare)
        finally:
            for x in range(width if columns else 0):
                free(columns[x].at)
            free(columns)
            free(spare.at)
            free(coming.at)

    cdef double go_along(self, double now, long r, runs_t* coming, runs_t* leaving) except? -1 nogil:
        """Return when a PE has the entries of its row in the end; those that it sends go to `leaving`."""
        cdef long kept = self.shares[r, 0], sent = self.shares[r, 1], part
        cdef bint source = self.ways[r, 0], target = self.ways[r, 1], has_cache = self.ways[r, 2]
        now += 1 + has_cache
        for part in range(4):
            if part == (0 if self.down else 3):
                if source:
                    now = passed(coming, self.shares[r, 2], now, self.receive, NULL) + self.end
            elif part == 1:
                if source and target:
                    now = passed(coming, self.shares[r, 3], now, self.along, leaving) + self.end
            elif part == 2:
                now += has_cache * (kept * (self.turn + self.own + self.put + self.taken) + self.end)
            elif has_cache and target:
                append(
                    leaving, now + self.turn + self.own + self.ready + self.way,
                    self.turn + self.own + self.ready + self.sent_along + self.drain + self.taken, sent,
                )
                now += sent * (self.turn + self.own + self.ready + self.sent_along + self.drain + self.taken)
                now += self.end
        return now

    cdef double token(self, double now, long x, runs_t* coming, runs_t* leaving) except? -1 nogil:
        """Return when a PE can go on that has sent its own entry of a token, and passed on those from the west."""
        now += self.turn + self.edit + self.ready
        append(leaving, now + self.way, 0, 1)
        now += self.sent_across + self.drain + 1 + self.load * (x > 0)
        now = passed(coming, x, now, self.across, leaving)
        return now + self.taken + self.taken * (x > 0)

    cdef int go_across(
        self, double[:, ::1] at, double[::1] taken, long r, runs_t* coming, runs_t* leaving
    ) except -1 nogil:
        """Follow the entries of a row to the other mesh."""
        cdef long has = self.shares[r, 4], width = at.shape[1], x, _
        cdef double now
        cdef runs_t kept
        clear(coming)
        for x in range(width - 1):
            clear(leaving)
            now = at[r, x] + 1
            for _ in range(has):
                now = self.token(now, x, coming, leaving)
            at[r, x] = now + self.end
            kept = coming[0]
            coming[0] = leaving[0]
            leaving[0] = kept
        self.cross(at, taken, r, coming)
        return 0

    cdef int cross(self, double[:, ::1] at, double[::1] taken, long r, runs_t* coming) except -1 nogil:
        """Follow the last PE of a row, which waits where the queues to the other mesh are full, and its root there."""
        cdef long has = self.shares[r, 4], last = at.shape[1] - 1, _, number
        cdef double now = at[r, last] + 1, root = taken[r] + 1 + self.load, ready, over, first, leaves, arrival
        cdef run_t* run
        first = leaves = 0
        for _ in range(has):
            ready = root + self.turn + self.ready
            now += self.turn
            for number in range(1 + last):
                if number:
                    run = &coming.at[coming.k]
                    arrival = run.first + run.step * coming.used
                    coming.used += 1
                    if coming.used == run.n:
                        coming.k += 1
                        coming.used = 0
                    leaves = max(now + self.across.ready, arrival) + self.way
                    # The constant behind an entry is added when there is room.
                    now = max(now + self.across.late, arrival + self.across.early) - self.taken
                else:
                    leaves = first = now + self.edit + self.ready + self.way
                    now += self.edit + self.ready + self.sent_across + self.drain
                over = (number + 1) * self.wavelets - self.places
                if over > 0:
                    now = max(now, ready + over + self.root_hops)
                now += self.taken if number else 1 + self.load * (last > 0)
            now += self.taken + self.taken * (last > 0)
            root = max(ready + self.root_rest, first + self.hop + self.root_late)
            root = max(root, leaves + self.hop + self.wavelets) + self.drain
            root += self.flood + self.pick + self.taken
        at[r, last] = now + self.end
        taken[r] = root + self.taken + self.load + 2 + 1 + self.taken
        return 0
