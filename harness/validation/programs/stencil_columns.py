"""R6: a wave equation with 25 points, one column of z per PE, fp32; cycles per time step.

*What moves.*  Per step the column of a PE goes to the four PEs on each side, block by block: a localized broadcast in
each direction (`fabric.kernels.collectives.pieces.neighbours`), all four at once.  A router that sends cannot leave out
its own ramp, and the published program has no filters, so a PE receives its own block from all four directions; the one
that travels east serves as the middle of the stencil.

*Colors and queues.*  Colors and output queues 0..3 for columns that travel east, west, north, south, input queues 4..7;
each operation on the microthread of its queue.

*Tasks.*  ``exchange`` starts four asynchronous sends and four asynchronous receives.  A receive multiplies what arrives
by a weight per block (a descriptor that repeats each weight) into a buffer with a row per sender.  After a send the
routers are switched, and each completion is counted; the last one starts ``compute``.

*Order of additions.*  s = 0; for k = 1..4: s += w_k u(z - k), s += w_k u(z + k), fused, zeros outside; then s += row
for the rows of the directions in the order in which they arrived (`Nearby.plan`), 17 with the own one; new = s -
previous.  The two arrays of cells change places.  Per cell: 17 multiplies that count, 8 multiply-adds, 17 adds, 1
subtraction.

*Blocks.*  Where a point names none: as few as fit into a PE.  If blocks do not divide the column it is longer by some
cells that stay zero.

*Time.*  Published is the mean of a thousand steps or more.  PEs begin together and need about eight steps until they
follow each other evenly, so the difference of runs of 16 and 8 steps is taken, between a reading before the first and
after the last step, on the PE in the middle of 9 x 9, which has all neighbours.

Source: Jacquelin et al., SC22, arXiv 2204.03775: operations per cell, localized broadcasts.
"""

from __future__ import annotations

import numpy as np

from fabric.kernels.collectives.pieces.lines import Line, compose
from fabric.kernels.collectives.pieces.neighbours import Nearby
from fabric.kernels.kit.session import Session, Stamps
from fabric.kernels.stencil.points25 import weights
from fabric.layout.layout import Layout
from fabric.program.program import Program
from harness.validation.programs.compiled import PRIORITY, load_at
from harness.validation.recipe import CannotRun, Measurement, integer, recipe
from wse_core.errors import ProgramError

__all__ = ["RADIUS", "expected", "iterate", "stencil_columns"]

RADIUS = 4
COURANT = 0.1
"""Square of the number of cells that a wave travels in a step: the value of the field, here the same everywhere."""
GROUP = 4
"""Cells of fp32 in a group of banks."""


def _factors():
    """Return the weights of the laplacian by distance as float32, that of the cell itself first."""
    near = weights(RADIUS)[1:] * 10
    return np.array([-6 * near.sum(), *near], np.float32)


