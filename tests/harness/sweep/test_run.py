"""A sweep in its directory: points that fail, processes that die, ends in the middle, and the same table after all."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from fabric.host.bands import asked
from harness.sweep import description, journal, point, workers
from harness.sweep.run import run
from wse_core.errors import ConfigError, TraceError

SIZES = 'kernel = "vector"\n[params]\nn = [8, 64, 100]\nop = ["fmuls", "fadds"]\n[machine]\nramp.in = 2\n'
TABLES = ("table.csv", "table.parquet", "figure.png")


def files(directory):
    """Return what others read, by name."""
    return {name: (directory / name).read_bytes() for name in TABLES if (directory / name).exists()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The directory of a sweep that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole")
    outcome = run(description.parse(SIZES), out, 2)
    assert (outcome.earlier, outcome.failed, outcome.wrong) == (0, [], [])
    return out


def test_rows_are_what_the_kernel_gives(whole, wse):
    rows = [row for row in run(description.parse(SIZES), whole).rows if row["op"] == "fadds"]
    alone = json.loads(wse("kernel", "vector", "op=fadds", "n=100", "--set", "ramp.in=2", "--json").stdout)
    (row,) = [row for row in rows if row["n"] == 100]
    assert row["cycles"] == alone["cycles"] == 56
    assert (row["verified"], row["error"]) == (True, None)
    assert not set(point.OF_THE_HOST) & set(row)


def test_how_many_processes_there_are_changes_nothing(whole, tmp_path):
    run(description.parse(SIZES), tmp_path, 1)
    assert files(tmp_path) == files(whole)
    assert {"table.csv", "figure.png"} <= set(files(whole))


def test_what_is_there_is_not_measured_again(whole, monkeypatch):
    before = files(whole)
    monkeypatch.setattr("harness.sweep.run.side_by_side", lambda *_: pytest.fail("measured again"))
    outcome = run(description.parse(SIZES), whole)
    assert outcome.earlier == 6
    assert files(whole) == before


def test_another_figure_of_what_is_there(whole, tmp_path, wse):
    (tmp_path / "s.toml").write_text(SIZES)
    before = (whole / "figure.png").read_bytes()
    try:
        found = wse("sweep", "s.toml", "--out", whole, "--x", "op", "--y", "run_cycles", "--json")
        assert found.returncode == 0
        told = json.loads(found.stdout)
        assert (told["x"], told["points"], told["earlier"], len(told["rows"])) == ("op", 6, 6, 6)
        assert (whole / "figure.png").read_bytes() != before
        assert "did you mean cycles" in wse("sweep", "s.toml", "--out", whole, "--y", "cycle").stderr
        assert "--x: 'm' is no axis" in wse("sweep", "s.toml", "--out", whole, "--x", "m").stderr
    finally:
        (whole / "figure.png").write_bytes(before)


KILLED = """
import os, signal, sys
from harness.sweep import description, journal, run
keep, count = journal.Journal.keep, 0
def kept(self, point, measured):
    global count
    keep(self, point, measured)
    count += 1
    if count == 2:
        os.write(self._file, b'{"point": "torn in the mid')
        os.kill(os.getpid(), signal.SIGKILL)
journal.Journal.keep = kept
if __name__ == "__main__":
    run.run(description.load(sys.argv[1]), sys.argv[2], 2)
