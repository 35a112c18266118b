"""A heat map shows one counter over the rectangle as a PNG, with the plotted numbers beside it as CSV.

Row 0 is the northern edge and is drawn at the top.  Both files appear complete or not at all.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from traces.naming import plain
from traces.picture import Picture
from traces.style import grouped, integer_axes, new_figure, short, styled
from wse_core.counters import LINKS
from wse_core.errors import TraceError

__all__ = ["heatmap", "plane", "write_heatmap"]

INCHES = 7.0
MOST_INCHES = 9.0
MOST_TEXTS, MOST_COLUMNS = 64, 16
"""The numbers are written into the cells up to so many PEs and columns."""


def sent(arrived: np.ndarray) -> np.ndarray:
    """Return the wavelets that left each PE to W, E, N and S: (..., height, width, 4).

    Parameters
    ----------
    arrived : numpy.ndarray
        (..., height, width, 5): those that left the queue of each input port of a router, in the order of `LINKS`, as
        counters of links have them.
    """
    found = np.zeros((*arrived.shape[:-1], 4), arrived.dtype)
    found[..., :, 1:, 0], found[..., :, :-1, 1] = arrived[..., :, :-1, 1], arrived[..., :, 1:, 0]
    found[..., 1:, :, 2], found[..., :-1, :, 3] = arrived[..., :-1, :, 3], arrived[..., 1:, :, 2]
    return found


def plane(values: ArrayLike, window: int | None = None, link: str | None = None) -> np.ndarray:
    """Return one number per PE from a counter.

    Parameters
    ----------
    values : numpy.ndarray
        (n_window, height, width), or with a last axis of 5 links.
    window : int, optional
        Window to show; the sum over all if not given.
    link : str, optional
        One of "W", "E", "S", "N", "R"; the sum over all if not given.

    Returns
    -------
    numpy.ndarray
        (height, width).

    Raises
    ------
    TraceError
        If there is no such window or link, or the shape is not that of a counter.
    """
    values = np.asarray(values)
    if values.ndim == 4 and values.shape[3] == len(LINKS):
        if link is not None and link not in LINKS:
            raise TraceError(f"there is no link {link!r}", hint=", ".join(LINKS), exit_code=2)
        values = values.sum(axis=3) if link is None else values[..., LINKS.index(link)]
    elif link is not None:
        raise TraceError("a counter per PE has no links to choose from", exit_code=2)
    if values.ndim != 3:
        raise TraceError(f"an array of shape {values.shape} is not a counter", exit_code=2)
    if window is None:
        return values.sum(axis=0)
    if not 0 <= window < len(values):
        raise TraceError(f"there is no window {window}", hint=f"0 to {len(values) - 1}", exit_code=2)
    return values[window]


def write_heatmap(path: str | Path, values: ArrayLike, title: str, unit: str) -> tuple[Path, Path]:
    """Draw a `heatmap` and write it with the CSV beside it.

    Parameters
    ----------
    path : path-like
        The picture, PNG, SVG or PDF by its suffix; the CSV has the same name with the suffix ``.csv``.
    values, title, unit
        As for `heatmap`.

    Returns
    -------
    tuple of pathlib.Path
        Picture and CSV.

    Raises
    ------
    TraceError
        If the array is not two-dimensional or a file cannot be written.
    """
    if np.ndim(values) != 2 or not np.size(values):
        raise TraceError(f"a heat map needs height x width numbers, not shape {np.shape(values)}", path=path)
    return heatmap(values, title, unit).save(path)


@styled
def heatmap(values: ArrayLike, title: str, unit: str) -> Picture:
    """Draw an array over the rectangle, with numbers in the cells of small ones.

    Parameters
    ----------
    values : array_like
        (height, width) numbers; row y, column x.
    title, unit : str
        Caption of the figure and of its colour bar.

    Returns
    -------
    Picture
    """
    values = np.asarray(values)
    height, width = values.shape
    cell = min(0.8, (INCHES - 1.6) / width)  # square cells, a row stays a row
    figure = new_figure(max(2.6, 1.6 + cell * width), min(MOST_INCHES, max(1.6, 1.1 + cell * height)))
    axes = figure.add_subplot()
    shown, low, high = values.astype(np.float64), float(values.min()), float(values.max())
    limits = {"vmin": min(0.0, low), "vmax": max(high, 0.0) or 1.0}  # from zero: small differences look small
    image = axes.imshow(shown, interpolation="nearest", aspect="equal", **limits)
    axes.set(title=plain(title), xlabel="x (east)", ylabel="y (south)")
    for spine in axes.spines.values():
        spine.set_visible(False)
    integer_axes(axes)
    if values.size <= MOST_TEXTS and width <= MOST_COLUMNS:
        for (y, x), value in np.ndenumerate(shown):
            dark = value < 0.6 * limits["vmax"]
            axes.text(x, y, short(value), ha="center", va="center", fontsize=6, color="#f7f7f7" if dark else "#000000")
    bar = figure.colorbar(image, ax=axes, aspect=30, shrink=0.9)
    grouped(bar.ax.yaxis)
    bar.set_label(f"{plain(unit)}: {short(low)} to {short(high)}")
    head = ("y\\x", *map(str, range(width)))
    return Picture(figure, head, [(y, *row) for y, row in enumerate(values.tolist())], f"{title} [{unit}]")
