"""R6 is a wave equation with 25 points, one column of z per PE, fp32; it gives cycles per time step.

*What moves.*  Per step the column of a PE goes to the four PEs on each side, block by block: a localized broadcast in
each direction, all four at once.  A router that sends cannot leave out its own ramp, and the published program has no
filters, so a PE receives its own block from all four directions; the one that travels east serves as the middle of the
stencil.

*Colors and queues.*  Colors and output queues 0..3 for columns that travel east, west, north, south, input queues 4..7;
each operation on the microthread of its queue.

*Tasks* (``stencil_columns_pe.csl``, and ``stencil_columns_way.csl`` once per direction).  ``exchange`` starts four
asynchronous receives and four asynchronous sends.  A receive multiplies what arrives by a weight per block (a
descriptor that repeats each weight) into a buffer with a row per sender.  Behind a block go two commands, one after the
other, each with a task of its own: one that makes the next PE the sender, one that makes the own router wait again.
Ends of receives and of sends are counted separately; the last receive adds the rows to the sums.  When all blocks have
come and gone, the column adds what it gives to itself.

*Order of additions.*  s = 0; s += row for the rows of the directions in the order in which they arrived
(`Nearby.plan`), 17 with the own one; for k = 1..4: s += w_k u(z - k), s += w_k u(z + k), fused, zeros outside; new =
c s + 2 u - previous.  The two arrays of cells change places.

*Blocks.*  Where a point names none: as few as fit into a PE.  If blocks do not divide the column it is sent with some
zeros behind it.

*Time.*  Published is the mean of a thousand steps or more.  PEs begin together and need about eight steps until they
follow each other evenly, so the difference of runs of 16 and 8 steps is taken, between a reading before the first and
after the last step, on the PE in the middle of 9 x 9, which has all neighbours.

Source: Jacquelin et al., SC22, arXiv 2204.03775: operations per cell, localized broadcasts; the public example
25-pt-stencil (csl-examples): commands, tasks and the order of the parts.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.collectives.pieces.lines import Line
from fabric.kernels.collectives.pieces.neighbours import Nearby
from fabric.kernels.kit.session import Session
from fabric.kernels.stencil.points25 import weights
from harness.validation.recipe import CannotRun, Measurement, Point, Tell, integer, recipe
from harness.validation.sources import fitting
from wse_core.formats import Arithmetic
from wse_core.params import Machine

__all__ = ["RADIUS", "expected", "iterate", "stencil_columns"]

RADIUS = 4
COURANT = 0.1
"""The value of the field is the square of the number of cells that a wave travels in a step, here the same everywhere.
"""

GROUP = 4
"""Cells of fp32 in a group of banks; rows of sums and of what arrives are whole groups."""


def _factors() -> NDArray[np.float32]:
    """Return the weights of the laplacian by distance as float32, that of the cell itself first."""
    near = weights(RADIUS)[1:] * 10
    return np.array([-6 * near.sum(), *near], np.float32)


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
    CannotRun
        The column does not fit into a PE.
    """
    height, width, nz = cells.shape
    what = f"columns of {nz} cells in blocks of {block}"
    specification = fitting(what, machine, "stencil_columns", width=width, height=height, nz=nz, block=block)
    rest = -nz % block
    both = np.concatenate([np.pad(u, ((0, 0), (0, 0), (RADIUS, RADIUS + rest))) for u in (cells, previous)], axis=2)
    session = Session(
        specification,
        [
            ("cells", both.view(np.uint32), 0, 0),
            ("field", np.full((height, width, nz), COURANT, np.float32).view(np.uint32), 0, 0),
            ("steps", np.full((height, width, 1), steps, np.uint32), 0, 0),
        ],
        task=None,
    )
    first, last = session.stamps(width // 2, height // 2)
    values = session.read("cells", 0, 0, width, height).view(np.float32)
    begin = RADIUS + (steps % 2) * both.shape[2] // 2
    return int(last[0, 0] - first[0, 0]), values[:, :, begin : begin + nz]


def _ways(width: int, height: int) -> list[Nearby]:
    """Return the localized broadcasts to the east, west, north and south: who receives from whom, and when."""
    east, south = Line.rows(width, height), Line.columns(width, height)
    lines = east, Line(east.rects[::-1]), Line(south.rects[::-1]), south
    return [Nearby(line, RADIUS, color, 1, own=True) for color, line in enumerate(lines)]


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
    field, two = (np.full(1, value, np.float32).view(np.uint32) for value in (COURANT, 2.0))
    for _ in range(steps):
        total = np.zeros_like(cells)
        for number, way in enumerate(_ways(width, height)):
            places = [np.s_[y : y + h, x : x + w] for x, y, w, h in way.line.rects]
            for k, here in enumerate(places):
                for distance in way.plan(k):
                    if distance is None:
                        continue
                    there = places[k - distance]
                    factor = np.broadcast_to(factors[distance] if distance or not number else 0, cells[there].shape)
                    product = arithmetic.call("mul", cells[there], factor.astype(np.uint32))
                    total[here] = arithmetic.call("add", total[here], product)
        padded = np.pad(cells, ((0, 0), (0, 0), (RADIUS, RADIUS)))
        for k in range(1, RADIUS + 1):
            for shift in (-k, k):
                t = padded[:, :, RADIUS + shift : RADIUS + shift + nz]
                total = arithmetic.call("fma", t, np.broadcast_to(factors[k], t.shape), total)
        total = arithmetic.call("mul", total, np.broadcast_to(field, total.shape))
        total = arithmetic.call("fma", cells, np.broadcast_to(two, cells.shape), total)
        cells, previous = arithmetic.call("sub", total, previous), cells
    return cells


@functools.lru_cache
def _cycles(machine: Machine, nz: int, block: int) -> float:
    """Return the cycles of a step; points that differ in the number of PEs only share them."""
    count, pitch = -(-nz // block), -(-block // GROUP) * GROUP
    cells = 2 * (count * block + 2 * RADIUS) + nz + (count + 4 * (RADIUS + 1)) * pitch
    if 2 * cells > machine["mem.words"]:
        raise CannotRun(f"columns of {nz} cells in blocks of {block} do not fit into a PE: {cells} cells of data")
    rng = np.random.default_rng(nz)
    present, previous = rng.standard_normal((2, 9, 9, nz)).astype(np.float32)
    long, short = (iterate(machine, present, previous, block, steps)[0] for steps in (16, 8))
    return (long - short) / 8


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
    blocks = [block] if block else [-(-nz // count) for count in range(1, 9)]
    for block in blocks:
        try:
            progress(f"blocks of {block} cells")
            cycles = _cycles(machine, nz, block)
        except CannotRun as error:
            reason = error
        else:
            return Measurement(cycles, f"difference of 16 and 8 steps on 9 x 9 PEs, blocks of {block} cells")
    raise reason
