"""`gemv_chain`: products one after the other, along rows and columns in turn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fabric.kernels.kit.session import Session
from fabric.kernels.matmul.problem import Problem
from fabric.kernels.matvec.chain import GemvChain
from fabric.kernels.registry import KERNELS
from tests.examples import examples
from tests.fabric.kernels import run
from wse_core.errors import ConfigError, PlanError
from wse_core.params import machine


@examples(60)
@given(
    st.sampled_from(["wse2", "wse3"]),
    st.sampled_from([{}, {}, {"num.ftz": 1}, {"ramp.in": 3}]),
    st.sampled_from(["pipeline", "ktree", "ktree", "auto"]),
    st.integers(1, 8),
    st.integers(1, 8),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 6),
    st.integers(0, 3),
    st.sampled_from([0, 2, 3]),
    st.sampled_from(["f16", "cb16", "f32"]),
    st.sampled_from(["f32", "same"]),
    st.sampled_from(["normal", "ones", "special"]),
    st.integers(0, 1000),
)
def test_gemv_chain(preset, overrides, algorithm, p, height, m, n, layers, levels, group, dtype, sums, data, seed):
    assume(levels <= max(1, min(p - 1, height - 1).bit_length()) and group <= max(p, height))
    result = run(
        "gemv_chain",
        preset,
        overrides,
        algorithm=algorithm,
        p=p,
        height=height,
        m=m,
        n=n,
        layers=layers,
        levels=levels,
        group=group,
        dtype=dtype,
        sums=sums,
        data=data,
        seed=seed,
    )
    rows, depth = 2 * -(-m // (2 * height)), 2 * -(-n // (2 * p))
    assert result["macs"] == layers * p * height * rows * depth
    even, odd = (layers + 1) // 2, layers // 2
    assert result["additions"] == even * height * (p - 1) * rows + odd * p * (height - 1) * depth
    assert result["arrays"]["y"].shape == (m if layers % 2 else n,)
    assert len(result["layer_cycles"]) == layers
    assert sum(result["layer_cycles"]) == result["cycles"] >= result["lower_bound"]
    assert result["cycles"] == pytest.approx(result["expected_cycles"], rel=0.05, abs=10)


def test_an_overflow_between_layers_has_no_bound():
    """A middle layer beyond the range of f16, brought back by a small weight: infinite here, finite in plain numpy."""
    result = run(
        "gemv_chain",
        algorithm="pipeline",
        p=1,
        height=1,
        m=1,
        n=6,
        layers=4,
        levels=0,
        group=0,
        dtype="f16",
        sums="f32",
        data="special",
        seed=0,
    )
    assert result["bit_exact"]


def test_layers_without_the_kernels_reference():
    """Two layers over one row of two PEs: f16 factors, f32 sums, rounded to f16 between the layers."""
    plan = GemvChain(machine(), Problem(2, 1, 2, 4), 2)
    rng = np.random.default_rng(1)
    a, b, x = (rng.standard_normal(shape).astype(np.float16) for shape in ((2, 4), (4, 2), (4, 1)))
    inputs = [
        ("a0", plan.placed(0, a.view(np.uint16)), 0, 0),
        ("a1", plan.placed(1, b.view(np.uint16)), 0, 0),
        ("x", x.view(np.uint16).reshape(1, 2, 2), 0, 0),
    ]
    found = Session(plan.layout(), inputs).read("x2", 0, 0, 2, 1).reshape(-1)

    def dot(row, column):
        total = np.float32(0)
        for left, right in zip(row, column, strict=True):
            total = np.float32(left) * np.float32(right) + total  # the product is exact
        return total

    middle = [np.float16(dot(row[:2], x[:2, 0]) + dot(row[2:], x[2:, 0])) for row in a]
    expected = np.array([dot(row, middle) for row in b], np.float32).astype(np.float16)
    assert found.tobytes() == expected.tobytes()


def test_the_plain_machine_agrees():
    plan, rng = GemvChain(machine(), Problem(4, 3, 6, 8), 3, levels=2), np.random.default_rng(0)
    layout = plan.layout()
    inputs = [
        (name, rng.integers(0, 1 << 14, (3, 4, count), np.uint16), 0, 0)
        for name, count in (("x", 2), ("a0", 4), ("a1", 4), ("a2", 4))
    ]
    fast, plain = (Session(layout, inputs, backend=name) for name in ("compiled", "reference"))
    assert fast.run.cycles == plain.run.cycles
    assert fast.run.counters == plain.run.counters
    assert np.array_equal(fast.read("x3", 0, 0, 4, 3), plain.read("x3", 0, 0, 4, 3))


def test_nothing_moves_but_the_all_reduces():
    """Wavelets of a chain are those of its products one by one: no transpose between them."""
    sizes = {"m": 12, "n": 20, "algorithm": "ktree", "dtype": "f32"}
    chain = run("gemv_chain", p=5, height=3, layers=2, **sizes)["wavelet_hops"]
    first = run("gemv", p=5, height=3, replicated=True, broadcast=True, **sizes)["wavelet_hops"]
    second = run("gemv", p=3, height=5, replicated=True, broadcast=True, **sizes | {"m": 20, "n": 12})["wavelet_hops"]
    assert chain == first + second


def test_long_chains_use_colors_again():
    short, long = (run("gemv_chain", p=9, height=4, m=16, n=36, layers=layers, levels=2) for layers in (2, 20))
    assert short["colors"] == long["colors"] == 10
    assert long["cycles"] == pytest.approx(10 * short["cycles"], rel=0.05)


def test_what_cannot_be():
    with pytest.raises(PlanError, match="4 input queues for its sums, there are 3"):
        KERNELS["gemv_chain"].run(machine(), p=16, height=16, levels=4)
    with pytest.raises(ConfigError, match="does not fit.*layers="):
        KERNELS["gemv_chain"].run(machine(), p=2, layers=64)
    with pytest.raises(ConfigError, match="ring"):
        KERNELS["gemv_chain"].run(machine(), algorithm="ring")
