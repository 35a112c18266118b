"""Memory service, tree and wafers together: rates, latencies, capacities."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from memx.optimizer import Adam
from memx.params import PARAMETERS
from memx.tiers import Tiers
from swarm.cluster.costs import Mesh
from swarm.params import PARAMETERS as SWARM
from swarm.timing import Links
from swarm.tree import levels
from wse_core.errors import ConfigError
from wse_core.params import machine

__all__ = ["Cluster", "Traffic"]


@dataclass(frozen=True)
class Traffic:
    """Bytes of a layer on the link of the memory service, per iteration.

    Attributes
    ----------
    weights : int
        Of one pass; there are two, but for the first layer, whose inputs need no gradients.
    request : int
        Places at which gradients are asked for.
    gradients : int
        Towards the memory service.
    """

    weights: int
    request: int
    gradients: int


@dataclass(frozen=True)
class Cluster:
    """A cluster.

    Attributes
    ----------
    systems : int
        Wafers.
    mesh : Mesh
    links : Links
        Of a system, and of the memory service.
    tiers : Tiers
        DRAM and flash of the memory service, and the rate of its stream.
    optimizer : Optimizer
        Says how many bytes a parameter takes in the memory service.
    update_rate : float
        Parameters per second, all processors of the memory service together.
    update_latency : float
        From a gradient's arrival to the new weight in the stream, besides the time at `update_rate` [s].
    buffer : float
        Bytes that are on the way to a wafer or wait there; the same for the way back.
    reversed_gradients : bool
        Compute the rows of a gradient last to first: what the paper avoids, for comparison.
    """

    systems: int = 1
    mesh: Mesh = field(default_factory=lambda: Mesh(machine()))
    links: Links = field(default_factory=Links)
    tiers: Tiers = field(default_factory=Tiers)
    optimizer: object = field(default_factory=Adam)
    update_rate: float = PARAMETERS["update.rate"].value
    update_latency: float = PARAMETERS["update.latency"].value * 1e-9
    buffer: float = SWARM["buffer.bytes"].value
    reversed_gradients: bool = False

    def __post_init__(self):
        if self.systems < 1:
            raise ConfigError("a cluster without systems", where="cluster", hint="at least 1")
        for name in ("update_rate", "buffer"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{getattr(self, name)} is impossible", where=f"cluster: {name}")

    def of(self, systems):
        """Return the same cluster with another number of systems."""
        return replace(self, systems=systems)

    @property
    def stream_rate(self):
        """Bytes per second that leave the memory service: its own rate, or that of the links."""
        return min(self.tiers.stream_rate, self.links.bytes_per_second)

    @property
    def latencies(self):
        """One way from the memory service to each kind of system, ascending [s]: systems hang at different depths."""
        return tuple(sorted({depth * self.links.latency for depth in levels(self.systems)}))

    def traffic(self, layer):
        """Return the `Traffic` of a layer: a dense one has no index, a sparse one 16 bits per weight."""
        index = 0 if layer.density == 1 else 2 * layer.weights
        return Traffic(2 * layer.weights + index, index, 4 * layer.weights)

    def check(self, layers):
        """Raise `ConfigError` if the memory service has no room for the layers' parameters."""
        self.tiers.check(sum(layer.dense_weights for layer in layers), self.optimizer.bytes_per_parameter)
