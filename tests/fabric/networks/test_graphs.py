"""Graphs that are no chains: residuals, tensors that several operations take, attention; bits, gradients, memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fabric.kernels.streamed.gradient import row_kind
from fabric.networks.graph.activations import ACTIVATIONS
from fabric.networks.graph.attention import of_slopes
from fabric.networks.graph.dropout import Draw
from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import Node, as_size
from fabric.networks.graph.operations import wanted_of
from fabric.networks.graph.plain import PlainGraph
from fabric.networks.graph.reverse import schedule
from fabric.networks.graph.table import LOSSES, OPERATIONS
from fabric.networks.pipelined.kernels import matched
from fabric.networks.streamed.commands import MOST
from fabric.networks.streamed.operations.table import ids_of
from fabric.networks.streamed.oracle.table import BACK, FORWARD
from fabric.networks.streamed.oracle.walk import StreamedOracle
from fabric.networks.streamed.resident import Resident
from fabric.networks.streamed.wafer import Wafer
from memx.coordinator import Coordinator
from memx.parameter import Parameter
from tests.examples import examples, mixed
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.params import machine


class Built:
    """A graph that grows by blocks; every block takes and gives the same features."""

    def __init__(self, inputs, features, sequence, group=1, turned=0):
        self.turned = turned
        self.nodes, self.features, self.sequence, self.group = [], features, sequence, group
        self.inputs = inputs
        self.at = self.linear("begin", "input", inputs, features)

    def node(self, name, op, *inputs, **sizes):
        """Add a node and return its name."""
        self.nodes.append(Node(name, op, inputs, sizes))
        return name

    def linear(self, group, x, inputs, outputs, bias=1):
        """Add a product."""
        return self.node(f"{group}.linear", "linear", x, inputs=inputs, outputs=outputs, bias=bias)

    def seen(self, causal, heads):
        """Return what attention has to know of sequences; scores of some fall, or are divided by another root."""
        more = {"scaled": 7} if self.sequence % 3 == 1 else {}
        more |= {"window": 1 + self.features % (self.sequence - 1)} if self.sequence > 2 and self.features % 3 else {}
        falls = self.sequence > 2 and self.features % 4 < 2
        more |= of_slopes([0.7**head - 0.3 for head in range(heads)]) if falls else {}
        return {"sequence": self.sequence, "causal": causal} | more

    def block(self, kind, number, heads, causal):
        """Add a block that ends in a sum with what it was given, or works on it."""
        group, x, n = f"block{number}", self.at, self.features
        if kind == "row":
            op = list(ACTIVATIONS)[(number + self.features + 5 * self.sequence) % len(ACTIVATIONS)]
            self.at = self.node(f"{group}.{op}", op, x)
            return
        if kind in ("norm", "rms", "centred"):
            self.at = self.node(f"{group}.{kind}", kind, x)
            return
        if kind in ("square", "self"):
            sizes = {"heads": heads, **self.seen(causal, heads)} if kind == "self" else {}
            op = "attention" if kind == "self" else "mul"
            self.at = self.node(f"{group}.{op}", op, *[x] * (3 if kind == "self" else 2), **sizes)
            return
        if kind == "mean":
            self.at = self.node(f"{group}.tokenmean", "tokenmean", x, sequence=self.sequence)
            return
        if kind == "drop":
            sizes = {"ratio": as_size(0.1 + 0.2 * (n % 4)), "number": number, "together": n if number == 2 else 1}
            self.at = self.node(f"{group}.dropout", "dropout", x, **sizes)
            return
        if kind == "twice":
            self.at = self.node(f"{group}.add", "add", x, x)
            return
        unit = self.node(f"{group}.first.norm", "norm", x)
        if kind == "mlp":
            wide = self.linear(f"{group}.up", unit, n, n + 3)
            low = self.linear(f"{group}.down", self.node(f"{group}.relu", "relu", wide), n + 3, n)
        elif kind == "gate":
            gate = self.node(f"{group}.silu", "silu", self.linear(f"{group}.gate", unit, n, n + 2, 0))
            both = self.node(f"{group}.mul", "mul", gate, self.linear(f"{group}.up", unit, n, n + 2, 0))
            low = self.linear(f"{group}.down", both, n + 2, n, 0)
        else:
            shared, fewer = n // self.group, heads // self.group
            q, k, v = (
                self.linear(f"{group}.{name}", unit, n, m, bias)
                for name, m, bias in (("q", n, 1), ("k", shared, 0), ("v", shared, 1))
            )
            sizes = {"heads": heads, **self.seen(causal, heads)}
            sizes |= {"kv_heads": fewer} if self.group > 1 else {}
            if kind == "rotary":
                more = {"base": 100} if self.sequence % 2 else {}
                more |= {"turned": self.turned} if self.turned else {}
                q, k = (
                    self.node(f"{group}.{name}.rotary", "rotary", x, heads=own, sequence=self.sequence, **more)
                    for name, x, own in (("q", q, heads), ("k", k, fewer))
                )
            mixed = self.node(f"{group}.attention", "attention", q, k, v, **sizes)
            low = self.linear(f"{group}.out", mixed, n, n)
        self.at = self.node(f"{group}.add", "add", x, low)

    def network(self, classes, dtype="f16", some=0, loss="cross_entropy"):
        """End it and return the `Network`; with `some`, tokens may have no label."""
        last = self.linear("end", self.at, self.features, classes)
        if loss == "mse" and classes % 2:
            last = self.node("end.tanh", "tanh", last)
        sizes = {"some": 1} if some and loss != "mse" else {}
        return Network((*self.nodes, Node("loss", loss, (last,), sizes)), self.inputs, dtype)


NUMBERS = [{}, {"cb16_bias": 30}, {"cb16_bias": 47, "ftz": 1}, {"fmac": "separate"}]
"""Machines have other numbers of 16 bits, or round otherwise; the first one is the usual one."""


class Ran:
    """A graph with random weights on a wafer, and its oracle."""

    def __init__(self, network, width, height, tokens, seed, form="steps", turned=None, numbers=None, groups=1):
        on = machine().replace({f"num.{key}": value for key, value in (numbers or {}).items()})
        self.network, self.tokens = network, tokens * height // network.image_rows * groups
        rng = np.random.default_rng(seed)
        self.values = {tensor.name: rng.standard_normal(tensor.shape) / 2 for tensor in network.parameters}
        dtype, bias = network.dtype, on["num.cb16_bias"]
        parameters = [Parameter(name, value, dtype, bias) for name, value in self.values.items()]
        matrices = sum(OPERATIONS[node.op].matrix for node in network.nodes)
        self.resident = Resident(network, on, width, height, self.tokens, form, turned, groups)
        self.coordinator = Coordinator(self.resident, parameters[:matrices], dict(enumerate(parameters[matrices:])))
        self.oracle = StreamedOracle(network, on, width, height, self.tokens, groups)
        self.wafer = Wafer(self.resident)
        self.x = rng.standard_normal((self.tokens, network.inputs))
        shape = (self.tokens, network.label_pixels) if network.label_image else (self.tokens,)
        if network.loss.judges:
            self.y = rng.integers(0, network.classes, shape)
        else:
            half = self.oracle.half
            self.y = half.decode(half.encode(rng.standard_normal((*shape, network.classes)))).astype(np.float64)
        if network.some:
            self.y[rng.random(shape) < 0.4] = -1 if network.loss.judges else np.nan
        self.inputs = self.oracle.half.encode(self.x.T)
        self.labels = self.oracle.half.encode(network.loss.wanted(self.y, network.classes).T)

    def expected(self, scale=1.0):
        """Return gradients and losses of the oracle."""
        self.oracle.keys = self.coordinator.keys
        self.oracle.forward(self.inputs, self.coordinator.parameters)
        losses, delta = self.oracle.loss(self.labels, scale)
        return np.concatenate([*self.oracle.backward(delta), losses])

    def right(self):
        """Return what a test counts by the oracle, as bits; nothing is dropped then."""
        for _ in self.oracle.going_forward(self.inputs, self.coordinator.parameters, test=True):
            raise AssertionError("nothing is summed over wafers in a test")
        return self.oracle.right(self.labels).tolist()

    def found(self, scale=1.0):
        """Return those of the wafer."""
        self.wafer.load(self.inputs, self.labels)
        passed, script = self.wafer.run(self.coordinator.streams("train", scale)), self.coordinator.script("train")
        found = np.zeros(script.offsets[-1] + self.resident.width, np.uint32)
        for places, numbers in zip(script.places, passed.numbers, strict=True):
            found[places] = numbers.view(np.uint32)
        return found


@st.composite
def graphs(
    draw,
    kinds=(
        *("mlp", "attention", "rotary", "gate", "row", "norm", "rms", "centred", "twice", "square", "self", "mean"),
        "drop",
    ),
):
    """Draw a network, and the tokens of a PE."""
    heads, size, sequence = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    group = draw(st.sampled_from([n for n in range(1, heads + 1) if heads % n == 0]))
    turned = draw(st.sampled_from([0, *range(2, size, 2)]))
    built = Built(draw(st.integers(1, 5)), heads * size, sequence, group, turned)
    causal = draw(st.integers(0, 1))
    no = {"rotary": size % 2, "self": group > 1}  # halves of heads; keys and queries that are one tensor
    kinds = tuple(kind for kind in kinds if not no.get(kind))
    for number, kind in enumerate(draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3)), 1):
        built.block(kind, number, heads, causal)
    dtype, some, loss = draw(st.sampled_from(["f16", "cb16"])), draw(st.integers(0, 1)), draw(st.sampled_from(LOSSES))
    classes = draw(st.integers(2 if loss == "cross_entropy" else 1, 5))
    return with_epsilons(draw, built.network(classes, dtype, some, loss)), sequence


def with_epsilons(draw, network):
    """Return a network whose normalisations add numbers below their roots, some of them their own."""
    numbers = st.sampled_from([1e-5, 1e-12, 0.25])
    own = [OPERATIONS[node.op].normalises and draw(st.booleans()) for node in network.nodes]
    nodes = [
        replace(node, sizes=(*node.sizes, ("epsilon", as_size(draw(numbers))))) if there else node
        for node, there in zip(network.nodes, own, strict=True)
    ]
    return replace(network, nodes=tuple(nodes), epsilon=draw(numbers))


def lying(sequence, rows, sequences, height):
    """Return (tokens of a PE, rows of PEs): sequences on `rows` rows each, if they divide so, else whole in PEs."""
    return (sequence // rows, rows * height) if sequence % rows == 0 and rows > 1 else (sequences * sequence, height)


def spread(network, columns, more):
    """Return (network, columns of PEs): heads on so many columns or as many as they have parts; some may be empty."""
    heads = [tensor for tensor in network.tensors.values() if tensor.head]
    columns = min([columns, *(tensor.head // network.halves for tensor in heads)])
    if any("turned" in dict(node.sizes) for node in network.nodes):  # heads lie whole in a column
        columns = 1
    if columns == 1 or not heads:
        return network, more
    width = columns * max(tensor.rows // tensor.unit for tensor in heads) + more - 1
    return replace(network, head_columns=columns), width


@examples(60)
@given(
    drawn=graphs(),
    width=st.integers(1, 4),
    height=st.integers(1, 3),
    rows=st.sampled_from([1, 2, 3, 4, 6]),
    columns=st.integers(1, 4),
    sequences=st.integers(1, 2),
    form=st.sampled_from(["steps", "pairs", "both"]),
    scale=st.sampled_from([1.0, 2.0**6]),
    numbers=st.sampled_from(NUMBERS),
    groups=st.sampled_from([1, 1, 2, 3]),
    seed=st.integers(0, 99),
)
def test_graphs_are_bit_exact(drawn, width, height, rows, columns, sequences, form, scale, numbers, groups, seed):
    """Gradients of all parameters and losses, twice; the logits; then a test pass."""
    network, sequence = drawn
    tokens, height = lying(sequence, rows, sequences, height)
    network, width = spread(network, columns, width)
    ran = Ran(network, width, height, tokens, seed, form, numbers=numbers, groups=groups)
    expected = ran.expected(scale)
    for _ in range(2):
        assert np.array_equal(ran.found(scale), expected)
        level = network.level[network.logits.name]
        assert np.array_equal(ran.wafer.activations(level), ran.oracle.results[network.logits.name])
    passed = ran.wafer.run(ran.coordinator.streams("test"))
    found = np.array([number for numbers in passed.numbers for number in numbers])
    assert found.view(np.uint32).tolist() == ran.right()


@examples(12)
@given(
    drawn=graphs(),
    mesh=st.sampled_from([(2, 2, 1), (1, 2, 2), (3, 1, 1), (2, 1, 2), (1, 3, 1), (1, 1, 3)]),
    seed=st.integers(0, 99),
)
def test_both_machines_take_the_same_cycles(drawn, mesh, seed):
    """On few PEs, since one of the machines is slow; which rows there are, and whether groups meet, is drawn."""
    (network, sequence), (rows, columns, groups) = drawn, mesh
    tokens, height = lying(sequence, rows, 1, 1)
    network, width = spread(network, columns, 2)
    on_both(lambda: Ran(network, width, height, tokens, seed, groups=groups))


def on_both(made):
    """Compare numbers, their times and all cycles of both machines."""
    runs = []
    for backend in ("compiled", "reference"):
        ran = made()
        ran.wafer = Wafer(ran.resident, backend)
        ran.wafer.load(ran.inputs, ran.labels)
        passed = ran.wafer.run(ran.coordinator.streams("train"))
        bits = [n.view(np.uint32).tolist() for n in passed.numbers]  # also of what is no number
        runs.append((passed.cycles, [t.tolist() for t in passed.times], bits))
    assert runs[0] == runs[1]


def test_more_commands_than_ids_are_bit_exact():
    """Commands that come once or so in a pass share an id, also without any images."""
    built = Built(3, 4, 2)
    for number, kind in enumerate(("rotary", "gate", "row", "rms", "mean")):
        built.block(kind, number, 2, 1)
    network = built.network(3, some=1)
    ids = ids_of(network)
    assert len(ids) > MOST == len(set(ids.values()))
    ran = Ran(network, 2, 2, 2, 7, "both")
    assert np.array_equal(ran.found(2.0**6), ran.expected(2.0**6))
    passed = ran.wafer.run(ran.coordinator.streams("test"))
    found = np.array([number for numbers in passed.numbers for number in numbers])
    assert found.view(np.uint32).tolist() == ran.right()
    on_both(lambda: Ran(network, 2, 1, 2, 7))


@examples(25)
@given(drawn=graphs(), seed=st.integers(0, 99))
def test_plain_gradients_are_those_of_finite_differences(drawn, seed):
    """In float64, of every parameter along a random direction."""
    network, sequence = drawn
    differentiate(network, 2 * sequence, seed)


def differentiate(network, samples, seed):
    """Compare plain gradients with finite differences."""
    rng = np.random.default_rng(seed)
    model = PlainGraph(network, "f64")
    model.draw = Draw(seed)  # what is dropped stays the same
    values = {tensor.name: rng.standard_normal(tensor.shape) / 2 for tensor in network.parameters}
    shape = (samples, network.label_pixels) if network.label_image else (samples,)
    x, y = rng.standard_normal((samples, network.inputs)), rng.integers(-network.some, network.classes, shape)
    if not network.loss.judges:
        y = np.where(y[:, None] < 0, np.nan, rng.standard_normal((samples, network.classes)))
    _, gradients = model.gradients(values, x, y)
    step = 1e-6
    for name, value in values.items():
        along = rng.standard_normal(value.shape)
        losses = [model.loss(model.forward(values | {name: value + sign * step * along}, x), y)[0] for sign in (1, -1)]
        wanted = (losses[0] - losses[1]) / (2 * step)
        assert abs((gradients[name] * along).sum() - wanted) <= 2e-5 * max(
            1.0, abs(wanted), np.abs(gradients[name]).max()
        )


@examples(20)
@given(drawn=graphs(), rows=st.sampled_from([1, 2, 3]), columns=st.integers(1, 3), seed=st.integers(0, 99))
def test_the_oracle_is_near_real_numbers(drawn, rows, columns, seed):
    """Losses and gradients of the machine's roundings against float64 from the same rounded weights and samples."""
    network, sequence = drawn
    tokens, height = lying(sequence, rows, 2, 1)
    network, width = spread(network, columns, 2)
    approximate(Ran(network, width, height, tokens, seed), seed)


