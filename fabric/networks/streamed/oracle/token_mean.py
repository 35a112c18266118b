"""The oracle of means over tokens adds the tokens of a PE in order, then the rows of PEs of the sequence, in order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.nodes import Node
from fabric.networks.streamed.oracle.mesh import MeshArithmetic

__all__ = ["averaged"]

Halves = NDArray[np.uint16]


def averaged(a: MeshArithmetic, node: Node, rows: Halves) -> Halves:
    """Return the mean over the tokens of each sequence, for each of them; rows have shape (features, tokens)."""
    sequence = node.size("sequence")
    own = min(sequence, a.tokens)
    wide = a.widen(rows).reshape(len(rows), -1, sequence // own, own)
    parts = np.zeros(wide.shape[:-1], np.uint32)
    for token in range(own):
        parts = a.add(wide[..., token], parts)
    total = np.zeros(parts.shape[:-1], np.uint32)
    for row in range(parts.shape[-1]):
        total = a.add(total, parts[..., row])
    means = a.narrow(a.times(total, 1 / sequence))
    return np.repeat(means, sequence, axis=1)
