"""Phases and host accesses: what a program says about itself stands beside the events, on the same clock."""

from __future__ import annotations

import csv
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import numpy as np
import pytest

from fabric.host.fabric import Fabric
from fabric.host.recording import Recorder
from fabric.kernels.collectives.chain import chain_layout
from harness.cli import main as cli
from harness.report import page
from tests.fabric.test_debug import echo
from tests.traces.export import perfetto_file
from traces import pictures
from traces.export.formats import export
from traces.marks import PhaseMark, collecting, lanes, mark
from traces.reader import RunFile
from traces.run_format import RunMeta
from traces.trace import Trace
from traces.writer import RunWriter
from wse_core.errors import TraceError
from wse_core.events import HOST, KINDS, NO_COLOR, TraceFilter
from wse_core.params import machine

PES, N = 3, 4


def iteration(path):
    """Record two passes of a chain of additions, with the phases of a whole system said by the program."""
    wse2 = machine("wse2")
    meta = RunMeta(job="two passes", machine=dict(wse2))
    with collecting() as marks:
        recorder = Recorder(path, meta, TraceFilter(), None, marks)
        fabric = Fabric(chain_layout(PES, N, "f32", "f32", wse2), "compiled")
        recorder.watch(fabric)
        ends = [0]
        for k in range(2):
            fabric.write("x", np.ones((1, PES, N), np.float32))
            fabric.launch("main")
            fabric.run()
            ends.append(fabric.cycle)
            mark(ends[k], f"pass {k}", track="wafer", end=ends[k + 1])
        fabric.read("x", 0, 0)
        mark(ends[1], "weights", track="MemoryX", end=ends[1] + 10)  # known afterwards, told out of order
        mark(0, "iteration", track="wafer", end=ends[2])
        mark(ends[1], "batch complete")
        with RunWriter(path, meta) as writer:
            recorder.finish(writer)
        recorder.log.remove()
    return ends


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    path = tmp_path_factory.mktemp("marks") / "two.h5"
    return path, iteration(path)


def test_phases_come_back_in_order_the_outer_one_first(recorded):
    path, ends = recorded
    with Trace.open(path) as trace:
        assert trace.marks == [
            PhaseMark(0, ends[2], "wafer", "iteration"),
            PhaseMark(0, ends[1], "wafer", "pass 0"),
            PhaseMark(ends[1], ends[2], "wafer", "pass 1"),
            PhaseMark(ends[1], ends[1] + 10, "MemoryX", "weights"),
            PhaseMark(ends[1], ends[1], "program", "batch complete"),
        ]
        events = trace.events(kinds=("mark", "task_start"), region=(1, 0, 1, 1))
        found = events[events["kind"] == KINDS.index("mark")]
        assert found["cycle"].tolist() == [0, 0, *[ends[1]] * 3]
        assert [trace.marks[k].label for k in found["data"]][:2] == ["iteration", "pass 0"]
        assert np.all(np.diff(events["cycle"].astype(np.int64)) >= 0)
        assert len(trace.events(kinds=("mark",), cycles=(1, ends[2]))) == 3
        assert trace.events(kinds=("mark",), columns=("cycle", "x")).dtype.names == ("cycle", "x")


