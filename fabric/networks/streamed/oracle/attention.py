"""The oracle of attention takes every head for itself, sums in the order of features, keys and queries.

Query heads that share a head of keys and values add to its gradients one behind the other, in f32 until the last.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.attention import scale_of
from fabric.networks.graph.nodes import Node
from fabric.networks.streamed.oracle.mesh import MeshArithmetic

__all__ = ["back", "forward"]

Halves = NDArray[np.uint16]
Bits = NDArray[np.uint32]
LOWEST = 0xFF800000


def forward(a: MeshArithmetic, node: Node, x: tuple[Halves, ...], weights: None) -> tuple[Halves, tuple[Any, ...]]:
    """Return (result, what is kept by head of queries: q, k, v, result, logs; and how many heads of keys there are)."""
    size = len(x[0]) // node.size("heads")
    q, *own = (_by_head(node, rows, size) for rows in x)
    k, v = (np.repeat(rows, len(q) // len(rows), axis=0) for rows in own)  # each as often as query heads share it
    scores = a.times(_products(a, k, q), scale_of(q.shape[1]))
    if node.size("causal"):
        scores[..., _behind(node)] = LOWEST
    peak = np.full(scores.shape[:2] + scores.shape[3:], LOWEST, np.uint32)
    sums = np.zeros_like(peak)
    for key in range(scores.shape[2]):
        peak = a.larger(peak, scores[:, :, key])
    powers = a.functions.exp(a.sub(scores, np.broadcast_to(peak[:, :, None], scores.shape)))
    for key in range(scores.shape[2]):
        sums = a.add(sums, powers[:, :, key])
    share, logs = a.functions.reciprocal(sums), a.add(a.functions.log(sums), peak)
    mixed = a.mul(_mixed(a, v, a.narrow(powers)), np.broadcast_to(share[:, None], q.shape))
    result = a.narrow(mixed)
    return _by_feature(result), (q, k, v, result, logs, len(own[0]))


def back(a: MeshArithmetic, node: Node, delta: Halves, kept: tuple[Any, ...]) -> tuple[Halves, ...]:
    """Return the gradients of queries, keys and values."""
    q, k, v, o, logs, shared = kept
    do = _by_head(node, delta, q.shape[1])
    dot = np.zeros_like(logs)
    for feature in range(q.shape[1]):
        dot = a.add(dot, a.mul(a.widen(do[:, feature]), a.widen(o[:, feature])))
    wide = logs.shape[:2] + (logs.shape[2],) * 2
    scale = scale_of(q.shape[1])
    scores = a.times(_products(a, k, q), scale)
    p = a.functions.exp(a.sub(scores, np.broadcast_to(logs[:, :, None], wide)))
    below = a.sub(_products(a, v, do), np.broadcast_to(dot[:, :, None], wide))
    ds, shares = a.narrow(a.times(a.mul(p, below), scale)), a.narrow(p)
    if node.size("causal"):
        ds[..., _behind(node)] = 0
        shares[..., _behind(node)] = 0
    found = [_mixed(a, k, ds)]
    for rows, parts in ((q, ds), (do, shares)):
        rows, parts = (all_of.reshape(shared, -1, *all_of.shape[1:]) for all_of in (rows, parts.swapaxes(2, 3)))
        sums = _mixed(a, rows[:, 0], parts[:, 0])
        for head in range(1, rows.shape[1]):
            sums = _mixed(a, rows[:, head], parts[:, head], sums)
        found.append(sums)
    return tuple(_by_feature(a.narrow(rows)) for rows in found)


def _by_head(node: Node, rows: Halves, size: int) -> Halves:
    """Return rows of shape (features, tokens) as (heads, features of a head, sequences, tokens of a sequence)."""
    return rows.reshape(-1, size, rows.shape[1] // node.size("sequence"), node.size("sequence"))


def _by_feature(rows: Halves) -> Halves:
    return rows.reshape(rows.shape[0] * rows.shape[1], -1)


def _behind(node: Node) -> NDArray[np.bool_]:
    """Return which (key, query) pairs are not seen: keys behind the query."""
    return np.tri(node.size("sequence"), k=-1, dtype=bool)


def _products(a: MeshArithmetic, keys: Halves, queries: Halves) -> Bits:
    """Return the products of keys with queries in f32, (heads, sequences, keys, queries), over features in order."""
    heads, features, sequences, tokens = keys.shape
    found = np.zeros((heads, sequences, tokens, tokens), np.uint32)
    for feature in range(features):
        found = a.fma(keys[:, feature, :, :, None], queries[:, feature, :, None, :], found)
    return found


def _mixed(a: MeshArithmetic, rows: Halves, shares: Halves, sums: Bits | None = None) -> Bits:
    """Return the sums over t of rows times shares in f32, on top of `sums` or of 0.

    `shares` is (heads, sequences, t, what they are of).
    """
    found = np.zeros((*rows.shape[:3], shares.shape[3]), np.uint32) if sums is None else sums
    for t in range(shares.shape[2]):
        found = a.fma(rows[..., t, None], shares[:, None, :, t], found)
    return found
