"""Events: what the machine reports agrees with its counters, and files give back what was reported."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.engine.engine import Engine
from tests.compare import cases
from tests.draw import Seeded
from tests.examples import examples, few
from tests.random_machines import random_spec
from tests.random_traffic import random_traffic
from traces import event_log as event_files
from traces.event_log import EventLog, recording, segments_of
from traces.run_format import CHUNK, RunMeta
from traces.trace import Trace
from traces.writer import RunWriter
from wse_core.errors import ConfigError, TraceError
from wse_core.events import COLUMNS, EVENT_DTYPE, KINDS, LEVELS, NO_COLOR, WAITS, TraceFilter, joined, sorted_events
from wse_core.reference.machine import ReferenceMachine

META = RunMeta(job="test", machine={"router.hop": 1, "ramp.in": 2})


def reported(case, limit=120, filter=None, host=True):
    """Return the machine of a case after `limit` cycles and the events that it reported."""
    machine = ReferenceMachine(case.spec)
    found = []
    machine.trace(lambda events, clock: found.append(events), filter)
    if host:
        case.start(machine)
    status = machine.run(limit)
    machine.trace(None)
    return machine, sorted_events(joined(found)), status


def settled(make, case, cuts):
    """Return (status, events in order) of a machine that is run in pieces; a wait that never ends is left out."""
    machine, found, clock = make(case.spec), [], 0
    machine.trace(lambda events, clock: found.append((events, clock)))
    case.start(machine)
    for cut in cuts:
        status = machine.run(cut)
    machine.trace(None)
    for events, until in found:
        assert events["cycle"].min(initial=clock) >= clock  # nothing comes later than it was promised
        clock = until
    events = np.concatenate([events for events, _ in found])
    # When a machine notices that it is stuck is its own affair, and so how long the last waits are.
    events = events[(events["kind"] != KINDS.index("wait")) | (events["cycle"] <= machine.last_active)]
    return status, np.sort(events, order=["cycle", "y", "x", "kind", "color", "aux", "data", "flags"])


@pytest.mark.parametrize("draw", [random_spec, random_traffic])
@examples(40)
@given(data=st.data(), cuts=st.lists(st.integers(1, 150), min_size=1, max_size=4).map(sorted))
def test_both_machines_report_the_same_events(draw, data, cuts):
    """The engine, which runs ahead and works in bulk, reports what the plain machine reports cycle by cycle."""
    case = data.draw(cases(draw))
    compiled, plain = (settled(make, case, cuts) for make in (Engine, ReferenceMachine))
    if compiled[0] != "fault":
        assert np.array_equal(compiled[1], plain[1])


def count(events, kind):
    """Return how many events of a kind each PE has, keyed (x, y)."""
    chosen = events[events["kind"] == KINDS.index(kind)]
    places, counts = np.unique(chosen[["x", "y"]], return_counts=True)
    return {(int(place["x"]), int(place["y"])): int(n) for place, n in zip(places, counts, strict=True)}


@pytest.mark.parametrize("draw", [random_spec, random_traffic])
@examples(20)
@given(data=st.data())
def test_events_agree_with_counters(draw, data):
    machine, events, status = reported(data.draw(cases(draw)))
    assert events["cycle"].max(initial=0) <= machine.cycle
    if status == "fault":
        return  # what a step had done before it faulted is reported, but not all of it is counted
    counters = machine.counters()
    moved = sum(table.sum(axis=2, dtype=np.int64) for table in machine.link_counts().values())
    for kind, counter in (("inject", "sent"), ("take", "received"), ("task_start", "tasks")):
        found = count(events, kind)
        for x, y in machine.ces:
            assert found.get((x, y), 0) == counters[counter][y, x], (kind, x, y)
    departed = count(events, "depart")
    for x, y in machine.places:
        assert departed.get((x, y), 0) == np.asarray(moved)[..., y, x] if machine.spec.routes else True
    for number, reason in enumerate(WAITS):
        chosen = events[(events["kind"] == KINDS.index("wait")) & (events["aux"] == number)]
        waited = np.zeros((machine.spec.height, machine.spec.width), np.int64)
        np.add.at(waited, (chosen["y"], chosen["x"]), chosen["data"])
        assert np.array_equal(waited, counters[f"stall_{reason}"]), reason
    for (x, y), ce in machine.ces.items():
        chosen = events[(events["kind"] == KINDS.index("conflict")) & (events["x"] == x) & (events["y"] == y)]
        assert chosen["data"].sum() <= counters["stall_conflict"][y, x] + max(0, ce.pipe_free - machine.cycle)


@examples(10)
@given(case=cases(random_traffic), cut=st.integers(1, 200))
def test_a_filter_leaves_exactly_what_it_names(case, cut):
    wanted = TraceFilter(LEVELS["events"], (0, 3), (1, 0, 2, 2), (cut, cut + 100))
    _, everything, _ = reported(case)
    _, chosen, _ = reported(case, filter=wanted)
    assert np.array_equal(chosen, everything[wanted.keeps(everything)])
    assert set(np.unique(chosen["kind"])) <= {KINDS.index(kind) for kind in LEVELS["events"]}
    assert set(np.unique(chosen["color"])) <= {0, 3, NO_COLOR}


@examples(15)
@given(case=cases(random_traffic))
def test_files_give_back_what_was_reported(case, tmp_path_factory):
    path = tmp_path_factory.mktemp("events") / "run.h5"
    machine = ReferenceMachine(case.spec)
    with recording(machine, path, META, TraceFilter()) as log:
        machine.run(200)
    with RunWriter(path, META) as writer:
        log.finish(writer)
    log.remove()
    assert not segments_of(path)
    _, events, _ = reported(case, 200, host=False)
    with Trace.open(path) as trace:
        assert trace.complete
        assert trace.committed == len(events)
        assert trace.clock == machine.cycle
        assert np.array_equal(trace.events(), events)
        assert np.array_equal(
            trace.events(cycles=(40, 90))["cycle"], events["cycle"][(events["cycle"] >= 40) & (events["cycle"] < 90)]
        )


def many(n, seed=0, first=0):
    """Return n random events in order."""
    rng = np.random.default_rng(seed)
    events = np.zeros(n, EVENT_DTYPE)
    events["cycle"] = first + np.sort(rng.integers(0, n // 10 + 1, n))
    for name, high in (("data", 1 << 32), ("x", 50), ("y", 50), ("kind", len(KINDS)), ("color", 24), ("aux", 32)):
        events[name] = rng.integers(0, high, n)
    return sorted_events(events)


@pytest.fixture
def small_segments(monkeypatch):
    """Segments of two chunks."""
    monkeypatch.setattr(event_files, "SEGMENT", 2 * CHUNK)


@pytest.mark.parametrize("n", [0, 1, CHUNK, 2 * CHUNK, 2 * CHUNK + 1, 9 * CHUNK + 17])
def test_segments_join_without_loss(tmp_path, small_segments, n):
    events = many(n)
    log = EventLog(tmp_path / "run.h5", META, TraceFilter())
    late = np.random.default_rng(1).permutation(n) < n // 5  # reported before their cycle is over
    for k in range(0, n, 1000):
        part = events[k : k + 1000]
        log.append(part[~late[k : k + 1000]], int(part["cycle"][0]))
        log.append(part[late[k : k + 1000]], int(part["cycle"][0]))
    log.append(events[:0], n)
    with RunWriter(tmp_path / "run.h5", META) as writer:
        log.finish(writer)
    with Trace.open(tmp_path / "run.h5") as trace:
        assert trace.committed == n
        assert np.array_equal(
            np.sort(trace.events(), order=EVENT_DTYPE.names), np.sort(events, order=EVENT_DTYPE.names)
        )
        trace.files[0].verify()


def test_a_range_reads_its_share(tmp_path):
    n = 40 * CHUNK
    with RunWriter(tmp_path / "run.h5", META) as writer:
        writer.add_events(many(n), n, TraceFilter())
    with Trace.open(tmp_path / "run.h5") as trace:
        low = int(trace.events(columns=("cycle",))["cycle"][n // 2])
        start, stop = trace.files[0].event_range(low, low + n // 10 // 40)
        assert stop - start <= 3 * CHUNK
        chosen = trace.events(cycles=(low, low + 10), columns=("cycle", "x"))
        assert chosen.dtype.names == ("cycle", "x")
        assert len(chosen) > 0
        assert chosen["cycle"].min() >= low
        assert chosen["cycle"].max() < low + 10


@pytest.mark.parametrize("seed", [1, 8])  # streams between PEs; of the second also from and to the host
def test_landings_follow_from_grants(seed, tmp_path):
    """What lands at a port is what left the neighbour in that direction, `router.hop` cycles earlier."""
    machine = ReferenceMachine(random_traffic(Seeded(seed)))
    for k in range(len(machine.spec.inputs)):
        machine.push_input(k, range(3))
    meta = RunMeta(machine=dict(machine.machine))
    with recording(machine, tmp_path / "run.h5", meta, TraceFilter()) as log:
        machine.run(200)
    with RunWriter(tmp_path / "run.h5", meta) as writer:
        log.finish(writer)
    queued = {}
    for (x, y), colors in machine.snapshot()["router"].items():
        for color, state in colors.items():
            for port, queue in state.get("queues", {}).items():
                queued[x, y, color, port] = len(queue)
    with Trace.open(tmp_path / "run.h5") as trace:
        landed = trace.events(kinds=("land",), region=(0, 0, machine.spec.width, machine.spec.height))
        departed = trace.events(kinds=("depart",))
        delivered = trace.events(kinds=("deliver",))
        taken = trace.events(kinds=("take",))
    assert len(landed) > 0
    came, went = {}, {}
    for event in landed:
        key = tuple(int(event[name]) for name in ("x", "y", "color", "aux"))
        came[key] = came.get(key, 0) + 1
    for event in departed:
        port = int(event["flags"]) >> 1 & 7
        if port < 4:
            key = (int(event["x"]), int(event["y"]), int(event["color"]) ^ (int(event["flags"]) >> 4 & 1), port)
            went[key] = went.get(key, 0) + 1
    for key, number in came.items():
        assert number == went.get(key, 0) + queued.get(key, 0), key
    waiting = sum(len(queue) for pe in machine.snapshot()["pe"].values() for queue in pe["inq"].values())
    assert len(delivered) == len(taken) + waiting


WRITER = """
import sys, time
from tests.traces.test_event_log import META, many
from traces import event_log as files
from traces.event_log import EventLog
from traces.run_format import CHUNK
from wse_core.events import TraceFilter
files.SEGMENT = 2 * CHUNK
log = EventLog(sys.argv[1], META, TraceFilter())
events = many(1 << 20)
print("ready", flush=True)
for k in range(0, len(events), 4096):
    log.append(events[k:k + 4096], int(events["cycle"][k]))
