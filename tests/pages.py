"""Pages of the documentation as a reader uses them: files to copy, programs and commands, in their order.

A fenced block is marked by its language: ``sh`` (commands), ``python``, ``toml``, ``text`` (what was printed); one
without a language is no code.  A comment on the line before a block says what a test has to know:

=======================  ============================================================================================
``<!-- file: NAME -->``  the block is the content of a file, written before the commands of the page
``<!-- with: WORDS -->`` each command gets these words too, so that it is short; a reason may follow behind a semicolon
``<!-- slow -->``        more than ten seconds with its page, which is followed by `make soak` only
``<!-- not run: WHY -->`` runs nowhere in the tests
=======================  ============================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Block", "blocks", "commands", "table_commands"]

FENCE = re.compile(r"(?:^<!-- (?P<mark>[^\n]*?) -->\n)?^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.M | re.S)
CELL = re.compile(r"`(wse [a-z]+ [^`]+)`")
PLACEHOLDER = re.compile(r"\[|\.\.\.|\\\||\b(NAME|MODEL|FILE|DIR)\b")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and what the comment before it says."""

    language: str
    body: str
    file: str = ""
    more: tuple[str, ...] = ()
    slow: bool = False
    unrun: str = ""


def blocks(path: Path) -> Iterator[Block]:
    """Yield the blocks of a page; a comment of another kind before one is an error."""
    for match in FENCE.finditer(path.read_text(encoding="utf-8")):
        found = {}
        for part in re.split(r", (?=slow|with: |file: )", match["mark"] or ""):  # reasons have commas too
            key, _, value = part.partition(": ")
            if key == "file":
                found["file"] = value
            elif key == "with":
                found["more"] = tuple(value.split(";")[0].split())
            elif key == "slow":
                found["slow"] = True
            elif key == "not run":
                found["unrun"] = value
            elif key.startswith(("begin", "end")) or not key:
                continue
            else:
                raise ValueError(f"{path.name}: unknown comment before a block: {match['mark']}")
        yield Block(match["language"], match["body"], **found)


def commands(block: Block) -> list[str]:
    """Return the lines of a block of commands without their comments."""
    lines = [re.split(r"\s+#", line)[0].strip() for line in block.body.splitlines()]
    return [" ".join([line, *block.more]) for line in lines if line]


def table_commands(path: Path) -> list[str]:
    """Return the whole commands in tables of a page: those with arguments and without placeholders."""
    rows = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [command for row in rows for command in CELL.findall(row) if not PLACEHOLDER.search(command)]
