"""Figure 9 of WaferLLM gives cycles of a matrix product by SUMMA, Cannon, MeshGEMM and allgather over the size of the
mesh.

Panels: a product of 256 x 256 on meshes that are simulated, and the published 2K and 8K on meshes of up to 720 x 720,
16-bit data and sums.  A point is ``cycle-level`` (simulated, result verified) or ``closed form`` (the formula of the
algorithm's module).  `error` compares the formula with a simulation: of the same point, or, where that would take
hours, of the same tiles on a mesh of `CHECKED` x `CHECKED` PEs, which has fewer steps of the same kind.

Columns: `cycles` = `compute_cycles` + `communication_cycles`; ``align_cycles`` come before them and are counted
separately, since weights can be placed in advance.  `efficiency` = compute / cycles.  `lower_bound`: see
`fabric.kernels.matmul.distributed`.

``lockstep_cycles`` is no simulation and no algorithm of this package: it is what the analysis of the paper would give
on this machine, in which no PE begins a step before the longest way of the step before is over.  Here nothing
synchronises the steps, so that a way of n - 1 hops is paid once: Cannon takes as long as MeshGEMM, and SUMMA is slower
by the instructions that turn its routers.

The published factors of 2 to 3 are those over another SUMMA, the example program of the vendor: `vendor_summa` runs it
beside MeshGEMM, in the last column of the figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.figures import Result, figure, vendor_summa
from traces.style import grouped
from wse_core.errors import ProgramError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fabric.kernels.matmul.distributed import Product
    from harness.kit.console import Progress
    from wse_core.params import Machine

__all__ = ["CHECKED", "PANELS", "gemm_scaling"]

ORDER = ("summa", "cannon", "meshgemm", "allgather")
PANELS = {256: (8, 16, 32, 64, 128), 2048: (180, 360, 540, 720), 8192: (180, 360, 540, 720)}
"""Each size of the matrices has these meshes."""
LIMIT = 64
"""Meshes of at most so many PEs a side are simulated if nothing else is asked for."""
CHECKED = 16
"""The tiles of large meshes are simulated on so many PEs a side."""
KEYS = (
    "size",
    "pes_per_side",
    "algorithm",
    "method",
    "tile",
    "dtype",
    "cycles",
    "compute_cycles",
    "communication_cycles",
    "align_cycles",
    "closed_form",
    "error",
    "checked_on",
    "efficiency",
    "lower_bound",
    "lockstep_cycles",
    "words_per_pe",
)
"""The table has these columns; those of `vendor_summa` follow."""


@figure(
    "gemm-scaling",
    "cycles of matrix products over the size of the mesh, per algorithm",
    "He et al., WaferLLM (OSDI 2025), figure 9",
)
def gemm_scaling(machine: Machine, max_cycle_level: int | None, progress: Progress) -> Result:
    """Calculate the points; see the head of this module."""
    limit = LIMIT if max_cycle_level is None else max_cycle_level
    most = min(machine["fabric.width"], machine["fabric.height"])
    points = [(size, p, name) for size, meshes in PANELS.items() for p in meshes if p <= most for name in ORDER]
    progress.phase(f"{len(points)} products on up to {most} x {most} PEs")
    rows = []
    for done, (size, p, name) in enumerate(points):
        rows.append(point(machine, name, p, size, p <= limit and size <= 4 * limit))
        progress.update(done, len(points))
    progress.phase("the vendor's SUMMA beside MeshGEMM")
    rows += vendor_summa.rows(machine, min(limit, most))
    rows = [dict.fromkeys((*KEYS, *vendor_summa.COLUMNS)) | row for row in rows]
    return Result(rows, notes(rows), lambda canvas: draw(canvas, rows))


def sketch(machine: Machine, name: str, p: int, size: int) -> tuple[Product, bool]:
    """Return a product whose programs may not fit, and whether they do."""
    from fabric.kernels.matmul.gemm import make
    from fabric.kernels.matmul.problem import Problem

    product = make(name, machine, Problem(p, p, 1, 1, 1, "f16", "same")).sized(size, size, size)
    try:
        product.programs = product.build()
    except ProgramError:
        return product, False
    return product, True


def simulate(product: Product) -> tuple[int, int]:
    """Return (cycles, align_cycles) of a run on the fabric.

    Raises
    ------
    RuntimeError
        The result is wrong.
    """
    rng = np.random.default_rng(0)
    a = product.given.random(rng, (product.m, product.k))
    b = product.given.random(rng, (product.k, product.n))
    session, c = product.run(a, b)
    if not product.check(a, b, c).verified:
        raise RuntimeError(f"{product.algorithm} on {product.width} x {product.height} PEs: wrong result")
    starts, stops = session.stamps(0, 0, product.width, product.height)
    return int((stops - starts).max()), product.align_cycles(session)


def point(machine: Machine, name: str, p: int, size: int, exact: bool) -> dict[str, Any]:
    """Return the row of one algorithm on p x p PEs."""
    product, fits = sketch(machine, name, p, size)
    row = {
        "size": size,
        "pes_per_side": p,
        "algorithm": name,
        "method": "cycle-level" if exact else "closed form",
        "tile": f"{product.shape.rows}x{product.shape.depth}x{product.shape.columns}",
        "dtype": product.dtype,
    }
    if not fits:
        return row | {"method": "does not fit"}
    closed, align = product.expected(), product.expected_align()
    tested, measured = p, None
    if exact:
        measured = simulate(product)
        error = closed / measured[0] - 1
    else:
        tested = min(CHECKED, p)
        small, _ = sketch(machine, name, tested, 1)
        shape = product.shape
        small = small.sized(tested * shape.rows, tested * shape.depth, tested * shape.columns)
        small.programs = small.build()
        error = small.expected() / simulate(small)[0] - 1
    total, align = measured or (closed, align)
    cycles, compute = total - align, product.compute_cycles
    return row | {
        "cycles": cycles,
        "compute_cycles": compute,
        "communication_cycles": cycles - compute,
        "align_cycles": align,
        "closed_form": closed,
        "error": error,
        "checked_on": tested,
        "efficiency": compute / cycles,
        "lower_bound": product.lower_bound,
        "lockstep_cycles": lockstep(product, cycles),
        "words_per_pe": product.words,
    }


def lockstep(product: Product, cycles: float) -> float:
    """Return the cycles if every step waited for the longest way of the step before: the analysis of the paper.

    Shifts overlap with the products, so that the longer of the two counts; broadcasts do not.
    """
    from fabric.price import timing

    m = product.machine
    hops = min(2, product.width - 1) if product.algorithm == "meshgemm" else product.width - 1
    if product.algorithm in ("summa", "allgather"):
        return cycles + product.slices * hops * m["router.hop"]
    way = timing.way(m, hops) + max(product.wavelets)
    return max(cycles, product.slices * way)


def notes(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the largest error, and how the algorithms compare on the largest mesh of each size."""
    errors = [abs(row["error"]) for row in rows if row["error"] is not None]
    found = {"largest error of a closed form": max(errors)}
    for size in PANELS:
        last = {row["algorithm"]: row for row in rows if row["size"] == size and row["multiply_adds"] is None}
        p = last["meshgemm"]["pes_per_side"]
        for name in ("summa", "cannon"):
            for key, what in (("cycles", ""), ("lockstep_cycles", ", lockstep")):
                found[f"{size} on {p} x {p}: {name} / meshgemm{what}"] = last[name][key] / last["meshgemm"][key]
        found[f"{size} on {p} x {p}: efficiency of meshgemm"] = last["meshgemm"]["efficiency"]
    return found | vendor_summa.notes(rows)


