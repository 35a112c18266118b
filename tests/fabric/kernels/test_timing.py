"""The words of closed forms against what programs measure, on machines with every number changed that they add up."""

from __future__ import annotations

import pytest

from fabric.price import timing
from tests.fabric.kernels import run
from wse_core.errors import UnsupportedError
from wse_core.params import machine

CHANGED = [
    {},
    {"ramp.in": 5, "router.hop": 2, "task.start": 4},
    {"ramp.out": 3, "vec.start": 2, "vec.drain": 3, "ce.tsc_read": 2, "ce.dsr_load": 3},
]


@pytest.mark.parametrize("preset", ["wse2", "wse3"])
@pytest.mark.parametrize("overrides", CHANGED, ids=str)
def test_words_of_closed_forms(preset, overrides):
    overrides = {"mem.conflict_rule": "none", **overrides}  # four lanes meet in some bank wherever they begin
    m = machine(preset, overrides)
    for op, n in (("fmuls", 7), ("fadds", 8), ("mov16", 9)):
        measured = run("vector", preset, overrides, op=op, n=n)["cycles"]
        assert measured == m["ce.tsc_read"] + timing.elementwise(m, op, n)
    for hops in (1, 4):
        measured = run("ping", preset, overrides, hops=hops)["cycles"]
        assert measured == timing.issue(m) + timing.way(m, hops) + m["task.start"]
    one, two = (run("chain_reduce", preset, overrides, pes=pes, n=64)["cycles"] for pes in (7, 8))
    assert two - one == timing.stage(m) == timing.ramps(m) + m["router.hop"]
    measured = run("broadcast", preset, overrides, shape="row", width=5, height=1, n=1)["cycles"]
    assert measured == m["ce.tsc_read"] + timing.transfer(m, 1, 4, 2, 2) - timing.load(m, 2)
    assert timing.load(m, 3) == 3 * m["ce.dsr_load"]
    assert timing.stamp(m) == m["ce.tsc_read"] + 3


@pytest.mark.parametrize(
    "overrides",
    [
        {"router.hop": 2, "ramp.in": 5},
        {"router.hop": 8},
        {"router.hop": 8, "router.depth": 1},
        {"ramp.in": 8, "ramp.in_buffer": 0},
        {"ramp.out": 8, "ramp.execute": 8},
    ],
    ids=str,
)
def test_trains_are_as_slow_as_the_slowest_queue_on_their_way(overrides):
    m = machine("wse2", overrides)
    for n in (1, 2, 5, 30, 31):
        measured = run("broadcast", "wse2", overrides, shape="row", width=4, height=1, n=n)["cycles"]
        assert measured == m["ce.tsc_read"] + timing.transfer(m, n, 3, 2, 2) - timing.load(m, 2)
    assert timing.train(machine(), 30, 2, 2) == timing.sending(machine(), 30, 2, 2) == 30


def test_steps_are_whole():
    m = machine()
    assert [timing.steps(m, "fadds", n) for n in (1, 2, 3)] == [1, 1, 2]
    assert m.lanes("fadds") == 2
    assert timing.operation(m, 0) == timing.issue(m) + m["vec.drain"]


def test_closed_forms_refuse_loads_that_overlap():
    with pytest.raises(UnsupportedError, match=r"do not know ce\.dsr_row.*wse price"):
        timing.load(machine("wse2", {"ce.dsr_row": 1}))


def test_closed_forms_refuse_late_multiply_adds():
    late = {"vec.mac_late": 3}
    with pytest.raises(UnsupportedError, match=r"do not know vec\.mac_late.*wse price"):
        timing.operation(machine("wse2", late), 5)
    with pytest.raises(UnsupportedError, match=r"vec\.mac_late"):
        run("vector", "wse2", late, op="fmacs", n=32)
