"""One idea per file: no Python file of the product is longer than `MOST_LINES`, except tables and generated files."""

from __future__ import annotations

import pytest

from tests.conftest import ROOT

PACKAGES = ("wse_core", "fabric", "memx", "swarm", "harness", "traces")
MOST_LINES = 500
LONGER = {"fabric/program/program.pyi": "generated from the table of operations"}
"""Files that may be longer, and why."""


def too_long(root):
    """Return {file: lines} of the Python files of the packages that are longer than allowed."""
    found = {}
    for package in PACKAGES:
        for suffix in ("*.py", "*.pyi"):
            for path in (root / package).rglob(suffix):
                lines = len(path.read_text(encoding="utf-8").splitlines())
                if lines > MOST_LINES:
                    found[path.relative_to(root).as_posix()] = lines
    return found


def test_files_are_short():
    assert set(too_long(ROOT)) == set(LONGER), "cut it by ideas; a file that became short leaves the list"


@pytest.mark.parametrize("lines", [500, 501])
def test_a_long_file_is_seen(tmp_path, lines):
    (tmp_path / "memx").mkdir()
    (tmp_path / "memx" / "a.py").write_text("x = 1\n" * lines, encoding="utf-8")
    assert too_long(tmp_path) == ({"memx/a.py": lines} if lines > MOST_LINES else {})
