"""The tree of broadcast-reduce nodes over N systems has a shape, a cost, and the one order in which gradients are
added.

Towards the memory service a tree looks like one system, towards a system like the memory service: both are an
`Endpoint`, so a tree can stand on trees, and N = 1 needs none.  Weights are copied on the way down; on the way up a
node adds what its children send, chunk by chunk, in the order of its ports, and keeps nothing.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wse_core.errors import ConfigError
from wse_core.params import PARAMETERS

__all__ = [
    "CHUNK",
    "WAYS",
    "Endpoint",
    "LinkTraffic",
    "TreeNode",
    "build",
    "depth",
    "gather",
    "groups",
    "levels",
    "node_equivalents",
    "nodes",
]

CHUNK: int = PARAMETERS["link.chunk"].value
"""A node of the default machine adds so many elements together: what it holds of a tensor at any time, per port."""
WAYS: int = PARAMETERS["node.ways"].value
"""A node of the default machine has at most so many ports."""


class Endpoint(ABC):
    """An `Endpoint` is what sits below a link: a system, or a node of the tree.

    A subclass is fed by `weights` and gives chunks of gradients by `gradients`.
    """

    @abstractmethod
    def weights(self, words: np.ndarray) -> None:
        """Take wavelets of the weight stream, an array of uint32."""

    @abstractmethod
    def gradients(self, count: int) -> Iterator[np.ndarray]:
        """Return an iterator over float32 arrays of at most `CHUNK` elements, `count` elements together."""


@dataclass
class LinkTraffic:
    """A `LinkTraffic` has what went over the link above an endpoint.

    Attributes
    ----------
    down_bytes, up_bytes : int
    """

    down_bytes: int = 0
    up_bytes: int = 0


@dataclass
class TreeNode(Endpoint):
    """A broadcast-reduce node has two ports or more, four on the default machine.

    Attributes
    ----------
    children : tuple[Endpoint, ...]
    traffic : list of LinkTraffic
        Of the link to each child.
    additions : int
        Additions of elements so far.
    held : int
        Most elements held at a time, over all ports.
    ways : int
        Most ports.
    """

    children: tuple[Endpoint, ...]
    traffic: list[LinkTraffic] = field(init=False)
    additions: int = 0
    held: int = 0
    ways: int = WAYS

    def __post_init__(self) -> None:
        if not 2 <= len(self.children) <= self.ways:
            raise ConfigError(f"a node has 2 to {self.ways} ports, not {len(self.children)}", where="swarm")
        self.traffic = [LinkTraffic() for _ in self.children]

    def weights(self, words: np.ndarray) -> None:
        for child, traffic in zip(self.children, self.traffic, strict=True):
            traffic.down_bytes += words.nbytes
            child.weights(words)

    def gradients(self, count: int) -> Iterator[np.ndarray]:
        streams = [child.gradients(count) for child in self.children]
        done = 0
        while done < count:
            total: Any = None  # its first child sets it
            for stream, traffic in zip(streams, self.traffic, strict=True):
                part = next(stream)
                traffic.up_bytes += part.nbytes
                if total is None:
                    total = part.copy()
                else:
                    total += part
                    self.additions += len(part)
                self.held = max(self.held, 2 * len(part))
            done += len(total)
            yield total


def groups(count: int, ways: int) -> list[int]:
    """Return how many children each node above `count` endpoints has: full ones, and what is left at the end."""
    full, rest = divmod(count, ways)
    return [ways] * full + ([rest] if rest else [])


def build(endpoints: Iterable[Endpoint], ways: int = WAYS) -> Endpoint:
    """Return the top of a tree over endpoints, in their order; a single endpoint is its own top.

    Parameters
    ----------
    endpoints : iterable of Endpoint
    ways : int
        Most ports of a node.

    Raises
    ------
    ConfigError
        There is none.
    """
    level = list(endpoints)
    if not level:
        raise ConfigError("a cluster without systems", where="swarm", hint="at least 1")
    while len(level) > 1:
        above, start = [], 0
        for size in groups(len(level), ways):
            part = level[start : start + size]
            above.append(part[0] if size == 1 else TreeNode(tuple(part), ways=ways))
            start += size
        level = above
    return level[0]


def levels(systems: int, ways: int = WAYS) -> list[int]:
    """Return how many nodes each of so many systems has above it; those of a group that is not full may have fewer."""
    if systems <= 1:
        return [0] * systems
    sizes = groups(systems, ways)
    above = levels(len(sizes), ways)
    return [above[k] + (size > 1) for k, size in enumerate(sizes) for _ in range(size)]


def depth(systems: int, ways: int = WAYS) -> int:
    """Return the levels of nodes above so many systems."""
    return max(levels(systems, ways), default=0)


def node_equivalents(systems: int, ways: int = WAYS) -> float:
    """Return how many nodes a plane needs: a 1:2 takes half of one, any other a whole one."""
    needed = 0.0
    while systems > 1:
        sizes = groups(systems, ways)
        needed += sum({1: 0.0, 2: 0.5}.get(size, 1.0) for size in sizes)
        systems = len(sizes)
    return needed


def nodes(systems: int, planes: int, ways: int = WAYS) -> int:
    """Return how many nodes the trees of all planes take: two 1:2 share a node, whatever their planes are."""
    return math.ceil(planes * node_equivalents(systems, ways))


def gather(endpoint: Endpoint, count: int) -> np.ndarray:
    """Return the gradients of an endpoint as one array."""
    return np.concatenate([*endpoint.gradients(count), np.empty(0, np.float32)])
