"""Products through the row kernels: bit for bit what scalar calls in the same order give, whatever the host."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from wse_core import numerics, vector
from wse_core.errors import ConfigError

FORMS = [("f16", "f16"), ("f16", "f32"), ("cb16", "cb16"), ("cb16", "f32"), ("f32", "f32")]
TYPES = {"f16": np.uint16, "cb16": np.uint16, "f32": np.uint32}


def step_by_step(a, b, c, fmt, bias, ftz):
    """Return C + A B by scalar calls, k after k."""
    fma = numerics.fma if c.dtype == TYPES[fmt] else numerics.fma_mixed
    for k in range(a.shape[1]):
        c = fma(a[:, k, np.newaxis], b[np.newaxis, k], c, fmt, bias, ftz)
    return c


@examples(200)
@given(st.data(), st.sampled_from(FORMS), st.sampled_from([7, 31, 42]), st.booleans())
def test_any_bits(data, form, bias, ftz):
    fmt, sums = form
    m, k, n = (data.draw(st.integers(0, 19), label=label) for label in "mkn")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    few = data.draw(st.booleans())

    def bits(rows, columns, kind):
        size = 32 if kind is np.uint32 else 16
        found = rng.integers(0, 1 << size, (rows, columns), dtype=kind)
        return found & np.array(~(0x7F << size - 9) & (1 << size) - 1, kind) if few else found

    a, b, c = bits(m, k, TYPES[fmt]), bits(k, n, TYPES[fmt]), bits(m, n, TYPES[sums])
    wanted = step_by_step(a, b, c, fmt, bias, ftz)
    kept = c.copy()
    for name in vector.backends():
        before = vector.set_backend(name)
        try:
            got = vector.product(a, b, c, fmt, bias, ftz)
        finally:
            vector.set_backend(before)
        assert got.dtype == c.dtype
        assert np.array_equal(got, wanted), name
    assert np.array_equal(c, kept)


@pytest.mark.parametrize(("fmt", "sums"), FORMS)
@pytest.mark.parametrize("shape", [(3, 700, 5), (260, 70, 1), (1, 70, 260), (33, 40, 2100)])
def test_long_and_narrow_products(fmt, sums, shape):
    m, k, n = shape
    rng = np.random.default_rng(5)
    a, b = (numerics.encode(rng.standard_normal(size), fmt) for size in ((m, k), (k, n)))
    c = numerics.encode(rng.standard_normal((m, n)), sums)
    wanted = step_by_step(a, b, c, fmt, numerics.BIAS_DEFAULT, False)
    assert np.array_equal(vector.product(a, b, c, fmt), wanted)
    assert np.array_equal(vector.product(np.asfortranarray(a), b[:, ::-1], c[:, ::-1], fmt), wanted[:, ::-1])


@pytest.mark.parametrize(
    ("a", "b", "c", "fmt", "message"),
    [
        ((2, 3), (4, 2), (2, 2), "f16", "a product of shapes"),
        ((2, 3), (3, 2), (2, 3), "f16", "added to"),
        ((6,), (3, 2), (2, 2), "f16", "a product of shapes"),
        ((2, 3), (3, 2), (2, 2), "bf16", "does not calculate in bf16"),
        ((2, 3), (3, 2), (2, 2), "f64", "no float format"),
    ],
)
def test_what_is_no_product_is_refused(a, b, c, fmt, message):
    with pytest.raises(ConfigError, match=message):
        vector.product(np.zeros(a, np.uint16), np.zeros(b, np.uint16), np.zeros(c, np.uint16), fmt)


def test_numbers_that_are_no_patterns_are_refused():
    with pytest.raises(ConfigError, match="a has dtype float64"):
        vector.product(np.zeros((2, 2)), np.zeros((2, 2), np.uint16), np.zeros((2, 2), np.uint16))


def test_an_interrupt_ends_a_long_product():
    """Ctrl-C is looked for between pieces; without that the product would end before the signal is heard."""
    a = np.zeros((4096, 4096), np.uint16)
    flag = threading.Event()

    def interrupt():
        flag.wait()
        time.sleep(0.05)
        signal.raise_signal(signal.SIGINT)

    def hear(number, frame):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGINT, hear)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            flag.set()
            vector.product(a, a, np.zeros((4096, 4096), np.uint32), "cb16", 42, True)  # flushing: scalar forms
            pytest.fail("the product came to its end")
    finally:
        signal.signal(signal.SIGINT, old)
        thread.join()
