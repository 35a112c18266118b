"""Microthreads and FIFOs of the reference machine: cycles and values by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.wse_core.one_pe import one_pe, source
from tests.wse_core.test_reference_kit import (
    DATA,
    FIRST,
    Code,
    assert_accounts,
    changes,
    desc,
    dest,
    fabric,
    mem,
    reg,
    register,
    route,
    src1,
)
from wse_core import isa
from wse_core.image import F_SAVE, F_TERMINATE

# --- threads --------------------------------------------------------------------------------------------------------


def two_senders(first, second, main="medium_low"):
    """Return who issues, in order: m = main (two sends, then four others), 2 and 3 = microthreads of 3 steps."""
    code = Code()
    for k in (2, 3):
        code.load(dest(k), desc("fabout", 3, queue=k))
    code("mov32", dest(2), reg(0), imm=isa.async_word(first))
    code("mov32", dest(3), reg(0), imm=isa.async_word(second))
    for _ in range(3):
        code("nop")
    code("done")
    machine = fabric(
        code.image(outq={2: 2, 3: 3}, main=main),
        {2: {(0, 0): route("R", "E")}, 3: {(0, 0): route("R", "N")}},
        outputs=[(0, 0, "E", 2), (0, 0, "N", 3)],
    )
    order, status, ce, before = "", "limit", machine.ces[0, 0], None
    while status == "limit":
        status = machine.run(machine.cycle + 1)
        now = ce.counters["instructions"], ce.counters["steps"]
        if now != before and now != (0, 0):
            order += "23m"[(2, 3, 8).index(ce.last_issued)]
        before = now
    assert_accounts(machine)
    return order[2:]  # without the loads


@pytest.mark.parametrize(
    ("first", "second", "main", "order"),
    [
        ("low", "low", "medium_low", "mmmmmm232323"),  # main first, its level 1 is above 0; then both in turn
        ("high", "high", "medium_low", "m222m333mmmm"),
        ("medium", "medium", "medium_low", "m222m333mmmm"),
        ("medium", "medium", "medium", "m2m23m23m3mm"),  # all on one level: ut2, ut3, main
        ("low", "high", "medium", "mm333mmmm222"),
    ],
)
def test_issue_priorities(first, second, main, order):
    assert two_senders(first, second, main) == order


def test_a_microthread_in_use_and_its_dsr_hold_the_main_thread():
    code = Code()
    code.load(dest(0), desc("fabout", 30, queue=0))
    code("mov32", dest(0), reg(0), imm=isa.async_word("low"))
    code("nop")
    code("dsr_len", dest(0), imm=2)  # the DSR is in use
    code("mov32", dest(0), reg(0), imm=isa.async_word("low"))
    code("tsc", reg(4))
    code("done")
    machine = one_pe(code)
    cycles = changes(machine, "instructions")
    # issue in 6, nop in 7 (main goes before a low microthread), steps in 8 .. 37
    assert [cycle - FIRST for cycle in cycles[:5]] == [0, 6, 7, 38, 39]
    assert machine.counters()["steps"][0, 0] == 32
    assert machine.counters()["stall_resource"][0, 0] == 0  # no cycle was lost to it
    assert len(machine.pop_output(0)[1]) == 32


def test_completion_activates_and_unblocks():
    code = Code()
    code.load(dest(0), desc("fabout", 4, queue=0))
    code("mov32", dest(0), reg(0), imm=isa.async_word(activate=7, unblock=8))
    code("done")
    first = code("ldi", reg(1), imm=1)
    code("done")
    second = code("ldi", reg(2), imm=2)
    code("done")
    machine = one_pe(code, tasks={0: 0, 7: first, 8: second}, start=(0, 8), blocked=(8,))
    # issue in 6, steps in 7 .. 10, done in 11 (the main thread has the lower level), picker in 12; 17 = 12 + 3 + 1 + 1
    assert [cycle - FIRST for cycle in changes(machine, "tasks")] == [-3, 12, 17]
    assert [register(machine, r) for r in (1, 2)] == [1, 2]


def test_an_operation_of_no_elements_completes_at_once():
    code = Code()
    code.load(dest(0), desc("fabout", 0, queue=0))
    code("mov32", dest(0), reg(0), imm=isa.async_word(activate=7))
    code("done")
    task = code("done")
    machine = one_pe(code, tasks={0: 0, 7: task})
    assert [cycle - FIRST for cycle in changes(machine, "instructions")] == [0, 6, 7, 11]
    assert machine.counters()["steps"][0, 0] == 0


# --- FIFOs ----------------------------------------------------------------------------------------------------------


def fifo(n, length=4, **fields):
    """Return a FIFO descriptor with storage at DATA + 100."""
    return desc("fifo", n, base=DATA + 100, length=length, xdsr=1, **fields)


def test_fifo_between_two_microthreads():
    code = Code()
    code.load(dest(1), fifo(12, push_task=20))  # nobody ever finds it empty
    code.load(src1(1), source(12))
    code.load(src1(2), fifo(12))
    code.load(dest(2), mem(DATA, 12))
    code("mov32", dest(1), src1(1), imm=isa.async_word(ut=1, priority="high"))
    code("mov32", dest(2), src1(2), imm=isa.async_word(ut=2, priority="low"))
    code("done")
    task = code("add16", reg(5), reg(5), reg(5), imm=1)
    code("done")
    machine = one_pe(code, tasks={0: 0, 20: task})
    machine.push_input(0, np.arange(12))
    filled = []
    status = "limit"
    while status == "limit":
        status = machine.run(machine.cycle + 1)
        filled.append(len(machine.snapshot()["pe"][0, 0]["fifo"].get(1, [])))
    assert status == "complete"
    assert max(filled) == 4
    assert filled[-1] == 0
    assert machine.read_words(0, 0, DATA, 24)[::2].tolist() == list(range(12))
    assert machine.counters()["tasks"][0, 0] == 1
    assert_accounts(machine)


def test_a_full_fifo_holds_its_operation():
    code = Code()
    code.load(dest(1), fifo(12))
    code("mov16", dest(1), reg(0), imm=isa.async_word(ut=1))
    code("done")
    machine = one_pe(code)
    assert machine.run(100) == "stuck"
    state = machine.snapshot()["pe"][0, 0]
    assert state["threads"] == {1: (4, 12)}
    assert state["fifo"] == {1: [0, 0, 0, 0]}
    assert machine.waiters()[0]["reason"] == "fifo"
    assert machine.counters()["stall_fifo"][0, 0] == 1


@pytest.mark.parametrize("push", [True, False])
def test_a_fifo_may_end_its_operation(push):
    code = Code()
    if push:
        code.load(dest(1), fifo(12, flags=F_TERMINATE))
        code("mov16", dest(1), reg(0))
    else:
        code.load(src1(1), fifo(12, flags=F_TERMINATE))
        code.load(dest(1), mem(DATA, 12, flags=F_SAVE))
        code("mov16", dest(1), src1(1))
    code("tsc", reg(4))
    code("done")
    machine = one_pe(code)
    assert machine.run(100) == "complete"
    steps = 5 if push else 1
    assert register(machine, 4) == FIRST + (6 if push else 12) + steps + 1
    assert machine.counters()["steps"][0, 0] == steps
    assert machine.counters()["elements"][0, 0] == steps - 1


@pytest.mark.parametrize(("full", "told"), [(False, 0), (True, 1)])
def test_a_pop_task_is_activated_by_a_pop_after_the_fifo_was_full(full, told):
    code = Code()
    code.load(dest(1), fifo(3 if full else 2, 2, flags=F_TERMINATE))
    code("mov16", dest(1), reg(0))
    code.load(src1(1), fifo(1, 2, pop_task=9))
    code("mov16", reg(2), src1(1))
    code("mov16", reg(2), src1(1))
    code("done")
    task = code("add16", reg(5), reg(5), reg(5), imm=1)
    code("done")
    machine = one_pe(code, tasks={0: 0, 9: task})
    assert machine.run(100) == "complete"
    assert register(machine, 5) == told
    assert machine.counters()["tasks"][0, 0] == 1 + told
    assert machine.snapshot()["pe"][0, 0]["activated"] == 0
