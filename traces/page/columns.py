"""A recorded run becomes tables of columns, sorted by PE, and facts about them: all that a page knows.

A PE is a number, row by row from the north-west corner of the region that is shown.

==============  ===================================================================================================
table           a row is
==============  ===================================================================================================
``tasks``       a task from its choice to its end: ``pe``, ``begin``, ``length``, ``what`` (place in the fact ``tasks``)
``operations``  a vector operation from issue to last step; also ``lane`` (thread) and ``done`` (elements)
``waits``       a wait of the CE: ``what`` is a place in `WAITS`; also ``color`` and ``queue``
``notes``       another event as it was recorded: ``cycle``, ``kind`` (place in `KINDS`), ``color``, ``aux``, ``flags``,
                ``data``
``moves``       an event of a wavelet in the same columns; ``data`` is the payload of the first event of each wavelet
                (`traces.paths.identify`), and of others what changed: their payload XOR that of the first
==============  ===================================================================================================

A ``length`` of `ENDLESS` says that the file has no end of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.marks import lanes
from traces.naming import clean, operation_name, task_name
from traces.page.lasting import LASTING, Lasting
from traces.paths import identify
from traces.state import OPEN, THREADS
from traces.style import COLOURS, OTHER, TASKS, USE_TEXT, WAIT_COLOURS
from traces.trace import Trace
from wse_core.counters import LIMITS, USES, limits
from wse_core.counters import said as in_words
from wse_core.errors import TraceError
from wse_core.events import FOREVER, HOST, KINDS, WAITS

__all__ = [
    "ENDLESS",
    "MOST_ROWS",
    "PageColumns",
    "chosen_kinds",
    "columns",
    "cycles_of",
    "facts_of",
    "refuse_many",
    "spent",
]

ENDLESS = (1 << 32) - 1
MOST_ROWS = 1 << 24
"""Rows that a page may have: a browser keeps them all in memory."""
SINGLE = {
    "moves": ("inject", "depart", "enter", "take"),
    "notes": ("activate", "conflict", "switch", "route", "teardown", "host"),
}
FIELDS = ("cycle", "kind", "color", "aux", "flags", "data")
LATENCIES = ("router.hop", "ramp.in")


@dataclass(frozen=True, repr=False)
class PageColumns:
    """A `PageColumns` has what a page shows.

    Attributes
    ----------
    facts : dict
        Texts and numbers for JSON.
    tables : dict
        Per table its columns, arrays of one length.
    """

    facts: dict[str, Any]
    tables: dict[str, dict[str, NDArray[Any]]]

    def __repr__(self) -> str:
        return f"PageColumns({', '.join(f'{count} {name}' for name, count in self.rows.items())})"

    @property
    def rows(self) -> dict[str, int]:
        """Each table has so many rows."""
        return {name: len(next(iter(table.values()))) for name, table in self.tables.items()}


def columns(
    trace: Trace,
    cycles: tuple[int, int] | None = None,
    region: tuple[int, int, int, int] | None = None,
    colors: Sequence[int] | None = None,
    kinds: Sequence[str] | None = None,
    lasting: Lasting | None = None,
    said: Sequence[str] | None = None,
) -> PageColumns:
    """Return the `PageColumns` of a part of a trace.

    Parameters
    ----------
    trace : Trace
    cycles, region, colors, kinds : optional
        As for `Trace.events`; default all.  What lasts is there if it lasts in one of the cycles, with its true begin
        and end.
    lasting : Lasting, optional
        Reads what lasts, of the same region and colors; with it cycles without events are a page too.
    said : sequence of str, optional
        What `spent` returns, if it is known.

    Raises
    ------
    TraceError
        The file has no events, none of the kinds that a page shows, or none in the selection; or too many.
    """
    chosen = chosen_kinds(trace, kinds)
    height, width = trace.shape
    region = region or (0, 0, width, height)
    first, stop = cycles_of(trace, cycles)
    whole = lasting or Lasting(trace, region, colors)
    tables: dict[str, dict[str, NDArray[Any]]] = {}
    facts = facts_of(trace, region, (first, stop), said)
    for name, needed in LASTING.items():
        if set(needed) <= set(chosen):
            tables[name] = _lasting(whole, name, (first, stop), region, facts)
    for name, wanted in SINGLE.items():
        found = [kind for kind in wanted if kind in chosen]
        if found:
            events = trace.events((first, stop), found, region, colors)
            fields = {field: events[field] for field in FIELDS}
            if name == "moves":
                fields["data"] = _changes(events)
            else:
                activated = np.unique(events["aux"][events["kind"] == KINDS.index("activate")]).tolist()
                facts["activated"] = {str(number): task_name(trace.names, number) for number in activated}
            tables[name] = _by_pe(events, region, fields, events["cycle"])
    rows = sum(len(table["pe"]) for table in tables.values())
    if not rows and lasting is None:
        raise TraceError("has no events in this selection", path=trace.files[0].path, exit_code=2)
    refuse_many(trace, rows, "events", "--cycles, --region or --kinds")
    facts["missing"] = _missing(chosen)
    facts["ways"] = _unsure_ways(trace, colors, first)
    facts["queues"] = _no_queues(trace, chosen, region, colors, first)
    facts["part"] = _part(trace, cycles, colors, kinds)
    return PageColumns(facts, tables)


def chosen_kinds(trace: Trace, kinds: Sequence[str] | None) -> list[str]:
    """Return the kinds of events that are there and wanted; of those that begin and end, only both."""
    path = trace.files[0].path
    hint = "record it with --trace events or --trace full"
    if not trace.has_events:
        raise TraceError("holds no events, which a page shows", path=path, hint=hint, exit_code=2)
    known = [kind for needed in (*LASTING.values(), *SINGLE.values()) for kind in needed]
    for kind in kinds or ():
        if kind not in (*known, "mark"):
            raise TraceError(f"a page has no events of kind {kind!r}", path=path, exit_code=2, hint=", ".join(known))
    found = [kind for kind in known if kind in trace.filter.kinds and (kinds is None or kind in kinds)]
    pairs = [pair for pair in LASTING.values() if not set(pair) <= set(found)]
    found = [kind for kind in found if not any(kind in pair for pair in pairs)]
    if not found:
        raise TraceError(
            "holds no events of the kinds that a page shows" if kinds is None else f"holds none of {', '.join(kinds)}",
            path=path,
            hint="what lasts needs events of its begin and its end" if pairs else hint,
            exit_code=2,
        )
    return found


def cycles_of(trace: Trace, cycles: tuple[int, int] | None = None) -> tuple[int, int]:
    """Return the first cycle of a page and the one after its last, of cycles or of all that the file has."""
    first, stop = cycles or (0, FOREVER)
    first = max(first, trace.meta.first_cycle, trace.filter.cycles[0])
    stop = min(stop, int(trace.clock), trace.filter.cycles[1])
    path = trace.files[0].path
    if trace.clock >= ENDLESS:
        raise TraceError(f"cycle {trace.clock:,} does not fit a page", path=path, hint="at most 2^32 - 2", exit_code=2)
    if first >= stop:
        raise TraceError(
            "has no events in these cycles",
            path=path,
            exit_code=2,
            hint=f"the file holds cycles {trace.meta.first_cycle:,} to {int(trace.clock) - 1:,}",
        )
    return first, stop


def _by_pe(
    events: NDArray[Any], region: tuple[int, int, int, int], found: dict[str, NDArray[Any]], *keys: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """Return columns of events of a region in the order of PEs and, in a PE, of some keys, the last one first."""
    left, top, width, _ = region
    pe = (events["y"].astype(np.int64) - top) * width + events["x"] - left
    order = np.lexsort((*keys, pe))
    return {name: np.asarray(values)[order] for name, values in {"pe": pe, **found}.items()}


def _lasting(
    lasting: Lasting, name: str, cycles: tuple[int, int], region: tuple[int, int, int, int], facts: dict[str, Any]
) -> dict[str, NDArray[Any]]:
    """Return a table of what lasts in some cycles; note in the facts what its numbers mean."""
    found, waits = lasting.of(name, cycles)
    names, table = lasting.trace.names, {"begin": found["begin"]}
    table["length"] = np.where(found["end"] == np.uint64(OPEN), np.uint64(ENDLESS), found["end"] - found["begin"])
    if name == "tasks":
        numbers, table["what"] = np.unique(found["what"], return_inverse=True)
        shown = lasting.longest(found, cycles)
        facts["tasks"] = [
            [task_name(names, number), TASKS[shown.index(number)] if number in shown else OTHER]
            for number in numbers.tolist()
        ]
    elif name == "operations":
        codes, table["what"] = np.unique(found["what"] << 16 | found["word"], return_inverse=True)
        lines = names.get("lines", {})
        facts["operations"] = [
            [operation_name(names, code >> 16), clean(lines.get(str(code & 0xFFFF), ""))] for code in codes.tolist()
        ]
        table |= {"lane": found["lane"], "done": found["done"]}
        return _by_pe(found, region, table, found["begin"], found["lane"])
    else:
        table |= {"what": found["what"], "color": waits["color"], "queue": waits["flags"] >> 1 & 7}
    return _by_pe(found, region, table, found["begin"])


def _changes(events: NDArray[Any]) -> NDArray[np.uint32]:
    """Return the payloads of events: of a wavelet's first one as it is, of others XOR that of the first.

    Queues are first in, first out, so a page knows which events are those of one wavelet; most payloads, which are most
    of what a trace holds, need not stand in it then.
    """
    _, first, wavelet = np.unique(identify(events), return_index=True, return_inverse=True)
    payloads = events["data"]
    changes = payloads ^ payloads[first[wavelet]]
    changes[first] = payloads[first]
    return changes


def refuse_many(trace: Trace, rows: int, what: str, options: str) -> None:
    """Raise `TraceError` if there are more rows than a page may have."""
    if rows > MOST_ROWS:
        raise TraceError(
            f"{rows:,} {what} are too many for a page",
            path=trace.files[0].path,
            exit_code=2,
            hint=f"at most {MOST_ROWS:,}: fewer with {options}",
        )


def facts_of(
    trace: Trace, region: tuple[int, int, int, int], cycles: tuple[int, int], said: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return what a page says of the run and what numbers in its tables mean; `said` is what `spent` returns."""
    marks = [mark for mark in trace.marks if mark.begin < cycles[1] and mark.end >= cycles[0]]
    return {
        "job": clean(trace.meta.job),
        "file": clean(trace.files[0].path.name),
        "status": trace.meta.status if trace.complete else "not ended",
        "preset": clean(trace.meta.preset),
        "gaps": [clean(gap) for gap in trace.gaps],
        "fabric": [trace.shape[1], trace.shape[0]],
        "region": list(region),
        "first": cycles[0],
        "stop": cycles[1],
        "kinds": list(KINDS),
        "host": list(HOST),
        "threads": list(THREADS),
        "waits": [[reason, USE_TEXT[f"stall_{reason}"], WAIT_COLOURS[k]] for k, reason in enumerate(WAITS)],
        "shades": {"calculates": COLOURS["stall_pipe"], "others": OTHER},
        "late": {name: trace.meta.machine[name] for name in LATENCIES if name in trace.meta.machine},
        "marks": [
            [mark.begin, mark.end, clean(mark.track), clean(mark.label), lane]
            for mark, lane in zip(marks, lanes(marks), strict=True)
        ],
        "spent": spent(trace) if said is None else list(said),
        "tasks": [],
        "operations": [],
    }


