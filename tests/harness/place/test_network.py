"""Rectangles for layers: against exhaustive search on small wafers, and against the sum of work on a whole one."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from fabric.networks.pipelined.fit import steps
from fabric.networks.pipelined.tile import MOST_ROWS, Tile
from fabric.networks.streamed.network import Layer
from harness.place.layers import fully_connected
from harness.place.network import place
from tests.examples import examples
from tests.harness.place.exhaustive import free, packs, smallest
from wse_core.errors import ConfigError, LayoutError

WAFER = 1000, 850


def valid(placement, width, height):
    """Whether rectangles lie on the wafer and apart."""
    on = all(
        r.x >= 0 and r.y >= 0 and r.x + r.width <= width and r.y + r.height <= height for r in placement.rectangles
    )
    return on and all(free(a, [b]) for a, b in itertools.combinations(placement.rectangles, 2))


def work(total):
    """Return the cost of a layer whose work divides over any number of PEs."""
    return lambda w, h: total / (w * h)


@examples(12)
@given(st.integers(1, 3), st.integers(3, 7), st.integers(3, 7), st.integers(0, 10**6))
def test_equal_to_exhaustive_search(layers, width, height, seed):
    """For costs that are any numbers, larger rectangles not always faster."""
    rng = np.random.default_rng(seed)
    tables = [rng.integers(1, 40, (height, width)).astype(float) for _ in range(layers)]
    for table in tables:
        table[rng.random(table.shape) < 0.2] = np.inf
    wanted = None
    for limit in sorted({value for table in tables for value in table.ravel() if np.isfinite(value)}):
        sizes = [[(int(x) + 1, int(y) + 1) for y, x in zip(*np.nonzero(t <= limit), strict=True)] for t in tables]
        if all(sizes) and packs([smallest(s) for s in sizes], width, height):
            wanted = limit
            break
    costs = [lambda w, h, t=table: t[h - 1, w - 1] for table in tables]
    if wanted is None:
        with pytest.raises(LayoutError):
            place(costs, width, height, rounds=4)
        return
    found = place(costs, width, height, rounds=4)
    assert found.slowest == wanted
    assert valid(found, width, height)
    assert found.cycles == tuple(
        float(t[r.height - 1, r.width - 1]) for t, r in zip(tables, found.rectangles, strict=True)
    )


@pytest.mark.parametrize("layers", [1, 3, 12])
def test_throughput_is_near_cores_over_work(layers):
    """On 850,000 cores, layers of very different work: within a tenth of what all cores could do."""
    rng = np.random.default_rng(layers)
    works = (rng.uniform(0.1, 1, layers) * 1e9).round()
    found = place([work(total) for total in works], *WAFER, rounds=2)
    assert valid(found, *WAFER)
    ideal = WAFER[0] * WAFER[1] / works.sum()  # samples per cycle
    assert 0.9 * ideal <= 1 / found.slowest <= ideal * (1 + 1e-9)
    assert found.bound >= 1 / ideal * (1 - 1e-9)


def test_neighbours_lie_side_by_side():
    """Paths of a chain are far shorter than those of the same layers in another order."""
    found = place([work(1e6)] * 12, 120, 100, rounds=3)
    middle = [(r.x + r.width / 2, r.y + r.height / 2) for r in found.rectangles]

    def length(order):
        return sum(abs(middle[a][k] - middle[b][k]) for a, b in itertools.pairwise(order) for k in (0, 1))

    other = np.random.default_rng(0).permutation(12).tolist()
    assert length(range(12)) < 0.6 * length(other)


def test_the_same_placement_again():
    costs = [work(total) for total in (500, 300, 900, 100)]
    assert place(costs, 40, 30, seed=3) == place(costs, 40, 30, seed=3)


def test_what_does_not_fit_is_named():
    with pytest.raises(LayoutError, match="b: fits no rectangle of 4 x 4"):
        place([work(1), lambda w, h: np.where(w > 4, 1.0, np.inf)], 4, 4, names=["a", "b"])
    with pytest.raises(LayoutError, match="2 layers do not fit 4 x 4 PEs together"):
        place([lambda w, h: np.where(w * h > 9, 1.0, np.inf)] * 2, 4, 4)
    for cost in (lambda w, h: w * np.nan, lambda w, h: -w):
        with pytest.raises(ConfigError, match="layer 1: its cost"):
            place([cost], 4, 4)
    with pytest.raises(ConfigError, match="0 layers"):
        place([], 4, 4)


@pytest.mark.parametrize("number", [0, 1])
def test_a_layer_costs_what_its_tiles_say(number):
    """The closed form, for all sizes at once, against the tiles of one size at a time."""
    layer, batch = Layer(30, 20, "none", bias=True), 4
    cost = fully_connected(layer, number, 2, batch, 2, 24576)
    sizes = np.arange(1, 9)[None, :], np.arange(1, 9)[:, None]
    found = cost(*sizes)
    assert np.isinf(found[:, 0]).all()
    assert np.isinf(found[0]).all() == (number == 1)
    for columns, rows in itertools.product(range(1, 7), repeat=2):
        tile = Tile(layer, columns, rows, batch, 2 * (2 - number) - 1, number == 0)
        streams = batch * max(tile.all_inputs, tile.all_outputs) // 2
        assert found[tile.height - 1, tile.width - 1] == max(steps(tile), streams)
    wide = fully_connected(Layer(30, 4 * MOST_ROWS, "none"), 0, 1, 1, 0, 24576)(*sizes)
    assert np.isinf(wide[:3]).all()
    assert np.isfinite(wide[3:, 1:]).all()
    poor = fully_connected(layer, number, 2, batch, 2, 2100)(*sizes)
    assert np.isinf(poor[2, 2])
    assert np.isfinite(poor[7, 7])
