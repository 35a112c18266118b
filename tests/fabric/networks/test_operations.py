"""Every operation has a numpy form, and per mode an oracle, a program and a price, or the mode refuses it by name."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fabric.networks.graph.activations import ACTIVATIONS, Activation
from fabric.networks.graph.network import Layer, Network
from fabric.networks.graph.nodes import Node
from fabric.networks.graph.operations import NetworkLoss, NetworkOperation
from fabric.networks.graph.plain import PlainGraph
from fabric.networks.graph.reverse import schedule
from fabric.networks.graph.table import CHOICES, OPERATIONS, activation
from fabric.networks.graph.tensors import INPUT
from fabric.networks.pipelined.fit import outputs_words
from fabric.networks.pipelined.kernels import EPILOGUE, KERNELS, layers_of, matched
from fabric.networks.pipelined.updates import Rule
from fabric.networks.streamed.commands import HOMES, POINTERS, data_of, given_out
from fabric.networks.streamed.operations.code import JOINS
from fabric.networks.streamed.operations.table import STREAMED, ids_of
from fabric.networks.streamed.oracle.table import BACK, FORWARD
from fabric.networks.streamed.oracle.walk import StreamedOracle
from fabric.networks.streamed.resident import Resident
from fabric.networks.streamed.wafer import Wafer
from memx.coordinator import Coordinator
from memx.parameter import Parameter
from swarm.cluster.layer_costs import phases
from swarm.cluster.shapes import LayerShape, Mesh
from tests.fabric.networks.known import KNOWN
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.params import machine


def has(row, name, base=NetworkOperation):
    """Whether a row has a form of its own."""
    return getattr(type(row), name, None) is not getattr(base, name, None)


def missing(name, row):
    """Return what an operation lacks, a line each."""
    found = []
    loss = isinstance(row, NetworkLoss)
    if "plain" not in row.refused:
        forms = ["plain_loss"] if loss else ["plain", "plain_back"]
        forms += ["numbers", "bits", "emit"] if isinstance(row, Activation) else []
        base = Activation if isinstance(row, Activation) else NetworkOperation
        found += [f"{name}: no form {form!r}" for form in forms if not (has(row, form) and has(row, form, base))]
        found = [line for line in found if not (isinstance(row, Activation) and "'plain" in line)]
    assert not row.inner or "plain" in row.refused  # no file names it
    if "streaming" not in row.refused:
        lowering = STREAMED.get(name)
        if lowering is None:
            found.append(f"{name}: weight streaming has no steps and no tasks")
        else:
            back = "ask" if name == "lookup" else "back"  # nobody needs the gradient of numbers
            ways = ("forward", "test") if loss else ("forward", back)
            found += [f"{name}: no steps {way}" for way in ways if way not in lowering.write]
            found += [f"{name}: no command per row {way}" for way in ways if row.rowwise and way not in lowering.after]
            if lowering.tasks_of is None and name != "linear":
                found.append(f"{name}: no tasks")
        oracles = () if row.inner else (("forward", FORWARD), ("back", BACK))  # whole networks have no such
        found += [f"{name}: no oracle {way}" for way, of in oracles if name not in of]
    if "pipelined" not in row.refused and name not in KERNELS and name not in EPILOGUE:
        found.append(f"{name}: no kernel of the pipelined mode")
    return found


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_is_complete(name):
    assert missing(name, OPERATIONS[name]) == []


def test_what_an_operation_lacks_is_seen():
    class Empty(NetworkOperation):
        name = "empty"

    class Selu(Activation):
        name = "selu"

    assert missing("empty", Empty()) == [
        "empty: no form 'plain'",
        "empty: no form 'plain_back'",
        "empty: weight streaming has no steps and no tasks",
        "empty: no oracle forward",
        "empty: no oracle back",
        "empty: no kernel of the pipelined mode",
    ]
    lacks = missing("selu", Selu())
    assert lacks[:3] == [f"selu: no form {form!r}" for form in ("numbers", "bits", "emit")]
    assert len(lacks) == 7


def test_what_no_table_of_operations_has_is_in_none_of_a_mode():
    assert set(KNOWN) == set(CHOICES)
    for table in (STREAMED, FORWARD, BACK, KERNELS, EPILOGUE):
        assert set(table) <= set(OPERATIONS)
    assert set(CHOICES) == {"none", *(name for name, row in OPERATIONS.items() if row.rowwise)}


@pytest.mark.parametrize("name", [name for name, row in OPERATIONS.items() if "streaming" in row.refused])
def test_what_a_mode_does_not_do_is_refused_by_the_name_of_its_node(name):
    nodes = (
        Node("first", "linear", ("input",), {"inputs": 3, "outputs": 4, "bias": 1}),
        Node("odd", name, ("first",)),
        Node("last", "linear", ("odd",), {"inputs": 4, "outputs": 2, "bias": 1}),
        Node("loss", "cross_entropy", ("last",)),
    )
    network = Network(nodes, 3)
    assert set(OPERATIONS[name].refused) == {"streaming", "pipelined", "plain"}
    assert f"odd: no kernel does {name}" in matched(network).unsupported
    with pytest.raises(UnsupportedError, match=f"odd: no kernel does {name}"):
        layers_of(network)
    with pytest.raises(UnsupportedError, match=f"odd: weight streaming does not do {name}"):
        Resident(network, machine(), 1, 1, 4)
    with pytest.raises(UnsupportedError, match=f"odd: plain numpy does not do {name}"):
        PlainGraph(network).forward({}, np.zeros((1, 3)))


def test_operations_that_do_not_follow_one_another_are_refused():
    first = Node("first", "linear", ("input",), {"inputs": 3, "outputs": 3, "bias": 1})
    loss = Node("loss", "cross_entropy", ("last",))
    twice = (first, Node("relu", "relu", ("first",)), Node("last", "linear", ("first",), first.sizes), loss)
    with pytest.raises(UnsupportedError, match="relu: nothing takes its result"):
        schedule(Network(twice, 3), "train")
    with pytest.raises(UnsupportedError, match="first: 2 operations take its result"):
        layers_of(Network(twice, 3))
    with pytest.raises(ConfigError, match="sum: add takes 2 tensors, not 1"):
        Network((first, Node("sum", "add", ("first",)), loss), 3)
    wide = Node("wide", "linear", ("input",), {"inputs": 3, "outputs": 4, "bias": 1})
    with pytest.raises(ConfigError, match="sum: add takes tensors of one size, not of 3 and 4"):
        Network((first, wide, Node("sum", "add", ("first", "wide")), Node("loss", "cross_entropy", ("sum",))), 3)
    with pytest.raises(UnsupportedError, match="last: a graph ends with its loss"):
        schedule(Network((first, Node("last", "linear", ("first",), first.sizes)), 3), "train")
    with pytest.raises(ConfigError, match="there is no operation 'magic'"):
        Network((first, Node("last", "magic", ("first",)), loss), 3)
    with pytest.raises(ConfigError, match="two operations are called 'first'"):
        Network((first, first, loss), 3)


# --- activations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_changes_what_a_network_computes_and_what_it_takes(name):
    """Nothing may be the identity without a word: values, slopes, words, programs, prices and memory differ."""
    row, x = activation(name), np.linspace(-4, 4, 201)
    values, slopes = row.numbers(x)
    assert np.allclose(values, KNOWN[name](x), rtol=1e-12, atol=1e-15)
    assert np.abs(values - x).max() > 0.1
    assert np.abs(slopes - 1).max() > 0.1
    nothing, something = (Network.dense((4, 6, 3), of) for of in ("none", name))
    plain, active = (Resident(network, machine(), 2, 1, 4) for network in (nothing, something))
    assert name in active.ids
    assert name not in plain.ids
    assert len(active.program(0, "only").assemble().code) > len(plain.program(0, "only").assemble().code)
    given = 6, 4, 1, Rule(), 1
    assert outputs_words(Layer(4, 6, name), *given) > outputs_words(Layer(4, 6), *given)
    mesh = Mesh(machine(), 2, 2)
    costs = [phases((LayerShape(40, 60, activation=of), LayerShape(60, 3)), 8, mesh) for of in ("none", name)]
    assert costs[1][0].cost.busy > 1.05 * costs[0][0].cost.busy
    assert costs[1][0].cost.words == costs[0][0].cost.words + 60 + 2  # a command per row, a pointer per column


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_slope_is_the_derivative(name):
    """Central differences in float64, h = 2^-15, of f'' below 2: less than 2^-29 off, away from zero."""
    x, step = np.linspace(-6.5, 6.5, 240), 2.0**-15
    row = ACTIVATIONS[name]
    found = (row.numbers(x + step)[0] - row.numbers(x - step)[0]) / (2 * step)
    assert np.abs(found - row.numbers(x)[1]).max() < 1e-8


@pytest.mark.parametrize("dtype", ["f16", "cb16"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_bits_are_the_numbers_rounded(name, dtype):
    """Of every 16-bit number up to 2^6 in magnitude, within a rounding and what the f32 functions are off."""
    network = Network.dense((1, 1, 1), name, dtype)
    oracle = StreamedOracle(network, machine(), 1, 1, 1)
    bits = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    x = oracle.half.decode(bits)
    kept = np.isfinite(x) & (np.abs(x) <= 64)
    values, slopes = ACTIVATIONS[name].bits(oracle, bits[kept])
    wanted = ACTIVATIONS[name].numbers(x[kept].astype(np.float64))
    unit = 2.0**-11 if dtype == "f16" else 2.0**-10
    for found, want in zip((values, slopes), wanted, strict=True):
        assert np.all(np.abs(oracle.half.decode(found) - want) <= 1.01 * unit * np.abs(want) + 5e-6)


# --- commands ---------------------------------------------------------------------------------------------------------


def test_ids_are_given_out_per_network():
    """Commands of `HOMES` have theirs; another takes the first whose owner is not there; too many are refused."""
    first = ids_of(Network.dense((3, 4, 2), "relu", norm=True))
    assert all(first[name] == given_out(HOMES)[name] for name in first)
    found = given_out(["begin", "relu", "new", "newer"])
    home = given_out(HOMES)
    assert found == {"begin": home["begin"], "relu": home["relu"], "new": home["pass"], "newer": home["land"]}
    with pytest.raises(UnsupportedError, match="take 64 commands, a PE has 63"):
        given_out([str(k) for k in range(64)])
    assert len(given_out([str(k) for k in range(63)])) == 63
    several = given_out([*(str(k) for k in range(61)), "blank", "plane_dot", "plane_mean", "send"])
    assert several["plane_mean"] == several["plane_dot"] == several["blank"] != several["send"]
    assert len(set(several.values())) == 63
    assert [data_of(several, name) for name in ("plane_mean", "plane_dot", "blank", "send")] == [0, 1, 2, 0]
    with pytest.raises(UnsupportedError, match="take 65 commands"):  # two that share an id are one less
        given_out([*(str(k) for k in range(63)), "blank", "plane_dot"])
    meaning = POINTERS | JOINS
    for lowering in STREAMED.values():
        meaning |= lowering.commands
    assert set(HOMES) <= set(meaning)
    assert all(len(text.split()) > 1 for text in meaning.values())


# --- other orders than those of layers --------------------------------------------------------------------------------

ORDERS = [("relu", "norm"), ("norm", "gelu", "relu"), ("gelu", "gelu"), ("relu", "norm", "norm")]


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_operations_in_any_order_are_bit_exact(order, width):
    """What no layer has: norms behind functions, several of them; gradients too agree with the oracle in every bit."""
    nodes = [Node("a.linear", "linear", ("input",), {"inputs": 5, "outputs": 7, "bias": 1})]
    for number, op in enumerate(order):
        nodes.append(Node(f"p{number}.{op}", op, (nodes[-1].name,)))
    nodes.append(Node("b.linear", "linear", (nodes[-1].name,), {"inputs": 7, "outputs": 3, "bias": 0}))
    network = Network((*nodes, Node("loss", "cross_entropy", ("b.linear",))), 5)
    rng = np.random.default_rng(len(order) + width)
    values = [rng.standard_normal(tensor.shape) / 2 for tensor in network.parameters]
    parameters = [Parameter(tensor.name, value) for tensor, value in zip(network.parameters, values, strict=True)]
    resident = Resident(network, machine(), width, 2, 6)
    coordinator = Coordinator(resident, parameters[:2], dict(enumerate(parameters[2:])))
    oracle, wafer = StreamedOracle(network, machine(), width, 2, 6), Wafer(resident)
    inputs = oracle.half.encode(rng.standard_normal((5, 6)))
    labels = oracle.half.encode(np.eye(3)[rng.integers(0, 3, 6)].T)
    oracle.forward(inputs, parameters)
    losses, delta = oracle.loss(labels, 1.0)
    wanted = np.concatenate([*oracle.backward(delta), losses])
    wafer.load(inputs, labels)
    for _ in range(2):
        passed, script = wafer.run(coordinator.streams("train")), coordinator.script("train")
        found = np.zeros(len(wanted), np.uint32)
        for places, numbers in zip(script.places, passed.numbers, strict=True):
            found[places] = numbers.view(np.uint32)
        assert np.array_equal(found, wanted)
    with pytest.raises(UnsupportedError, match="does not follow"):
        layers_of(network)


def test_the_schedule_is_one_list():
    """Forward, loss and back; a step on rows goes with the product that has just made them, if nothing is between."""
    network = Network.of((Layer(4, 5, "relu"), Layer(5, 5, "gelu", norm=True), Layer(5, 3)))
    said = [
        f"{step.node.name} {step.direction}" + "".join(f" + {later.node.name} {later.direction}" for later in step.then)
        for step in schedule(network, "train")
    ]
    assert said == [
        "layer1.linear forward + layer1.relu forward",
        "layer2.linear forward",
        "layer2.norm forward",
        "layer2.gelu forward",
        "layer3.linear forward",
        "loss forward",
        "layer3.linear back + layer2.gelu back",
        "layer3.linear ask",
        "layer2.norm back",
        "layer2.linear back + layer1.relu back",
        "layer2.linear ask",
        "layer1.linear ask",
    ]
    assert [step.direction for step in schedule(network, "test")] == ["forward"] * 5 + ["test"]
    plan = Resident(network, machine(), 2, 1, 4).plan
    assert list(plan.arrays) == ["a0", "a1", "a2", "a3", "s1", "s2", "n2", "v2", "d0", "d1", "labels", "expo"]
    assert plan.array(network.logits.gradient) == "d0"


def test_a_layout_knows_where_a_feature_is():
    """Any starts and any order: every feature has one column and one row, and rows come back from tiles."""
    from fabric.networks.graph.layouts import ColumnLayout

    layout = ColumnLayout((0, 3, 3, 5), (4, 0, 2, 1, 3))
    places = SimpleNamespace(owner=layout.owners(np.arange(5)), local=layout.local(np.arange(5)))
    assert places.owner.tolist() == [0, 2, 0, 2, 0]
    assert places.local.tolist() == [1, 0, 2, 1, 0]
    rows = np.arange(10, dtype=np.uint16).reshape(5, 2)
    tiles = layout.tiles(rows, 1)
    assert tiles.shape == (3, 4, 2)
    assert all(np.array_equal(tiles[places.owner[f], 1 + places.local[f]], rows[f]) for f in range(5))
    assert np.array_equal(layout.rows(tiles, 1), rows)
    assert layout.most == 3
    assert ColumnLayout.even(7, 3).starts == (0, 3, 5, 7)


def product(name, given, inputs, outputs):
    """Return a node of a matrix without biases."""
    return Node(name, "linear", (given,), {"inputs": inputs, "outputs": outputs, "bias": 0})


def test_gradients_of_what_is_read_several_times_are_added():
    """The first one is written, and each other one added to it, whichever operation gives it."""
    nodes = (
        product("begin", INPUT, 3, 4),
        product("left", "begin", 4, 4),
        Node("once", "add", ("left", "begin")),
        Node("twice", "add", ("once", "begin")),
        product("logits", "twice", 4, 2),
        Node("loss", "cross_entropy", ("logits",)),
    )
    steps = schedule(Network(nodes, 3), "train")
    begin = next(step.writes[0] for step in steps if step.node.name == "begin" and step.direction == "forward")
    given = [step.direction for step in steps if step.writes and step.writes[0] == begin.gradient]
    assert [direction for direction in given if direction in ("copy", "sum")] == ["copy", "sum", "sum"]


@pytest.mark.parametrize("op", ["relu", "gelu"])
def test_what_its_own_operation_reads_again_is_not_worked_on_in_place(op):
    """Attention needs its result on the way back; a sum does not."""
    attention = {"heads": 1, "kv_heads": 1, "sequence": 2, "causal": 0}
    nodes = (
        *(product(name, INPUT, 3, 4) for name in "qkv"),
        Node("mix", "attention", tuple("qkv"), attention),
        Node("behind", op, ("mix",)),
        Node("sum", "add", ("behind", "q")),
        Node("end", op, ("sum",)),
        product("logits", "end", 4, 2),
        Node("loss", "cross_entropy", ("logits",)),
    )
    network = Network(nodes, 3)
    assert [network.in_place(node) for node in network.nodes if node.op == op] == [False, True]
    assert network.level["behind"] != network.level["mix"]
    assert network.level["end"] == network.level["sum"]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (4,), (4, 3), (4, 3, 2)])
def test_targets_are_there_where_none_is_missing(shape):
    """Also of no tokens at all, as of padding where sequences have none."""
    targets = np.zeros(shape)
    targets[1:2] = np.nan
    assert OPERATIONS["mse"].labelled(targets).tolist() == [number != 1 for number in range(shape[0])]
    assert OPERATIONS["mse"].wanted(targets, 2).shape == (shape[0], int(np.prod(shape[1:])))
