"""``wse csl``: text, JSON, exit status, what happens without the parser's library."""

from __future__ import annotations

import builtins
import json
import sys

import pytest

from fabric.csl.syntax import parser
from harness.cli import main as cli
from tests.fabric.csl.test_census import tree
from tests.fabric.csl.test_programs import PROGRAMS


def test_check_says_how_large_a_program_is(capsys):
    chain = PROGRAMS / "chain" / "layout.csl"
    assert cli.main(["csl", "check", str(chain), "--params", "width:5", "--params", "n:4"]) == 0
    out = capsys.readouterr()
    assert (out.out, out.err) == (f"{chain}: 5 x 1 PEs, 4 programs, no error\n", "")


def test_check_of_a_directory_goes_on_after_an_error(tmp_path, capsys):
    tree(tmp_path)
    assert cli.main(["csl", "check", str(tmp_path)]) == 1
    out = capsys.readouterr()
    assert "wse3.csl:2:17: error: @get_sr exists on WSE-3 only" in out.err
    assert "^~~~~~~~" in out.err
    assert "1 of 4 with errors" in out.err
    assert out.out.count("no error") == 3


def test_check_as_json(tmp_path, capsys):
    tree(tmp_path)
    assert cli.main(["csl", "check", "--json", str(tmp_path)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == 1
    assert [entry["ok"] for entry in found["files"]] == [True, True, True, False]
    (message,) = found["files"][3]["messages"]
    assert (message["line"], message["column"], message["severity"]) == (2, 17, "error")


def test_census(tmp_path, capsys):
    tree(tmp_path)
    assert cli.main(["csl", "census", str(tmp_path)]) == 0
    assert "4 programs: 3 check without error" in capsys.readouterr().out
    assert cli.main(["csl", "census", "--json", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == 5


@pytest.mark.parametrize(
    ("words", "piece"),
    [
        (["check", "nowhere.csl"], "no such file or directory"),
        (["check", "--params", "a", "nowhere.csl"], "is no param"),
        (["check"], "required"),
        ([], "required"),
    ],
)
def test_bad_input(words, piece, capsys):
    assert cli.main(["csl", *words]) == 2
    assert piece in capsys.readouterr().err


def test_without_the_library_one_line_says_what_to_install(monkeypatch, capsys):
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name.partition(".")[0] == "lark":
            raise ModuleNotFoundError("No module named 'lark'", name="lark")
        return real(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.partition(".")[0] == "lark"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", missing)
    monkeypatch.setitem(sys.modules, "lark", None)
    parser.parser.cache_clear()
    assert cli.main(["csl", "check", str(PROGRAMS / "fifo" / "layout.csl")]) == 2
    err = capsys.readouterr().err
    assert "wse-sim[csl]" in err
    assert len(err.splitlines()) == 1


CODE = """
param N: u16;
param by: i16 = 1;
var sums: [N]i16;
var half: f16 = 0.5;
fn add(v: i16) void { for (@range(u16, N)) |i| { sums[i] += v * by + @as(i16, i); } half *= 3.0; }
"""


def test_call_runs_a_function_of_a_file_without_a_layout(tmp_path, capsys):
    code = tmp_path / "code.csl"
    code.write_text(CODE)
    words = ["csl", "call", str(code), "add(5)", "--params", "N:3,by:2"]
    assert cli.main(words) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert rest == ["sums = 10 11 12", "half = 1.5"]
    assert cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["globals"] == {"sums": [10, 11, 12], "half": [1.5]}
    assert cli.main([*words, "--json", "--optimise=0"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["globals"] == found["globals"]
    assert plain["cycles"] > found["cycles"]
    assert first == f"{found['cycles']} cycles"
    assert 20 < found["cycles"] < 200


def test_call_tells_a_mistake(tmp_path, capsys):
    code = tmp_path / "code.csl"
    code.write_text(CODE)
    assert cli.main(["csl", "call", str(code), "add(true)", "--params", "N:3"]) == 1
    assert "the argument 'v' has type bool, but i16 is needed" in capsys.readouterr().err
    assert cli.main(["csl", "call", str(code), "add(1)"]) == 1
    assert "of wse csl call --params N:..." in capsys.readouterr().err
