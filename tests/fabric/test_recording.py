"""`fabric.record`: a run file of one's own program, which every command reads; what fails leaves one too."""

from __future__ import annotations

import numpy as np
import pytest

import fabric as face
from fabric import Fabric, Layout, Program
from fabric.kernels.collectives.chain import chain_layout
from harness.cli import main as cli
from harness.report import page
from tests.conftest import ROOT
from tests.test_docs import run_page
from traces.export.formats import FORMATS, export
from traces.marks import mark
from traces.run_format import RunMeta
from traces.trace import Trace
from traces.writer import RunWriter
from wse_core.errors import ConfigError, DeadlockError, TraceError
from wse_core.events import EVENT_DTYPE, KINDS, TraceFilter
from wse_core.params import machine

BACKENDS = ("compiled", "reference")


def chain(backend, pes=3, n=40):
    fabric = Fabric(chain_layout(pes, n, "f32", "f32", machine("wse2")), backend)
    fabric.write("x", np.ones((1, pes, n), np.float32))
    return fabric


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_block_leaves_everything(backend, tmp_path):
    path = tmp_path / "run.h5"
    with face.record(path, trace="full", windows=50) as recording:
        fabric = chain(backend)
        fabric.launch("main")
        result = fabric.run()
        mark(3, "warm", end=20)
        recording.add_result("first", fabric.read("x", 0, 0)[0, 0], unit="1", doc="the sums")
    assert [found.name for found in tmp_path.iterdir()] == ["run.h5"]
    with Trace.open(path) as trace:
        run = trace.files[0]
        assert trace.meta.job == trace.files[0].path.stem  # tests are no script
        assert (trace.meta.status, trace.meta.preset, trace.meta.first_cycle) == ("completed", "wse2", 0)
        assert trace.meta.machine["router.hop"] == 1
        assert trace.meta.package_version
        assert trace.meta.started
        assert trace.names["tasks"]["24"] == "main" or "main" in trace.names["tasks"].values()
        assert trace.clock == fabric.cycle
        assert [(entry.label, entry.end) for entry in trace.marks] == [("warm", 20)]
        for name, values in fabric.counters().items():
            stored = run.counter(name)
            assert stored.window_cycles == 50
            assert len(stored.values) == -(-fabric.cycle // 50)
            assert np.array_equal(stored.values.sum(axis=0), values), name
        assert run.result("cycles") == result.cycles
        assert run.result("wavelet_hops") == result.wavelet_hops == len(trace.events(kinds=("depart",)))
        assert run.result("macs") == result.macs
        assert run.result("utilisation") == pytest.approx(result.utilisation)
        assert run.result("first").tolist() == [3.0] * 40
        assert {"write", "launch", "read"} == {
            ("launch", "write", "read", "stream", "receive")[k] for k in trace.events(kinds=("host",))["aux"]
        }


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fabric_that_has_run_is_recorded_from_there(backend, tmp_path):
    """Counters, windows, results and pictures are those of the block alone."""
    fabric = chain(backend)
    fabric.launch("main")
    once = fabric.run()
    before = {name: values.copy() for name, values in fabric.counters().items()}
    start = fabric.cycle
    with fabric.record(tmp_path / "second.h5", trace="events", windows=64):
        fabric.launch("main")
        again = fabric.run()
    after, stop = fabric.counters(), fabric.cycle
    fabric.run()  # nothing is told of this
    assert once.cycles == again.cycles
    with Trace.open(tmp_path / "second.h5") as trace:
        run = trace.files[0]
        assert trace.meta.first_cycle == start
        assert run.result("cycles") == again.cycles
        assert trace.events()["cycle"].min() >= start
        for name, values in after.items():
            assert np.array_equal(run.counter(name).values.sum(axis=0), values - before[name]), name
        assert len(run.counter("busy").values) == len(range(start // 64, -(-stop // 64)))
    figures = ["view", str(tmp_path / "second.h5"), "--figure", "windows,timeline,utilisation", "--out", str(tmp_path)]
    assert cli.main([*figures, "--json"]) == 0
    for name in ("windows", "utilisation"):
        rows = (tmp_path / f"second-{name}.csv").read_text().splitlines()
        assert int(rows[1].split(",")[0]) == start


def stuck(backend):
    """A PE that waits for a wavelet that nobody sends."""
    p = Program("stuck")
    place, queue = p.array("place", 1, "u32"), p.input_queue(1, 3)
    with p.task("main"):
        p.mov32(place, p.fabin(queue, 1))
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    layout.route(3, None, "W", "R")
    return Fabric(layout, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_that_gets_stuck_can_be_looked_at(backend, tmp_path):
    with pytest.raises(DeadlockError), face.record(tmp_path / "run.h5", trace="full"):
        fabric = stuck(backend)
        fabric.launch("main")
        fabric.run()
    assert [found.name for found in tmp_path.iterdir()] == ["run.h5"]
    with Trace.open(tmp_path / "run.h5") as trace:
        assert trace.meta.status == "deadlock"
        assert len(trace.events(kinds=("task_start",))) == 1
    assert fabric.on_host is None
    with pytest.raises(ZeroDivisionError), face.record(tmp_path / "other.h5"):
        chain(backend)
        _ = 1 / 0
    with Trace.open(tmp_path / "other.h5") as trace:
        assert trace.meta.status == "interrupted"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"trace": "all"}, "no level 'all'"),
        ({"windows": 0}, "0 is no length"),
        ({"trace": "off", "windows": 5}, "no counters"),
        ({"trace": "full", "kinds": ("jump",)}, "no kind"),
        ({"trace": "full", "colors": (99,)}, "no color 99"),
        ({"trace": "full", "region": (9, 0, 1, 1)}, "outside"),
    ],
)
def test_what_cannot_be_recorded_is_refused(options, says, tmp_path):
    with pytest.raises(ConfigError, match=says), face.record(tmp_path / "run.h5", **options):
        chain("reference")
    assert list(tmp_path.iterdir()) == []


