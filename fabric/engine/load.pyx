# cython: overflowcheck=False
"""Loading: from a `FabricSpec` to the tables of an engine.

`load` fills a fresh `Memory`: machine numbers, route words, decoded programs, CE blocks and initial data, planes,
host streams.  It runs once per engine; nothing here is called during a run.
"""
from functools import lru_cache

import numpy as np

from libc.string cimport memcmp, memcpy, memset

from fabric.engine.memory cimport LARGE, Memory, large_pages
from wse_core.routing cimport refresh_shared
from wse_core.bitmap cimport row_of
from wse_core.forms cimport FORM_HASHES, MOST_FORMS
from wse_core.block cimport *
from wse_core.builtins cimport *
from wse_core.opcodes cimport *
from wse_core.operand cimport all_but_base
from wse_core.queue cimport *
from wse_core.records cimport *
from wse_core.route cimport note_leads, rx_of
from wse_core.train cimport LEAST
from wse_core.wake cimport schedule

from fabric.engine.planes import make_planes
from wse_core import isa as _isa
from wse_core import twins as _twins
from wse_core.encoding import CONFLICT_RULES, FORMS
from wse_core.errors import ConfigError, InternalError

cdef enum:
    WIDEST = 4094           # PEs in a row: with two cells of border, 64 words of 64 cells
    SMALL = 16              # words of a fabric whose narrow rows are all advanced as one, without gaps between them
    TOGETHER = 8            # rows that share words of cells on another one, at most
    SPARE = 16              # one cell of so many may be nobody's there
    MEMORY_COUNTS = 0x4000  # PEs from which on rows of more than a word share words too
    MOST_KNOWN = 1 << 16    # instructions that are kept decoded

_twins.check()


@lru_cache(maxsize=8)
def _known(machine):
    """Return instructions of a machine, decoded, by their words: programs and fabrics have most of theirs in common."""
    return {}


def load(Memory m, spec, order, sweep, pack):
    """Fill the tables of `m`, which has none yet, from a validated fabric; the arguments are those of `Engine`."""
    m.s.order = order
    _params(m, spec.machine)
    _tables(m, spec, pack)
    _routes(m, spec)
    _programs(m, spec)
    make_planes(m, spec)
    _streams(m, spec)
    m.s.last_active = -1
    m.s.next_refresh = m.s.f.sweep = sweep
    memset(m.s.plain, 0xFF, sizeof(m.s.plain))


cdef _params(Memory m, machine):
    cdef params_t* p = &m.s.f.p
    p.hop = machine["router.hop"]
    p.ramp_in = machine["ramp.in"]
    p.ramp_out = machine["ramp.out"]
    p.execute = machine["ramp.execute"]
    p.task_start = machine["task.start"]
    p.task_next = max(0, machine["task.start"] - machine["task.overlap"])
    p.round_robin = machine["task.priority_rule"] == "round_robin"
    p.drain = machine["vec.drain"]
    p.mac_late = machine["vec.mac_late"]
    p.fill_late = machine["vec.fill_late"]
    p.raw = machine["vec.raw"]
    p.start = machine["vec.start"]
    p.stride4 = machine["vec.stride4_lanes"]
    p.banks = machine["mem.banks"]
    p.conflict_rule = CONFLICT_RULES.index(machine["mem.conflict_rule"])
    p.conflict_cycles = machine["mem.conflict_cycles"]
    p.write_cycles = machine["mem.write_cycles"]
    p.read_ports = machine["mem.read_ports"]
    p.taken = machine["ce.branch_taken"]
    p.taken_end = machine["ce.branch_end"] or machine["ce.branch_taken"]
    p.not_taken = machine["ce.branch_not_taken"]
    p.call = machine["ce.call"]
    p.ret = machine["ce.ret"]
    p.prng_steps = machine["prng.steps"]
    p.tsc_mask = (1 << machine["tsc.bits"]) - 1

