"""Random decoders of a few features, and weights for them; what the tests of this directory share."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from fabric.networks.inference.decoder import ACTIVATIONS, Decoder, LayerKind
from fabric.networks.inference.rope import Scaling
from harness.models.hub import tensor_shapes

SCALINGS = (
    None,
    Scaling("linear", 4.0),
    Scaling("llama3", 8.0, 1.0, 4.0, 32),
    Scaling("yarn", 4.0, 1.0, 8.0, 256, 1.125),
)
"""None, all pairs slower, and slow pairs slower: with so short first contexts there are pairs of all three kinds."""

TINY = Decoder(hidden=6, layers=2, heads=4, kv_heads=2, head_size=4, ffn=5, vocabulary=11, context=24, epsilon=1e-5)


def random_weights(decoder, seed=0):
    """Return f32 weights of ordinary size for every tensor of a decoder."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in tensor_shapes(decoder).items():
        drawn = rng.standard_normal(shape)
        weights[name] = (drawn * shape[-1] ** -0.5 if len(shape) == 2 else 1 + 0.1 * drawn).astype(np.float32)
    return weights


@st.composite
def decoders(draw):
    """Draw a decoder that some architecture is: heads 1 to 8 in groups, odd sizes, biases or none, tied or not."""
    kv_heads = draw(st.integers(1, 4))
    layers, qkv_bias = draw(st.integers(1, 2)), draw(st.booleans())
    kind = draw(st.sampled_from(["", "qwen3", "olmo2", "smollm3"]))
    turns = draw(st.lists(st.booleans(), min_size=layers, max_size=layers)) if kind == "smollm3" else [True] * layers
    return Decoder(
        hidden=draw(st.integers(1, 12)),
        layers=layers,
        heads=kv_heads * draw(st.integers(1, 8 // kv_heads)),
        kv_heads=kv_heads,
        head_size=2 * draw(st.integers(1, 4)),
        ffn=draw(st.integers(1, 11)),
        vocabulary=draw(st.integers(2, 20)),
        context=16,
        epsilon=draw(st.sampled_from([1e-6, 1e-5])),
        rope_base=draw(st.sampled_from([1e4, 5e5])),
        qkv_bias=qkv_bias,
        o_bias=qkv_bias and draw(st.booleans()),
        ffn_bias=kind in ("", "smollm3") and draw(st.booleans()),
        different=tuple(LayerKind(turns=each) for each in turns),
        tied=draw(st.booleans()),
        scaling=draw(st.sampled_from(SCALINGS)),
        head_norms=kind == "qwen3",
        norms="behind" if kind == "olmo2" else "before",
        projection_norms=kind == "olmo2",
        activation=draw(st.sampled_from(ACTIVATIONS)),
    )
