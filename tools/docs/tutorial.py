"""Pages and notebooks of the tutorial are made of the programs in `examples`, with what these print.

    python -m tools.docs.tutorial [--write docs/tutorial | --check docs/tutorial] [--notebooks DIR]

A program is split at its ``# %%`` lines, as editors and jupytext do: text in Markdown, and cells of code.  The cells
are run here, in a directory of their own, and a page has what each one printed under it.  The solution of the exercise
at its end is a program too, in `examples/solutions`, which goes on with the names of the first one; a page has it
folded.  ``--notebooks`` writes the programs as executed notebooks; that needs the extra ``notebook``.  A test keeps the
pages in step (`tests/test_examples.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "Cell", "cells", "examples", "main", "notebook", "page", "printed", "solution"]

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = "docs/tutorial"
MARK = re.compile(r"^# %%(.*)\n", re.MULTILINE)


@dataclass(frozen=True)
class Cell:
    """A `Cell` is a cell of a program: text in Markdown, or code, with the line on which it begins."""

    is_text: bool
    source: str
    line: int


def examples() -> list[Path]:
    """Return the programs of the tutorial in their order."""
    return sorted((ROOT / "examples").glob("[0-9][0-9]_*.py"))


def solution(path: Path) -> Path:
    """Return the program that solves the exercise of another one, and goes on where that ends."""
    return path.parent / "solutions" / f"{path.stem}_solved.py"


def cells(text: str) -> Iterator[Cell]:
    """Yield the cells of a program.

    Raises
    ------
    ValueError
        Something stands before the first mark, or a line of text does not begin with ``#``.
    """
    marks = list(MARK.finditer(text))
    if not marks or text[: marks[0].start()].strip():
        raise ValueError("a program of the tutorial begins with a line `# %%`")
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        body = text[mark.end() : following.start() if following else len(text)].strip("\n")
        line = text.count("\n", 0, mark.end()) + 1
        is_text = mark[1].strip() == "[markdown]"
        if is_text:
            lines = body.splitlines()
            if any(not line.startswith("#") for line in lines):
                raise ValueError(f"line {line}: text of the tutorial stands in comments")
            body = "\n".join(re.sub(r"^# ?", "", line) for line in lines)
        yield Cell(is_text, body, line)


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    """Work in an empty directory while the block runs."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        try:
            yield
        finally:
            os.chdir(before)


def printed(*paths: Path) -> list[list[tuple[Cell, str]]]:
    """Run programs cell by cell in an empty directory, with the same names; return cells with what they printed."""
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(paths[0])}
    found: list[list[tuple[Cell, str]]] = [[] for _ in paths]
    with _elsewhere():
        for path, done in zip(paths, found, strict=True):
            for cell in cells(path.read_text(encoding="utf-8")):
                out = io.StringIO()
                if not cell.is_text:
                    # Lines are counted as in the file, so that messages name the right ones.
                    code = compile("\n" * (cell.line - 1) + cell.source, str(path), "exec")
                    with contextlib.redirect_stdout(out):
                        exec(code, names)
                done.append((cell, out.getvalue()))
    return found


def shown(done: list[tuple[Cell, str]]) -> list[str]:
    """Return cells and what they printed as blocks of Markdown."""
    blocks = []
    for cell, out in done:
        blocks.append(cell.source if cell.is_text else f"```python\n{cell.source}\n```")
        if out.strip():
            blocks.append("```text\n" + out.rstrip("\n") + "\n```")
    return blocks


def page(path: Path) -> str:
    """Return the page of a program in Markdown, with the solution of its exercise and the way to the next page."""
    program, solved = printed(path, solution(path))
    head = f"<!-- Made of examples/{path.name} by `python -m tools.docs.tutorial --write {FOLDER}`. -->"
    folded = ["<details>\n<summary>Solution</summary>", *shown(solved), "</details>"]
    return "\n\n".join([head, *shown(program), *folded, onward(path)]) + "\n"


def onward(path: Path) -> str:
    """Return the last line of a page: its number, and what comes next."""
    every = examples()
    number = every.index(path) + 1
    where = f"Page {number} of {len(every)}"
    if number == len(every):
        return f"{where}. Back to [all pages](README.md)."
    following = every[number]
    return f"{where}. Next: [{title(following)}]({following.stem}.md)."


def title(path: Path) -> str:
    """Return the title of a program: its first line of text."""
    return next(cells(path.read_text(encoding="utf-8"))).source.partition("\n")[0].lstrip("# ")


def lesson(path: Path) -> str:
    """Return what a program teaches: the sentence that says "You learn"."""
    text = " ".join(next(cells(path.read_text(encoding="utf-8"))).source.split())
    return re.search(r"You learn (.*?[^0-9])\.(?: |$)", text)[1]  # type: ignore[index]


def overview() -> str:
    """Return the first page of the tutorial, with a row for each program."""
    rows = [
        f"| {k} | [{title(path)}]({path.stem}.md) | {lesson(path)} | `examples/{path.name}` |"
        for k, path in enumerate(examples(), 1)
    ]
    return "\n".join(
        [
            f"<!-- Made of the programs in examples by `python -m tools.docs.tutorial --write {FOLDER}`. -->",
            "",
            "# Tutorial",
            "",
            "From a first stream to a transformer of one's own, in about an hour: some five minutes a page. Each page",
            "is a program that stands alone, with what it prints. Copy it, change it, and do the exercise at its end.",
            "The solution is folded below, and goes on where the program ended, so put it there. After `make build`,",
            "`.venv/bin/python examples/01_first_stream.py` runs the first one. `python -m tools.docs.tutorial",
            "--notebooks DIR` writes all of them as executed notebooks (extra `notebook`).",
            "",
            "| | page | you learn | program |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def pages() -> dict[str, str]:
    """Return the text of every page by its file name."""
    return {"README.md": overview()} | {f"{path.stem}.md": page(path) for path in examples()}


def notebook(path: Path, target: Path) -> Path:
    """Write a program as an executed notebook.

    Raises
    ------
    SystemExit
        jupytext or nbclient is not installed.
    """
    try:
        import jupytext
        from nbclient import NotebookClient
    except ImportError as error:
        sys.exit(f"notebooks need {error.name}: pip install 'wse-sim[notebook]'")
    made = jupytext.read(path, fmt="py:percent")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "examples")
        folder.mkdir()
        for other in path.parent.iterdir():
            if other.is_dir() and other.name != "__pycache__":
                Path(folder, other.name).symlink_to(other)
        NotebookClient(made, timeout=600, kernel_name="python3", resources={"metadata": {"path": place}}).execute()
    target.mkdir(parents=True, exist_ok=True)
    file = target / f"{path.stem}.ipynb"
    jupytext.write(made, file)
    return file


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the pages, and write notebooks; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", type=Path, metavar="DIR", help="write the pages into a directory")
    what.add_argument("--check", type=Path, metavar="DIR", help="say which pages are not up to date")
    what.add_argument("--notebooks", type=Path, metavar="DIR", help="write executed notebooks into a directory")
    chosen = parser.parse_args(arguments)
    if chosen.notebooks:
        for path in examples():
            print(notebook(path, chosen.notebooks.resolve()))
        return 0
    folder = (chosen.write or chosen.check).resolve()
    old = {path.name for path in folder.glob("*.md")}
    stale = sorted(old - {"README.md", *(f"{path.stem}.md" for path in examples())})
    for name, text in pages().items():
        path = folder / name
        if chosen.write:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
    for name in stale:
        print(f"{name} is not up to date")
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
