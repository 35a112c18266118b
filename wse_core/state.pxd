# cython: overflowcheck=False
# The state of a fabric: flat tables, indexed by cell, and the small inline functions that everybody shares.
#
# A cell is one PE or one place of the one-cell border around the rectangle: cell = (y + 1) * stride + x + 1, stride =
# width + 2; the neighbour in direction d is cell + delta[d].  Nothing here knows Python; `fabric.engine.memory`
# allocates the tables (no-reserve mappings: what is never touched costs nothing), router.pyx and ce.pyx advance them.
# Cycle rules: docs/machine.md.
#
# A queue word is one uint64: payload (bits 0-31), control (32), valid (33), stamp (34-63).  The stamp is the first
# cycle, modulo 2^30, in which the word may be used by the other side: a valid word may be taken, a free place may be
# filled.  So a word has one writer per state and a cycle needs no commit phase: whatever happens in cycle t is stamped
# t + 1 or later and cannot be seen in t, in whatever order cells are visited.  Stamps are compared as signed distances;
# `stamps_refresh` keeps every stamp within half the range (the only cost of 30 bits: one sweep in 2^28 cycles).
from libc.stdlib cimport realloc
from libc.stdint cimport uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, uint64_t, int64_t

from wse_core.constants cimport *
from wse_core.arithmetic cimport num_t

cdef extern from *:
    """
    #define WSE_CTZ64(x) __builtin_ctzll(x)
    #define WSE_CLZ64(x) __builtin_clzll(x)
    #define WSE_POP32(x) __builtin_popcount(x)
    #define WSE_LIKELY(x) __builtin_expect(!!(x), 1)
    #define WSE_UNLIKELY(x) __builtin_expect(!!(x), 0)
    #ifndef WSE_TRACE       /* router.pyx and ce.pyx are compiled twice; in one of the two this is 1 */
    #define WSE_TRACE 0
    #endif
    #if !(defined(CYTHON_TRACE_NOGIL) && CYTHON_TRACE_NOGIL)
    #undef CYTHON_INLINE    /* "inline" means it: the hot loops lose a tenth when the compiler decides otherwise */
    #define CYTHON_INLINE inline __attribute__((always_inline))
    #endif
    """
    int ctz64 "WSE_CTZ64"(uint64_t x) noexcept nogil
    int clz64 "WSE_CLZ64"(uint64_t x) noexcept nogil
    int popcount32 "WSE_POP32"(uint32_t x) noexcept nogil
    bint TRACE "WSE_TRACE"
    bint likely "WSE_LIKELY"(bint x) noexcept nogil
    bint unlikely "WSE_UNLIKELY"(bint x) noexcept nogil

cdef enum:
    RING = 16               # cycles ahead that the wake ring covers; a power of two
    WHEEL = 1024            # buckets of the timing wheel; a power of two

cdef enum:                  # operand of a vector operation
    OPND_NONE = 0
    OPND_CONST = 1          # register value captured at issue
    OPND_REG = 2            # destination register
    OPND_MEM1D = 3
    OPND_MEM4D = 4
    OPND_CIRCULAR = 5
    OPND_FIFO = 6
    OPND_FABIN = 7
    OPND_FABOUT = 8

cdef enum:                  # source of a plain stream's operand
    STREAM_NONE = 0
    STREAM_MEMORY = 1
    STREAM_CONST = 2
    STREAM_FABRIC = 3
    NO_PLACE = 255

cdef enum:
    HEAD = 127
    SLEEPER = 128           # a queue upstream waits for room here, out of the activity map; the next pop wakes it

ctypedef struct plane_t:    # all queues of one color and input port
    uint64_t* slots         # n_cells * stride words
    uint64_t* heads         # n_cells; bits 0-6: index of the head; 7: SLEEPER; above: wavelets moved out of this queue
    uint64_t* granted       # n_cells: cycle of the last grant + 1, 0 = never; NULL: the color is arbitrated nowhere
    uint8_t* tail           # n_cells: index of the place to fill next
    uint8_t* cap            # n_cells: capacity of each ring, or NULL: `depth` everywhere
    uint64_t* bits          # cells that may hold wavelets
    uint64_t* bits2         # words of `bits` that are not zero
    uint64_t* bits3         # words of `bits2` that are not zero
    bint used               # a wavelet was here
    int depth               # words per cell in `slots`
    int color
    int port