def _pitch(block):
    """Return the cells from row to row of the buffer: rows of whole groups of banks, so that all begin in one bank."""
    return -(-block // GROUP) * GROUP


def _ways(width, height, block):
    east, south = Line.rows(width, height), Line.columns(width, height)
    lines = east, Line(east.rects[::-1]), Line(south.rects[::-1]), south
    return [Nearby(line, RADIUS, color, block, own=True) for color, line in enumerate(lines)]


def _program(machine, nz, block, steps, plans):
    """Return the program of a PE; `plans` says from what distance blocks arrive per direction, in order."""
    p = Program(f"wave, {plans}", machine)
    count, pitch = -(-nz // block), _pitch(block)
    size = count * block + 2 * RADIUS
    factors = _factors()
    rows = [[d for d in plan if d is not None] for plan in plans]
    firsts = np.cumsum([0, *map(len, rows)]).tolist()
    cells = p.array("cells", 2 * size, "f32", align=8)
    field = p.array("field", count * block, "f32", align=8)
    sums = p.array("sums", pitch, "f32", align=8)
    buffer = p.array("buffer", firsts[-1] * pitch, "f32", align=8)
    scales = [
        p.array(f"weights {k}", len(found), "f32", init=[factors[d] if d or not k else 0 for d in found])
        for k, found in enumerate(rows)
    ]
    command = p.array("command", 1, "u32", init=[_ways(9, 9, block)[0].command])
    stamps = Stamps(p)
    left, pending = p.reg16("steps left"), p.reg16("pending")
    at, now, before, here = (p.reg16(name) for name in ("block", "present", "previous", "here"))
    weight = p.reg32("weight")
    own = [p.dsr("src1") for _ in range(4)]
    shifted = p.dsr("src1")
    to, total = p.dsr("dest"), p.dsr("src0")

    def accumulate(op, dsd, offset, *scalar):
        load_at(p, (to, total), p.mem1d(sums, block))
        load_at(p, [shifted], dsd, offset)
        op(to, total, shifted, *scalar)

    def window(shift=0):
        return p.mem1d(cells, block, offset=RADIUS + shift)

    with p.task("main"):
        p.ldi(left, steps)
        p.ldi(at, 0)
        p.ldi(now, 0)
        p.ldi(before, 2 * size)
        stamps.store(0)
        p.activate("exchange")
    with p.task("exchange"):
        p.ldi(pending, 8)
        p.add16(here, now, at)
        for k, found in enumerate(rows):
            load_at(p, [own[k]], window(), here)
            p.mov32(p.fabout(p.output_queue(k, k), block), own[k], async_=p.async_(PRIORITY, activate=f"sent {k}"))
            p.fmuls(
                p.mem4d(buffer, (len(found), block), (pitch, 1), offset=firsts[k] * pitch),
                p.fabin(p.input_queue(4 + k, k), len(found) * block),
                p.mem4d(scales[k], (len(found), block), (1, 0)),
                async_=p.async_(PRIORITY, activate=f"received {k}"),
            )
    for k in range(4):
        with p.task(f"sent {k}"):
            p.mov32(p.fabout(p.output_queue(k, k), 1, control=True), command, async_=p.async_(PRIORITY))
            _count(p, pending)
        with p.task(f"received {k}"):
            _count(p, pending)
    with p.task("compute"):
        p.mov32(p.mem1d(sums, block), 0)
        for k in range(1, RADIUS + 1):
            p.ldi32(weight, float(factors[k]))
            for shift in (-k, k):
                accumulate(p.fmacs, window(shift), here, weight)
        every = p.mem4d(sums, (firsts[-1], block), (0, 1))
        p.fadds(every, every, p.mem4d(buffer, (firsts[-1], block), (pitch, 1)))
        accumulate(p.fmuls, p.mem1d(field, block), at)
        p.ldi32(weight, 2.0)
        accumulate(p.fmacs, window(), here, weight)
        p.add16(here, before, at)
        load_at(p, (total,), p.mem1d(sums, block))
        load_at(p, (shifted, to), window(), here)
        if count * block > nz:
            last = p.reg16("last")
            p.ldi(last, 2 * (count - 1) * block)
            with p.if_("eq", at, last):
                p.dsr_len(to, nz - (count - 1) * block)
                p.dsr_len(total, nz - (count - 1) * block)
        p.fsubs(to, total, shifted)
        p.add16(at, at, 2 * block)
        with p.if_("eq", at, 2 * count * block):
            p.ldi(at, 0)
            p.mov16(here, now)
            p.mov16(now, before)
            p.mov16(before, here)
            p.sub16(left, left, 1)
        with p.if_("ne", left, 0):
            p.activate("exchange")
        with p.else_():
            stamps.store(1)
    p.assemble()
    return p


def _count(p, pending):
    p.sub16(pending, pending, 1)
    last = p.new_label()  # the unlikely case, whose block a compiler moves out of the way
    p.branch("eq", pending, 0, last, "16")
    p.done()
    p.place(last)
    p.activate("compute")


def iterate(machine, cells, previous, block, steps):
    """Run steps of the wave equation.

    Parameters
    ----------
    machine : Machine
    cells, previous : ndarray of float32, shape (rows, columns, nz)
        Of the present step and of the one before it; zeros around.
    block, steps : int

    Returns
    -------
    (int, ndarray)
        Cycles between the readings on the PE in the middle, and the cells afterwards.

    Raises
    ------
    ProgramError
        The column does not fit into a PE.
    """
    height, width, nz = cells.shape
    layout, ways = Layout(width, height, machine), _ways(width, height, block)
    compose(
        layout,
        [(way.line, [way.plan(k) for k in range(len(way.line))]) for way in ways],
        lambda plans: _program(machine, nz, block, steps, plans),
    )
    for way in ways:
        way.routes(layout)
    rest = -nz % block
    both = np.concatenate([np.pad(u, ((0, 0), (0, 0), (RADIUS, RADIUS + rest))) for u in (cells, previous)], axis=2)
    field = np.full((height, width, nz + rest), COURANT, np.float32)
    session = Session(layout, [("cells", both.view(np.uint32), 0, 0), ("field", field.view(np.uint32), 0, 0)])
    first, last = session.stamps(width // 2, height // 2)
    values = session.read("cells", 0, 0, width, height).view(np.float32)
    begin = RADIUS + (steps % 2) * both.shape[2] // 2
    return int(last[0, 0] - first[0, 0]), values[:, :, begin : begin + nz]


def expected(arithmetic, cells, previous, steps):
    """Return the cells after some steps as bit patterns, in the order of additions of the PEs.

    Parameters
    ----------
    arithmetic : Arithmetic
    cells, previous : ndarray of bit patterns, shape (rows, columns, nz)
    steps : int
    """
    height, width, nz = cells.shape
    factors = _factors().view(np.uint32)
    ways = _ways(width, height, 1)
    field, two = (np.full(1, value, np.float32).view(np.uint32) for value in (COURANT, 2.0))
    for _ in range(steps):
        total = np.zeros_like(cells)
        padded = np.pad(cells, ((0, 0), (0, 0), (RADIUS, RADIUS)))
        for k in range(1, RADIUS + 1):
            for shift in (-k, k):
                t = padded[:, :, RADIUS + shift : RADIUS + shift + nz]
                total = arithmetic.call("fma", t, np.broadcast_to(factors[k], t.shape), total)
        for number, way in enumerate(ways):
            places = [np.s_[y : y + h, x : x + w] for x, y, w, h in way.line.rects]
            for k, here in enumerate(places):
                for distance in way.plan(k):
                    if distance is None:
                        continue
                    there = places[k - distance]
                    factor = np.broadcast_to(factors[distance] if distance or not number else 0, cells[there].shape)
                    product = arithmetic.call("mul", cells[there], factor.astype(np.uint32))
                    total[here] = arithmetic.call("add", total[here], product)
        total = arithmetic.call("mul", total, np.broadcast_to(field, total.shape))
        total = arithmetic.call("fma", cells, np.broadcast_to(two, cells.shape), total)
        cells, previous = arithmetic.call("sub", total, previous), cells
    return cells


@recipe(
    "R6",
    ("stencil-25pt-hw",),
    "a wave equation with 25 points, a column of z per PE",
    ("pe_grid", "nz", "block", "steps", "dtype"),
)
def stencil_columns(machine, point, progress):
    """Run the column of a point on 9 x 9 PEs."""
    params = point["params"]
    nz = integer(params, "nz")
    if params.get("dtype", "f32") != "f32":
        raise CannotRun(f"dtype {params['dtype']!r}: the recipe is for fp32")
    block = min(nz, integer(params, "block")) if "block" in params else None
    rng = np.random.default_rng(nz)
    cells, previous = rng.standard_normal((2, 9, 9, nz)).astype(np.float32)
    blocks = [block] if block else [-(-nz // count) for count in range(1, 9)]
    for block in blocks:
        try:
            times = []
            for steps in (16, 8):
                progress(f"{steps} steps, blocks of {block} cells")
                times.append(iterate(machine, cells, previous, block, steps)[0])
        except ProgramError as error:
            reason = error.what
        else:
            how = f"difference of 16 and 8 steps on 9 x 9 PEs, blocks of {block} cells"
            return Measurement((times[0] - times[1]) / 8, how)
    raise CannotRun(f"a column of {nz} cells does not fit into a PE: {reason}")
