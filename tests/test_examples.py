"""The programs of the tutorial run alone, print what their pages say, and become notebooks."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tools.docs import tutorial

EXAMPLES = tutorial.examples()
OUTPUT = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def follow(path, folder):
    """Lay a program, the solution below it and the files beside it into a directory; return the program's copy."""
    for other in path.parent.iterdir():
        if other.is_dir() and other.name not in ("__pycache__", "solutions"):
            shutil.copytree(other, folder / other.name)
    whole = folder / path.name
    both = (path, tutorial.solution(path))
    whole.write_text("\n\n".join(part.read_text(encoding="utf-8") for part in both), encoding="utf-8")
    return whole


def unplaced(text):
    """Return what was printed without lines of files: those of a solution are other ones below its program."""
    return re.sub(r"\b\w+\.py:\d+", "FILE", text).strip()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_program_and_its_solution_print_what_their_page_says(path, tmp_path, child_env):
    """Run as a reader runs them: the solution below the program, and nothing else than what lies beside it."""
    page = (ROOT / tutorial.FOLDER / f"{path.stem}.md").read_text(encoding="utf-8")
    empty = tmp_path / "empty"
    empty.mkdir()
    done = subprocess.run(
        [sys.executable, str(follow(path, tmp_path))],
        cwd=empty,
        env=child_env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert unplaced(done.stdout) == unplaced("".join(OUTPUT.findall(page)))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_page_has_the_text_and_the_code_of_its_program(path):
    page = (ROOT / tutorial.FOLDER / f"{path.stem}.md").read_text(encoding="utf-8")
    shown = OUTPUT.sub("", page)
    found = list(tutorial.cells(path.read_text(encoding="utf-8")))
    assert found[0].is_text
    assert found[0].source.startswith("# ")
    assert found[-1].is_text
    assert "**Exercise.**" in found[-1].source
    solved = list(tutorial.cells(tutorial.solution(path).read_text(encoding="utf-8")))
    assert any(not cell.is_text for cell in solved)
    folded = shown.index("<details>\n<summary>Solution</summary>\n\n")
    position = 0
    for cell in (*found, *solved):
        if cell is solved[0]:
            assert position <= folded
            position = folded
        block = cell.source if cell.is_text else f"```python\n{cell.source}\n```"
        position = shown.index(block, position) + len(block)
    assert shown[position:].strip().startswith("</details>\n\nPage ")


def test_the_first_page_names_all_programs():
    written = (ROOT / tutorial.FOLDER / "README.md").read_text(encoding="utf-8")
    assert written == tutorial.overview()
    assert len(EXAMPLES) >= 10
    assert {path.name for path in (ROOT / tutorial.FOLDER).glob("*.md")} == {
        "README.md",
        *(f"{path.stem}.md" for path in EXAMPLES),
    }


@pytest.mark.parametrize(
    ("text", "words"), [("print(1)\n", "begins with a line"), ("# %% [markdown]\nprint(1)\n", "stands in comments")]
)
def test_what_is_no_program_of_the_tutorial_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        list(tutorial.cells(text))


def test_a_page_that_is_not_up_to_date_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tutorial, "examples", lambda: EXAMPLES[:1])
    assert tutorial.main(["--write", str(tmp_path)]) == 0
    assert tutorial.main(["--check", str(tmp_path)]) == 0
    (tmp_path / f"{EXAMPLES[0].stem}.md").write_text("other")
    (tmp_path / "gone.md").write_text("no program")
    assert tutorial.main(["--check", str(tmp_path)]) == 1
    assert (
        capsys.readouterr().out.split() == f"gone.md is not up to date {EXAMPLES[0].stem}.md is not up to date".split()
    )


def test_a_program_becomes_an_executed_notebook(tmp_path):
    for name in ("jupytext", "nbclient", "ipykernel"):
        pytest.importorskip(name)
    made = json.loads(tutorial.notebook(EXAMPLES[0], tmp_path).read_text(encoding="utf-8"))
    printed = [text for cell in made["cells"] for out in cell.get("outputs", ()) for text in out.get("text", ())]
    assert "".join(printed) == "130 cycles, 900 hops\n"
