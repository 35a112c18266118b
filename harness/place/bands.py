"""A placement is described as columns of rows of stacks, sized, and turned into rectangles.

A *plan* is a tuple of columns from left to right; a column is a tuple of rows from low to high y; a row is a tuple of
stacks side by side; a stack is a tuple of items, one above the other.  An item is a number; what it is and which
shapes it can have is the business of the caller, who gives a *curve* for every kind of item: the least height for each
width.

Sizes follow exactly.  Heights of what stands one above the other add at equal width, widths of what stands side by
side add at equal height, and `inverse` turns one into the other; so each column is as narrow as its rows permit within
the height of the wafer, and the plan fits if its columns do not need more than the width.  A network that is a chain
runs down one column and up the next, and what follows in it lies side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from harness.place.shapes import NEVER, inverse

__all__ = ["Column", "Plan", "Row", "Sized", "Sizer", "Stack"]

Stack: TypeAlias = tuple[int, ...]
Row: TypeAlias = tuple[Stack, ...]
Column: TypeAlias = tuple[Row, ...]
Plan: TypeAlias = tuple[Column, ...]

MOST_KEPT = 10_000
"""Curves and columns that are remembered; each is a few kilobytes."""


class Sized(NamedTuple):
    """A `Sized` is a column with sizes: its width, its items, and their centres from its left lower corner."""

    width: int
    items: np.ndarray
    x: np.ndarray
    y: np.ndarray


class Inside(NamedTuple):
    """An `Inside` is a row of several items: these, their centres from its left lower corner, and the room that each
    may fill.
    """

    items: list[int]
    x: list[float]
    y: list[float]
    rooms: list[tuple[int, int]]


class Sizer:
    """A `Sizer` gives plans their sizes for one time limit.

    Parameters
    ----------
    curves : sequence of numpy.ndarray
        Of each kind of item, the least height for widths 0 .. width.
    kinds : sequence of int
        Kind of each item.
    height : int
        Of the wafer [PEs].
    """

    def __init__(self, curves: Sequence[np.ndarray], kinds: Sequence[int], height: int) -> None:
        self.kinds, self.height = kinds, height
        self.width = len(curves[0]) - 1
        self.heights = [np.asarray(curve, np.int64) for curve in curves]
        self.widths = [inverse(curve, height) for curve in self.heights]
        self.stacks: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]] = {}
        self.by_kinds: dict[tuple[tuple[int, ...], ...], np.ndarray] = {}
        self.rows: dict[Row, np.ndarray] = {}
        self.totals: dict[Column, np.ndarray] = {}
        self.least: dict[Column, int] = {}
        self.columns: dict[tuple[Column, int], Sized] = {}

    def _stack(self, stack: Stack) -> tuple[np.ndarray, np.ndarray]:
        """Return the least heights for widths and widths for heights of a stack."""
        if len(stack) == 1:
            kind = self.kinds[stack[0]]
            return self.heights[kind], self.widths[kind]
        kinds = tuple(sorted([self.kinds[item] for item in stack]))
        found = self.stacks.get(kinds)
        if found is None:
            heights = np.minimum(np.sum([self.heights[kind] for kind in kinds], axis=0), NEVER)
            found = _kept(self.stacks)[kinds] = heights, inverse(heights, self.height)
        return found

    def row(self, row: Row) -> np.ndarray:
        """Return the least height of a row for each width."""
        found = self.rows.get(row)
        if found is None:
            if len(row) == 1:
                found = self._stack(row[0])[0]
            else:
                kinds = tuple(sorted([tuple(sorted([self.kinds[item] for item in stack])) for stack in row]))
                found = self.by_kinds.get(kinds)
                if found is None:
                    widths = np.sum([self._stack(stack)[1] for stack in row], axis=0)
                    found = _kept(self.by_kinds)[kinds] = inverse(np.minimum(widths, NEVER), self.width)
            _kept(self.rows)[row] = found
        return found

    def narrowest(self, column: Column) -> int:
        """Return the least width at which a column has at most the height of the wafer; `NEVER` if at none."""
        found = self.least.get(column)
        if found is None:
            total = self.row(column[0]).copy()
            for row in column[1:]:
                total += self.row(row)
            width = int((total <= self.height).argmax())
            found = width if total[width] <= self.height else NEVER
            _kept(self.totals)[column] = total
            _kept(self.least)[column] = found
        return found

    def needed(self, plan: Plan) -> int:
        """Return the least width of a plan; at least `NEVER` if a column has none."""
        return sum([self.narrowest(column) for column in plan])

    def column(self, column: Column, width: int) -> Sized:
        """Return a column with its sizes, for a width at which it fits.

        It is as high as that width demands, and as narrow as that height permits.
        """
        found = self.columns.get((column, width))
        if found is None:
            total = self.totals.get(column)
            if total is None:
                total = np.sum([self.row(row) for row in column], axis=0)
            used = int((total <= total[width]).argmax())
            found = _kept(self.columns)[column, width] = self._sized(column, [self.row(row) for row in column], used)
        return found

    def plan(self, plan: Plan, stretch: float) -> list[Sized] | None:
        """Return all columns of a plan with their sizes, or None if one has no width.

        Parameters
        ----------
        stretch : float
            The share of what is left of the wafer's width that columns get beyond their least: wider ones are lower.
        """
        least = [self.narrowest(column) for column in plan]
        needed = sum(least)
        if needed >= NEVER:
            return None
        left = max(0, self.width - needed) * stretch / needed
        return [self.column(column, width + int(width * left)) for column, width in zip(plan, least, strict=True)]

    def _sized(self, column: Column, curves: Sequence[np.ndarray], width: int) -> Sized:
        """Return the centres of the items of a column."""
        items: list[int] = []
        xs: list[float] = []
        ys: list[float] = []
        low, middle = 0, width / 2
        for row, curve in zip(column, curves, strict=True):
            high = curve.item(width)
            if len(row) == 1 and len(row[0]) == 1:
                items.append(row[0][0])
                xs.append(middle)
                ys.append(low + high / 2)
            else:
                inside = self._inside(row, width, high)
                items += inside.items
                xs += inside.x
                ys += [low + y for y in inside.y]
            low += high
        return Sized(width, np.array(items), np.array(xs), np.array(ys))

    def _inside(self, row: Row, width: int, high: int) -> Inside:
        """Return what a row of given width and height looks like inside: its stacks are in the middle of it."""
        inside = Inside([], [], [], [])
        parts = [width] if len(row) == 1 else [self._stack(stack)[1].item(high) for stack in row]
        left = (width - sum(parts)) / 2
        for stack, part in zip(row, parts, strict=True):
            heights = [self.heights[self.kinds[item]].item(part) for item in stack]
            y = (high - sum(heights)) / 2
            for item, height in zip(stack, heights, strict=True):
                inside.items.append(item)
                inside.x.append(left + part / 2)
                inside.y.append(y + height / 2)
                inside.rooms.append((part, height))
                y += height
            left += part
        return inside

    def rooms(self, plan: Plan, stretch: float) -> dict[int, tuple[int, int, int, int]]:
        """Return x, y, width and height of the room of each item; the plan must fit."""
        found: dict[int, tuple[int, int, int, int]] = {}
        left = 0
        for column, sized in zip(plan, self.plan(plan, stretch) or (), strict=True):
            low = 0
            for row in column:
                high = self.row(row).item(sized.width)
                inside = self._inside(row, sized.width, high)
                for item, x, y, (w, h) in zip(inside.items, inside.x, inside.y, inside.rooms, strict=True):
                    # Half a PE is cut off on both sides of a row at most, so rounding down keeps its items apart.
                    found[item] = left + int(x - w / 2), low + int(y - h / 2), w, h
                low += high
            left += sized.width
        return found


Kept = TypeVar("Kept", bound=dict[Any, Any])


def _kept(table: Kept) -> Kept:
    """Return a table to which one more entry may be added."""
    if len(table) >= MOST_KEPT:
        table.clear()
    return table
