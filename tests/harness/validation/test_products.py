"""R1, R2, R8, R10: numbers against numpy in the order of the machine, and cycles against counts made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fabric.csl.rules import MAP_SETUP, compiled
from harness.validation.programs import local_products, matvec, summa_library, summa_multicast
from harness.validation.recipe import CannotRun
from harness.validation.registry import RECIPES
from tests.examples import examples, few
from wse_core.formats import Arithmetic
from wse_core.params import machine

M = machine()
SINGLE = Arithmetic.of(M, "f32")
OPERATION = 1 + M["vec.start"] + M["vec.drain"]
LOADED = M["ce.dsr_load"] + M["ce.dsr_edit"]


def silent(text):
    """Progress that nobody reads."""


def expected(a, b, c=None):
    """Return C + A B with one rounding per term, terms in the order of k, as float32."""
    a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
    c = np.zeros((a.shape[0], b.shape[1]), np.float32) if c is None else c
    return SINGLE.product(a.view(np.uint32), b.view(np.uint32), c.view(np.uint32)).view(np.float32)


def matrices(seed, *shapes):
    """Return random float32 matrices."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def same(got, wanted):
    """Compare bit by bit."""
    return np.array_equal(got.view(np.uint32), wanted.view(np.uint32))


# --- matrix-vector product of one PE ----------------------------------------------------------------------------------


