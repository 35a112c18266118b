"""Control tasks are recorded under their own ids, and called by their names wherever a task has one."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.asm import control
from fabric.host.debug import Debugger
from fabric.host.fabric import Fabric
from fabric.host.recording import names_of
from fabric.layout.layout import Layout
from fabric.program.program import Program
from traces.event_log import recording
from traces.export.formats import export
from traces.run_format import RunMeta
from traces.state import RegionStates
from traces.terminal import task_table
from traces.trace import Trace
from traces.writer import RunWriter
from wse_core.events import TraceFilter

BACKENDS = ("compiled", "reference")
SENT = ("weight", "forward", "loss", "end")  # what the wavelets below start, in their order


def prepared(backend):
    """Return a fabric whose data task 5 and whose control tasks 5 and 40 all come by color 5; wavelets wait for it."""
    p = Program("p")
    with p.task("weight", kind="data", color=5):
        pass
    with p.task("forward", kind="control", id=5):
        pass
    with p.task("loss", kind="control", id=40):
        p.activate("end")
    with p.task("end"):
        pass
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    layout.route(5, None, "N", "R")
    source = layout.input_stream(0, 0, "N", 5)
    fabric = Fabric(layout, backend)
    fabric.send(source, [1])
    for task in (5, 40):
        fabric.send(source, control.single(task=task, data=3), control=True)
    return fabric


@pytest.fixture(params=BACKENDS)
def trace(request, tmp_path):
    fabric, path = prepared(request.param), tmp_path / "run.h5"
    with recording(fabric.engine, path, RunMeta(), TraceFilter(), names_of(fabric.spec)) as log:
        fabric.run()
    with RunWriter(path, RunMeta(machine=dict(fabric.machine))) as writer:
        log.finish(writer)
    log.remove()
    with Trace.open(path) as opened:
        yield opened


def test_a_start_says_the_task_and_its_kind(trace):
    starts = trace.events(kinds=("task_start",))
    assert starts["aux"].tolist()[:3] == [5, 5, 40]
    assert starts["flags"].tolist() == [0, 1, 1, 0]
    ends = trace.events(kinds=("task_end",))
    assert ends["aux"].tolist() == starts["aux"].tolist()
    assert ends["flags"].tolist() == starts["flags"].tolist()
    assert trace.names["control_tasks"] == {"5": "forward", "40": "loss"}
    assert trace.names["tasks"]["5"] == "weight"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_task_that_runs_when_a_trace_begins_is_known_at_its_end(backend):
    fabric, heard = prepared(backend), []
    debugger = Debugger(fabric)
    assert debugger.until_task("loss")
    fabric.engine.trace(lambda events, clock: heard.extend(events), TraceFilter(("task_end",)))
    fabric.run()
    fabric.engine.trace(None)
    assert next((int(event["aux"]), int(event["flags"])) for event in heard) == (40, 1)


def test_every_view_has_the_names(trace, tmp_path):
    listed = task_table(RegionStates(trace, (0, 0, 1, 1)), 0, 0, trace.names)[1:]
    assert [line.split()[0] for line in listed] == list(SENT)
    events = trace.events()
    export(trace, "log", tmp_path / "t.log", events)
    text = (tmp_path / "t.log").read_text()
    assert [word for line in text.splitlines() for word in line.split() if word.startswith("START_")] == [
        f"START_{name.upper()}" for name in SENT
    ]


def test_a_number_without_a_name_says_what_it_is(trace):
    trace.names = {}
    listed = task_table(RegionStates(trace, (0, 0, 1, 1)), 0, 0, trace.names)[1:]
    assert "control task 40" in listed[2]
    assert listed[0].startswith("task 5 ")


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_debugger_stops_at_a_control_task(backend):
    debugger = Debugger(prepared(backend))
    assert debugger.until_task("forward")
    assert (int(debugger.event["aux"]), int(debugger.event["flags"])) == (5, 1)
    assert debugger.until_task("loss")
    after = Debugger(prepared(backend))
    assert after.until_task(5)  # an id is that of the local or data task
    assert int(after.event["flags"]) == 0
    assert after.cycle < debugger.cycle
    assert not after.until_task(5)


def test_spans_of_a_control_task_end(trace):
    tasks = RegionStates(trace, (0, 0, 1, 1)).tasks
    assert len(tasks) == len(SENT)
    assert np.all(tasks["end"] < np.iinfo(np.uint64).max)
    assert np.all(tasks["end"][:-1] <= tasks["begin"][1:])


def test_a_loop_at_the_beginning_of_a_task_does_not_name_it():
    p = Program("p")
    with p.task("weight", kind="control", id=7):
        again = p.label()
        p.jump(again)
    with p.task("main"), p.loop(3):
        p.nop()
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    names = names_of(layout.build())
    assert names["control_tasks"] == {"7": "weight"}
    assert list(names["tasks"].values()) == ["main"]
