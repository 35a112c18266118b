"""Tables of docs/csl.md are made from the source: builtins, modules, features, functions.

    python -m tools.docs.csl [--check]

Rewrites what stands between a line ``<!-- begin NAME -->`` and the line ``<!-- end NAME -->``; names are those of
`TABLES`.  With ``--check`` nothing is written and the exit status is 1 if the page is behind.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from fabric.csl.census.features import UNSUPPORTED
from fabric.csl.comptime.builtins import BUILTINS
from fabric.csl.comptime.session import LIBRARY
from tools.docs.csl_probes import FEATURES, answer, library_answers
from tools.docs.support import BLOCK
from traces.provenance import ROOT

__all__ = ["PAGE", "TABLES", "fill", "main"]

PAGE = "docs/csl.md"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in cells)])


def builtins() -> str:
    """Return the table of builtins that work, group by group."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for spec in BUILTINS.values():
        if not spec.refused:
            groups.setdefault(spec.group, []).append((f"`{spec.name}`", spec.meaning))
    rows = [(group, name, meaning) for group, found in groups.items() for name, meaning in found]
    return _table(("group", "builtin", "meaning"), rows)


def refused() -> str:
    """Return the table of what is known and refused."""
    rows = [(f"`{spec.name}`", spec.meaning) for spec in BUILTINS.values() if spec.refused]
    rows += [(name, reason) for name, reason in UNSUPPORTED.items()]
    return _table(("refused", "why"), rows)


def modules() -> str:
    """Return the table of library modules: name and what their source says first."""
    rows = []
    for path in sorted(LIBRARY.rglob("*.csl")):
        name = path.relative_to(LIBRARY).with_suffix("")
        if name.parts[0] == "tile_config" and len(name.parts) > 1:
            continue  # parts of <tile_config>
        head = []
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.startswith("//"):
                break
            head.append(line[2:].strip())
        rows.append((f"`<{name.as_posix()}>`", " ".join(head)))
    return _table(("module", "what it is"), rows)


def features() -> str:
    """Return what the compiler says to a small program with each feature of the language."""
    rows = [(group, feature, answer(*probe)) for group, found in FEATURES.items() for feature, probe in found.items()]
    return _table(("group", "feature", "supported"), rows)


def library() -> str:
    """Return what the compiler says to a call of each function of the library: per module and answer the functions."""
    rows: dict[tuple[str, str], list[str]] = {}
    for module, function, said in library_answers():
        # What is missing is said alike for all functions of a kind.
        said = said.replace(function.split(".")[-1], "...")
        rows.setdefault((module, said), []).append(f"`{function}`")
    return _table(
        ("module", "functions", "supported"),
        [(f"`{module}`", ", ".join(names), said) for (module, said), names in rows.items()],
    )


TABLES: dict[str, Callable[[], str]] = {
    "builtins": builtins,
    "refused": refused,
    "modules": modules,
    "features": features,
    "library": library,
}
"""The text between markers of a name is what this function returns."""


def fill(text: str) -> str:
    """Return the page with every marked block written anew."""
    return BLOCK.sub(lambda m: f"<!-- begin {m[1]} -->\n{TABLES[m[1]]()}\n<!-- end {m[1]} -->", text)


def main(argv: list[str] | None = None) -> int:
    """Rewrite or check the page; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs.csl", description="Renew the tables of docs/csl.md.")
    parser.add_argument("--check", action="store_true", help="write nothing, say whether the page is behind")
    parser.add_argument("file", nargs="?", type=Path, default=Path(ROOT, PAGE))
    args = parser.parse_args(argv)
    text = args.file.read_text(encoding="utf-8")
    wanted = fill(text)
    if text == wanted:
        return 0
    if args.check:
        print(f"{args.file} is behind the source: python -m tools.docs.csl", file=sys.stderr)
        return 1
    args.file.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
