# cython: overflowcheck=False
"""The tables of the routers' queues: one record per cell for each color and input port, no place taken twice.

A color comes into few ports of a router, and where a program sends it, its neighbour often sends another one.  Planes
whose queues lie in different cells therefore share one table: the record of a cell belongs to the one plane that has a
queue there (`plane_t.own`).  Nothing that runs asks which; only those who look at queues that no route leads into do.
Where programs write routes, every color may come to any cell, and each plane has a table of its own.

Called once per engine, by `fabric.engine.load`.
"""
import numpy as np

from libc.string cimport memcpy

from fabric.engine.memory cimport LARGE, LARGE_PAGE, Memory, large_pages
from wse_core.builtins cimport *
from wse_core.queue cimport *
from wse_core.records cimport *
from wse_core.route cimport RAMP, rx_of, tx_of

cdef enum:
    SPARSE = 64             # a queue in so many cells or fewer: no page of 4 KiB stays untouched


def make_planes(Memory m, spec):
    """Make the planes of all colors of a validated fabric; routes and programs have been loaded."""
    cdef region_t* s = m.s
    cdef plane_t* p
    cdef int c, port
    cdef uint32_t asking
    own = np.zeros((N_PLANES, s.f.n_words), np.uint64)
    depth = spec.machine["router.depth"]
    made = []
    for c in spec.routes:
        asking = ALL_PORTS if s.f.reroutes else _asking_ports(s, c)
        _mark_ways(s, c, own)
        for port in range(N_PORTS):
            p = &s.plane[c * N_PORTS + port]
            p.color = c
            p.port = port
            p.depth = depth
            if port == DIR_R and not _ramp(m, spec, p, own[c * N_PORTS + port]):
                continue
            p.timed = asking >> port & 1
            s.timed[(c * N_PORTS + port) >> 6] |= <uint64_t>p.timed << ((c * N_PORTS + port) & 63)
            p.size = 1 + p.depth + p.timed
            m.cells(&p.map, 1)
            p.due = <uint64_t*>m.map(<uint64_t>RING * s.f.n_words * sizeof(uint64_t))
            made.append(c * N_PORTS + port)
    for x, y, d, color in (*spec.inputs, *spec.outputs):     # what the host attaches lies in queues too
        _mark_host(m, x, y, d, color, own)
    _tables(m, own, _groups(m, made, own))


cdef void _mark_ways(region_t* s, int color, uint64_t[:, ::1] own) noexcept:
    # The queues that a color comes into, in any switch position: those that a router takes, and those behind a link.
    cdef uint32_t cell, rx, tx, d, to
    cdef uint64_t word
    cdef int k
    for cell in range(s.f.n_cells):
        word = s.f.route[color][cell]
        if word == 0:
            continue
        rx = tx = 0
        for k in range(N_POSITIONS):
            rx |= rx_of(word, k)
            tx |= tx_of(word, k)
        while rx:
            d = ctz64(rx)
            rx &= rx - 1
            own[color * N_PORTS + d, cell >> 6] |= <uint64_t>1 << (cell & 63)
        tx &= RAMP - 1
        while tx:
            d = ctz64(tx)
            tx &= tx - 1
            to = cell + s.f.delta[d]
            own[color * N_PORTS + (d ^ 1), to >> 6] |= <uint64_t>1 << (to & 63)

cdef void _mark_host(Memory m, int x, int y, int d, int color, uint64_t[:, ::1] own) noexcept:
    # The queue at an edge into which a stream of the host goes, and the place beyond it where one is taken.
    cdef uint32_t cell = m.cell(x, y), to
    if d != DIR_R:
        to = cell + m.s.f.delta[d]
        own[color * N_PORTS + d, cell >> 6] |= <uint64_t>1 << (cell & 63)
        own[color * N_PORTS + (d ^ 1), to >> 6] |= <uint64_t>1 << (to & 63)

