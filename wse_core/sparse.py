"""The index of a sparse matrix is given as 16-bit steps, as it travels beside 16-bit values.

An entry is one wavelet: the value in the lower half, the step in the upper one.  The step of an entry is the number of
columns from the entry before it in the row, or from column 0.  A step of `ESCAPE` is no entry: it moves on by `ESCAPE`
columns, so that any gap can be written.  Four bytes per entry.

Source: the weight streaming white paper, sections 6.3 and 7.4: CSR with 16-bit values and a 16-bit delta index; the
escape is ours (the paper does not say what happens to larger gaps).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["ESCAPE", "decode_steps", "encode_steps", "pack", "unpack"]

ESCAPE = 0xFFFF


def encode_steps(
    indptr: ArrayLike, indices: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.uint16], NDArray[np.int64]]:
    """Return the steps of a sparsity pattern.

    Parameters
    ----------
    indptr : array_like of int, shape (rows + 1,)
        Where each row begins in `indices`.
    indices : array_like of int
        Columns, ascending within a row.

    Returns
    -------
    starts : numpy.ndarray of int64, shape (rows + 1,)
        Where each row begins in `steps`.
    steps : numpy.ndarray of uint16
    source : numpy.ndarray of int64
        Entry of `indices` of each step; -1 for an escape.
    """
    indptr, indices = np.asarray(indptr, np.int64), np.asarray(indices, np.int64)
    gaps = np.diff(indices, prepend=0)
    first = indptr[:-1][indptr[:-1] < indptr[1:]]
    gaps[first] = indices[first]
    fillers = gaps // ESCAPE
    places = np.arange(len(indices)) + np.cumsum(fillers)  # of the entries among the steps
    total = len(indices) + int(fillers.sum())
    steps, source = np.full(total, ESCAPE, np.uint16), np.full(total, -1, np.int64)
    steps[places] = gaps - fillers * ESCAPE
    source[places] = np.arange(len(indices))
    starts = indptr + np.concatenate([[0], np.cumsum(fillers)])[indptr]
    return starts, steps, source


def decode_steps(starts: ArrayLike, steps: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (indptr, indices) of steps; the inverse of `encode_steps`."""
    starts, steps = np.asarray(starts, np.int64), np.asarray(steps, np.int64)
    ends = np.cumsum(steps)
    before = np.concatenate([[0], ends])[starts[:-1]]  # columns passed in the rows above
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    real = steps != ESCAPE
    indices = (ends - before[rows])[real]
    indptr = np.concatenate([[0], np.cumsum(real)])[starts]
    return indptr, indices


def pack(values: ArrayLike, steps: ArrayLike) -> NDArray[np.uint32]:
    """Return wavelets (uint32) of 16-bit values and steps."""
    upper = np.asarray(steps, np.uint16).astype(np.uint32) << np.uint32(16)
    return np.asarray(values, np.uint16).astype(np.uint32) | upper


def unpack(words: ArrayLike) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Return (values, steps) of wavelets, uint16 each."""
    words = np.asarray(words, np.uint32)
    return (words & 0xFFFF).astype(np.uint16), (words >> 16).astype(np.uint16)
