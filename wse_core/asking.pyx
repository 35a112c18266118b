# cython: overflowcheck=False
"""Rivals of a cycle: routers in which two queues that need arbitration may ask for one output.

Counted for a whole word of cells, the first time that a queue of it needs to know, and good for the phase of the row:
what comes into the activity maps from then on is not ready in this cycle, or finds no room in it, and no route that is
arbitrated changes before its row has been scanned.  Asked per queue and word, as it was before, it was an eighth of the
router's instructions in streamed training.
"""
from wse_core.builtins cimport ctz64
from wse_core.records cimport *


cdef enum:
    LEFT_OUT = 15           # words: where nobody passes anybody, as in an exchange, to find that out costs a fortieth

cdef uint64_t meeting(region_t* s, uint32_t row, uint32_t w, uint64_t several) noexcept nogil:
    # Of cells with several such queues, those where two of them lead to one output: the others move without being
    # asked.  Gain: a sixteenth of the instructions of a decoder's step, whose sums and results pass each other.
    cdef uint64_t once[N_PORTS]
    cdef uint64_t twice = 0, planes, cells
    cdef const uint64_t* leads
    cdef int half, p
    cdef plane_t* q
    for p in range(N_PORTS):
        once[p] = 0
    for half in range(2):
        planes = s.rows[row].planes[half] & s.timed[half]
        while planes:
            q = &s.plane[half * 64 + ctz64(planes)]
            planes &= planes - 1
            cells = q.map.bits[w] & s.f.shared_bits[q.color][w] & several
            if cells == 0:
                continue
            leads = s.f.leads[q.color] + <uint64_t>w * N_PORTS
            for p in range(N_PORTS):
                twice |= once[p] & leads[p] & cells
                once[p] |= leads[p] & cells
            if twice == several:
                return twice
    return twice

cdef void count_rivals(region_t* s, uint32_t row, uint32_t w, uint64_t* found) noexcept nogil:
    # Of one word of cells, those with two queues or more in the activity maps whose colors need arbitration there, and
    # may take the same output.
    cdef uint64_t once = 0, twice = 0, planes, cells
    cdef int half
    cdef plane_t* q
    for half in range(2):
        planes = s.rows[row].planes[half] & s.timed[half]
        while planes:
            q = &s.plane[half * 64 + ctz64(planes)]
            planes &= planes - 1
            cells = q.map.bits[w] & s.f.shared_bits[q.color][w]
            twice |= once & cells
            once |= cells
    if twice and s.met:
        s.met -= 1
    elif twice:
        once = meeting(s, row, w, twice)
        s.met = LEFT_OUT if once == twice else 0
        twice = once
    found[0] = twice
