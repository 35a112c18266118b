"""A run that is too large for one page is cut into parts of cycles, each of which is a page.

Events lie in the file by cycle, so that a part is read alone; where one begins is known without reading any event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from traces.page.columns import PageColumns, chosen_kinds, columns, cycles_of, spent
from traces.page.counted import counted, windows_of
from traces.page.lasting import LASTING, LastingByPart
from traces.run_format import CHUNK
from traces.trace import Trace
from wse_core.errors import TraceError

__all__ = ["PART", "RunParts"]

PART = 1 << 20
"""A part has about so many events, or numbers of counters."""


class RunParts:
    """The `RunParts` of a run are pages, one after the other.

    Parameters
    ----------
    trace : Trace
    most : int, optional
        Events of a part, or numbers of counters per window; more only where one cycle, or one window, has more.
    region, colors, kinds : optional
        As for `traces.page.columns.columns`.
    progress : callable, optional
        Is told (parts read, parts) while the file is read once.

    Attributes
    ----------
    edges : list of int
        Cycles at which the parts begin, and the end of the last.
    events : list of int
        Events of each part, to one chunk of the file; of counters, their numbers.

    Raises
    ------
    TraceError
        As of `traces.page.columns.columns` and `traces.page.counted.counted`.
    """

    def __init__(
        self,
        trace: Trace,
        most: int = PART,
        region: tuple[int, int, int, int] | None = None,
        colors: Sequence[int] | None = None,
        kinds: Sequence[str] | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self.trace = trace
        self.selection: dict[str, Any] = {"region": region, "colors": colors, "kinds": kinds, "said": spent(trace)}
        self._lasting: LastingByPart | None = None
        if not trace.has_events:
            self._cut_windows(most, kinds)
            return
        chosen = chosen_kinds(trace, kinds)
        starts = np.concatenate([file.chunk_cycles() for file in trace.files if file.has_events])
        if not len(starts):
            raise TraceError("has no events", path=trace.files[0].path, exit_code=2)
        first, stop = cycles_of(trace)
        cuts = np.unique(starts[:: max(1, most // CHUNK)])
        self.edges = [first, *cuts[(cuts > first) & (cuts < stop)].tolist(), stop]
        ends = np.searchsorted(starts, self.edges, side="left")
        self.events = (np.diff(ends) * CHUNK).tolist()
        names = [name for name, needed in LASTING.items() if set(needed) <= set(chosen)]
        self._lasting = LastingByPart(trace, region, colors, self.edges, names, lambda done: progress(done, len(self)))

    def _cut_windows(self, most: int, kinds: Sequence[str] | None) -> None:
        """Find the edges of parts among the windows of a run's counters."""
        start, length, count, end = windows_of(self.trace, kinds)
        height, width = self.trace.shape
        step = max(1, most // max(1, height * width))
        self.edges = [start + k * length for k in range(0, count, step)] + [end]
        self.events = [height * width * step] * (len(self.edges) - 1)

    def __len__(self) -> int:
        return len(self.edges) - 1

    def __repr__(self) -> str:
        return f"RunParts({len(self)} of cycles {self.edges[0]:,} to {self.edges[-1] - 1:,})"

    def columns(self, number: int) -> PageColumns:
        """Return what the page of a part shows, and where it lies in the run."""
        cycles = self.edges[number], self.edges[number + 1]
        if self._lasting is None:
            found = counted(self.trace, cycles, **self.selection)
        else:
            found = columns(self.trace, cycles, **self.selection, lasting=self._lasting)
        found.facts["parts"] = {"at": number, "edges": self.edges, "events": self.events}
        return found
