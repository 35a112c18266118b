"""The layer-level model against the system at cycle level: small networks, one to 64 systems."""

from __future__ import annotations

import pytest

from harness.figures.layer_model import SEEN, ClusterCase, drawn, layer_model
from swarm.cluster.check import compare
from swarm.cluster.cluster import Cluster
from swarm.cluster.shapes import Mesh
from tests.examples import few
from wse_core.errors import ConfigError
from wse_core.params import machine

MEAN = 0.07
"""Error that the model may have at most, in the mean."""


def both(case, numbers=()):
    """Return what `compare` says of a case on a machine with some numbers changed."""
    cluster = Cluster(case.systems, Mesh(machine("wse2", dict(numbers)), case.width, case.height))
    return compare(case.network, case.masks, cluster, case.tokens)


@pytest.mark.parametrize(
    "case",
    [
        ClusterCase((24, 12, 5), 3, 2, 3, systems=1, activation="gelu", norm=True),
        ClusterCase((30, 14, 9, 4), 4, 1, 4, systems=2, density=0.5),
        ClusterCase((20, 16, 3), 2, 2, 2, systems=4, bias=False, activation="none"),
        ClusterCase((18, 12, 4), 2, 1, 2, systems=8),
        ClusterCase((40, 30, 3), 30, 1, 4, density=0.25),
    ],
    ids=lambda case: f"{case.name} on {case.systems}",
)
def test_an_iteration_of_a_cluster_takes_what_the_model_says(case):
    """Waiting at the boundary included; what these networks have is far below what is allowed."""
    assert abs(both(case).error) < 0.04


DEEP = ClusterCase((30, 30, 30, 30, 5), 3, 4, 3, systems=4, density=0.5, norm=True)
WIDE = ClusterCase((50, 64, 12), 10, 2, 9, systems=3, density=0.3, activation="gelu")
SMALL = ClusterCase((40, 24, 12), 4, 2, 4, systems=2)


@pytest.mark.parametrize(
    ("case", "numbers"),
    few(
        [
            (DEEP, {"link.rate": 10**9}),  # a chunk goes over one of twelve planes
            (WIDE, {"link.buffer": 512}),
            (WIDE, {"dram.bytes": 1000, "flash.rate": 10**9}),  # a window of less than a part
            (ClusterCase((30, 30, 30, 5), 3, 2, 2), {"dram.bytes": 37_200, "flash.rate": 10**9}),  # the first stays
            (DEEP, {"dram.bytes": 10_000, "flash.rate": 10**8}),
            (SMALL, {"dram.bytes": 4000, "flash.rate": 10**8}),  # no index of dense weights is read
            (DEEP, {"link.rate": 10**7}),
            (DEEP, {"link.planes": 1, "link.rate": 10**9}),
            (SMALL, {"link.rate": 10**9, "link.chunk": 64}),
            (SMALL, {"link.buffer": 256}),
            (WIDE, {"update.rate": 5 * 10**6}),
            (DEEP, {"node.rate": 10**9, "node.latency": 5000}),
        ],
        8,
    ),
    ids=str,
)
def test_other_numbers_are_followed(case, numbers):
    """Slow links on many planes were 28 % off, small buffers and flash 15 %: the bound of the pages holds there too."""
    assert abs(both(case, numbers).error) < 0.04


def test_64_systems_take_what_the_model_says():
    """The efficiency of 64 systems, both ways: cycle by cycle, and by the model."""
    one, many = (both(ClusterCase((40, 24, 4), 2, 1, 8, systems=count)) for count in (1, 64))
    assert abs(many.error) < MEAN
    assert one.model / many.model == pytest.approx(one.cycles / many.cycles, rel=MEAN)


def test_networks_that_were_not_seen_were_drawn_once():
    """The seed decides; no two are alike, and none was seen."""
    cases = drawn()
    assert cases == drawn()
    assert len({*cases, *SEEN}) == len(cases) + len(SEEN) == 20
    assert drawn(seed=1)[0] != cases[0]


def test_figure_says_the_errors_of_both_halves():
    seen, unseen = ClusterCase((12, 8, 3), 2, 1, 2), ClusterCase((9, 7, 3), 3, 1, 2, norm=True)
    result = layer_model(machine(), 4, None, [seen], [unseen])
    assert [row["set"] for row in result.rows] == ["seen", "unseen"]
    assert 0 <= result.notes["mean absolute error, unseen"] == result.notes["largest error, unseen"] < 0.1
    with pytest.raises(ConfigError, match="mesh of at most 1"):
        layer_model(machine(), 1, None, [seen], [unseen])
