"""These are the ranks that an MPI launcher started: ``mpiexec -n 4 python -m harness kernel ... --ranks``.

Waiting is passive: on a host with as many busy processes as cores, a rank that only spins keeps the one that it waits
for from running.  It is also done in Python, so that Ctrl-C comes through.
"""

from __future__ import annotations

import itertools
import os
import pickle
import time
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.ranks.world import DOWN, UP, Words
from wse_core.errors import ConfigError

__all__ = ["MpiWorld"]

SPINS, YIELDS = 10, 40  # looks at a message before others may run, and before this rank sleeps
HEARD = 0.5  # seconds in which a launcher hands on what was said; what it has not then is lost when it ends all
NAP, MOST_NAP = 5e-5, 1e-3  # seconds, at first and after a long time


class MpiWorld:
    """The ranks of an MPI run are a `fabric.ranks.world.World`.

    Raises
    ------
    ConfigError
        There is no mpi4py, or no MPI library for it.
    """

    def __init__(self) -> None:
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise ConfigError(
                "ranks need MPI for Python",
                where="--ranks",
                cause=str(error),
                hint="pip install 'wse-sim[mpi]', then mpiexec -n 2 python -m harness ...",
            ) from None
        self._mpi: Any = MPI
        self._comm: Any = MPI.COMM_WORLD.Dup()
        self._end: Any = MPI.COMM_WORLD.Dup()  # what is under way on the other one does not matter at the end
        self.rank: int = self._comm.rank
        self.size: int = self._comm.size
        self._into: dict[int, Words] = {}

    def _wait(self, requests: list[Any], statuses: list[Any] | None = None, until: float = float("inf")) -> bool:
        """Wait for requests, until a time at most; say whether all are done."""
        looks = 0
        while not self._mpi.Request.Testall(requests, statuses):
            looks += 1
            if looks > SPINS:
                if looks < YIELDS:
                    os.sched_yield()
                elif time.monotonic() > until:
                    return False
                else:
                    time.sleep(min(MOST_NAP, NAP * (1 + looks // 500)))
        return True

    def swap(self, messages: dict[int, Words], room: int) -> dict[int, Words]:
        """Exchange messages with neighbours; see `fabric.ranks.world.World`."""
        for side in messages:
            if len(self._into.get(side, ())) < room:
                self._into[side] = np.empty(room, np.uint64)
        other = {UP: self.rank - 1, DOWN: self.rank + 1}
        requests = [self._comm.Irecv(self._into[side], other[side], 1 - side) for side in messages]
        requests += [self._comm.Isend(words, other[side], side) for side, words in messages.items()]
        statuses = [self._mpi.Status() for _ in requests]
        self._wait(requests, statuses)
        counts = [status.Get_count(self._mpi.UINT64_T) for status in statuses]
        return {side: self._into[side][:count] for side, count in zip(messages, counts, strict=False)}

    def gather(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Gather numbers of all ranks; see `fabric.ranks.world.World`."""
        found = np.empty((self.size, len(numbers)), np.int64)
        self._wait([self._comm.Iallgather(numbers, found)])
        return found

    def share(self, thing: Any) -> list[Any]:
        """Share things of all ranks; see `fabric.ranks.world.World`."""
        data = np.frombuffer(pickle.dumps(thing, 5), np.uint8)
        sizes = self.gather(np.array([len(data)], np.int64))[:, 0]
        found = np.empty(sizes.sum(), np.uint8)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        self._wait([self._comm.Iallgatherv(data, [found, sizes, starts[:-1], self._mpi.BYTE])])
        return [pickle.loads(found[a:b].data) for a, b in itertools.pairwise(starts)]

    def agree(self, text: str, seconds: float) -> bool:
        """Find out whether all ranks say the same; see `fabric.ranks.world.World`."""
        mine = np.array([zlib.crc32(text.encode())], np.int64)
        found = np.empty(self.size, np.int64)
        until = time.monotonic() + seconds
        return self._wait([self._end.Iallgather(mine, found)], until=until) and bool((found == mine).all())

    def abort(self, status: int) -> None:
        """End all ranks; see `fabric.ranks.world.World`."""
        time.sleep(HEARD)
        self._mpi.COMM_WORLD.Abort(status)
