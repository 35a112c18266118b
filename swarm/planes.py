"""Planes are a system's links side by side, a tree of nodes on each.

A tensor goes out in chunks of some elements (`link.chunk`), chunk c on plane c mod P, words and gradients alike.  Every
element stays on one plane from the memory service to the systems and back, and all planes have the same tree, so an
element is added in the same order whatever the number of planes.

Towards the memory service the planes together are one `Endpoint`, and below them may hang systems or other planes.

Source: weight streaming white paper, section 6.4: 1.2 Tb/s of a system are twelve links of 100 Gb/s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np

from swarm.tree import CHUNK, WAYS, Endpoint, LinkTraffic, TreeNode, build
from wse_core.errors import ConfigError
from wse_core.params import PARAMETERS

__all__ = ["Planes", "share"]


def share(count: int, plane: int, planes: int, chunk: int = CHUNK) -> int:
    """Return how many of `count` elements go over a plane, a chunk at a time in turn."""
    whole, rest = divmod(count, chunk)
    turns, left = divmod(whole, planes)
    return (turns + (plane < left)) * chunk + (rest if plane == left else 0)


class _Port(Endpoint):
    """A port is the link of one system to one plane."""

    def __init__(self, system: _System) -> None:
        self.system = system
        self.words: deque[np.ndarray] = deque()

    def weights(self, words: np.ndarray) -> None:
        self.words.append(words)

    def gradients(self, count: int) -> Iterator[np.ndarray]:
        done = 0
        while done < count:
            part = self.system.next()
            done += len(part)
            yield part


class _System:
    """A system behind its ports: takes its words together again, gives its gradients out chunk by chunk."""

    def __init__(self, endpoint: Endpoint, planes: int) -> None:
        self.endpoint = endpoint
        self.ports = [_Port(self) for _ in range(planes)]
        self.stream: Iterator[np.ndarray] = iter(())

    def next(self) -> np.ndarray:
        """Return the next chunk; planes ask in turns, so it is theirs."""
        return next(self.stream)

    def deliver(self, chunks: int) -> None:
        """Give the words that came over the planes to the system, in order."""
        parts = [self.ports[k % len(self.ports)].words.popleft() for k in range(chunks)]
        self.endpoint.weights(parts[0] if chunks == 1 else np.concatenate(parts))


class Planes(Endpoint):
    """A `Planes` is the fabric of all planes over some systems.

    Parameters
    ----------
    endpoints : sequence of Endpoint
        Systems, or fabrics.
    planes : int
        Links of each.
    ways : int
        Most ports of a node.
    chunk : int
        Elements that go over a plane before the next one takes its turn.

    Attributes
    ----------
    tops : list of Endpoint
        Tree of each plane.
    """

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        planes: int = PARAMETERS["link.planes"].value,
        ways: int = WAYS,
        chunk: int = CHUNK,
    ) -> None:
        if planes < 1:
            raise ConfigError("a fabric without planes", where="swarm: planes", hint="at least 1")
        self.chunk = chunk
        self.systems = [_System(endpoint, planes) for endpoint in endpoints]
        self.tops = [build([system.ports[plane] for system in self.systems], ways) for plane in range(planes)]

    def weights(self, words: np.ndarray) -> None:
        chunks = -(-len(words) // self.chunk)
        for k in range(chunks):
            self.tops[k % len(self.tops)].weights(words[k * self.chunk : (k + 1) * self.chunk])
        for system in self.systems:
            system.deliver(chunks) if chunks else system.endpoint.weights(words)

    def gradients(self, count: int) -> Iterator[np.ndarray]:
        planes = len(self.tops)
        for system in self.systems:
            system.stream = _chunked(system.endpoint.gradients(count), self.chunk)
        streams = [top.gradients(share(count, k, planes, self.chunk)) for k, top in enumerate(self.tops)]
        for k in range(-(-count // self.chunk)):
            yield next(streams[k % planes])

    def bytes_of(self, plane: int) -> tuple[int, int]:
        """Return (down, up) of the busiest link of a plane below its top; (0, 0) without nodes."""

        def links(endpoint: Endpoint) -> Iterator[LinkTraffic]:
            if isinstance(endpoint, TreeNode):
                for child, traffic in zip(endpoint.children, endpoint.traffic, strict=True):
                    yield traffic
                    yield from links(child)

        found = list(links(self.tops[plane]))
        down, up = (max((getattr(t, name) for t in found), default=0) for name in ("down_bytes", "up_bytes"))
        return down, up


def _chunked(parts: Iterable[np.ndarray], chunk: int) -> Iterator[np.ndarray]:
    """Yield what comes in chunks, the last one shorter."""
    rest = np.empty(0, np.float32)
    for part in parts:
        rest = part if not len(rest) else np.concatenate([rest, part])
        while len(rest) >= chunk:
            yield rest[:chunk]
            rest = rest[chunk:]
    if len(rest):
        yield rest
