"""The command ``wse serve``: it says its address, answers there, and ends as users end it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from harness.cli.main import main
from tests.conftest import ROOT
from tests.traces.samples import chain


@pytest.fixture(scope="module")
def run_file(tmp_path_factory):
    """The run file of a chain of four PEs."""
    path = tmp_path_factory.mktemp("serve") / "chain.h5"
    chain(path, pes=4, n=12)
    return path


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("form", [["--json"], []])
def test_it_answers_at_the_address_that_it_prints_until_it_is_ended(run_file, number, status, form):
    words = [sys.executable, "-m", "harness", "serve", str(run_file), *form]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        line = process.stdout.readline()
        address = json.loads(line)["address"] if form else line.strip()
        with urllib.request.urlopen(f"{address}0", timeout=300) as answer:
            assert b'id="parts"' in answer.read()
        process.send_signal(number)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == status
    assert "Traceback" not in errors


def test_a_port_that_is_taken_is_refused(run_file, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", str(run_file), "--port", str(port)]) == 2
    assert f"port {port}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--port", "70000"], "no port"),
        (["--part", "0"], "at least one event"),
        (["--region", "3,0,2,1"], "reaches outside"),
        (["--kinds", "nonsense"], "no kind of event"),
        (["--colors", "red"], "are no colors"),
        (["--cycles", "1:2"], "unrecognized arguments"),
    ],
)
def test_wrong_options_are_refused(run_file, capsys, words, said):
    assert main(["serve", str(run_file), *words]) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_is_none_is_refused(tmp_path, capsys):
    assert main(["serve", str(tmp_path / "none.h5")]) != 0
    assert "none.h5" in capsys.readouterr().err
