"""Predicted against simulated cycles of a minibatch in the steady state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fabric.networks.graph.activations import ACTIVATIONS
from fabric.networks.pipelined.costs import network_cycles, outputs_cycles
from fabric.networks.pipelined.turns import Turn, pace
from fabric.networks.pipelined.updates import Rule
from tests.examples import few, some
from tests.fabric.networks.pipelined import Case
from tests.fabric.networks.pipelined.drawn import drawn

NETWORKS = {
    "two": ((64, 32, 10), [(4, 4), (2, 2)], {}),
    "adam": ((48, 48, 48, 48, 6), [(2, 4), (3, 3), (4, 2), (3, 2)], {"rule": Rule("adam")}),
    "wide and narrow": ((16, 100, 16, 4), [(2, 5), (5, 2), (2, 1)], {"activation": "none"}),
    "normalised": ((60, 40, 4), [(3, 2), (2, 1)], {"norm": True}),
    "samples enter slowly": ((600, 4, 4, 4), [(100, 2), (1, 2), (1, 2)], {"activation": "none"}),
    "cb16": ((64, 64, 64, 4), [(2, 2)] * 3, {"batch": 8, "loss_rows": 8, "dtype": "cb16"}),
    "many tiles, gelu": ((64, 64, 4), [(8, 8), (4, 1)], {"activation": "gelu", "batch": 8, "loss_rows": 4}),
    "a wide boundary": ((16, 400, 16, 4), [(4, 100), (100, 4), (4, 2)], {"activation": "none"}),
    "large minibatch": ((32, 64, 32, 8), [(4, 2), (4, 4), (2, 2)], {"batch": 8, "loss_rows": 8}),
    "one tile each, momentum": ((40, 20, 4), [(1, 1), (1, 1)], {"rule": Rule("sgd", 0.9)}),
    "five": ((30, 30, 30, 30, 30, 4), [(2, 3)] * 5, {}),
    "three alike": ((24, 24, 24, 4), [(2, 2)] * 3, {}),
}


MINIBATCHES = 20


def simulated(case, minibatches=MINIBATCHES, last=10):
    """Return the cycles of a minibatch in the steady state: where losses leave, or where minibatches enter.

    A slow first layer begins with a lead: until that is used up, losses come faster than it is.
    """
    done = case.wafer.run(*case.samples(minibatches), case.constants(minibatches))
    lost, asked = done.loss_times, done.asked[: len(done.loss_times)]
    return max((lost[-1] - lost[-1 - last]) / last, (asked[-2] - asked[-2 - last]) / last)


@pytest.mark.parametrize("name", few(NETWORKS, 4))
def test_predicted_throughput_is_that_of_the_wafer(name):
    features, shapes, options = NETWORKS[name]
    case = Case(features, shapes, updates=24, **({"loss_rows": 4} | options))
    assert max(network_cycles(case.pipeline).values()) == pytest.approx(simulated(case), rel=0.05)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_has_its_price(activation):
    """The outputs of layer 1 take longer for it, and the whole network as long as is said."""
    prices = {}
    for name in ("none", activation):
        case = Case((8, 48, 4), [(2, 1), (6, 1)], activation=name, batch=8, loss_rows=4, updates=24)
        prices[name] = outputs_cycles(case.pipeline.tiles[0], case.rule, case.machine, "f16")
        assert max(network_cycles(case.pipeline).values()) == pytest.approx(simulated(case), rel=0.05)
    assert prices[activation] > prices["none"] + 3 * 8 * 48 / 4  # at least three operations, four numbers a cycle


@pytest.mark.parametrize("seed", few(range(20), 2))
def test_throughput_of_random_networks_is_predicted(seed):
    """Nothing in the costs was chosen with these networks in view."""
    case = drawn(seed)
    assert max(network_cycles(case.pipeline).values()) == pytest.approx(simulated(case), rel=0.05)


def test_a_slow_layer_uses_up_its_lead():
    """Losses come as fast as the last layer is, until the one before has used up what it has done in advance."""
    rule = Rule("adam")
    options = {"activation": "gelu", "norm": True, "rule": rule, "updates": 34}
    case = Case((64, 48, 32, 10), [(9, 4), (5, 3), (4, 1)], **options)
    predicted = network_cycles(case.pipeline)
    times = case.wafer.run(*case.samples(34), case.constants(34)).loss_times
    assert predicted["layer 2"] > 1.03 * predicted["layer 3"]
    assert (times[20] - times[10]) / 10 == pytest.approx(predicted["layer 3"], rel=0.01)
    assert (times[-1] - times[-5]) / 4 == pytest.approx(predicted["layer 2"], rel=0.01)


@pytest.mark.parametrize(
    ("features", "shapes", "parts", "rule"),
    [
        ((40, 40, 40, 40), [(4, 4)] * 3, 2, Rule("adam")),
        ((60, 40, 30, 10), [(6, 5), (5, 4), (4, 2)], 4, Rule("sgd", 0.9)),
        ((60, 40, 30, 10), [(6, 5), (5, 4), (4, 2)], 4, Rule("adam")),
    ][: some(3, 2)],
)
def test_cycles_of_an_update_are_shared_by_its_minibatches(features, shapes, parts, rule):
    case = Case(features, shapes, loss_rows=4, updates=24, rule=rule)
    count, last = 10 * parts, 4 * parts
    times = case.wafer.run(*case.samples(count), case.constants(10), parts).loss_times
    predicted = max(network_cycles(case.pipeline, parts).values())
    assert predicted == pytest.approx((times[-1] - times[-1 - last]) / last, rel=0.05)
    assert max(network_cycles(case.pipeline).values()) > 1.2 * predicted


@pytest.mark.parametrize(
    ("features", "shapes", "parts", "norm"),
    [((24, 16, 4), [(3, 2), (2, 1)], 3, True), ((18, 14, 4), [(2, 1), (1, 1)], 2, False)],
)
def test_long_turns_elsewhere_are_waited_for(features, shapes, parts, norm):
    """The turn of an update is long in one part and short in another: the mean of the slowest part is too little."""
    case = Case(features, shapes, norm=norm, activation="gelu", rule=Rule("adam"), batch=2, updates=24)
    minibatches, last = 24 * parts, 4 * parts
    times = case.wafer.run(*case.samples(minibatches), case.constants(24), parts).loss_times
    predicted = max(network_cycles(case.pipeline, parts).values())
    assert predicted == pytest.approx((times[-1] - times[-1 - last]) / last, rel=0.05)


def test_minibatches_are_followed_from_turn_to_turn():
    """Two parts of one layer, one slow at its updates, the other always: no more than one minibatch lies between."""
    turn = Turn(0, 0, forward=100, sums=0, back=0, rest=0, update=900, activation=500, slopes=0, norm=0, leaving=0)
    assert pace([turn], 3) == (3 * 600 + 900) / 3  # sums, activation and the way back follow one another
    assert pace([turn], 5000) == pytest.approx((5000 * 600 + 900) / 5000)  # as soon as of 64
    ahead = replace(turn, delay=2)
    assert pace([ahead, replace(turn, update=0, activation=0)], 3) == (2 * 500 + 1000) / 3
