"""Batch normalisation over wafers: sums make a round trip in the middle of a pass; bits, cycles, statistics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fabric.networks.graph.operations import EPSILON
from fabric.networks.graph.plain import PlainGraph
from fabric.networks.graph.table import OPERATIONS
from memx.parameter import Parameter
from memx.statistics import BatchStatistics
from swarm.system import System
from tests.examples import examples
from tests.fabric.networks.test_graphs import differentiate
from tests.fabric.networks.test_images import Images
from tests.swarm.stepped import Stepped
from tests.swarm.test_crew import on_crew
from tests.swarm.test_system import NUMBERS
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic
from wse_core.params import machine


@st.composite
def networks(draw, most=4):
    """Draw a network of images, or of features, with one batch normalisation at least; small ones have no images."""
    flat = most < 4 or draw(st.booleans())
    built = Images(draw(st.integers(1, 1 + most)), 1, 1) if flat else Images(draw(st.integers(1, 2)), 4, 3)
    ops = draw(st.lists(st.sampled_from(["grow", "relu", "residual", "group", "batch"]), min_size=1, max_size=most))
    for op in [*ops, "batch"]:
        channels = built.shape[0]
        if op == "grow" and flat:
            outputs = draw(st.integers(1, 4))
            built.node("linear", inputs=channels, outputs=outputs, bias=0)
            built.shape = outputs, 1, 1
        elif op == "grow":
            built.convolution(draw(st.integers(1, 4)), (2, 2), draw(st.integers(1, 2)), 1, bias=0)
        elif op == "residual" and built.nodes:
            before = built.at
            built.node("relu")
            batch(built)
            built.node("add", before, built.at)
        elif op == "group" and not flat:
            built.group_norm(1)
        elif op == "batch":
            batch(built)
        else:
            built.node("relu")
    return built.network(draw(st.integers(2, 4)), draw(st.sampled_from(["f16", "cb16"])))


LATE = st.sampled_from([100, 333, 2000])


def batch(built):
    """Add a batch normalisation."""
    built.node("batchnorm", **dict(zip(("channels", "height", "width"), built.shape, strict=True)))


class Trained:
    """A network of random weights on wafers, and the samples of a batch."""

    def __init__(self, network, width, height, wafers, tokens, seed, backend=None, numbers=(), **more):
        self.network, self.batch = network, wafers * height * tokens
        rng = np.random.default_rng(seed)
        self.values = {tensor.name: rng.standard_normal(tensor.shape) / 2 for tensor in network.parameters}
        parameters = [Parameter(name, value, network.dtype) for name, value in self.values.items()]
        matrices = sum(OPERATIONS[node.op].matrix for node in network.nodes)
        norms = dict(enumerate(parameters[matrices:]))
        used = machine().replace(dict(numbers))
        place = width, height, wafers, self.batch
        self.system = System(network, parameters[:matrices], norms, used, *place, backend=backend, **more)
        self.statistics = {one.name: kept for one, kept in self.system.coordinator.over_batches}
        self.half = Arithmetic.of(used, network.dtype)
        self.x = rng.standard_normal((self.batch, network.inputs)) + 0.5
        self.y = rng.integers(0, network.logits.rows, self.batch)
        wanted = np.eye(network.logits.rows)[self.y]
        self.given = self.half.encode(self.x.T), self.half.encode(wanted.T)
        self.shards = list(zip(*(np.split(part, wafers, axis=1) for part in self.given), strict=True))

    def facts(self, passes=2, scale=8.0):
        """Return gradients, losses and statistics of iterations as bits, then what a test says."""
        found = []
        for _ in range(passes):
            done = self.system.train(self.shards, scale)
            found += [done.gradients.view(np.uint32), np.float32(done.loss).view(np.uint32)]
            found += [kept.running.view(np.uint32) for kept in self.statistics.values()]
        right = self.system.test(*self.given)[0]
        return [*found, right, self.system.logits()]

    def stepped(self, numbers):
        """Return the slow twin of the system."""
        one, place = self.system, self.system.parts[2:4]
        more = one.coordinator.matrices, one.coordinator.norms, machine("wse2", dict(numbers))
        return Stepped(self.network, *more, *place, len(one.ports), self.batch)


def same(one, other):
    """Return whether facts are the same in every bit."""
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@examples(60)
@given(
    network=networks(),
    width=st.integers(1, 3),
    height=st.integers(1, 2),
    wafers=st.sampled_from([1, 1, 2, 3]),
    tokens=st.integers(2, 4),
    form=st.sampled_from(["steps", "both"]),
    seed=st.integers(0, 99),
)
def test_wafers_are_bit_exact(network, width, height, wafers, tokens, form, seed):
    """Gradients, losses, running statistics of two iterations, then a test pass with them."""
    place = network, width, height, wafers, tokens, seed
    assert same(Trained(*place, form=form).facts(), Trained(*place, "numpy", form=form).facts())


@examples(2)
@given(
    network=networks(2),
    wafers=st.integers(1, 2),
    numbers=st.sampled_from([{"link.rate": 10**10}, {"node.latency": 0, "answer.latency": 100}]),
    seed=st.integers(0, 99),
)
def test_both_machines_take_the_same_cycles(network, wafers, numbers, seed):
    """So do ways that make a wafer wait: links that are slow, a round trip that takes no time."""
    runs = [Trained(network, 2, 1, wafers, 2, seed, name, numbers) for name in ("compiled", "reference")]
    for run in runs:
        run.system.train(run.shards)
    assert runs[0].system.clock == runs[1].system.clock
    assert same(runs[0].facts(1), runs[1].facts(1))


@examples(8)
@given(network=networks(1), width=st.integers(1, 2), wafers=st.integers(1, 3), numbers=NUMBERS, late=LATE)
def test_round_trips_take_what_they_take_cycle_by_cycle(network, width, wafers, numbers, late):
    """Whatever links, nodes and updates take: the system stepped cycle by cycle is as fast."""
    numbers |= {"answer.latency": late}
    ran = Trained(network, width, 1, wafers, 2, 0, numbers=numbers)
    slow = ran.stepped(numbers)
    for _ in range(2):
        assert ran.system.train(ran.shards).total_cycles == slow.train(ran.shards)


@examples(40)
@given(network=networks(), wafers=st.integers(1, 2), tokens=st.integers(3, 5), seed=st.integers(0, 99))
def test_the_oracle_is_near_real_numbers(network, wafers, tokens, seed):
    smooth = [replace(node, op="gelu") if node.op.startswith("relu") else node for node in network.nodes]
    network = replace(network, nodes=tuple(smooth))  # a corner is near to nothing
    ran = Trained(network, 2, 1, wafers, tokens, seed, "numpy")
    done = ran.system.train(ran.shards, 1.0)
    real = PlainGraph(network, "f64")
    values = {name: ran.half.decode(ran.half.encode(value)) for name, value in ran.values.items()}
    loss, gradients = real.gradients(values, ran.half.decode(ran.given[0]).T.astype(np.float64), ran.y)
    steepest = max(kept[1].max() for node, kept in real.kept.items() if node.endswith(("batchnorm", "groupnorm")))
    assume(steepest < 7)  # one over a deviation
    wanted = np.concatenate([gradients[tensor.name].ravel() for tensor in network.parameters])
    spread = max(1.0, np.abs(wanted).max())
    assert abs(done.loss - loss) < 0.02 * ran.batch
    assert np.abs(done.gradients - wanted).max() < (0.05 if network.dtype == "f16" else 0.2) * spread


# --- what it is -------------------------------------------------------------------------------------------------------


@examples(30)
@given(network=networks(), seed=st.integers(0, 99))
def test_plain_gradients_are_those_of_finite_differences(network, seed):
    differentiate(network, 4, seed)


def test_batch_norm_is_that_of_its_definition():
    """Channels of a batch have mean 0 and variance 1 before factors and shifts; with given statistics theirs."""
    built, rng = Images(3, 2, 4), np.random.default_rng(2)
    batch(built)
    x, values = rng.standard_normal((5, 3, 8)) * 3 + 1, rng.standard_normal((2, 3))
    mean, variance = x.mean((0, 2)), x.var((0, 2))
    operation, model = OPERATIONS["batchnorm"], PlainGraph(built.network(2), "f64")
    found, _ = operation.plain(model, built.nodes[0], x.reshape(5, -1), values)
    unit = (x - mean[:, None]) / np.sqrt(variance[:, None] + EPSILON)
    assert np.allclose(found, (unit * values[0][:, None] + values[1][:, None]).reshape(5, -1))
    known = np.concatenate([values, np.stack([mean + 1, variance * 4])])
    found, _ = operation.plain(model, built.nodes[0], x.reshape(5, -1), known)
    unit = (x - mean[:, None] - 1) / np.sqrt(4 * variance[:, None] + EPSILON)
    assert np.allclose(found, (unit * values[0][:, None] + values[1][:, None]).reshape(5, -1))


@examples(50)
@given(
    channels=st.integers(1, 4),
    count=st.integers(2, 40),
    away=st.sampled_from([0.0, 3.0, 200.0]),
    momentum=st.sampled_from([0.0, 0.1, 1.0]),
    epsilon=st.sampled_from([EPSILON, 0.25]),
    seed=st.integers(0, 99),
)
def test_statistics_are_those_of_the_numbers(channels, count, away, momentum, epsilon, seed):
    """Of sums about a shift, batch after batch; running ones move by a share of each, with N - 1 in the divisor."""
    rng, kept = np.random.default_rng(seed), BatchStatistics(channels, momentum, epsilon)
    mean, variance = np.zeros(channels), np.ones(channels)
    for _ in range(3):
        x = rng.standard_normal((channels, count)) + away
        kept.begin("train")
        centred = x - kept.sent["shift"][:, None]
        kept.forward(np.stack([centred.sum(1), (centred * centred).sum(1)]).astype(np.float32), count)
        assert np.allclose(kept.sent["mean"], x.mean(1), atol=1e-5 * max(1.0, away))
        near = 1e-6 * max(1.0, (away - mean.min()) ** 2) / x.var(1).min()  # what f32 leaves of the sums
        assert np.allclose(kept.sent["inverse"], 1 / np.sqrt(x.var(1) + epsilon), rtol=1e-4 + 4 * near)
        mean, variance = mean + momentum * (x.mean(1) - mean), variance + momentum * (x.var(1, ddof=1) - variance)
        before = kept.running.copy()
        assert np.array_equal(before, kept.running)
        kept.end()
        assert np.allclose(kept.running[0], mean, atol=1e-4 * max(1.0, away))
        assert np.allclose(kept.running[1], variance, rtol=1e-3 + 4 * near, atol=1e-3)


def test_sums_that_are_not_finite_leave_the_statistics():
    kept = BatchStatistics(2)
    kept.begin("train")
    kept.forward(np.array([[1, np.inf], [1, np.inf]], np.float32), 4)
    kept.end()
    assert kept.running.tolist() == [[0, 0], [1, 1]]
    assert not np.isfinite(kept.sent["inverse"][1])  # the gradients say so, and the update is left out


def test_statistics_change_at_the_end_of_an_iteration_only():
    """Passes whose gradients are kept do not change them, and what would be saved is found without them."""
    built = Images(2, 2, 2)
    batch(built)
    ran = Trained(built.network(2), 1, 1, 2, 2, 0, numbers={"link.rate": 10**9})
    (kept,) = ran.statistics.values()
    before = kept.running.copy()
    ran.system.train(ran.shards, update=False)
    assert np.array_equal(kept.running, before)
    ran.system.train(ran.shards)
    twice = kept.running.copy()
    assert not np.array_equal(twice, before)
    for _ in range(2):
        ran.system.train(ran.shards)
    after = kept.running.copy()
    saved = ran.system.savings()
    assert "no latency" in saved
    assert np.array_equal(kept.running, after)


def test_a_round_trip_costs_what_links_and_service_take():
    """A pass takes longer by both ways of every normalisation than one that finds its words there."""
    built = Images(2, 2, 2)
    batch(built)
    network, took = built.network(2), []
    for latency in (0, 4000):
        ran = Trained(network, 1, 1, 2, 2, 0, numbers={"node.latency": latency, "answer.latency": 100})
        took.append(ran.system.train(ran.shards))
    hertz = machine()["clock.ghz"]
    trips = 2 * 2 * 4000 * hertz  # forward and back, there and back again
    assert took[1].total_cycles - took[0].total_cycles == pytest.approx(trips + 4000 * hertz, rel=0.02)  # and once down
    assert took[1].cycles == took[0].cycles
    assert took[0].traffic["statistics"] == 4 * (2 * 2 + 2 * 2 * 6)


def test_a_single_number_has_no_variance():
    built = Images(3, 1, 1)
    batch(built)
    with pytest.raises(ConfigError, match="one number per channel"):
        Trained(built.network(2), 1, 1, 1, 1, 0)


@examples(6)
@given(network=networks(2), size=st.integers(2, 3), wafers=st.integers(2, 3), buffer=st.sampled_from([40, 2**24]))
def test_wafers_on_other_ranks_make_the_same_round_trips(network, size, wafers, buffer):
    """Bits and cycles are those of one process, also where small buffers make a pass of many exchanges."""

    def run():
        ran = Trained(network, 2, 1, wafers, 2, 0, numbers={"link.buffer": buffer})
        found = [*ran.facts(), np.array(ran.system.clock)]
        ran.system.close()
        return found

    assert same(on_crew(size, run), run())
