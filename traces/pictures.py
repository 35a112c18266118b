"""Pictures of a trace, each with the numbers that it shows; `Picture.save` writes them as CSV beside it.

=================  ============================================================================  =======================
figure             shows                                                                         needs
=================  ============================================================================  =======================
`links`            link roses: per PE an arrow in each direction, as wide as the traffic         link counters
`stalls`           where the cycles of each PE row or column went                                PE counters
`timeline`         tasks, operations and waits of PEs over cycles                                level events
`utilisation`      share of PEs inside a task, waiting, and grants per PE, over time             level events (full)
`windows`          what the cycles of all PEs went to, and grants per PE, window by window       counters of windows
=================  ============================================================================  =======================

Heat maps of counters are in `traces.heatmap`, animations in `traces.movie`, what all look like in `traces.style`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from traces.marks import PhaseMark, lanes
from traces.naming import operation_at, plain, task_name
from traces.picture import Picture
from traces.reader import Counter
from traces.state import MAIN, spans
from traces.style import (
    COLOURS,
    INK,
    OPERATIONS,
    OTHER,
    OTHER_OPERATION,
    TASKS,
    USE_TEXT,
    USES,
    WAIT_COLOURS,
    integer_axes,
    new_figure,
    short,
    styled,
)
from wse_core.errors import TraceError
from wse_core.events import KINDS, WAITS

if TYPE_CHECKING:
    from traces.trace import Trace

__all__ = ["NothingToDraw", "links", "longest", "stalls", "timeline", "utilisation", "windows"]

STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1))
OTHERS, OTHER_OPERATIONS = "other tasks", "other operations"
MOST_DRAWN = 1500
"""Spans up to which each is drawn as itself in an SVG or a PDF; more are one image there."""
MOST_NUMBERED = 120
"""Up to so many links the numbers stand beside the arrows."""


class NothingToDraw(TraceError):
    """The run did nothing of what the picture shows."""


@styled
def links(traffic: ArrayLike, title: str = "wavelets per link") -> Picture:
    """Draw a link rose for each PE.

    Parameters
    ----------
    traffic : array_like
        (height, width, 4): wavelets that left each PE to W, E, N and S.
    """
    traffic = np.asarray(traffic, np.float64)
    height, width = traffic.shape[:2]
    most = max(1.0, traffic.max(initial=0))
    figure = new_figure(min(12, max(5.5, 2 + 0.45 * width)), min(12, max(2.2, 1.6 + 0.45 * height)))
    axes = figure.add_subplot()
    rows = []
    numbered = np.count_nonzero(traffic) <= MOST_NUMBERED
    for direction, (dx, dy) in enumerate(STEPS):
        y, x = np.nonzero(traffic[..., direction])
        size = traffic[y, x, direction]
        rows += [(column, row, "WENS"[direction], int(count)) for column, row, count in zip(x, y, size, strict=True)]
        side = 0.08  # both directions of a link beside each other
        arrows = axes.quiver(
            x + dy * side,
            y + dx * side,
            dx * np.ones(len(x)),
            dy * np.ones(len(x)),
            size,
            cmap="viridis_r",
            clim=(0, most),
            angles="xy",
            scale_units="xy",
            scale=1.35,
            units="xy",
            width=0.06,
        )
        for column, row, count in zip(x, y, size, strict=True) if numbered else ():
            at = column + 0.5 * dx + 0.24 * dy, row + 0.5 * dy + 0.24 * dx  # on the outer side of its arrow
            axes.text(*at, short(count), ha="center", va="center", fontsize=6, rotation=90 * abs(dy), color="#3c4a50")
    axes.set(xlim=(-0.8, width - 0.2), ylim=(height - 0.2, -0.8), xlabel="x (east)", ylabel="y (south)", aspect="equal")
    axes.set_title(plain(title))
    integer_axes(axes)
    figure.colorbar(arrows, ax=axes, label="wavelets of a link", shrink=0.9, aspect=30)
    return Picture.of(figure, "x,y,direction,wavelets", sorted(rows))


@styled
def stalls(counters: Mapping[str, ArrayLike], axis: str = "x", title: str = "where the cycles went") -> Picture:
    """Draw the uses of cycles, averaged over the rows (``axis="x"``) or columns of PEs.

    Parameters
    ----------
    counters : dict[str, ndarray]
        (height, width) cycles by the names of `USES`.
    """
    sums = np.array([np.asarray(counters[use], np.float64).mean(axis=0 if axis == "x" else 1) for use in USES])
    figure = new_figure(7, 3.4)
    axes = figure.add_subplot()
    _stack(axes, np.arange(sums.shape[1] + 1) - 0.5, sums)
    axes.set(xlabel=f"{axis} of the PE", ylabel="cycles of the run", title=plain(title))
    axes.set(xlim=(-0.5, sums.shape[1] - 0.5), ylim=(0, None))
    integer_axes(axes)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), reverse=True)
    return Picture.of(figure, f"{axis},{','.join(USES)}", ((k, *row) for k, row in enumerate(sums.T.tolist())))


def _stack(axes: Any, edges: np.ndarray, parts: np.ndarray) -> None:
    """Draw the uses of cycles on top of each other; those that never occur are left out."""
    there = [k for k in range(len(USES)) if parts[k].any()]
    axes.stackplot(
        edges,
        [np.append(parts[k], parts[k][-1]) for k in there],
        labels=[USE_TEXT[USES[k]] for k in there],
        colors=[COLOURS[USES[k]] for k in there],
        step="post",
    )


class Strip(NamedTuple):
    """A `Strip` has the spans of one name, and how they are drawn in the line of a PE.

    Attributes
    ----------
    name, legend : str
        In the table and in the legend.
    spans : numpy.ndarray
        As `traces.state.spans` returns them.
    colour : str
    middle, height : float
        Of the bars, in lines; 0 is the middle of a line.
    """

    name: str
    legend: str
    spans: np.ndarray
    colour: str
    middle: float
    height: float


@styled
def timeline(
    trace: Trace,
    region: tuple[int, int, int, int] | None = None,
    cycles: tuple[int, int] | None = None,
    title: str = "tasks, operations and waits",
) -> Picture:
    """Draw what PEs do over cycles, a line per PE: tasks (pale), vector operations with their source lines, and waits.

    In the line of a PE operations of the main thread stand above those of microthreads, and waits of the CE below.
    Tasks and operations that take most cycles have colours, the others share one.
    """
    cycles = (trace.meta.first_cycle, trace.clock) if cycles is None else cycles
    strips = _strips(trace, region, cycles)
    places = np.unique(np.concatenate([_place(strip.spans) for strip in strips] or [np.zeros(0, np.int64)]))
    if not len(places):
        raise NothingToDraw("nothing ran in this region", path=trace.files[0].path, exit_code=2)
    named = 0.6 + 0.175 * len({strip.legend for strip in strips})
    figure, axes = _with_phases(9, min(14, max(named, 1.5 + 0.22 * len(places))), trace, cycles)
    rows = [
        (0, 0, f"{mark.track}: {mark.label}", mark.begin, mark.end)
        for mark in trace.marks
        if mark.begin < cycles[1] and mark.end >= cycles[0]
    ]
    many = sum(len(strip.spans) for strip in strips) > MOST_DRAWN
    for name, legend, found, colour, middle, height in strips:
        lines = np.searchsorted(places, _place(found)) + middle
        _bars(axes, lines, found, cycles, height, color=colour, label=plain(legend), rasterized=many)
        ends = np.minimum(found["end"], np.uint64(cycles[1]))
        columns = (found["x"], found["y"], found["begin"], ends)
        rows += [(x, y, name, begin, end) for x, y, begin, end in zip(*(c.tolist() for c in columns), strict=True)]
    step = max(1, len(places) // 40)
    labels = [f"({place & 0xFFFF}, {place >> 16})" for place in places[::step].tolist()]
    axes.set_yticks(range(0, len(places), step), labels, fontsize=7)
    axes.set(xlim=cycles, ylim=(len(places) - 0.5, -0.5), xlabel="cycle", title=plain(title))
    integer_axes(axes, "x")
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    axes.legend(handles.values(), handles, loc="upper left", bbox_to_anchor=(1, 1))
    return Picture.of(figure, "x,y,what,begin,end", rows)


def _strips(trace: Trace, region: tuple[int, int, int, int] | None, cycles: tuple[int, int]) -> list[Strip]:
    """Return what a timeline draws: tasks, operations and waits that last in some cycles, each by its name."""
    kinds = [kind for kind in ("task_start", "task_end", "op_start", "op_end", "wait") if kind in trace.filter.kinds]
    events = trace.events(kinds=kinds, region=region)
    tasks, operations, waits = (spans(events, kind) for kind in ("task", "op", "wait"))
    operations["what"] = operations["what"] << 16 | operations["word"]
    tasks, operations, waits = (
        part[(part["begin"] < cycles[1]) & (part["end"] > cycles[0])] for part in (tasks, operations, waits)
    )
    found = []
    coloured = longest(tasks, cycles)
    for number in np.unique(tasks["what"]).tolist():
        name, known = task_name(trace.names, number), number in coloured
        colour = TASKS[coloured.index(number)] if known else OTHER
        found.append(Strip(name, name if known else OTHERS, tasks[tasks["what"] == number], colour, 0, 0.8))
    coloured = longest(operations, cycles)
    for code in np.unique(operations["what"]).tolist():
        mine, known = operations[operations["what"] == code], code in coloured
        name = operation_at(trace.names, code)
        legend, colour = (name, OPERATIONS[coloured.index(code)]) if known else (OTHER_OPERATIONS, OTHER_OPERATION)
        for beside in (False, True):
            part = mine[(mine["lane"] != MAIN) == beside]
            if len(part):
                where = f"{name} in a microthread" if beside else name
                found.append(Strip(where, legend, part, colour, 0.07 if beside else -0.22, 0.25))
    middle, height = (0.31, 0.18) if len(operations) else (0, 0.4)
    for number in np.unique(waits["what"]).tolist():
        legend, part = USE_TEXT[f"stall_{WAITS[number]}"], waits[waits["what"] == number]
        found.append(Strip(legend, legend, part, WAIT_COLOURS[number], middle, height))
    return found


def _place(found: np.ndarray) -> np.ndarray:
    """Return one number per span for its PE, in the order of rows and then columns."""
    return found["y"].astype(np.int64) << 16 | found["x"]


def _bars(axes: Any, lines: np.ndarray, found: np.ndarray, cycles: tuple[int, int], height: float, **look: Any) -> None:
    """Draw spans on their lines, all as one collection: a bar of its own for each takes minutes beyond 10^5."""
    from matplotlib.collections import PolyCollection

    begin = np.maximum(found["begin"].astype(np.float64), cycles[0])
    end = np.minimum(found["end"].astype(np.float64), cycles[1])
    upper, lower = lines - height / 2, lines + height / 2
    corners = np.stack([begin, upper, end, upper, end, lower, begin, lower], axis=1).reshape(-1, 4, 2)
    axes.add_collection(PolyCollection(list(corners), linewidths=0, **look), autolim=False)


def longest(tasks: np.ndarray, cycles: tuple[int, int]) -> list[int]:
    """Return the numbers of the tasks that took most cycles, as many as have a colour, in the order of numbers."""
    begin = np.maximum(tasks["begin"].astype(np.float64), cycles[0])
    end = np.minimum(tasks["end"].astype(np.float64), cycles[1])
    numbers, place = np.unique(tasks["what"], return_inverse=True)
    spent = np.bincount(place, np.maximum(0, end - begin), minlength=len(numbers))
    return sorted(int(number) for number in numbers[np.argsort(-spent, kind="stable")][: len(TASKS)])


@styled
def utilisation(
    trace: Trace, region: tuple[int, int, int, int] | None = None, bins: int = 200, title: str = "utilisation over time"
) -> Picture:
    """Draw the share of PEs inside a task and of PEs that wait, and the grants per PE and cycle, over time."""
    kinds = [kind for kind in ("task_start", "task_end", "wait", "depart") if kind in trace.filter.kinds]
    events = trace.events(kinds=kinds, region=region)
    first, last = trace.meta.first_cycle, max(trace.meta.first_cycle + 1, trace.clock)
    edges = np.unique(np.linspace(first, last, min(bins, last - first) + 1).astype(np.int64))
    lengths = np.diff(edges)
    pes = max(1, len(np.unique(events[["x", "y"]])))
    inside = _overlap(spans(events, "task"), edges) / lengths / pes
    waiting = _overlap(spans(events, "wait"), edges) / lengths / pes
    grants = np.histogram(events["cycle"][events["kind"] == KINDS.index("depart")], edges)[0] / lengths / pes
    figure, axes = _with_phases(8, 3.6, trace, (first, last))
    for values, label, colour in (
        (inside, "inside a task", COLOURS["busy"]),
        (waiting, "waiting", COLOURS["stall_output"]),
        (grants, "grants per PE and cycle", COLOURS["stall_input"]),
    ):
        axes.stairs(values, edges, label=label, color=colour)
    axes.set(xlabel="cycle", ylabel=f"share of {pes:,} PEs", title=plain(title), xlim=(first, last), ylim=(0, None))
    integer_axes(axes, "x")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    rows = zip(edges[:-1].tolist(), inside.tolist(), waiting.tolist(), grants.tolist(), strict=True)
    return Picture.of(figure, "cycle,inside_task,waiting,grants_per_pe_cycle", rows)


@styled
def windows(
    counters: Mapping[str, Counter], title: str = "where the cycles went, over time", first: int = 0
) -> Picture:
    """Draw the shares of the uses of cycles in each window of the run, and the grants per PE and cycle.

    Parameters
    ----------
    counters : dict[str, Counter]
        All of `USES`, each with windows; counters of links among them are added up to grants.
    first : int
        Cycle in which the first window begins.

    Raises
    ------
    TraceError
        The counters have no windows.
    """
    length = counters["busy"].window_cycles
    if not length:
        raise TraceError("the counters have no windows", hint="record with --trace-window CYCLES", exit_code=2)
    sums = np.array([counters[use].values.sum(axis=(1, 2), dtype=np.float64) for use in USES])
    total = np.zeros(counters["busy"].values.shape, np.int64)  # cycles of each PE in each window
    for use in USES:
        total += counters[use].values.astype(np.int64)
    cycles, pes = total.max(axis=(1, 2)), max(1, int(np.count_nonzero(total.sum(axis=0))))
    edges = first + np.concatenate([[0], np.cumsum(cycles)])
    shares = sums / np.maximum(1, cycles * pes)
    moved = [
        counter.values.sum(axis=(1, 2, 3), dtype=np.float64) for counter in counters.values() if counter.kind == "link"
    ]
    grants = sum(moved, np.zeros(len(cycles))) / np.maximum(1, cycles * pes)
    figure = new_figure(7, 3.4)
    axes = figure.add_subplot()
    _stack(axes, edges, shares)
    axes.set(
        xlabel=f"cycle (windows of {length:,})",
        ylabel=f"share of the cycles of {pes:,} PEs",
        title=plain(title),
        xlim=(first, edges[-1]),
        ylim=(0, 1),
    )
    integer_axes(axes, "x")
    traffic = axes.twinx()
    traffic.spines.right.set_visible(True)
    traffic.stairs(grants, edges, color=INK[0][0])
    traffic.set(ylabel="grants per PE and cycle (line)", ylim=(0, None))
    axes.legend(loc="center left", bbox_to_anchor=(1.12, 0.5), reverse=True)
    rows = zip(edges[:-1].tolist(), cycles.tolist(), *shares.tolist(), grants.tolist(), strict=True)
    return Picture.of(figure, f"cycle,cycles,{','.join(USES)},grants_per_pe_cycle", rows)


def _phases(axes: Any, marks: Sequence[PhaseMark], cycles: tuple[int, int]) -> None:
    """Draw the phases of the program as bands over cycles."""
    from matplotlib import colormaps

    order = list(dict.fromkeys(mark.track for mark in marks))
    placed = [
        (mark, lane)
        for mark, lane in zip(marks, lanes(marks), strict=True)
        if mark.begin < cycles[1] and mark.end >= cycles[0]
    ]
    tracks = sorted({(mark.track, lane) for mark, lane in placed}, key=lambda row: (order.index(row[0]), row[1]))
    palette, names = colormaps["Pastel1"], list(dict.fromkeys(mark.label for mark in marks))
    axes.set(ylim=(len(tracks) - 0.5, -0.5), xlim=cycles)
    axes.set_yticks(range(len(tracks)), [plain(track) if not number else "" for track, number in tracks], fontsize=7)
    axes.tick_params(labelbottom=False, bottom=False, left=False)
    letter = 0.009 * (cycles[1] - cycles[0])
    for mark, lane in placed:
        line, begin, end = tracks.index((mark.track, lane)), max(mark.begin, cycles[0]), min(mark.end, cycles[1])
        colour = palette(names.index(mark.label) % 9)
        if mark.begin == mark.end:
            axes.plot([begin], [line], "v", color=INK[0][0], markersize=5)
        else:
            axes.barh(line, end - begin, left=begin, height=0.8, color=colour)
        behind = [other.begin for other, place in placed if (other.track, place) == (mark.track, lane)]
        free = min((other for other in behind if other > mark.begin), default=cycles[1]) - end
        wide = letter * (len(mark.label) + 1)
        at = begin if mark.begin == mark.end or end - begin > wide else end if free > wide else None
        if at is not None:
            axes.text(at, line, f" {plain(mark.label)}", fontsize=7, verticalalignment="center", clip_on=True)
        else:  # the name has no room: the legend has it
            axes.bar([0], [0], color=colour, label=plain(mark.label))
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    if handles:
        axes.legend(handles.values(), handles, loc="upper left", bbox_to_anchor=(1, 1))


def _with_phases(width: float, height: float, trace: Trace, cycles: tuple[int, int]) -> tuple[Any, Any]:
    """Return a figure and its axes, under a strip of the program's phases if there are any."""
    tracks = len({*zip((mark.track for mark in trace.marks), lanes(trace.marks), strict=True)})
    if not tracks:
        figure = new_figure(width, height)
        return figure, figure.add_subplot()
    strip = 0.2 + 0.22 * tracks
    figure = new_figure(width, height + strip)
    upper, axes = figure.subplots(2, 1, sharex=True, height_ratios=(strip, height))
    _phases(upper, trace.marks, cycles)
    return figure, axes


def _overlap(found: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return how many cycles of spans fall between consecutive edges, over all spans."""
    begin = np.sort(np.clip(found["begin"].astype(np.float64), edges[0], edges[-1]))
    end = np.sort(np.clip(found["end"].astype(np.float64), edges[0], edges[-1]))

    def before(times: np.ndarray) -> np.ndarray:  # the sum over spans of cycles from `times` to each edge
        sums = np.concatenate([[0.0], np.cumsum(times)])
        count = np.searchsorted(times, edges, side="right")
        return count * edges - sums[count]

    return np.diff(before(begin) - before(end))
