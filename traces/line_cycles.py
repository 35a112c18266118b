"""Measured cycles are summed by source line here: what operations took from their issue to their last step.

Events have the code word of every vector operation, and a run file has the source lines of code words; so it is known
of each line how often its operations ran, how long they took, and how many of those cycles were waits for wavelets or
were lost to bank conflicts.  Scalar instructions leave no events: what a task's main thread does beside its operations
is one row of the task.  Operations of microthreads run beside the main thread; their cycles stand in a column of their
own.

Where programs of one run have different lines at one code word, a row has the names of all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.naming import clean, task_name
from traces.state import MAIN, OPEN, spans
from traces.trace import Trace
from wse_core.errors import TraceError
from wse_core.events import KINDS, WAITS

__all__ = ["NEEDED", "LineCycles", "line_cycles", "line_table"]

NEEDED = ("task_start", "task_end", "op_start", "op_end")
FABRIC_WAITS = ("input", "output", "fifo")


@dataclass(frozen=True)
class LineCycles:
    """A `LineCycles` has the cycles of one source line over all PEs that were looked at.

    Attributes
    ----------
    line : str
        ``file:line`` of vector operations, or the task whose other instructions these are.
    count : int
        Operations, or runs of the task.
    cycles : int
        Cycles of the main thread, from the issue of an operation to the cycle of its last step.
    beside : int
        The same of microthreads.
    waiting : int
        Those of both in which the PE waited for wavelets, for room, or for a FIFO, and did nothing else.
    conflicts : int
        Those of both that were lost to bank conflicts.
    """

    line: str
    count: int
    cycles: int
    beside: int = 0
    waiting: int = 0
    conflicts: int = 0


def line_cycles(
    trace: Trace, region: tuple[int, int, int, int] | None = None, cycles: tuple[int, int] | None = None
) -> list[LineCycles]:
    """Return the `LineCycles` of a run, those with most cycles first.

    Parameters
    ----------
    trace : Trace
    region : tuple of int, optional
        x, y, width, height; default all PEs.
    cycles : tuple of int, optional
        First cycle, and the one behind the last; default the whole run.  What begins before is left out.

    Raises
    ------
    TraceError
        The file has no events of tasks and operations.
    """
    missing = [kind for kind in NEEDED if kind not in trace.filter.kinds] if trace.has_events else list(NEEDED)
    if missing:
        raise TraceError(
            f"holds no events of kind {missing[0]}, so cycles by source line are not known",
            path=trace.files[0].path,
            hint="record with --trace events",
            exit_code=2,
        )
    kinds = [kind for kind in (*NEEDED, "wait", "conflict") if kind in trace.filter.kinds]
    chosen: dict[str, Any] = {} if region is None else {"region": region}
    if cycles is not None:
        chosen["cycles"] = cycles
    events = trace.events(kinds=kinds, **chosen)
    tasks, operations = _spans(events, "task"), _spans(events, "op")
    operations["waiting"] = _waits(events, operations)
    operations["conflicts"] = _conflicts(events, operations)
    found = _of_operations(operations, trace.names.get("lines", {})) + _of_tasks(tasks, operations, trace.names)
    return sorted(found, key=lambda one: (-one.cycles - one.beside, one.line))


def line_table(found: list[LineCycles]) -> list[tuple[str, ...]]:
    """Return the rows of a table: a heading, then one row per line."""
    heading = ("source line", "count", "cycles", "beside", "waiting", "conflicts")
    numbers = ("count", "cycles", "beside", "waiting", "conflicts")
    return [heading, *((one.line, *(f"{getattr(one, name):,}" for name in numbers)) for one in found)]


LINE_SPAN = np.dtype([(name, "i8") for name in ("pe", "thread", "begin", "end", "what", "waiting", "conflicts")])
"""A span goes from `begin` to `end`, the cycle behind its last one; `what` is a code word or the number of a task."""


def _pes(events: NDArray[Any]) -> NDArray[np.int64]:
    return events["y"].astype(np.int64) << 16 | events["x"]


def _spans(events: NDArray[Any], kind: str) -> NDArray[Any]:
    """Return what began and ended in the events, in the order of PE, thread and time."""
    lasting = spans(events, kind)
    lasting = lasting[lasting["end"] != OPEN]
    found = np.zeros(len(lasting), LINE_SPAN)
    found["pe"], found["begin"], found["end"] = _pes(lasting), lasting["begin"], lasting["end"]
    found["thread"] = lasting["lane"] if kind == "op" else MAIN
    found["what"] = lasting["word" if kind == "op" else "what"]
    return found[np.argsort(found["pe"] * 16 + found["thread"], kind="stable")]


def _inside(spans: NDArray[Any], pe: NDArray[np.int64], cycle: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return per (PE, cycle) the number of the span of one thread that it lies in, -1 for none."""
    if not len(spans):
        return np.full(len(pe), -1)
    shift = int(max(spans["end"].max(), cycle.max(initial=0))) + 1
    at = np.searchsorted(spans["pe"] * shift + spans["begin"], pe * shift + cycle, "right") - 1
    fits = (at >= 0) & (spans["pe"][at] == pe) & (spans["end"][at] > cycle)
    return np.where(fits, at, -1)


