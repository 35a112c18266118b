"""Tensors that are made when they are asked for have the values and losses of those that are made at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fabric.networks.inference.decoder import Decoder
from harness.models import random_model
from harness.models.configuration import Configuration
from harness.models.hub import LanguageModel, load_model
from harness.models.plain import PlainDecoder
from harness.models.random_model import RandomModel
from harness.models.tensors import Tensor
from tests.harness.inference.saved_models import saved
from wse_core.formats import Arithmetic
from wse_core.params import machine

DECODER = Decoder(24, 2, 4, 2, 8, 20, 17, 32, 1e-5)


@pytest.mark.parametrize("dtype", ["f16", "cb16"])
def test_tensors_of_a_file(tmp_path, dtype):
    """Whole, in slices, and by row; also with rows in another order, a factor and a sum."""
    model = load_model(saved(tmp_path / "model", DECODER))
    first, second = "model.layers.0.self_attn.q_proj.weight", "model.layers.1.input_layernorm.weight"
    order = np.random.default_rng(0).permutation(32)
    tensors = dict(model.tensors)
    tensors[first] = replace(tensors[first], order=order, factor=0.3)
    tensors[second] = replace(tensors[second], more=1.0)
    model = replace(model, tensors=tensors)
    arithmetic = Arithmetic.of(machine(), dtype)
    whole, losses = model.rounded(arithmetic)
    mapped = model.mapped(arithmetic)
    assert list(mapped) == list(whole)
    assert len(mapped) == len(whole)
    for name, values in whole.items():
        assert np.array_equal(np.asarray(mapped[name]), values)
        assert mapped[name].shape == values.shape
    assert [loss for loss in mapped.losses if loss.inexact] == losses
    for index in (slice(3, 9), slice(None, None, 2), slice(5, 2), 4):
        assert np.array_equal(mapped[first][index], whole[first][index])
    assert np.asarray(mapped[first], np.float64).dtype == np.float64


def test_losses_of_parts_add_up():
    """A tensor that is read in parts has lost what it loses as a whole; the row of a token is not counted."""
    values = np.random.default_rng(0).standard_normal((10, 3)).astype(np.float32)
    name = "lm_head.weight"
    model = LanguageModel("x", Configuration(DECODER), {name: Tensor(name, "F32", values)}, None)
    arithmetic = Arithmetic.of(machine(), "f16")
    (whole,) = model.rounded(arithmetic)[1]
    mapped = model.mapped(arithmetic)
    for part in (slice(0, 4), slice(4, 10), slice(0, 4), 3):
        mapped[name][part]
    assert [loss.values for loss in mapped.losses] == [12, 18]
    assert sum(loss.inexact for loss in mapped.losses) == whole.inexact
    assert max(loss.relative for loss in mapped.losses) == whole.relative


def test_random_tensors_do_not_depend_on_what_else_is_drawn(monkeypatch):
    """Any rows are those of the whole, over blocks that are drawn by themselves; other seeds give other weights."""
    monkeypatch.setattr(random_model, "BLOCK", 100)
    arithmetic, model = Arithmetic.of(machine(), "f16"), RandomModel("x", Configuration(DECODER), 3)
    whole, losses = model.rounded(arithmetic)
    assert losses == []
    mapped = model.mapped(arithmetic)
    for name, values in whole.items():
        assert values.shape == mapped[name].shape
        for index in (slice(1, len(values)), slice(3, 4), slice(2, 7), len(values) - 1):
            assert np.array_equal(mapped[name][index], values[index])
    head = whole["lm_head.weight"]
    assert len(np.unique(head)) > 0.9 * head.size  # no block repeats another one
    assert abs(head.std() * 24**0.5 - 1) < 0.2
    other = RandomModel("x", Configuration(DECODER), 4).rounded(arithmetic)[0]
    assert not np.array_equal(other["lm_head.weight"], head)


def test_the_plain_decoder_takes_them(monkeypatch):
    """Logits are those of tensors that are there, also if the output matrix is taken in pieces."""
    monkeypatch.setattr("harness.models.plain.MOST", 100)
    for more in ({}, {"learned": True, "tied": True}, {"experts": 3, "chosen": 2}):
        model = RandomModel("x", Configuration(replace(DECODER, **more)))
        arithmetic = Arithmetic.of(machine(), "f16")
        one, two = (PlainDecoder(model.configuration.decoder, weights, np.float64)
                    for weights in (model.rounded(arithmetic)[0], model.mapped(arithmetic)))  # fmt: skip
        assert np.allclose(one.forward([3, 1]), two.forward([3, 1]), rtol=1e-12, atol=1e-12)
        assert np.allclose(one.forward([4]), two.forward([4]), rtol=1e-12, atol=1e-12)
