"""A pipelined wafer: bits against the oracle, who does what in which step, what crosses the edge."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.networks.graph.network import Network
from fabric.networks.graph.table import CHOICES
from fabric.networks.pipelined.paths import Path, colored
from fabric.networks.pipelined.pipeline import Pipeline, Placed, row_of_rectangles
from fabric.networks.pipelined.updates import Rule
from memx.optimizer import SGD
from tests.examples import examples
from tests.fabric.networks import Case as Streamed
from tests.fabric.networks.pipelined import Case, scattered
from wse_core.errors import ConfigError
from wse_core.params import machine

SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 3))
LAYERS = st.integers(1, 4).flatmap(
    lambda n: st.tuples(st.tuples(*[st.integers(1, 13)] * n, st.integers(2, 9)), st.tuples(*[SHAPES] * n).map(list))
)
RULES = st.builds(
    Rule, st.just("sgd"), momentum=st.sampled_from([0.0, 0.9]), weight_decay=st.sampled_from([0.0, 0.01])
) | st.builds(Rule, st.sampled_from(["adam", "adamw"]), weight_decay=st.sampled_from([0.0, 0.01]))


@examples(40)
@given(
    layers=LAYERS,
    activation=st.sampled_from(CHOICES),
    dtype=st.sampled_from(["f16", "cb16"]),
    bias=st.booleans(),
    norm=st.booleans(),
    rule=RULES,
    loss_rows=st.integers(1, 2),
    samples=st.integers(1, 4),
    minibatches=st.integers(1, 8),
    per_update=st.integers(1, 3),
    scatter=st.booleans(),
    seed=st.integers(0, 99),
)
def test_training_is_bit_exact(layers, samples, minibatches, per_update, scatter, seed, loss_rows, **values):
    """Losses, logits, weights, optimizer state; twice, so that nothing is left behind; wherever rectangles lie."""
    features, shapes = layers
    placement = scattered(shapes, np.random.default_rng(seed)) if scatter else {}
    batch = samples * loss_rows
    case = Case(features, shapes, batch=batch, seed=seed, loss_rows=loss_rows, **values, **placement)
    for turn in range(2):
        inputs, labels = case.samples(minibatches)
        constants = case.constants(8, 8 * turn, 4.0, batch * per_update)
        given_ = inputs, labels, constants, per_update, 4.0
        found, expected = case.wafer.run(*given_), case.oracle.run(*given_)
        assert np.array_equal(found.losses.view(np.uint32), expected.losses.view(np.uint32))
        assert np.array_equal(found.logits, expected.logits)
        assert case.agree()
    inputs, _ = case.samples(minibatches)
    assert np.array_equal(case.wafer.run(inputs).logits, case.oracle.run(inputs).logits)
    assert case.agree()


def test_both_machines_take_the_same_cycles():
    runs = []
    for backend in ("compiled", "reference"):
        case = Case((3, 2, 2), [(2, 1), (1, 1)], batch=1, backend=backend)
        found = case.wafer.run(*case.samples(2), case.constants(2))
        counters = {name: count for name, count in found.run.counters.items() if name != "idle"}
        runs.append((found.cycles, counters, found.asked.tolist(), found.loss_times.tolist(), found.losses.tolist()))
    assert runs[0] == runs[1]


# --- placement --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [3, 8, 24])
def test_rectangles_do_not_overlap_and_are_joined(layers):
    """Requirement LP-13: every PE has one program, and every path leads from its source to its target."""
    network = Network.dense([6] * layers + [4])
    shapes = [(1 + k % 3, 1 + k % 2) for k in range(layers)]
    pipeline = Pipeline(network, machine("wse2"), row_of_rectangles(network, shapes), 2, Rule())
    taken = set()
    for x, y, w, h in pipeline.rectangles().values():
        places = set(itertools.product(range(x, x + w), range(y, y + h)))
        assert taken.isdisjoint(places)
        assert all(0 <= a < pipeline.width and 0 <= b < pipeline.height for a, b in places)
        taken |= places
    paths = pipeline.paths
    assert {f"activations {k}" for k in range(layers + 1)} | {f"gradients {k}" for k in range(1, layers + 1)} < set(
        paths
    )
    for path in paths.values():
        assert all(abs(a - c) + abs(b - d) == 1 for (a, b), (c, d) in itertools.pairwise(path.way))
        if path.source:
            assert path.way[0] == path.source[0]
        if path.target:
            assert path.way[-1] == path.target[:2]
    for one, other in itertools.combinations(paths.values(), 2):
        assert one.color != other.color or one.places.isdisjoint(other.places)
    for k in range(1, layers):
        assert paths[f"activations {k}"].target[:2] == pipeline.matrix(k)[:2]
        assert paths[f"gradients {k}"].target[:2] == pipeline.outputs(k - 1)[:2]
    pipeline.layout.build()


def test_rectangles_that_do_not_fit_are_refused():
    network, wse2 = Network.dense((6, 6, 4)), machine("wse2")
    with pytest.raises(ConfigError, match="layer 2 and layer 1 overlap"):
        Pipeline(network, wse2, [Placed(1, 1, 2, 2), Placed(2, 2, 2, 2)], 2, Rule())
    with pytest.raises(ConfigError, match=r"layer 2 at 4, 0 .* leaves the 6 x 4"):
        Pipeline(network, wse2, [Placed(1, 1, 2, 2), Placed(4, 0, 2, 2)], 2, Rule(), size=(6, 4), loss=(5, 3))
    with pytest.raises(ConfigError, match="2 rows or more"):
        Pipeline(Network.dense((6, 130, 4)), wse2, [Placed(1, 1, 1, 1), Placed(4, 0, 1, 1)], 2, Rule())


def test_more_paths_than_colors_are_refused():
    paths = [Path(f"path {k}", [(0, 0)], (3, 0, 1, 1)) for k in range(3)]
    with pytest.raises(ConfigError, match="path 2 crosses paths of all 2 colors"):
        colored(paths, [11, 12], 4, 1, [11, 12])
    with pytest.raises(ConfigError, match="no way for around"):
        colored([Path("around", [(0, 0), (1, 0)], (2, 0, 1, 1))], [11], 3, 1, [11])


def test_paths_of_several_sources_take_colors_that_switch():
    """On a machine where few colors do; a path of one source, or of the host, takes any."""
    turns = Path("turns", [(0, 0), (1, 0)], (3, 0, 1, 1))
    alone, host = Path("alone", [(1, 1)], (3, 1, 1, 1)), Path("host", [], (3, 2, 1, 1))
    colored([alone, turns, host], [11, 12, 13], 4, 3, [12, 13])
    assert (alone.color, turns.color) == (11, 12)
    with pytest.raises(ConfigError, match="turns crosses paths of all 0 colors"):
        colored([Path("turns", [(0, 0), (1, 0)], (3, 0, 1, 1))], [11], 4, 3, [12])


# --- the schedule -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [2, 3, 5])
def test_all_layers_work_from_step_l_on(layers):
    """Requirement LP-15: all forward from step L, all back from step 2 L - 1; one of each per step and layer."""
    case = Case([6] * layers + [3], [(1, 1)] * layers, batch=2, updates=12)
    steps = case.oracle.run(*case.samples(12), case.constants(12)).steps
    everyone = list(range(1, layers + 1))
    for number, done in enumerate(steps[:12], 1):
        forward = sorted(layer for layer, way, _ in done if way == "forward")
        back = sorted(layer for layer, way, _ in done if way == "back")
        assert (forward == everyone) == (number >= layers)
        assert (back == everyone) == (number >= 2 * layers - 1)


def test_the_wafer_fills_as_the_schedule_says():
    """Requirement LP-15, cycle by cycle: a layer begins a minibatch when the oracle's schedule lets it, not before."""
    case = Case((6, 6, 6, 3), [(1, 1)] * 3, batch=2, updates=12)
    fabric, pipeline = case.wafer.fabric, case.pipeline
    places = [pipeline.matrix(k)[:2] for k in range(3)]
    seen = []
    fabric.every(
        16,
        lambda: seen.append(
            [tuple(int(fabric.read(name, *at)[0, 0, 0]) for name in ("forwards", "backwards", "held")) for at in places]
        ),
    )
    case.wafer.run(*case.samples(12), case.constants(12))
    for counts in seen:
        for (ahead, _, _), (behind, _, _) in itertools.pairwise(counts):
            assert behind <= ahead  # nothing goes forward before the layer below has done so
        for k, (forwards, backwards, held) in enumerate(counts):
            assert held <= 2 * (3 - k) - 1
            assert backwards <= max(0, forwards - 2 * (2 - k)) or forwards == 12
    steady = [counts for counts in seen if counts[2][1] >= 5 and counts[0][0] < 12]
    assert steady
    assert all(counts[0][0] - counts[2][1] <= 5 for counts in steady)


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_activations_of_several_minibatches_are_resident(layers):
    """Requirement LP-16: 2 (L - l) - 1 at layer l, so 5, 3, 1 for three layers."""
    case = Case([6] * layers + [3], [(2, 1)] * layers, batch=2, updates=10)
    case.wafer.run(*case.samples(10), case.constants(10))
    assert case.wafer.occupancy() == [2 * (layers - k) - 1 for k in range(layers)]
    case.wafer.run(*case.samples(1), case.constants(1))
    assert case.wafer.occupancy() == [1] * layers


