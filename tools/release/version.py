"""A new version: its home is `wse_core.__version__`, and what else names it follows.

    python -m tools.release.version NEW     write it
    python -m tools.release.version         say where it stands, and whether all agree

pyproject.toml reads it from its home.  ``CITATION.cff`` names it, and in ``CHANGELOG.md`` what stands under
"Unreleased" becomes the section of the new version.  Versions of files (run files, checkpoints, compiled programs) are
numbers of their own, which change with their format and not with a release.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["PLACES", "main", "named", "renew"]

ROOT = Path(__file__).resolve().parent.parent.parent
PLACES = {
    "wse_core/__init__.py": r'^__version__ = "(.+)"$',
    "CITATION.cff": r"^version: (.+)$",
    "CHANGELOG.md": r"^## (\d.*)$",
}
"""Files that name the version, and where: the first match is it.  The first file is its home."""
FORM = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")


def named(root: Path = ROOT) -> dict[str, str]:
    """Return {file: version} of the files that name it."""
    found = {}
    for name, form in PLACES.items():
        match = re.search(form, Path(root, name).read_text(encoding="utf-8"), re.MULTILINE)
        found[name] = match[1] if match else "nothing"
    return found


def renew(new: str, root: Path = ROOT) -> None:
    """Write a new version into all files.

    Raises
    ------
    SystemExit
        The version has no such form or is there already, or nothing stands under "Unreleased".
    """
    if not FORM.fullmatch(new):
        sys.exit(f"{new!r} is no version; a version looks like 0.3.0 or 0.3.0rc1")
    log = Path(root, "CHANGELOG.md").read_text(encoding="utf-8")
    if f"\n## {new}\n" in log:
        sys.exit(f"CHANGELOG.md has a section {new} already")
    unreleased = re.search(r"^## Unreleased\n(.*?)(?=^## )", log, re.MULTILINE | re.DOTALL)
    if not unreleased or not unreleased[1].strip():
        sys.exit("CHANGELOG.md has nothing under Unreleased: what would this release be for?")
    texts = {name: Path(root, name).read_text(encoding="utf-8") for name in PLACES}
    texts["CHANGELOG.md"] = log.replace("## Unreleased\n", f"## Unreleased\n\n## {new}\n", 1)
    for name in list(PLACES)[:2]:
        old = re.search(PLACES[name], texts[name], re.MULTILINE)
        assert old
        texts[name] = texts[name][: old.start(1)] + new + texts[name][old.end(1) :]
    for name, text in texts.items():
        Path(root, name).write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write a version, or say where one stands; return 1 if files disagree."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("new", nargs="?", help="the new version")
    chosen = parser.parse_args(arguments)
    if chosen.new:
        renew(chosen.new, root)
    found = named(root)
    for name, version in found.items():
        print(f"{name}: {version}")
    return int(len(set(found.values())) != 1)


if __name__ == "__main__":
    sys.exit(main())
