"""This is the one table of numbers that the compiled machine and Python share: kinds, flags, fields, orders and their
names.

Whatever a compiled module and a Python module must agree about stands here once.  Python imports the names;
``setup.py`` writes ``constants.pxd`` from the same table (`constants_pxd`), so there is no second copy to keep equal.
Op codes are the other such table (`wse_core.isa`).  This module imports only the standard library, so that the build
can load it.

What becomes a C constant:

* every whole number of this module, under its own name;
* for every group of `NAMED`, each name's place in the group: ``FAULT_KINDS[3]`` is ``"program"``, hence
  ``FAULT_PROGRAM = 3``;
* for every field of `FIELDS`, its lowest bit: ``RT_POS = 40``.

Numbers of the machine that a user can change are no constants: they stand in `wse_core.params`.
"""

from __future__ import annotations

# --- sizes of the machine ---------------------------------------------------------------------------------------------
DIRS = "WENSR"
DIR_W, DIR_E, DIR_N, DIR_S, DIR_R = range(len(DIRS))  # x grows east, y grows south; the opposite of link d is d ^ 1
N_PORTS = len(DIRS)
DIR_HOST = N_PORTS  # beside the outputs: the host, which takes what a position without outputs would drop
N_COLORS = 24
N_PLANES = N_COLORS * N_PORTS  # a plane: all queues of one color and input port; number color * N_PORTS + port
N_POSITIONS = 4  # of a switch
N_FILTERS = 8  # room per PE; the machine may have fewer
N_QUEUES = 8  # input queues, and as many output queues
N_BINDINGS = 2 * N_QUEUES  # colors of input (output) queues: two each, binding k is one of queue k % N_QUEUES
N_REGS = 16  # 16-bit registers; a 32-bit value takes an even/odd pair (arch §2, published; count assumed)
N_DSRS = 16  # in each of the three files
N_GENERATORS = 4  # of random numbers
RETURN_DEPTH = 8  # return addresses a PE can hold (assumed)
MAX_BANKS = 64  # of SRAM, in any machine

# Threads of a PE: microthreads by number, then the main thread.
N_UTS = 8
MAIN = N_UTS
THREADS = (*(f"ut{k}" for k in range(N_UTS)), "main")
MAIN_STATES = ("idle", "starting", "run", "vector", "fault")

# Ids of tasks (arch §6, §7).
N_TASK_IDS, N_CONTROL_IDS = 32, 64
TASK_TEARDOWN, TASK_NULL = 29, 31
NO_TASK = 255
NO_COLOR = 255

# --- instructions (see `wse_core.isa`) --------------------------------------------------------------------------------
FORMS = ("none", "alu", "dfilt", "ldi", "ld", "st", "br", "jmp", "task", "dsr", "tsc", "rand", "route", "in_td", "flt")
"""A form says how an instruction is executed: ``alu``, or the name of a special one."""
N_FORMS = len(FORMS)
NOWHERE = 0xFFFFFFFF  # code word index of the trap behind the last instruction

FILES = ("dest", "src0", "src1", "reg")
FILE_DEST, FILE_SRC0, FILE_SRC1, FILE_REG = range(len(FILES))  # upper two bits of an operand field
CONDITIONS = ("eq", "ne", "lt", "le", "ltu", "leu")
"""A branch has one of these conditions, in operand field d."""

ASYNC = {
    "async": (0, 1),
    "priority": (1, 2),
    "ut": (4, 4),
    "has_activate": (8, 1),
    "activate": (9, 6),
    "has_unblock": (15, 1),
    "unblock": (16, 6),
}
"""The extension word of an asynchronous vector operation has these fields: name -> (lowest bit, bits)."""
UT_LEVELS = 2  # from one priority of microthreads to the next (levels of issue, docs/machine.md)
UT_DERIVED = 15  # the microthread is that of the output queue, else of the input queue (arch §5.4)

# --- descriptors ------------------------------------------------------------------------------------------------------
DSD_KINDS = ("none", "mem1d", "mem4d", "circular", "fifo", "fabin", "fabout")
DSD_NONE, DSD_MEM1D, DSD_MEM4D, DSD_CIRCULAR, DSD_FIFO, DSD_FABIN, DSD_FABOUT = range(len(DSD_KINDS))
F_SAVE, F_INDEX, F_CONTROL, F_ADVANCE, F_ZERO, F_PACKED = 1, 2, 4, 8, 16, 32  # flags
F_TERMINATE = 64  # FIFO full or empty ends the operation instead of suspending it
F_FLUSH = 128  # an operation of no elements ends when all words of its output queue have left it
STATE_CUT = 4  # q_state tells the elements that a FIFO left of the main thread's last operation with one
N_STATES = 5  # questions of q_state: inputs that are empty, full inputs, empty outputs, full outputs, and that
ENDLESS = 0x7FFF  # extent of an operation that never ends (arch §4.3)
NO_END = 0xFFFFFFFF  # the length of such an operation while it runs
ON_TERMINATE, ON_ACTIVATE, ON_UNBLOCK = 1, 2, 4  # actions on a control wavelet at a fabric input; bits

