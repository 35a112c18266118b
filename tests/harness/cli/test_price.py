"""``wse price``: prices of scripts and of CSL, as text and as JSON, and what is refused."""

from __future__ import annotations

import json

import pytest

from fabric.host.fabric import Fabric
from fabric.layout.layout import Layout
from fabric.program.program import Program
from harness.cli import main as cli
from tests.fabric.csl.test_programs import PROGRAMS
from wse_core.params import machine

SCRIPT = """
import sys
from fabric import Fabric, Layout, Program

p = Program("halves")
x = p.array("x", int(sys.argv[1]) if len(sys.argv) > 1 else 8, "f32")
n = p.param("n", "u16")
with p.task("main"):
    p.fmuls(x, x, 0.5)
    count = p.reg16("count")
    p.ld16(count, n)
    with p.loop(count):
        p.nop()
layout = Layout(3, 1)
layout.place(p, 0, 0, 3, 1)
layout.set_param("n", 2, (0, 0, 1, 1))
layout.set_param("n", 5, (1, 0, 1, 1))
fabric = Fabric(layout)
raise ValueError("nothing runs")
"""


@pytest.fixture
def script(tmp_path):
    """The script in a file."""
    path = tmp_path / "halves.py"
    path.write_text(SCRIPT)
    return str(path)


def priced(capsys, *words):
    """Return what the command prints as JSON."""
    assert cli.main(["price", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["programs"]


def measured(length, turns, m):
    """Return the cycles of the script's program in a run."""
    p = Program("halves", m)
    x, n = p.array("x", length, "f32"), p.param("n", "u16")
    with p.task("main"):
        p.fmuls(x, x, 0.5)
        count = p.reg16("count")
        p.ld16(count, n)
        with p.loop(count):
            p.nop()
    layout = Layout(1, 1, m)
    layout.place(p, 0, 0)
    layout.set_param("n", turns)
    fabric = Fabric(layout)
    fabric.launch("main")
    return fabric.run().cycles


@pytest.mark.parametrize("numbers", [{}, {"vec.start": 4, "ce.branch_taken": 9}])
@pytest.mark.parametrize("length", [8, 31])
def test_a_script_is_priced_with_the_parameters_of_its_layout_and_nothing_runs(script, capsys, numbers, length):
    words = [word for key, value in numbers.items() for word in ("--set", f"machine.{key}={value}")]
    found = priced(capsys, script, str(length), *words)
    m = machine("wse2", numbers)
    assert [one["where"] for one in found] == [f"1 PE, first ({x}, 0)" for x in range(3)]
    cycles = [one["tasks"]["main"]["cycles"] for one in found]
    assert cycles[:2] == [measured(length, turns, m) for turns in (2, 5)]
    assert cycles[2] is None  # nobody has set it
    assert found[2]["tasks"]["main"]["least"] == min(measured(length, turns, m) for turns in (0, 1))
    assert found[2]["tasks"]["main"]["unknown"][0]["where"] == "halves.py:12"
    assert sum(found[0]["tasks"]["main"]["lines"].values()) == cycles[0]
    *_, one = priced(capsys, script, str(length), *words, "--given", "n=7")
    assert one["tasks"]["main"]["cycles"] == measured(length, 7, m)
    initial = priced(capsys, script, str(length), *words, "--initial")
    assert initial[2]["tasks"]["main"]["cycles"] == measured(length, 0, m)


def test_a_run_of_the_layout_is_priced(script, capsys):
    m = machine()
    assert cli.main(["price", script, "--launch", "main", "--given", "n=7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == [max(measured(8, turns, m) for turns in (2, 5, 7))]
    assert cli.main(["price", script, "--launch", "main", "--given", "n=7"]) == 0
    assert f"run of 'main': {measured(8, 7, m)} cycles" in capsys.readouterr().out
    assert cli.main(["price", script, "--launch", "main"]) == 2
    assert "not known before a run" in capsys.readouterr().err


def test_text_has_the_source_and_names_what_is_not_known(script, capsys):
    assert cli.main(["price", script]) == 0
    out = capsys.readouterr().out
    assert "program 'halves' on 1 PE, first (0, 0)" in out
    assert "halves.py:9  p.fmuls(x, x, 0.5)" in out
    assert "cycles or more" in out
    assert "not known before the run: halves.py:12: br16" in out
    assert cli.main(["price", script, "--odds", "0"]) == 0
    assert "not known" not in capsys.readouterr().out


def test_a_layout_in_csl_is_priced(capsys):
    chain = str(PROGRAMS / "chain" / "layout.csl")
    words = ["--params", "width:5,n:4"]
    found = priced(capsys, chain, *words)
    assert sum(int(one["where"].split()[0]) for one in found) == 5
    assert all(task["least"] > 0 for one in found for task in one["tasks"].values())
    wide = priced(capsys, chain, "--params", "width:5,n:40")
    assert sum(t["most"] for one in wide for t in one["tasks"].values()) >= sum(
        t["most"] for one in found for t in one["tasks"].values()
    )
    slower = priced(capsys, chain, *words, "--set", "machine.task.start=9")
    for one, other in zip(found, slower, strict=True):
        for name, task in one["tasks"].items():
            assert other["tasks"][name]["least"] == task["least"] + 9 - machine()["task.start"]
    assert cli.main(["price", chain, *words]) == 0
    assert "pe.csl:" in capsys.readouterr().out


def test_programs_outside_of_a_layout_are_priced(tmp_path, capsys):
    path = tmp_path / "alone.py"
    path.write_text("from fabric import Program\np = Program('one')\nwith p.task('t'):\n    p.nop()\n")
    (found,) = priced(capsys, str(path))
    assert found["where"] == ""
    assert found["tasks"]["t"]["cycles"] == machine()["task.start"] + 2


@pytest.mark.parametrize(
    ("words", "piece"),
    [
        (["nowhere.py"], "no such file"),
        (["FILE", "--given", "n=x"], "no whole number"),
        (["FILE", "--odds", "2"], "no share from 0 to 1"),
        (["FILE", "--odds", "0.5", "--odds", "a.py:1=0.5"], "odds for all"),
        (["FILE", "--params", "a:1"], "layout files in CSL"),
        (["EMPTY"], "builds no program"),
        (["ENDS"], "ends with 3"),
        (["CHAIN", "8"], "takes no arguments"),
        (["CHAIN", "--launch", "main"], "Python script"),
        (["FILE", "--launch", "other", "--given", "n=1"], "has tasks besides 'other'"),
    ],
)
def test_what_is_refused(tmp_path, capsys, script, words, piece):
    (tmp_path / "empty.py").write_text("x = 1\n")
    (tmp_path / "ends.py").write_text("raise SystemExit(3)\n")
    names = {"FILE": script, "CHAIN": str(PROGRAMS / "chain" / "layout.csl")}
    names |= {word.upper(): str(tmp_path / f"{word}.py") for word in ("empty", "ends")}
    assert cli.main(["price", *(names.get(word, word) for word in words)]) == 2
    assert piece in capsys.readouterr().err


def test_an_error_in_csl_is_shown_with_its_place(tmp_path, capsys):
    path = tmp_path / "layout.csl"
    path.write_text("layout { nonsense }\n")
    assert cli.main(["price", str(path)]) == 1
    assert "layout.csl:1" in capsys.readouterr().err
