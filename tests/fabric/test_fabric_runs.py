"""Runs of a fabric and their ends: limits, interrupts, progress, and every fault as a typed error."""

from __future__ import annotations

import os
import re
import signal
import threading

import pytest

from fabric.host.fabric import Fabric
from fabric.host.faults import fault_error
from fabric.host.result import RunResult
from fabric.layout.layout import Layout
from fabric.program.program import Program
from tests.fabric import BACKENDS
from tests.fabric.one_program import body, single, spin
from wse_core import _build_info
from wse_core.errors import (
    CycleLimitError,
    MachineFault,
    MemoryLimitError,
    ProgramFault,
    QueueFault,
    RouterFault,
    SramFault,
)

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


# --- runs -------------------------------------------------------------------------------------------------------------


def test_the_result_of_a_run_counts_from_its_start(backend):
    fabric = single(
        body(lambda p: p.fmacs(p.array("a", 8, "f32"), p.unit.variables["a"], p.unit.variables["a"], 2.0)), backend
    )
    first = fabric.run()
    assert isinstance(first, RunResult)
    assert (first.status, first.start, first.macs) == ("complete", 0, 8)
    assert 0 < first.utilisation <= 1
    assert first.seconds(1.0) == pytest.approx(first.cycles * 1e-9)
    fabric.launch("main")
    second = fabric.run()
    assert (second.macs, second.start) == (8, first.cycle)
    assert first.cycles - 1 <= second.cycles <= first.cycles  # the first run also has cycle 0
    assert fabric.run().cycles == 0
    assert int(fabric.counters()["macs"].sum()) == 16
    assert fabric.link_counts() == {}


def test_cycle_limits(backend):
    fabric = single(spin, backend)
    result = fabric.run(100, on_limit="return")
    assert (result.status, result.cycles, fabric.cycle) == ("limit", 100, 100)
    with pytest.raises(CycleLimitError, match=r"cycle 150: still working after 50 cycles\. Try: a larger") as info:
        fabric.run(50)
    assert (info.value.cycle, info.value.limit) == (150, 50)
    assert fabric.step(7) == "limit"
    assert fabric.cycle == 157


def test_pieces_change_nothing(backend, monkeypatch):
    cycles = []
    for seconds in (1e-9, 10.0):
        monkeypatch.setattr("fabric.host.running.PIECE_SECONDS", seconds)
        seen = []
        fabric = single(
            lambda p: body(lambda p: p.fadds(p.array("a", 900, "f32"), p.unit.variables["a"], 1.0))(p), backend
        )
        cycles.append(fabric.run(progress=lambda done, seconds, seen=seen: seen.append(done)).cycles)
        assert seen == sorted(seen)
    assert cycles[0] == cycles[1]


def test_progress_is_printed(backend, capsys, monkeypatch):
    monkeypatch.setattr("fabric.host.running.PIECE_SECONDS", 1e-6)
    single(spin, backend).run(20_000 if backend == "compiled" else 100, progress=True, on_limit="return")
    assert re.search(r"\d+ cycles, \d+\.\d s", capsys.readouterr().out)


@pytest.fixture
def sigint():
    """Python's own handler of Ctrl-C, also where the tests run in the background."""
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, old)


@pytest.mark.skipif(_build_info.MODE == "coverage", reason="the tracer of lines swallows the interrupt")
def test_ctrl_c_comes_between_cycles_and_the_machine_goes_on(backend, sigint):
    fabric, runs = single(spin, backend), threading.Event()

    def interrupt():
        runs.wait()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        fabric.run(progress=lambda *_: runs.set())
    before = fabric.cycle
    assert before > 0
    fabric.step(10)
    assert fabric.cycle == before + 10
    assert int(fabric.counters()["busy"].sum() + fabric.counters()["idle"].sum()) <= fabric.cycle
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# --- faults -----------------------------------------------------------------------------------------------------------


