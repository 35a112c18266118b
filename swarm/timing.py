"""Weights and gradients are under way so long: rates of links and nodes, latency of the tree, and of an update.

A tree is a pipeline: the first word needs the latency of all levels, the others follow at the rate of the links.
"""

from __future__ import annotations

from dataclasses import dataclass

from swarm.tree import WAYS, depth, nodes
from wse_core.errors import ConfigError
from wse_core.params import PARAMETERS, Machine

__all__ = ["WORD", "Links", "Updates"]

WORD = 4
"""A word of the stream has so many bytes, and so has a gradient."""


@dataclass(frozen=True)
class Links:
    """A `Links` has the links of one system; `Links.of` a machine, or by default those of the default machine.

    Attributes
    ----------
    planes : int
        Links side by side.
    chunk : int
        Words that go over a plane before the next one takes its turn.
    rate : float
        Of one link, each direction [bits/s].
    latency : float
        Of one level of the tree, one way [s].
    ways : int
        Most ports of a node of the tree.
    node_rate : float
        What a node copies or adds per plane, each direction [bits/s].
    buffer : float
        Bytes that are on the way to a system or wait there, and the same for the way back.
    turn : float
        From room in a full buffer to hearing of it at the other end, besides the latency of the tree [s].
    """

    planes: int = PARAMETERS["link.planes"].value
    rate: float = PARAMETERS["link.rate"].value
    latency: float = PARAMETERS["node.latency"].value * 1e-9
    ways: int = WAYS
    node_rate: float = PARAMETERS["node.rate"].value
    buffer: float = PARAMETERS["link.buffer"].value
    turn: float = PARAMETERS["link.turn"].value * 1e-9
    chunk: int = PARAMETERS["link.chunk"].value

    @classmethod
    def of(cls, machine: Machine) -> Links:
        """Return the links that a machine's numbers give."""
        return cls(
            machine["link.planes"],
            machine["link.rate"],
            machine["node.latency"] * 1e-9,
            machine["node.ways"],
            machine["node.rate"],
            machine["link.buffer"],
            machine["link.turn"] * 1e-9,
            machine["link.chunk"],
        )

    def __post_init__(self) -> None:
        if self.planes < 1 or self.rate <= 0 or self.latency < 0 or self.node_rate <= 0:
            raise ConfigError(f"{self.planes} planes of {self.rate} bits/s cannot be", where="swarm: links")
        if self.buffer < WORD:
            raise ConfigError(f"a buffer of {self.buffer} bytes holds no word", where="swarm: links")

    @property
    def window(self) -> int:
        """So many words may be on the way to a system or wait there."""
        return int(self.buffer // WORD)

    @property
    def bytes_per_second(self) -> float:
        """The links of a system carry so many bytes per second, each direction."""
        return self.planes * self.rate / 8

    def nodes(self, systems: int) -> int:
        """Return how many nodes stand between the memory service and so many systems, on all planes together."""
        return nodes(systems, self.planes, self.ways)

    def one_way(self, systems: int) -> float:
        """Return the latency between memory service and systems [s]."""
        return depth(systems, self.ways) * self.latency

    def seconds(self, size: float, systems: int) -> float:
        """Return the time from the first byte sent to the last one received [s]."""
        return self.one_way(systems) + size / self.bytes_per_second


@dataclass(frozen=True)
class Updates:
    """The memory service stands between a gradient and the new weight: in order of arrival, at a rate, each after a
    latency.

    Both clocks of a system stand on it, that of cycles (`swarm.up`) and that of layers (`swarm.cluster.timeline`).

    Attributes
    ----------
    rate : float
        Parameters per second, all processors together.
    latency : float
        From a gradient's arrival to the new weight in the stream, besides the time at `rate` [s].
    answer : float
        The same from sums over a batch to what is made of them [s].
    """

    rate: float
    latency: float
    answer: float = PARAMETERS["answer.latency"].value * 1e-9

    @classmethod
    def of(cls, machine: Machine) -> Updates:
        """Return the updates that a machine's numbers give."""
        return cls(machine["update.rate"], machine["update.latency"] * 1e-9, machine["answer.latency"] * 1e-9)

    def seconds(self, count: float) -> float:
        """Return how long so many parameters keep the processors busy [s]."""
        return count / self.rate

    def after(self, count: float) -> float:
        """Return the time from the arrival of so many gradients to their new weights in the stream [s]."""
        return self.seconds(count) + self.latency
