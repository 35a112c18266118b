"""The layers of a network get rectangles if their costs are functions of width and height.

The same search as for contest problems (`harness.place.search`): the slowest layer shall be as fast as the wafer
permits, and layers that exchange data shall lie close together.  Nothing is turned, and only numpy is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, TypeAlias

import numpy as np

from harness.place.bands import Sizer
from harness.place.search import Search, SearchTask
from harness.place.shapes import NEVER
from wse_core.errors import ConfigError, LayoutError

__all__ = ["Cost", "NetworkPlacement", "Rectangle", "place"]

Cost: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""A `Cost` takes widths (1, W) and heights (H, 1) and gives cycles (H, W); infinite where there is no such
rectangle.
"""

ROUNDS = 8
TIE = 1e-3
"""Paths as long as width and height of the wafer may cost this share of the slowest layer's cycles."""
HALVINGS = 40


class Rectangle(NamedTuple):
    """A `Rectangle` has the corner of least x and y, a width and a height [PEs]."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class NetworkPlacement:
    """A `NetworkPlacement` says where the layers of a network lie.

    Attributes
    ----------
    rectangles : tuple of Rectangle
        One per layer.
    cycles : tuple of float
        Of each layer in its rectangle.
    bound : float
        Cycles that the slowest layer has at least, by the area of the wafer alone.
    """

    rectangles: tuple[Rectangle, ...]
    cycles: tuple[float, ...]
    bound: float

    @property
    def slowest(self) -> float:
        """The slowest layer takes so many cycles, which are those of the network per minibatch in its steady state."""
        return max(self.cycles)

    @property
    def utilisation(self) -> tuple[float, ...]:
        """Each layer works for this share of the time."""
        return tuple(cycles / self.slowest if self.slowest else 1.0 for cycles in self.cycles)


class _Grid:
    """A grid has the cycles of a layer for every size."""

    def __init__(self, cost: Cost, width: int, height: int, where: str) -> None:
        sizes = np.arange(1, width + 1)[None, :], np.arange(1, height + 1)[:, None]
        cycles = np.asarray(cost(*sizes), float)
        if np.isnan(cycles).any() or (cycles < 0).any():
            raise ConfigError("its cost is not a number or negative", where=where, hint="infinity where it cannot be")
        self.cycles = np.broadcast_to(cycles, (height, width))
        self.least = float(self.cycles.min())
        self.height = height

    def heights(self, limit: float) -> np.ndarray:
        """Return the least height for each width 0 .. width, exactly as wide."""
        fits = self.cycles <= limit
        return np.concatenate([[NEVER], np.where(fits.any(axis=0), fits.argmax(axis=0) + 1, NEVER)])

    def curve(self, limit: float) -> np.ndarray:
        """Return the same where a layer may be narrower than its room."""
        return np.minimum.accumulate(self.heights(limit))

    def area(self, limit: float) -> int:
        """Return the least area."""
        heights = self.heights(limit)
        return int((heights * np.arange(len(heights)))[1:].min())

    def smallest(self, limit: float, width: int, height: int) -> tuple[int, int]:
        """Return width and height of the least area within a room."""
        heights = self.heights(limit)[: width + 1]
        area = np.where(heights <= height, heights * np.arange(len(heights)), NEVER * NEVER)
        best = 1 + int(area[1:].argmin())
        return best, int(heights[best])


def _bound(grids: Sequence[_Grid], kinds: Sequence[int], room: int) -> float:
    """Return the least limit at which the smallest rectangles have no more area than there is; infinite if at none."""
    counts = np.bincount(kinds).tolist()

    def fits(limit: float) -> bool:
        return sum(grid.area(limit) * count for grid, count in zip(grids, counts, strict=True)) <= room

    low = max(grid.least for grid in grids)
    if fits(low):
        return low
    high = max(float(grid.cycles[np.isfinite(grid.cycles)].max()) for grid in grids)
    if not fits(high):
        return math.inf
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def place(
    costs: Sequence[Cost],
    width: int,
    height: int,
    wires: Sequence[tuple[int, int]] | None = None,
    *,
    names: Sequence[str] | None = None,
    rounds: int = ROUNDS,
    seed: int = 0,
) -> NetworkPlacement:
    """Give each layer a rectangle, so that the slowest one is as fast as it can be.

    Parameters
    ----------
    costs : sequence of callable
        Of each layer, cycles per minibatch as a function of arrays of widths and heights; one function for several
        layers is worked out once.
    width, height : int
        Of the wafer [PEs].
    wires : sequence of (int, int), optional
        Layers that exchange data; default a chain.
    names : sequence of str, optional
        For messages.
    rounds : int
        Of the search; the same rounds and seed give the same placement.
    seed : int

    Raises
    ------
    LayoutError
        A layer or all of them together do not fit.
    ConfigError
        A cost is no number, or there is no layer.

    Examples
    --------
    >>> found = place([lambda w, h: 600 / (w * h), lambda w, h: 200 / (w * h)], 20, 10)
    >>> found.slowest, sorted(r.width * r.height for r in found.rectangles)
    (4.0, [50, 150])
    """
    if not costs or width < 1 or height < 1:
        raise ConfigError(f"{len(costs)} layers on {width} x {height} PEs", hint="one of each at least")
    names = [f"layer {number}" for number in range(1, len(costs) + 1)] if names is None else names
    numbers: dict[Cost, int] = {}
    kinds = [numbers.setdefault(cost, len(numbers)) for cost in costs]
    grids = [_Grid(cost, width, height, names[kinds.index(kind)]) for cost, kind in numbers.items()]
    for kind, name in zip(kinds, names, strict=True):
        if math.isinf(grids[kind].least):
            raise LayoutError(f"fits no rectangle of {width} x {height} PEs", where=name, hint="more PEs")
    bound = _bound(grids, kinds, width * height)
    wires = [(number, number + 1) for number in range(len(costs) - 1)] if wires is None else list(wires)
    weight = TIE * bound / (width + height) / max(1, len(wires))
    found = None
    if math.isfinite(bound):
        task = SearchTask(
            kinds,
            lambda limit: [grid.curve(float(limit)) for grid in grids],
            width,
            height,
            wires,
            Fraction(bound),
            1.0,
            weight,
        )
        search = Search(task, seed)
        for _ in range(rounds):
            search.round()
        found = search.best
    if found is None:
        raise LayoutError(f"{len(costs)} layers do not fit {width} x {height} PEs together", hint="more PEs")
    rooms = Sizer(task.curves(found.limit), kinds, height).rooms(found.plan, found.stretch)
    rectangles = []
    for number, kind in enumerate(kinds):
        x, y, wide, high = rooms[number]
        rectangles.append(Rectangle(x, y, *grids[kind].smallest(float(found.limit), wide, high)))
    cycles = (float(grids[kind].cycles[r.height - 1, r.width - 1]) for kind, r in zip(kinds, rectangles, strict=True))
    return NetworkPlacement(tuple(rectangles), tuple(cycles), bound)
