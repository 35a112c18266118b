"""Heat maps: one counter over the rectangle as a PNG, with the plotted numbers beside it as CSV.

Row 0 is the northern edge and is drawn at the top.  Both files appear complete or not at all.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.atomic import atomic_file
from traces.naming import clean
from traces.run_format import LINKS
from wse_core.errors import TraceError

__all__ = ["plane", "write_heatmap"]

INCHES = 7.0
PIXELS_PER_INCH = 150


def plane(values, window=None, link=None):
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


def write_heatmap(path, values, title, unit):
    """Draw an array over the rectangle and write the PNG and the CSV beside it.

    Parameters
    ----------
    path : path-like
        The PNG; the CSV has the same name with the suffix ``.csv``.
    values : array_like
        (height, width) numbers; row y, column x.
    title, unit : str
        Caption of the figure and of its colour bar.

    Returns
    -------
    tuple of pathlib.Path
        PNG and CSV.

    Raises
    ------
    TraceError
        If the array is not two-dimensional or a file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    path = Path(path)
    values = np.asarray(values)
    if values.ndim != 2 or not values.size:
        raise TraceError(f"a heat map needs height x width numbers, not shape {values.shape}", path=path)
    height, width = values.shape
    tall = min(2.0, max(0.35, height / width))
    figure = Figure(figsize=(INCHES, 1.5 + 0.75 * INCHES * tall), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(values.astype(np.float64), cmap="viridis", interpolation="nearest", aspect="auto")
    axes.set_title(clean(title))
    axes.set_xlabel("x (east)")
    axes.set_ylabel("y (south)")
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    figure.colorbar(image, ax=axes, label=unit)
    table = path.with_suffix(".csv")
    with atomic_file(path) as stream:
        figure.savefig(stream, format="png", dpi=PIXELS_PER_INCH, metadata={"Software": None})
    with atomic_file(table) as stream:
        stream.write(f"# {title} [{unit}]\n".encode())
        stream.write(("y\\x," + ",".join(map(str, range(width))) + "\n").encode())
        for y, row in enumerate(values.tolist()):
            stream.write(f"{y},{','.join(map(str, row))}\n".encode())
    return path, table
