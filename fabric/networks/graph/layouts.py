"""Where the features of a tensor lie: layout A of the white paper, features over the columns of PEs.

This is the only place where it is known which column has a feature, and which row of the column's tile.

Source: weight streaming white paper, section 7.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.streamed.placement import chunks

__all__ = ["ColumnLayout"]


@dataclass(frozen=True)
class ColumnLayout:
    """A layout has features in contiguous chunks over columns of PEs.

    Attributes
    ----------
    starts : tuple of int
        First place of each column, some perhaps empty, and the number of features at the end.
    order : tuple of int, optional
        Feature that lies at each place; default that of the same number.
    """

    starts: tuple[int, ...]
    order: tuple[int, ...] | None = None

    @classmethod
    def even(cls, features: int, columns: int, unit: int = 1) -> ColumnLayout:
        """Return the layout in nearly equal chunks; `unit` neighbouring features stay together."""
        return cls(tuple((unit * chunks(features // unit, columns)).tolist()))

    @property
    def features(self) -> int:
        """The layout has so many features."""
        return self.starts[-1]

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How many features each column has."""
        return np.array(self.starts[1:], np.int64) - np.array(self.starts[:-1], np.int64)

    @property
    def most(self) -> int:
        """Rows of a tile: the most features that a column has, at least one."""
        return max(1, int(self.counts.max()))

    @cached_property
    def held(self) -> NDArray[np.int64]:
        """Each place holds one of these features."""
        return np.arange(self.features) if self.order is None else np.array(self.order, np.int64)

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        return np.argsort(self.held)

    def owners(self, features: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the column of each of some features."""
        return np.searchsorted(np.array(self.starts), self._places[features], side="right") - 1

    def local(self, features: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each of some features in its column's tile."""
        return self._places[features] - np.array(self.starts)[self.owners(features)]

    def column(self, number: int) -> NDArray[np.int64]:
        """Return the features of a column, in the order of its rows."""
        return self.held[self.starts[number] : self.starts[number + 1]]

    def tiles(self, rows: NDArray[np.uint16], first: int = 0) -> NDArray[np.uint16]:
        """Return rows by column and place in its tile, behind `first` rows of zeros.

        Parameters
        ----------
        rows : ndarray, shape (features, ...)

        Returns
        -------
        ndarray, shape (columns, first + most, ...)
        """
        found = np.zeros((len(self.starts) - 1, first + self.most, *rows.shape[1:]), rows.dtype)
        for number in range(len(found)):
            mine = self.column(number)
            found[number, first : first + len(mine)] = rows[mine]
        return found

    def rows(self, tiles: NDArray[np.uint16], first: int = 0) -> NDArray[np.uint16]:
        """Return the rows by feature; inverse of `tiles`."""
        found = np.empty((self.features, *tiles.shape[2:]), tiles.dtype)
        for number, tile in enumerate(tiles):
            mine = self.column(number)
            found[mine] = tile[first : first + len(mine)]
        return found
