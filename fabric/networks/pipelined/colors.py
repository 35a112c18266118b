"""Colors that mean the same in every rectangle; the others are given to data paths, none twice at one place."""

from __future__ import annotations

__all__ = ["DELTA", "EAST", "ENTRY", "LOSS", "NORM", "NORTH", "pool"]

EAST = (0, 1)
"""Sums of a row of tiles have these colors, by parity of the column that sends."""
NORTH = (2, 3)
"""Sums of a column of tiles have these colors, by parity of the row that sends."""
DELTA = 4
"""Gradients of a row's outputs go to all its tiles."""
ENTRY = 5
"""Samples come from the host to the gate."""
LOSS = (6, 7)
"""Losses go from PE to PE of the loss in these colors, by parity of the row that sends."""
NORM = (8, 9, 10)
"""Sums over a sample's features have these colors: north, by parity of the row that sends, and back to all."""


def pool(colors: int) -> list[int]:
    """Return the colors that paths may have on a machine with so many."""
    return list(range(11, colors))