# --- routes -----------------------------------------------------------------------------------------------------------
ALL_PORTS = (1 << N_PORTS) - 1  # set of directions: bit d
POSITION_BITS = 2 * N_PORTS  # a switch position: the set of its inputs, above it the set of its outputs
POSITION_MASK = (1 << POSITION_BITS) - 1
ROUTE_FIELDS = {
    "pos": (N_POSITIONS * POSITION_BITS, 2),
    "valid": (42, 4),
    "ring": (46, 1),
    "pop": (47, 2),
    "teardown": (49, 1),
    "filter": (50, 3),  # 0 none, k = filter k - 1
    "swap": (53, 2),  # bit 0: x axis, bit 1: y axis
    "inject": (55, 2),
    "inq": (57, 4),  # place of the color's input queue in the CE block
    "has_inq": (61, 1),
    "shared": (62, 1),  # shares a link with another color, or has several inputs: needs arbitration
    "special": (63, 1),  # filter, swap, injection or an edge of the rectangle: needs the general path
}
"""A route word has these fields above its four positions: name -> (lowest bit, bits)."""
POP_MODES = ("no_pop", "always_pop", "pop_on_advance", "pop_on_advance_nop")
POP_NEVER, POP_ALWAYS, POP_ON_ADVANCE, POP_ON_ADVANCE_NOP = range(len(POP_MODES))
INJECT_MODES = ("off", "low", "high")
FILTER_KINDS = ("none", "counter", "range")
FILTER_NONE, FILTER_COUNTER, FILTER_RANGE = range(len(FILTER_KINDS))
CMD_NOP, CMD_ADV, CMD_RST, CMD_TEARDOWN = range(4)  # commands of a control wavelet
ADVANCE_PAYLOAD = 0x095F9249  # of what moves the own switch behind an operation: command 0 ADV, no task (id 31)

# A queue word: payload (bits 0-31), then these (see ``queue.pxd``).
SHIFT_CTRL, SHIFT_OWN, SHIFT_VALID, SHIFT_STAMP = 32, 33, 34, 35

# --- accounting -------------------------------------------------------------------------------------------------------
WAIT_REASONS = ("idle", "pipe", "conflict", "resource", "input", "output", "fifo")
"""A cycle without an instruction issued is booked by a CE as one of these."""
COUNTERS = (
    "busy",
    "idle",
    *(f"stall_{reason}" for reason in WAIT_REASONS[1:]),
    "instructions",
    "steps",
    "elements",
    "macs",
    "tasks",
    "sent",
    "received",
)
"""A CE has these counters, in the order of its record and of every report; ``idle`` and ``stall_*`` as in
`WAIT_REASONS`.
"""
N_WAITS, N_COUNTS = len(WAIT_REASONS), len(COUNTERS)
N_HALVES = 2  # 16-bit formats: f16, cb16
WORK_ELEMENTS = 1  # the table of work has scalar instructions, and from this column on elements:
WORK_WORDS = 3  # columns per word read, 0 .. 4: 0, 1, 2 words written
WORK_COLUMNS = 16


def column_of(read: int, written: int) -> int:
    """Return the column of the table of work in which elements count that read and write so many words of SRAM."""
    return WORK_ELEMENTS + read * WORK_WORDS + written


CONFLICT_RULES = ("none", "mod4", "bank")
"""These rules say which two addresses one cycle cannot serve (``mem.conflict_rule``)."""

# --- events (see `wse_core.events`) -----------------------------------------------------------------------------------
KINDS = (
    "inject",
    "depart",
    "enter",
    "take",
    "activate",
    "task_start",
    "task_end",
    "op_start",
    "op_end",
    "conflict",
    "wait",
    "switch",
    "route",
    "teardown",
    "host",
    "mark",
)
"""Kinds of events; the number of a kind is its place here.  New ones are added at the end."""
WAITS = WAIT_REASONS[3:]
"""These reasons of a CE's wait are events.  Waits of the pipeline (`stall_pipe`) are not: they follow from the
instructions.
"""

