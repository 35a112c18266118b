"""Routers of the reference machine, alone and between compute elements: cycles and wavelets by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest

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
from wse_core.image import FILTER_COUNTER, FILTER_RANGE
from wse_core.reference.router import command, pop

NOP, ADV, RST, TEARDOWN = range(4)
NO_TASK_ID = 31
UNDELIVERED = 1 << 24


def single(first, more=0):
    """Return a control payload with one command and id 31; it is not delivered, and neither are the NOPs behind it."""
    payload = NO_TASK_ID << 16 | first << 22 | more << 25
    for bit in (24, 27, 0, 3, 6, 9, 12, 15):
        payload |= 1 << bit
    return payload


def stream(row, outputs="E"):
    """Return a machine of one router that takes color 1 from a stream in the west."""
    links = [(0, 0, letter, 1) for letter in outputs]
    return fabric({}, {1: {(0, 0): row}}, inputs=[(0, 0, "W", 1)], outputs=links)


def send(machine, *items, index=0):
    """Queue wavelets; a tuple (payload,) is a control wavelet."""
    payload = [item[0] if isinstance(item, tuple) else item for item in items]
    machine.push_input(index, payload, [isinstance(item, tuple) for item in items])


def payloads(machine, index=0):
    """Return what came out, control wavelets as tuples (payload,)."""
    _, values, controls = machine.pop_output(index)
    return [(int(v),) if c else int(v) for v, c in zip(values, controls, strict=True)]


# --- commands ------------------------------------------------------------------------------------------------------


def test_layout_of_commands():
    assert [command(0x095F9249, k) for k in range(8)] == [(ADV, True)] + [(NOP, True)] * 7
    assert command(0x09DF9249) == (TEARDOWN, True)
    for k, bits in enumerate(((22, 24), (25, 27), (28, 0), (1, 3), (4, 6), (7, 9), (10, 12), (13, 15))):
        assert command(2 << bits[0], k) == (RST, False)
        assert command(1 << bits[1], k) == (NOP, True)
        assert [command(3 << bits[0] | 1 << bits[1], other) for other in range(8) if other != k] == [(0, False)] * 7


def test_popping():
    assert pop(0x09DF9249) == 0x091F9249
    assert pop(0x091F9249) == 0x091F9249
    rng = random.Random(3)
    for _ in range(100):
        payload = rng.getrandbits(32)
        popped = pop(payload)
        assert [command(popped, k) for k in range(7)] == [command(payload, k + 1) for k in range(7)]
        assert command(popped, 7) == (NOP, True)
        assert popped & 0xC03F0000 == payload & 0xC03F0000


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


# --- switches ------------------------------------------------------------------------------------------------------


def switched(ring=False, pop_mode=0, positions=2, pos=0):
    more = [("W", "S"), ("W", "N")][: positions - 1]
    return stream(route("W", "E", *more, ring=ring, pop=pop_mode, pos=pos), outputs="ESN")


def test_a_control_wavelet_leaves_by_the_old_position():
    machine = switched()
    advance = single(ADV)
    send(machine, 1, (advance,), 2, (advance,), 3)
    assert machine.run(100) == "complete"
    assert payloads(machine, 0) == [1, (advance,)]
    assert payloads(machine, 1) == [2, (advance,), 3]  # without ring mode it stays at the last position
    assert machine.snapshot()["router"][0, 0][1]["pos"] == 1


@pytest.mark.parametrize(("positions", "ways"), [(2, "EESSEE"), (3, "EESSNNEE")])
def test_ring_mode(positions, ways):
    machine = switched(ring=True, positions=positions)
    advance = single(ADV)
    count = len(ways) // 2
    send(machine, *[item for k in range(count) for item in (k, (advance,))])
    assert machine.run(100) == "complete"
    for index, letter in enumerate("ESN"):
        expected = [item for k in range(count) if ways[2 * k] == letter for item in (k, (advance,))]
        assert payloads(machine, index) == expected


def test_reset_goes_to_position_0():
    machine = switched(positions=3, pos=2)
    send(machine, 1, (single(RST),), 2)
    assert machine.run(100) == "complete"
    assert payloads(machine, 2) == [1, (single(RST),)]
    assert payloads(machine, 0) == [2]


def test_invalid_positions_are_skipped():
    row = route("W", "E", ("W", "S"), ("W", "N"))
    row["valid"] = 0b101
    machine = stream(row, outputs="ESN")
    send(machine, (single(ADV),), 2)
    assert machine.run(100) == "complete"
    assert payloads(machine, 2) == [2]


@pytest.mark.parametrize(("mode", "popped"), [(0, ""), (1, "nar"), (2, "a"), (3, "na")])
def test_pop_modes(mode, popped):
    machine = stream(route("W", "E", pop=mode))
    commands = {"n": single(NOP, ADV), "a": single(ADV, RST), "r": single(RST, ADV)}
    send(machine, *[(payload,) for payload in commands.values()])
    assert machine.run(100) == "complete"
    expected = [(pop(payload) if name in popped else payload,) for name, payload in commands.items()]
    assert payloads(machine) == expected


def test_commands_address_routers_in_turn_with_always_pop():
    """Command k is read by the k-th router; only the second one has another position."""
    rows = {(x, 0): route("W", "E", ("W", "S"), pop=1) for x in range(3)}
    machine = fabric({}, {1: rows}, (3, 1), inputs=[(0, 0, "W", 1)], outputs=[(2, 0, "E", 1), (1, 0, "S", 1)])
    send(machine, (single(NOP, ADV),), 5)
    assert machine.run(100) == "complete"
    assert payloads(machine, 0) == [(pop(pop(pop(single(NOP, ADV)))),)]
    assert payloads(machine, 1) == [5]
    assert [machine.snapshot()["router"][x, 0][1]["pos"] for x in range(3)] == [0, 1, 0]


def test_delivery_and_do_not_deliver():
    code = Code()
    image = code.image({}, start=(), inq={0: 1})
    machine = fabric(image, {1: {(0, 0): route("W", "RE", pop=1)}}, inputs=[(0, 0, "W", 1)], outputs=[(0, 0, "E", 1)])
    delivered = NO_TASK_ID << 16 | ADV << 22
    send(machine, (single(ADV),), (delivered,), 7)
    machine.ces[0, 0].blocked = 2
    assert machine.run(100) == "stuck"
    assert machine.snapshot()["pe"][0, 0]["inq"] == {0: [(pop(delivered), True, 4), (7, False, 5)]}
    assert payloads(machine) == [(pop(single(ADV)),), (pop(delivered),), 7]


def test_an_empty_set_of_outputs_swallows_the_wavelet():
    image = Code().image({}, start=(), inq={0: 1})
    machine = fabric(image, {1: {(0, 0): route("W", "R", ("W", "R"))}}, inputs=[(0, 0, "W", 1)])
    send(machine, (single(ADV),), (single(NOP),))
    assert machine.run(100) == "complete"
    state = machine.snapshot()
    assert state["pe"][0, 0]["inq"] == {}
    assert state["router"][0, 0][1]["pos"] == 1
    assert machine.link_counts()[1][0, 0, 0] == 2


# --- teardown ------------------------------------------------------------------------------------------------------


def test_a_color_in_teardown_holds_its_traffic():
    code = Code()
    code("in_td", reg(2), imm=1)
    code("route", 1, imm=0b00001 | 0b01000 << 5)  # from W to S
    code("td_exit", 1)
    code("in_td", reg(3), imm=1)
    code("done")
    image = code.image(start=())
    machine = fabric(
        image,
        {1: {(0, 0): route("W", "E", teardown=True)}},
        inputs=[(0, 0, "W", 1)],
        outputs=[(0, 0, "E", 1), (0, 0, "S", 1)],
    )
    send(machine, 1, 2, 3)
    assert machine.run(50) == "stuck"
    assert machine.waiters() == [
        {"kind": "router", "x": 0, "y": 0, "color": 1, "port": 0, "wavelets": 2, "reason": "teardown", "blocked": []},
        {"kind": "stream", "index": 0, "left": 1},
    ]
    start = machine.cycle
    machine.activate(0, 0, 0, 1, 1)
    assert machine.run(100) == "complete"
    cycles, values, _ = machine.pop_output(1)
    # td_exit issues in start + 3 + 4; routers see it in the cycle after that, the wavelet arrives one later
    assert cycles.tolist() == [start + 9, start + 10, start + 11]
    assert values.tolist() == [1, 2, 3]
    assert [register(machine, r) for r in (2, 3)] == [1, 0]


def test_the_teardown_command_raises_task_29():
    code = Code()
    handler = code("in_td", reg(2), imm=1)
    code("td_exit", 1)
    code("done")
    image = code.image({29: handler}, start=())
    machine = fabric(image, {1: {(0, 0): route("W", "E", pop=1)}}, inputs=[(0, 0, "W", 1)], outputs=[(0, 0, "E", 1)])
    send(machine, 1, (0x09DF9249,), 2)
    # the command moves in cycle 2, the bit is set in 4 and the task picked at once
    assert changes(machine, "tasks") == [4]
    cycles, values, _ = machine.pop_output(0)
    assert values.tolist() == [1, 0x091F9249, 2]
    # in_td in 7 and 8, td_exit in 9, the wavelet moves in 10
    assert cycles.tolist() == [2, 3, 11]
    assert register(machine, 2) == 1


# --- filters -------------------------------------------------------------------------------------------------------


def filtered(*items, **fields):
    """Return (payloads delivered to the CE, those forwarded, counter)."""
    image = Code().image({}, start=(), inq={0: 1}, blocked=(1,))
    machine = fabric(
        image,
        {1: {(0, 0): route("W", "RE", filter=1)}},
        inputs=[(0, 0, "W", 1)],
        outputs=[(0, 0, "E", 1)],
        filters=[fields],
    )
    send(machine, *items)
    machine.run(100)
    state = machine.snapshot()
    delivered = [(w[0],) if w[1] else w[0] for w in state["pe"][0, 0]["inq"].get(0, [])]
    return delivered, payloads(machine), state["router"][0, 0][-1]["filters"][0]


def test_range_filter():
    items = [0x10000, 0x20001, 0x30002, 0x40003, (NO_TASK_ID << 16,)]
    delivered, forwarded, _ = filtered(*items, kind=FILTER_RANGE, min_idx=2, max_idx=3)
    assert delivered == [0x20001, 0x30002, (NO_TASK_ID << 16,)]
    assert forwarded == items


def test_counter_filter():
    delivered, forwarded, counter = filtered(*range(11), kind=FILTER_COUNTER, count_data=1, counter=2, max=1, limit=3)
    # counter 2 3 0 1 2 3 0 1 2 3 0: passes at 0 and 1
    assert delivered == [2, 3, 6, 7, 10]
    assert forwarded == list(range(11))
    assert counter == 1


CONTROL = NO_TASK_ID << 16


@pytest.mark.parametrize(("count_control", "filter_control", "delivered", "counter"), [
    (0, 0, [1, (CONTROL,)], 2),
    (0, 1, [1, (CONTROL,)], 2),
    (1, 0, [1, (CONTROL,)], 3),
    (1, 1, [1], 3),
])  # fmt: skip
def test_control_wavelets_at_a_counter(count_control, filter_control, delivered, counter):
    found = filtered(
        1,
        (CONTROL,),
        2,
        (CONTROL | UNDELIVERED,),
        kind=FILTER_COUNTER,
        count_data=1,
        max=0,
        limit=9,
        count_control=count_control,
        filter_control=filter_control,
    )
    assert found == (delivered, [1, (CONTROL,), 2, (CONTROL | UNDELIVERED,)], counter)


def test_filters_can_be_set_at_run_time():
    code = Code()
    code("ldi", reg(0), imm=5)
    for field in range(3):
        code("flt_set", 1, reg(0), imm=field)
    code("done")
    machine = fabric(code.image(), {1: {(0, 0): route("W", "E")}}, filters=[{}, {"kind": FILTER_COUNTER}])
    assert machine.run(100) == "complete"
    rule = machine.routers[0, 0].filters[1]
    assert (rule.counter, rule.max, rule.limit) == (5, 5, 5)
    assert machine.snapshot()["router"][0, 0][-1] == {"filters": [0, 5]}


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
