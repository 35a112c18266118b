"""A number that is known and one that is not become the same float."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fabric.csl.comptime.numbers import of_integer
from fabric.csl.types import COMPTIME_FLOAT, FloatType
from tests.examples import examples
from tests.fabric.csl.running import run_task

KINDS = {"i64": (-(1 << 63), (1 << 63) - 1), "u64": (0, (1 << 64) - 1), "i32": (-(1 << 31), (1 << 31) - 1)}


@examples(40)
@given(st.data())
def test_integers_become_floats_alike(tmp_path_factory, data):
    """Near ties of 24 bits, where a double in between would round twice; f32 and, by way of it, 16 bits."""
    kind = data.draw(st.sampled_from(sorted(KINDS)))
    low, high = KINDS[kind]
    half = data.draw(st.sampled_from(("f16", "cb16")))
    tie = st.builds(lambda n, k, d: (2 * n + 1 << k) + d, st.integers(1 << 23, (1 << 24) - 1), st.integers(0, 38),
                    st.integers(-2, 2))  # fmt: skip
    numbers = data.draw(st.lists(st.one_of(tie, st.integers(low, high)), min_size=1, max_size=6))
    numbers = [max(low, min(high, number)) for number in numbers]
    body, declarations = "", [f"var y: [{2 * len(numbers)}]f32;", f"var h: [{2 * len(numbers)}]{half};"]
    for k, number in enumerate(numbers):
        declarations.append(f"var v{k}: {kind} = {number};")
        for at, text in enumerate((f"@as({kind}, {number})", f"v{k}")):
            body += f"y[{2 * k + at}] = @as(f32, {text}); h[{2 * k + at}] = @as({half}, {text});\n"
    found = run_task(
        tmp_path_factory.mktemp("floats"), body, *declarations, results={"y": "f4", "h": "u2"}, fp16=half
    )  # fmt: skip
    assert found["y"][::2].tolist() == found["y"][1::2].tolist() == [float(nearest(n)) for n in numbers]
    assert found["h"][::2].tolist() == found["h"][1::2].tolist()


def nearest(number):
    """Return an integer as f32 by numpy, which converts 64 bits with one rounding."""
    return np.float32(np.int64(number) if number < 1 << 63 else np.uint64(number))


def test_numbers_without_a_width():
    assert of_integer(9007199791611905, FloatType("f32")) == 9007200328482816.0
    assert of_integer(-(10**400), FloatType("f32")) == of_integer(-(10**400), COMPTIME_FLOAT) == -np.inf
    assert of_integer((1 << 53) + 1, COMPTIME_FLOAT) == float(1 << 53)
    assert of_integer(65519, FloatType("f16")) == 65504
    assert of_integer(0, FloatType("cb16")) == 0
