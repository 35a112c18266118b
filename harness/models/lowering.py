"""Tensors of some architectures become those of the decoder: parts of one matrix, factors that weights can carry.

*Mixtral* has other names of its experts' products.  In memory the library (version 5) has the matrices of all experts
of a layer in one tensor of three axes, gate and up one behind the other; files with such tensors are read too.

*Phi3* keeps queries, keys and values in one matrix, and gate and up in another: rows of it.  Where a part of each head
turns (``partial_rotary_factor``), features of queries and keys change places, which scores do not see.  *Granite*
multiplies the embedding, the scores of attention, what a part adds to the residual stream, and divides the logits.  A
factor of a linear part is the same as one of its weights, so it is given to them, in f32 and before they are rounded to
16 bits.  *Gemma* multiplies the embedding by sqrt(hidden_size), and what norms give by 1 + w instead of w:

=====================  ==============================================================================================
embedding_multiplier   the rows of the embedding
attention_multiplier   queries (and their bias), times sqrt(head_size), since the decoder divides scores by that; norms
                       of query heads, where they have some.  Of a Gemma it is 1 / sqrt(query_pre_attn_scalar)
residual_multiplier    the output projection of attention, and the last product of the feed-forward part (and biases)
logits_scaling         the output matrix, divided; if it is the embedding, it is one of its own then
norm_offset            the weights of norms, added
=====================  ==============================================================================================

*GLM* has gate and up in one matrix and turns pairs of neighbours in a part of each head; *GLM-4* has norms behind the
parts of a layer too, under names of its own.  *Helium* and *ERNIE 4.5* turn pairs of neighbours, of the whole head.

Sources: the classes of the hub's library transformers (modeling_phi3, modeling_granite, modeling_gemma, modeling_glm,
modeling_glm4, modeling_helium, modeling_ernie4_5, modeling_seed_oss).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.networks.inference.decoder import Decoder
from harness.models.architectures import GLMS
from harness.models.tensors import NORM, Tensor
from wse_core.errors import ConfigError
from wse_core.errors.values import named, shown

__all__ = ["FUSED", "LOWERED", "NOT_TIED", "Factors", "factors_of", "lowered", "pairs_first", "same"]

LOWERED = ("Phi3ForCausalLM", "GraniteForCausalLM", "GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM",
           *GLMS, "HeliumForCausalLM", "Ernie4_5ForCausalLM", "SeedOssForCausalLM")  # fmt: skip
"""`lowered` makes a LLaMA of these architectures."""
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
NOT_TIED = "tensor lm_head.weight is not the embedding, although tie_word_embeddings is true"
FUSED = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
"""A Phi3 has these matrices, in which the rows of these products stand, in this order."""

GLM_NORMS = {"post_self_attn_layernorm": "post_attention_layernorm",
             "post_attention_layernorm": "pre_feedforward_layernorm",
             "post_mlp_layernorm": "post_feedforward_layernorm"}  # fmt: skip
"""The norms of a layer of a GLM-4 have these names in the decoder."""

TOGETHER = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}
"""These tensors have all experts of a layer: products whose rows stand in them, in this order."""


@dataclass(frozen=True)
class Factors:
    """`Factors` has the numbers that a Granite or a Gemma has beside its weights.

    Attributes
    ----------
    embedding, residual : float
    attention : float or None
        Of the scores; None: 1 / sqrt(head_size).
    logits : float
        What the logits are divided by.
    tied : bool
        Whether the model's output matrix is its embedding.
    norms : float
        What is added to the weights of norms.
    """

    embedding: float = 1.0
    residual: float = 1.0
    attention: float | None = None
    logits: float = 1.0
    tied: bool = False
    norms: float = 0.0

    @property
    def unties(self) -> bool:
        """Whether the output matrix is not the embedding any more, although the model ties them."""
        return self.tied and (self.embedding != 1 or self.logits != 1)


def factors_of(table: Mapping[str, Any]) -> Factors:
    """Return the factors of a ``config.json`` of a Granite; those that are missing are 1, as the library has them.

    Raises
    ------
    ConfigError
        One of them is no positive number.
    """
    found: dict[str, Any] = {}
    for name in ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"):
        value = table.get(name, 1.0)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not (math.isfinite(value) and value > 0):
            raise ConfigError(f"{name} is {shown(value)}, no positive number")
        found[name.partition("_")[0]] = float(value)
    return Factors(**found, tied=table.get("tie_word_embeddings") is True)


def lowered(
    found: Mapping[str, Tensor],
    decoder: Decoder,
    architecture: str,
    factors: Factors,
    order: NDArray[np.int64] | None = None,
) -> dict[str, Tensor]:
    """Return the tensors of files under the names that the decoder has for them; data stay where they are.

    `order`: which feature of those of a head that turn each one is, if they do not lie in halves.

    Raises
    ------
    ConfigError
        A matrix of several products has not as many rows as they have together.
    """
    tensors = dict(found)
    if architecture == "MixtralForCausalLM":
        tensors = {_expert_name(name): tensor for name, tensor in found.items()}
    if decoder.experts:
        tensors = _each_expert(tensors, decoder)
    if architecture == "Glm4ForCausalLM":
        tensors = {_norm_name(name): tensor for name, tensor in found.items()}
    if architecture in ("Phi3ForCausalLM", *GLMS):
        tensors = _apart(tensors, decoder, *["self_attn.qkv_proj"] * (architecture == "Phi3ForCausalLM"))
    if decoder.rotary is not None or order is not None:
        tensors = _in_pairs(tensors, decoder, order)
    scale = 1.0 if factors.attention is None else factors.attention * math.sqrt(decoder.head_size)
    ends = {
        **dict.fromkeys(["q_norm.weight"] if decoder.head_norms else ["q_proj.weight", "q_proj.bias"], scale),
        **{f"{name}.{kind}": factors.residual for name in ("o_proj", "down_proj") for kind in ("weight", "bias")},
    }
    if factors.norms:
        for name in [name for name in tensors if name.endswith(NORM)]:
            tensors[name] = replace(tensors[name], more=factors.norms)
    if factors.unties and EMBEDDING in tensors:
        own = tensors.get(HEAD)
        if own is not None and not same(own, tensors[EMBEDDING]):
            raise ConfigError(NOT_TIED, hint="false in config.json, if the file's own output matrix is meant")
        tensors[HEAD] = replace(tensors[EMBEDDING], name=HEAD)
    ends |= {"embed_tokens.weight": factors.embedding, HEAD: 1.0 / factors.logits}
    for end, factor in ends.items():
        if factor != 1:
            for name in [name for name in tensors if name.endswith(end)]:
                own = tensors[name]
                tensors[name] = replace(own, factor=own.factor * factor, more=own.more * factor)
    return tensors


def _expert_name(name: str) -> str:
    """Return the decoder's name of a tensor of a Mixtral."""
    found = name.replace(".block_sparse_moe.", ".mlp.")
    for own, product in {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}.items():
        found = found.replace(f".{own}.weight", f".{product}.weight")
    return found


