"""Cost functions of the contest against values worked out by hand, and shapes against all execution arguments."""

from __future__ import annotations

from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from harness.place.kernels import Arguments, ContestKernel
from harness.place.shapes import FOREVER, NEVER, Shapes, inverse, least_time
from tests.examples import examples
from tests.harness.place.exhaustive import shapes as all_shapes

CONV = ContestKernel("k13", "conv", (112, 112, 128, 64, 1, 1, 1, 1))


def test_a_convolution_by_hand():
    given = Arguments(3, 4, (3,), (22,))
    assert CONV.size(given) == (66, 48)  # 3 k, h w (c + 1)
    assert CONV.time(given) == 38 * 28 * 43 * 3
    # 128/3 64/22 weights, 112/4 112/3 64/22 activations
    assert CONV.memory(given) == Fraction(128 * 64, 66) + Fraction(28 * 112 * 64, 66)


def test_a_stride_and_a_filter_by_hand():
    kernel = ContestKernel("k", "conv", (14, 14, 512, 512, 3, 3, 2, 2))
    given = Arguments(2, 1, (10,), (100,))
    assert kernel.size(given) == (300, 22)
    assert kernel.time(given) == Fraction(7 * 14 * 52 * 6 * 9, 4)
    assert kernel.memory(given) == Fraction(512 * 512 * 9, 1000) + Fraction(16 * 16 * 512, 200)


def test_blocks_by_hand():
    dblock = ContestKernel("d", "dblock", (8, 8, 16))
    given = Arguments(2, 2, (4, 2, 1), (1, 2, 3))
    assert dblock.size(given) == (18, 20)  # 3 (1 + 2 + 3), 4 (4 + 1)
    assert dblock.time(given) == max(4 * 4 * 4 * 4, 16 * 2 * 2 * 9, 16 * 4 * 6)
    assert dblock.memory(given) == max(
        Fraction(16 + 4 * 16 * 4, 4) * 1 + 0,
        Fraction(4, 2) * 2 * 9 + 5 * 5 * 2,
        Fraction(4 * 16, 3) + 16 * Fraction(16, 3),
    )
    cblock = ContestKernel("c", "cblock", (8, 8, 16))
    given = Arguments(2, 2, (1, 1, 1, 1), (1, 1, 1, 1))
    assert cblock.size(given) == (12, 8)
    # The second and the last part have stride 2, the third half of the image.
    assert cblock.time(given) == max(16 * 8 * 4, 16 * 4 * 4 * 9 // 4, 4 * 4 * 16, 16 * 8 * 16 // 4)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Arguments(0, 1, (1,), (1,)), "h = 0"),
        (Arguments(1, 113, (1,), (1,)), "w = 113 is not 1 to 112"),
        (Arguments(1, 1, (129,), (1,)), "c = 129"),
        (Arguments(1, 1, (1,), (65,)), "k = 65"),
        (Arguments(1, 1, (1, 1), (1,)), "has 1 of c and k"),
    ],
)
def test_arguments_out_of_range(given, said):
    assert said in CONV.refused(given)
    assert CONV.refused(Arguments(112, 112, (128,), (64,))) == ""


kernels = st.one_of(
    st.builds(
        lambda h, w, c, k, r, t: ContestKernel("k", "conv", (h, w, c, k, r, r, t, t)),
        *(st.integers(1, 5) for _ in range(4)),
        st.sampled_from((1, 3)),
        st.sampled_from((1, 2)),
    ),
    st.sampled_from((ContestKernel("k", "dblock", (3, 2, 4)), ContestKernel("k", "cblock", (2, 2, 4)))),
)


@examples(40)
@given(kernels, st.integers(3, 26), st.integers(3, 26), st.integers(2, 400), st.integers(0, 9))
def test_shapes_are_the_best_of_all_arguments(kernel, width, height, memory, place):
    """The curve at any time limit is that of all execution arguments, and the arguments found have it."""
    table = all_shapes(kernel, width, height, memory)
    if kernel.kind == "cblock":  # h and w stay arguments of its half-sized part
        table = {size: t for size, t in table.items() if any_small(kernel, size, t, memory)}
    shapes = Shapes(kernel, width, height, memory)
    times = sorted(set(table.values()))
    limit = times[place % len(times)] if times else Fraction(FOREVER)
    wanted = np.full(width + 1, NEVER)
    for (w, h), time in table.items():
        if time <= limit:
            wanted[w] = min(wanted[w], h)
    wanted = np.minimum.accumulate(wanted)
    curve = shapes.curve(limit)
    assert curve.tolist() == wanted.tolist()
    for w in range(1, width + 1):
        found = shapes.arguments(limit, w, height)
        assert (found is None) == (curve[w] == NEVER)
        if found is not None:
            found = shapes.arguments(limit, w, int(curve[w]))
            size = kernel.size(found[0])[:: -1 if found[1] else 1]
            assert size[0] <= w
            assert size[1] <= curve[w]
            assert kernel.refused(found[0]) == ""
            assert kernel.time(found[0]) <= limit
            assert kernel.memory(found[0]) <= memory


def any_small(kernel, size, time, memory):
    """Whether a shape of a cblock is there with h and w of half the image."""
    for turned in (False, True):
        w, h = size[::-1] if turned else size
        for c in np.ndindex(2, 1, 1, 2):
            for k in np.ndindex(1, 1, 4, 4):
                given = Arguments(1, 1, tuple(x + 1 for x in c), tuple(x + 1 for x in k))
                if kernel.size(given) == (w, h) and kernel.memory(given) <= memory and kernel.time(given) == time:
                    return True
    return False


def test_inverse_is_its_own_inverse():
    curve = np.array([NEVER, NEVER, 7, 7, 5, 2, 2])
    back = inverse(curve, 8)
    assert back.tolist() == [NEVER, NEVER, 5, 5, 5, 4, 4, 2, 2]
    assert inverse(back, 6).tolist() == curve.tolist()


def test_bound_by_area():
    """One kernel of 12 PEs at least for time 4, 6 for 8: a wafer of 6 has room at 8."""
    kernel = ContestKernel("k", "conv", (1, 1, 1, 4, 1, 1, 1, 1))
    shapes = Shapes(kernel, 12, 12, 100)
    assert [shapes.area(Fraction(t)) for t in (4, 2, 1)] == [6, 12, 24]
    assert float(least_time([shapes], [1], 6)) == pytest.approx(4, rel=1e-3)
    assert float(least_time([shapes], [2], 24)) == pytest.approx(2, rel=1e-3)
