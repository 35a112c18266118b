"""The compiled engine against the plain-Python reference, cycle by cycle, on random machines.

Both get the same `FabricSpec` and the same inputs and are run in the same random steps; after each step every visible
piece of state must be equal: registers, task bits, queues with ready cycles, SRAM, routes, counters.
"""

import random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fabric.engine.engine import Engine
from tests.bench import workloads
from tests.examples import examples
from tests.random_machines import difference, random_inputs, random_spec
from tests.random_traffic import random_traffic
from tests.random_vectors import random_vectors
from wse_core.reference.machine import ReferenceMachine

LIMIT = 400


def step_sizes(rng):
    """Yield cycle counts: single steps, then longer ones, so that running ahead is cut at random places."""
    style = rng.randrange(0, 3)
    while True:
        yield 1 if style == 0 else rng.randint(1, 7) if style == 1 else rng.choice((1, 50, 400))


def often_swept(spec):
    """Return an engine that sweeps stamps and counters every few cycles instead of every 2^28."""
    return Engine(spec, sweep=5)


def fault_of(machine):
    return {key: machine.fault[key] for key in ("kind", "x", "y", "cycle", "address", "color")}


def state_of(machine, status):
    """Return the snapshot, without the idle cycles at the end of a run that ended: those are by definition."""
    state = machine.snapshot()
    if status != "limit":  # also the slots of a last instruction that takes several
        del state["cycle"]
        for entry in state["pe"].values():
            entry["main"] = {"starting": "run"}.get(entry["main"], entry["main"])
            for name in [name for name in entry["counters"] if name in ("busy", "idle") or name.startswith("stall")]:
                del entry["counters"][name]
    for entry in state["pe"].values():
        entry["fifo"] = {number: len(elements) for number, elements in entry["fifo"].items() if len(elements)}
    return state


def memory(machine, spec):
    return {
        (x, y): machine.read_words(x, y, p.code_words, p.footprint - p.code_words).tolist()
        for y in range(spec.height)
        for x in range(spec.width)
        if spec.program_index[y, x] >= 0
        for p in (spec.programs[spec.program_index[y, x]],)
    }


def compare(seed, limit=LIMIT, make=Engine, draw=random_spec):
    """Run both machines on random machine `seed`; raise AssertionError at the first difference. Return the status."""
    rng = random.Random(seed)
    spec = draw(rng)
    inputs = list(random_inputs(rng, spec))
    machines = make(spec), ReferenceMachine(spec)
    for machine in machines:
        for burst in inputs:
            machine.push_input(*burst)
    sizes = step_sizes(rng)
    cycle = 0
    while cycle < limit:
        cycle = min(limit, cycle + next(sizes))
        status = [machine.run(cycle) for machine in machines]
        where = f"seed {seed}, cycle {cycle}"
        if "limit" in status and status[0] != status[1]:
            # One machine has seen that nothing can change any more, the other needs a few idle cycles to see it.
            status = [machine.run(cycle + 50) for machine in machines]
        assert status[0] == status[1], f"{where}: {status[0]} != {status[1]}; faults {[m.fault for m in machines]}"
        if status[0] == "fault":
            assert fault_of(machines[0]) == fault_of(machines[1]), f"{where}: {[m.fault for m in machines]}"
            break
        found = difference(*(state_of(machine, status[0]) for machine in machines))
        assert found is None, f"{where}: {found}"
        found = difference(memory(machines[0], spec), memory(machines[1], spec))
        assert found is None, f"{where}: SRAM {found}"
        for k in range(len(spec.outputs)):
            for a, b in zip(machines[0].pop_output(k), machines[1].pop_output(k), strict=True):
                assert np.array_equal(a, b), f"{where}: output stream {k}: {a} != {b}"
        if status[0] != "limit":
            assert machines[0].last_active == machines[1].last_active, where
            break
    return status[0]


