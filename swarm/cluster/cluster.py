"""A cluster consists of memory service, tree and wafers: rates, latencies, capacities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from memx.optimizer import Adam, Optimizer
from memx.tiers import Tiers
from swarm.cluster.graph_costs import GraphLayer
from swarm.cluster.shapes import LayerShape, Mesh
from swarm.timing import Links, Updates
from swarm.tree import levels
from wse_core.errors import ConfigError
from wse_core.params import machine

__all__ = ["Cluster"]


@dataclass(frozen=True)
class Cluster:
    """A `Cluster` is a memory service with a tree and wafers.

    What is not given follows from the numbers of the mesh's machine.

    Attributes
    ----------
    systems : int
        Wafers.
    mesh : Mesh
    links : Links
        Of a system, and of the memory service.
    tiers : Tiers
        DRAM of the memory service, the rate of its stream, and the tiers behind it.
    optimizer : Optimizer
        Says how many bytes a parameter takes in the memory service.
    update_rate : float
        Parameters per second, all processors of the memory service together.
    update_latency : float
        From a gradient's arrival to the new weight in the stream, besides the time at `update_rate` [s].
    buffer : float
        Bytes that are on the way to a wafer or wait there; the same for the way back.
    form : {"steps", "pairs", "both"}, optional
        How weights go out; default what suits the densities of the network.
    reversed_gradients : bool
        Compute the rows of a gradient last to first: what the paper avoids, for comparison.
    """

    systems: int = 1
    mesh: Mesh = field(default_factory=lambda: Mesh(machine()))
    links: Links = None  # type: ignore[assignment]
    tiers: Tiers = None  # type: ignore[assignment]
    optimizer: Optimizer = field(default_factory=Adam)
    update_rate: float = None  # type: ignore[assignment]
    update_latency: float = None  # type: ignore[assignment]
    buffer: float = None  # type: ignore[assignment]
    form: str | None = None
    reversed_gradients: bool = False

    def __post_init__(self) -> None:
        numbers = self.mesh.machine
        for name, value in {
            "links": Links.of(numbers),
            "tiers": Tiers.of(numbers),
            "update_rate": numbers["update.rate"],
            "update_latency": numbers["update.latency"] * 1e-9,
            "buffer": numbers["link.buffer"],
        }.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if self.systems < 1:
            raise ConfigError("a cluster without systems", where="cluster", hint="at least 1")
        for name in ("update_rate", "buffer"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{getattr(self, name)} is impossible", where=f"cluster: {name}")

    def of(self, systems: int) -> Cluster:
        """Return the same cluster with another number of systems."""
        return replace(self, systems=systems)

    @property
    def updates(self) -> Updates:
        """Updates take rate and latencies of the way from gradients to new weights."""
        return Updates(self.update_rate, self.update_latency, self.mesh.machine["answer.latency"] * 1e-9)

    @property
    def receive_rate(self) -> float:
        """So many bytes per second come to the memory service: the rate of the links, or of nodes that add."""
        slow = min(self.links.rate, self.links.node_rate) if self.systems > 1 else self.links.rate
        return self.links.planes * slow / 8

    @property
    def stream_rate(self) -> float:
        """The memory service sends so many bytes per second: its own rate, or that of links or nodes."""
        return min(self.tiers.stream_rate, self.receive_rate)

    def load(self, inputs: int, tokens: int) -> float:
        """Return how long the samples of an iteration come in over the links of a system [s]."""
        return 2 * inputs * tokens / self.links.bytes_per_second

    @cached_property  # every message asks
    def latencies(self) -> tuple[float, ...]:
        """Latencies are those from the memory service to each kind of system, ascending [s]: depths differ."""
        return tuple(sorted({depth * self.links.latency for depth in levels(self.systems, self.links.ways)}))

    def check(self, layers: Iterable[LayerShape | GraphLayer]) -> None:
        """Raise `ConfigError` if the memory service has no room for the layers' parameters."""
        self.tiers.check(sum(layer.dense_weights + layer.norms for layer in layers), self.optimizer.bytes_per_parameter)
