"""The PEs of a mesh have come so far: a time for each column and each row, moved on by work and by all-reduces.

Work takes equally long on all PEs of a row, and an all-reduce along one axis shifts all lines of the other by what they
are behind: so the time of PE (c, r) is always the sum of a number of its column and one of its row, and an all-reduce
moves one of the two lists only.  PEs near a root go on earlier, and the next all-reduce begins there earlier.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.matvec.line_sum import LineSum

__all__ = ["Front"]


class Front:
    """A `Front` has the times of the PEs of a mesh, of several steps at a time that have nothing to do with one
    another.

    Parameters
    ----------
    width, height : int
    steps : int

    Attributes
    ----------
    columns, rows : ndarray of int64, shape (steps, width), (steps, height)
        The time of PE (c, r) is ``columns[:, c] + rows[:, r]``.
    """

    def __init__(self, width: int, height: int, steps: int = 1) -> None:
        self.columns = np.zeros((steps, width), np.int64)
        self.rows = np.zeros((steps, height), np.int64)

    @property
    def last(self) -> NDArray[np.int64]:
        """The slowest PE has this time, in each step."""
        return np.asarray(self.columns.max(axis=1) + self.rows.max(axis=1))

    def work(self, cycles: int | NDArray[np.int64]) -> None:
        """Let all PEs work, or those of each row for so many cycles."""
        self.rows = self.rows + cycles

    def along_x(self, line: LineSum) -> None:
        """Let all rows do an all-reduce."""
        self.columns = line.ends(self.columns)

    def along_y(self, line: LineSum) -> None:
        """Let all columns do an all-reduce."""
        self.rows = line.ends(self.rows)
