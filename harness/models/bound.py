"""Logits of the wafer should lie within a bound from plain numpy, which is reckoned beside the plain decoder.

A bound that lets all roundings conspire says nothing behind two layers: it grows by a factor of tens in each.  Here
roundings are taken as independent, so that their variances add, and an error is followed to first order: each number of
the plain decoder (float64) has a standard deviation of the error that PEs may have made so far, and `SIGMAS` of them
are the bound.

product     variances of errors through W^2; roundings of f32, one per term and per PE on the way of the sum
norm        the error of each feature, and that of the root of the mean square, common to a token, or to a head of it;
            where the mean is subtracted, its error and a rounding too
positions   cosines and sines of position t are off by `TURN` (t / 64 + 64) v
softmax     an error d of a score moves a mixed value by share * d * (value - mixed value)
gated part  slopes of activations, and their own roundings; a formula of the error function is off by `TAIL` |x|
8 bits      keys and values of a cache that has these are off by half of 1/64 of a power of two, at most the largest
            number of their head; such errors are evenly spread
rounding    u |y| + the smallest 16-bit step, wherever a product reads y

v = 2^-24 is the rounding of f32, u that of the 16-bit format.  Weights are those that PEs hold, so they are exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fabric.networks.inference.decoder import EMBEDDING, NORMS, POSITIONS, Decoder, LayerKind
from fabric.networks.inference.elementwise import FINE
from harness.models.plain import active_of, gelu_inner
from harness.models.rotary import cosines

__all__ = ["SIGMAS", "bounded_logits"]

Array = np.ndarray[Any, np.dtype[np.float64]]
HEAD = "head"
"""Name of the output matrix here, whichever tensor it is."""
Pair = tuple[Array, Array]
"""A `Pair` has numbers, and variances of their errors."""

SIGMAS = 6.0
V = 2.0**-24
TURN = 4.0
"""A turn by a constant angle has so many roundings, the constant's own included."""
FUNCTION = 2.0**-21
"""Relative error of exp, reciprocal and rsqrt: docs/numerics.md has 2.2 units in the last place."""
SLOPES = {"silu": 1.1, "gelu": 1.13, "gelu_erf": 1.13, "relu": 1.0}
"""Each activation has this largest slope."""
EXPONENT = {"silu": 0.0, "gelu": 4.0}
"""The argument of exp has so many roundings, each relative to it."""
TAIL = 2e-7
"""Gelu with the error function is off by this: docs/numerics.md, relative to the larger of abs(x) and 1."""


