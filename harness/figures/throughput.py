"""Clusters can train GPT-style models at so many tokens per second: the shape of the weight-streaming paper's figure
24.

Every point is an iteration of the layer-level event model (`swarm.cluster`): the memory service, the tree and the
wafers under one clock, with the numbers of the machine (`wse_core.numbers`).  Two kinds of curve:

fixed share
    Each system takes as many sequences as before, at most `SHARE`, and no more than fit its memory; the batch grows.
fixed batch
    `BATCH` sequences are divided over the systems; the share of a system shrinks, and what a weight costs a PE whatever
    the tokens, or the link, sets the pace.  Here efficiency falls.

Costs of a layer are held against the cycle-level kernels on a mesh of at most `max_cycle_level` PEs a side; the notes
say how far they are off.  Tables of tokens, attention, normalisations and sums past blocks are among the layers
(`harness.plan.layers`); the notes say what of the attention no cycle-level program does (`swarm.cluster.mixing`).
Nothing here was fitted to the published curve, whose points are not printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.figures import Result, figure
from harness.plan.layers import LADDER, find_model, layers_of, sequences
from swarm.cluster import layer_costs
from swarm.cluster.cluster import Cluster
from swarm.cluster.mixing import beyond
from swarm.cluster.shapes import LayerShape, Mesh
from swarm.cluster.timeline import iteration, round_trip
from traces.style import powers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from harness.kit.console import Progress
    from wse_core.params import Machine

__all__ = ["BATCH", "SHARE", "SYSTEMS", "checks", "points", "throughput"]

SYSTEMS = (1, 2, 4, 8, 16, 32, 64, 128, 192)
SHARE = 8
"""A system takes so many sequences: what GPT-3 leaves room for."""
BATCH = 64
"""The fixed batch has so many sequences."""
CHECKED = {"inputs": 96, "outputs": 64, "tokens": 64}


def points(models: Sequence[str] = LADDER, systems: Sequence[int] = SYSTEMS) -> list[tuple[str, Any, int, int]]:
    """Return [(kind, model, systems, sequences of each)]."""
    found = []
    for name in models:
        model = find_model(name)
        most = sequences(model, SHARE)
        found += [("fixed share", model, n, most) for n in systems]
        found += [("fixed batch", model, n, BATCH // n) for n in systems if BATCH % n == 0 and BATCH // n <= most]
    return found


def checks(machine: Machine, side: int) -> dict[str, Any]:
    """Return {phase: relative error of the cost against the cycle-level kernel} on side x side PEs."""
    from fabric.kernels.registry import KERNELS

    mesh, found = Mesh(machine, side, side), {}
    layer = LayerShape(CHECKED["inputs"], CHECKED["outputs"], 0.5)
    for phase, cost, kernel in (
        ("forward", layer_costs.forward, "ws_forward"),
        ("gradient", layer_costs.gradient, "ws_gradient"),
    ):
        wanted = cost(layer, CHECKED["tokens"], mesh, "steps")  # as the kernel takes them
        run = KERNELS[kernel].run(machine, width=side, height=side, density=0.5, **CHECKED)
        found[phase] = (wanted.busy + wanted.latency) / run["cycles"] - 1
    return found


@figure(
    "throughput",
    "tokens per second of 1 to 192 systems that train GPT-style models by weight streaming",
    "weight streaming white paper, section 8.1, figure 24",
)
def throughput(
    machine: Machine,
    max_cycle_level: int | None = None,
    progress: Progress | None = None,
    models: Sequence[str] = LADDER,
    systems: Sequence[int] = SYSTEMS,
) -> Result:
    """Return the `Result`; see the head of this module."""
    todo, rows, runs = points(models, systems), [], {}
    first: dict[Any, Any] = {}
    if progress is not None:
        progress.phase("iterations")
    for done, (kind, model, count, share) in enumerate(todo):
        cluster = Cluster(count, Mesh(machine))
        layers, tokens = layers_of(model), share * model.sequence
        key = model.name, share, cluster.latencies  # all that an iteration depends on
        if key not in runs:
            runs[key] = iteration(layers, tokens * count, cluster)
        timeline = runs[key]
        rate = tokens * count / timeline.seconds
        first.setdefault((kind, model.name), rate / count)
        rows.append(
            {
                "kind": kind,
                "model": model.name,
                "systems": count,
                "sequences_per_system": share,
                "seconds_per_iteration": timeline.seconds,
                "tokens_per_second": rate,
                "efficiency": rate / count / first[kind, model.name],
                "boundary_idle_s": timeline.idle,
                "round_trip_s": round_trip(layers[0], tokens, cluster),
                "bottleneck": timeline.bottleneck,
                "bytes_out": timeline.bytes_out,
                "bytes_back": timeline.bytes_back,
            }
        )
        if progress is not None:
            progress.update(done + 1, len(todo), systems=count)
    said = {}
    for name in dict.fromkeys(row["model"] for row in rows):
        most = sequences(find_model(name), SHARE) * find_model(name).sequence
        said[f"attention of {name} beyond programs"] = beyond(layers_of(find_model(name)), most, Mesh(machine))
    return Result(rows, notes(machine, max_cycle_level, rows) | said, lambda picture: draw(picture, rows))


def notes(machine: Machine, max_cycle_level: int | None, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the least efficiency of each kind of curve, and the errors of the costs."""
    side = min(8, max_cycle_level or 8)
    found = {
        f"least efficiency, {kind}, up to 64 systems": min(
            (row["efficiency"] for row in rows if row["kind"] == kind and row["systems"] <= 64), default=None
        )
        for kind in dict.fromkeys(row["kind"] for row in rows)
    }
    return found | {
        f"cost of {phase} against {side} x {side} simulated PEs": error
        for phase, error in checks(machine, side).items()
    }


def draw(picture: Figure, rows: Sequence[dict[str, Any]]) -> None:
    """Paint both kinds of curve, and the efficiency."""
    axes = picture.subplots(1, 3)
    for panel, kind in zip(axes, ("fixed share", "fixed batch"), strict=False):
        for name in dict.fromkeys(row["model"] for row in rows):
            mine = [row for row in rows if row["kind"] == kind and row["model"] == name]
            if not mine:
                continue
            count = [row["systems"] for row in mine]
            (line,) = panel.loglog(
                count, [row["tokens_per_second"] for row in mine], marker="o", markersize=3, label=name
            )
            panel.loglog(
                count,
                [mine[0]["tokens_per_second"] / count[0] * n for n in count],
                linestyle=":",
                linewidth=0.8,
                color=line.get_color(),
            )
            axes[2].semilogx(
                count,
                [row["efficiency"] for row in mine],
                color=line.get_color(),
                linestyle="-" if kind == "fixed share" else "--",
                marker="o",
                markersize=3,
            )
        panel.set_title(f"{kind} (dotted: proportional)", fontsize=9)
        panel.set_ylabel("tokens per second")
        panel.legend(fontsize=7)
        powers(panel.xaxis, sorted({row["systems"] for row in rows if row["kind"] == kind and row["systems"] != 192}))
    axes[2].set_title("rate per system to that of the first", fontsize=9)
    axes[2].plot([], [], "k-", label="fixed share")
    axes[2].plot([], [], "k--", label="fixed batch")
    axes[2].legend(fontsize=7, loc="lower left")
    axes[2].set_ylim(0, 1.05)
    powers(axes[2].xaxis, [count for count in SYSTEMS if count != 192])
    for panel in axes:
        panel.set_xlabel("systems")
