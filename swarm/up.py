"""A gradient goes up: out of every wafer, link, tree of nodes that add, update units, its tier if it has one.

    planes    chunks of what comes back go over the planes in turn, in the order of asking, as the words went down
    nodes     an element goes on when it has come from all children, a latency per level, at the rate of a link or node
    updates   in order, at their rate, each weight new after the latency; a loss takes no update
    tiers     what lies behind DRAM is written there before it is new
    room      at most `Links.window` numbers are on the way from a wafer or wait; a wafer keeps what finds no room

All times are in cycles of the wafers, on the clock of the system.

Source: weight streaming white paper, sections 6.4 and 7.4; the rates of `swarm.timing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memx.tiers import Tiers
from swarm.servers import Server, in_order
from swarm.timing import WORD, Links, Updates
from swarm.tree import groups

__all__ = ["Up"]

Times = NDArray[np.float64]


class _Joint:
    """A node of the tree on one plane: takes what came from its children, in order."""

    def __init__(self, children: Sequence[_Joint | int], links: Links, hertz: float) -> None:
        self.children = children
        self.latency = hertz * links.latency
        self.server = Server(hertz * WORD * 8 / min(links.node_rate, links.rate))

    def rise(self, left: Sequence[Times]) -> Times:
        """Return when elements come to the port above, given when they left each system."""
        ready = np.max([left[c] if isinstance(c, int) else c.rise(left) for c in self.children], axis=0)
        return self.server.through(ready) + self.latency

    def servers(self) -> list[Server]:
        """Return the servers of the node and of all below."""
        return [self.server, *(s for c in self.children if isinstance(c, _Joint) for s in c.servers())]


def _joints(systems: int, links: Links, hertz: float) -> _Joint | int:
    """Return the tree over so many systems, shaped as `swarm.tree.build` makes it."""
    level: list[_Joint | int] = list(range(systems))
    while len(level) > 1:
        above: list[_Joint | int] = []
        start = 0
        for size in groups(len(level), links.ways):
            part = level[start : start + size]
            above.append(part[0] if size == 1 else _Joint(part, links, hertz))
            start += size
        level = above
    return level[0]


class Up:
    """Parameters as they are in `swarm.system.System`.

    Parameters
    ----------
    links : Links
    updates : Updates
    tiers : Tiers
    away : ndarray
        Cycles from the top of the tree to each system.
    hertz : float
        Cycles per second.

    Attributes
    ----------
    came : ndarray
        Per number of the present pass, in the order of asking: when it is in the memory service; the first `known`.
    new : ndarray
        When the weight behind it is new.
    """

    def __init__(self, links: Links, updates: Updates, tiers: Tiers, away: Times, hertz: float) -> None:
        self.links, self.away = links, away
        gap = hertz * WORD * 8 / links.rate
        self.out = [[Server(gap) for _ in range(links.planes)] for _ in away]
        self.tops = [_joints(len(away), links, hertz) for _ in range(links.planes)]
        self.units, self.latency = Server(hertz / updates.rate), hertz * updates.latency
        self.answering = hertz * updates.answer
        self.writes = [Server(hertz / tier.rate) for tier in tiers.behind]
        self.back = away + max(1.0, hertz * links.turn)
        self.room = np.empty(0)

    def begin(self, updated: NDArray[np.bool_], written: Times | None, whole: bool = False) -> None:
        """Begin a pass over the wafers.

        Parameters
        ----------
        updated : ndarray of bool
            Per number, in the order of asking: whether it updates a weight.
        written : ndarray or None
            Per tier behind DRAM and number: bytes that are written there.
        whole : bool, optional
            Nothing is updated before all numbers are there.
        """
        count = len(updated)
        self._updated, self._written, self.known, self._whole = updated, written, 0, whole
        self.came, self.new, self.begun = np.empty(count), np.empty(count), np.empty(count)
        self._last, self._ahead = 0.0, len(self.room)
        self._told = np.concatenate([in_order(self.room), np.empty(count)])  # behind those of passes before

    def extend(self, left: Sequence[Times]) -> None:
        """Go on; `left`: per system, when numbers left it, in the order of asking, as far as is known of all."""
        stop = min(len(times) for times in left)
        if stop <= self.known:
            return
        part = slice(self.known, stop)
        number = np.arange(self.known, stop) // self.links.chunk % len(self.tops)
        there = np.empty(stop - self.known)
        for plane, top in enumerate(self.tops):
            mine = number == plane
            if mine.any():
                ready = [in_order(times[part][mine]) for times in left]
                gone = [servers[plane].through(times) for servers, times in zip(self.out, ready, strict=True)]
                there[mine] = gone[top] if isinstance(top, int) else top.rise(gone)
        there = in_order(there, self._last)
        self._last = float(there[-1])
        updated = self._updated[part]
        begun = there.copy()
        if not self._whole:
            done = self.units.through(there[updated])
            begun[updated] = done - self.units.gap
            self.new[part] = self._renewed(part, there, done)
        self.came[part], self.begun[part] = there, begun
        at = self._ahead + self.known
        told = in_order(begun, float(self._told[at - 1]) if at else 0.0)
        self._told[at : at + len(told)], self.known = told, stop
        if self._whole and stop == len(self.came):  # update all weights, now that all numbers are there
            every = np.full(len(self.came), self._last)
            done = self.units.through(every[self._updated])
            self.new[:] = self._renewed(slice(0, len(self.came)), every, done)

    def _renewed(self, part: slice, there: Times, done: Times) -> Times:
        """Return when weights are new whose updates are done; what lies behind DRAM is written first."""
        updated, new = self._updated[part], there.copy()
        new[updated] = done + self.latency
        if self._written is not None:
            for tier, sizes in zip(self.writes, self._written[:, part], strict=True):
                kept = sizes > 0
                new[kept] = tier.through(new[kept], sizes[kept])
        return new

    def taken(self, system: int, first: int) -> Times:
        """Return when a system may let numbers of this pass leave, from the first on, as far as known; 0: at once."""
        count = min(len(self.came), self.known + self.links.window)
        needed = np.arange(first, count) + self._ahead - self.links.window
        late = needed >= 0
        times = np.zeros(len(needed))
        times[late] = self._told[needed[late]] + self.back[system]
        return times

    def reach(self, clocks: Times, counts: NDArray[np.int64]) -> float:
        """Return the earliest cycle in which a system could hear that the next unknown number may leave, but its way.

        Parameters
        ----------
        clocks : ndarray
            Until when each system was simulated.
        counts : ndarray of int
            Numbers in the order of asking that are known to have left it.
        """
        if self.known + self.links.window >= len(self.came):
            return np.inf
        late = counts <= self.known
        return float(np.min((clocks + self.away)[late], initial=np.inf))

    def answered(self, needed: int, made: int) -> float:
        """Return when `made` sums among the first `needed` numbers, all of them known, have been used up."""
        return float(self.came[needed - 1]) + self._answer(made)

    def answer(self, clocks: Times, counts: NDArray[np.int64], needed: int, made: int) -> float:
        """Return the earliest cycle of `answered` while numbers are missing; parameters as of `reach` and there."""
        late = counts < needed
        return float(np.max((clocks + self.away)[late])) + self._answer(made)

    def _answer(self, made: int) -> float:
        return made * self.units.gap + self.answering

    def end(self, clock: float) -> None:
        """End a pass; `clock`: nothing leaves a wafer before that."""
        room = in_order(np.concatenate([self.room, self.begun]))
        self.room = room[room + self.back.max() > clock][-self.links.window :]

    def _servers(self) -> list[Server]:
        tops = [server for top in self.tops if isinstance(top, _Joint) for server in top.servers()]
        return [self.units, *self.writes, *(server for servers in self.out for server in servers), *tops]

    def state(self) -> dict[str, Any]:
        """Return what the next pass depends on."""
        return {"servers": [server.free for server in self._servers()], "room": self.room}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        for server, free in zip(self._servers(), state["servers"], strict=True):
            server.free = float(free)
        self.room = np.asarray(state["room"], np.float64)
