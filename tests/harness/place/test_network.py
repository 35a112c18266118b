"""Rectangles for layers: against exhaustive search on small wafers, and against the sum of work on a whole one."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from fabric import machine
from fabric.networks.graph.network import Network
from fabric.networks.pipelined.costs import last_cycles, layer_cycles, network_cycles
from fabric.networks.pipelined.fit import loss_rows
from fabric.networks.pipelined.tile import MOST_ROWS
from fabric.networks.pipelined.updates import Rule
from harness.place.layers import LayerPlan, layer_cost, network_placed
from harness.place.network import place
from tests.examples import examples, few
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
@example(3, 3, 5, 87)  # a random walk finds 17 where 16 is possible
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


@pytest.mark.parametrize("layers", few([3, 1, 12], 2))
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


NETWORKS = {
    "sgd": (Network.dense((60, 40, 30, 10), "relu"), Rule("sgd"), 4),
    "adam": (Network.dense((60, 40, 30, 10), "gelu", norm=True), Rule("adam"), 2),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_layer_costs_what_its_programs_take(name, number):
    """The surfaces through a few measurements against programs of other sizes, with norm, optimizer and loss."""
    network, rule, batch = NETWORKS[name]
    plan = LayerPlan(network, machine(), batch, rule)
    sizes = np.arange(1, 13)[None, :], np.arange(1, 13)[:, None]
    found = layer_cost(plan, number)(*sizes)
    assert np.isinf(found[:, 0]).all()
    assert np.isinf(found[0]).all() == (number > 0)
    last = number == len(network.layers) - 1
    for columns, rows in few([(5, 2), (4, 7), (2, 3)], 2):
        tile = plan.tile(number, columns, rows)
        wanted = layer_cycles(tile, rule, plan.machine, "f16")
        if last:
            wanted = max(wanted, last_cycles(tile, rule, plan.machine, "f16", loss_rows(batch, 11)))
        assert found[tile.height - 1, tile.width - 1] == pytest.approx(wanted, rel=0.1)


def test_sizes_that_no_pe_holds_are_not_offered():
    """By SRAM, and by the rows of a tile."""
    small = machine("wse2", {"mem.words": 4096})
    sizes = np.arange(1, 41)[None, :], np.arange(1, 41)[:, None]
    poor = layer_cost(LayerPlan(Network.dense((200, 100, 10)), small, 4, Rule("adam")), 0)(*sizes)
    assert np.isinf(poor[:3]).all()
    assert np.isfinite(poor[39, 39])
    wide = layer_cost(LayerPlan(Network.dense((4, 4 * MOST_ROWS, 10)), machine(), 1, Rule("sgd")), 0)(*sizes)
    assert np.isinf(wide[:3]).all()
    assert np.isfinite(wide[3:, 1:]).all()


def test_what_is_predicted_is_measured():
    """Cycles that are handed out are those of the programs; the search has found its way by costs like them."""
    network, rule, batch = NETWORKS["adam"]
    plan = LayerPlan(network, machine(), batch, rule)
    found, pipeline = network_placed(plan, 30, 14, 2, 0)
    assert found.cycles == tuple(network_cycles(pipeline).values())
    assert [pipeline.rectangle(number) for number in range(3)] == [tuple(each) for each in found.rectangles]
    assert all(free(a, [b]) for a, b in itertools.combinations(found.rectangles, 2))
    assert pipeline.paths


def test_what_fits_no_rectangle_is_refused_before_programs_are_measured(monkeypatch):
    for name in ("tile_cycles", "outputs_cycles", "gradients_cycles", "last_cycles"):
        monkeypatch.setattr(f"fabric.networks.pipelined.costs.{name}", None)
    plan = LayerPlan(Network.dense((64, 16, 2000, 10), "relu"), machine(), 4, Rule())
    with pytest.raises(LayoutError, match="layer 2: fits no rectangle of 4 x 6 PEs") as raised:
        network_placed(plan, 6, 6, 1, 0)
    assert "a smaller minibatch" in raised.value.hint
