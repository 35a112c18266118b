"""Commands, switches, teardown and filters of the reference machine's routers: wavelets by hand."""

from __future__ import annotations

import random

import pytest

from tests.wse_core.router_kit import ADV, NO_TASK_ID, NOP, RST, TEARDOWN, UNDELIVERED, payloads, send, single, stream
from tests.wse_core.test_reference_kit import Code, changes, fabric, reg, register, route
from wse_core.image import FILTER_COUNTER, FILTER_RANGE
from wse_core.reference.router import command, pop

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
    machine = stream(route("W", "E", ("W", "E"), pop=mode))
    commands = {"n": single(NOP, ADV), "a": single(ADV, RST), "r": single(RST, ADV)}
    send(machine, *[(payload,) for payload in commands.values()])
    assert machine.run(100) == "complete"
    expected = [(pop(payload) if name in popped else payload,) for name, payload in commands.items()]
    assert payloads(machine) == expected


@pytest.mark.parametrize(("ring", "popped"), [(False, [True, True, False]), (True, [True, True, True])])
def test_pop_on_advance_pops_where_the_switch_moves(ring, popped):
    """At the last position an advance changes nothing and is left to the routers behind, unless it begins again."""
    row = route("W", "E", ("W", "E"), ("W", "E"), pop=2)
    row["ring"] = ring
    machine = stream(row)
    payload = single(ADV, RST)
    send(machine, *[(payload,)] * 3)
    assert machine.run(100) == "complete"
    assert payloads(machine) == [(pop(payload),) if taken else (payload,) for taken in popped]


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
    (1, 0, [1, (CONTROL,)], 3),
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


@pytest.mark.parametrize(("count_data", "count_control", "delivered", "counter"), [
    (0, 0, [], 0),
    (1, 0, [(CONTROL,)], 3),
    (0, 1, [(CONTROL + 1,)], 2),
    (1, 1, [(CONTROL,)], 1),
])  # fmt: skip
def test_filter_control_lets_one_control_wavelet_pass(count_data, count_control, delivered, counter):
    words = (5, (CONTROL,), 6, 7, (CONTROL + 1,))
    found = filtered(
        *words,
        kind=FILTER_COUNTER,
        count_data=count_data,
        max=1,
        limit=3,
        count_control=count_control,
        filter_control=1,
    )
    # of all these only a control wavelet that finds the counter at 1
    assert found == (delivered, list(words), counter)


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
