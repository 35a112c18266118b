# cython: overflowcheck=False
# The records of a fabric: flat tables, indexed by cell.
#
# A cell is one PE or one place of the one-cell border around the rectangle: cell = (y + 1) * stride + x + 1; the
# neighbour in direction d is cell + delta[d].  The stride is the width and two cells of border, rounded up to a
# multiple of 64, so that rows share no words of bitmaps, or to a part of 64 where that saves cells: then a few rows
# share their words, and what is told below of a row holds for all of these together.  On a small fabric it is not
# rounded, and all rows count as one.
# Nothing here knows Python; `fabric.engine.memory`
# allocates the tables (no-reserve mappings: what is never touched costs nothing), router.pyx and ce.pyx advance them.
# What is done with them: queue.pxd, wake.pxd, block.pxd, emit.pxd.  Cycle rules: docs/machine.md.
from libc.stdint cimport uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, uint64_t, int64_t

from wse_core.arithmetic cimport num_t
from wse_core.bitmap cimport grid_t, map_t
from wse_core.constants cimport *

cdef enum:
    RING = 16               # cycles ahead that the wake ring covers; a power of two
    WHEEL = 256             # buckets of the timing wheel of a row; a power of two

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

cdef enum:                  # how a vector operation advances; decided in set-up
    KIND_GENERAL = 0        # step by step: fabric or FIFO operands with flags, control wavelets, anything else
    KIND_ADVANCE = 1        # all elements are done, the word that moves the own switch is still to be sent
    KIND_FLOW = 2           # one fabric input at most, the rest checked memory, constants or a fabric output
    KIND_PAIR = 3           # the same with two fabric inputs, each step in one cycle
    KIND_MEMORY = 4         # no fabric or FIFO operand, step by step
    KIND_BULK = 5           # the same on the main thread, and no element can fault: many steps at once

cdef enum:                  # ce_t.want_space: what is to be told to the CE
    WANTS_PLACE = 1         # room in an output queue: a thread waits for it
    WANTS_TRAIN = 2         # and what it has sent and will send may leave as a train (train.pyx)
    WANTS_ROOM = 3          # either
    WANTS_WORD = 4          # a word that comes before `resume`, up to which nothing else would be heard
    WANTS_NOTHING = 8       # it looks in cycle `resume` anyhow

cdef enum:                  # who waits for room in an input queue is woken
    FOR_ROOM = 1            # by the next pop
    FOR_TIME = 2            # by the wheel: the place will be free in a cycle that is known

cdef enum:
    QUICK_NOT = 0
    QUICK_SUM_B = 1         # f32 sum of memory (b) and fabric
    QUICK_SUM_C = 2         # of fabric and memory (c)
    QUICK_COPY = 3          # b as it is, 32 bits in memory
    QUICK_HALF = 4          # the same, 16 bits
    QUICK_TAKE = 5          # the word that has come, as it is

cdef enum:                  # steps of microthreads in turn that are done the short way: of single elements,
    BRIEF_NOT = 0
    BRIEF_TAKES = 1         # from a queue into memory
    BRIEF_SENDS = 2         # and from memory into a queue,
    BRIEF_HALVES = 3        # or either with two elements of 16 bits in a word, moved as they are

cdef enum:                  # how the elements of a whole operation are done
    WAY_NOT = 0             # not as a whole
    WAY_ANY = 1             # any of those that follow, and all others
    WAY_FMACHS = 2          # by the kernels for contiguous operands
    WAY_FMULS = 3
    WAY_FH2S = 4
    WAY_SUM = 5             # f32 numbers in memory added to a register

cdef enum:
    NO_PLACE = 255
    DSR_LEAST = 2           # bytes of a DSR's number
    DSR_SHORT = 4           # of its base and number
    N_DISTANCES = 8         # of two addresses, modulo the period of banks

cdef enum:
    # the first word of a queue: bits 0-6 index of the head, 7 SLEEPER, 8-14 index of the place to fill next,
    # from 16 on wavelets moved out of it
    HEAD = 127
    SLEEPER = 128           # a queue upstream waits for room here, out of the activity map; the next pop wakes it
    TAIL = 8
    MOVED = 16

