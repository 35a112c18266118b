"""The yardstick itself: against numbers one at a time, against a case by hand, and against what attention must obey."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.networks.inference.decoder import Decoder
from harness.models.plain import PlainDecoder
from tests.fabric.networks.inference.small_models import decoders as wide_decoders
from tests.fabric.networks.inference.small_models import random_weights as wide_weights
from tests.harness.models.scalar_decoder import scalar_logits
from tests.harness.models.small_decoders import TINY, decoders, random_weights
from wse_core.errors import ConfigError

TEXT = [3, 1, 4, 1, 5, 9, 2, 6]


@given(decoder=decoders(), seed=st.integers(0, 99), length=st.integers(1, 6))
def test_it_is_the_formulas(decoder, seed, length):
    weights = random_weights(decoder, seed)
    ids = np.random.default_rng(seed).integers(0, decoder.vocabulary, length)
    got = PlainDecoder(decoder, weights, np.float64).forward(ids)[-1]
    np.testing.assert_allclose(got, scalar_logits(decoder, weights, ids), rtol=1e-9, atol=1e-11)
    near = PlainDecoder(decoder, weights).forward(ids)[-1]
    np.testing.assert_allclose(near, got, rtol=2e-4, atol=2e-4)


@given(decoder=wide_decoders(), seed=st.integers(0, 99), length=st.integers(1, 6))
def test_it_is_the_formulas_of_what_no_file_has(decoder, seed, length):
    """Decoders of all kinds, whether an architecture is like them or not."""
    weights = {name: values.astype(np.float32) for name, values in wide_weights(decoder, seed).items()}
    ids = np.random.default_rng(seed).integers(0, decoder.vocabulary, length)
    got = PlainDecoder(decoder, weights, np.float64).forward(ids)[-1]
    np.testing.assert_allclose(got, scalar_logits(decoder, weights, ids), rtol=1e-9, atol=1e-11)


def test_a_case_by_hand():
    """One layer of one head and two features, in which attention of the second token is the mean of two values."""
    decoder = Decoder(2, 1, 1, 1, 2, 1, 2, 4, epsilon=1e-12, tied=True)
    eye, none = np.eye(2), np.zeros((2, 2))
    weights = {
        "model.embed_tokens.weight": np.array([[3.0, 0.0], [0.0, 5.0]]),
        "model.layers.0.input_layernorm.weight": np.ones(2),
        "model.layers.0.self_attn.q_proj.weight": none,
        "model.layers.0.self_attn.k_proj.weight": eye,
        "model.layers.0.self_attn.v_proj.weight": eye,
        "model.layers.0.self_attn.o_proj.weight": eye,
        "model.layers.0.post_attention_layernorm.weight": np.ones(2),
        "model.layers.0.mlp.gate_proj.weight": np.zeros((1, 2)),
        "model.layers.0.mlp.up_proj.weight": np.ones((1, 2)),
        "model.layers.0.mlp.down_proj.weight": np.ones((2, 1)),
        "model.norm.weight": np.ones(2),
    }
    logits = PlainDecoder(decoder, weights, np.float64).forward([0, 1])
    root = np.sqrt(2)  # norm of (3, 0) is (root, 0), that of (0, 5) is (0, root)
    first = np.array([3 + root, 0.0])
    second = np.array([root / 2, 5 + root / 2])  # scores are equal, so it adds half of each value
    for row, x in zip(logits, (first, second), strict=True):
        y = x / np.sqrt((x * x).mean())
        np.testing.assert_allclose(row, [3 * y[0], 5 * y[1]], rtol=1e-9)


def test_later_tokens_change_nothing_before_them():
    decoder = replace(TINY, qkv_bias=True)
    weights = random_weights(decoder)
    whole = PlainDecoder(decoder, weights, np.float64).forward(TEXT)
    other = PlainDecoder(decoder, weights, np.float64).forward([*TEXT[:5], 10, 7, 0])
    np.testing.assert_array_equal(whole[:5], other[:5])
    assert np.abs(whole[5:] - other[5:]).max() > 1e-3


@given(cuts=st.lists(st.integers(1, len(TEXT) - 1), unique=True).map(sorted))
def test_the_cache_is_the_same_as_reading_again(cuts):
    weights = random_weights(TINY)
    whole = PlainDecoder(TINY, weights, np.float64).forward(TEXT)
    model = PlainDecoder(TINY, weights, np.float64)
    parts = [model.forward(TEXT[a:b]) for a, b in zip([0, *cuts], [*cuts, len(TEXT)], strict=True)]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-11, atol=1e-12)
    assert model.length == len(TEXT)
    model.reset()
    np.testing.assert_array_equal(model.forward(TEXT), whole)


def test_groups_are_heads_that_share_repeated_keys():
    weights = random_weights(TINY)
    single = replace(TINY, kv_heads=TINY.heads)
    repeated = dict(weights)
    for number in range(TINY.layers):
        for name in ("k_proj", "v_proj"):
            key = f"model.layers.{number}.self_attn.{name}.weight"
            heads = weights[key].reshape(TINY.kv_heads, TINY.head_size, -1)
            repeated[key] = np.repeat(heads, TINY.group, axis=0).reshape(-1, TINY.hidden)
    shared = PlainDecoder(TINY, weights, np.float64).forward(TEXT)
    np.testing.assert_allclose(PlainDecoder(single, repeated, np.float64).forward(TEXT), shared, rtol=1e-12, atol=1e-13)


def test_positions_turn_by_their_difference():
    decoder = replace(TINY, head_size=8, context=4096)
    turn = np.multiply.outer([0, 5, 1005, 3000, 4000], decoder.turns())
    assert not turn[0].any()
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((2, 1, 1, 8))

    def turned(z, angle):
        return PlainDecoder._turned(z, np.cos(angle), np.sin(angle))

    near = (turned(q, turn[1]) * turned(k, turn[0])).sum()
    far = (turned(q, turn[2]) * turned(k, turn[2] - turn[1])).sum()
    np.testing.assert_allclose(far, near, rtol=1e-9)
    apart = (turned(q, turn[4]) * turned(k, turn[3])).sum()
    assert abs(apart - near) > 1e-3


def test_it_goes_on_with_the_likeliest_token():
    model = PlainDecoder(TINY, random_weights(TINY))
    tokens, logits = model.generate(TEXT, 5)
    assert logits.shape == (5, TINY.vocabulary)
    assert tokens == [int(row.argmax()) for row in logits]
    model.reset()
    np.testing.assert_allclose(model.forward([*TEXT, *tokens])[-5 - 1 : -1], logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("ids", "what"), [([], "empty prompt"), ([11], "token 11 is none"), ([-1], "token -1"), ([0] * 25, "25 tokens")]
)
def test_what_cannot_be_read(ids, what):
    with pytest.raises(ConfigError, match=what):
        PlainDecoder(TINY, random_weights(TINY)).forward(ids)