def approximate(ran, seed):
    """Compare what the oracle finds with float64."""
    network, expected = ran.network, ran.expected()
    count = sum(tensor.rows * tensor.columns for tensor in network.parameters)
    half = ran.oracle.half
    rounded = {name: half.decode(half.encode(value)).astype(np.float64) for name, value in ran.values.items()}
    samples = half.decode(ran.inputs).astype(np.float64).T
    unit = 2.0**-10 if network.dtype == "f16" else 2.0**-9
    rng, names = np.random.default_rng(seed), [tensor.name for tensor in network.parameters]

    def numbers(values, x):
        """Return all gradients, then the loss, in float64."""
        model = PlainGraph(network, "f64")
        model.draw = ran.coordinator.draw
        loss, gradients = model.gradients(values, x, ran.y)
        return np.concatenate([*(gradients[name].ravel() for name in names), [loss]])

    def shaken(array):
        """Return an array as off as a rounding may make it."""
        return array * (1 + unit * rng.uniform(-1, 1, array.shape))

    wanted = numbers(rounded, samples)
    moved = [numbers({name: shaken(value) for name, value in rounded.items()}, shaken(samples)) for _ in range(8)]
    change = max(np.abs(other - wanted).max() for other in moved)  # norms of nearly equal numbers amplify any rounding
    found = expected.view(np.float32)
    off = np.abs(np.append(found[:count], found[count:].sum()) - wanted).max()
    assume(np.isfinite(off))
    assert off <= 30 * change + 40 * unit * max(1.0, np.abs(wanted).max())


