"""Loss and gradients of a decoder are computed with numpy, many windows of text at once, to train the shipped model.

Weights are f32 in a dictionary by their names in the hub's files.  The forward part is the plain decoder
(`harness.models.plain`) for whole windows; a test holds the two together, and the gradients against differences.

Arrays: B windows of T tokens, N = B * T rows; queries are (B, kv head, queries of the group * T, head_size), so that a
group's heads are rows of one product with the keys that they share.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fabric.networks.inference.decoder import Decoder
from harness.models.rotary import cosines
from wse_core.errors import UnsupportedError

__all__ = ["loss_and_gradients"]

Array = np.ndarray[Any, np.dtype[Any]]
Weights = dict[str, Array]

LOWEST = np.float32(-1e30)
"""A masked key has this score: below every other, and finite, so that no difference of two is NaN."""


def _norm(x: Array, weight: Array, epsilon: float) -> tuple[Array, tuple[Array, Array, Array]]:
    """Return RMSNorm of each row and what its gradient needs."""
    inverse = 1 / np.sqrt(np.einsum("nd,nd->n", x, x) / np.float32(x.shape[1]) + np.float32(epsilon))[:, None]
    unit = x * inverse
    return unit * weight, (unit, inverse, weight)


def _norm_back(dy: Array, kept: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    """Return the gradients of a norm's input and weight."""
    unit, inverse, weight = kept
    scaled = dy * weight
    along = np.einsum("nd,nd->n", scaled, unit)[:, None] / np.float32(unit.shape[1])
    return inverse * (scaled - unit * along), np.einsum("nd,nd->d", dy, unit)


def _turn(z: Array, cos: Array, sin: Array) -> Array:
    """Return (..., T, head_size) turned by the angle of each token and pair; with -sin, turned back."""
    half = z.shape[-1] // 2
    a, b = z[..., :half], z[..., half:]
    return np.concatenate((a * cos - b * sin, b * cos + a * sin), axis=-1)


class _GradientLayer:
    """One layer: forward keeps what backward needs."""

    def __init__(self, decoder: Decoder, weights: Weights, number: int, windows: int, length: int) -> None:
        """Bind sizes and weights."""
        self.decoder = decoder
        self.weights = weights
        self.prefix = f"model.layers.{number}."
        self.windows, self.length = windows, length
        self.scale = np.float32(decoder.head_size**-0.5)

    def _w(self, name: str) -> Array:
        return self.weights[f"{self.prefix}{name}.weight"]

    def _split(self, rows: Array, heads: int) -> Array:
        """Return (N, heads * e) as (B, heads, T, e)."""
        return rows.reshape(self.windows, self.length, heads, -1).transpose(0, 2, 1, 3)

    def _join(self, parts: Array) -> Array:
        """Undo what `_split` does."""
        return parts.transpose(0, 2, 1, 3).reshape(self.windows * self.length, -1)

    def _grouped(self, heads: Array) -> Array:
        """Return (B, h, T, e) as (B, g, group * T, e)."""
        return heads.reshape(self.windows, self.decoder.kv_heads, -1, heads.shape[-1])

    def _ungrouped(self, rows: Array) -> Array:
        return rows.reshape(self.windows, self.decoder.heads, self.length, -1)

    def _project(self, y: Array, name: str) -> Array:
        """Return y W^T, with the bias if there is one."""
        out = y @ self._w(f"self_attn.{name}").T
        return out + self.weights[f"{self.prefix}self_attn.{name}.bias"] if self.decoder.qkv_bias else out

    def forward(self, x: Array, cos: Array, sin: Array, mask: Array) -> Array:
        """Return the layer's output, (N, hidden)."""
        decoder = self.decoder
        self.cos, self.sin = cos, sin
        self.y, self.first = _norm(x, self._w("input_layernorm"), decoder.epsilon)
        self.q = self._grouped(_turn(self._split(self._project(self.y, "q_proj"), decoder.heads), cos, sin))
        self.k = _turn(self._split(self._project(self.y, "k_proj"), decoder.kv_heads), cos, sin)
        self.v = self._split(self._project(self.y, "v_proj"), decoder.kv_heads)
        scores = self.q @ self.k.swapaxes(2, 3) * self.scale
        scores.reshape(*scores.shape[:2], decoder.group, self.length, self.length)[..., mask] = LOWEST
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        self.p = scores
        self.o = self._join(self._ungrouped(self.p @ self.v))
        x = x + self.o @ self._w("self_attn.o_proj").T
        self.z, self.second = _norm(x, self._w("post_attention_layernorm"), decoder.epsilon)
        self.gate = self.z @ self._w("mlp.gate_proj").T
        self.up = self.z @ self._w("mlp.up_proj").T
        self.sigmoid = 1 / (1 + np.exp(-self.gate))
        self.silu = self.gate * self.sigmoid
        self.inner = self.silu * self.up
        return x + self.inner @ self._w("mlp.down_proj").T

    def backward(self, dx: Array, out: Weights) -> Array:
        """Return the gradient of the layer's input; gradients of its weights go into `out`."""
        p = self.prefix
        out[f"{p}mlp.down_proj.weight"] = dx.T @ self.inner
        inner = dx @ self._w("mlp.down_proj")
        up = inner * self.silu
        gate = inner * self.up * (self.sigmoid + self.silu * (1 - self.sigmoid))
        out[f"{p}mlp.up_proj.weight"] = up.T @ self.z
        out[f"{p}mlp.gate_proj.weight"] = gate.T @ self.z
        z = up @ self._w("mlp.up_proj") + gate @ self._w("mlp.gate_proj")
        through, out[f"{p}post_attention_layernorm.weight"] = _norm_back(z, self.second)
        dx = dx + through
        out[f"{p}self_attn.o_proj.weight"] = dx.T @ self.o
        o = self._grouped(self._split(dx @ self._w("self_attn.o_proj"), self.decoder.heads))
        v = self.p.swapaxes(2, 3) @ o
        dp = o @ self.v.swapaxes(2, 3)
        dp -= np.einsum("bgij,bgij->bgi", dp, self.p)[..., None]
        dp *= self.p
        dp *= self.scale
        q = _turn(self._ungrouped(dp @ self.k), self.cos, -self.sin)
        k = _turn(dp.swapaxes(2, 3) @ self.q, self.cos, -self.sin)
        y = np.zeros_like(self.y)
        for name, gradient in (("q_proj", q), ("k_proj", k), ("v_proj", v)):
            rows = self._join(gradient)
            out[f"{p}self_attn.{name}.weight"] = rows.T @ self.y
            if self.decoder.qkv_bias:
                out[f"{p}self_attn.{name}.bias"] = rows.sum(axis=0)
            y += rows @ self._w(f"self_attn.{name}")
        through, out[f"{p}input_layernorm.weight"] = _norm_back(y, self.first)
        return dx + through


