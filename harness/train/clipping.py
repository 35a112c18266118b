"""Clipping of gradients by their global norm: none is larger than it may be, their direction stays.

The norm is the root of the exact sum of all squares, rounded once, so that it has one value on every host and in every
order of addition.  If it is too large, all gradients are multiplied in their format by the largest norm over theirs.

Source: R. Pascanu et al., "On the difficulty of training recurrent neural networks", 2013, algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = ["factor", "global_norm"]


def global_norm(parts: Sequence[np.ndarray]) -> float:
    """Return the norm of all elements of some arrays of float32 together.

    Examples
    --------
    >>> global_norm([np.array([3.0], np.float32), np.array([0.0, 4.0], np.float32)])
    5.0
    """
    squares = (np.square(part, dtype=np.float64).reshape(-1) for part in parts)
    return math.sqrt(math.fsum(square for part in squares for square in part.tolist()))


def factor(norm: float, most: float | None) -> float:
    """Return what gradients of a norm are multiplied with so that it is at most `most`; 1 if it is, or without limit.

    Examples
    --------
    >>> factor(10.0, 2.5), factor(2.0, 2.5), factor(10.0, None)
    (0.25, 1.0, 1.0)
    """
    return 1.0 if most is None or norm <= most else most / norm
