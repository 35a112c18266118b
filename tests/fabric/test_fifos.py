"""Tasks that a FIFO activates: only when a step makes up for what another one lacked; values and cycles by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fabric import Fabric, Layout, Program, machine
from tests.fabric import BACKENDS

INTO, OUT = 2, 3
WSE2 = machine()
ENTERS = WSE2["router.hop"] + WSE2["ramp.in"]
"""Cycles from a word's entry at the edge to the step that takes it."""
STARTS = 1 + WSE2["task.start"]
"""Cycles from the step that activates a task to its first instruction, if the main thread is idle."""

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


def noting(p, name="note"):
    """Write a task that notes in which cycles it runs; return its name."""
    count, cycles = p.scalar(f"{name}_count", "u16"), p.array(f"{name}_cycles", 32, "u16")
    with p.task(name):
        stamp, n = p.regs(3), p.reg16()
        p.tsc(stamp)
        p.ld16(n, count)
        p.st16(stamp[0], cycles, index=n)
        p.add16(n, n, 1)
        p.st16(n, count)
    return name


def noted(fabric, name="note"):
    """Return the cycles that the task has noted."""
    return fabric.read(f"{name}_cycles").ravel()[: fabric.read(f"{name}_count").item()].tolist()


def run(p, backend, words=(), at=None):
    """Run the program on one PE between a stream of `words` and one that takes all; return (fabric, values, cycles)."""
    layout = Layout(1, 1, p.machine)
    layout.place(p, 0, 0)
    layout.route(INTO, None, "W", "R")
    layout.route(OUT, None, "R", "E")
    source, sink = layout.input_stream(0, 0, "W", INTO), layout.output_stream(0, 0, "E", OUT)
    fabric = Fabric(layout, backend)
    if len(words):
        fabric.send(source, np.asarray(words, np.uint32), at=at)
    fabric.launch("main")
    fabric.run()
    return fabric, fabric.receive(sink).payload.tolist(), fabric.entered(source).tolist()


def test_a_push_that_somebody_waits_for(backend):
    p = Program("p")
    fifo = p.fifo(p.array("storage", 4, "u32"), activate_push=noting(p))
    into, out = p.input_queue(1, INTO), p.output_queue(2, OUT)
    with p.task("main"):
        p.mov32(fifo, p.fabin(into, 6), async_=True)
        p.mov32(p.fabout(out, 6), fifo, async_=p.async_(priority="low"))
    # Alone, a word is waited for. Of words that come one by one, the first is pushed and then, as pushing has the
    # higher priority, so are the others: the FIFO is never empty while they come.
    fabric, values, entered = run(p, backend, range(6), at=[100, 150, 151, 152, 200, 300])
    assert values == list(range(6))
    assert noted(fabric) == [cycle + ENTERS + STARTS for cycle in (100, 150, 200, 300)]
    assert entered == [100, 150, 151, 152, 200, 300]


def takes_one(p, fifo, out):
    """Write a data task of `INTO` that takes one element from a FIFO and sends it on."""
    with p.task("take", "data", color=INTO):
        value = p.reg32()
        p.mov32(value, fifo)
        p.mov32(p.fabout(out, 1), value)


def test_a_pop_that_somebody_waits_for(backend):
    p = Program("p")
    storage = p.array("storage", 4, "u32")
    fifo = p.fifo(storage, 1, activate_pop=noting(p))
    given = p.array("given", 8, "u32", range(10, 18))
    _, out = p.input_queue(1, INTO), p.output_queue(2, OUT)
    takes_one(p, fifo, out)
    with p.task("main"):
        p.mov32(fifo, given, async_=p.async_(ut=5))
    calls = range(100, 900, 100)
    fabric, values, entered = run(p, backend, range(8), at=calls)
    assert values == list(range(10, 18))
    # Of 8 elements 4 find no room at first: the first 4 pops make some.  Of the task that takes, all but the start and
    # two loads of DSRs is issue and step of two operations; the push that found no room goes in between.
    over = WSE2["task.start"] + 2 * WSE2["ce.dsr_load"] + 5
    assert noted(fabric) == [call + ENTERS + over + STARTS for call in calls[:4]]
    assert entered == list(calls)