ctypedef struct desc_t:     # a descriptor; twin of image.DESC_DTYPE
    uint8_t kind
    uint8_t flags
    uint8_t queue
    uint8_t xdsr
    uint8_t on_control
    uint8_t control_task
    uint8_t push_task
    uint8_t pop_task
    uint16_t base
    uint16_t index
    uint16_t length
    uint8_t ndim
    uint8_t pad
    uint16_t extent[4]
    int16_t stride[4]

ctypedef struct dsr_t:      # a DSR: a descriptor of the program, and what can change of it
    uint16_t number         # of the descriptor, from 1; 0 = none
    uint16_t base
    uint16_t index
    uint16_t extent         # of the outermost dimension
    int16_t stride

ctypedef struct route_t:    # twin of image.ROUTE_DTYPE
    uint8_t rx[N_POSITIONS]
    uint8_t tx[N_POSITIONS]
    uint8_t valid
    uint8_t pos
    uint8_t ring
    uint8_t pop
    uint8_t teardown
    uint8_t filter
    uint8_t swap
    uint8_t inject

ctypedef struct filter_t:   # twin of image.FILTER_DTYPE
    uint8_t kind
    uint8_t count_data
    uint8_t count_control
    uint8_t filter_control
    uint16_t counter
    uint16_t max
    uint16_t limit
    uint16_t min_idx
    uint16_t max_idx
    uint16_t pad

ctypedef struct instr_t:    # a decoded instruction
    uint8_t op
    uint8_t form
    uint8_t cost            # cost class
    uint8_t flags           # I_* below
    uint8_t a, b, c, d      # operand fields
    uint8_t lanes
    uint8_t wa, wb, wc, wd  # SRAM words per element of each operand, 0 = absent
    uint8_t pad
    uint16_t slots          # issue slots [cycles]
    uint16_t gap            # issue to the next instruction of the thread, if nothing else says more [cycles]
    uint16_t latency        # issue to use of the result [cycles]
    uint32_t imm
    uint32_t next           # index of the next instruction
    uint32_t target         # index of the branch target
    uint32_t at             # code word index, for people
    uint16_t reads          # registers read at issue
    uint16_t writes         # registers written
    uint16_t dsrs[FILE_REG]     # DSRs named, per file

cdef enum:                  # instr_t.flags
    I_VECTOR = 1
    I_IMM = 2
    I_REAL = 4              # touches the router: must execute in real time, not ahead of it
    I_ASYNC = 8

ctypedef struct opnd_t:     # one operand of a running vector operation
    uint8_t mode
    uint8_t words           # SRAM words per element
    uint8_t reg             # OPND_REG: register number
    uint8_t queue
    uint8_t flags           # descriptor flags
    uint8_t dsr             # its place in the CE block, NO_PLACE = none
    uint8_t plane           # OPND_FABOUT: plane number of the R queue
    uint8_t checked         # no element can fault: whole range legal and aligned
    int32_t base            # word address of element 0; OPND_CONST: the value
    int32_t step            # words from element to element (innermost dimension)

ctypedef struct inq_t:      # an input queue; takes as many places as its capacity
    uint8_t head
    uint8_t tail
    uint8_t cap
    uint8_t color
    uint8_t sleeper         # the router's queue waits for room, out of the activity map
    uint8_t pad[3]
    uint64_t slots[1]

ctypedef struct stream_t:   # where a plain stream reads or writes one operand (see ce.pyx, "Plain streams")
    uint32_t at             # next word, relative to the PE's data; or the value of a constant
    int16_t step            # words from element to element; 0 for a constant
    uint8_t words           # SRAM words per element
    uint8_t source          # STREAM_*