cdef _tables(Memory m, spec, bint pack):
    cdef region_t* s = m.s
    cdef int k
    s.f.width = spec.width
    s.f.height = spec.height
    if spec.width > WIDEST:
        raise ConfigError(f"a fabric of {spec.width} x {spec.height} PEs is too wide: the engine has room for {WIDEST} "
                          "in a row", where="machine", hint="a narrower rectangle; columns may be longer")
    cdef uint32_t wide = spec.width + 2, high = spec.height + 2, cells = 64
    s.f.stride = (wide + 63) // 64 * 64
    s.f.grid.words = s.f.stride // 64
    if pack and wide <= 32 and wide * high <= SMALL * 64:
        s.f.stride = wide
        s.f.grid.words = (wide * high + 63) // 64
    # Rows that share words are advanced together, so bands of a few rows, which fit into a core's cache, need rows of
    # their own. Gain: a sixth of a hop of chains over 64 x 64 PEs, a twentieth of one of an exchange.
    pack = pack and (wide <= 64 or spec.width * spec.height >= MEMORY_COUNTS)
    while pack and cells > 64 // TOGETHER and (s.f.stride - wide) * SPARE > wide:
        cells //= 2
        if (wide + cells - 1) // cells * cells < s.f.stride:
            s.f.stride = (wide + cells - 1) // cells * cells
            s.f.grid.words = s.f.stride // cells
    s.f.grid.inverse = ((<uint64_t>1 << 32) + s.f.grid.words - 1) // s.f.grid.words
    s.f.n_rows = (s.f.stride * (spec.height + 2) + s.f.grid.words * 64 - 1) // (s.f.grid.words * 64)
    s.f.n_words = s.f.grid.words * s.f.n_rows
    s.f.n_cells = 64 * s.f.n_words
    s.f.delta[DIR_W] = -1
    s.f.delta[DIR_E] = 1
    s.f.delta[DIR_N] = -<int32_t>s.f.stride
    s.f.delta[DIR_S] = <int32_t>s.f.stride
    for k in range(N_PLANES):
        if k % N_PORTS == DIR_N:
            s.f.from_north[k >> 6] |= <uint64_t>1 << (k & 63)
    s.rows = <row_t*>m.map(s.f.n_rows * sizeof(row_t))
    for k in range(<int>s.f.n_rows):
        s.rows[k].timer = NEVER
    s.live = <uint64_t*>m.map(2 * ((s.f.n_rows + 63) >> 6) * sizeof(uint64_t))
    s.fed = s.live + ((s.f.n_rows + 63) >> 6)
    s.f.shared = <uint32_t*>m.map(s.f.n_cells * sizeof(uint32_t))
    s.f.arb = <uint32_t*>m.map(<uint64_t>s.f.n_cells * 2 * sizeof(uint32_t))
    s.f.ce = <ce_t**>m.map(s.f.n_cells * sizeof(ce_t*))
    m.watch = <watch_t*>m.map(s.f.n_cells * sizeof(watch_t))
    s.f.counts = <uint64_t*>m.map(<uint64_t>s.f.n_cells * N_COUNTS * sizeof(uint64_t))
    m.cells(&s.asking, 1)
    s.ring = <uint64_t*>m.map(<uint64_t>s.f.n_words * RING * sizeof(uint64_t))
    s.ring_top = <uint64_t*>m.map(<uint64_t>s.f.n_rows * RING * sizeof(uint64_t))
    s.f.wheel_next = <uint32_t*>m.map(2 * <uint64_t>s.f.n_cells * sizeof(uint32_t))
    s.f.wheel_prev = <uint32_t*>m.map(2 * <uint64_t>s.f.n_cells * sizeof(uint32_t))
    s.f.wheel_time = <uint64_t*>m.map(2 * <uint64_t>s.f.n_cells * sizeof(uint64_t))

cdef _routes(Memory m, spec):
    # Route words row by row; only rows that use a color are written.  Most rows are like the one above and take its
    # words, most cells in the others are like the one before: what is left costs a few ns per row, color and kind.
    cdef region_t* s = m.s
    cdef const unsigned char[:, ::1] kinds
    cdef const uint16_t[:, ::1] which
    cdef const int16_t[:, ::1] index = np.ascontiguousarray(spec.program_index, np.int16)
    cdef const int64_t[::1] slot
    cdef uint64_t[::1] words = np.empty(s.f.width, np.uint64)
    cdef uint8_t[:, ::1] used = np.zeros((N_COLORS, s.f.height), np.uint8)
    cdef uint64_t row = s.f.width * sizeof(uint16_t)        # bytes, of numbers of programs too
    cdef int c, y
    cdef bint some = False, edge
    queue_slots = _queue_slots(spec)
    for c, table in sorted(spec.routes.items()):
        s.f.route[c] = <uint64_t*>m.share(s.f.n_cells * sizeof(uint64_t))
        s.f.shared_bits[c] = <uint64_t*>m.map(s.f.n_words * sizeof(uint64_t))
        s.f.leads[c] = <uint64_t*>m.map(<uint64_t>s.f.n_words * N_PORTS * sizeof(uint64_t))
        kinds = np.ascontiguousarray(table.kinds).view(np.uint8).reshape(len(table.kinds), sizeof(route_t))
        which = np.ascontiguousarray(table.which, np.uint16)
        slot = np.ascontiguousarray(queue_slots[:, c])
        for y in range(s.f.height):
            edge = y <= 1 or y == s.f.height - 1
            if edge or not (memcmp(&which[y, 0], &which[y - 1, 0], row) == 0
                            and memcmp(&index[y, 0], &index[y - 1, 0], row) == 0):
                some = _row_words(s, &words[0], <const route_t*>&kinds[0, 0], &which[y, 0], &index[y, 0], slot, y)
            if some:
                used[c, y] = 1
                memcpy(s.f.route[c] + <uint64_t>(y + 1) * s.f.stride + 1, &words[0], s.f.width * sizeof(uint64_t))
    _mark_shared(s, used)
    if spec.filters is not None:
        _filters(m, spec)

