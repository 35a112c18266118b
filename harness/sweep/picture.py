"""The figure of a sweep has one column of its table over one axis, a line for each choice of the other axes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from harness.sweep.description import SweepAxis
from harness.sweep.table import ERROR, columns_of
from traces.style import grouped, integer_axes, powers
from wse_core.errors import ConfigError
from wse_core.schema import suggestion

__all__ = ["axis_of_x", "draw", "drawn_column"]

NAMED = 16
"""A legend has at most so many lines."""
MOST_TICKS = 12
"""Each value of an axis has a tick if there are at most so many."""
MARKERS = "os^Dv<>Pp*"


def axis_of_x(axes: Sequence[SweepAxis], wanted: str = "") -> str:
    """Return what the figure has on its x axis: what is wanted, else the first axis of numbers, else the first one."""
    if wanted:
        return wanted
    numbers = [axis.name for axis in axes if all(_is_number(value) for value in axis.values)]
    return next(iter([*numbers, *(axis.name for axis in axes)]), "")


def drawn_column(rows: Sequence[Mapping[str, Any]], wanted: str = "") -> str:
    """Return what is drawn: what is wanted, else cycles, else days, else the first column of numbers.

    Raises
    ------
    ConfigError
        There is no such column, or no numbers are in it.
    """
    numbers = [
        name
        for name, values in columns_of(rows).items()
        if any(_is_number(value) for value in values) and all(value is None or _is_number(value) for value in values)
    ]
    if wanted in numbers:
        return wanted
    if wanted:
        what = "has no numbers" if wanted in rows[0] else "is no column of the table"
        raise ConfigError(f"{wanted!r} {what}", where="figure.y", hint=suggestion(wanted, numbers), key=wanted)
    for name in ("cycles", "days", *numbers):
        if name in numbers:
            return name
    raise ConfigError("no column of the table has numbers", where="figure.y")


def draw(figure: Any, rows: Sequence[Mapping[str, Any]], axes: Sequence[SweepAxis], x: str, y: str, scale: str) -> None:
    """Draw into a figure of Matplotlib; a point that failed is a gap.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    rows : sequence of dict
    axes : sequence of SweepAxis
    x, y : str
        Axis and column; an empty `x` for a sweep of one point.
    scale : str
        One of `harness.sweep.description.SCALES`.
    """
    at = figure.subplots()
    values = columns_of(rows)
    over: list[Any] = values[x] if x else ["" for _ in rows]
    numeric = all(_is_number(value) for value in over)
    places = over if numeric else [list(dict.fromkeys(over)).index(value) for value in over]
    others = [axis for axis in axes if axis.name != x]
    lines: dict[tuple[Any, ...], list[tuple[Any, Any]]] = {}
    for k, row in enumerate(rows):
        key = tuple(row[axis.name] for axis in others)
        if row[ERROR] is None and values[y][k] is not None:
            lines.setdefault(key, []).append((places[k], values[y][k]))
    for (key, found), marker in zip(lines.items(), itertools.cycle(MARKERS), strict=False):
        label = ", ".join(f"{axis.name} {value}" for axis, value in zip(others, key, strict=True))
        ordered = sorted(found, key=lambda pair: pair[0])
        at.plot(*zip(*ordered, strict=True), marker=marker, markersize=3.5, label=label)
    if not numeric:
        names = list(dict.fromkeys(over))
        at.set_xticks(range(len(names)), [str(name) for name in names])
    at.set_xlabel(x)
    at.set_ylabel(y.replace("_", " "))
    at.set_title(f"{y.replace('_', ' ')} over {x}" if x else y.replace("_", " "))
    at.grid(alpha=0.25)
    if numeric and scale in ("log", "log-x") and all(value > 0 for value in over):
        if len(set(over)) <= MOST_TICKS:
            powers(at.xaxis, sorted(set(over)))
        else:
            at.set_xscale("log")
    elif numeric and all(isinstance(value, int) for value in over):
        integer_axes(at, "x")
    positive = all(value > 0 for found in lines.values() for _, value in found)
    if scale in ("log", "log-y") and positive:
        at.set_yscale("log")
    else:
        at.set_ylim(bottom=min(0.0, at.get_ylim()[0]))
        grouped(at.yaxis)
    if others and 1 < len(lines) <= NAMED:
        at.legend()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
