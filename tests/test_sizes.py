"""One idea per file: no source or test is longer than `MOST_LINES`, except tables and generated files."""

from __future__ import annotations

import pytest

from tests.conftest import ROOT

PACKAGES = ("wse_core", "fabric", "memx", "swarm", "harness", "traces", "tests")
MOST_LINES = {".py": 500, ".pyi": 500, ".pyx": 700, ".pxd": 700}
LONGER = {"fabric/program/program.pyi": "generated from the table of operations"}
"""Files that may be longer, and why."""


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
