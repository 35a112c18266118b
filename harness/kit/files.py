"""Results are written as files that others can read: a table as CSV or Markdown, a picture as PNG, SVG or PDF."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from harness.kit.console import plain
from traces.picture import format_of, picture_bytes
from traces.style import new_figure, styled

__all__ = ["write_markdown", "write_picture", "write_table"]


def write_table(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of equal keys as CSV."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows({key: plain(value) for key, value in row.items()} for row in rows)


def write_markdown(path: str | Path, title: str, rows: Sequence[Mapping[str, Any]], notes: Mapping[str, Any]) -> None:
    """Write rows of equal keys as a page: a title, facts in few numbers, and a table."""

    def shown(value: Any) -> str:
        value = plain(value)
        text = f"{value:.5g}" if isinstance(value, float) else "" if value is None else str(value)
        return text.replace("|", "\\|")

    keys = list(rows[0])
    lines = [f"# {title}", "", *(f"- {name}: {shown(value)}" for name, value in notes.items()), ""]
    lines += [f"| {' | '.join(keys)} |", "|" + "---|" * len(keys)]
    lines += [f"| {' | '.join(shown(row[key]) for key in keys)} |" for row in rows]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


@styled
def write_picture(path: str | Path | BinaryIO, draw: Callable[[Any], object], form: str | None = None) -> None:
    """Write what `draw` paints on a `matplotlib.figure.Figure` in the style of all pictures.

    Parameters
    ----------
    path : path-like or binary file
    draw : callable
        Given a figure.
    form : str, optional
        Of `traces.picture.FORMATS`; default: by the suffix of the path, of an open file PNG.

    Raises
    ------
    TraceError
        The suffix is that of no picture.
    """
    if form is None:
        form = format_of(path) if isinstance(path, (str, Path)) else "png"
    figure = new_figure(9.5, 4.6)
    draw(figure)
    data = picture_bytes(figure, form)
    if isinstance(path, (str, Path)):
        Path(path).write_bytes(data)
    else:
        path.write(data)
