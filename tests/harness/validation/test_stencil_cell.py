"""R4: a star stencil with one cell per PE: values against numpy, cycles against published points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.validation.programs import stencil_cell
from harness.validation.recipe import CannotRun
from harness.validation.registry import RECIPES
from tests.examples import examples
from wse_core.params import machine


def run(preset="wse2", **params):
    point = {"params": {"radius": 1, "dtype": "f32", **params}}
    return RECIPES["R4", "stencil-1cell"].function(machine(preset), point, lambda line: None)


@examples(8)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4), st.sampled_from(["wse2", "wse3"]))
def test_values(columns, rows, iterations, preset):
    cells = np.random.default_rng(columns + 8 * rows).standard_normal((rows, columns)).astype(np.float32)
    m = machine(preset)
    chained = stencil_cell.is_chained(m)
    assert chained == (preset == "wse3")
    cycles, got = stencil_cell.iterate(m, cells, 0.75, iterations)
    assert np.array_equal(got, stencil_cell.expected(cells, 0.75, iterations, chained))
    plain = stencil_cell.expected(cells.astype(np.float64), 0.75, iterations, chained)
    assert np.abs(got - plain).max() <= 8 * iterations * 2.0**-24 * np.abs(cells).max(initial=1)
    assert cycles >= 12 * iterations  # six operations of one element, an issue and a step each


@pytest.mark.parametrize(("size", "published"), [("3x3", 12), ("5x5", 16), ("9x9", 16), ("15x15", 16)])
def test_published_points(size, published):
    """Alone a PE is exact; the round with neighbours comes out a cycle or a cycle and a half short."""
    assert -1.5 <= run(grid=f"{size} PEs (outer ring is boundary)").cycles - published <= 0


@pytest.mark.parametrize(("size", "published"), [("3x3", 17), ("5x5", 23), ("8x8", 24), ("15x15", 23)])
def test_published_points_of_the_next_generation(size, published):
    """Alone a PE is exact: five of six operations begin a cycle later, as they read what was just written."""
    assert -1.5 <= run("wse3", grid=f"{size} PEs").cycles - published <= 0
    without = machine("wse3", {"vec.raw": 0})
    point = {"params": {"radius": 1, "dtype": "f32", "grid": "3x3 PEs"}}
    assert RECIPES["R4", "stencil-1cell"].function(without, point, lambda line: None).cycles == 12


@pytest.mark.parametrize(
    "params",
    [
        {"grid": "2x5"},
        {"grid": "many"},
        {"grid": "5x5", "radius": 2},
        {"grid": "5x5", "dtype": "f16"},
        {"grid": "3x2000"},
    ],
)
def test_what_cannot_run(params):
    with pytest.raises(CannotRun):
        run(**params)
