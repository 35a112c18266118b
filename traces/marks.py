"""Phases of a program on the clock of the run: layers, passes, what a memory service, a tree and wafers do when.

Whoever knows when a phase began and ended says so with `mark`; whoever records a run collects what is said:

```python
with collecting() as marks:
    mark(0, "layer 1 forward", track="wafer 0", end=18_400)
    mark(18_400, "batch complete")                  # an instant, on the track "program"
writer.add_marks(marks)                             # of a RunWriter; `wse kernel --out` does both by itself
```

Marks may be made in any order, after the fact too, for the times of a whole system follow from its parts.  Outside of a
`collecting` block `mark` does nothing.  Where fabrics run one after the other on one clock, whoever records them sets
`Marks.offset`, so that the program goes on to speak of the clock of the fabric that runs.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wse_core.errors import TraceError

__all__ = ["Marks", "PhaseMark", "collecting", "lanes", "mark"]

_COLLECTED: contextvars.ContextVar[Marks | None] = contextvars.ContextVar("marks", default=None)
LATEST = (1 << 63) - 1


@dataclass(frozen=True)
class PhaseMark:
    """A `PhaseMark` is a phase, or an instant if it ends where it begins.

    Attributes
    ----------
    begin, end : int
        First cycle, and the one after the last.
    track : str
        Whose phase it is.
    label : str
        What it is.
    """

    begin: int
    end: int
    track: str
    label: str

    def __post_init__(self) -> None:
        if not 0 <= self.begin <= self.end <= LATEST:
            raise TraceError(
                f"the mark {self.label!r} lasts from cycle {self.begin} to {self.end}",
                hint="0 <= begin <= end",
                exit_code=2,
            )
        if not self.track or not self.label:
            raise TraceError("a mark without a track or a label", exit_code=2)


class Marks(list[PhaseMark]):
    """Marks as they are collected.

    Attributes
    ----------
    offset : int
        Added to the cycles of marks from now on.
    """

    offset = 0


def lanes(marks: Sequence[PhaseMark]) -> list[int]:
    """Return the lane of each mark within its track, from 0: in a lane, of two that overlap one holds the other.

    Parameters
    ----------
    marks : list of PhaseMark
        In the order of a file: by begin, the longer one first.
    """
    running: dict[str, list[list[int]]] = {}
    found: list[int] = []
    for entry in marks:
        stacks, lane = running.setdefault(entry.track, []), 0
        while True:
            if lane == len(stacks):
                stacks.append([])
            while stacks[lane] and stacks[lane][-1] <= entry.begin:
                stacks[lane].pop()
            if not stacks[lane] or entry.end <= stacks[lane][-1]:
                break
            lane += 1
        stacks[lane].append(entry.end)
        found.append(lane)
    return found


@contextlib.contextmanager
def collecting() -> Iterator[Marks]:
    """Collect the marks that are made in the block (also by threads that take over its context); gives a list."""
    found = Marks()
    token = _COLLECTED.set(found)
    try:
        yield found
    finally:
        _COLLECTED.reset(token)


def mark(begin: int, label: str, track: str = "program", end: int | None = None) -> None:
    """Say that a phase lasts from cycle `begin` to `end` - 1, or that something happens in cycle `begin`.

    Parameters
    ----------
    begin : int
    label : str
    track : str
    end : int, optional
        Default: an instant.

    Raises
    ------
    TraceError
        A phase that ends before it begins, an empty text.
    """
    found = _COLLECTED.get()
    if found is not None:
        first, last = int(begin) + found.offset, int(begin if end is None else end) + found.offset
        found.append(PhaseMark(first, last, str(track), str(label)))
