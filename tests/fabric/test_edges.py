"""The edge in time: words enter from a cycle on, the host takes words from a cycle on, both machines alike."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric import Fabric, Layout, Program
from fabric.engine.engine import Engine
from tests.compare import compare, seeded
from tests.examples import examples
from wse_core.errors import ConfigError, DeadlockError, LayoutError

BACKENDS = ("compiled", "reference")


def timed(seed):
    """Return the case of a seed with cycles for what the host sends, and with a host that takes words slowly."""
    case, rng = seeded(seed), random.Random(seed)
    inputs = []
    for index, words, control in case.inputs:
        at, cycles = 0, []
        for _ in words:
            at += rng.choice((0, 0, 1, 1, 2, 5, 40))
            cycles.append(at)
        inputs.append((index, words, control, cycles))
    case.inputs = inputs
    case.places = tuple(
        (index, sorted(rng.randrange(300) for _ in range(rng.randrange(12))))
        for index in range(len(case.spec.outputs))
        if rng.random() < 0.7
    )
    return case


@examples(80)
@given(st.integers(0, 2**32 - 1).map(timed))
def test_random_machines_agree_at_timed_edges(case):
    assert compare(case) in ("limit", "complete", "stuck", "fault")


def test_the_last_step_of_a_flow_is_done_when_it_issues():
    """It may take two cycles: those are not both the last in which something happened."""
    assert compare(timed(3223962)) == "stuck"


def wire(backend, length=4):
    """Return (fabric, source, sink): a color that crosses a row of PEs without programs."""
    layout = Layout(length, 1)
    layout.route(3, (0, 0, length, 1), rx="W", tx="E")
    source, sink = layout.input_stream(0, 0, "W", 3), layout.output_stream(length - 1, 0, "E", 3)
    return Fabric(layout, backend=backend), source, sink


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_word_enters_in_its_cycle_and_leaves_a_wire_later(backend):
    fabric, source, sink = wire(backend)
    fabric.send(source, np.arange(5, dtype=np.uint32), at=[3, 10, 10, 11, 5000])
    assert fabric.run().status == "complete"
    assert fabric.entered(source).tolist() == [3, 10, 11, 12, 5000]
    assert (fabric.receive(sink).cycles - 5).tolist() == [3, 10, 11, 12, 5000]  # one cycle a link, 5 links


@pytest.mark.parametrize("backend", BACKENDS)
def test_words_wait_for_a_host_that_takes_them_later(backend):
    fabric, source, sink = wire(backend)
    hop, n = 1, 20
    taken = np.array([7, 50, 51, 52, 300, *range(1000, 1000 + 3 * (n - 5), 3)])
    fabric.accept(sink, at=taken)
    fabric.send(source, np.arange(n, dtype=np.uint32), at=0)
    assert fabric.run().status == "complete"
    got = fabric.receive(sink)
    assert got.payload.tolist() == list(range(n))
    assert (got.cycles - hop).tolist() == taken.tolist()
    entered = fabric.entered(source)
    held = 4 * fabric.machine["router.depth"]  # what the wire holds when its end is blocked
    assert entered[held] <= taken[0] + held
    assert entered[-1] > taken[n - 1 - held - 2]
    assert np.all(entered[held + 2 :] >= taken[: n - held - 2])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_host_that_takes_no_more_is_a_deadlock_unless_it_says_that_it_waits(backend):
    fabric, source, sink = wire(backend)
    fabric.accept(sink, at=[0, 0])
    fabric.send(source, np.arange(5, dtype=np.uint32))
    with pytest.raises(DeadlockError, match="output stream 0"):
        fabric.run()
    assert fabric.run(on_wait="return").status == "waiting"
    fabric.accept(sink, at=2000)
    assert fabric.run(on_wait="return").status == "waiting"
    fabric.accept(sink, at=None)
    assert fabric.run().status == "complete"
    got = fabric.receive(sink)
    assert got.payload.tolist() == [0, 1, 2, 3, 4]
    assert got.cycles[2] == 2001


def receiver(backend):
    """Return (fabric, source): a PE that waits for eight words of the host."""
    p = Program("receiver")
    x = p.array("x", 8, "f32")
    queue = p.input_queue(0, 2)
    with p.task("main"):
        p.fmovs(x, p.fabin(queue, 8))
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    layout.route(2, (0, 0), rx="W", tx="R")
    source = layout.input_stream(0, 0, "W", 2)
    fabric = Fabric(layout, backend=backend)
    fabric.launch("main")
    return fabric, source


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_stream_that_is_only_late_is_no_deadlock(backend):
    fabric, source = receiver(backend)
    fabric.send(source, np.arange(7, dtype=np.float32), at=20)
    assert fabric.run(on_wait="return").status == "waiting"
    assert fabric.cycle < 100
    fabric.send(source, np.float32(7), at=70_000)
    result = fabric.run()
    assert result.status == "complete"
    assert 70_000 < fabric.cycle < 70_050
    assert fabric.read("x", 0, 0).ravel().tolist() == list(range(8))
    assert fabric.entered(source).tolist() == [*range(20, 27), 70_000]


@pytest.mark.parametrize("at", [[-1], [0.5], [3, 2, 4], [1, 2], "x", [[1]]])
def test_cycles_that_cannot_be_are_refused(at):
    fabric, source, _sink = wire("compiled")
    with pytest.raises(LayoutError):
        fabric.send(source, np.arange(3, dtype=np.uint32), at=at)
    assert fabric.run().cycles == 0
    with pytest.raises(ConfigError, match="on_wait"):
        fabric.run(on_wait="perhaps")


def test_streams_that_do_not_exist_are_refused_by_the_engine():
    fabric, _source, _sink = wire("compiled")
    for call in (
        lambda k: fabric.engine.push_input(k, [1]),
        fabric.engine.pop_output,
        fabric.engine.entered,
        lambda k: fabric.engine.limit_output(k, [1]),
    ):
        for k in (-1, 1, 5):
            with pytest.raises(ConfigError, match="does not exist; there are 1"):
                call(k)


def test_the_edge_is_part_of_a_saved_state():
    fabric, source, sink = wire("compiled")
    fabric.accept(sink, at=[100, 200, 300])
    fabric.send(source, np.arange(3, dtype=np.uint32), at=[0, 60, 150])
    fabric.run(max_cycles=120, on_limit="return")
    state = fabric.engine.save_state()
    fabric.run()
    first = fabric.receive(sink).cycles.tolist(), fabric.entered(source).tolist()
    fabric.accept(sink, at=[1])
    fabric.engine.restore_state(state)
    fabric.run()
    assert (fabric.receive(sink).cycles.tolist(), fabric.entered(source).tolist()) == first
    assert first == ([101, 201, 301], [0, 60, 150])


def test_an_engine_that_is_made_twice_is_refused():
    fabric, _, _ = wire("compiled")
    engine = fabric.engine
    assert isinstance(engine, Engine)
    with pytest.raises(ConfigError, match="second time"):
        engine.__init__(engine.spec)
    assert fabric.run().status == "complete"
