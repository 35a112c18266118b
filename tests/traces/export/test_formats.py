"""Exports of a chain reduce, read back by independent readers and by the line forms of the vendor's viewer."""

from __future__ import annotations

import csv
import inspect
import re
import sys
import tomllib

import numpy as np
import pytest

from fabric.host.fabric import Fabric
from fabric.host.recording import record
from fabric.layout.layout import Layout
from fabric.program.program import Program
from tests.conftest import ROOT
from tests.traces.export import perfetto_file
from tests.traces.samples import chain
from traces.export import formats
from traces.export.formats import export
from traces.paths import follow, identify
from traces.trace import Trace
from wse_core.errors import TraceError
from wse_core.events import KINDS

PES, N = 4, 6


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "chain.h5"
    chain(path, PES, N)
    with Trace.open(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def events(trace):
    return trace.events()


def of_kind(events, kind):
    return events[events["kind"] == KINDS.index(kind)]


# --- identities -------------------------------------------------------------------------------------------------------


def test_a_wavelet_is_followed_from_ramp_to_ramp(events):
    numbers = identify(events)
    injected = of_kind(events, "inject")
    assert len(np.unique(numbers[numbers >= 0])) == len(injected) == (PES - 1) * N
    for wavelet in range(len(injected)):
        path = follow(events, numbers, wavelet)
        assert [KINDS[kind] for kind in path["kind"]] == ["inject", "depart", "depart", "take"]
        assert len(set(path["data"].tolist())) == 1
        assert path["x"].tolist() == [path["x"][0]] * 2 + [path["x"][0] - 1] * 2
        assert np.diff(path["cycle"]).tolist()[:2] == [3, 1]  # up the ramp, one hop


# --- formats ----------------------------------------------------------------------------------------------------------


def test_csv_is_the_events(trace, events, tmp_path):
    export(trace, "csv", tmp_path / "t.csv", events)
    with open(tmp_path / "t.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == len(events)
    assert [int(row["cycle"]) for row in rows] == events["cycle"].tolist()
    assert [row["kind"] for row in rows] == [KINDS[kind] for kind in events["kind"]]
    assert [int(row["data"], 16) for row in rows] == events["data"].tolist()


def test_parquet_is_the_events(trace, events, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    export(trace, "parquet", tmp_path / "t.parquet", events)
    frame = pandas.read_parquet(tmp_path / "t.parquet")
    assert frame["cycle"].tolist() == events["cycle"].tolist()
    assert frame["kind"].tolist() == [KINDS[kind] for kind in events["kind"]]
    selected = trace.pandas(kinds=("wait",))
    assert set(selected["kind"]) == {"wait"}


def test_perfetto_has_slices_flows_and_counters(trace, events, tmp_path):
    pytest.importorskip("perfetto")
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

    export(trace, "perfetto", tmp_path / "t.pftrace", events)
    message = perfetto_file.read(tmp_path / "t.pftrace")
    names, parents, depth, flows, ended, last, counted = {}, {}, {}, set(), set(), {}, {}
    slices = []
    for packet in message.packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            names[track.uuid] = track.name or track.process.process_name
            parents[track.uuid] = track.parent_uuid
            continue
        event = packet.track_event
        if not event.track_uuid:
            continue  # the tables of names
        assert packet.timestamp >= last.get("time", 0)
        last["time"] = packet.timestamp
        where = names[parents[event.track_uuid]], names[event.track_uuid]
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            depth[event.track_uuid] = depth.get(event.track_uuid, 0) + 1
            slices.append((*where, event.name))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            depth[event.track_uuid] -= 1
            assert depth[event.track_uuid] >= 0
        elif event.type == TrackEvent.TYPE_COUNTER:
            assert event.counter_value >= counted.get(where, 0)
            counted[where] = event.counter_value
        flows |= set(event.flow_ids)
        ended |= set(event.terminating_flow_ids)
    assert set(depth.values()) == {0}
    assert flows == ended == set(range(1, (PES - 1) * N + 1))
    grants = of_kind(events, "depart")
    for place in range(PES):
        for bit, direction in enumerate("WENSR"):
            sent = np.count_nonzero((grants["x"] == place) & (grants["aux"] >> bit & 1 == 1))
            assert counted.get((f"PE ({place}, 0)", f"link {direction}"), 0) == sent
    assert slices.count(("PE (1, 0)", "main", "fadds")) == 1
    assert slices.count(("PE (3, 0)", "main", "fmovs")) + slices.count(("PE (3, 0)", "main", "mov32")) == 1
    assert {where for where, track, _ in slices if track == "tasks"} == {f"PE ({x}, 0)" for x in range(PES)}
    assert ("PE (0, 0)", "waits", "waits for input") in slices


LINE_FORMS = [  # architecture reference, section 11.2
    r"@0 dimX=\d+, dimY=\d+",
    r"@\d+ P\d+\.\d+ \(hwtile\) landing C\d+ from link [WESNR],.*",
    r"@\d+ P\d+\.\d+ \(hwtile\) wavelet C\d+ ctrl=[01], idx=[0-9a-f]+, data=[0-9a-f]+ \([^()]*\([^()]*\)\), half=\d, "
    r"ident=[0-9a-f]{16} landing=[RENWSD-] departing=/.{5}/.*",
    r"@\d+ P\d+\.\d+:.* Writing wavelet C\d+ .* to OUT_Q\[\d\]",
    r"@\d+ P\d+\.\d+:.* Sending wavelet C\d+ .* ident:[0-9a-f]{16} on OUT_Q\[\d\]",
    r"@\d+ P\d+\.\d+:.* Backpressure on C\d+ for OUT_Q\[\d\]",
    r"@\d+ P\d+\.\d+:.* Not enough wavelets \(\d+/\d+\) for SRC\d with C\d+, IN_Q\[\d\], SIMD-\d+",
    r"@\d+ P\d+\.\d+:.* Pipe: \d+, Msg: stall: .*",
    r"@\d+ P\d+\.\d+:.* \[EX OP\] IDLE",
    r"@\d+ P\d+\.\d+:.* \[EX OP\] \^ 0x[0-9a-f]+: T\d+(\.UT\d)? [A-Z0-9_]+ .*",
]


def test_the_log_has_the_lines_that_the_viewer_reads(trace, events, tmp_path):
    export(trace, "log", tmp_path / "sim.log", events)
    lines = (tmp_path / "sim.log").read_text().splitlines()
    forms = [sum(bool(re.fullmatch(form, line)) for line in lines) for form in LINE_FORMS]
    assert sum(forms) == len(lines)  # every line has one form
    assert forms[0] == 1
    hops = (PES - 1) * N
    assert forms[1] == hops
    assert forms[2] == 2 * hops
    assert forms[3] == forms[4] == hops
    assert forms[6] > 0
    cycles = [int(re.match(r"@(\d+)", line)[1]) for line in lines]
    assert cycles == sorted(cycles)
    for line in lines:  # a departure shows up at the neighbour one cycle later, under the same identity
        found = re.match(r"@(\d+) P(\d+)\.0 .*ident=(\w+) landing=R departing=/  W  /", line)
        if found:
            cycle, x, ident = int(found[1]), int(found[2]), found[3]
            arrival = rf"@{cycle + 1} P{x - 1}\.0 .*ident={ident} landing=E departing=/    R/ to_ce_from_router"
            assert any(re.match(arrival, other) for other in lines)


def test_perfetto_names_add_up_and_arguments_differ(trace, events, tmp_path):
    """A name is stored once and says what happens; payload, color, elements and place in the source are arguments."""
    pytest.importorskip("perfetto")
    export(trace, "perfetto", tmp_path / "t.pftrace", events)
    message = perfetto_file.read(tmp_path / "t.pftrace")
    named = [packet.track_event for packet in message.packet if packet.track_event.name]
    assert {event.name for event in named} <= {
        *("inject C0", "grant C0", "take C0", "inject C1", "grant C1", "take C1"),
        *("main", "mov32", "fadds", "waits for input", "waits for output", "activate main"),
    }
    sent = [perfetto_file.arguments(event) for event in named if event.name.startswith("inject")]
    injected = of_kind(events, "inject")
    assert [facts["payload"] for facts in sent] == [f"{data:08x}" for data in injected["data"]]
    assert [facts["color"] for facts in sent] == injected["color"].tolist()
    adding = [perfetto_file.arguments(event) for event in named if event.name == "fadds"]
    assert {facts["elements"] for facts in adding} == {N}
    waits = [perfetto_file.arguments(event) for event in named if event.name == "waits for input"]
    assert sorted(facts["cycles"] for facts in waits) == sorted(
        of_kind(events, "wait")["data"][of_kind(events, "wait")["aux"] == 1].tolist()
    )


def test_operations_say_their_line(tmp_path):
    """`fabric.record` knows where each operation stands in the source of its program."""
    pytest.importorskip("perfetto")
    p = Program("p")
    a = p.array("a", 4, "f32")
    with p.task("main"):
        p.fmuls(a, a, 2.0)
    line = inspect.currentframe().f_lineno - 1
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    with record(tmp_path / "run.h5", trace="events"):
        fabric = Fabric(layout, "reference")
        fabric.launch("main")
        fabric.run()
    with Trace.open(tmp_path / "run.h5") as opened:
        export(opened, "perfetto", tmp_path / "t.pftrace", opened.events())
    message = perfetto_file.read(tmp_path / "t.pftrace")
    (facts,) = [
        perfetto_file.arguments(packet.track_event) for packet in message.packet if packet.track_event.name == "fmuls"
    ]
    assert facts["source"] == f"test_formats.py:{line}"
    assert facts["elements"] == 4


def test_vcd_has_states_by_name_and_modules_in_their_order(tmp_path):
    pytest.importorskip("vcd")
    reader = pytest.importorskip("vcdvcd")
    chain(tmp_path / "run.h5", 11, 5)
    with Trace.open(tmp_path / "run.h5") as opened:
        export(opened, "vcd", tmp_path / "t.vcd", opened.events())
    found = reader.VCDVCD(str(tmp_path / "t.vcd"))
    scopes = list(dict.fromkeys(name.partition(".")[0] for name in found.signals))
    assert scopes == sorted(scopes) == [f"pe_{x:02}_0" for x in range(11)]
    lines = (tmp_path / "t.vcd").read_text().splitlines()  # that reader passes over texts
    states = []
    for kind in ("task", "wait"):
        code = next(line.split()[3] for line in lines if line.startswith("$var string") and line.split()[4] == kind)
        states.append({line.split()[0] for line in lines if line.endswith(f" {code}") and line.startswith("s")})
    assert states == [{"s-", "smain"}, {"s-", "sinput"}]


def test_vcd_is_read_back_by_another_reader(trace, events, tmp_path):
    pytest.importorskip("vcd")
    reader = pytest.importorskip("vcdvcd")
    export(trace, "vcd", tmp_path / "t.vcd", events)
    found = reader.VCDVCD(str(tmp_path / "t.vcd"))
    grants = of_kind(events, "depart")
    for x in range(1, PES):
        here = grants[(grants["x"] == x) & (grants["aux"] == 1)]
        signal = next(found[name] for name in found.signals if name.startswith(f"pe_{x}_0.grant_W"))
        values = {time: value for time, value in signal.tv if "z" not in value}
        assert values == {int(event["cycle"]): f"{int(event['data']):b}" for event in here}


def test_announced_sizes_are_near(tmp_path):
    """Within a factor of three, on a run of some thousand events."""
    chain(tmp_path / "run.h5", 8, 60)
    with Trace.open(tmp_path / "run.h5") as trace:
        events = trace.events()
        for name, entry in formats.FORMATS.items():
            if entry.needs:
                pytest.importorskip(entry.needs)
            export(trace, name, tmp_path / name, events)
            size = (tmp_path / name).stat().st_size
            announced = formats.announced_bytes(name, len(events))
            assert size / 3 < announced < 3 * size, (name, size, announced)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_huge_export_must_be_forced(trace, events, tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "LIMIT_BYTES", 100)
    with pytest.raises(TraceError, match="would take about"):
        export(trace, "csv", tmp_path / "t.csv", events)
    assert list(tmp_path.iterdir()) == []
    export(trace, "csv", tmp_path / "t.csv", events, force=True)
    assert (tmp_path / "t.csv").exists()


def test_a_missing_package_is_named(trace, events, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(TraceError, match="pyarrow"):
        export(trace, "parquet", tmp_path / "t.parquet", events)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [name for name, entry in formats.FORMATS.items() if entry.needs])
def test_a_hint_names_the_extra_that_brings_the_package(trace, events, tmp_path, monkeypatch, name):
    """A distribution may be called otherwise than what one imports, and that name be somebody else's package."""
    entry = formats.FORMATS[name]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert any(re.match(rf"{entry.package}\b", requirement) for requirement in extras[entry.extra])
    monkeypatch.setitem(sys.modules, entry.needs, None)
    for module in list(sys.modules):
        if module.startswith(f"{entry.needs}."):
            monkeypatch.setitem(sys.modules, module, None)
        elif module.startswith("traces.export.") and module != formats.__name__:
            monkeypatch.delitem(sys.modules, module)
    with pytest.raises(TraceError) as caught:
        export(trace, name, tmp_path / "t", events)
    assert f"needs {entry.package}," in str(caught.value)
    assert f"pip install 'wse-sim[{entry.extra}]'" in str(caught.value)


@pytest.mark.parametrize("name", list(formats.FORMATS))
def test_nothing_at_all_can_be_exported(trace, events, tmp_path, name):
    entry = formats.FORMATS[name]
    if entry.needs:
        pytest.importorskip(entry.needs)
    export(trace, name, tmp_path / "empty", events[:0])
    assert (tmp_path / "empty").exists()
