"""Properties of the compiled engine alone: accounting, conservation, determinism, time, memory."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fabric import Fabric
from fabric.engine.engine import Engine
from fabric.layout.layout import Layout
from fabric.program.program import Program
from tests.bench import workloads
from tests.compare import cases, difference, seeded
from tests.examples import SLOW_BUILD, examples
from wse_core import _build_info
from wse_core import image as im
from wse_core.errors import ConfigError, SramFault
from wse_core.params import machine


def started(case):
    return case.spec, case.start(Engine(case.spec))


@examples(60)
@given(cases(), st.integers(1, 300))
def test_every_cycle_is_busy_stalled_or_idle(case, cycles):
    spec, engine = started(case)
    engine.run(cycles)
    counters = engine.counters()
    total = sum(v for name, v in counters.items() if name in ("busy", "idle") or name.startswith("stall"))
    has_program = spec.program_index >= 0
    assert (total[has_program] == engine.cycle).all()
    assert (total[~has_program] == 0).all()
    for rows in (None, (0, 1), (spec.height // 2, spec.height)):
        low, high = rows or (0, spec.height)
        assert engine.totals(rows) == {name: int(values[low:high].sum()) for name, values in counters.items()}


@examples(80)
@given(cases(plain=True), st.integers(1, 300))
@example(seeded(4562, plain=True), 100)  # its program once changed a route, which a plain machine must not
def test_wavelets_are_conserved(case, cycles):
    """What left the routers on one side of a link is what left the queue on its other side plus what is still in it."""
    spec, engine = started(case)
    if engine.run(cycles) == "fault":
        return
    moved, snapshot = engine.link_counts(), engine.snapshot()
    to_ce = dict.fromkeys(snapshot["pe"], 0)
    for color, table in spec.routes.items():
        for y in range(spec.height):
            for x in range(spec.width):
                gone = int(moved[color][y, x].sum())
                for d in range(4):
                    nx, ny = x + im.STEP[d][0], y + im.STEP[d][1]
                    if not int(table["tx"][y, x, 0]) >> d & 1 or not (0 <= nx < spec.width and 0 <= ny < spec.height):
                        continue
                    port = d ^ 1
                    held = len(snapshot["router"][nx, ny].get(color, {"queues": {}})["queues"].get(port, ()))
                    assert gone == int(moved[color][ny, nx, port]) + held
                if int(table["tx"][y, x, 0]) >> im.DIR_R & 1 and (x, y) in to_ce:
                    to_ce[x, y] += gone
    for k, (x, y, direction, _color) in enumerate(spec.inputs):
        if direction == im.DIR_R:
            to_ce[x, y] += len(engine.entered(k))
    for place, arrived in to_ce.items():
        pe = snapshot["pe"][place]
        assert arrived == pe["counters"]["received"] + sum(map(len, pe["inq"].values()))


@examples(30)
@given(cases())
def test_runs_are_deterministic(case):
    snapshots = []
    for _ in range(2):
        spec, engine = started(case)
        status = engine.run(300)
        snapshots.append(
            (status, engine.snapshot(), [list(map(list, engine.pop_output(k))) for k in range(len(spec.outputs))])
        )
    assert difference(*snapshots) is None


def two_pes(wait_cycles, n=3, half="f16"):
    """PE 0 waits, then sends n words to PE 1, `rounds` times; returns the engine and the images."""
    m = machine()
    sender = Program("sender", m, half=half)
    a = sender.array("a", n, "f32", init=np.arange(1, n + 1))
    sender.output_queue(2, 0)
    with sender.task("main"):
        outer = sender.reg16()
        divisor = sender.reg32()
        sender.ldi32(divisor, 0x3F800000)
        with sender.loop(2):
            sender.ldi(outer, max(1, wait_cycles // (65535 * 57)))
            top = sender.label()
            with sender.loop(65535):
                sender.fdivs(divisor, divisor, divisor)
            sender.sub16(outer, outer, 1)
            sender.branch("ne", outer, 0, top)
            sender.fmovs(sender.fabout(0, n), sender.mem1d(a))
    sender.start("main")
    receiver = Program("receiver", m)
    b = receiver.array("b", 2 * n, "f32")
    receiver.input_queue(2, 0)
    with receiver.task("main"):
        receiver.fmovs(receiver.mem1d(b), receiver.fabin(0, 2 * n))
    receiver.start("main")
    layout = Layout(2, 1, m)
    layout.place(sender, 0, 0)
    layout.place(receiver, 1, 0)
    layout.route(0, (0, 0), rx="R", tx="E")
    layout.route(0, (1, 0), rx="W", tx="R")
    return Engine(layout.build()), receiver.assemble()


@pytest.mark.skipif(_build_info.MODE == "coverage", reason="tens of millions of instructions")
def test_stamps_survive_more_cycles_than_they_can_count():
    """Queue words carry 29 bits of their cycle; two transfers lie more than 2^29 cycles apart."""
    engine, image = two_pes(2**30 + 2**29)
    assert engine.run(10**11) == "complete"
    assert engine.cycle > 3 * 2**30
    words = engine.read_words(1, 0, image.symbols["b"].address, 12).view(np.float32)
    assert words.tolist() == [1, 2, 3, 1, 2, 3]


def test_time_jumps_over_idle_cycles():
    """A machine in which one PE computes for very many cycles is looked at much less often."""
    cycles = 10**6 if SLOW_BUILD else 10**8
    engine, _ = two_pes(cycles)
    assert engine.run(10**11) == "complete"
    assert engine.cycle > cycles
    assert engine.events < engine.cycle / 10


def test_host_access_is_checked():
    engine, image = two_pes(0)
    with pytest.raises(ConfigError, match="outside"):
        engine.read_words(2, 0, 0, 1)
    with pytest.raises(SramFault, match="declares data"):
        engine.read_words(1, 0, 0, 1)
    with pytest.raises(SramFault):
        engine.write_words(1, 0, image.footprint - 1, np.zeros(2, np.uint16))
    with pytest.raises(ConfigError, match="not bound"):
        engine.activate(3, 0, 0, 1, 1)


MEMORY = """
import resource, sys
from fabric import Fabric
from fabric.engine.engine import Engine
from fabric.layout.layout import Layout
from fabric.program.program import Program
from wse_core.params import machine

