"""A network of one's own is projected to any number of systems: samples per second, efficiency, and what limits.

`project` asks the layer-level model (`swarm.cluster`) for each number of systems, with mesh, optimizer and masks
of a configuration, on its machine, in two ways:

fixed share
    Each system takes as many samples as in the configuration; the batch grows.
fixed batch
    The batch of the configuration is divided over the systems, where it divides.

What the model says is held against cycles: for the numbers of systems that the host can simulate in seconds, or, if
even one system is too large, for a narrower and lower part of it with as many features per column and samples per PE;
of a graph, which cannot be made narrower, for fewer rows of PEs.
Every other figure is an extrapolation, and carries the error at the nearest size that was simulated.  Of a batch that
passes in parts one part is simulated.

`groupings` asks it for the same PEs in each number of groups of columns (layout B) that they can form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.streamed.placement import random_mask
from fabric.networks.graph.network import Layer, Network
from harness.train import sparsity
from harness.train.config import TrainConfig
from harness.train.lookup import rows_of_batch
from swarm.cluster.check import Both, compare, layers_of, tasks
from swarm.cluster.cluster import Cluster
from swarm.cluster.graph_costs import GraphShape
from swarm.cluster.shapes import LayerShape, Mesh
from swarm.cluster.timeline import ClusterTimeline, iteration
from swarm.replay import NOTED
from wse_core.errors import ConfigError, UnsupportedError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MOST_TASKS", "CheckedSize", "draw", "groupings", "idle_masks", "project", "systems_of", "what_masks_save"]

MOST_TASKS = 1.5e6
"""Tasks of PEs in an iteration that the host simulates to hold the model against: some seconds."""
PAYS = 0.05
"""Masks that save less than this share of an iteration are said to save nothing."""
PATIENCE = 20
"""Times as many are simulated of a graph, of which nothing smaller can be taken than a row of PEs."""
LIMITS = {"compute": "wafers", "stream": "link out", "receive": "link back"}
"""What `swarm.cluster.timeline.ClusterTimeline.busy` calls them; others keep their names."""
Masks = Sequence[NDArray[np.bool_]]


@dataclass(frozen=True)
class CheckedSize:
    """A `CheckedSize` is a size at which the model was held against cycles.

    Attributes
    ----------
    systems : int
    mesh : Mesh
    features : tuple of int
    both : Both
    """

    systems: int
    mesh: Mesh
    features: tuple[int, ...]
    both: Both

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "systems": self.systems,
            "mesh": [self.mesh.width * self.mesh.column_groups, self.mesh.height],
            "features": list(self.features),
            "cycles": self.both.cycles,
            "model_cycles": self.both.model,
            "error": self.both.error,
        }


def systems_of(text: str) -> list[int]:
    """Return the numbers of systems that a text like ``1,2,4`` names, ascending."""
    found = []
    for part in text.split(","):
        if not part.strip().isdecimal() or not 1 <= int(part) <= 1024:
            raise ConfigError(
                f"{part.strip()!r} is no number of systems", where="--project", value=text, hint="such as 1,2,4,192"
            )
        found.append(int(part))
    return sorted(set(found))


def project(
    config: TrainConfig, systems: Sequence[int], tell: Callable[[int, int, str], None] | None = None
) -> dict[str, Any]:
    """Return what a network reaches on some numbers of systems.

    Parameters
    ----------
    config : TrainConfig
    systems : sequence of int
        Ascending.
    tell : callable, optional
        Called with (done, all, what is next).

    Returns
    -------
    dict
        ``rows``: one per kind and number of systems; ``checked``: what was simulated cycle by cycle; ``groupings``: see
        there.
    """
    network, masks = config.streamed, sparsity.initial_masks(config)
    mesh = mesh_of(config)
    share, batch, parts = config.data.batch // config.wafers, config.data.batch, config.train.accumulate

    def cluster_of(mesh: Mesh, systems: int) -> Cluster:
        return Cluster(systems, mesh, optimizer=config.train.optimizer.build(), form=config.form)

    points = [("fixed share", n, share * n) for n in systems]
    groups = config.mesh.groups
    unit = groups * parts * (config.data.sequence if _has_sequences(network) else 1)
    points += [("fixed batch", n, batch) for n in systems if batch % (n * unit) == 0]
    sizes = _simulated(network, masks, mesh, systems, share // parts // groups)
    todo, checked, rows = len(points) + len(sizes), [], []
    for done, (count, part, its_masks, its_mesh) in enumerate(sizes):
        if tell is not None:
            tell(done, todo, f"{count} systems, cycle by cycle")
        both = compare(part, its_masks, cluster_of(its_mesh, count), share // parts // groups)
        checked.append(CheckedSize(count, its_mesh, part.features, both))
    first: dict[str, float] = {}
    for done, (kind, count, samples) in enumerate(points, len(sizes)):
        if tell is not None:
            tell(done, todo, f"{count} systems")
        layers = _layers(config, masks, samples // parts)
        timeline = iteration(layers, samples // parts, cluster_of(mesh, count))
        seconds = _seconds(timeline, parts)
        rate = samples / seconds
        near = min(checked, key=lambda one: (abs(one.systems - count), one.systems))
        exact = kind == "fixed share" and near.systems == count and near.features == network.features
        exact = exact and (near.mesh, parts) == (mesh, 1)
        rows.append(
            {
                "kind": kind,
                "systems": count,
                "batch": samples,
                "cycles": seconds * mesh.hertz,
                "samples_per_second": rate,
                "efficiency": rate / count / first.setdefault(kind, rate / count),
                "limit": _limit(timeline),
                "boundary_cycles": timeline.lost * mesh.hertz,
                "bytes_out": timeline.bytes_out,
                "bytes_back": timeline.bytes_back,
                "measured_cycles": near.both.cycles if exact else None,
                "error": near.both.error,
                "error_at": near.systems,
            }
        )
    return {"rows": rows, "checked": [one.as_dict() for one in checked], "groupings": groupings(config, tell)}


def _layers(config: TrainConfig, masks: Masks, batch: int) -> tuple[LayerShape, ...] | GraphShape:
    """Return the network of a configuration as the layer-level model takes it, for a batch that asks for some rows."""
    found = layers_of(config.streamed, masks)
    if isinstance(found, GraphShape):
        return replace(found, said=rows_of_batch(config, config.streamed, batch))
    return found


def _seconds(timeline: ClusterTimeline, parts: int) -> float:
    """Return what an iteration takes whose batch passes in parts: all but the last one wait for no update."""
    return timeline.seconds + (parts - 1) * (timeline.edges + timeline.busy["compute"])


def mesh_of(config: TrainConfig) -> Mesh:
    """Return the mesh of a configuration as the layer-level model takes it."""
    mesh = config.mesh
    return Mesh(config.build_machine(), mesh.columns, mesh.height, mesh.column_groups)


def groupings(config: TrainConfig, tell: Callable[[int, int, str], None] | None = None) -> list[dict[str, Any]]:
    """Return the cycles of an iteration for each number of groups of columns that the mesh can form.

    Rows in which groups meet come to the mesh; numbers that memory, sequences or the batch do not allow are left out.

    Parameters
    ----------
    config : TrainConfig
    tell : callable, optional
        As of `project`.

    Returns
    -------
    list of dict
        ``column_groups`` and ``cycles``, fewest groups first.
    """
    masks, found = sparsity.initial_masks(config), list[dict[str, Any]]()
    layers, width = _layers(config, masks, config.at_once), config.mesh.width
    counts = [count for count in range(1, width + 1) if width % count == 0]
    for done, count in enumerate(counts):
        if tell is not None:
            tell(done, len(counts), f"{count} groups of columns")
        one = replace(config, mesh=replace(config.mesh, column_groups=count))
        try:
            one.check_shards()
            one.check_mesh()
            one.check_memory()
        except (ConfigError, UnsupportedError):
            continue
        mesh = mesh_of(one)
        cluster = Cluster(config.wafers, mesh, optimizer=config.train.optimizer.build(), form=one.form)
        taken = _seconds(iteration(layers, one.at_once, cluster), config.train.accumulate)
        found.append({"column_groups": count, "cycles": taken * mesh.hertz})
    return found


def what_masks_save(config: TrainConfig) -> tuple[float, float]:
    """Return the cycles of an iteration by the layer-level model: with the first masks, and with all weights.

    Parameters
    ----------
    config : TrainConfig
    """
    masks, mesh = sparsity.initial_masks(config), mesh_of(config)
    found = []
    for chosen, form in ((masks, config.form), ([np.ones_like(mask) for mask in masks], None)):
        cluster = Cluster(config.wafers, mesh, optimizer=config.train.optimizer.build(), form=form)
        found.append(iteration(_layers(config, chosen, config.at_once), config.at_once, cluster).seconds * mesh.hertz)
    return found[0], found[1]


def idle_masks(config: TrainConfig) -> list[str]:
    """Return a sentence if an iteration takes hardly less with the first masks than with all weights, else nothing."""
    if config.density == 1:
        return []
    masked, whole = what_masks_save(config)
    if masked < (1 - PAYS) * whole:
        return []
    return [
        f"these masks save no time here: an iteration with {config.density:.0%} of the weights takes {masked:,.0f} "
        f"cycles by the layer-level model, and {whole:,.0f} with all of them, which go out in pairs"
    ]


def _limit(timeline: ClusterTimeline) -> str:
    """Return what an iteration waits for, or what works longest."""
    if timeline.bottleneck == "compute" and timeline.lost > NOTED * timeline.seconds:
        return "round trip"
    return LIMITS.get(timeline.bottleneck, timeline.bottleneck)


def _has_sequences(network: Network) -> bool:
    """Whether tokens of a sequence lie in a PE together."""
    return any("sequence" in dict(node.sizes) for node in network.nodes)


def _simulated(
    network: Network, masks: Masks, mesh: Mesh, systems: Sequence[int], tokens: int
) -> list[tuple[int, Network, Masks, Mesh]]:
    """Return the sizes that the host simulates: some of the numbers of systems, or a part of the smallest."""
    fit = [n for n in systems if tasks(network, masks, mesh, n, tokens) <= MOST_TASKS]
    if fit:
        return [(n, network, masks, mesh) for n in sorted({fit[0], fit[-1]})]
    count = systems[0]
    part, its_masks, its_mesh = network, masks, replace(mesh, height=min(2, mesh.height))
    if isinstance(layers_of(network, masks), GraphShape):
        return [_lower(network, masks, mesh, count, tokens)]
    while tasks(part, its_masks, its_mesh, count) > MOST_TASKS:
        if its_mesh.width == 1 and max(part.features) < 4:
            count = 1
            break
        part = _narrower(part)
        rng = np.random.default_rng(0)
        its_masks = [
            random_mask((layer.outputs, layer.inputs), float(mask.mean()), rng)
            for layer, mask in zip(part.layers, masks, strict=True)
        ]
        its_mesh = replace(its_mesh, width=max(1, its_mesh.width // 2))
    return [(count, part, its_masks, its_mesh)]


def _lower(network: Network, masks: Masks, mesh: Mesh, count: int, tokens: int) -> tuple[int, Network, Masks, Mesh]:
    """Return the size of a graph that the host simulates: all of its columns, but fewer rows of PEs, or systems.

    Raises
    ------
    UnsupportedError
        Even a single row of PEs is too much to simulate, so that no error could be given.
    """
    for systems, groups in ((count, 2), (count, 1), (1, 1)):
        its_mesh = replace(mesh, height=min(groups * network.image_rows, mesh.height))
        found = tasks(network, masks, its_mesh, systems, tokens)
        if found <= MOST_TASKS:
            break
    if found > PATIENCE * MOST_TASKS:
        raise UnsupportedError(
            f"{found:,.0f} tasks of one row of PEs are too many to hold the layer-level model against",
            where="--project",
            feature="layer-level model",
            hint="a network of fewer blocks",
        )
    return systems, network, masks, its_mesh


def _narrower(network: Network) -> Network:
    """Return a network with half of the features."""
    return Network.of(
        tuple(
            Layer(-(-one.inputs // 2), -(-one.outputs // 2), one.activation, one.bias, one.norm)
            for one in network.layers
        ),
        network.dtype,
    )


def draw(picture: Figure, name: str, found: dict[str, Any]) -> None:
    """Paint samples per second and efficiency over the systems."""
    left, right = picture.subplots(1, 2)
    for kind, style in (("fixed share", "-o"), ("fixed batch", "--s")):
        mine = [row for row in found["rows"] if row["kind"] == kind]
        if not mine:
            continue
        count = [row["systems"] for row in mine]
        rates = [row["samples_per_second"] for row in mine]
        (line,) = left.loglog(count, rates, style, markersize=4, label=kind)
        left.loglog(
            count, [rates[0] / count[0] * n for n in count], linestyle=":", linewidth=0.8, color=line.get_color()
        )
        right.semilogx(count, [row["efficiency"] for row in mine], style, markersize=4, label=kind)
    measured = [row for row in found["rows"] if row["measured_cycles"]]
    if measured:
        left.loglog(
            [row["systems"] for row in measured],
            [row["samples_per_second"] * row["cycles"] / row["measured_cycles"] for row in measured],
            "kx",
            label="cycle by cycle",
        )
    left.set_ylabel("samples per second (dotted: proportional)")
    right.set_ylabel("efficiency per system")
    right.set_ylim(0, 1.05)
    worst = max(abs(one["error"]) for one in found["checked"])
    right.set_title(f"error where simulated: at most {worst:.1%}", fontsize=9)
    left.set_title(name, fontsize=10)
    systems = sorted({row["systems"] for row in found["rows"]})
    for axes in (left, right):
        axes.set_xticks(systems, [str(count) for count in systems])
        axes.minorticks_off()
        axes.set_xlabel("systems")
        axes.legend(fontsize=8)
