"""WaferLLM's products on a mesh must give this, bit for bit: f16 sums in the order in which its PEs add.

MeshGEMM.  Places of a line make up a ring, 0, 2, 4, ... away and ..., 3, 1 back, so that neighbours of the ring are at
most two hops apart.  PE (i, j) begins with the tile of k that stands r(i) + r(j) places along the ring, r the place in
the ring, and goes back one per step.  A step adds its tile's columns one after the other, each a fused multiply-add.

MeshGEMV.  A PE multiplies its part of x with its tile; parts are added along a column: in each group from both ends to
the group's root, which adds what comes from below first, then from the first and the last group to the second root in
the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wse_core.formats import Arithmetic
from wse_core.params import machine

__all__ = ["gemm", "gemv", "product", "summed"]

F16 = Arithmetic.of(machine(), "f16")


def _add(total: NDArray[np.uint16], more: NDArray[np.uint16]) -> NDArray[np.uint16]:
    return F16.call("add", total, more).astype(np.uint16)


def _product(total: NDArray[np.uint16], x: NDArray[np.uint16], w: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Return total + x w, one fused multiply-add per k in their order."""
    for k in range(x.shape[-1]):
        left, right = np.broadcast_arrays(x[..., :, k, np.newaxis], w[..., np.newaxis, k, :])
        total = F16.call("fma", left, right, total).astype(np.uint16)
    return total


def gemm(x: np.ndarray, w: np.ndarray, p: int) -> np.ndarray:
    """Return the f16 product of x and w as a mesh of `p` x `p` PEs makes it.

    Parameters
    ----------
    x, w : ndarray of float16, shapes (m, k) and (k, n)
    p : int
    """
    ring = [*range(0, p, 2), *range(p - 1 - p % 2, 0, -2)]
    place = np.argsort(ring)
    tiles_x = x.view(np.uint16).reshape(p, len(x) // p, p, -1).transpose(0, 2, 1, 3)  # rows, k
    tiles_w = w.view(np.uint16).reshape(p, len(w) // p, p, -1).transpose(0, 2, 1, 3)  # k, columns
    i, j = np.indices((p, p))
    total = np.zeros((p, p, tiles_x.shape[2], tiles_w.shape[3]), np.uint16)
    for step in range(p):
        k = np.array(ring)[(place[i] + place[j] - step) % p]
        total = _product(total, tiles_x[i, k], tiles_w[k, j])
    return total.transpose(0, 2, 1, 3).reshape(len(x), w.shape[1]).view(np.float16)


def _reduced(parts: NDArray[Any], root: int, combine: Callable[[Any, Any], Any] = _add) -> NDArray[Any]:
    """Return the sum of parts along the first axis, from both ends to a root."""
    below = above = None
    for part in parts[:root]:
        below = part if below is None else combine(below, part)
    for part in parts[:root:-1]:
        above = part if above is None else combine(above, part)
    total = parts[root]
    for side in (above, below):
        total = total if side is None else combine(total, side)
    return total


def summed(parts: NDArray[Any], groups: int, combine: Callable[[Any, Any], Any] = np.add) -> NDArray[Any]:
    """Return what parts along the first axis come to by the two phases of a reduction over groups."""
    size = len(parts) // groups
    first = [_reduced(parts[k * size : (k + 1) * size], size // 2, combine) for k in range(groups)]
    return _reduced(np.array(first), groups // 2, combine)


def product(x: NDArray[np.float16], w: NDArray[np.float16]) -> NDArray[np.float16]:
    """Return x w of each PE: vectors (..., k) and tiles (..., k, n), one fused multiply-add per k in their order."""
    total = np.zeros((*x.shape[:-1], 1, w.shape[-1]), np.uint16)
    left = np.ascontiguousarray(x).view(np.uint16)[..., np.newaxis, :]
    return _product(total, left, np.ascontiguousarray(w).view(np.uint16))[..., 0, :].view(np.float16)


def gemv(x: np.ndarray, w: np.ndarray, p: int, groups: int) -> np.ndarray:
    """Return the f16 product of the vector x and w as `p` x `p` PEs make it, their columns in groups.

    Parameters
    ----------
    x, w : ndarray of float16, shapes (1, m) and (m, n)
    p, groups : int
    """
    tiles = w.view(np.uint16).reshape(p, len(w) // p, -1)
    own = _product(np.zeros((p, 1, w.shape[1]), np.uint16), x.view(np.uint16).reshape(p, 1, -1), tiles)[:, 0]
    return summed(own, groups, _add).view(np.float16)
