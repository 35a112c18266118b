"""Positions in a sequence are turned into queries and keys: rotary embedding.

The features of a head, or the first ``turned`` of them, are pairs of their first and second half.  Pair f of a token at
place t of its sequence is turned by the angle ``t / base^(2 f / features that are turned)``, with a base of 10,000 if
the node has none: ``a' = r(a cos - b sin)``, ``b' = r(b cos + a sin)``; gradients are turned back.  Cosines and sines
are f32 numbers, rounded once.

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

__all__ = ["BASE", "RotaryEmbedding", "base_of", "turned_of", "turns"]

BASE = 10_000
"""The angles of the pairs go from one per token down to nearly one over this."""


def base_of(node: Node) -> int:
    """Return the base of a node's angles."""
    return dict(node.sizes).get("base", BASE)


def turned_of(node: Node, features: int) -> int:
    """Return how many features of a head a node turns, given how many it has."""
    return dict(node.sizes).get("turned", features)


def turns(features: int, sequence: int, base: int = BASE) -> NDArray[np.float32]:
    """Return cosines and sines, shape (pairs, 2, tokens of a sequence), of so many features of a head."""
    pairs = np.arange(features // 2, dtype=np.float64)
    angles = np.arange(sequence, dtype=np.float64) / float(base) ** (2 * pairs[:, None] / features)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


class RotaryEmbedding(NetworkOperation):
    """Rotary embedding has pairs of features that are turned by their place in a sequence.

    Its node has ``heads`` and ``sequence``, and perhaps ``base`` and ``turned``.
    """

    name, meaning, headwise = "rotary", "y = pairs of x, turned by their place", True
    refused: ClassVar[Mapping[str, str]] = {"pipelined": "the pipelined mode has no places in a sequence"}

    def features(self, node: Node, given: int) -> int:
        heads = node.size("heads")
        if heads < 1 or given % (2 * heads):
            raise ConfigError(f"{node.name}: {given} features are no pairs in {heads} heads", where="network")
        turned = turned_of(node, given // heads)
        if not 2 <= turned <= given // heads or turned % 2:
            what = f"{node.name}: of {given // heads} features of a head {turned} are turned, in pairs"
            raise ConfigError(what, where="network")
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
    by_head = rows.reshape(len(rows), heads, -1)
    turned = turned_of(node, by_head.shape[2])
    halves = by_head[..., :turned].reshape(len(rows), heads, 2, -1)
    table = turns(turned, sequence, base_of(node)).astype(a.dtype)[..., np.arange(len(rows)) % sequence]
    cos, sin = table[:, 0].T[:, None], sign * table[:, 1].T[:, None]
    first, second = halves[:, :, 0], halves[:, :, 1]
    pairs = [a.round(first * cos - second * sin), a.round(second * cos + first * sin)]
    return np.concatenate([*pairs, by_head[..., turned:]], axis=2).reshape(rows.shape)
