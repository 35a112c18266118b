"""Planted faults: small wrong changes of the source, by room, and how many of them the room's own tests see.

`ROOM.toml` has the tests of a room and its faults: a text that stands once in a file, and what takes its place.
``make faults`` (``python -m tests.faults``) plants one after the other in a copy of the tree and runs the tests; what
is not seen gets a test, or is shown to be no fault.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Fault", "FaultRoom", "rooms"]


@dataclass(frozen=True)
class Fault:
    """A fault is one text of a file in the place of another.

    Attributes
    ----------
    file : str
        From the root of the project.
    what : str
        What is wrong then.
    before, after : str
    """

    file: str
    what: str
    before: str
    after: str

    def planted(self, text: str) -> str:
        """Return the text of the file with the fault in it."""
        if text.count(self.before) != 1:
            raise ValueError(f"{self.file} has this {text.count(self.before)} times, not once: {self.before!r}")
        return text.replace(self.before, self.after)


@dataclass(frozen=True)
class FaultRoom:
    """A room has the tests that are to see its faults."""

    name: str
    tests: tuple[str, ...]
    faults: tuple[Fault, ...]


def rooms() -> list[FaultRoom]:
    """Return the rooms in the order of their names."""
    found = []
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        faults = (Fault(row["file"], row["is"], row["before"], row["after"]) for row in table["fault"])
        found.append(FaultRoom(path.stem, tuple(table["tests"]), tuple(faults)))
    return found