class _PartErrors:
    """A `_PartErrors` has the variances of the errors of a decoder's parts."""

    def __init__(
        self, decoder: Decoder, weights: Mapping[str, Any], dtype: str, places: int, int8: bool = False
    ) -> None:
        self.decoder, self.weights, self.places, self.int8 = decoder, weights, places, int8
        self.unit = {"f16": 2.0**-11, "cb16": 2.0**-10}[dtype]
        self.least = {"f16": 2.0**-25, "cb16": 2.0**-52}[dtype]

    def weight(self, name: str) -> Array:
        return np.asarray(self.weights[name], np.float64)

    def half(self, pair: Pair) -> Pair:
        """Return numbers rounded to 16 bits."""
        y, variance = pair
        return y, variance + (self.unit * y) ** 2 + self.least**2

    def product(self, name: str, pair: Pair) -> Pair:
        """Return x W^T, and a bias if there is one."""
        x, variance = pair
        own = (EMBEDDING if self.decoder.tied else "lm_head.weight") if name == HEAD else f"{name}.weight"
        matrix = self.weight(own).T
        square, roundings = matrix * matrix, matrix.shape[0] + self.places
        y, variance = x @ matrix, variance @ square + roundings * V**2 * ((x * x) @ square)
        head = name == HEAD and self.decoder.head_bias
        if not (head or self.decoder.has_bias(name.rpartition(".")[2])):
            return y, variance
        name = "lm_head" if head else name
        y = y + self.weight(f"{name}.bias")
        return y, variance + (V * y) ** 2

    def layer_norm(self, name: str, pair: Pair) -> Pair:
        """Return a norm of the residual stream, before it is rounded."""
        x, variance = pair
        if self.decoder.centred:
            n, mean = x.shape[-1], x.mean(axis=-1, keepdims=True)
            own = (n + self.places) * V**2 * (x * x).sum(axis=-1, keepdims=True) / n**2
            x = x - mean
            variance = variance + variance.sum(axis=-1, keepdims=True) / n**2 + own + (V * x) ** 2
        y, variance = self.norm(f"{name}.weight", (x, variance))
        if self.decoder.norm_bias:
            y = y + self.weight(f"{name}.bias")
            variance = variance + (V * y) ** 2
        return y, variance

    def norm(self, name: str, pair: Pair) -> Pair:
        """Return an RMSNorm along the last axis, before it is rounded."""
        (x, variance), weight = pair, self.weight(name)
        n = x.shape[-1]
        base = (x * x).mean(axis=-1, keepdims=True) + self.decoder.epsilon
        common = (x * x * variance).sum(axis=-1, keepdims=True) / (n * base) ** 2 + FUNCTION**2
        y = weight * x / np.sqrt(base)
        return y, weight**2 * variance / base + y * y * common

    def by_heads(self, name: str, pair: Pair, heads: int) -> Pair:
        """Return heads that are normalised one by one, side by side."""
        y, variance = self.norm(
            name, (pair[0].reshape(len(pair[0]), heads, -1), pair[1].reshape(len(pair[0]), heads, -1))
        )
        return y.reshape(len(y), -1), variance.reshape(len(y), -1)

    def turned(self, pair: Pair, heads: int, scale: float, kind: LayerKind) -> Pair:
        """Return heads turned by their positions, (heads, tokens, head_size), times a scale, rounded to 16 bits."""
        (z, variance), tokens = pair, len(pair[0])
        if not kind.turns:
            y, variance = self.half((z * scale, scale**2 * variance))
            y, variance = (each.reshape(tokens, heads, -1).swapaxes(0, 1) for each in (y, variance))
            return y, variance
        (a, b), (va, vb) = (np.moveaxis(found.reshape(tokens, heads, 2, -1), 2, 0) for found in (z, variance))
        cos, sin = (each[:, np.newaxis] for each in cosines(self.decoder, np.arange(tokens), kind.local))
        off = (
            max(self.decoder.amplitudes()) * TURN * V * (np.arange(tokens) / FINE + FINE + 2)[:, np.newaxis, np.newaxis]
        )
        more = (a * a + b * b) * off**2
        y = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
        found = [cos**2 * va + sin**2 * vb + more, cos**2 * vb + sin**2 * va + more]
        y, variance = self.half((y * scale, scale**2 * np.concatenate(found, axis=-1)))
        return y.swapaxes(0, 1), variance.swapaxes(0, 1)

    def kept(self, pair: Pair) -> Pair:
        """Return keys or values as the cache gives them back, (heads, tokens, head_size)."""
        y, variance = pair
        if not self.int8:
            return pair
        return y, variance + (np.abs(y).max(axis=-1, keepdims=True) / 64) ** 2 / 12

    def capped(self, pair: Pair, cap: float | None) -> Pair:
        """Return cap * tanh(x / cap), or x without a cap; tanh is a difference of numbers near one."""
        if cap is None:
            return pair
        y = np.tanh(pair[0] / cap)
        return cap * y, (1 - y * y) ** 2 * pair[1] + (cap * FUNCTION * (1 - y)) ** 2 + (2 * V * cap) ** 2

    def mixed(self, q: Pair, k: Pair, v: Pair, window: int | None) -> Pair:
        """Return what a head gives for each token: (tokens, head_size)."""
        (q0, vq), (k0, vk), (v0, vv) = q, k, v
        ago = np.arange(len(q0))[:, np.newaxis] - np.arange(len(q0))
        later = (ago < 0) | (ago >= (len(q0) if window is None else window))
        scores = q0 @ k0.T
        roundings = (q0.shape[1] + self.places) * V**2
        off = (q0 * q0) @ vk.T + vq @ (k0 * k0).T + roundings * (q0 * q0) @ (k0 * k0).T
        scores, off = self.capped((scores, off), self.decoder.score_cap)
        off = off + FUNCTION**2
        scores[later] = -np.inf
        share = np.exp(scores - scores.max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        y = share @ v0
        apart = (v0[np.newaxis] - y[:, np.newaxis]) ** 2  # (tokens, keys, head_size)
        variance = np.einsum("tk,tkf->tf", share**2 * off, apart) + share**2 @ vv
        return y, variance + (self.unit * share) ** 2 @ (v0 * v0) + self.least**2 * (~later @ (v0 * v0))

    def attention(self, layer: int, given: Pair) -> Pair:
        """Return what attention gives."""
        decoder, part = self.decoder, f"model.layers.{layer}.self_attn"
        found = {}
        for name in ("q", "k", "v"):
            found[name] = self.product(f"{part}.{name}_proj", given)
            if not decoder.qkv_bias:
                found[name] = found[name][0], found[name][1] + (V * found[name][0]) ** 2
        if decoder.head_norms:
            for name, count in (("q", decoder.heads), ("k", decoder.kv_heads)):
                found[name] = self.by_heads(f"{part}.{name}_norm.weight", found[name], count)
        if decoder.projection_norms:
            found |= {name: self.norm(f"{part}.{name}_norm.weight", found[name]) for name in ("q", "k")}
        kind = decoder.kind(layer)
        q = self.turned(found["q"], decoder.heads, decoder.head_size**-0.5, kind)
        k = self.kept(self.turned(found["k"], decoder.kv_heads, 1.0, kind))
        tokens = len(given[0])
        v0, vv = (each.reshape(tokens, decoder.kv_heads, -1).swapaxes(0, 1) for each in self.half(found["v"]))
        v0, vv = self.kept((v0, vv))
        heads = []
        for head in range(decoder.heads):
            j = head // decoder.group
            heads.append(self.mixed((q[0][head], q[1][head]), (k[0][j], k[1][j]), (v0[j], vv[j]), kind.window))
        y, variance = (np.concatenate([head[i] for head in heads], axis=1) for i in range(2))
        return self.product(f"{part}.o_proj", self.half((y, variance)))

    def feed_forward(self, layer: int, given: Pair) -> Pair:
        """Return what the feed-forward part gives."""
        part = f"model.layers.{layer}.mlp"
        if self.decoder.experts:
            return self.by_experts(layer, given)
        return self.one_ffn(part, given)

    def by_experts(self, layer: int, given: Pair) -> Pair:
        """Return what experts give; that the wafer chooses others, where logits are near each other, is not in it."""
        decoder, part = self.decoder, f"model.layers.{layer}.mlp"
        logits, v_logits = self.product(f"{part}.gate", given)
        y, variance = np.zeros_like(given[0]), np.zeros_like(given[0])
        for row in range(len(logits)):
            picked = np.argsort(-logits[row], kind="stable")[: decoder.chosen]
            among = picked if decoder.renormalised else np.arange(decoder.experts)
            powers = np.exp(logits[row] - logits[row].max())
            shares = powers / powers[among].sum()
            common = (shares[among] ** 2 * v_logits[row, among]).sum()
            for k in picked:
                own, v_own = self.one_ffn(f"{part}.experts.{k}", (given[0][row : row + 1], given[1][row : row + 1]))
                off = v_logits[row, k] + common + (3 * FUNCTION) ** 2
                y[row] += shares[k] * own[0]
                variance[row] += shares[k] ** 2 * (v_own[0] + off * own[0] ** 2)
        return y, variance

    def one_ffn(self, part: str, given: Pair) -> Pair:
        """Return what one feed-forward part gives."""
        (gate, v_gate), *rest = [self.product(f"{part}.{name}", given) for name in self.decoder.inward]
        y, variance = self.active(gate, v_gate)
        for up, v_up in rest:
            y, variance = y * up, y**2 * v_up + up**2 * variance + variance * v_up
        return self.product(f"{part}.down_proj", self.half((y, variance)))

    def active(self, gate: Array, v_gate: Array) -> Pair:
        """Return the activation of numbers."""
        kind = self.decoder.activation
        y, variance = active_of(kind, gate), SLOPES[kind] ** 2 * v_gate
        if kind == "gelu_erf":
            return y, variance + (TAIL * np.maximum(1, abs(gate))) ** 2
        if kind == "relu":
            return y, variance
        exponent = np.clip(-gate if kind == "silu" else -2 * gelu_inner(gate), -700.0, 700.0)
        roundings = (2 * FUNCTION) ** 2 + EXPONENT[kind] * (V * exponent / (1 + np.exp(-exponent))) ** 2
        return y, variance + roundings * y**2

    def layer(self, number: int, pair: Pair) -> Pair:
        """Return the residual stream behind a layer."""
        decoder = self.decoder
        names = iter([f"model.layers.{number}.{name}" for name in NORMS[decoder.norms]])

        def given(stream: Pair) -> Pair:
            return self.half(self.layer_norm(next(names), stream) if decoder.norms_before else stream)

        attended = given(pair)
        inner = attended if decoder.norms == "shared" else given(pair) if decoder.parallel else None

        def added(stream: Pair, more: Pair) -> Pair:
            return self.added(stream, self.layer_norm(next(names), more) if decoder.norms_behind else more)

        pair = added(pair, self.attention(number, attended))
        return added(pair, self.feed_forward(number, given(pair) if inner is None else inner))

    @staticmethod
    def added(pair: Pair, more: Pair) -> Pair:
        """Return the residual stream with what a part adds."""
        x = pair[0] + more[0]
        return x, pair[1] + more[1] + (V * x) ** 2


def bounded_logits(
    decoder: Decoder, weights: Mapping[str, Any], ids: Sequence[int], dtype: str, places: int, int8: bool = False
) -> tuple[Array, Array]:
    """Return the logits behind each token, and how far those of the wafer should lie from them at most.

    Parameters
    ----------
    decoder : Decoder
    weights : mapping
        By the hub's names, as the PEs hold them.
    ids : sequence of int
    dtype : {"f16", "cb16"}
        What products read.
    places : int
        PEs of the mesh along both axes: additions that sums over PEs may have more.
    int8 : bool
        Whether the cache has keys and values of 8 bits.

    Returns
    -------
    logits, bound : ndarray, (tokens, vocabulary)
    """
    parts = _PartErrors(decoder, weights, dtype, places, int8)
    x = parts.weight(EMBEDDING)[np.asarray(ids)]
    pair: Pair = x, np.zeros_like(x)
    if decoder.learned:
        pair = parts.half((x + parts.weight(POSITIONS)[: len(x)], np.zeros_like(x)))
    for layer in range(decoder.layers):
        pair = parts.layer(layer, pair)
    logits, variance = parts.product(HEAD, parts.half(parts.layer_norm("model.norm", pair)))
    logits, variance = parts.capped((logits, variance), decoder.logit_cap)
    return logits, SIGMAS * np.sqrt(variance)