# All queues of one color and input port; 64 bytes, which is cheap to multiply with.
ctypedef struct plane_t:
    uint64_t* queues        # n_cells records of `size` words: state, `depth` places; if `timed`, the last grant + 1
    uint8_t* cap            # n_cells: capacity of each ring, or NULL: `depth` everywhere
    map_t map               # cells that may hold wavelets
    uint64_t* due           # per word of cells RING words: cells to be added in a cycle, by cycle modulo RING
    uint32_t size
    uint32_t depth
    uint8_t timed           # these queues are arbitrated somewhere
    uint8_t color
    uint8_t port
    uint8_t used            # a wavelet was here, or is on its way up a ramp
    uint32_t pad
    uint64_t* own           # set of cells whose records are this plane's; NULL: all, it shares its table with no other

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
    uint16_t base           # the descriptor's, and not here at all, if the program moves no DSR (program_t.moves)
    uint16_t number         # of the descriptor, from 1; 0 = none. From here on compared at once (`fits` in operand.pxd)
    # as with the base, if the program edits none of them in any DSR (program_t.edits)
    uint16_t extent         # of the outermost dimension
    int16_t stride
    uint16_t index

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
    uint8_t quiet           # for so many cycles from its issue on the thread does nothing that another could notice
    uint16_t slots          # issue slots [cycles]
    uint16_t gap            # issue to the next instruction of the thread, if nothing else says more [cycles]
    uint16_t latency        # issue to use of the result [cycles]
    uint32_t imm
    uint32_t target         # index of the branch target
    uint32_t at             # code word index, for people
    uint16_t reads          # registers read at issue
    uint16_t writes         # registers written
    uint16_t dsrs[FILE_REG]     # DSRs named, per file
    uint16_t ahead[FILE_REG]    # of a quiet one: those named by it and by the quiet ones that may follow it
    uint16_t place          # of an instruction that loads or edits a DSR: where that lies in the CE block
    uint16_t writes_on      # so many from here on only write constants to the CE block: `patch_t`
    uint32_t shape          # of a vector instruction: its place in region_t.shapes
    uint32_t work           # its place in region_t.work
    uint32_t patch          # its patch_t, bytes from the first one; 64 bytes together: cheap to multiply with

cdef enum:                  # what an instruction of constants writes
    PATCH_WORD = 0          # a register, or the number of a DSR of which there is no more
    PATCH_WORDS = 1         # two registers, or base and number of a DSR
    PATCH_DSR = 2           # all of a DSR
    PATCH_BASE = 3          # the base of a DSR, if that has been loaded

ctypedef struct patch_t:    # an instruction that writes constants to the CE block and needs nothing else
    uint16_t place          # in the CE block
    uint8_t kind            # PATCH_*
    uint8_t pad
    uint16_t slots          # of this one and those that follow it without a gap (instr_t.writes_on): issue slots,
    uint16_t cycles         # and cycles until the next instruction may issue
    uint16_t data[5]

cdef enum:                  # instr_t.flags
    I_VECTOR = 1
    I_IMM = 2
    I_REAL = 4              # touches the router: must execute in real time, not ahead of it
    I_ASYNC = 8
    I_PLAIN = 16            # nothing but registers, SRAM, DSRs and the next instruction
    I_LATE = 32             # its results are ready later than its slots are over
    I_MAC = 64              # a multiply-add
    I_FETCH = 128           # its multiplier is in memory

cdef enum:
    AGAIN_REGISTER = 2      # place of the register that says how often an operation is done, in its extension word

cdef inline bint is_done_again(const instr_t* ins) noexcept nogil:
    # A synchronous vector operation with an extension word is done as often as a register says.
    return ins.flags & (I_VECTOR | I_ASYNC | I_IMM) == (I_VECTOR | I_IMM)

ctypedef struct opnd_t:     # one operand of a vector operation
    uint8_t mode
    uint8_t words           # SRAM words per element
    uint8_t reg             # OPND_REG: register number
    uint8_t queue
    uint8_t flags           # descriptor flags
    uint8_t dsr             # its place in the CE block, NO_PLACE = none
    uint8_t plane           # OPND_FABOUT: plane number of the R queue
    uint8_t checked         # no element can fault: whole range legal and aligned
    int32_t step            # words from element to element (innermost dimension); 0 for what is not in memory

ctypedef struct inq_t:      # an input queue; takes as many places as its capacity
    uint8_t head
    uint8_t tail
    uint8_t cap
    uint8_t color
    uint8_t sleeper         # FOR_*: the router's queue waits for room, out of the activity map
    uint8_t uts             # set of microthreads that take from it, or have
    uint8_t pad[2]
    uint64_t slots[1]

