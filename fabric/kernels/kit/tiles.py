"""Matrices over a square of PEs: padding, tiles, and the references that follow the order of the machine."""

from __future__ import annotations

import numpy as np

from wse_core.formats import Arithmetic

__all__ = ["columns_first", "multiply", "pad", "rows_first", "tiles"]


def pad(matrix: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Return `matrix` with zeros below and to the right."""
    out = np.zeros((rows, columns), matrix.dtype)
    out[: matrix.shape[0], : matrix.shape[1]] = matrix
    return out


def tiles(matrix: np.ndarray, p: int, q: int | None = None) -> np.ndarray:
    """Return the p x q tiles (default p x p) of a matrix: array (row of tiles, column of tiles, rows, columns)."""
    q = p if q is None else q
    rows, columns = matrix.shape[0] // p, matrix.shape[1] // q
    return matrix.reshape(p, rows, q, columns).swapaxes(1, 2)


def columns_first(found: np.ndarray) -> np.ndarray:
    """Return tiles as the PEs hold them by columns: array (row of PEs, column of PEs, elements)."""
    return np.ascontiguousarray(found.swapaxes(2, 3)).reshape(*found.shape[:2], -1)


def rows_first(found: np.ndarray) -> np.ndarray:
    """Return tiles as the PEs hold them by rows."""
    return np.ascontiguousarray(found).reshape(*found.shape[:2], -1)


def multiply(given: Arithmetic, single: Arithmetic, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return C + A B as f32 bits: for k = 0, 1 ... ``C = fma(A[:, k], B[k, :], C)`` with one rounding each.

    Parameters
    ----------
    given, single : Arithmetic
        Format of A and B, and f32.
    a, b, c : ndarray
        Bit patterns, shapes (m, k), (k, n), (m, n).
    """
    for k in range(a.shape[1]):
        column, row = a[:, k, np.newaxis], b[np.newaxis, k]
        c = given.call("fma_mixed", column, row, c) if given.words == 1 else single.call("fma", column, row, c)
    return c
