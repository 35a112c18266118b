"""What is streamed: 16-bit values of each format, and steps that reach any column."""

from __future__ import annotations

import numpy as np
import pytest

from memx.optimizer import SGD
from memx.parameter import FORMATS, Parameter
from memx.pattern import Pattern
from wse_core import numerics
from wse_core.sparse import ESCAPE, decode_steps, unpack


def exact(values, digits, least):
    """Round float64 values to so many binary digits, to nearest even; the smallest normal is 2^least."""
    mantissa, exponent = np.frexp(np.asarray(values, np.float64))
    shift = np.maximum(exponent, least + 1) - digits
    return np.ldexp(np.rint(np.ldexp(mantissa, exponent - shift)), shift)


@pytest.mark.parametrize(
    ("fmt", "bias", "digits", "least"),
    [("f16", 42, 11, -14), ("cb16", 42, 10, -41), ("cb16", 31, 10, -30), ("bf16", 42, 8, -126)],
)
def test_values_are_rounded_once_to_nearest_even(fmt, bias, digits, least):
    """FP16 has ten bits of fraction, CB16 nine and six of exponent, BF16 seven and eight; ties and subnormals too."""
    rng = np.random.default_rng(5)
    draws = np.ldexp(rng.uniform(-1, 1, 200_000), rng.integers(least - 12, min(14, -least - 2), 200_000))
    ties = 1 + (2 * np.arange(256) + 1) * 2.0**-digits
    weights = np.concatenate([draws, ties, -ties]).astype(np.float32)
    p = Parameter("w", weights[None], fmt=fmt, bias=bias)
    streamed = numerics.convert(p.values, fmt, "f32", bias, False).view(np.float32)
    assert np.array_equal(streamed, exact(weights, digits, least).astype(np.float32))


def test_every_format_streams_what_it_holds():
    """The same weights in three formats: what comes out of the stream differs by the format's rounding only."""
    rng = np.random.default_rng(6)
    weights = rng.standard_normal((5, 7)).astype(np.float32)
    pattern = Pattern.random((5, 7), 0.5, rng)
    for fmt, step in zip(FORMATS, (2.0**-11, 2.0**-10, 2.0**-8), strict=True):
        p = Parameter("w", weights, fmt=fmt, pattern=pattern)
        for (starts, words), wanted in ((p.forward(), weights), (p.backward(), weights.T)):
            values, steps = unpack(words)
            indptr, indices = decode_steps(starts, steps)
            rows = np.repeat(np.arange(len(starts) - 1), np.diff(indptr))
            came = numerics.convert(values, fmt, "f32", p.bias, False).view(np.float32)
            there = wanted[rows, indices]
            assert (np.abs(came - there) <= step * np.abs(there)).all()


@pytest.mark.parametrize(("width", "density"), [(64, 0.3), (70_000, 2e-4), (200_000, 1e-5)])
def test_rows_of_any_width_come_back(width, density):
    """Gaps above 65,535 take fillers of value zero; an entry or a filler takes four bytes."""
    rng = np.random.default_rng(7)
    mask = rng.random((40, width)) < density
    mask[:2] = False
    mask[1, [0, width - 1]] = True
    weights = rng.standard_normal((40, width)).astype(np.float32)
    p = Parameter("w", weights, pattern=Pattern.of_mask(mask))
    starts, words = p.forward()
    values, steps = unpack(words)
    assert words.nbytes == 4 * (p.pattern.count + np.count_nonzero(steps == ESCAPE))
    assert (np.count_nonzero(steps == ESCAPE) > 0) == (width > ESCAPE)
    assert not values[steps == ESCAPE].any()
    assert Pattern.of_steps(mask.shape, starts, steps) == p.pattern
    assert np.array_equal(values[steps != ESCAPE].view(np.float16), weights[mask].astype(np.float16))


def test_gradients_come_back_in_the_order_of_the_request():
    """Bare FP32 numbers: four bytes per place, and an update that is asked for in another order is another pattern."""
    rng = np.random.default_rng(8)
    p = Parameter("w", np.zeros((6, 5), np.float32), pattern=Pattern.dense((6, 5)))
    p.gradient_pattern = asked = Pattern.random((6, 5), 0.5, rng)
    starts, steps = p.request()
    assert Pattern.of_steps((6, 5), starts, steps) == asked
    gradients = np.arange(1, asked.count + 1, dtype=np.float32)
    assert gradients.nbytes == 4 * asked.count
    p.update(SGD(lr=1.0), 1, gradients)
    assert np.array_equal(-p.dense[asked.mask()], gradients)
    assert not p.dense[~asked.mask()].any()
