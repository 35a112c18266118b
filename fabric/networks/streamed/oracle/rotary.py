"""The oracle of rotary embedding is here: pairs of features are turned in f32."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.nodes import Node
from fabric.networks.graph.rotary import base_of, turned_of, turns
from fabric.networks.streamed.oracle.mesh import MeshArithmetic

__all__ = ["turned"]

Halves = NDArray[np.uint16]


def turned(a: MeshArithmetic, node: Node, rows: Halves, back: bool = False) -> Halves:
    """Return rows, shape (features, tokens), turned by the places of their tokens, or turned back."""
    heads, sequence = node.size("heads"), node.size("sequence")
    by_head = rows.reshape(heads, -1, rows.shape[1])
    turning = turned_of(node, by_head.shape[1])
    halves = a.widen(by_head[:, :turning].reshape(heads, 2, -1, rows.shape[1]))
    places = np.arange(rows.shape[1]) % sequence
    table = turns(turning, sequence, base_of(node))[..., places].view(np.uint32)
    cos, sin = (np.broadcast_to(table[:, part], halves[:, 0].shape) for part in (0, 1))
    first, second = halves[:, 0], halves[:, 1]
    operations = (a.add, a.sub) if back else (a.sub, a.add)
    low = operations[0](a.mul(first, cos), a.mul(second, sin))
    high = operations[1](a.mul(second, cos), a.mul(first, sin))
    return np.concatenate([a.narrow(low), a.narrow(high), by_head[:, turning:]], axis=1).reshape(rows.shape)
