"""One look for all pictures: sizes, type, colours, and how a figure begins and is written.

Pictures are made for a column of a paper: small type of one family, no frame, quiet axes, colours that stay apart for
people who see red and green alike, scales that begin at zero.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from wse_core.counters import USE_TEXT, USES

__all__ = [
    "COLOURS",
    "DPI",
    "INK",
    "OPERATIONS",
    "OTHER",
    "OTHER_OPERATION",
    "PAPER",
    "TASKS",
    "USE_TEXT",
    "WAIT_COLOURS",
    "fitted",
    "grouped",
    "integer_axes",
    "new_figure",
    "powers",
    "short",
    "styled",
]

DPI = 150
MOST_TITLE = 300
"""Characters of a title that are looked at: no figure is as wide as more."""
RC: Any = {
    "font.family": "sans-serif",
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.5,
    "axes.labelcolor": "#3c4a50",
    "axes.edgecolor": "#8a979d",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.color": "#5b6b72",
    "ytick.color": "#5b6b72",
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "lines.linewidth": 1.3,
    "image.cmap": "viridis",
    "text.color": "#1d2528",
    "figure.facecolor": "white",
}
PAPER = ("#ffffff", "#14191b")
INK = (("#1d2528", "#e4eaec"), ("#3c4a50", "#c3cdd1"), ("#5b6b72", "#9db0b8"), ("#8a979d", "#6b7a80"))
"""Colours of paper and of text and axes on a light screen, and on a dark one; all of `RC` are among them."""

COLOURS = dict(
    zip(USES, ("#1b7f5f", "#8fcbb3", "#e6ab02", "#7b5ea7", "#3a7ebf", "#c8442f", "#a0527a", "#e3e6e8"), strict=True)
)
"""Of the uses of cycles, in all pictures."""
WAIT_COLOURS = tuple(COLOURS[f"stall_{reason}"] for reason in ("resource", "input", "output", "fifo"))
"""Each reason to wait has a colour, in the order of `wse_core.events.WAITS`."""
TASKS = ("#a6cee3", "#b2df8a", "#fdbf6f", "#cab2d6", "#fb9a99", "#ffff99", "#8dd3c7", "#fccde5", "#d9c7a7", "#b3cde3")
OPERATIONS = (
    "#66c2a5", "#fc8d62", "#8da0cb", "#e78ac3", "#a6d854", "#d8b365", "#5ab4ac", "#bf812d", "#9970ab", "#74add1",
)  # fmt: skip
OTHER, OTHER_OPERATION = "#d0d0d0", "#97a3a8"
"""These colours are shared by tasks and operations that take fewer cycles than the first so many."""

P = ParamSpec("P")
R = TypeVar("R")


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Draw in this style, whatever the caller's settings of Matplotlib are."""

    @functools.wraps(draw)
    def inside(*args: P.args, **options: P.kwargs) -> R:
        from matplotlib import rc_context

        with rc_context(RC):
            return draw(*args, **options)

    return inside


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure [inches] that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def fitted(figure: Any) -> None:
    """Clip titles of axes that would leave the figure, and put three dots where something is missing."""
    from matplotlib.font_manager import FontProperties

    font = FontProperties(family=RC["font.family"], size=RC["axes.titlesize"], weight=RC["axes.titleweight"])
    renderer = figure.canvas.get_renderer()
    room = figure.bbox.width - 0.8 * figure.dpi  # a title begins at the axes, behind their labels

    def too_wide(text: str) -> bool:
        return renderer.get_text_width_height_descent(text, font, False)[0] > room

    for axes in figure.axes:
        text = axes.get_title(loc="left")
        if too_wide(text[:MOST_TITLE]) or len(text) > MOST_TITLE:
            kept = bisect.bisect_left(range(MOST_TITLE), True, key=lambda k: too_wide(text[:k] + "..."))
            axes.set_title(text[: max(0, kept - 1)].rstrip(" ,:") + "...", loc="left")


def integer_axes(axes: Any, which: str = "xy") -> None:
    """Let the ticks of axes stand at whole numbers: PEs and counts have no halves."""
    for name in which:
        axis = getattr(axes, f"{name}axis")
        axis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        grouped(axis)


def grouped(axis: Any) -> None:
    """Write the numbers of an axis in groups of three digits, unless it has labels of its own."""
    from matplotlib.ticker import FixedFormatter

    if not isinstance(axis.get_major_formatter(), FixedFormatter):
        axis.set_major_formatter(lambda value, _: short(value))


def powers(axis: Any, values: Any) -> None:
    """Make an axis logarithmic with a tick at each of some values, such as powers of two, and none between."""
    name = axis.axis_name
    axis.axes.set(**{f"{name}scale": "log"})
    axis.set_ticks(list(values), [short(value) for value in values])
    axis.set_ticks([], minor=True)


def short(value: float) -> str:
    """Return a number for a picture: a whole one with all its digits in groups of three, others with four digits."""
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e9 else f"{value:,.4g}"
