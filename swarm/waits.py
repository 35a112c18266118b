"""This says who waited for whom: cycles that an iteration lost, by what the late words waited for.

A wafer's program does the same steps whatever the numbers are, so a pass that is fed at once (*unhindered*) says when
each word could have entered.  A word that entered later than that, counted from the begin of the pass, lost time; the
columns' increases of what was lost so far belong to what the word itself had waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["CAUSES", "NONE", "bottleneck", "longest", "lost"]

CAUSES = ("round trip", "update", "flash", "link", "node", "buffer")
"""What a word can wait for: latency of tree and update; rate of the updates, of flash, of links, of nodes; room in the
buffers between memory service and wafers."""
NONE = -1

NOTED = 0.01
"""Share of an iteration from which a wait is the bottleneck."""


def longest(waits: NDArray[np.float64]) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Return which row of an array of waits is largest in each column, the first of equal ones, and how large it is.

    Row by row, which is what lies together in memory: numpy's own search takes a column at a time, six times as long.
    """
    cause, most = np.zeros(waits.shape[1], np.int8), waits[0].copy()
    for number, row in enumerate(waits[1:], 1):
        cause[row > most] = number
        np.maximum(most, row, out=most)
    return cause, most


def lost(late: Sequence[NDArray[np.float64]], causes: Sequence[NDArray[np.int64]], total: float) -> dict[str, float]:
    """Return how many of the `total` cycles lost belong to each cause; causes without any are left out.

    Parameters
    ----------
    late : sequence of ndarray
        Per column: by how much each word entered later than it could have.
    causes : sequence of ndarray of int
        Number of what each of these words had waited for, `NONE` for nothing.
    total : float
    """
    shares = np.zeros(len(CAUSES))
    for column, cause in zip(late, causes, strict=True):
        grown = np.diff(np.maximum.accumulate(np.concatenate([[0.0], column])))
        known = cause != NONE
        shares += np.bincount(cause[known], grown[known], len(CAUSES))
    if total <= 0 or not shares.any():
        return {}
    shares *= total / shares.sum()
    return {name: float(share) for name, share in zip(CAUSES, shares, strict=True) if share > 0}


def bottleneck(waits: Mapping[str, float], total: float) -> str:
    """Return the cause of the longest wait, or ``wafers`` if no wait is worth a name."""
    cause = max(waits, key=lambda name: waits[name], default="")
    return cause if cause and waits[cause] > NOTED * total else "wafers"
