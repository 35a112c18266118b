"""One copy of weights in, one copy of gradients out, whatever the number of systems."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.servers import Server, in_order
from swarm.timing import Links, Updates
from swarm.tree import CHUNK, Endpoint, TreeNode, build, depth, gather, node_equivalents
from wse_core.errors import ConfigError
from wse_core.params import machine


class System(Endpoint):
    """Remembers what came and sends what it was given."""

    def __init__(self, gradient):
        self.gradient, self.came = gradient, []

    def weights(self, words):
        self.came.append(words)

    def gradients(self, count):
        for start in range(0, count, CHUNK):
            yield self.gradient[start : start + CHUNK]


def nodes_of(top):
    """Return all nodes of a tree."""
    if not isinstance(top, TreeNode):
        return []
    return [top, *(node for child in top.children for node in nodes_of(child))]


def ordered_sum(gradients):
    """Add as the tree does: fours, in order, level by level."""
    level = list(gradients)
    while len(level) > 1:
        above = []
        for start in range(0, len(level), 4):
            total = level[start]
            for other in level[start + 1 : start + 4]:
                total = total + other
            above.append(total)
        level = above
    return level[0]


@given(n=st.integers(1, 70), count=st.integers(0, 3 * CHUNK), seed=st.integers(0, 9))
def test_gradients_are_added_in_one_order(n, count, seed):
    rng = np.random.default_rng(seed)
    gradients = [rng.standard_normal(count).astype(np.float32) for _ in range(n)]
    top = build([System(gradient) for gradient in gradients])
    total = gather(top, count)
    assert total.dtype == np.float32
    assert np.array_equal(total, ordered_sum(gradients))
    assert sum(node.additions for node in nodes_of(top)) == (n - 1) * count
    for node in nodes_of(top):
        assert node.held <= 2 * CHUNK
        assert {traffic.up_bytes for traffic in node.traffic} == {4 * count}


@given(n=st.integers(1, 70))
def test_weights_reach_every_system_once(n):
    systems = [System(None) for _ in range(n)]
    top = build(systems)
    words = np.arange(100, dtype=np.uint32)
    top.weights(words)
    assert all(len(system.came) == 1 and system.came[0] is words for system in systems)
    assert {traffic.down_bytes for node in nodes_of(top) for traffic in node.traffic} <= {400}
    assert sum(len(node.children) for node in nodes_of(top)) == n - 1 + len(nodes_of(top))


def test_shape_of_the_tree():
    assert [depth(n) for n in (1, 4, 8, 16, 64)] == [0, 1, 2, 2, 3]
    assert [node_equivalents(n) for n in (2, 4, 8, 16, 64)] == [0.5, 1, 2.5, 5, 21]
    for n in (4, 16, 64, 256):
        assert node_equivalents(n) == (n - 1) / 3


def test_a_tree_can_stand_on_trees():
    """The same bits whether systems hang on one tree or on trees below a tree."""
    rng = np.random.default_rng(3)
    gradients = [rng.standard_normal(500).astype(np.float32) for _ in range(16)]
    flat = build([System(gradient) for gradient in gradients])
    stacked = build([build([System(gradient) for gradient in gradients[k : k + 4]]) for k in range(0, 16, 4)])
    assert np.array_equal(gather(flat, 500), gather(stacked, 500))
    alone = System(gradients[0])
    assert build([alone]) is alone


def test_rates_and_latency():
    links = Links()
    assert links.bytes_per_second == 150e9
    assert Links(planes=3).bytes_per_second == links.bytes_per_second / 4
    assert links.one_way(64) == 3 * links.latency
    large, small = 10**9, 10**3
    added = [links.seconds(size, 64) - links.seconds(size, 1) for size in (small, large)]
    assert added[0] == pytest.approx(added[1])  # independent of the size


def test_links_and_updates_are_numbers_of_the_machine():
    assert Links.of(machine()) == Links()
    other = machine(link_planes=3, link_rate=8 * 10**9, node_latency=500, node_ways=2, update_latency=7, update_rate=10)
    links = Links.of(other)
    assert links.bytes_per_second == 3e9
    assert links.one_way(64) == pytest.approx(6 * 0.5e-6)  # 64 = 2^6
    assert len(build([System(None) for _ in range(8)], links.ways).children) == 2
    updates = Updates.of(other)
    assert updates.after(20) == pytest.approx(2 + 7e-9)
    assert updates.seconds(20) == 2
    with pytest.raises(ConfigError, match="holds no word"):
        Links(buffer=3)


def test_a_server_takes_one_thing_after_the_other():
    """In any cuts: each when it is there and the one before is done; sizes are in units of the gap."""
    ready, sizes = np.array([0.0, 5, 6, 40, 41]), np.array([1.0, 1, 2, 1, 0])
    for cut in range(6):
        server = Server(10.0)
        found = np.concatenate([server.through(ready[:cut], sizes[:cut]), server.through(ready[cut:], sizes[cut:])])
        assert found.tolist() == [10, 20, 40, 50, 50]
        assert server.free == 50
    assert Server(10.0).through(ready).tolist() == [10, 20, 30, 50, 60]
    assert in_order([3.0, 1, 4, 2], 2.0).tolist() == [3, 3, 4, 4]


def test_impossible_trees():
    with pytest.raises(ConfigError, match="without systems"):
        build([])
    with pytest.raises(ConfigError, match="2 to 4 ports"):
        TreeNode((System(None),))
    with pytest.raises(ConfigError):
        Links(planes=0)
