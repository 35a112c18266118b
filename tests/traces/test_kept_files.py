"""Run files for other programs and after accidents: units, meanings, axes; damage, gaps and leftovers are said."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest

from harness.cli import main as cli
from harness.report import page
from tests.conftest import ROOT
from tests.traces.test_event_log import META, many
from traces import event_log as event_files
from traces import meanings
from traces.atomic import atomic_file
from traces.event_log import EventLog
from traces.reader import RunFile
from traces.run_format import CHUNK, RunMeta
from traces.trace import Trace
from traces.writer import RunWriter
from wse_core.encoding import COUNTERS
from wse_core.errors import TraceError
from wse_core.events import TraceFilter

WORDS = (
    ["kernel", "chain_reduce", "pes=3", "n=8"],
    ["kernel", "gemm", "p=2", "m=4", "k=4", "n=4", "--trace-window", "20"],
    ["kernel", "ping", "hops=3"],
)


@pytest.mark.parametrize("words", WORDS, ids=lambda words: words[1])
def test_every_number_says_its_unit_and_meaning(words, tmp_path):
    assert cli.main([*words, "--out", str(tmp_path / "run.h5"), "--json"]) == 0
    with h5py.File(tmp_path / "run.h5") as file:
        for group in ("counters", "results"):
            assert len(file[group]) > 10
            for name, dataset in file[group].items():
                assert dataset.attrs["doc"], name
                text = h5py.check_string_dtype(dataset.dtype) or dataset.dtype == bool
                assert dataset.attrs["unit"] or text or name == "seed", name


def test_every_result_of_a_kernel_has_a_meaning():
    """Whatever a kernel hands to `report` by name stands in the table."""
    named = set()
    for path in (ROOT / "fabric" / "kernels").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "report":
                named |= {keyword.arg for keyword in node.keywords if keyword.arg}
    named -= {"lanes", "arrays"}
    assert len(named) > 20
    assert named - set(meanings.RESULTS) == set()
    assert set(COUNTERS) == set(meanings.COUNTERS)


def test_sums_are_stored_as_the_numbers_that_they_are(tmp_path):
    kinds = {"f32": np.float32, "f16": np.float16, "cb16": np.uint16}
    for dtype, kind in kinds.items():
        words = ["kernel", "broadcast", "width=2", "n=4", f"dtype={dtype}"]
        assert cli.main([*words, "--out", str(tmp_path / "run.h5"), "--json"]) == 0
        with RunFile(tmp_path / "run.h5") as run:
            assert run.result("x").dtype == kind
            if kind != np.uint16:
                assert 0 < np.abs(run.result("x")).max() < 100


def test_axes_have_names(tmp_path):
    """Dimension scales: another program shows window, y, x and port instead of numbers."""
    with RunWriter(tmp_path / "run.h5", RunMeta()) as writer:
        writer.add_counter("busy", np.zeros((2, 3, 4), np.uint32), window_cycles=10, unit="")
        writer.add_counter("moved_color_3", np.ones((2, 3, 4, 5), np.uint32), "")
        writer.add_counter("whole", np.ones((3, 4), np.uint32), "things", "of another shape")
    with h5py.File(tmp_path / "run.h5") as file:
        axes = [[next(iter(axis.keys())) for axis in file["counters"][name].dims] for name in file["counters"]]
        assert axes == [["window", "y", "x"], ["window", "y", "x", "port"], ["window_1", "y", "x"]]
        assert file["port"][()].tolist() == [b"W", b"E", b"N", b"S", b"R"]
        assert file["x"][()].tolist() == [0, 1, 2, 3]
        assert file["counters/moved_color_3"].attrs["doc"].startswith(b"wavelets of color 3")
        assert file["counters/busy"].attrs["unit"] == b"cycles"
    with RunFile(tmp_path / "run.h5") as run:
        run.verify()
        assert run.counters == ("busy", "moved_color_3", "whole")


def test_a_damaged_group_of_events_is_no_missing_one(tmp_path):
    """One bit of its header: refused, and not read as a run that was recorded without events."""
    path = tmp_path / "run.h5"
    with RunWriter(path, META) as writer:
        writer.add_events(many(1000), 200, TraceFilter())
    with h5py.File(path) as file:
        at = h5py.h5o.get_info(file["events"].id).addr
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with h5py.File(path) as file:
        assert file.get("events") is None  # what a reader would take for absence
    with pytest.raises(TraceError, match="is damaged"):
        Trace.open(path)


def recorded_in_part(path, monkeypatch, segments=4):
    """Leave the segments of a run that did not end; return its events."""
    monkeypatch.setattr(event_files, "SEGMENT", 2 * CHUNK)
    events = many(2 * CHUNK * segments)
    log = EventLog(path, META, TraceFilter())
    log.append(events, int(events["cycle"][-1]) + 1)
    log.abandon()
    return events


def test_a_damaged_segment_loses_only_itself(tmp_path, monkeypatch, capsys):
    path = tmp_path / "run.h5"
    events = recorded_in_part(path, monkeypatch)
    one, other = (tmp_path / "run.h5.part" / name for name in ("00001.h5", "00002.h5"))
    data = bytearray(one.read_bytes())
    one.write_bytes(data[: len(data) // 2])
    with Trace.open(path) as trace:
        kept = np.concatenate([events[: 2 * CHUNK], events[4 * CHUNK :]])
        assert np.array_equal(trace.events(), kept)
        assert trace.committed == len(kept)
        assert len(trace.gaps) == 1
        assert "00001.h5 is damaged" in trace.gaps[0]
    data[len(data) // 3] ^= 255  # within the data of a column
    one.write_bytes(data)
    other.unlink()
    with Trace.open(path) as trace:
        assert [gap.split(":")[0] for gap in trace.gaps] == ["00001.h5 is damaged", "00002.h5 missing"]
        assert trace.committed == 4 * CHUNK
    assert cli.main(["view", str(path)]) == 0
    assert capsys.readouterr().out.count("A gap: 0000") == 2
    for segment in (tmp_path / "run.h5.part").iterdir():
        segment.write_bytes(b"no")
    with pytest.raises(TraceError, match="not an HDF5 file"):
        Trace.open(path)


KILLED = """
import os, sys
from traces.run_format import RunMeta
from traces.writer import RunWriter
RunWriter(sys.argv[1], RunMeta())
os.kill(os.getpid(), 9)
"""


def test_what_a_killed_process_left_goes_with_the_next_run(tmp_path, root, child_env):
    """But not what another process is writing, nor files of other names."""
    for name in ("run.h5", "other.h5"):
        subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / name)], cwd=root, env=child_env, check=False)
    assert len(list(tmp_path.glob(".run.h5.*.part"))) == 1
    with atomic_file(tmp_path / "run.h5") as alive:
        alive.write(b"first")
        with RunWriter(tmp_path / "run.h5", RunMeta()):
            assert len(list(tmp_path.glob(".run.h5.*.part"))) == 2
    assert sorted(path.name.partition(".h5")[0] for path in tmp_path.iterdir()) == [".other", "run"]
    assert (tmp_path / "run.h5").read_bytes() == b"first"


def test_control_characters_stay_in_the_file(tmp_path, capsys):
    """They reach neither the terminal nor the page."""
    evil = "job\x1b[2J\x07"
    with RunWriter(tmp_path / "run.h5", RunMeta(job=evil, config_toml=evil)) as writer:
        writer.add_result("note", evil)
        names = {"tasks": {"3": evil}}
        events = many(50)
        events["kind"], events["aux"], events["x"], events["y"] = 5, 3, 0, 0
        writer.add_events(events, 50, TraceFilter(), names)
    for words in ([], ["--tasks", "0,0"], ["--cycle", "3"]):
        assert cli.main(["view", str(tmp_path / "run.h5"), *words]) == 0
    shown = capsys.readouterr().out
    assert "job\\x1b" in shown
    with Trace.open(tmp_path / "run.h5") as trace:
        shown += page.page(trace)
    assert not set("\x1b\x07") & set(shown)
    shutil.rmtree(tmp_path)
