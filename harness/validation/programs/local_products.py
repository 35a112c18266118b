"""R10 is the product that every PE of a two-dimensional partition computes on its own, C += A B, in fp32.

A PE has N / height rows and K / width columns of A, all M columns of B and C.  The time is that between the stamps
right around the loops; nothing crosses the fabric, so one PE is enough.

*Dense* (``dense.csl``), all stored by rows: for each k and column j one fmacs of all rows, C[:, j] += A[:, k] B[k, j];
both vectors have the stride of a row.  Descriptors stay in DSRs that the program names, and their bases are set.

*Sparse* (``coo.csl``, ``ellpack.csl``, ``compressed.csl`` for CSC and CSR): per stored element one fmacs of a row of
B into a row of C, through two DSRs whose bases are set, as in the source.  Indices are 32-bit numbers.  Rows of B and C
are padded to a multiple of four elements, and an element of C stands one place further on than one of B, so that no
pair shares a bank.  COO and ELLPACK are padded with zeros at (0, 0), to the longest PE and to the longest row of all
PEs.  M of a point is the padded length.

*Pattern.*  Every element is stored with the given probability.  Cycles depend on counts, and linearly, so a PE with
the mean count (CSC, CSR) stands for the published mean over PEs; the padded counts are the medians of the maxima over
all PEs, unless a point assumes another (``padded``).  Where the elements lie is random with a fixed seed.

Source: pr0f3ss/SpMM_Cerebras (benchmarks).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.kit.session import Session
from harness.validation.recipe import CannotRun, Measurement, Point, Tell, agree, grid, integer, recipe
from harness.validation.sources import fitting
from wse_core.params import Machine

__all__ = ["FORMATS", "SparseTile", "dense", "dense_tile", "padded_count", "row_length", "sparse", "stored", "tile_of"]

FORMATS = ("COO", "CSC", "CSR", "ELLPACK")


def _run(
    machine: Machine, name: str, shapes: str, data: Mapping[str, np.ndarray], **params: int
) -> tuple[int, np.ndarray]:
    """Return (cycles between the stamps, C) of a program on one PE."""
    specification = fitting(shapes, machine, name, **params)
    inputs = [(key, np.asarray(values).reshape(1, 1, -1), 0, 0) for key, values in data.items() if np.size(values)]
    session = Session(specification, inputs, task=None)
    first, last = session.stamps()
    return int(last[0, 0] - first[0, 0]), session.read("c").view(np.float32).ravel()


def dense(machine: Machine, a: np.ndarray, b: np.ndarray) -> tuple[int, np.ndarray]:
    """Return (cycles, C) of ``A B``; both float32, C starts as zeros."""
    (rows, cols), columns = a.shape, b.shape[1]
    shapes = f"tiles of {rows} x {cols} and {cols} x {columns}"
    cycles, c = _run(machine, "dense", shapes, {"a": a, "b": b}, rows=rows, cols=cols, columns=columns)
    return cycles, c.reshape(rows, columns)


def stored(fmt: str, a: np.ndarray, padded: int) -> tuple[dict[str, np.ndarray], str, dict[str, int]]:
    """Return the arrays of a matrix in a format, the name of the program for them, and its params."""
    shape = a.shape
    if fmt == "COO":
        row, column = np.nonzero(a)
        fill = [(0, padded - len(row))]
        arrays = {"row": np.pad(row, fill), "column": np.pad(column, fill), "values": np.pad(a[row, column], fill)}
        return arrays, "coo", {"stored": padded}
    if fmt == "ELLPACK":
        index, values = np.zeros((shape[0], padded), int), np.zeros((shape[0], padded), np.float32)
        for i, line in enumerate(a):
            stored = np.flatnonzero(line)
            index[i, : len(stored)], values[i, : len(stored)] = stored, line[stored]
        return {"index": index.ravel(), "values": values.ravel()}, "ellpack", {"width": padded}
    lines = a if fmt == "CSR" else a.T
    found = [np.flatnonzero(line) for line in lines]
    arrays = {
        "pointer": np.cumsum([0, *map(len, found)]),
        "index": np.concatenate(found),
        "values": np.concatenate([line[k] for line, k in zip(lines, found, strict=True)]),
    }
    return arrays, "compressed", {"stored": max(1, len(arrays["index"])), "is_csr": int(fmt == "CSR")}


def sparse(machine: Machine, fmt: str, a: np.ndarray, b: np.ndarray, padded: int = 0) -> tuple[int, np.ndarray]:
    """Return (cycles, C) of ``A B`` with A stored in a sparse format.

    Parameters
    ----------
    fmt : {"COO", "CSC", "CSR", "ELLPACK"}
    a, b : ndarray of float32
    padded : int
        COO: elements, ELLPACK: elements per row, with padding.
    """
    arrays, name, params = stored(fmt, a, padded)
    data = {key: values.astype(np.float32 if key == "values" else np.int32) for key, values in arrays.items()}
    (rows, cols), columns = a.shape, b.shape[1]
    length = row_length(columns)
    data["b"] = np.pad(b, ((0, 0), (0, length - columns))).ravel()
    shapes = f"tiles of {a.shape} and {b.shape} in {fmt}"
    cycles, c = _run(machine, name, shapes, data, rows=rows, cols=cols, length=length, **params)
    return cycles, c[1:].reshape(rows, length)[:, :columns]


def row_length(columns: int) -> int:
    """Return to how many elements a row of B and C is padded: a multiple of four that leaves one free."""
    return 4 * -(-(columns + 1) // 4)


def padded_count(n: int, density: float, draws: int) -> int:
    """Return the median of the largest of `draws` binomial (n, density) numbers."""
    tail, k = 0.0, n
    while k >= 0:
        log = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        tail += math.exp(log + k * math.log(density) + (n - k) * math.log1p(-density))
        if draws * math.log1p(-min(tail, 1 - 1e-16)) < -math.log(2):
            return k
        k -= 1
    return 0


# --- points -----------------------------------------------------------------------------------------------------------


def _tile(params: Mapping[str, Any]) -> tuple[int, int]:
    """Return (rows, columns) of A that a PE holds."""
    width, height = grid(params, "pe_grid")
    n, k = integer(params, "N"), integer(params, "K")
    if n % height or k % width:
        raise CannotRun(f"{n} x {k} does not divide over {width} x {height} PEs")
    agree(params, {"rows_per_pe": n // height, "cols_per_pe": k // width})
    return n // height, k // width


@dataclass(frozen=True)
class SparseTile:
    """A `SparseTile` is the product of one PE: A in a format, B, and to how many elements A is padded."""

    fmt: str
    a: NDArray[np.float32]
    b: NDArray[np.float32]
    padded: int


def dense_tile(point: Point) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return A and B of one PE for a point of a dense product."""
    rows, cols = _tile(point["params"])
    agree(point["params"], {"density_pct": 100})
    rng = np.random.default_rng(1)
    a = rng.standard_normal((rows, cols)).astype(np.float32)
    return a, rng.standard_normal((cols, integer(point["params"], "M"))).astype(np.float32)


