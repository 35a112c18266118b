# Microthreads in turn: what a look does at them (turns.pyx).
from wse_core.records cimport *

cdef enum:                  # what is known of the first cycle that `flows_in_turn` has not done
    TURN_GOES_ON = 0        # nothing
    TURN_ENDS = 1           # no microthread can issue in it as things stand, or an operation has ended
    TURN_NOBODY = 2         # nor can the main thread
    TURN_MAIN = 3           # but the main thread, perhaps, which no microthread would let go first

cdef uint64_t flows_in_turn(region_t* s, ce_t* ce, uint32_t cell, uint64_t start, int* known) noexcept nogil