def loss_and_gradients(
    decoder: Decoder, weights: Weights, tokens: Array, gradients: bool = True
) -> tuple[float, Weights]:
    """Return the mean loss of predicting each next token, in nats, and its gradients.

    Parameters
    ----------
    decoder : Decoder
    weights : dict
        f32 arrays by their names in the hub's files.
    tokens : array
        (windows, length + 1) token ids; the first `length` are read, the last `length` predicted.
    gradients : bool
        Whether gradients are wanted; without, the dictionary is empty.

    Raises
    ------
    UnsupportedError
        A decoder with norms of queries and keys or behind the parts of a layer, layers that differ, caps, heads of
        which a part turns, biases of other products than queries, keys and values, or another activation than silu.
    """
    if decoder.head_norms or decoder.projection_norms:
        raise UnsupportedError("gradients of norms of heads or projections")
    if decoder.norms_behind:
        raise UnsupportedError("gradients of norms behind the parts of a layer")
    if decoder.o_bias or decoder.ffn_bias:
        raise UnsupportedError("gradients of biases of the output projection and the feed-forward part")
    if decoder.score_cap is not None or decoder.logit_cap is not None or decoder.rotary is not None:
        raise UnsupportedError("gradients of caps, and of heads of which a part turns")
    if decoder.different:
        raise UnsupportedError("gradients of layers that differ")
    if decoder.activation != "silu":
        raise UnsupportedError(f"gradients of {decoder.activation} in a gated part")
    windows, length = tokens.shape[0], tokens.shape[1] - 1
    ids, wanted = tokens[:, :-1].reshape(-1), tokens[:, 1:].reshape(-1)
    cos, sin = (each.astype(np.float32) for each in cosines(decoder, np.arange(length)))
    mask = np.triu(np.ones((length, length), bool), 1)
    embedding = weights["model.embed_tokens.weight"]
    head = embedding if decoder.tied else weights["lm_head.weight"]
    layers = [_GradientLayer(decoder, weights, n, windows, length) for n in range(decoder.layers)]
    x = embedding[ids]
    for layer in layers:
        x = layer.forward(x, cos, sin, mask)
    y, kept = _norm(x, weights["model.norm.weight"], decoder.epsilon)
    logits = y @ head.T
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    rows = np.arange(len(ids))
    loss = float(-np.log(np.maximum(logits[rows, wanted], np.float32(1e-30))).mean())
    out: Weights = {}
    if not gradients:
        return loss, out
    logits[rows, wanted] -= 1
    logits /= np.float32(len(ids))
    head_gradient = logits.T @ y
    dx, out["model.norm.weight"] = _norm_back(logits @ head, kept)
    for layer in reversed(layers):
        dx = layer.backward(dx, out)
    table = np.zeros_like(embedding)
    np.add.at(table, ids, dx)
    if decoder.tied:
        table += head_gradient
    else:
        out["lm_head.weight"] = head_gradient
    out["model.embed_tokens.weight"] = table
    return loss, out
