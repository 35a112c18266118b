"""A part of a layout is painted as if it were a layout of its own: whoever paints it knows no other places."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from numpy.typing import ArrayLike

from fabric.layout.rectangles import Rect, RectLike, rect_within
from fabric.program.program import Program
from wse_core.image import ProgramImage
from wse_core.params import Machine

if TYPE_CHECKING:
    from fabric.layout.layout import Layout

__all__ = ["LayoutPart", "Painted"]

Painted: TypeAlias = "Layout | LayoutPart"
"""Programs are placed, and colors routed, on a layout or on a part of one."""


class LayoutPart:
    """A part of a layout has places of its own, from (0, 0) at its north-west corner on.

    Parameters
    ----------
    whole : Layout
    rect : Rect
        The part, without steps.

    Attributes
    ----------
    width, height : int
        PEs of the part.
    """

    def __init__(self, whole: Layout, rect: Rect) -> None:
        self.whole, self.x, self.y, self.width, self.height = whole, rect.x, rect.y, rect.w, rect.h

    @property
    def machine(self) -> Machine:
        """The layout has this machine."""
        return self.whole.machine

    def _moved(self, rect: RectLike | None, what: str) -> Rect:
        """Return a rectangle of the part as one of the layout; refuse one that leaves the part."""
        found = rect_within(rect, self.width, self.height, what)
        return Rect(found.x + self.x, found.y + self.y, *found[2:])

    def place(self, program: Program | ProgramImage, x: int, y: int, w: int = 1, h: int = 1) -> None:
        """Run a program on a rectangle of the part; see `Layout.place`."""
        self.whole.place(program, self._moved((x, y, w, h), "place"))

    def route(self, color: int, rect: RectLike | None = None, rx: str = "", tx: str = "", **more: Any) -> None:
        """Paint the routing of a color over a rectangle of the part; see `Layout.route`."""
        self.whole.route(color, self._moved(rect, f"route of color {color}"), rx, tx, **more)

    def route_each(self, color: int, rects: Iterable[RectLike | None], rx: str = "", tx: str = "", **more: Any) -> None:
        """Paint the same routing over many rectangles of the part; see `Layout.route_each`."""
        self.whole.route_each(color, [self._moved(rect, f"route of color {color}") for rect in rects], rx, tx, **more)

    def set_param(self, name: str, value: ArrayLike, rect: RectLike | None = None) -> None:
        """Set a parameter of the programs in a rectangle of the part; see `Layout.set_param`."""
        self.whole.set_param(name, value, self._moved(rect, f"set_param({name!r})"))
