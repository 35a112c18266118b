"""Lines of PEs have times while pieces and sums move along them: who waits for whom, all places of a line at once.

A line is a row, or the columns of a head.  What a PE does itself comes from its program (`RowWays`); a wavelet that
waits for its predecessor's PE is a running maximum: a PE goes on when it is ready and when what comes to it has come,
and that goes on one stage later.

Tiles are sent and received by microthreads beside the main thread, and every wavelet of theirs takes a slot of the CE:
what a PE owes in slots stretches its work, or passes while it waits.  While it waits both ends of its transfers mostly
work, and three threads share the slots of a PE that works: so a transfer gets a third of the cycles (`SHARE`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabric.networks.inference.prefill.channels import FROM_EAST, FROM_WEST, TO_EAST, TO_WEST
from fabric.networks.inference.prefill.placement import EAST, HERE, WEST
from fabric.price import timing
from wse_core.params import Machine

__all__ = ["SHARE", "Channel", "RowWays", "Times"]

Times = NDArray[np.float64]
SHARE = 2 / 3
"""Two transfers take so many slots per cycle of a PE that waits: a third of a cycle each, as at their other ends."""
TURNS = 2
"""It is reckoned so often how long PEs wait while a piece goes along a line; more turns change nothing that counts."""
LATE = -1e15
"""This time comes before any other."""


class RowWays(NamedTuple):
    """`RowWays` are what the PEs of a line do in a step of a channel, each array with one entry per place.

    Attributes
    ----------
    first : dict of int to ndarray
        By where the home is (`WEST`, `EAST`, `HERE`): cycles to the first step of the first operation that meets the
        fabric; all of them, where there is none.
    second : dict of int to ndarray
        From behind that operation to the first step of the second one; 0 where there is none.
    behind : dict of int to ndarray
        From behind the last operation to the end.
    """

    first: dict[int, Times]
    second: dict[int, Times]
    behind: dict[int, Times]

    @staticmethod
    def of(places: int, gaps: Callable[[int, int], tuple[int, ...] | None]) -> RowWays:
        """Return the ways of a line; `gaps` says of a place and where the home is what `Course.gaps` does.

        Places between the ends are alike; None: the home cannot be there.
        """
        found = RowWays({}, {}, {})
        for where in (WEST, EAST, HERE):
            kinds = {place: gaps(place, where) for place in {0, min(1, places - 1), places - 1}}

            def along(k: int, kinds: dict[int, tuple[int, ...] | None] = kinds) -> Times:
                values = [(kinds[place] or (0,)) for place in (0, min(1, places - 1), places - 1)]
                picked = [each[0] if k == 0 else each[-1] if k < 0 and len(each) > 1 else 0 for each in values]
                if k == 1:
                    picked = [each[1] if len(each) > 2 else 0 for each in values]
                line = np.full(places, float(picked[1]))
                line[0], line[-1] = picked[0], picked[2]
                return line

            found.first[where], found.second[where], found.behind[where] = along(0), along(1), along(-1)
        return found

    def over(self, places: int) -> RowWays:
        """Return the ways of a line of another length; those of three places and more have the same ends."""

        def along(each: dict[int, Times]) -> dict[int, Times]:
            middle = places - 2
            return {where: np.array([line[0], *[line[1]] * middle, line[-1]]) for where, line in each.items()}

        return self if places == len(self.first[HERE]) else RowWays(*map(along, self))


class Channel:
    """A `Channel` has pieces that are spread, and parts that are summed, along lines of so many places.

    Parameters
    ----------
    machine : Machine
    ways : RowWays
    wavelets : int
        Of a piece, or of a part of a sum.
    """

    def __init__(self, machine: Machine, ways: RowWays, wavelets: int) -> None:
        self.m, self.ways, self.w = machine, ways, wavelets
        self.places = len(ways.first[HERE])
        self.way = timing.way(machine, 1)
        self.whole = timing.train(machine, wavelets, FROM_WEST, TO_EAST)
        self.rest = timing.receiver(machine, wavelets, FROM_WEST, TO_EAST)(0, LATE)
        self.sent = timing.sending(machine, wavelets, FROM_WEST, TO_EAST)
        assert (FROM_EAST, TO_WEST) != (FROM_WEST, TO_EAST)

    def over(self, places: int) -> Channel:
        """Return the channel of lines of another length."""
        return Channel(self.m, self.ways.over(places), self.w)

    def spread(self, at: Times, owed: Times, home: NDArray[np.int64]) -> None:
        """Move times over a piece that the home of each row spreads; (rows, lines, places), home (rows, 1, 1)."""
        x, ways, last = np.arange(self.places), self.ways, self.places - 1
        if not last:
            at += ways.first[HERE]
            return
        own = np.take_along_axis(at, np.broadcast_to(home, (*at.shape[:2], 1)), -1)
        debt = np.take_along_axis(owed, np.broadcast_to(home, own.shape), -1)
        begun = own + ways.first[HERE][home]
        late = np.minimum(debt, 2 * self.w * (1 + ((home > 0) & (home < last))))
        each = late / (1 + ((home > 0) & (home < last)))
        behind_east = begun + np.where(home < last, self.sent + each, 0)
        west = np.where(home < last, behind_east + ways.second[HERE][home], begun)
        end = np.where(home > 0, west + self.sent + each, behind_east) + ways.behind[HERE][home]
        found = np.where(x == home, end, 0.0)
        left = np.where(x == home, debt - late, owed)
        for side, where, first in ((1, WEST, begun), (-1, EAST, west)):
            on = (x - home) * side > 0
            if not on.any():
                continue
            ready, seconds = at + ways.first[where], ways.second[where]
            stage = self.way + seconds  # from having a piece until its first wavelet is at the next one
            came = first + (abs(x - home) - 1) * (stage + self.whole) + self.way + self.whole + each
            more = np.zeros_like(at)
            # How long a PE waits follows from how late those before it are, and that from how long they wait.
            for _ in range(TURNS):
                debts = np.maximum(0, owed - np.maximum(0, came - more - self.whole - ready) * SHARE)
                more = np.minimum(debts, 2 * self.w)
                less = np.minimum(debts - more, 2 * self.w)
                takes = self.whole + np.roll(more, -side, -1)  # of the next one
                hop = np.where(on, stage + np.maximum(takes, self.sent + less), 0)
                far = _running(np.cumsum, hop, side) - hop
                nearest = first + self.way + np.maximum(self.whole + more, self.sent + each)
                come = np.where(on, ready + self.rest + more, LATE)
                come = np.where(x == home + side, np.maximum(come, nearest), come)
                came = _running(np.maximum.accumulate, come - far, side) + far
            passes = seconds > 0
            done = came + np.where(passes, seconds + self.sent + less, 0) + ways.behind[where]
            found = np.where(on, done, found)
            left = np.where(on, debts - more - np.where(passes, less, 0), left)
        at[:], owed[:] = found, np.maximum(0, left)

    def sum(self, at: Times, owed: Times, home: NDArray[np.int64]) -> None:
        """Move times over a sum toward the home of each row; shapes as of `spread`."""
        x, ways, last = np.arange(self.places), self.ways, self.places - 1
        if not last:
            at += ways.first[HERE]
            return
        found, left = np.zeros_like(at), owed.copy()
        arrivals = []
        for side, where in ((1, EAST), (-1, WEST)):
            on = (home - x) * side > 0
            ready = at + ways.first[where]
            steps = side * x * self.way
            first = _running(np.maximum.accumulate, np.where(on, ready, LATE) - steps, side) + steps
            come = np.full_like(first, LATE)
            if side > 0:
                come[..., 1:] = first[..., :-1] + self.way
            else:
                come[..., :-1] = first[..., 1:] + self.way
            waited = np.maximum(0, come - ready)
            debts = np.maximum(0, owed - waited * SHARE)
            late = np.minimum(debts, 2 * self.w)
            end = np.where(
                come < 0, ready + self.sent, np.maximum(np.maximum(ready, come) + self.rest, come + self.whole)
            )
            found = np.where(on, end + late + ways.behind[where], found)
            left = np.where(on, debts - late, left)
            arrivals.append(np.take_along_axis(come, np.broadcast_to(home, (*at.shape[:2], 1)), -1))
        now = np.take_along_axis(at, np.broadcast_to(home, arrivals[0].shape), -1)
        debt = np.take_along_axis(owed, np.broadcast_to(home, now.shape), -1)
        gap = ways.first[HERE][home]
        for come, there in zip(arrivals, (home > 0, home < last), strict=True):
            ready = now + gap
            debt_left = np.maximum(0, debt - np.maximum(0, come - ready) * SHARE)
            late = np.minimum(debt_left, 2 * self.w)
            end = np.maximum(np.maximum(ready, come) + self.rest, come + self.whole) + late
            now, debt = np.where(there, end, now), np.where(there, debt_left - late, debt)
            gap = np.where(there, ways.second[HERE][home], gap)
        now = now + ways.behind[HERE][home]
        at[:] = np.where(x == home, now, found)
        owed[:] = np.where(x == home, debt, left)


def _running(function: Callable[..., Times], values: Times, side: int) -> Times:
    """Return what a running function makes of values along the last axis, from the west (side 1) or from the east."""
    return function(values, -1) if side > 0 else function(values[..., ::-1], -1)[..., ::-1]
