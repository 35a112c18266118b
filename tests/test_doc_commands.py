"""Every command and program of the documentation works for a reader who follows a page in an empty directory."""

from __future__ import annotations

import contextlib
import io
import shlex
import subprocess
import sys

import pytest

from harness.cli import main as cli
from tests.conftest import ROOT
from tests.examples import SOAK
from tests.pages import blocks, commands, table_commands

GENERATED = ("CHANGELOG.md", "api.md")
PAGES = [path for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]) if path.name not in GENERATED]
LANGUAGES = ("", "csl", "python", "sh", "text", "toml")
STARTS = ("wse ", "cslc ", "cs_python ", "python ", "make ", "pip ", "pytest ", "git ", "cibuildwheel ", ".venv/bin/")
CHECKED = {
    ROOT / "README.md": ("wse kernel ", "wse figure modes"),  # tests/test_docs.py, tests/harness/figures/test_modes.py
    ROOT / "docs" / "accuracy.md": "wse kernel ",
    ROOT / "docs" / "inference.md": "wse figure waferllm-table-4 ",  # tests/harness/inference/test_commands.py
    ROOT / "docs" / "planner.md": ("wse plan --reproduce", "wse plan --figures all"),  # tests/harness/plan
}
"""How commands in tables begin that another test runs and looks at; a soak runs them as they stand."""


def pages(found):
    """Return the pages of which something is found, as parameters."""
    return [pytest.param(path, id=str(path.relative_to(ROOT))) for path in PAGES if found(path)]


def runs(block):
    return block.language in ("sh", "python") and not block.unrun


def takes_long(path):
    """Whether a block of a page is slow; the others may need what it leaves."""
    return any(block.slow for block in blocks(path))


def followed(path):
    """Whether a page is followed in this run: what long ones show is tested elsewhere too, and they are in a soak."""
    return any(map(runs, blocks(path))) and (SOAK or not takes_long(path))


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """An empty directory, also for the cache of what libraries draw."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WSE_DEBUG", raising=False)
    return tmp_path


def run_command(line, child_env, capsys):
    """Run one command as a reader would; return the exit status and what it said."""
    words = shlex.split(line)
    if words[0] == "wse":
        status = cli.main([*words[1:], "--no-progress"])
        captured = capsys.readouterr()
        return status, captured.out + captured.err
    assert words[0] == "python", line
    done = subprocess.run([sys.executable, *words[1:]], env=child_env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def follow(path, child_env, capsys):
    """Do what a page says, from top to bottom; return how many programs and commands that were."""
    done = 0
    found = list(blocks(path))
    for block in found:
        if block.file:
            with open(block.file, "w", encoding="utf-8") as file:
                file.write(block.body)
    space = {"__name__": "page"}
    for block in found:
        if not runs(block):
            continue
        if block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(block.body, path.name, "exec"), space)
            done += 1
            continue
        for line in commands(block):
            status, said = run_command(line, child_env, capsys)
            assert status == 0, f"{path.name}: {line}\n{said}"
            done += 1
    return done


@pytest.mark.parametrize("path", pages(followed))
def test_a_page_can_be_followed(path, empty, child_env, capsys):
    assert follow(path, child_env, capsys) > 0, "nothing of the page ran"


@pytest.mark.parametrize("path", pages(takes_long))
def test_a_long_page_can_be_read(path):
    """Whatever is run in a soak only has the words of today's commands, and programs are programs."""
    for block in filter(runs, blocks(path)):
        if block.language == "python":
            compile(block.body, path.name, "exec")
            continue
        for line in commands(block):
            first, *words = shlex.split(line)
            assert first != "wse" or cli.parse(words).handler, line


@pytest.mark.parametrize("path", pages(table_commands))
def test_commands_of_tables_work(path, empty, child_env, capsys):
    for block in blocks(path):
        if block.file:
            (empty / block.file).write_text(block.body, encoding="utf-8")
    for line in dict.fromkeys(table_commands(path)):
        if SOAK or not line.startswith(CHECKED.get(path, "-")):
            status, said = run_command(line, child_env, capsys)
            assert status == 0, f"{path.name}: {line}\n{said}"
        else:
            assert cli.parse(shlex.split(line)[1:]).handler, line


@pytest.mark.parametrize("path", pages(lambda path: list(blocks(path))))
def test_blocks_are_marked(path):
    """Commands say that they are commands, and what is not run has a reason."""
    for block in blocks(path):
        assert block.language in LANGUAGES, f"{block.language}: one of {', '.join(LANGUAGES)}"
        if block.language in ("", "text"):
            assert not any(line.startswith(STARTS) for line in block.body.splitlines()), block.body
        if block.language == "sh":
            assert all(line.startswith(STARTS) for line in commands(block)), block.body
        assert not block.unrun or len(block.unrun.split()) >= 3, block.unrun


def test_pages_are_read_as_they_are_meant(tmp_path):
    """A wrong command is found, a comment that nobody understands too."""
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- file: a.toml -->\n```toml\nx = 1\n```\n<!-- with: --json; short -->\n```sh\nwse run a.toml  # so\n```\n"
        "<!-- not run: needs a wafer -->\n```python\n1 / 0\n```\n<!-- slow -->\n```sh\nwse x\n```\n```\nplain\n```\n",
        encoding="utf-8",
    )
    found = list(blocks(page))
    assert [block.language for block in found] == ["toml", "sh", "python", "sh", ""]
    assert (found[0].file, found[2].unrun, found[3].slow) == ("a.toml", "needs a wafer", True)
    assert commands(found[1]) == ["wse run a.toml --json"]
    assert [runs(block) for block in found] == [False, True, False, True, False]
    page.write_text("<!-- nonsense -->\n```sh\nwse x\n```\n", encoding="utf-8")
    with pytest.raises(ValueError, match="unknown comment"):
        list(blocks(page))
