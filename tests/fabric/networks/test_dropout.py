"""Dropout: what is drawn, by whom, and that it depends on nothing but seed, iteration, place and token."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from fabric.networks.graph.dropout import KEYS, MOST_DRAWN, Draw, kept, level_of
from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import Node, as_size
from fabric.networks.graph.plain import PlainGraph
from fabric.networks.streamed.oracle.dropout import dropped
from fabric.networks.streamed.oracle.mesh import MeshArithmetic
from tests.fabric.networks.test_graphs import Built, Ran
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.params import machine


def node(ratio=0.25, number=0, together=1):
    """Return a dropout."""
    return Node(
        "drop.dropout", "dropout", ("input",), {"ratio": as_size(ratio), "number": number, "together": together}
    )


def network(features=12, ratio=0.5, **more):
    """Return a network that drops samples before its product."""
    nodes = node(ratio, **more), Node("a.linear", "linear", ("drop.dropout",), {"inputs": 12, "outputs": 3, "bias": 1})
    return Network((*nodes, Node("loss", "cross_entropy", ("a.linear",))), features)


def test_what_is_drawn_is_speck():
    """Word by word, as its authors write the round; a token begins as the word that the first turn gives."""
    drop, draw = node(0.3, 2, 3), Draw(5, 7, 100)
    keys = [int(key) for key in draw.keys(drop)]
    assert len(keys) == KEYS
    found = kept(drop, 9, 11, draw)
    for token in range(11):
        for feature in range(9):
            x, y = ((100 + token) << 7 | (100 + token) >> 9) & 0xFFFF, feature // 3
            for key in keys:
                x = (((x >> 7 | x << 9) + y) & 0xFFFF) ^ key
                y = (y << 2 | y >> 14) & 0xFFFF ^ x
            assert found[token, feature] == (x / 2 >= level_of(drop))
    a, ones = MeshArithmetic(machine(), "f16", 1, 1, 11), np.full((9, 11), 0x3C00, np.uint16)
    rows = dropped(a, drop, ones, {drop.name: draw.keys(drop)}, 100)
    assert np.array_equal(rows != 0, found.T)
    assert set(a.half.decode(rows).ravel()) == {0, np.float16(1 / 0.7)}


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.9])
def test_as_many_stay_as_are_wanted_and_they_know_nothing_of_each_other(ratio):
    drop, n, m, stays = node(ratio), 512, 256, 1 - ratio
    every = [(kept(drop, m, n, Draw(1, k)) - stays) / np.sqrt(ratio * stays) for k in range(8)]
    assert all(abs(one.mean()) * np.sqrt(n * m) < 4 for one in every)
    assert all(abs((a * b).mean()) * np.sqrt(n * m) < 4 for a, b in pairwise(every))
    for one in every:
        for rows, other in ((one, m), (one.T, n)):
            both = rows @ rows.T / np.sqrt(other)
            apart = both[np.triu_indices(len(both), 1)]
            assert abs(apart.std() - 1) < 0.03
            assert abs(rows.mean(1).std() * np.sqrt(other) - 1) < 0.25
    other = (kept(node(ratio, 1), m, n, Draw(1, 0)) - stays) / np.sqrt(ratio * stays)
    assert abs((other * every[0]).mean()) * np.sqrt(n * m) < 4


@pytest.mark.parametrize(
    ("width", "height", "tokens", "groups"), [(1, 1, 12, 1), (3, 2, 6, 1), (5, 4, 3, 1), (2, 12, 1, 1), (2, 2, 2, 3)]
)
@pytest.mark.parametrize("together", [1, 4])
def test_the_mesh_does_not_show(width, height, tokens, groups, together):
    """Every PE draws what `kept` says of its own features and tokens, with the first one's number as it is told."""
    ran, draw = Ran(network(together=together, number=3), width, height, tokens, 1, groups=groups), Draw(2, 9, 40)
    ran.coordinator.draw, ran.oracle.first = draw, draw.first
    expected = ran.expected()
    ran.wafer.load(ran.inputs, ran.labels, draw.first)
    ran.wafer.run(ran.coordinator.streams("train"))
    found = ran.wafer.activations(ran.network.level["drop.dropout"])
    assert np.array_equal(found, ran.oracle.results["drop.dropout"])
    stays = kept(ran.network.nodes[0], 12, 12, draw).T
    assert np.array_equal(found, np.where(stays, ran.oracle.half.call("add", ran.inputs, ran.inputs), 0))
    assert len(expected) == 3 * 13 + width


def test_what_is_computed_again_drops_the_same():
    built = Built(3, 4, 2)
    for number, kind in enumerate(("drop", "mlp", "drop", "attention", "drop", "twice"), 1):
        built.block(kind, number, 2, 1)
    plain = built.network(3)
    found = [Ran(replace(plain, recompute=again), 2, 2, 4, 1).found(64.0) for again in (False, True)]
    assert np.array_equal(*found)


def test_tests_go_without():
    ran = Ran(network(), 2, 2, 3, 1)
    ran.found()
    ran.wafer.load(ran.inputs, ran.labels)
    ran.wafer.run(ran.coordinator.streams("test"))
    assert np.array_equal(ran.wafer.activations(ran.network.level["drop.dropout"]), ran.inputs)
    model = PlainGraph(ran.network)
    assert np.array_equal(model.forward(ran.values, ran.x), model.forward(ran.values, ran.x))
    assert np.array_equal(model.results["drop.dropout"], model.results["input"])
    phases = [title for title, _ in ran.coordinator.script("test").phases]
    assert not any("dropout" in title for title in phases)


@pytest.mark.parametrize("ratio", [0.0, 1.0, -0.5, np.nan])
def test_shares_that_are_none(ratio):
    with pytest.raises(ConfigError, match="dropout of a share of"):
        network(ratio=ratio)


def test_sizes_that_do_not_fit():
    with pytest.raises(ConfigError, match="12 features in planes of 5"):
        network(together=5)
    with pytest.raises(UnsupportedError, match="which have numbers of 16 bits"):
        network(MOST_DRAWN + 1)
