"""What a change of links, latency, updates, flash or buffers would save: against systems that have the change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.replay import CHANGES, TRUSTED, cycles
from swarm.tree import depth
from tests.examples import examples, few
from tests.swarm.test_system import Case
from wse_core.params import machine

ITERATIONS = 3
DEEP = {"features": (30, 30, 30, 30, 30, 5), "width": 3, "height": 7, "tokens": 3, "wafers": 4, "density": 0.5}
WIDE = {"features": (50, 64, 12), "width": 10, "height": 2, "tokens": 3, "wafers": 3, "density": 0.3}
WAYS = {
    "slow links": (DEEP, {"link.rate": 10**9}, "link"),
    "one slow plane": (DEEP, {"link.planes": 1, "link.rate": 10**7}, "link"),
    "slow flash": (DEEP, {"dram.bytes": 10_000, "flash.rate": 10**8}, "flash"),
    "small buffers": (WIDE, {"link.buffer": 512}, "round trip"),
    "slow updates": (WIDE, {"update.rate": 5 * 10**6}, "update"),
    "as it is": (DEEP, {}, "round trip"),
    "slow nodes": (DEEP, {"node.rate": 10**9}, "node"),
}


def trained(case, numbers):
    """Return a system after some iterations, and the cycles of the last one."""
    system = case.system(numbers, form="steps" if case.gaps else "pairs")
    for _ in range(ITERATIONS):
        taken = system.train(case.shards).total_cycles
    return system, taken


@pytest.mark.parametrize("name", few(WAYS, 1))
def test_a_change_saves_what_a_system_with_it_saves(name):
    """To half a percent of an iteration; a round trip is not blamed for more than it takes, where there is room."""
    network, numbers, cause = WAYS[name]
    case = Case(**network, norm=network is DEEP)
    system, taken = trained(case, numbers)
    saved = system.savings()
    for change in CHANGES:
        other, changed = trained(case, numbers | change.numbers(machine("wse2", numbers)))
        assert saved.get(change.text, 0.0) == pytest.approx(1 - changed / taken, abs=0.005), change.text
        other.close()
    assert system.bottleneck == cause
    if name != "small buffers":
        trip = 0.85 * (2 * 1000 * depth(case.place[2]) + 10_000)
        assert saved.get("no latency", 0.0) * taken < 1.01 * trip


NETWORKS = {
    "features": st.lists(st.integers(2, 12), min_size=2, max_size=4).map(tuple),
    "width": st.integers(1, 4),
    "height": st.integers(1, 2),
    "tokens": st.integers(1, 3),
    "wafers": st.sampled_from([1, 2, 5]),
    "density": st.sampled_from([0.3, 1.0]),
    "norm": st.booleans(),
    "seed": st.integers(0, 99),
}
NUMBERS = st.fixed_dictionaries(
    {
        "link.planes": st.sampled_from([1, 12]),
        "link.rate": st.sampled_from([10**8, 10**9, 10**11]),
        "node.latency": st.sampled_from([0, 300, 2000]),
        "update.rate": st.sampled_from([10**7, 10**9, 75 * 10**9]),
        "update.latency": st.sampled_from([0, 1500, 20_000]),
        "link.buffer": st.sampled_from([256, 2**24]),
    }
)


@examples(10)
@given(numbers=NUMBERS, change=st.sampled_from(CHANGES), **NETWORKS)
def test_any_change_of_any_network_is_told_truly(numbers, change, **values):
    """Where a replay cannot be trusted wafers are simulated, so what is said is never far from what would be."""
    case = Case(**values)
    system, taken = trained(case, numbers)
    other, changed = trained(case, numbers | change.numbers(machine("wse2", numbers)))
    assert system.savings().get(change.text, 0.0) == pytest.approx(max(0.0, 1 - changed / taken), abs=2 * TRUSTED)
    system.close(), other.close()


@examples(10)
@given(numbers=NUMBERS, **NETWORKS)
def test_a_replay_of_a_pass_that_nothing_holds_up_takes_what_the_wafers_take(numbers, **values):
    """With no latency and more than enough of everything the clock of a replay is that of the program."""
    fast = {"link.rate": 10**13, "node.rate": 10**13, "update.rate": 10**12, "node.latency": 0, "update.latency": 0}
    case = Case(**values)
    system, taken = trained(case, numbers | fast | {"link.buffer": 2**24, "link.planes": 12})
    course = system.unhindered("train")
    found = cycles(course, system.ways.on(system.machine), len(system.ports), case.shards[0][0].size, [(True, False)])
    assert abs(found - taken) <= max(8, 0.02 * taken)
    system.close()


def test_nothing_is_said_of_iterations_that_are_not_like_all_others():
    """None, the first one, and one after a test, whose weights came meanwhile."""
    case = Case((6, 5, 3), 2, 1, 1)
    system = case.system(form="pairs")
    assert (system.savings(), system.bottleneck) == ({}, "wafers")
    for _ in range(3):
        system.train(case.shards)
        assert system.savings() == {}
        system.test(*case.shards[0])
    system.train(case.shards), system.train(case.shards)
    found = system.savings()
    assert found
    system.test(*case.shards[0]), system.train(case.shards)
    assert system.savings() == found
