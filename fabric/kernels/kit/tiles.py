"""Matrices are laid over a mesh of PEs: padding, tiles, and the orders in which SRAM holds them."""

from __future__ import annotations

import numpy as np

__all__ = ["columns_first", "pad", "rows_first", "tiles"]


def pad(matrix: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Return `matrix` with zeros below and to the right; itself if it has that shape."""
    if matrix.shape == (rows, columns):
        return matrix
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