cdef bint _row_words(region_t* s, uint64_t* words, const route_t* kinds, const uint16_t* which, const int16_t* index,
                     const int64_t[::1] slot, int y) noexcept:
    # Route words of a row of PEs; whether any is not 0.  `slot`: place of the color's input queue per program, the last
    # one without a program.
    cdef int x, last = s.f.width - 1, program
    cdef uint32_t edges
    cdef uint64_t some = 0
    cdef const route_t* r
    for x in range(s.f.width):
        if 1 < x < last and index[x] == index[x - 1] and which[x] == which[x - 1]:
            words[x] = words[x - 1]
            continue
        edges = (<uint32_t>(x == 0) << DIR_W | <uint32_t>(x == last) << DIR_E
                 | <uint32_t>(y == 0) << DIR_N | <uint32_t>(y == s.f.height - 1) << DIR_S)
        program = index[x] if index[x] >= 0 else <int>slot.shape[0] - 1
        r = &kinds[which[x]]
        words[x] = _route_word(r, <int>slot[program], edges)
        s.f.injects |= r.inject != 0
        s.f.swaps |= r.swap != 0
        some |= words[x]
    return some != 0

cdef uint64_t _route_word(const route_t* r, int slot, uint32_t edges) noexcept:
    # The word of a record; edges: directions in which the rectangle ends here.
    cdef uint64_t word = 0
    cdef uint32_t leaves = 0
    cdef int k
    for k in range(N_POSITIONS):
        if r.valid >> k & 1:                            # an invalid position has no inputs and no outputs
            word |= (<uint64_t>r.rx[k] | <uint64_t>r.tx[k] << N_PORTS) << POSITION_BITS * k
            leaves |= r.tx[k]
    word |= <uint64_t>r.valid << RT_VALID | <uint64_t>r.pos << RT_POS | <uint64_t>r.ring << RT_RING
    word |= <uint64_t>r.pop << RT_POP | <uint64_t>r.teardown << RT_TEARDOWN | <uint64_t>r.filter << RT_FILTER
    word |= <uint64_t>r.swap << RT_SWAP | <uint64_t>r.inject << RT_INJECT
    if slot >= 0:
        word |= <uint64_t>slot << RT_INQ | <uint64_t>1 << RT_HAS_INQ
    if r.filter or r.swap or r.inject or leaves & edges:
        word |= <uint64_t>1 << RT_SPECIAL
    return word

cdef _queue_slots(spec):
    # Place of the input queue of each color in the CE blocks of each program; last row: no program.
    slots = np.full((len(spec.programs) + 1, N_COLORS), -1, np.int64)
    for g, program in enumerate(spec.programs):
        bound = [q for q, color in enumerate(program.inq_color) if color >= 0]
        for k, q in enumerate(bound):
            slots[g, program.inq_color[q]] = k
    return slots

cdef void _mark_shared(region_t* s, const uint8_t[:, ::1] used) noexcept:
    # refresh_shared for every cell that two colors or an arbitrated color use; the rest needs none.  used: per color,
    # rows that have words.
    cdef int[N_COLORS] colors
    cdef int x, y, c, k, n, count
    cdef uint32_t cell, ins
    cdef uint64_t word
    for y in range(s.f.height):
        n = 0
        for c in range(N_COLORS):
            if used[c, y]:
                colors[n] = c
                n += 1
        for x in range(s.f.width if n else 0):
            cell = <uint32_t>(y + 1) * s.f.stride + x + 1
            count = 0
            for c in colors[:n]:
                word = s.f.route[c][cell]
                ins = 0
                for k in range(N_POSITIONS):
                    ins |= rx_of(word, k)
                if word >> RT_VALID & ((1 << N_POSITIONS) - 1):
                    count += 1
                if ins & (ins - 1) or word >> RT_SWAP & 3 or word >> RT_INJECT & 3:
                    count += 2
            if count > 1:
                refresh_shared(s, cell)

cdef _filters(Memory m, spec):
    cdef region_t* s = m.s
    cdef const unsigned char[::1] raw
    cdef uint32_t cell
    s.f.filters = <filter_t*>m.map(<uint64_t>s.f.n_cells * N_FILTERS * sizeof(filter_t))
    n = spec.filters.shape[2]
    for y, x in np.argwhere((spec.filters["kind"] != 0).any(-1)):
        raw = np.frombuffer(np.ascontiguousarray(spec.filters[y, x]).tobytes(), np.uint8)
        cell = m.cell(x, y)
        memcpy(&s.f.filters[<uint64_t>cell * N_FILTERS], &raw[0], n * sizeof(filter_t))

