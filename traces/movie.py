"""An animation shows wavelets on their links, cycle by cycle, with the direction in which they move and their colors
named.

A wavelet is a triangle that points where it goes; a diamond inside a PE is one that goes up the ramp to the CE.  PEs
that calculate are darker than those that wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from traces.atomic import atomic_file
from traces.naming import plain
from traces.pictures import NothingToDraw
from traces.state import spans
from traces.style import COLOURS, new_figure, styled
from traces.trace import Trace
from wse_core.errors import TraceError

__all__ = ["MOST_FRAMES", "animate", "in_use"]

MOST_FRAMES = 600
STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1), (0, 0))  # W, E, N, S, R
MARKS = "<>^vD"
PIXELS = 900
"""An animation has this width, or this height if that is more."""
DPI = 100
ASIDE = 2.7
"""The labels and the legend beside the PEs take this width [inches]."""
PALETTE_FRAMES = 8
"""The palette of a GIF is made from the colours of so many frames, spread over the whole."""
SHADES = {"calculates": COLOURS["stall_pipe"], "waits": "#f0cfc8", "does nothing": COLOURS["idle"]}
"""A PE has this colour by what it does."""


@styled
def animate(
    path: str | Path,
    trace: Trace,
    cycles: tuple[int, int] | None = None,
    region: tuple[int, int, int, int] | None = None,
    per_second: int = 8,
    progress: Callable[[int, int], object] | None = None,
    pixels: int = PIXELS,
) -> Path:
    """Draw the wavelets on the links cycle by cycle; a colour of the palette per color.

    Parameters
    ----------
    path : path-like
        ``.gif``, or ``.mp4`` where ffmpeg is installed.
    trace : Trace
    cycles : tuple[int, int], optional
        Default all, at most `MOST_FRAMES`.
    region : tuple[int, int, int, int], optional
        x, y, width, height; default the rectangle of all PEs that do anything in the trace.
    per_second : int
        Cycles shown per second.
    progress : callable, optional
        Called with (frames made, frames in all).
    pixels : int
        Width that it comes to, or its height if that is more; type stays as large.

    Raises
    ------
    TraceError
        More than `MOST_FRAMES` cycles, or no grants in the trace.
    """
    from matplotlib import animation

    path = Path(path)
    if path.suffix == ".mp4" and not animation.FFMpegWriter.isAvailable():
        raise TraceError("MP4 needs ffmpeg", path=path, hint="a file name that ends in .gif", exit_code=2)
    first, stop = (trace.meta.first_cycle, trace.clock) if cycles is None else cycles
    if stop - first > MOST_FRAMES:
        raise TraceError(
            f"an animation of {stop - first:,} cycles would be too long",
            path=path,
            exit_code=2,
            hint=f"--cycles with at most {MOST_FRAMES}",
        )
    events = trace.events(cycles=(first, stop), kinds=("depart",), region=region)
    if not len(events):
        raise NothingToDraw("no wavelet moves in these cycles", path=path, exit_code=2)
    stage = _Stage(events, region or in_use(trace), pixels)
    states = _states(trace, stage.region, first, stop)
    starts = np.searchsorted(events["cycle"], np.arange(first, stop + 1))
    title = plain(trace.meta.job)

    def show(k: int) -> None:
        stage.show(events[starts[k] : starts[k + 1]], states[k], f"{title}: cycle {first + k:,}")

    def told() -> Iterator[int]:
        for k in range(stop - first):
            yield k
            if progress is not None:
                progress(k + 1, stop - first)

    if path.suffix != ".mp4":
        with atomic_file(path) as stream:
            _save_gif(stream, stage, show, told(), stop - first, per_second)
        return path
    partial = path.with_name(f".{path.stem}.part{path.suffix}")  # ffmpeg writes files by their names
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        writer = animation.FFMpegWriter(per_second)
        with writer.saving(stage.figure, partial, DPI):
            for k in told():
                show(k)
                writer.grab_frame()
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _save_gif(
    stream: Any, stage: _Stage, show: Callable[[int], None], order: Iterator[int], count: int, per_second: int
) -> None:
    """Write frames as a GIF; all share the palette of a few of them, which saves finding one for each."""
    from PIL import Image

    def image(k: int) -> Image.Image:
        show(k)
        return Image.fromarray(stage.pixels())

    few = [np.asarray(image(k)) for k in np.unique(np.linspace(0, count - 1, PALETTE_FRAMES).astype(int))]
    palette = Image.fromarray(np.concatenate(few)).quantize(256)
    entries = np.array(palette.getpalette()).reshape(-1, 3)
    paper = few[0][0, 0]
    entries[np.abs(entries - paper).max(1) <= 8] = paper  # the search for a palette makes white nearly white
    palette.putpalette(entries.ravel().tolist())
    images = (image(k).quantize(palette=palette, dither=Image.Dither.NONE) for k in order)
    next(images).save(
        stream, format="GIF", save_all=True, append_images=images, duration=1000 // per_second, loop=0, disposal=1
    )


class _Stage:
    """The stage is the picture of which each frame changes colours, places of wavelets and title.

    Parameters
    ----------
    events : ndarray of EVENT_DTYPE
        All grants that will be shown; colors follow from them.
    region : tuple[int, int, int, int]
        x, y, width, height.
    pixels : int
        Of the longer side.

    Attributes
    ----------
    region : tuple[int, int, int, int]
    """

    def __init__(self, events: np.ndarray, region: tuple[int, int, int, int], pixels: int) -> None:
        self.region = left, top, width, height = region
        right, bottom = left + width - 1, top + height - 1
        inches = pixels / DPI
        scale = min((inches - ASIDE) / (width + 1), (inches - 1) / (height + 1))
        self.figure = new_figure(max(5.5, ASIDE + scale * (width + 1)), max(1.9, 1 + scale * (height + 1)))
        self.axes = self.figure.add_subplot()
        self.axes.set(xlim=(left - 0.8, right + 0.8), ylim=(bottom + 0.8, top - 0.8), aspect="equal")
        self.axes.set(xlabel="x (east)", ylabel="y (south)")
        for axis in (self.axes.xaxis, self.axes.yaxis):
            axis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        size = (72 * min(scale, 1.6)) ** 2
        columns, lines = (grid.ravel() for grid in np.meshgrid(np.arange(left, right + 1), np.arange(top, bottom + 1)))
        self.pes = self.axes.scatter(columns, lines, marker="s", s=0.22 * size, zorder=0)
        self.moving = [self.axes.scatter([], [], marker=mark, s=0.045 * size, zorder=2, linewidth=0) for mark in MARKS]
        self.look = self._legend(events["color"])
        self.title = self.axes.set_title(" ")  # so that the layout leaves room for it
        self._still: Any = None

    def _legend(self, used: np.ndarray) -> dict[int, Any]:
        """Explain colours and marks, and return the colour of each color."""
        from matplotlib import colormaps

        palette = colormaps["tab10" if used.max() < 10 else "tab20"]
        look = {color: palette(color % palette.N) for color in sorted(set(used.tolist()))}
        for color, shade in look.items():
            self.axes.scatter([], [], marker=">", color=shade, label=f"color {color}")
        self.axes.scatter([], [], marker="D", color="#888888", label="up the ramp to the CE")
        for word, shade in SHADES.items():
            self.axes.scatter([], [], marker="s", color=shade, label=f"PE {word}")
        self.axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
        return look

    def show(self, now: np.ndarray, states: np.ndarray, title: str) -> None:
        """Show the grants of a cycle and, per PE, which of `SHADES` it has."""
        self.pes.set_color([list(SHADES.values())[state] for state in states])
        for direction, (dx, dy) in enumerate(STEPS):
            here = now[now["aux"] >> direction & 1 == 1]
            side = 0.1 if direction < 4 else 0.0  # both directions of a link beside each other
            places = np.stack([here["x"] + 0.5 * dx + dy * side, here["y"] + 0.5 * dy + dx * side], 1)
            self.moving[direction].set_offsets(places.reshape(-1, 2))
            self.moving[direction].set_color([self.look[color] for color in here["color"].tolist()])
        self.title.set_text(title)

    def pixels(self) -> np.ndarray:
        """Return the picture, shape (height, width, 3) of uint8.

        What never changes is drawn once; a frame is that and the few things that changed, drawn over it.
        """
        canvas = self.figure.canvas
        changing = (self.pes, *self.moving, self.title)
        if self._still is None:
            for artist in changing:
                artist.set_animated(True)
            self.figure.draw_without_rendering()  # the layout gives way to labels and legend in two passes
            canvas.draw()
            self.figure.set_layout_engine("none")
            self._still = canvas.copy_from_bbox(self.figure.bbox)
        canvas.restore_region(self._still)
        for artist in changing:
            self.axes.draw_artist(artist)
        return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def in_use(trace: Trace) -> tuple[int, int, int, int]:
    """Return the rectangle of the PEs of which the trace has anything: x, y, width, height."""
    kinds = [kind for kind in ("depart", "task_start", "op_start", "wait") if kind in trace.filter.kinds]
    seen = trace.events(kinds=kinds)
    left, top = int(seen["x"].min()), int(seen["y"].min())
    return left, top, int(seen["x"].max()) - left + 1, int(seen["y"].max()) - top + 1


def _states(trace: Trace, region: tuple[int, int, int, int], first: int, stop: int) -> np.ndarray:
    """Return, per cycle and PE of a region, which of `SHADES` it has: (cycles, PEs) of their numbers."""
    words = list(SHADES)
    x, y, width, height = region
    found = np.full((stop - first, height, width), words.index("does nothing"), np.uint8)
    for kind, word in (("task", "calculates"), ("op", "calculates"), ("wait", "waits")):
        needed = [name for name in (kind, f"{kind}_start", f"{kind}_end") if name in trace.filter.kinds]
        for begin, end, column, row, *_ in spans(trace.events(kinds=needed, region=region), kind).tolist():
            found[max(0, begin - first) : max(0, min(end, stop) - first), row - y, column - x] = words.index(word)
    return found.reshape(stop - first, -1)
