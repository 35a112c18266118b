"""`spmv`: values bit for bit, multiply-adds are the entries, cycles are exact sums over the pattern."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.kernels.registry import KERNELS, MODULES
from fabric.kernels.sparse.spmv import MatrixBlocks, row_cycles
from tests.examples import examples
from tests.fabric.kernels.sums import closing
from wse_core.errors import PlanError
from wse_core.params import machine


def run(preset="wse2", **values):
    assert "sparse.spmv" in MODULES
    return KERNELS["spmv"].run(machine(preset), **values)


@examples(40)
@given(
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 60),
    st.integers(1, 60),
    st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]),
    st.sampled_from(["f16", "cb16", "f32"]),
    st.sampled_from(["chain", "star"]),
    st.sampled_from(["normal", "ones", "special"]),
    st.sampled_from(["wse2", "wse3"]),
    st.integers(0, 3),
)
def test_any_size(width, height, m, n, density, dtype, algorithm, data, preset, pattern):
    result = run(
        preset,
        width=width,
        height=height,
        m=m,
        n=n,
        density=density,
        dtype=dtype,
        algorithm=algorithm,
        data=data,
        pattern=pattern,
    )
    assert result["bit_exact"]
    assert result["verified"]
    assert result["macs"] == result["nonzeros"] == round(density * m * n)
    assert result["wavelet_hops"] == result["expected_hops"]
    early = closing(machine(preset), -(-m // height)) if algorithm == "star" else 0
    assert 0 <= result["expected_cycles"] - result["cycles"] <= early


@examples(10)
@given(st.integers(2, 20), st.integers(1, 4), st.integers(10, 200), st.sampled_from(["auto", "tree", "two_phase"]))
def test_other_reduces(width, height, m, algorithm):
    result = run(width=width, height=height, m=m, n=3 * width, density=0.2, algorithm=algorithm)
    assert result["verified"]
    assert result["cycles"] == pytest.approx(result["expected_cycles"], rel=0.03)


def test_values_against_a_dense_product():
    """Ones times ones: every element of y is the number of entries of its row."""
    result = run(width=4, height=3, m=50, n=70, density=0.1, data="ones", pattern=7)
    flat = np.random.default_rng(7).choice(3500, 350, replace=False, shuffle=False)
    dense = np.zeros(3500)
    dense[flat] = 1
    assert np.array_equal(result["arrays"]["y"].view(np.float32), dense.reshape(50, 70).sum(axis=1))


@examples(50)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 40), st.integers(1, 40), st.floats(0, 1), st.integers(0, 9))
def test_blocks_hold_every_entry_once(width, height, m, n, density, seed):
    flat = np.flatnonzero(np.random.default_rng(seed).random(m * n) < density)
    blocks = MatrixBlocks(width, height, (m, n), flat)
    found = []
    for r in range(height):
        for c in range(width):
            ends = blocks.ends[r, c]
            mine = blocks.entries[r, c]
            assert (mine[: ends[-1]] >= 0).all()
            assert (mine[ends[-1] :] < 0).all()
            for row in range(blocks.rows):
                numbers = mine[ends[row] - blocks.counts[r, c, row] : ends[row]]
                assert (blocks.i[numbers] == r * blocks.rows + row).all()
                assert (blocks.j[numbers] // blocks.columns == c).all()
                assert (np.diff(blocks.j[numbers]) > 0).all()
            found += mine[: ends[-1]].tolist()
    assert sorted(found) == list(range(len(flat)))


def test_an_entry_of_one_row_costs_what_its_instructions_cost():
    """f32 on wse2: three loads, two additions, the multiply-add, and a branch of six cycles."""
    cost = [int(row_cycles(np.array([k]), True, machine())) for k in (1, 2, 3)]
    assert np.diff(cost).tolist() == [12, 12]


def test_special_data_meet_no_zero():
    """A NaN in x reaches only rows that have an entry in its column."""
    result = run(width=3, height=3, m=60, n=60, density=0.02, data="special", pattern=3)
    assert result["verified"]
    values = result["arrays"]["y"].view(np.float32)
    assert np.isfinite(values).sum() > 30


@pytest.mark.parametrize("values", [{"m": 4000, "n": 4000, "density": 1.0}, {"m": 10**6, "n": 10**6}])
def test_far_too_many_entries_are_refused_before_they_are_made(values):
    with pytest.raises(PlanError, match="spmv needs [0-9]+ 16-bit words per PE, the device has 24576"):
        run(**values)


def test_too_large_matrices_are_refused_with_sizes_that_fit():
    sizes = {"width": 2, "height": 1, "n": 200, "density": 0.5}
    with pytest.raises(PlanError, match="does not fit into the 24576 words of a PE") as caught:
        run(m=300, **sizes)
    assert caught.value.limit == "memory"
    best = int(caught.value.hint.split("m=")[1].split()[0])
    assert run(m=best, **sizes)["verified"]
    with pytest.raises(PlanError):
        run(m=best + 2, **sizes)