cdef _programs(Memory m, spec):
    cdef region_t* s = m.s
    cdef program_t* g
    cdef int k
    cdef uint64_t room = 0
    cdef char* memory
    s.f.n_programs = len(spec.programs)
    s.f.programs = <program_t*>m.map(max(1, s.f.n_programs) * sizeof(program_t))
    s.f.program_of = <int16_t*>m.map(s.f.n_cells * sizeof(int16_t))
    s.awake = <uint32_t*>m.map(s.f.n_cells * sizeof(uint32_t))
    s.f.seed = spec.machine["prng.seed"]
    depths = spec.machine["queue.in_depth"]
    for k in range(8):
        s.f.in_caps[k] = depths[k] + spec.machine["ramp.in_buffer"]
    known = _known(spec.machine)
    places = _cells_of(m, spec)
    for number, program in enumerate(spec.programs):
        g = &s.f.programs[number]
        _program(m, number, program, spec.machine, known)
        g.n_pe = len(places[number])
        g.active = program.active
        g.blocked = program.blocked
        ce_layout(s, g)
        _places(g)
        room += _lines(g.n_pe * g.block_bytes) + _lines(<uint64_t>g.n_pe * g.data_words * 2)
    memory = <char*>m.map(max(1, room))
    # Each PE touches pages of its own, more of them than the host's address translation holds. Gain: a sixth for chains
    # over 128 x 128 PEs, a tenth over 64 x 64.
    large_pages(memory, min(room, <uint64_t>LARGE))
    for number, program in enumerate(spec.programs):
        g = &s.f.programs[number]
        g.blocks = memory
        memory += _lines(g.n_pe * g.block_bytes)
        g.sram = <uint16_t*>memory
        memory += _lines(<uint64_t>g.n_pe * g.data_words * 2)
        _settle(s, number, places[number], program.data)
    s.shapes = <shape_t*>m.share(max(1, s.f.n_shapes) * sizeof(shape_t))
    s.work = <uint64_t*>m.map(N_OPS * N_HALVES * WORK_COLUMNS * sizeof(uint64_t))
    s.f.forms = <forms_t*>m.map(sizeof(forms_t))
    s.f.forms.of = <form_t*>m.map(MOST_FORMS * sizeof(form_t))
    s.f.forms.first = <uint32_t*>m.map(FORM_HASHES * sizeof(uint32_t))

cdef inline uint64_t _lines(uint64_t n) noexcept:
    return (n + 63) & ~<uint64_t>63

cdef _settle(region_t* s, int number, const int64_t[::1] cells, data):
    # The PEs of a program get their blocks, and their data into SRAM.
    cdef program_t* g = &s.f.programs[number]
    cdef uint32_t index
    cdef int64_t at
    cdef const uint16_t[::1] values
    for index in range(g.n_pe):
        at = cells[index]
        s.f.ce[at] = <ce_t*>(g.blocks + index * g.block_bytes)
        s.f.program_of[at] = number
        if g.active & ~g.blocked:
            schedule(s, <uint32_t>at, s.now, s.now)
    for address, words in data:
        values = np.ascontiguousarray(words, np.uint16)
        for index in range(g.n_pe):
            memcpy(g.sram + <uint64_t>index * g.data_words + (<int>address - <int>g.code_words), &values[0],
                   2 * values.shape[0])

cdef void _places(program_t* g) noexcept:
    # Note where the DSRs lie that instructions load or edit, and which instructions in a row write constants.
    cdef uint32_t k
    cdef instr_t* i
    cdef patch_t* p
    cdef uint32_t on = 0, slots = 0, cycles = 0         # of those that follow
    for k in range(g.n_code, 0, -1):
        i = &g.code[k - 1]
        p = &g.patches[k - 1]
        i.patch = (k - 1) * <uint32_t>sizeof(patch_t)
        if i.form == FORM_DSR:
            i.place = <uint16_t>(g.dsr_at + g.dsr_slot[i.a >> 4][i.a & 15] * g.dsr_bytes)
        if not _patch(g, i, p):
            on = slots = cycles = 0
            continue
        on += 1
        slots += i.slots
        cycles += i.gap
        if cycles > 0xFFFF:
            on, slots, cycles = 1, i.slots, i.gap
        i.writes_on = <uint16_t>on if on > 1 or p.kind == PATCH_DSR else 0      # a single one of the others is no gain
        p.slots = <uint16_t>slots
        p.cycles = <uint16_t>cycles

