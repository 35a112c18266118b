"""The layer-level model of graphs: every word has a price, and an iteration takes what it says."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest

from fabric.networks.graph.activations import ACTIVATIONS
from fabric.networks.graph.lookup import by_number
from fabric.networks.graph.network import Layer, Network
from fabric.networks.graph.nodes import Node
from fabric.networks.graph.strips import strips_of
from fabric.networks.graph.table import OPERATIONS
from fabric.networks.streamed.operations.table import STREAMED, ids_of
from fabric.price.tasks import Pricer
from harness.figures.graph_model import (
    SEEN,
    ConvolutionStack,
    ConvolutionStage,
    GraphCase,
    TransformerBlocks,
    drawn,
    graph_model,
    points,
)
from harness.train.nodes import graph_of
from harness.train.tables import NodeConfig
from swarm.cluster import graph_costs, layer_costs
from swarm.cluster.check import _parameters, compare, layers_of
from swarm.cluster.cluster import Cluster
from swarm.cluster.graph_costs import GraphShape, phases
from swarm.cluster.shapes import OUTSIDE, LayerShape, Mesh
from swarm.cluster.timeline import iteration
from swarm.system import System
from tests.conftest import ROOT
from tests.examples import SOAK, few, mixed
from wse_core.errors import ConfigError
from wse_core.params import machine

MEAN, MOST = 0.02, 0.07
"""Errors that the model may have at most, in the mean and anywhere."""
EVERY = [*SEEN, *(drawn() if SOAK else ())]
"""What cases are taken from, the first ones first: drawing takes seconds of each process that only looks for tests."""


def masks_of(network, density=1.0, seed=0):
    """Return masks of all matrices of a network, some of them with gaps."""
    rng, found = np.random.default_rng(seed), []
    for node in network.nodes:
        if OPERATIONS[node.op].matrix:
            parameter = network.parameter(node)
            shape = parameter.rows, parameter.columns - node.size("bias")
            found.append(rng.random(shape) < (density if len(found) % 2 else 1))
    return found


def written(network, case, masks, form):
    """Return (words, numbers) of an iteration, as they are written."""
    parameters = _parameters(network, masks, np.random.default_rng(0))
    sizes = case.width, case.height, 1, case.height * case.tokens
    system = System(network, *parameters, machine(), *sizes, form=form, backend="numpy")  # no wafer is looked at
    try:
        script = system.coordinator.script("train")
        return script.n_words, len(script.back)
    finally:
        system.close()


@pytest.mark.parametrize(("case", "density"), mixed(few(EVERY, 6), [1.0, 0.4, 0.98]))
def test_what_is_followed_is_what_is_written(case, density):
    """Every word that a wafer gets and every number that it gives is in a phase, and none twice."""
    network = case.of.network
    masks = masks_of(network, density)
    shape = GraphShape.of(network, masks)
    tokens, mesh = case.tokens * case.height, Mesh(machine(), case.width, case.height)
    form = graph_costs.form_of(shape, tokens, mesh)
    assert form == "pairs" or density < 1 or any(node.op == "convolution" for node in network.nodes)
    found = phases(shape, tokens, mesh)
    assert (sum(one.cost.words for one in found), sum(one.cost.numbers for one in found)) == written(
        network, case, masks, form
    )


@dataclass(frozen=True)
class Aimed(TransformerBlocks):
    """Transformer blocks whose sequences have targets."""

    @property
    def network(self):
        """The graph ends with means over tokens and mean squares."""
        whole = super().network
        mean = Node("mean.tokenmean", "tokenmean", whole.nodes[-1].inputs, {"sequence": self.sequence})
        return replace(whole, nodes=(*whole.nodes[:-1], mean, Node("loss", "mse", (mean.name,))))


@dataclass(frozen=True)
class LookedUp(TransformerBlocks):
    """Transformer blocks whose tokens are numbers, one of the token and one of its place."""

    @property
    def network(self):
        """The graph begins with a look-up, and labels are numbers."""
        return by_number(super().network, (self.vocabulary - self.sequence, self.sequence), (0, 0x4200))


@dataclass(frozen=True)
class Striped(ConvolutionStack):
    """Convolutions on images that lie on several rows of PEs."""

    rows: int = 2

    @property
    def network(self):
        """The graph is that of whole images."""
        return replace(super().network, image_rows=self.rows)


@dataclass(frozen=True)
class Named:
    """Operations of a configuration; `of` is their keys, node by node."""

    of: tuple[dict, ...]
    image: tuple[int, ...] = ()
    inputs: int = 6
    sequence: int = 0

    @property
    def network(self):
        """The graph ends with cross-entropy."""
        nodes = [NodeConfig(**{"name": f"n{k}", **keys}) for k, keys in enumerate(self.of)]
        inputs = int(np.prod(self.image)) if self.image else self.inputs
        return graph_of(inputs, nodes, self.sequence, image=self.image)


GATED = Named(
    (
        {"name": "a", "op": "convolution", "outputs": 6, "kernel": 3, "padding": 1},
        {"op": "avgpool"},
        {"op": "convolution", "outputs": 6, "kernel": 1},
        {"op": "sigmoid"},
        {"name": "g", "op": "upsample", "kernel": 4, "kernel_width": 6},
        {"op": "mul", "inputs": ("a", "g")},
        {"op": "upsample", "kernel": 2},
        {"op": "resample", "method": "linear", "sides": (6, 9)},
        {"op": "resample", "method": "mean", "kernel": 2, "padding": 1},
        {"op": "scale"},
        {"op": "multiple", "factor": 0.3},
        {"op": "dropout", "ratio": 0.25, "together": 24},
        {"op": "avgpool", "kernel": 4},
        {"op": "linear", "outputs": 4},
    ),
    (2, 4, 6),
)
"""Gates of channels, images that are enlarged, multiples."""


HEADS = Named(
    (
        {"name": "q", "op": "linear", "outputs": 16},
        {"name": "n", "op": "headrms", "groups": 4},
        {"op": "attention", "inputs": ("n", "n", "q"), "heads": 4},
        {"op": "linear", "outputs": 4},
    ),
    sequence=4,
)
"""Heads that are normalised one by one."""


@pytest.mark.parametrize(
    "more",
    [
        {"slopes": (0.5, 0.25, 0.125, 0.0625)},
        {"biases": (0, 1, 1, 2)},
        {"biases": tuple(range(7)), "causal": False},
        {"biases": tuple(range(16)), "causal": False},
    ],
)
def test_scores_that_are_moved_are_followed(more):
    """By slopes, and by learned numbers of distances and of pairs."""
    network = replace(HEADS, of=(HEADS.of[0], *HEADS.of[1:2], {**HEADS.of[2], **more}, HEADS.of[3])).network
    assert abs(compare(network, masks_of(network), Cluster(1, Mesh(machine(), 3, 2)), 8).error) < MEAN


def test_heads_that_are_normalised_are_followed():
    mesh = Mesh(machine(), 2, 2)
    assert abs(compare(HEADS.network, masks_of(HEADS.network), Cluster(1, mesh), 8).error) < MEAN


@pytest.mark.parametrize(("width", "height", "tokens"), few([(2, 1, 4), (4, 2, 3)], 1))
def test_pixels_that_are_repeated_are_followed(width, height, tokens):
    mesh = Mesh(machine(), width, height)
    assert abs(compare(GATED.network, masks_of(GATED.network), Cluster(1, mesh), tokens).error) < 0.01


def test_norms_over_the_channels_of_pixels_are_followed():
    stages = ConvolutionStage(6, norm="channelnorm", pool="avgpool"), ConvolutionStage(4, norm="channelnorm")
    of = ConvolutionStack((1, 8, 4), stages, 3)
    assert abs(compare(of.network, masks_of(of.network), Cluster(1, Mesh(machine(), 3, 2)), 4).error) < 0.01


def test_commands_that_share_an_id_are_followed():
    """On strips, too: neighbours wait for each other in some of them."""
    norms = {"name": "c", "op": "channelnorm"}, {"name": "g", "op": "groupnorm", "groups": 2}
    pools = (
        {"op": "maxpool", "kernel": 2, "stride": 1, "padding": 1},
        {"op": "resample", "method": "linear", "sides": (4, 4)},
    )
    first = {"name": "a", "op": "convolution", "outputs": 4, "kernel": 3, "padding": 1}
    rest = {"op": "scale"}, {"op": "shift"}, {"op": "avgpool", "kernel": 2}, {"op": "linear", "outputs": 3}
    for rows in (1, 2):
        of = replace(Named((first, *norms, *pools, *rest), (2, 4, 4)).network, image_rows=rows)
        ids = ids_of(strips_of(of).network)
        assert len(set(ids.values())) < len(ids)
        assert abs(compare(of, masks_of(of), Cluster(1, Mesh(machine(), 2, 2)), 4).error) < MEAN


LOOKED_UP = [
    (GraphCase(LookedUp(14, 8, 2, 2, 8, 4), 2, 1, 4), {}),
    (GraphCase(LookedUp(40, 16, 4, 4, 16, 8, rotary=True), 5, 2, 8, systems=2), {}),
    (GraphCase(LookedUp(30, 12, 2, 2, 16, 4, norm="rms"), 4, 2, 4), {"column_groups": 2}),
]
"""Look-ups with dots and with rows times scalars, on columns without features, on groups of columns."""


@pytest.mark.parametrize(("case", "groups"), LOOKED_UP)
def test_look_ups_are_followed(case, groups):
    network, mesh = case.of.network, Mesh(machine(), case.width, case.height, **groups)
    masks = masks_of(network)
    assert abs(compare(network, masks, Cluster(case.systems, mesh), case.tokens).error) < MEAN
    shape = GraphShape.of(network, masks)
    found = phases(shape, case.tokens * case.height * mesh.column_groups, mesh)
    form = graph_costs.form_of(shape, case.tokens * case.height, mesh)
    sent = sum(one.cost.words for one in found), sum(one.cost.numbers for one in found)
    assert sent == written(network, case, masks, form)


def small(op):
    """Return a case of a small network that has an operation."""
    if op == "lookup":
        return LOOKED_UP[0][0]
    if op in ("mse", "tokenmean"):
        return GraphCase(Aimed(6, 8, 2, 2, 8, 4), 2, 1, 4)
    if op in ("convolution", "maxpool", "avgpool", "groupnorm", "channelnorm", "batchnorm"):
        stage = ConvolutionStage(4, norm=op if "norm" in op else "", pool=op if "pool" in op else "")
        return GraphCase(ConvolutionStack((1, 4, 4), (stage,), 3), 2, 2, 2)
    if op == "headrms":
        return GraphCase(HEADS, 2, 1, 8)
    if op in ("upsample", "resample", "scale", "multiple", "dropout"):
        return GraphCase(GATED, 2, 1, 2)
    if op == "gather":
        return GraphCase(Striped((1, 4, 4), (ConvolutionStage(4), ConvolutionStage(2)), 3), 1, 2, 2)
    if op in ("transposed", "shift", "concat"):
        return GraphCase(
            ConvolutionStack((1, 4, 4), (ConvolutionStage(4, pool="maxpool"), ConvolutionStage(2)), 3, pixels=True),
            1,
            2,
            2,
        )
    activation = op if op in ACTIVATIONS else "relu"
    norm = op if op in ("rms", "centred") else "norm"
    return GraphCase(TransformerBlocks(6, 8, 2, 2, 8, 4, 1, norm, activation, op == "mul", op == "rotary"), 2, 1, 4)


TOLD = {}
"""By network: cycles of each command that was priced."""


def told_in(case):
    """Return the cycles of each command that was priced in a network of several operations, found once."""
    priced, told = Pricer.told, TOLD.setdefault(repr(case), {})
    if told:
        return told

    def noted(self, state, kind, number, data=None):
        found = priced(self, state, kind, number, data)
        told[self._named[kind, number]] = found[0].alone
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pricer, "told", noted)
        graph_costs._followed.cache_clear()
        phases(GraphShape(case.of.network), case.tokens * case.height, Mesh(machine(), case.width, case.height))
    return told


@pytest.mark.parametrize("op", OPERATIONS)
def test_every_operation_has_a_price(op):
    """A row of the table without commands that are priced fails here by its name."""
    case = small(op)
    assert op in {node.op for node in strips_of(case.of.network).network.nodes}, (
        f"{op} has no price: no network here has it"
    )
    told = told_in(case)
    mine = set(STREAMED[op].commands) & set(told)
    assert mine, f"{op} has no price"
    assert min(told[command] for command in mine) > machine()["task.start"]


@pytest.mark.parametrize(
    ("case", "numbers"),
    mixed(
        few([case for case in EVERY if case.width * case.height < 20], 3),
        [("wse2", {}), ("wse2", {"vec.start": 4}), ("wse3", {})],
    ),
)
def test_an_iteration_takes_what_the_model_says(case, numbers):
    """Transformers and convolutions, also on machines with other prices, and where tasks have ids of queues."""
    (row,) = points(machine(*numbers), [("seen", case)])
    assert abs(row["error"]) < MEAN


@pytest.mark.parametrize(
    ("numbers", "most"),
    [({"link.rate": 10**9}, 0.04), ({"answer.latency": 60_000}, 0.03), ({"update.rate": 5 * 10**6}, 0.04)],
    ids=str,
)
def test_other_links_and_answers_are_followed(numbers, most):
    """Two round trips of a normalisation over the batch, of sums and gradients."""
    (row,) = points(machine("wse2", numbers), [("seen", SEEN[6])])
    assert abs(row["error"]) < most


@pytest.mark.parametrize(
    ("causal", "kv_heads", "width"), few([(True, 2, 2), (False, 4, 4), (False, 2, 1), (True, 4, 3)], 3)
)
def test_rows_of_pes_that_hand_blocks_on_wait_for_each_other(causal, kv_heads, width):
    """Sequences of 16 tokens lie on four rows of PEs, blocks of which go south and north."""
    of = TransformerBlocks(12, 16, 4, kv_heads, 16, 16, causal=causal, rotary=True)
    (row,) = points(machine(), [("seen", GraphCase(of, width, 8, 4))])
    assert abs(row["error"]) < MEAN


@pytest.mark.parametrize(
    ("columns", "kv_heads", "tokens", "height", "causal"),
    few([(3, 2, 8, 2, True), (2, 4, 4, 4, True), (4, 1, 4, 3, False), (4, 2, 8, 1, False)], 2),
)
def test_columns_of_a_head_wait_for_each_other(columns, kv_heads, tokens, height, causal):
    """Scores and shares go round the rings of heads, and sequences lie on rows besides: 0.4 % off at most."""
    network = TransformerBlocks(12, 32, 4, kv_heads, 16, tokens * min(2, height), causal=causal).network
    network = replace(network, head_columns=columns)
    mesh = Mesh(machine(), columns * kv_heads, 2 * (height // 2) or 1)
    assert abs(compare(network, masks_of(network), Cluster(1, mesh), tokens).error) < 0.01


@pytest.mark.parametrize(("width", "height", "systems"), [(1, 1, 1), (3, 2, 2), (5, 1, 1)])
def test_mean_squares_are_followed(width, height, systems):
    of = Aimed(12, 16, 4, 2, 16, 4)
    masks, cluster = masks_of(of.network), Cluster(systems, Mesh(machine(), width, height))
    assert abs(compare(of.network, masks, cluster, 8).error) < MEAN
    chain = Network.of([Layer(30, 24, "gelu", True, True), Layer(24, 9, "tanh")], loss="mse")
    assert isinstance(layers_of(chain, masks_of(chain)), GraphShape)
    assert abs(compare(chain, masks_of(chain), cluster, 8).error) < MEAN


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (2, 3), (4, 2)])
def test_means_over_tokens_are_followed(rows, width):
    """Sequences of 16 tokens lie on some rows of PEs, which hand sums on."""
    nodes = (
        Node("in.linear", "linear", ("input",), {"inputs": 8, "outputs": 20, "bias": 1}),
        Node("mean.tokenmean", "tokenmean", ("in.linear",), {"sequence": 16}),
        Node("out.linear", "linear", ("mean.tokenmean",), {"inputs": 20, "outputs": 4, "bias": 1}),
        Node("loss", "cross_entropy", ("out.linear",), {"some": 1}),
    )
    network, cluster = Network(nodes, 8), Cluster(1, Mesh(machine(), width, rows))
    assert abs(compare(network, masks_of(network), cluster, 16 // rows).error) < MEAN


@pytest.mark.parametrize("case", few([SEEN[1], SEEN[5], SEEN[7]], 2), ids=lambda case: case.of.name)
def test_weights_that_are_kept_are_followed(case):
    network = replace(case.of.network, keep_output=True)
    shape, mesh = GraphShape(network), Mesh(machine(), case.width, case.height)
    tokens = case.tokens * case.height
    words = sum(one.cost.words for one in phases(shape, tokens, mesh))
    assert words == written(network, case, masks_of(network), graph_costs.form_of(shape, tokens, mesh))[0]
    assert abs(compare(network, masks_of(network), Cluster(1, mesh), case.tokens).error) < 0.01


@pytest.mark.parametrize("case", few([SEEN[1], SEEN[2]], 2), ids=lambda case: case.of.name)
def test_what_is_computed_again_is_followed(case):
    blocks = replace(case.of, blocks=2)
    network, plain = replace(blocks.network, recompute=True), GraphShape(blocks.network)
    mesh, tokens = Mesh(machine(), case.width, case.height), case.tokens * case.height
    found, kept = phases(GraphShape(network), tokens, mesh), phases(plain, tokens, mesh)
    assert {one.phase for one in found} - {one.phase for one in kept} >= {"forward again", "normalise again"}
    words = written(network, case, masks_of(network), graph_costs.form_of(plain, tokens, mesh))[0]
    assert sum(one.cost.words for one in found) == words
    assert abs(compare(network, masks_of(network), Cluster(1, mesh), case.tokens).error) < 0.01


def test_a_later_answer_makes_every_round_trip_longer():
    """Two of them, forward and back: the model waits for them as wafers do."""
    case, seconds = SEEN[6], []
    for latency in (10_000, 110_000):
        mesh = Mesh(machine("wse2", {"answer.latency": latency}), case.width, case.height)
        seconds.append(iteration(GraphShape(case.of.network), case.tokens * case.height, Cluster(1, mesh)).seconds)
    assert seconds[1] - seconds[0] == pytest.approx(2e-4, rel=1e-3)


def test_gaps_and_filters_with_gaps_are_followed():
    """Weights of every second matrix are four in ten."""
    for case in (SEEN[3], SEEN[7]):
        masks, mesh = masks_of(case.of.network, 0.4), Mesh(machine(), case.width, case.height)
        assert abs(compare(case.of.network, masks, Cluster(1, mesh), case.tokens).error) < MEAN


def test_what_lies_outside_of_a_wafer_changes_no_cycle_of_it():
    """Followed with another clock, other links, nodes and answers, without what is remembered, costs are the same."""
    numbers = {name: 2 * value for name, value in machine().items() if name.startswith(OUTSIDE)}
    case, layers = SEEN[0], (LayerShape(6, 4, activation="relu", norm=True), LayerShape(4, 3))
    found = []
    for m in (machine(), machine().replace(numbers)):
        mesh = Mesh(m, case.width, case.height)
        assert mesh.apart.machine == machine()
        graph = graph_costs._followed.__wrapped__(GraphShape(case.of.network), case.tokens, mesh, "pairs")
        chain = layer_costs._followed.__wrapped__(layers, (None, True), 3, mesh, "pairs")
        found.append((graph, chain))
    assert found[0] == found[1]


def test_blocks_that_are_alike_are_followed_once(monkeypatch):
    """A third block takes what the second one took."""
    case = GraphCase(TransformerBlocks(12, 8, 2, 2, 8, 4, 4), 2, 2, 4)
    mesh, tokens = Mesh(machine(), 2, 2), case.tokens * case.height
    calls, costs = [], graph_costs.GraphFollower.costs
    monkeypatch.setattr(graph_costs.GraphFollower, "costs", lambda self, steps: calls.append(1) or costs(self, steps))
    graph_costs._followed.cache_clear()
    found = phases(GraphShape(case.of.network), tokens, mesh)
    assert len(calls) < 0.75 * len(found)
    both = compare(case.of.network, masks_of(case.of.network), Cluster(1, mesh), case.tokens)
    assert abs(both.error) < MEAN


@pytest.mark.parametrize("preset", ["wse2", "wse3"])
def test_a_chain_takes_the_same_as_a_graph(preset):
    """Both followers, one of layers and one of operations."""
    network = Network.of([Layer(30, 24, "gelu", True, True), Layer(24, 9)])
    masks, cluster = masks_of(network), Cluster(2, Mesh(machine(preset), 3, 2))
    layers = layers_of(network, masks)
    assert all(isinstance(one, LayerShape) for one in layers)
    chain, graph = (iteration(one, 24, cluster).seconds for one in (layers, GraphShape(network)))
    assert graph == pytest.approx(chain, rel=0.01)


def test_networks_that_were_not_seen_were_drawn_once():
    """The seeds decide; four of each kind were looked at and four drawn, no two alike."""
    cases = drawn()
    assert cases == drawn()
    assert len({*cases, *SEEN}) == 16
    assert all(
        sum(isinstance(case.of, kind) for case in (*SEEN, *cases)) == 8
        for kind in (TransformerBlocks, ConvolutionStack)
    )
    with pytest.raises(ConfigError, match="mesh of at most 0"):
        graph_model(machine(), 0, None, SEEN[:1], [])


def rows_of_the_page():
    """Return the rows of the table in the docs, cell by cell."""
    text = (ROOT / "docs" / "weight-streaming.md").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if re.match(r"\| (seen|unseen) \| (transformer|convolutions) ", line))
    return [re.split(r"\s*\|\s*", line)[1:-1] for line in lines]


def test_the_table_of_the_page_holds_what_is_allowed():
    """Mean and worst error of each half, as the page prints cycles and model."""
    rows = rows_of_the_page()
    for kind in ("seen", "unseen"):
        errors = [float(row[6].replace(",", "")) / float(row[5].replace(",", "")) - 1 for row in rows if row[0] == kind]
        assert len(errors) == 8
        assert sum(map(abs, errors)) / 8 <= MEAN
        assert max(map(abs, errors)) <= MOST


def test_the_table_of_the_page_is_what_the_command_gives():
    """Small networks again at both levels; the others are simulated by the command only, their names are compared."""
    page = {tuple(row[:5]): row[5:7] for row in rows_of_the_page()}
    cases = [("seen", case) for case in SEEN] + [("unseen", case) for case in drawn()]
    for kind, case in cases:
        assert (kind, case.of.name, f"{case.width} x {case.height}", f"{case.tokens}", f"{case.systems}") in page
    for row in graph_model(machine(), 8, None, SEEN[3:4], [case for case in drawn() if case.tokens <= 4][1:2]).rows:
        cycles, model = page[row["set"], row["network"], row["mesh"], str(row["samples"]), str(row["systems"])]
        assert (row["cycles"], row["model"]) == (int(cycles.replace(",", "")), int(model.replace(",", "")))


@pytest.mark.parametrize(("rows", "width", "height"), few([(4, 2, 8), (2, 1, 2), (8, 3, 8)], 2))
def test_rows_of_pes_of_an_image_wait_for_each_other(rows, width, height):
    """Sums of group norms go over strips and back, strips are gathered, edges come from neighbours: 0.2 % off."""
    of = Striped(
        (1, 8, 8), (ConvolutionStage(4, norm="groupnorm"), ConvolutionStage(4, norm="groupnorm")), 3, rows=rows
    )
    cluster = Cluster(1, Mesh(machine(), width, height))
    assert abs(compare(of.network, masks_of(of.network), cluster, 2).error) < 0.01
