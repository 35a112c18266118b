"""`wse csl scripts`: a tree of programs by their own scripts, each with its status, time and verdict."""

from __future__ import annotations

import json
import shutil

import pytest

from harness.cli.main import main as cli
from harness.sdk import scripts
from tests.harness.sdk.test_tools import LAYOUT, PE
from wse_core.errors import ConfigError

RUN = """
import argparse
import numpy as np
from cerebras.sdk.runtime.sdkruntimepybind import MemcpyDataType, MemcpyOrder, SdkRuntime
parser = argparse.ArgumentParser()
parser.add_argument("--name")
runner = SdkRuntime(parser.parse_args().name)
runner.load()
runner.run()
data = np.arange(30, dtype=np.float32)
place = runner.get_id("a")
how = {"streaming": False, "order": MemcpyOrder.ROW_MAJOR, "data_type": MemcpyDataType.MEMCPY_32BIT, "nonblock": False}
runner.memcpy_h2d(place, data, 0, 0, 3, 2, 5, **how)
runner.launch("scale", np.float32(2.0), np.int16(1), nonblock=False)
found = np.zeros(30, np.float32)
runner.memcpy_d2h(found, place, 0, 0, 3, 2, 5, **how)
runner.stop()
np.testing.assert_allclose(found, data * 2 + 1)
print("SUCCESS!")
"""
COMMANDS = """#!/usr/bin/env bash
set -e
cslc --arch=wse2 ./layout.csl --fabric-dims=10,4 --fabric-offsets=4,1 --params=width:3,n:5 -o out --memcpy --channels=1
cs_python run.py --name out
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Return a tree of four programs: good, with a wrong result, with a mistake in the source, endless."""
    root = tmp_path_factory.mktemp("tree")
    for name in ("good", "wrong", "broken"):
        directory = root / "tutorials" / name
        directory.mkdir(parents=True)
        (directory / "layout.csl").write_text(LAYOUT)
        (directory / "pe.csl").write_text(PE if name != "broken" else PE.replace("var a:", "var b:"))
        (directory / "run.py").write_text(RUN if name == "good" else "assert 1 + 1 == 3, 'a wrong result'\n")
        (directory / "commands_wse2.sh").write_text(COMMANDS if name != "wrong" else "cs_python run.py\n")
        (directory / "commands_wse3.sh").write_text("exit 9\n")
    (root / "endless").mkdir()
    (root / "endless" / "commands_wse2.sh").write_text("echo begun; sleep 1000\n")
    return root


def test_each_script_ends_as_it_would_by_itself(tree, capsys):
    before = sorted(tree.rglob("*"))
    words = ["csl", "scripts", str(tree), "--only", "tutorials", "--json"]
    assert cli(words) == 1
    every = json.loads(capsys.readouterr().out)["scripts"]
    assert [entry["status"] for entry in every if "wse3" in entry["script"]] == [9, 9, 9]
    assert cli([*words, "--scripts", "commands_wse2.sh"]) == 1
    found = json.loads(capsys.readouterr().out)
    status = {entry["script"].split("/")[1]: (entry["status"], entry["said"]) for entry in found["scripts"]}
    assert list(status) == ["broken", "good", "wrong"]
    assert status["good"] == (0, "SUCCESS!")
    assert status["wrong"][0] == 1
    assert status["wrong"][1] == "AssertionError: a wrong result"
    assert status["broken"][0] == 1
    assert "pe.csl:" in status["broken"][1]
    assert "error:" in status["broken"][1]
    assert found["failed"] == 2
    assert sorted(tree.rglob("*")) == before  # nothing is written into the tree


def test_what_takes_too_long_is_ended_and_the_table_says_so(tree, tmp_path, capsys):
    assert cli(["csl", "scripts", str(tree), "--only", "endless", "--limit", "0.3"]) == 1
    out = capsys.readouterr().out
    assert "124" in out
    assert "took more than 0.3 s" in out
    assert "0 of 1 exit with 0" in out


def test_only_what_passed_before_counts_against_an_earlier_run(tmp_path, capsys):
    for name, status in (("a", 0), ("b", 3)):
        (tmp_path / "tree" / name).mkdir(parents=True)
        (tmp_path / "tree" / name / "commands.sh").write_text(f"exit {status}\n")
    words = ["csl", "scripts", str(tmp_path / "tree")]
    assert cli([*words, "--json"]) == 1
    kept = tmp_path / "kept.json"
    kept.write_text(capsys.readouterr().out)
    assert cli([*words, "--against", str(kept)]) == 0
    (tmp_path / "tree" / "a" / "commands.sh").write_text("exit 4\n")
    assert cli([*words, "--against", str(kept)]) == 1
    assert "a/commands.sh fails, and did not before" in capsys.readouterr().err
    kept.write_text("[]")
    assert cli([*words, "--against", str(kept)]) != 0
    assert "this is no list of outcomes" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="there is no run"):
        scripts.find_scripts(tmp_path / "tree", "run*.sh")
    shutil.rmtree(tmp_path / "tree")
    assert cli(words) != 0


