"""The layer-level model stands beside the system at cycle level: one iteration of one network, at both levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.lookup import Lookup, looks_up, tables_of
from fabric.networks.graph.network import Network
from fabric.networks.graph.operations import wanted_of
from memx.parameter import Parameter
from memx.pattern import Pattern
from swarm.cluster import graph_costs, layer_costs
from swarm.cluster.cluster import Cluster
from swarm.cluster.graph_costs import GraphShape
from swarm.cluster.shapes import LayerShape, Mesh, shapes_of
from swarm.cluster.timeline import iteration
from swarm.system import System
from wse_core.errors import UnsupportedError

__all__ = ["Both", "compare", "layers_of", "tasks"]

ITERATIONS = 2
"""Until iterations take the same time: the first one has no updates to wait for."""


@dataclass(frozen=True)
class Both:
    """A `Both` has the cycles of an iteration at both levels.

    Attributes
    ----------
    cycles : int
        On wafers, tree and memory service, cycle by cycle.
    model : float
        By `swarm.cluster.timeline`.
    """

    cycles: int
    model: float

    @property
    def error(self) -> float:
        """The error is that of the model, as a share."""
        return self.model / self.cycles - 1


def layers_of(network: Network, masks: Sequence[NDArray[np.bool_]]) -> tuple[LayerShape, ...] | GraphShape:
    """Return a network as the layer-level model takes it: the layers of a chain, or a graph.

    Parameters
    ----------
    network, masks
        As of `compare`.
    """
    if network.keep_output:
        return GraphShape.of(network, masks)
    try:
        return shapes_of(network, masks)
    except UnsupportedError:
        return GraphShape.of(network, masks)


def tasks(network: Network, masks: Sequence[NDArray[np.bool_]], mesh: Mesh, systems: int, tokens: int = 1) -> float:
    """Return the tasks of all PEs in an iteration: what its simulation costs the host grows with them.

    Parameters
    ----------
    network, masks
        As of `compare`.
    mesh : Mesh
    systems : int
    tokens : int, optional
        Samples of a PE, as many as a sequence has at least.
    """
    layers = layers_of(network, masks)
    if isinstance(layers, GraphShape):
        share = tokens * graph_costs.groups_of(network, mesh)
        words = sum(one.cost.words for one in graph_costs.phases(layers, share, mesh))
        return float(words * mesh.rows * systems)
    found = 0.0
    for layer, mask in zip(network.layers, masks, strict=True):
        found += 3 * (mask.sum() / mesh.width + 2 * layer.outputs + layer.inputs)
    return found * mesh.width * mesh.rows * systems


def compare(network: Network, masks: Sequence[NDArray[np.bool_]], cluster: Cluster, tokens: int, seed: int = 0) -> Both:
    """Return the cycles of an iteration at both levels, for random weights and samples.

    Parameters
    ----------
    network : Network
    masks : sequence of ndarray of bool, shape (outputs, inputs)
        Which weights exist, of each matrix; biases always do.
    cluster : Cluster
        Both levels have its systems, mesh, machine, optimizer and form.
    tokens : int
        Samples of a PE.
    seed : int
        Of values, on which nothing depends.
    """
    mesh, systems = cluster.mesh, cluster.systems
    rng, samples = np.random.default_rng(seed), graph_costs.groups_of(network, mesh) * tokens
    matrices, others = _parameters(network, masks, rng)
    layers = layers_of(network, masks)
    if isinstance(layers, GraphShape):
        form = cluster.form or graph_costs.form_of(layers, samples, mesh)
    else:
        form = cluster.form or layer_costs.form_of(layers, samples, mesh)
    place = mesh.width, mesh.height, systems, systems * samples, cluster.optimizer.bytes_per_parameter
    system = System(network, matrices, others, mesh.machine, *place, form=form, column_groups=mesh.column_groups)
    try:
        shards: list[tuple[NDArray[np.uint16], NDArray[np.uint16] | None]] = []
        for _ in range(systems):
            inputs = rng.standard_normal((network.inputs, samples)).astype(np.float16)
            shape = samples, *[network.label_pixels] * bool(network.label_image)
            if looks_up(network):
                inputs = _numbers(network, samples, rng).view(np.float16)
            if network.numbered:
                wanted = rng.integers(0, network.classes, (1, samples)).astype(np.uint16).view(np.float16)
            elif network.loss.judges:
                wanted = wanted_of(rng.integers(0, network.classes, shape), network.classes).T.astype(np.float16)
            else:
                wanted = rng.standard_normal((network.classes, samples)).astype(np.float16)
            shards.append((inputs.view(np.uint16), np.ascontiguousarray(wanted).view(np.uint16)))
        if isinstance(layers, GraphShape) and looks_up(network):
            system.coordinator.choose(np.concatenate([inputs for inputs, _ in shards], axis=1))
            layers = replace(layers, said=tuple(map(len, system.coordinator.said)))
        cycles = [system.train(shards).total_cycles for _ in range(ITERATIONS)][-1]
    finally:
        system.close()
    timeline = iteration(layers, systems * samples, cluster)
    return Both(cycles, timeline.seconds * mesh.hertz)


def _numbers(network: Network, samples: int, rng: np.random.Generator) -> NDArray[np.uint16]:
    """Return random numbers of samples that are looked up, shape (tables, samples)."""
    node = next(node for node in network.nodes if node.op == Lookup.name)
    rows = [rng.integers(table.first, table.end, samples) for table in tables_of(node)]
    return np.array(rows, np.uint16)


def _parameters(
    network: Network, masks: Sequence[NDArray[np.bool_]], rng: np.random.Generator
) -> tuple[list[Parameter], dict[int, Parameter]]:
    """Return random weights of the matrices, and factors and shifts of all else that is trained."""
    matrices, others = [], {}
    for k, tensor in enumerate(network.parameters):
        if k >= len(masks):
            both = np.stack([np.ones(tensor.columns), np.zeros(tensor.columns)])[: tensor.rows]
            others[k] = Parameter(tensor.name, both, network.dtype)
            continue
        exists = np.ones(tensor.shape, bool)
        exists[:, : masks[k].shape[1]] = masks[k]
        values = rng.standard_normal(tensor.shape) / np.sqrt(1 + masks[k].sum() / tensor.rows)
        matrices.append(Parameter(tensor.name, values, network.dtype, pattern=Pattern.of_mask(exists)))
    return matrices, others
