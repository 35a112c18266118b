"""Wait-for chains: of stuck machines, and of made-up waiters for what is hard to reach."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import numpy as np
import pytest

from fabric.host.deadlock import Wait, deadlock, explain
from fabric.host.fabric import Fabric
from fabric.layout.layout import Layout
from fabric.program.program import Program
from tests.fabric import BACKENDS
from wse_core.errors import DeadlockError
from wse_core.image import DIR_E, DIR_R, DIR_W

backends = pytest.mark.parametrize("backend", BACKENDS)


def receiver(n, color=3, name="receive"):
    p = Program(name)
    a, q = p.array("a", max(n, 1), "f32"), p.input_queue(0, color)
    with p.task("main"):
        p.fmovs(a, p.fabin(q, n)) if n else p.nop()
    return p


def sender(n, color=3, name="send"):
    p = Program(name)
    a, q = p.array("a", n, "f32"), p.output_queue(0, color)
    with p.task("main"):
        p.fmovs(p.fabout(q, n), a)
    return p


def stuck(layout, backend, *sends, launch=True):
    """Run a layout that gets stuck and return its DeadlockError."""
    fabric = Fabric(layout, backend)
    for stream, values in sends:
        fabric.send(stream, values)
    if launch:
        fabric.launch("main")
    with pytest.raises(DeadlockError) as info:
        fabric.run(10_000)
    assert info.value.cycle < 10_000
    assert all(isinstance(link, Wait) for link in info.value.waiters)
    return info.value


@backends
def test_two_pes_that_both_send_before_they_receive_wait_in_a_circle(backend):
    layout = Layout(2, 1)
    for x, sends, receives in ((0, 3, 4), (1, 4, 3)):
        p = Program(f"p{x}")
        a, o, i = p.array("a", 40, "f32"), p.output_queue(0, sends), p.input_queue(0, receives)
        with p.task("main"):
            p.fmovs(p.fabout(o, 40), a)
            p.fmovs(a, p.fabin(i, 40))
        layout.place(p, x, 0)
    layout.route(3, (0, 0), "R", "E")
    layout.route(3, (1, 0), "W", "R")
    layout.route(4, (1, 0), "R", "W")
    layout.route(4, (0, 0), "E", "R")
    error = stuck(layout, backend)
    text = str(error)
    assert error.is_cycle
    assert "waiting in a circle" in text
    assert len(error.waiters) == 8
    assert "PE (0, 0): main thread, fmovs, 14 of 40 elements done, waits for room in output queue 0 (color 3)" in text
    assert "PE (1, 0): 8 wavelets of color 3 in input queue 0 that nothing takes" in text
    assert "Try: an asynchronous operation does not hold up tasks" in text


@backends
def test_a_sender_that_is_done_ends_the_chain(backend):
    layout = Layout(12, 1)
    layout.place(sender(39), 0, 0)
    layout.place(receiver(40), 11, 0)
    layout.route(3, (0, 0), "R", "E")
    layout.route(3, (1, 0, 10, 1), "W", "E")
    layout.route(3, (11, 0), "W", "R")
    error = stuck(layout, backend)
    assert [str(link) for link in error.waiters] == [
        "PE (11, 0): main thread, fmovs, 39 of 40 elements done, waits for a wavelet of color 3 (input queue 0)",
        "PE (0, 0): has nothing left to do and sends no more wavelets of color 3",
    ]
    assert not error.is_cycle
    assert "fewer elements at the receiver, or more at the sender" in str(error)


@backends
def test_a_stream_that_is_empty_ends_the_chain(backend):
    layout = Layout(2, 1)
    layout.place(receiver(40), 1, 0)
    layout.route(3, (0, 0), "W", "E")
    layout.route(3, (1, 0), "W", "R")
    stream = layout.input_stream(0, 0, "W", 3)
    error = stuck(layout, backend, (stream, np.zeros(20, np.float32)))
    assert str(error.waiters[-1]) == "input stream 0 (color 3): all its wavelets are taken"
    assert "Try: Fabric.send more of them" in str(error)


@backends
def test_wavelets_that_nobody_takes_back_up_to_the_stream(backend):
    layout = Layout(9, 1)
    layout.place(receiver(0), 8, 0)
    layout.route(3, None, "W", "E")
    layout.route(3, (8, 0), "W", "R")
    stream = layout.input_stream(0, 0, "W", 3)
    error = stuck(layout, backend, (stream, np.zeros(60, np.float32)))
    texts = [str(link) for link in error.waiters]
    assert texts[0].startswith("input stream 0: 34 wavelets of color 3 for PE (0, 0) find no room")
    assert texts[1] == "PE (0, 0): 2 wavelets of color 3 from the west wait for room to E"
    assert texts[2] == "... 6 more routers in the same way"
    assert texts[3] == "PE (7, 0): 2 wavelets of color 3 from the west wait for room to E"
    assert texts[-1] == "PE (8, 0): no operation takes color 3, and it has no data task there"


@backends
def test_a_blocked_data_task(backend):
    p = Program("p")
    with p.task("recv", kind="data", color=3):
        p.nop()
    p.blocked("recv")
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    layout.route(3, None, "W", "R")
    stream = layout.input_stream(0, 0, "W", 3)
    error = stuck(layout, backend, (stream, [1, 2]), launch=False)
    assert "the data task of color 3 is blocked and nothing unblocks it" in str(error)


@backends
def test_a_data_task_waits_for_the_main_thread(backend):
    p = Program("p")
    a, q = p.array("a", 4, "f32"), p.input_queue(1, 4)
    with p.task("recv", kind="data", color=3):
        p.nop()
    with p.task("main"):
        p.fmovs(a, p.fabin(q, 4))
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    layout.route(3, None, "W", "R")
    layout.route(4, None, "N", "R")
    stream = layout.input_stream(0, 0, "W", 3)
    fabric = Fabric(layout, backend)
    fabric.launch("main")
    fabric.step(10)
    fabric.send(stream, [1])
    with pytest.raises(DeadlockError) as info:
        fabric.run(1000)
    entries = fabric.engine.waiters()
    chain, _ = explain(
        [e for e in entries if e["kind"] == "queue"] + [e for e in entries if e["kind"] == "thread"], fabric.spec
    )
    assert str(chain[0]) == "PE (0, 0): 1 wavelet of color 3 in input queue 0 that nothing takes"
    assert "main thread, fmovs, 0 of 4 elements done, waits for a wavelet of color 4" in str(chain[1])
    assert "no PE and no stream sends it" in str(info.value)


@backends
def test_a_blocked_task(backend):
    p = Program("p")
    with p.task("main"):
        p.nop()
    p.blocked("main")
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    error = stuck(layout, backend)
    assert [str(link) for link in error.waiters] == [
        "PE (0, 0): task 'main' is activated and cannot start",
        "PE (0, 0): task 'main' is blocked and nothing unblocks it",
    ]
    assert "Try: unblock('main')" in str(error)


@backends
def test_a_switch_that_nobody_moves(backend):
    layout = Layout(1, 1)
    layout.place(receiver(1), 0, 0)
    layout.route(3, None, "N", "R", switches=[{"rx": "W"}])
    stream = layout.input_stream(0, 0, "W", 3)
    error = stuck(layout, backend, (stream, [1.0]))
    assert "wait for the switch to take this direction" in str(error)
    assert "color 3 is not taken from the west in the present switch position" in str(error)


@backends
def test_a_color_in_teardown(backend):
    layout = Layout(1, 1)
    layout.place(receiver(1), 0, 0)
    layout.route(3, None, "W", "R", teardown=True)
    stream = layout.input_stream(0, 0, "W", 3)
    error = stuck(layout, backend, (stream, [1.0]), launch=False)
    assert "wait in teardown" in str(error)
    assert "a task with id 29 that calls td_exit(3)" in str(error)


def test_an_error_with_a_chain_crosses_processes():
    links = [Wait("a waits for b", {"kind": "end"})]
    error = pickle.loads(pickle.dumps(DeadlockError("stuck", waiters=links, cycle=3)))
    assert [str(link) for link in error.waiters] == ["a waits for b"]


# --- made-up waiters --------------------------------------------------------------------------------------------------


def thread(x, reason, color=None, queue=None, name="main", op="fadds"):
    return {
        "kind": "thread",
        "x": x,
        "y": 0,
        "thread": name,
        "op": op,
        "reason": reason,
        "color": color,
        "queue": queue,
        "done": 1,
        "length": 4,
    }


def router(x, color, port, reason="room", blocked=()):
    return {
        "kind": "router",
        "x": x,
        "y": 0,
        "color": color,
        "port": port,
        "wavelets": 1,
        "reason": reason,
        "blocked": list(blocked),
    }


def row(n, color=3, **more):
    """Return the spec of a row that carries a color from PE 0 to PE n - 1."""
    layout = Layout(n, 1)
    layout.place(sender(4, color), 0, 0)
    layout.place(receiver(4, color), n - 1, 0)
    layout.route(color, (0, 0), "R", "E")
    if n > 2:
        layout.route(color, (1, 0, n - 2, 1), "W", "E", **more)
    layout.route(color, (n - 1, 0), "W", "R")
    return layout.build()


@pytest.mark.parametrize("length", [2, 3, 40, 3000])
def test_a_long_row_of_routers_is_folded_and_followed_fast(length):
    from wse_core.params import machine

    layout = Layout(length, 1, machine("wse2", {"fabric.width": 3000}))
    layout.place(sender(4), 0, 0)
    layout.place(receiver(4), length - 1, 0)
    layout.route(3, (0, 0), "R", "E")
    if length > 2:
        layout.route(3, (1, 0, length - 2, 1), "W", "E")
    layout.route(3, (length - 1, 0), "W", "R")
    entries = [thread(0, "output", 3, 0), router(0, 3, DIR_R, blocked=[DIR_E])]
    entries += [router(x, 3, DIR_W, blocked=[DIR_E if x < length - 1 else DIR_R]) for x in range(1, length)]
    entries += [{"kind": "queue", "x": length - 1, "y": 0, "queue": 0, "color": 3, "wavelets": 8}]
    chain, is_cycle = explain(entries, layout.build())
    assert not is_cycle
    assert len(chain) <= 8
    assert "nothing takes" in str(chain[-2])


def test_threads_of_one_pe_wait_for_each_other():
    spec = row(2)
    entries = [thread(0, "resource"), thread(0, "fifo", name="ut1")]
    chain, is_cycle = explain(entries, spec)
    assert is_cycle
    assert [str(link) for link in chain] == [
        "PE (0, 0): main thread, fadds, 1 of 4 elements done, waits for a DSR or microthread in use",
        "PE (0, 0): microthread 1, fadds, 1 of 4 elements done, waits for a FIFO",
    ]


def test_a_receiver_is_led_back_over_the_routers_that_hold_its_wavelets():
    spec = row(5)
    entries = [thread(4, "input", 3, 0), router(2, 3, DIR_W, "teardown")]
    chain, _ = explain(entries, spec)
    assert [str(link) for link in chain] == [
        "PE (4, 0): main thread, fadds, 1 of 4 elements done, waits for a wavelet of color 3 (input queue 0)",
        "PE (2, 0): 1 wavelet of color 3 from the west wait in teardown",
        "PE (2, 0): color 3 is in teardown and nothing there ends it",
    ]


def test_a_receiver_waits_for_the_thread_at_the_other_end():
    spec = row(5)
    chain, is_cycle = explain([thread(4, "input", 3, 0), thread(0, "input", 9, 1)], spec)
    assert not is_cycle
    assert "PE (0, 0): no route brings color 9 to this PE" in str(chain[-1])
    assert len(chain) == 3


def test_an_operation_whose_color_has_no_route_from_the_ramp():
    chain, _ = explain([thread(0, "output", 7, 2)], row(2))
    assert "the router has no route for color 7 from the ramp" in str(chain[-1])


def test_color_swap_on_the_way_back():
    layout = Layout(3, 1)
    layout.place(sender(4, 0), 0, 0)
    layout.place(receiver(4, 1), 2, 0)
    layout.route(0, (0, 0), "R", "E")
    layout.route(1, (0, 0), "W", "E")
    for color in (0, 1):
        layout.route(color, (1, 0), "W", "E", swap="x")
    layout.route(1, (2, 0), "W", "R")
    layout.route(0, (2, 0), "W", "E")
    layout.output_stream(2, 0, "E", 0)
    chain, _ = explain([thread(2, "input", 1, 0)], layout.build())
    assert str(chain[-1]) == "PE (0, 0): has nothing left to do and sends no more wavelets of color 0"


def test_the_ramp_is_an_input_of_a_color_with_injection():
    layout = Layout(3, 1)
    p = Program("p")
    p.output_queue(0, 3)
    with p.task("main"):
        p.nop()
    layout.place(p, 1, 0)
    layout.place(receiver(4), 2, 0)
    layout.route(3, (1, 0), "W", "E", inject="low")
    layout.route(3, (2, 0), "W", "R")
    chain, _ = explain([thread(2, "input", 3, 0)], layout.build())
    assert str(chain[-1]) == "PE (1, 0): has nothing left to do and sends no more wavelets of color 3"


def test_ce_injection_and_inputs_nothing_blocks():
    spec = row(3)
    chain, _ = explain([router(1, 3, DIR_W, "inject"), router(1, 3, DIR_R, "inject")], spec)
    assert "wait for the other side of CE injection" in str(chain[0])
    chain, _ = explain([router(1, 3, DIR_W, "room")], spec)
    assert str(chain[0]) == "PE (1, 0): 1 wavelet of color 3 from the west wait although nothing blocks them"


def test_nothing_to_explain():
    assert explain([], row(2)) == ([], False)
    machine = SimpleNamespace(waiters=list, lost=list, last_active=-1)
    assert "nothing can move any more" in str(deadlock(machine, row(2)))
