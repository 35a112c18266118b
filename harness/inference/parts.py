"""The parts of the composed model are held against the cycle level: each closed form beside a simulation of the same
thing.

A line of the true length runs where it can, since rows of PEs have nothing to do with one another; products of tiles
run with the true tiles.  MeshGEMM runs on a smaller square with the true tiles, which has fewer steps of the same kind.
What has no kernel stands in `UNMEASURED`, with what it is a part of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fabric.kernels.registry import KERNELS
from fabric.price import timing
from harness.inference.costs import all_reduce, matrix_vector, mesh_gemm, run_function, scores, vector_function
from wse_core.errors import InternalError
from wse_core.params import Machine

__all__ = ["COUNT", "UNMEASURED", "ComparedPart", "measured"]

UNMEASURED = {
    "P V by floods": "prefill of program B",
    "hand-over between regions": "beside the layers",
    "transition": "requests; a lower bound",
    "element-wise code of the authors": "program A, counted from their source",
}
"""These parts are estimated only: name -> where they go in."""

LINES = ((45, 12, "f32"), (45, 48, "f32"), (64, 12, "f16"), (360, 12, "f16"), (360, 36, "f32"), (420, 80, "f16"))
"""All-reduces of these sizes are measured: PEs, values, format."""
TILES = ((12, 12), (40, 12), (12, 40), (72, 20))
"""Products of a matrix and a vector of these sizes are measured: rows, depth."""
SQUARES = ((16, 10, 9, 9, "f32"), (16, 8, 10, 35, "f32"), (16, 10, 9, 9, "same"), (24, 6, 12, 12, "same"))
"""MeshGEMM of these sizes is measured: PEs a side, rows, depth and columns of a tile, sums."""

GROUPS = ((12, 8, 4, "f32"), (12, 6, 2, "f32"), (16, 6, 4, "same"), (20, 8, 14, "f32"))
"""Scores of these sizes are measured: PEs a side, tokens of a row, features of a column, sums."""

FUNCTIONS = ("exp", "reciprocal", "rsqrt")
COUNT = len(LINES) + 2 * len(TILES) + len(SQUARES) + len(GROUPS) + len(FUNCTIONS)
"""There are so many comparisons."""


@dataclass(frozen=True)
class ComparedPart:
    """A `ComparedPart` is a closed form and what a simulation says.

    Attributes
    ----------
    name, setting : str
    form, simulated : float
        Cycles.
    """

    name: str
    setting: str
    form: float
    simulated: float

    @property
    def error(self) -> float:
        """The closed form is off by this share of the simulated cycles."""
        return self.form / self.simulated - 1

    def as_dict(self) -> dict[str, Any]:
        """Return the part as a row of a table."""
        return {
            "part": self.name,
            "setting": self.setting,
            "form": self.form,
            "simulated": self.simulated,
            "error": self.error,
        }


def _run(machine: Machine, name: str, **values: Any) -> dict[str, Any]:
    """Run a kernel; its result must be right."""
    found = KERNELS[name].run(machine, **values)
    if not found["verified"]:
        raise InternalError(f"kernel {name}: wrong result at {values}")
    return dict(found)


def measured(machine: Machine) -> Iterator[ComparedPart]:
    """Run every part; yield them as they come."""
    m = machine
    for places, n, dtype in LINES:
        found = _run(
            m,
            "gemv",
            p=places,
            height=1,
            m=n,
            n=places,
            sums="f32" if dtype == "f32" else "same",
            levels=0 if dtype == "f32" else 2,
            broadcast=True,
            replicated=True,
        )
        levels = 0 if dtype == "f32" else 2
        form = all_reduce(m, places, n, dtype, levels)
        seen = found["communication_cycles"] - timing.stamp(m)  # the earlier reading stands between the two
        yield ComparedPart("all-reduce", f"{places} PEs, {n} values, {dtype}", form, float(seen))
    for rows, depth in TILES:
        for sums in ("f32", "same"):
            found = _run(m, "gemv", p=1, height=1, m=rows, n=depth, sums=sums, replicated=True)
            form = matrix_vector(m, rows, depth, sums)
            seen = found["compute_cycles"] - timing.stamp(m) - 2
            yield ComparedPart("matrix times vector", f"{rows} x {depth}, sums {sums}", form, float(seen))
    for side, rows, depth, columns, sums in SQUARES:
        found = _run(
            m,
            "gemm",
            algorithm="meshgemm",
            p=side,
            m=rows * side,
            k=depth * side,
            n=columns * side,
            sums=sums,
            align="host",
        )
        steps = mesh_gemm(m, side, side, rows, depth, columns, sums)
        setting = f"{side} x {side} PEs, tiles {rows} x {depth} x {columns}, sums {sums}"
        yield ComparedPart("MeshGEMM", setting, steps, float(found["cycles"]))
    for side, rows, depth, sums in GROUPS:
        found = _run(m, "gemm_t", p=side, m=rows * side, k=depth * side, n=rows * side, sums=sums)
        asked = scores(m, side, side, rows, depth, sums)
        yield ComparedPart(
            "scores", f"{side} x {side} PEs, {rows} tokens x {depth} features, sums {sums}", asked, found["cycles"]
        )
    for name in FUNCTIONS:
        # Above the longest vector that is run, the form goes on evenly.
        yield ComparedPart(name, "160 numbers", vector_function(m, name, 160), float(run_function(m, name, 160)))
