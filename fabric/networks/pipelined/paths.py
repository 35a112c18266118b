"""Data paths: from where wavelets leave to where they are spread, whichever PEs lie between.

A path has a *source* (one PE, a line of PEs whose parts follow one another, or the host), a way through the routers of
PEs that do something else, and a *target* (a PE, a line or a rectangle that is flooded from one of its corners, or the
host).  The way is a shortest one that meets neither its own source nor its own target on the way.  Every path gets a
color that no other path has on any of its PEs, the lowest there is; so nothing depends on where rectangles lie, but the
number of paths over one PE is limited by the number of colors.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fabric.layout.layout import Layout
from fabric.layout.streams import Side, Stream
from wse_core.errors import ConfigError

__all__ = ["FoundPath", "Path", "colored", "paint"]

Place = tuple[int, int]
STEPS: dict[Side, tuple[int, int]] = {"E": (1, 0), "S": (0, 1), "W": (-1, 0), "N": (0, -1)}
BACK = {"E": "W", "W": "E", "N": "S", "S": "N"}


@dataclass(frozen=True)
class FoundPath:
    """What was found for a path: its color and the PEs that it goes over, see `Path`."""

    color: int
    way: list[Place]
    way_out: list[Place]


@dataclass
class Path:
    """A data path leads from one rectangle to another.

    Attributes
    ----------
    name : str
    source : sequence of (x, y)
        PEs that send, the one nearest to the exit first; empty: the host.
    target : (x, y, width, height) or None
        Flooded from its corner at north and west; None: the host.
    filter : mapping, optional
        What the routers of the target let down to their CEs, as `fabric.layout.layout.Layout.route` takes it.
    onward : bool
        From the last PE of the target on to the host.
    way, way_out : list of (x, y)
        PEs between source and target, and behind the target, both ends included; made by `find`.
    color : int
    stream : Stream or None
        Of the host; made by `paint`.
    """

    name: str
    source: Sequence[Place]
    target: tuple[int, int, int, int] | None
    filter: Mapping[str, Any] | None = None
    onward: bool = False
    way: list[Place] = field(default_factory=list)
    way_out: list[Place] = field(default_factory=list)
    color: int = -1
    stream: Stream | None = None

    def flooded(self) -> set[Place]:
        """Return the PEs of the target."""
        if self.target is None:
            return set()
        x0, y0, w, h = self.target
        return {(x, y) for x in range(x0, x0 + w) for y in range(y0, y0 + h)}

    @property
    def places(self) -> set[Place]:
        """The path needs its color on all these PEs."""
        return {*self.source, *self.way, *self.flooded(), *self.way_out}

    @property
    def length(self) -> int:
        """From the exit of the source to the entrance of the target there are so many hops."""
        return max(0, len(self.way) - 1)

    def find(self, width: int, height: int) -> None:
        """Find the way on a wafer of so many PEs."""
        flooded = self.flooded()
        if self.target is not None:
            x, y, w, h = self.target
            root, last = (x, y), (x + w - 1, y + h - 1)
            if self.source:
                blocked = (flooded - {root}) | set(self.source[1:])
                self.way = shortest(self.source[0], {root}, blocked, width, height, self.name)
            else:
                self.way = shortest(root, rim(width, height), flooded - {root}, width, height, self.name)[::-1]
            if self.onward:
                blocked = flooded | set(self.way) | set(self.source)
                self.way_out = shortest(last, rim(width, height), blocked - {last}, width, height, self.name)
        else:
            blocked = set(self.source[1:])
            self.way = shortest(self.source[0], rim(width, height), blocked, width, height, self.name)


def rim(width: int, height: int) -> set[Place]:
    """Return the PEs at the edge of the wafer."""
    return {(x, y) for x in range(width) for y in (0, height - 1)} | {
        (x, y) for x in (0, width - 1) for y in range(height)
    }


def shortest(start: Place, goals: set[Place], blocked: set[Place], width: int, height: int, name: str) -> list[Place]:
    """Return the PEs of a shortest way, both ends included; the first direction of `STEPS` wins."""
    before: dict[Place, Place | None] = {start: None}
    waiting = deque([start])
    while waiting:
        here: Place | None = waiting.popleft()
        assert here is not None
        if here in goals and (here != start or len(goals) > 1):
            way = []
            while here is not None:
                way.append(here)
                here = before[here]
            return way[::-1]
        for dx, dy in STEPS.values():
            there = here[0] + dx, here[1] + dy
            if 0 <= there[0] < width and 0 <= there[1] < height and there not in before and there not in blocked:
                before[there] = here
                waiting.append(there)
    raise ConfigError(
        f"there is no way for {name} from PE {start}", where="placement", hint="free PEs between the rectangles"
    )


def towards(a: Place, b: Place) -> Side:
    """Return the direction from a PE to its neighbour."""
    return next(name for name, (dx, dy) in STEPS.items() if (a[0] + dx, a[1] + dy) == b)


def outside(place: Place, width: int, height: int) -> Side:
    """Return the side of a PE at the edge that faces the outside."""
    x, y = place
    return "W" if x == 0 else "E" if x == width - 1 else "N" if y == 0 else "S"


def colored(paths: Iterable[Path], colors: Sequence[int], width: int, height: int, switched: Collection[int]) -> None:
    """Give every path its way and its color, the lowest that nobody else has on any of its PEs.

    A path of several sources, which send in turn, takes one of the colors that can switch.

    Raises
    ------
    ConfigError
        There is no way, or more paths cross one PE than there are colors.
    """
    done: list[tuple[int, set[Place]]] = []
    for path in paths:
        path.find(width, height)
        places = path.places
        taken = {color for color, others in done if not places.isdisjoint(others)}
        fit = [color for color in colors if len(path.source) < 2 or color in switched]
        free = [color for color in fit if color not in taken]
        if not free:
            raise ConfigError(
                f"{path.name} crosses paths of all {len(fit)} colors",
                where="placement",
                hint="layers next to each other in the order of the network",
            )
        path.color = free[0]
        done.append((path.color, places))


def paint(path: Path, layout: Layout) -> None:
    """Paint the routes of a path, and attach the host where it begins or ends there."""
    color, way, width, height = path.color, path.way, layout.width, layout.height
    arrives = {b: towards(b, a) for a, b in itertools.pairwise(way)}
    leaves = {a: towards(a, b) for a, b in itertools.pairwise(way)}
    if path.target is None:
        leaves[way[-1]] = outside(way[-1], width, height)
    if not path.source:
        arrives[way[0]] = outside(way[0], width, height)
    for place in way:
        if place not in path.source and place not in path.flooded():
            layout.route(color, place, rx=arrives[place], tx=leaves[place])
    for k, place in enumerate(path.source):
        to = leaves[place] if k == 0 else towards(place, path.source[k - 1])
        behind = path.source[k + 1] if k + 1 < len(path.source) else None
        switches = [{"rx": towards(place, behind)}] if behind else ()
        layout.route(color, place, rx="R", tx=to, switches=switches)
    if path.target is not None:
        flood(path, layout, arrives[path.target[:2]])
    if path.target is None:
        path.stream = layout.output_stream(*way[-1], leaves[way[-1]], color)
    elif not path.source:
        path.stream = layout.input_stream(*way[0], arrives[way[0]], color)
    elif path.onward:
        end = path.way_out[-1]
        path.stream = layout.output_stream(*end, outside(end, width, height), color)


def flood(path: Path, layout: Layout, arrives: str) -> None:
    """Paint the target: east along its first row, south along its columns, down to every CE; and the way behind it."""
    assert path.target is not None
    x0, y0, w, h = path.target
    out = path.way_out
    ends = [outside(place, layout.width, layout.height) for place in out[-1:]]
    onward = [towards(a, b) for a, b in itertools.pairwise(out)] + ends
    for x in range(x0, x0 + w):
        for y in range(y0, y0 + h):
            rx = arrives if (x, y) == (x0, y0) else "W" if y == y0 else "N"
            tx = "R" + "E" * (y == y0 and x < x0 + w - 1) + "S" * (y < y0 + h - 1)
            if out and (x, y) == out[0]:
                tx += onward[0]
            where = path.filter
            if where is not None:
                where = {key: _at(value, y - y0, x - x0) for key, value in where.items()}
            layout.route(path.color, (x, y), rx=rx, tx=tx, filter=where)
    for a, b, to in zip(out, out[1:], onward[1:], strict=False):
        layout.route(path.color, b, rx=towards(b, a), tx=to)


def _at(value: Any, row: int, column: int) -> Any:
    """Return a number of a filter at a place: numbers may be arrays of the shape of the target."""
    return int(value[row, column]) if getattr(value, "ndim", 0) else value
