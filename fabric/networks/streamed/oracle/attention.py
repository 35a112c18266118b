"""The oracle of attention takes every head for itself, sums in the order of features, keys and queries.

Query heads that share a head of keys and values add to its gradients one behind the other, in f32 until the last.  Of
heads that lie on several columns, sums over features begin in each column, and are joined from the one behind the
key's owner to the owner; sums over keys begin with those of each owner, and are joined from the first column on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.attention import biases_of, distances, scale_of, seen_by, slopes_of
from fabric.networks.graph.nodes import Node
from fabric.networks.streamed.oracle.mesh import MeshArithmetic

if TYPE_CHECKING:
    from fabric.networks.streamed.oracle.table import StreamedArithmetic
    from fabric.networks.streamed.parameters import StreamedParameter

__all__ = ["back", "forward"]

Halves = NDArray[np.uint16]
Bits = NDArray[np.uint32]
LOWEST = 0xFF800000


def forward(
    a: StreamedArithmetic, node: Node, x: tuple[Halves, ...], weights: StreamedParameter | None
) -> tuple[Halves, tuple[Any, ...]]:
    """Return (result, what is kept by head of queries: q, k, v, result, logs; and how many heads of keys there are)."""
    size = len(x[0]) // node.size("heads")
    q, *own = (_by_head(node, rows, size) for rows in x)
    k, v = (np.repeat(rows, len(q) // len(rows), axis=0) for rows in own)  # each as often as query heads share it
    parts = _parts(a, node, x[0], size)
    scores = _moved(a, node, a.times(_products(a, k, q, parts), scale_of(node, q.shape[1])), weights)
    scores[..., ~seen_by(node).T] = LOWEST
    peak = np.full(scores.shape[:2] + scores.shape[3:], LOWEST, np.uint32)
    for key in range(scores.shape[2]):
        peak = a.larger(peak, scores[:, :, key])
    powers = a.functions.exp(a.sub(scores, np.broadcast_to(peak[:, :, None], scores.shape)))
    owned = [np.zeros_like(peak) for _ in parts]
    for key in range(scores.shape[2]):
        owner = _owner(a, key, parts)
        owned[owner] = a.add(owned[owner], powers[:, :, key])
    sums = a.joined(owned, a.add)
    share, logs = a.functions.reciprocal(sums), a.add(a.functions.log(sums), peak)
    mixed = a.mul(_mixed(a, v, a.narrow(powers)), np.broadcast_to(share[:, None], q.shape))
    result = a.narrow(mixed)
    return _by_feature(result), (q, k, v, result, logs, len(own[0]), parts)


def back(
    a: StreamedArithmetic, node: Node, delta: Halves, kept: tuple[Any, ...], weights: StreamedParameter | None
) -> tuple[tuple[Halves, ...], Bits | None]:
    """Return the gradients of queries, keys and values, and of what is added to scores."""
    q, k, v, o, logs, shared, parts = kept
    do = _by_head(node, delta, q.shape[1])
    dots = [np.zeros_like(logs) for _ in parts]
    for column, mine in enumerate(parts):
        for feature in mine:
            product = a.mul(a.widen(do[:, feature]), a.widen(o[:, feature]))
            dots[column] = a.add(dots[column], product)
    dot = a.joined(dots, a.add)
    wide = logs.shape[:2] + (logs.shape[2],) * 2
    scale = scale_of(node, q.shape[1])
    scores = _moved(a, node, a.times(_products(a, k, q, parts), scale), weights)
    p = a.functions.exp(a.sub(scores, np.broadcast_to(logs[:, :, None], wide)))
    below = a.sub(_products(a, v, do, parts), np.broadcast_to(dot[:, :, None], wide))
    slopes = a.mul(p, below)
    ds, shares = a.narrow(a.times(slopes, scale)), a.narrow(p)
    for rows in (ds, shares):
        rows[..., ~seen_by(node).T] = 0
    found = [_mixed(a, k, ds)]
    for rows, parts in ((q, ds), (do, shares)):
        rows, parts = (all_of.reshape(shared, -1, *all_of.shape[1:]) for all_of in (rows, parts.swapaxes(2, 3)))
        sums = _mixed(a, rows[:, 0], parts[:, 0])
        for head in range(1, rows.shape[1]):
            sums = _mixed(a, rows[:, head], parts[:, head], sums)
        found.append(sums)
    return tuple(_by_feature(a.narrow(rows)) for rows in found), _of_biases(a, node, slopes)


def _by_head(node: Node, rows: Halves, size: int) -> Halves:
    """Return rows of shape (features, tokens) as (heads, features of a head, sequences, tokens of a sequence)."""
    return rows.reshape(-1, size, rows.shape[1] // node.size("sequence"), node.size("sequence"))


def _by_feature(rows: Halves) -> Halves:
    return rows.reshape(rows.shape[0] * rows.shape[1], -1)


def _parts(a: StreamedArithmetic, node: Node, x: Halves, size: int) -> list[NDArray[np.int64]]:
    """Return the features of a head that each of its columns has, in the order in which they lie there."""
    if a.head_columns == 1:
        return [np.arange(size)]
    columns = a.columns(a.network.tensors[node.inputs[0]])[: a.head_columns]
    return [mine[mine < size] for mine in columns]


def _owner(a: StreamedArithmetic, key: int, parts: Sequence[object]) -> int:
    """Return the column that owns a key: those of a PE's tokens in turns."""
    return key % a.tokens % len(parts)


