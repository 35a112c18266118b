# cython: overflowcheck=False
"""Forms of vector operations: what is the same for all PEs that run an instruction is kept once.

A thread then takes 40 bytes of a CE block instead of 120, and a set-up copies a third.  Forms are found by a hash of
what they say; none is ever written again or dropped, so whoever holds one needs no lock.  Looking one up takes one: it
happens only where the instruction's last set-up, on whichever PE, was another (vecop.pyx).
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp

from wse_core.records cimport form_t, forms_t

cdef extern from *:
    """
    #define WSE_LOCK(p) while (__atomic_exchange_n((p), 1, __ATOMIC_ACQUIRE)) {}
    #define WSE_UNLOCK(p) __atomic_store_n((p), 0, __ATOMIC_RELEASE)
    """
    void lock "WSE_LOCK"(int* p) noexcept nogil
    void unlock "WSE_UNLOCK"(int* p) noexcept nogil


cdef inline uint32_t hash_of(const form_t* f, size_t size) noexcept nogil:
    cdef const uint32_t* words = <const uint32_t*>f
    cdef uint64_t h = 0
    cdef size_t k
    for k in range(size // 4):
        h = (h ^ words[k]) * <uint64_t>0x9E3779B97F4A7C15
        h ^= h >> 29
    return <uint32_t>(h & (FORM_HASHES - 1))

cdef const form_t* form_kept(forms_t* forms, const form_t* f) noexcept nogil:
    # The form that is kept and equals `f`, whose unused bytes are zero; NULL: there is no room for another one.
    cdef size_t size = <const char*>&f.after - <const char*>f
    cdef uint32_t h = hash_of(f, size), at
    cdef form_t* found = NULL
    lock(&forms.lock)
    at = forms.first[h]
    while at:
        if memcmp(&forms.of[at], f, size) == 0:
            found = &forms.of[at]
            break
        at = forms.of[at].after
    if found == NULL and forms.n + 1 < MOST_FORMS:
        forms.n += 1
        found = &forms.of[forms.n]
        found[0] = f[0]
        found.after = forms.first[h]
        forms.first[h] = forms.n
    unlock(&forms.lock)
    return found
