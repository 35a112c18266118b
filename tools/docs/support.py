"""Tables of the documentation are made from the source: modelled numbers, operations, what is refused.

    python -m tools.docs.support [--check] [FILE ...]

Rewrites, in each file (default: `PAGES` of the checkout), what stands between a line ``<!-- begin NAME -->``
and the line ``<!-- end NAME -->``.  With ``--check`` nothing is written and the exit status is 1 if a file is behind.
Names: `TABLES`.  A test keeps the documentation in step, so a number is changed in one place only.  The block of
`MEASURED` is left alone: ``wse validate --write FILE`` makes it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from traces.provenance import ROOT
from wse_core import isa
from wse_core.errors import ConfigError
from wse_core.params import PARAMETERS, PRESETS

__all__ = ["TABLES", "confidence", "fill", "machines", "main", "operations", "parameters", "unsupported"]

BLOCK = re.compile(r"^<!-- begin ([a-z]+) -->\n(.*?)^<!-- end \1 -->$", re.MULTILINE | re.DOTALL)
LETTERS = {"h": "half", "i": "16", "s": "fp32", "l": "32"}
KINDS = ("published", "inferred", "assumed")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(
        ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in cells)]
    )


def _value(value: Any) -> str:
    """Return a modelled value as text."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def parameters() -> str:
    """Return the table of all modelled numbers, in the order of `wse_core.numbers`.

    SIMD lanes stand in the table of `operations`.
    """
    rows = []
    for name, p in PARAMETERS.items():
        if name.startswith("lanes."):
            continue
        first, other = p.values["wse2"], p.values["wse3"]
        rows.append(
            (f"`{name}`", _value(first), "" if other == first else _value(other), p.unit, p.confidence, p.doc, p.source)
        )
    return _table(("number", "wse2", "wse3 if different", "unit", "confidence", "meaning", "source"), rows)


def machines() -> str:
    """Return the table of the rules and sizes in which the machines differ; lanes stand in that of `operations`."""
    rows = [
        (f"`{name}`", *map(_value, p.values.values()), p.doc)
        for name, p in PARAMETERS.items()
        if len(set(p.values.values())) > 1 and not name.startswith("lanes.")
    ]
    return _table(("number", *PRESETS, "meaning"), rows)


def confidence() -> str:
    """Return how many numbers have which confidence."""
    found = {kind: [n for n, p in PARAMETERS.items() if p.confidence == kind] for kind in KINDS}
    meaning = {
        "published": "vendor document, vendor tool or reviewed paper",
        "inferred": "follows from published measurements under this model",
        "assumed": "no public evidence; the most defensible choice",
    }
    rows = [(kind, str(len(names)), meaning[kind]) for kind, names in found.items()]
    return _table(("confidence", "numbers", "meaning"), rows) + "\n\nAssumed: " + _wrap(found["assumed"])


def _wrap(names: Sequence[str]) -> str:
    """Return names as a list in code font, in lines of at most 120 columns."""
    lines, line = [], "Assumed: "
    for k, name in enumerate(names):
        word = f"`{name}`" + ("." if k == len(names) - 1 else ", ")
        if len(line) + len(word) > 120:
            lines.append(line.rstrip())
            line = ""
        line += word
    return "\n".join([*lines, line])[len("Assumed: ") :]


def operations() -> str:
    """Return the support matrix: one row per operation of the op table."""
    rows = []
    for op in isa.OPS:
        if op.form == "alu":
            types = [LETTERS[t] for t in op.types if t != "-"]
            operands = f"{types[0]} from {', '.join(types[1:])}"
        else:
            operands = ""
        lanes = PARAMETERS.get(f"lanes.{op.name}")
        if lanes is None:
            vector = "no"
        else:
            first, other = lanes.values["wse2"], lanes.values["wse3"]
            vector = str(first) if first == other else f"{first} ({other})"
        scalar = "no" if op.form == "dfilt" else op.cost
        rows.append((f"`{op.name}`", operands, vector, scalar, op.doc, op.source))
    return _table(("operation", "elements", "vector: per cycle (wse3)", "scalar cost class", "meaning", "source"), rows)


def unsupported() -> str:
    """Return the table of what is refused."""
    return _table(("refused", "why"), [(f"`{name}`", why) for name, why in isa.UNSUPPORTED.items()])


TABLES = {
    "parameters": parameters,
    "machines": machines,
    "confidence": confidence,
    "operations": operations,
    "unsupported": unsupported,
}
"""The text between markers of a name is what this function returns."""

PAGES = tuple(ROOT / "docs" / name for name in ("accuracy.md", "machine.md"))
MEASURED = "validation"
"""Name of the block that takes minutes to make and has a command of its own."""


def fill(text: str) -> str:
    """Return a document with every marked block written anew.

    Raises
    ------
    ConfigError
        A block has a name that is not in `TABLES`.
    """

    def block(match: re.Match[str]) -> str:
        name = match[1]
        if name == MEASURED:
            return match[0]
        if name not in TABLES:
            raise ConfigError(f"the block {name!r} is unknown", hint=", ".join(TABLES))
        return f"<!-- begin {name} -->\n{TABLES[name]()}\n<!-- end {name} -->"

    return BLOCK.sub(block, text)


def main(argv: Sequence[str] | None = None) -> int:
    """Rewrite or check files; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs.support", description=__doc__.split("\n")[0])
    pages = ", ".join(f"docs/{path.name}" for path in PAGES)
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"Markdown files (default: {pages})")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is behind")
    args = parser.parse_args(argv)
    behind = []
    for path in args.files or PAGES:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        wanted = fill(text)
        if wanted == text:
            continue
        if args.check:
            behind.append(str(path))
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(wanted)
    for path in behind:
        print(f"{path} is behind the source; python -m tools.docs.support rewrites it", file=sys.stderr)
    return 1 if behind else 0


if __name__ == "__main__":
    sys.exit(main())
