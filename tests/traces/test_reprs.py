"""What a notebook shows of a trace and of a counter is one short line."""

from __future__ import annotations

from harness.cli import main as cli
from traces.trace import Trace


def test_one_line_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["kernel", "ping", "--out", "run.h5", "--json", "--trace", "full"]) == 0
    with Trace.open("run.h5") as trace:
        counter = trace.files[0].counter("busy")
        height, width = counter.values.shape[1:]
        assert repr(counter) == f"Counter('busy', pe, 1 x {height} x {width} cycles)"
        assert trace.committed > 0
        wanted = f"{trace.committed} events before cycle {trace.clock}, {len(trace.marks)} marks"
        assert repr(trace) == f"Trace('run.h5', {wanted})"
    assert cli.main(["kernel", "ping", "--out", "plain.h5", "--json"]) == 0
    with Trace.open("plain.h5") as trace:
        assert repr(trace) == "Trace('plain.h5', no events, 0 marks)"