@pytest.mark.parametrize("size", [3, 4, 6])
def test_what_nobody_waits_for_activates_nothing(backend, size):
    p = Program("p")
    note = noting(p)
    fifo = p.fifo(p.array("storage", 6, "u32"), activate_push=note, activate_pop=note)
    out, into = p.output_queue(2, OUT), p.input_queue(1, INTO)
    with p.task("main"):
        p.mov32(fifo, p.fabin(into, size), async_=p.async_(activate="drain"))
    with p.task("drain"):
        p.mov32(p.fabout(out, size), fifo)
    fabric, values, _ = run(p, backend, range(size))
    assert values == list(range(size))
    assert noted(fabric) == []


def test_an_operation_that_a_fifo_has_ended_counts_as_waiting(backend):
    p = Program("p")
    storage = p.array("storage", 4, "u32")
    note = noting(p)
    given = p.array("given", 6, "u32", range(10, 16))
    fifo = p.fifo(storage, 1, note, note, terminate=True)
    _, out = p.input_queue(1, INTO), p.output_queue(2, OUT)
    takes_one(p, fifo, out)
    with p.task("main"):
        p.mov32(fifo, given)
    calls = range(100, 500, 100)
    fabric, values, _ = run(p, backend, range(4), at=calls)
    assert values == [10, 11, 12, 13]
    # 6 do not fit, so the operation has ended; one pop is told, the next three find nobody who lacked room.
    assert len(noted(fabric)) == 1
    assert calls[0] < noted(fabric)[0] < calls[1]


@pytest.mark.parametrize("packed", [False, True])
def test_an_event_ends_when_there_is_enough_for_the_step(backend, packed):
    p = Program("p")
    fifo = p.fifo(p.array("storage", 4, "u16"), activate_push=noting(p))
    into, out = p.input_queue(1, INTO), p.output_queue(2, OUT)
    with p.task("main"):
        p.mov16(fifo, p.fabin(into, 4, packed=False), async_=True)
        p.mov16(p.fabout(out, 4, packed=packed), fifo, async_=True)
    calls = (100, 200, 300, 400)
    fabric, values, _ = run(p, backend, (1, 2, 3, 4), at=calls)
    assert values == ([0x20001, 0x40003] if packed else [1, 2, 3, 4])
    assert noted(fabric) == [call + ENTERS + STARTS for call in (calls[1::2] if packed else calls)]


def test_two_that_wait_at_one_fifo(backend):
    p = Program("p")
    storage = p.array("storage", 4, "u32")
    fifo = p.fifo(storage, activate_push=noting(p))
    into, out = p.input_queue(1, INTO), p.output_queue(2, OUT)
    mine = p.array("mine", 2, "u32")
    with p.task("main"):
        p.mov32(mine, fifo, async_=p.async_(ut=5))
        p.mov32(p.fabout(out, 2), fifo, async_=True)
        p.mov32(fifo, p.fabin(into, 4), async_=p.async_(priority="high"))
    calls = (100, 200, 300, 400)
    fabric, values, _ = run(p, backend, (1, 2, 3, 4), at=calls)
    assert sorted([*values, *fabric.read("mine").ravel().tolist()]) == [1, 2, 3, 4]
    assert noted(fabric) == [call + ENTERS + STARTS for call in calls]


def takes_too_early(backend, start):
    """Return the last cycle of entry for which a push does not count as waited for: the other has yet to look."""
    m = machine("wse2", {"vec.start": start})
    for cycle in range(100):
        p = Program("p", m)
        fifo = p.fifo(p.array("storage", 4, "u32"), activate_push=noting(p))
        into, out = p.input_queue(1, INTO), p.output_queue(2, OUT)
        with p.task("main"):
            p.mov32(fifo, p.fabin(into, 1), async_=True)
            for _ in range(40):
                p.nop()
            p.mov32(p.fabout(out, 1), fifo)
        fabric, values, _ = run(p, backend, [7], at=cycle)
        assert values == [7]
        if noted(fabric):
            return cycle
    raise AssertionError("no push is ever waited for")


def test_an_operation_waits_from_its_first_step_on(backend):
    assert takes_too_early(backend, 5) - takes_too_early(backend, 0) == 5
