"""The host at the ramps of PEs: words into a CE's queue, and out of a CE, at any PE of the rectangle, in time."""

import numpy as np
import pytest

from fabric import Fabric, Layout, Program
from fabric.engine.engine import Engine
from fabric.host.debug import replay
from fabric.layout.picture import Scene, html
from tests.compare import compare, seeded
from tests.random_machines import random_spec
from tests.random_traffic import random_traffic
from traces.paths import follow, identify
from wse_core.errors import DeadlockError, LayoutError, RouteError
from wse_core.events import KINDS, joined, sorted_events
from wse_core.image import DIR_R

BACKENDS = ("compiled", "reference")
DOWN, UP = 2, 5
PLACES = ((1, 1), (2, 1), (1, 2))  # of a 4 x 4 rectangle


def adder(n):
    """Return a program that takes n words and sends each back with 1 added."""
    p = Program("adder")
    taken, sent = p.input_queue(0, DOWN), p.output_queue(1, UP)
    x = p.array("x", n, "f32", np.ones(n))
    with p.task("main"):
        p.fadds(p.fabout(sent, n), x, p.fabin(taken, n))
    p.start("main")
    return p


def inner(backend, n=6):
    """Return (fabric, {place: (source, sink)}): three PEs inside of a rectangle, each with ports of its own."""
    layout, program = Layout(4, 4), adder(n)
    ports = {}
    for x, y in PLACES:
        layout.place(program, x, y)
        layout.route(UP, (x, y), rx="R", tx="")
        ports[x, y] = layout.input_stream(x, y, "R", DOWN), layout.output_stream(x, y, "R", UP)
    return Fabric(layout, backend=backend), ports


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_pe_inside_has_ports_of_its_own(backend):
    fabric, ports = inner(backend)
    for k, (source, _) in enumerate(ports.values()):
        fabric.send(source, 10 * k + np.arange(6, dtype=np.float32))
    assert fabric.run().status == "complete"
    for k, (_, sink) in enumerate(ports.values()):
        assert fabric.receive(sink).values("f32").tolist() == [10 * k + j + 1 for j in range(6)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_words_enter_and_leave_in_their_cycles(backend):
    fabric, ports = inner(backend)
    m = fabric.machine
    source, sink = ports[2, 1]
    fabric.send(source, np.arange(6, dtype=np.float32), at=[100, 140, 141, 141, 160, 500])
    for other in PLACES[::2]:
        fabric.send(ports[other][0], np.zeros(6, np.float32))
    assert fabric.run().status == "complete"
    entered = fabric.entered(source)
    assert entered.tolist() == [100, 140, 141, 142, 160, 500]
    # down the ramp, through the step of a cycle, up the ramp, to the host as over a link
    late = m["ramp.in"] + m["ramp.execute"] + m["ramp.out"] + m["router.hop"]
    assert (fabric.receive(sink).cycles - entered).tolist() == [late] * 6


@pytest.mark.parametrize("backend", BACKENDS)
def test_both_directions_push_back(backend):
    n = 40
    fabric, ports = inner(backend, n)
    _source, sink = ports[1, 2]
    for place in PLACES:
        fabric.send(ports[place][0], np.arange(n, dtype=np.float32))
    taken = np.arange(1000, 1000 + 7 * n, 7)
    fabric.accept(sink, at=taken)
    assert fabric.run().status == "complete"
    got = fabric.receive(sink)
    assert (got.cycles - fabric.machine["router.hop"]).tolist() == taken.tolist()
    assert got.values("f32").tolist() == [k + 1.0 for k in range(n)]
    free = fabric.receive(ports[1, 1][1])
    assert np.all(np.diff(free.cycles) == 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_input_queue_takes_no_more_than_it_holds(backend):
    p = Program("idle")
    p.input_queue(0, DOWN)
    layout = Layout(3, 3)
    layout.place(p, 1, 1)
    source = layout.input_stream(1, 1, "R", DOWN)
    fabric = Fabric(layout, backend=backend)
    fabric.send(source, np.arange(50, dtype=np.uint32))
    with pytest.raises(DeadlockError, match="no operation takes color 2"):
        fabric.run()
    m = fabric.machine
    assert len(fabric.entered(source)) == m["queue.in_depth"][0] + m["ramp.in_buffer"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_stream_that_is_late_is_no_deadlock_and_a_missing_word_is_one(backend):
    fabric, ports = inner(backend)
    for place in PLACES[1:]:
        fabric.send(ports[place][0], np.zeros(6, np.float32))
    source, sink = ports[1, 1]
    fabric.accept(sink, at=[0] * 5)
    fabric.send(source, np.ones(5, np.float32), at=700)
    with pytest.raises(DeadlockError, match="input stream 0.*all its wavelets are taken"):
        fabric.run()
    fabric.send(source, np.ones(1, np.float32), at=3_000)
    with pytest.raises(DeadlockError, match="output stream 0.*the host takes no more wavelets"):
        fabric.run()
    assert 3_000 < fabric.cycle < 3_050
    assert fabric.run(on_wait="return").status == "waiting"
    fabric.accept(sink, at=4_000)
    assert fabric.run().status == "complete"
    assert fabric.cycle > 4_000
    assert fabric.receive(sink).values("f32").tolist() == [2.0] * 6


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_queue_that_the_host_and_a_route_feed_takes_the_route_first(backend):
    p, n = Program("both"), 12
    x = p.array("x", 2 * n, "u32")
    queue = p.input_queue(0, DOWN)
    with p.task("main"):
        p.mov32(x, p.fabin(queue, 2 * n))
    p.start("main")
    layout = Layout(2, 1)
    layout.place(p, 1, 0)
    layout.route(DOWN, (0, 0), rx="W", tx="E")
    layout.route(DOWN, (1, 0), rx="W", tx="R")
    edge, ramp = layout.input_stream(0, 0, "W", DOWN), layout.input_stream(1, 0, "R", DOWN)
    fabric = Fabric(layout, backend=backend)
    hop = fabric.machine["router.hop"]
    fabric.send(edge, np.arange(n, dtype=np.uint32))
    fabric.send(ramp, 100 + np.arange(n, dtype=np.uint32), at=2 * hop)
    assert fabric.run().status == "complete"
    words = fabric.read("x", 1, 0).ravel()
    assert sorted(words) == [*range(n), *range(100, 100 + n)]
    assert words[:2].tolist() == [0, 100]
    assert np.all(np.diff(words[words < 100].astype(int)) == 1)


def attached(case):
    """Return how many ports of a case are at ramps."""
    return sum(link[2] == DIR_R for link in (*case.spec.inputs, *case.spec.outputs))


@pytest.mark.parametrize(("make", "limit"), [(random_spec, 400), (random_traffic, 3000)])
def test_random_machines_use_ramps(make, limit):
    """Machines such as tests/fabric/test_equivalence.py draws by the hundred have ports at ramps, and words there."""
    cases = [seeded(seed, make) for seed in range(16)]
    moved = 0
    for case in cases:
        if attached(case):
            compare(case, limit)
            engine = case.start(Engine(case.spec))
            engine.run(limit)
            for k, link in enumerate(case.spec.inputs):
                moved += len(engine.entered(k)) if link[2] == DIR_R else 0
            for k, link in enumerate(case.spec.outputs):
                moved += len(engine.pop_output(k)[0]) if link[2] == DIR_R else 0
    assert moved > 30


def events_of(fabric):
    """Run a fabric to its end; return its events."""
    found = []
    fabric.engine.trace(lambda events, clock: found.append(events))
    fabric.run()
    fabric.engine.trace(None)
    return sorted_events(joined(found))


@pytest.mark.parametrize("backend", BACKENDS)
def test_events_show_the_host_and_bring_the_same_words_again(backend):
    fabric, ports = inner(backend)
    for place in PLACES:
        fabric.send(ports[place][0], np.arange(6, dtype=np.float32))
    events = events_of(fabric)
    entering = events[events["kind"] == KINDS.index("enter")]
    assert len(entering) == 18
    assert set(entering["aux"]) == {DIR_R}
    leaving = events[events["kind"] == KINDS.index("depart")]
    assert set(leaving["aux"]) == {1 << 5}
    numbers = identify(events)
    way = follow(events, numbers, int(numbers[np.flatnonzero(events["kind"] == KINDS.index("enter"))[0]]))
    assert [KINDS[kind] for kind in way["kind"]] == ["enter", "take"]
    again, _ = inner(backend)
    assert replay(again, events) == 18
    assert np.array_equal(events_of(again), events)


def test_a_port_without_its_other_side_is_refused():
    layout = Layout(3, 3)
    layout.place(adder(4), 1, 1)
    layout.route(UP, (1, 1), rx="R", tx="")
    with pytest.raises(RouteError, match=r"PE \(1, 1\), color 5: tx is empty.*output_stream\(1, 1, 'R', 5\)"):
        layout.build()
    with pytest.raises(RouteError, match="tx is empty"):
        layout.route(7, (0, 0), rx="W", tx="")
    for kind, place, color, what in (
        ("input", (0, 0), DOWN, "no program runs there"),
        ("input", (1, 1), 9, "binds no input queue to the color"),
        ("output", (1, 1), 9, r"no route for the color with R in rx and an empty tx.*rx=\"R\", tx=\"\""),
    ):
        layout = Layout(3, 3)
        layout.place(adder(4), 1, 1)
        getattr(layout, f"{kind}_stream")(*place, "R", color)
        with pytest.raises(RouteError, match=what):
            layout.build()
    layout = Layout(3, 3)
    with pytest.raises(LayoutError, match=r"faces PE \(1, 0\).*input_stream\(0, 0, 'R', 3\)"):
        layout.input_stream(0, 0, "E", 3)
    layout.input_stream(1, 1, "R", 3)
    with pytest.raises(LayoutError, match="two input streams of one color on side R"):
        layout.input_stream(1, 1, "R", 3)


def test_a_picture_shows_the_ports_inside():
    layout = Layout(4, 4)
    layout.place(adder(4), 1, 1)
    layout.input_stream(1, 1, "R", DOWN)
    scene = Scene("t", ["adder"], layout._index, layout._painting, layout._streams)
    figures = html(scene).split("<figure")
    marks = [text for text in figures if 'class="stream" d="M' in text]
    assert len(marks) == 1
    assert f"color {DOWN}" in marks[0]


def test_ports_are_part_of_a_saved_state():
    fabric, ports = inner("compiled")
    for place in PLACES:
        fabric.send(ports[place][0], np.arange(6, dtype=np.float32))
    fabric.engine.run(12)
    saved = fabric.engine.save_state()
    fabric.run()
    first = fabric.receive(ports[1, 1][1])
    fabric.engine.restore_state(saved)
    fabric.run()
    second = fabric.receive(ports[1, 1][1])
    assert first.cycles.tolist() == second.cycles.tolist()
    assert first.payload.tolist() == second.payload.tolist()