ctypedef struct form_t:     # what is the same wherever and whenever an operation runs; never written again
    uint8_t op
    uint8_t lanes           # after stride rules
    uint8_t group           # elements of a full step
    uint8_t kind            # KIND_* at the beginning
    uint8_t inq             # a flow's fabric input: its place in the CE block, NO_PLACE = none
    uint8_t inq2            # the second one
    uint8_t plane           # plane of the R queue of its fabric output, NO_PLACE = none
    uint8_t live            # the multiplier is the destination register: read anew for each element
    uint8_t level           # of a microthread's issue
    uint8_t act_task        # NO_TASK = none
    uint8_t unblock_task
    uint8_t zeroes          # of a flow that sends: what was read from memory becomes zero
    uint8_t one_bank        # of any kind in memory: all elements of the destination lie in one bank
    uint8_t quick           # QUICK_*: of a flow whose elements are computed without a look at modes and operation
    uint16_t latency        # of the op's result in a destination register
    uint16_t dsrs[FILE_REG]     # DSRs in use by a microthread, per file
    uint8_t id              # of the thread: 0-7 microthread, 8 main
    uint8_t brief           # BRIEF_*
    uint16_t work           # place of its elements in region_t.work
    uint16_t row            # of a flow with operands of two dimensions: elements of a row; 0: there are none
    opnd_t a, b, c
    uint32_t after          # the next one with the same hash (forms.pyx), 0 = none

ctypedef struct forms_t:    # all forms of a fabric, each kept once
    form_t* of              # by number, from 1
    uint32_t* first         # by hash: the first one's number, 0 = none
    uint32_t n
    int lock                # held by the thread that looks one up

ctypedef struct thread_t:   # a vector operation in progress
    uint64_t next           # first cycle in which the next step may issue
    const form_t* form
    uint32_t n              # length, or NO_END; of a flow in rows that of a row,
    uint32_t k              # elements done; of this row,
    uint32_t scalar         # multiplier of a multiply-add; elements of the rows before
    int32_t base_b, base_c  # of each source the word address of element 0, or its value
    uint16_t base_a         # of the destination the address
    uint8_t kind            # KIND_*
    uint8_t wait            # WAIT_* found at the last look

ctypedef struct shape_t:    # what the last set-up of a vector instruction came to, and for which DSRs (vecop.pyx)
    const form_t* form      # NULL: nothing that holds for another set-up
    uint32_t steps
    uint32_t n              # of a flow in rows the elements of a row
    uint64_t same[3]        # of b, c, a: all of the DSR but its base, 0 = the operand has none
    uint64_t kept           # the program's
    uint16_t lowest[3]      # bases for which no element can fault: so many from the lowest on,
    uint16_t span[3]
    uint16_t odd[3]         # without these bits
    uint16_t place[3]       # where these DSRs lie in the CE block
    uint16_t moves          # 0: the program moves no DSR, and the base is the lowest one
    # of an operation in memory: what it takes as a whole (whole.pxd)
    uint8_t way             # WAY_*: its cycles depend on nothing but the distance of its sources modulo `distances`
    uint8_t packed          # its operands are contiguous
    uint8_t saves           # a DSR goes on behind the elements
    uint8_t mac             # a multiply-add
    uint8_t distances       # at most N_DISTANCES, a power of two
    uint8_t learned         # set of distances for which the following is known
    uint8_t last[N_DISTANCES]   # conflict cycles of the last step
    uint32_t lost[N_DISTANCES]      # of all steps
    uint32_t drain          # cycles from the last step to the next issue

ctypedef struct fifo_t:
    uint16_t head
    uint16_t count
    uint16_t ended[2]       # by side (0 takes, 1 pushes): set of steps, g elements as bit g - 1, that it has ended

ctypedef struct mapped_t:   # what registers by address hold beside route words and the clock
    uint16_t switches[N_COLORS]     # positions 1 to 3 as written or first read, and KNOWN; 0: not looked at yet
    uint16_t queues[N_QUEUES]
    uint16_t clock          # control of the cycle counter
    uint16_t pad
    uint64_t begun          # the cycle in which the counter was, or would have been, 0

