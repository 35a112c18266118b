"""Twelve planes, nodes in two modes, and trees that are stacked: the same bits as one tree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.planes import Planes, share
from swarm.timing import Links
from swarm.tree import CHUNK, Endpoint, TreeNode, build, depth, gather, levels, nodes
from tests.examples import examples
from wse_core.errors import ConfigError


def operations(top):
    """Return all broadcast-reduce operations of a tree, from the top; none for a single system."""
    if not isinstance(top, TreeNode):
        return []
    return [top, *(found for child in top.children for found in operations(child))]


class System(Endpoint):
    """Remembers what came, and sends what it was given in chunks of any size."""

    def __init__(self, gradient=None, chunk=CHUNK):
        self.gradient, self.chunk, self.came = gradient, chunk, []

    def weights(self, words):
        self.came.append(words)

    def gradients(self, count):
        assert count == len(self.gradient)
        for start in range(0, count, self.chunk):
            yield self.gradient[start : start + self.chunk]


def drawn(n, count, seed=0):
    """Return gradients whose sums depend on the order of additions."""
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal(count) * 10.0 ** rng.integers(-4, 5, count)).astype(np.float32) for _ in range(n)]


@examples(25)
@given(
    n=st.integers(1, 20),
    count=st.integers(0, 30 * CHUNK),
    planes=st.sampled_from([1, 2, 5, 12]),
    chunk=st.sampled_from([CHUNK, 100, 3000]),
)
def test_planes_do_not_change_the_order_of_additions(n, count, planes, chunk):
    gradients = drawn(n, count)
    fabric = Planes([System(gradient, chunk) for gradient in gradients], planes)
    wanted = gather(build([System(gradient) for gradient in gradients]), count)
    for _ in range(2):  # every iteration again
        assert np.array_equal(gather(fabric, count), wanted)
    if n > 1:
        for plane in range(planes):
            assert fabric.bytes_of(plane)[1] == 2 * 4 * share(count, plane, planes)
        assert sum(node.additions for top in fabric.tops for node in operations(top)) == 2 * (n - 1) * count


@given(n=st.integers(1, 9), size=st.integers(0, 20 * CHUNK), planes=st.sampled_from([1, 3, 12]))
def test_weights_arrive_whole_and_in_order(n, size, planes):
    systems = [System() for _ in range(n)]
    fabric = Planes(systems, planes)
    words = np.arange(size, dtype=np.uint32)
    fabric.weights(words)
    fabric.weights(words[:5])
    for system in systems:
        assert [len(part) for part in system.came] == [size, min(5, size)]
        assert np.array_equal(system.came[0], words)
    assert sum(share(size, plane, planes) for plane in range(planes)) == size
    assert max(share(size, plane, planes) for plane in range(planes)) <= -(-size // (planes * CHUNK)) * CHUNK


def test_planes_can_stand_on_planes():
    """Four fabrics of four systems below a fabric: the bits of sixteen systems below one."""
    gradients = drawn(16, 20 * CHUNK + 7)
    flat = Planes([System(gradient) for gradient in gradients])
    stacked = Planes([Planes([System(g) for g in gradients[k : k + 4]], 3) for k in range(0, 16, 4)])
    count = len(gradients[0])
    assert np.array_equal(gather(flat, count), gather(stacked, count))
    words = np.arange(5 * CHUNK, dtype=np.uint32)
    stacked.weights(words)
    for below in stacked.systems:
        for system in below.endpoint.systems:
            assert np.array_equal(system.endpoint.came[0], words)


def test_one_system_needs_no_nodes():
    gradient = drawn(1, 3 * CHUNK)[0]
    fabric = Planes([System(gradient)])
    assert np.array_equal(gather(fabric, len(gradient)), gradient)
    assert Links().nodes(1) == 0
    assert fabric.bytes_of(0) == (0, 0)


@pytest.mark.parametrize(
    ("n", "whole", "pairs"),
    [(1, 0, 0), (2, 0, 1), (4, 1, 0), (8, 2, 1), (16, 5, 0), (64, 21, 0), (3, 1, 0), (5, 1, 1), (10, 3, 1)],
)
def test_nodes_of_one_plane(n, whole, pairs):
    ports = [len(node.children) for node in operations(build([System() for _ in range(n)]))]
    assert (sum(p > 2 for p in ports), sum(p == 2 for p in ports)) == (whole, pairs)
    assert nodes(n, 1) == whole + -(-pairs // 2)


@given(n=st.integers(1, 70), planes=st.sampled_from([1, 2, 12]))
def test_two_pairs_share_a_node(n, planes):
    """An operation of three or four ports takes a node, two of two ports share one, whatever their planes."""
    tops = Planes([System() for _ in range(n)], planes).tops
    ports = [len(node.children) for top in tops for node in operations(top)]
    assert nodes(n, planes) == sum(p > 2 for p in ports) + -(-sum(p == 2 for p in ports) // 2)
    assert Links(planes=planes).nodes(n) == nodes(n, planes)


@given(n=st.integers(1, 300))
def test_levels_are_those_of_the_tree(n):
    """The way to each system, counted in the tree itself."""
    systems = [System() for _ in range(n)]
    found = {}

    def walk(endpoint, level):
        if isinstance(endpoint, System):
            found[id(endpoint)] = level
        else:
            for child in endpoint.children:
                walk(child, level + 1)

    walk(build(systems), 0)
    assert levels(n) == [found[id(system)] for system in systems]
    assert depth(n) == max(levels(n))
    assert 4 ** depth(n) >= n  # logarithmic
    assert depth(n) == 0 or 4 ** (depth(n) - 1) < n


def test_fewer_planes_carry_less():
    """Time of a large tensor on p planes: that on twelve, times 12 / p."""
    size = 12 * 10**9
    whole = Links().seconds(size, 1)
    for planes in (1, 2, 3, 6):
        assert Links(planes=planes).seconds(size, 1) == pytest.approx(whole * 12 / planes)


def test_impossible_planes():
    with pytest.raises(ConfigError, match="without planes"):
        Planes([System()], 0)
    with pytest.raises(ConfigError, match="without systems"):
        Planes([])
