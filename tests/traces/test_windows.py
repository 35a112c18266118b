"""Counters of windows add up to the counters of the run, and to the events of each window."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from traces.heatmap import plane
from traces.trace import Trace
from traces.windows import Windows
from wse_core.errors import ConfigError

CASES = [("chain_reduce", ["pes=6", "n=40"], 16), ("gemm", ["p=3", "m=6", "k=6", "n=6"], 50), ("ping", [], 7)]


@pytest.fixture(scope="module", params=CASES, ids=[case[0] for case in CASES])
def files(request, tmp_path_factory):
    """The same kernel with and without windows."""
    from harness.cli import main as cli

    name, words, window = request.param
    folder = tmp_path_factory.mktemp(name)
    for path, extra in (("plain.h5", []), ("windows.h5", ["--trace-window", str(window), "--trace", "full"])):
        assert cli.main(["kernel", name, *words, "--out", str(folder / path), "--json", *extra]) == 0
    return folder, window


def test_windows_add_up(files):
    folder, window = files
    with Trace.open(folder / "plain.h5") as plain, Trace.open(folder / "windows.h5") as cut:
        whole, parts = plain.files[0], cut.files[0]
        assert whole.counters == parts.counters
        for name in whole.counters:
            one, many = whole.counter(name), parts.counter(name)
            assert (one.window_cycles, many.window_cycles) == (0, window)
            assert (one.unit, one.kind) == (many.unit, many.kind)
            assert len(many.values) == -(-int(cut.clock) // window)
            assert np.array_equal(plane(one.values), plane(many.values)), name
        assert whole.result("cycles") == parts.result("cycles")


def test_windows_agree_with_events(files):
    """Grants per color, PE and port of each window are those that were recorded one by one in its cycles."""
    folder, window = files
    with Trace.open(folder / "windows.h5") as trace:
        run = trace.files[0]
        grants = trace.events(kinds=("depart",))
        for name in run.counters:
            if not name.startswith("moved_color_"):
                continue
            values = run.counter(name).values
            found = np.zeros_like(values)
            here = grants[(grants["color"] ^ (grants["flags"] >> 4 & 1)) == int(name.removeprefix("moved_color_"))]
            np.add.at(found, (here["cycle"] // window, here["y"], here["x"], here["flags"] >> 1 & 7), 1)
            assert np.array_equal(values, found), name
        tasks = trace.events(kinds=("task_start",))
        started = np.bincount(tasks["cycle"].astype(np.int64) // window, minlength=len(run.counter("tasks").values))
        assert np.array_equal(run.counter("tasks").values.sum(axis=(1, 2)), started)


def test_utilisation_over_time_is_drawn_from_windows(wse, files, tmp_path):
    folder, window = files
    done = wse("view", folder / "windows.h5", "--figure", "windows", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    with open(tmp_path / "windows-windows.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    with Trace.open(folder / "windows.h5") as trace:
        run = trace.files[0]
        busy, moved = run.counter("busy").values, 0
        for name in run.counters:
            if name.startswith("moved"):
                moved = moved + run.counter(name).values.sum(axis=(1, 2, 3))
    pes = busy[0].size
    assert [int(row["cycle"]) for row in rows] == list(range(0, len(rows) * window, window))
    assert sum(int(row["cycles"]) for row in rows) == trace.clock
    for row, cycles, hops in zip(rows, busy.sum(axis=(1, 2)), moved, strict=True):
        shares = [float(value) for key, value in row.items() if key == "idle" or key.startswith(("busy", "stall"))]
        assert sum(shares) == pytest.approx(1)
        assert float(row["busy"]) == pytest.approx(cycles / pes / int(row["cycles"]))
        assert float(row["grants_per_pe_cycle"]) == pytest.approx(hops / pes / int(row["cycles"]))


def test_one_window_alone(wse, files, tmp_path):
    folder, _ = files
    for name in ("heat", "links", "stalls"):
        done = wse("view", folder / "windows.h5", "--figure", name, "--window", "1", "--out", tmp_path)
        assert done.returncode == 0, done.stderr
    with Trace.open(folder / "windows.h5") as trace:
        busy = trace.files[0].counter("busy").values[1]
    rows = (tmp_path / "windows-busy.csv").read_text().splitlines()[2:]
    assert [[int(cell) for cell in row.split(",")[1:]] for row in rows] == busy.tolist()
    none = wse("view", folder / "windows.h5", "--figure", "heat", "--window", "99999", "--out", tmp_path)
    assert (none.returncode, "no window" in none.stderr) == (2, True)
    plain = wse("view", folder / "plain.h5", "--figure", "windows", "--out", tmp_path)
    assert (plain.returncode, "no windows" in plain.stderr) == (2, True)


def test_what_a_file_holds_says_how_many_windows(wse, files):
    folder, window = files
    facts = json.loads(wse("view", folder / "windows.h5", "--json").stdout)
    assert facts["window_cycles"] == window
    assert facts["windows"] == -(-facts["cycles"] // window)


def test_events_are_counted_into_a_heat_map(wse, files, tmp_path):
    folder, _ = files
    done = wse("view", folder / "windows.h5", "--figure", "heat", "--counter", "depart", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    with Trace.open(folder / "windows.h5") as trace:
        grants = trace.events(kinds=("depart",))
    rows = [line.split(",")[1:] for line in (tmp_path / "windows-depart.csv").read_text().splitlines()[2:]]
    found = np.zeros((len(rows), len(rows[0])), int)
    np.add.at(found, (grants["y"], grants["x"]), 1)
    assert [[int(cell) for cell in row] for row in rows] == found.tolist()


@pytest.mark.parametrize(
    ("words", "says"),
    [(["--trace-window", "0", "--out", "t.h5"], "no length"), (["--trace-window", "9"], "needs a file")],
)
def test_impossible_windows_are_refused(wse, tmp_path, words, says):
    done = wse("kernel", "ping", *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_windows_that_no_memory_holds_are_refused(monkeypatch):
    from tests.fabric.test_debug import chain
    from traces import windows

    fabric = chain("compiled").fabric
    monkeypatch.setattr(windows, "MOST_BYTES", 2000)
    Windows(fabric, 1)
    with pytest.raises(ConfigError, match="windows of 1 cycles take more"):
        fabric.run()