"""


@pytest.mark.parametrize("delay", few([0.1, 0.0, 0.03, 0.2], 2))
def test_a_killed_run_keeps_whole_segments(tmp_path, root, child_env, delay):
    path = tmp_path / "run.h5"
    child = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], cwd=root, env=child_env, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n"
    time.sleep(delay)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    if not segments_of(path):
        with pytest.raises(TraceError, match="no such file"):
            Trace.open(path)
        return
    with Trace.open(path) as trace:
        assert not trace.complete
        assert trace.meta.status == "interrupted"
        assert trace.committed % (2 * CHUNK) == 0
        assert np.array_equal(trace.events(), many(1 << 20)[: trace.committed])
    log = EventLog(path, META, TraceFilter())  # the next recording of that name
    assert segments_of(path) == []
    with pytest.raises(TraceError, match="another process is recording"):
        EventLog(path, META, TraceFilter())
    log.remove()
    assert list(tmp_path.iterdir()) == []


def test_damaged_events_are_refused(tmp_path):
    """Whatever bytes of the file change: the reader gives an error of ours or what was written."""
    good, bad = tmp_path / "good.h5", tmp_path / "bad.h5"
    events = many(2000)
    with RunWriter(good, META) as writer:
        writer.add_events(events, 500, TraceFilter())
    data = good.read_bytes()
    rng = np.random.default_rng(3)
    refused = 0
    for _ in range(60):
        changed = bytearray(data)
        for at in rng.integers(0, len(data), 3):
            changed[at] ^= int(rng.integers(1, 256))
        bad.write_bytes(changed)
        try:
            with Trace.open(bad) as trace:
                trace.files[0].verify()
                assert np.array_equal(trace.events(), events)
        except TraceError:
            refused += 1
    assert refused > 10
    bad.write_bytes(data[: len(data) // 2])
    with pytest.raises(TraceError, match="damaged|not an HDF5"):
        Trace.open(bad)


def test_a_file_without_events_says_so(tmp_path):
    with RunWriter(tmp_path / "run.h5", META):
        pass
    with Trace.open(tmp_path / "run.h5") as trace:
        assert not trace.has_events
        with pytest.raises(TraceError, match="holds no events"):
            trace.events()


def test_events_as_xarray(tmp_path, monkeypatch):
    with RunWriter(tmp_path / "run.h5", META) as writer:
        writer.add_events(many(500), 500, TraceFilter())
    with Trace.open(tmp_path / "run.h5") as trace:
        monkeypatch.setitem(sys.modules, "xarray", None)
        with pytest.raises(TraceError, match="xarray is not installed"):
            trace.xarray()
        monkeypatch.delitem(sys.modules, "xarray")
        pytest.importorskip("xarray")
        found = trace.xarray(kinds=("wait",), columns=("cycle", "x"))
        assert found["cycle"].attrs["units"] == "cycles"
        assert found["x"].values.tolist() == trace.events(kinds=("wait",))["x"].tolist()
        assert found.sizes == {"event": len(trace.events(kinds=("wait",)))}


def test_a_column_that_does_not_compress_is_stored_as_it_is(tmp_path, small_segments):
    """Payloads of one segment may compress and those of the next may not; both come back."""
    events = many(4 * CHUNK + 100)
    events["data"][: 2 * CHUNK] = 7
    log = EventLog(tmp_path / "run.h5", META, TraceFilter())
    log.append(events, int(events["cycle"][-1]) + 1)
    with RunWriter(tmp_path / "run.h5", META) as writer:
        log.finish(writer)
        sizes = [h5py.File(path)["events/data"] for path in log.segments]
        assert [column.compression for column in sizes] == ["gzip", None, None]
        for column in sizes:
            column.file.close()
    with Trace.open(tmp_path / "run.h5") as trace:
        trace.files[0].verify()
        assert np.array_equal(trace.events(), events)


@pytest.mark.parametrize(
    "wrong", [{"kinds": ("jump",)}, {"colors": (-1,)}, {"region": (0, 0, 0, 1)}, {"cycles": (5, 4)}]
)
def test_impossible_filters_are_refused(wrong):
    with pytest.raises(ConfigError):
        TraceFilter(**wrong)


def test_a_log_that_is_given_up_on_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    log = EventLog(tmp_path / "run.h5", META, TraceFilter())
    log.append(many(10), 1 << 30)

    def full(*_):
        raise TraceError("cannot be written: No space left on device")

    monkeypatch.setattr(RunWriter, "add_events", full)
    with pytest.raises(TraceError, match="No space left"):
        log.abandon()
    assert not list(tmp_path.iterdir())


def test_a_segment_that_cannot_be_written_is_said(tmp_path, small_segments):
    log = EventLog(tmp_path / "run.h5", META, TraceFilter())
    shutil.rmtree(tmp_path / "run.h5.part")
    (tmp_path / "run.h5.part").touch()  # a file is in the way of the directory
    with pytest.raises(TraceError, match="cannot be written"):
        log.append(many(10 * CHUNK), 1 << 30)


def test_every_field_of_an_event_is_described():
    assert tuple(COLUMNS) == EVENT_DTYPE.names
