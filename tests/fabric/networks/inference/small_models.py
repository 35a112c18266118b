"""Small random decoders for tests: sizes that do not divide, weights of a size that keeps numbers near one."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import strategies as st

from fabric.networks.inference.decoder import ACTIVATIONS, FFN, NORMS, Decoder, LayerKind
from fabric.networks.inference.rope import Scaling
from wse_core.formats import Arithmetic
from wse_core.params import machine

__all__ = ["CLASSIC", "PLAIN", "decoders", "have_room", "random_weights", "rounded"]


SCALINGS = (
    None,
    Scaling("linear", 4.0),
    Scaling("llama3", 8.0, 1.0, 4.0, 32),
    Scaling("yarn", 4.0, 1.0, 8.0, 256, 1.125),
)
"""None, all pairs slower, and slow pairs slower: with so short first contexts there are pairs of all three kinds."""

PLAIN = {"centred": True, "norm_bias": True, "gated": False, "qkv_bias": True, "o_bias": True, "ffn_bias": True}
GPT2 = Decoder(6, 2, 2, 2, 4, 5, 5, 64, 1e-5, activation="gelu", learned=True, tied=True,
               different=(LayerKind(turns=False),) * 2, **PLAIN)  # fmt: skip
NEOX = Decoder(6, 2, 2, 2, 4, 5, 5, 64, 1e-5, rotary=2, norms="beside", activation="gelu_erf", **PLAIN)
PHI = Decoder(6, 2, 2, 1, 4, 5, 5, 64, 1e-5, rotary=2, norms="shared", activation="gelu", head_bias=True, **PLAIN)
STABLE = Decoder(6, 2, 2, 1, 4, 5, 5, 64, 1e-5, rotary=2, centred=True, norm_bias=True)
OPT = Decoder(5, 1, 2, 1, 4, 5, 5, 64, 1e-5, centred=True, gated=False, learned=True, activation="relu")
CLASSIC = (GPT2, NEOX, PHI, STABLE, OPT)
"""Small ones with the parts of models older than LLaMA, for the plain-Python machine too."""

LAYERS = (
    LayerKind(),
    LayerKind(turns=False),
    LayerKind(window=3),
    LayerKind(window=3, local=True),
    LayerKind(turns=False, window=3),
)
"""Layers of all kinds."""


@st.composite
def decoders(draw, layers=2):
    """Return decoders of 1 to 8 heads, grouped or not, with odd sizes."""
    kv_heads, group = draw(st.sampled_from([(1, 1), (1, 4), (2, 1), (2, 3), (3, 2), (4, 1), (4, 2), (8, 1), (5, 1)]))
    count, normed = draw(st.integers(1, layers)), draw(st.sampled_from(["", "heads", "projections"]))
    different = draw(st.sampled_from([(), *product(LAYERS, repeat=count)]))
    head_size = 2 * draw(st.integers(1, 5))
    norms = draw(st.sampled_from(list(NORMS)))
    centred = norms not in ("behind", "both") and draw(st.booleans())
    return Decoder(
        centred=centred,
        norm_bias=centred and draw(st.booleans()),
        gated=draw(st.sampled_from([True, True, False])),
        learned=draw(st.sampled_from([False, False, True])),
        head_bias=draw(st.sampled_from([False, False, True])),
        hidden=draw(st.integers(1, 23)),
        layers=count,
        heads=kv_heads * group,
        kv_heads=kv_heads,
        head_size=head_size,
        rotary=draw(st.sampled_from([None, *range(2, head_size, 2)])),
        ffn=draw(st.integers(1, 21)),
        vocabulary=draw(st.integers(2, 29)),
        context=64,
        epsilon=1e-5,
        rope_base=draw(st.sampled_from([100.0, 10_000.0])),
        qkv_bias=draw(st.booleans()),
        tied=draw(st.booleans()),
        scaling=draw(st.sampled_from(SCALINGS)),
        head_norms=normed == "heads",
        projection_norms=normed == "projections",
        norms=norms,
        activation=draw(st.sampled_from(ACTIVATIONS)),
        o_bias=draw(st.booleans()),
        ffn_bias=draw(st.booleans()),
        different=different,
        local_base=50.0 if any(kind.local for kind in different) else None,
        score_cap=draw(st.sampled_from([None, None, 2.0])),
        logit_cap=draw(st.sampled_from([None, None, 3.0])),
    )


def have_room(*counts):
    """Return whether PEs have room for what is counted by name; a large decoder on few PEs is refused instead."""
    return all(sum(words.values()) <= machine()["mem.words"] for words in counts)


def random_weights(decoder, seed=0):
    """Return weights by the hub's names, float64."""
    rng = np.random.default_rng(seed)

    def norm(name):
        found[f"{name}.weight"] = 1 + 0.2 * rng.standard_normal(decoder.hidden)
        if decoder.norm_bias:
            found[f"{name}.bias"] = 0.2 * rng.standard_normal(decoder.hidden)

    found = {"model.embed_tokens.weight": rng.standard_normal((decoder.vocabulary, decoder.hidden))}
    if decoder.learned:
        found["model.embed_positions.weight"] = rng.standard_normal((decoder.context, decoder.hidden))
    norm("model.norm")
    if decoder.head_bias:
        found["lm_head.bias"] = 0.3 * rng.standard_normal(decoder.vocabulary)
    if not decoder.tied:
        found["lm_head.weight"] = rng.standard_normal((decoder.vocabulary, decoder.hidden))
    for layer in range(decoder.layers):
        base = f"model.layers.{layer}"
        if decoder.experts:
            found[f"{base}.mlp.gate.weight"] = rng.standard_normal((decoder.experts, decoder.hidden))
        products = [("self_attn", name, shape) for name, shape in decoder.shapes().items() if name not in FFN]
        products += [
            (part.removesuffix("."), name, decoder.shapes()[name])
            for part in decoder.ffn_names
            for name in (*decoder.inward, "down_proj")
        ]
        for room, name, (rows, columns) in products:
            found[f"{base}.{room}.{name}.weight"] = rng.standard_normal((rows, columns)) / np.sqrt(columns)
            if decoder.has_bias(name):
                found[f"{base}.{room}.{name}.bias"] = 0.3 * rng.standard_normal(rows)
        for name, count in decoder.query_key_norms.items():
            found[f"{base}.self_attn.{name}.weight"] = 1 + 0.2 * rng.standard_normal(count)
        for name in NORMS[decoder.norms]:
            norm(f"{base}.{name}")
    return found


def rounded(weights, dtype):
    """Return weights as the PEs have them: matrices, biases and embeddings of 16 bits, norms of f32."""
    half = Arithmetic.of(machine(), dtype)

    def held(name, values):
        return values.astype(np.float32) if "norm" in name else half.decode(half.encode(values))

    return {name: held(name, values).astype(np.float64) for name, values in weights.items()}
