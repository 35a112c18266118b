"""The oracle of products has streamed matrices and resident rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.tensors import NetworkTensor
from fabric.networks.streamed.oracle.mesh import MeshArithmetic
from fabric.networks.streamed.parameters import StreamedParameter

__all__ = ["ask", "back", "forward", "product"]

Halves = NDArray[np.uint16]
Numbers = NDArray[np.int64]


def forward(
    a: MeshArithmetic, given: NetworkTensor, result: NetworkTensor, x: Halves, weights: StreamedParameter
) -> tuple[Halves, Halves]:
    """Return (W x + b, what was given with a row of ones behind it); a bias is added where its row lands."""
    source = np.concatenate([x, np.full((1, x.shape[1]), a.one, np.uint16)])
    rows, indices = weights.pattern.rows, weights.pattern.indices
    landing, owners = a.owners(result), a.owners(given)
    bias = indices == len(x)
    column = np.where(bias, landing[rows], owners[np.where(bias, 0, indices)])
    order = np.lexsort((np.where(bias, -1, indices), rows))  # a row's bias first, then its features
    return product(a, weights.values[order], rows[order], column[order], source, indices[order], landing), source


def back(
    a: MeshArithmetic, given: NetworkTensor, result: NetworkTensor, delta: Halves, weights: StreamedParameter
) -> Halves:
    """Return the transposed product with gradients; nothing goes back through a bias."""
    kept = weights.pattern.indices < given.rows
    rows, indices = weights.pattern.indices[kept], weights.pattern.rows[kept]
    order = np.lexsort((indices, rows))
    owners, values = a.owners(result), weights.values[kept]
    landing = a.owners(given)
    return product(a, values[order], rows[order], owners[indices[order]], delta, indices[order], landing)


def ask(a: MeshArithmetic, delta: Halves, given: Halves, weights: StreamedParameter) -> NDArray[np.uint32]:
    """Return the gradients of the weights that are asked for."""
    asked = weights.gradient_pattern
    return a.south(a.mul(a.widen(given[asked.indices]), a.widen(delta[asked.rows])))


def product(
    a: MeshArithmetic,
    values: Halves,
    rows: Numbers,
    column: Numbers,
    source: Halves,
    indices: Numbers,
    landing: Numbers,
) -> Halves:
    """Return a product, rounded: in each column from 0, entry by entry, then from the column after the owner on.

    Parameters
    ----------
    values, rows, indices, column : ndarray
        Entries in the order of arrival: weight, row of the result, row of `source`, and column of PEs.
    landing : ndarray of int
        Column that owns each row of the result.
    """
    parts = np.zeros((a.width, len(landing), source.shape[1]), np.uint32)
    lanes = column * len(landing) + rows  # entries of one column and row follow one another
    rank = np.zeros(len(rows), np.int64)
    by_lane = np.argsort(lanes, kind="stable")
    first = np.flatnonzero(np.diff(lanes[by_lane], prepend=-1))
    rank[by_lane] = np.arange(len(rows)) - np.repeat(first, np.diff(first, append=len(rows)))
    for turn in range(int(rank.max(initial=-1)) + 1):
        now = np.flatnonzero(rank == turn)
        at = column[now], rows[now]
        parts[at] = a.fma(values[now][:, None], source[indices[now]], parts[at])
    each = np.arange(len(landing))
    total = parts[(landing + 1) % a.width, each]
    for step in range(2, a.width + 1):
        total = a.add(parts[(landing + step) % a.width, each], total)
    return a.narrow(total)
