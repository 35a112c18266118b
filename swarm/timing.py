"""How long weights and gradients are under way: rate of a link, latency of the tree.

A tree is a pipeline: the first word needs the latency of all levels, the others follow at the rate of the links.
"""

from __future__ import annotations

from dataclasses import dataclass

from swarm.params import PARAMETERS
from swarm.tree import depth
from wse_core.errors import ConfigError

__all__ = ["Links"]


@dataclass(frozen=True)
class Links:
    """The links of one system.

    Attributes
    ----------
    planes : int
        Links side by side.
    rate : float
        Of one link, each direction [bits/s].
    latency : float
        Of one level of the tree, one way [s].
    """

    planes: int = PARAMETERS["planes"].value
    rate: float = PARAMETERS["link.rate"].value
    latency: float = PARAMETERS["node.latency"].value * 1e-9

    def __post_init__(self):
        if self.planes < 1 or self.rate <= 0 or self.latency < 0:
            raise ConfigError(f"{self.planes} planes of {self.rate} bits/s cannot be", where="swarm: links")

    @property
    def bytes_per_second(self):
        """Of a system, each direction."""
        return self.planes * self.rate / 8

    def one_way(self, systems):
        """Return the latency between memory service and systems [s]."""
        return depth(systems) * self.latency

    def seconds(self, size, systems):
        """Return the time from the first byte sent to the last one received [s]."""
        return self.one_way(systems) + size / self.bytes_per_second
