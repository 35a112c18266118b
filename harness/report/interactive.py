"""The parts of a report that one can zoom into: a timeline and maps of all counters, by the library plotly.

Its script is put into the page once (5 MB), so the page still loads nothing.  Without the package a report has the
static pictures alone.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.report.markup import text
from traces.heatmap import plane
from traces.naming import clean, task_name
from traces.pictures import longest
from traces.state import spans
from traces.style import OTHER, TASKS, WAIT_COLOURS
from wse_core.events import WAITS

if TYPE_CHECKING:
    from traces.trace import Trace

__all__ = ["MOST_NUMBERS", "MOST_SPANS", "available", "figures"]

MOST_SPANS = 20_000
MOST_NUMBERS = 400_000
"""All maps together have at most so many numbers: what a browser still can turn around at once."""
HINT = "With the package plotly (pip install 'wse-sim[report]') this page has a timeline and maps to zoom into."
LOOK = {"paper_bgcolor": "white", "plot_bgcolor": "white", "font": {"size": 12, "color": "#1d2528"}}


def available() -> bool:
    """Return whether plotly is installed."""
    return find_spec("plotly") is not None


def figures(trace: Trace) -> list[str]:
    """Return the parts of the page: the script and what it draws; without plotly a line that says so."""
    if not available():
        return [f"<p class='small'>{text(HINT)}</p>"]
    from plotly.offline import get_plotlyjs

    drawn = [part for part in (_timeline(trace), _maps(trace)) if part]
    return [f"<script>{get_plotlyjs()}</script>", *drawn] if drawn else []


def _html(figure: Any, name: str) -> str:
    """Return a figure as a part of a page that has the script."""
    config = {"responsive": True, "displaylogo": False}
    return (
        f"<div class='wide'>{figure.to_html(full_html=False, include_plotlyjs=False, config=config, div_id=name)}</div>"
    )


def _timeline(trace: Trace) -> str:
    """Return tasks, waits and phases over cycles; a name when the pointer rests on one."""
    import plotly.graph_objects as go

    needed = {"task_start", "task_end", "wait"}
    if not needed <= set(trace.filter.kinds):
        return ""
    events = trace.events(kinds=sorted(needed))
    tasks, waits = spans(events, "task"), spans(events, "wait")
    left_out = max(0, len(tasks) + len(waits) - MOST_SPANS)
    if left_out:
        lengths = np.concatenate([_lengths(part, trace.clock) for part in (tasks, waits)])
        least = np.sort(lengths)[left_out]
        tasks, waits = (part[_lengths(part, trace.clock) >= least] for part in (tasks, waits))
    if not len(tasks) and not len(waits) and not trace.marks:
        return ""
    cycles, figure = (trace.meta.first_cycle, trace.clock), go.Figure()
    shown, seen = longest(tasks, cycles), dict[str, bool]()
    for mark in trace.marks:
        _bar(figure, "phase", "#b0bec5", [mark.begin], [mark.end], [clean(mark.track)], [clean(mark.label)], 0.9, seen)
    for part, kind in ((tasks, "task"), (waits, "wait")):
        for number in np.unique(part["what"]).tolist():
            found = part[part["what"] == number]
            name = task_name(trace.names, number) if kind == "task" else f"waits for {WAITS[number]}"
            if kind == "wait":
                colour, height = WAIT_COLOURS[number], 0.4
            else:
                colour, height = (TASKS[shown.index(number)] if number in shown else OTHER), 0.85
            ends = np.minimum(found["end"], np.uint64(trace.clock)).tolist()
            rows = [f"({span['x']}, {span['y']})" for span in found]
            _bar(figure, name, colour, found["begin"].tolist(), ends, rows, [name] * len(found), height, seen)
    order = list(dict.fromkeys(clean(mark.track) for mark in trace.marks))
    places = sorted({(int(span["y"]), int(span["x"])) for part in (tasks, waits) for span in part})
    order += [f"({x}, {y})" for y, x in places]
    figure.update_layout(
        barmode="overlay",
        height=min(1400, 160 + 20 * len(order)),
        margin={"l": 10, "r": 10, "t": 30, "b": 40},
        xaxis={"title": "cycle", "range": list(cycles), "tickformat": ",d"},
        yaxis={"categoryorder": "array", "categoryarray": order, "autorange": "reversed", "automargin": True},
        **LOOK,
    )
    title = "Tasks and waits" + (f" ({left_out:,} of the shortest left out)" if left_out else "")
    return f"<p><b>{text(title)}</b></p>" + _html(figure, "timeline")


def _lengths(part: np.ndarray, clock: int) -> np.ndarray:
    return np.minimum(part["end"], np.uint64(clock)).astype(np.int64) - part["begin"].astype(np.int64)


def _bar(
    figure: Any,
    name: str,
    colour: str,
    begins: list[int],
    ends: list[int],
    rows: list[str],
    says: list[str],
    height: float,
    seen: dict[str, bool],
) -> None:
    """Add spans of one name; the legend has it once."""
    figure.add_bar(
        orientation="h",
        base=begins,
        x=[end - begin for begin, end in zip(begins, ends, strict=True)],
        y=rows,
        name=name,
        legendgroup=name,
        showlegend=name not in seen,
        customdata=list(zip(says, begins, ends, strict=True)),
        hovertemplate="%{customdata[0]}<br>cycles %{customdata[1]:,} to %{customdata[2]:,}<extra>%{y}</extra>",
        marker={"color": colour, "line": {"width": 0}},
        width=height,
    )
    seen[name] = True


def _maps(trace: Trace) -> str:
    """Return a map of every counter, chosen from a list; scales begin at zero."""
    import plotly.graph_objects as go

    run = trace.files[0]
    counters = [run.counter(name) for name in run.counters]
    values = {counter.name: (plane(counter.values), counter.unit) for counter in counters if counter.kind == "pe"}
    moved = [plane(counter.values) for counter in counters if counter.kind == "link"]
    if moved:
        values["wavelets moved"] = sum(moved[1:], moved[0]), "wavelets"
    values = {name: entry for name, entry in values.items() if entry[0].any()}
    room = MOST_NUMBERS // max(1, next(iter(values.values()))[0].size) if values else 0
    if not room:
        return ""
    chosen = list(values)[:room]
    figure = go.Figure()
    for k, name in enumerate(chosen):
        numbers, unit = values[name]
        figure.add_heatmap(
            z=numbers.tolist(),
            zmin=0,
            zmax=int(numbers.max()),
            colorscale="Viridis",
            visible=k == 0,
            colorbar={"title": {"text": unit}},
            hovertemplate=f"PE (%{{x}}, %{{y}})<br>%{{z:,}} {unit}<extra>{name}</extra>",
        )
    buttons = [
        {"label": name, "method": "update", "args": [{"visible": [name == other for other in chosen]}]}
        for name in chosen
    ]
    height, width = values[chosen[0]][0].shape
    figure.update_layout(
        height=int(min(900, max(240, 130 + 700 * min(1.0, height / width)))),
        margin={"l": 10, "r": 10, "t": 60, "b": 40},
        updatemenus=[{"buttons": buttons, "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}],
        xaxis={"title": "x (east)", "tickformat": "d", "constrain": "domain"},
        yaxis={
            "title": "y (south)",
            "tickformat": "d",
            "range": [height - 0.5, -0.5],
            "scaleanchor": "x",
            "constrain": "domain",
        },
        **LOOK,
    )
    for axis, places in ((figure.layout.xaxis, width), (figure.layout.yaxis, height)):
        if places < 10:  # there are no PEs between or beside them
            axis.update(dtick=1, tick0=0)
    return "<p><b>Counters of the PEs</b></p>" + _html(figure, "maps")
