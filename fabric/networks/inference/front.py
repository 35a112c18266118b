"""How far the PEs of a mesh are: a time for each column and each row, moved on by work and by all-reduces.

Work takes equally long on all PEs of a row, and an all-reduce along one axis shifts all lines of the other by what they
are behind: so the time of PE (c, r) is always the sum of a number of its column and one of its row, and an all-reduce
moves one of the two lists only.  PEs near a root go on earlier, and the next all-reduce begins there earlier.
"""

from __future__ import annotations

from collections.abc import Sequence

from fabric.kernels.matvec.line_sum import LineSum

__all__ = ["Front"]


class Front:
    """Times of a mesh.

    Parameters
    ----------
    width, height : int

    Attributes
    ----------
    columns, rows : list of int
        The time of PE (c, r) is ``columns[c] + rows[r]``.
    """

    def __init__(self, width: int, height: int) -> None:
        self.columns, self.rows = [0] * width, [0] * height

    @property
    def last(self) -> int:
        """Time of the slowest PE."""
        return max(self.columns) + max(self.rows)

    def work(self, cycles: int | Sequence[int]) -> None:
        """Let all PEs work, or those of each row for so many cycles."""
        each = cycles if isinstance(cycles, Sequence) else [cycles] * len(self.rows)
        self.rows = [time + more for time, more in zip(self.rows, each, strict=True)]

    def along_x(self, line: LineSum) -> None:
        """Let all rows do an all-reduce."""
        self.columns = line.ends(self.columns)

    def along_y(self, line: LineSum) -> None:
        """Let all columns do an all-reduce."""
        self.rows = line.ends(self.rows)
