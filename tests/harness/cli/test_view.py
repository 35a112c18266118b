"""``wse kernel --trace``, ``wse view``, ``wse export``: from a recorded run to text, pictures and other formats."""

from __future__ import annotations

import csv
import io
import itertools
import json
import shutil
import subprocess
import sys
import time
import tomllib

import numpy as np
import pytest
from PIL import Image, ImageSequence

from fabric import Fabric
from harness.cli import main as cli
from tests.traces.samples import chain
from traces import movie
from traces.event_log import segments_of
from traces.run_format import SEGMENT
from traces.state import RegionStates
from traces.trace import Trace
from wse_core.errors import TraceError
from wse_core.events import KINDS


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
    done = wse(
        "kernel",
        "chain_reduce",
        "pes=3",
        "n=4",
        "--trace",
        "full",
        "--out",
        "t.h5",
        "--trace-region",
        "1,0,1,1",
        "--trace-cycles",
        "10:",
        "--trace-colors",
        "1",
    )
    assert done.returncode == 0, done.stderr
    with Trace.open(tmp_path / "t.h5") as trace:
        events = trace.events()
        assert set(events["x"]) == {1}
        assert set(events["color"]) == {1, 255}
        assert events["cycle"].min() >= 10


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--trace", "full"], "needs a file"),
        (["--trace-colors", "1"], "nothing is recorded"),
        (["--trace", "full", "--out", "t.h5", "--trace-cycles", "9"], "no range"),
        (["--trace", "full", "--out", "t.h5", "--trace-region", "0,0,0,1"], "no rectangle"),
        (["--trace", "full", "--out", "t.h5", "--trace-colors", "x"], "no colors"),
    ],
)
def test_what_cannot_be_recorded_is_said(wse, tmp_path, words, says):
    done = wse("kernel", "ping", *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_levels_hold_what_they_say(wse, tmp_path):
    kinds = {}
    for level in ("off", "counters", "events", "full"):
        done = wse("kernel", "chain_reduce", "pes=3", "n=4", "--trace", level, "--out", "t.h5")
        assert done.returncode == 0, done.stderr
        with Trace.open(tmp_path / "t.h5") as trace:
            assert ("busy" in trace.files[0].counters) == (level != "off")
            assert trace.files[0].result("cycles") > 0
            facts = json.loads(wse("view", "t.h5", "--json").stdout)
            assert facts["cycles"] == (trace.clock if trace.has_events else trace.files[0].result("cycles"))
            kinds[level] = {KINDS[kind] for kind in trace.events()["kind"]} if trace.has_events else None
    assert kinds["off"] is kinds["counters"] is None
    assert kinds["events"] == {"activate", "task_start", "task_end", "op_start", "op_end", "wait", "host"}
    assert kinds["full"] == kinds["events"] | {"inject", "depart", "take"}
    wrong = wse("kernel", "ping", "--trace", "off", "--trace-window", "9", "--out", "u.h5")
    assert (wrong.returncode, "no counters are recorded" in wrong.stderr) == (2, True)


def test_a_killed_run_is_looked_at(wse, root, child_env, tmp_path):
    """SIGKILL in the middle of a traced kernel: whole segments are there, and the commands open them."""
    path = tmp_path / "long.h5"
    words = ["kernel", "chain_reduce", "pes=400", "n=6000", "--trace", "full", "--out", str(path)]
    child = subprocess.Popen(
        [sys.executable, "-m", "harness", *words],
        cwd=root,
        env=child_env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not segments_of(path):
        assert child.poll() is None
        time.sleep(0.005)
    child.kill()
    child.wait()
    assert not path.exists()
    facts = json.loads(wse("view", path, "--json").stdout)
    assert facts["complete"] is False
    assert facts["events"] > 0
    assert facts["events"] % SEGMENT == 0
    done = wse("view", path, "--cycle", "100", "--region", "396,0,4,1")
    assert done.returncode == 0, done.stderr
    assert "x=399" in done.stdout
    done = wse("export", path, "--format", "csv", "--cycles", ":200", "--out", "t.csv")
    assert done.returncode == 0, done.stderr
    with Trace.open(path) as trace:
        for file in trace.files:
            file.verify()


def test_a_run_that_fails_is_looked_at(monkeypatch, capsys, tmp_path):
    """What was recorded until then becomes a run file; of a run without events nothing is left."""
    run = Fabric.run
    monkeypatch.setattr(Fabric, "run", lambda self, *_, **__: run(self, max_cycles=60))
    words = ["kernel", "chain_reduce", "pes=8", "n=40", "--out", str(tmp_path / "a" / "run.h5")]
    assert cli.main(words) != 0
    assert list(tmp_path.iterdir()) == []
    assert cli.main([*words, "--trace", "full", "--trace-window", "20"]) != 0
    assert "run.h5 has what was recorded until then" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["run.h5"]
    with Trace.open(tmp_path / "a" / "run.h5") as trace:
        assert (trace.complete, trace.meta.status) == (True, "cycle limit")
        assert 40 < trace.events()["cycle"].max() <= 60
        assert trace.files[0].counter("busy").values.shape[0] >= 3
        assert trace.meta.machine["router.hop"] == 1


def test_kinds_are_chosen(wse, tmp_path):
    done = wse(
        "kernel", "chain_reduce", "pes=3", "n=4", "--out", "t.h5", "--trace", "full", "--trace-kinds", "wait,take"
    )
    assert done.returncode == 0, done.stderr
    with Trace.open(tmp_path / "t.h5") as trace:
        assert {KINDS[kind] for kind in trace.events()["kind"]} == {"wait", "take"}
    wrong = wse("kernel", "ping", "--trace", "events", "--out", "u.h5", "--trace-kinds", "take")
    assert (wrong.returncode, "no events of kind 'take'" in wrong.stderr) == (2, True)


def test_a_run_file_says_what_was_asked_for(wse, tmp_path):
    done = wse("kernel", "chain_reduce", "pes=3", "n=4", "seed=5", "--set", "router.hop=2", "--out", "t.h5")
    assert done.returncode == 0, done.stderr
    with Trace.open(tmp_path / "t.h5") as trace:
        meta = trace.meta
    asked = tomllib.loads(meta.config_toml)
    assert (meta.seed, meta.preset, meta.machine["router.hop"]) == (5, "wse2", 2)
    assert (asked["kernel"], asked["set"], asked["params"]["pes"]) == ("chain_reduce", ["router.hop=2"], 3)
    assert meta.package_version
    assert meta.build_mode
    assert meta.started.endswith(("Z", "+00:00"))


def test_cycles_are_stepped_through_with_keys(run_file, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\nn\np\n5\n+3\n-8\np\nx\n9999\nq\nn\n"))
    assert cli.main(["view", str(run_file), "--step", "--cycle", "29"]) == 0
    with Trace.open(run_file) as trace:
        last = trace.clock
    said = capsys.readouterr()
    shown = [int(line.split()[1]) for line in said.out.splitlines() if line.startswith("cycle ")]
    assert shown == [29, 30, 31, 30, 5, 8, 0, 0, 0, last]
    assert "n, p, q" in said.err


def test_an_animation_as_mp4_needs_ffmpeg(run_file, tmp_path):
    with Trace.open(run_file) as trace:
        if shutil.which("ffmpeg"):
            movie.animate(tmp_path / "a.mp4", trace, (24, 31))
            assert b"ftyp" in (tmp_path / "a.mp4").read_bytes()[:16]
        else:
            with pytest.raises(TraceError, match="MP4 needs ffmpeg"):
                movie.animate(tmp_path / "a.mp4", trace, (24, 31))
        with pytest.raises(TraceError, match="too long"):
            movie.animate(tmp_path / "a.gif", trace, (0, 10_000))


def test_an_animation_has_a_frame_for_each_cycle(run_file, tmp_path):
    with Trace.open(run_file) as trace:
        movie.animate(tmp_path / "a.gif", trace, (24, 31))
    with Image.open(tmp_path / "a.gif") as image:
        assert image.n_frames == 7
        frames = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(image)]
    assert all((frame[0, 0] == 255).all() for frame in frames)
    assert all((one != other).any() for one, other in itertools.pairwise(frames))


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
    assert {
        "chain-busy.png",
        "chain-links.png",
        "chain-stalls.png",
        "chain-timeline.png",
        "chain-utilisation.png",
        "chain-animation.gif",
    } <= written
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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["view", "nothing.h5"], "no such file"),
        (["view", "RUN", "--figure", "pie"], "no figure"),
        (["view", "RUN", "--cycle", "1", "--region", "0,0,400,400"], "do not fit"),
        (["view", "RUN", "--follow", "1,2"], "4 numbers"),
        (["view", "RUN", "--follow", "1,2,0,19"], "no wavelet"),
        (["view", "RUN", "--page", "a.html", "--figure", "heat"], "--figure: not together with --page"),
        (["view", "RUN", "--page", "a.html", "--cycle", "3"], "--cycle: not together with --page"),
        (["view", "RUN", "--page", "a.html", "--out", "b"], "--out: only with --figure"),
        (["view", "RUN", "--page", "a.html", "--region", "0,0,9,9"], "4 x 1 PEs"),
        (["view", "RUN", "--page", "a.html", "--kinds", "land"], "no events of kind 'land'"),
        (["view", "RUN", "--profile", "--tasks", "0,0"], "--tasks: not together with --profile"),
        (["view", "RUN", "--window", "0"], "--window: only with --figure"),
        (["export", "RUN", "--kinds", "jump"], "no kind"),
        (["export", "RUN", "--cycles", "b:a"], "no range"),
    ],
)
def test_mistakes_are_answered_in_one_line(wse, run_file, words, says):
    done = wse(*(run_file if word == "RUN" else word for word in words))
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ("--trace-region 50,0,1,1", "--trace-region: the rectangle at (50, 0) lies outside the 4 x 1 PEs"),
        ("--trace-region 0,0,1", "--trace-region: '0,0,1' is no rectangle"),
        ("--trace-colors 99", "--trace-colors: there is no color 99"),
        ("--trace-cycles 5:2", "--trace-cycles: '5:2' is no range of cycles"),
    ],
)
def test_nothing_is_recorded_of_what_is_not_there(wse, tmp_path, words, match):
    done = wse("kernel", "chain_reduce", "pes=4", "n=4", "--trace", "full", *words.split(), "--out", "t.h5")
    assert done.returncode == 2
    assert match in done.stderr.replace("\n", " ")
    assert not list(tmp_path.iterdir())


