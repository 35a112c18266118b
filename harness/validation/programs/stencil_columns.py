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

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fabric.asm.operands import Dsd, Reg
from fabric.kernels.collectives.pieces.lines import Line, compose
from fabric.kernels.collectives.pieces.neighbours import Nearby, SidePlan
from fabric.kernels.kit.session import Session, Stamps
from fabric.kernels.stencil.points25 import weights
from fabric.layout.layout import Layout
from fabric.program.program import Program
from harness.validation.programs.compiled import PRIORITY, load_at
from harness.validation.recipe import CannotRun, Measurement, Point, Tell, integer, recipe
from wse_core.errors import ProgramError
from wse_core.formats import Arithmetic
from wse_core.params import Machine

__all__ = ["RADIUS", "expected", "iterate", "stencil_columns"]

RADIUS = 4
COURANT = 0.1
"""Square of the number of cells that a wave travels in a step: the value of the field, here the same everywhere."""
GROUP = 4
"""Cells of fp32 in a group of banks."""


def _factors() -> NDArray[np.float32]:
    """Return the weights of the laplacian by distance as float32, that of the cell itself first."""
    near = weights(RADIUS)[1:] * 10
    return np.array([-6 * near.sum(), *near], np.float32)


def _pitch(block: int) -> int:
    """Return the cells from row to row of the buffer: rows of whole groups of banks, so that all begin in one bank."""
    return -(-block // GROUP) * GROUP


def _ways(width: int, height: int, block: int) -> list[Nearby]:
    east, south = Line.rows(width, height), Line.columns(width, height)
    lines = east, Line(east.rects[::-1]), Line(south.rects[::-1]), south
    return [Nearby(line, RADIUS, color, block, own=True) for color, line in enumerate(lines)]


class _Column:
    """The program of a PE, built task by task.

    Parameters
    ----------
    machine : Machine
    nz, block, steps : int
    plans : sequence of tuple[int or None, ...]
        From what distance blocks arrive per direction, in order.
    """

    def __init__(self, machine: Machine, nz: int, block: int, steps: int, plans: Sequence[SidePlan]) -> None:
        self.nz, self.block, self.steps, self.factors = nz, block, steps, _factors()
        self.blocks, self.pitch = -(-nz // block), _pitch(block)
        self.size = self.blocks * block + 2 * RADIUS
        self.rows = [[d for d in plan if d is not None] for plan in plans]
        self.firsts = np.cumsum([0, *map(len, self.rows)]).tolist()
        p = self.program = Program(f"wave, {plans}", machine)
        self.cells = p.array("cells", 2 * self.size, "f32", align=8)
        self.field = p.array("field", self.blocks * block, "f32", align=8)
        self.sums = p.array("sums", self.pitch, "f32", align=8)
        self.buffer = p.array("buffer", self.firsts[-1] * self.pitch, "f32", align=8)
        self.scales = [
            p.array(f"weights {k}", len(found), "f32", init=[self.factors[d] if d or not k else 0 for d in found])
            for k, found in enumerate(self.rows)
        ]
        self.command = p.array("command", 1, "u32", init=[_ways(9, 9, block)[0].command])
        self.stamps = Stamps(p)
        self.left, self.pending = p.reg16("steps left"), p.reg16("pending")
        self.at, self.now, self.before, self.here = (p.reg16(name) for name in ("block", "present", "previous", "here"))
        self.weight = p.reg32("weight")
        self.own = [p.dsr("src1") for _ in range(4)]
        self.shifted = p.dsr("src1")
        self.to, self.total = p.dsr("dest"), p.dsr("src0")
        self._main()
        self._exchange()
        self._completions()
        self._compute()
        p.assemble()

    def _main(self) -> None:
        p = self.program
        with p.task("main"):
            p.ldi(self.left, self.steps)
            p.ldi(self.at, 0)
            p.ldi(self.now, 0)
            p.ldi(self.before, 2 * self.size)
            self.stamps.store(0)
            p.activate("exchange")

    def _exchange(self) -> None:
        """Four sends and four receives, all asynchronous."""
        p, block, pitch = self.program, self.block, self.pitch
        with p.task("exchange"):
            p.ldi(self.pending, 8)
            p.add16(self.here, self.now, self.at)
            for k, found in enumerate(self.rows):
                load_at(p, [self.own[k]], self._window(), self.here)
                sent = p.async_(PRIORITY, activate=f"sent {k}")
                p.mov32(p.fabout(p.output_queue(k, k), block), self.own[k], async_=sent)
                p.fmuls(
                    p.mem4d(self.buffer, (len(found), block), (pitch, 1), offset=self.firsts[k] * pitch),
                    p.fabin(p.input_queue(4 + k, k), len(found) * block),
                    p.mem4d(self.scales[k], (len(found), block), (1, 0)),
                    async_=p.async_(PRIORITY, activate=f"received {k}"),
                )

    def _completions(self) -> None:
        """Behind each send the routers are switched; all eight ends are counted."""
        p = self.program
        for k in range(4):
            with p.task(f"sent {k}"):
                switch = p.fabout(p.output_queue(k, k), 1, control=True)
                p.mov32(switch, self.command, async_=p.async_(PRIORITY))
                self._count()
            with p.task(f"received {k}"):
                self._count()

    def _count(self) -> None:
        p = self.program
        p.sub16(self.pending, self.pending, 1)
        last = p.new_label()  # the unlikely case, whose block a compiler moves out of the way
        p.branch("eq", self.pending, 0, last, "16")
        p.done()
        p.place(last)
        p.activate("compute")

    def _compute(self) -> None:
        """New cells of a block; then the next block, the next step, or the end."""
        p, block = self.program, self.block
        with p.task("compute"):
            p.mov32(p.mem1d(self.sums, block), 0)
            for k in range(1, RADIUS + 1):
                p.ldi32(self.weight, float(self.factors[k]))
                for shift in (-k, k):
                    self._accumulate(p.fmacs, self._window(shift), self.here, self.weight)
            every = p.mem4d(self.sums, (self.firsts[-1], block), (0, 1))
            p.fadds(every, every, p.mem4d(self.buffer, (self.firsts[-1], block), (self.pitch, 1)))
            self._accumulate(p.fmuls, p.mem1d(self.field, block), self.at)
            p.ldi32(self.weight, 2.0)
            self._accumulate(p.fmacs, self._window(), self.here, self.weight)
            self._subtract()
            self._advance()

    def _window(self, shift: int = 0) -> Dsd:
        """Return the cells of a block, or those some places beside them."""
        return self.program.mem1d(self.cells, self.block, offset=RADIUS + shift)

    def _accumulate(self, op: Callable[..., None], dsd: Dsd, offset: Reg, *scalar: Reg) -> None:
        p = self.program
        load_at(p, (self.to, self.total), p.mem1d(self.sums, self.block))
        load_at(p, [self.shifted], dsd, offset)
        op(self.to, self.total, self.shifted, *scalar)

    def _subtract(self) -> None:
        """Sums less the cells of the previous step, in their place; the last block may be shorter."""
        p, whole = self.program, (self.blocks - 1) * self.block
        p.add16(self.here, self.before, self.at)
        load_at(p, (self.total,), p.mem1d(self.sums, self.block))
        load_at(p, (self.shifted, self.to), self._window(), self.here)
        if self.blocks * self.block > self.nz:
            last = p.reg16("last")
            p.ldi(last, 2 * whole)
            with p.if_("eq", self.at, last):
                p.dsr_len(self.to, self.nz - whole)
                p.dsr_len(self.total, self.nz - whole)
        p.fsubs(self.to, self.total, self.shifted)

    def _advance(self) -> None:
        """Go to the next block; behind the last one the two arrays change places and a step is done."""
        p = self.program
        p.add16(self.at, self.at, 2 * self.block)
        with p.if_("eq", self.at, 2 * self.blocks * self.block):
            p.ldi(self.at, 0)
            p.mov16(self.here, self.now)
            p.mov16(self.now, self.before)
            p.mov16(self.before, self.here)
            p.sub16(self.left, self.left, 1)
        with p.if_("ne", self.left, 0):
            p.activate("exchange")
        with p.else_():
            self.stamps.store(1)


def iterate(
    machine: Machine, cells: np.ndarray, previous: np.ndarray, block: int, steps: int
) -> tuple[int, np.ndarray]:
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
        lambda plans: _Column(machine, nz, block, steps, plans).program,
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


def expected(arithmetic: Arithmetic, cells: np.ndarray, previous: np.ndarray, steps: int) -> np.ndarray:
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
def stencil_columns(machine: Machine, point: Point, progress: Tell) -> Measurement:
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
