"""Ranks that are threads of this process: the same borders and exchanges without MPI.

For tests, and to look at ranks with a debugger.  The engine leaves Python alone while it runs, so they run side by
side.
"""

from __future__ import annotations

import contextvars
import pickle
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.ranks.world import DOWN, UP, RankLostError, Words

__all__ = ["InsideWorld", "on_ranks", "worlds"]


class _Hall:
    """Where threads meet: a queue for each way between neighbours, and places to lay down what all gather."""

    def __init__(self, size: int) -> None:
        self.ways: dict[tuple[int, int], queue.SimpleQueue[Words | None]] = {
            (rank, side): queue.SimpleQueue() for rank in range(size) for side in (UP, DOWN)
        }
        self.barrier = threading.Barrier(size)
        self.laid: list[Any] = [None] * size
        self.end = threading.Barrier(size)  # who ends meets only those that end, not those that still gather
        self.told: list[Any] = [None] * size


class InsideWorld:
    """One rank of several in this process; `worlds` makes them."""

    def __init__(self, hall: _Hall, rank: int, size: int) -> None:
        self._hall, self.rank, self.size = hall, rank, size

    def swap(self, messages: dict[int, Words], room: int) -> dict[int, Words]:
        """See `fabric.ranks.world.World`."""
        for side, words in messages.items():
            self._hall.ways[self.rank + (1 if side == DOWN else -1), 1 - side].put(words.copy())
        found = {side: self._hall.ways[self.rank, side].get() for side in messages}
        if any(words is None for words in found.values()):
            raise RankLostError
        return {side: words for side, words in found.items() if words is not None}

    def share(self, thing: Any) -> list[Any]:
        """See `fabric.ranks.world.World`."""
        try:
            self._hall.barrier.wait()
            self._hall.laid[self.rank] = pickle.dumps(thing, 5)  # as between processes: nothing is shared
            self._hall.barrier.wait()
            return [pickle.loads(data) for data in self._hall.laid]
        except threading.BrokenBarrierError:
            raise RankLostError from None

    def gather(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `fabric.ranks.world.World`."""
        return np.stack(self.share(numbers))

    def agree(self, text: str, seconds: float) -> bool:
        """See `fabric.ranks.world.World`."""
        self._hall.told[self.rank] = text
        try:
            self._hall.end.wait(seconds)
        except threading.BrokenBarrierError:
            return False
        return len(set(self._hall.told)) == 1

    def abort(self, status: int) -> None:
        """See `fabric.ranks.world.World`."""
        self._hall.barrier.abort()
        for way in self._hall.ways.values():
            way.put(None)


def worlds(size: int) -> list[InsideWorld]:
    """Return `size` ranks that meet in one hall; each is for a thread of its own."""
    hall = _Hall(size)
    return [InsideWorld(hall, rank, size) for rank in range(size)]


def on_ranks(size: int, call: Callable[[InsideWorld], Any]) -> list[Any]:
    """Return what ``call(world)`` gives on each of some ranks; an exception of one of them ends all."""

    def run(world: InsideWorld) -> Any:
        try:
            return call(world)
        except BaseException:
            world.abort(1)
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(contextvars.copy_context().run, run, world) for world in worlds(size)]
    errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:  # of those that ended because another did, only if nobody says why
        raise min(errors, key=lambda error: isinstance(error, RankLostError))
    return [future.result() for future in futures]
