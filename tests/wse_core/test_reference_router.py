"""Routers of the reference machine, alone and between compute elements: cycles and wavelets by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.wse_core.router_kit import payloads, send
from tests.wse_core.test_reference_kit import (
    DATA,
    FIRST,
    Code,
    assert_accounts,
    changes,
    desc,
    dest,
    fabric,
    floats,
    mem,
    reg,
    register,
    route,
    src0,
    src1,
)
from wse_core import isa

# --- latency and order ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hops", [1, 2, 5])
@pytest.mark.parametrize("parameters", [{}, {"router_hop": 2}, {"ramp_in": 3, "ramp_out": 1, "ramp_execute": 2}])
def test_latency_of_a_wavelet(hops, parameters):
    sender = Code()
    sender.load(dest(0), desc("fabout", 1, queue=0))
    sender("mov32", dest(0), reg(0))
    sender("done")
    receiver = Code()
    receiver.load(src1(0), desc("fabin", 1, queue=0))
    receiver("mov32", reg(2), src1(0))
    receiver("done")
    rows = {(0, 0): route("R", "E"), (hops, 0): route("W", "R")}
    rows |= {(x, 0): route("W", "E") for x in range(1, hops)}
    machine = fabric(
        {(0, 0): sender.image(outq={0: 1}), (hops, 0): receiver.image(inq={0: 1})},
        {1: rows},
        (hops + 1, 1),
        **parameters,
    )
    machine.ces[0, 0].regs[0] = 77
    stepped = FIRST + 6 + 1
    execute, ramp_out = parameters.get("ramp_execute", 1), parameters.get("ramp_out", 2)
    hop, ramp_in = parameters.get("router_hop", 1), parameters.get("ramp_in", 2)
    assert changes(machine, "steps", (hops, 0)) == [stepped + execute + ramp_out + hops * hop + ramp_in]
    assert register(machine, 2, (hops, 0)) == 77
    assert_accounts(machine)


def test_a_chain_of_sums_costs_six_cycles_per_pe():
    """Each PE adds its vector to what comes from the west and sends the sum east, one element per cycle."""
    n, width = 16, 6
    programs, routes = {}, {0: {}, 1: {}}
    values = np.arange(width * n, dtype=np.float32).reshape(width, n)
    for x in range(width):
        code = Code()
        code.load(src0(0), mem(DATA, n))
        if x < width - 1:
            code.load(dest(0), desc("fabout", n, queue=2))
        else:
            code.load(dest(0), mem(DATA, n))
        code.load(src1(0), desc("fabin", n, queue=0))
        if x == 0:
            code("fmovs", dest(0), src0(0))
        else:
            code("fadds", dest(0), src0(0), src1(0))
        code("done")
        sends, takes = x % 2, 1 - x % 2
        programs[x, 0] = code.image(inq={0: takes}, outq={2: sends}, data={DATA: values[x]})
        routes[sends][x, 0] = route("R", "E")
        if x > 0:
            routes[takes][x, 0] = route("W", "R")
    del routes[(width - 1) % 2][width - 1, 0]
    machine = fabric(programs, routes, (width, 1))
    steps, before = {x: [] for x in range(width)}, dict.fromkeys(range(width), 0)
    status = "limit"
    while status == "limit":
        status = machine.run(machine.cycle + 1)
        for x in range(width):
            now = machine.ces[x, 0].counters["elements"]
            steps[x] += [machine.cycle - 1] * (now - before[x])
            before[x] = now
    assert status == "complete"
    assert floats(machine, DATA, n, (width - 1, 0)).tolist() == values.sum(0).tolist()
    first = steps[0][0]
    for x in range(width):
        assert steps[x] == [first + 6 * x + k for k in range(n)]
    assert_accounts(machine)


def test_one_wavelet_per_output_and_cycle_in_the_order_of_the_last_grant():
    rows = {color: {(0, 0): route("W" if color < 3 else "N", "E")} for color in (1, 2, 3)}
    machine = fabric(
        {},
        rows,
        inputs=[(0, 0, "W", 1), (0, 0, "W", 2), (0, 0, "N", 3)],
        outputs=[(0, 0, "E", color) for color in (1, 2, 3)],
    )
    for index in range(3):
        send(machine, *range(4), index=index)
    assert machine.run(100) == "complete"
    cycles = [machine.pop_output(index)[0].tolist() for index in range(3)]
    assert cycles == [[2, 5, 8, 11], [3, 6, 9, 12], [4, 7, 10, 13]]


def test_multicast_waits_for_all_outputs():
    """The ramp of PE (1, 0) is full after its queue's capacity; the copy to the east stops with it."""
    code = Code()
    image = code.image(tasks={}, start=(), inq={4: 1})
    machine = fabric(image, {1: {(0, 0): route("W", "ER")}}, inputs=[(0, 0, "W", 1)], outputs=[(0, 0, "E", 1)])
    send(machine, *range(20))
    assert machine.run(100) == "stuck"
    capacity = 2 + 2
    assert payloads(machine) == list(range(capacity))
    waiters = machine.waiters()
    assert [w["kind"] for w in waiters] == ["queue", "router", "stream"]
    assert waiters[1] == {
        "kind": "router",
        "x": 0,
        "y": 0,
        "color": 1,
        "port": 0,
        "wavelets": 2,
        "reason": "room",
        "blocked": [4],
    }
    assert waiters[2] == {"kind": "stream", "index": 0, "left": 20 - capacity - 2}


