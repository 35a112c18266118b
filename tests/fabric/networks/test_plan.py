"""The plan of a PE's memory: activations live until they are used backward, and nothing outlives an iteration."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from fabric.networks.graph.network import Layer, Network
from fabric.networks.graph.plan import MemoryPlan
from fabric.networks.graph.table import LOSSES
from tests.examples import examples
from tests.fabric.networks import test_graphs, test_images


def halves(plan):
    """Return the rows that live behind the steps before the loss, and behind those from the loss on."""
    live = plan.live()
    loss = next(at for at, step in enumerate(plan.steps) if step.node.op in LOSSES)
    return live[:loss], live[loss:]


@examples(30)
@given(features=st.lists(st.integers(1, 40), min_size=2, max_size=6), columns=st.integers(1, 4), norm=st.booleans())
def test_activations_of_a_chain_rise_forward_and_fall_backward(features, columns, norm):
    """One batch is in flight: nothing is left of it at the end (requirement WS-10)."""
    layers = [Layer(a, b, "relu", norm=norm) for a, b in itertools.pairwise(features[:-1])]
    plan = MemoryPlan(Network.of((*layers, Layer(features[-2], features[-1]))), columns)
    forward, back = halves(plan)
    assert forward == sorted(forward)
    assert back == sorted(back, reverse=True)
    assert forward[-1] == sum(layout.most for layout in plan.layouts)
    assert back[-1] == plan.live("gradient")[-1] == 0


@examples(40)
@given(
    network=st.one_of(test_graphs.graphs().map(lambda drawn: drawn[0]), test_images.networks()),
    columns=st.integers(1, 3),
)
def test_activations_of_a_graph_only_fall_on_the_way_back(network, columns):
    if any(node.op in ("groupnorm", "concat") for node in network.nodes):
        test_images.fitting(network, columns)
    plan = MemoryPlan(network, columns)
    _, back = halves(plan)
    assert back == sorted(back, reverse=True)
    assert back[-1] == plan.live("gradient")[-1] == 0
