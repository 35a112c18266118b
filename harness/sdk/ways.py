"""Ways of colors over a fabric, and numbers for colors, are chosen for ports and streams of `harness.sdk.regions`.

A wire leaves one PE and enters another.  It goes the shortest way over routers, preferably where no program lies; the
color stays the same all along, so a PE that its color is used on already is no part of it.  Colors are numbered as a
map is coloured: two that meet on some PE get different numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from wse_core.errors import LayoutError
from wse_core.image import DIRS, STEP

__all__ = ["Net", "Place", "WireWay", "numbered", "way"]

Place = tuple[int, int]
"""A PE is named by its column and row."""


@dataclass(frozen=True)
class WireWay:
    """A `WireWay` is the way of a color between two PEs, or between a PE and an edge of the fabric.

    Attributes
    ----------
    cells : tuple of Place
        Routers on the way, in the order in which words pass them; those at its ends belong to the ports.
    begin, end : str
        The sides, letters of W E N S, on which words come into the first of them and leave the last one.
    """

    cells: tuple[Place, ...]
    begin: str
    end: str

    def steps(self) -> Iterable[tuple[Place, str, str]]:
        """Yield each router with the side that words come from and the one that they leave by."""
        sides = [self.begin]
        for (x, y), (a, b) in zip(self.cells, self.cells[1:], strict=False):
            sides += [DIRS[STEP.index((a - x, b - y))], DIRS[STEP.index((x - a, y - b))]]
        sides.append(self.end)
        for k, cell in enumerate(self.cells):
            yield cell, sides[2 * k], sides[2 * k + 1]


def neighbour(place: Place, side: str) -> Place:
    """Return the PE on a side of another."""
    dx, dy = STEP[DIRS.index(side)]
    return place[0] + dx, place[1] + dy


def way(
    start: Place, goals: Collection[Place], size: Place, taken: Collection[Place], used: Collection[Place]
) -> tuple[Place, ...] | None:
    """Return the shortest way from a PE to one of several; None if there is none.

    Of ways of one length that over PEs without a program is taken, then the one that begins towards the east or west.

    Parameters
    ----------
    start : Place
    goals : collection of Place
    size : (int, int)
        Columns and rows of the fabric.
    taken : collection of Place
        PEs that the way may not enter.
    used : collection of Place
        PEs that have a program, each of which counts as two steps.
    """
    if start in taken or not (0 <= start[0] < size[0] and 0 <= start[1] < size[1]):
        return None
    cost: dict[Place, int] = {start: 1 + (start in used)}
    before: dict[Place, Place | None] = {start: None}
    queue = deque([start])
    while queue:
        here = queue.popleft()
        for side in "EWSN":
            there = neighbour(here, side)
            if there in taken or not (0 <= there[0] < size[0] and 0 <= there[1] < size[1]):
                continue
            length = cost[here] + 1 + (there in used)
            if length < cost.get(there, length + 1):
                cost[there], before[there] = length, here
                queue.append(there)
    reached = [goal for goal in goals if goal in cost]
    if not reached:
        return None
    found: list[Place] = []
    at: Place | None = min(reached, key=lambda goal: (cost[goal], goal))
    while at is not None:
        found.append(at)
        at = before[at]
    return tuple(reversed(found))


@dataclass(eq=False)
class Net:
    """A net is all that one number of a color is used for.

    Attributes
    ----------
    names : list of str
        Of the colors that are one because they are connected.
    places : set of Place
        PEs on which it is used.
    fixed : int or None
        A number that the script asks for.
    switches : bool
        Whether some PE has switch positions of it.
    """

    names: list[str]
    places: set[Place] = field(default_factory=set)
    fixed: int | None = None
    switches: bool = False


def numbered(nets: list[Net], colors: range, switched: Collection[int]) -> Mapping[Net, int]:
    """Return a number for each net: those with the least choice first, the lowest number that is free.

    Raises
    ------
    LayoutError
        Two nets with one fixed number meet, a net that switches has a number without a switch, or no number is left.
    """
    meets = {net: [other for other in nets if other is not net and net.places & other.places] for net in nets}
    found: dict[Net, int] = {}
    order = sorted(nets, key=lambda net: (net.fixed is None, not net.switches, -len(meets[net]), net.names))
    for net in order:
        there = [c for c in colors if not net.switches or c in switched]
        around = {found[other]: other for other in meets[net] if other in found}
        name = " = ".join(net.names)
        if net.fixed is not None:
            if net.fixed in around:
                other = " = ".join(around[net.fixed].names)
                raise LayoutError(f"the colors {name} and {other} meet on a PE and both have the number {net.fixed}")
            if net.fixed not in there:
                raise LayoutError(f"the color {name} has switch positions, and color {net.fixed} has no switch")
            found[net] = net.fixed
            continue
        free = [c for c in there if c not in around]
        if not free:
            raise LayoutError(f"no color is left for {name}", hint="fewer colors that meet on a PE, or switch there")
        found[net] = free[0]
    return found