cdef bint _patch(const program_t* g, const instr_t* i, patch_t* p) noexcept:
    # What an instruction writes to the CE block, if it needs nothing but constants.
    cdef const desc_t* d
    if i.flags & (I_LATE | I_REAL):
        return False
    if i.form == FORM_LDI and not (i.wa == 2 and i.a & 15 == N_REGS - 1):
        p.kind = PATCH_WORDS if i.wa == 2 else PATCH_WORD
        p.place = <uint16_t>(<char*>&(<ce_t*>NULL).regs[i.a & 15] - <char*>NULL)
        p.data[0] = <uint16_t>i.imm
        p.data[1] = <uint16_t>(i.imm >> 16)
        return True
    p.place = i.place
    if i.op == OP_DSR_BASE and i.flags & I_IMM:
        p.kind = PATCH_BASE
        p.data[0] = <uint16_t>i.imm
        return True
    if i.op != OP_DSR_LOAD or i.b >> 4 == FILE_REG:
        return False
    d = &g.descriptors[i.imm]
    p.data[0] = d.base
    p.data[1] = <uint16_t>(i.imm + 1)
    p.data[2] = d.extent[0]
    p.data[3] = <uint16_t>d.stride[0]
    p.data[4] = d.index
    p.kind = PATCH_DSR if g.edits else PATCH_WORDS
    if not g.moves:                     # there is the number only
        p.kind = PATCH_WORD
        p.place += sizeof(uint16_t)
        p.data[0] = p.data[1]
    return True

cdef _cells_of(Memory m, spec):
    # Per program: cells of the PEs that run it, in row-major order.
    numbers = spec.program_index.reshape(-1)
    places = np.argsort(numbers, kind="stable")         # a radix sort: small integers
    cells = places // spec.width                        # row by row, in place: large arrays stay with the process
    cells *= m.s.f.stride - spec.width
    cells += places
    cells += m.s.f.stride + 1
    before = np.bincount(numbers + 1, minlength=len(spec.programs))[:len(spec.programs)]     # those without one first
    return np.split(cells, np.cumsum(before))[1:]

