# Where the words of a stream stand that has been held up; see jam.pyx.
from wse_core.records cimport *


cdef enum:
    STATIONS = 96           # of a way at most
    WORDS = 1024            # that a PE sends at once
    PLACES = 32             # no queue has more
    HELD = 256              # words that wait at most

ctypedef struct station_t:  # words are taken out of it, one per cycle at most
    ce_t* ce                # that takes them; NULL: the router does
    plane_t* q              # the router's queue, or the one into which the CE sends
    inq_t* inq              # the CE's queue; NULL: it takes the words from memory
    uint64_t* places
    uint64_t* m             # the router's queue: its state
    uint32_t cell
    uint32_t cap
    uint32_t head
    uint32_t held           # words that wait here
    uint32_t first          # number of the first of them, counted from the way's end
    uint32_t outs           # of the router
    uint64_t delay          # from the step or grant before this one until a word is ready here
    uint64_t next           # first cycle in which one may be taken
    uint64_t hungry         # cycles in which the CE waited for words,
    uint64_t blocked        # and for room
    uint64_t takes[PLACES]      # of words modulo PLACES: when they were taken

ctypedef struct jam_t:
    uint32_t n              # stations, against the flow: the last one is the sender
    uint32_t held           # words that wait in all of them
    uint32_t most           # words that may move: they and those to come
    station_t at[STATIONS]

cdef bint jam_stands(region_t* s, jam_t* jam, plane_t* q, uint32_t cell, uint32_t* words) noexcept nogil
cdef void jam_runs(region_t* s, jam_t* jam, uint32_t n, uint64_t* grants) noexcept nogil
cdef bint jam_undisturbed(region_t* s, jam_t* jam) noexcept nogil
cdef void jam_moves(region_t* s, jam_t* jam, uint32_t n, uint32_t* words) noexcept nogil