# --- registers by address ---------------------------------------------------------------------------------------------
REG_ROUTES = 0x7F20  # word address of the route register of color 0; one per color
REG_SWITCHES = 0x7F40  # of the switch register of color 0; one per color
REG_QUEUES = 0x7F58  # of the configuration of input queue 0; one per queue
REG_CLOCK = 0x7E20  # of the control of the cycle counter; behind it the counter, lowest word first (assumed: no public
# program names these two by number)
N_CLOCK_WORDS = 3
REG_SWAP = 10  # in a route register: bits 10 and 11 swap N with S and E with W, 12 and 13 are the pop mode,
REG_POP = 12
REG_TEARDOWN = 14  # teardown in progress,
REG_POINT = 15  # point to point
REG_RING = 12  # in a switch register; below it four bits per position from 1 on: a direction, and 8 if it is an input
REG_POSITION = 13
REG_INPUT = 8
REG_NONE = 5  # the direction of a position that is not valid
REG_PRIORITY = 8  # in the configuration of a queue: medium; the next bit: high
REG_ORDER = (0, 1, 3, 2, 4)
"""Directions of `DIRS` have this order in registers, which is W, E, S, N, R."""

# --- faults -----------------------------------------------------------------------------------------------------------
FAULT_KINDS = ("none", "sram_range", "sram_align", "program", "queue", "collision", "memory")
"""A machine's fault is of one of these kinds; ``memory``: the host ran out of memory."""
DETAILS = {
    "none": "",
    "dsr_empty": "a DSR that holds no descriptor",
    "dsr_place": "a DSR whose descriptor cannot stand in this place",
    "packing": "fabric operands that pack differently",
    "trap": "trap",
    "call_depth": "calls nested too deeply",
    "return": "return without a call",
    "length_zero": "a circular buffer or FIFO of length 0",
    "dfilt": "dfilt needs a fabric input and must be asynchronous",
    "no_entry": "an activated task without an entry",
    "no_queue": "a queue, color or filter that the program has not bound",
    "ran_off": "the program ran off its end",
    "no_microthread": "an asynchronous operation from whose operands no microthread follows",
    "same_queue": "two sources of one operation from the same queue or FIFO",
    "register": "a register is asked for what is not modelled: color swap, point to point, or a part of it",
    "no_route": "a register of a color that the layout gives no route anywhere",
    "forms": "vector operations with more combinations of strides and descriptors than the engine keeps (262,143)",
}
"""Faults of the kinds ``program`` and ``queue`` have these details, with what they tell the user."""
FAULT_DETAILS = tuple(DETAILS.values())

# --- checks of memory ------------------------------------------------------------------------------------------------
FINDINGS = ("race", "outside", "unset")
"""Kinds of what a check of memory finds; see `fabric.host.checks`."""
MOST_FINDINGS = 1024  # different ones that are kept

# --- for C ------------------------------------------------------------------------------------------------------------
NAMED = {
    "MAIN": MAIN_STATES,
    "FORM": FORMS,
    "COND": CONDITIONS,
    "INJECT": INJECT_MODES,
    "WAIT": WAIT_REASONS,
    "COUNT": COUNTERS,
    "RULE": CONFLICT_RULES,
    "EV": KINDS,
    "FAULT": FAULT_KINDS,
    "FINDING": FINDINGS,
    "D": tuple(DETAILS),
}
"""C knows the members of these groups by prefix and name, Python by name: prefix -> names in order."""
FIELDS = {"RT": ROUTE_FIELDS, "ASYNC": ASYNC}
"""Words of the machine have these fields: prefix -> name -> (lowest bit, bits)."""


def constants() -> dict[str, int]:
    """Return every C constant, name -> value."""
    found = {name: value for name, value in globals().items() if name.isupper() and isinstance(value, int)}
    for prefix, names in NAMED.items():
        found |= {f"{prefix}_{name.upper()}": number for number, name in enumerate(names)}
    for prefix, fields in FIELDS.items():
        found |= {f"{prefix}_{name.upper()}": low for name, (low, _) in fields.items()}
    return found


def constants_pxd() -> str:
    """Return the text of ``constants.pxd``: every constant for C.  What exceeds a C int is 32 bits unsigned."""
    lines = ["# Generated from wse_core/encoding.py by setup.py; do not edit.", "from libc.stdint cimport uint32_t", ""]
    wide = {name: value for name, value in constants().items() if value >= 1 << 31}
    lines += ["cdef extern from *:", '    """']
    lines += [f"    #define WSE_{name} {value:#x}u" for name, value in wide.items()]
    lines += ['    """', *(f'    const uint32_t {name} "WSE_{name}"' for name in wide), "", "cdef enum:"]
    lines += [f"    {name} = {value}" for name, value in constants().items() if name not in wide]
    return "\n".join([*lines, ""])
