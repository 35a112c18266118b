"""What the ranks of a run need of each other, whoever carries it between them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["DOWN", "UP", "RankLostError", "Words", "World"]

UP, DOWN = 0, 1
"""A rank has two sides: the one before it, whose rows lie above, and the one after it."""

Words = NDArray[np.uint64]


class RankLostError(BaseException):
    """Another rank has ended, so this one cannot go on; whoever ended first says why."""


class World(Protocol):
    """A world has the ranks 0 to `size` - 1.  All of them call the same methods in the same order, `swap` as neighbours
    agree.
    """

    rank: int
    size: int

    def swap(self, messages: dict[int, Words], room: int) -> dict[int, Words]:
        """Send a message to the rank on each of some sides and return theirs, of `room` words at most."""

    def gather(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of all ranks, as many of each, shape (size, n)."""

    def share(self, thing: Any) -> list[Any]:
        """Return what each rank has, in order."""

    def agree(self, text: str, seconds: float) -> bool:
        """Say whether all ranks come here with the same text before some seconds are over."""

    def abort(self, status: int) -> None:
        """End the ranks that wait for this one."""