def spent(trace: Trace) -> list[str]:
    """Return how near the whole run came to its lower bound, and what most of its cycles went to, if the file knows."""
    run, found = trace.files[0], []
    bound, cycles = (run.result(name) if name in run.results else None for name in ("lower_bound", "cycles"))
    if isinstance(bound, int | float) and isinstance(cycles, int | float) and cycles > 0:
        found.append(f"lower bound {bound:,.0f} cycles, {bound / cycles:.0%} of the {cycles:,.0f} measured")
    if "bottleneck" in run.results and run.result("bottleneck") not in LIMITS:  # of a training: its system's
        found.append(f"bottleneck: {clean(run.result('bottleneck'))}")
    if limited := limits({name: run.counter(name).values for name in run.counters}):
        found.append(f"limits: {in_words(limited)}")
    if set(USES) <= set(run.counters):
        sums = {use: int(run.counter(use).values.sum(dtype=np.uint64)) for use in USES}
        most = max((use for use in USES if use != "idle"), key=lambda use: sums[use])
        whole = max(1, sum(sums.values()))
        found.append(
            f"most cycles: {USE_TEXT[most]} {sums[most] / whole:.0%}, {USE_TEXT['idle']} {sums['idle'] / whole:.0%}"
        )
    return found


def _missing(chosen: Sequence[str]) -> list[str]:
    """Return sentences about what a page does not have, and with which options it would."""
    found = []
    for name, kinds in LASTING.items():
        if not set(kinds) <= set(chosen):
            found.append(f"{name}: record them with --trace events or --trace full")
    lost = [kind for kind in SINGLE["moves"] if kind not in chosen]
    if lost:
        found.append(f"wavelets ({', '.join(lost)}): record them with --trace full")
    return found


