"""R6: a wave equation with a column of z per PE: values in the order of the PEs, cycles against published points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.validation.programs import stencil_columns
from harness.validation.recipe import CannotRun
from harness.validation.registry import RECIPES
from tests.examples import examples
from wse_core.formats import Arithmetic
from wse_core.params import machine


def run(words=None, **params):
    """Run a point, on a machine whose PEs have so many words of memory."""
    point = {"params": {"pe_grid": "755x994", "dtype": "f32", **params}}
    numbers = machine("wse2", {"mem.words": words} if words else {})
    return RECIPES["R6", "stencil-25pt-hw"].function(numbers, point, lambda line: None)


@examples(10)
@given(st.integers(1, 10), st.integers(1, 10), st.integers(1, 20), st.integers(1, 20), st.integers(1, 3))
def test_values(width, height, nz, block, steps):
    block = min(nz, block)
    rng = np.random.default_rng(nz)
    cells, previous = rng.standard_normal((2, height, width, nz)).astype(np.float32)
    cycles, got = stencil_columns.iterate(machine(), cells, previous, block, steps)
    arithmetic = Arithmetic.of(machine(), "f32")
    bits = [values.view(np.uint32) for values in (cells, previous)]
    assert np.array_equal(got.view(np.uint32), stencil_columns.expected(arithmetic, *bits, steps))
    # 4 blocks out, 8 fused multiply-adds, two adds per cycle at best
    assert cycles >= steps * nz * (4 + 8)


def test_one_step_of_the_wave_equation_in_float64():
    rng = np.random.default_rng(5)
    cells, previous = rng.standard_normal((2, 6, 7, 8)).astype(np.float32)
    got = stencil_columns.iterate(machine(), cells, previous, 8, 1)[1]
    c = [-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560]  # second difference of order 8
    u = np.pad(cells.astype(np.float64), 4)
    laplacian = sum(c[abs(k)] * np.roll(u, k, axis) for axis in range(3) for k in range(-4, 5))[4:-4, 4:-4, 4:-4]
    plain = 2 * cells.astype(np.float64) - previous + stencil_columns.COURANT * laplacian
    assert np.abs(got - plain).max() < 44 * 2.0**-24 * 4 * np.abs(cells).max()


@pytest.mark.parametrize(("nz", "block", "published"), [(100, 100, 7341.5), (300, 300, 20158.6)])
def test_published_points(nz, block, published):
    outcome = run(nz=nz, block=block, steps=100000)
    assert outcome.cycles == pytest.approx(published, rel=0.09)
    assert f"blocks of {block} cells" in outcome.method


def test_without_a_block_there_are_as_few_as_fit():
    with pytest.raises(CannotRun):
        run(words=4096, nz=110, block=110)
    assert "blocks of 55 cells" in run(words=4096, nz=110, steps=1000).method
    with pytest.raises(CannotRun):
        run(nz=550, block=550)


@pytest.mark.parametrize(
    "params", [{"nz": 0}, {}, {"nz": "many"}, {"nz": 10, "block": 0}, {"nz": 7000}, {"nz": 10, "dtype": "f16"}]
)
def test_what_cannot_run(params):
    with pytest.raises(CannotRun):
        run(**params)
