# cython: overflowcheck=False
# Sets of cells as bitmaps of three levels: which cells, which words of these are not zero, which words of those are.
#
# Finding the members costs work per member, not per cell: a whole wafer is three words of the third level.  Taking a
# cell out clears the first two levels only; who walks over the set clears the third with `map_prune` or as it goes.
# A walk hands out words of the first level, since callers split these (colors that share, colors that do not):
#
#     walk = map_walk(m, down)
#     while map_next(m, &walk, down, take):
#         ... m.bits[walk.w], cells walk.w * 64 up
from libc.stdint cimport uint32_t, uint64_t

from wse_core.builtins cimport clz64, ctz64

ctypedef struct map3_t:
    uint64_t* bits          # a bit per cell
    uint64_t* bits2         # words of `bits` that are not zero
    uint64_t* bits3         # words of `bits2` that are not zero, or were
    uint32_t n3             # words of `bits3`

ctypedef struct walk_t:     # a place in a walk over a map
    uint64_t b2, b3         # what is left of the words that the walk is in
    uint32_t left           # words of `bits3` to come
    uint32_t w3, w2, w      # numbers of the words that the walk is in


cdef inline uint32_t words_for(uint32_t n) noexcept nogil:
    # Words that hold n bits.
    return (n + 63) >> 6

cdef inline bint map_set(map3_t* m, uint32_t cell) noexcept nogil:
    # Put a cell into the set; whether it is the first one of its word.
    cdef uint32_t w = cell >> 6
    cdef uint64_t* word = m.bits + w
    if (word[0] >> (cell & 63)) & 1:
        return False
    if word[0]:
        word[0] |= <uint64_t>1 << (cell & 63)
        return False
    word[0] = <uint64_t>1 << (cell & 63)
    m.bits2[w >> 6] |= <uint64_t>1 << (w & 63)
    m.bits3[w >> 12] |= <uint64_t>1 << ((w >> 6) & 63)
    return True

cdef inline void map_clear(map3_t* m, uint32_t cell) noexcept nogil:
    cdef uint32_t w = cell >> 6
    m.bits[w] &= ~(<uint64_t>1 << (cell & 63))
    if m.bits[w] == 0:
        m.bits2[w >> 6] &= ~(<uint64_t>1 << (w & 63))

cdef inline walk_t map_walk(const map3_t* m) noexcept nogil:
    # A walk that has not begun.
    cdef walk_t k
    k.b2 = 0
    k.b3 = 0
    k.w3 = 0
    k.w2 = 0
    k.w = 0
    k.left = m.n3
    return k

cdef inline bint map_next(map3_t* m, walk_t* k, bint down, bint take) noexcept nogil:
    # Go to the next word of `bits` that may hold cells, upwards or `down`. `take`: the words of the upper levels are
    # cleared when the walk enters them, as the caller will clear those of `bits`.
    cdef int at
    while k.b2 == 0:
        while k.b3 == 0:
            if k.left == 0:
                return False
            k.left -= 1
            k.w3 = k.left if down else m.n3 - 1 - k.left
            k.b3 = m.bits3[k.w3]
            if take:
                m.bits3[k.w3] = 0
        at = 63 - clz64(k.b3) if down else ctz64(k.b3)
        k.b3 &= ~(<uint64_t>1 << at)
        k.w2 = k.w3 * 64 + at
        k.b2 = m.bits2[k.w2]
        if take:
            m.bits2[k.w2] = 0
    at = 63 - clz64(k.b2) if down else ctz64(k.b2)
    k.b2 &= ~(<uint64_t>1 << at)
    k.w = k.w2 * 64 + at
    return True

cdef inline bint map_prune(map3_t* m) noexcept nogil:
    # Clear what has become untrue of the third level; whether the set may hold anything.
    cdef uint32_t w3
    cdef uint64_t b3
    cdef bint any = False
    for w3 in range(m.n3):
        b3 = m.bits3[w3]
        while b3:
            if m.bits2[w3 * 64 + ctz64(b3)] == 0:
                m.bits3[w3] &= ~(b3 & (~b3 + 1))
            b3 &= b3 - 1
        any = any or m.bits3[w3] != 0
    return any