def _shared(
    events: NDArray[Any], operations: NDArray[Any], threads: NDArray[np.int64] | None, cycle: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the sum of the data of events by operation: the first thread's that was at work in a cycle, or a given
    one's.
    """
    found = np.zeros(len(operations), np.int64)
    pe, rest = _pes(events), np.ones(len(events), bool)
    for thread in (MAIN, *range(MAIN)):
        own = np.flatnonzero(operations["thread"] == thread)
        at = _inside(operations[own], pe, cycle)
        hit = rest & (at >= 0) & (True if threads is None else threads == thread)
        np.add.at(found, own[at[hit]], events["data"][hit].astype(np.int64))
        rest &= ~hit
    return found


def _waits(events: NDArray[Any], operations: NDArray[Any]) -> NDArray[np.int64]:
    """Return the cycles that operations waited for wavelets, room or a FIFO; the main thread's are booked first."""
    reasons = [WAITS.index(reason) for reason in FABRIC_WAITS]
    waits = events[(events["kind"] == KINDS.index("wait")) & np.isin(events["aux"], reasons)]
    return _shared(waits, operations, None, waits["cycle"].astype(np.int64) - 1)


def _conflicts(events: NDArray[Any], operations: NDArray[Any]) -> NDArray[np.int64]:
    """Return the cycles that operations lost to bank conflicts."""
    lost = events[events["kind"] == KINDS.index("conflict")]
    return _shared(lost, operations, lost["aux"].astype(np.int64), lost["cycle"].astype(np.int64))


def _of_operations(operations: NDArray[Any], lines: dict[str, str]) -> list[LineCycles]:
    """Return the sums of operations by source line."""
    words, which = np.unique(operations["what"], return_inverse=True)
    took, main = operations["end"] - operations["begin"], operations["thread"] == MAIN

    def sums(values: NDArray[Any]) -> list[int]:
        return np.bincount(which, values, len(words)).astype(np.int64).tolist()

    columns = sums(np.ones(len(took))), sums(took * main), sums(took * ~main)
    columns = *columns, sums(operations["waiting"]), sums(operations["conflicts"])  # type: ignore[assignment]
    rows: dict[str, list[int]] = {}
    for word, *numbers in zip(words.tolist(), *columns, strict=True):
        line = clean(lines.get(str(word), f"code word {word}"))
        rows[line] = [a + b for a, b in zip(rows.get(line, [0] * len(numbers)), numbers, strict=True)]
    return [LineCycles(line, *numbers) for line, numbers in rows.items()]


def _of_tasks(tasks: NDArray[Any], operations: NDArray[Any], names: dict[str, Any]) -> list[LineCycles]:
    """Return what tasks took beside the operations of their main thread."""
    main = operations[operations["thread"] == MAIN]
    at = _inside(tasks, main["pe"], main["begin"])
    inside = np.bincount(at[at >= 0], (main["end"] - main["begin"])[at >= 0], len(tasks))
    rest = tasks["end"] - tasks["begin"] - inside.astype(np.int64)
    found = []
    for number in np.unique(tasks["what"]).tolist():
        chosen = tasks["what"] == number
        name = f"other instructions of {task_name(names, number)}"
        found.append(LineCycles(name, int(chosen.sum()), int(rest[chosen].sum())))
    return found
