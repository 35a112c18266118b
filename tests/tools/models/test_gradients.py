"""Gradients of training against differences of the loss, and its loss against the plain decoder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fabric.networks.inference.decoder import LayerKind
from harness.models.plain import PlainDecoder
from tests.harness.models.small_decoders import TINY, random_weights
from tools.models.gradients import loss_and_gradients
from wse_core.errors import UnsupportedError

KINDS = [{"qkv_bias": True}, {"tied": True}, {"kv_heads": 1, "head_size": 2}]


@pytest.mark.parametrize("change", KINDS)
def test_loss_is_that_of_the_plain_decoder(change):
    decoder = replace(TINY, **change)
    weights = random_weights(decoder)
    tokens = np.random.default_rng(0).integers(0, decoder.vocabulary, (3, 8))
    loss, gradients = loss_and_gradients(decoder, weights, tokens, gradients=False)
    assert not gradients
    rows = []
    for window in tokens:
        logits = PlainDecoder(decoder, weights, np.float64).forward(window[:-1])
        rows += list(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(7), window[1:]])
    assert loss == pytest.approx(np.mean(rows), rel=1e-5)


@pytest.mark.parametrize("change", KINDS)
def test_gradients_are_those_of_the_loss(change):
    decoder = replace(TINY, **change)
    weights = {name: weight.astype(np.float64) for name, weight in random_weights(decoder).items()}
    rng = np.random.default_rng(2)
    tokens = rng.integers(0, decoder.vocabulary, (2, 6))
    _, gradients = loss_and_gradients(decoder, weights, tokens)
    assert set(gradients) == set(weights)
    for name, weight in weights.items():
        for _ in range(3):
            place = tuple(rng.integers(0, size) for size in weight.shape)
            kept, step = weight[place], 1e-4
            losses = []
            for moved in (kept + step, kept - step):
                weight[place] = moved
                losses.append(loss_and_gradients(decoder, weights, tokens, gradients=False)[0])
            weight[place] = kept
            slope = (losses[0] - losses[1]) / (2 * step)
            # Angles are rounded to f32, as in training, on both sides of the comparison.
            assert gradients[name][place] == pytest.approx(slope, rel=1e-4, abs=1e-7), name


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"head_norms": True}, "norms of heads"),
        ({"norms": "behind"}, "norms behind the parts"),
        ({"projection_norms": True}, "norms of heads or projections"),
        ({"activation": "gelu"}, "gradients of gelu"),
        ({"o_bias": True}, "gradients of biases"),
        ({"score_cap": 2.0}, "gradients of caps"),
        ({"rotary": 2}, "gradients of caps"),
        ({"different": (LayerKind(), LayerKind(turns=False))}, "layers that differ"),
    ],
)
def test_other_decoders_are_refused(change, what):
    decoder = replace(TINY, **change)
    with pytest.raises(UnsupportedError, match=what):
        loss_and_gradients(decoder, random_weights(decoder), np.zeros((1, 3), np.int64))
