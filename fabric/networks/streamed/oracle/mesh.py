"""A mesh sums over columns and over tokens in an order of its own, which bits depend on: the oracle keeps it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fabric.networks.arithmetic import MixedArithmetic
from fabric.networks.graph.plain import EPSILON
from fabric.networks.graph.tensors import NetworkTensor
from fabric.networks.streamed.oracle.places import evenly
from wse_core.formats import Half
from wse_core.params import Machine

__all__ = ["MeshArithmetic"]

Bits = NDArray[np.uint32]


class MeshArithmetic(MixedArithmetic):
    """A mesh has features over its columns, as the layouts of tensors say, samples over its rows.

    An image may lie on several rows, the strips of its rows of pixels from north to south, or whole in each of them;
    then what the first one has counts, and the others add zeros.  The columns may fall into groups with other samples
    each, whose sums are added from west to east.

    Parameters
    ----------
    machine : Machine
    dtype : {"f16", "cb16"}
    width, height : int
        PEs of a group of columns.
    samples : int
        Of the wafer.
    image_rows : int
        Rows of PEs that an image lies on.
    column_groups : int

    Attributes
    ----------
    strips : int
        So many strips of an image lie in rows of PEs of their own, in the operation that is done; 1: it lies whole.
    epsilon : float
        The operation that is done adds this below its root.
    """

    def __init__(
        self,
        machine: Machine,
        dtype: Half,
        width: int,
        height: int,
        samples: int,
        image_rows: int = 1,
        column_groups: int = 1,
    ) -> None:
        super().__init__(machine, dtype)
        self.width, self.image_rows, self.groups = width, image_rows, column_groups * height // image_rows
        self.column_groups = column_groups
        self.tokens, self.strips = samples // self.groups, 1
        self.epsilon, self.head_columns = EPSILON, 1

    def owners(self, tensor: NetworkTensor) -> NDArray[np.int64]:
        """Return the column that owns each feature of a tensor."""
        found = np.empty(tensor.rows, np.int64)
        for column, mine in enumerate(self.columns(tensor)):
            found[mine] = column
        return found

    def columns(self, tensor: NetworkTensor) -> list[NDArray[np.int64]]:
        """Return the features of each column; without a network nearly equal chunks."""
        return evenly(tensor, self.width)

    def over_columns(
        self, rows: Bits, operation: Callable[[Bits, Bits], Bits], start: int, tensor: NetworkTensor, pixels: int = 1
    ) -> list[Bits]:
        """Return per column the operation over its rows, from `start` on: the features of a tensor, or its channels."""
        found = []
        for mine in self.columns(tensor):
            total = np.full(rows.shape[1:], start, np.uint32)
            for row in rows[mine[::pixels] // pixels]:
                total = operation(total, row)
            found.append(total)
        return found

    def joined(self, parts: Sequence[Bits], operation: Callable[[Bits, Bits], Bits]) -> Bits:
        """Return a sum or maximum over columns, column 0 first; `parts` has one row of samples per column."""
        total = parts[0]
        for part in parts[1:]:
            total = operation(part, total)
        return total

    def mean(self, rows: Bits, tensor: NetworkTensor) -> Bits:
        """Return the mean over the features of a tensor."""
        return self.times(self.joined(self.over_columns(rows, self.add, 0, tensor), self.add), 1 / len(rows))

    def south(self, vectors: Bits) -> Bits:
        """Return sums over the tokens: in each PE from 0, then over the PEs (`south_of`); the last axis goes."""
        return self.south_of_planes(vectors[..., None, :])

    def south_of_planes(self, planes: Bits) -> Bits:
        """Return sums over planes of shape (..., pixels, samples): pixel by pixel in each PE, then over the PEs."""
        rows = self.groups, self.strips  # of PEs; there may be no sums at all
        each = planes.shape[-2] * planes.shape[-1] // (self.groups * self.strips)
        return self.south_of(self.by_strip(planes).reshape(*planes.shape[:-2], *rows, each))

    def south_of_channels(self, rows: Bits) -> Bits:
        """Return sums over rows of shape (..., pixels, samples): pixels, then samples of a PE, then over the PEs."""
        by_strip = np.moveaxis(self.by_strip(rows), -2, 0)
        return self.south_of(self.summed(by_strip))

    def by_strip(self, planes: Bits) -> Bits:
        """Return planes of shape (..., pixels, samples) as (..., groups of rows, strips, pixels, tokens)."""
        pixels = planes.shape[-2] // self.strips
        parts = planes.reshape(*planes.shape[:-2], self.strips, pixels, self.groups, self.tokens)
        return np.moveaxis(parts, -2, -4)

    def summed(self, rows: Bits) -> Bits:
        """Return the sums over the first axis, from 0 on."""
        total = np.zeros(rows.shape[1:], np.uint32)
        for row in rows:
            total = self.add(total, row)
        return total

    def south_of(self, by_pe: Bits) -> Bits:
        """Return sums of what each PE has, in the last axis, then north to south, then west to east over the groups.

        The PEs of a column are groups of rows, and strips.
        """
        own = np.zeros(by_pe.shape[:-1], np.uint32)
        for token in range(by_pe.shape[-1]):
            own = self.add(by_pe[..., token], own)
        others = np.zeros((*own.shape[:-1], self.image_rows - self.strips), np.uint32)
        rows = self.groups * self.image_rows  # of PEs; there may be no sums at all
        every = np.concatenate([own, others], axis=-1).reshape(*own.shape[:-2], rows)
        by_group = every.reshape(*every.shape[:-1], self.column_groups, rows // self.column_groups)
        return self._one_by_one(self._one_by_one(by_group))

    def _one_by_one(self, parts: Bits) -> Bits:
        """Return sums over the last axis, each number added to the sum of those before it."""
        total = parts[..., 0]
        for k in range(1, parts.shape[-1]):
            total = self.add(total, parts[..., k])
        return total