cdef _program(Memory m, number, program, machine, dict known):
    # Decode one image into a program_t, with what is `known` of its instructions.
    cdef region_t* s = m.s
    cdef program_t* g = &s.f.programs[number]
    cdef instr_t* i
    cdef uint16_t[FILE_REG] used  # DSRs that instructions name, per file
    cdef int k, at, n
    cdef const unsigned char[::1] raw
    cdef const uint32_t[::1] code = np.ascontiguousarray(program.code)
    cdef uint64_t words
    cdef int dsr_load = machine["ce.dsr_load"], dsr_row = machine["ce.dsr_row"] or dsr_load
    cdef int dsr_dimension = machine["ce.dsr_dimension"], fabric_load = machine["ce.fabric_load"]
    decoded = _isa.decode(program.code)
    index_of = {found[0]: n for n, found in enumerate(decoded)}
    g.n_code = len(decoded)
    g.code = <instr_t*>m.share((g.n_code + 1) * sizeof(instr_t))
    g.patches = <patch_t*>m.share((g.n_code + 1) * sizeof(patch_t))
    g.code_words = program.code_words
    g.data_words = program.footprint - program.code_words
    g.data_tasks = program.data_tasks
    g.controlled = machine["task.by_queue"] * <uint32_t>((1 << N_QUEUES) - 1)
    g.high = program.high
    g.main_level = program.main_priority
    g.registers = program.registers and not machine["task.by_queue"]    # those of the WSE-3 lie elsewhere
    s.f.reroutes |= g.registers
    g.num.half = 1 if program.half == "cb16" else 0
    g.num.bias = machine["num.cb16_bias"]
    g.num.ftz = machine["num.ftz"]
    g.num.separate = machine["num.fmac"] == "separate"
    for k in range(32):
        g.entry[k] = index_of[int(program.entry[k])] if program.entry[k] >= 0 else -1
        g.inq_of_task[k] = -1
        if g.entry[k] >= 0:
            g.bound |= <uint32_t>1 << k
    for k in range(64):
        g.control_entry[k] = index_of[int(program.control_entry[k])] if program.control_entry[k] >= 0 else -1
    for k in range(N_BINDINGS):
        color = program.inq_color[k] if k < len(program.inq_color) else -1
        g.inq_color[k] = color
        g.inq_slot[k] = -1
        if color >= 0:
            g.inq_slot[k] = g.n_inq
            task = k % N_QUEUES if machine["task.by_queue"] else color
            g.inq_of_color[<int>color] = k
            g.inq_of_task[<int>task] = k
            g.inq_ids |= <uint32_t>1 << <int>task
            g.n_inq += 1
        g.outq_color[k] = program.outq_color[k] if k < len(program.outq_color) else -1
    n_desc = len(program.descriptors)
    g.n_desc = n_desc
    g.descriptors = <desc_t*>m.map(max(1, n_desc) * sizeof(desc_t))
    if n_desc:
        raw = np.frombuffer(np.ascontiguousarray(program.descriptors).tobytes(), np.uint8)
        memcpy(g.descriptors, &raw[0], n_desc * sizeof(desc_t))
        lengths = np.maximum(program.descriptors["extent"], 1).astype(np.int64).prod(axis=1)
        sends = program.descriptors["kind"] == DSD_FABOUT
        s.f.streams |= bool((lengths[sends] > LEAST).any())
        for flag in (F_CONTROL, F_ADVANCE):
            for queue in program.descriptors["queue"][sends & ((program.descriptors["flags"] & flag) != 0)]:
                color = g.outq_color[<int>queue & (N_BINDINGS - 1)]
                if color >= 0 and flag == F_CONTROL:
                    note_commands(s, color)
                elif color >= 0:
                    note_controls(s, color)
        fifos = program.descriptors[program.descriptors["kind"] == DSD_FIFO]
        g.n_fifo = int(fifos["xdsr"].max()) + 1 if len(fifos) else 0
    microthreads = set()
    n_shapes = 0
    memset(used, 0, sizeof(used))
    at = 0
    for n in range(<int>g.n_code):
        i = &g.code[n]
        words = <uint64_t>code[at] << 32 | (code[at + 1] if code[at] >> 24 & 1 else 0)
        first = known.get(words)
        if first is None:
            if len(known) >= MOST_KNOWN:
                known.clear()
            _, op, a, b, c, d, imm = decoded[n]
            _instruction(i, op, a, b, c, d, imm, machine)
            known[words] = (<char*>i)[:sizeof(instr_t)]
        else:
            memcpy(i, <const char*><bytes>first, sizeof(instr_t))
        if i.op == OP_DSR_LOAD:
            i.slots = 1                         # of another program the same words may be another descriptor
            i.gap = dsr_load
            if g.descriptors[i.imm].kind == DSD_MEM1D:
                if i.b >> 4 != FILE_REG and n + 1 < <int>g.n_code and code[at + 2] >> 25 == OP_DSR_LOAD:
                    i.gap = dsr_row
            elif g.descriptors[i.imm].kind == DSD_MEM4D:
                i.gap += dsr_dimension * (g.descriptors[i.imm].ndim - 1)
            elif g.descriptors[i.imm].kind == DSD_FABIN or g.descriptors[i.imm].kind == DSD_FABOUT:
                i.slots = 1 + fabric_load
                i.gap += fabric_load
        i.work = (i.op * N_HALVES + g.num.half) * WORK_COLUMNS
        i.at = at
        if i.op == OP_LD16 or i.op == OP_ST16:      # whatever its address is
            i.flags = i.flags & ~(I_PLAIN | I_REAL) | (I_REAL if g.registers else I_PLAIN)
        s.f.reroutes |= i.op == OP_ROUTE
        s.f.streams |= i.op == OP_DSR_LEN
        g.calls |= i.op == OP_CALL or i.op == OP_RET
        g.delays |= i.a >> 4 == FILE_REG if i.flags & I_VECTOR else i.latency > i.slots
        g.draws |= i.form == FORM_RAND
        if (i.form == FORM_JMP or i.form == FORM_BR) and i.op != OP_TRAP:
            i.target = index_of[i.imm]
        for f in range(FILE_REG):
            used[<int>f] |= i.dsrs[f]
        if i.flags & I_VECTOR:
            i.shape = s.f.n_shapes + n_shapes
            n_shapes += 1
        if i.flags & I_ASYNC:
            named = _isa.async_fields(i.imm)["ut"]
            if named is None:
                microthreads |= {k & (N_QUEUES - 1) for k in range(N_BINDINGS)
                                 if g.inq_color[k] >= 0 or g.outq_color[k] >= 0}
            else:
                microthreads.add(named)
        at += 2 if i.flags & I_IMM else 1
    s.f.n_shapes += n_shapes
    i = &g.code[g.n_code]
    i.op = OP_TRAP
    i.form = FORM_JMP
    i.slots = i.gap = 1
    i.at = NOWHERE
    i.work = OP_TRAP * N_HALVES * WORK_COLUMNS
    _note_quiet(g, &s.f.p)
    _note_edits(g)
    for k in sorted(microthreads):
        g.ut_at[<int>k] = 1
        g.n_ut += 1
    for f in range(FILE_REG):
        for k in range(N_DSRS):
            g.dsr_slot[f][k] = -1
            if used[<int>f] >> k & 1:
                g.dsr_slot[f][k] = g.n_dsr
                g.n_dsr += 1

