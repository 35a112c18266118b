"""Weights of the last product that stay on the wafers: every bit as without, and exactly their words less."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import Node
from fabric.networks.streamed.commands import MOST
from fabric.networks.streamed.operations.kept import KEPT
from fabric.networks.streamed.operations.table import ids_of
from fabric.networks.streamed.resident import Resident
from memx.pattern import Pattern
from tests.examples import examples, few
from tests.fabric.networks.test_graphs import Ran, graphs, lying, on_both, spread
from tests.fabric.networks.test_images import exact, fitting, networks
from tests.fabric.networks.test_strips import striped
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.params import machine


def kept(network):
    """Return the network with its last product's weights kept."""
    return replace(network, keep_output=True)


def backward_words(ran, network):
    """Return the bytes of an iteration, and how many words of the way back through the last product carry weights."""
    script = ran.coordinator.script("train")
    name = f"backward, {network.nodes[-2].place}"
    values = sum(one.rows * one.columns for one in network.parameters)
    phases = [title for title, _ in script.phases]
    weights = ((script.sources >= 0) & (script.sources < values)) | ((script.seconds >= 0) & (script.seconds < values))
    there = script.stretch == phases.index(name) if name in phases else np.zeros(script.n_words, bool)
    return script.traffic(), int(weights[script.sequence][there].sum())


@examples(40)
@given(
    drawn=graphs(),
    width=st.integers(1, 5),
    height=st.integers(1, 3),
    rows=st.sampled_from([1, 2, 3]),
    columns=st.integers(1, 3),
    form=st.sampled_from(["steps", "pairs", "both"]),
    scale=st.sampled_from([1.0, 2.0**6, 2.0**15]),
    groups=st.sampled_from([1, 1, 2]),
    seed=st.integers(0, 99),
)
def test_kept_weights_change_no_bit(drawn, width, height, rows, columns, form, scale, groups, seed):
    """Gradients, losses and logits are the oracle's, twice; a test pass keeps nothing; exactly the stream is saved."""
    network, sequence = drawn
    assume(network.nodes[-2].op == "linear")
    tokens, height = lying(sequence, rows, 1, height)
    network, width = spread(network, columns, width)
    again = Ran(network, width, height, tokens, seed, form, groups=groups)
    assume(len(ids_of(network, KEPT)) <= MOST)  # of commands
    stays = Ran(kept(network), width, height, tokens, seed, form, groups=groups)
    expected = again.expected(scale)
    for _ in range(2):
        assert np.array_equal(stays.found(scale), expected)
        level = network.level[network.logits.name]
        assert np.array_equal(stays.wafer.activations(level), again.oracle.results[network.logits.name])
    assert np.array_equal(again.found(scale), expected)
    tested = [one.wafer.run(one.coordinator.streams("test")) for one in (stays, again)]
    assert [list(one) for one in tested[0].numbers] == [list(one) for one in tested[1].numbers]
    (with_it, none), (without, sent) = (backward_words(one, network) for one in (stays, again))
    assert none == 0
    assert without["weights"] - with_it["weights"] == 4 * sent
    assert sent > 0  # there was something to save


@examples(20)
@given(
    network=networks(ends=("",)),
    width=st.integers(1, 4),
    height=st.integers(1, 2),
    samples=st.integers(1, 4),
    form=st.sampled_from(["steps", "both"]),
    seed=st.integers(0, 99),
)
def test_networks_of_images_keep_the_weights_of_their_last_product(network, width, height, samples, form, seed):
    fitting(network, width)
    exact(Ran(kept(network), width, height, samples, seed, form), 1.0)


@examples(12)
@given(network=striped(ends=("",)), width=st.integers(1, 3), seed=st.integers(0, 99))
def test_images_on_several_rows_keep_them_too(network, width, seed):
    assume(network.nodes[-2].op == "linear")
    fitting(network, width)
    exact(Ran(kept(network), width, network.image_rows, 2, seed, "both"), 1.0)


@examples(4, least=2)
@given(drawn=graphs(), seed=st.integers(0, 99))
def test_both_machines_take_the_same_cycles(drawn, seed):
    network, sequence = drawn
    assume(network.nodes[-2].op == "linear")
    on_both(lambda: Ran(kept(network), 2, 2, sequence, seed))


