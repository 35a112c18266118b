# cython: overflowcheck=False
# FIFOs: whether a step finds enough in one, and which steps end a wait of the other side.
#
# An *event* is a step that finds too few elements, or too little room.  Of an operation that the FIFO holds up nothing
# need be remembered: whether it waits can be told when a step of the other side comes (`waits`).  An operation that the
# FIFO has ended is gone, so `fifo_t.ended` remembers its step.  Rules: docs/machine.md, "Tasks that a FIFO activates".
from wse_core.account cimport activate
from wse_core.block cimport *
from wse_core.builtins cimport *
from wse_core.operand cimport desc, fifo_of
from wse_core.records cimport *


cdef inline uint32_t fifo_group(const thread_t* th) noexcept nogil:
    # Elements of the next step of an operation with a FIFO.
    cdef uint32_t left = th.n - th.k        # at most 2 are done at once
    return th.form.group if th.form.group < left else left

cdef inline bint fifo_lacks(ce_t* ce, const opnd_t* o, int pushes, uint32_t g) noexcept nogil:
    cdef uint32_t count = fifo_of(ce, o).count
    return count + g > desc(ce, o).length if pushes else count < g

cdef inline void fifo_ends(ce_t* ce, const opnd_t* o, int pushes, uint32_t g) noexcept nogil:
    # A FIFO ends an operation whose next step is one of g elements.
    fifo_of(ce, o).ended[pushes] |= <uint16_t>(1 << (g - 1))

cdef inline bint waits(ce_t* ce, const thread_t* th, const fifo_t* f, int pushes, uint64_t t) noexcept nogil:
    # Whether the next step of an operation is one that pushes to a FIFO, or takes from it.
    cdef const form_t* form = th.form
    if th.next > t or th.kind == KIND_ADVANCE:
        return False
    if pushes:
        return form.a.mode == OPND_FIFO and fifo_of(ce, &form.a) == f
    return (form.b.mode == OPND_FIFO and fifo_of(ce, &form.b) == f
            or form.c.mode == OPND_FIFO and fifo_of(ce, &form.c) == f)

cdef inline bint fifo_relieves(ce_t* ce, const thread_t* th, fifo_t* f, int pushes, int64_t there, uint32_t g,
                               uint64_t t) noexcept nogil:
    # Whether a step by which `there` elements, or places, came to be there, g of them new, ends an event of the other
    # side, which `pushes` or takes.
    cdef uint32_t others = ce.uts, wanted
    cdef const thread_t* other
    cdef uint16_t enough = 3 if there >= 2 else 1 if there == 1 else 0      # for these steps, as a set
    if f.ended[pushes] & enough:
        f.ended[pushes] &= ~enough
        return True
    if ce.main_state == MAIN_VECTOR:
        others |= <uint32_t>1 << MAIN
    others &= ~(<uint32_t>1 << th.form.id)
    while others:
        other = &ce.main if ctz64(others) == MAIN else ut_of(ce, ctz64(others))
        others &= others - 1
        if waits(ce, other, f, pushes, t):
            wanted = fifo_group(other)
            if there - g < wanted <= there:
                return True
    return False

cdef inline bint fifo_moved(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, const thread_t* th, const opnd_t* o,
                            int pushed, uint32_t g) noexcept nogil:
    # A step has moved all its elements, g of them into a FIFO or out of it. False after a fault.
    cdef fifo_t* f = fifo_of(ce, o)
    cdef const desc_t* d = desc(ce, o)
    cdef int64_t there = f.count if pushed else <int64_t>d.length - f.count
    cdef int task = d.push_task if pushed else d.pop_task
    if (task != NO_TASK or f.ended[not pushed]) and fifo_relieves(ce, th, f, not pushed, there, g, t):
        return task == NO_TASK or activate(s, ce, cell, t, task)
    return True
