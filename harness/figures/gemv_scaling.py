"""A matrix-vector product of fixed size takes these cycles over growing meshes, by algorithm: the shape of WaferLLM's
figure 10.

x lies on one axis and is replicated on the other; every row of PEs ends with its part of y in all its PEs (all-reduce
as section 6.1 defines it, for all algorithms alike).  Meshes of up to `max_cycle_level` PEs a side run on the simulated
fabric, larger ones come from the closed form of `fabric.kernels.matvec.gemv`, which uses the numbers of the machine
only.  The form is held against the simulation at every point: of the whole mesh where that runs, of one row elsewhere,
since rows with x in place have nothing to do with one another.  Points whose tiles do not fit into a PE are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.figures import Result, figure
from wse_core.errors import ConfigError, InternalError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fabric.kernels.matvec.gemv import Gemv
    from harness.kit.console import Progress
    from wse_core.params import Machine

__all__ = ["ALGORITHMS", "DEFAULT_LIMIT", "MATRICES", "SIDES", "gemv_scaling", "points"]

ALGORITHMS = {"pipeline": "pipeline", "ring": "ring", "ktree": "two-way K-tree (MeshGEMV)"}
MATRICES = (2048, 8192)
SIDES = (8, 16, 32, 64, 128, 240, 360, 480, 600, 720)
DEFAULT_LIMIT = 64
"""Meshes of at most so many PEs a side are simulated if nothing else is asked for."""


def points(
    machine: Machine, matrices: Sequence[int] = MATRICES, sides: Sequence[int] = SIDES
) -> list[tuple[int, Gemv]]:
    """Return the `Gemv` of every point that fits into the PEs and onto the wafer."""
    from fabric.kernels.matmul.problem import Problem
    from fabric.kernels.matvec.gemv import Gemv

    most = min(machine["fabric.width"], machine["fabric.height"])
    found = []
    for size in matrices:
        for side in (side for side in sides if side <= most):
            plans = [
                Gemv(machine, Problem(side, side, size, size), algorithm=name, broadcast=True, replicated=True)
                for name in ALGORITHMS
            ]
            found += [(size, plan) for plan in plans if all(other.fits() for other in plans)]
    return found


@figure(
    "gemv-scaling",
    "cycles of matrix-vector products over mesh sizes, split into compute and communication",
    "He et al., WaferLLM (OSDI 2025), figure 10",
)
def gemv_scaling(
    machine: Machine,
    max_cycle_level: int | None = None,
    progress: Progress | None = None,
    matrices: Sequence[int] = MATRICES,
    sides: Sequence[int] = SIDES,
) -> Result:
    """Return the `Result`; see the head of this module."""
    from fabric.kernels.registry import KERNELS

    limit = DEFAULT_LIMIT if max_cycle_level is None else max_cycle_level
    todo, rows = points(machine, matrices, sides), []
    if not todo:
        raise ConfigError("no mesh of the figure has room for the matrices on this machine", where="gemv-scaling")
    if progress is not None:
        progress.phase("matrix-vector products")
    for done, (size, plan) in enumerate(todo):
        form, compute = plan.cycles(), plan.compute_cycles()
        row = {
            "matrix": size,
            "algorithm": plan.sum.name,
            "side": plan.width,
            "method": "closed form",
            "cycles": form,
            "compute_cycles": compute,
            "communication_cycles": form - compute,
            "closed_form_cycles": form,
            "groups": " x ".join(map(str, plan.sum.groups)),
        }
        whole = plan.width <= limit
        result = KERNELS["gemv"].run(
            machine,
            p=plan.width,
            height=plan.height if whole else 1,
            m=size if whole else plan.shape.rows,
            n=size,
            algorithm=plan.sum.name,
            broadcast=True,
            replicated=True,
        )
        if not result["verified"]:
            raise InternalError(f"gemv by {plan.sum.name} over {plan.width} x {plan.height} PEs: wrong result")
        row |= {
            "simulated": "mesh" if whole else "one row",
            "simulated_cycles": int(result["cycles"]),
            "error": form / result["cycles"] - 1,
        }
        if whole:
            row["method"] = "cycle-level"
            row |= {key: int(result[key]) for key in ("cycles", "compute_cycles", "communication_cycles")}
        rows.append(row)
        if progress is not None:
            progress.update(done + 1, len(todo), side=plan.width, cycles=row["cycles"])
    return Result(rows, notes(rows), lambda figure: draw(figure, rows))


def notes(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the largest error of the closed form and the ratios pipeline / K-tree."""
    found = {
        f"largest error of the closed form, {name}": max(
            (row["error"] for row in rows if row["algorithm"] == name), key=abs
        )
        for name in ALGORITHMS
    }
    for size in dict.fromkeys(row["matrix"] for row in rows):
        ratio = ratios(rows, size)
        side = max(ratio, key=lambda each: ratio[each])
        found[f"{size}: most pipeline / K-tree"] = ratio[side]
        found[f"{size}: at this many PEs a side"] = side
        found[f"{size}: the same, communication alone"] = ratios(rows, size, "communication_cycles")[side]
    return found


def ratios(rows: Sequence[dict[str, Any]], size: int, key: str = "cycles") -> dict[int, float]:
    """Return side -> cycles of the pipeline / cycles of the K-tree."""
    cycles = {(row["algorithm"], row["side"]): row[key] for row in rows if row["matrix"] == size}
    return {side: cycles["pipeline", side] / cycles["ktree", side] for name, side in cycles if name == "pipeline"}


def draw(figure: Figure, rows: Sequence[dict[str, Any]]) -> None:
    """Paint cycles per matrix size, and the ratios."""
    sizes = list(dict.fromkeys(row["matrix"] for row in rows))
    axes = figure.subplots(1, len(sizes) + 1, squeeze=False)[0]
    for axis, size in zip(axes, sizes, strict=False):
        for k, (name, label) in enumerate(ALGORITHMS.items()):
            mine = [row for row in rows if row["matrix"] == size and row["algorithm"] == name]
            sides = [row["side"] for row in mine]
            axis.plot(sides, [row["cycles"] for row in mine], color=f"C{k}", label=label)
            axis.plot(sides, [row["communication_cycles"] for row in mine], color=f"C{k}", linestyle="--")
            for row in mine:
                simulated = row["method"] == "cycle-level"
                axis.plot(row["side"], row["cycles"], "o", color=f"C{k}", fillstyle="full" if simulated else "none")
        axis.plot(sides, [row["compute_cycles"] for row in mine], color="0.5", linestyle=":", label="compute")
        axis.set(xscale="log", yscale="log", xlabel="PEs a side", ylabel="cycles", title=f"{size} x {size}, f16")
        ticks = [side for side in sides if side not in (360, 600)]  # their labels would not fit
        axis.set_xticks(ticks, ticks)
        axis.minorticks_off()
        axis.legend(fontsize="small")
    for size in sizes:
        ratio = ratios(rows, size)
        axes[-1].plot(list(ratio), list(ratio.values()), marker=".", label=f"{size} x {size}")
    axes[-1].set(xlabel="PEs a side", ylabel="pipeline / K-tree", title="ratio of cycles")
    axes[-1].legend(fontsize="small")
    figure.suptitle(
        "GEMV: total solid, communication dashed; full circles simulated, open ones by the closed form",
        fontsize="medium",
    )
