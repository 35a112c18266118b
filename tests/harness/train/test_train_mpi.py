"""Training with a wafer per process under MPI: the files and results of one process."""

from __future__ import annotations

import json

import pytest

from harness.cli.main import main
from tests.examples import few
from tests.mpi import mpiexec, needs_mpi

WORDS = ["digits", "--wafers", "2", "--set", "data.batch=32", "--iterations", "2", "--json", "--out"]


@needs_mpi
@pytest.mark.parametrize("size", few([3, 2], 1))
def test_ranks_train_as_one_process_does(size, capsys, tmp_path):
    assert main(["train", *WORDS, str(tmp_path / "one")]) == 0
    alone = json.loads(capsys.readouterr().out)
    done = mpiexec(size, "-m", "harness", "train", *WORDS, tmp_path / "many", "--ranks", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    for result in (alone, found):
        del result["host_seconds"], result["files"]
        result["checkpoint"] = result["checkpoint"].rpartition("/")[2]  # its name has a digest of what it holds
    assert found == alone
    logs = [(tmp_path / run / "log.jsonl").read_text().splitlines() for run in ("one", "many")]
    rows = [[json.loads(line) for line in log] for log in logs]
    assert [{**row, "host_seconds": 0} for row in rows[0]] == [{**row, "host_seconds": 0} for row in rows[1]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["many", "one"]


@needs_mpi
def test_what_cannot_be_spread_is_refused_once(tmp_path):
    for words in (["--reference"], ["--mode", "pipelined", "--wafers", "1"], ["--iterations", "0"]):
        done = mpiexec(2, "-m", "harness", "train", "digits", *words, "--ranks", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("wse: error:") == 1
