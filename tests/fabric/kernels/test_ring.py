"""Rings along a line: one cycle, short steps, and colors that never meet."""

from __future__ import annotations

import itertools

import pytest

from fabric.kernels.collectives.pieces.ring import KINDS, Ring, interleave
from wse_core.errors import ConfigError


def test_interleave_for_every_n_to_1000():
    for n in range(1, 1001):
        pairs = [interleave(k, n) for k in range(n)]
        for k, (send, receive) in enumerate(pairs):
            assert pairs[send][1] == k
            assert pairs[receive][0] == k
        place, seen = 0, 0
        while True:
            place, seen = pairs[place][0], seen + 1
            if place == 0:
                break
        assert seen == n
        assert max(abs(k - send) for k, (send, _) in enumerate(pairs)) == min(2, n - 1)


def test_interleave_of_the_paper():
    """N = 5: place 2 sends to 4 and receives from 0."""
    assert interleave(2, 5) == (4, 0)


@pytest.mark.parametrize("n", range(3, 9))
def test_no_ring_has_shorter_steps(n):
    best = min(
        max(abs(a - b) for a, b in zip(ring, (*ring[1:], 0), strict=True))
        for rest in itertools.permutations(range(1, n))
        for ring in [(0, *rest)]
    )
    assert best == 2 == Ring(n).hops


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 99, 100])
def test_ring(n, kind):
    """Ranks are a permutation along the ring; at most three colors per router and one sender per color and link."""
    ring = Ring(n, kind)
    assert sorted(ring.rank) == list(range(n))
    for place in range(n):
        assert ring.rank[ring.receives[place]] == (ring.rank[place] + 1) % n
        assert ring.order[ring.rank[place]] == place
    links, at = set(), [[] for _ in range(n)]
    for place, to in enumerate(ring.sends):
        step = 1 if to > place else -1
        for k in range(place, to, step):
            assert (k, step) not in links
            links.add((k, step))
        if n > 1:
            for k in range(place, to + step, step):
                at[k].append(ring.color(place))
    for colors in at:
        assert len(set(colors)) == len(colors) <= 3
    assert ring.hops == (min(2, n - 1) if kind == "folded" else n - 1)
    assert ring.grants == sum(map(len, at))


def test_no_such_place():
    with pytest.raises(ConfigError, match="no place 5"):
        interleave(5, 5)
