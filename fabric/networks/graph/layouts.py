"""The features of a tensor lie in layout A of the white paper: features over the columns of PEs.

This is the only place where it is known which column has a feature, and which row of the column's tile.  Products give
their results in nearly equal chunks; what works feature by feature, or channel by channel, leaves them where they are;
two tensors side by side have in each column what both have there.  A head of attention, with those of queries that
share it, lies whole in a column, or in parts on several neighbouring ones (`Network.head_columns`).

Source: weight streaming white paper, section 7.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.streamed.placement import chunks
from wse_core.errors import UnsupportedError

if TYPE_CHECKING:
    from fabric.networks.graph.network import Network
    from fabric.networks.graph.tensors import NetworkTensor

__all__ = ["ColumnLayout", "layouts_of"]


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

    @classmethod
    def of_heads(cls, features: int, columns: int, unit: int, head: int, parts: int, halves: int = 1) -> ColumnLayout:
        """Return the layout in which a unit lies on so many neighbouring columns, a part of each of its heads in each.

        Parameters
        ----------
        features, columns : int
        unit, head : int
            Neighbouring features of both; a unit has whole heads.
        parts : int
            Columns of a unit; what is left of the columns is empty.
        halves : int
            Whole pairs of the first and the second half of a head are in one column if this is 2.
        """
        cuts = chunks(head // halves, parts)
        held = [
            [
                first + half * (head // halves) + np.arange(cuts[part], cuts[part + 1])
                for first in range(start, start + unit, head)
                for half in range(halves)
            ]
            for start in range(0, features, unit)
            for part in range(parts)
        ]
        mine = [np.concatenate(column) for column in held]
        starts = np.cumsum([0, *map(len, mine)]).tolist()
        starts += [features] * (columns + 1 - len(starts))
        return cls(tuple(starts), tuple(np.concatenate(mine).tolist()))

    def beside(self, other: ColumnLayout) -> ColumnLayout:
        """Return the layout of what lies so, and behind it, in every column, of what lies as `other` says."""
        columns = range(len(self.starts) - 1)
        held = [np.concatenate([self.column(k), self.features + other.column(k)]) for k in columns]
        starts, order = np.cumsum([0, *map(len, held)]), np.concatenate(held)
        moved = not np.array_equal(order, np.arange(len(order)))  # in a single column all lie one behind the other
        return ColumnLayout(tuple(starts.tolist()), tuple(order.tolist()) if moved else None)

    def scaled(self, below: int, above: int) -> ColumnLayout:
        """Return the layout of channels of `above` pixels that lie where those of `below` pixels do."""
        order = None
        if self.order is not None:
            channels = np.array(self.order)[::below] // below
            order = tuple((channels[:, None] * above + np.arange(above)).ravel().tolist())
        return ColumnLayout(tuple(start // below * above for start in self.starts), order)

    def whole(self, unit: int) -> bool:
        """Return whether so many neighbouring features always lie in one column, one behind the other."""
        held = self.held.reshape(-1, unit)
        starts = np.array(self.starts)
        return bool(
            (np.diff(held, axis=1) == 1).all() and (held[:, 0] % unit == 0).all() and (starts % unit == 0).all()
        )

    @property
    def features(self) -> int:
        """The layout has so many features."""
        return self.starts[-1]

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Each column has so many features."""
        return np.array(self.starts[1:], np.int64) - np.array(self.starts[:-1], np.int64)

    @property
    def most(self) -> int:
        """A tile has so many rows: the most features that a column has, at least one."""
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


@lru_cache(maxsize=64)
def layouts_of(network: Network, columns: int) -> dict[str, ColumnLayout]:
    """Return the layout of each tensor of a network on some columns of PEs.

    Raises
    ------
    UnsupportedError
        Tensors that one operation takes feature by feature, or head by head, lie in different ways, or what it wants
        in one column lies in several; the message names it.
    """
    from fabric.networks.graph.table import OPERATIONS
    from fabric.networks.graph.tensors import INPUT

    tensors = network.tensors
    found = {INPUT: _laid(network, tensors[INPUT], columns)}
    for node in network.nodes:
        row, given = OPERATIONS[node.op], [found[name] for name in node.inputs]
        tensor, sizes = tensors[node.name], [tensors[name].rows for name in node.inputs]
        if row.headwise and network.head_columns > 1:
            wanted = [_laid(network, tensors[name], columns) for name in node.inputs]
            if given != wanted or len({tensors[name].rows // tensors[name].unit for name in node.inputs}) > 1:
                what = f"{node.name}: its heads do not lie on {network.head_columns} columns each as what it takes does"
                raise UnsupportedError(what, feature="layout", where="graph", hint="a column of PEs for each head")
            found[node.name] = given[0]
            continue
        units, above = row.units_of(node, sizes), row.units(node, sizes[0])[1]
        parts = list(zip(given, units, strict=True))
        if not row.differ and not all(layout.whole(unit) for layout, unit in parts):
            what = f"{node.name}: {units[0]} neighbouring features that it wants in one column lie in several"
            raise UnsupportedError(what, feature="layout", where="graph", hint="fewer columns of PEs, or fewer groups")
        alike = row.featurewise or row.channelwise
        if alike and len({layout.scaled(unit, 1) for layout, unit in parts}) > 1:
            what = f"{node.name}: the tensors that it takes do not lie in the same columns: {' and '.join(node.inputs)}"
            raise UnsupportedError(what, feature="layout", where="graph", hint="a single column of PEs")
        found[node.name] = _laid(network, tensor, columns)
        if row.differ:
            found[node.name] = given[0].beside(given[1])
        elif row.channelwise:
            found[node.name] = given[0].scaled(units[0], above)
        elif row.featurewise or row.in_place:
            found[node.name] = given[0]
    return found


def _laid(network: Network, tensor: NetworkTensor, columns: int) -> ColumnLayout:
    """Return the layout of what a product gives: nearly equal chunks of whole units, or heads on several columns."""
    parts, halves = network.head_columns, network.halves
    if parts == 1 or not tensor.head:
        return ColumnLayout.even(tensor.rows, columns, tensor.unit)
    heads = tensor.rows // tensor.unit
    if parts > tensor.head // halves:
        raise UnsupportedError(
            f"{tensor.name}: {tensor.head} features of a head do not lie on {parts} columns of PEs",
            feature="layout",
            where="mesh.head_columns",
            hint=f"at most {tensor.head // halves}",
        )
    if heads * parts > columns:
        raise UnsupportedError(
            f"{tensor.name}: {heads} heads on {parts} columns of PEs each do not lie on {columns}",
            feature="layout",
            where="mesh.head_columns",
            hint=f"{heads * parts} columns, or at most {max(1, columns // heads)} of a head",
        )
    return ColumnLayout.of_heads(tensor.rows, columns, tensor.unit, tensor.head, parts, halves)
