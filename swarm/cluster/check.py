"""The layer-level model beside the system at cycle level: one iteration of one network, at both levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.network import Network
from memx.parameter import Parameter
from memx.pattern import Pattern
from swarm.cluster.cluster import Cluster
from swarm.cluster.programs import form_of
from swarm.cluster.shapes import Mesh, shapes_of
from swarm.cluster.timeline import iteration
from swarm.system import System

__all__ = ["Both", "compare", "tasks"]

ITERATIONS = 2
"""Until iterations take the same time: the first one has no updates to wait for."""


@dataclass(frozen=True)
class Both:
    """Cycles of an iteration.

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
        """Of the model, as a share."""
        return self.model / self.cycles - 1


def tasks(network: Network, masks: Sequence[NDArray[np.bool_]], mesh: Mesh, systems: int) -> float:
    """Return the tasks of all PEs in an iteration: what its simulation costs the host grows with them."""
    found = 0.0
    for layer, mask in zip(network.layers, masks, strict=True):
        found += 3 * (mask.sum() / mesh.width + 2 * layer.outputs + layer.inputs)
    return found * mesh.width * mesh.height * systems


def compare(network: Network, masks: Sequence[NDArray[np.bool_]], cluster: Cluster, tokens: int, seed: int = 0) -> Both:
    """Return the cycles of an iteration at both levels, for random weights and samples.

    Parameters
    ----------
    network : Network
    masks : sequence of ndarray of bool, shape (outputs, inputs)
        Which weights exist; biases always do.
    cluster : Cluster
        Both levels have its systems, mesh, machine, optimizer and form.
    tokens : int
        Samples of a PE.
    seed : int
        Of values, on which nothing depends.
    """
    mesh, systems = cluster.mesh, cluster.systems
    rng, matrices, norms = np.random.default_rng(seed), [], {}
    for k, (layer, mask) in enumerate(zip(network.layers, masks, strict=True)):
        exists = np.concatenate([mask, np.ones((layer.outputs, int(layer.bias)), bool)], axis=1)
        values = rng.standard_normal(layer.shape) / np.sqrt(1 + mask.sum() / layer.outputs)
        matrices.append(Parameter(f"layer{k}", values, network.dtype, pattern=Pattern.of_mask(exists)))
        if layer.norm:
            both = np.stack([np.ones(layer.outputs), np.zeros(layer.outputs)])
            norms[k] = Parameter(f"norm{k}", both, network.dtype)
    samples = mesh.height * tokens
    layers = shapes_of(network, masks)
    place = mesh.width, mesh.height, systems, systems * samples, cluster.optimizer.bytes_per_parameter
    system = System(network, matrices, norms, mesh.machine, *place, form=cluster.form or form_of(layers))
    try:
        shards: list[tuple[NDArray[np.uint16], NDArray[np.uint16] | None]] = []
        for _ in range(systems):
            inputs = rng.standard_normal((network.features[0], samples)).astype(np.float16)
            labels = np.eye(network.features[-1], dtype=np.float16)[rng.integers(0, network.features[-1], samples)]
            shards.append((inputs.view(np.uint16), np.ascontiguousarray(labels.T).view(np.uint16)))
        cycles = [system.train(shards).total_cycles for _ in range(ITERATIONS)][-1]
    finally:
        system.close()
    timeline = iteration(layers, systems * samples, cluster)
    return Both(cycles, timeline.seconds * mesh.hertz)