@pytest.mark.parametrize("hops", [1, 3])
@pytest.mark.parametrize(("queue", "out"), [(0, 2), (2, 0)])
def test_a_sender_stops_when_the_path_is_full(hops, queue, out):
    sender = Code()
    sender.load(dest(0), desc("fabout", 100, queue=out))
    sender("mov32", dest(0), reg(0))
    sender("done")
    rows = {(0, 0): route("R", "E"), (hops, 0): route("W", "R")}
    rows |= {(x, 0): route("W", "E") for x in range(1, hops)}
    programs = {(0, 0): sender.image(outq={out: 1}), (hops, 0): Code().image({}, start=(), inq={queue: 1})}
    machine = fabric(programs, {1: rows}, (hops + 1, 1))
    assert machine.run(500) == "stuck"
    in_depth, out_depth = {0: 6, 2: 4}[queue], {0: 2, 2: 6}[out]
    capacity = (out_depth + 2) + 2 * hops + (in_depth + 2)
    assert machine.counters()["sent"][0, 0] == capacity
    assert machine.snapshot()["pe"][0, 0]["threads"] == {8: (capacity, 100)}
    # one per cycle until the last place is taken
    assert machine.counters()["busy"][0, 0] == 1 + 1 + capacity  # with the issues of the load and of the operation
    waiting = {
        "kind": "thread",
        "x": 0,
        "y": 0,
        "thread": "main",
        "op": "mov32",
        "reason": "output",
        "color": 1,
        "queue": out,
        "done": capacity,
        "length": 100,
    }
    assert machine.waiters()[0] == waiting
    assert [w["reason"] for w in machine.waiters() if w["kind"] == "router"] == ["room"] * (hops + 1)
    assert_accounts(machine)


def test_a_hop_of_two_cycles_needs_three_places_for_full_rate():
    for depth, last in ((2, None), (3, 2 * 2 + 2 * 3 + 19)):
        rows = {(x, 0): route("W", "E") for x in range(4)}
        machine = fabric(
            {}, {1: rows}, (4, 1), inputs=[(0, 0, "W", 1)], outputs=[(3, 0, "E", 1)], router_hop=2, router_depth=depth
        )
        send(machine, *range(20))
        assert machine.run(500) == "complete"
        cycles = machine.pop_output(0)[0].tolist()
        assert cycles[0] == 10
        if last is not None:
            assert cycles[-1] == last
        else:
            assert cycles[-1] > 29


# --- the landing rule ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("teardown", [False, True])
def test_two_inputs_of_one_color_in_one_cycle(teardown):
    row = route("WN", "E", teardown=teardown)
    machine = fabric({}, {1: {(0, 0): row}}, inputs=[(0, 0, "W", 1), (0, 0, "N", 1)], outputs=[(0, 0, "E", 1)])
    send(machine, 1, index=0)
    machine.run(5)
    send(machine, 2, index=1)
    assert machine.run(10) == ("stuck" if teardown else "complete")
    send(machine, 3, index=0)
    send(machine, 4, index=1)
    start = machine.cycle
    assert machine.run(100) == "fault"
    fault = machine.fault
    assert (fault["kind"], fault["cycle"], fault["color"]) == ("collision", start + 1, 1)
    assert fault["detail"].endswith("W and N")
    assert machine.cycle == start + 2


def test_different_cycles_are_allowed():
    machine = fabric(
        {}, {1: {(0, 0): route("WN", "E")}}, inputs=[(0, 0, "W", 1), (0, 0, "N", 1)], outputs=[(0, 0, "E", 1)]
    )
    send(machine, 1, index=0)
    machine.run(1)
    send(machine, 2, index=1)
    assert machine.run(100) == "complete"
    assert payloads(machine) == [1, 2]


