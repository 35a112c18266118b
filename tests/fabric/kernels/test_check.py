"""Bounds and the two comparisons: that they hold, and that they notice."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.kernels.kit import check, tiles
from fabric.kernels.kit.check import check_sum, sequential_sum
from fabric.kernels.kit.session import Session
from fabric.kernels.registry import KERNELS
from tests.examples import examples
from wse_core.formats import Arithmetic
from wse_core.params import machine

F32 = Arithmetic.of(machine(), "f32")


@examples(60)
@given(
    st.sampled_from(["f16", "cb16", "f32"]),
    st.integers(2, 300),
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.floats(-6, 3),
)
def test_the_bound_holds_for_sums_and_products(fmt, terms, seed, ftz, exponent):
    """Against exact sums; the magnitudes reach from subnormal numbers to overflow."""
    m = machine("wse2", {"num.ftz": int(ftz)})
    arithmetic, single = Arithmetic.of(m, fmt), Arithmetic.of(m, "f32")
    rng = np.random.default_rng(seed)
    scale = 10.0 ** (exponent * (6 if fmt == "f32" else 1))
    a, b = (arithmetic.encode(scale * rng.standard_normal((terms, 4))) for _ in "ab")
    x, y = arithmetic.operand(a), arithmetic.operand(b)
    total = sequential_sum(arithmetic, list(a))
    exact = np.array([math.fsum(column) for column in x.T])
    found = check_sum(arithmetic, total, total, exact, np.abs(x).sum(axis=0), terms - 1)
    assert found.verified
    zero = np.zeros((1, 1), np.uint32)
    product = np.array([arithmetic.product(a[:, k][None], b[:, k][:, None], zero)[0, 0] for k in range(4)])
    exact = np.array([math.fsum(x[:, k] * y[:, k]) for k in range(4)])  # each product is exact in float64
    found = check_sum(single, product, product, exact, (np.abs(x) * np.abs(y)).sum(axis=0), terms)
    assert found.verified


def test_check_notices_one_bit():
    bits = F32.encode([1.0, 2.0, 3.0])
    plain = F32.decode(bits)
    assert check_sum(F32, bits, bits, plain, plain, 5).verified
    other = bits ^ np.uint32([0, 1, 0])
    found = check_sum(F32, other, bits, plain, plain, 5)
    assert (found.bit_exact, found.within_bound, found.verified) == (False, True, False)
    wrong = bits + np.uint32([0, 1 << 12, 0])
    found = check_sum(F32, wrong, wrong, plain, plain, 5)
    assert (found.bit_exact, found.within_bound, found.verified) == (True, False, False)
    assert found.max_abs_error > found.max_bound


@pytest.mark.parametrize(
    ("value", "plain", "sound"),
    [
        (math.nan, math.nan, True),
        (1.0, math.nan, False),
        (math.inf, math.inf, True),
        (math.nan, math.inf, True),
        (3.0, math.inf, False),
        (math.inf, 1.0, False),
        (math.nan, 1.0, False),
        (math.inf, 3e38 * 4, True),
    ],
)
def test_check_of_what_is_not_finite(value, plain, sound):
    bits = F32.encode([value])
    found = check_sum(F32, bits, bits, [plain], [abs(plain)], 3)
    assert found.within_bound is sound
    assert found.n_bounded == (plain == 1.0)


@given(st.lists(st.integers(0, 9), max_size=4).map(tuple), st.integers(1, 40))
def test_parts_of_an_array_are_its_elements_once_each(shape, most):
    seen = np.zeros(shape, int)
    for at in check._parts(shape, most):
        assert seen[at].size <= most
        seen[at] += 1
    assert (seen == 1).all()


@given(st.integers(0, 1 << 32), st.integers(1, 30), st.booleans(), st.booleans())
def test_a_comparison_by_parts_is_that_of_the_whole(seed, most, special, wrong):
    rng = np.random.default_rng(seed)
    bits = F32.random(rng, (3, 4, 5), "special" if special else "normal")
    got = bits.copy()
    if wrong:
        got[tuple(rng.integers(0, bits.shape))] ^= np.uint32(1 << int(rng.integers(32)))
    plain = F32.decode(bits) * (1 + 2.0**-24 * rng.standard_normal(bits.shape))
    sums = (plain, np.abs(plain)), (None, None)
    for terms, roundings in zip(sums, (5, 0), strict=True):
        with np.errstate(invalid="ignore"):
            whole = check_sum(F32, got, bits, *terms, roundings)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(check, "BLOCK", most)
                parts = check_sum(F32, got, bits, *terms, roundings)
        assert str(parts) == str(whole)  # (a NaN is not equal to itself)
        assert whole.bit_exact is not wrong
    assert whole.verified or wrong


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (0, 1, 2), ()])
@pytest.mark.parametrize("wrong", [False, True])
def test_copies_are_compared_as_their_first(axes, wrong):
    """Whether an expectation is broadcast or written out changes nothing."""
    rng = np.random.default_rng(3)
    few = F32.random(rng, tuple(1 if axis in axes else n for axis, n in enumerate((4, 5, 6))), "special")
    expected = np.broadcast_to(few, (4, 5, 6))
    got = expected.copy()
    if wrong:
        got[3, 4, 5] ^= 1 << 30
    with np.errstate(invalid="ignore"):
        plain = F32.decode(few) * (1 + 2.0**-23)
        sums = [np.broadcast_to(values, got.shape) for values in (plain, np.abs(plain))]
        found = check_sum(F32, got, expected, *sums, 3)
        whole = check_sum(F32, got, expected.copy(), *(values.copy() for values in sums), 3)
    assert str(found) == str(whole)
    assert found.bit_exact is not wrong
    assert found.n_results == 120


def test_a_comparison_takes_little_memory():
    bits = F32.random(np.random.default_rng(0), (1 << 10, 1 << 11))
    few = np.broadcast_to(F32.decode(bits[:1]), bits.shape)
    tracemalloc.start()
    try:
        check_sum(F32, bits, bits, few, few, 3)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < bits.nbytes


@pytest.mark.parametrize("name", ["chain_reduce", "gemv", "gemm", "vector", "broadcast"])
def test_a_wrong_bit_of_the_machine_is_reported(name, monkeypatch):
    """What a kernel reads back decides: flip one bit of it."""
    read = Session.read

    def damaged(self, symbol, *rect):
        values = read(self, symbol, *rect)
        if symbol != "stamps":
            values = values.copy()
            values.reshape(-1)[0] ^= values.dtype.type(1)
        return values

    monkeypatch.setattr(Session, "read", damaged)
    sizes = {
        "vector": {"n": 9},
        "broadcast": {"width": 2, "height": 2, "n": 3},
        "chain_reduce": {"pes": 3, "n": 3},
        "gemv": {"p": 2, "m": 6, "n": 6},
        "gemm": {"p": 2, "m": 6, "k": 6, "n": 6},
    }[name]
    result = KERNELS[name].run(machine(), **sizes)
    assert result["bit_exact"] is False
    assert result["verified"] is False


def test_tiles_and_back():
    matrix = np.arange(6 * 8).reshape(6, 8)
    found = tiles.tiles(matrix, 2)
    assert found.shape == (2, 2, 3, 4)
    assert (found[1, 0] == matrix[3:, :4]).all()
    assert tiles.columns_first(found)[0, 1].tolist() == matrix[:3, 4:].T.ravel().tolist()
    assert tiles.rows_first(found)[0, 1].tolist() == matrix[:3, 4:].ravel().tolist()
    assert (tiles.pad(matrix, 7, 9)[:6, :8] == matrix).all()
    assert tiles.pad(matrix, 7, 9).sum() == matrix.sum()
