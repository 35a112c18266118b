"""``wse kernel --trace``, ``wse view``, ``wse export``: from a recorded run to text, pictures and other formats."""

from __future__ import annotations

import csv
import json

import pytest

from tests.traces.samples import chain
from traces.trace import Trace


@pytest.fixture(scope="module")
def run_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("view") / "chain.h5"
    chain(path)
    return path


def test_a_kernel_is_recorded(wse, tmp_path):
    done = wse("kernel", "chain_reduce", "pes=3", "n=4", "--trace", "full", "--out", "t.h5", "--json")
    assert done.returncode == 0, done.stderr
    with Trace.open(tmp_path / "t.h5") as trace:
        assert len(trace.events(kinds=("depart",))) == json.loads(done.stdout)["wavelet_hops"]
        assert "main" in trace.names["tasks"].values()
        assert "fadds" in trace.names["opcodes"].values()
        assert "busy" in trace.files[0].counters
    assert [path.name for path in tmp_path.iterdir()] == ["t.h5"]


def test_a_filter_is_obeyed(wse, tmp_path):
    done = wse("kernel", "chain_reduce", "pes=3", "n=4", "--trace", "full", "--out", "t.h5",
               "--trace-region", "1,0,1,1", "--trace-cycles", "10:", "--trace-colors", "1")
    assert done.returncode == 0, done.stderr
    with Trace.open(tmp_path / "t.h5") as trace:
        events = trace.events()
        assert set(events["x"]) == {1}
        assert set(events["color"]) == {1, 255}
        assert events["cycle"].min() >= 10


@pytest.mark.parametrize(("words", "says"), [
    (["--trace", "full"], "needs a file"),
    (["--trace-colors", "1"], "nothing is recorded"),
    (["--trace", "full", "--out", "t.h5", "--trace-cycles", "9"], "no range"),
    (["--trace", "full", "--out", "t.h5", "--trace-region", "0,0,0,1"], "no rectangle"),
    (["--trace", "full", "--out", "t.h5", "--trace-colors", "x"], "no colors"),
])
def test_what_cannot_be_recorded_is_said(wse, tmp_path, words, says):
    done = wse("kernel", "ping", *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_region_at_a_cycle(wse, run_file):
    done = wse("view", run_file, "--cycle", "30")
    assert done.returncode == 0, done.stderr
    assert "cycle 30" in done.stdout
    assert "x=3" in done.stdout
    assert "fadds" in done.stdout
    stepped = wse("view", run_file, "--step", "--cycle", "29", cwd=run_file.parent)
    assert "cycle 29" in stepped.stdout


def test_a_wavelet_is_followed(wse, run_file):
    with Trace.open(run_file) as trace:
        first = trace.events(kinds=("inject",), region=(2, 0, 1, 1))[0]
    done = wse("view", run_file, "--follow", f"{first['cycle']},2,0,{first['color']}")
    lines = done.stdout.splitlines()
    assert len(lines) == 4, done.stderr
    assert "sent by the CE" in lines[0]
    assert "to W" in lines[1]
    assert "from port E to R" in lines[2]
    assert "taken by the CE" in lines[3]


def test_tasks_of_a_pe(wse, run_file):
    done = wse("view", run_file, "--tasks", "0,0")
    assert done.stdout.splitlines()[1].split()[:2] == ["main", "0"]


def test_all_figures_have_their_numbers_beside_them(wse, run_file, tmp_path):
    done = wse("view", run_file, "--figure", "all", "--cycles", "15:45", "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    written = {path.name for path in tmp_path.iterdir()}
    assert {"chain-busy.png", "chain-links.png", "chain-stalls.png", "chain-timeline.png", "chain-utilisation.png",
            "chain-animation.gif"} <= written
    assert {name.replace(".png", ".csv") for name in written if name.endswith(".png")} <= written
    assert (tmp_path / "chain-animation.gif").read_bytes()[:6] == b"GIF89a"
    with open(tmp_path / "chain-links.csv") as stream:
        rows = list(csv.DictReader(stream))
    assert {(row["x"], row["direction"], row["wavelets"]) for row in rows} == {(str(x), "W", "6") for x in (1, 2, 3)}
    with open(tmp_path / "chain-stalls.csv") as stream:
        for row in csv.DictReader(stream):
            total = sum(float(value) for key, value in row.items() if key != "x")
            with Trace.open(run_file) as trace:
                assert total == trace.clock


def test_export_announces_and_writes(wse, run_file, tmp_path):
    done = wse("export", run_file, "--format", "csv", "--out", "t.csv", "--kinds", "depart,land", "--region", "1,0,2,1")
    assert done.returncode == 0, done.stderr
    assert "events as csv, about" in done.stdout
    with open(tmp_path / "t.csv") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["kind"] for row in rows} == {"depart", "land"}
    assert {row["x"] for row in rows} == {"1", "2"}


@pytest.mark.parametrize(("words", "says"), [
    (["view", "nothing.h5"], "no such file"),
    (["view", "RUN", "--figure", "pie"], "no figure"),
    (["view", "RUN", "--cycle", "1", "--region", "0,0,400,400"], "do not fit"),
    (["view", "RUN", "--follow", "1,2"], "4 numbers"),
    (["view", "RUN", "--follow", "1,2,0,19"], "no wavelet"),
    (["export", "RUN", "--kinds", "jump"], "no kind"),
    (["export", "RUN", "--cycles", "b:a"], "no range"),
])
def test_mistakes_are_answered_in_one_line(wse, run_file, words, says):
    done = wse(*(run_file if word == "RUN" else word for word in words))
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
