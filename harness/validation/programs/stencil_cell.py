"""R4 is a star stencil with one cell per PE, fp32; it gives cycles per iteration.

*What moves.*  Per iteration a PE sends its value times w1 to its four neighbours with one operation, which the routers
multicast, and adds what comes from them.  The outer ring of PEs only sends constants and swallows what it gets.

*Colors and queues.*  PE (x, y) sends on color (x + 2 y) mod 5, so that the four neighbours of a PE have four colors,
none of them its own.  Output queue 0; input queues 0..3, for west, east, north, south.

*Order of additions.*  out = w1 a; a = w0 a; s = west + east; t = north + south, each of two fabric inputs; s = s + t;
a = a + s.  Six operations of one element with all DSRs loaded before, no tasks, iterations one after the other in the
code.  Where data tasks belong to queues (WSE-3) the source adds east, west, north, south to a, one after the other, as
an operation takes one input of the fabric there.

*Time.*  The difference of runs of four and two iterations, halved, on PE (1, 1), between a reading before the first
and after the last iteration.

Source: Jorineg/cerebras (non-tiled stencil).
"""

from __future__ import annotations

import numpy as np

from fabric.kernels.kit.session import Session
from harness.validation.programs.ring import around
from harness.validation.recipe import CannotRun, Measurement, Point, Tell, grid, integer, recipe
from harness.validation.sources import fitting
from wse_core.params import Machine

__all__ = ["WEIGHTS", "expected", "is_chained", "iterate", "stencil_cell"]

WEIGHTS = (0.5, 0.125)


def iterate(machine: Machine, cells: np.ndarray, boundary: float, iterations: int) -> tuple[int, np.ndarray]:
    """Run iterations of the stencil.

    Parameters
    ----------
    machine : Machine
    cells : ndarray of float32, shape (rows, columns)
        One per inner PE.
    boundary : float
        What each PE of the outer ring sends.
    iterations : int

    Returns
    -------
    (int, ndarray)
        Cycles between the readings on PE (1, 1), and the cells afterwards.
    """
    rows, columns = cells.shape
    sizes = {"width": columns + 2, "height": rows + 2, "iterations": iterations}
    specification = fitting(
        f"{columns} x {rows} cells", machine, "stencil_cell", **sizes, chained=int(is_chained(machine))
    )
    session = Session(
        specification,
        [("a", cells.view(np.uint32)[:, :, np.newaxis], 1, 1), *around(columns, rows, boundary, iterations)],
        task=None,
    )
    first, last = session.stamps(1, 1)
    return int(last[0, 0] - first[0, 0]), session.read("a", 1, 1, columns, rows)[:, :, 0].view(np.float32)


def is_chained(machine: Machine) -> bool:
    """Return whether a PE adds its neighbours' values one by one."""
    return bool(machine["task.by_queue"])


def expected(cells: np.ndarray, boundary: float, iterations: int, chained: bool = False) -> np.ndarray:
    """Return the cells after some iterations in the order of the PEs, in the type of `cells`."""
    kind = cells.dtype.type
    for _ in range(iterations):
        sent = np.pad(cells * kind(WEIGHTS[1]), 1, constant_values=kind(boundary))
        if chained:
            cells = cells * kind(WEIGHTS[0])
            for part in (sent[1:-1, 2:], sent[1:-1, :-2], sent[:-2, 1:-1], sent[2:, 1:-1]):
                cells = cells + part
            continue
        total = (sent[1:-1, :-2] + sent[1:-1, 2:]) + (sent[:-2, 1:-1] + sent[2:, 1:-1])
        cells = cells * kind(WEIGHTS[0]) + total
    return cells


@recipe("R4", ("stencil-1cell",), "a star stencil, one cell per PE", ("grid", "radius", "dtype"))
def stencil_cell(machine: Machine, point: Point, progress: Tell) -> Measurement:
    """Run the grid of a point."""
    params = point["params"]
    width, height = grid(params, "grid")
    if integer(params, "radius", 1) != 1:
        raise CannotRun("the program with one cell per PE is for radius 1")
    if params.get("dtype", "f32") != "f32":
        raise CannotRun(f"dtype {params['dtype']!r}: the recipe is for fp32")
    if min(width, height) < 3:
        raise CannotRun(f"{width} x {height} PEs have no inner PE; the outer ring is the boundary")
    cells = np.random.default_rng(width * height).standard_normal((height - 2, width - 2)).astype(np.float32)
    if width > machine["fabric.width"] or height > machine["fabric.height"]:
        raise CannotRun(f"{width} x {height} PEs are more than the fabric has")
    times = []
    for iterations in (4, 2):
        progress(f"{iterations} iterations")
        times.append(iterate(machine, cells, 0.0, iterations)[0])
    return Measurement((times[0] - times[1]) / 2, "difference of 4 and 2 iterations")
