"""Every scalar form, in every format, against the reference, two oracles and the definitions of docs/numerics.md.

Single operations drawn by hypothesis or crossed from edge codes, ties, cases that the page names, the requirements on
formats.  test_numerics_in_bulk.py has all codes and millions of operands.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import SOAK, examples
from tests.wse_core import exact
from tests.wse_core.forms import (
    ALL16,
    ARITHMETIC,
    BINARY,
    CODE_OF,
    COMPARE,
    HALVES,
    MANY,
    STORED,
    bits_of,
    code,
    columns,
    over,
    reference_for,
    several,
    witnesses,
)
from wse_core import numerics
from wse_core.reference import numerics as reference

# ---- one operation at a time -----------------------------------------------------------------------------------


@over(ARITHMETIC)
@examples(40)
@given(data=st.data(), ftz=st.booleans())
def test_binary_operations_agree_with_reference_and_oracles(fmt, bias, data, ftz):
    rows = data.draw(several(2, fmt, bias))
    num, prefix = reference_for(fmt, bias, int(ftz))
    f = exact.layout(fmt, bias)
    a, b = columns(rows, fmt, fmt)
    for name, short in BINARY.items():
        got = getattr(numerics, name)(a, b, fmt, bias, ftz).tolist()
        assert got == [getattr(num, prefix + short)(*row) for row in rows], name
        if short in ("add", "sub", "mul", "div"):
            for row, result in zip(rows, got, strict=True):
                assert witnesses(short, [(f, x) for x in row], f, ftz) == [result] * len(exact.ORACLES), (name, row)
    for name in COMPARE:
        got = getattr(numerics, name)(a, b, fmt, bias, ftz).tolist()
        assert got == [bool(getattr(num, prefix + name)(*row)) for row in rows], name


@over(ARITHMETIC)
@examples(60)
@given(data=st.data(), ftz=st.booleans())
def test_fma_agrees_with_reference_and_oracles(fmt, bias, data, ftz):
    rows = data.draw(several(3, fmt, bias))
    num, prefix = reference_for(fmt, bias, int(ftz))
    f = exact.layout(fmt, bias)
    got = numerics.fma(*columns(rows, fmt, fmt, fmt), fmt, bias, ftz).tolist()
    for row, result in zip(rows, got, strict=True):
        assert getattr(num, prefix + "fma")(*row) == result
        assert witnesses("fma", [(f, x) for x in row], f, ftz) == [result] * len(exact.ORACLES)


@over(ARITHMETIC)
@examples(60)
@given(data=st.data(), ftz=st.booleans(), separate=st.booleans())
def test_whole_numbers_give_what_rationals_give(fmt, bias, data, ftz, separate):
    """The quick forms of the reference against its own exact ones, which have everything else too."""
    known, prefix = reference_for(fmt, bias, int(ftz))
    quick, plain = (reference.Num(known.half, known.bias, known.ftz, separate) for _ in range(2))
    plain._whole = lambda fmt, code: None
    cases = [(form, prefix + form, fmt, fmt, fmt) for form in ("add", "sub", "mul", "fma")]
    if fmt != "f32":
        cases += [("add", "hs_add", fmt, "f32", "f32"), ("fma", "hs_fma", fmt, fmt, "f32")]
    for form, name, *formats in cases:
        operands = [data.draw(code(one, bias)) for one in formats][: 3 if form == "fma" else 2]
        assert getattr(quick, name)(*operands) == getattr(plain, name)(*operands), (name, list(map(hex, operands)))


@over(HALVES)
@examples(60)
@given(data=st.data(), ftz=st.booleans())
def test_mixed_operations_agree_with_reference_and_oracles(fmt, bias, data, ftz):
    triple = st.tuples(code(fmt, bias), code(fmt, bias), code("f32", bias))
    rows = data.draw(st.lists(triple, min_size=1, max_size=10))
    num, _ = reference_for(fmt, bias, int(ftz))
    f = exact.layout(fmt, bias)
    a, b, c = columns(rows, fmt, fmt, "f32")
    fused = numerics.fma_mixed(a, b, c, fmt, bias, ftz).tolist()
    added = numerics.add_mixed(a, c, fmt, bias, ftz).tolist()
    for (x, y, z), result, total in zip(rows, fused, added, strict=True):
        assert num.hs_fma(x, y, z) == result
        assert num.hs_add(x, z) == total
        assert witnesses("fma", [(f, x), (f, y), (exact.F32, z)], exact.F32, ftz) == [result] * len(exact.ORACLES)
        assert witnesses("add", [(f, x), (exact.F32, z)], exact.F32, ftz) == [total] * len(exact.ORACLES)


@over(ARITHMETIC)
@examples(30)
@given(data=st.data(), ftz=st.booleans())
def test_unary_operations_agree_with_reference_and_oracles(fmt, bias, data, ftz):
    rows = data.draw(several(1, fmt, bias))
    num, prefix = reference_for(fmt, bias, int(ftz))
    f = exact.layout(fmt, bias)
    (a,) = columns(rows, fmt)
    for name, short in (("sqrt", "sqrt"), ("neg", "neg"), ("absolute", "abs")):
        got = getattr(numerics, name)(a, fmt, bias, ftz).tolist()
        assert got == [getattr(num, prefix + short)(x) for (x,) in rows], name
        if short == "sqrt":
            for (x,), result in zip(rows, got, strict=True):
                assert witnesses("sqrt", [(f, x)], f, ftz) == [result] * len(exact.ORACLES)


@over(ARITHMETIC)
@examples(30)
@given(data=st.data(), ftz=st.booleans())
def test_scale_agrees_with_reference(fmt, bias, data, ftz):
    power = st.one_of(st.integers(-60, 60), st.integers(-700, 700), st.sampled_from([-(2**31), 2**31 - 1]))
    rows = data.draw(st.lists(st.tuples(code(fmt, bias), power), min_size=1, max_size=10))
    num, prefix = reference_for(fmt, bias, int(ftz))
    a = columns([(x,) for x, _ in rows], fmt)[0]
    got = numerics.scale(a, np.array([n for _, n in rows]), fmt, bias, ftz).tolist()
    # the reference takes 2**n literally; beyond +-700 nothing changes any more
    assert got == [getattr(num, prefix + "scale")(x, max(-700, min(700, n))) for x, n in rows]


@examples(100)
@given(data=st.data(), source=st.sampled_from(STORED), target=st.sampled_from(STORED), ftz=st.booleans())
def test_convert_agrees_with_reference_and_oracles(data, source, target, ftz):
    bias = data.draw(st.sampled_from([1, 31, 42, 62]))
    source, target = source[0], target[0]
    rows = data.draw(several(1, source, bias))
    num = reference.Num(reference.FMT_CB16, bias, int(ftz))
    f, out = exact.layout(source, bias), exact.layout(target, bias)
    got = numerics.convert(columns(rows, source)[0], source, target, bias, ftz).tolist()
    for (x,), result in zip(rows, got, strict=True):
        assert num.convert(CODE_OF[source], CODE_OF[target], x) == result
        assert witnesses("move", [(f, x)], out, ftz) == [result] * len(exact.ORACLES)


@over(ARITHMETIC)
@examples(30)
@given(data=st.data())
def test_to_int_agrees_with_reference(fmt, bias, data):
    f = exact.layout(fmt, bias)
    near = st.one_of(st.integers(-70000, 70000), st.integers(-(2**31) - 600, 2**31 + 600)).map(lambda v: v / 4)
    encoded = near.map(lambda v: int(f.round_array([v])[0]))
    codes = data.draw(st.lists(st.one_of(encoded, code(fmt, bias)), min_size=1, max_size=10))
    num, prefix = reference_for(fmt, bias)
    a = columns([(x,) for x in codes], fmt)[0]
    for dtype, short in (("int16", "i16"), ("uint16", "u16"), ("int32", "i32")):
        for rne, rounding in enumerate(("truncate", "nearest")):
            got = numerics.to_int(a, fmt, dtype, rounding, bias)
            assert got.dtype == dtype
            assert got.tolist() == [getattr(num, f"{prefix}to_{short}")(x, rne) for x in codes]


@over(ARITHMETIC)
@examples(30)
@given(data=st.data())
def test_from_int_agrees_with_reference(fmt, bias, data):
    num, _ = reference_for(fmt, bias)
    suffix = "f32" if fmt == "f32" else "h"
    for dtype, short in (("int16", "i16"), ("uint16", "u16"), ("int32", "i32")):
        info = np.iinfo(dtype)
        numbers = st.one_of(st.integers(int(info.min), int(info.max)), st.sampled_from([0, 1, info.max, info.min]))
        values = np.array(data.draw(st.lists(numbers, min_size=1, max_size=10)), dtype)
        got = numerics.from_int(values, fmt, bias).tolist()
        assert got == [getattr(num, f"{short}_to_{suffix}")(v) for v in values.tolist()]


@over(STORED)
@examples(40)
@given(data=st.data(), ftz=st.booleans())
def test_encode_rounds_once_from_float64(fmt, bias, data, ftz):
    f = exact.layout(fmt, bias)
    a = data.draw(code(fmt, bias)) & (f.inf - 1)
    middle = float((f.size(a) + f.size(a + 1)) / 2)
    tie_or_not = st.sampled_from([middle, math.nextafter(middle, 0), math.nextafter(middle, math.inf)])
    values = data.draw(st.lists(st.one_of(st.floats(), tie_or_not, tie_or_not.map(lambda v: -v)), max_size=10))
    num = reference.Num(reference.FMT_CB16, bias, int(ftz))
    target = num.formats[CODE_OF[fmt]]
    want = []
    for v in values:
        size = reference.NAN if math.isnan(v) else reference.INFINITE if math.isinf(v) else reference.Fraction(abs(v))
        want.append(num._out(target, reference.Real(math.copysign(1, v) < 0, size)))
    assert numerics.encode(np.array(values, np.float64), fmt, bias, ftz).tolist() == want


# ---- edges, crossed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ftz", [0, 1])
@over(ARITHMETIC)
def test_edge_codes_in_pairs(fmt, bias, ftz):
    f = exact.layout(fmt, bias)
    rows = list(itertools.product(exact.edge_codes(f), repeat=2))
    num, prefix = reference_for(fmt, bias, ftz)
    a, b = columns(rows, fmt, fmt)
    step = 1 if SOAK else 3
    for k, (name, short) in enumerate((*BINARY.items(), *zip(COMPARE, COMPARE, strict=True))):
        mine = slice(k % step, None, step)
        got = getattr(numerics, name)(a[mine], b[mine], fmt, bias, ftz)
        assert got.tolist() == [getattr(num, prefix + short)(*row) for row in rows[mine]], name


@over([("f16", 42), ("cb16", 42), ("f32", 42)])
def test_edge_codes_in_triples(fmt, bias):
    f = exact.layout(fmt, bias)
    rows = list(itertools.product(exact.edge_codes(f)[1::2], repeat=3))
    num, prefix = reference_for(fmt, bias)
    got = numerics.fma(*columns(rows, fmt, fmt, fmt), fmt, bias)
    assert got.tolist() == [getattr(num, prefix + "fma")(*row) for row in rows]


# ---- fused multiply-add at ties: what uniform bit patterns do not find -----------------------------------------


@over(ARITHMETIC)
def test_fma_at_constructed_ties(fmt, bias):
    f = exact.layout(fmt, bias)
    triples = exact.fma_ties(np.random.default_rng(20), f, f, 1500)
    num, prefix = reference_for(fmt, bias)
    got = numerics.fma(*triples, fmt, bias).tolist()
    rows = list(zip(*(column.tolist() for column in triples), strict=True))
    assert got == [getattr(num, prefix + "fma")(*row) for row in rows]
    for row, result in zip(rows[:60], got[:60], strict=True):
        assert witnesses("fma", [(f, x) for x in row], f, 0) == [result] * len(exact.ORACLES)
    # the cases are worth their name: rounding the float64 sum again goes wrong on some (by proof never for f16)
    with np.errstate(all="ignore"):
        a, b, c = (f.decode_array(column) for column in triples)
        twice = f.round_array(a * b + c)
    if fmt != "f16":
        assert np.count_nonzero(twice != got) > (
            1 if bias == 62 else 10
        )  # bias 62 ends at 2: few addends are that small
    else:
        assert twice.tolist() == got
        through_f32 = f.round_array((a * b + c).astype(np.float32))
        assert np.count_nonzero(through_f32 != got) > 10


@over(HALVES)
def test_mixed_fma_at_constructed_ties(fmt, bias):
    f = exact.layout(fmt, bias)
    rng = np.random.default_rng(21)
    # a product has too few bits to be a midpoint of f32, so the addend must be the long one: half an ulp of it
    a, b, _ = exact.fma_ties(rng, f, f, 750)
    c = exact.codes(rng, exact.F32, 750)
    with np.errstate(all="ignore"):
        product = f.decode_array(a) * f.decode_array(b)
        _, e = np.frexp(product)
    near = ((e + 127 + rng.integers(10, 30, len(e))).clip(1, 254) << 23 | rng.integers(0, 1 << 23, len(e))).astype(
        np.uint32
    )
    c = np.where(rng.random(len(c)) < 0.7, near, c)
    num, _ = reference_for(fmt, bias)
    got = numerics.fma_mixed(a, b, c, fmt, bias).tolist()
    assert got == [num.hs_fma(*row) for row in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("fmt", "bias", "a", "b", "c", "result", "wrong"),
    [
        # through float32 the low bits of the product are lost
        ("f16", 42, 0x03FE, 0xC402, 0x3BFF, 0x3BFF, 0x3BFE),
        # through float64 the addend is lost and the tie goes the wrong way
        ("cb16", 42, 0x3100, 0xFDAA, 0x0001, 0xDABF, 0xDAC0),
        # 4097*4097 + 2**-30 through float64: the sum falls on a midpoint of f32
        ("f32", 42, 0x45800800, 0x45800800, 0x30800000, 0x4B801001, 0x4B801000),
    ],
)
def test_known_double_rounding_cases(fmt, bias, a, b, c, result, wrong):
    assert numerics.fma(a, b, c, fmt, bias) == result
    f = exact.layout(fmt, bias)
    x, y, z = (f.decode_array([v])[0] for v in (a, b, c))
    short = np.float32(x) * np.float32(y) + np.float32(z) if fmt == "f16" else x * y + z
    assert f.round_array([short])[0] == wrong


# ---- what the definitions say in words -------------------------------------------------------------------------


@over(ARITHMETIC)
def test_zeros_infinities_and_nan(fmt, bias):
    f = exact.layout(fmt, bias)
    n = numerics
    one, zero, minus_zero, inf, payload = f.bias << f.m, 0, f.sign, f.inf, f.sign | f.inf | 1
    assert n.decode(one, fmt, bias) == 1.0
    how = {"fmt": fmt, "bias": bias}
    assert n.sub(one, one, **how) == zero
    assert n.add(one, one | f.sign, **how) == zero
    assert n.add(minus_zero, minus_zero, **how) == minus_zero
    assert n.add(minus_zero, zero, **how) == zero
    assert n.mul(minus_zero, one, **how) == minus_zero
    assert n.sqrt(minus_zero, **how) == minus_zero
    assert n.maximum(minus_zero, zero, **how) == n.maximum(zero, minus_zero, **how) == zero
    assert n.minimum(minus_zero, zero, **how) == n.minimum(zero, minus_zero, **how) == minus_zero
    assert n.div(one, minus_zero, **how) == inf | f.sign
    for result in (
        n.add(inf, inf | f.sign, **how),
        n.mul(zero, inf, **how),
        n.div(zero, zero, **how),
        n.div(inf, inf, **how),
        n.sqrt(one | f.sign, **how),
        n.fma(zero, inf, payload, **how),
        n.add(payload, one, **how),
        n.maximum(payload, one, **how),
        n.minimum(one, payload, **how),
        n.scale(payload, 1, **how),
    ):
        assert result == f.nan
    assert n.neg(payload, **how) == payload ^ f.sign
    assert n.absolute(payload, **how) == payload & (f.sign - 1)
    assert not n.eq(payload, payload, **how)
    assert not n.le(payload, one, **how)
    assert n.eq(zero, minus_zero, **how)
    assert not n.lt(minus_zero, zero, **how)
    largest = f.inf - 1
    assert n.add(largest, largest, **how) == inf


@over(ARITHMETIC)
def test_flushing_takes_operands_and_results_to_signed_zero(fmt, bias):
    f = exact.layout(fmt, bias)
    least, tiny = 1 << f.m, 1 << (f.m - 1)
    for ftz in (False, True):
        how = {"fmt": fmt, "bias": bias, "ftz": ftz}
        assert numerics.add(tiny, 0, **how) == (0 if ftz else tiny)
        assert numerics.sub(least, least + 1, **how) == (f.sign if ftz else f.sign | 1)
        assert numerics.scale(least | f.sign, -1, **how) == (f.sign if ftz else f.sign | tiny)
        assert numerics.maximum(tiny, f.sign, **how) == (0 if ftz else tiny)
        assert numerics.eq(tiny, 0, **how) == ftz
        assert numerics.neg(tiny, **how) == tiny | f.sign
        # flushed only if subnormal after rounding: this product rounds up to the smallest normal number
        if f.emin < 0:
            nearly_one = (f.bias << f.m) - 1
            assert numerics.mul(least, nearly_one, **how) == least


def test_saturation_and_nan_to_integer():
    codes = numerics.encode([3e9, -3e9, math.nan, math.inf, -math.inf, -0.5, 2.5, 3.5], "f32")
    assert numerics.to_int(codes, "f32", "int32").tolist() == [2**31 - 1, -(2**31), 0, 2**31 - 1, -(2**31), 0, 2, 3]
    assert numerics.to_int(codes, "f32", "uint16", "nearest").tolist() == [65535, 0, 0, 65535, 0, 0, 2, 4]


# ---- requirements on the formats -------------------------------------------------------------------------------


def test_fmt_01_f16_is_binary16():
    info = np.finfo(np.float16)
    assert numerics.decode(0x7BFF) == info.max
    assert numerics.decode(0x0400) == info.smallest_normal
    assert numerics.decode(0x0001) == info.smallest_subnormal
    values = np.random.default_rng(28).normal(size=MANY) * 2.0 ** np.random.default_rng(29).integers(-26, 17, MANY)
    with np.errstate(over="ignore"):
        assert np.array_equal(numerics.encode(values), bits_of(values.astype(np.float16)))


def test_fmt_02_cb16_with_bias_31():
    def value(c):
        return float(numerics.decode(c, "cb16", 31))

    assert value(0x7DFF) == 4290772992.0
    assert value(0x0200) == pytest.approx(9.3132e-10, rel=1e-5)
    assert value(0x0001) == pytest.approx(1.8190e-12, rel=1e-4)
    assert value(0x3E01) - value(0x3E00) == 2.0**-9
    normal = ALL16[((ALL16 >> 10) & 31 > 0) & ((ALL16 >> 10) & 31 < 31) & (ALL16 & 1 == 0)]
    for bias in (31, 42):
        inside = normal if bias == 31 else normal[np.abs(numerics.decode(normal)) <= 2095104]
        there = numerics.convert(inside, "f16", "cb16", bias)
        assert np.array_equal(numerics.convert(there, "cb16", "f16", bias), inside)
    # not bfloat16: that has 7 fraction bits and other codes
    assert numerics.convert(0x3E00, "cb16", "bf16", 31) == 0x3F80


def test_fmt_02_cb16_with_the_published_bit_pattern():
    assert numerics.encode(6.0, "cb16") == 0x5900
    assert numerics.encode(6.0, "f16") == 0x4600
    assert numerics.encode(6.0, "bf16") == 0x40C0
    assert numerics.decode(0x7DFF, "cb16") == 2095104.0


def test_fmt_03_bf16_is_the_rounded_top_half_of_f32():
    a = exact.codes(np.random.default_rng(30), exact.F32, MANY)
    a = a[~np.isnan(a.view(np.float32))].astype(np.uint64)
    want = (a + 0x7FFF + (a >> 16 & 1)) >> 16
    assert np.array_equal(numerics.convert(a.astype(np.uint32), "f32", "bf16"), want)
    assert numerics.decode(0x7F7F, "bf16") == pytest.approx(3.3895e38, rel=1e-4)


@pytest.mark.parametrize("bias", [31, 42])
def test_fmt_04_cb16_has_twice_the_binades(bias):
    binades = {}
    for fmt, f in (("f16", exact.F16), ("cb16", exact.cb16(bias))):
        normal = ALL16[1 << f.m : f.inf]
        binades[fmt] = len(set(np.frexp(numerics.decode(normal, fmt, bias))[1].tolist()))
    assert binades == {"f16": 30, "cb16": 62}
    # sizes as gradients have them: log-normal, a good part of them below f16's smallest normal number
    gradients = np.random.default_rng(31).lognormal(math.log(1e-5), 3.0, 100_000)
    share = {}
    for fmt, f in (("f16", exact.F16), ("cb16", exact.cb16(bias))):
        share[fmt] = np.mean(numerics.encode(gradients, fmt, bias) & f.inf == 0)
    assert share["f16"] > 0.5
    assert share["cb16"] < 0.01
