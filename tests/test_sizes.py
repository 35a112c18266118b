"""One idea per file, a few steps per function: none is longer than allowed, except tables and generated files."""

from __future__ import annotations

import ast

import pytest

from tests.conftest import ROOT
from tests.trees import FUNCTIONS, statements

PACKAGES = ("wse_core", "fabric", "memx", "swarm", "harness", "traces", "tools", "tests")
MOST_LINES = {".py": 500, ".pyi": 500, ".pyx": 700, ".pxd": 700}
LONGER = {"fabric/program/program.pyi": "generated from the table of operations"}
"""Files that may be longer, and why."""

MOST_OF_A_FUNCTION = 80
"""Lines of a Python function with signature and docstring; a longer one is cut into named steps."""


def too_long(root):
    """Return {file: lines} of the sources and tests that are longer than allowed."""
    found = {}
    for package in PACKAGES:
        for suffix, most in MOST_LINES.items():
            for path in (root / package).rglob(f"*{suffix}"):
                lines = len(path.read_text(encoding="utf-8").splitlines())
                if lines > most:
                    found[path.relative_to(root).as_posix()] = lines
    return found


def test_files_are_short():
    assert set(too_long(ROOT)) == set(LONGER), "cut it by ideas; a file that became short leaves the list"


@pytest.mark.parametrize(
    ("name", "lines", "seen"), [("a.py", 500, False), ("a.py", 501, True), ("a.pyx", 700, False), ("a.pxd", 701, True)]
)
def test_a_long_file_is_seen(tmp_path, name, lines, seen):
    (tmp_path / "memx").mkdir()
    (tmp_path / "memx" / name).write_text("x = 1\n" * lines, encoding="utf-8")
    assert too_long(tmp_path) == ({f"memx/{name}": lines} if seen else {})


def long_functions(root):
    """Return {file and function: lines} of the Python functions that are longer than allowed."""
    found = {}
    for package in PACKAGES:
        for path in (root / package).rglob("*.py"):
            for node, *_ in statements(ast.parse(path.read_text(encoding="utf-8")).body):
                if isinstance(node, FUNCTIONS):
                    lines = node.end_lineno - node.lineno + 1
                    if lines > MOST_OF_A_FUNCTION:
                        found[f"{path.relative_to(root).as_posix()}: {node.name}"] = lines
    return found


def test_functions_are_short():
    assert long_functions(ROOT) == {}


@pytest.mark.parametrize(("lines", "seen"), [(MOST_OF_A_FUNCTION, False), (MOST_OF_A_FUNCTION + 1, True)])
def test_a_long_function_is_seen(tmp_path, lines, seen):
    (tmp_path / "memx").mkdir()
    body = "class A:\n    def f(self):\n" + "        x = 1\n" * (lines - 1)
    (tmp_path / "memx" / "a.py").write_text(body, encoding="utf-8")
    assert long_functions(tmp_path) == ({"memx/a.py: f": lines} if seen else {})