@recipe(
    "R10",
    ("gemm-local",),
    "dense local product",
    ("pe_grid", "N", "K", "M", "density_pct", "rows_per_pe", "cols_per_pe", "dtype"),
)
def local_gemm(machine: Machine, point: Point, progress: Tell) -> Measurement:
    """Run the product of one PE."""
    return Measurement(dense(machine, *dense_tile(point))[0], "fabric, one PE")


def tile_of(point: Point) -> SparseTile:
    """Return the sparse product of a PE with the mean number of stored elements."""
    params, workload = point["params"], point.get("workload", "")
    fmt = next((name for name in FORMATS if name in workload), None)
    if fmt is None:
        raise CannotRun(f"the point names none of the formats {', '.join(FORMATS)}")
    rows, cols = _tile(params)
    width, height = grid(params, "pe_grid")
    density = integer(params, "density_pct") / 100
    if density >= 1:
        raise CannotRun("a density of 100 % leaves nothing sparse")
    rng = np.random.default_rng(1)
    a = np.zeros((rows, cols), np.float32)
    chosen = rng.choice(rows * cols, max(1, round(rows * cols * density)), replace=False)
    a.flat[chosen] = rng.standard_normal(len(chosen))
    padded = 0
    if "padded" in params:
        padded = integer(params, "padded")
        if fmt != "COO":
            raise CannotRun(f"padded: {fmt} is not padded to a number of elements per PE")
        if not len(chosen) <= padded <= rows * cols:
            raise CannotRun(f"padded: {padded} elements, of which {len(chosen)} are stored and {rows * cols} have room")
    elif fmt == "COO":
        padded = max(len(chosen), padded_count(rows * cols, density, width * height))
    elif fmt == "ELLPACK":
        padded = max(np.count_nonzero(a, axis=1).max(), padded_count(cols, density, rows * height * width))
    length = integer(params, "M")
    if length % 4:
        raise CannotRun(f"M={length} is no multiple of 4, to which rows are padded")
    b = rng.standard_normal((cols, length - 1)).astype(np.float32)
    return SparseTile(fmt, a, b, int(padded))


@recipe(
    "R10",
    ("spmm-local",),
    "sparse local product",
    ("pe_grid", "N", "K", "M", "density_pct", "rows_per_pe", "cols_per_pe", "padded", "dtype"),
)
def local_spmm(machine: Machine, point: Point, progress: Tell) -> Measurement:
    """Run the product of a PE with the mean number of stored elements."""
    tile = tile_of(point)
    cycles, _ = sparse(machine, tile.fmt, tile.a, tile.b, tile.padded)
    return Measurement(cycles, "fabric, one PE with the mean pattern")
