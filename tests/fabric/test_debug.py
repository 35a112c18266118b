"""Stop, look, change, go back: on both machines, with the same cycles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.engine.engine import Engine
from fabric.host.debug import Debugger, replay
from fabric.host.fabric import Fabric
from fabric.kernels.collectives.chain import chain_layout
from fabric.layout.layout import Layout
from fabric.program.program import Program
from tests.bench import workloads
from tests.compare import cases, difference, state_of
from tests.examples import examples
from tests.random_machines import random_spec
from tests.random_traffic import random_traffic
from wse_core.errors import ConfigError, LayoutError
from wse_core.params import machine
from wse_core.reference.machine import ReferenceMachine

BACKENDS = ["compiled", "reference"]


def chain(backend):
    fabric = Fabric(chain_layout(3, 5, "f32", "f32", machine("wse2")), backend)
    fabric.write("x", np.arange(15, dtype=np.float32).reshape(1, 3, 5))
    fabric.launch("main")
    return Debugger(fabric)


@pytest.mark.parametrize("make", [Engine, ReferenceMachine])
@pytest.mark.parametrize("draw", [random_spec, random_traffic])
@examples(20)
@given(data=st.data(), first=st.integers(1, 60), second=st.integers(1, 60))
def test_a_state_is_restored_bit_for_bit(make, draw, data, first, second):
    case = data.draw(cases(draw))
    spec, m = case.spec, case.start(make(case.spec))
    m.run(first)
    saved = m.save_state()
    results = []
    for _ in range(2):
        status = m.run(first + second)
        results.append(
            (status, state_of(m, status), [[list(a) for a in m.pop_output(k)] for k in range(len(spec.outputs))])
        )
        m.run(first + second + 20)
        m.restore_state(saved)
    assert results[0][0] == results[1][0]
    assert difference(results[0][1], results[1][1]) is None
    assert results[0][2] == results[1][2]


def test_a_state_of_megabytes_is_restored():
    """Memory of PEs lies in large pages then, of which a saved state holds what is not zero."""
    work = workloads.chain_reduce(64, 32, 600)
    m = Engine(work.spec)
    work.start(m)
    m.run(300)
    saved = m.save_state()
    assert 2**20 < sum(len(data) for _, _, data in saved["parts"]) < 2**23
    for _ in range(2):
        work.finish(m, m.run(work.limit))  # sums, hops and cycles
        m.restore_state(saved)
    assert m.cycle == 300
    now = m.save_state()
    of_pes = [[part for part in state["parts"] if part[0]] for state in (now, saved)]  # map 0 holds addresses
    assert of_pes[0] == of_pes[1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_break_at_a_task_and_at_a_color(backend):
    debugger = chain(backend)
    assert debugger.until_task("main", 1, 0)
    assert debugger.cycle == 1
    assert debugger.until_color(0, 2, 0, "inject")
    assert int(debugger.event["data"]) == np.float32(10).view(np.uint32)
    sent = debugger.cycle
    assert debugger.until_color(0, 1, 0, "take")
    assert debugger.cycle == sent + 6
    assert not debugger.until_task("main", 1, 0)
    assert debugger.event is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_break_at_a_change_then_poke_and_go_back(backend):
    debugger = chain(backend)
    saved = debugger.snapshot()
    assert debugger.until_change("x", 0, 0)
    changed = debugger.cycle
    assert debugger.fabric.read("x", 0, 0)[0, 0].tolist() == [15, 1, 2, 3, 4]
    debugger.fabric.write("x", [100, 1, 2, 3, 4], 0, 0)
    debugger.step(10)
    assert debugger.fabric.read("x", 0, 0)[0, 0].tolist() == [100, 18, 21, 24, 27]
    debugger.restore(saved)
    assert debugger.cycle == 0
    assert debugger.until_change("x", 0, 0)
    assert debugger.cycle == changed
    debugger.step(10)
    assert debugger.fabric.read("x", 0, 0)[0, 0].tolist() == [15, 18, 21, 24, 27]
    assert not debugger.until_change("x", 0, 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_break_at_an_address(backend):
    debugger = chain(backend)
    saved, var = debugger.snapshot(), debugger.fabric.spec.programs[0].symbols["x"]
    assert debugger.until_change("x", 0, 0)
    by_name = debugger.cycle
    debugger.restore(saved)
    address = var.address + 1  # the upper half of the first f32
    assert debugger.until_change(address, 0, 0)
    assert debugger.cycle == by_name
    assert not debugger.until_change(address, 0, 0)


def faulty():
    p = Program("faulty")
    a = p.array("a", 4, "f32")
    with p.task("main"):
        p.fmovs(p.mem1d(a, 40, check=False), 1.0)
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    return layout


@pytest.mark.parametrize("backend", BACKENDS)
def test_break_at_a_fault(backend):
    debugger = Debugger(Fabric(faulty(), backend))
    debugger.fabric.launch("main")
    found = debugger.until_fault()
    assert found["kind"] == "sram_range"
    assert chain(backend).until_fault() is None


def echo(backend):
    layout = Layout(1, 1)
    layout.route(4, rx="W", tx="E")
    stream, out = layout.input_stream(0, 0, "W", 4), layout.output_stream(0, 0, "E", 4)
    return Fabric(layout, backend), stream, out


@pytest.mark.parametrize("backend", BACKENDS)
def test_edge_traffic_is_played_again(backend):
    fabric, stream, out = echo(backend)
    found = []
    fabric.engine.trace(lambda events, clock: found.append(events))
    fabric.send(stream, np.arange(7, dtype=np.uint32), control=[False, False, True, False, False, False, True])
    fabric.run()
    fabric.engine.trace(None)
    first = fabric.receive(out)
    again, _, out = echo("compiled")
    assert replay(again, np.concatenate(found)) == 7
    again.run()
    second = again.receive(out)
    assert np.array_equal(first.payload, second.payload)
    assert np.array_equal(first.control, second.control)
    assert np.array_equal(first.cycles, second.cycles)
    with pytest.raises(ConfigError, match="no input stream"):
        replay(Fabric(faulty()), np.concatenate(found))


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_runs_report_behind_a_snapshot_counts_from_there(backend):
    debugger = chain(backend)
    debugger.step(20)
    saved = debugger.snapshot()
    first = debugger.fabric.run()
    for _ in range(2):
        debugger.restore(saved)
        again = debugger.fabric.run()
        assert (again.cycles, again.wavelet_hops, again.counters) == (first.cycles, first.wavelet_hops, first.counters)
    assert first.wavelet_hops > 0
    debugger.restore(saved)
    assert debugger.fabric.run(max_cycles=1, on_limit="return").wavelet_hops >= 0
    other = chain(backend)
    with pytest.raises(ConfigError, match="of another fabric"):  # although it has the same layout
        other.restore(saved)
    assert other.fabric.run().wavelet_hops >= first.wavelet_hops


def test_what_does_not_exist():
    with pytest.raises(LayoutError, match="no program has a task"):
        chain("reference").until_task("nothing")
    with pytest.raises(ConfigError, match="both"):
        chain("reference").until_task("main", x=1)
    state = chain("compiled").snapshot()
    with pytest.raises(ConfigError, match="another fabric"):
        Debugger(Fabric(faulty())).restore(state)