@examples(8)
@given(n=st.integers(1, 12), extra=st.integers(0, 5), repetitions=st.integers(1, 3))
def test_matvec(n, extra, repetitions):
    rows = 4 * -(-n // 4) + 4 * extra
    a, x, y = matrices(n, (n, rows), (n, 1), (rows, 1))
    cycles, got = matvec.multiply(M, n, rows, repetitions, a, x, y)
    for _ in range(repetitions):
        y = expected(a.T.copy(), x, y)
    assert same(got, y.ravel())
    # Of the loads only the first of a repetition may be waited for: others come before the multiply-add they follow;
    # where repetitions are unrolled, elements that are in registers are not loaded again.
    numbers = compiled(M)
    one = n * (rows + OPERATION + 1) + 2 * numbers["ce.dsr_row"] + numbers["ce.dsr_load"] + MAP_SETUP
    noted = 7  # three numbers of the DSR that is mapped over, and one of the loop that lies in memory
    turn = noted + M["ce.load_latency"] + (2 + M["ce.branch_taken"] if repetitions > 1 else 0)
    assert -repetitions * n <= cycles - M["ce.tsc_read"] - repetitions * one <= 3 + repetitions * turn


# --- local products ---------------------------------------------------------------------------------------------------


@examples(8)
@given(rows=st.integers(1, 9), cols=st.integers(1, 9), columns=st.integers(1, 9))
def test_dense(rows, cols, columns):
    a, b = matrices(rows, (rows, cols), (cols, columns))
    cycles, got = local_products.dense(M, a, b)
    assert same(got, expected(a, b))
    assert cycles > rows * cols * columns


@examples(20)
@given(
    fmt=st.sampled_from(local_products.FORMATS),
    rows=st.integers(1, 9),
    cols=st.integers(1, 9),
    columns=st.integers(1, 40),
    density=st.sampled_from([0, 0.2, 0.6, 1]),
    padding=st.integers(0, 3),
    seed=st.integers(0, 99),
)
@example(fmt="ELLPACK", rows=2, cols=2, columns=1, density=0.2, padding=3, seed=0)  # the padded count is one of numpy
def test_sparse(fmt, rows, cols, columns, density, padding, seed):
    a, b = matrices(seed, (rows, cols), (cols, columns))
    a[np.random.default_rng(seed).random(a.shape) >= density] = 0
    count = np.count_nonzero(a) if fmt == "COO" else np.count_nonzero(a, axis=1).max()
    padded = max(1, count + padding)
    cycles, got = local_products.sparse(M, fmt, a, b, padded)
    assert same(got, expected(a, b))
    elements = {"COO": padded, "ELLPACK": padded * rows}.get(fmt, np.count_nonzero(a))
    length = local_products.row_length(columns)
    products = 2 * (2 * M["ce.pair"] + 1)  # each row is found by a shift at least, and two loads say which
    assert cycles >= elements * (1 + length + products)
    late = M.replace({"vec.mac_late": 3})
    assert local_products.sparse(late, fmt, a, b, padded)[0] == cycles + elements * (3 * length // 16)


@pytest.mark.parametrize("columns", [11, 13, 19, 21, 37])
@pytest.mark.parametrize("fmt", local_products.FORMATS)
def test_sparse_products_whose_rows_need_a_routine(fmt, columns):
    """A row length of three bits is multiplied by a function: its registers, and those of a time stamp, are there."""
    a, b = matrices(columns, (4, 5), (5, columns))
    _, got = local_products.sparse(M, fmt, a, b, a.size if fmt == "COO" else 5)
    assert same(got, expected(a, b))


def test_cycles_of_a_sparse_product_are_linear_in_the_stored_elements():
    b = matrices(1, (16, 68))[0]
    times = []
    for count in (100, 200, 400):
        a = np.zeros((128, 16), np.float32)
        a.flat[np.random.default_rng(count).choice(a.size, count, replace=False)] = 1
        times.append(local_products.sparse(M, "CSC", a, b)[0])
    assert times[2] - times[1] == 2 * (times[1] - times[0])


def test_padding_is_the_median_of_the_maximum():
    rng = np.random.default_rng(3)
    for n, density, draws in ((2048, 0.05, 300), (8, 0.2, 1000), (30, 0.5, 1)):
        drawn = [rng.binomial(n, density, draws).max() for _ in range(301)]
        assert abs(local_products.padded_count(n, density, draws) - np.median(drawn)) <= 1


# --- SUMMA ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "t"), few([(2, 1), (2, 3), (4, 4), (2, 14), (5, 2), (3, 8), (2, 9), (3, 2)], 5))
def test_summa(size, t):
    a, b = matrices(size, (size * t, size * t), (size * t, size * t))
    cycles, got = summa_library.multiply(M, size, t, a, b)
    # Every PE adds the products of its row and column in the order of the steps, and so in the order of k.
    assert same(got, expected(a, b))
    inner = t + OPERATION + 3 * LOADED + 2
    assert cycles > size * (t * t * inner + 2 * t * t)  # the product, and both tiles taken by microthreads


@pytest.mark.parametrize("t", few([2, 4], 1))
def test_cycles_of_summa_are_linear_in_p(t):
    """What the method of the points with large P rests on."""
    low, high, far = (summa_library.cycles(M, size, t) for size in (*summa_library.SLOPE, 24))
    slope = (high - low) / (summa_library.SLOPE[1] - summa_library.SLOPE[0])
    assert high + (24 - summa_library.SLOPE[1]) * slope == pytest.approx(far, rel=0.01)


@pytest.mark.parametrize("t", [1, 5, 8, 11, 14, 16])
def test_products_of_one_task(t):
    a, b = matrices(t, (t, t), (t, t))
    cycles, got = summa_multicast.products(M, t, 2, a, b)
    assert same(got, expected(a, b, expected(a, b)))
    assert cycles > 2 * t * t * (t + 3 * M["ce.dsr_load"])


@pytest.mark.parametrize("words", [1, 7, 196])
def test_send(words):
    cycles, got = summa_multicast.send(M, words)
    assert got.tolist() == list(range(words))
    assert cycles == words + 2 + M["task.start"]


# --- points -----------------------------------------------------------------------------------------------------------


def run(recipe, kind, workload="", **params):
    """Return the outcome of a point."""
    return RECIPES[recipe, kind].function(M, {"id": "x", "params": params, "workload": workload}, silent)


@pytest.mark.parametrize(
    ("recipe", "kind", "params", "published"),
    [
        ("R2", "matvec-1pe", {"N": 20, "padded_rows": 20, "iterations": 10}, 4588),
        ("R2", "matvec-1pe", {"N": 10, "padded_rows": 12, "iterations": 10}, 1698),
        ("R8", "gemm-summa-sim", {"words": 196}, 201),
        ("R8", "gemm-summa-sim", {"tile": "14x14x14", "fmacs": 784}, 45783),
        ("R1", "gemm-summa-hw", {"pe_grid": "32x32", "tile": "4x4x4"}, 29302),
        ("R1", "gemm-summa-hw", {"pe_grid": "32x32", "tile": "8x8x8"}, 97929),
        ("R1", "gemm-summa-hw", {"pe_grid": "2x2", "tile": "46x46x46"}, 600061),
    ],
)
def test_published_points(recipe, kind, params, published):
    assert run(recipe, kind, **params).cycles == pytest.approx(published, rel=0.1)


@pytest.mark.parametrize(
    ("recipe", "kind", "params", "reason"),
    [
        ("R1", "gemm-summa-hw", {"pe_grid": "2x3", "tile": "4x4x4"}, "square"),
        ("R1", "gemm-summa-hw", {"pe_grid": "1x1", "tile": "4x4x4"}, "at least 2"),
        ("R1", "gemm-summa-hw", {"pe_grid": "2x2", "tile": "4x4"}, "NxNxN"),
        ("R1", "gemm-summa-hw", {"pe_grid": "2x2", "tile": "90x90x90"}, "do not fit"),
        ("R2", "matvec-1pe", {}, "does not state N"),
        ("R2", "matvec-1pe", {"N": True}, "whole number"),
        ("R8", "gemm-summa-sim", {"tile": "14x14x13"}, "square"),
        ("R8", "gemm-summa-sim", {"tile": "14x14x14", "fmacs": 100}, "no whole number"),
        ("R10", "gemm-local", {"pe_grid": "5x2", "N": 64, "K": 64, "M": 4}, "does not divide"),
        ("R10", "gemm-local", {"pe_grid": "1x1", "N": 500, "K": 500, "M": 4}, "do not fit"),
        ("R10", "spmm-local", {"pe_grid": "1x1", "N": 8, "K": 8, "M": 4, "density_pct": 5}, "none of the formats"),
    ],
)
def test_what_cannot_run_says_why(recipe, kind, params, reason):
    with pytest.raises(CannotRun, match=reason):
        run(recipe, kind, **params)