ctypedef struct thread_t:   # a vector operation in progress; all that a plain stream needs lies in the first cache line
    uint64_t next           # first cycle in which the next step may issue
    uint32_t n              # length, or NO_END
    uint32_t k              # elements done
    uint32_t scalar         # multiplier of a multiply-add
    uint8_t active
    uint8_t op
    uint8_t lanes           # after stride rules
    uint8_t group           # elements of a full step
    stream_t to, from_b, from_c
    uint8_t stream          # a plain stream
    uint8_t inq             # its fabric input's place in the CE block, NO_PLACE = none
    uint8_t plane           # plane of the R queue of its fabric output, NO_PLACE = none
    uint8_t wait            # WAIT_* found at the last look
    uint8_t id              # 0-7 microthread, 8 main
    uint8_t memory          # no fabric or FIFO operand
    uint8_t bulk            # memory operands only, none can fault: may advance many steps at once
    uint8_t sending_advance     # all elements done, the advance_switch wavelet is still to be sent
    uint8_t turn            # a plain stream each step of which takes a cycle, or the same with two fabric inputs
    uint8_t inq2            # the second one's place in the CE block
    uint8_t live            # the multiplier is the destination register: read anew for each element
    uint8_t level           # of a microthread's issue
    uint8_t act_task        # NO_TASK = none
    uint8_t unblock_task
    uint8_t pad
    uint8_t one_bank        # all elements of the destination lie in one bank
    uint16_t latency        # of the op's result in a destination register
    uint16_t dsrs[FILE_REG]     # DSRs in use, per file
    opnd_t a, b, c

ctypedef struct fifo_t:
    uint16_t head
    uint16_t count

ctypedef struct program_t:
    instr_t* code
    uint32_t n_code         # at most 12,288: a program fits SRAM
    int32_t entry[N_TASK_IDS]
    int32_t control_entry[N_CONTROL_IDS]
    uint32_t bound          # ids with an entry
    uint32_t active         # initial bits
    uint32_t blocked
    uint32_t data_tasks
    uint32_t high
    uint32_t inq_mask       # queues bound
    int8_t inq_color[N_QUEUES]
    int8_t outq_color[N_QUEUES]
    int8_t inq_of_task[N_TASK_IDS]  # input queue of a color, -1 = none
    int8_t dsr_slot[FILE_REG][N_DSRS]      # per file
    int8_t inq_slot[N_QUEUES]
    uint16_t inq_at[N_QUEUES]      # where the parts of a CE block begin: input queues by slot,
    uint16_t ut_at[N_UTS]       # microthreads by number (0 = not used),
    uint16_t dsr_at
    uint16_t fifo_at
    uint16_t stack_at       # return stack and its depth, 0 = no call
    uint16_t lfsr_at        # states of the generators, 0 = no random numbers
    uint16_t ready_at       # when registers are ready, 0 = always at once
    bint calls              # some instruction calls or returns
    bint draws              # some instruction needs random numbers
    bint delays             # some instruction's result is ready later than the next cycle
    int n_ut
    int n_dsr
    int n_inq
    int n_fifo
    desc_t* descriptors
    uint32_t n_desc
    uint32_t code_words
    uint32_t data_words     # footprint - code_words
    uint8_t main_level
    num_t num
    uint64_t block_bytes    # of one CE block: ce_t and the parts above
    char* blocks
    uint16_t* sram          # data of all PEs of this program, data_words each
    uint32_t n_pe

ctypedef struct ready_t:    # register r is ready in base + after[r]
    uint64_t base
    uint16_t after[N_REGS]

