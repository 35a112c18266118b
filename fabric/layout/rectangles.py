"""Rectangles of PEs, with or without steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from wse_core.errors import LayoutError

__all__ = ["Rect", "RectLike", "rect_within", "runs"]


class Rect(NamedTuple):
    """A rectangle of PEs; `sx` and `sy` pick every sx-th column and sy-th row of it."""

    x: int
    y: int
    w: int = 1
    h: int = 1
    sx: int = 1
    sy: int = 1

    @property
    def slices(self) -> tuple[slice, slice]:
        """Index of the rectangle in an array of shape (height, width)."""
        return slice(self.y, self.y + self.h, self.sy), slice(self.x, self.x + self.w, self.sx)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) that it picks."""
        return -(-self.h // self.sy), -(-self.w // self.sx)


RectLike = Rect | tuple[int, ...] | list[int]
"""What a user may give: (x, y), (x, y, w, h), (x, y, w, h, sx, sy) or a `Rect`."""


def rect_within(rect: RectLike | None, width: int, height: int, what: str = "rectangle") -> Rect:
    """Return `rect` as a `Rect` of the PEs of a layout, None for all of them; refuse one that leaves it."""
    if rect is None:
        return Rect(0, 0, width, height)
    try:
        rect = Rect(*(int(v) for v in rect))
    except (TypeError, ValueError):
        raise LayoutError(f"{what} {rect!r} is not (x, y), (x, y, w, h) or (x, y, w, h, step x, step y)") from None
    if min(rect.w, rect.h, rect.sx, rect.sy) < 1:
        raise LayoutError(f"{what} {tuple(rect)} is empty", x=rect.x, y=rect.y)
    if rect.x < 0 or rect.y < 0 or rect.x + rect.w > width or rect.y + rect.h > height:
        raise LayoutError(
            f"{what} {tuple(rect)} reaches outside the {width} x {height} PEs of the layout", x=rect.x, y=rect.y
        )
    return rect


def runs(mask: np.ndarray) -> Iterator[tuple[tuple[int, int], int, int]]:
    """Yield ``((row, stop row), column, stop column)``: disjoint rectangles that cover the true entries of `mask`."""
    if mask.all():
        yield (0, mask.shape[0]), 0, mask.shape[1]
        return
    row = 0
    while row < mask.shape[0]:
        stop = row + 1
        while stop < mask.shape[0] and (mask[stop] == mask[row]).all():
            stop += 1
        edges = np.flatnonzero(np.diff(np.concatenate(([0], mask[row].view(np.int8), [0]))))
        for first, last in edges.reshape(-1, 2):
            yield (row, stop), int(first), int(last)
        row = stop