def test_a_call_that_was_never_filled_in(tmp_path, capsys):
    """Scripts of SDK 2.10 have a name in the place of the call of their host script."""
    script = tmp_path / "commands_wse3.sh"
    script.write_text("set -e\n%python_sdk_paint\necho after\n")
    (tmp_path / "run.py").write_text("print('painted')\n")
    assert cli(["csl", "scripts", str(tmp_path), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["scripts"]
    assert (found["said"], found["calls"]) == ("after", [["cs_python", 0]])
    assert "%python_sdk_paint" in script.read_text()
    (tmp_path / "run.py").write_text("raise SystemExit(3)\n")
    assert cli(["csl", "scripts", str(tmp_path), "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["scripts"]
    assert (found["status"], found["calls"]) == (3, [["cs_python", 3]])


def test_a_verdict_on_any_checkout(tree, tmp_path, capsys):
    """Scripts of any name that call cslc: how far each comes, as a table and as data."""
    root = tmp_path / "checkout"
    shutil.copytree(tree / "tutorials", root, ignore=shutil.ignore_patterns("commands_wse3.sh"))
    (root / "good" / "commands_wse2.sh").rename(root / "good" / "build.sh")
    (root / "half").mkdir()
    for name in ("layout.csl", "pe.csl"):
        shutil.copy(root / "good" / name, root / "half" / name)
    (root / "half" / "run.py").write_text("assert 1 + 1 == 3, 'a wrong result'\n")
    (root / "half" / "go.sh").write_text(COMMANDS)
    (root / "other.sh").write_text("exit 3\n")
    (root / "only").mkdir()
    shutil.copy(root / "good" / "layout.csl", root / "only" / "layout.csl")
    shutil.copy(root / "good" / "pe.csl", root / "only" / "pe.csl")
    (root / "only" / "compile.sh").write_text(COMMANDS.splitlines()[2] + "\n")
    (root / "sized.sh").write_text("say() {\n  echo $1\n}\nwidth=$1\n[ $width ] && cslc layout.csl -o out\n")
    assert cli(["csl", "scripts", str(root), "--ci"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in lines[1:-1]] == [
        ["broken/commands_wse2.sh", "fails", "0/1", "0/0"],
        ["good/build.sh", "passes", "1/1", "1/1"],
        ["half/go.sh", "compiles", "1/1", "0/1"],
        ["only/compile.sh", "compiles", "1/1", "0/0"],
        ["sized.sh", "wants", "arguments", "0/0"],
    ]
    assert "'a'" in lines[1] or "pe.csl" in lines[1]
    assert lines[-1] == "1 of 5 pass, 2 fail"
    assert cli(["csl", "scripts", str(root), "--ci", "--only", "good", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["scripts"]
    assert (entry["verdict"], entry["calls"]) == ("passes", [["cslc", 0], ["cs_python", 0]])


WAYS = {
    "run.sh": COMMANDS,
    "commands.sh": COMMANDS.replace("cslc ", "$SDK_HOME/bin/cslc ").replace("cs_python", '"${SDK_HOME}/cs_python"'),
    "absolute.sh": COMMANDS.replace("cslc ", "/opt/cerebras/cslc ").replace("cs_python", "~/sdk/cs_python"),
    "contained.sh": COMMANDS.replace("cslc ", "singularity exec -B $PWD my.sif cslc ").replace(
        "cs_python", "apptainer exec ~/sdk.sif /cbcore/bin/cs_python"
    ),
    "named.sh": "source ./env.sh\n" + COMMANDS.replace("cslc ", "${CSLC} "),
    "Makefile": "all:\n\t" + COMMANDS.splitlines()[2] + "\n\tcs_python run.py --name out\n",
    "build.py": f"import subprocess\nsubprocess.run({COMMANDS.splitlines()[2].split()!r}, check=True)\n"
    "subprocess.run(['cs_python', 'run.py', '--name', 'out'], check=True)\n",
}


@pytest.mark.parametrize("name", WAYS)
def test_programs_are_run_in_the_ways_of_their_authors(tree, tmp_path, capsys, name):
    root = tmp_path / "work"
    shutil.copytree(tree / "tutorials" / "good", root, ignore=shutil.ignore_patterns("*.sh"))
    (root / "env.sh").write_text("export CSLC=cslc\n")
    (root / name).write_text(WAYS[name])
    if name != "named.sh":
        (root / "env.sh").unlink()
    assert cli(["csl", "scripts", str(root), "--ci", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["scripts"]
    assert (entry["script"], entry["verdict"]) == (name, "passes")
    assert (root / name).read_text() == WAYS[name]


def test_a_command_that_is_there_is_not_replaced(tmp_path):
    wrapper = tmp_path / "cslc"
    wrapper.write_text("")
    script = tmp_path / "run.sh"
    for text in (f"{wrapper} a.csl\n", "./tools/cslc a.csl\n", "cslc $SDK/cslc.md\n", "my/cslc a.csl\n"):
        script.write_text(text)
        assert scripts._fill_in(script) == text
        assert script.read_text() == text


def test_only_a_script_itself_wants_arguments():
    """Not a function in it; and what passes without them wants none."""

    def wants(text):
        return scripts.ARGUMENT.search(scripts.FUNCTION.sub("", text)) is not None

    for text in ("A=$1", "echo ${2}", "[ $# = 2 ]", "f() {\n echo $1\n}\nf $1\n"):
        assert wants(text)
    for text in ("f() {\n echo $1\n}\nf 3\n", "function f {\n echo $2\n}\n", "echo ${1:-3} $PATH"):
        assert not wants(text)
    passed = scripts.ScriptOutcome("a.sh", 0, 1.0, "", (("cslc", 0), ("cs_python", 0)), True)
    assert (passed.verdict, passed.failed) == ("passes", False)


def test_a_result_that_is_called_an_error_is_none():
    lines = ["Maximum absolute error: 4.8e+01", "Traceback", "TypeError: no shift of floats", "failed!"]
    assert scripts._said(2, lines, 1) == "TypeError: no shift of floats"
    assert scripts._said(1, ["pe.csl:3:1: error: what is wrong", "end"], 1) == "pe.csl:3:1: error: what is wrong"
