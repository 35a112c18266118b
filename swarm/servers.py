"""A server does one thing after the other at a rate: a link, a node, update units, a tier."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Server", "in_order"]

Times = NDArray[np.float64]


def in_order(times: ArrayLike, first: float = 0.0) -> Times:
    """Return when things are there together with all before them; none before `first`."""
    return np.maximum(np.maximum.accumulate(np.asarray(times, np.float64)), first)


class Server:
    """Takes things in order, each when the one before is done.

    Parameters
    ----------
    gap : float
        Time that a thing takes.

    Attributes
    ----------
    free : float
        When everything that came is done.
    """

    def __init__(self, gap: float) -> None:
        self.gap, self.free = gap, 0.0

    def through(self, ready: ArrayLike, sizes: ArrayLike = 1.0) -> Times:
        """Return when things are done, given when they are there; `sizes` in units of the gap.

        The sums are taken from the first thing on, so results do not depend on how things are grouped into calls
        within rounding of a double (a millionth of a cycle in 2^33 cycles).
        """
        there = np.asarray(ready, np.float64)
        if not len(there):
            return there
        taken = np.asarray(sizes, np.float64) * self.gap
        ends = (taken if taken.ndim else np.full(there.shape, taken)).cumsum()
        done = np.maximum.accumulate(there - (ends - taken))
        np.maximum(done, self.free, out=done)
        done += ends
        self.free = float(done[-1])
        return done
