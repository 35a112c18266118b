"""The table and the picture of docs/placement.md: from problems to a page, and what is there is not searched again."""

from __future__ import annotations

from tests.harness.place.problems import text
from tools.docs import placement


def test_a_page_is_written(tmp_path, capsys):
    problems, solutions = tmp_path / "problems", tmp_path / "solutions"
    problems.mkdir()
    (problems / "A.kgraph").write_text(text(wire=50), encoding="utf-8")
    (problems / "B.kgraph").write_text(text(adapter=9), encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- begin problems -->\nold\n<!-- end problems -->\nb\n", encoding="utf-8")
    words = [str(problems), str(solutions), "--page", str(page), "--picture", str(tmp_path / "a.png")]
    assert placement.main([*words, "--seconds", "0.1", "--processes", "1"]) == 0
    written = page.read_text(encoding="utf-8")
    rows = [line for line in written.splitlines() if line.startswith("| A ")]
    assert ["| score |" in row for row in rows] == [True, False]  # wires are most of the score, so both objectives
    assert "| B " not in written
    assert "old" not in written
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "A-slowest.sol" in capsys.readouterr().out
    assert placement.main(words) == 0
    assert capsys.readouterr().out == ""
    assert page.read_text(encoding="utf-8") == written


def test_no_problem_is_said(tmp_path, capsys):
    assert placement.main([str(tmp_path), str(tmp_path)]) == 1
    assert "no problem" in capsys.readouterr().err
