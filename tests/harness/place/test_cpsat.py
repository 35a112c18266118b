"""The library beside the search: valid placements, the best ones of small problems, one line where it is missing.

OR-tools is in no environment by itself: it wants an older protobuf than other tools of the tests.
"""

from __future__ import annotations

import json
import sys

import pytest

from harness.cli import main as cli
from harness.place.solution import check
from tests.harness.place import exhaustive
from tests.harness.place.problems import convolutions, text
from tests.harness.place.test_search import SCORED


@pytest.mark.parametrize("case", range(len(SCORED)))
def test_score_equals_exhaustive_search(case):
    pytest.importorskip("ortools")
    from harness.place.cpsat import solve_cp

    sizes, wires, width, height = SCORED[case]
    problem = convolutions(sizes, wires, width=width, height=height, wire=2)
    outcome = solve_cp(problem, seconds=20)
    check(problem, outcome.placed)
    assert outcome.score.score == float(exhaustive.score(problem))
    assert outcome.rounds >= 1


def test_the_command_writes_what_it_finds(tmp_path, monkeypatch, capsys):
    pytest.importorskip("ortools")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.kgraph").write_text(text(), encoding="utf-8")
    words = [
        "place",
        "a.kgraph",
        "--solver",
        "cp-sat",
        "--seconds",
        "3",
        "--processes",
        "1",
        "--out",
        "a.sol",
        "--json",
    ]
    assert cli.main(words) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["score"] == facts["slowest"] + facts["wire"]
    assert cli.main(["place", "a.kgraph", "--check", "a.sol", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["score"] == facts["score"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--solver", "best"], "one of search, cp-sat"),
        (["--solver", "cp-sat", "--rounds", "3"], "cp-sat has no rounds"),
        (["--solver", "cp-sat"], "pip install 'wse-sim[solver]'"),
    ],
)
def test_what_is_refused(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WSE_DEBUG", raising=False)
    for name in ("ortools", "ortools.sat", "ortools.sat.python", "ortools.sat.python.cp_model"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "a.kgraph").write_text(text(), encoding="utf-8")
    assert cli.main(["place", "a.kgraph", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
