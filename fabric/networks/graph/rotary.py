"""Positions in a sequence are turned into queries and keys: rotary embedding.

A head's features are pairs of its first and second half.  Pair f of a token at place t of its sequence is turned by the
angle ``t / 10,000^(2 f / features of a head)``: ``a' = r(a cos - b sin)``, ``b' = r(b cos + a sin)``; gradients are
turned back.  Cosines and sines are f32 numbers, rounded once.

Source: RoFormer (J. Su et al., 2021), in the form of halves that LLaMA has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.nodes import Node
from fabric.networks.graph.operations import Floats, NetworkOperation, Values
from fabric.networks.graph.plain import PlainArithmetic
from wse_core.errors import ConfigError

__all__ = ["BASE", "RotaryEmbedding", "turns"]

BASE = 10_000.0
"""The angles of the pairs go from one per token down to nearly one over this."""


def turns(features: int, sequence: int) -> NDArray[np.float32]:
    """Return cosines and sines, shape (pairs, 2, tokens of a sequence), given the features of a head."""
    pairs = np.arange(features // 2, dtype=np.float64)
    angles = np.arange(sequence, dtype=np.float64) / BASE ** (2 * pairs[:, None] / features)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


class RotaryEmbedding(NetworkOperation):
    """This operation turns pairs of features by places in a sequence; its node has ``heads`` and ``sequence``."""

    name, meaning, headwise = "rotary", "y = pairs of x, turned by their place", True
    refused: ClassVar[Mapping[str, str]] = {"pipelined": "the pipelined mode has no places in a sequence"}

    def features(self, node: Node, given: int) -> int:
        heads = node.size("heads")
        if heads < 1 or given % (2 * heads):
            raise ConfigError(f"{node.name}: {given} features are no pairs in {heads} heads", where="network")
        return given

    def unit(self, node: Node, given: int) -> int:
        return given // node.size("heads")

    def plain(self, a: PlainArithmetic, node: Node, x: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        return _turned(a, node, x, 1), None

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Floats, Values]:
        return _turned(a, node, delta, -1), None


def _turned(a: PlainArithmetic, node: Node, rows: Floats, sign: int) -> Floats:
    heads, sequence = node.size("heads"), node.size("sequence")
    halves = rows.reshape(len(rows), heads, 2, -1)
    table = turns(rows.shape[1] // heads, sequence).astype(a.dtype)[..., np.arange(len(rows)) % sequence]
    cos, sin = table[:, 0].T[:, None], sign * table[:, 1].T[:, None]
    first, second = halves[:, :, 0], halves[:, :, 1]
    return a.round(np.stack([first * cos - second * sin, second * cos + first * sin], axis=2).reshape(rows.shape))
