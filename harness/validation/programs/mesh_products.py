"""R11: MeshGEMM on a square mesh and MeshGEMV on any, for points that state the mesh.

The product is cut into tiles over P x P PEs and runs as the kernel `gemm` with the algorithm ``meshgemm`` (cyclic
shifts over the folded ring); 16-bit products are summed in 16 bits.  A PE does the same work in each of P steps and
talks to PEs at most two hops away, so cycles are linear in P for tiles of one size; large meshes are continued from
the two sizes in `SLOPE`.

MeshGEMV is the kernel `gemv` with the algorithm ``ktree`` and the vector in place on every row.  The rows of PEs have
nothing to do with one another then, so one row runs, of the width of the point; no broadcast of the result follows.

Source: WaferLLM, arXiv 2502.04563, tables 6 and 7; times in ms, the clock is open.
"""

from __future__ import annotations

import functools
import re

from fabric.kernels import registry
from harness.validation.recipe import CannotRun, Measurement, grid, recipe
from wse_core.errors import ConfigError

__all__ = ["SLOPE", "mesh_gemm", "mesh_gemv"]

SLOPE = (4, 8)
"""Sizes that larger meshes are continued from."""

UNITS = {"": 1, "K": 1024}
DTYPES = {"16-bit": "f16", "f16": "f16", "fp16": "f16", "f32": "f32", "fp32": "f32"}


@functools.lru_cache(maxsize=16)
def mesh_gemm(machine, p, tile, dtype):
    """Return the cycles of a product of P x P tiles of `tile` = (rows, depth, columns) each."""
    m, k, n = (p * size for size in tile)
    return registry.KERNELS["gemm"].run(
        machine, p=p, m=m, k=k, n=n, dtype=dtype, algorithm="meshgemm", sums="f32" if dtype == "f32" else "same"
    )["cycles"]


@functools.lru_cache(maxsize=16)
def mesh_gemv(machine, width, height, m, n, dtype):
    """Return the cycles of an (m x n) matrix times a vector over width x height PEs: those of one row of PEs."""
    return registry.KERNELS["gemv"].run(
        machine,
        p=width,
        height=1,
        m=-(-m // height),
        n=n,
        dtype=dtype,
        algorithm="ktree",
        replicated=True,
        sums="f32" if dtype == "f32" else "same",
    )["cycles"]


@recipe(
    "R11",
    ("llm-kernel",),
    "MeshGEMM and MeshGEMV on the mesh that the point states",
    ("shape", "pe_grid", "dtype"),
    tuple(DTYPES),
)
def mesh_product(machine, point, progress):
    """Run the product of the point, or continue the line through two smaller ones."""
    params = point["params"]
    if not re.match(r"\d+x\d+", str(params.get("pe_grid", ""))):
        raise CannotRun("a time in milliseconds at a clock and on a mesh that the source leaves open")
    width, height = grid(params, "pe_grid")
    dtype = DTYPES.get(params.get("dtype", "16-bit"))
    if "gemv" in point.get("workload", "").lower():
        sizes = re.fullmatch(r"\[1,(\d+)(K?)\]x\[(\d+)(K?),(\d+)(K?)\]", str(params.get("shape", "")).replace(" ", ""))
        if dtype is None or sizes is None or sizes.group(1, 2) != sizes.group(3, 4):
            raise CannotRun("only [1, N] x [N, M], in 16 or 32 bits")
        n, m = (int(sizes[i]) * UNITS[sizes[i + 1]] for i in (3, 5))
        try:
            return Measurement(
                mesh_gemv(machine, width, height, m, n, dtype), "one row of the mesh, which are all alike"
            )
        except ConfigError as error:
            raise CannotRun(error.what) from None
    sizes = re.fullmatch(r"(\d+)(K?) x (\d+)(K?) x (\d+)(K?)", str(params.get("shape", "")))
    if width != height or dtype is None or sizes is None:
        raise CannotRun("only M x K x N over a square mesh, in 16 or 32 bits")
    lengths = [int(sizes[i]) * UNITS[sizes[i + 1]] for i in (1, 3, 5)]
    tile = tuple(-(-length // width) for length in lengths)
    if width <= SLOPE[1]:
        return Measurement(mesh_gemm(machine, width, tile, dtype))
    low, high = (mesh_gemm(machine, p, tile, dtype) for p in SLOPE)
    slope = (high - low) / (SLOPE[1] - SLOPE[0])
    return Measurement(high + (width - SLOPE[1]) * slope, f"line through {SLOPE[0]} and {SLOPE[1]} PEs a side")
