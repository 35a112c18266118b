"""Rectangles of PEs are given with or without steps."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fabric.layout.classes import bands
from wse_core.errors import LayoutError

__all__ = ["Rect", "RectLike", "rect_within", "runs"]


MOST_CELLS = 1 << 12
"""The runs of a mask of at most so many entries are kept: parameters of a layout have few different ones."""


class Rect(NamedTuple):
    """A `Rect` is a rectangle of PEs; `sx` and `sy` pick every sx-th column and sy-th row of it."""

    x: int
    y: int
    w: int = 1
    h: int = 1
    sx: int = 1
    sy: int = 1

    @property
    def slices(self) -> tuple[slice, slice]:
        """The rectangle has this index in an array of shape (height, width)."""
        return slice(self.y, self.y + self.h, self.sy), slice(self.x, self.x + self.w, self.sx)

    @property
    def shape(self) -> tuple[int, int]:
        """The rectangle has so many (rows, columns) that it picks."""
        return -(-self.h // self.sy), -(-self.w // self.sx)


RectLike = Rect | tuple[int, ...] | list[int]
"""A `RectLike` is what a user may give: (x, y), (x, y, w, h), (x, y, w, h, sx, sy) or a `Rect`."""


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


Run = tuple[tuple[int, int], int, int]
"""A `Run` is ``((row, stop row), column, stop column)``."""


def runs(mask: np.ndarray) -> tuple[Run, ...]:
    """Return disjoint rectangles that cover the true entries of `mask`.

    Rows that are alike, or columns, are looked at once, and all at the same time: whichever gives fewer rectangles.
    One column whose rows all differ would else cut all others.  The cost is a few passes over the mask and one step per
    rectangle.
    """
    if mask.size <= MOST_CELLS:
        return _known_runs(mask.astype(bool, copy=False).tobytes(), mask.shape)
    return _runs(mask)


@lru_cache(maxsize=1024)
def _known_runs(entries: bytes, shape: tuple[int, ...]) -> tuple[Run, ...]:
    return _runs(np.frombuffer(entries, bool).reshape(shape))


def _runs(mask: np.ndarray) -> tuple[Run, ...]:
    lying, standing = _along(mask), _along(mask.T)
    if len(lying) <= len(standing):
        return tuple(((top, bottom), left, right) for top, bottom, left, right in lying)
    return tuple(((top, bottom), left, right) for left, right, top, bottom in standing)


def _along(mask: np.ndarray) -> list[list[int]]:
    """Return [row, stop row, column, stop column] of the runs of true entries along bands of equal rows."""
    edges = bands([mask], axis=0)
    alike = mask[edges[:-1]]
    padded = np.zeros((alike.shape[0], alike.shape[1] + 2), np.int8)
    padded[:, 1:-1] = alike
    steps = np.diff(padded, axis=1)
    (band, first), (_, last) = np.nonzero(steps == 1), np.nonzero(steps == -1)
    return np.column_stack((edges[band], edges[band + 1], first, last)).tolist()