def _unsure_ways(trace: Trace, colors: Sequence[int] | None, first: int) -> str:
    """Return why events may be taken for those of another wavelet; nothing if they cannot."""
    if first > 0:
        return f"what was in queues before cycle {first:,} is not in the page"
    if trace.filter.colors is not None or colors is not None:
        return "the page has some colors only"
    return "events are lost" if trace.gaps else ""


def _no_queues(
    trace: Trace, chosen: Sequence[str], region: tuple[int, int, int, int], colors: Sequence[int] | None, first: int
) -> str:
    """Return why it is not known what is in queues; nothing if it is."""
    if not set(SINGLE["moves"]) <= set(chosen):
        return "the page has not all events of wavelets: record them with --trace full"
    if trace.filter.region is not None or region != (0, 0, *trace.shape[::-1]):
        return "what comes from outside of the region is not in the page"
    unsure = _unsure_ways(trace, colors, first)
    if unsure:
        return unsure
    lost = [name for name in LATENCIES if name not in trace.meta.machine]
    return f"the file does not say how many cycles {lost[0]} takes" if lost else ""


def _part(
    trace: Trace, cycles: tuple[int, int] | None, colors: Sequence[int] | None, kinds: Sequence[str] | None
) -> str:
    """Return which part of the run is in a page, beside cycles and region; nothing for all of it."""
    colors = trace.filter.colors if colors is None else colors
    said = ["some cycles"] if cycles is not None or trace.filter.cycles != (0, FOREVER) else []
    said += ["some PEs"] if trace.filter.region is not None else []
    said += [] if colors is None else [f"colors {', '.join(map(str, colors))}"]
    said += [] if kinds is None else [f"kinds {', '.join(kinds)}"]
    return "; ".join(said)