def test_tokens_without_a_label_add_nothing():
    """What such a token holds changes neither loss nor gradients of a network without attention."""
    built = Built(3, 4, 1)
    built.block("mlp", 1, 1, 1)
    network = built.network(3, some=1)
    ran = Ran(network, 2, 2, 4, 5)
    assert 0 < (ran.y >= 0).sum() < len(ran.y)
    expected = ran.expected()
    ran.inputs[:, ran.y < 0] = ran.inputs[:, ran.y < 0] ^ 0x8000
    assert np.array_equal(ran.expected(), expected)
    assert np.array_equal(ran.found(), expected)
    other = Built(3, 4, 1)
    other.block("mlp", 1, 1, 1)
    whole = Ran(other.network(3), 2, 2, 4, 5)
    whole.y[:], whole.labels[:] = ran.y, ran.labels
    assert not np.array_equal(whole.expected(), expected)


def test_a_causal_token_does_not_see_what_comes_behind_it():
    """Other tokens of its own sequence, behind it, and of other sequences change nothing; one before it does."""
    built = Built(3, 4, 5)
    built.block("attention", 1, 2, 1)
    network = built.network(3)
    ran = Ran(network, 2, 2, 10, 1)
    first = ran.oracle.forward(ran.inputs, ran.coordinator.parameters)
    for token in range(20):
        other = ran.inputs.copy()
        other[:, token] ^= 0x8000
        changed = np.flatnonzero((ran.oracle.forward(other, ran.coordinator.parameters) != first).any(0))
        assert changed.min() == token
        assert changed.max() < (token // 5 + 1) * 5


@examples(20)
@given(pairs=st.integers(1, 4), sequence=st.integers(1, 9), sequences=st.integers(1, 2), seed=st.integers(0, 99))
def test_places_turn_pairs_as_complex_numbers(pairs, sequence, sequences, seed):
    """Pair f of a token at place t times exp(i t / 10,000^(f / pairs)): plain numpy, and the oracle near it."""
    heads, rng = 2, np.random.default_rng(seed)
    built = Built(3, 2 * pairs * heads, sequence)
    node = Node("turned", "rotary", (built.at,), {"heads": heads, "sequence": sequence})
    network = Network((*built.nodes, node, Node("loss", "cross_entropy", ("turned",))), 3)
    x = rng.standard_normal((sequence * sequences, 2 * pairs * heads))
    halves = x.reshape(len(x), heads, 2, pairs)
    places = np.arange(len(x)) % sequence
    turn = np.exp(1j * places[:, None, None] / 10_000 ** (np.arange(pairs) / pairs))
    wanted = (halves[:, :, 0] + 1j * halves[:, :, 1]) * turn
    wanted = np.stack([wanted.real, wanted.imag], 2).reshape(x.shape)
    model = PlainGraph(network, "f64")
    found, _ = OPERATIONS["rotary"].plain(model, node, x, None)
    assert np.abs(found - wanted).max() < 1e-6
    oracle = StreamedOracle(network, machine(), 1, 1, len(x))
    bits, _ = FORWARD["rotary"](oracle, node, oracle.half.encode(x.T), None)
    assert np.abs(oracle.half.decode(bits).T - wanted).max() < 6e-3
    back, _ = OPERATIONS["rotary"].plain_back(model, node, found, None, None)
    assert np.abs(back - x).max() < 1e-6


@examples(10)
@given(
    shared=st.integers(1, 3),
    group=st.integers(1, 3),
    size=st.integers(1, 5),
    causal=st.integers(0, 1),
    window=st.integers(1, 5),
    falls=st.booleans(),
    seed=st.integers(0, 99),
)
def test_attention_is_that_of_its_definition(shared, group, size, causal, window, falls, seed):
    """One query at a time, softmax over the scores that it sees divided by the root of the features, less distances."""
    tokens, heads, rng = 5, group * shared, np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((tokens, count * size)) for count in (heads, shared, shared))
    sizes = {"heads": heads, "kv_heads": shared, "sequence": tokens, "causal": causal}
    sizes |= {"window": window} if window < tokens else {}
    slopes = rng.standard_normal(heads).astype(np.float32) * falls
    sizes |= of_slopes(slopes) if falls else {}
    node = Node("mix", "attention", ("q", "k", "v"), sizes)
    found, _ = OPERATIONS["attention"].plain(PlainGraph(Network.dense((1, 2)), "f64"), node, (q, k, v), None)
    for head in range(heads):
        part, own = (slice(at * size, (at + 1) * size) for at in (head, head // group))
        for i in range(tokens):
            seen = [t for t in range(i + 1 if causal else tokens) if abs(i - t) < window]
            weights = np.exp([q[i, part] @ k[t, own] / np.sqrt(size) - float(slopes[head]) * abs(i - t) for t in seen])
            wanted = sum(w * v[t, own] for w, t in zip(weights, seen, strict=True)) / weights.sum()
            assert np.allclose(found[i, part], wanted, rtol=1e-9)


@pytest.mark.parametrize(("kind", "causal"), mixed(["attention", "rotary"], [0, 1]))
def test_on_how_many_rows_a_sequence_lies_changes_no_bit(kind, causal):
    """Logits, and those gradients that are sums of one term, as the last token alone has a label; fewer cycles."""
    built = Built(3, 8, 8, 2)
    built.block(kind, 1, 4, causal)
    network, found, cycles = built.network(3, some=1), {}, []
    rows = {tensor.name: number for number, tensor in enumerate(network.parameters)}
    for height in (1, 2, 4, 8):
        ran = Ran(network, 2, height, 8 // height, 3)
        ran.y[:] = -1, -1, -1, -1, -1, -1, -1, 1
        ran.labels[:] = ran.oracle.half.encode(wanted_of(ran.y, network.classes).T)
        gradients = ran.found()
        assert np.array_equal(gradients, ran.expected())
        ends = ran.coordinator.script("train").offsets
        parts = [
            gradients[ends[number] : ends[number + 1]]
            for name, number in rows.items()
            if name.split(".")[-2] in ("end", "out", "q")
        ]
        found[height] = [*parts, ran.wafer.activations(network.level[network.logits.name])]
        cycles.append(ran.wafer.run(ran.coordinator.streams("train")).cycles)
        assert len(parts) == 3
        assert all(map(np.array_equal, found[height], found[1]))
    assert not causal or cycles[0] > cycles[1] > cycles[2]  # else windows take too long for so few tokens


@pytest.mark.parametrize("columns", [1, 2])
def test_sequences_on_rows_take_the_same_cycles_in_bands_and_threads(columns):
    """Bands whose borders cut sequences, with two threads."""
    built = Built(3, 12, 6)
    built.block("rotary", 1, 3, 0)
    network, runs = replace(built.network(3), head_columns=columns), []
    for bands in (1, [2, 2, 2]):
        ran = Ran(network, 6, 6, 2, 1)
        ran.wafer.fabric.run(bands=bands, threads=2)
        ran.wafer.load(ran.inputs, ran.labels)
        passed = ran.wafer.run(ran.coordinator.streams("train"))
        runs.append((passed.cycles, [part.tolist() for part in (*passed.times, *passed.numbers)]))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("causal", [0, 1])
def test_blocks_do_not_cross_the_border_of_a_sequence(causal):
    """Tokens of a sequence of NaN leave those of the other ones, on the rows beside, as they are."""
    built = Built(3, 4, 4)
    built.block("attention", 1, 2, causal)
    network = built.network(3)
    ran = Ran(network, 2, 6, 2, 1)
    ran.found()
    level = network.level[network.logits.name]
    before = ran.wafer.activations(level)
    ran.inputs[:, 4:8] = 0x7E00
    ran.found()
    after = ran.wafer.activations(level)
    numbers = ran.oracle.half.decode(after)
    assert np.array_equal(after[:, [0, 1, 2, 3, 8, 9, 10, 11]], before[:, [0, 1, 2, 3, 8, 9, 10, 11]])
    assert np.isnan(numbers[:, 4:8]).all()


HEADS = [  # columns of a head, kind, causal, group, heads of keys, features, sequence, columns, rows, tokens
    (2, "attention", 1, 1, 2, 3, 4, 4, 1, 8),
    (3, "attention", 0, 2, 2, 4, 5, 7, 1, 5),  # a column is empty, keys do not divide over columns
    (5, "attention", 1, 1, 1, 5, 6, 5, 3, 2),  # fewer keys of a block than columns
    (4, "rotary", 0, 1, 2, 8, 6, 8, 2, 3),
    (2, "rotary", 1, 3, 2, 6, 8, 5, 4, 4),
    (3, "self", 1, 1, 2, 4, 6, 6, 3, 2),
]


@pytest.mark.parametrize(("case", "dtype"), mixed(HEADS, ["f16", "cb16"]), ids=str)
def test_heads_on_several_columns_are_bit_exact(case, dtype):
    """Gradients of two blocks and losses, twice; logits; logs of sums, in f32; no column has parts of two heads."""
    columns, kind, causal, group, shared, size, sequence, width, height, tokens = case
    built = Built(3, group * shared * size, sequence, group)
    for number in (1, 2):
        built.block(kind, number, group * shared, causal)
    ran = Ran(replace(built.network(3, dtype), head_columns=columns), width, height, tokens, 1, "both")
    network, expected = ran.network, ran.expected()
    assert np.array_equal(ran.found(), expected)
    assert np.array_equal(ran.found(), expected)
    level = network.level[network.logits.name]
    assert np.array_equal(ran.wafer.activations(level), ran.oracle.results[network.logits.name])
    for block in ("block1.attention", "block2.attention"):
        logs = ran.oracle._kept[block][4].reshape(shared, group, height, tokens)  # sums that no rounding hides
        held = ran.wafer.fabric.read(f"l{network.level[block]}").view(np.uint32).reshape(height, width, -1, tokens)
        for column in range(columns * shared):
            assert np.array_equal(held[:, column, :group].swapaxes(0, 1), logs[column // columns])
    tensor = network.tensors["block2.attention"]
    layout, parts = ran.resident.plan.layout(tensor), columns * shared
    for column in range(width):
        heads = np.unique(layout.column(column) // (group * size))
        assert heads.tolist() == ([column // columns] if column < parts else [])
        assert np.array_equal(layout.column(column), ran.oracle.columns(tensor)[column])
    for head in range(shared):
        assert layout.counts[head * columns : (head + 1) * columns].sum() == group * size


def test_heads_on_columns_agree_with_whole_ones_up_to_the_order_of_sums():
    """Loss and gradients of heads on 1, 2 and 4 columns are near each other."""
    built = Built(3, 16, 8)
    built.block("rotary", 1, 2, 1)
    network, found = built.network(3), []
    for columns in (1, 2, 4):
        ran = Ran(replace(network, head_columns=columns), 8, 1, 8, 1)
        numbers = ran.found().view(np.float32)
        count = sum(tensor.rows * tensor.columns for tensor in network.parameters)
        found.append(np.append(numbers[:count], numbers[count:].sum()))
    for other in found[1:]:
        assert np.abs(other - found[0]).max() < 2e-3 * np.abs(found[0]).max()


def test_scores_that_do_not_fit_are_named_with_their_bytes():
    """Before programs are written if they alone are too large; rows of PEs, or columns of a head, make them fit."""
    built = Built(3, 16, 128)
    built.block("attention", 1, 1, 1)
    network = built.network(3)
    with pytest.raises(ConfigError, match="scores of block1.attention alone takes 65536 bytes. Try: more rows of PEs"):
        Resident(network, machine(), 4, 1, 128)
    with pytest.raises(ConfigError, match="scores of block1.attention alone takes 16384 bytes"):
        Resident(network, machine(), 4, 4, 128, turned=()).layout  # noqa: B018
    assert Resident(network, machine(), 4, 8, 128).layout
    assert Resident(replace(network, head_columns=4), machine(), 4, 4, 128).layout


@pytest.mark.parametrize(("columns", "width", "height"), [(1, 4, 4), (1, 2, 2), (3, 6, 4)])
def test_programs_given_colors_are_those_that_would_be_written(columns, width, height):
    """To the last field but the name, where sequences lie on rows of PEs and heads on columns."""
    built = Built(3, 12, 4)
    built.block("attention", 1, 2, 0)
    resident = Resident(replace(built.network(3), head_columns=columns), machine(), width, height, 8)
    assert resident.layout
    places = [(x, row_kind(y, height)) for y, x in np.ndindex(height, width)]
    for x, row in {resident._key(*place): place for place in places}.values():
        wanted = resident.program(x, row).assemble()
        found = vars(resident.image(x, row)) | {"name": wanted.name}
        for name, value in vars(wanted).items():
            np.testing.assert_equal(found[name], value, err_msg=f"{name} of ({x}, {row})")


def test_blocks_and_rings_stay_in_their_sequence_and_head():
    """A route of theirs never leads over a border, and there are none where all is whole in a PE."""
    built = Built(3, 12, 4)
    built.block("attention", 1, 2, 0)
    network = built.network(3)
    for columns, height in ((1, 2), (1, 4), (3, 2), (3, 4)):
        resident = Resident(replace(network, head_columns=columns), machine(), 7, height, 8)
        routes, rows = resident.layout.build().routes, height // 2
        used = {color for color in range(8, 16) if color in routes}
        assert used == ({8, 9, 10} if columns > 1 else set()) | ({12, 13, 14, 15} if rows == 2 else set())
        for color in used:
            for y, x in np.ndindex(height, 7):
                for bit, (dy, dx) in {1: (0, -1), 2: (0, 1), 4: (-1, 0), 8: (1, 0)}.items():
                    if np.asarray(routes[color])["tx"][y, x, 0] & bit:
                        assert ((y + dy) // rows, (x + dx) // columns) == (y // rows, x // columns), (color, y, x)


def test_heads_that_columns_cannot_share_are_refused_by_name():
    built = Built(3, 8, 4)
    built.block("rotary", 1, 2, 1)
    network = built.network(3)
    with pytest.raises(UnsupportedError, match=r"4 features of a head do not lie on 3 columns of PEs. Try: at most 2"):
        Resident(replace(network, head_columns=3), machine(), 8, 1, 4)
    with pytest.raises(UnsupportedError, match="2 heads on 2 columns of PEs each do not lie on 3") as e:
        Resident(replace(network, head_columns=2), machine(), 3, 1, 4)
    assert "4 columns, or at most 1 of a head" in str(e.value)
    assert e.value.cause is None
    grouped = r"do not lie on 3\. Likely cause: 6 columns in 2 groups \(mesh.column_groups\), and heads lie on the 3 of"
    with pytest.raises(UnsupportedError, match=grouped):
        Resident(replace(network, head_columns=2), machine(), 3, 1, 8, column_groups=2)
    sided = Built(3, 8, 2)
    side = [sided.linear(name, sided.at, 8, 4) for name in ("q0", "q1")]
    q = sided.node("q", "concat", *side)
    k, v = (sided.linear(name, sided.at, 8, 4) for name in "kv")
    sided.at = sided.node("mix", "attention", q, k, v, heads=4, kv_heads=2, sequence=2, causal=1)
    with pytest.raises(UnsupportedError, match="mix: its heads do not lie on 2 columns each as what it takes does"):
        Resident(replace(sided.network(2), head_columns=2), machine(), 4, 1, 2)
    other = Built(3, 8, 2)
    other.block("self", 1, 2, 1)
    other.at = other.node("block2.attention", "attention", *[other.at] * 3, heads=4, sequence=2, causal=1)
    with pytest.raises(UnsupportedError, match="block1.attention has heads of 4 and of 2 features"):
        replace(other.network(2), head_columns=2)


GROUPED = [  # group, heads of keys, features of a head, sequence, columns, rows, sequences of a PE, form
    (2, 2, 2, 3, 1, 1, 2, "steps"),
    (3, 1, 8, 2, 2, 2, 1, "both"),  # sums of gradients are larger than scores; a column is empty
    (2, 3, 4, 4, 3, 1, 1, "pairs"),
    (4, 3, 2, 1, 2, 1, 1, "steps"),
    (3, 2, 6, 6, 2, 4, 1 / 2, "both"),  # two sequences on two rows each
    (2, 2, 2, 4, 2, 4, 1 / 4, "pairs"),
]


@pytest.mark.parametrize(("case", "dtype"), mixed(GROUPED, ["f16", "cb16"]), ids=str)
def test_heads_that_share_keys_are_bit_exact(case, dtype):
    """Gradients of all parameters and losses, twice, of two blocks, one with turned places; memory that is planned."""
    group, shared, size, sequence, width, height, sequences, form = case
    built = Built(3, group * shared * size, sequence, group)
    built.block("rotary", 1, group * shared, 1)
    built.block("attention", 2, group * shared, 1)
    network = built.network(3, dtype)
    ran = Ran(network, width, height, int(sequences * sequence), 1, form)
    expected = ran.expected()
    assert np.array_equal(ran.found(), expected)
    assert np.array_equal(ran.found(), expected)
    q, k, v = (network.tensors[f"block2.{name}.linear"] for name in "qkv")
    assert (q.unit, k.unit, v.unit) == (group * size, size, size)
    layouts = [ran.resident.plan.layout(tensor) for tensor in (q, k, v)]
    assert len({tuple(layout.counts // tensor.unit) for layout, tensor in zip(layouts, (q, k, v), strict=True)}) == 1
    logs = ran.resident.plan.arrays[f"l{network.level['block2.attention']}"]
    assert logs.rows == layouts[0].most // size


def test_gradients_of_shared_heads_are_rounded_once():
    """A query head adds what half a unit in the last place is, twice: rounded head by head it would be lost."""
    half, sequence = np.float16, 1
    node = Node("mix", "attention", ("q", "k", "v"), {"heads": 3, "kv_heads": 1, "sequence": sequence, "causal": 0})
    network = Network.dense((1, 2))
    oracle = StreamedOracle(network, machine(), 1, 1, sequence)
    q, k, v = (oracle.half.encode(np.ones((count, 1))) for count in (3, 1, 1))
    _, kept = FORWARD["attention"](oracle, node, (q, k, v), None)
    delta = oracle.half.encode(np.array([[1.0], [2.0**-11], [2.0**-11]]))
    (_, _, dv), _ = BACK["attention"](oracle, node, delta, kept, None)
    assert oracle.half.decode(dv).tolist() == [[1 + 2.0**-10]]
    assert half(half(1 + 2.0**-11) + 2.0**-11) == 1


def test_networks_whose_attention_has_other_numbers_of_heads_have_one_program():
    """Two heads of queries that share, then four of the same size that share in pairs too, and places of all."""

    def network(group):
        built = Built(3, 4, 2, 2)
        built.block("rotary", 1, 2, 1)
        wide = Built(3, 8, 2, group)
        wide.nodes, wide.at = built.nodes, built.linear("wider", built.at, 4, 8)
        wide.block("rotary", 2, 4, 1)
        return wide.network(3)

    ran = Ran(network(2), 2, 1, 4, 3)
    assert np.array_equal(ran.found(), ran.expected())
    with pytest.raises(UnsupportedError, match="block2.attention has other heads"):
        Resident(network(4), machine(), 1, 1, 2).layout  # noqa: B018


def test_tensors_that_lie_otherwise_than_the_heads_they_meet_are_refused():
    """Queries that are two tensors side by side have their heads in other columns than keys have theirs."""
    built = Built(3, 8, 2)
    side = [built.linear(name, built.at, 8, 4) for name in ("q0", "q1")]
    q = built.node("q", "concat", *side)
    k, v = (built.linear(name, built.at, 8, 4) for name in "kv")
    built.at = built.node("mix", "attention", q, k, v, heads=4, kv_heads=2, sequence=2, causal=1)
    network = built.network(2)
    with pytest.raises(UnsupportedError, match="neighbouring features|do not lie in the same columns"):
        Resident(network, machine(), 2, 1, 2)
    ran = Ran(network, 1, 1, 2, 0)
    assert np.array_equal(ran.found(), ran.expected())


def test_the_schedule_of_a_residual():
    """What several operations take is worked on in a copy, and its gradients are added, the last operation first."""
    built = Built(3, 4, 2)
    built.block("mlp", 1, 2, 1)
    said = [f"{step.node.name} {step.op} {step.direction}" for step in schedule(built.network(2), "train")]
    assert said == [
        "begin.linear linear forward",
        "block1.first.norm add copy",
        "block1.first.norm norm forward",
        "block1.up.linear linear forward",
        "block1.down.linear linear forward",
        "block1.add add forward",
        "end.linear linear forward",
        "loss cross_entropy forward",
        "end.linear linear back",
        "end.linear linear ask",
        "block1.add add copy",
        "block1.add add copy",
        "block1.down.linear linear back",
        "block1.down.linear linear ask",
        "block1.up.linear linear back",
        "block1.up.linear linear ask",
        "block1.first.norm norm back",
        "block1.first.norm add sum",
        "begin.linear linear ask",
    ]


@pytest.mark.parametrize("form", ["steps", "pairs", "both"])
@pytest.mark.parametrize("kinds", [("norm", "mlp"), ("gate", "rotary"), ("attention", "rms")])
def test_means_over_rows_of_pes_have_registers_beside_all_operations(kinds, form):
    built = Built(3, 4, 4)
    for number, kind in enumerate(kinds, 1):
        built.block(kind, number, 2, 1)
    built.at = built.node("mean.tokenmean", "tokenmean", built.at, sequence=4)
    ran = Ran(built.network(3), 2, 2, 2, 1, form)
    assert np.array_equal(ran.found(), ran.expected())


def test_tensors_whose_lives_do_not_meet_share_memory():
    """A block more takes two arrays more: sums of residuals, and gradients, lie where others did."""
    sizes = []
    for count in (1, 2, 3):
        built = Built(3, 4, 2)
        for number in range(count):
            built.block("mlp", number + 1, 2, 1)
        plan = Ran(built.network(2), 2, 1, 4, 0).resident.plan
        sizes.append([name for name in plan.arrays if name[0] in "ad" and name[1:].isdigit()])
    counts = [len(names) for names in sizes]
    assert counts[2] - counts[1] == counts[1] - counts[0] == 2  # the normalised rows and those between the products


def test_what_does_not_fit_attention_is_refused_by_name():
    built = Built(3, 6, 4)
    built.block("attention", 1, 2, 1)
    network = built.network(3)
    with pytest.raises(
        UnsupportedError, match="block1.attention: of sequences of 4 tokens and PEs of 6 tokens neither divides"
    ) as e:
        Resident(network, machine(), 2, 2, 12)
    assert "1, 3, 6, 12 rows of PEs" in str(e.value)
    for height in (1, 3, 6, 12):
        assert Resident(network, machine(), 2, height, 12).layout
    with pytest.raises(ConfigError, match="6 samples of a wafer are no whole sequences of 4"):
        Resident(network, machine(), 2, 3, 6)
    assert "block1.attention: no kernel does attention" in matched(network).unsupported
    with pytest.raises(ConfigError, match="6 features do not divide into 4 heads"):
        bad = Built(3, 6, 4)
        bad.block("attention", 1, 4, 1)
        bad.network(3)
    with pytest.raises(ConfigError, match="5 tokens are no whole sequences of 4"):
        PlainGraph(network).forward({t.name: np.zeros(t.shape) for t in network.parameters}, np.zeros((5, 3)))
    mixed = Built(3, 6, 4)
    mixed.block("attention", 1, 2, 1)
    mixed.block("attention", 2, 2, 0)
    what = "block2.attention has other heads, sequences, scales, slopes or masks than block1.attention"
    with pytest.raises(UnsupportedError, match=what):
        Resident(mixed.network(3), machine(), 2, 1, 4).layout  # noqa: B018
