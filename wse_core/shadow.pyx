# cython: overflowcheck=False
"""Checks of memory: races, elements outside of the array that an operand begins in, reads of words without a value.

A race is found where two threads of a PE use one word, at least one writes, and the operation of a microthread was
under way over both: nothing orders the two then, whichever came first in this run.  `fabric.host.checks` says it to
people.
"""
from wse_core.records cimport *


cdef void note(region_t* s, uint32_t cell, uint64_t t, int kind, int thread, int other, uint32_t other_at,
               uint64_t before, uint32_t base, uint32_t address, int writes) noexcept nogil:
    # Keep a finding, or count it if one of the same places in the same program is known.
    cdef checks_t* c = s.checks
    cdef finding_t* f
    cdef uint64_t k
    cdef uint32_t at = s.watch[cell].at[thread]
    for k in range(c.n_found):
        f = &c.found[k]
        if (f.kind == kind and f.at == at and f.other_at == other_at and f.thread == thread and f.other == other
                and s.f.program_of[f.cell] == s.f.program_of[cell]):
            f.count += 1
            return
    if c.n_found == MOST_FINDINGS:
        return
    f = &c.found[c.n_found]
    c.n_found += 1
    f.cycle = t
    f.before = before
    f.count = 1
    f.cell = cell
    f.at = at
    f.other_at = other_at
    f.address = address
    f.base = base
    f.kind = kind
    f.thread = thread
    f.other = other
    f.writes = writes

cdef inline bint together(region_t* s, ce_t* ce, uint32_t cell, int thread, int other, uint64_t before) noexcept nogil:
    # Whether nothing orders an access of `thread` now after one of another thread in cycle `before`: the operation of
    # one of them, a microthread, was under way over both.
    if thread == other:
        return False
    if thread != MAIN and s.watch[cell].begun[thread] <= before:
        return True
    return other != MAIN and (ce.uts >> other) & 1 and s.watch[cell].begun[other] <= before

cdef void touches(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, int thread, uint32_t base, int64_t address,
                  int words, bint writes, bint indexed) noexcept nogil:
    # An access of a thread; `base`: where its operand begins; `indexed`: what a word of the fabric says is added.
    cdef int64_t first = address - <int64_t>ce.prog.code_words
    cdef int64_t place = (<char*>ce - ce.prog.blocks) // <int64_t>ce.prog.block_bytes
    cdef int number = s.f.program_of[cell], k
    cdef shadow_t* w
    cdef uint16_t* owner = s.checks.owner[number]
    cdef bint told = False                          # of this access, which may be of two words
    cdef int64_t from_base = <int64_t>base - ce.prog.code_words
    if first < 0 or first + words > <int64_t>ce.prog.data_words:
        return                                      # a fault of its own
    if owner[first] == 0 or (from_base >= 0 and from_base < <int64_t>ce.prog.data_words and owner[from_base] != 0
                             and owner[from_base] != owner[first]):
        note(s, cell, t, FINDING_OUTSIDE, thread, 0, 0, 0, base, <uint32_t>address, writes)
    if thread == MAIN and ce.uts == 0:              # what begins later is ordered after it
        w = s.checks.of[number] + place * ce.prog.data_words + first
        for k in range(words):
            if not writes and w[k].unset and not told:
                note(s, cell, t, FINDING_UNSET, thread, 0, 0, 0, base, <uint32_t>address + k, 0)
                told = True
            if w[k].unset:
                w[k].unset = 0
        return
    for k in range(words):
        w = s.checks.of[number] + place * ce.prog.data_words + first + k
        if w.written and not told and together(s, ce, cell, thread, w.writer, w.written - 1):
            note(s, cell, t, FINDING_RACE, thread, w.writer, w.writer_at, w.written - 1, base, <uint32_t>address + k,
                 writes | 2)
            told = True
        if writes:
            if w.read and not told and together(s, ce, cell, thread, w.reader, w.read - 1):
                note(s, cell, t, FINDING_RACE, thread, w.reader, w.reader_at, w.read - 1, base,
                     <uint32_t>address + k, 1)
                told = True
            w.written = t + 1
            w.writer = thread
            w.writer_at = s.watch[cell].at[thread]
            w.unset = 0
        else:
            if w.unset and not told:
                note(s, cell, t, FINDING_UNSET, thread, 0, 0, 0, base, <uint32_t>address + k, 0)
                told = True
            w.read = t + 1
            w.reader = thread
            w.reader_at = s.watch[cell].at[thread]
