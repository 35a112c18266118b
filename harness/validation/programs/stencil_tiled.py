"""R5 is a star stencil over a plane of cells, a tile of w x h cells per PE, fp32; it gives cycles per iteration.

*What moves.*  A PE holds its tile with a halo of r cells in array A, and partial sums in array B, both of
(h + 2 r) x (w + 2 r + 1) words.  Per iteration the outermost r rows and columns of the tile go to the four
neighbours, and theirs come into the halo: four asynchronous sends and four receives.

*Colors and queues.*  One color per direction and parity of the sender's column (W, E) or row (N, S): 8.  Output queues
0..3, input queues 4..7, each operation on the microthread of its queue.

*Tasks* (``stencil_tiled_pe.csl``), eleven as in the source.  ``loop`` starts four sends and four receives; each has a
task of its own that counts, the last of the sends unblocks ``compute`` and the last of the receives activates it.  With
r = 1 all descriptors stay in named DSRs, of which ``loop`` loads the eight in memory anew, and what follows a transfer
was said when its DSR was loaded; with r >= 2 the compiler loads all operands of each operation.  Where data tasks
belong to queues (WSE-3) the source's tiles of radius 1 with at least four cells a side wait for nobody: they compute
while cells leave and come (from which iteration a halo is, is left to time), no task counts, and the next iteration
waits for descriptors of transfers that have not ended.

*Order of additions.*  r = 1: b = w0 a, then b += a of the north, south, west, east, then a = w1 b.  r >= 2: for k =
1..r, north, south, west, east at distance k: b += w_k a (the first one: b = w_1 a), then a = b + w_0 a.

*Time.*  The difference of runs of four and two iterations, halved, between a reading before the first and after the
last iteration, on the inner PE of 3 x 3 with a ring of PEs around that sends constants and swallows what it gets.  The
published figures hardly depend on the grid (127 cycles on 5 x 5 to 25 x 25 PEs).

Source: Jorineg/cerebras (tiled-stencil).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fabric.kernels.kit.session import Session
from harness.validation.programs.ring import around
from harness.validation.recipe import CannotRun, Measurement, Point, Tell, grid, integer, recipe
from harness.validation.sources import fitting
from wse_core.params import Machine

__all__ = ["WEIGHTS", "expected", "iterate", "stencil_tiled"]

WEIGHTS = (0.5, 0.125, 0.0625, 0.03125, 0.25, 0.1875)
"""The weights go by distance, repeated for larger radii; they are chosen so that values stay bounded."""
DIRECTIONS = "NSWE"
STEP = {"W": (-1, 0), "E": (1, 0), "N": (0, -1), "S": (0, 1)}


def _weight(distance: int) -> float:
    return WEIGHTS[distance % len(WEIGHTS)]


def iterate(
    machine: Machine,
    cells: np.ndarray,
    boundary: float,
    pes: tuple[int, int],
    radius: int,
    iterations: int,
    is_waiting: bool = True,
) -> tuple[int, np.ndarray]:
    """Run iterations of the stencil.

    Parameters
    ----------
    machine : Machine
    cells : ndarray of float32, shape (rows, columns)
        Cells of all PEs; both are multiples of the number of PEs.
    boundary : float
        Value of the cells around.
    pes : tuple[int, int]
        Columns and rows of PEs that hold tiles.
    radius, iterations : int
    is_waiting : bool
        Whether a tile waits for its neighbours' cells.

    Returns
    -------
    (int, ndarray)
        Cycles between the readings on the PE in the middle, and the cells afterwards.

    Raises
    ------
    CannotRun
        A tile does not fit into a PE.
    """
    across, down = pes
    h, w, r = cells.shape[0] // down, cells.shape[1] // across, radius
    what = f"tiles of {w} x {h} cells"
    sizes = {"across": across, "down": down, "w": w, "h": h, "r": r, "waits": int(is_waiting)}
    specification = fitting(what, machine, "stencil_tiled", **sizes)
    padded = np.zeros((down, across, h + 2 * r, w + 2 * r + 1), np.float32)
    inner = np.s_[:, :, r : r + h, r : r + w]
    padded[inner] = cells.reshape(down, h, across, w).transpose(0, 2, 1, 3)
    session = Session(
        specification,
        [
            ("a", padded.reshape(down, across, -1).view(np.uint32), 1, 1),
            ("iterations", np.full((down, across, 1), iterations, np.uint32), 1, 1),
            *around(across, down, boundary, iterations),
        ],
        task=None,
    )
    first, last = session.stamps(1 + across // 2, 1 + down // 2)
    found = session.read("a", 1, 1, across, down).view(np.float32).reshape(padded.shape)[inner]
    return int(last[0, 0] - first[0, 0]), found.transpose(0, 2, 1, 3).reshape(cells.shape)


def expected(
    cells: np.ndarray, boundary: float, radius: int, iterations: int, fma: Callable[..., np.ndarray]
) -> np.ndarray:
    """Return the cells after some iterations, in the order of additions of the PEs.

    Parameters
    ----------
    cells : ndarray
        float32 for the bit-exact result, float64 for a plain one.
    boundary, radius, iterations
        As in `iterate`.
    fma : callable
        ``fma(b, c, a)`` returns ``b c + a``.
    """
    kind = cells.dtype.type
    for _ in range(iterations):
        padded = np.pad(cells, radius, constant_values=kind(boundary))

        def moved(dx: int, dy: int, padded: np.ndarray = padded, shape: tuple[int, ...] = cells.shape) -> np.ndarray:
            return padded[radius + dy : radius + dy + shape[0], radius + dx : radius + dx + shape[1]]

        if radius == 1:
            total = cells * kind(_weight(0))
            for d in DIRECTIONS:
                total = total + moved(*STEP[d])
            cells = total * kind(_weight(1))
            continue
        total = None
        for k in range(1, radius + 1):
            factor = kind(_weight(k))
            for d in DIRECTIONS:
                shifted = moved(k * STEP[d][0], k * STEP[d][1])
                total = shifted * factor if total is None else fma(shifted, factor, total)
        cells = fma(cells, kind(_weight(0)), total)
    return cells


@recipe(
    "R5",
    ("stencil-tiled",),
    "a star stencil over a tile of cells per PE, halo exchange with four neighbours",
    ("tile", "radius", "grids", "dtype"),
)
def stencil_tiled(machine: Machine, point: Point, progress: Tell) -> Measurement:
    """Run the tile and the radius of a point on 3 x 3 PEs."""
    params = point["params"]
    w, h = grid(params, "tile")
    radius = integer(params, "radius")
    if params.get("dtype", "f32") != "f32":
        raise CannotRun(f"dtype {params['dtype']!r}: the recipe is for fp32")
    if radius > min(w, h):
        raise CannotRun(f"a radius of {radius} reaches beyond the neighbours' tiles of {w} x {h} cells")
    cells = np.random.default_rng(w * h + radius).standard_normal((3 * h, 3 * w)).astype(np.float32)
    is_waiting = radius > 1 or min(w, h) < 4 or not machine["task.by_queue"]
    times = []
    for iterations in (4, 2):
        progress(f"{iterations} iterations")
        times.append(iterate(machine, cells, 0.0, (3, 3), radius, iterations, is_waiting)[0])
    return Measurement((times[0] - times[1]) / 2, "difference of 4 and 2 iterations on 3 x 3 PEs")