def test_a_block_without_a_fabric_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no fabric was built"), face.record(tmp_path / "run.h5"):
        pass
    with pytest.raises(TraceError, match="cannot be written"), face.record(tmp_path):
        raise AssertionError("the block does not begin")
    assert list(tmp_path.iterdir()) == []


def test_a_selection_and_levels_are_obeyed(tmp_path):
    for level, name in (("off", "off.h5"), ("counters", "counters.h5"), ("full", "full.h5")):
        options = {"region": (1, 0, 1, 1), "cycles": (5, 30)} if level == "full" else {}
        with face.record(tmp_path / name, trace=level, job="mine", seed=7, **options):
            fabric = chain("compiled")
            fabric.launch("main")
            fabric.run()
        with Trace.open(tmp_path / name) as trace:
            assert (trace.meta.job, trace.meta.seed) == ("mine", 7)
            assert trace.has_events == (level == "full")
            assert bool(trace.files[0].counters) == (level != "off")
            if trace.has_events:
                assert set(trace.events()["x"]) == {1}
                assert trace.events()["cycle"].max() < 30


def test_a_recording_inside_another_hears_too(tmp_path):
    """A job that is recorded may itself record: the first fabric goes to both files."""
    with face.record(tmp_path / "outer.h5", trace="counters"), face.record(tmp_path / "inner.h5", trace="counters"):
        fabric = chain("compiled")
        fabric.launch("main")
        fabric.run()
    for name in ("outer.h5", "inner.h5"):
        with Trace.open(tmp_path / name) as trace:
            assert np.array_equal(trace.files[0].counter("busy").values[0], fabric.counters()["busy"])


def test_windows_of_several_recordings_do_not_disturb_each_other(tmp_path):
    fabric = chain("compiled")
    with fabric.record(tmp_path / "outer.h5", windows=50):
        with fabric.record(tmp_path / "inner.h5", windows=30):
            fabric.launch("main")
            first = fabric.run().cycles
        fabric.launch("main")
        fabric.run()
    busy = {}
    for name, length in (("outer", 50), ("inner", 30)):
        with Trace.open(tmp_path / f"{name}.h5") as trace:
            busy[name] = trace.files[0].counter("busy")
        assert busy[name].window_cycles == length
    assert len(busy["inner"].values) == -(-first // 30)
    assert len(busy["outer"].values) == -(-fabric.cycle // 50)
    assert np.array_equal(busy["outer"].values.sum(axis=0), fabric.counters()["busy"])
    assert 2 * busy["inner"].values.sum() == busy["outer"].values.sum()


def test_events_go_to_one_file_at_a_time(tmp_path):
    fabric = chain("compiled")
    with fabric.record(tmp_path / "outer.h5", trace="events"):
        inner = fabric.record(tmp_path / "inner.h5", trace="events")
        with pytest.raises(ConfigError, match="are being recorded to another file"):
            inner.__enter__()
        fabric.launch("main")
        fabric.run()
    with Trace.open(tmp_path / "outer.h5") as trace:
        assert len(trace.events()) > 10
    assert not (tmp_path / "inner.h5").exists()


def test_what_the_writer_writes_every_reader_reads(tmp_path):
    """A run file needs no field of its provenance: neither exports nor pages ask for one."""
    events = np.zeros(40, EVENT_DTYPE)
    events["cycle"] = np.arange(40)
    events["kind"] = np.arange(40) % len(KINDS)
    events["kind"][events["kind"] == KINDS.index("mark")] = 0
    events["color"], events["aux"] = 1, 1
    with RunWriter(tmp_path / "run.h5", RunMeta(job="mine")) as writer:
        writer.add_events(events, 40, TraceFilter())
    with Trace.open(tmp_path / "run.h5") as trace:
        for name in FORMATS:
            export(trace, name, tmp_path / name, trace.events())
            assert (tmp_path / name).stat().st_size > 0
        assert "mine" in page.page(trace)
        with pytest.raises(TraceError, match="does not say how many cycles router.hop takes"):
            trace.events(kinds=("land",))
    for options in (["--cycle", "3"], ["--figure", "all", "--out", str(tmp_path)], ["--tasks", "0,0"], []):
        assert cli.main(["view", str(tmp_path / "run.h5"), *options, "--json"]) == 0


def test_the_first_page_does_what_it_says(tmp_path, monkeypatch):
    """The example of docs/traces.md prints what stands there, and its commands read what it wrote."""
    text = (ROOT / "docs" / "traces.md").read_text(encoding="utf-8").partition("## The figures")[0]
    monkeypatch.chdir(tmp_path)
    for wanted, printed in run_page(text):
        assert printed == wanted
    commands = [line.split()[1:] for line in text.splitlines() if line.startswith("wse ")]
    assert {words[0] for words in commands} == {"view", "export", "report"}
    for words in commands:
        assert cli.main([*words, "--json"]) == 0, words
    assert (tmp_path / "pictures" / "run-timeline.png").exists()
    assert (tmp_path / "run.html").exists()
