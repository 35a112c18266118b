"""Tokens see those of their own sequence, every head for itself: attention.

A token's queries, keys and values are rows of features, heads one after the other.  There may be fewer heads of keys
and values (``kv_heads``) than of queries: as many query heads, one behind the other, share each, which is grouped-query
attention.  With scale ``k = 1 / sqrt(features of a head)``, or of another number (``scaled``)::

    s_it = k (q_i . k_t), minus infinity for t behind i if causal         peak_i = max_t s_it
           and for t that is `window` tokens or more away from i;
           plus r(slope of the head) r(-|i - t|) if heads have `slopes`,
           or a learned number of the head for each i - t, or for each t and i (`biases`)
    p_it = exp(s_it - L_i), L_i = peak_i + log sum_t exp(s_it - peak_i)
    o_i = r(sum_t r(exp(s_it - peak_i)) v_t / sum_t exp(s_it - peak_i))

    D_i = do_i . o_i        dS_it = r(p_it (do_i . v_t - D_i) k)
    dq_i = r(sum_t dS_it k_t)        dk_t = r(sum_i dS_it q_i)        dv_t = r(sum_i r(p_it) do_i)

dk and dv are sums over the query heads that share a head too, head after head.  r rounds to 16 bits, all else is f32; L
is kept, and scores are calculated again on the way back, so nothing of the size of a sequence squared is.

Sources: A. Vaswani et al., "Attention is all you need", 2017; T. Dao et al., "FlashAttention", 2022 (L and D);
J. Ainslie et al., "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints", 2023;
I. Beltagy et al., "Longformer: The Long-Document Transformer", 2020 (windows); O. Press et al., "Train Short, Test
Long: Attention with Linear Biases Enables Input Length Extrapolation", 2022 (slopes); C. Raffel et al., "Exploring the
Limits of Transfer Learning with a Unified Text-to-Text Transformer", 2020 (biases by distance); Z. Liu et al., "Swin
Transformer", 2021 (by pair).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.nodes import Node, as_size, of_size
from fabric.networks.graph.operations import Floats, NetworkOperation, Values
from fabric.networks.graph.plain import PlainArithmetic
from fabric.networks.graph.tensors import NetworkTensor
from wse_core.errors import ConfigError

__all__ = [
    "BY_DISTANCE",
    "BY_PAIR",
    "FARTHEST",
    "Biases",
    "SelfAttention",
    "biases_of",
    "distances",
    "group_of",
    "kv_heads_of",
    "of_slopes",
    "scale_of",
    "seen_by",
    "slopes_of",
    "window_of",
]

BY_DISTANCE, BY_PAIR = 1, 2
"""Numbers that are added to scores are learned so."""
FARTHEST = 2**14
"""Sequences with windows have fewer tokens: twice as many are a number of 16 bits with a sign."""


def scale_of(node: Node, features: int) -> float:
    """Return what scores of a node are multiplied with, given the features of a head."""
    return 1 / math.sqrt(dict(node.sizes).get("scaled", features))


def kv_heads_of(node: Node) -> int:
    """Return the heads of keys and values of a node of attention: those of its queries if it has no ``kv_heads``."""
    return dict(node.sizes).get("kv_heads", node.size("heads"))


def group_of(node: Node) -> int:
    """Return how many query heads share a head of keys and values."""
    return node.size("heads") // kv_heads_of(node)


def window_of(node: Node) -> int:
    """Return how many tokens away a node's queries see no key any more; 0 if they see those of any distance."""
    window = dict(node.sizes).get("window", 0)
    return window if window < node.size("sequence") else 0


def of_slopes(slopes: Sequence[float]) -> dict[str, int]:
    """Return the sizes of a node whose heads have slopes; inverse of `slopes_of`."""
    return {f"slope{head}": as_size(slope) for head, slope in enumerate(slopes)}


def slopes_of(node: Node) -> NDArray[np.float32] | None:
    """Return by how much the scores of each query head fall per token of distance; None if they do not."""
    sizes = dict(node.sizes)
    found = [of_size(sizes[f"slope{head}"]) for head in range(node.size("heads")) if f"slope{head}" in sizes]
    return np.array(found, np.float32) if found else None


def distances(first: int, last: int) -> NDArray[np.float32]:
    """Return what slopes are multiplied with, of distances of queries behind keys from `first` to `last`."""
    return -abs(np.arange(first, last + 1)).astype(np.float32)


