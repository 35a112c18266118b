"""The oracle of dropout draws as a PE does, in whole numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.dropout import level_of, ratio_of
from fabric.networks.graph.nodes import Node
from fabric.networks.streamed.oracle.mesh import MeshArithmetic

__all__ = ["dropped"]

Halves = NDArray[np.uint16]
WORD = 0xFFFF


def _right(bits: NDArray[np.int64], by: int) -> NDArray[np.int64]:
    """Return words of 16 bits turned right."""
    return bits >> by | bits << (16 - by) & WORD


def dropped(a: MeshArithmetic, node: Node, rows: Halves, keys: Mapping[str, Halves], first: int) -> Halves:
    """Return rows, shape (features, tokens), of which some are zero; `first` is the number of the first token."""
    feature = np.arange(len(rows), dtype=np.int64)[:, None] // node.size("together")
    one = first + np.arange(rows.shape[1], dtype=np.int64)[None] + feature & WORD
    two = feature
    for number, key in enumerate(keys[node.name].astype(np.int64)):
        one = (one if number == 0 else _right(one, 7) + two & WORD) ^ key
        two = _right(two, 14) ^ one
    factor = np.uint16(a.half.encode(1 / (1 - ratio_of(node))))
    larger = a.half.call("mul", rows, np.full_like(rows, factor))
    return np.where(one >> 1 >= level_of(node), larger, 0).astype(np.uint16)