@pytest.mark.parametrize(("outputs", "width"), few([(1, 1), (2, 5), (9, 2), (17, 1), (18, 2), (33, 4)], 4))
@pytest.mark.parametrize("form", ["pairs", "both", "steps"])
def test_any_number_of_results_of_a_column(outputs, width, form):
    """Rows are multiplied by eight at once; some columns have one more than others, or none."""
    ran = Ran(kept(Network.dense((6, 7, outputs))), width, 2, 3, outputs, form)
    assert np.array_equal(ran.found(), ran.expected())


def test_sums_of_columns_are_added_in_the_order_of_the_ring():
    """Two results with opposite large weights and equal gradients: what is added between the two loses its low bits."""
    network = Network.dense((3, 8, 4), "none")
    runs = [Ran(one, 4, 1, 2, 0, "pairs") for one in (network, kept(network))]
    dense = np.random.default_rng(3).standard_normal((4, 9))
    dense[0], dense[1], dense[:, 8] = 20_000, -20_000, 0
    for ran in runs:
        ran.inputs[:] = 0  # so that nothing tells the results apart but their labels
        ran.labels[:] = ran.oracle.half.encode(np.eye(4)[[2, 3]].T)
        for parameter, values in zip(ran.coordinator.parameters, (np.zeros((8, 4)), dense), strict=True):
            parameter.values[:] = ran.oracle.half.encode(values).ravel()
    found, expected = runs[1].found(), runs[0].expected()
    assert np.array_equal(found, expected)
    assert np.array_equal(runs[0].found(), expected)
    biases = found.view(np.float32)[: 8 * 4].reshape(8, 4)[:, 3]
    assert len(set(biases.tolist())) == 8
    exact = 0.25 * (dense[2] + dense[3])[:8] * 2 - (dense[2] + dense[3])[:8]
    assert np.abs(biases - exact).max() > 1e-4  # the order shows


def test_what_a_pe_holds():
    """The weights of its column's features, row by row, and all rows of gradients, token by token."""
    ran = Ran(kept(Network.dense((5, 6, 4))), 2, 2, 3, 0, "pairs")
    assert np.array_equal(ran.found(), ran.expected())
    weights, delta = ran.coordinator.parameters[1].values.reshape(4, 7), ran.oracle.loss(ran.labels, 1.0)[1]
    for x in range(2):
        for y in range(2):
            held = ran.wafer.fabric.read("kept", x, y).ravel().view(np.uint16).reshape(4, 3)
            assert np.array_equal(held, weights[:, 3 * x : 3 * x + 3])
            gathered = ran.wafer.fabric.read("gathered", x, y).ravel().view(np.uint16).reshape(3, 4)
            assert np.array_equal(gathered.T, delta[:, 3 * y : 3 * y + 3])


def test_what_cannot_be_kept_is_refused():
    network = Network.dense((6, 7, 5))
    ran = Ran(network, 2, 1, 2, 0)
    ran.coordinator.parameters[1].pattern = Pattern.of_mask(np.arange(40).reshape(5, 8) % 3 > 0)
    with pytest.raises(UnsupportedError, match=r"weight has gaps, and only weights without are kept") as caught:
        gaps = Ran(kept(network), 2, 1, 2, 0)
        gaps.coordinator.parameters[1].pattern = ran.coordinator.parameters[1].pattern
        gaps.coordinator.script("train")
    assert caught.value.where == "memx.keep_output"
    whole = Ran(kept(network), 2, 1, 2, 0, form="pairs")
    whole.coordinator.parameters[1].set_pattern(ran.coordinator.parameters[1].pattern)
    whole.coordinator.script("train")  # with zeros in the gaps there are none
    nodes = (
        *network.nodes[:-1],
        Node("more", "add", (network.nodes[-2].name,) * 2),
        Node("loss", "cross_entropy", ("more",)),
    )
    with pytest.raises(UnsupportedError, match="more gives the logits and is no product"):
        Network(nodes, 6, keep_output=True)
    with pytest.raises(ConfigError, match="array kept alone takes 120000 bytes"):
        Resident(kept(Network.dense((4, 600, 100))), machine(), 1, 1, 2)


def test_without_it_programs_are_what_they_were():
    """No command, no array, no instruction of it is in a program that keeps nothing."""
    network = Network.dense((6, 7, 5))
    plain, stays = (Resident(one, machine(), 2, 2, 4) for one in (network, kept(network)))
    assert "kept" not in plain.ids
    assert set(stays.plan.arrays) - set(plain.plan.arrays) == {"kept", "gathered"}
    assert plain.program(0, "top").assemble().footprint < stays.program(0, "top").assemble().footprint
