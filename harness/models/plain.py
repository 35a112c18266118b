"""A decoder in plain numpy is the yardstick of everything that PEs compute.

Formulas and their order are those of the usual implementation of the family; sums are numpy's own.  `dtype` is float32
unless float64 is asked for, in which the same code gives the yardstick of bounds.  Nothing is rounded to 16 bit
between: how far a machine's results may lie away is a bound that the caller derives.

A text is read token by token or many at once (`PlainDecoder.forward`); keys and values of earlier tokens are kept, so
reading in pieces gives the same as reading at once, within rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fabric.networks.inference.decoder import EMBEDDING, NORMS, POSITIONS, ROUTER, Decoder
from harness.models.lazy import RoundedTensors
from harness.models.rotary import cosines
from wse_core.errors import ConfigError

__all__ = ["PlainDecoder", "active_of", "gelu_inner"]

Array = np.ndarray[Any, np.dtype[Any]]

MOST = 1 << 26
"""Of the output matrix at most so many numbers are taken at a time."""


def gelu_inner(x: Array) -> Array:
    """Return what the tanh form of gelu takes the tanh of: x (1 + tanh(u)) / 2 is x / (1 + exp(-2 u))."""
    return x.dtype.type(math.sqrt(2 / math.pi)) * (x + x.dtype.type(0.044715) * x * x * x)


def active_of(kind: str, x: Array) -> Array:
    """Return an activation of numbers, one of `fabric.networks.inference.decoder.ACTIVATIONS`."""
    if kind == "relu":
        return np.maximum(x, x.dtype.type(0))
    if kind == "gelu_erf":
        share = [0.5 * math.erfc(-each / math.sqrt(2)) for each in x.astype(np.float64).ravel()]
        return np.asarray(x * np.reshape(share, x.shape), x.dtype)
    exponent = -x if kind == "silu" else -2 * gelu_inner(x)
    # exp of a large number overflows in f32; what it divides is zero to the last bit long before.
    return x / (1 + np.exp(np.minimum(exponent, x.dtype.type(80))))


class PlainDecoder:
    """A `PlainDecoder` is a decoder with its weights and the cache of what it has read.

    Parameters
    ----------
    decoder : Decoder
    weights : mapping
        Arrays by the hub's names.
    dtype : numpy type
        Of everything: float32 or float64.

    Attributes
    ----------
    length : int
        Tokens read so far.
    """

    def __init__(self, decoder: Decoder, weights: Mapping[str, Array], dtype: type[np.floating[Any]] = np.float32):
        self.decoder = decoder
        self.dtype = dtype
        # Those that are made when they are asked for are not kept.
        self.weights: Mapping[str, Any] = weights
        if not isinstance(weights, RoundedTensors):
            self.weights = {name: np.asarray(weight, dtype) for name, weight in weights.items()}
        self.reset()

    def weight(self, name: str) -> Array:
        """Return a tensor, in the type of everything."""
        return np.asarray(self.weights[name], self.dtype)

    def rows(self, name: str, numbers: Array) -> Array:
        """Return rows of a tensor."""
        return np.stack([np.asarray(self.weights[name][int(number)], self.dtype) for number in numbers])

    def reset(self) -> None:
        """Forget what was read."""
        empty = np.zeros((self.decoder.kv_heads, 0, self.decoder.head_size), self.dtype)
        self.keys = [empty] * self.decoder.layers
        self.values = [empty] * self.decoder.layers
        self.length = 0

    def forward(self, ids: Sequence[int]) -> Array:
        """Read tokens; return the logits behind each of them, (tokens, vocabulary).

        Raises
        ------
        ConfigError
            No token, a token outside the vocabulary, or more than the context holds.
        """
        decoder = self.decoder
        tokens = np.asarray(ids, np.int64)
        if tokens.ndim != 1 or not tokens.size:
            raise ConfigError("an empty prompt", hint="at least one token")
        wrong = tokens[(tokens < 0) | (tokens >= decoder.vocabulary)]
        if wrong.size:
            raise ConfigError(f"token {wrong[0]} is none of the {decoder.vocabulary}")
        if self.length + tokens.size > decoder.context:
            raise ConfigError(
                f"{self.length + tokens.size} tokens; the model's context holds {decoder.context}", where="prompt"
            )
        positions = np.arange(self.length, self.length + tokens.size)
        tables = [
            [each.astype(self.dtype) for each in cosines(decoder, positions, local)]
            for local in ((False, True) if decoder.is_local else (False,))
        ]
        x = self.rows(EMBEDDING, tokens)
        if decoder.learned:
            x = x + self.rows(POSITIONS, positions)
        for number in range(decoder.layers):
            names = iter([f"model.layers.{number}.{name}" for name in NORMS[decoder.norms]])
            cos, sin = tables[decoder.kind(number).local]
            y = self._before(x, names)
            z = y if decoder.norms == "shared" else self._before(x, names) if decoder.parallel else None
            x = x + self._behind(self._attention(number, y, cos, sin), names)
            x = x + self._behind(self._feed_forward(number, self._before(x, names) if z is None else z), names)
        self.length += tokens.size
        given, head = self._norm(x, "model.norm"), self.weights[EMBEDDING if decoder.tied else "lm_head.weight"]
        each = max(1, MOST // decoder.hidden)
        pieces = (np.asarray(head[k : k + each], self.dtype) for k in range(0, decoder.vocabulary, each))
        logits = np.concatenate([given @ piece.T for piece in pieces], axis=1)
        if decoder.head_bias:
            logits = logits + self.weight("lm_head.bias")
        return self._capped(logits, decoder.logit_cap)

    def generate(self, ids: Sequence[int], count: int) -> tuple[list[int], Array]:
        """Read a prompt and go on with the likeliest token each time; ties go to the lowest id.

        Returns
        -------
        tokens : list[int]
        logits : numpy.ndarray, (count, vocabulary)
            From which each was chosen.
        """
        rows = [self.forward(ids)[-1]]
        tokens = [int(np.argmax(rows[-1]))]
        while len(tokens) < count:
            rows.append(self.forward(tokens[-1:])[-1])
            tokens.append(int(np.argmax(rows[-1])))
        return tokens, np.stack(rows)

    def _norm(self, x: Array, name: str) -> Array:
        """Return the norm of a residual stream along the last axis: RMSNorm, or LayerNorm."""
        if not self.decoder.centred:
            return self._rms(x, name)
        y = self._rms(x - x.mean(axis=-1, keepdims=True), name)
        return y + self.weight(f"{name}.bias") if self.decoder.norm_bias else y

    def _rms(self, x: Array, name: str) -> Array:
        """Return RMSNorm along the last axis."""
        square = (x * x).mean(axis=-1, keepdims=True)
        found: Array = self.weight(f"{name}.weight") * (x / np.sqrt(square + self.dtype(self.decoder.epsilon)))
        return found

    def _capped(self, x: Array, cap: float | None) -> Array:
        """Return cap * tanh(x / cap), or x without a cap."""
        return x if cap is None else self.dtype(cap) * np.tanh(x / self.dtype(cap))

    def _before(self, x: Array, names: Iterator[str]) -> Array:
        """Return what a part of a layer reads; `names`: of the norms that are left in it."""
        return self._norm(x, next(names)) if self.decoder.norms_before else x

    def _behind(self, x: Array, names: Iterator[str]) -> Array:
        """Return what a part of a layer adds."""
        return self._norm(x, next(names)) if self.decoder.norms_behind else x

    def _heads(self, number: int, y: Array, name: str, heads: int) -> Array:
        """Return a projection of each row, by heads: (heads, tokens, head_size); queries and keys may be normalised.

        `name` is "q", "k" or "v".
        """
        part = f"model.layers.{number}.self_attn.{name}"
        out = self._product(y, f"{part}_proj")
        if self.decoder.projection_norms and name != "v":
            out = self._rms(out, f"{part}_norm")
        out = out.reshape(len(y), heads, -1).transpose(1, 0, 2)
        return self._rms(out, f"{part}_norm") if self.decoder.head_norms and name != "v" else out

    def _product(self, y: Array, name: str) -> Array:
        """Return a product of each row, with its bias if it has one."""
        out: Array = y @ self.weight(f"{name}.weight").T
        return out + self.weight(f"{name}.bias") if self.decoder.has_bias(name.rpartition(".")[2]) else out

    @staticmethod
    def _turned(z: Array, cos: Array, sin: Array) -> Array:
        """Return heads turned by their positions: feature i with feature i + head_size / 2."""
        half = z.shape[-1] // 2
        a, b = z[..., :half], z[..., half:]
        return np.concatenate((a * cos - b * sin, b * cos + a * sin), axis=-1)

    def _attention(self, number: int, y: Array, cos: Array, sin: Array) -> Array:
        """Return what attention gives for each row; keys and values join the cache."""
        decoder, tokens = self.decoder, len(y)
        q, k = self._heads(number, y, "q", decoder.heads), self._heads(number, y, "k", decoder.kv_heads)
        if decoder.kind(number).turns:
            q, k = self._turned(q, cos, sin), self._turned(k, cos, sin)
        v = self._heads(number, y, "v", decoder.kv_heads)
        k = self.keys[number] = np.concatenate((self.keys[number], k), axis=1)
        v = self.values[number] = np.concatenate((self.values[number], v), axis=1)
        ago = np.arange(self.length, self.length + tokens)[:, None] - np.arange(k.shape[1])
        window = decoder.kind(number).window
        unseen = (ago < 0) | (ago >= (decoder.context if window is None else window))
        out = []
        for head in range(decoder.heads):
            shared = head // decoder.group
            scores = q[head] @ k[shared].T / np.sqrt(self.dtype(decoder.head_size))
            scores = self._capped(scores, decoder.score_cap)
            scores[unseen] = -np.inf
            weight = np.exp(scores - scores.max(axis=1, keepdims=True))
            out.append(weight / weight.sum(axis=1, keepdims=True) @ v[shared])
        return self._product(np.concatenate(out, axis=1), f"model.layers.{number}.self_attn.o_proj")

    def _feed_forward(self, number: int, z: Array) -> Array:
        """Return what the feed-forward part gives for each row."""
        part, decoder = f"model.layers.{number}.mlp", self.decoder
        if not decoder.experts:
            return self._ffn(part, z)
        out, logits = np.zeros_like(z), z @ self.weight(f"model.layers.{number}.{ROUTER}").T
        for row, own in enumerate(logits):
            picked = np.argsort(-own, kind="stable")[: decoder.chosen]
            powers = np.exp(own - own.max())
            shares = powers[picked] / (powers[picked] if decoder.renormalised else powers).sum()
            for k, share in zip(picked, shares, strict=True):
                out[row] += share * self._ffn(f"{part}.experts.{k}", z[row])
        return out

    def _ffn(self, part: str, z: Array) -> Array:
        """Return what a feed-forward part gives, of one row or of several."""
        decoder = self.decoder
        gate, *up = [self._product(z, f"{part}.{name}") for name in decoder.inward]
        active = active_of(decoder.activation, gate)
        return self._product(active * up[0] if up else active, f"{part}.down_proj")
