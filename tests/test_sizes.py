"""A few steps per function: none is longer than allowed. Long files are named by `tools/sizes.py`, as advice."""

from __future__ import annotations

import ast

import pytest

from harness.kit.modules import OWN_PACKAGES
from tests.conftest import ROOT
from tests.trees import FUNCTIONS, statements
from tools import sizes

PACKAGES = (*OWN_PACKAGES, "tools", "tests")
MOST_OF_A_FUNCTION = 80
"""Lines of a Python function with signature and docstring; a longer one is cut into named steps."""


@pytest.mark.parametrize(
    ("name", "lines", "seen"),
    [
        ("a.py", 600, False),
        ("a.py", 601, True),
        ("a.pyx", 800, False),
        ("a.pxd", 801, True),
        ("traced_a.pyx", 801, False),
    ],
)
def test_a_long_file_is_named(tmp_path, name, lines, seen):
    (tmp_path / "memx").mkdir()
    (tmp_path / "memx" / name).write_text("x = 1\n" * lines, encoding="utf-8")
    assert sizes.long_files(tmp_path) == ({f"memx/{name}": lines} if seen else {})


def test_the_longest_is_named_first(tmp_path, monkeypatch, capsys):
    (tmp_path / "tests").mkdir()
    for name, lines in (("a.py", 700), ("b.py", 900), ("c.py", 10)):
        (tmp_path / "tests" / name).write_text("x = 1\n" * lines, encoding="utf-8")
    found = sizes.long_files(tmp_path)
    assert list(found) == ["tests/b.py", "tests/a.py"]
    monkeypatch.setattr(sizes, "long_files", lambda: found)
    sizes.main()
    assert [line.partition(";")[0] for line in capsys.readouterr().out.splitlines()] == [
        "tests/b.py: 900 lines",
        "tests/a.py: 700 lines",
    ]


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
