"""R6: a wave equation with a column of z per PE: values in the order of the PEs, blocks, what cannot run.

Its cycles stand beside a published point in `tests.harness.validation.test_compare`.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
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


@examples(6)
@given(st.integers(1, 10), st.integers(1, 2), st.booleans(), st.integers(1, 20), st.integers(1, 20), st.integers(1, 3))
@example(9, 1, True, 8, 3, 2)
def test_values(long, short, stands, nz, block, steps):
    """Lines as long as one may be, as every place along them has a program of its own."""
    block, (width, height) = min(nz, block), (short, long) if stands else (long, short)
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


def test_without_a_block_there_are_as_few_as_fit(monkeypatch):
    asked = []

    def iterate(numbers, cells, previous, block, steps):
        asked.append(block)
        if block > 55:
            raise CannotRun("code does not fit beside the data")
        return 100 * steps, cells

    monkeypatch.setattr(stencil_columns, "iterate", iterate)
    with pytest.raises(CannotRun):
        run(words=3000, nz=110, block=110)
    assert asked == []  # seen without a compilation
    outcome = run(words=6000, nz=110, steps=1000)
    assert (outcome.cycles, outcome.method.split(", ")[1]) == (100, "blocks of 55 cells")
    assert asked == [110, 55, 55]


def test_a_column_beside_which_the_code_does_not_fit():
    cells = np.zeros((2, 1, 1, 20), np.float32)
    stencil_columns.iterate(machine(), *cells, 20, 1)
    with pytest.raises(CannotRun, match="do not fit into a PE"):
        stencil_columns.iterate(machine("wse2", {"mem.words": 800}), *cells, 20, 1)


@pytest.mark.parametrize(
    "params", [{"nz": 0}, {}, {"nz": "many"}, {"nz": 10, "block": 0}, {"nz": 7000}, {"nz": 10, "dtype": "f16"}]
)
def test_what_cannot_run(params):
    with pytest.raises(CannotRun):
        run(**params)