def test_nothing_but_samples_and_losses_crosses_the_edge():
    """Requirement LP-17: the wafer takes samples and labels and gives logits, losses and requests, word for word."""
    case = Case((7, 9, 5, 4), [(2, 2), (1, 3), (2, 1)], batch=4, updates=6)
    fabric, pipeline = case.wafer.fabric, case.pipeline
    came = {}
    receive = fabric.receive

    def counted(stream):
        found = receive(stream)
        came[stream.index] = came.get(stream.index, 0) + int((~found.control).sum())
        return found

    fabric.receive = counted
    before = [weights.copy() for weights in case.wafer.weights()]
    case.wafer.run(*case.samples(6), case.constants(6))
    names = {"logits": "activations 3", "losses": "losses", "asked": "asking"}
    found = {name: came[pipeline.stream(path).index] for name, path in names.items()}
    assert found == {"logits": 6 * 4 * 4 // 2, "losses": 6, "asked": 6}
    assert len(fabric.spec.outputs) == 3
    assert len(fabric.spec.inputs) == 2
    assert all((a != b).any() for a, b in zip(before, case.wafer.weights(), strict=True))


def test_drained_updates_have_no_staleness_and_continuous_ones_the_declared():
    """Requirement LP-17: a run per update is training one batch after the other; one long run uses weights that are
    2 (L - l) - 2 updates older than that, from the third minibatch of three layers on."""
    drained, continuous = (Case((6, 7, 5, 3), [(1, 2), (2, 1), (1, 1)], batch=4) for _ in range(2))
    inputs, labels = drained.samples(6)
    constants = drained.constants(6)
    losses = []
    for k in range(6):
        part = slice(4 * k, 4 * k + 4)
        losses.append(drained.wafer.run(inputs[part], labels[part], constants[k : k + 1]).losses[0])
    found = continuous.wafer.run(inputs, labels, constants)
    expected = continuous.oracle.run(inputs, labels, constants)
    assert np.array_equal(found.losses, expected.losses)
    for k in range(6):
        part = slice(4 * k, 4 * k + 4)
        assert drained.oracle.run(inputs[part], labels[part], constants[k : k + 1]).losses[0] == losses[k]
    assert drained.agree()
    assert continuous.agree()
    assert found.losses[0] == losses[0]
    assert found.losses[5] != losses[5]
    updates = dict.fromkeys((1, 2, 3), 0)
    for done in expected.steps:
        for layer, way, number in done:
            if way == "forward":
                assert number - updates[layer] == min(number, 2 * (3 - (layer - 1)) - 2)
            else:
                updates[layer] += 1


@pytest.mark.parametrize("rule", [SGD(), SGD(momentum=0.9), SGD(weight_decay=0.01)], ids=str)
@pytest.mark.parametrize("dtype", ["f16", "cb16"])
@pytest.mark.parametrize(("activation", "norm"), [("relu", False), ("gelu", False), ("relu", True)])
def test_drained_updates_equal_weight_streaming_where_the_order_is_the_same(rule, dtype, activation, norm):
    """One tile per layer, one PE there; a batch of two minibatches here, of all samples at once there."""
    streamed = Streamed((7, 6, 5, 3), tokens=8, dtype=dtype, activation=activation, norm=norm)
    parameters = streamed.coordinator.parameters
    mine = Rule("sgd", momentum=rule.momentum, weight_decay=rule.weight_decay)
    case = Case((7, 6, 5, 3), [(1, 1)] * 3, batch=4, dtype=dtype, activation=activation, norm=norm, rule=mine)
    state = [{slot: np.zeros(p.dense.shape, np.float32) for slot in rule.slots} for p in parameters]
    case.wafer.load([p.dense for p in parameters], state)
    flat = [{slot: values.reshape(-1).copy() for slot, values in layer.items()} for layer in state]
    for step in range(1, 4):
        gradients = streamed.train(4.0)[1]
        assert np.array_equal(gradients, streamed.expected(4.0))
        loss, start = gradients[-1:].view(np.float32)[0], 0
        for parameter, slots in zip(parameters, flat, strict=True):
            stop = start + parameter.dense.size
            g = gradients[start:stop].view(np.float32) / np.float32(32)
            parameter.dense[...] = rule.update(step, parameter.dense.reshape(-1), g, slots, 0.1).reshape(
                parameter.dense.shape
            )
            parameter.set_pattern(parameter.pattern)
            start = stop
        constants = mine.constants(step, 4.0, 8, 0.1)[None]
        run = case.wafer.run(streamed.inputs.T, streamed.labels.T, constants, 2, 4.0)
        assert run.losses.sum() == pytest.approx(loss, rel=1e-6)
        for found, parameter in zip(case.wafer.weights(), parameters, strict=True):
            assert np.array_equal(found.view(np.uint32), parameter.dense.view(np.uint32))


def test_the_first_layer_asks_when_it_is_free():
    """Requirement LP-18: once for each of two places, then whenever a turn is over and a place free again."""
    case = Case((6, 6, 3), [(1, 1), (1, 1)], batch=2, updates=8)
    fabric, at = case.wafer.fabric, case.pipeline.matrix(0)[:2]
    times = {"forwards": {}, "since_update": {}}

    def look():
        for name, first in times.items():
            first.setdefault(int(fabric.read(name, *at)[0, 0, 0]), fabric.cycle)

    fabric.every(1, look)
    start = fabric.cycle
    found = case.wafer.run(*case.samples(8), case.constants(1), per_update=20)
    assert len(found.asked) == 8
    delay = 2
    for turn in range(delay, 7):
        completed = times["since_update"][turn - delay + 1] - start  # the last thing that a turn does
        assert 0 < found.asked[turn + 2] - completed < 60 if turn + 2 < 8 else True
    assert times["forwards"][8] - start > found.asked[7] - 60