def draw(canvas: Figure, rows: Sequence[dict[str, Any]]) -> None:
    """Paint cycles over meshes, and below what they are made of; in the last column steps of the vendor's SUMMA."""
    colors = dict(zip(ORDER, ("tab:orange", "tab:red", "tab:blue", "tab:gray"), strict=True))
    upper, lower = canvas.subplots(2, len(PANELS) + 1, sharex="col")
    vendor_summa.draw_steps(upper[-1], rows, colors | {vendor_summa.VENDOR: "tab:brown"})
    upper[-1].legend(fontsize="x-small")
    vendor_summa.draw_parts(lower[-1], rows)
    rows = [row for row in rows if row["multiply_adds"] is None]
    for column, size in enumerate(PANELS):
        lines, bars = upper[column], lower[column]
        meshes = sorted({row["pes_per_side"] for row in rows if row["size"] == size})
        for k, name in enumerate(ORDER):
            mine = [row for row in rows if row["size"] == size and row["algorithm"] == name and row["cycles"]]
            if not mine:
                continue
            at = [meshes.index(row["pes_per_side"]) for row in mine]
            lines.plot(at, [row["cycles"] for row in mine], color=colors[name], label=name)
            lines.plot(at, [row["lockstep_cycles"] for row in mine], color=colors[name], linestyle=":", linewidth=1)
            for x, row in zip(at, mine, strict=True):
                full = row["method"] == "cycle-level"
                lines.plot(x, row["cycles"], "o", color=colors[name], fillstyle="full" if full else "none")
                place = x + (k - 1.5) * 0.2
                bars.bar(place, row["compute_cycles"], 0.18, color=colors[name])
                bars.bar(
                    place,
                    row["communication_cycles"],
                    0.18,
                    bottom=row["compute_cycles"],
                    color=colors[name],
                    alpha=0.4,
                    hatch="//",
                )
        lines.set_title(f"{size} x {size} x {size}")
        lines.set_yscale("log")
        bars.set_xticks(range(len(meshes)), [f"{p}²" for p in meshes])
        bars.set_xlabel("PEs")
        grouped(bars.yaxis)
    upper[0].set_ylabel("cycles")
    lower[0].set_ylabel("compute + communication")
    canvas.legend(
        *upper[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=len(ORDER),
        fontsize="small",
        title="filled: cycle-level, hollow: closed form; dotted: if steps were in lockstep",
        title_fontsize="small",
    )