ctypedef struct program_t:
    instr_t* code
    patch_t* patches        # per instruction, where `writes_on` is not 0
    uint32_t n_code         # at most 12,288: a program fits SRAM
    int32_t entry[N_TASK_IDS]
    int32_t control_entry[N_CONTROL_IDS]
    uint32_t bound          # ids with an entry
    uint32_t active         # initial bits
    uint32_t blocked
    uint32_t data_tasks
    uint32_t high
    uint32_t inq_ids        # of the tasks that wavelets start: colors of input queues, or numbers of the queues
    int8_t inq_color[N_BINDINGS]
    int8_t outq_color[N_BINDINGS]
    int8_t inq_of_task[N_TASK_IDS]  # input binding whose wavelets start a task, -1 = none
    int8_t inq_of_color[N_COLORS]   # input binding of a color, -1 = none
    uint32_t controlled     # ids of input queues, where those are no colors: control wavelets may come to all of them
    int8_t dsr_slot[FILE_REG][N_DSRS]      # per file
    int8_t inq_slot[N_BINDINGS]
    uint16_t inq_at[N_BINDINGS]      # where the parts of a CE block begin: input queues by slot,
    uint16_t ut_at[N_UTS]       # microthreads by number (0 = not used),
    uint16_t dsr_at
    uint16_t dsr_bytes      # of each DSR: DSR_LEAST, DSR_SHORT, or all of it
    uint16_t fifo_at
    uint16_t stack_at       # return stack and its depth, 0 = no call
    uint16_t lfsr_at        # states of the generators, 0 = no random numbers
    uint16_t mapped_at      # what registers by address hold, 0 = its loads and stores reach none
    uint16_t ready_at       # when registers are ready, 0 = always at once
    bint calls              # some instruction calls or returns
    bint registers          # its loads and stores reach registers by address
    bint draws              # some instruction needs random numbers
    bint moves              # some instruction sets the base of a DSR, or an operation leaves it behind its elements
    bint edits              # some instruction sets the extent or stride of a DSR, or an operation leaves an index there
    uint64_t dsr_kept       # mask of what there is of a DSR behind its base
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

ctypedef struct ce_t:       # a step of a stream touches the first three cache lines
    uint64_t acct           # every cycle before this one is booked
    uint64_t next           # main: first cycle in which it may issue
    uint64_t pipe_free
    uint64_t resume         # the main thread ran ahead to here; nothing to do before
    program_t* prog         # NULL until the PE first does something
    uint16_t* sram          # word address code_words
    uint8_t main_state
    uint8_t rr              # thread that issued last
    uint8_t wait            # WAIT_* of the cycles from `acct` on
    uint8_t want_space      # WANTS_*, or 0
    uint8_t uts             # set of busy microthreads
    uint8_t held            # set of blocked microthreads
    uint8_t last_task
    uint8_t fed             # of `in_turn`: set of microthreads, those left out find no word in their queue
    uint8_t in_turn         # every busy microthread is a flow or pair with steps of one cycle, all of one level
    uint16_t teardown_due   # ring of bits: task 29 to be activated in cycle (bit index modulo 16)
    uint16_t pc             # index of the next instruction
    uint16_t tail_conflict  # conflict cycles at the end of the last booked issue
    uint8_t task            # that the main thread runs; control tasks are numbered from N_CONTROL_IDS
    uint8_t takes           # input queue whose words the router hands to the main thread's flow, from 1; 0: none
    thread_t main
    uint32_t activated
    uint32_t blocked
    uint64_t ready_max      # no register is ready later than this
    uint64_t wrote_when     # first cycle in which the main thread's vector operation can read `wrote`
    uint32_t wrote          # 1 + word address of the element that its last operation wrote last; 0: none
    uint32_t counts[N_COUNTS]   # by COUNT_*: what is not yet in region_t.counts
    uint16_t regs[N_REGS]
    uint16_t dsr_busy[FILE_REG]    # DSRs in use by microthreads
    uint8_t prng            # the active random generator
    uint16_t cut            # elements that a FIFO left of the main thread's last operation with one
    uint32_t lost           # set of tasks that were activated again before they had begun, since the start

ctypedef struct fault_t:
    int kind
    uint32_t cell
    uint64_t cycle
    int64_t address
    int color
    int detail              # D_*
    int64_t value

ctypedef struct stream_in_t:
    uint32_t cell           # the PE
    int color
    int port                # its side; DIR_R: into the CE's input queue, not into a queue of the router
    int slot                # then: that queue's place in the CE block
    uint64_t* words         # payload | control << 32
    uint64_t* cycles        # of each word: the first cycle in which it may enter; once it has entered: that cycle
    uint64_t n
    uint64_t at             # the next one to enter
    uint64_t told           # those before this one are known to the host, see `Memory.entered`
    bint logged             # the host asks when words enter: they are kept until it has
    bint awake              # it has words and does not wait for room in a queue of a router: counted in row_t.n_awake

