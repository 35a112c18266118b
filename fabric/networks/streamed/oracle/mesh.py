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

    Parameters
    ----------
    machine : Machine
    dtype : {"f16", "cb16"}
    width, height : int
        PEs.
    samples : int
        Of the wafer.
    """

    def __init__(self, machine: Machine, dtype: Half, width: int, height: int, samples: int) -> None:
        super().__init__(machine, dtype)
        self.width, self.height, self.tokens = width, height, samples // height
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
        """Return sums over the tokens: in each PE from 0, then north to south; the last axis goes."""
        return self.south_of(vectors.reshape(*vectors.shape[:-1], self.height, self.tokens))

    def south_of_planes(self, planes: Bits) -> Bits:
        """Return sums over planes of shape (..., pixels, samples): pixel by pixel in each PE, then north to south."""
        by_pe = planes.reshape(*planes.shape[:-1], self.height, self.tokens)
        return self.south_of(np.moveaxis(by_pe, -2, -3).reshape(*planes.shape[:-2], self.height, -1))

    def south_of(self, by_pe: Bits) -> Bits:
        """Return sums of what each PE has, in the last axis, then of the PEs of a column, in the one before it."""
        own = np.zeros(by_pe.shape[:-1], np.uint32)
        for token in range(by_pe.shape[-1]):
            own = self.add(by_pe[..., token], own)
        total = own[..., 0]
        for y in range(1, self.height):
            total = self.add(total, own[..., y])
        return total
