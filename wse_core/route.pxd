# cython: overflowcheck=False
# Route words and control payloads: what a router reads out of them.  Fields: wse_core/encoding.py.
from wse_core.constants cimport *
from wse_core.queue cimport is_control, is_own
from wse_core.records cimport region_t, uint32_t, uint64_t

cdef enum:
    RAMP = 1 << DIR_R       # in a set of directions
    TO_HOST = 1 << DIR_HOST     # beside them: see fabric_t.sinks

cdef inline uint32_t rx_of(uint64_t word, int pos) noexcept nogil:
    return <uint32_t>(word >> (POSITION_BITS * pos)) & ALL_PORTS

cdef inline uint32_t tx_of(uint64_t word, int pos) noexcept nogil:
    return <uint32_t>(word >> (POSITION_BITS * pos + N_PORTS)) & ALL_PORTS

cdef inline int pos_of(uint64_t word) noexcept nogil:
    return <int>(word >> RT_POS) & 3

cdef inline int advanced(uint64_t word, int pos) noexcept nogil:
    # The switch position after an advance: the next valid one; behind the last it stays, or goes to 0 in a ring.
    cdef int k
    for k in range(pos + 1, N_POSITIONS):
        if (word >> (RT_VALID + k)) & 1:
            return k
    return 0 if (word >> RT_RING) & 1 else pos

cdef inline uint32_t outs_of(uint64_t word, uint32_t tx) noexcept nogil:
    # Outputs of a wavelet: a control wavelet may say that it is not to be delivered, or be for this router alone.
    if not is_control(word):
        return tx
    return 0 if is_own(word) else tx & ~<uint32_t>RAMP if (word >> 24) & 1 else tx

cdef inline void note_leads(region_t* s, int color, uint32_t cell, uint64_t word) noexcept nogil:
    # Note which outputs a color that needs arbitration may take, now that its route is this: those of the present
    # position, or all where something special decides.
    cdef uint64_t* sets = s.f.leads[color] + <uint64_t>(cell >> 6) * N_PORTS
    cdef uint64_t bit = <uint64_t>1 << (cell & 63)
    cdef uint32_t outs = tx_of(word, pos_of(word)), p
    if word & (<uint64_t>1 << RT_TEARDOWN | <uint64_t>1 << RT_SPECIAL):
        outs = ALL_PORTS
    for p in range(N_PORTS):
        sets[p] = sets[p] | bit if outs >> p & 1 else sets[p] & ~bit

cdef inline bint does_something(uint64_t word, uint64_t route) noexcept nogil:
    # Whether a wavelet is more than data to a router: a control wavelet with a command, or one that is not delivered or
    # popped. (The commands of streamed weights are none of these.)
    cdef int pop = <int>(route >> RT_POP) & 3
    return is_control(word) and ((word >> 22) & 7 != 0 or not (pop == POP_NEVER or pop == POP_ON_ADVANCE))

cdef inline bint is_border(region_t* s, uint32_t cell) noexcept nogil:
    cdef uint32_t x = cell % s.f.stride
    return x == 0 or x > <uint32_t>s.f.width or cell < s.f.stride or cell >= <uint32_t>(s.f.height + 1) * s.f.stride

cdef inline uint64_t popped(uint64_t payload) noexcept nogil:
    # Remove command 0, move the others down, fill with NOP and do-not-deliver. Commands k >= 3 lie at bits 3k-8 up.
    cdef uint64_t keep = payload & ~<uint64_t>0x3FC0FFFF
    cdef uint64_t seq = ((payload >> 22) & 0xFF) | ((payload & 0xFFFF) << 8)    # 8 commands x 3 bits, command 0 lowest
    seq = (seq >> 3) | (<uint64_t>4 << 21)
    return keep | ((seq & 0xFF) << 22) | ((seq >> 8) & 0xFFFF)