ctypedef struct stream_out_t:
    int color
    uint64_t* cycles
    uint64_t* words
    uint64_t n
    uint64_t room
    uint64_t* places        # of each word the first cycle in which it may leave; NULL: the host takes all that comes
    uint64_t n_places       # beyond these the host takes nothing
    uint64_t at             # places used

ctypedef struct params_t:   # of the machine, in cycles and words
    int hop, ramp_in, ramp_out, execute
    int task_start, task_next, round_robin      # task_next: right behind another
    int drain, mac_late, fill_late, start, stride4, raw
    int banks, conflict_rule, conflict_cycles, write_cycles, read_ports     # rule: RULE_*
    int taken, taken_end, not_taken, call, ret
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
    # while memory is checked: of each thread
    uint32_t at[MAIN + 1]       # the code word of the instruction that it is at
    uint64_t begun[MAIN + 1]    # the cycle in which that operation began

ctypedef struct shadow_t:   # of a word of SRAM, while memory is checked
    uint64_t written        # the cycle after the last write, 0 = none
    uint64_t read           # the same of the last read
    uint32_t writer_at, reader_at   # code words
    uint8_t writer, reader  # threads
    uint8_t unset           # no value yet
    uint8_t pad[5]

ctypedef struct finding_t:  # twin of FINDING_DTYPE in fabric.host.checks
    uint64_t cycle
    uint64_t before         # the cycle of the other access, of a race
    uint64_t count
    uint32_t cell
    uint32_t at             # code word
    uint32_t other_at
    uint32_t address
    uint32_t base           # where the operand begins
    uint8_t kind            # FINDING_*
    uint8_t thread
    uint8_t other
    uint8_t writes          # this access, bit 0; the other one, bit 1

ctypedef struct checks_t:
    shadow_t** of           # per program: shadows of all PEs, as `sram`
    uint16_t** owner        # per program: of each data word the number of its variable from 1
    finding_t* found
    uint64_t n_found

ctypedef struct plain_t:    # of a plane: what the last plain route of its wavelets comes to (`is_plain` in router.pyx)
    uint64_t route          # all ones, which is none: nothing found yet
    int32_t delta           # to the neighbour's cell,
    int16_t there           # and to the plane there, from this one, in bytes
    uint8_t link            # it has an output to a neighbour,
    uint8_t down            # and one to the input queue of the CE at this place, from 1; 0: none

ctypedef struct told_t:     # of a color that one PE sends
    uint64_t moved          # when so many wavelets had left its router,
    uint64_t until          # it was known that no other one will before this cycle;
    uint64_t asked          # known in the cycle before this one

ctypedef struct fabric_t:   # what is constant after loading: numbers, and where the tables of cells lie
    int width, height
    uint32_t stride
    uint32_t n_cells
    uint32_t n_rows         # of words of cells, border included: row_t
    uint32_t n_words        # of a bitmap over cells
    grid_t grid
    int32_t delta[4]
    params_t p
    bint reroutes           # a program writes routes: any color may come to need arbitration
    bint swaps              # some color is swapped
    bint trains             # streams may be moved as trains,
    bint streams            # and some PE may send so many words at once that it pays
    uint32_t source[N_COLORS]     # see rivals.pyx: the one PE that sends a color; 0: not known yet
    bint injects            # some color has CE injection: routers look at R queues, so nothing is sent ahead of time
    uint64_t* route[N_COLORS]     # route words per color, NULL = color not used
    uint32_t* shared        # per cell: colors that need arbitration
    uint64_t* shared_bits[N_COLORS]   # per color: cells in which it needs arbitration;
    uint64_t* leads[N_COLORS]   # of these, per word of cells N_PORTS sets: where it may take that output (route.pxd)
    uint32_t* arb           # per cell two sets of colors: requests not yet granted, colors for the general path
    uint32_t* sinks[N_COLORS]     # per cell: output that takes what has no outputs here, from 1; 0: none; NULL: nowhere
    filter_t* filters       # per cell N_FILTERS, or NULL
    ce_t** ce               # per cell, NULL = no program; zero memory until the PE first does something
    int16_t* program_of     # per cell
    program_t* programs
    int n_programs
    int in_caps[N_QUEUES]          # capacity of the input queues
    uint64_t* counts        # per cell N_COUNTS: counters that were moved out of the CE blocks, see `counts_fold`
    uint32_t* wheel_next    # per cell for its CE, then per cell for its ramps; 0 = end (cell 0 is border, never a PE)
    uint32_t* wheel_prev
    uint64_t* wheel_time    # per cell, 0 = not in the wheel
    uint64_t from_north[2]  # planes whose wavelets move south
    uint32_t* ins_of        # numbers of the host's input streams, row by row: row_t.first_in
    uint32_t n_shapes       # vector instructions of all programs
    forms_t* forms
    uint32_t seed           # of the random generators
    uint64_t sweep          # cycles between two sweeps

