"""Whole runs of one PE, priced, against what the engine takes: to the cycle."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fabric.engine.engine import Engine
from fabric.price import price_code, price_run
from fabric.program.program import Program
from tests.compare import cases
from tests.draw import Seeded, drawn
from tests.examples import examples, seeds
from tests.random_machines import random_machine, random_program
from tests.random_vectors import random_vectors
from wse_core.encoding import N_QUEUES
from wse_core.errors import ProgramError
from wse_core.image import FabricSpec
from wse_core.params import machine

LIMIT = 20_000


def compared(spec):
    """Whether a run is priced to the cycle; None if it does not end well, or depends on data."""
    engine = Engine(spec)
    if engine.run(LIMIT) != "complete":
        return None
    try:
        return price_run(spec.programs[0], spec.machine) == engine.last_active + 1
    except ProgramError as error:
        assert re.search("of unknown data|a microthread that is blocked", str(error))
        return None


@examples(200)
@given(cases(random_vectors))
def test_random_vector_programs_cost_what_the_engine_takes(case):
    assert compared(case.spec) is not False


def on_one_pe(rng, m=None):
    """Return a random machine of one PE without queues: tasks, microthreads, FIFOs, all kinds of descriptors."""
    m, none = m or random_machine(rng), (0,) * N_QUEUES
    program = random_program(rng, "one", [0], dict(m) | {"queue.in_depth": none, "queue.out_depth": none}, False, True)
    return FabricSpec(m, 1, 1, (program,), np.zeros((1, 1), np.int16), {})


@examples(400)
@example(on_one_pe(Seeded(12087)))  # a microthread that is blocked
@given(drawn(on_one_pe) | st.integers(0, 2**32 - 1).map(lambda seed: on_one_pe(Seeded(seed))))
def test_random_programs_of_all_instructions_cost_what_the_engine_takes(spec):
    """Unless they meet a fault, wait for ever, or branch on data."""
    assert compared(spec) is not False


@pytest.mark.parametrize("name", ["wse2", "wse3"])
@pytest.mark.parametrize(
    "numbers",
    [
        {},
        {"vec.start": 4},
        {"vec.drain": 3},
        {"ce.dsr_load": 5},
        {"ce.load_latency": 9, "ce.fp_latency": 7},
        {"ce.dsr_row": 1},
        {"vec.mac_late": 3, "vec.fill_late": 700},
    ],
    ids=str,
)
def test_random_programs_on_machines_with_other_numbers(name, numbers):
    found = [compared(on_one_pe(Seeded(seed), machine(name, numbers))) for seed in seeds(100)]
    assert False not in found
    assert True in found


@pytest.mark.parametrize(("make", "share"), [(random_vectors, 0.7), (on_one_pe, 0.2)])
def test_enough_of_the_random_programs_are_compared(make, share):
    found = [compared(make(Seeded(seed))) for seed in seeds(200)]
    assert False not in found
    assert sum(one is True for one in found) > share * len(found)


@pytest.mark.parametrize(
    "numbers", [{}, {"vec.start": 4}, {"vec.drain": 3}, {"ce.dsr_load": 5}, {"ce.load_latency": 9, "ce.fp_latency": 7}]
)
@pytest.mark.parametrize("preset", ["wse2", "wse3"])
def test_a_piece_of_code_costs_what_its_numbers_say(preset, numbers):
    m = machine(preset, numbers)

    def write(p, x):
        p.fmuls(x, x, x)
        register = p.reg32("r")
        p.ld32(register, x)
        p.fadds(register, register, 1.0)
        p.fadds(register, register, 1.0)

    found = price_code(write, m, declare=lambda p: p.array("x", 10, "f32"))
    conflicts = 0 if m["mem.conflict_rule"] == "none" else m["mem.conflict_cycles"]
    lanes = m.lanes("fmuls")
    steps = -(-10 // lanes) * (1 + conflicts)
    product = 2 * m["ce.dsr_load"] + 1 + m["vec.start"] + steps + m["vec.drain"]
    assert found.alone == product + m["ce.load_latency"] + m["ce.fp_latency"] + 1
    assert sum(found.lines.values()) == found.alone


def test_turns_are_counted_by_either_half_of_a_number():
    """What a word in memory says is known from one instruction to the next, in pairs of registers too."""
    took = []
    for half in (0, 1):
        p = Program("halves")
        number, copy, at = p.scalar("number", "u32", 0x2_0005), p.scalar("copy", "u32"), p.reg16("at")
        with p.task("main"):
            pair, turns = p.reg32("pair"), p.reg16("turns")
            p.ld32(pair, number)
            p.st32(pair, copy)
            p.ldi(at, copy)
            p.ld16(turns, at, offset=half)
            turn = p.label()
            p.sub16(turns, turns, 1)
            p.br16("ne", turns, 0, turn)
        p.start("main")
        spec = FabricSpec(machine(), 1, 1, (p.assemble(),), np.zeros((1, 1), np.int16), {})
        assert compared(spec)
        took.append(price_run(spec.programs[0], spec.machine))
    assert took[0] > took[1]  # five turns, and two


def test_a_run_that_depends_on_data_is_refused_by_name():
    p = Program("asks")
    n = p.scalar("n", "u16")
    with p.task("main"):
        count = p.reg16("count")
        p.ld16(count, n)
        with p.loop(count):
            p.nop()
    p.start("main")
    with pytest.raises(ProgramError, match="of unknown data"):
        price_run(p, initial=False)
    few, many = (price_run(p, initial=False, given={"n": count}) for count in (2, 9))
    m = machine()
    assert many - few == 7 * (1 + 1 + m["ce.branch_taken"])
    with pytest.raises(ProgramError, match="no variable 'm'"):
        price_run(p, given={"m": 1})
