"""``wse compare``: runs beside each other in tables, which hide nothing and compare what two have."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil

import numpy as np
import pytest

from harness.cli import main as cli
from harness.report.markup import percent
from harness.report.side_by_side import relative, side_by_side
from harness.report.tables import FORMATS
from traces.marks import PhaseMark
from traces.run_format import RunMeta
from traces.trace import Trace
from traces.writer import RunWriter

NOTHING = "Nothing: the same"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three runs of a kernel, one of training and one of inference."""
    folder = tmp_path_factory.mktemp("compare")
    kernel = ["kernel", "chain_reduce", "pes=4"]
    answer = ["generate", "pydoc", "--prompt-ids", "1", "--tokens", "1"]
    for words, name in (
        ([*kernel, "n=40"], "a/run.h5"),
        ([*kernel, "n=80", "--set", "router.hop=2"], "b/run.h5"),
        ([*kernel, "n=40"], "c/run.h5"),
        (["train", "digits", "--iterations", "1"], "t"),
        ([*answer, "--mesh", "4x4", "--verify", "off", "--prefill", "mesh"], "i.h5"),
    ):
        assert cli.main([*words, "--out", str(folder / name), "--json"]) == 0
    return folder


def made(path, results=(), marks=(), **meta):
    path.parent.mkdir(parents=True, exist_ok=True)
    with RunWriter(path, RunMeta(**meta)) as writer:
        for name, value in dict(results).items():
            writer.add_result(name, value)
        writer.add_marks(marks)
    return path


def compared(*paths):
    traces = [Trace.open(path) for path in paths]
    try:
        return side_by_side(traces, paths)
    finally:
        for trace in traces:
            trace.close()


def said(capsys, *words):
    status = cli.main(["compare", *map(str, words)])
    out, err = capsys.readouterr()
    assert status == 0, err
    return out


def test_three_runs_beside_each_other(runs, capsys):
    names = [runs / name / "run.h5" for name in "abc"]
    lines = [line.split() for line in said(capsys, *names).splitlines()]
    assert ["n", "40", "80", "40"] in lines
    assert ["router.hop", "1", "2", "1"] in lines
    assert ["compared_fraction", "1", "1", "(=)", "1", "(=)"] in lines
    with Trace.open(names[0]) as one, Trace.open(names[1]) as other:
        first, second = (trace.files[0].result("cycles") for trace in (one, other))
    change = f"({100 * (second / first - 1):+.2f}"
    assert ["cycles", "[cycles]", str(first), str(second), change, "%)", str(first), "(=)"] in lines


def test_the_same_run_again_is_called_the_same(runs, capsys):
    assert NOTHING in said(capsys, runs / "a/run.h5", runs / "c/run.h5")
    assert NOTHING not in said(capsys, runs / "a/run.h5", runs / "c/run.h5", runs / "b/run.h5")


def test_json_has_everything(runs, capsys):
    names = [runs / "a/run.h5", runs / "b/run.h5"]
    found = json.loads(said(capsys, *names, "--json"))
    assert [run["name"] for run in found["runs"]] == ["a", "b"]
    assert found["same"] is False
    assert {"key": "router.hop", "values": ["1", "2"]} in found["changed"]
    cycles = found["numbers"]["Numbers"][0]
    assert cycles["key"] == "cycles"
    assert cycles["changes"] == [cycles["values"][1] / cycles["values"][0] - 1]
    waits = {row["key"]: row["values"] for row in found["numbers"]["Cycles of a PE, on average"]}
    with Trace.open(names[1]) as trace:
        counter = trace.files[0].counter("stall_input").values
    assert waits["stall_input"][1] == pytest.approx(counter.sum() / 4)


def test_csv_has_numbers_as_they_are(runs, tmp_path, capsys):
    names = [runs / name / "run.h5" for name in "abc"]
    assert "written" in said(capsys, *names, "--out", tmp_path / "d" / "x.csv")
    head, *rows = csv.reader(io.StringIO((tmp_path / "d" / "x.csv").read_text()))
    assert head == ["section", "key", "unit", "meaning", "a", "b", "c", "change of b", "change of c"]
    assert all(len(row) == len(head) for row in rows)
    data = json.loads(said(capsys, *names, "--json"))
    for heading, section in data["numbers"].items():
        for row in section:
            cells = [cells for cells in rows if cells[:2] == [heading, row["key"]] and cells[2] == row["unit"]]
            values = [float(cell) if cell else None for cell in cells[0][4:]]
            assert values == [*row["values"], *row["changes"]]
    assert ["changed", "n", "", "", "40", "80", "40", "", ""] in rows


def test_markdown_is_made_of_whole_tables(tmp_path, runs, capsys):
    made(tmp_path / "a|b.h5", {"cycles": 1, "word": "x|y\nz"})
    made(tmp_path / "c.h5", {"cycles": 2, "word": "y"})
    text = said(capsys, tmp_path / "a|b.h5", tmp_path / "c.h5", "--format", "md")
    assert "x\\|y\\\\nz" in text
    for page in (text, said(capsys, runs / "a/run.h5", runs / "t/run.h5", "--format", "md")):
        for table in (block for block in page.split("\n\n") if block.startswith("|")):
            assert len({line.replace("\\|", "").count("|") for line in table.splitlines()}) == 1


def test_runs_of_different_kinds_compare_what_they_have(runs):
    found = compared(runs / "a/run.h5", runs / "t/run.h5", runs / "i.h5")
    assert {key: values for key, *values in found.about}["kind"] == ["a kernel", "training", "inference"]
    assert "Runs of different kinds: " in found.notes[0]
    assert "result test_accuracy" in found.lacks[0]
    assert "phase answer: prefill" in found.lacks[1]
    assert "result loss" in found.lacks[2]
    assert found.sections["Numbers"][0].key == "cycles"
    assert None not in found.sections["Numbers"][0].values


