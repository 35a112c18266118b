"""Figure and report of a training run: made of runs that are worth them, or if asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli import main as cli
from tests.harness.train.blobs import write

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize(
    ("words", "made"),
    [("--iterations 2", False), ("--iterations 2 --report", True), ("--no-report", False), ("", True)],
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
