"""The module `cerebras.geometry.geometry` has points and rectangles."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["IntRectangle", "IntVector"]


@dataclass(frozen=True)
class IntVector:
    """An `IntVector` is a point with whole coordinates."""

    x: int
    y: int


@dataclass(frozen=True)
class IntRectangle:
    """An `IntRectangle` has its upper left corner, and the corner one past its lower right PE."""

    upper_left: IntVector
    lower_right: IntVector
