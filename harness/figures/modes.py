"""The two modes give so many samples per second over the size of the network, on the same PEs of one wafer; here is
also where they cross.

Networks of three layers, F - n - n - 10 features with n doubling; every row of PEs has `TOKENS` samples of an update.

streaming
    Up to `SIMULATED` tasks of PEs an iteration in its steady state is simulated, memory service and tree included;
    beyond the layer-level model of a cluster (`swarm.cluster.timeline`) says what it takes.
pipelined
    Layers lie where `harness.place.layers` puts them, with the largest minibatches that fit, at most `MINIBATCH`
    samples; an update has as many samples as the other mode's.  Up to `TRAINED` products a run is simulated, and the
    cycles of its last update count; beyond, programs are measured one by one (`fabric.networks.pipelined.costs`).  A
    network that does not fit has no point.

Every row says which it is, and how far the prediction was off where there is a measurement; the notes have the largest
error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fabric.networks.graph.network import Network
from fabric.networks.pipelined.updates import Rule
from fabric.networks.pipelined.wafer import PipelinedWafer
from harness.figures import Result, figure
from harness.place.layers import LayerPlan, network_placed
from swarm.cluster.check import compare, tasks
from swarm.cluster.cluster import Cluster
from swarm.cluster.shapes import Mesh, shapes_of
from swarm.cluster.timeline import iteration
from wse_core.errors import ConfigError, LayoutError, ProgramError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fabric.networks.pipelined.pipeline import Pipeline
    from harness.kit.console import Progress
    from wse_core.params import Machine

__all__ = ["WIDTHS", "crossings", "modes", "pipelined", "streaming"]

SIDE = 12
"""Both modes have so many PEs a side."""
INPUTS, CLASSES = 64, 10
WIDTHS = (8, 16, 32, 64, 128, 256, 512)
"""The two hidden layers have so many features."""
TOKENS = 16
"""Samples of an update for each row of PEs: the streaming mode needs some to be busy while weights arrive."""
MINIBATCH = 16
"""At most so many samples go through the pipeline together."""
SIMULATED = 4e6
"""An iteration that is simulated has at most so many tasks."""
TRAINED = 1.5e8
"""A run that is simulated has at most so many products."""
FILL = 6
"""So many minibatches go before those of which an update is measured."""
ROUNDS = 4


def network(width: int) -> Network:
    """Return the network of a size."""
    return Network.dense((INPUTS, width, width, CLASSES), "relu")


def streaming(machine: Machine, side: int, given: Network) -> tuple[float, float | None]:
    """Return (cycles of an update by the model, cycles measured or None); infinite: it cannot be."""
    mesh = Mesh(machine, side, side)
    masks = [np.ones((layer.outputs, layer.inputs), bool) for layer in given.layers]
    if tasks(given, masks, mesh, 1) <= SIMULATED:
        try:
            both = compare(given, masks, Cluster(1, mesh), TOKENS)
        except (ConfigError, ProgramError):
            return np.inf, None
        return both.model, float(both.cycles)
    timeline = iteration(shapes_of(given, masks), side * TOKENS, Cluster(1, mesh))
    return timeline.seconds * mesh.hertz, None


def pipelined(machine: Machine, side: int, given: Network) -> tuple[float, float | None, int]:
    """Return (cycles of an update predicted, measured or None, samples of a minibatch); infinite: it does not fit."""
    samples = side * TOKENS
    for size in (k for k in range(MINIBATCH, 0, -1) if samples % k == 0):
        parts = samples // size
        plan = LayerPlan(given, machine, size, Rule(), 2, parts)
        try:
            found, pipeline = network_placed(plan, side, side, ROUNDS, 0)
        except (ConfigError, LayoutError, ProgramError):
            continue
        predicted = found.slowest * parts
        work = 3 * sum(layer.inputs * layer.outputs for layer in given.layers) * (2 * parts + FILL) * size
        return predicted, simulated(pipeline, parts) if work <= TRAINED else None, size
    return np.inf, None, 0


def simulated(pipeline: Pipeline, parts: int) -> float:
    """Return the cycles of an update of so many minibatches on the wafer, while others are under way.

    The larger of where losses leave and where minibatches enter: a slow first layer begins with a lead, until which is
    used up losses come faster than it is.
    """
    wafer, network = PipelinedWafer(pipeline), pipeline.network
    rng, samples = np.random.default_rng(0), pipeline.batch * (2 * parts + FILL)
    weights = [(rng.standard_normal(shape) / 16).astype(np.float32) for shape in pipeline.shapes]
    wafer.load(weights, [{}] * len(weights))
    inputs = wafer.half.encode(rng.standard_normal((samples, network.features[0])))
    labels = wafer.half.encode(np.eye(CLASSES)[rng.integers(0, CLASSES, samples)])
    constants = np.stack([pipeline.rule.constants(k, 1.0, pipeline.batch * parts, 1e-4) for k in (1, 2)])
    run = wafer.run(inputs, labels, constants, parts)
    return float(max(times[-1] - times[-1 - parts] for times in (run.loss_times, run.asked)))


def crossings(rows: Sequence[dict[str, Any]]) -> list[float]:
    """Return the parameters at which both modes are as fast, on straight lines between logarithms of neighbours.

    Empty if one mode is the faster one wherever both run.
    """
    both = [row for row in rows if row["pipelined_samples_per_s"] and row["streaming_samples_per_s"]]
    lead = [np.log(row["pipelined_samples_per_s"] / row["streaming_samples_per_s"]) for row in both]
    found = []
    for k in range(len(both) - 1):
        if lead[k] * lead[k + 1] < 0:
            share = lead[k] / (lead[k] - lead[k + 1])
            sizes = [np.log(both[at]["parameters"]) for at in (k, k + 1)]
            found.append(float(np.exp(sizes[0] + share * (sizes[1] - sizes[0]))))
    return found


@figure(
    "modes",
    "samples per second of the pipelined and the streaming mode over the size of the network",
    "this model: both modes on the same PEs",
)
def modes(
    machine: Machine,
    max_cycle_level: int | None = None,
    progress: Progress | None = None,
    widths: Sequence[int] = WIDTHS,
) -> Result:
    """Return the `Result`; see the head of this module.

    Both modes have meshes of `max_cycle_level` PEs a side, or `SIDE`.
    """
    side = max_cycle_level or SIDE
    rows: list[dict[str, Any]] = []
    if side < 4:
        raise ConfigError("both modes need 4 PEs a side", where="--max-cycle-level", value=side, hint="4 or more")
    hertz, samples = machine["clock.ghz"] * 1e9, side * TOKENS
    if progress is not None:
        progress.phase("networks in both modes")
    for done, width in enumerate(widths):
        given = network(width)
        if progress is not None:
            progress.update(done, len(widths), features=width)
        model, cycles = streaming(machine, side, given)
        predicted, measured, size = pipelined(machine, side, given)

        def rate(simulated: float | None, otherwise: float) -> float | None:
            found = simulated or otherwise
            return samples / found * hertz if np.isfinite(found) else None

        rows.append(
            {
                "features": width,
                "parameters": sum(layer.outputs * (layer.inputs + 1) for layer in given.layers),
                "streaming_samples_per_s": rate(cycles, model),
                "streaming": "simulated" if cycles else "model" if np.isfinite(model) else "does not fit",
                "streaming_error": model / cycles - 1 if cycles else None,
                "pipelined_samples_per_s": rate(measured, predicted),
                "pipelined": "simulated" if measured else "model" if np.isfinite(predicted) else "does not fit",
                "pipelined_error": predicted / measured - 1 if measured else None,
                "minibatch": size or None,
            }
        )
    notes: dict[str, Any] = {"PEs a side": side, "samples of an update": samples}
    across = crossings(rows)
    notes["parameters at which both are as fast"] = ", ".join(f"{at:,.0f}" for at in across) or "none"
    for name in ("streaming", "pipelined"):
        errors = [abs(row[f"{name}_error"]) for row in rows if row[f"{name}_error"] is not None]
        notes[f"largest error of the model, {name}"] = max(errors, default=None)
    return Result(rows, notes, lambda picture: draw(picture, rows, side))


def draw(picture: Figure, rows: Sequence[dict[str, Any]], side: int) -> None:
    """Paint both curves: filled marks are simulated, hollow ones come from models."""
    axes = picture.subplots()
    for name, color in (("pipelined", "tab:orange"), ("streaming", "tab:blue")):
        mine = [row for row in rows if row[f"{name}_samples_per_s"]]
        axes.loglog(
            [row["parameters"] for row in mine], [row[f"{name}_samples_per_s"] for row in mine], color=color, label=name
        )
        for row in mine:
            filled = color if row[name] == "simulated" else "white"
            axes.plot(row["parameters"], row[f"{name}_samples_per_s"], "o", color=color, markerfacecolor=filled)
    for at in crossings(rows):
        axes.axvline(at, color="black", linewidth=0.8, linestyle=":")
        axes.annotate(f"{at:,.0f} parameters", (at, axes.get_ylim()[0]), rotation=90, va="bottom", ha="right", size=8)
    missing = [row["parameters"] for row in rows if row["pipelined"] == "does not fit"]
    if missing:
        axes.axvspan(missing[0], rows[-1]["parameters"], alpha=0.08, color="black", label="pipelined does not fit")
    axes.set_xlabel("parameters")
    axes.set_ylabel("samples per second")
    axes.set_title(f"both modes on {side} x {side} PEs (filled: simulated, hollow: models)", fontsize=10)
    axes.legend()
