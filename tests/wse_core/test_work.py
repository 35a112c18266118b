"""Energy is counted work times modelled numbers: counts are those of a slow recount, each number has its part."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric import Fabric, Layout, Program
from fabric.engine.engine import Engine
from tests.compare import cases, state_of
from tests.examples import examples
from tests.random_fifos import random_fifos
from tests.random_machines import random_spec
from tests.random_traffic import random_traffic
from tests.random_vectors import random_vectors
from wse_core import isa
from wse_core.counters import USES
from wse_core.encoding import N_HALVES, WORK_COLUMNS, WORK_ELEMENTS
from wse_core.params import PARAMETERS, machine
from wse_core.reference.machine import ReferenceMachine
from wse_core.work import CAUSES, CountedWork, arithmetic_of, found_in

WSE2 = machine("wse2")
NAMES = [field.name for field in fields(CountedWork)]
NUMBERS = [name for name in PARAMETERS if name.startswith("energy.")]


def totals(engine):
    return {name: int(values.sum()) for name, values in engine.counters().items()}


def work_of(engine, spec):
    hops = sum(int(values.sum()) for values in engine.link_counts().values())
    return CountedWork.of(spec.machine, engine.work(), totals(engine)["instructions"], hops, spec.width * spec.height)


@pytest.mark.parametrize("make", [random_spec, random_traffic, random_vectors, random_fifos])
@examples(25)
@given(st.data())
def test_work_is_that_of_the_plain_machine(make, data):
    """The plain machine counts words of SRAM where it reads and writes them, element by element."""
    case = data.draw(cases(make))
    fast, slow = case.start(Engine(case.spec)), case.start(ReferenceMachine(case.spec))
    status = fast.run(700), slow.run(700)
    if "fault" in status:
        return
    assert found_in(fast.work()) == found_in(slow.work())
    work = work_of(fast, case.spec)
    assert work == work_of(slow, case.spec)
    if not any(ce.registers for ce in slow.ces.values()):  # else some loads and stores reach no SRAM
        assert work.read == sum(ce.words_read for ce in slow.ces.values())
        assert work.write == sum(ce.words_written for ce in slow.ces.values())


@examples(25)
@given(cases(random_traffic))
def test_elements_and_cycles_are_all_counted(case):
    """Elements of the table are those of the counters, and idle and busy cycles all cycles of PEs with a program."""
    engine = case.start(Engine(case.spec))
    if engine.run(500) == "fault":
        return
    counts, table = totals(engine), engine.work()
    assert int(table[:, :, WORK_ELEMENTS:].sum()) == counts["elements"]
    macs = [op.code for op in isa.OPS if op.is_mac]
    assert int(table[macs].sum()) == counts["macs"]
    assert int(table[:, :, :WORK_ELEMENTS].sum()) <= counts["instructions"]
    programs = int((case.spec.program_index >= 0).sum())
    assert sum(counts[use] for use in USES) == programs * engine.cycle


def sums(half="f16", n=40):
    """Return a fabric whose PE adds, multiplies, and does so in a scalar instruction."""
    p = Program("sums", WSE2, half=half)
    a, b = p.array("a", n, half), p.array("b", n, "f32")
    with p.task("main"):
        x, y = p.reg16("x"), p.reg32("y")
        p.fmach(a, a, a, 3.0)
        p.fmacs(b, b, b, 2.0)
        p.faddh(a, a, a)
        p.fadds(b, b, b)
        p.ld16(x, a)
        p.mul16(x, x, x)
        p.st16(x, a)
        p.ld32(y, b)
    layout = Layout(2, 1)
    layout.place(p, 0, 0)
    return Fabric(layout)


@pytest.mark.parametrize("half", ["f16", "cb16"])
def test_a_program_that_is_counted_by_hand(half):
    fabric = sums(half)
    fabric.launch("main")
    run = fabric.run()
    work = run.work
    # 16-bit multiply-add: 2 + 1 words an element; f32: 4 + 2; sums: 2 + 1 and 4 + 2; a load and a store each, a pair
    assert (work.read, work.write) == (40 * (2 + 4 + 2 + 4) + 1 + 2, 40 * (1 + 2 + 1 + 2) + 1)
    other = {"f16": "cb16", "cb16": "f16"}[half]
    assert (getattr(work, f"{half}_add"), getattr(work, f"{half}_multiply")) == (80, 40)
    assert (getattr(work, f"{other}_add"), getattr(work, f"{other}_multiply")) == (0, 0)
    assert (work.f32_add, work.f32_multiply, work.int_multiply) == (80, 40, 1)
    assert work.issue == run.counters["instructions"]
    assert work.cycle == 2 * (run.cycle - run.start)  # the PE without a program is powered, too
    assert work == fabric.work()
    assert run.energy == fabric.energy()
    assert run.energy.seconds == pytest.approx((run.cycle - run.start) / 0.85e9)
    assert run.energy.watts == pytest.approx(run.energy.joules / run.energy.seconds)


def test_runs_add_up_to_the_fabric():
    fabric = sums()
    works = []
    for _ in range(3):
        fabric.launch("main")
        works.append(fabric.run().work)
    assert works[0] + works[1] + works[2] == fabric.work()
    assert works[1] == works[2]


def test_each_count_has_a_number_and_a_cause():
    assert [f"energy.{name}" for name in NAMES] == NUMBERS
    assert sorted(name for names in CAUSES.values() for name in names) == sorted(NAMES)
    assert all(PARAMETERS[name].unit.startswith("pJ") for name in NUMBERS)


@examples(30)
@given(st.sampled_from(NAMES), st.lists(st.integers(0, 10**9), min_size=len(NAMES), max_size=len(NAMES)))
def test_a_doubled_number_doubles_its_own_part_and_nothing_else(name, counts):
    work = CountedWork(*counts)
    number = f"energy.{name}"
    before, after = work.energy(WSE2), work.energy(WSE2.replace({number: 2 * WSE2[number]}))
    cause = next(cause for cause, names in CAUSES.items() if name in names)
    for other in CAUSES:
        more = getattr(work, name) * WSE2[number] * 1e-12 if other == cause else 0
        assert after.causes[other] == pytest.approx(before.causes[other] + more, rel=1e-9)
    assert before.joules == pytest.approx(sum(getattr(work, one) * WSE2[f"energy.{one}"] for one in NAMES) * 1e-12)


def test_numbers_that_follow_from_others():
    """A cycle of a powered PE is its peak without the work of its busiest cycle; cb16 lies between formats."""
    m = WSE2
    busiest = CountedWork(read=8, write=4, f16_add=4, f16_multiply=4)  # a step of fmach: `lanes.fmach` elements
    assert m["lanes.fmach"] == 4
    peak = 30e-3 / 1.1e9
    assert m["energy.cycle"] == pytest.approx((peak - busiest.energy(m).joules) * 1e12, abs=0.005)
    assert m["energy.read"] == m["energy.write"] == 7.5 / 4
    assert m["energy.issue"] == 2 * m["energy.read"]
    assert m["energy.hop"] == pytest.approx(0.1 * 32)
    add = 0.11 + (0.16 - 0.11) * (10 - 8) / (11 - 8)
    multiply = 0.21 + (0.34 - 0.21) * (10**2 - 8**2) / (11**2 - 8**2)
    assert (m["energy.cb16_add"], m["energy.cb16_multiply"]) == (
        pytest.approx(add, abs=5e-4),
        pytest.approx(multiply, abs=5e-4),
    )


def test_what_ops_compute():
    """Every op of the table computes nothing, or one thing, or a product and a sum."""
    found = {op.name: arithmetic_of(op) for op in isa.OPS}
    assert found["fmachs"] == ("h_multiply", "s_add")
    assert found["faddhs"] == found["fs2h"] == found["brs"] == found["fscales"] == ("s_add",)
    assert found["faddh"] == found["fh2xp16"] == ("h_add",)
    assert found["add16"] == found["br32"] == found["sx32"] == ("int_add",)
    assert found["mul32"] == ("int_multiply",)
    for name in ("mov16", "fmovh", "fnegs", "fdivs", "ld16", "done", "dsr_load", "tsc"):
        assert found[name] == ()
    assert {name for name, what in found.items() if len(what) == 2} == {op.name for op in isa.OPS if op.is_mac}
    table = np.zeros((len(isa.OPS), N_HALVES, WORK_COLUMNS), np.uint64)
    table[isa.BY_NAME["fdivs"].code, 0, 0] = 2
    assert CountedWork.of(WSE2, table, 2) == CountedWork(issue=2 * WSE2["ce.divide"])


def test_a_cut_run_counts_what_was_done():
    """Operations in flight count as far as they are; a state that is restored has its counts."""
    fabric = sums(n=400)
    engine = fabric.engine
    fabric.launch("main")
    engine.run(60)
    part, saved = found_in(engine.work()), engine.save_state()
    assert 0 < part["fmach", "f16", WORK_ELEMENTS + 2 * 3 + 1] < 400
    engine.run(10**6)
    whole = found_in(engine.work())
    engine.restore_state(saved)
    assert found_in(engine.work()) == part
    engine.run(10**6)
    assert found_in(engine.work()) == whole
    assert state_of(engine, "limit")["work"] == whole
