"""One more tier behind DRAM is a row of `memx.tiers.BEHIND`: both levels read and write it from then on."""

from __future__ import annotations

import numpy as np
import pytest

from harness.figures.layer_model import ClusterCase
from memx.tiers import BEHIND
from swarm.cluster.check import layers_of
from swarm.cluster.cluster import Cluster
from swarm.cluster.shapes import Mesh
from swarm.cluster.timeline import iteration
from tests.swarm.cluster.test_check import both
from tests.swarm.test_system import Case
from wse_core.params import machine

ROOM, RATE = "capacity.least", "node.rate"
"""Numbers that nothing else asks for on one system stand for those of the tier."""
FEATURES = (30, 30, 30, 5)
LARGE = 31 * 30 * 20
"""Bytes of a layer but the last, with Adam."""
PLACES = {"dram.bytes": 2 * LARGE, "capacity.most": LARGE, ROOM: 2 * LARGE}
"""The first layer in DRAM, the second in flash, the last in the tier behind it."""


@pytest.fixture(autouse=True)
def _disk(monkeypatch):
    monkeypatch.setitem(BEHIND, "disk", (ROOM, RATE))


def trained(numbers):
    """Return weights, checkpoint of the clock, and cycles of the last of some iterations."""
    case = Case(FEATURES, 3, 2, 2)
    system = case.system(numbers)
    for _ in range(3):
        taken = system.train(case.shards).total_cycles
    lies, state = system.service.lies, system.state()
    system.close()
    return [matrix.dense.copy() for matrix in case.matrices], lies.tolist(), taken, state


def test_weights_are_those_of_one_tier_and_the_slowest_takes_what_arithmetic_says():
    weights, lies, free, _ = trained({})
    assert not np.any(lies)
    kept, lies, slow, state = trained(PLACES | {"flash.rate": 10**11, RATE: 10**8})
    assert lies == [[False, True, False], [False, False, True]]
    for one, other in zip(weights, kept, strict=True):
        assert np.array_equal(one, other)
    least = 31 * 5 * 16 / 10**8 * 0.85e9  # written: weight, two moments, what is streamed
    assert 0.95 * least < slow < 1.5 * least + free
    assert len(state["down"]["servers"]) == 1 + 2 + int(machine()["link.planes"])


@pytest.mark.parametrize(
    ("rates", "bound"),
    [
        ((10**9, 10**9), 0.02),
        ((10**8, 10**9), 0.05),
        ((10**8, 10**8), 0.05),
        ((10**9, 10**8), 0.15),  # what is left once the last layer alone has to wait; too fast by 14 %
    ],
    ids=str,
)
def test_the_layer_level_reads_and_writes_each_tier(rates, bound):
    numbers = PLACES | dict(zip(("flash.rate", RATE), rates, strict=True))
    case = ClusterCase(FEATURES, 3, 2, 2)
    assert abs(both(case, numbers).error) < bound
    cluster = Cluster(1, Mesh(machine("wse2", numbers), case.width, case.height))
    busy = iteration(layers_of(case.network, case.masks), case.tokens, cluster).busy
    for name, rate, weights in zip(("flash", "disk"), rates, (31 * 30, 31 * 5), strict=True):
        assert busy[f"{name} read"] * rate == pytest.approx(weights * (2 + 2 + 12))
        assert busy[f"{name} write"] * rate == pytest.approx(weights * (12 + 4))