# --- injection and swap --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inject", [1, 2], ids=["low", "high"])
def test_injection_by_the_ce(inject):
    code = Code()
    code.load(dest(0), desc("fabout", 4, queue=0))
    code("mov32", dest(0), reg(0))
    code("done")
    machine = fabric(
        code.image(outq={0: 1}),
        {1: {(0, 0): route("W", "E", inject=inject)}},
        inputs=[(0, 0, "W", 1)],
        outputs=[(0, 0, "E", 1)],
    )
    machine.run(10)
    send(machine, *range(1, 9))
    assert machine.run(100) == "complete"
    values = payloads(machine)
    # steps in 10 .. 13, ready in 13 .. 16; the stream begins in 10 and is ready from 11 on
    if inject == 1:
        assert values == [*range(1, 9), 0, 0, 0, 0]
    else:
        # the queue of the ramp holds wavelets from the end of 10 on, so the west waits from 11 on
        assert values == [0, 0, 0, 0, *range(1, 9)]


def test_color_swap_on_one_axis():
    rows = {color: {(0, 0): route("WN", "E", swap=1)} for color in (2, 3)}
    machine = fabric(
        {}, rows, inputs=[(0, 0, "W", 2), (0, 0, "W", 3), (0, 0, "N", 2)], outputs=[(0, 0, "E", 2), (0, 0, "E", 3)]
    )
    send(machine, 1, index=0)
    send(machine, 2, index=1)
    send(machine, 3, index=2)
    assert machine.run(100) == "complete"
    assert sorted(payloads(machine, 0)) == [2, 3]
    assert payloads(machine, 1) == [1]


def test_swap_of_one_color_only_does_nothing():
    rows = {2: {(0, 0): route("W", "E", swap=1)}, 3: {(0, 0): route("W", "E")}}
    machine = fabric({}, rows, inputs=[(0, 0, "W", 2)], outputs=[(0, 0, "E", 2)])
    send(machine, 1)
    assert machine.run(100) == "complete"
    assert payloads(machine) == [1]


def test_swap_on_both_axes_takes_the_ramp():
    code = Code()
    code.load(dest(0), desc("fabout", 1, queue=0))
    code("mov32", dest(0), reg(0))
    code("done")
    rows = {color: {(0, 0): route("R", "E", swap=3)} for color in (2, 3)}
    machine = fabric(code.image(outq={0: 2}), rows, outputs=[(0, 0, "E", 2), (0, 0, "E", 3)])
    assert machine.run(100) == "complete"
    assert [payloads(machine, index) for index in (0, 1)] == [[], [0]]
    assert machine.link_counts()[2][0, 0].tolist() == [0, 0, 0, 0, 1]


# --- deadlock ------------------------------------------------------------------------------------------------------


def test_two_pes_that_wait_for_each_other():
    """Both receive before they send."""
    programs, routes = {}, {}
    for x in (0, 1):
        code = Code()
        code.load(src1(0), desc("fabin", 1, queue=0))
        code("mov32", reg(2), src1(0))
        code.load(dest(0), desc("fabout", 1, queue=0))
        code("mov32", dest(0), reg(2))
        code("done")
        programs[x, 0] = code.image(inq={0: 1 - x}, outq={0: x})
        routes[x] = {(x, 0): route("R", "EW"[x]), (1 - x, 0): route("EW"[x], "R")}
    machine = fabric(programs, routes, (2, 1))
    assert machine.run(100) == "stuck"
    assert [(w["kind"], w["x"], w["reason"], w["color"]) for w in machine.waiters()] == [
        ("thread", 0, "input", 1),
        ("thread", 1, "input", 0),
    ]
    assert machine.last_active == FIRST + 6
    assert machine.cycle == machine.last_active + 2


def test_a_missing_switch_position_is_reported():
    machine = fabric({}, {1: {(0, 0): route("N", "E")}}, inputs=[(0, 0, "W", 1)], outputs=[(0, 0, "E", 1)])
    send(machine, 1)
    assert machine.run(100) == "stuck"
    assert [w["reason"] for w in machine.waiters()] == ["rx"]


def test_asynchronous_code_uses_its_queue_as_microthread():
    code = Code()
    code.load(dest(0), desc("fabout", 60, queue=3))
    code("mov32", dest(0), reg(0), imm=isa.async_word())
    code("done")
    machine = fabric(code.image(outq={3: 1}), {1: {(0, 0): route("R", "E")}}, outputs=[(0, 0, "E", 1)])
    machine.run(20)
    assert list(machine.snapshot()["pe"][0, 0]["threads"]) == [3]
