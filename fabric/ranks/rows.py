"""The rows of a fabric are shared out among ranks, and each rank loads its part."""

from __future__ import annotations

import dataclasses

import numpy as np

from wse_core.image import DIR_N, DIR_S, FabricSpec

__all__ = ["crosses", "owner", "part_of", "rows_of"]


def rows_of(height: int, rank: int, size: int) -> tuple[int, int]:
    """Return the first row of a rank and the one behind its last; ranks beyond the rows have none."""
    used = min(height, size)
    if rank >= used:
        return height, height
    return rank * height // used, (rank + 1) * height // used


def owner(y: int, height: int, size: int) -> int:
    """Return the rank that has a row."""
    return next(rank for rank in range(size) if y < rows_of(height, rank, size)[1])


def crosses(spec: FabricSpec, y: int) -> bool:
    """Say whether a route leads from row `y` to the one above it or back, in any position of a switch."""
    if not 0 < y < spec.height:
        return False
    return any((t[y - 1]["tx"] & 1 << DIR_S).any() or (t[y]["tx"] & 1 << DIR_N).any() for t in spec.routes.values())


def part_of(spec: FabricSpec, low: int, high: int) -> FabricSpec:
    """Return a fabric of the same size with programs and host streams in some rows only.

    Routes stay: where wavelets of a color can come from is asked of all of them.
    """
    index = np.full_like(spec.program_index, -1)
    index[low:high] = spec.program_index[low:high]
    inputs, outputs = (
        tuple(stream for stream in streams if low <= stream[1] < high) for streams in (spec.inputs, spec.outputs)
    )
    return dataclasses.replace(spec, program_index=index, inputs=inputs, outputs=outputs)
