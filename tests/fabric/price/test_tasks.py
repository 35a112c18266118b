"""Costs of tasks, read from their instructions, against what a PE takes for them."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from fabric.kernels.streamed.forward import COLOR_W
from fabric.networks.graph.network import Network
from fabric.networks.streamed.commands import word as command
from fabric.networks.streamed.resident import Resident
from fabric.networks.streamed.wafer import Wafer
from fabric.price import price
from fabric.price.tasks import Pricer
from fabric.program.program import Program
from wse_core.errors import InternalError, ProgramError
from wse_core.params import machine

RING = {"begin", "pass", "from_west", "from_east", "onward", "join_add", "join_max", "take"}
"""Not in the program of a single PE."""


def measured(wafer, before, word, control=True):
    """Return the cycles of one word more of a kind, the mean of four."""
    took = []
    for count in (1, 5):
        payload = np.array([*before, *[word] * count], np.uint32)
        wafer.fabric.send(wafer.resident.inputs[0][0], payload, control=[True] * len(before) + [control] * count)
        took.append(wafer.fabric.run().cycles)
        wafer.fabric.receive(wafer.resident.outputs[0])
    return (took[1] - took[0]) / 4


@pytest.mark.parametrize(("tokens", "activation"), [(16, "gelu"), (5, "relu")])
def test_every_command_costs_what_its_instructions_take(tokens, activation):
    """To two cycles in a hundred: the banks of the arrays that pointers move over are those of an average row."""
    resident = Resident(Network.dense((6, 5, 4, 3), activation, norm=True), machine(), 1, 1, tokens)
    wafer, numbers = Wafer(resident), resident.arrays
    costs = Pricer(resident.program(0, "only").assemble(), machine())
    arrays = {"source": "a0", "result": "a1.rows", "mine": "d1", "row": "a1.rows", "aux": "n1", "delta": "d0"}
    arrays |= {"label": "labels", "wide": "v1"}
    before = [command(resident.ids[name], numbers[array]) for name, array in arrays.items()]
    compared = 0
    for name, number in resident.ids.items():
        if name in RING or costs.image.control_entry[number] < 0:
            continue
        word = command(number, numbers[arrays[name]] if name in arrays else 0)
        took = measured(wafer, before, word)
        assert costs.task("control", number).alone == pytest.approx(took, rel=0.025, abs=0.5 if tokens % 2 else 4), name
        compared += 1
    assert compared > 30
    took = measured(wafer, before, 0x3C00, control=False)
    assert costs.task("task", COLOR_W).alone == pytest.approx(took, abs=0.5)


def test_the_bank_of_an_array_counts():
    """A source in the bank of the sums costs conflicts: the walk over instructions sees addresses."""
    resident = Resident(Network.dense((6, 5, 3)), machine(), 1, 1, 16)
    costs = Pricer(resident.program(0, "only").assemble(), machine())
    assert costs.task("task", COLOR_W, 2000).alone > costs.task("task", COLOR_W, 2001).alone


def program(write):
    """Return the costs of a program whose control task 3 is written by a function of program and task."""
    p = Program("one task")
    p.input_queue(0, 4)
    dsr = p.dsr("src1")
    row = p.array("row", 8, "f32")
    with p.task("prepare"):
        p.load(dsr, p.mem1d(row))
    p.start("prepare")
    with p.task("told", kind="control", id=3) as t:
        write(p, t, dsr)
    return Pricer(p.assemble(), machine())


def test_branches_follow_the_data_of_the_wavelet():
    """A loop of as many turns as the wavelet says; each costs what the one before it cost."""

    def write(p, t, _):
        left, turn = p.reg16("left"), None
        p.mov16(left, t.data)
        turn = p.label()
        p.sub16(left, left, 1)
        p.br16("ne", left, 0, turn)

    costs = program(write)
    turns = [costs.task("control", 3, data=count).alone for count in (1, 2, 3, 9)]
    assert turns[2] - turns[1] == turns[1] - turns[0] == (turns[3] - turns[2]) / 6 > 1


def test_what_is_not_known_before_a_run_is_said():
    def write(p, t, _):
        end = p.new_label()
        p.br16("eq", t.data, 0, end)
        p.nop()
        p.place(end)

    found = program(write).task("control", 3)
    assert [one.task for one in found.unknown] == ["told"]
    assert "br16" in str(found.unknown[0])
    m = machine()
    ways = m["ce.branch_taken"], m["ce.branch_not_taken"] + 1
    assert (found.least, found.most) == (m["task.start"] + min(ways) + 1, m["task.start"] + max(ways) + 1)
    with pytest.raises(ProgramError, match="not known before a run"):
        _ = found.alone
    with pytest.raises(InternalError, match="no control 4"):
        program(write).task("control", 4)


def test_what_is_not_known_keeps_no_caller():
    """What callers have open is closed when they are through, not when garbage is searched for."""

    class Opened:
        pass

    def caller():
        opened = Opened()
        assert asked(lambda p, register: p.br16("eq", register, 0, p.label())).unknown
        return weakref.ref(opened)

    gc.disable()
    try:
        assert caller()() is None
    finally:
        gc.enable()


def test_lengths_follow_the_data_of_the_wavelet():
    def write(p, t, dsr):
        p.dsr_len(dsr, t.data)
        there = p.dsr("dest")
        p.load(there, p.mem1d(p.array("copy", 8, "f32")))
        p.fmovs(there, dsr)

    assert "how many elements fmovs has" in program(write).task("control", 3).unknown[0].what
    three, five = (program(write).task("control", 3, data=count).alone for count in (3, 5))
    assert five - three == 1  # two lanes


def asked(write, **more):
    """Return the price of a task that begins with a register of unknown content."""
    p = Program("asks")
    n = p.scalar("n", "u16")
    with p.task("main"):
        register = p.reg16("asked")
        p.ld16(register, n)
        write(p, register)
    return price(p, **more).tasks["main"]


@pytest.mark.parametrize("somewhere", [False, True])
def test_behind_a_store_to_an_unknown_place_no_word_is_known(somewhere):
    def write(p, register):
        place, one, end = p.scalar("place", "u16"), p.reg16("one"), p.new_label()
        p.mov16(one, 1)
        p.st16(one, place)
        if somewhere:
            p.st16(one, register)
        p.ld16(one, place)
        p.br16("eq", one, 1, end)
        p.nop()
        p.place(end)

    assert bool(asked(write).unknown) == somewhere


def test_odds_of_a_branch_give_the_mean_of_both_ways():
    def write(p, register):
        end = p.new_label()
        p.br16("eq", register, 0, end)
        for _ in range(20):
            p.nop()
        p.place(end)

    unknown = asked(write)
    for odds in (0, 0.25, 1):
        found = asked(write, odds=odds)
        assert found.alone == pytest.approx(odds * unknown.least + (1 - odds) * unknown.most)
        assert found.lines == asked(write, odds={unknown.unknown[0].where: odds}).lines
        assert sum(found.lines.values()) == pytest.approx(found.alone)
    assert asked(write, odds={"elsewhere.py:1": 0.5}).unknown == unknown.unknown


@pytest.mark.parametrize("odds", [0.1, 0.5, 0.9])
def test_a_loop_that_goes_on_with_some_odds_has_a_geometric_number_of_turns(odds):
    def write(p, register):
        turn = p.label()
        p.nop()
        p.sub16(register, register, 1)
        p.br16("ne", register, 0, turn)

    m = machine()
    unknown = asked(write)
    assert unknown.most == float("inf")
    turn = 2 + m["ce.branch_taken"] - m["ce.branch_not_taken"] + m["ce.branch_not_taken"]
    assert asked(write, odds=odds).alone == pytest.approx(unknown.least + turn * odds / (1 - odds), abs=1e-4)


def test_counted_loops_stay_counted_beside_branches_with_odds():
    """Turns of the outer loop are counted, those of the inner one are drawn."""

    def write(p, register):
        with p.loop(7):
            turn = p.label()
            p.sub16(register, register, 1)
            p.br16("ne", register, 0, turn)

    one = asked(write, odds=0.5).alone
    rows = asked(write, odds=0).alone
    m = machine()
    assert one - rows == pytest.approx(7 * (1 + m["ce.branch_taken"]), rel=1e-4)


def test_what_tasks_leave_behind_is_what_the_next_one_finds():
    """One task leaves a DSR longer each time: how many elements it has is not known; one leaves it as it was."""

    def write(edit):
        p = Program("two")
        x = p.array("x", 8, "f32")
        dsr, there = p.dsr("src1"), p.dsr("dest")
        with p.task("main"):
            p.load(dsr, p.mem1d(x, 4))
            p.load(there, p.mem1d(p.array("y", 8, "f32")))
            p.activate("use")
        with p.task("use"):
            p.fmovs(there, dsr)
            p.activate("edit")
        with p.task("edit"):
            edit(p, dsr)
            p.activate("use")
        p.start("main")
        return price(p).tasks["use"]

    m = machine()
    assert (
        write(lambda p, dsr: p.dsr_len(dsr, 4)).alone == m["task.start"] + 1 + m["vec.start"] + 2 + m["vec.drain"] + 2
    )
    longer = write(lambda p, dsr: p.dsr_len(dsr, 6)).unknown[0]
    assert "how many elements fmovs has" in longer.what
    assert "test_tasks.py" in longer.where
