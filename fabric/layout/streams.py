"""The host has ports: links at the edge of a layout, and the ramps of any of its PEs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from wse_core import image as im
from wse_core.errors import LayoutError, RouteError
from wse_core.image import DIRS

__all__ = ["Side", "Stream", "Streams"]

Side = Literal["W", "E", "N", "S", "R"]
"""A side of a PE is one of its four links, or its ramp."""


@dataclass(frozen=True)
class Stream:
    """A `Stream` is a port of the host: wavelets of `color` enter or leave PE (x, y) on its side `side`.

    Side W, E, N or S is a link at the edge.  Side R is the ramp of any PE: an input goes into the queue from which its
    CE takes the color, an output takes what its CE sends and no route leads on.
    """

    kind: str  # "input" or "output"
    index: int
    x: int
    y: int
    side: str
    color: int


class Streams:
    """`Streams` are those of a layout of `width` x `height` PEs, checked when they are attached."""

    def __init__(self, width: int, height: int, colors: int) -> None:
        self.width, self.height, self.colors = width, height, colors
        self.inputs: list[Stream] = []
        self.outputs: list[Stream] = []
        self._attached: set[tuple[str, int, int, str, int]] = set()

    def attach(self, kind: str, x: int, y: int, side: str, color: int) -> Stream:
        """Add a stream of a kind, ``input`` or ``output``, and return it."""
        streams = self.inputs if kind == "input" else self.outputs
        if side not in DIRS or len(side) != 1:
            raise LayoutError(f"{kind} stream: side {side!r} is not W, E, N, S or R", x=x, y=y, color=color)
        if not isinstance(color, (int, np.integer)) or not 0 <= color < self.colors:
            raise RouteError(
                f"{kind} stream: color {color!r} does not exist", x=x, y=y, hint=f"colors 0 .. {self.colors - 1}"
            )
        if not 0 <= x < self.width or not 0 <= y < self.height:
            raise LayoutError(f"{kind} stream: outside the {self.width} x {self.height} PEs of the layout", x=x, y=y)
        if side != "R":
            dx, dy = im.STEP[DIRS.index(side)]
            nx, ny = x + dx, y + dy
            if 0 <= nx < self.width and 0 <= ny < self.height:
                raise LayoutError(
                    f"{kind} stream: side {side} of this PE faces PE ({nx}, {ny}), not the outside",
                    x=x,
                    y=y,
                    color=color,
                    hint=f"layout.{kind}_stream({x}, {y}, 'R', {color}): the ramp, which every PE has",
                )
        if (kind, x, y, side, color) in self._attached:
            raise LayoutError(f"two {kind} streams of one color on side {side}", x=x, y=y, color=color)
        self._attached.add((kind, x, y, side, color))
        stream = Stream(kind, len(streams), int(x), int(y), side, int(color))
        streams.append(stream)
        return stream
