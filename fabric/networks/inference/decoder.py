"""A decoder is described by the sizes and constants of a language model, and by how much it holds.

A layer is x = x + O(attention(norm(x))) and then x = x + down(act(gate(norm(x))) * up(norm(x))), with RMSNorm, rotary
positions in half layout (feature i of a head turns with feature i + head_size / 2; of some only the first pairs) and
grouped query heads: query head j reads the keys and values of head j // (heads / kv_heads).  The activation act is
silu, gelu in its tanh form or with the error function, or relu.  Behind the last layer stand a norm and the output
matrix, which is the embedding itself where the two are tied.

That is a LLaMA; older models have other parts.  A norm may be a LayerNorm, (x - mean) * rsqrt(variance + eps) * weight
+ bias, with the bias or without.  The feed-forward part may be down(act(up(...))), without a gate.  Both parts of a
layer may read the residual stream as it is when the layer begins, so that x = x + attention(norm(x)) + ffn(norm(x)),
with norms *beside* each other or one that they share.  Positions may be *learned*: rows of a table, which are added to
the embedding; then a text is no longer than the table.

There may be many feed-forward parts, *experts*: a router, a product of its own, gives each a logit, and a token is
given to some with the largest ones, whose results are added with shares by softmax.

Layers of one decoder may differ (`LayerKind`): some turn nothing, so that their queries and keys do not know positions,
some turn by a base of their own, and some see the last tokens only, as many as a *window* holds.  Scores and logits may
have a *cap*: they are cap * tanh(x / cap).

Norms stand *before* the two parts of a layer, *behind* them, so that x = x + norm(attention(x)), or at both places.

With *norms of heads* each query head and each key head has an RMSNorm of its own features before it is turned: one
weight per feature of a head for all query heads, and one for all key heads.  With *norms of projections* all features
of the queries have one RMSNorm together, and those of the keys another one, with a weight each.

Matrices are kept as in the files of the hub, [outputs, inputs]; a product is y = x W^T.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fabric.networks.inference.rope import Scaling
from wse_core.errors import ConfigError
from wse_core.errors.values import shown

__all__ = [
    "ACTIVATIONS",
    "BIASED",
    "EMBEDDING",
    "FFN",
    "HEAD_NORMS",
    "MATRICES",
    "MOST_DIFFERENT",
    "NORMS",
    "POSITIONS",
    "ROUTER",
    "Decoder",
    "LayerKind",
    "period_of",
]

MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The products of a layer, in the order in which they are done; a part without a gate has no ``gate_proj``."""

FFN = ("gate_proj", "up_proj", "down_proj")
"""A feed-forward part has these products."""

ROUTER = "mlp.gate.weight"
"""The matrix of a layer's router, [experts, hidden], has this name."""

BIASED = {
    "qkv_bias": ("q_proj", "k_proj", "v_proj"),
    "o_bias": ("o_proj",),
    "ffn_bias": ("gate_proj", "up_proj", "down_proj"),
}
"""Products that have a bias together are listed by the field of a decoder that says so."""

HEAD_NORMS = ("q_norm", "k_norm")
"""Norms of heads have these names, by the products whose results they take."""

NORMS = {
    "before": ("input_layernorm", "post_attention_layernorm"),
    "behind": ("post_attention_layernorm", "post_feedforward_layernorm"),
    "both": ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"),
    "beside": ("input_layernorm", "post_attention_layernorm"),
    "shared": ("input_layernorm",),
}
"""The norms of a layer have these names in the hub's files, by where they stand, in the order in which they are done.

Of norms *beside* each other the first is that of attention, the second that of the feed-forward part.
"""

ACTIVATIONS = ("silu", "gelu", "gelu_erf", "relu")
"""Activations of the feed-forward part; gelu is its tanh form."""

EMBEDDING, POSITIONS = "model.embed_tokens.weight", "model.embed_positions.weight"
"""The table of tokens and that of learned positions have these names."""

MOST = 1 << 31
"""Every size is below it: a wrong file must not make the planner reckon for minutes or overflow."""

