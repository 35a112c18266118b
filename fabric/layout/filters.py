"""Filters of wavelets act on delivery to the CE; they are painted like routes, one slot of the PE per color that has
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fabric.layout.rectangles import Rect
from fabric.layout.routes import Painting, frozen
from wse_core import image as im
from wse_core import isa
from wse_core.errors import RouteError, UnsupportedError

__all__ = ["Filters"]

_COUNTER = {
    "init_counter": ("counter", 0),
    "max_counter": ("max", None),
    "limit1": ("limit", None),
    "count_data": ("count_data", True),
    "count_control": ("count_control", False),
    "filter_control": ("filter_control", False),
}
_RANGE = {"min_idx": ("min_idx", 0), "max_idx": ("max_idx", None)}
_FIELDS: dict[object, dict[str, tuple[str, Any]]] = {"counter": _COUNTER, "range": _RANGE}
"""Key of `Layout.route` -> field of the record and default; None = must be given."""


class Filters:
    """A `Filters` has the filters of a layout of `width` x `height` PEs."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.records: dict[int, np.ndarray] = {}  # color -> FILTER_DTYPE per PE

    def paint(self, color: int, rect: Rect, given: Mapping[str, Any]) -> None:
        """Give the PEs of a rectangle the filter that `Layout.route` describes."""
        given = dict(given)
        kind = given.pop("kind", None)
        if kind == "sparse_counter":
            raise UnsupportedError(
                "filters of kind sparse_counter are not modelled",
                feature="sparse_counter",
                where=f"color {color}",
                cause=isa.UNSUPPORTED["sparse_counter"],
            )
        fields = _FIELDS.get(kind)
        if fields is None:
            raise RouteError(
                f"unknown kind of filter {kind!r}", x=rect.x, y=rect.y, color=color, hint="counter or range"
            )
        region = np.zeros(rect.shape, im.FILTER_DTYPE)
        region["kind"] = im.FILTER_COUNTER if kind == "counter" else im.FILTER_RANGE
        for key, (name, default) in fields.items():
            value = given.pop(key, default)
            if value is None:
                raise RouteError(f"{kind} filter without {key}", x=rect.x, y=rect.y, color=color)
            value = np.asarray(value)
            limit = 1 if im.FILTER_DTYPE[name] == np.uint8 else 0xFFFF
            if (
                value.shape not in ((), rect.shape)
                or value.dtype.kind not in "iub"
                or (value.size and not 0 <= value.min() <= value.max() <= limit)
            ):
                raise RouteError(
                    f"{kind} filter: {key} must be in 0 .. {limit}, one number or one per PE (shape {rect.shape})",
                    x=rect.x,
                    y=rect.y,
                    color=color,
                )
            region[name] = value
        if given:
            raise RouteError(
                f"{kind} filter: unknown key {next(iter(given))!r}",
                x=rect.x,
                y=rect.y,
                color=color,
                hint=", ".join(fields),
            )
        if color not in self.records:
            self.records[color] = np.zeros((self.height, self.width), im.FILTER_DTYPE)
        self.records[color][rect.slices] = region

    def build(self, painting: Painting, limit: int) -> tuple[np.ndarray | None, dict[int, np.ndarray]]:
        """Return (records, color -> 1-based slot per PE); slots are numbered in the order of the colors."""
        used = np.zeros((self.height, self.width), np.uint8)
        slots = {}
        for color in sorted(self.records):
            has = painting.spread(color, lambda c: c.has_filter).astype(bool)
            used += has
            slots[color] = np.where(has, used, 0).astype(np.uint8)
        most = int(used.max()) if slots else 0
        if most > limit:
            y, x = np.argwhere(used == most)[0]
            raise RouteError(
                f"{most} colors have a filter here, a PE has {limit} filters",
                x=int(x),
                y=int(y),
                limit="filters",
                needed=most,
                available=limit,
            )
        if not most:
            return None, {}
        filters = np.zeros((self.height, self.width, most), im.FILTER_DTYPE)
        for color, slot in slots.items():
            for k in range(most):
                here = slot == k + 1
                filters[here, k] = self.records[color][here]
        return frozen(filters), slots