def out_of_range(p):
    a = p.array("a", 4, "f32")
    with p.task("main"):
        p.fmovs(p.mem1d(a, 40, check=False), 1.0)


def misaligned(p):
    p.array("a", 9, "u16")
    with p.task("main"):
        p.ldi(p.r[2], p.unit.variables["a"][1])
        p.ld32(p.r[4], p.r[2])


def mixed_queues(p):
    a = p.array("a", 4, "f32")
    d = p.dsr("dest")
    with p.task("main"):
        p.load(d, a)
        p.dsr_base(d, 3)
        p.fmovs(d, 1.0)


FAULTS = [
    (out_of_range, SramFault, r"PE \(1, 1\), cycle \d+, address 0x[0-9a-f]{4}: access outside the data of the program"),
    (misaligned, SramFault, "32-bit access to an odd address"),
    (mixed_queues, SramFault, r"odd address|outside the data"),
    (body(lambda p: p.trap(7)), ProgramFault, r"PE \(1, 1\), cycle \d+.*trap"),
    (body(lambda p: p.ret()), ProgramFault, "ret"),
]


@pytest.mark.parametrize(("write", "error", "message"), FAULTS, ids=[row[0].__name__ for row in FAULTS])
def test_faults_have_a_type_a_place_and_a_cycle(backend, write, error, message):
    fabric = single(write, backend, at=(1, 1), size=(3, 2))
    with pytest.raises(error, match=message) as info:
        fabric.run(1000)
    assert (info.value.x, info.value.y) == (1, 1)
    assert info.value.cycle < 1000
    assert "main thread:" in str(info.value)
    with pytest.raises(error):  # a faulted machine stays so
        fabric.step()


def test_two_inputs_of_one_color_in_one_cycle(backend):
    send, take = Program("send"), Program("take")
    a, q = send.array("a", 4, "f32"), send.output_queue(0, 3)
    with send.task("main"):
        send.fmovs(send.fabout(q, 4), a)
    b, i = take.array("b", 8, "f32"), take.input_queue(0, 3)
    with take.task("main"):
        take.fmovs(b, take.fabin(i, 8))
    layout = Layout(3, 1)
    layout.place(send, (0, 0, 3, 1, 2, 1))
    layout.place(take, 1, 0)
    layout.route(3, (0, 0), "R", "E")
    layout.route(3, (2, 0), "R", "W")
    layout.route(3, (1, 0), "WE", "R")
    fabric = Fabric(layout, backend)
    fabric.launch("main")
    with pytest.raises(RouterFault, match=r"PE \(1, 0\), cycle \d+, color 3: two inputs of .* in one cycle"):
        fabric.run(1000)


class Stopped:
    """A machine that stopped with a given record."""

    def __init__(self, **record):
        self.fault = {"x": 0, "y": 0, "cycle": 5, "address": -1, "color": -1, "detail": "", **record}

    def snapshot(self):
        return {"pe": {}}


@pytest.mark.parametrize(
    ("record", "error", "message"),
    [
        ({"kind": "queue", "detail": "queue 3 is not bound"}, QueueFault, "cycle 5: queue 3 is not bound"),
        ({"kind": "QueueFault", "color": 4}, QueueFault, "color 4"),
        ({"kind": "SramFault", "address": 7, "detail": "misaligned"}, SramFault, "address 0x0007: misaligned"),
        ({"kind": "router", "color": 2, "detail": "two inputs"}, RouterFault, "color 2: two inputs"),
        ({"kind": "memory"}, MemoryLimitError, "the host has no memory"),
        ({"kind": "weird"}, MachineFault, "weird fault"),
    ],
)
def test_every_kind_of_record_becomes_a_typed_error(backend, record, error, message):
    fabric = single(spin, backend)
    fabric.engine = Stopped(**record)
    found = fault_error(fabric.engine, fabric.spec)
    assert isinstance(found, error)
    assert re.search(message, str(found))