ctypedef struct ce_t:       # ordered by how often a look touches it
    uint64_t acct           # every cycle before this one is booked
    uint64_t next           # main: first cycle in which it may issue
    uint64_t pipe_free
    uint64_t resume         # the main thread ran ahead to here; nothing to do before
    program_t* prog         # NULL until the PE first does something
    uint16_t* sram          # word address code_words
    uint8_t main_state
    uint8_t rr              # thread that issued last
    uint8_t wait            # WAIT_* of the cycles from `acct` on
    uint8_t want_space      # a thread waits for room in an output queue
    uint8_t uts             # set of busy microthreads
    uint8_t last_task
    uint8_t prng
    uint8_t plain           # every busy microthread is a plain stream with steps of one cycle, all of one level
    uint16_t teardown_due   # ring of bits: task 29 to be activated in cycle (bit index modulo 16)
    uint16_t pc             # index of the next instruction
    uint32_t activated
    uint32_t blocked
    uint32_t counts[N_COUNTS]   # by COUNT_*: what is not yet in state_t.counts
    uint16_t dsr_busy[FILE_REG]    # DSRs in use by microthreads
    uint16_t tail_conflict  # conflict cycles at the end of the last booked issue
    uint64_t ready_max      # no register is ready later than this
    uint16_t regs[N_REGS]
    thread_t main

ctypedef struct fault_t:
    int kind
    uint32_t cell
    uint64_t cycle
    int64_t address
    int color
    int detail              # D_*
    int64_t value

ctypedef struct stream_in_t:
    uint32_t cell           # edge PE
    int plane
    uint64_t* words         # payload | control << 32
    uint64_t n
    uint64_t at
    uint64_t room

ctypedef struct stream_out_t:
    uint32_t cell           # border cell
    int color
    int port                # port of the border cell
    uint64_t* cycles
    uint64_t* words
    uint64_t n
    uint64_t room

ctypedef struct later_t:    # queues to be put into the activity maps in one cycle: cell, plane << 32
    uint64_t* items
    uint64_t n
    uint64_t room

ctypedef struct params_t:   # of the machine, in cycles and words
    int hop, ramp_in, ramp_out, execute
    int task_start, round_robin
    int drain, start, stride4
    int banks, conflict_rule, conflict_cycles, write_cycles, read_ports     # rule: RULE_*
    int taken, not_taken, call, ret
    int prng_steps
    uint64_t tsc_mask

cdef packed struct event_t:  # twin of wse_core.events.EVENT_DTYPE; the engine turns the cell into x and y
    uint64_t cycle
    uint32_t data
    uint32_t cell
    uint8_t kind
    uint8_t color
    uint8_t aux
    uint8_t flags

ctypedef struct watch_t:    # per cell, only while events are recorded
    uint64_t begin, end     # the wait that was booked last; begin == end: none
    uint8_t reason, queue, color
    uint32_t lost[MAIN + 1]        # cycles that the operation of each thread lost to bank conflicts

