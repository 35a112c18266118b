"""Tasks and the picker of the reference machine: cycles and values by hand."""

from __future__ import annotations

import pytest

from tests.wse_core.test_reference_kit import FIRST, Code, changes, fabric, reg, register, route

NONE_TASK = 31


def writer(code, number, value, then="done"):
    """Append a task that adds `value` to 10 times register 8 and return its start."""
    at = code("mul16", reg(8), reg(8), reg(8), imm=10)
    code("add16", reg(8), reg(8), reg(8), imm=value)
    code(then)
    return at


@pytest.mark.parametrize(
    ("rule", "high", "order"),
    [("lowest", (), "123"), ("lowest", (3,), "312"), ("round_robin", (), "123"), ("round_robin", (2, 3), "231")],
)
def test_picker_order(rule, high, order):
    code = Code()
    tasks = {number: writer(code, 0, number) for number in (1, 2, 3)}
    machine = fabric(code.image(tasks, start=(1, 2, 3), high=high), task_priority_rule=rule)
    cycles = changes(machine, "tasks")
    assert cycles == [0, 6, 12]  # picked, 3 cycles, 3 instructions, picked in the cycle after done
    assert register(machine, 8) == int(order)


def test_round_robin_goes_on_after_the_last_picked():
    code = Code()
    first = writer(code, 0, 1, then="nop")
    code("activate", 1)
    code("done")
    second = writer(code, 0, 2)
    orders = {}
    for rule in ("lowest", "round_robin"):
        machine = fabric(code.image({1: first, 2: second}, start=(1, 2)), task_priority_rule=rule)
        machine.run(FIRST + 5 + FIRST + 4)
        orders[rule] = register(machine, 8)
    assert orders == {"lowest": 11, "round_robin": 12}


def test_blocked_tasks_wait():
    code = Code()
    code("unblock", 4)
    code("block", 5)
    code("done")
    task = writer(code, 0, 7)
    machine = fabric(code.image({0: 0, 4: task, 5: task}, start=(0, 4, 5), blocked=(4,)))
    assert changes(machine, "tasks") == [0, 6]
    assert register(machine, 8) == 7
    state = machine.snapshot()["pe"][0, 0]
    assert (state["activated"], state["blocked"]) == (1 << 5, 1 << 5)
    assert machine.run(machine.cycle + 9) == "stuck"
    assert machine.waiters() == [{"kind": "task", "x": 0, "y": 0, "task": 5}]


def test_activations_do_not_count_up():
    code = Code()
    code("activate", 4)
    code("activate", 4)
    code("done")
    task = writer(code, 0, 7)
    machine = fabric(code.image({0: 0, 4: task}))
    assert changes(machine, "tasks") == [0, 6]
    assert register(machine, 8) == 7


def receiver(code, **image):
    """Return a machine of one PE with color 5 from a stream at its west side to input queue 0."""
    return fabric(code.image(inq={0: 5}, **image), {5: {(0, 0): route("W", "R")}}, inputs=[(0, 0, "W", 5)])


def test_data_tasks_take_their_wavelet():
    code = Code()
    code("ldi", reg(2), imm=1)
    code("done")
    task = code("add16", reg(3), reg(3), reg(0))
    code("add16", reg(4), reg(4), reg(1))
    code("done")
    machine = receiver(code, tasks={0: 0, 5: task}, data_tasks=(5,), start=())
    machine.push_input(0, [0x00010002, 0x00030004])
    # pushed in 0, moved in 1, ready at the CE in 3; the next one is there when the first task is done
    assert changes(machine, "tasks") == [3, 9]
    assert [register(machine, r) for r in range(5)] == [4, 3, 0, 6, 4]
    assert machine.counters()["received"][0, 0] == 2


def test_an_activated_id_wins_over_its_own_wavelet():
    code = Code()
    task = code("add16", reg(3), reg(3), reg(0))
    code("add16", reg(3), reg(3), reg(3), imm=16)
    code("done")
    machine = receiver(code, tasks={5: task}, data_tasks=(5,), start=())
    machine.push_input(0, [2])
    machine.run(3)
    machine.activate(5, 0, 0, 1, 1)
    assert changes(machine, "tasks") == [3, 9]
    assert register(machine, 3) == 16 + 2 + 16
    assert machine.counters()["received"][0, 0] == 1


def test_control_wavelets_start_control_tasks_or_are_dropped():
    code = Code()
    task = code("add16", reg(3), reg(3), reg(0))
    code("add16", reg(3), reg(3), reg(1))
    code("done")
    machine = receiver(code, controls={40: task}, tasks={}, start=())
    machine.push_input(0, [NONE_TASK << 16, 40 << 16 | 2, 41 << 16, 40 << 16 | 5], True)
    assert changes(machine, "tasks") == [4, 11]
    assert changes(machine, "received") == []
    assert machine.counters()["received"][0, 0] == 4
    assert register(machine, 3) == 2 + 40 + 5 + 40
    assert machine.run(machine.cycle + 1) == "complete"


def test_wavelets_of_a_blocked_color_stay():
    code = Code()
    task = code("done")
    machine = receiver(code, controls={40: task}, tasks={5: task}, start=(), data_tasks=(5,), blocked=(5,))
    machine.push_input(0, [40 << 16], True)
    machine.push_input(0, [1])
    assert machine.run(100) == "stuck"
    assert machine.snapshot()["pe"][0, 0]["inq"] == {0: [(40 << 16, True, 3), (1, False, 4)]}
    assert machine.waiters() == [{"kind": "queue", "x": 0, "y": 0, "queue": 0, "color": 5, "wavelets": 2}]


def test_data_without_a_data_task_stays():
    code = Code()
    task = code("done")
    machine = receiver(code, tasks={5: task}, start=())
    machine.push_input(0, [1])
    assert machine.run(100) == "stuck"
    assert machine.counters()["tasks"][0, 0] == 0
