"""Measured cycles by source line: of small programs whose cycles are known, and against their prices."""

from __future__ import annotations

import json

import pytest

import fabric
from fabric import Fabric, Layout, Program, record
from harness.cli import main as cli
from traces.line_cycles import line_cycles
from traces.trace import Trace
from wse_core.errors import TraceError
from wse_core.params import machine


def recorded(path, layout, level="events"):
    """Run a layout and record it."""
    with record(path, level):
        found = Fabric(layout)
        found.launch("main")
        found.run()
    return path


def two(m):
    """Return the layout of docs/timing.md: one PE sends a word, its neighbour stores it."""
    send, receive = Program("send", m), Program("receive", m)
    word = send.array("word", 1, "f32", [2.5])
    send.output_queue(0, 3)
    with send.task("main"):
        send.nop()  # so that both operations have code words of their own
        send.fmovs(send.fabout(3, 1), word)
    result = receive.array("result", 1, "f32")
    receive.input_queue(0, 3)
    with receive.task("main"):
        receive.fmovs(result, receive.fabin(3, 1))
    layout = Layout(2, 1, m)
    layout.place(send, 0, 0)
    layout.place(receive, 1, 0)
    layout.route(3, (0, 0), rx="R", tx="E")
    layout.route(3, (1, 0), rx="W", tx="R")
    return layout


def lines_of(path, **chosen):
    """Return the rows of a run by line."""
    with Trace.open(path) as trace:
        return {one.line: one for one in line_cycles(trace, **chosen)}


@pytest.mark.parametrize("numbers", [{}, {"ramp.in": 6, "ce.dsr_load": 2}])
def test_a_receiver_waits_for_what_its_sender_takes_longer(tmp_path, numbers):
    m = machine("wse2", numbers)
    found = lines_of(recorded(tmp_path / "two.h5", two(m)))
    sends, takes = (next(one for line, one in found.items() if line.endswith(f":{at}")) for at in (34, 38))
    way = m["ramp.execute"] + m["ramp.out"] + m["router.hop"] + m["ramp.in"]
    first = 1 + m["vec.start"]  # from the issue; the sender's is a nop later
    assert (sends.count, sends.cycles, sends.waiting) == (1, first + 1, 0)
    assert (takes.count, takes.cycles, takes.waiting) == (1, 1 + first + way + 1, 1 + way)
    rest = found["other instructions of main"]
    before = m["task.start"] + 2 * m["ce.dsr_load"]
    assert (rest.count, rest.cycles) == (2, 2 * (before + 1 + m["vec.drain"]) + 1)
    east = lines_of(tmp_path / "two.h5", region=(1, 0, 1, 1))
    assert takes in east.values()
    assert sends not in east.values()


def test_operations_cost_what_their_price_says(tmp_path):
    """Of one PE: conflicts and turns of loops included, microthreads beside the main thread."""
    p = Program("loops")
    a, b = p.array("a", 40, "f32"), p.array("b", 40, "f32", bank=0)
    fifo = p.fifo(p.array("store", 40, "f32"), 40)
    with p.task("main"):
        with p.loop(3):
            p.fmuls(a, a, b)
        p.fmovs(fifo, a, async_=p.async_(ut=1))
        p.fadds(b, b, b)
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    found = lines_of(recorded(tmp_path / "loops.h5", layout))
    priced = fabric.price(p).tasks["main"].lines
    rows = {line.rpartition(":")[2]: one for line, one in found.items() if ":" in line}
    product, pushed, added = (rows[str(at)] for at in sorted(map(int, rows)))
    m = machine()
    assert (product.count, product.beside) == (3, 0)
    steps = 39 * (1 + m["mem.conflict_cycles"]) + 1  # to the cycle of the last one
    assert product.cycles == 3 * (1 + m["vec.start"] + steps)
    assert product.conflicts == 3 * 40 * m["mem.conflict_cycles"]
    assert (pushed.cycles, pushed.count) == (0, 1)
    assert pushed.beside >= 1 + m["vec.start"] + 40
    assert added.count == 1
    total = sum(one.cycles for one in found.values())
    assert total == sum(priced.values())  # the task, to the cycle


def test_a_microthread_waits_for_itself_behind_an_operation_of_the_main_thread(tmp_path):
    send, receive = Program("send"), Program("receive")
    word = send.array("word", 1, "f32", [2.5])
    send.output_queue(0, 3)
    with send.task("main"):
        with send.loop(30):
            send.nop()
        send.fmovs(send.fabout(3, 1), word)
    result, numbers = receive.array("result", 1, "f32"), receive.array("numbers", 8, "f32")
    receive.input_queue(0, 3)
    with receive.task("main"):
        receive.fmovs(result, receive.fabin(3, 1), async_=receive.async_())
        receive.fadds(numbers, numbers, numbers)
    layout = Layout(2, 1)
    layout.place(send, 0, 0)
    layout.place(receive, 1, 0)
    layout.route(3, (0, 0), rx="R", tx="E")
    layout.route(3, (1, 0), rx="W", tx="R")
    found = lines_of(recorded(tmp_path / "late.h5", layout), region=(1, 0, 1, 1))
    taken, added = (found[line] for line in sorted(line for line in found if ":" in line))
    assert (added.count, added.beside, added.waiting) == (1, 0, 0)
    assert (taken.count, taken.cycles) == (1, 0)
    assert taken.waiting > 30


def test_the_command_prints_what_the_module_says(tmp_path, capsys):
    path = recorded(tmp_path / "two.h5", two(machine()))
    assert cli.main(["view", str(path), "--profile", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["lines"]
    assert {one["line"]: one["cycles"] for one in rows} == {k: one.cycles for k, one in lines_of(path).items()}
    assert [one["cycles"] for one in rows] == sorted((one["cycles"] for one in rows), reverse=True)
    assert cli.main(["view", str(path), "--profile"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["source", "line", "count", "cycles", "beside", "waiting", "conflicts"]
    assert len(out) == len(rows) + 1
    assert cli.main(["report", str(path), "--static", "--out", str(tmp_path / "two.html")]) == 0
    page = (tmp_path / "two.html").read_text()
    assert "Measured cycles by source line" in page
    assert "test_line_cycles.py:38" in page
    assert cli.main(["view", str(path), "--profile", "--region", "5,5,1,1"]) == 2


def test_a_run_without_events_says_what_is_missing(tmp_path):
    path = recorded(tmp_path / "two.h5", two(machine()), "counters")
    with Trace.open(path) as trace, pytest.raises(TraceError, match="--trace events"):
        line_cycles(trace)


def test_a_window_leaves_out_what_began_before(tmp_path):
    path = recorded(tmp_path / "two.h5", two(machine()))
    assert not any(":" in line for line in lines_of(path, cycles=(17, 1000)))
