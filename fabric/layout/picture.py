"""A layout is shown as a picture in notebooks: which program runs where, and the routes of each color, as SVG within
HTML.

Small layouts are drawn PE by PE.  In larger ones neighbouring rows that are alike (same programs, same routes, same
streams) are drawn once, and so are columns; where even that is too much, the middle is left out.  The axes say which
rows and columns stand where.

In a picture of routes a line from an edge to the middle is an input, an arrow from the middle an output, a square the
ramp from the CE, a ring the ramp to the CE; dashes are what other switch positions add.  A triangle outside is a stream
of the host, one inside a stream down (upper left) or up (upper right) the ramp.

Timing: none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np

from fabric.layout.classes import bands
from fabric.layout.routes import Config, Painting, letters, union
from fabric.layout.streams import Streams
from wse_core.image import DIR_R, DIRS, POP_MODES, STEP

__all__ = ["Scene", "html"]

CELL, LEFT, TOP = 26, 46, 18  # pixels: a PE, room for the labels of rows and of columns
PLAIN = 16  # rows or columns up to which each is drawn
MOST = 20  # bands that are drawn; more leave out the middle
PALETTE = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#ee8866", "#77aadd", "#99aa33")
ARROW = 4  # pixels: length and half width of a head


@dataclass(frozen=True)
class Scene:
    """A `Scene` is what is drawn: the parts of a layout, and the names of its programs."""

    title: str
    names: list[str]
    index: np.ndarray
    painting: Painting
    streams: Streams

    @property
    def all_streams(self) -> list:
        """The scene has these streams, of both directions."""
        return [*self.streams.inputs, *self.streams.outputs]

    def planes(self) -> list[np.ndarray]:
        """Return arrays over the PEs; rows (or columns) that are equal in all look alike."""
        attached = np.zeros(self.index.shape, np.int64)
        for k, stream in enumerate(self.all_streams, 1):
            attached[stream.y, stream.x] = k
        return [self.index, attached, *self.painting.ids.values()]


@dataclass(frozen=True)
class PictureAxis:
    """A `PictureAxis` has the rows or columns of the picture: (first, stop) of each, None where some are left out."""

    ranges: tuple[tuple[int, int] | None, ...]

    def places(self) -> list[tuple[int, int]]:
        """Return (place in the picture, a row or column that is drawn there)."""
        return [(k, found[0]) for k, found in enumerate(self.ranges) if found is not None]

    def place_of(self, number: int) -> int | None:
        """Return where a row or column is drawn, None if it is left out."""
        inside = (k for k, found in enumerate(self.ranges) if found is not None and found[0] <= number < found[1])
        return next(inside, None)

    def labels(self) -> list[str]:
        """Return what stands beside each."""
        return ["…" if r is None else f"{r[0]}" if r[1] == r[0] + 1 else f"{r[0]}-{r[1] - 1}" for r in self.ranges]


def html(scene: Scene) -> str:
    """Return the picture; see the head of the module."""
    planes = scene.planes()
    rows, columns = _axis(planes, 0), _axis(planes, 1)
    colors = sorted({*scene.painting.ids, *(s.color for s in scene.all_streams)})
    figures = [_figure("programs", _programs(scene, rows, columns), rows, columns)]
    figures += [_figure(f"color {color}", _routes(scene, color, rows, columns), rows, columns) for color in colors]
    return (
        f"<div><b>{escape(scene.title)}</b>{_legend(scene)}"
        f'<div style="display:flex;flex-wrap:wrap;gap:8px">{"".join(figures)}</div></div>'
    )


def _axis(planes: Sequence[np.ndarray], axis: int) -> PictureAxis:
    size = planes[0].shape[axis]
    if size <= PLAIN:
        return PictureAxis(tuple((k, k + 1) for k in range(size)))
    edges = bands(planes, axis).tolist()
    ranges: list[tuple[int, int] | None] = list(pairwise(edges))
    if len(ranges) > MOST:
        ranges = [*ranges[: MOST // 2], None, *ranges[len(ranges) - (MOST - MOST // 2 - 1) :]]
    return PictureAxis(tuple(ranges))


def _figure(title: str, inside: str, rows: PictureAxis, columns: PictureAxis) -> str:
    """Return one picture with its title and the labels of its axes."""
    labels = []
    for k, text in enumerate(columns.labels()):
        x = LEFT + CELL * k + CELL // 2
        size = 9 if len(text) < 5 else 7
        labels.append(f'<text x="{x}" y="{TOP - 6}" font-size="{size}" text-anchor="middle">{text}</text>')
    for k, text in enumerate(rows.labels()):
        y = TOP + CELL * k + CELL // 2 + 3
        labels.append(f'<text x="{LEFT - 9}" y="{y}" font-size="9" text-anchor="end">{text}</text>')
    wide, high = CELL * len(columns.ranges), CELL * len(rows.ranges)
    grid = "".join(f"M{LEFT + CELL * k} {TOP}v{high}" for k in range(len(columns.ranges) + 1))
    grid += "".join(f"M{LEFT} {TOP + CELL * k}h{wide}" for k in range(len(rows.ranges) + 1))
    return (
        f'<figure style="margin:0"><figcaption>{escape(title)}</figcaption>'
        f'<svg width="{LEFT + wide + 12}" height="{TOP + high + 12}" role="img" aria-label="{escape(title)}" '
        f'font-family="sans-serif" fill="currentColor"><path d="{grid}" stroke="currentColor" stroke-opacity="0.25" '
        f'fill="none"/>{"".join(labels)}{inside}</svg></figure>'
    )


def _legend(scene: Scene) -> str:
    """Return the programs with their colors and how many PEs run each."""
    items = []
    for k, name in enumerate(scene.names):
        count = int(np.count_nonzero(scene.index == k))
        items.append(
            f'<span style="white-space:nowrap"><span style="background:{PALETTE[k % len(PALETTE)]};color:#000;'
            f'padding:0 4px">{k}</span> {escape(name)} ({count} PE{"s" * (count != 1)})</span>'
        )
    return f'<div style="display:flex;flex-wrap:wrap;gap:4px 12px">{"".join(items)}</div>'


def _programs(scene: Scene, rows: PictureAxis, columns: PictureAxis) -> str:
    """Return the cells of the picture of programs."""
    parts = []
    numbered = len(scene.names) > 1
    for i, y in rows.places():
        for j, x in columns.places():
            k = int(scene.index[y, x])
            if k < 0:
                continue
            left, top = LEFT + CELL * j, TOP + CELL * i
            parts.append(
                f'<rect x="{left + 1}" y="{top + 1}" width="{CELL - 2}" height="{CELL - 2}" '
                f'fill="{PALETTE[k % len(PALETTE)]}"/>'
            )
            if numbered:
                parts.append(
                    f'<text x="{left + CELL // 2}" y="{top + CELL // 2 + 4}" font-size="11" text-anchor="middle" '
                    f'fill="#000">{k}</text>'
                )
    return "".join(parts)


def _routes(scene: Scene, color: int, rows: PictureAxis, columns: PictureAxis) -> str:
    """Return the routes of a color: one group per configuration, its words as a tooltip."""
    cells: dict[int, list[tuple[int, int]]] = {}
    ids = scene.painting.ids.get(color)
    if ids is not None:
        for i, y in rows.places():
            for j, x in columns.places():
                if ids[y, x]:
                    cells.setdefault(int(ids[y, x]), []).append((LEFT + CELL * j, TOP + CELL * i))
    parts = []
    for number, places in sorted(cells.items()):
        config = scene.painting.configs[color][number]
        if config is None:
            continue
        first = _paths(places, config.rx[0] | bool(config.inject) << DIR_R, config.tx[0])
        others = _paths(places, union(config.rx[1:]) & ~config.rx[0], union(config.tx[1:]) & ~config.tx[0])
        parts.append(f"<g><title>{escape(described(config))}</title>{first}")
        parts.append(f'<g stroke-dasharray="2 2">{others}</g></g>' if others else "</g>")
    parts.append(_streams(scene, color, rows, columns))
    return "".join(parts)


def _paths(places: Iterable[tuple[int, int]], inputs: int, outputs: int) -> str:
    """Return the strokes of inputs and outputs in the cells at `places`."""
    half, lines, heads = CELL // 2, [], []
    for left, top in places:
        x, y = left + half, top + half
        for d in range(DIR_R):
            dx, dy = STEP[d]
            if inputs >> d & 1:
                lines.append(f"M{x + dx * half} {y + dy * half}L{x} {y}")
            if outputs >> d & 1:
                tip, back = (x + dx * (half - 1), y + dy * (half - 1)), half - 1 - ARROW
                lines.append(f"M{x} {y}L{tip[0]} {tip[1]}")
                foot = x + dx * back, y + dy * back
                heads.append(
                    f"M{tip[0]} {tip[1]}L{foot[0] + dy * ARROW} {foot[1] + dx * ARROW}"
                    f"L{foot[0] - dy * ARROW} {foot[1] - dx * ARROW}Z"
                )
        if inputs >> DIR_R & 1:
            heads.append(f"M{x - 3} {y - 3}h6v6h-6Z")
        if outputs >> DIR_R & 1:
            lines.append(f"M{x - 6} {y}a6 6 0 1 0 12 0a6 6 0 1 0 -12 0")
    strokes = f'<path d="{"".join(lines)}" stroke="currentColor" stroke-width="1.5" fill="none"/>' if lines else ""
    return strokes + (f'<path d="{"".join(heads)}"/>' if heads else "")


def _streams(scene: Scene, color: int, rows: PictureAxis, columns: PictureAxis) -> str:
    """Return a triangle for each stream of a color, outside the edge or on the PE, pointing the way its wavelets go."""
    marks = []
    for stream in scene.all_streams:
        i, j = rows.place_of(stream.y), columns.place_of(stream.x)
        if stream.color != color or i is None or j is None:
            continue
        if stream.side == "R":
            place, way = (7, 1) if stream.kind == "input" else (CELL - 7, -1)
            x, y = LEFT + CELL * j + place, TOP + CELL * i + 7
            marks.append(f"M{x} {y + 4 * way}L{x - 4} {y - 3 * way}L{x + 4} {y - 3 * way}Z")
            continue
        dx, dy = STEP[DIRS.index(stream.side)]
        x, y = LEFT + CELL * j + CELL // 2 + dx * (CELL // 2 + 4), TOP + CELL * i + CELL // 2 + dy * (CELL // 2 + 4)
        way = -1 if stream.kind == "input" else 1
        marks.append(
            f"M{x + 4 * dx * way} {y + 4 * dy * way}L{x - 3 * dx * way + 4 * dy} {y - 3 * dy * way + 4 * dx}"
            f"L{x - 3 * dx * way - 4 * dy} {y - 3 * dy * way - 4 * dx}Z"
        )
    return f'<path class="stream" d="{"".join(marks)}" fill="#cc3311"/>' if marks else ""


def described(config: Config) -> str:
    """Return the words of a configuration: positions, and what is not the default."""
    sets = [f"{letters(i) or '-'} > {letters(o) or '-'}" for i, o in zip(config.rx, config.tx, strict=True)]
    text = "; ".join(sets if len(sets) == 1 else [f"position {k}: {words}" for k, words in enumerate(sets)])
    extra = [f"starts at {config.pos}"] if config.pos else []
    extra += ["ring"] if config.ring else []
    extra += [POP_MODES[config.pop]] if config.pop else []
    extra += ["teardown"] if config.teardown else []
    extra += [f"swap {''.join(axis for k, axis in enumerate('xy') if config.swap >> k & 1)}"] if config.swap else []
    extra += ["CE injection"] if config.inject else []
    extra += ["filter"] if config.has_filter else []
    return ", ".join([text, *extra])