cdef void _note_edits(program_t* g) noexcept:
    # What there is of each DSR: an extent, stride and index only where some can differ from the descriptor's.
    cdef uint32_t k
    cdef dsr_t all
    for k in range(g.n_code):
        g.edits |= g.code[k].op == OP_DSR_LEN or g.code[k].op == OP_DSR_STRIDE
        g.moves |= g.code[k].op == OP_DSR_BASE or g.code[k].op == OP_DSR_OFF
        g.moves |= g.code[k].op == OP_DSR_LOAD and g.code[k].b >> 4 == FILE_REG
        g.moves |= g.code[k].flags & I_FETCH != 0
    for k in range(g.n_desc):
        g.edits |= g.descriptors[k].kind == DSD_CIRCULAR and g.descriptors[k].flags & F_SAVE != 0
        g.moves |= g.descriptors[k].flags & F_SAVE != 0
    g.moves |= g.edits
    g.dsr_bytes = sizeof(dsr_t) if g.edits else (DSR_SHORT if g.moves else DSR_LEAST)
    memset(&all, 0, sizeof(dsr_t))
    memset(&all, 0xFF, sizeof(dsr_t) if g.edits else DSR_SHORT)
    g.dsr_kept = all_but_base(&all, ~<uint64_t>0)

cdef enum:
    QUIET = 255             # cycles: not longer

cdef inline uint32_t _least(const program_t* g, const params_t* p, const instr_t* i) noexcept:
    # Cycles from the issue of a quiet instruction to that of the first one behind it which is not.
    cdef int taken
    if i.form == FORM_BR:
        taken = p.taken_end if g.code[i.target].op == OP_DONE else p.taken
        return i.slots - 1 + min(taken + g.code[i.target].quiet, p.not_taken + (i + 1).quiet)
    if i.form == FORM_JMP:
        return p.taken + g.code[i.target].quiet
    return (1 + p.start + p.drain if i.flags & I_VECTOR else i.gap) + (i + 1).quiet

cdef bint _name_more(instr_t* i, const instr_t* follower) noexcept:
    # An instruction names ahead what a follower does; whether that was more.
    cdef int f
    cdef bint more = False
    if follower.quiet:
        for f in range(FILE_REG):
            more = more or follower.ahead[f] & ~i.ahead[f] != 0
            i.ahead[f] |= follower.ahead[f]
    return more

cdef void _note_quiet(program_t* g, const params_t* p) noexcept:
    # Quiet is what works in registers, SRAM and DSRs, and vector operations whose DSRs never stand for a stream: for
    # each instruction, how long that goes on at least, and which DSRs it may need meanwhile.
    cdef uint16_t[FILE_REG] streams
    cdef uint32_t k, least
    cdef instr_t* i
    cdef bint changed = True
    memset(streams, 0, sizeof(streams))
    for k in range(g.n_code):
        i = &g.code[k]
        if i.op == OP_DSR_LOAD and g.descriptors[i.imm].kind in (DSD_FABIN, DSD_FABOUT, DSD_FIFO):
            streams[i.a >> 4] |= <uint16_t>(1 << (i.a & 15))
    for k in range(g.n_code):
        i = &g.code[k]
        i.quiet = 0
        memcpy(i.ahead, i.dsrs, sizeof(i.dsrs))
        if i.flags & I_PLAIN or i.flags & I_VECTOR and not i.flags & I_ASYNC and i.form != FORM_DFILT and not (
                i.dsrs[0] & streams[0] or i.dsrs[1] & streams[1] or i.dsrs[2] & streams[2]):
            i.quiet = QUIET
    while changed:
        changed = False
        for k in range(g.n_code, 0, -1):
            i = &g.code[k - 1]
            if i.quiet:
                least = _least(g, p, i)
                if least < i.quiet:
                    i.quiet = <uint8_t>least
                    changed = True
                if i.form != FORM_JMP:
                    changed = _name_more(i, i + 1) or changed
                if i.form == FORM_JMP or i.form == FORM_BR:
                    changed = _name_more(i, &g.code[i.target]) or changed

