# cython: overflowcheck=False
# What the C compiler gives: bit counts, branch hints, atomic bits, whether this module reports events; and what
# "inline" means.
from libc.stdint cimport uint32_t, uint64_t

cdef extern from *:
    """
    #define WSE_CTZ64(x) __builtin_ctzll(x)
    #define WSE_CLZ64(x) __builtin_clzll(x)
    #define WSE_POP32(x) __builtin_popcount(x)
    #define WSE_POP64(x) __builtin_popcountll(x)
    #define WSE_LIKELY(x) __builtin_expect(!!(x), 1)
    #define WSE_UNLIKELY(x) __builtin_expect(!!(x), 0)
    #define WSE_KEEP(p) __asm__("" : "+r"(p))   /* p stays in a register instead of being computed again */
    #ifndef WSE_TRACE       /* rooms that report are compiled twice; in one of the two this is 1 */
    #define WSE_TRACE 0
    #endif
    /* bits of words that threads share, each of them its own bits */
    #define WSE_SET_BITS(p, b) __atomic_fetch_or((p), (b), __ATOMIC_RELAXED)
    #define WSE_CLEAR_BITS(p, b) __atomic_fetch_and((p), ~(b), __ATOMIC_RELAXED)
    #define WSE_NEVER ((uint64_t)1 << 62)
    #if !(defined(CYTHON_TRACE_NOGIL) && CYTHON_TRACE_NOGIL)
    #undef CYTHON_INLINE    /* "inline" means it: the hot loops lose a tenth when the compiler decides otherwise */
    #define CYTHON_INLINE inline __attribute__((always_inline))
    #endif
    """
    int ctz64 "WSE_CTZ64"(uint64_t x) noexcept nogil
    int clz64 "WSE_CLZ64"(uint64_t x) noexcept nogil
    int popcount32 "WSE_POP32"(uint32_t x) noexcept nogil
    int popcount64 "WSE_POP64"(uint64_t x) noexcept nogil
    void keep "WSE_KEEP"(void* p) noexcept nogil
    void set_bits "WSE_SET_BITS"(uint64_t* word, uint64_t bits) noexcept nogil
    void clear_bits "WSE_CLEAR_BITS"(uint64_t* word, uint64_t bits) noexcept nogil
    bint TRACE "WSE_TRACE"
    const uint64_t NEVER "WSE_NEVER"    # a cycle that no run reaches
    bint likely "WSE_LIKELY"(bint x) noexcept nogil
    bint unlikely "WSE_UNLIKELY"(bint x) noexcept nogil
