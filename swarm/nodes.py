"""Which nodes a tree takes: a node of the fabric does one 1:4 broadcast-reduce, or two 1:2 side by side.

An operation with three ports takes a whole node as well; two with two ports share one, whatever trees of whatever
planes they belong to, since a node's links are of any plane.

Source: weight streaming white paper, section 6.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from swarm.tree import Endpoint, Node

__all__ = ["NodeHardware", "operations", "pack"]


@dataclass(frozen=True)
class NodeHardware:
    """A node and what it is configured for.

    Attributes
    ----------
    operations : tuple[Node, ...]
        One with three or four ports, or one or two with two.
    """

    operations: tuple[Node, ...]

    @property
    def mode(self) -> str:
        """``1:4`` or ``2 x 1:2``."""
        return "1:4" if len(self.operations[0].children) > 2 else "2 x 1:2"

    @property
    def links(self) -> int:
        """Network interfaces in use: the ports of the operations, and one upwards for each."""
        return sum(1 + len(operation.children) for operation in self.operations)


def operations(top: Endpoint) -> list[Node]:
    """Return all broadcast-reduce operations of a tree, from the top; none for a single system."""
    if not isinstance(top, Node):
        return []
    return [top, *(found for child in top.children for found in operations(child))]


def pack(tops: Iterable[Endpoint]) -> list[NodeHardware]:
    """Return the fewest `NodeHardware` for some trees.

    Parameters
    ----------
    tops : iterable of Endpoint
        Tops of the trees, one per plane for example.
    """
    found = [operation for top in tops for operation in operations(top)]
    small = [operation for operation in found if len(operation.children) == 2]
    whole = [NodeHardware((operation,)) for operation in found if len(operation.children) > 2]
    return [*whole, *(NodeHardware(tuple(small[k : k + 2])) for k in range(0, len(small), 2))]