ctypedef struct state_t:
    uint64_t now
    uint64_t ahead          # no CE may act in this cycle or later: the end of the run, or a bound on running ahead
    int width, height
    uint32_t stride
    uint32_t n_cells
    uint32_t n_words        # of a bitmap over cells
    uint32_t n_words2
    uint32_t n_words3
    int32_t delta[4]
    params_t p
    plane_t plane[N_PLANES]
    uint64_t* route[N_COLORS]     # route words per color, NULL = color not used
    uint32_t* shared        # per cell: colors that need arbitration
    uint64_t* shared_bits[N_COLORS]   # per color: cells in which it needs arbitration
    uint64_t* arb_bits      # cells to arbitrate in this cycle, and the words of them that are not zero
    uint64_t* arb_bits2
    uint32_t* arb           # per cell two sets of colors: requests not yet granted, colors for the general path
    later_t later[RING]       # by cycle modulo RING
    uint64_t n_later
    filter_t* filters       # per cell N_FILTERS, or NULL
    uint64_t active[(N_PLANES + 63) >> 6]  # planes that may hold wavelets
    ce_t** ce               # per cell, NULL = no program; zero memory until the PE first does something
    int16_t* program_of     # per cell
    uint32_t* awake         # cells whose CE has done something, in no order
    uint32_t n_awake
    int in_caps[N_QUEUES]          # capacity of the input queues
    uint64_t* counts        # per cell N_COUNTS: counters that were moved out of the CE blocks, see `counts_fold`
    uint32_t seed           # of the random generators
    # of this cycle: the upper part of words that become ready in a neighbour's queue, or in a CE's input queue
    uint64_t hop_word
    uint64_t ramp_word
    # wake ring and timing wheel of the CEs
    uint64_t* ring_bits     # RING * n_words
    uint64_t* ring_bits2    # RING * n_words2
    uint64_t* ring_bits3    # RING * n_words3
    uint32_t ring_any       # ring slots with work
    uint32_t* wheel_next    # per cell, 0 = end (cell 0 is border, never a PE)
    uint32_t* wheel_prev
    uint64_t* wheel_time    # per cell, 0 = not in the wheel
    uint32_t wheel_head[WHEEL]
    uint64_t wheel_used[WHEEL >> 6]
    uint64_t wheel_count
    # what happened
    int moved               # a wavelet moved in this cycle
    int waiting             # the next cycle must not be skipped: a stamp lies ahead, or a CE changed what routers see
    int64_t last_active
    uint64_t hops
    uint64_t next_refresh
    uint64_t sweep          # cycles between two sweeps
    fault_t fault
    stream_in_t* ins
    int n_ins
    stream_out_t* outs
    int n_outs
    bint shares             # some router has colors that need arbitration
    bint reroutes           # a program writes routes: any color may come to need it
    bint controls           # control wavelets may be under way: a program sends them, or the host does
    bint injects            # some color has CE injection: routers look at R queues, so nothing is sent ahead of time
    uint64_t events         # work done, for the engine's breaks
    uint64_t order          # 0, or the state of a generator that varies the order of visits (tests: it must not matter)
    program_t* programs
    int n_programs
    # events, while they are recorded
    event_t* traced
    uint64_t n_traced
    uint64_t room_traced
    uint32_t traced_kinds
    watch_t* watch


cdef inline uint32_t vary(state_t* s, uint32_t n) noexcept nogil:
    # A number below n for a varied order of visits.
    s.order = s.order * <uint64_t>6364136223846793005 + <uint64_t>1442695040888963407
    return <uint32_t>(s.order >> 33) % n


# --- events -----------------------------------------------------------------------------------------------------------
cdef inline void emit(state_t* s, uint32_t cell, uint64_t cycle, int kind, int color, int aux, uint64_t data,
                      int flags) noexcept nogil:
    cdef event_t* e
    cdef event_t* grown
    cdef uint64_t room
    if not (s.traced_kinds >> kind) & 1:
        return
    if unlikely(s.n_traced == s.room_traced):
        room = 2 * s.room_traced + 4096
        grown = <event_t*>realloc(s.traced, room * sizeof(event_t))
        if grown == NULL:
            return
        s.traced = grown
        s.room_traced = room
    e = &s.traced[s.n_traced]
    e.cycle = cycle
    e.data = <uint32_t>data
    e.cell = cell
    e.kind = kind
    e.color = color
    e.aux = aux
    e.flags = flags
    s.n_traced += 1


# --- queue words ------------------------------------------------------------------------------------------------------
cdef inline uint64_t stamp_of(uint64_t cycle) noexcept nogil:
    return cycle << SHIFT_STAMP

cdef inline bint usable(uint64_t word, uint64_t now) noexcept nogil:
    # Whether the stamp of `word` is not in the future of `now`: sign of the distance modulo 2^30. What stands below the
    # stamp need not be masked when it is subtracted from ones.
    return <int64_t>(((now + 1) << SHIFT_STAMP) - 1 - word) >= 0

cdef inline bint is_valid(uint64_t word) noexcept nogil:
    return (word >> SHIFT_VALID) & 1

cdef inline bint is_control(uint64_t word) noexcept nogil:
    return (word >> SHIFT_CTRL) & 1

cdef inline bint takeable(uint64_t word, uint64_t now) noexcept nogil:
    return is_valid(word) and usable(word, now)

