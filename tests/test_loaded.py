"""Runs of the suite beside busy loops: each is told, none of the loops stays, and a failure is the exit status."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests import loaded

ONCE = "import pathlib, sys; p = pathlib.Path(sys.argv[1]); n = len(list(p.iterdir())); print(f'FAILED at {n}')"
ONCE += "; sys.exit(n == 2)"


@pytest.fixture
def started(monkeypatch, tmp_path):
    """Logs of its own for one test; the loops that were started."""
    monkeypatch.setattr(loaded, "LOGS", tmp_path / "logs")
    found, popen = [], subprocess.Popen

    def noted(*args, **more):
        found.append((args[0], process := popen(*args, **more)))
        return process

    monkeypatch.setattr(loaded.subprocess, "Popen", noted)
    return found


def test_every_run_is_told_and_one_failure_fails_all(started, tmp_path, capsys):
    """The second run finds two logs, and fails; the third passes again."""
    options = ["--times", "3", "--loops", "2", "--json", "--", sys.executable, "-c", ONCE, str(tmp_path / "logs")]
    assert loaded.main(options) == 1
    found = json.loads(capsys.readouterr().out)
    assert [(one["run"], one["status"]) for one in found["runs"]] == [(1, 0), (2, 1), (3, 0)]
    assert [one["said"] for one in found["runs"]] == [[f"FAILED at {n}"] for n in (1, 2, 3)]
    loops = [process for command, process in started if "while" in command[-1]]
    assert len(loops) == 2
    assert all(process.poll() is not None for process in loops)


def test_variables_of_make_are_not_handed_on(started, capsys, monkeypatch):
    monkeypatch.setenv("MAKEFLAGS", "-- ARGS=--times")
    monkeypatch.setenv("ARGS", "--times 1")
    shown = "import os; print(sorted({'ARGS', 'MAKEFLAGS'} & set(os.environ)))"
    assert loaded.main(["--times", "1", "--loops", "0", "--", sys.executable, "-c", shown]) == 0
    assert capsys.readouterr().out.endswith(": []\n")


def test_all_passed_is_the_status_and_an_interrupt_leaves_no_loop(started, capsys, monkeypatch):
    assert loaded.main(["--times", "2", "--loops", "1", "--", sys.executable, "-c", "print('fine')"]) == 0
    assert capsys.readouterr().out.count("passed") == 2

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(loaded, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loaded.main(["--loops", "2", "--", "true"])
    assert all(process.poll() is not None for _, process in started)