def _products(a: StreamedArithmetic, keys: Halves, queries: Halves, parts: Sequence[NDArray[np.int64]]) -> Bits:
    """Return the products of keys with queries in f32, (heads, sequences, keys, queries), over features in order."""
    heads, _, sequences, tokens = keys.shape
    sums = []
    for mine in parts:
        found = np.zeros((heads, sequences, tokens, tokens), np.uint32)
        for feature in mine:
            found = a.fma(keys[:, feature, :, :, None], queries[:, feature, :, None, :], found)
        sums.append(found)
    whole = np.empty_like(sums[0])
    for key in range(tokens):
        order = [(_owner(a, key, parts) + 1 + column) % len(parts) for column in range(len(parts))]
        whole[:, :, key] = a.joined([sums[column][:, :, key] for column in order], a.add)
    return whole


def _moved(a: StreamedArithmetic, node: Node, scores: Bits, weights: StreamedParameter | None) -> Bits:
    """Return scores, (heads, sequences, keys, queries), that fall by slopes of heads, or have learned biases."""
    slopes, biases = slopes_of(node), biases_of(node)
    if biases is not None and weights is not None:
        table = np.zeros((len(scores), biases.size), np.uint16)
        table[:, biases.first : biases.first + biases.numbers] = np.asarray(weights.values).reshape(len(table), -1)
        return a.fma(table[:, biases.places.T][:, None], np.full((1,) * 4, a.one, np.uint16), scores)
    if slopes is None:
        return scores
    tokens = np.arange(scores.shape[-1])
    far = a.half.encode(distances(1 - len(tokens), len(tokens) - 1))[tokens - tokens[:, None] + len(tokens) - 1]
    return a.fma(far, a.half.encode(slopes)[:, None, None, None], scores)


def _of_biases(a: StreamedArithmetic, node: Node, slopes: Bits) -> Bits | None:
    """Return the sums of gradients of scores that have one learned number: sequences and keys of a PE, then south."""
    biases, (heads, sequences, tokens, _) = biases_of(node), slopes.shape
    if biases is None:
        return None
    by_pe = np.zeros((heads, a.groups, biases.size), np.uint32)
    by_sequence = slopes.reshape(heads, a.groups, sequences // a.groups, tokens, tokens)
    for sequence in range(by_sequence.shape[2]):
        for key in range(tokens):
            places = biases.places[:, key]
            by_pe[:, :, places] = a.add(by_pe[:, :, places], by_sequence[:, :, sequence, key])
    return a.south_of(by_pe[:, :, biases.first : biases.first + biases.numbers].swapaxes(1, 2)[..., None, None]).ravel()


def _mixed(a: MeshArithmetic, rows: Halves, shares: Halves, sums: Bits | None = None) -> Bits:
    """Return the sums over t of rows times shares in f32, on top of `sums` or of 0.

    `shares` is (heads, sequences, t, what they are of).
    """
    found = np.zeros((*rows.shape[:3], shares.shape[3]), np.uint32) if sums is None else sums
    for t in range(shares.shape[2]):
        found = a.fma(rows[..., t, None], shares[:, None, :, t], found)
    return found
