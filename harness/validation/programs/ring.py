"""The PEs around a plane of cells (``stencil_ring.csl``) get this from the host."""

from __future__ import annotations

import numpy as np

__all__ = ["around"]


def around(width: int, height: int, value: float, iterations: int) -> list[tuple[str, np.ndarray, int, int]]:
    """Return what the PEs beside a plane of width x height PEs send and how often, as `Session` takes it."""
    constant = np.full((1, 1, 1), value, np.float32).view(np.uint32)
    times = np.full((1, 1, 1), iterations, np.uint16)
    sides = [(x, y) for y in (0, height + 1) for x in range(1, width + 1)]
    sides += [(x, y) for x in (0, width + 1) for y in range(1, height + 1)]
    return [entry for x, y in sides for entry in (("constant", constant, x, y), ("iterations", times, x, y))]