class Biases(NamedTuple):
    """A `Biases` says which learned numbers the scores of each head of a node get.

    Attributes
    ----------
    size : int
        Places of a table: one for each distance of a query behind a key, or for each key and query.
    first, numbers : int
        The first place that has one, of what queries see, and how many have.
    places : ndarray of int, shape (queries, keys)
        Of a score in the table.
    """

    size: int
    first: int
    numbers: int
    places: NDArray[np.int64]


def biases_of(node: Node) -> Biases | None:
    """Return which learned numbers a node adds to scores, by its ``biases``: 1 by distance, 2 by pair; None: none."""
    kind, tokens = dict(node.sizes).get("biases", 0), np.arange(node.size("sequence"))
    if kind == BY_PAIR:
        size = len(tokens) ** 2
        return Biases(size, 0, size, tokens[:, None] + tokens * len(tokens))
    if kind != BY_DISTANCE:
        return None
    places = tokens[:, None] - tokens + len(tokens) - 1
    seen = places[seen_by(node)]
    first = int(seen.min())
    return Biases(2 * len(tokens) - 1, first, int(seen.max()) + 1 - first, places)


def seen_by(node: Node) -> NDArray[np.bool_]:
    """Return which keys (columns) each query (row) of a node's sequence sees."""
    tokens = np.arange(node.size("sequence"))
    before = tokens[:, None] - tokens
    seen = before >= 0 if node.size("causal") else np.ones_like(before, bool)
    return seen & (abs(before) < (window_of(node) or len(tokens)))


class SelfAttention(NetworkOperation):
    """This operation takes queries, keys and values.

    Its node has ``heads``, ``sequence``, ``causal`` (0 or 1), if there are fewer heads of keys and values ``kv_heads``,
    if scores are divided by the root of another number than the features of a head, ``scaled``, if tokens see only
    those that are fewer tokens away than some number, ``window``, if scores fall with the distance, ``slope0`` and so
    on (`of_slopes`), and if a learned number is added to each, ``biases`` (`biases_of`).  Query heads lie in the column
    of the head of keys and values that they share.
    """

    name, meaning, operands, again, in_place = "attention", "y = softmax(q k) v", 3, True, False
    channelwise = headwise = True
    keeps = (("l", "unit", "f32"),)
    refused: ClassVar[Mapping[str, str]] = {"pipelined": "the pipelined mode has no tokens that see each other"}

    def features(self, node: Node, given: int) -> int:
        heads, sequence, shared = node.size("heads"), node.size("sequence"), kv_heads_of(node)
        if heads < 1 or given % heads:
            raise ConfigError(f"{node.name}: {given} features do not divide into {heads} heads", where="network")
        if shared < 1 or heads % shared:
            raise ConfigError(f"{node.name}: {heads} query heads do not share {shared} of keys", where="network")
        if sequence < 1 or node.size("causal") not in (0, 1):
            raise ConfigError(
                f"{node.name}: a sequence of {sequence} tokens, causal {node.size('causal')}", where="graph"
            )
        if window_of(node) < 0 or (window_of(node) and sequence >= FARTHEST):
            what = f"{node.name}: a window of {window_of(node)} in a sequence of {sequence} tokens"
            raise ConfigError(what, where="network", hint=f"from 1 on, in sequences shorter than {FARTHEST}; or none")
        slopes, said = slopes_of(node), sum(name.startswith("slope") for name in dict(node.sizes))
        right = slopes is None or (said == len(slopes) == heads and np.isfinite(slopes).all())
        if not right or (said and sequence >= FARTHEST):
            what = f"{node.name}: {said} slopes for {heads} heads in a sequence of {sequence} tokens"
            raise ConfigError(what, where="network", hint=f"a finite one per head, sequences shorter than {FARTHEST}")
        kind = dict(node.sizes).get("biases", 0)
        masked = node.size("causal") or window_of(node)
        if kind not in (0, BY_DISTANCE, BY_PAIR) or (kind and said) or (kind == BY_PAIR and masked):
            what = f"{node.name}: biases {kind} of scores, {said} slopes, {'' if masked else 'not '}masked"
            raise ConfigError(what, where="network", hint="1 by distance, 2 by pair of tokens that all see each other")
        return given

    def parameter(self, node: Node, given: int) -> NetworkTensor | None:
        biases = biases_of(node)
        count = 0 if biases is None else node.size("heads") * biases.numbers
        return NetworkTensor(f"{node.group}.shift", 1, "parameter", count) if count else None

    def takes(self, node: Node, given: int) -> tuple[int, ...]:
        shared = given // group_of(node)
        return given, shared, shared

    def unit(self, node: Node, given: int) -> int:
        return given // node.size("heads")

    def units(self, node: Node, given: int) -> tuple[int, int]:
        unit = given // kv_heads_of(node)
        return unit, unit

    def plain(self, a: PlainArithmetic, node: Node, x: Any, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        q, k, v = (_by_head(node, rows, heads) for rows, heads in zip(x, _heads(node), strict=True))
        k, v = (rows.repeat(group_of(node), axis=1) for rows in (k, v))
        scores = _scores(a, node, q, k, values)
        peak = scores.max(-1, keepdims=True)
        powers = np.exp(scores - peak)
        sums = powers.sum(-1, keepdims=True)
        result = _by_token(a.round(a.round(powers) @ v / sums))
        return result, (q, k, v, _by_head(node, result, node.size("heads")), peak + np.log(sums))

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Any, Values]:
        (q, k, v, o, logs), do = kept, _by_head(node, delta, node.size("heads"))
        p = np.exp(_scores(a, node, q, k, values) - logs)
        dot = (do * o).sum(-1, keepdims=True)
        slopes = p * (do @ v.swapaxes(-1, -2) - dot)
        ds = a.round(slopes * a.dtype.type(scale_of(node, q.shape[-1])))
        shared = ds.swapaxes(-1, -2) @ q, a.round(p).swapaxes(-1, -2) @ do
        found = ds @ k, *(_of_groups(node, rows) for rows in shared)
        return tuple(_by_token(a.round(rows)) for rows in found), _of_biases(node, slopes)


