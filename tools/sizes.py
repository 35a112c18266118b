"""Advice is given on files that are longer than a reader likes, since ideas decide where a file ends.

    python -m tools.sizes

prints one line per file, the longest first.  Functions have a rule, not advice (`tests/test_sizes.py`).
"""

from __future__ import annotations

from pathlib import Path

from harness.kit.modules import OWN_PACKAGES
from traces.provenance import ROOT

__all__ = ["ADVISED", "long_files", "main"]

ROOMS = (*OWN_PACKAGES, "tools", "tests")
ADVISED = {".py": 600, ".pyx": 800, ".pxd": 800}
"""A file of each kind should not exceed so many lines without a reason."""


def long_files(root: Path = ROOT) -> dict[str, int]:
    """Return {file: lines} of the sources and tests that are longer than advised, the longest first.

    Copies that the build makes of compiled sources are left out.
    """
    found = {}
    for room in ROOMS:
        for suffix, most in ADVISED.items():
            for path in (root / room).rglob(f"*{suffix}"):
                lines = len(path.read_text(encoding="utf-8").splitlines())
                if lines > most and not path.name.startswith("traced_"):
                    found[path.relative_to(root).as_posix()] = lines
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def main() -> None:
    """Print the files that are longer than advised."""
    for name, lines in long_files().items():
        print(f"{name}: {lines} lines; does it hold more than one idea?")


if __name__ == "__main__":
    main()
