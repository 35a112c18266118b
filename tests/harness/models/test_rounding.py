"""Weights in the formats of the PEs: where nothing is lost, what is counted, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from harness.models.rounding import rounded, rounded_weights
from harness.models.tensors import Tensor
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic
from wse_core.params import machine

F16, CB16 = (Arithmetic.of(machine("wse2"), name) for name in ("f16", "cb16"))


def bf16(low, high):
    """Return all numbers of bf16 between two sizes, of both signs."""
    codes = np.arange(1 << 15, dtype=np.uint32)
    values = (codes << 16).astype(np.uint32).view(np.float32)
    values = values[np.isfinite(values) & (values >= low) & (values <= high)]
    return np.concatenate((values, -values))


@pytest.mark.parametrize(("arithmetic", "low", "high"), [(F16, 2.0**-17, 65280), (CB16, 2.0**-43, 2_088_960)])
def test_numbers_of_bf16_that_lose_nothing(arithmetic, low, high):
    values = bf16(low, high)
    near, loss = rounded("w", values, arithmetic)
    np.testing.assert_array_equal(near, values)
    assert (loss.inexact, loss.flushed, loss.relative) == (0, 0, 0.0)
    smaller = bf16(low / 2, np.nextafter(np.float32(low), np.float32(0)))
    assert rounded("w", smaller, arithmetic)[1].inexact > 0
    above = np.float32(high) * np.float32(1.0039)
    with pytest.raises(ConfigError, match=f"tensor w: .* no number that {arithmetic.fmt} has"):
        rounded("w", bf16(above, 2 * above), arithmetic)


def test_what_is_lost_is_counted():
    values = np.array([1.0, 1.0 + 2.0**-12, 2.0**-26, 0.0, -3.0], np.float32)
    near, loss = rounded("w", values, F16)
    np.testing.assert_array_equal(near, values.astype(np.float16).astype(np.float32))
    assert (loss.values, loss.inexact, loss.flushed) == (5, 2, 1)
    assert loss.relative == pytest.approx(2.0**-12, rel=1e-3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e6])
def test_what_is_no_number_is_refused_with_its_place(value):
    values = np.zeros((2, 3), np.float32)
    values[1, 2] = value
    with pytest.raises(ConfigError, match=r"tensor w: .* at \[1, 2\]") as caught:
        rounded("w", values, F16)
    assert ("cb16" in str(caught.value)) == np.isfinite(value)  # no format has what is no number


def test_norms_keep_what_they_have():
    """PEs hold them in f32; what is no number is refused all the same."""
    values = np.array([1.0 + 2.0**-20, 1e30], np.float32)
    weights, losses = rounded_weights({"model.norm.weight": Tensor("model.norm.weight", "F32", values)}, F16)
    assert not losses
    assert np.array_equal(weights["model.norm.weight"], values)
    values[1] = np.inf
    with pytest.raises(ConfigError, match=r"tensor model.norm.weight: inf at \[1\] is no number"):
        rounded_weights({"model.norm.weight": Tensor("model.norm.weight", "F32", values)}, F16)


def test_only_tensors_that_lost_something_are_reported():
    tensors = {
        "a": Tensor("a", "F32", np.array([0.1], np.float32)),
        "b": Tensor("b", "F16", np.array([0.1], np.float16)),
    }
    weights, losses = rounded_weights(tensors, F16)
    assert [loss.name for loss in losses] == ["a"]
    assert weights["a"] == weights["b"] == np.float32(np.float16(0.1))
