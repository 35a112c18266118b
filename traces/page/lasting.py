"""Tasks, operations and waits are spans of cycles, which are read of a whole file or of one part after another.

A span that began long ago is at work in a part of which the events do not say so.  `LastingByPart` goes through the
file once and keeps the spans that cross the border of a part; a part is read alone then, and has the same spans.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.pictures import longest
from traces.state import OPEN, SPAN, spans
from traces.style import TASKS
from traces.trace import Trace
from wse_core.events import EVENT_DTYPE, FOREVER, KINDS

__all__ = ["LASTING", "Lasting", "LastingByPart"]

LASTING = {"tasks": ("task_start", "task_end"), "operations": ("op_start", "op_end"), "waits": ("wait",)}
"""There are tables of what lasts, each with the kinds of events that say so."""


class Lasting:
    """A `Lasting` reads what lasts from the whole file.

    Parameters
    ----------
    trace : Trace
    region : tuple[int, int, int, int], optional
        x, y, width, height; default all PEs.
    colors : sequence of int, optional
        Waits for these colors only.
    """

    def __init__(
        self, trace: Trace, region: tuple[int, int, int, int] | None = None, colors: Sequence[int] | None = None
    ) -> None:
        self.trace, self.region, self.colors = trace, region, colors

    def of(self, name: str, cycles: tuple[int, int]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the spans of a table of `LASTING` in one of the cycles, and of waits their events, else none."""
        events = self.trace.events(kinds=LASTING[name], region=self.region, colors=self.colors)
        found = spans(events, _kind(name))
        inside = (found["begin"] < cycles[1]) & (found["end"] > cycles[0])
        return found[inside], events[inside] if name == "waits" else events[:0]

    def longest(self, tasks: NDArray[Any], cycles: tuple[int, int]) -> list[int]:
        """Return the numbers of the tasks that have a colour of their own."""
        return longest(tasks, cycles)


class LastingByPart(Lasting):
    """A `LastingByPart` has read the file once, part by part, and then reads what a part needs.

    Parameters
    ----------
    trace, region, colors
        As of `Lasting`.
    edges : sequence of int
        Cycles at which parts begin, and the end of the last.
    names : sequence of str
        Tables of `LASTING` that are asked for.
    progress : callable, optional
        Is told the parts that were read.
    """

    def __init__(
        self,
        trace: Trace,
        region: tuple[int, int, int, int] | None,
        colors: Sequence[int] | None,
        edges: Sequence[int],
        names: Sequence[str],
        progress: Callable[[int], None] = lambda done: None,
    ) -> None:
        super().__init__(trace, region, colors)
        self.edges = edges
        crossing: dict[str, list[NDArray[Any]]] = {name: [np.empty(0, SPAN)] for name in names}
        begun = {name: np.empty(0, EVENT_DTYPE) for name in names}
        waits = [np.empty(0, EVENT_DTYPE)]
        self._spent: dict[int, int] = {}
        for part, (first, stop) in enumerate(itertools.pairwise(edges)):
            for name in names:
                events = self._events(name, (first, stop))
                if name == "waits":
                    events = events[events["cycle"] - events["data"] < first]
                    waits.append(events)
                    crossing[name].append(spans(events, "wait"))
                    continue
                begun[name], found = _carried(begun[name], events, _kind(name))
                ended = found[found["end"] != OPEN]
                crossing[name].append(ended[ended["begin"] < first])
                if name == "tasks":
                    self._count(ended)
            progress(part + 1)
        for name in names:
            rest = spans(begun[name], _kind(name))
            crossing[name].append(rest)
            if name == "tasks":
                rest = rest.copy()
                rest["end"] = edges[-1]
                self._count(rest)
        self._crossing = {name: np.concatenate(found) for name, found in crossing.items()}
        self._waits = np.concatenate(waits)
        order = sorted(self._spent, key=lambda number: (-self._spent[number], number))
        self._coloured = sorted(order[: len(TASKS)])

    def _events(self, name: str, cycles: tuple[int, int]) -> NDArray[Any]:
        """Return the events of a table in a part; what ends with the run says so behind the last of its cycles."""
        stop = FOREVER if cycles[1] == self.edges[-1] else cycles[1]
        return self.trace.events((cycles[0], stop), LASTING[name], self.region, self.colors)

    def _count(self, tasks: NDArray[Any]) -> None:
        """Add the cycles of tasks to those that each number has taken."""
        numbers, place = np.unique(tasks["what"], return_inverse=True)
        spent = np.bincount(place, (tasks["end"] - tasks["begin"]).astype(np.float64), minlength=len(numbers))
        for number, cycles in zip(numbers.tolist(), spent.tolist(), strict=True):
            self._spent[number] = self._spent.get(number, 0) + int(cycles)

    def of(self, name: str, cycles: tuple[int, int]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return what `Lasting.of` returns, of cycles that are a part."""
        crossing = self._crossing[name]
        inside = (crossing["begin"] < cycles[1]) & (crossing["end"] > cycles[0])
        events = self._events(name, cycles)
        if name == "waits":
            events = events[events["cycle"] - events["data"] >= cycles[0]]
            own = spans(events, "wait")
            return np.concatenate([crossing[inside], own]), np.concatenate([self._waits[inside], events])
        own = spans(events, _kind(name))
        return np.concatenate([crossing[inside], own[own["end"] != OPEN]]), events[:0]

    def longest(self, tasks: NDArray[Any], cycles: tuple[int, int]) -> list[int]:
        """Return the tasks that took most cycles of the whole file, so that a task has one colour in all parts."""
        return self._coloured


def _kind(name: str) -> str:
    """Return the kind of spans of a table."""
    return LASTING[name][0].partition("_")[0]


def _carried(begun: NDArray[Any], events: NDArray[Any], kind: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the events of what is still at work after `events`, and the spans of all that was, `begun` before them."""
    both = np.concatenate([begun, events])
    starts = both[both["kind"] == KINDS.index(f"{kind}_start")]
    found = spans(both, kind)  # as many as began, in their order
    return starts[found["end"] == OPEN], found