def test_what_is_not_compared_is_listed(runs):
    """Every result, counter and phase of any run is a row, is the same in all that have it, or is lacked by one."""
    paths = [runs / "a/run.h5", runs / "t/run.h5", runs / "i.h5"]
    found = compared(*paths)
    rows = {row.key for numbers in found.sections.values() for row in numbers}
    lacked = {name.partition(" ")[2] for lacks in found.lacks for name in lacks}
    for path in paths:
        with Trace.open(path) as trace:
            for name in (*trace.files[0].results, *trace.files[0].counters):
                assert name in rows | lacked, name


def test_phases_last_as_long_as_one_of_them_is_on(tmp_path):
    marks = [PhaseMark(0, 10, "t", "load"), PhaseMark(5, 12, "t", "load"), PhaseMark(20, 21, "t", "load")]
    marks += [PhaseMark(k, k + 1, "t", f"token {k}") for k in range(30, 40)]
    one = made(tmp_path / "a.h5", marks=marks)
    other = made(tmp_path / "b.h5", marks=[PhaseMark(0, 26, "t", "load"), PhaseMark(30, 31, "t", "token 1")])
    found = compared(one, other)
    rows = [(row.key, row.unit, row.values) for row in found.sections["Phases"]]
    assert rows == [
        ("t: load", "cycles", (13, 26)),
        ("t: load", "times", (3, 1)),
        ("t: token N", "cycles", (10, 1)),
        ("t: token N", "times", (10, 1)),
    ]
    third = compared(one, made(tmp_path / "c.h5", marks=[PhaseMark(0, 1, "t", "end")]))
    assert third.lacks == [["phase t: end"], ["phase t: load", "phase t: token N"]]


def test_energy_has_a_table_if_a_run_has_it(tmp_path):
    paths = [made(tmp_path / f"{k}.h5", {"cycles": 5, "energy_total": 2.0 * k}) for k in (1, 2)]
    (row,) = compared(*paths).sections["Energy"]
    assert (row.values, row.changes) == ((2.0, 4.0), (1.0,))


def test_results_that_are_no_numbers_show_what_differs(tmp_path):
    same = {"shape": [1, 2], "same": "x"}
    first = made(tmp_path / "a.h5", {"verified": True, "z": np.float32([0.0, np.nan, 1]), **same})
    second = made(tmp_path / "b.h5", {"verified": False, "z": np.float32([-0.0, np.nan, 1]), **same})
    third = made(tmp_path / "c.h5", {"verified": True, "z": np.float32([0.0, np.nan]), **same})
    assert compared(first, second, third).words == [
        ("verified", "True", "False", "True"),
        ("z", "3 float32", "1 of 3 differ", "2 float32"),
    ]


def test_a_run_that_ended_otherwise_is_named(tmp_path):
    one = made(tmp_path / "a.h5", status="deadlock")
    assert compared(one, made(tmp_path / "b.h5")).notes == ["a.h5 ended otherwise: deadlock."]


@pytest.mark.parametrize(
    ("first", "value", "change"),
    [(2, 3, 0.5), (-2, -1, 0.5), (0, 0, 0.0), (0, 1, None), (None, 1, None), (1, float("nan"), None), (True, 2, None)],
)
def test_a_change_is_relative_to_the_first(first, value, change):
    assert relative(first, value) == change


@pytest.mark.parametrize(
    ("change", "text"),
    [(None, ""), (0.0, "="), (0.5, "+50.00 %"), (-1e-7, "-1e-05 %"), (3312, "+331,200 %"), (1e-4, "+0.01 %")],
)
def test_no_change_is_shown_as_none(change, text):
    assert percent(change) == text


@pytest.mark.parametrize("form", FORMATS)
def test_nothing_of_a_file_steers_a_terminal(tmp_path, form):
    paths = [made(tmp_path / f"{k}.h5", {"word": f"\x1b[2J{k}"}, job=f"\x1b[1m{k}") for k in "ab"]
    assert "\x1b" not in FORMATS[form](compared(*paths))


# --- refused ----------------------------------------------------------------------------------------------------------


def refused(capsys, message, *words):
    assert cli.main(["compare", *map(str, words)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    return err


def test_the_same_file_twice(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        made(tmp_path / f"{name}.h5")
    os.link("a.h5", "hard.h5")
    os.symlink("a.h5", "soft.h5")
    refused(capsys, "a.h5: is given twice", "a.h5", "b.h5", "a.h5")
    for name in ("hard.h5", "soft.h5"):
        assert "(a.h5 is the same file)" in refused(capsys, f"{name}: is given twice", "b.h5", "a.h5", name)


def test_what_is_no_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made(tmp_path / "a.h5")
    (tmp_path / "x.txt").write_text("no")
    refused(capsys, "x.txt: is not an HDF5 file", "a.h5", "x.txt")
    refused(capsys, "y.h5: no such file", "a.h5", "y.h5")
    refused(capsys, "required: RUN", "a.h5")


def test_no_run_is_replaced(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        made(tmp_path / f"{name}.h5")
    shutil.copy("b.h5", "kept")
    refused(capsys, "b.h5: is a run, which the tables would replace", "a.h5", "b.h5", "--out", "b.h5")
    assert (tmp_path / "b.h5").read_bytes() == (tmp_path / "kept").read_bytes()
    refused(capsys, "--format: not together with --json", "a.h5", "b.h5", "--json", "--format", "md")
