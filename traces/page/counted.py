"""Counters per window become one table of a page, for a run that was recorded without events.

A row of the table ``windows`` is a PE in a window, PE by PE, window by window: the cycles that went to each of
`wse_core.counters.USES`, and in ``W``, ``E``, ``N`` and ``S`` the wavelets that left there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.heatmap import sent
from traces.page.columns import PageColumns, facts_of, refuse_many
from traces.style import COLOURS, USE_TEXT
from traces.trace import Trace
from wse_core.counters import LINKS, MOVED, USES
from wse_core.errors import TraceError

__all__ = ["counted", "windows_of"]

WORKS = ("busy", "stall_pipe", "stall_conflict")
"""A PE is said to calculate in cycles of these, and to wait in others but ``idle``."""
LACKS = "tasks, operations, waits and wavelets: record them with --trace full"


def counted(
    trace: Trace,
    cycles: tuple[int, int] | None = None,
    region: tuple[int, int, int, int] | None = None,
    colors: Sequence[int] | None = None,
    kinds: Sequence[str] | None = None,
    said: Sequence[str] | None = None,
) -> PageColumns:
    """Return the `PageColumns` of the counters of a trace, window by window.

    Parameters
    ----------
    trace : Trace
    cycles : tuple[int, int], optional
        Windows that have one of these cycles; default all.
    region : tuple[int, int, int, int], optional
        x, y, width, height; default all PEs.
    colors : sequence of int, optional
        Wavelets of these colors are counted; default all.
    kinds : None
        Counters have no kinds of events.
    said : sequence of str, optional
        What `traces.page.columns.spent` returns, if it is known.

    Raises
    ------
    TraceError
        The file has no counters per window, or none in the selection; or kinds were chosen.
    """
    run, path = trace.files[0], trace.files[0].path
    start, length, _, end = windows_of(trace, kinds)
    first, stop = (start, end) if cycles is None else (max(start, cycles[0]), min(end, cycles[1]))
    if first >= stop:
        raise TraceError(
            "has no windows in these cycles", path=path, exit_code=2, hint=f"the file holds cycles {start} to {end - 1}"
        )
    low, high = (first - start) // length, (stop - 1 - start) // length + 1
    left, top, width, height = region or (0, 0, *trace.shape[::-1])
    cut, windows = np.s_[:, top : top + height, left : left + width], slice(low, high)
    table = {use: run.counter(use, windows).values[cut].ravel() for use in USES}
    refuse_many(trace, len(table["busy"]) * (len(USES) + 4), "numbers", "--cycles or --region")
    moved = _moved(run, colors, windows)
    table |= {link: moved[cut][..., k].ravel() for k, link in enumerate(LINKS[:4])} if moved is not None else {}
    shown = start + low * length, min(end, start + high * length)
    facts = facts_of(trace, (left, top, width, height), shown, said)
    facts["window"] = length
    facts["uses"] = [
        [use, USE_TEXT[use], COLOURS[use], "idle" if use == "idle" else "works" if use in WORKS else "waits"]
        for use in USES
    ]
    facts["missing"] = [LACKS] + ([] if moved is not None else ["links: record them with --trace counters"])
    facts["queues"] = "the file has no events"
    facts["part"] = "; ".join(
        ["some cycles"] * (cycles is not None)
        + ([] if colors is None else [f"colors {', '.join(map(str, colors))} on links"])
    )
    return PageColumns(facts, {"windows": table})


def windows_of(trace: Trace, kinds: Sequence[str] | None = None) -> tuple[int, int, int, int]:
    """Return the first cycle, the cycles of a window, the windows, and the cycle after the last one of counters.

    Raises
    ------
    TraceError
        The file has no counters per window; or kinds were chosen.
    """
    run = trace.files[0]
    last = {use: run.counter(use, slice(-1, None)) for use in USES if use in run.counters}
    if len(last) < len(USES) or not last["busy"].window_cycles:
        raise TraceError(
            "holds neither events nor counters per window, which a page shows",
            path=run.path,
            hint="record it with --trace full, --trace events or --trace-window N",
            exit_code=2,
        )
    if kinds is not None:
        raise TraceError(
            "holds no events, so there are no kinds to choose", path=run.path, hint="without --kinds", exit_code=2
        )
    start, length, count = trace.meta.first_cycle, last["busy"].window_cycles, run.windows
    whole = np.sum([counter.values[-1] for counter in last.values()], axis=0)
    return start, length, count, start + (count - 1) * length + int(whole.max(initial=0))


def _moved(run: Any, colors: Sequence[int] | None, windows: slice) -> NDArray[np.uint64] | None:
    """Return the wavelets that left each PE per window and direction; None if links were not counted."""
    names = [name for name in run.counters if name.startswith(MOVED)]
    if not names:
        return None
    chosen = [name for name in names if colors is None or int(name.rpartition("_")[2]) in colors]
    shape = run.counter(names[0], windows).values.shape
    found = (run.counter(name, windows).values.astype(np.uint64) for name in chosen)
    return sent(sum(found, np.zeros(shape, np.uint64)))
