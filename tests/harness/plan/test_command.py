"""``wse plan`` and the published cells."""

from __future__ import annotations

import csv
import dataclasses
import json

import pytest

from harness.cli import main as cli
from harness.plan import registry, reproduce
from harness.plan.figures import NAMES, figure
from harness.plan.published import CELLS, PrintedCell


def run(capsys, *words):
    status = cli.main(["plan", *map(str, words)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.paper}-{cell.table}-{cell.row}-{cell.column}")
def test_every_cell(cell):
    outcome = reproduce.ReproducedCell(cell, reproduce.derive(cell))
    if cell.kind == "misprint":
        assert not outcome.agrees, "this print does follow; it is no misprint"
        assert cell.note
    else:
        assert outcome.agrees, outcome.as_dict()


@pytest.mark.parametrize(
    ("text", "digits", "half"),
    [
        ("14.1 K", 0, 50),
        ("0.389", 0, 0.0005),
        ("630", 2, 5),
        ("1.3", 2, 0.05),
        ("6.24e24", 0, 0.5e22),
        ("8 B", 0, 5e8),
        ("2420", 3, 5),
    ],
)
def test_a_printed_number_has_a_last_digit(text, digits, half):
    assert PrintedCell("p", "t", "r", "c", text, digits).half_unit == pytest.approx(half)


def test_a_wrong_cell_fails(capsys, monkeypatch):
    wrong = dataclasses.replace(CELLS[0], text="9.9e21")
    monkeypatch.setattr(reproduce, "CELLS", [wrong, *CELLS[1:3]])
    status, out, _ = run(capsys, "--reproduce")
    assert status == 1
    assert "1 off" in out


def test_reproduce(capsys):
    status, out, _ = run(capsys, "--reproduce", "--json")
    found = json.loads(out)
    assert status == 0
    assert found["counts"] == {"ok": len(CELLS) - 7, "misprint": 7, "off": 0}
    assert {"printed", "derived", "error", "verdict"} <= set(found["cells"][0])


def test_a_plan(capsys):
    status, out, _ = run(capsys, "X160", "--rules")
    assert status == 0
    assert "rules of the paper" in out
    assert "38,640" in out
    assert "6.79 d" in out
    status, out, _ = run(capsys, "X160")
    assert status == 0
    assert out.count("all configurations") == 3
    assert "rules of the paper" not in out
    status, out, _ = run(capsys, "gpt-3", "--json", "--devices", 64)
    plans = json.loads(out)["plans"]
    assert status == 0
    assert all(plan["devices"] <= 64 for plan in plans[:-1])
    assert plans[-1]["systems"] == 64


def test_a_strategy_is_one_row(capsys, monkeypatch):
    def idle(request, name):
        return {"strategy": name, "devices": request.devices}

    monkeypatch.setitem(registry.STRATEGIES, "idle", idle)
    status, out, _ = run(capsys, "gpt-3", "--strategy", "idle", "--devices", 7, "--json")
    assert status == 0
    assert json.loads(out)["plans"] == [{"strategy": "idle", "devices": 7}]


def test_one_strategy_and_its_degrees(capsys):
    status, out, _ = run(
        capsys,
        "gpt-3",
        "--strategy",
        "data+tensor+pipeline",
        "--degree",
        "data=64",
        "--degree",
        "tensor=16",
        "--degree",
        "pipeline=8",
        "--json",
    )
    assert status == 0
    assert json.loads(out)["plans"][0]["parameter elements"] == pytest.approx(1.367e9, rel=1e-3)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["gpt3"], "did you mean gpt-3"),
        (["X1000"], "must stay on a device"),
        (["X160", "--devices", 0], "the least is 1"),
        (["X160", "--strategy", "improvd"], "did you mean improved"),
        ([], "exactly one"),
        (["X160", "--reproduce"], "exactly one"),
        (["X160", "--network", "ethernt"], "did you mean ethernet"),
        (["X160", "--strategy", "improved", "--days", "1"], "too few"),
        (["gpt-3", "--strategy", "tensor", "--degree", "tensor=99999"], "12288, the features"),
        (["gpt-3", "--strategy", "data", "--degree", "dat=2"], "did you mean data"),
        (["gpt-3", "--strategy", "data", "--days", "7"], "takes degrees, no devices and no days"),
        (["gpt-3", "--strategy", "streaming", "--degree", "tensor=2"], "streaming has no degree 'tensor'"),
        (["gpt-3", "--strategy", "improved", "--degree", "tensr=2"], "did you mean tensor"),
        (["gpt-3", "--strategy", "improved", "--degree", "tensor=32"], "exceeds 16, the devices in a node"),
        (["gpt-3", "--strategy", "improved", "--degree", "tensor=2", "--rules"], "choose all degrees"),
        (["gpt-3", "--strategy", "partitioned", "--degree", "pipeline=2"], "uses no pipeline"),
        (["gpt-3", "--strategy", "baseline", "--degree", "pipeline=7"], "does not divide the 96 layers"),
        (["gpt-3", "--days", "nan"], "nan is not a usable number"),
        (["gpt-3", "--days", "-1"], "too small"),
        (["gpt-3", "--days", "inf"], "inf is not a usable number"),
        (["gpt-3", "--devices", "9" * 5000], "--devices: expected a whole number"),
        (["X1000000000000"], "beyond X10000"),
        (["X" + "8" * 5000], "beyond X10000"),
        (["--schedule", "modular", "--set", "layers=1000000000"], "at most 100,000"),
        (["--schedule", "modular", "--set", "layers=100000", "--set", "count=100000"], "at most 100,000"),
        (["--schedule", "modular", "--set", "devices=17"], "exceed the 16 layers"),
        (["--schedule", "modular", "--set", "device=4"], "did you mean devices"),
        (["--figures", "lga9"], "no figure"),
    ],
)
def test_mistakes_are_one_line(capsys, words, says):
    status, _, err = run(capsys, *words)
    assert status == 2
    assert says in err
    assert err.count("\n") == 1


