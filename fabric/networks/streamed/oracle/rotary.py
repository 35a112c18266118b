"""The oracle of rotary embedding is here: pairs of features are turned in f32."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.nodes import Node
from fabric.networks.graph.rotary import turns
from fabric.networks.streamed.oracle.mesh import MeshArithmetic

__all__ = ["turned"]

Halves = NDArray[np.uint16]


def turned(a: MeshArithmetic, node: Node, rows: Halves, back: bool = False) -> Halves:
    """Return rows, shape (features, tokens), turned by the places of their tokens, or turned back."""
    heads, sequence = node.size("heads"), node.size("sequence")
    halves = a.widen(rows.reshape(heads, 2, -1, rows.shape[1]))
    table = turns(len(rows) // heads, sequence)[..., np.arange(rows.shape[1]) % sequence].view(np.uint32)
    cos, sin = (np.broadcast_to(table[:, part], halves[:, 0].shape) for part in (0, 1))
    first, second = halves[:, 0], halves[:, 1]
    operations = (a.add, a.sub) if back else (a.sub, a.add)
    low = operations[0](a.mul(first, cos), a.mul(second, sin))
    high = operations[1](a.mul(second, cos), a.mul(first, sin))
    return a.narrow(np.stack([low, high], axis=1).reshape(rows.shape))
