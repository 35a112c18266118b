"""R11 is MeshGEMM on a square mesh and MeshGEMV on any, for points that state the mesh or name one that is assumed.

MeshGEMM is the kernel `gemm` with the algorithm ``meshgemm`` (cyclic shifts over the folded ring), tiles of the size
that the mesh cuts.  A mesh of up to `CHECKED` PEs a side runs as a whole.  A larger one is *composed*: its cycles are
the closed form of the kernel (`fabric.kernels.matmul.shift`), which knows nothing of the published time, and the form
is held against the fabric on a square of `CHECKED` PEs a side with tiles of the same size; the method says what it is
off by.
``align`` says whether the first tiles are brought together on the fabric (the cycles count) or by the host.

MeshGEMV is the kernel `gemv` with the algorithm ``ktree`` and the vector in place on every row.  The rows of PEs have
nothing to do with one another then, so one row runs, of the width of the point.  With ``broadcast`` every PE of the row
gets the result back.

16-bit products are summed in 16 bits unless ``sums`` says f32.

Source: WaferLLM, arXiv 2502.04563, tables 6 and 7: times of two or three digits; mesh, clock and sums are not stated.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from fabric.kernels import registry
from fabric.kernels.matmul.gemm import make
from fabric.kernels.matmul.problem import Problem
from harness.validation.recipe import CannotRun, Measurement, grid, recipe
from wse_core.errors import ConfigError
from wse_core.params import Machine

__all__ = ["CHECKED", "composed_gemm", "mesh_gemm", "mesh_gemv"]

CHECKED = 8
"""A mesh of at most so many PEs a side is run as a whole; the closed form of larger ones is checked on it."""

UNITS = {"": 1, "K": 1024}
DTYPES = {"16-bit": "f16", "f16": "f16", "fp16": "f16", "f32": "f32", "fp32": "f32"}


@functools.lru_cache(maxsize=16)
def mesh_gemm(
    machine: Machine, p: int, tile: tuple[int, int, int], dtype: str, sums: str = "same", align: str = "fabric"
) -> tuple[int, float]:
    """Return the cycles of a product of P x P tiles of `tile` = (rows, depth, columns), and those of the closed form.

    The cycles of the alignment are part of both.
    """
    m, k, n = (p * size for size in tile)
    found = registry.KERNELS["gemm"].run(
        machine, p=p, m=m, k=k, n=n, dtype=dtype, algorithm="meshgemm", sums=sums, align=align
    )
    return found["cycles"], found["expected_cycles"]


def composed_gemm(
    machine: Machine, p: int, tile: tuple[int, int, int], dtype: str, sums: str = "same", align: str = "fabric"
) -> tuple[float, str]:
    """Return the closed form for P x P tiles, and how far it is off where the fabric can run it."""
    measured, expected = mesh_gemm(machine, CHECKED, tile, dtype, sums, align)
    m, k, n = (p * size for size in tile)
    product = make("meshgemm", machine, Problem(p, p, m, k, n, dtype, sums), align=align)
    error = 100 * (expected / measured - 1)
    return product.expected(), (
        f"composed: closed form of {p} x {p} PEs, {error:+.2f} % off on {CHECKED} x {CHECKED} PEs with the same tiles"
    )


@functools.lru_cache(maxsize=16)
def mesh_gemv(
    machine: Machine, width: int, height: int, m: int, n: int, dtype: str, sums: str = "same", broadcast: bool = False
) -> int:
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
        broadcast=broadcast,
        sums=sums,
    )["cycles"]


def _choice(params: dict[str, Any], key: str, known: dict[Any, Any], default: Any) -> Any:
    """Return what a parameter of the point means, or refuse the point."""
    value = params.get(key, default)
    if isinstance(value, (list, dict)) or value not in known:
        raise CannotRun(f"{key}={value!r:.40}; known are {', '.join(map(str, known))}")
    return known[value]


@recipe(
    "R11",
    ("llm-kernel",),
    "MeshGEMM and MeshGEMV on the mesh that the point states",
    ("shape", "pe_grid", "dtype", "sums", "align", "broadcast"),
    tuple(DTYPES),
)
def mesh_product(machine: Machine, point: dict[str, Any], progress: Any) -> Measurement:
    """Run the product of the point, or compose it; see the head of this module."""
    params = point["params"]
    if not re.match(r"\d+x\d+", str(params.get("pe_grid", ""))):
        raise CannotRun("a time in milliseconds at a clock and on a mesh that the source leaves open")
    width, height = grid(params, "pe_grid")
    dtype = _choice(params, "dtype", DTYPES, "16-bit")
    sums = "f32" if dtype == "f32" else _choice(params, "sums", {"16-bit": "same", "f32": "f32"}, "16-bit")
    align = _choice(params, "align", {"fabric": "fabric", "host": "host"}, "fabric")
    broadcast = _choice(params, "broadcast", {True: True, False: False}, False)
    if "gemv" in point.get("workload", "").lower():
        sizes = re.fullmatch(r"\[1,(\d+)(K?)\]x\[(\d+)(K?),(\d+)(K?)\]", str(params.get("shape", "")).replace(" ", ""))
        if sizes is None or sizes.group(1, 2) != sizes.group(3, 4) or "align" in params:
            raise CannotRun("only [1, N] x [N, M], in 16 or 32 bits; nothing is aligned")
        n, m = (int(sizes[i]) * UNITS[sizes[i + 1]] for i in (3, 5))
        try:
            return Measurement(
                mesh_gemv(machine, width, height, m, n, dtype, sums, broadcast),
                "one row of the mesh, which are all alike",
            )
        except ConfigError as error:
            raise CannotRun(error.what) from None
    sizes = re.fullmatch(r"(\d+)(K?) x (\d+)(K?) x (\d+)(K?)", str(params.get("shape", "")))
    if width != height or sizes is None or "broadcast" in params:
        raise CannotRun("only M x K x N over a square mesh, in 16 or 32 bits; nothing is broadcast")
    rows, depth, columns = (-(-int(sizes[i]) * UNITS[sizes[i + 1]] // width) for i in (1, 3, 5))
    tile = rows, depth, columns
    try:
        if width <= CHECKED:
            return Measurement(mesh_gemm(machine, width, tile, dtype, sums, align)[0])
        return Measurement(*composed_gemm(machine, width, tile, dtype, sums, align))
    except ConfigError as error:
        raise CannotRun(error.what) from None
