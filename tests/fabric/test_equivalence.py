"""The compiled engine against the plain-Python reference, cycle by cycle, on random machines.

Both get the same `FabricSpec` and the same inputs and are run in the same random steps; after each step every visible piece
of state must be equal: registers, task bits, queues with ready cycles, SRAM, routes, counters.
"""
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric.engine import Engine
from tests.random_machines import difference, random_inputs, random_spec
from wse_core.reference.machine import ReferenceMachine

LIMIT = 400


def step_sizes(rng):
    """Yield cycle counts: single steps, then longer ones, so that running ahead is cut at random places."""
    style = rng.randrange(0, 3)
    while True:
        yield 1 if style == 0 else rng.randint(1, 7) if style == 1 else rng.choice((1, 50, 400))


def memory(machine, spec):
    return {(x, y): machine.read_words(x, y, p.code_words, p.footprint - p.code_words).tolist()
            for y in range(spec.height) for x in range(spec.width) if spec.program_index[y, x] >= 0
            for p in (spec.programs[spec.program_index[y, x]],)}


def compare(seed, limit=LIMIT, make=Engine):
    """Run both machines on random machine `seed`; raise AssertionError at the first difference. Return the status."""
    rng = random.Random(seed)
    spec = random_spec(rng)
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
        assert status[0] == status[1], f"{where}: {status[0]} != {status[1]}; faults {[m.fault for m in machines]}"
        if status[0] == "fault":
            assert machines[0].fault == machines[1].fault, where
            break
        found = difference(machines[0].snapshot(), machines[1].snapshot())
        assert found is None, f"{where}: {found}"
        found = difference(memory(machines[0], spec), memory(machines[1], spec))
        assert found is None, f"{where}: SRAM {found}"
        for k in range(len(spec.outputs)):
            for a, b in zip(machines[0].pop_output(k), machines[1].pop_output(k)):
                assert np.array_equal(a, b), f"{where}: output stream {k}: {a} != {b}"
        if status[0] != "limit":
            assert machines[0].last_active == machines[1].last_active, where
            break
    return status[0]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_random_machines_agree_cycle_by_cycle(seed):
    assert compare(seed) in ("limit", "complete", "stuck", "fault")


@pytest.mark.parametrize("seed", range(40))
def test_fixed_random_machines_agree(seed):
    assert compare(seed) in ("limit", "complete", "stuck", "fault")
