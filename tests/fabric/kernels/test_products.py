"""`gemv` and `gemm`: shapes that do and do not divide, counts, cycles, and the same on the plain-Python machine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.kernels.kit import tiles
from fabric.kernels.kit.session import Session
from fabric.kernels.matmul.local import GROUP, Shape, product_cycles
from fabric.kernels.matmul.problem import Problem
from fabric.kernels.matmul.summa import Summa
from fabric.kernels.registry import KERNELS
from tests.examples import SLOW_BUILD, examples, few
from tests.fabric.kernels import run
from wse_core.params import machine

DTYPE = st.sampled_from(["f16", "cb16", "f32"])
DATA = st.sampled_from(["normal", "ones", "special"])
PRESET = st.sampled_from(["wse2", "wse3"])
SIZE = st.integers(1, 12 if SLOW_BUILD else 40)


@examples(60)
@given(PRESET, st.integers(1, 6), SIZE, SIZE, DTYPE, DATA, st.integers(0, 1000))
def test_gemv(preset, p, m, n, dtype, data, seed):
    result = run("gemv", preset, p=p, m=m, n=n, dtype=dtype, data=data, seed=seed)
    assert result["cycles"] == result["expected_cycles"]
    rows, depth = 2 * -(-m // (2 * p)), -(-n // p)
    assert result["macs"] == p * p * rows * depth
    assert result["useful_macs"] == m * n
    assert result["arrays"]["y"].shape == (m,)


@examples(80)
@given(PRESET, st.integers(1, 5), SIZE, SIZE, SIZE, DTYPE, DATA, st.sampled_from([1, 2]), st.integers(0, 1000))
def test_gemm(preset, p, m, k, n, dtype, data, buffers, seed):
    result = run("gemm", preset, p=p, m=m, k=k, n=n, dtype=dtype, data=data, buffers=buffers, seed=seed)
    rows, depth, columns = 2 * -(-m // (2 * p)), -(-k // p), -(-n // p)
    assert result["macs"] == p**3 * rows * depth * columns
    per_tile = [-(-size // 2) if dtype != "f32" else size for size in (rows * depth, depth * columns)]
    assert result["wavelet_hops"] == (p**3 * (sum(per_tile) + 2) + 2 * p**2 if p > 1 else 0)
    assert result["cycles"] == pytest.approx(result["expected_cycles"], rel=0 if p == 1 else 0.1)
    assert result["arrays"]["c"].shape == (m, n)


@pytest.mark.parametrize("dtype", ["f16", "cb16", "f32"])
@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("p", [2, 3] if SLOW_BUILD else [2, 3, 8])
def test_gemm_cycles_of_steps_of_some_length(dtype, buffers, p):
    for rows, depth, columns in few(((14, 14, 14), (60, 9, 2), (8, 24, 8), (8, 8, 24)), 1 if SLOW_BUILD else 2):
        result = run("gemm", p=p, m=p * rows, k=p * depth, n=p * columns, dtype=dtype, buffers=buffers)
        assert result["cycles"] == pytest.approx(result["expected_cycles"], rel=0.02)


@examples(40)
@given(
    st.integers(1, 12),
    st.integers(1, 30),
    st.integers(1, 30),
    DTYPE,
    st.sampled_from(
        [
            {},
            {"ce.load_latency": 4},
            {"ce.branch_taken": 2, "ce.branch_not_taken": 1},
            {"vec.drain": 3},
            {"vec.start": 2, "ce.dsr_edit": 5, "ce.dsr_load": 1},
            {"mem.read_ports": 1},
        ]
    ),
)
def test_local_products_take_the_cycles_of_the_formula(half_rows, depth, columns, dtype, overrides):
    """One PE alone: exact, also on machines with other latencies; no bank conflicts on the real one."""
    result = run("gemm", overrides=overrides, p=1, m=2 * half_rows, k=depth, n=columns, dtype=dtype)
    assert result["cycles"] == result["expected_cycles"]
    conflicts = int(result["counters"]["stall_conflict"][0].sum())
    steps = -(-2 * half_rows // (1 if dtype == "f32" else 2)) * depth * columns
    assert conflicts == (steps if "mem.read_ports" in overrides else 0)


def test_groups_cover_the_inner_loop():
    for words, dtype in ((1, "f16"), (2, "f32")):
        for inner in range(1, 60):
            size, full, rest = Shape(2, inner, 1, dtype).groups()
            assert size * full + rest == inner
            assert 0 < size <= GROUP[words]


def test_columns_at_full_rate_in_the_limit():
    """Long columns: two multiply-adds per cycle for 16-bit factors, one for f32."""
    for dtype, rate in (("f16", 2), ("f32", 1)):
        shape = Shape(2000, 4, 4, dtype)
        assert shape.rows * shape.depth * shape.columns / product_cycles(shape, machine()) > 0.98 * rate


def product_data(p, m, k, n, dtype, buffers=1):
    product = Summa(machine(), Problem(p, p, m, k, n, dtype), buffers)
    rng = np.random.default_rng(3)
    return product, product.given.random(rng, (m, k)), product.given.random(rng, (k, n))


@pytest.mark.parametrize(("p", "m", "k", "n", "buffers"), [(2, 3, 5, 4, 1), (3, 7, 5, 8, 2), (3, 5, 9, 3, 1)])
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_gemm_equals_the_plain_machine_cycle_for_cycle(p, m, k, n, buffers, dtype):
    product, a, b = product_data(p, m, k, n, dtype, buffers)
    session, c = product.run(a, b)
    first, second = product.padded(a, b)
    order = tiles.columns_first if product.shape.inner_k else tiles.rows_first
    inputs = [("a", tiles.columns_first(tiles.tiles(first, p)), 0, 0), ("b", order(tiles.tiles(second, p)), 0, 0)]
    plain = Session(product.layout, inputs, backend="reference")
    assert plain.run.cycles == session.run.cycles
    assert plain.run.counters == session.run.counters
    assert np.array_equal(plain.read("c", 0, 0, p, p), session.read("c", 0, 0, p, p))
    assert product.check(a, b, c).verified


def test_gemm_against_a_loop_over_numpy_numbers():
    """Without the kernel's own reference: products of f16 are exact in f32 here, so a + b in float32 is the fma."""
    product, a, b = product_data(2, 6, 5, 3, "f16")
    _, c = product.run(a, b)
    x, y = a.view(np.float16).astype(np.float32), b.view(np.float16).astype(np.float32)
    total = np.zeros((6, 3), np.float32)
    for k in range(5):
        total = total + x[:, k, None] * y[None, k]
    assert c.tobytes() == total.tobytes()


def test_a_layout_can_be_run_again():
    product, a, b = product_data(2, 8, 8, 8, "f16")
    first, second = product.run(a, b), product.run(b, a)
    assert product.check(a, b, first[1]).verified
    assert product.check(b, a, second[1]).verified
    assert first[0].run.cycles == second[0].run.cycles


@pytest.mark.parametrize("name", ["gemv", "gemm"])
def test_identity(name):
    """A matrix of ones: every result is the number of terms."""
    sizes = {"gemv": {"m": 9, "n": 21}, "gemm": {"m": 9, "k": 21, "n": 5}}[name]
    result = KERNELS[name].run(machine(), p=3, data="ones", **sizes)
    found = result["arrays"]["y" if name == "gemv" else "c"].view(np.float32)
    assert (found == 21).all()


def test_one_infinity_reaches_its_row_only():
    product, a, b = product_data(2, 6, 6, 6, "f16")
    a = a.copy()
    a[2, 3] = 0x7C00
    _, c = product.run(a, b)
    assert product.check(a, b, c).verified
    bad = ~np.isfinite(c.view(np.float32))
    assert bad[2].all()
    assert bad.sum() == 6