def test_what_lies_outside_of_the_run_is_refused_with_its_range(run_file, capsys):
    with Trace.open(run_file) as trace:
        last = trace.clock
    for words, says in (
        (["--cycle", str(last + 1)], f"cycles 0 to {last}"),
        (["--cycle", "-1"], f"cycles 0 to {last}"),
        (["--cycle", "3", "--region", "2,0,9,1"], "4 x 1 PEs"),
        (["--tasks", "0,1"], "4 x 1 PEs"),
        (["--step", "--cycle", "99999"], f"cycles 0 to {last}"),
    ):
        assert cli.main(["view", str(run_file), *words]) == 2, words
        assert says in capsys.readouterr().err


def test_a_cycle_for_scripts(run_file, capsys):
    """What the picture in the terminal shows, as data: tasks, waits, operations and grants of each PE."""
    assert cli.main(["view", str(run_file), "--cycle", "29", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    with Trace.open(run_file) as trace:
        states = RegionStates(trace, (0, 0, 4, 1)).at(29)
        grants = trace.events(cycles=(29, 30), kinds=("depart",))
    assert (found["cycle"], found["region"]) == (29, [0, 0, 4, 1])
    assert [(pe["x"], pe["y"], pe["wait"]) for pe in found["pes"]] == [(x, 0, states[x, 0].wait) for x in range(4)]
    assert {pe["task"] for pe in found["pes"]} == {"main"}
    assert any(pe["operations"].get("main") == "fadds" for pe in found["pes"])
    moved = [(pe["x"], grant["color"], grant["payload"]) for pe in found["pes"] for grant in pe["grants"]]
    assert moved == [(int(e["x"]), int(e["color"]), int(e["data"])) for e in grants]


def test_an_animation_is_large_and_says_how_far_it_is(run_file, tmp_path, capsys):
    told = []
    with Trace.open(run_file) as trace:
        movie.animate(tmp_path / "a.gif", trace, (24, 27), progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (3, 3)
    with Image.open(tmp_path / "a.gif") as image:
        assert max(image.size) >= 600
    words = ["view", str(run_file), "--figure", "animation", "--cycles", "24:27", "--out", str(tmp_path), "--progress"]
    assert cli.main(words) == 0
    assert "animation" in capsys.readouterr().err


def test_an_animation_shows_all_pes_that_are_in_use_and_cuts_nothing_off(run_file, tmp_path, monkeypatch):
    """In these cycles only some PEs grant anything; the others are there too, and labels and legend lie inside."""
    stages = []
    made = movie._Stage
    monkeypatch.setattr(movie, "_Stage", lambda *args: stages.append(made(*args)) or stages[-1])
    with Trace.open(run_file) as trace:
        granting = np.unique(trace.events(cycles=(24, 26), kinds=("depart",))["x"])
        movie.animate(tmp_path / "a.gif", trace, (24, 26))
        movie.animate(tmp_path / "b.gif", trace, (24, 31), region=(1, 0, 2, 1), pixels=560)
    assert len(granting) < 4
    assert [stage.region for stage in stages] == [(0, 0, 4, 1), (1, 0, 2, 1)]
    for stage in stages:
        width, height = stage.figure.canvas.get_width_height()
        for part in (stage.axes.get_legend(), stage.axes.xaxis.label, stage.axes.yaxis.label, stage.title):
            box = part.get_window_extent()
            assert 0 <= box.x0 < box.x1 <= width
            assert 0 <= box.y0 < box.y1 <= height
    with Image.open(tmp_path / "b.gif") as image:
        assert max(image.size) <= 560


def test_what_is_not_shown_is_said(run_file, tmp_path, capsys):
    """A directory for an animation is made, hints name colors that move, and a fabric shown in part says so."""
    out = tmp_path / "new" / "pictures"
    words = ["view", str(run_file), "--figure", "animation", "--cycles", "24:26", "--out", str(out)]
    assert cli.main(words) == 0
    assert [path.name for path in out.iterdir()] == [f"{run_file.stem}-animation.gif"]
    capsys.readouterr()
    assert cli.main(["view", str(run_file), "--follow", "0,2,0,23"]) == 2
    assert "colors that do: " in capsys.readouterr().err
    assert cli.main(["view", str(run_file), "--cycle", "20"]) == 0
    assert "--region" not in capsys.readouterr().out
    wide = str(tmp_path / "wide.h5")
    assert cli.main(["kernel", "chain_reduce", "pes=11", "n=2", "--trace", "full", "--out", wide]) == 0
    capsys.readouterr()
    assert cli.main(["view", wide, "--cycle", "20"]) == 0
    assert "8 x 1 of 11 x 1 PEs; --region" in capsys.readouterr().out
    assert cli.main(["view", wide, "--json"]) == 0
    with Trace.open(wide) as trace:
        assert json.loads(capsys.readouterr().out)["measured_cycles"] == trace.files[0].result("cycles") < trace.clock


def test_a_page_is_written(wse, run_file, tmp_path):
    done = wse("view", run_file, "--page", "deep/a.html", "--cycles", "20:40", "--region", "1,0,2,1", "--json")
    assert done.returncode == 0, done.stderr
    written = json.loads(done.stdout)
    path = tmp_path / "deep" / "a.html"
    assert (written["bytes"], written["written"]) == (path.stat().st_size, "deep/a.html")
    with Trace.open(run_file) as trace:
        kinds = ("inject", "depart", "enter", "take")
        assert written["rows"]["moves"] == len(trace.events((20, 40), kinds, (1, 0, 2, 1)))
    again = wse("view", run_file, "--page", path, "--kinds", "task_start,task_end", "--colors", "0")
    assert again.stdout.startswith(f"written: {path}, "), again.stderr
    assert again.stdout.endswith("(4 tasks)\n")


def test_a_page_of_counters_alone_needs_windows(wse, tmp_path):
    wse("kernel", "chain_reduce", "pes=3", "n=4", "--out", "t.h5")
    done = wse("view", "t.h5", "--page", "a.html")
    assert done.returncode == 2
    assert "t.h5: holds neither events nor counters per window" in done.stderr
    assert "--trace full, --trace events or --trace-window N" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["t.h5"]
    assert wse("kernel", "chain_reduce", "pes=3", "n=4", "--trace-window", "9", "--out", "t.h5").returncode == 0
    done = wse("view", "t.h5", "--page", "a.html")
    assert done.stdout.endswith(" windows)\n"), done.stderr
    done = wse("view", "t.h5", "--page", "a.html", "--kinds", "wait")
    assert (done.returncode, "no kinds to choose" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--trace-cycles", "100000:200000"], "its first cycle is 100,000, and the run ended before cycle"),
        (["--trace-region", "3,0,40,40", "--trace-kinds", "teardown"], "nothing of what was selected happened"),
    ],
)
def test_a_recording_of_nothing_is_said(tmp_path, capsys, words, said):
    start = ["kernel", "chain_reduce", "pes=4", "n=8", "--trace", "full", "--out", str(tmp_path / "run.h5"), "--json"]
    assert cli.main([*start, *words]) == 0
    assert said in capsys.readouterr().err
    assert cli.main(start) == 0
    assert "no event" not in capsys.readouterr().err