cdef inline bint has_room(uint64_t word, uint64_t now) noexcept nogil:
    return not is_valid(word) and usable(word, now)

cdef inline uint64_t ready_cycle(uint64_t word, uint64_t now) noexcept nogil:
    # The full cycle number of a stamp, which lies within 2^29 cycles of `now`.
    return now - <uint64_t>(<int64_t>((now << SHIFT_STAMP) - ((word >> SHIFT_STAMP) << SHIFT_STAMP)) >> SHIFT_STAMP)


# --- CE blocks --------------------------------------------------------------------------------------------------------
cdef inline uint64_t lines(uint64_t n) noexcept nogil:
    return (n + 63) & ~<uint64_t>63

cdef inline inq_t* inq_at(ce_t* ce, int slot) noexcept nogil:
    return <inq_t*>(<char*>ce + ce.prog.inq_at[slot])

cdef inline thread_t* ut_of(ce_t* ce, int ut) noexcept nogil:
    return <thread_t*>(<char*>ce + ce.prog.ut_at[ut])

cdef inline dsr_t* dsr_at(ce_t* ce, int slot) noexcept nogil:
    return <dsr_t*>(<char*>ce + ce.prog.dsr_at) + slot

cdef inline desc_t* desc_of(ce_t* ce, dsr_t* d) noexcept nogil:
    return ce.prog.descriptors + d.number - 1

cdef inline uint16_t* depth_of(ce_t* ce) noexcept nogil:
    # Number of return addresses on the stack, which lies before it.
    return <uint16_t*>(<char*>ce + ce.prog.stack_at)

cdef inline uint16_t* stack_of(ce_t* ce) noexcept nogil:
    return depth_of(ce) + 1

cdef inline ready_t* ready_of(ce_t* ce) noexcept nogil:
    return <ready_t*>(<char*>ce + ce.prog.ready_at)

cdef inline uint32_t* lfsr_of(ce_t* ce) noexcept nogil:
    return <uint32_t*>(<char*>ce + ce.prog.lfsr_at)

cdef inline void ce_layout(state_t* s, program_t* g) noexcept nogil:
    # Everything one PE needs besides SRAM, as large as its program asks for. Hot parts begin on cache lines, where that
    # costs little.
    cdef uint64_t at = sizeof(ce_t)
    cdef int k
    for k in range(N_QUEUES):
        if g.inq_slot[k] >= 0:
            g.inq_at[g.inq_slot[k]] = <uint16_t>at
            at += sizeof(inq_t) + (s.in_caps[k] - 1) * sizeof(uint64_t)
    if g.delays:
        g.ready_at = <uint16_t>at
        at += sizeof(ready_t)
    if g.n_ut:
        at = lines(at)
    for k in range(N_UTS):
        if g.ut_at[k]:
            g.ut_at[k] = <uint16_t>at
            at += lines(sizeof(thread_t))
    if g.draws:
        g.lfsr_at = <uint16_t>at
        at += N_GENERATORS * sizeof(uint32_t)
    g.dsr_at = <uint16_t>at
    at += g.n_dsr * sizeof(dsr_t)
    g.fifo_at = <uint16_t>at
    at += g.n_fifo * sizeof(fifo_t)
    if g.calls:
        g.stack_at = <uint16_t>at
        at += (RETURN_DEPTH + 1) * sizeof(uint16_t)
    g.block_bytes = lines(at) if g.n_ut else (at + 7) & ~<uint64_t>7

cdef inline void ce_awaken(state_t* s, uint32_t cell) noexcept nogil:
    # Give a CE its initial state. Done when it first does something, so that idle PEs take no memory.
    cdef program_t* g = &s.programs[s.program_of[cell]]
    cdef ce_t* ce = s.ce[cell]
    cdef int k
    s.awake[s.n_awake] = cell
    s.n_awake += 1
    ce.prog = g
    ce.sram = g.sram + <uint64_t>(<char*>ce - g.blocks) // g.block_bytes * g.data_words
    ce.activated = g.active
    ce.blocked = g.blocked
    ce.rr = MAIN
    ce.last_task = N_TASK_IDS - 1
    if g.draws:
        for k in range(N_GENERATORS):
            lfsr_of(ce)[k] = s.seed
    for k in range(N_QUEUES):
        if g.inq_slot[k] >= 0:
            inq_at(ce, g.inq_slot[k]).cap = s.in_caps[k]
            inq_at(ce, g.inq_slot[k]).color = g.inq_color[k]