size = int(sys.argv[1])
m = machine("wse2", {"fabric.width": 2000, "fabric.height": 2000})
p = Program("idle", m)
p.array("a", 1000, "f32")
p.input_queue(2, 0)
p.output_queue(2, 0)
with p.task("main"):
    p.nop()
layout = Layout(size, size, m)
layout.place(p, 0, 0, size, size)
layout.route(0, (0, 0, size, size), rx="R", tx="R")
spec = layout.build()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
engine = Engine(spec)
engine.run(1000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_idle_pes_take_no_memory_of_their_own():
    """At most 128 bytes of resident memory per idle PE, SRAM not counted (nothing of it is touched)."""
    size = 600
    done = subprocess.run([sys.executable, "-c", MEMORY, str(size)], capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 / size**2 <= 128


def test_nobody_changes_a_machine_that_runs_in_another_thread():
    """A run does not hold the GIL; what would change the machine meanwhile is refused, and the run is not disturbed."""

    def start():
        work = workloads.broadcast(64, 64, 30 if SLOW_BUILD else 3000)
        engine = Engine(work.spec)
        work.start(engine)
        return engine

    quiet, refused = start(), []
    quiet.run(1 << 40)
    for _ in range(50):  # a busy host may let a whole run pass before this thread comes to its turn
        disturbed = start()
        thread = threading.Thread(target=disturbed.run, args=(1 << 40,))
        thread.start()
        while thread.is_alive() and len(refused) < 5:
            try:
                disturbed.trace(None)
            except ConfigError as error:
                refused.append(str(error))
        thread.join()
        assert disturbed.snapshot() == quiet.snapshot()
        if len(refused) >= 3:
            break
    assert len(refused) >= 3
    assert all("while the machine runs in another thread" in text for text in refused)


@pytest.mark.parametrize("delay", range(4))
def test_a_color_that_lost_arbitration_may_lose_its_route(delay):
    """In the cycle in which it lost, its route is written so that it is not taken from there any more."""
    results = []
    for backend in ("compiled", "reference"):
        p = Program("rewrites")
        p.input_queue(0, 6)
        with p.task("main"):
            for _ in range(delay):
                p.nop()
            for side in "NWSW" * 6:
                p.route(5, rx=side, tx="E")
        p.start("main")
        layout = Layout(3, 1)
        layout.place(p, 1, 0)
        for color in (4, 5):
            layout.route(color, (0, 0, 3, 1), rx="W", tx="E")
        ins = [layout.input_stream(0, 0, "W", color) for color in (4, 5)]
        outs = [layout.output_stream(2, 0, "E", color) for color in (4, 5)]
        fabric = Fabric(layout, backend=backend)
        for stream in ins:
            fabric.send(stream, np.arange(200, dtype=np.uint32))
        fabric.run()
        results.append([fabric.receive(stream).cycles.tolist() for stream in outs])
    assert results[0] == results[1]
    assert [len(cycles) for cycles in results[0]] == [200, 200]