def _each_expert(found: Mapping[str, Tensor], decoder: Decoder) -> dict[str, Tensor]:
    """Return the tensors with those of all experts of a layer cut into the matrices of each."""
    made: dict[str, Tensor] = {}
    for name, tensor in found.items():
        stem, _, kind = name.rpartition(".")
        products = TOGETHER.get(kind) if stem.endswith(".mlp.experts") else None
        if products is None:
            made[name] = tensor
            continue
        rows = [decoder.shapes()[product][0] for product in products]
        if len(tensor.shape) != 3 or tensor.shape[:2] != (decoder.experts, sum(rows)):
            wanted = f"{decoder.experts} matrices of {' + '.join(map(str, rows))} rows"
            raise ConfigError(f"tensor {named(name)} is {list(tensor.shape)}, not {wanted}")
        for k, matrix in enumerate(tensor.data):
            for product, data in zip(products, np.split(matrix, np.cumsum(rows)[:-1]), strict=True):
                whole = f"{stem}.{k}.{product}.weight"
                made[whole] = replace(tensor, name=whole, data=data)
    return made


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same numbers."""
    return one.shape == other.shape and np.array_equal(one.f32(), other.f32())


def pairs_first(decoder: Decoder, order: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return which feature of a head in a file each feature of a head here is.

    Files have the two halves of what turns side by side, or in an order of their own, and then what does not; here
    pairs lie half a head apart.
    """
    turned, half = decoder.turned_pairs, decoder.head_size // 2
    rest = 2 * turned + np.arange(decoder.head_size - 2 * turned)
    first, second = (np.arange(2 * turned) if order is None else order).reshape(2, turned)
    return np.concatenate([first, rest[: half - turned], second, rest[half - turned :]])


def _in_pairs(found: Mapping[str, Tensor], decoder: Decoder, halves: NDArray[np.int64] | None) -> dict[str, Tensor]:
    """Return the tensors with the features of each head of queries and keys in the order that the decoder has."""
    order, size = pairs_first(decoder, halves), decoder.head_size
    made = dict(found)
    for name, tensor in found.items():
        count = {"q_proj": decoder.heads, "k_proj": decoder.kv_heads}.get(name.split(".")[-2] if "." in name else "")
        if count is not None and tensor.shape and tensor.shape[0] == count * size:  # others are refused by their shape
            rows = (np.arange(count)[:, np.newaxis] * size + order).ravel()
            made[name] = replace(tensor, order=rows)
    return made


def _norm_name(name: str) -> str:
    """Return the decoder's name of a tensor of a GLM-4, whose norms behind the parts of a layer have other names.

    What it calls the norm behind attention stands before the feed-forward part.
    """
    stem, dot, norm = name.removesuffix(".weight").rpartition(".")
    return f"{stem}{dot}{GLM_NORMS[norm]}.weight" if norm in GLM_NORMS else name


def _apart(found: Mapping[str, Tensor], decoder: Decoder, *more: str) -> dict[str, Tensor]:
    """Return the tensors with gate and up, and what else is asked for, cut out of the matrices that have several."""
    rows = {name: shape[0] for name, shape in decoder.shapes().items()}
    made: dict[str, Tensor] = {}
    for name, tensor in found.items():
        stem, _, kind = name.rpartition(".")
        ends = "mlp.gate_up_proj", *more
        fused = next((end for end in ends if stem.endswith(f".{end}") and kind == "weight"), None)
        if fused is None:
            made[name] = tensor
            continue
        counts = [rows[part.rpartition(".")[2]] for part in FUSED[fused]]
        if len(tensor.shape) != 2 or tensor.shape[0] != sum(counts):
            raise ConfigError(
                f"tensor {name} is {list(tensor.shape)}; its products have {' + '.join(map(str, counts))} rows"
            )
        at = 0
        for part, count in zip(FUSED[fused], counts, strict=True):
            whole = f"{stem.removesuffix(fused)}{part}.weight"
            made[whole] = replace(tensor, name=whole, data=tensor.data[at : at + count])
            at += count
    return made