LEAST_CAP = 1e-30
"""Least cap of scores and logits, and one over the largest: f32 has what is reckoned with them."""

MOST_DIFFERENT = 1 << 16
"""Most layers of a decoder whose layers differ: each is kept by itself."""


def period_of(numbers: Sequence[int]) -> int:
    """Return the shortest period of a list."""
    count = len(numbers)
    return next(p for p in range(1, count + 1) if all(numbers[k] == numbers[k % p] for k in range(count)))


@dataclass(frozen=True)
class LayerKind:
    """`LayerKind` has what layers of one decoder may differ in.

    Attributes
    ----------
    turns : bool
        Whether queries and keys turn by their positions.
    window : int or None
        Tokens that a token sees, itself included: the last ones; None: all before it.
    local : bool
        Whether positions turn by `Decoder.local_base`, unscaled.
    """

    turns: bool = True
    window: int | None = None
    local: bool = False


@dataclass(frozen=True)
class Decoder:
    """A `Decoder` has the sizes and constants of a decoder-only language model.

    Attributes
    ----------
    hidden : int
        Features between layers.
    layers : int
        0: the part of a model that has the last norm and the output matrix only.
    heads, kv_heads : int
        Query heads, and heads of keys and values; the second divides the first.
    head_size : int
        Features of a head, even; heads * head_size may differ from `hidden`.
    ffn : int
        Width inside the feed-forward part.
    vocabulary : int
        Rows of the embedding.
    context : int
        Most tokens of prompt and answer together.
    epsilon : float
        Added to the mean square in each norm.
    rope_base : float
        Of the angles: pair i of a head turns by position * rope_base ** (-2 i / head_size).
    scaling : Scaling or None
        Of the angles, for texts longer than those that the model was first trained for.
    qkv_bias : bool
        Whether queries, keys and values have a bias.
    tied : bool
        Whether the output matrix is the embedding.
    head_norms : bool
        Whether the heads of queries and keys are normalised before they turn.
    activation : {"silu", "gelu", "gelu_erf", "relu"}
        Of the feed-forward part.
    o_bias, ffn_bias : bool
        Whether the output projection, and all products of the feed-forward part, have a bias.
    norms : {"before", "behind", "both", "beside", "shared"}
        Where the norms of a layer stand; beside each other, or one of both parts, they make a layer's parts parallel.
    rotary : int or None
        Features of a head that turn, even, if not all do: the first half of them turns with as many of the second half.
    score_cap, logit_cap : float or None
        Scores of attention, and logits, are cap * tanh(x / cap).
    local_base : float or None
        Base of the angles of layers whose positions are local.
    projection_norms : bool
        Whether the queries of all heads are normalised together before they turn, and so the keys.
    different : tuple of LayerKind
        All layers, if they are not all as `LayerKind` is by itself; else empty.
    centred, norm_bias : bool
        Whether norms subtract the mean, as LayerNorm does, and whether they have a bias too; not norms of heads.
    gated : bool
        Whether the feed-forward part has a gate.
    learned : bool
        Whether positions are rows of a table, as many as `context`, which are added to the embedding.
    head_bias : bool
        Whether the output matrix has a bias.
    experts, chosen : int
        Feed-forward parts of a layer, of `ffn` features each, and how many of them a token is given to, those with the
        largest logits of a router; 0: there is one, and no router.
    renormalised : bool
        Whether the shares of the chosen experts add up to one; else they are those of a softmax over all.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    vocabulary: int
    context: int
    epsilon: float = 1e-6
    rope_base: float = 10_000.0
    qkv_bias: bool = False
    tied: bool = False
    scaling: Scaling | None = None
    head_norms: bool = False
    activation: str = "silu"
    o_bias: bool = False
    ffn_bias: bool = False
    norms: str = "before"
    projection_norms: bool = False
    rotary: int | None = None
    score_cap: float | None = None
    logit_cap: float | None = None
    local_base: float | None = None
    different: tuple[LayerKind, ...] = ()
    centred: bool = False
    norm_bias: bool = False
    gated: bool = True
    learned: bool = False
    head_bias: bool = False
    experts: int = 0
    chosen: int = 0
    renormalised: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and (isinstance(value, bool) or not isinstance(value, int)):
                raise self._refused(f"{field.name} is {shown(value)}, not a whole number")
            least = 0 if field.name in ("layers", "experts", "chosen") else 1
            if field.type == "int" and not least <= value < MOST:
                raise self._refused(f"{field.name} is {shown(value)}; it is at least {least} and below {MOST:,}")
            if field.type == "bool" and not isinstance(value, bool):
                raise self._refused(f"{field.name} is {shown(value)}, neither true nor false")
        for name in ("epsilon", "rope_base", "score_cap", "logit_cap", "local_base"):
            value = getattr(self, name)
            if value is None and name not in ("epsilon", "rope_base"):
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self._refused(f"{name} is {shown(value)}, not a number")
            if not (math.isfinite(value) and value > 0):
                raise self._refused(f"{name} is {value}; it is a positive number")
            if name.endswith("_cap") and not LEAST_CAP <= value <= 1 / LEAST_CAP:
                raise self._refused(f"{name} is {value}; it is from {LEAST_CAP} to {1 / LEAST_CAP:.0e}")
        if self.activation not in ACTIVATIONS:
            raise self._refused(f"activation is {shown(self.activation)}; it is {' or '.join(ACTIVATIONS)}")
        if self.norms not in NORMS:
            raise self._refused(f"norms is {shown(self.norms)}; it is {', '.join(NORMS)}")
        if not 0 <= self.chosen <= self.experts or (self.experts > 0) is not (self.chosen > 0):
            raise self._refused(f"{self.chosen} of {self.experts} experts are chosen")
        if self.experts and (self.ffn_bias or self.parallel):
            raise self._refused("experts with biases, or beside attention")
        if self.norm_bias and not self.centred:
            raise self._refused("norms with a bias that do not subtract the mean")
        if self.centred and self.norms_behind:
            raise self._refused("LayerNorm behind the parts of a layer; it stands before them")
        if self.head_norms and self.projection_norms:
            raise self._refused("norms of heads and of projections: queries have the one or the other")
        if self.scaling is not None and not isinstance(self.scaling, Scaling):
            raise self._refused(f"scaling is {shown(self.scaling)}, no Scaling")
        if self.scaling is not None and self.scaling.kind == "yarn" and self.rope_base <= 1:
            raise self._refused(f"rope_base is {self.rope_base}; pairs that are mixed by yarn want more than 1")
        if self.rotary is not None and not (isinstance(self.rotary, int) and 2 <= self.rotary <= self.head_size):
            raise self._refused(f"{shown(self.rotary)} features of {self.head_size} turn; it is at least 2")
        if self.rotary is not None and self.rotary % 2:
            raise self._refused(f"{self.rotary} features of a head cannot be turned in pairs")
        if self.rotary == self.head_size:
            object.__setattr__(self, "rotary", None)
        if self.scaling is not None and self.scaling.pairs and len(self.scaling.pairs) != self.turned_pairs:
            raise self._refused(f"{len(self.scaling.pairs)} factors for the pairs of {2 * self.turned_pairs} features")
        if self.heads % self.kv_heads:
            raise self._refused(
                f"{self.heads} query heads do not share {self.kv_heads} heads of keys and values evenly"
            )
        if self.head_size % 2:
            raise self._refused(f"a head of {self.head_size} features cannot be turned in pairs")
        if self.different and len(self.different) != self.layers:
            raise self._refused(f"{len(self.different)} layers are described, {self.layers} are there")
        windows = {kind.window for kind in self.different} - {None}
        if len(windows) > 1:
            raise self._refused(
                f"windows of {', '.join(map(shown, sorted(windows, key=str)))} tokens; all are the same"
            )
        for window in windows:
            if isinstance(window, bool) or not isinstance(window, int) or not 1 <= window < MOST:
                raise self._refused(f"a window of {shown(window)} tokens; it is at least 1")
        if any(kind.local for kind in self.different) is not (self.local_base is not None):
            raise self._refused("local_base belongs to layers whose positions are local, and to nothing else")
        if self.different and set(self.different) == {LayerKind()}:
            object.__setattr__(self, "different", ())  # so that equal decoders are equal

    @staticmethod
    def _refused(what: str) -> ConfigError:
        """Return the error of a decoder that cannot be."""
        return ConfigError(what, where="decoder")

    @property
    def group(self) -> int:
        """So many query heads read the same keys and values; they are a group."""
        return self.heads // self.kv_heads

    @property
    def query_features(self) -> int:
        """The queries of all heads have so many features together."""
        return self.heads * self.head_size

    @property
    def kv_features(self) -> int:
        """Features of the keys of all heads; values have as many."""
        return self.kv_heads * self.head_size

    @cached_property
    def kinds(self) -> tuple[LayerKind, ...]:
        """These are the kinds of layers, each once, in the order in which they first come."""
        return tuple(dict.fromkeys(self.different)) or (LayerKind(),) * bool(self.layers)

    def kind(self, layer: int) -> LayerKind:
        """Return what a layer is, of those that may differ."""
        return self.different[layer] if self.different else LayerKind()

    def part(self, first: int, count: int) -> Decoder:
        """Return a decoder of so many of the layers, from the first one given on."""
        return self._with(count, self.different[first : first + count])

    def of_kinds(self, kinds: tuple[LayerKind, ...]) -> Decoder:
        """Return a decoder with these layers."""
        return self._with(len(kinds), kinds)

    def _with(self, count: int, layers: tuple[LayerKind, ...]) -> Decoder:
        """Return a decoder with other layers, and with a base of local positions only if they have some."""
        local = self.local_base if any(layer.local for layer in layers) else None
        return replace(self, layers=count, different=layers, local_base=local)

    @cached_property
    def window(self) -> int | None:
        """Tokens that a token sees in layers with a window; None: there is none."""
        return next((kind.window for kind in self.kinds if kind.window is not None), None)

    @property
    def is_local(self) -> bool:
        """Whether some layers have positions of their own."""
        return self.local_base is not None

    def within(self, tokens: int) -> Decoder:
        """Return the decoder for texts of so many tokens: a window that holds all of them is none."""
        if self.window is None or self.window < tokens:
            return self
        return replace(self, different=tuple(replace(kind, window=None) for kind in self.different))

    @cached_property
    def marked(self) -> tuple[str, ...]:
        """The fields of `LayerKind` in which layers differ; a layer's mark has a bit for each that is so."""
        return tuple(
            field.name for field in fields(LayerKind) if len({getattr(kind, field.name) for kind in self.kinds}) > 1
        )

    def mark(self, kind: LayerKind) -> int:
        """Return the mark of a kind of layers."""
        return sum(1 << bit for bit, name in enumerate(self.marked) if getattr(kind, name))

    @property
    def turned_pairs(self) -> int:
        """Pairs of a head that turn; they are the first ones."""
        return (self.head_size if self.rotary is None else self.rotary) // 2

    def amplitudes(self, local: bool = False) -> NDArray[np.float64]:
        """Return the factor of the cosine and sine of each pair of a head, (head_size / 2,), f64."""
        found = np.ones(self.head_size // 2)
        if self.scaling is not None and not local:
            found[: self.turned_pairs] = self.scaling.amplitude
        return found

    def turns(self, local: bool = False) -> NDArray[np.float64]:
        """Return the radians by which each pair of a head turns per position, (head_size / 2,), f64.

        `local`: of layers whose positions are local.
        """
        base = self.local_base if local and self.local_base is not None else self.rope_base
        turns = base ** (-1.0 * np.arange(self.turned_pairs) / self.turned_pairs)
        found = np.zeros(self.head_size // 2)
        found[: self.turned_pairs] = (
            turns if self.scaling is None or local else self.scaling.scaled(turns, self.rope_base)
        )
        return found

    def shapes(self) -> dict[str, tuple[int, int]]:
        """Return the shape [outputs, inputs] of each product of a layer, by the names of `MATRICES`."""
        d, queries, keys = self.hidden, self.query_features, self.kv_features
        gate = {"gate_proj": (self.ffn, d)} if self.gated else {}
        return {
            "q_proj": (queries, d),
            "k_proj": (keys, d),
            "v_proj": (keys, d),
            "o_proj": (d, queries),
            **gate,
            "up_proj": (self.ffn, d),
            "down_proj": (d, self.ffn),
        }

    @property
    def ffn_names(self) -> list[str]:
        """Names of the feed-forward parts of a layer begin with these: of the only one, or of each expert."""
        return [f"mlp.experts.{k}." for k in range(self.experts)] if self.experts else ["mlp."]

    @property
    def inward(self) -> tuple[str, ...]:
        """The feed-forward part begins with these products."""
        return ("gate_proj", "up_proj") if self.gated else ("up_proj",)

    @property
    def norm_parts(self) -> tuple[str, ...]:
        """A norm has these kinds of tensors."""
        return ("weight", "bias") if self.norm_bias else ("weight",)

    @property
    def query_key_norms(self) -> dict[str, int]:
        """The norms of queries and of keys have so many weights, by their names; empty if there are none."""
        if self.projection_norms:
            return dict(zip(HEAD_NORMS, (self.query_features, self.kv_features), strict=True))
        return dict.fromkeys(HEAD_NORMS, self.head_size) if self.head_norms else {}

    @property
    def norms_before(self) -> bool:
        """Whether there are norms before the parts of a layer."""
        return self.norms != "behind"

    @property
    def norms_behind(self) -> bool:
        """Whether there are norms behind the parts of a layer."""
        return self.norms in ("behind", "both")

    @property
    def parallel(self) -> bool:
        """Whether both parts of a layer read the residual stream as it is when the layer begins."""
        return self.norms in ("beside", "shared")

    @property
    def norm_sums(self) -> int:
        """The norms of a layer take so many sums over all features: of squares, and of the features to subtract a mean.

        Norms beside each other share them.
        """
        return (1 if self.parallel else len(NORMS[self.norms])) * (1 + self.centred)

    @property
    def turning(self) -> bool:
        """The decoder has a layer that turns queries and keys by their positions."""
        return any(kind.turns for kind in self.kinds)

    def has_bias(self, product: str) -> bool:
        """Whether one of `MATRICES` has a bias."""
        return any(getattr(self, field) and product in names for field, names in BIASED.items())

    @property
    def product_parameters(self) -> int:
        """The products of a layer that a token meets have so many parameters: of experts those that are chosen."""
        return self._products(max(1, self.chosen)) + self.experts * self.hidden

    def _products(self, parts: int) -> int:
        """Return the parameters of the products of a layer with so many feed-forward parts."""
        sizes = {name: rows * columns for name, (rows, columns) in self.shapes().items()}
        return sum(size * (parts if name in FFN else 1) for name, size in sizes.items())

    @property
    def layer_parameters(self) -> int:
        """A layer has so many parameters: products, biases, norms, and those of queries and keys."""
        bias = sum(shape[0] for name, shape in self.shapes().items() if self.has_bias(name))
        norms = len(NORMS[self.norms]) * len(self.norm_parts) * self.hidden + sum(self.query_key_norms.values())
        return self._products(max(1, self.experts)) + self.experts * self.hidden + bias + norms

    @property
    def parameters(self) -> int:
        """The decoder has so many parameters: layers, last norm, embeddings and, unless tied, the output matrix, and
        its bias.
        """
        tables = self.vocabulary * self.hidden * (1 if self.tied else 2) + self.learned * self.context * self.hidden
        ends = len(self.norm_parts) * self.hidden + self.head_bias * self.vocabulary
        return self.layers * self.layer_parameters + ends + tables

    def bytes(self, per_value: int = 2) -> int:
        """Return what all parameters take, in values of so many bytes."""
        return self.parameters * per_value

    def token_bytes(self, per_value: int = 2) -> int:
        """Return what keys and values of one token take in one layer."""
        return 2 * self.kv_features * per_value