"""


def test_killed_and_gone_on_with_it_gives_the_identical_table(whole, tmp_path, child_env, wse):
    (tmp_path / "s.toml").write_text(SIZES)
    (tmp_path / "killed.py").write_text(KILLED)
    words = [sys.executable, "killed.py", "s.toml", "out"]
    killed = subprocess.run(words, cwd=tmp_path, env=child_env, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert {path.name for path in (tmp_path / "out").iterdir()} == {journal.NAME}
    again = wse("sweep", "s.toml", "--out", "out", "--processes", "2", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["earlier"] == 2
    assert files(tmp_path / "out") == files(whole)
    lines = (tmp_path / "out" / journal.NAME).read_text().splitlines()
    assert len({json.loads(line)["point"] for line in lines}) == len(lines) == 6


def test_a_changed_file_measures_what_is_new(whole, tmp_path):
    (tmp_path / journal.NAME).write_bytes((whole / journal.NAME).read_bytes())
    outcome = run(description.parse(SIZES.replace("100]", "100, 200]")), tmp_path)
    assert (outcome.earlier, len(outcome.rows)) == (6, 8)


def test_points_that_fail_are_rows_and_the_others_go_on(tmp_path, wse):
    (tmp_path / "s.toml").write_text('kernel = "vector"\n[params]\nn = [8, 32766]\nop = ["fmuls", "fmulx"]\n')
    found = wse("sweep", "s.toml", "--json")
    assert found.returncode == 2
    assert "s.toml: params.op[1]: 'fmulx' is not a possible value" in found.stderr
    (tmp_path / "s.toml").write_text('kernel = "vector"\n[params]\nn = [32766, 8]\n')
    found = wse("sweep", "s.toml")
    assert found.returncode == 1
    assert "2 points; 1 failed, 0 wrong" in found.stdout
    assert "n=32766: " in found.stdout
    large, small = run(description.load(tmp_path / "s.toml"), tmp_path / "sweeps" / "s").rows
    assert "n=" in large["error"]
    assert large["cycles"] is None
    assert (small["error"], small["cycles"]) == (None, 14)
    assert wse("sweep", "s.toml").stdout.startswith("2 points, 2 of them there already; 1 failed")


def test_nothing_is_drawn_if_all_fail(tmp_path):
    outcome = run(description.parse('kernel = "vector"\n[params]\nn = [32766, 32000]\n'), tmp_path)
    assert len(outcome.failed) == 2
    assert [os.path.basename(name) for name in outcome.files] == [journal.NAME, "table.csv", "table.parquet"]


class Deadly(point.Point):
    """A point that ends the process which takes it."""

    def __reduce__(self):
        return os.abort, ()


class Endless(point.Point):
    """A point that no process comes back from."""

    def __reduce__(self):
        return time.sleep, (10**6,)


def points_of(text=SIZES):
    return [one for _, one in description.parse(text).points]


def test_a_process_that_dies_takes_one_point_with_it():
    points = points_of()
    points[1] = Deadly("kernel", "vector", {}, "wse2", {})
    found = dict(workers.side_by_side(points, 2))
    assert sorted(found) == list(range(6))
    assert "SIGABRT" in found[1].facts["error"]
    assert not found[1].final
    assert all("cycles" in found[k].facts for k in (0, 2, 3, 4, 5))
    assert multiprocessing.active_children() == []


def test_what_is_not_final_is_a_row_and_tried_again(tmp_path, monkeypatch):
    sweep = description.parse('kernel = "vector"\n[params]\nn = [8, 9]\n')
    lost = point.Measured({"error": "lost"}, final=False)
    monkeypatch.setattr(
        "harness.sweep.run.side_by_side", lambda points, _: iter([(0, point.measure(points[0])), (1, lost)])
    )
    assert [row["error"] for row in run(sweep, tmp_path).rows] == [None, "lost"]
    monkeypatch.undo()
    outcome = run(sweep, tmp_path)
    assert (outcome.earlier, outcome.failed) == (1, [])


def test_ended_in_the_middle_no_process_is_left():
    points = points_of()
    points[0] = Endless("kernel", "vector", {}, "wse2", {})
    found = workers.side_by_side(points, 2)
    assert next(found)[0] == 1
    found.close()
    assert multiprocessing.active_children() == []


ORPHANS = """
import os, signal, sys
from harness.sweep import workers
from tests.harness.sweep.test_run import Endless, points_of
if __name__ == "__main__":
    points = points_of()
    points[0] = Endless("kernel", "vector", {}, "wse2", {})
    found = workers.side_by_side(points, 2)
    next(found)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_end_with_the_one_that_started_them(tmp_path, child_env):
    """They hold its standard output, which is at its end only when all of them have ended."""
    (tmp_path / "orphans.py").write_text(ORPHANS)
    done = subprocess.run([sys.executable, "orphans.py"], cwd=tmp_path, env=child_env, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def test_a_defect_at_one_point_is_told(monkeypatch):
    def fails(kind, name):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(point, "find", fails)
    found = point.measure(points_of()[0])
    assert found.facts == {"error": "internal error, ZeroDivisionError: by zero"}
    monkeypatch.setattr(point, "find", lambda kind, name: (_ for _ in ()).throw(MemoryError()))
    found = point.measure(points_of()[0])
    assert (found.facts, found.final) == ({"error": "out of memory"}, False)


def test_plans_are_points_too(tmp_path):
    text = 'plan = ["gpt-3", "X160"]\n[params]\nstrategy = "improved"\ndevices = [64, 512]\n'
    outcome = run(description.parse(text), tmp_path)
    assert outcome.failed == []
    days = {(row["plan"], row["devices"]): row["days"] for row in outcome.rows}
    assert days["gpt-3", 512] < days["gpt-3", 64] < days["X160", 64]


def test_points_of_another_version_are_not_mixed_in(whole, tmp_path, monkeypatch):
    (tmp_path / journal.NAME).write_bytes((whole / journal.NAME).read_bytes())
    monkeypatch.setattr(journal, "origin", lambda: ("9.9", "f" * 40))
    with pytest.raises(
        ConfigError, match=r"line 1: was measured by version .*, this is version 9.9, commit ffffffffff"
    ):
        run(description.parse(SIZES), tmp_path)


def test_another_file_is_not_taken_for_points(tmp_path):
    (tmp_path / journal.NAME).write_text("name,cycles\n")
    with pytest.raises(ConfigError, match="is no line of a sweep"):
        run(description.parse(SIZES), tmp_path)
    assert (tmp_path / journal.NAME).read_text() == "name,cycles\n"
    outcome = run(description.parse('kernel = "vector"\n[params]\nn = 8\n'), tmp_path, overwrite=True)
    assert [row["cycles"] for row in outcome.rows] == [14]


def test_a_full_disk_leaves_whole_lines(tmp_path, monkeypatch):
    found = point.measure(points_of()[0])
    with journal.Journal(tmp_path) as kept:
        kept.keep(points_of()[0], found)
        before = (tmp_path / journal.NAME).read_bytes()
        write = os.write

        def full(file, data):
            if len(data) < 40:
                raise OSError(28, "No space left on device")
            return write(file, data[:-20])

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(TraceError, match="No space left"):
            kept.keep(points_of()[1], found)
    assert (tmp_path / journal.NAME).read_bytes() == before


def test_one_process_at_a_time_works_in_a_directory(tmp_path, wse):
    from harness.kit.staging import alone

    (tmp_path / "s.toml").write_text(SIZES)
    with alone(tmp_path / "out"):
        found = wse("sweep", "s.toml", "--out", "out")
    assert (found.returncode, found.stdout) == (2, "")
    assert "another process works in this directory" in found.stderr


def test_a_dry_run_says_what_there_is(tmp_path, wse):
    (tmp_path / "s.toml").write_text(SIZES)
    assert wse("sweep", "s.toml", "--dry-run").stdout.splitlines()[:2] == ["6 points", "    n=8 op=fmuls"]
    assert json.loads(wse("sweep", "s.toml", "--dry-run", "--json").stdout)["rows"][5] == {"n": 100, "op": "fadds"}
    assert not (tmp_path / "sweeps").exists()


def test_time_left_is_told(tmp_path, wse):
    (tmp_path / "s.toml").write_text(SIZES)
    said = wse("sweep", "s.toml", "--processes", "1", "--progress").stderr
    assert "==> 6 of 6 points" in said
    assert "6/6  0:00:00 left" in said


class Telling(point.Point):
    """A point that says how many threads a simulation may have where it is measured."""

    def __reduce__(self):
        return told, ()


def told():
    return point.Point("kernel", "vector", {}, f"threads {asked().threads}", {})


@pytest.mark.parametrize(("processes", "threads"), [(2, "threads 1"), (1, "threads None")])
def test_processes_side_by_side_have_a_thread_each(processes, threads):
    ((_, found),) = workers.side_by_side([Telling("kernel", "vector", {}, "wse2", {})], processes)
    assert f"'{threads}'" in found.facts["error"]
