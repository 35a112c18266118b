"""What is computed again on the way back: every bit as if it had been kept, in less memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.networks.graph.network import Network
from fabric.networks.graph.plan import MemoryPlan
from fabric.networks.graph.table import OPERATIONS
from fabric.networks.streamed.commands import MOST
from fabric.networks.streamed.operations.table import ids_of
from fabric.networks.streamed.resident import Resident
from harness.figures.graph_model import TransformerBlocks
from harness.train.nodes import graph_of
from harness.train.tables import NodeConfig
from swarm.cluster.graph_costs import GraphShape, phases
from swarm.cluster.shapes import Mesh
from tests.conftest import ROOT
from tests.examples import examples
from tests.fabric.networks.test_graphs import Ran, graphs, lying, on_both, spread
from tests.fabric.networks.test_images import fitting, networks
from tests.fabric.networks.test_strips import striped
from wse_core.errors import ConfigError
from wse_core.params import machine


def again(network):
    """Return the network with what lies within its segments computed again."""
    return replace(network, recompute=True)


@examples(60)
@given(
    drawn=graphs(),
    width=st.integers(1, 4),
    height=st.integers(1, 2),
    rows=st.sampled_from([1, 2, 3]),
    columns=st.integers(1, 3),
    form=st.sampled_from(["steps", "pairs", "both"]),
    keeps=st.booleans(),
    seed=st.integers(0, 99),
)
def test_graphs_are_bit_exact(drawn, width, height, rows, columns, form, keeps, seed):
    """Gradients and losses, twice; with kept weights of the last product besides."""
    network, sequence = drawn
    tokens, height = lying(sequence, rows, 1, height)
    network, width = spread(network, columns, width)
    keeps = keeps and network.nodes[-2].op == "linear" and len(ids_of(network)) < MOST  # of commands
    ran = Ran(replace(again(network), keep_output=keeps), width, height, tokens, seed, form)
    expected = ran.expected()
    for _ in range(2):
        assert np.array_equal(ran.found(), expected)


@examples(40)
@given(network=networks(), width=st.integers(1, 3), samples=st.integers(1, 3), seed=st.integers(0, 99))
def test_networks_of_images_are_bit_exact(network, width, samples, seed):
    fitting(network, width)
    ran = Ran(again(network), width, 2, samples, seed, "both")
    assert np.array_equal(ran.found(), ran.expected())


@examples(12)
@given(network=striped(), width=st.integers(1, 3), seed=st.integers(0, 99))
def test_images_on_several_rows_are_bit_exact(network, width, seed):
    fitting(again(network), width)
    ran = Ran(again(network), width, network.image_rows, 2, seed, "both")
    assert np.array_equal(ran.found(), ran.expected())


@examples(4, least=2)
@given(drawn=graphs(("mlp", "attention", "gate")), seed=st.integers(0, 99))
def test_both_machines_take_the_same_cycles(drawn, seed):
    network, sequence = drawn
    on_both(lambda: Ran(again(network), 2, 1, sequence, seed))


@examples(40)
@given(network=st.one_of(graphs().map(lambda drawn: drawn[0]), networks()))
def test_segments_lead_from_one_tensor_to_one_other(network):
    """Nothing behind a segment takes what lies within it; none has sums over the batch; the last stretch is none."""
    network = again(network)
    names = [node.name for node in network.nodes]
    for nodes in network.segments:
        inside = {node.name for node in nodes}
        within, behind = inside - {nodes[-1].name}, names.index(nodes[-1].name) + 1
        assert not any(within & set(node.inputs) for node in network.nodes[behind:])
        assert len({name for node in nodes for name in node.inputs} - inside) == 1
        assert not any(OPERATIONS[node.op].over_batch for node in nodes)
        assert sum(len(node.inputs) for node in network.nodes[behind:]) > 1


@pytest.mark.parametrize("blocks", [2, 6])
def test_memory_of_a_transformer_hardly_grows_with_its_blocks(blocks):
    """Of each half of a block one tensor stays; what lies within the halves shares its place."""
    network = TransformerBlocks(12, 16, 4, 4, 64, 8, blocks).network
    kept, fresh = (MemoryPlan(one, 4) for one in (network, again(network)))
    two = MemoryPlan(again(TransformerBlocks(12, 16, 4, 4, 64, 8, 2).network), 4)
    assert fresh.words(8) - two.words(8) == (blocks - 2) * 2 * 8 * 5  # two tensors of four rows behind a row of ones
    assert kept.words(8) > (1.3 if blocks == 2 else 2.5) * fresh.words(8)
    steps = [step for step in fresh.steps if step.again]
    products = [step.node.group.rpartition(".")[2] for step in steps if step.op == "linear"]
    assert products.count("q") == blocks
    assert products.count("up") == blocks - 1  # the last half begins the way back
    assert {"out", "down"}.isdisjoint(products)  # nothing needs what they give


def gates(blocks):
    """Return a network of gates, x + (V x) (W x), whose results no product takes."""
    nodes, x = [{"name": "x0", "op": "linear", "outputs": 6}], "x0"
    for k in range(blocks):
        nodes += [{"name": f"{side}{k}", "op": "linear", "inputs": (x,), "outputs": 6} for side in "vw"]
        nodes.append({"name": f"gate{k}", "op": "mul", "inputs": (f"v{k}", f"w{k}")})
        nodes.append({"name": f"x{k + 1}", "op": "add", "inputs": (f"gate{k}", x)})
        x = f"x{k + 1}"
    nodes.append({"name": "out", "op": "linear", "outputs": 4})
    return graph_of(6, [NodeConfig(**keys) for keys in nodes], 0)


@pytest.mark.parametrize("blocks", [2, 5])
def test_what_a_gate_reads_again_is_made_again(blocks):
    """Both factors, though nothing else needs them on the way back: they are not kept until then."""
    kept, fresh = gates(blocks), again(gates(blocks))
    made = [step.node.name.partition(".")[0] for step in MemoryPlan(fresh, 2).steps if step.again]
    assert {name for name in made if name[0] in "vw"} == {f"{side}{k}" for k in range(blocks - 1) for side in "vw"}
    assert MemoryPlan(fresh, 2).words(8) < MemoryPlan(kept, 2).words(8)
    ran = Ran(fresh, 2, 1, 4, 1, "steps")
    assert np.array_equal(ran.found(), ran.expected())


def test_stretches_begin_and_end_at_tensors_that_stay():
    """A function in place of what is given to it belongs to the stretch that gives it."""
    nodes = [
        {"name": "x", "op": "linear", "outputs": 6},
        {"name": "y", "op": "gelu"},
        {"name": "v", "op": "linear", "outputs": 6},
        {"name": "r", "op": "gelu"},
        {"name": "w", "op": "linear", "outputs": 6},
        {"name": "z", "op": "add", "inputs": ("w", "y")},
        {"name": "c", "op": "linear", "outputs": 6},
        {"name": "d", "op": "gelu"},
        {"name": "e", "op": "linear", "outputs": 4},
    ]
    network = again(graph_of(6, [NodeConfig(**keys) for keys in nodes], 0))
    found = ["".join(node.name[0] for node in stretch) for stretch in network.segments]
    assert found == ["xy", "vrwz"]
    ran = Ran(network, 2, 1, 4, 1, "steps")
    assert np.array_equal(ran.found(), ran.expected())


@pytest.mark.parametrize("blocks", [2, 6])
def test_the_page_has_what_it_costs(blocks):
    network, cells = TransformerBlocks(12, 16, 4, 4, 64, 8, blocks).network, []
    both = network, again(network)
    cells += [f"{MemoryPlan(one, 4).words(8):,}" for one in both]
    for one in both:
        found = phases(GraphShape(one), 32, Mesh(machine(), 4, 4))
        cells.append(f"{round(sum(part.cost.busy for part in found)):,}")
    page = (ROOT / "docs" / "weight-streaming.md").read_text(encoding="utf-8")
    assert f"| {blocks} | {' | '.join(cells)} |\n" in page


def test_what_does_not_fit_fits():
    network = TransformerBlocks(8, 16, 4, 4, 64, 16, 6).network
    with pytest.raises(ConfigError, match="does not fit"):
        assert Resident(network, machine(), 2, 1, 32, "pairs").layout
    assert Resident(again(network), machine(), 2, 1, 32, "pairs").layout


def test_chains_have_nothing_to_compute_again():
    assert not [step for step in MemoryPlan(again(Network.dense((4, 5, 3))), 2).steps if step.again]
