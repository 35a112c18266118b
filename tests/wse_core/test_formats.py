"""Float formats of a machine: limits as those of numpy, special numbers of every kind, data at random."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wse_core import formats
from wse_core.formats import Arithmetic
from wse_core.params import machine

F32 = Arithmetic.of(machine(), "f32")
F16 = Arithmetic.of(machine(), "f16")
CB16 = Arithmetic.of(machine(), "cb16")


@pytest.mark.parametrize(("arithmetic", "info"), [(F16, np.finfo(np.float16)), (F32, np.finfo(np.float32))])
def test_limits_are_those_of_numpy(arithmetic, info):
    assert arithmetic.unit == float(info.eps) / 2
    assert arithmetic.largest == float(info.max)
    assert arithmetic.smallest_normal == float(info.smallest_normal)
    assert arithmetic.underflow == float(info.smallest_subnormal) / 2


@pytest.mark.parametrize("bias", [31, 42, 62])
def test_limits_of_cb16(bias):
    found = Arithmetic.of(machine("wse2", {"num.cb16_bias": bias}), "cb16")
    bits = np.array([0x7DFF, 0x0200, 0x0001, 0x7E00], np.uint16)
    largest, normal, subnormal, infinity = found.decode(bits)
    assert (found.largest, found.smallest_normal, 2 * found.underflow) == (largest, normal, subnormal)
    assert infinity == math.inf


@pytest.mark.parametrize("arithmetic", [F16, CB16, F32])
def test_specials_have_every_kind(arithmetic):
    values = arithmetic.decode(arithmetic.specials())
    assert np.isnan(values).sum() == 3
    assert np.isposinf(values).sum() == np.isneginf(values).sum() == 1
    assert (np.abs(values) == arithmetic.largest).sum() == 2
    assert ((values != 0) & (np.abs(values) < arithmetic.smallest_normal)).sum() == 2
    assert (values == 0).sum() == 2


@pytest.mark.parametrize("arithmetic", [F16, CB16, F32])
def test_data(arithmetic):
    rng = np.random.default_rng(1)
    assert (arithmetic.decode(arithmetic.random(rng, (5, 7), "ones")) == 1).all()
    normal = arithmetic.decode(arithmetic.random(rng, (100, 10)))
    assert abs(normal.mean()) < 0.2
    assert np.isfinite(normal).all()
    special = arithmetic.decode(arithmetic.random(rng, (100, 10), "special"))
    assert np.isnan(special).any()
    assert np.isfinite(special).mean() > 0.8
    few = arithmetic.decode(arithmetic.random(rng, (100, 10), "special", terms=100))
    assert (few != few).sum() + np.isinf(few).sum() <= 2


@pytest.mark.parametrize("arithmetic", [F16, CB16])
def test_many_numbers_are_drawn_out_of_quantiles(arithmetic, monkeypatch):
    """As normal as the usual ones: moments, tails, neighbours without relation; the same again for the same seed."""
    shape = 500, 400
    usual = arithmetic.random(np.random.default_rng(1), shape)
    monkeypatch.setattr(formats, "MANY", math.prod(shape))
    bits = arithmetic.random(np.random.default_rng(1), shape)
    assert not np.array_equal(bits, usual)
    assert np.array_equal(bits, arithmetic.random(np.random.default_rng(1), shape))
    values, plain = arithmetic.decode(bits), arithmetic.decode(usual)
    assert abs(values.mean()) < 0.01
    assert abs(values.std() - 1) < 0.01
    assert abs(np.corrcoef(values[:, :-1].ravel(), values[:, 1:].ravel())[0, 1]) < 0.01
    for z in (0.1, 1, 2, 3):
        assert (np.abs(values) > z).mean() == pytest.approx((np.abs(plain) > z).mean(), rel=0.15, abs=1e-4)
    assert 3.9 < np.abs(values).max() < 4.5


def test_arrays_of_float32_are_encoded_as_numbers_are():
    """Many at a time by numpy: every f16 number, what lies in the middle of two, beside that, and any bits."""
    numbers = np.sort(F16.decode(np.arange(1 << 16, dtype=np.uint16)))
    middles = ((numbers[1:] + numbers[:-1]) / 2).astype(np.float32)
    random = np.random.default_rng(0).integers(0, 1 << 32, 100_000).astype(np.uint32).view(np.float32)
    ends = [np.nextafter(middles, np.float32(side), dtype=np.float32) for side in (-np.inf, np.inf)]
    given = np.concatenate([numbers.astype(np.float32), middles, *ends, random])
    with np.errstate(invalid="ignore"):  # float64 of a signalling NaN
        wanted = F16.encode(given.astype(np.float64))
    assert np.array_equal(F16.encode(given), wanted)
    assert np.array_equal(F16.encode(given[:10].reshape(2, 5)), wanted[:10].reshape(2, 5))