@examples(60)
@given(st.integers(0, 2**32 - 1))
def test_random_machines_agree_cycle_by_cycle(seed):
    assert compare(seed) in ("limit", "complete", "stuck", "fault")


@examples(25)
@given(st.integers(0, 2**32 - 1))
def test_working_machines_agree_cycle_by_cycle(seed):
    assert compare(seed, 3000, draw=random_traffic) in ("complete", "stuck")


@examples(60)
@given(st.integers(0, 2**32 - 1))
def test_computing_in_memory_agrees_cycle_by_cycle(seed):
    assert compare(seed, 20000, draw=random_vectors) in ("complete", "fault")


@pytest.mark.parametrize("seed", [*range(40), 1020, 1902, 2000, 5169, 199176, 200045, 203291, 205224, 12000651])
def test_fixed_random_machines_agree(seed):
    assert compare(seed) in ("limit", "complete", "stuck", "fault")


@examples(20)
@given(st.integers(0, 2**32 - 1))
def test_sweeps_change_nothing(seed):
    assert compare(seed, make=often_swept) in ("limit", "complete", "stuck", "fault")
    assert compare(seed, 1000, make=often_swept, draw=random_traffic) in ("limit", "complete", "stuck")


@examples(40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 2**60))
def test_order_of_evaluation_does_not_matter(seed, order):
    rng = random.Random(seed)
    spec = random_spec(rng)
    inputs = list(random_inputs(rng, spec))
    snapshots = []
    for machine in (Engine(spec), Engine(spec, order=order)):
        for burst in inputs:
            machine.push_input(*burst)
        status = [machine.run(37), machine.run(400)]
        snapshots.append(
            (status, machine.fault) if "fault" in status else (status, machine.snapshot(), memory(machine, spec))
        )
    assert difference(snapshots[0], snapshots[1]) is None


@examples(30)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 60), min_size=1, max_size=8))
@example(1064, [24, 50])
def test_where_a_run_is_cut_does_not_matter(seed, cuts):
    """Running ahead, bulk operations and time jumps are cut at random cycles; the state at the end is the same."""
    rng = random.Random(seed)
    spec = random_spec(rng)
    inputs = list(random_inputs(rng, spec))
    whole, cut = Engine(spec), Engine(spec)
    for machine in (whole, cut):
        for burst in inputs:
            machine.push_input(*burst)
    end = sum(cuts)
    for cycle in np.cumsum(cuts):
        status = cut.run(int(cycle))
    if whole.run(end) != status:
        # One has seen in the last cycle that nothing can change any more, the other needs another look to see it.
        status = cut.run(end + 50)
        assert whole.run(end + 50) == status
    if status == "fault":
        assert whole.fault == cut.fault
    else:
        assert difference(state_of(whole, status), state_of(cut, status)) is None
        assert difference(memory(whole, spec), memory(cut, spec)) is None


@pytest.mark.parametrize("seed", range(12))
def test_saturated_traffic_agrees(seed):
    """Microthreads that run ahead in turn, routers whose queues sleep: no control wavelets, cut anywhere."""
    rng = random.Random(seed)
    workload = (workloads.exchange, workloads.multicast)[seed % 2](
        rng.randint(2, 4), rng.randint(2, 4), rng.randint(5, 30)
    )
    machines = Engine(workload.spec, order=seed // 2), ReferenceMachine(workload.spec)
    for machine in machines:
        workload.start(machine)
    cycle, longest = 0, rng.choice((1, 3, 40))
    status = ["limit"]
    while "limit" in status:
        cycle += rng.randint(1, longest)
        status = [machine.run(cycle) for machine in machines]
        if "limit" in status and status[0] != status[1]:
            status = [machine.run(cycle + 50) for machine in machines]
        assert status[0] == status[1], cycle
        assert difference(*(state_of(machine, status[0]) for machine in machines)) is None, cycle
    assert status[0] == "complete"
    assert machines[0].last_active == machines[1].last_active
    workload.check(machines[0])