# --- waking a CE ------------------------------------------------------------------------------------------------------
cdef inline void ring_set(state_t* s, uint32_t cell, uint64_t cycle) noexcept nogil:
    cdef uint32_t slot = <uint32_t>(cycle & (RING - 1))
    cdef uint32_t w = cell >> 6
    cdef uint64_t* word = s.ring_bits + <uint64_t>slot * s.n_words + w
    if not (word[0] >> (cell & 63)) & 1:
        if word[0] == 0:
            s.ring_bits2[<uint64_t>slot * s.n_words2 + (w >> 6)] |= <uint64_t>1 << (w & 63)
            s.ring_bits3[<uint64_t>slot * s.n_words3 + (w >> 12)] |= <uint64_t>1 << ((w >> 6) & 63)
            s.ring_any |= <uint32_t>1 << slot
        word[0] |= <uint64_t>1 << (cell & 63)

cdef inline void wheel_remove(state_t* s, uint32_t cell) noexcept nogil:
    cdef uint32_t bucket = <uint32_t>(s.wheel_time[cell] & (WHEEL - 1))
    cdef uint32_t after = s.wheel_next[cell]
    cdef uint32_t before = s.wheel_prev[cell]
    if before:
        s.wheel_next[before] = after
    else:
        s.wheel_head[bucket] = after
        if after == 0:
            s.wheel_used[bucket >> 6] &= ~(<uint64_t>1 << (bucket & 63))
    if after:
        s.wheel_prev[after] = before
    s.wheel_time[cell] = 0
    s.wheel_count -= 1

cdef inline void schedule(state_t* s, uint32_t cell, uint64_t cycle, uint64_t since) noexcept nogil:
    # Have the CE of `cell` looked at in `cycle` (> now, or == now before the CE phase).  A CE that is looked at decides
    # anew when it must be looked at next, so one entry in the wheel is enough: the earliest not before `since`, up to
    # which the CE has run ahead and hears nothing.
    cdef uint32_t bucket, first
    if cycle - s.now < RING:
        ring_set(s, cell, cycle)
        return
    if s.wheel_time[cell]:
        if since <= s.wheel_time[cell] <= cycle:
            return
        wheel_remove(s, cell)
    bucket = <uint32_t>(cycle & (WHEEL - 1))
    first = s.wheel_head[bucket]
    s.wheel_next[cell] = first
    s.wheel_prev[cell] = 0
    if first:
        s.wheel_prev[first] = cell
    s.wheel_head[bucket] = cell
    s.wheel_used[bucket >> 6] |= <uint64_t>1 << (bucket & 63)
    s.wheel_time[cell] = cycle
    s.wheel_count += 1


# --- pushing a wavelet ------------------------------------------------------------------------------------------------
cdef inline void plane_mark(state_t* s, int plane, plane_t* q, uint32_t cell) noexcept nogil:
    cdef uint32_t w = cell >> 6
    if not (q.bits[w] >> (cell & 63)) & 1:
        if q.bits[w] == 0:
            q.bits2[w >> 6] |= <uint64_t>1 << (w & 63)
            q.bits3[w >> 12] |= <uint64_t>1 << ((w >> 6) & 63)
            s.active[plane >> 6] |= <uint64_t>1 << (plane & 63)
            q.used = True
        q.bits[w] |= <uint64_t>1 << (cell & 63)

cdef inline uint64_t* plane_tail(plane_t* q, uint32_t cell) noexcept nogil:
    return q.slots + <uint64_t>cell * q.depth + q.tail[cell]

