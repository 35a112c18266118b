"""Registers of router, queues and clock by their addresses: both engines do the same, and what docs/machine.md says."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.engine.engine import Engine
from fabric.host.fabric import Fabric
from fabric.layout.layout import Layout
from fabric.program.program import Program
from tests.compare import difference, fault_of, memory, state_of
from wse_core.encoding import REG_CLOCK, REG_QUEUES, REG_ROUTES, REG_SWITCHES
from wse_core.errors import ProgramFault, SramFault
from wse_core.params import machine
from wse_core.reference.machine import ReferenceMachine

RAMP, WEST, EAST, SOUTH, NORTH = 4, 0, 1, 2, 3
"""Directions as registers number them."""


def outputs(*directions):
    return sum(1 << d for d in directions)


def inputs(*directions):
    return outputs(*directions) << 5


def pokes(p, name, pairs):
    """Write a function of stores to addresses that stand in memory, so that nothing is known ahead."""
    if not pairs:
        return
    table = p.array(name, 2 * len(pairs), "u16", np.array(pairs, np.uint16).reshape(-1))
    address, value = p.r[8], p.r[9]
    for k in range(len(pairs)):
        p.ld16(address, table, 2 * k)
        p.ld16(value, table, 2 * k + 1)
        p.st16(value, address)


def peeks(p, where, addresses):
    """Write loads from such addresses into an array."""
    if not addresses:
        return
    table = p.array(f"{where.name} from", len(addresses), "u16", np.array(addresses, np.uint16))
    address, value = p.r[8], p.r[9]
    for k in range(len(addresses)):
        p.ld16(address, table, k)
        p.ld16(value, address)
        p.st16(value, where, k)


def agree(spec, limit=3000, step=17):
    """Run both machines side by side; return the compiled one and its status."""
    machines = Engine(spec), ReferenceMachine(spec)
    cycle, status = 0, ["limit", "limit"]
    while status[0] == "limit" and cycle < limit:
        cycle += step
        status = [m.run(cycle) for m in machines]
        if "limit" in status and status[0] != status[1]:  # one needs some idle cycles to see that it is over
            status = [m.run(cycle + 50) for m in machines]
        assert status[0] == status[1], (cycle, [m.fault for m in machines])
        if status[0] == "fault":
            assert fault_of(machines[0]) == fault_of(machines[1])
            break
        found = difference(*(state_of(m, status[0]) for m in machines))
        assert found is None, f"cycle {cycle}: {found}"
        assert difference(memory(machines[0], spec), memory(machines[1], spec)) is None
    return machines[0], status[0]


def one(pairs, addresses, route=None, by_address=True, m=None):
    """Return the `FabricSpec` of one PE that stores words to addresses and loads others, and the program."""
    m = m or machine("wse2")
    layout = Layout(1, 1, m)
    p = Program("one", m, by_address=by_address)
    seen = p.array("seen", max(1, len(addresses)), "u16")
    p.input_queue(0, 4)
    p.output_queue(0, 4)
    with p.task("main"):
        pokes(p, "stores", pairs)
        peeks(p, seen, addresses)
    p.start("main")
    layout.place(p, 0, 0)
    layout.route(4, (0, 0, 1, 1), **(route or {"rx": "R", "tx": "R"}))
    return layout.build()


def seen(spec, count):
    engine, status = agree(spec)
    assert status == "complete", (status, engine.fault)
    symbol = spec.programs[0].symbols["seen"]
    return engine.read_words(0, 0, symbol.address, count).tolist()


@pytest.mark.parametrize(
    ("route", "word"),
    [
        ({"rx": "R", "tx": "R"}, inputs(RAMP) | outputs(RAMP)),
        ({"rx": "N", "tx": "R"}, inputs(NORTH) | outputs(RAMP)),
        ({"rx": "S", "tx": "RR"}, inputs(SOUTH) | outputs(RAMP)),
        ({"rx": "R", "tx": "R", "pop": "pop_on_advance"}, inputs(RAMP) | outputs(RAMP) | 2 << 12),
    ],
)
def test_a_route_register_holds_what_the_layout_says(route, word):
    assert seen(one([], [REG_ROUTES + 4], route), 1) == [word]


def test_a_route_register_is_written():
    word = inputs(RAMP) | outputs(EAST, RAMP) | 1 << 12
    assert seen(one([(REG_ROUTES + 4, word)], [REG_ROUTES + 4]), 1) == [word]


@pytest.mark.parametrize("positions", [0x0C55, 0x0554, 0x0059, 0x1A89, 0x0005, 0x4955])
def test_a_switch_register_is_written(positions):
    assert seen(one([(REG_SWITCHES + 4, positions)], [REG_SWITCHES + 4]), 1) == [positions]


def test_positions_that_share_a_side_follow_position_0():
    first = inputs(RAMP) | outputs(RAMP)
    pairs = [
        (REG_SWITCHES + 4, NORTH | SOUTH << 4 | 8 << 4 | 5 << 8),  # position 1: out to north; 2: in from south
        (REG_ROUTES + 4, inputs(WEST) | outputs(NORTH)),  # 1 and 0 have the same outputs now
        (REG_ROUTES + 4, inputs(EAST) | outputs(RAMP)),
    ]
    spec = one([(REG_ROUTES + 4, first), *pairs], [REG_SWITCHES + 4])
    assert seen(spec, 1) == [pairs[0][1]]
    state = ReferenceMachine(spec)
    state.run(3000)
    color = state.routers[0, 0].colors[4]
    assert (color.rx[1], color.tx[1]) == (2, 4)  # W, E, N, S, R: in from east, out to north
    assert (color.rx[2], color.tx[2]) == (8, 16)


def test_queues_and_clock_keep_words():
    pairs = [(REG_QUEUES + 2, 0x0134), (REG_CLOCK, 0)]
    assert seen(one(pairs, [REG_QUEUES + 2, REG_QUEUES + 3, REG_CLOCK]), 3) == [0x0134, 0, 0]


def test_the_clock_counts_and_is_set():
    addresses = [REG_CLOCK + 1] * 3 + [REG_CLOCK + 2]
    first, second, third, high = seen(one([], addresses), 4)
    assert 0 < second - first == third - second < 20
    assert high == 0
    later = seen(one([(REG_CLOCK + 2, 7), (REG_CLOCK + 1, 0)], addresses), 4)
    assert later[3] == 7
    assert 0 < later[0] < first


def test_a_route_written_by_address_carries_wavelets():
    m = machine("wse2")
    layout = Layout(3, 1, m)
    sender = Program("sender", m, by_address=True)
    data = sender.array("data", 8, "u32", np.arange(8, dtype=np.uint32))
    out = sender.output_queue(2, 4)
    with sender.task("main"):
        pokes(sender, "stores", [(REG_ROUTES + 4, inputs(RAMP) | outputs(EAST))])
        sender.mov32(sender.fabout(out, 8, dtype="u32"), data)
    sender.start("main")
    middle = Program("middle", m, by_address=True)
    with middle.task("main"):
        pokes(middle, "stores", [(REG_ROUTES + 4, inputs(WEST) | outputs(EAST))])
    middle.start("main")
    receiver = Program("receiver", m, by_address=True)
    got = receiver.array("got", 8, "u32")
    into = receiver.input_queue(3, 4)
    with receiver.task("main"):
        pokes(receiver, "stores", [(REG_ROUTES + 4, inputs(WEST) | outputs(RAMP))])
        receiver.mov32(got, receiver.fabin(into, 8, dtype="u32"))
    receiver.start("main")
    for x, p in enumerate((sender, middle, receiver)):
        layout.place(p, x, 0)
    layout.route(4, (1, 0, 1, 1), rx="E", tx="W")
    spec = layout.build()
    engine, status = agree(spec)
    assert status == "complete"
    symbol = spec.programs[2].symbols["got"]
    words = engine.read_words(2, 0, symbol.address, 16).view(np.uint32)
    assert words.tolist() == list(range(8))


@pytest.mark.parametrize("address", [0x7F1F, REG_ROUTES + 24, 0x7F60, REG_CLOCK - 1, REG_CLOCK + 4, 0x7000, 0xFFFF])
@pytest.mark.parametrize("stores", [True, False])
def test_what_is_no_register_is_a_fault(address, stores):
    engine, status = agree(one([(address, 1)] if stores else [], [] if stores else [address]))
    assert status == "fault"
    assert engine.fault["kind"] == "sram_range"
    assert engine.fault["address"] == address


@pytest.mark.parametrize(
    ("address", "value"),
    [(REG_ROUTES + 5, 0x202), (REG_SWITCHES + 5, 0x555), (REG_ROUTES + 4, 0x8210), (REG_ROUTES + 4, 0x610)],
)
def test_what_is_not_modelled_is_a_fault(address, value):
    spec = one([(address, value)], [])
    engine, status = agree(spec)
    assert status == "fault"
    assert (engine.fault["kind"], engine.fault["address"]) == ("program", address)
    with pytest.raises(ProgramFault, match="register"):
        Fabric(spec).run()


@pytest.mark.parametrize("preset", ["wse2", "wse3"])
def test_without_the_programs_word_for_it_there_are_no_registers(preset):
    m = machine(preset)
    by_address = preset == "wse3"  # whose registers lie elsewhere
    spec = one([], [REG_ROUTES + 4], by_address=by_address, m=m)
    engine, _ = agree(spec)
    assert engine.fault["kind"] == "sram_range"
    with pytest.raises(SramFault):
        Fabric(spec).run()


def cycles_beside_a_stream(bits, priority="low"):
    """Return how long the main thread multiplies beside a low stream whose input queue is configured so."""
    m = machine("wse2")
    layout = Layout(2, 1, m)
    sender, p = Program("sender", m), Program("busy", m, by_address=True)
    data = sender.array("data", 80, "u32")
    out = sender.output_queue(3, 4)
    with sender.task("main"):
        sender.mov32(sender.fabout(out, 80, dtype="u32"), data)
    sender.start("main")
    into, got, x = p.input_queue(2, 4), p.array("got", 80, "u32"), p.array("x", 60, "f32")
    stamps = p.array("stamps", 6, "u16")
    with p.task("main"):
        pokes(p, "stores", [(REG_QUEUES + 2, bits)])
        p.mov32(got, p.fabin(into, 80, dtype="u32"), async_=True, priority=priority)
        p.store_tsc(stamps)
        p.fmuls(x, x, x)
        p.store_tsc(stamps[3])
    p.start("main")
    layout.place(sender, 0, 0)
    layout.place(p, 1, 0)
    layout.route(4, (0, 0, 1, 1), rx="R", tx="E")
    layout.route(4, (1, 0, 1, 1), rx="W", tx="R")
    spec = layout.build()
    engine, status = agree(spec, step=5)
    assert status == "complete"
    words = engine.read_words(1, 0, spec.programs[1].symbols["stamps"].address, 6).tolist()
    return words[3] - words[0]


def test_the_configuration_of_a_queue_raises_a_priority():
    low, high = cycles_beside_a_stream(0), cycles_beside_a_stream(0, "high")
    assert low < high
    assert cycles_beside_a_stream(0x80) == low
    assert cycles_beside_a_stream(1 << 8) == cycles_beside_a_stream(0, "medium")
    assert cycles_beside_a_stream(1 << 9) == cycles_beside_a_stream(1 << 8, "high") == high
