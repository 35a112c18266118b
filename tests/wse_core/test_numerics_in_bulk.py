"""Scalar forms on all 65,536 codes and on a million operands, against numpy and vectorised statements."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.wse_core import exact
from tests.wse_core.forms import ALL16, ARITHMETIC, HALVES, MANY, bits_of, over, reference_for, same_but_nan
from wse_core import numerics
from wse_core.reference import numerics as reference

# ---- all 65,536 codes ------------------------------------------------------------------------------------------


def test_f16_unary_operations_equal_numpy_on_every_code():
    x = ALL16.view(np.float16)
    with np.errstate(all="ignore"):
        assert same_but_nan(numerics.sqrt(ALL16), np.sqrt(x), "f16")
        assert same_but_nan(numerics.convert(ALL16, "f16", "f32"), x.astype(np.float32), "f32")
        assert np.array_equal(numerics.decode(ALL16), x.astype(np.float64), equal_nan=True)
        assert np.array_equal(numerics.neg(ALL16), bits_of(-x))
        assert np.array_equal(numerics.absolute(ALL16), bits_of(np.abs(x)))
        for n in (-30, -12, -1, 0, 3, 20):
            assert same_but_nan(numerics.scale(ALL16, n), np.ldexp(x, n), "f16")


@over(HALVES)
def test_every_code_decodes_as_the_reference_says_and_survives_the_way_back(fmt, bias):
    num, _ = reference_for(fmt, bias)
    values = numerics.decode(ALL16, fmt, bias)
    assert np.array_equal(values, exact.layout(fmt, bias).decode_array(ALL16), equal_nan=True)
    for c in range(0, 65536, 5):
        number = num.h.decode(c)
        if number.size not in (reference.NAN, reference.INFINITE):
            assert number.value == reference.Fraction(values[c])
    is_nan = np.isnan(values)
    canonical = np.where(is_nan, num.h.nan, ALL16)
    assert np.array_equal(numerics.encode(values, fmt, bias), canonical)
    wide = numerics.convert(ALL16, fmt, "f32", bias)
    assert np.array_equal(wide.view(np.float32), values.astype(np.float32), equal_nan=True)
    assert set(wide[is_nan].tolist()) == {0x7FC00000}
    assert np.array_equal(numerics.convert(wide, "f32", fmt, bias), canonical)
    flushed = np.where((ALL16 & num.h.infinity) == 0, ALL16 & 0x8000, canonical)
    assert np.array_equal(numerics.convert(ALL16, fmt, fmt, bias, ftz=True), flushed)


@over(HALVES)
def test_every_code_through_square_root_and_integers(fmt, bias):
    f = exact.layout(fmt, bias)
    x = f.decode_array(ALL16)
    with np.errstate(all="ignore"):
        # a square root rounded to 53 bits and again to 11 or 10 is right: it is never that close to a midpoint
        assert np.array_equal(numerics.sqrt(ALL16, fmt, bias), f.round_array(np.sqrt(x)))
        for rounding, whole in (("truncate", np.trunc(x)), ("nearest", np.rint(x))):
            for dtype in ("int16", "uint16", "int32"):
                info = np.iinfo(dtype)
                want = np.nan_to_num(whole, nan=0.0).clip(info.min, info.max).astype(np.int64)
                assert np.array_equal(numerics.to_int(ALL16, fmt, dtype, rounding, bias), want)
    for dtype in ("int16", "uint16"):
        values = ALL16.view(dtype)
        assert np.array_equal(numerics.from_int(values, fmt, bias), f.round_array(values.astype(np.float64)))


def test_every_code_between_the_16_bit_formats():
    for source, target in itertools.product(("f16", "cb16", "bf16"), repeat=2):
        for bias in (31, 42):
            got = numerics.convert(ALL16, source, target, bias)
            want = exact.layout(target, bias).round_array(exact.layout(source, bias).decode_array(ALL16))
            assert np.array_equal(got, want), (source, target, bias)


# ---- a million operands, vectorised ----------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", ["f16", "f32"])
def test_a_million_operands_equal_numpy(fmt):
    f = exact.layout(fmt, 42)
    rng = np.random.default_rng(22)
    dtype = np.float16 if fmt == "f16" else np.float32
    a, b = exact.codes(rng, f, MANY), exact.codes(rng, f, MANY)
    x, y = a.view(dtype), b.view(dtype)
    with np.errstate(all="ignore"):
        assert same_but_nan(numerics.add(a, b, fmt), x + y, fmt)
        assert same_but_nan(numerics.sub(a, b, fmt), x - y, fmt)
        assert same_but_nan(numerics.mul(a, b, fmt), x * y, fmt)
        assert same_but_nan(numerics.div(a, b, fmt), x / y, fmt)
        assert same_but_nan(numerics.sqrt(a, fmt), np.sqrt(x), fmt)
        assert np.array_equal(numerics.eq(a, b, fmt), x == y)
        assert np.array_equal(numerics.lt(a, b, fmt), x < y)
        assert np.array_equal(numerics.le(a, b, fmt), x <= y)
        zeros = (x == 0) & (y == 0)  # numpy's choice between zeros is the platform's
        for ours, theirs in ((numerics.maximum, np.maximum), (numerics.minimum, np.minimum)):
            assert same_but_nan(ours(a, b, fmt)[~zeros], theirs(x, y)[~zeros], fmt)
        n = rng.integers(-40, 40, MANY)
        assert same_but_nan(numerics.scale(a, n, fmt), np.ldexp(x, n), fmt)


@over([("cb16", 31), ("cb16", 42)])
def test_a_million_cb16_operands_equal_float32_rounded_once_more(fmt, bias):
    f = exact.layout(fmt, bias)
    rng = np.random.default_rng(23)
    a, b = exact.codes(rng, f, MANY // 2), exact.codes(rng, f, MANY // 2)
    x, y = (f.decode_array(v).astype(np.float32) for v in (a, b))
    with np.errstate(all="ignore"):
        for op, result in (("add", x + y), ("sub", x - y), ("mul", x * y), ("div", x / y)):
            assert np.array_equal(getattr(numerics, op)(a, b, fmt, bias), f.round_array(result)), op


@over(ARITHMETIC)
def test_a_million_fused_multiply_adds(fmt, bias):
    f = exact.layout(fmt, bias)
    n = MANY if (fmt, bias) != ("cb16", 1) and (fmt, bias) != ("cb16", 62) else MANY // 10
    rng = np.random.default_rng(24)
    a, b, c = (exact.codes(rng, f, n) for _ in range(3))
    total = exact.fma_array(*(f.decode_array(v) for v in (a, b, c)))
    got = numerics.fma(a, b, c, fmt, bias)
    if fmt == "f32":
        with np.errstate(all="ignore"):
            assert same_but_nan(got, total.astype(np.float32), "f32")
    else:
        assert np.array_equal(got, f.round_array(total))


@over([("f16", 42), ("cb16", 31), ("cb16", 42)])
def test_a_million_mixed_operations_equal_numpy_float32(fmt, bias):
    f = exact.layout(fmt, bias)
    rng = np.random.default_rng(25)
    a, b = exact.codes(rng, f, MANY // 2), exact.codes(rng, f, MANY // 2)
    c = exact.codes(rng, exact.F32, MANY // 2)
    x, y = (f.decode_array(v).astype(np.float32) for v in (a, b))
    with np.errstate(all="ignore"):
        assert same_but_nan(numerics.fma_mixed(a, b, c, fmt, bias), x * y + c.view(np.float32), "f32")
        assert same_but_nan(numerics.add_mixed(a, c, fmt, bias), x + c.view(np.float32), "f32")


def test_a_million_narrowings_of_f32():
    rng = np.random.default_rng(26)
    a = exact.codes(rng, exact.F32, MANY)
    # ties of f16, cb16 and bf16 at all exponents: the dropped bits are one and zeros, or its neighbours
    for drop in (13, 14, 16):
        tie = (a >> drop << drop | 1 << (drop - 1)).astype(np.uint32)
        a = np.concatenate([a, tie[: MANY // 10], tie[: MANY // 10] + 1, tie[: MANY // 10] - 1]).astype(np.uint32)
    x = a.view(np.float32)
    with np.errstate(all="ignore"):
        assert same_but_nan(numerics.convert(a, "f32", "f16"), x.astype(np.float16), "f16")
        for bias in (31, 42):
            want = exact.cb16(bias).round_array(x.astype(np.float64))
            assert np.array_equal(numerics.convert(a, "f32", "cb16", bias), want)


def test_f32_to_integers_and_back_equal_numpy_in_range():
    rng = np.random.default_rng(27)
    values = rng.integers(-(2**31), 2**31, 200_000).astype(np.int32)
    assert np.array_equal(numerics.from_int(values, "f32"), bits_of(values.astype(np.float32)))
    with np.errstate(over="ignore"):
        assert np.array_equal(numerics.from_int(values, "f16"), bits_of(values.astype(np.float16)))
    for dtype, limit in (("int16", 2**15), ("int32", 2**31)):
        x = (rng.uniform(-1, 1, 100_000) * (limit - 1) * 0.999).astype(np.float32)
        x[::7] = np.rint(x[::7]) * 0.5
        assert np.array_equal(numerics.to_int(bits_of(x), "f32", dtype), np.trunc(x).astype(dtype))
        assert np.array_equal(numerics.to_int(bits_of(x), "f32", dtype, "nearest"), np.rint(x).astype(dtype))
