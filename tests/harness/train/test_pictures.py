"""Figure and report of a training run: made of runs that are worth them, or if asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.cli import main as cli
from harness.cli import train_run
from tests.examples import few
from tests.harness.train.blobs import write

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize(
    ("words", "made"),
    few([("--iterations 2", False), ("", True), ("--iterations 2 --report", True), ("--no-report", False)], 3),
)
def test_figure_and_report_are_made_of_whole_runs_or_if_asked_for(capsys, words, made):
    write(interval=0)
    assert cli.main(["train", "a.toml", *words.split()]) == 0
    told = capsys.readouterr().out
    assert Path("runs/a/loss.png").exists() is Path("runs/a/report.html").exists() is made
    assert ("wse report runs/a/run.h5 makes one" in told) is not made
    assert ("report.html" in told) is made
    if not made:
        assert cli.main(["report", "runs/a/run.h5"]) == 0


def test_a_long_run_says_after_its_first_iteration_how_long_the_others_will_take(capsys, monkeypatch):
    write(interval=0)
    words = ["train", "a.toml", "--iterations", "3", "--json"]
    assert cli.main(words) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(train_run, "LONG", 0)
    assert cli.main(words) == 0
    assert re.fullmatch(r"wse: about \d+ s for 2 iterations; Ctrl-C ends with a checkpoint\n", capsys.readouterr().err)
    assert cli.main([*words, "--no-progress"]) == 0
    assert capsys.readouterr().err == ""
