"""What a decoder refuses, and what it counts: published sizes and a model small enough to count by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fabric.networks.inference.decoder import MATRICES, Decoder
from wse_core.errors import ConfigError

TINY = Decoder(hidden=6, layers=2, heads=4, kv_heads=2, head_size=2, ffn=5, vocabulary=7, context=16)
LLAMA3_8B = Decoder(4096, 32, 32, 8, 128, 14336, 128256, 8192, 1e-5, 5e5)
QWEN2_72B = Decoder(8192, 80, 64, 8, 128, 29568, 152064, 131072, 1e-5, 1e6, qkv_bias=True)


def test_parameters_are_counted_as_by_hand():
    products = 8 * 6 + 4 * 6 + 4 * 6 + 6 * 8 + 5 * 6 + 5 * 6 + 6 * 5
    assert TINY.product_parameters == products
    assert TINY.layer_parameters == products + 2 * 6
    assert TINY.parameters == 2 * (products + 12) + 6 + 2 * 7 * 6
    assert replace(TINY, tied=True).parameters == TINY.parameters - 7 * 6
    assert replace(TINY, qkv_bias=True).layer_parameters == TINY.layer_parameters + 8 + 4 + 4
    assert replace(TINY, head_norms=True).layer_parameters == TINY.layer_parameters + 2 * TINY.head_size
    assert (TINY.group, TINY.query_features, TINY.kv_features) == (2, 8, 4)
    assert TINY.bytes(4) == 2 * TINY.bytes() == 4 * TINY.parameters
    assert TINY.token_bytes() == 2 * 4 * 2


def test_published_sizes():
    assert LLAMA3_8B.product_parameters == 218_103_808
    assert LLAMA3_8B.parameters == 8_030_261_248
    assert LLAMA3_8B.token_bytes() == 4096
    assert QWEN2_72B.parameters == 72_706_203_648


def test_shapes_are_outputs_by_inputs():
    shapes = TINY.shapes()
    assert tuple(shapes) == MATRICES
    assert shapes["q_proj"] == (8, 6)
    assert shapes["o_proj"] == (6, 8)
    assert shapes["down_proj"] == (6, 5)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"hidden": 0}, "hidden is 0"),
        ({"layers": -1}, "layers is -1"),
        ({"ffn": 2.5}, "not a whole number"),
        ({"context": True}, "not a whole number"),
        ({"vocabulary": 1 << 31}, "below"),
        ({"kv_heads": 3}, "4 query heads do not share 3"),
        ({"kv_heads": 8}, "4 query heads do not share 8"),
        ({"head_size": 3}, "cannot be turned in pairs"),
        ({"epsilon": 0.0}, "positive"),
        ({"epsilon": float("nan")}, "positive"),
        ({"rope_base": "10000"}, "not a number"),
        ({"tied": 1}, "neither true nor false"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(change, what):
    with pytest.raises(ConfigError, match=what) as caught:
        replace(TINY, **change)
    assert "\n" not in str(caught.value)