def test_accesses_of_the_host_are_events(recorded):
    path, ends = recorded
    with Trace.open(path) as trace:
        events = trace.events(kinds=("host",))
        everything = trace.events()
    words = 2 * PES * N  # of 16 bits
    assert [HOST[event["aux"]] for event in events] == ["launch", "write"] * 2 + ["read"]
    assert events["data"].tolist() == [PES, words, PES, words, words // PES]
    assert events["cycle"].tolist() == [0, 0, ends[1], ends[1], ends[2]]
    assert set(events["color"]) == {NO_COLOR}
    assert np.all(np.diff(everything["cycle"].astype(np.int64)) >= 0)


def test_streams_of_the_host_are_events(tmp_path):
    fabric, stream, out = echo("compiled")
    recorder = Recorder(tmp_path / "run.h5", RunMeta(), TraceFilter(("host",)), None, [])
    recorder.watch(fabric)
    fabric.send(stream, np.arange(7, dtype=np.uint32))
    fabric.run()
    fabric.receive(out)
    with RunWriter(tmp_path / "run.h5", RunMeta()) as writer:
        recorder.finish(writer)
    with Trace.open(tmp_path / "run.h5") as trace:
        events = trace.events()
        assert [(HOST[event["aux"]], int(event["data"])) for event in events] == [("stream", 7), ("receive", 7)]
        assert events["cycle"][1] == fabric.cycle


def test_perfetto_has_tracks_for_phases_and_the_host(recorded, tmp_path):
    pytest.importorskip("perfetto")
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

    path, ends = recorded
    with Trace.open(path) as trace:
        export(trace, "perfetto", tmp_path / "t.pftrace", trace.events())
    message = perfetto_file.read(tmp_path / "t.pftrace")
    tracks = {p.track_descriptor.uuid: p.track_descriptor for p in message.packet if p.HasField("track_descriptor")}
    found, running = {}, {}
    for packet in message.packet:
        track = tracks.get(packet.track_event.track_uuid)
        if track is None:
            continue
        where = tracks[track.parent_uuid].process.process_name, track.name
        if packet.track_event.type == TrackEvent.TYPE_SLICE_BEGIN:
            running.setdefault(where, []).append((packet.track_event.name, packet.timestamp))
        elif packet.track_event.type == TrackEvent.TYPE_SLICE_END:
            name, begin = running[where].pop()
            found.setdefault(where, []).append((name, begin, packet.timestamp))
        elif where[0] in ("program", "host"):
            found.setdefault(where, []).append((packet.track_event.name, packet.timestamp, packet.timestamp))
    assert sorted(found["program", "wafer"]) == [
        ("iteration", 0, ends[2]),
        ("pass 0", 0, ends[1]),
        ("pass 1", ends[1], ends[2]),
    ]
    assert found["program", "MemoryX"] == [("weights", ends[1], ends[1] + 10)]
    assert found["program", "program"] == [("batch complete", ends[1], ends[1])]
    assert [name for name, _, _ in found["host", "launch"]] == ["launch"] * 2
    launched = [p.track_event for p in message.packet if p.track_event.name == "launch"]
    assert [perfetto_file.arguments(event) for event in launched] == [{"x": 0, "y": 0, "count": PES}] * 2


def test_pictures_over_time_show_the_phases(recorded, tmp_path):
    path, ends = recorded
    with Trace.open(path) as trace:
        pictures.timeline(trace).save(tmp_path / "with.png")
        pictures.utilisation(trace).save(tmp_path / "over.png")
        trace.marks = []
        pictures.timeline(trace).save(tmp_path / "without.png")
    assert (tmp_path / "with.png").read_bytes() != (tmp_path / "without.png").read_bytes()
    with open(tmp_path / "with.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {"x": "0", "y": "0", "what": "wafer: pass 1", "begin": str(ends[1]), "end": str(ends[2])} in rows


def test_a_report_lists_the_phases(recorded, monkeypatch):
    with Trace.open(recorded[0]) as trace:
        text = page.page(trace)
        assert text.index("iteration") < text.index("pass 0") < text.index("batch complete")
        monkeypatch.setattr(page, "MOST_PHASES", 2)
        assert "3 more are in the file" in page.page(trace)


def test_phases_that_overlap_get_lanes_of_their_own():
    marks = [
        PhaseMark(0, 100, "a", "outer"),
        PhaseMark(0, 50, "a", "inner"),
        PhaseMark(0, 10, "b", "else"),
        PhaseMark(40, 60, "a", "across"),
        PhaseMark(60, 90, "a", "inner again"),
        PhaseMark(95, 120, "a", "across too"),
        PhaseMark(130, 130, "a", "instant"),
    ]
    assert lanes(marks) == [0, 0, 0, 1, 0, 1, 0]


def test_marks_outside_of_a_recording_go_nowhere_and_threads_may_make_them():
    mark(3, "nobody listens")
    with collecting() as marks, ThreadPoolExecutor(2) as pool:
        for k in range(4):
            pool.submit(copy_context().run, mark, k, f"phase {k}", end=k + 1).result()
    assert [entry.label for entry in marks] == [f"phase {k}" for k in range(4)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"begin": 5, "label": "a", "end": 4},
        {"begin": -1, "label": "a"},
        {"begin": 0, "label": ""},
        {"begin": 0, "label": "a", "track": ""},
    ],
)
def test_impossible_marks_are_refused(wrong):
    with collecting(), pytest.raises(TraceError):
        mark(**wrong)


def test_damaged_marks_are_refused(recorded, tmp_path):
    data = bytearray(recorded[0].read_bytes())
    at = data.index(b"batch complete")
    data[at] ^= 1
    (tmp_path / "bad.h5").write_bytes(data)
    with pytest.raises(TraceError, match="damaged"), RunFile(tmp_path / "bad.h5") as file:
        file.verify()


def test_damage_anywhere_is_refused_or_harmless(recorded, tmp_path):
    data, rng, refused = recorded[0].read_bytes(), np.random.default_rng(7), 0
    with Trace.open(recorded[0]) as trace:
        marks, events = trace.marks, trace.events().tobytes()
    for _ in range(80):
        bad = bytearray(data)
        for at in rng.integers(0, len(data), 4):
            bad[at] ^= int(rng.integers(1, 256))
        (tmp_path / "bad.h5").write_bytes(bad)
        try:
            with Trace.open(tmp_path / "bad.h5") as trace:
                trace.files[0].verify()
                assert trace.marks == marks
                assert trace.events().tobytes() == events
        except TraceError as error:
            assert len(str(error).splitlines()) == 1
            refused += 1
    assert refused > 10


def test_marks_of_a_job_are_in_its_run_file_without_events_too(tmp_path, monkeypatch):
    from fabric.kernels.registry import KERNELS

    kind = type(KERNELS["chain_reduce"])
    plain = kind.run

    def run(self, machine, **values):
        result = plain(self, machine, **values)
        mark(0, "all of it", end=result["cycles"])
        return result

    monkeypatch.setattr(kind, "run", run)
    path = tmp_path / "run.h5"
    assert cli.main(["kernel", "chain_reduce", "pes=3", "n=4", "--out", str(path), "--json"]) == 0
    with Trace.open(path) as trace:
        assert [entry.label for entry in trace.marks] == ["all of it"]
        assert len(trace.events(kinds=("mark",))) == 1
