# cython: overflowcheck=False
# Sets of cells as bitmaps, row by row: which cells, and per row which words of these are not zero.
#
# A row of cells takes whole words, at most 64 of them (or a few rows that share words, or all of a small fabric, count
# as one row), so a second word says which of them to look at, and what is done to one row touches the words of no
# other.  Finding the members of a row costs work per member, not per cell.  Taking a cell out clears its bit only; who
# walks over a row clears what has become untrue of the second word.
from libc.stdint cimport uint32_t, uint64_t

ctypedef struct grid_t:     # how cells lie in words
    uint64_t inverse        # 2^32 / words, rounded up: a multiplication finds the row of a word
    uint32_t words          # per row

ctypedef struct map_t:
    uint64_t* bits          # a bit per cell
    uint64_t* top           # a word per row: words of `bits` that are not zero, or were


cdef inline uint32_t row_of_word(const grid_t* g, uint32_t w) noexcept nogil:
    # Exact as long as w * words is below 2^32.
    return <uint32_t>((w * g.inverse) >> 32)

cdef inline uint32_t row_of(const grid_t* g, uint32_t cell) noexcept nogil:
    return row_of_word(g, cell >> 6)

cdef inline bint map_add(map_t* m, uint32_t cell) noexcept nogil:
    # Put a cell into the set; False: nothing was done, it would be the first one of its word, which is for `map_begin`.
    # The usual case is short, for the loops that visit queues: with the other one inline they lose registers.
    if m.bits[cell >> 6] == 0:
        return False
    m.bits[cell >> 6] |= <uint64_t>1 << (cell & 63)
    return True

cdef inline uint32_t map_begin(map_t* m, const grid_t* g, uint32_t cell) noexcept nogil:
    # Put a cell into the set, the first one of its word; its row.
    cdef uint32_t w = cell >> 6, row = row_of_word(g, w)
    m.bits[w] = <uint64_t>1 << (cell & 63)
    m.top[row] |= <uint64_t>1 << (w - row * g.words)
    return row

cdef inline void map_clear(map_t* m, uint32_t cell) noexcept nogil:
    m.bits[cell >> 6] &= ~(<uint64_t>1 << (cell & 63))
