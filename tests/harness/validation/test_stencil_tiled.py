"""R5: a star stencil over tiles: values against numpy, cycles against published points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.validation.programs import stencil_tiled
from harness.validation.recipe import CannotRun
from harness.validation.registry import RECIPES
from tests.examples import examples, some
from wse_core import numerics
from wse_core.params import machine


def run(tile, radius, preset="wse2", **params):
    point = {"params": {"tile": tile, "radius": radius, "dtype": "f32", **params}}
    return RECIPES["R5", "stencil-tiled"].function(machine(preset), point, lambda line: None)


def fma(b, c, a):
    """Return b c + a in fp32 with one rounding."""
    bits = [np.broadcast_to(np.asarray(x, np.float32), np.shape(a)).copy().view(np.uint32) for x in (b, c, a)]
    return np.asarray(numerics.fma(*bits, "f32", machine()["num.cb16_bias"], False)).astype(np.uint32).view(np.float32)


@examples(10)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
def test_values(w, h, radius, across, down, iterations):
    radius = min(radius, w, h)
    rng = np.random.default_rng(w + 7 * h)
    cells = rng.standard_normal((down * h, across * w)).astype(np.float32)
    cycles, got = stencil_tiled.iterate(machine(), cells, 0.75, (across, down), radius, iterations)
    assert np.array_equal(got, stencil_tiled.expected(cells, 0.75, radius, iterations, fma))
    plain = stencil_tiled.expected(cells.astype(np.float64), 0.75, radius, iterations, lambda b, c, a: b * c + a)
    weights = [stencil_tiled.WEIGHTS[k % 6] for k in range(radius + 1)]
    growth = (max(1.0, weights[0] + 4 * sum(weights[1:]))) ** iterations
    roundings = (4 * radius + 2) * iterations
    assert np.abs(got - plain).max() <= 1.01 * roundings * 2.0**-24 * growth * max(0.75, np.abs(cells).max())
    operations = 6 if radius == 1 else 4 * radius + 1
    assert cycles >= iterations * (operations * w * h // 2 + 2 * radius * (w + h))


@pytest.mark.parametrize(
    ("tile", "radius", "published"),
    [
        ("1x1", 1, 127),
        ("4x4", 1, 220),
        ("14x1", 1, 232),
        ("20x20", 1, 2670),
        ("11x2", 2, 596),
        ("14x3", 3, 1121),
        ("11x4", 4, 1714),
        ("5x5", 5, 1364),
        ("11x6", 6, 3370),
        ("2x2", 2, 271),
        ("3x3", 1, 188),
        ("6x6", 1, 338),
        ("20x20", 2, 4544),
        ("86x14", 1, 7741),
        ("86x14", 5, 33304),
    ][: some(60, 9)],
)
def test_published_points(tile, radius, published):
    across, down = map(int, tile.split("x"))
    assert run(tile, radius).cycles == pytest.approx(published, rel=0.02 if across * down > 100 else 0.13)


@pytest.mark.parametrize(
    ("tile", "radius", "published", "off"),
    [("10x10", 1, 558, 0.05), ("20x20", 1, 1788, 0.02), ("7x7", 4, 1875, 0.025), ("20x20", 2, 4568, 0.02)],
)
def test_published_points_of_the_next_generation(tile, radius, published, off):
    assert run(tile, radius, "wse3").cycles == pytest.approx(published, rel=off)


def test_a_tile_that_waits_for_nobody_is_faster_and_computes_from_its_own_cells():
    """Its halo may be one of another iteration; what lies further inside than the iterations go is right."""
    cells = np.random.default_rng(5).standard_normal((36, 36)).astype(np.float32)
    m = machine("wse3")
    waited, right = stencil_tiled.iterate(m, cells, 0.5, (3, 3), 1, 2)
    hurried, got = stencil_tiled.iterate(m, cells, 0.5, (3, 3), 1, 2, False)
    assert np.array_equal(right, stencil_tiled.expected(cells, 0.5, 1, 2, fma))
    assert hurried < waited
    inner = np.zeros(12, bool)
    inner[2:-2] = True  # two iterations reach two cells into a tile of 12 x 12
    mask = np.tile(inner, 3)
    assert np.array_equal(got[np.ix_(mask, mask)], right[np.ix_(mask, mask)])


def test_shifted_additions_take_one_element_a_cycle():
    """An odd distance of the operands lets the pairs of a step meet in a bank; a row of one cell more is a step."""
    small, large = (run(tile, 1).cycles for tile in ("20x10", "20x20"))
    words = 4 * 10  # wavelets of ten rows of edges, out and in; they may pass while descriptors are loaded
    assert 6 * 20 * 10 <= large - small <= 6 * 20 * 10 + words + 1  # iterations of an odd and an even number


@pytest.mark.parametrize(("tile", "radius"), [("2x2", 3), ("many", 1), ("400x400", 1), ("4x4", 0)])
def test_what_cannot_run(tile, radius):
    with pytest.raises(CannotRun):
        run(tile, radius)


def test_other_types_are_refused():
    with pytest.raises(CannotRun, match="fp32"):
        run("4x4", 1, dtype="f16")
