"""Predicted against simulated cycles of a minibatch in the steady state."""

from __future__ import annotations

import pytest

from fabric.networks.pipelined.costs import network_cycles
from fabric.networks.pipelined.updates import Rule
from tests.fabric.networks.pipelined import Case

NETWORKS = {
    "three alike": ((24, 24, 24, 4), [(2, 2)] * 3, {}),
    "two": ((64, 32, 10), [(4, 4), (2, 2)], {}),
    "large minibatch": ((32, 64, 32, 8), [(4, 2), (4, 4), (2, 2)], {"batch": 8, "loss_rows": 8}),
    "adam": ((48, 48, 48, 48, 6), [(2, 4), (3, 3), (4, 2), (3, 2)], {"rule": Rule("adam")}),
    "one tile each, momentum": ((40, 20, 4), [(1, 1), (1, 1)], {"rule": Rule("sgd", 0.9)}),
    "five": ((30, 30, 30, 30, 30, 4), [(2, 3)] * 5, {}),
    "many tiles, gelu": ((64, 64, 4), [(8, 8), (4, 1)], {"activation": "gelu", "batch": 8, "loss_rows": 4}),
    "wide and narrow": ((16, 100, 16, 4), [(2, 5), (5, 2), (2, 1)], {"activation": "none"}),
    "normalised": ((60, 40, 4), [(3, 2), (2, 1)], {"norm": True}),
    "samples enter slowly": ((1500, 4, 4, 4), [(250, 2), (1, 2), (1, 2)], {"activation": "none"}),
    "a wide boundary": ((16, 800, 16, 4), [(4, 200), (200, 4), (4, 2)], {"activation": "none"}),
    "cb16": ((64, 64, 64, 4), [(2, 2)] * 3, {"batch": 8, "loss_rows": 8, "dtype": "cb16"}),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_predicted_throughput_is_that_of_the_wafer(name):
    features, shapes, options = NETWORKS[name]
    case = Case(features, shapes, updates=24, **({"loss_rows": 4} | options))
    times = case.wafer.run(*case.samples(20), case.constants(20)).loss_times
    simulated = (times[-1] - times[9]) / 10
    assert max(network_cycles(case.pipeline).values()) == pytest.approx(simulated, rel=0.05)