cdef _instruction(instr_t* i, op, a, b, c, d, imm, machine):
    i.op = op.code
    i.form = FORMS.index(op.form)
    i.a, i.b, i.c, i.d = a, b, c, d
    i.wa, i.wb, i.wc, i.wd = (_isa.WORDS[letter] for letter in op.types)
    i.imm = imm or 0
    i.flags = I_IMM if imm is not None else 0
    slots, latency = cost_of(op, machine)
    i.slots = i.gap = slots
    i.latency = latency
    i.lanes = max(1, machine.lanes(op))
    reads, writes = set(), set()

    def registers(field, words):
        return {(field & 15) + k for k in range(words)} if field >> 4 == FILE_REG else set()

    if op.form in ("alu", "dfilt"):
        fields = [(field, words) for field, words in zip((a, b, c, d), (i.wa, i.wb, i.wc, i.wd)) if words]
        if _isa.is_vector(op, a, b, c):
            i.flags |= I_VECTOR
            if i.wd and d >> 4 != FILE_REG:
                i.flags |= I_FETCH
            if imm is not None and imm & 1:
                i.flags |= I_ASYNC
            elif imm is not None:
                reads.add(_isa.again_register(imm))
            for field, _ in fields:
                if field >> 4 != FILE_REG:
                    i.dsrs[<int>(field >> 4)] |= 1 << (field & 15)
        reads |= registers(b, i.wb) | registers(d, i.wd)
        if imm is None or i.flags & I_VECTOR:
            reads |= registers(c, i.wc)
        if not i.flags & I_VECTOR:
            writes |= registers(a, i.wa)
    elif op.form in ("ldi", "ld", "rand", "in_td"):
        writes |= registers(a, i.wa)
        if op.form == "ld":
            reads |= registers(b, 1)
    elif op.form == "st":
        reads |= registers(a, i.wa) | registers(b, 1)
    elif op.form == "br":
        reads |= registers(a, i.wa) | registers(b, i.wb)
    elif op.form == "tsc":
        writes |= {((a & 15) + k) & 15 for k in range(3)}
    elif op.form == "flt":
        reads |= registers(b, 1)
    elif op.form == "dsr":
        i.dsrs[<int>(a >> 4)] |= 1 << (a & 15)
        if op.name == "dsr_load" or imm is None:
            reads |= registers(b, 1)
    if op.form in ("route", "in_td", "flt"):
        i.flags |= I_REAL
    if (op.form in ("alu", "ldi", "ld", "st", "br", "dsr") or op.name == "jmp") and not i.flags & I_VECTOR:
        i.flags |= I_PLAIN
    if latency > slots:
        i.flags |= I_LATE
    if op.is_mac:
        i.flags |= I_MAC
    i.reads = sum(1 << r for r in reads)
    i.writes = sum(1 << r for r in writes)

cdef _streams(Memory m, spec):
    cdef region_t* s = m.s
    cdef row_t* r
    cdef int k
    cdef uint32_t cell, row
    s.n_ins = len(spec.inputs)
    s.n_outs = len(spec.outputs)
    s.ins = <stream_in_t*>m.map(max(1, s.n_ins) * sizeof(stream_in_t))
    s.outs = <stream_out_t*>m.map(max(1, s.n_outs) * sizeof(stream_out_t))
    slots = _queue_slots(spec)
    for k, (x, y, d, color) in enumerate(spec.inputs):
        cell = m.cell(x, y)
        s.ins[k].cell = cell
        s.ins[k].color = color
        s.ins[k].port = d
        if d == DIR_R:
            s.ins[k].slot = slots[spec.program_index[y, x], color]
            if s.ins[k].slot < 0:
                raise InternalError(f"input stream {k}: no input queue of PE ({x}, {y}) takes color {color}")
            _special(s, color, cell)
        row = row_of(&s.f.grid, cell)
        s.fed[row >> 6] |= <uint64_t>1 << (row & 63)
    s.f.ins_of = <uint32_t*>m.map(max(1, s.n_ins) * sizeof(uint32_t))
    for place, k in enumerate(sorted(range(s.n_ins), key=lambda number: spec.inputs[number][1])):
        s.f.ins_of[<int>place] = k
        r = &s.rows[row_of(&s.f.grid, s.ins[k].cell)]
        if r.n_in == 0:
            r.first_in = place
        r.n_in += 1
    for k, (x, y, d, color) in enumerate(spec.outputs):
        cell = m.cell(x, y)
        s.outs[k].color = color
        if d == DIR_R:
            if s.f.sinks[color] == NULL:
                s.f.sinks[color] = <uint32_t*>m.map(s.f.n_cells * sizeof(uint32_t))
            s.f.sinks[color][cell] = k + 1
            _special(s, color, cell)
        else:
            queue_at(&s.plane[color * N_PORTS + (d ^ 1)], cell + s.f.delta[<int>d])[0] = k + 1

cdef void _special(region_t* s, int color, uint32_t cell) noexcept:
    # The host shares this router's way into a queue, or takes what leaves it: the general path asks each time.
    if s.f.route[color] != NULL:
        s.f.route[color][cell] |= <uint64_t>1 << RT_SPECIAL
        note_leads(s, color, cell, s.f.route[color][cell])


def cost_of(op, machine):
    """Return (issue slots, cycles from issue to use of the result) of a scalar instruction on `machine`."""
    one = {"int": "ce.int_latency", "fp": "ce.fp_latency", "load": "ce.load_latency"}
    if op.cost in one:
        return 1, machine[one[op.cost]]
    if op.cost in _isa.SLOTS:
        return machine[_isa.SLOTS[op.cost]], machine[_isa.SLOTS[op.cost]]
    return 1, 1