def _heads(node: Node) -> tuple[int, int, int]:
    """Return the heads of queries, keys and values."""
    return node.size("heads"), kv_heads_of(node), kv_heads_of(node)


def _of_groups(node: Node, rows: Floats) -> Floats:
    """Return sums over the query heads that share a head, given rows by head."""
    sequences, _, tokens, features = rows.shape
    return rows.reshape(sequences, kv_heads_of(node), group_of(node), tokens, features).sum(2)


def _by_head(node: Node, rows: Floats, heads: int) -> Floats:
    """Return rows of shape (tokens, features) as (sequences, heads, tokens of a sequence, features of a head)."""
    sequence = node.size("sequence")
    if len(rows) % sequence:
        raise ConfigError(f"{node.name}: {len(rows)} tokens are no whole sequences of {sequence}", where="batch")
    return rows.reshape(-1, sequence, heads, rows.shape[1] // heads).swapaxes(1, 2)


def _by_token(rows: Floats) -> Floats:
    sequences, heads, sequence, features = rows.shape
    return rows.swapaxes(1, 2).reshape(sequences * sequence, heads * features)


def _of_biases(node: Node, slopes: Floats) -> Values:
    """Return the gradients of what is added to scores, given those of scores; None if nothing is."""
    biases = biases_of(node)
    if biases is None:
        return None
    found = np.zeros((node.size("heads"), biases.size), slopes.dtype)
    for row, own in zip(found, slopes.sum(0), strict=True):
        np.add.at(row, biases.places, own)
    return found[:, biases.first : biases.first + biases.numbers].reshape(1, -1)


def _scores(a: PlainArithmetic, node: Node, q: Floats, k: Floats, values: Values = None) -> Floats:
    """Return the scores, (sequences, heads, queries, keys)."""
    scores = q @ k.swapaxes(-1, -2) * a.dtype.type(scale_of(node, q.shape[-1]))
    seen, slopes = seen_by(node), slopes_of(node)
    if slopes is not None:
        away = np.arange(len(seen))[:, None] - np.arange(len(seen)) + len(seen) - 1
        far = a.round(distances(1 - len(seen), len(seen) - 1).astype(a.dtype))[away]
        scores = scores + a.round(slopes.astype(a.dtype))[:, None, None] * far
    biases = biases_of(node)
    if biases is not None and values is not None:
        table = np.zeros((node.size("heads"), biases.size), values.dtype)
        table[:, biases.first : biases.first + biases.numbers] = values.reshape(len(table), -1)
        scores = scores + table[:, biases.places]
    return scores if seen.all() else np.where(seen, scores, a.dtype.type(-np.inf))