cdef bint _ramp(Memory m, spec, plane_t* p, uint64_t[::1] own):
    # Of the queues at the ramp: how many places each has, from the program of its PE.  False: no program sends.
    cdef region_t* s = m.s
    cdef const int16_t[:, ::1] index = np.ascontiguousarray(spec.program_index, np.int16)
    cdef uint8_t[::1] room = np.zeros(max(1, len(spec.programs)), np.uint8)      # per program
    cdef int x, y, g
    cdef uint32_t cell
    out_depth = spec.machine["queue.out_depth"]
    for g, program in enumerate(spec.programs):
        for q, color in enumerate(program.outq_color):
            if color == p.color and not room[g]:
                room[g] = out_depth[q % N_QUEUES] + p.depth
    if not np.any(room):
        return False
    p.depth = np.max(room)
    p.cap = <uint8_t*>m.map(s.f.n_cells)
    for y in range(s.f.height):
        for x in range(s.f.width):
            if index[y, x] >= 0 and room[index[y, x]]:
                cell = <uint32_t>(y + 1) * s.f.stride + x + 1
                p.cap[cell] = room[index[y, x]]
                own[cell >> 6] |= <uint64_t>1 << (cell & 63)
    return True

cdef uint32_t _asking_ports(region_t* s, int color) noexcept:
    # Ports whose queues ask for something that is arbitrated, in any router and switch position: these need a time.
    cdef uint32_t found = 0, w
    cdef uint64_t cells, word
    cdef int k
    for w in range(s.f.n_words):
        cells = s.f.shared_bits[color][w]
        while cells and found != ALL_PORTS:
            word = s.f.route[color][w * 64 + ctz64(cells)]
            cells &= cells - 1
            for k in range(N_POSITIONS):
                found |= rx_of(word, k)
            if word >> RT_SWAP & 3:
                found = ALL_PORTS
            if word >> RT_INJECT & 3:
                found |= 1 << DIR_R
    return found

cdef list _groups(Memory m, made, own):
    # Lists of planes, each of which can share a table: records of one kind, in cells of their own.
    groups, taken = [], []
    for number in made:
        kind = m.s.plane[<int>number].depth, m.s.plane[<int>number].timed
        for k, (of, cells) in enumerate(taken):
            if of == kind and not m.s.f.reroutes and _apart(cells, own[number]):
                groups[k].append(number)
                cells |= own[number]
                break
        else:
            groups.append([number])
            taken.append((kind, own[number].copy()))
    return groups

cdef bint _apart(const uint64_t[::1] a, const uint64_t[::1] b) noexcept:
    cdef Py_ssize_t k
    for k in range(a.shape[0]):
        if a[k] & b[k]:
            return False
    return True

cdef _tables(Memory m, own, groups):
    # A table for each group.
    cdef region_t* s = m.s
    cdef plane_t* p
    cdef uint64_t size, large = LARGE
    cdef uint64_t* queues
    cdef const uint64_t[::1] cells
    for group in groups:
        size = <uint64_t>s.f.n_cells * s.plane[<int>group[0]].size * sizeof(uint64_t)
        used = sum(int(np.bitwise_count(own[number]).sum()) for number in group)
        queues = <uint64_t*>(m.share(size) if used >= s.f.n_cells // SPARSE else m.map(size))
        if size >= LARGE_PAGE and size <= large and used >= s.f.n_cells // SPARSE:
            # A small page holds few queues, so most of a run's first visits would be first to a page too. Gain: a
            # tenth of a sum over the whole wafer, a word per PE.
            large_pages(queues, size)
            large -= size
        for number in group:
            p = &s.plane[<int>number]
            p.queues = queues
            if len(group) > 1:
                cells = own[number]
                p.own = <uint64_t*>m.map(s.f.n_words * sizeof(uint64_t))
                memcpy(p.own, &cells[0], s.f.n_words * sizeof(uint64_t))