ctypedef struct row_t:      # what is to be done in a row of cells, or in rows that share words, by planes and cycles
    uint64_t planes[2]      # planes that may hold wavelets
    uint64_t timer          # no CE is to be looked at, and no queue due, before this cycle
    uint16_t ring_any       # slots of the ring with CEs to be looked at
    uint16_t due_any        # slots of the ring with queues that become ready
    bint live               # something of all this is not empty: the row's bit in region_t.live
    uint32_t first_in       # the host's input streams into the row: their place in fabric_t.ins_of,
    uint32_t n_in           # and how many,
    uint32_t n_awake        # and how many of them are to be asked in each cycle
    uint32_t wheel_count
    uint64_t due[RING][2]   # by cycle modulo RING: planes with queues that become ready,
    uint64_t due_words[RING]    # and the words of cells in which these lie
    uint64_t wheel_used[WHEEL >> 6]
    uint32_t wheel_head[WHEEL]

ctypedef struct region_t:   # what advances with one clock: the whole fabric, or the rows that one thread is at
    fabric_t f              # a copy, not a pointer: one load less wherever a wavelet moves
    uint64_t now
    bint one_clock          # all rows of the fabric stand at this cycle
    uint64_t ahead          # no CE may act in this cycle or later: the end of the run, or a bound on running ahead
    plane_t plane[N_PLANES]
    plain_t plain[N_PLANES]
    row_t* rows
    uint64_t* live          # set of rows in which something is to be done
    uint64_t* fed           # set of rows that the host feeds
    map_t asking            # cells to arbitrate in this cycle
    uint64_t* ring          # per word of cells RING words: cells to be looked at in a cycle, by cycle modulo RING;
    uint64_t* ring_top      # per row RING words: words of cells in which there are such
    uint32_t* awake         # cells whose CE has done something, in no order
    uint32_t n_awake
    uint32_t controls       # colors of which control wavelets may be under way: a program sends them, or the host does
    uint32_t commands       # those of which some may go on to other PEs
    told_t told[N_COLORS]   # what rivals.pyx has found out
    shape_t* shapes         # a vector instruction each, whichever PE sets it up
    uint64_t* work          # instructions issued, and elements of operations that have ended (wse_core/work.py)
    # of this cycle: the upper part of words that become ready in a neighbour's queue, or in a CE's input queue
    uint64_t hop_word
    uint64_t ramp_word
    # what happened
    int moved               # a wavelet moved in this cycle
    int waiting             # the next cycle must not be skipped: a stamp lies ahead, or a CE changed what routers see
    int64_t n_due           # slots of rows with queues that become ready
    uint64_t seen           # the last cycle that had to be looked at,
    uint64_t passed         # the same because of what needs no look: trains, CEs that wait for words
    uint64_t carried        # hops that rows still do at one clock, since trains have gone (cycles.pyx)
    int n_busy              # cycles in a row in which much moved
    int64_t last_active
    uint64_t hops
    uint64_t next_refresh
    fault_t fault
    stream_in_t* ins
    int n_ins
    stream_out_t* outs
    int n_outs
    uint64_t events         # work done, for the engine's breaks
    uint64_t order          # 0, or the state of a generator that varies the order of visits (tests: it must not matter)
    # events, while they are recorded
    event_t* traced
    uint64_t n_traced
    uint64_t room_traced
    uint32_t traced_kinds
    watch_t* watch
    checks_t* checks        # of memory, NULL: none
    # rivals (asking.pxd)
    uint64_t timed[2]       # planes whose queues are arbitrated somewhere
    uint32_t met            # so many words more are not asked for queues that pass each other: in the last one all met
    uint64_t counted        # words of the row at work for which the following is known (asking.pxd)
    uint64_t rivals[64]     # cells with two queues that may ask
