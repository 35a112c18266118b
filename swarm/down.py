"""A word goes this way down: store, link, tree, to the edge of every wafer, in the one order of the script.

    tiers     a word whose parameter lies behind DRAM is read ahead, each tier in order, at most half of the DRAM ahead
              of the stream
    release   a word leaves when its value is up to date; words before it go first
    room      at most `Links.window` words are on the way to a wafer or wait there; all wafers must have room
    store     the rate at which the memory service streams
    answer    a word that carries what is made of sums of the same pass waits for them, and so does all behind it
    planes    chunks of words go out on the planes in turn, each at the rate of a link, or of a node if that is slower
    tree      a latency per level; words of a column arrive in order

All times are in cycles of the wafers, on the clock of the system.  `Down.extend` goes as far as is known when earlier
words entered the wafers: what is not known yet cannot reach a wafer before `Down.reach`.

Source: weight streaming white paper, sections 6.3, 6.4 and 7.4; order of the planes as in `swarm.planes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memx.tiers import Tiers
from swarm.servers import Server, in_order
from swarm.timing import WORD, Links

__all__ = ["Down"]

Times = NDArray[np.float64]


class Down:
    """Parameters as they are in `swarm.system.System`.

    Parameters
    ----------
    links : Links
    tiers : Tiers
    away : ndarray
        Cycles from the top of the tree to each system.
    hertz : float
        Cycles per second.

    Attributes
    ----------
    sent : ndarray
        Per word of the present pass, in the order of sending: when it is at the top of the tree; the first `known`.
    """

    def __init__(self, links: Links, tiers: Tiers, away: Times, hertz: float) -> None:
        self.links, self.away = links, away
        slow = min(links.rate, links.node_rate) if len(away) > 1 else links.rate
        self.store = Server(hertz * WORD / tiers.stream_rate)
        self.planes = [Server(hertz * WORD * 8 / slow) for _ in range(links.planes)]
        self.reads, self.ahead = [Server(hertz / tier.rate) for tier in tiers.behind], tiers.window
        self.back = away + max(1.0, hertz * links.turn)  # until it is heard that there is room; a cycle at least
        self.room = np.empty(0)  # when words of earlier passes made room, of those that may still matter

    def begin(self, released: Times, read: Times | None, waiting: Sequence[int] = ()) -> None:
        """Begin a pass over the wafers.

        Parameters
        ----------
        released : ndarray
            Per word, in the order of sending: when its value is up to date.
        read : ndarray or None
            Per tier behind DRAM and word: bytes that have to be read of it.
        waiting : sequence of int, optional
            Words that wait for an answer each (`open`), in order, with all that is behind them.
        """
        self.waiting = list(waiting)
        self.released, self.known = in_order(released), 0
        self._room, self._made = np.concatenate([self.room, np.empty(len(released))]), 0
        self._there = 0.0
        self.sent, self._out = np.full(len(released), np.nan), np.full(len(released), np.nan)
        self._read = read if read is not None and read.any() else None
        self._until = np.cumsum(self._read.sum(axis=0)) if self._read is not None else None
        self._first = self.store.free if self._read is not None else 0.0

    @property
    def waits(self) -> bool:
        """Whether the next unknown word is one that waits for an answer."""
        return bool(self.waiting) and self.known == self.waiting[0]

    def open(self, answered: float) -> None:
        """Let words go that wait for the next answer, which is there at a time."""
        first = self.waiting.pop(0)
        self.released[first:] = np.maximum(self.released[first:], answered)

    def extend(self, made: Times) -> None:
        """Go on; `made`: when the next words of this pass that are known to have entered made room at the top."""
        at = len(self.room) + self._made
        self._room[at : at + len(made)] = made
        self._made += len(made)
        shift = len(self.room) - self.links.window
        limit = min(len(self.sent), self._made + self.links.window, *self.waiting[:1])
        while self.known < limit:
            stop = limit
            if self._until is not None:
                done = self._until[self.known - 1] if self.known else 0.0
                stop = max(self.known + 1, min(limit, int(np.searchsorted(self._until, done + self.ahead, "right"))))
            part = slice(self.known, stop)
            ready = self.released[part].copy()
            if self._read is not None:
                ready = in_order(self._fetched(part, ready), self._there)
                self._there = float(ready[-1])
            needed = np.arange(self.known, stop) + shift
            free = np.where(needed >= 0, self._room[np.clip(needed, 0, None)], 0.0)
            ready = in_order(np.maximum(ready, free))
            out = self.store.through(ready)
            number = np.arange(self.known, stop) // self.links.chunk % len(self.planes)
            for plane, server in enumerate(self.planes):
                mine = number == plane
                if mine.any():
                    self.sent[part][mine] = server.through(out[mine])
            self._out[part], self.known = out, stop

    def _fetched(self, part: slice, ready: Times) -> Times:
        """Return when words are ready that have to be read from tiers behind DRAM first."""
        assert self._read is not None
        assert self._until is not None
        needed = self._until[part] - self.ahead  # so many bytes have to be gone before the last byte of a word is read
        last = np.searchsorted(self._until, needed, "left")
        room = np.where(needed > 0, self._out[np.clip(last, 0, max(0, self.known - 1))], self._first)
        if not self.known:
            room[:] = self._first
        there = ready.copy()
        for tier, sizes in zip(self.reads, self._read[:, part], strict=True):
            wanted = sizes > 0
            read = tier.through(np.maximum(ready, room)[wanted], sizes[wanted])
            there[wanted] = np.maximum(there[wanted], read)
        return there

    def arrived(self, system: int, first: int, stop: int) -> Times:
        """Return when words of the present pass arrive at a system."""
        return self.sent[first:stop] + self.away[system]

    def reach(self, clocks: Times, counts: NDArray[np.int64]) -> float:
        """Return the earliest cycle in which the next unknown word could be at the top of the tree.

        Parameters
        ----------
        clocks : ndarray
            Until when each system was simulated.
        counts : ndarray of int
            Words in the order of sending that are known to have entered it.
        """
        if self.known == len(self.sent) or self.waits:
            return np.inf
        late = counts <= self.known - self.links.window
        return float(np.min((clocks + self.back)[late], initial=np.inf))

    def end(self, made: Times) -> None:
        """End a pass whose words all entered; `made` as of `extend`."""
        self.extend(made)
        room = self._room[: len(self.room) + self._made]
        self.room = room[room > self.store.free][-self.links.window :]

    def state(self) -> dict[str, Any]:
        """Return what the next pass depends on."""
        return {"servers": [server.free for server in (self.store, *self.reads, *self.planes)], "room": self.room}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        for server, free in zip((self.store, *self.reads, *self.planes), state["servers"], strict=True):
            server.free = float(free)
        self.room = np.asarray(state["room"], np.float64)
