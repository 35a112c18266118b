"""A large layout is described by, drawn from and copied by its kinds of rows, columns and PEs.

A wafer has 750,000 PEs, but the layouts of programs have few kinds of rows and columns.  A *band* is a longest run of
neighbouring rows (or columns) that are equal in every given plane.

Timing: none; a few passes over each plane.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

__all__ = ["bands", "occurring"]


def bands(planes: Iterable[np.ndarray], axis: int) -> np.ndarray:
    """Return where bands begin, and the end of the last one.

    Parameters
    ----------
    planes : iterable of ndarray
        Of one shape (height, width), at least one.
    axis : int
        0 for rows, 1 for columns.

    Returns
    -------
    ndarray of int
        Band k is ``range(found[k], found[k + 1])``.

    Examples
    --------
    >>> bands([np.array([[1, 1, 2], [1, 1, 2]])], axis=1).tolist()
    [0, 2, 3]
    """
    changes: np.ndarray | None = None
    size = 0
    for plane in planes:
        size = plane.shape[axis]
        first, second = (plane[:-1], plane[1:]) if axis == 0 else (plane[:, :-1], plane[:, 1:])
        differ = (first != second).any(axis=1 - axis)
        changes = differ if changes is None else changes | differ
    if changes is None:
        raise ValueError("bands of no plane")
    return np.concatenate(([0], np.flatnonzero(changes) + 1, [size]))


def occurring(numbers: np.ndarray) -> list[int]:
    """Return the different values in an array of small integers from -1 on, in order, without sorting the array."""
    counts = np.bincount(numbers.reshape(-1) + 1)
    return (np.flatnonzero(counts) - 1).tolist()
