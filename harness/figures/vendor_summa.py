"""The SUMMA of WaferLLM's measurements is shown beside MeshGEMM, with the parts of a step of each.

The paper's SUMMA is the example program of the vendor's collectives library (its reference 8), whose cycles were
measured on a CS-2; `harness.validation.programs.summa_library` rebuilds it and is held against those counts.  Here it
multiplies the same matrices as MeshGEMM and as the SUMMA of this package: fp32, square tiles of `TILES`, on a mesh of
at most `MESH` PEs a side, all simulated, all results verified.  Tiles of MeshGEMM are aligned by the host, so that
steps are compared with steps.

Columns that these rows have besides, all cycles per PE and step, means over the PEs: ``multiply_adds``;
``moves``, elements sent and received; ``instructions``; ``pipe_waits``, in which the next instruction waited for the
result of one before, or for a vector operation to start or end; ``bank_conflicts``, in which operands of a vector
operation shared a bank.  What is left of a step is waiting for tiles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from harness.validation.programs import summa_library

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from fabric.kernels.kit.session import Session
    from fabric.kernels.matmul.distributed import Product
    from wse_core.params import Machine

__all__ = ["COLUMNS", "MESH", "NAMES", "TILES", "VENDOR", "draw_parts", "draw_steps", "notes", "rows"]

TILES = (4, 8, 32)
"""Sides of the tiles; these were measured on a CS-2, of up to 750 x 750 PEs."""
MESH = 16
"""PEs a side; a step takes the same cycles on larger meshes."""
VENDOR = "summa of the vendor"
NAMES = (VENDOR, "summa", "meshgemm")
COLUMNS = ("multiply_adds", "moves", "instructions", "pipe_waits", "bank_conflicts")
COLORS = ("tab:blue", "tab:cyan", "tab:green", "tab:orange", "tab:red")


def rows(machine: Machine, limit: int) -> list[dict[str, Any]]:
    """Return a row per tile and program on `limit` PEs a side, at most `MESH`."""
    p = min(MESH, limit)
    return [_row(machine, p, t, name) for t in TILES for name in NAMES] if p > 1 else []


def _row(machine: Machine, p: int, t: int, name: str) -> dict[str, Any]:
    """Return the row of a program; what only a closed form or a split into phases would say is left out."""
    from fabric.kernels.matmul.gemm import make
    from fabric.kernels.matmul.problem import Problem

    options = {"align": "host"} if name == "meshgemm" else {}
    product = make("summa" if name == VENDOR else name, machine, Problem(p, p, p * t, p * t, p * t, "f32"), **options)
    session = _run(product, t, name == VENDOR)
    first, last = session.stamps(0, 0, p, p)
    cycles = int((last - first).max())
    found: dict[str, Any] = {
        "size": p * t,
        "pes_per_side": p,
        "algorithm": name,
        "method": "cycle-level",
        "tile": f"{t}x{t}x{t}",
        "dtype": "f32",
        "cycles": cycles,
        "align_cycles": 0,
        "checked_on": p,
        "lower_bound": product.lower_bound,
    }
    if name != VENDOR:  # which has neither a closed form nor a product that could be timed apart from its loads
        compute = product.compute_cycles
        found |= {"closed_form": product.expected(), "error": product.expected() / cycles - 1}
        found |= {"compute_cycles": compute, "communication_cycles": cycles - compute, "efficiency": compute / cycles}
        found |= {"words_per_pe": product.words}
    counters = session.counters()

    def mean(counter: str) -> float:
        return float(counters[counter][0].mean()) / p

    spent = mean("macs"), mean("steps") - mean("macs"), mean("instructions"), mean("stall_pipe")
    return found | dict(zip(COLUMNS, (*spent, mean("stall_conflict")), strict=True))


def _run(product: Product, t: int, vendors: bool) -> Session:
    """Return the finished run of the vendor's program or of this package's, whose sums have the same order.

    Raises
    ------
    RuntimeError
        The result is wrong.
    """
    rng = np.random.default_rng(0)
    a, b = (product.given.random(rng, shape) for shape in ((product.m, product.k), (product.k, product.n)))
    if vendors:
        session, c = summa_library.run(product.machine, product.width, t, a.view(np.float32), b.view(np.float32))
        c = c.view(np.uint32)
    else:
        session, c = product.run(a, b)
    if not product.check(a, b, c).verified:
        raise RuntimeError(f"tiles of {t} on {product.width} x {product.height} PEs: wrong result")
    return session


def _of(rows: Sequence[dict[str, Any]], t: int) -> dict[str, dict[str, Any]]:
    """Return the rows of a tile by program."""
    return {row["algorithm"]: row for row in rows if row["tile"] == f"{t}x{t}x{t}" and row["multiply_adds"]}


def notes(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the ratio of the vendor's cycles to MeshGEMM's per tile, and how much of the difference each part is."""
    found = {}
    for t in TILES:
        mine = _of(rows, t)
        if not mine:
            continue
        vendors, mesh = mine[VENDOR], mine["meshgemm"]
        found[f"tiles of {t}: {VENDOR} / meshgemm"] = vendors["cycles"] / mesh["cycles"]
        more = (vendors["cycles"] - mesh["cycles"]) / vendors["pes_per_side"]
        for part in COLUMNS[1:]:
            name = f"tiles of {t}: of the difference, {part.replace('_', ' ')}"
            found[name] = (vendors[part] - mesh[part]) / more
    return found


def draw_steps(axes: Axes, rows: Sequence[dict[str, Any]], colors: dict[str, str]) -> None:
    """Paint the cycles of a step over the side of the tiles, a curve per program."""
    for name in NAMES:
        mine = [(place, found[name]) for place, t in enumerate(TILES) if (found := _of(rows, t))]
        steps = [row["cycles"] / row["pes_per_side"] for _, row in mine]
        axes.plot([place for place, _ in mine], steps, "o-", color=colors[name], label=name)
    axes.set_title("a step, fp32")
    axes.set_yscale("log")


def draw_parts(axes: Axes, rows: Sequence[dict[str, Any]]) -> None:
    """Paint what a step is made of, as parts of the vendor's: left the vendor's, right MeshGEMM's."""
    for place, t in enumerate(TILES):
        mine = _of(rows, t)
        if not mine:
            continue
        whole = mine[VENDOR]["cycles"] / mine[VENDOR]["pes_per_side"]
        for shift, name in ((-0.2, VENDOR), (0.2, "meshgemm")):
            below = 0.0
            for column, color in zip(COLUMNS, COLORS, strict=True):
                share = mine[name][column] / whole
                label = column.replace("_", " ") if not place and name == VENDOR else None
                axes.bar(place + shift, share, 0.36, bottom=below, color=color, label=label)
                below += share
    axes.set_xticks(range(len(TILES)), [f"{t} x {t}" for t in TILES])
    axes.set_xlabel("tile: vendor's, meshgemm")
    axes.set_ylim(0, 1.8)  # room for the legend
    axes.set_yticks((0, 0.5, 1))
    axes.legend(fontsize="xx-small", loc="upper center", ncols=2)
