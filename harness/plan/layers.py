"""GPT-style models are taken as the layers that are streamed, to see what of them fits.

The table of tokens and places comes first: a token's row is its product with numbers of which all but one are zero.  A
block of a transformer streams four matrices: queries, keys and values together, the attention's output, and the two
(gated: three) of the feed-forward part; behind the last block stands the output matrix.  Where the vocabulary is not
known there is neither table nor output matrix.  The activation of the feed-forward part is GELU, and what attention and
feed-forward part give is added to what came before; that and what the table gives is normalised, as the next matrix
takes it.  Attention is causal; where its layout is one that no cycle-level program has, `swarm.cluster.mixing` says so.
Not counted: biases (less than a thousandth of the weights) and gates (a product per feature).

Models of `harness.plan.models` are used where they exist; `GPT` adds published sizes: GPT-2 (Radford et al. 2019, table
2), GPT-3 (Brown et al. 2020, table 2.1), GPT-J (Wang and Komatsuzaki 2021) and GPT-NeoX (Black et al. 2022).
"""

from __future__ import annotations

import math
from dataclasses import replace

from harness.plan.approaches import streaming
from harness.plan.hardware import CS2, Device
from harness.plan.models import TransformerSizes
from harness.plan.models import find_model as planned
from swarm.cluster.shapes import AttentionShape, LayerShape
from wse_core.errors import ConfigError

__all__ = ["GPT", "LADDER", "find_model", "layers_of", "saving", "sequences", "tokens_of"]

GPT = {
    model.name: model
    for model in (
        TransformerSizes("gpt2-small", 12, 768, 1024, 12, vocabulary=50257, total=124e6),
        TransformerSizes("gpt2-medium", 24, 1024, 1024, 16, vocabulary=50257, total=355e6),
        TransformerSizes("gpt2-large", 36, 1280, 1024, 20, vocabulary=50257, total=774e6),
        TransformerSizes(
            "gpt3-xl", 24, 2048, 2048, 16, vocabulary=50257, total=1.3e9, batch_tokens=1e6
        ),  # printed: 24 heads
        TransformerSizes("gpt-j", 28, 4096, 2048, 16, vocabulary=50400, total=6.05e9, untied=True),
        TransformerSizes("gpt3-6.7b", 32, 4096, 2048, 32, vocabulary=50257, total=6.7e9, batch_tokens=2e6),
        TransformerSizes("gpt3-13b", 40, 5120, 2048, 40, vocabulary=50257, total=13e9, batch_tokens=2e6),
        TransformerSizes(
            "gpt-neox", 44, 6144, 2048, 64, vocabulary=50257, total=20e9, batch_tokens=3.15e6, untied=True
        ),
    )
}
"""The GPT models are found here by name."""

TOKENS = {"gpt2-xl": 50257, "gpt-3": 50257}
"""Models whose published table says nothing of tokens have those of GPT-2 (Radford et al. 2019), which GPT-3 has too
(Brown et al. 2020).
"""

LADDER = ("gpt2-small", "gpt2-xl", "gpt3-6.7b", "gpt-neox", "gpt-3")
"""The models are here in order of size, from the smallest to GPT-3 with 175 billion parameters."""


def find_model(name: str) -> TransformerSizes:
    """Return the `TransformerSizes` of a name: one of `GPT`, or what `harness.plan.models.find_model` knows."""
    return GPT.get(name.lower()) or planned(name)


def tokens_of(model: TransformerSizes) -> int:
    """Return how many tokens a model knows; 0 if nothing says it."""
    return model.vocabulary or TOKENS.get(model.name, 0)


def layers_of(model: TransformerSizes, density: float = 1.0) -> tuple[LayerShape, ...]:
    """Return the streamed layers of a model, first to last.

    Parameters
    ----------
    model : TransformerSizes
    density : float
        Share of the blocks' weights that are not zero; table and output matrix are dense.

    Returns
    -------
    tuple of LayerShape
    """
    if model.tensors:
        raise ConfigError("is described by its tensors, which says nothing of its matrices", where=model.name)
    width, inner = model.width, model.inner
    keys = width // model.heads * model.kv_heads if model.kv_heads else width
    mix = AttentionShape(model.heads, model.kv_heads or model.heads, width // model.heads, model.sequence)
    block = [
        LayerShape(width, width + 2 * keys, density, "qkv"),
        LayerShape(width, width, density, "output", norm=True, attention=mix, residual=True),
        LayerShape(width, (2 if model.gated else 1) * inner, density, "up", "gelu"),
        LayerShape(inner, width, density, "down", norm=True, residual=True),
    ]
    found, tokens = [], tokens_of(model)
    if tokens:
        found.append(LayerShape(tokens + model.sequence, width, 1.0, "table", norm=True, lookup=True))
    for k in range(1, model.layers + 1):
        found += [replace(one, name=f"block {k} {one.name}") for one in block]
    if tokens:
        found.append(LayerShape(width, tokens, 1.0, "vocabulary"))
    return tuple(found)


def saving(sparsity: float, share: float = 0.8) -> float:
    """Return the factor by which operations fall if so much of a model is zero: 1 / (1 - share * sparsity).

    Parameters
    ----------
    sparsity : float
        Share of zeros in the matrices that may have any.
    share : float
        Of the operations that these matrices take; 0.8 in the white paper (section 6.2.1), the rest stays dense.
    """
    if not 0 <= sparsity <= 1 or not 0 <= share <= 1 or share * sparsity == 1:
        raise ConfigError(
            f"sparsity {sparsity} of a share of {share} leaves nothing", where="sparsity", hint="numbers from 0 to 1"
        )
    return 1 / (1 - share * sparsity)


def sequences(model: TransformerSizes, most: int | None = None, hardware: Device = CS2) -> int:
    """Return how many sequences of a model a wafer takes at once: what its memory holds, at most `most`.

    One stored tensor per layer, as the white paper counts (`harness.plan.approaches.streaming`).

    Raises
    ------
    ConfigError
        Not even one; the message names the tensor and the bytes.
    """
    held = streaming(model, hardware, 1)["bytes"]
    fits = math.floor(hardware.memory / held)
    return max(1, min(fits, most) if most else fits)