cdef inline void plane_push(state_t* s, int plane, plane_t* q, uint32_t cell, uint64_t payload,
                            uint64_t ready) noexcept nogil:
    # payload: bits 0-32 (control included).  The caller has checked that there is room.
    cdef uint8_t t = q.tail[cell]
    q.slots[<uint64_t>cell * q.depth + t] = payload | (<uint64_t>1 << SHIFT_VALID) | stamp_of(ready)
    t += 1
    q.tail[cell] = 0 if t == (q.cap[cell] if q.cap != NULL else q.depth) else t
    plane_mark(s, plane, q, cell)


cdef inline void record_fault(state_t* s, int kind, uint32_t cell, uint64_t cycle, int64_t address, int color,
                              int detail, int64_t value) noexcept nogil:
    # Keep the earliest fault; among those of one cycle, the first cell in row-major order.
    if s.fault.kind and (s.fault.cycle < cycle or (s.fault.cycle == cycle and s.fault.cell <= cell)):
        return
    s.fault.kind = kind
    s.fault.cell = cell
    s.fault.cycle = cycle
    s.fault.address = address
    s.fault.color = color
    s.fault.detail = detail
    s.fault.value = value

cdef inline void mark_later(state_t* s, int plane, uint32_t cell, uint64_t cycle) noexcept nogil:
    # Put a queue into the activity map when the wavelet at its head is ready, instead of looking at it in every cycle
    # until then. A cycle beyond the ring is reached in several rounds.
    cdef later_t* due = &s.later[(cycle if cycle - s.now < RING else s.now + RING - 1) & (RING - 1)]
    cdef uint64_t* grown
    cdef uint64_t room
    if unlikely(due.n == due.room):
        room = 2 * due.room + 64
        grown = <uint64_t*>realloc(due.items, room * sizeof(uint64_t))
        if grown == NULL:
            record_fault(s, FAULT_MEMORY, 0, s.now, 0, -1, 0, 0)
            return
        due.items = grown
        due.room = room
    due.items[due.n] = cell | (<uint64_t>plane << 32)
    due.n += 1
    s.n_later += 1

cdef inline void wake_color(state_t* s, int color, uint32_t cell, uint32_t ports) noexcept nogil:
    # Put the queues of some input ports that hold wavelets back into the activity maps.
    cdef plane_t* q
    cdef int plane
    while ports:
        plane = color * N_PORTS + ctz64(ports)
        ports &= ports - 1
        q = &s.plane[plane]
        if q.slots != NULL and is_valid(q.slots[<uint64_t>cell * q.depth + (q.heads[cell] & HEAD)]):
            plane_mark(s, plane, q, cell)

cdef inline void wake_inputs(state_t* s, int color, uint32_t cell) noexcept nogil:
    # The queues that a color's route takes from now. (Others slept until a change of the route, which wakes all.)
    cdef uint64_t route = s.route[color][cell]
    wake_color(s, color, cell, <uint32_t>(route >> (POSITION_BITS * (<int>(route >> RT_POS) & 3))) & ALL_PORTS)

cdef inline void inq_freed(state_t* s, uint32_t cell, inq_t* q) noexcept nogil:
    # The CE has taken a wavelet: a queue of the router may be waiting for the place.
    if unlikely(q.sleeper):
        q.sleeper = 0
        wake_inputs(s, q.color, cell)

cdef inline void ramp_push(state_t* s, int plane, uint32_t cell, uint64_t payload, uint64_t ready) noexcept nogil:
    # plane_push for the CE: the wavelet is not ready for some cycles. A queue that holds wavelets is in the activity
    # map, or will be.
    cdef plane_t* q = &s.plane[plane]
    cdef uint32_t t = q.tail[cell], h = q.heads[cell] & HEAD
    q.slots[<uint64_t>cell * q.depth + t] = payload | (<uint64_t>1 << SHIFT_VALID) | stamp_of(ready)
    if t == h:
        mark_later(s, plane, cell, ready)
    t += 1
    q.tail[cell] = 0 if t == q.cap[cell] else t
