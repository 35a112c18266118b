"""Interpreters are found and refused, and a distribution that answers wrongly is noticed."""

from __future__ import annotations

import json
import platform
import re
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tools.release import smoke, wheels

HERE = "{}.{}".format(*sys.version_info[:2])


def script(path, text):
    """Write a program of the shell and return its path."""
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.skipif(HERE not in wheels.VERSIONS, reason=f"no wheels are made for Python {HERE}")
def test_this_interpreter_can_build():
    assert wheels.interpreters([Path(sys.executable)]) == {HERE: Path(sys.executable)}


@pytest.mark.parametrize(
    ("kind", "version", "free", "headers", "taken"),
    [
        ("CPython", "3.12", False, True, True),
        ("PyPy", "3.12", False, True, False),
        ("CPython", "3.10", False, True, False),
        ("CPython", "3.13", True, True, False),
        ("CPython", "3.13", False, False, False),
    ],
    ids=["as wanted", "not CPython", "too old", "without the lock", "without headers"],
)
def test_other_interpreters_are_passed_over(tmp_path, kind, version, free, headers, taken):
    answer = json.dumps([kind, version, f"{version}.1", free, headers])
    path = script(tmp_path / "python", f"echo '{answer}'")
    assert wheels.interpreters([path]) == ({version: path} if taken else {})


def test_the_first_that_answers_is_taken(tmp_path):
    shim = script(tmp_path / "shim", "echo not selected >&2; exit 127")
    answer = json.dumps(["CPython", "3.12", "3.12.1", False, True])
    one, two = (script(tmp_path / name, f"echo '{answer}'") for name in ("one", "two"))
    assert wheels.interpreters([tmp_path / "missing", shim, one, two]) == {"3.12": one}


def test_no_interpreter_is_a_failure(tmp_path, capsys):
    assert wheels.main(["--out", str(tmp_path), "--python", str(tmp_path / "missing")]) == 1
    assert capsys.readouterr().out.count("not on this machine") == len(wheels.VERSIONS)


def test_sizes(tmp_path):
    for name, count in (("a/x", 3), ("a/b/y", 4), ("c/z", 5)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(count))
    assert wheels.size_of(tmp_path) == 12
    assert wheels.size_of(tmp_path, ["a"]) == 7
    tried = wheels.Tried("3.12.1", tmp_path / "a/x", 61.2, 9.6, 21_000_000, 301_400_000, True)
    assert "| 3.12.1 | 0.0 | 61 | 10 | 21 | 301 |" in wheels.table(tmp_path / "c/z", [tried])


@pytest.mark.parametrize(
    ("answer", "problems"),
    [
        ("""echo '{"cycles": 7, "verified": true}'""", []),
        ("""echo '{"cycles": 8, "verified": true}'""", ["cycles is 8 instead of 7"]),
        ("""echo '{"cycles": 7}'""", ["verified is None instead of True"]),
        ("""echo no such kernel >&2; exit 2""", ["status 2: no such kernel"]),
    ],
    ids=["right", "other cycles", "no answer", "failed"],
)
def test_what_a_command_answers_is_compared(tmp_path, monkeypatch, answer, problems):
    script(tmp_path / "wse", answer)
    monkeypatch.setattr(smoke.sysconfig, "get_path", lambda _: str(tmp_path))
    found, seconds = smoke.attempt("wse kernel ping", {"cycles": 7, "verified": True}, str(tmp_path))
    assert found == problems
    assert seconds > 0


def test_a_failure_is_the_exit_status(tmp_path, monkeypatch, capsys):
    script(tmp_path / "wse", """echo '{"problems": ["numpy is missing"]}'""")
    monkeypatch.setattr(smoke.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setattr(smoke, "COMMANDS", {"wse doctor": {"problems": []}})
    assert smoke.main() == 1
    assert "problems is ['numpy is missing'] instead of []" in capsys.readouterr().out


def test_what_is_wanted_is_what_the_readme_states():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for command, wanted in smoke.COMMANDS.items():
        if "cycles" in wanted:
            assert re.search(rf"\b({wanted['cycles']}|{wanted['cycles']:,}) cycles", readme), command


def test_the_table_is_that_of_a_machine_and_says_so():
    page = (ROOT / "docs" / "releasing.md").read_text(encoding="utf-8")
    head = wheels.table(Path(wheels.SMOKE), []).splitlines()[0]
    assert head in page
    assert platform.python_implementation() == "CPython" or "CPython" in page
