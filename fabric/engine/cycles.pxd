from wse_core.records cimport region_t, uint32_t, uint64_t

cdef enum:                  # why a run came back
    RUN_LIMIT = 0
    RUN_QUIET = 1           # nothing can ever change
    RUN_FAULT = 2
    RUN_BREAK = 3           # let Python look for signals
    RUN_BUSY = 4            # so much moves in each cycle that bands of rows pay
    BUSY_CYCLES = 8         # in a row, for that
    AHEAD = 0x400000        # cycles that a CE may run ahead of the clock
    REFRESH = 0x08000000    # cycles between sweeps of stamps and counters; stamps older than that are rewritten
    MATES = 63              # threads besides the first one
    APART = 8               # words from band to band in `done`: threads that wait and write share no line of a cache

ctypedef struct turn_t:     # some cycles of all rows, band after band
    uint32_t* edges         # first rows of the bands, and the row behind the last one; there may be none such
    uint64_t n_bands
    uint64_t turn           # cycles that a band runs, at most
    int threads
    uint64_t start          # the first cycle of this turn, and how many there are
    uint64_t cycles
    uint64_t next           # the band that nobody has begun
    uint64_t* done          # per band: cycles done; bands lie APART words from each other

ctypedef struct mate_t:     # a thread besides the first one
    region_t* s
    turn_t* turn

cdef void cycle_of(region_t* s, uint32_t first, uint32_t end, bint fetches) noexcept nogil
cdef uint64_t next_wake(region_t* s) noexcept nogil
cdef uint64_t earlier(uint64_t a, uint64_t b) noexcept nogil
cdef uint64_t next_at_edge(region_t* s) noexcept nogil
cdef uint64_t quiet_since(region_t* s) noexcept nogil
cdef uint32_t looks_now(region_t* s) noexcept nogil
cdef void stamps_refresh(region_t* s) noexcept nogil
cdef int run_cycles(region_t* s, uint64_t limit, int busy, uint64_t piece, uint64_t events) noexcept nogil
cdef int run_bands(region_t* s, uint64_t limit, turn_t* t, mate_t* mates) noexcept nogil