def test_the_numbers_of_a_wafer_can_be_set(capsys):
    """Half the cores, twice the work of each; what the planner counts and what programs see stand in one table."""
    command = ("gpt-3", "--hardware", "cs2", "--strategy", "streaming", "--devices", "1", "--json")
    found = []
    for words in ((), ("--set", "machine.plan.cores=425000")):
        status, out, _ = run(capsys, *command, *words)
        assert status == 0
        found.append(json.loads(out)["plans"][0]["compute"])
    assert found[1] == pytest.approx(2 * found[0])
    status, _, err = run(capsys, *command, "--set", "machine.plan.corse=1")
    assert status == 2
    assert "did you mean plan.cores?" in err


def test_a_schedule_with_its_files(capsys, tmp_path):
    status, out, _ = run(capsys, "--schedule", "modular", "--out", tmp_path, "--json")
    assert status == 0
    assert json.loads(out)["bubble"] == 0.1875
    assert (tmp_path / "timeline.png").stat().st_size > 1000
    with open(tmp_path / "timeline.csv", newline="") as file:
        assert sum(row["kind"] == "forward" for row in csv.DictReader(file)) == 64
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

    trace = Trace.FromString((tmp_path / "timeline.perfetto-trace").read_bytes())
    begins = [p for p in trace.packet if p.track_event.type == TrackEvent.TYPE_SLICE_BEGIN]
    assert len(begins) == 3 * 64 + 16
    assert max(packet.timestamp for packet in trace.packet) == 76_000_000


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_finite_rows(name):
    rows, draw = figure(name)
    assert len(rows) >= 5
    assert callable(draw)
    for row in rows:
        assert all(value == value and abs(value) < float("inf") for value in row.values() if isinstance(value, float))


def test_a_figure_is_written(capsys, tmp_path):
    status, _, _ = run(capsys, "--figures", "lga1,ws4", "--out", tmp_path)
    assert status == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lga1.csv", "lga1.png", "ws4.csv", "ws4.png"]


def test_gpt3_in_a_week(capsys):
    """The white paper asks 868 Gb/s in each direction for it, and a system has 1.2 Tb/s; compute alone takes less."""
    status, out, _ = run(capsys, "gpt-3", "--strategy", "streaming", "--days", 7, "--json")
    assert status == 0
    (plan,) = json.loads(out)["plans"]
    assert plan["traffic"] == pytest.approx(868e9 / 1.2e12 * 7 * 86400, rel=1e-3)
    assert plan["compute"] <= plan["seconds"] <= 7 * 86400
    half = ("--set", "machine.link.planes=6")
    status, _, err = run(capsys, "gpt-3", "--strategy", "streaming", "--days", 7, *half)
    assert status == 2
    assert "stream for 10.1" in err


def test_degrees_that_are_set_stay(capsys):
    status, out, _ = run(capsys, "gpt-3", "--degree", "tensor=4", "--degree", "pipeline=3", "--json")
    found = json.loads(out)
    assert status == 0
    assert [plan["strategy"] for plan in found["plans"]] == ["baseline", "improved"]
    assert all((plan["tensor"], plan["pipeline"]) == (4, 3) for plan in found["plans"])
    assert "uses no pipeline" in found["impossible"][0]["impossible"]


def test_hardware_of_a_file_says_how_it_counts_a_link(capsys, tmp_path):
    text = 'name = "own"\nflops = 1e15\nmemory = "40 GB"\n[links]\nnetwork = "{}"\n'
    found = []
    for rate in ("300 GB/s", "150 GB/s each way", "150 GB/s"):
        (tmp_path / "own.toml").write_text(text.format(rate))
        status, out, _ = run(
            capsys, "gpt-3", "--hardware", tmp_path / "own.toml", "--strategy", "streaming", "--devices", 400, "--json"
        )
        assert status == 0
        found.append(json.loads(out)["plans"][0]["traffic"])
    assert found[0] == found[1] == found[2] / 2
    (tmp_path / "own.toml").write_text(text.format("each way"))
    status, _, err = run(capsys, "gpt-3", "--hardware", tmp_path / "own.toml")
    assert status == 2
    assert "is no amount of bytes/s" in err
