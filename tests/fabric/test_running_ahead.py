"""What a CE does ahead of the clock: tasks of words that wait already, whole vector operations, short flows."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fabric.asm import control
from fabric.engine.engine import Engine
from fabric.layout.layout import Layout
from fabric.program.program import Program
from harness.validation.programs import summa_library
from tests.bench import workloads
from tests.bench.weights import weights
from tests.compare import difference, fault_of, memory, state_of
from tests.examples import examples
from wse_core import _build_info
from wse_core.params import machine
from wse_core.reference.machine import ReferenceMachine

WORDS = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from(["data", "command", "nobody"]), st.integers(0, 0x4800)), max_size=14
)
"""(first cycle in which it may enter, what it is, payload) of each word of a stream."""


def two_streams(tokens, save, rule):
    """Return the `FabricSpec` of two PEs whose tasks come from two streams, compute in memory and send to a neighbour.

    Words of both colors start tasks, and so do commands on the first; the second color has the higher priority.
    """
    m = machine("wse2", {"mem.conflict_rule": rule})
    layout = Layout(2, 1, m)
    for place in range(2):
        p = Program(f"PE {place}", m)
        x = p.array("x", 2 * tokens + 2, "f16", np.arange(2 * tokens + 2) / 8, bank=1)
        sums, wide = p.array("sums", tokens, "f32", bank=0), p.array("wide", 64, "f32", bank=2)
        total, again, row = p.dsr("src0"), p.dsr("src0"), p.dsr("src1")
        written, leaving = p.dsr("dest"), p.dsr("dest")
        p.input_queue(0, 4)
        p.input_queue(1, 2)
        out = p.output_queue(2, 6)
        with p.task("prepare"):
            p.load(total, sums)
            p.load(again, sums)
            p.load(row, p.mem1d(x, tokens))
            p.load(written, p.mem1d(wide, 2, save=save, check=False))
            p.load(leaving, p.fabout(out, 3, zero=True, dtype="f32"))
        p.start("prepare")
        with p.task("weight", kind="data", color=4) as t:
            p.fmachs(total, total, row, t.data)
        with p.task("other", kind="data", color=2):
            p.dsr_off(row, 1)
            p.fh2s(total, row)
            p.dsr_base(row, x)
        with p.task("command", kind="control", id=5) as t:
            number = p.reg32("number")
            p.mov32(number, 0)
            p.fadds(number, again, number)
            p.mov32(leaving, again)
            p.mov16(number.low, t.data)
        layout.place(p, place, 0)
    layout.route(4, (0, 0, 2, 1), rx="N", tx="R")
    layout.route(2, (0, 0, 1, 1), rx="W", tx="ER")
    layout.route(2, (1, 0, 1, 1), rx="W", tx="R")
    layout.route(6, (0, 0, 2, 1), rx="R", tx="S")
    for place in range(2):
        layout.input_stream(place, 0, "N", 4)
        layout.output_stream(place, 0, "S", 6)
    layout.input_stream(0, 0, "W", 2)
    return layout.build()


def send(engine, number, words):
    """Give an input stream its words, commands only to those that know them."""
    payload = [
        value if kind == "data" else control.single("nop", 5 if kind == "command" else 9) | value & 0xFF
        for _, kind, value in words
    ]
    is_control = np.array([kind != "data" for _, kind, _ in words], bool)
    engine.push_input(number, np.array(payload, np.uint32), is_control, [cycle for cycle, _, _ in words])


@examples(40)
@given(
    first=WORDS,
    second=WORDS,
    other=WORDS,
    tokens=st.sampled_from([3, 4, 8, 70]),
    save=st.booleans(),
    rule=st.sampled_from(["bank", "mod4", "none"]),
    cuts=st.lists(st.integers(1, 400), max_size=6),
)
def test_tasks_begun_ahead_of_the_clock_are_those_of_the_reference(first, second, other, tokens, save, rule, cuts):
    """Words that come early, late and at once, cut anywhere: the machine in plain Python does the same."""
    spec = two_streams(tokens, save, rule)
    machines = Engine(spec), ReferenceMachine(spec)
    words = [first, second, [(cycle, "data", value) for cycle, _, value in other]]
    for engine in machines:
        for number, some in enumerate(words):
            send(engine, number, some)
    for limit in [*np.cumsum(cuts), 20_000]:
        status = [engine.run(int(limit)) for engine in machines]
        if "limit" in status and status[0] != status[1]:
            status = [engine.run(int(limit) + 50) for engine in machines]
        assert status[0] == status[1]
        if status[0] != "limit":
            break
        assert difference(*(engine.snapshot() for engine in machines)) is None
    names = ("sums", "wide")
    for place in range(2):
        for name in names:
            symbol = spec.programs[spec.program_index[0, place]].symbols[name]
            found = [engine.read_words(place, 0, symbol.address, 2 * symbol.count).tolist() for engine in machines]
            assert found[0] == found[1]
        outputs = [engine.pop_output(place) for engine in machines]
        assert all(np.array_equal(a, b) for a, b in zip(*outputs, strict=True))


def three_takers(n, op, deep):
    """Return the `FabricSpec` of a row whose PEs store a stream, add to it and pass it on, and store that.

    The host feeds the stream at the edge and at the ramps of the first two PEs; `deep`: the queue in which the second
    one passes it on has room for what is on its way up the ramp.
    """
    m = machine("wse2")
    layout = Layout(3, 1, m)
    for place, (into, out) in enumerate([(0, None), (0, 1), (1, None)]):
        p = Program(f"PE {place}", m)
        own = p.array("own", n, "f32", np.arange(n) / 4)
        p.input_queue(0, into)
        if out is not None:
            p.output_queue(2 if deep else 0, out)
        with p.task("main"):
            to = own if out is None else p.fabout(out, n, dtype="f32")
            getattr(p, op)(to, own, p.fabin(into, n, dtype="f32"))
            p.tsc(p.regs(3))
        p.start("main")
        layout.place(p, place, 0)
    layout.route(0, (0, 0), rx="W", tx="ER")
    layout.route(0, (1, 0), rx="W", tx="R")
    layout.route(1, (1, 0), rx="R", tx="E")
    layout.route(1, (2, 0), rx="W", tx="R")
    layout.input_stream(0, 0, "W", 0)
    for place in range(2):
        layout.input_stream(place, 0, "R", 0)
    return layout.build()


@examples(40)
@given(
    streams=st.tuples(*[st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=size) for size in (30, 4, 4)]),
    n=st.integers(1, 30),
    op=st.sampled_from(["fadds", "fsubs", "fmuls"]),
    deep=st.booleans(),
    cuts=st.lists(st.integers(1, 40), max_size=6),
    sweep=st.sampled_from([None, 7]),
)
@example([[(5 + k, False) for k in range(20)], [(12, False)], []], 24, "fadds", True, [], None)
def test_what_a_router_hands_to_an_operation_is_what_the_operation_would_take(streams, n, op, deep, cuts, sweep):
    """Words at full rate, late, of the router and of the host at once, commands among them, cut anywhere."""
    spec = three_takers(n, op, deep)
    machines = Engine(spec, sweep=sweep) if sweep else Engine(spec), ReferenceMachine(spec)
    for engine in machines:
        for number, words in enumerate(streams):
            command = [is_command and number == 0 for _, is_command in words]
            payload = [control.single("nop", 9) if c else 0x3F800000 + (k << 16) for k, c in enumerate(command)]
            cycles = [cycle for cycle, _ in words]
            engine.push_input(number, np.array(payload, np.uint32), np.array(command, bool), cycles)
    for limit in [*np.cumsum(cuts), 2000]:
        status = [engine.run(int(limit)) for engine in machines]
        if "limit" in status and status[0] != status[1]:
            status = [engine.run(int(limit) + 50) for engine in machines]
        assert status[0] == status[1]
        assert difference(*(state_of(engine, status[0]) for engine in machines)) is None
        assert difference(*(memory(engine, spec) for engine in machines)) is None
        if status[0] != "limit":
            break
    assert machines[0].last_active == machines[1].last_active


def beside_transfers(work, turns, n, sizes, priority, wild):
    """Return the `FabricSpec` of a PE that computes while microthreads wait for words, and for room in what they send.

    Two streams of the host come in, one is stored and one is added to what lies there; a third goes out to the host.
    `work`: what a turn of the main thread does, some of it in the memory and with the descriptors of these transfers;
    `wild`: a load that goes on by so many words per turn, until it leaves the memory.
    """
    m = machine("wse2")
    layout = Layout(1, 1, m)
    p = Program("beside", m)
    op = {16: p.mov16, 32: p.mov32}[sizes]
    dtype = {16: "f16", 32: "f32"}[sizes]
    came = p.array("came", n, dtype)
    sums = p.array("sums", n, "f32", np.arange(n) / 8)
    own = p.array("own", n, dtype, np.arange(n) / 4)
    x, wide = p.array("x", 40, "f16", np.arange(40) / 8, bank=1), p.array("wide", 8, "f32", bank=0)
    seen, times = p.array("seen", 8, "u16"), p.array("times", 3, "u16")
    p.input_queue(0, 0)
    p.input_queue(1, 1)
    p.output_queue(2, 2)
    total, row, sent = p.dsr("src0"), p.dsr("src1"), p.dsr("src1")
    with p.task("main"):
        p.load(total, wide)
        p.load(row, p.mem1d(x, 8, save=True, check=False))
        p.load(sent, own)
        op(came, p.fabin(0, n, dtype=dtype), async_=p.async_(priority=priority))
        p.fadds(sums, sums, p.fabin(1, n, dtype="f32"), async_=p.async_(priority=priority, activate="last"))
        op(p.fabout(2, n, dtype=dtype), sent, async_=True)
        at, by, value = p.reg16("at"), p.reg16("by"), p.reg16("value")
        first, pair = p.reg16("first"), p.reg32("pair")
        p.ldi(at, came)
        p.ldi(first, came)
        p.mov32(pair, 0x3F000000)
        p.ldi(by, wild)
        p.ldi(value, 1.5)
        with p.loop(turns):
            for kind in work:
                if kind == "product":
                    p.fmachs(total, total, row, value)
                elif kind == "load":
                    p.ld16(value, first)
                    p.st16(value, seen)
                elif kind == "store":
                    p.st32(pair, sums[n - 1])
                elif kind == "count":
                    p.add16(value, value, 3)
                elif kind == "time":
                    p.store_tsc(times)
                elif kind == "held":
                    p.dsr_off(sent, 0)
                elif kind == "short":
                    p.fadds(p.mem1d(wide, 2), p.mem1d(wide, 2), p.mem1d(sums, 2, stride=0))
                elif kind == "rows":
                    p.mov16(p.mem4d(x, (2, 3)), p.mem4d(x, (2, 3), offset=8))
                elif kind == "back":
                    p.dsr_base(row, x)
                elif kind == "wild":
                    p.add16(at, at, by)
                    p.ld16(value, at)
    with p.task("last"):
        p.store_tsc(times)
    p.start("main")
    layout.place(p, 0, 0)
    layout.route(0, (0, 0), rx="W", tx="R")
    layout.route(1, (0, 0), rx="N", tx="R")
    layout.route(2, (0, 0), rx="R", tx="S")
    layout.input_stream(0, 0, "W", 0)
    layout.input_stream(0, 0, "N", 1)
    layout.output_stream(0, 0, "S", 2)
    return layout.build()


KINDS = ["product", "load", "store", "count", "time", "held", "short", "rows", "back", "wild"]


@examples(150)
@given(
    work=st.lists(st.sampled_from(KINDS), min_size=1, max_size=7),
    turns=st.integers(1, 12),
    streams=st.tuples(*[st.lists(st.integers(0, 300), max_size=10) for _ in range(2)]),
    places=st.lists(st.integers(0, 300), max_size=12),
    n=st.integers(1, 9),
    sizes=st.sampled_from([16, 32]),
    priority=st.sampled_from(["low", "medium", "high"]),
    wild=st.sampled_from([0, 2, 20]),
    cuts=st.lists(st.integers(1, 60), max_size=8),
)
@example(["product", "load"], 12, ([40, 90, 91], [60, 61, 200]), [5, 70], 4, 16, "medium", 0, [])
@example(["wild", "product"], 12, ([40, 90], [200]), [], 4, 16, "medium", 20, [33])
def test_a_main_thread_that_is_left_for_later_does_what_it_would_have_done(
    work, turns, streams, places, n, sizes, priority, wild, cuts
):
    """It computes while microthreads wait for words or room, shares memory and descriptors with them, faults; cut."""
    spec = beside_transfers(work, turns, n, sizes, priority, wild)
    machines = Engine(spec), ReferenceMachine(spec)
    for engine in machines:
        for number, cycles in enumerate(streams):
            payload = [0x3F800000 + (k << 16) + k for k in range(len(cycles))]
            engine.push_input(number, np.array(payload, np.uint32), np.zeros(len(cycles), bool), cycles)
        engine.limit_output(0, places)
    for limit in [*np.cumsum(cuts), 3000]:
        status = [engine.run(int(limit)) for engine in machines]
        if "limit" in status and status[0] != status[1]:
            status = [engine.run(int(limit) + 50) for engine in machines]
        assert status[0] == status[1]
        if status[0] == "fault":
            assert fault_of(machines[0]) == fault_of(machines[1])
            assert machines[0].cycle == machines[1].cycle
            break
        assert difference(*(state_of(engine, status[0]) for engine in machines)) is None
        assert difference(*(memory(engine, spec) for engine in machines)) is None
        outputs = [engine.pop_output(0) for engine in machines]
        assert all(np.array_equal(a, b) for a, b in zip(*outputs, strict=True))
        if status[0] != "limit":
            break
    assert status[0] == "fault" or machines[0].last_active == machines[1].last_active


@examples(40)
@given(before=st.lists(st.sampled_from(["count", "load", "short"]), max_size=30), behind=st.integers(0, 60))
@example(before=["count"] * 30, behind=30)
def test_the_end_of_a_run_is_seen_when_the_main_thread_begins_to_wait_for_ever(before, behind):
    """For a descriptor of a transfer out of which nobody takes; what it would do next does not matter."""
    spec = beside_transfers([*before, "held", *["count"] * behind], 1, 64, 32, "medium", 0)
    ends = []
    for kind, traced in ((Engine, False), (Engine, True), (ReferenceMachine, False)):
        one = kind(spec)
        one.limit_output(0, [])
        if traced:
            one.trace(lambda events, clock: None)
        assert one.run(3000) == "stuck"
        ends.append((one.cycle, one.last_active))
    assert ends[0] == ends[1]
    assert ends[0][1] == ends[2][1]
    assert abs(ends[0][0] - ends[2][0]) <= 1, "idle cycles at the end, by definition"


def cpu_of(workload):
    """Return the CPU seconds of a run."""
    engine = workload.engine()
    begun = time.process_time()
    status = engine.run(workload.limit)
    spent = time.process_time() - begun
    workload.finish(engine, status)
    return spent


def test_microthreads_do_not_run_ahead_of_a_teardown(monkeypatch):
    """A router may activate task 29 in any cycle: an idle main thread takes it then, whatever else the PE could do."""
    times = []

    def cut(engine, stop, *_):
        """No CE runs ahead of the next cycle."""
        status = "limit"
        while status == "limit" and engine.cycle < stop:
            status = engine.run(engine.cycle + 1)
        return status

    for pieces in (cut, lambda engine, stop, *_: engine.run(stop)):
        monkeypatch.setattr("fabric.host.fabric.run_pieces", pieces)
        first, last = summa_library.run(machine(), 9, 4, *np.ones((2, 36, 36), np.float32))[0].stamps(0, 0, 9, 9)
        times.append((last - first).tolist())
    assert times[0] == times[1]


@pytest.mark.skipif(_build_info.MODE != "release", reason="checks cost more in a task than in a hop")
def test_a_task_of_a_word_that_waits_costs_less_than_a_dozen_hops():
    """The words of a stream that wait in a PE's queue are done in one look, each operation in one go.

    A hop of a chain is the measure: its step is a look, as a task is.
    """
    chain = workloads.chain_reduce(32, 16, 400)
    hop, task = float("inf"), float("inf")
    for _ in range(20):  # what else runs on the host makes both slower, but not alike
        hop = min(hop, cpu_of(chain) / chain.work["hops"])
        task = min(task, cpu_of(weights(8, 8, 400)) / (8 * 8 * 401))
        if task < 12 * hop:
            break
    assert task < 12 * hop, f"{task / hop:.2f}"
