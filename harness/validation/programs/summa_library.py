"""R1 is SUMMA over P x P PEs with broadcasts of a collectives library, square tiles of T x T fp32, stored by columns.

In step i the PEs of column i broadcast their tile of A along their rows, those of row i their tile of B along their
columns; when both have come, C += A B.  The next step begins after the product.  The time is the largest difference
over all PEs between the stamps at first entry of the main task and after the last product; the PEs are not
synchronised.

*Library*: ``<collectives_2d/pe>``, the one that users import.  Its broadcast begins when the caller has set up both
axes, so that no word is hidden, and its callback comes when the way has been taken back.

*Product* (``tile_product.csl``; per k, per j): load of B[j T + k], fmacs of T elements C[:, j] += A[:, k] b.  The
descriptors are variables, so three DSRs are loaded for each fmacs, with their bases; then that of C moves on by a
column, and that of A after the last j.  `fabric.csl.rules` says for which tiles the compiler unrolls the loop over j;
columns of C and elements of B stand at known places then.

*Banks.*  Arrays lie in memory in the order A, B, C, A buffer, B buffer, so with even T the columns of A and C have
even distances: 0 modulo 4 words is a conflict.

*Large P.*  A PE does the same work in every step, and waits only for the PEs of its row and column, so cycles grow
linearly with P once P exceeds the few steps that the ends of a row differ by (`tests` compare the slopes).  Points
with P > `SLOPE[1]` are continued from runs with the two P of `SLOPE`.

Sources: the vendor's gemm-collectives_2d example; lingzhi227/MIMD_dataflow (GEMM_SUMMA), measured on a CS-2.
"""

from __future__ import annotations

import functools

import numpy as np

from fabric.kernels.kit.session import Session
from harness.validation.recipe import CannotRun, Measurement, Point, Tell, agree, grid, recipe
from harness.validation.sources import fitting
from wse_core.params import Machine

__all__ = ["SLOPE", "cycles", "multiply", "run"]

SLOPE = (8, 16)
"""Larger P are continued from these sizes."""


def run(
    machine: Machine, size: int, t: int, a: np.ndarray, b: np.ndarray, progress: Tell | None = None
) -> tuple[Session, np.ndarray]:
    """Multiply on the fabric.

    Parameters
    ----------
    size, t : int
        P (at least 2) and T.
    a, b : ndarray of float32
        Shape (P T, P T).

    Returns
    -------
    session : Session
        The finished run, with the stamps of all PEs.
    c : ndarray of float32
    """
    specification = fitting(f"tiles of {t} x {t}", machine, "summa", size=size, t=t)

    def tiles(matrix: np.ndarray) -> np.ndarray:
        return matrix.reshape(size, t, size, t).transpose(0, 2, 3, 1).reshape(size, size, t * t)

    told = None if progress is None else (lambda cycle, *rest: progress(f"{size} x {size} PEs, cycle {cycle}"))
    place = np.broadcast_to(np.arange(size, dtype=np.uint16), (size, size))[..., np.newaxis]
    inputs = [("a", tiles(a), 0, 0), ("b", tiles(b), 0, 0), (".x", place, 0, 0), (".y", place.swapaxes(0, 1), 0, 0)]
    session = Session(specification, inputs, task=None, progress=told)
    c = session.read("c", 0, 0, size, size).view(np.float32).reshape(size, size, t, t)
    return session, c.transpose(0, 3, 1, 2).reshape(size * t, size * t)


def multiply(
    machine: Machine, size: int, t: int, a: np.ndarray, b: np.ndarray, progress: Tell | None = None
) -> tuple[int, np.ndarray]:
    """Return (cycles, C) of a run."""
    session, c = run(machine, size, t, a, b, progress)
    first, last = session.stamps(0, 0, size, size)
    return int((last - first).max()), c


@functools.lru_cache(maxsize=64)
def cycles(machine: Machine, size: int, t: int) -> int:
    """Return the cycles of a run; the same run serves all points of one process that are continued from it."""
    rng = np.random.default_rng(size * 1000 + t)
    a, b = rng.standard_normal((2, size * t, size * t)).astype(np.float32)
    return multiply(machine, size, t, a, b)[0]


@recipe(
    "R1",
    ("gemm-summa-hw",),
    "SUMMA with broadcasts of a collectives library",
    ("pe_grid", "tile", "M", "K", "N", "dtype"),
)
def summa(machine: Machine, point: Point, progress: Tell) -> Measurement:
    """Run the product, or continue the line through two smaller ones."""
    params = point["params"]
    width, height = grid(params, "pe_grid")
    tile = grid(params, "tile", 3)
    if width != height or len(set(tile)) != 1 or width < 2:
        raise CannotRun("only square tiles on a square of at least 2 x 2 PEs")
    t = tile[0]
    agree(params, dict.fromkeys("MKN", width * t))
    if width <= SLOPE[1]:
        return Measurement(cycles(machine, width, t))
    low, high = (cycles(machine, size, t) for size in SLOPE)
    slope = (high - low) / (SLOPE[1] - SLOPE[0])
    return Measurement(high + (width - SLOPE[1]) * slope, f"line through {SLOPE[0]} and {SLOPE[1]} PEs a side")
