"""`cerebras.geometry.geometry`: points and rectangles."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["IntRectangle", "IntVector"]


@dataclass(frozen=True)
class IntVector:
    """A point."""

    x: int
    y: int


@dataclass(frozen=True)
class IntRectangle:
    """A rectangle: its upper left corner, and the corner one past its lower right PE."""

    upper_left: IntVector
    lower_right: IntVector
