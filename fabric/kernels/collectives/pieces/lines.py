"""A line of PEs is a row, a column or a snake, seen from the collectives that run along it.

A `Line` is a sequence of places 0 .. P-1; consecutive places are neighbours.  A place is a rectangle of PEs: the
same line can run in all rows (or columns) of a region at once: place k of "all rows" is column k.  Directions are
relative: ``T`` leads toward place 0, ``A`` away from it, ``R`` is the ramp.  `compose` puts programs on the PEs that
take part in several lines one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fabric.layout.classes import occurring
from fabric.layout.layout import Layout
from fabric.program.program import Program
from wse_core.image import ProgramImage

__all__ = ["Areas", "Line", "compose"]

OPPOSITE = {"W": "E", "E": "W", "N": "S", "S": "N"}
STEPS = {(1, 0): "E", (-1, 0): "W", (0, 1): "S", (0, -1): "N"}


class Line:
    """A `Line` is a sequence of neighbouring places.

    Parameters
    ----------
    rects : sequence of (x, y, w, h)
        PEs of each place.
    name : str
        For messages.

    Attributes
    ----------
    copies : int
        Lines side by side: PEs of a place.
    """

    def __init__(self, rects: Iterable[tuple[int, int, int, int]], name: str = "line") -> None:
        self.rects, self.name = list(rects), name
        self.copies = self.rects[0][2] * self.rects[0][3]
        self._away = [STEPS[b[0] - a[0], b[1] - a[1]] for a, b in zip(self.rects, self.rects[1:], strict=False)]

    @classmethod
    def rows(cls, width: int, height: int, x: int = 0, y: int = 0) -> Line:
        """Return the line along x from column `x` to the east, in `height` rows at once."""
        return cls([(x + k, y, 1, height) for k in range(width)], f"rows of {width} PEs")

    @classmethod
    def columns(cls, width: int, height: int, x: int = 0, y: int = 0) -> Line:
        """Return the line along y from row `y` to the south, in `width` columns at once."""
        return cls([(x, y + k, width, 1) for k in range(height)], f"columns of {height} PEs")

    @classmethod
    def snake(cls, width: int, height: int, x: int = 0, y: int = 0) -> Line:
        """Return the line through all PEs of a rectangle: east in the first row, west in the second, and so on."""
        return cls(
            [
                (x + (k if row % 2 == 0 else width - 1 - k), y + row, 1, 1)
                for row in range(height)
                for k in range(width)
            ],
            f"snake of {width} x {height} PEs",
        )

    def __len__(self) -> int:
        return len(self.rects)

    def directions(self, k: int, letters: Iterable[str]) -> str:
        """Return relative directions at place k as directions of the machine."""
        names = {"R": "R"}
        if k:
            names["T"] = OPPOSITE[self._away[k - 1]]
        if k < len(self) - 1:
            names["A"] = self._away[k]
        return "".join(names[letter] for letter in letters)

    def route(
        self, layout: Layout, color: int, k: int, rx: str, tx: str, switch: dict[str, str] | None = None, **more: Any
    ) -> None:
        """Paint the route of a color at place k, in relative directions.

        Parameters
        ----------
        rx, tx : str
            Letters of T, A, R.
        switch : dict, optional
            Position 1: ``dict(rx="A")`` or ``dict(tx="T")``.
        **more
            As `Layout.route` takes it.
        """
        self.route_each(layout, color, [k], rx, tx, switch, **more)

    def route_each(
        self,
        layout: Layout,
        color: int,
        places: Iterable[int],
        rx: str,
        tx: str,
        switch: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        """Paint the same route, in relative directions, at many places; the rest is as of `route`.

        A line of a thousand places has few different routes, and each of them is checked once.
        """
        words: dict[tuple[str, ...], list[tuple[int, int, int, int]]] = {}
        relative = (rx, tx, *(switch or {}).values())
        for k in places:
            words.setdefault(tuple(self.directions(k, text) for text in relative), []).append(self.rects[k])
        for (come, go, *changed), rects in words.items():
            change = [dict(zip(switch, changed, strict=True))] if switch else []
            layout.route_each(color, rects, rx=come, tx=go, switches=change, **more)


@dataclass(frozen=True)
class Areas:
    """An `Areas` has rectangles of PEs that take part without being a line; where they overlap, the later one
    counts.
    """

    rects: Sequence[tuple[int, int, int, int]]


def compose(
    layout: Layout,
    parts: Sequence[tuple[Line | Areas, Sequence[Hashable]]],
    build: Callable[[tuple[Any, ...]], Program | ProgramImage],
) -> None:
    """Place programs on all PEs that take part in lines.

    Parameters
    ----------
    layout : Layout
    parts : sequence of (Line or Areas, sequence)
        Lines and the role of each of their places; a role is any hashable value.
    build : callable
        ``build(roles)`` returns the program, or its image, of a PE with one role per part, None where it takes no part.
        Called once per combination that occurs.
    """
    kind = np.zeros((layout.height, layout.width), np.int64)  # number of the combination of roles, in `combinations`
    combinations: list[tuple[Any, ...]] = [()]
    for line, roles in parts:
        numbers: dict[Hashable, int] = {None: 0}
        mine = np.zeros_like(kind)
        for (x, y, w, h), role in zip(line.rects, roles, strict=True):
            mine[y : y + h, x : x + w] = numbers.setdefault(role, len(numbers))
        table, kind = list(numbers), kind * len(numbers) + mine
        found = occurring(kind)
        combinations = [(*combinations[k // len(table)], table[k % len(table)]) for k in found]
        place = np.zeros(found[-1] + 1, np.int64)
        place[found] = np.arange(len(found))
        kind = place[kind]
    programs: list[Program | ProgramImage] = []
    number = np.full(len(combinations), -1)
    for k, combination in enumerate(combinations):
        if any(role is not None for role in combination):
            number[k] = len(programs)
            programs.append(build(combination))
    layout.place_each(programs, number[kind])
