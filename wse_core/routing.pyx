# cython: overflowcheck=False
"""Which colors of a router need arbitration; writing a route while the fabric runs.

The engine calls `refresh_shared` after loading; a program's `route` and `sw_pos` go through `set_route_word`.
"""
from wse_core.queue cimport wake_color
from wse_core.records cimport *
from wse_core.route cimport is_border, note_leads, rx_of, tx_of


cdef void refresh_shared(region_t* s, uint32_t cell) noexcept nogil:
    # Recompute which colors of a router need arbitration: those that share an output link with another color in any
    # position, have several inputs (in all positions together: a switch may move within a cycle), are swapped or
    # injected.
    cdef uint32_t outs[N_COLORS]
    cdef uint32_t seen = 0, twice = 0, shared = 0, ins
    cdef uint64_t word
    cdef int c, k
    for c in range(N_COLORS):
        outs[c] = 0
        if s.f.route[c] == NULL:
            continue
        word = s.f.route[c][cell]
        ins = 0
        for k in range(N_POSITIONS):
            if (word >> (RT_VALID + k)) & 1:
                outs[c] |= tx_of(word, k)
                ins |= rx_of(word, k)
        if ins & (ins - 1):
            shared |= <uint32_t>1 << c
        if (word >> RT_SWAP) & 3 or (word >> RT_INJECT) & 3:
            shared |= <uint32_t>1 << c
        twice |= seen & outs[c]
        seen |= outs[c]
    for c in range(N_COLORS):
        if s.f.route[c] == NULL:
            continue
        if outs[c] & twice:
            shared |= <uint32_t>1 << c
        word = s.f.route[c][cell] & ~(<uint64_t>1 << RT_SHARED)
        s.f.route[c][cell] = word | (<uint64_t>((shared >> c) & 1) << RT_SHARED)
        if (shared >> c) & 1:
            note_leads(s, c, cell, word)
            s.f.shared_bits[c][cell >> 6] |= <uint64_t>1 << (cell & 63)
        elif s.f.shared[cell]:
            s.f.shared_bits[c][cell >> 6] &= ~(<uint64_t>1 << (cell & 63))
    if s.f.shared[cell] != shared:
        s.f.shared[cell] = shared

cdef void set_route_word(region_t* s, int color, uint32_t cell, uint64_t word) noexcept nogil:
    # A configuration word written at run time; it may now lead out of the rectangle.
    cdef int k, d
    for k in range(N_POSITIONS):
        for d in range(DIR_R):
            if (tx_of(word, k) >> d) & 1 and is_border(s, cell + s.f.delta[d]):
                word |= <uint64_t>1 << RT_SPECIAL
    s.f.route[color][cell] = word
    s.f.arb[2 * cell] &= ~(<uint32_t>1 << color)
    wake_color(s, color, cell, ALL_PORTS)
    refresh_shared(s, cell)
