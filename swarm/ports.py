"""A wafer at the end of a link: what comes enters in its cycle, what leaves is told with its cycle.

The port keeps two clocks apart: that of the system, on which everything here is said, and that of the wafer's engine,
which began `origin` cycles earlier.  A wafer is simulated until a cycle before which nothing unknown can reach it
(`swarm.passage`), never further.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.networks.streamed.script import Script
from swarm.servers import Server, in_order
from swarm.tree import CHUNK, Endpoint

__all__ = ["KnownTimes", "WaferPort", "link_times", "whole"]

Times = NDArray[np.float64]
ROUNDING = 1e-6  # of a cycle: what sums of gaps may be off


def whole(times: Times | float) -> NDArray[np.int64]:
    """Return the first whole cycles that are not before some times."""
    return np.ceil(np.asarray(times, np.float64) - ROUNDING).astype(np.int64)


def link_times(link: Server, arrived: Times, ready: int, ended: int) -> Times:
    """Return when words are at a wafer, behind its samples, which come over the same link from `ended` to `ready`."""
    there = np.maximum(arrived, ready)
    behind = arrived > ended
    there[behind] = np.maximum(link.through(arrived[behind]) - link.gap, there[behind])
    return there


class WaferPort(Endpoint):
    """Parameters: the wafer (`Wafer`, or one on another rank, see `swarm.crew`), and the cycles of its link per word.

    Attributes
    ----------
    ended : int
        When the wafer had finished its last pass.
    entered : ndarray
        Per word of the present pass, in the order of sending: when it entered; not a number: not yet.
    left : ndarray
        Per number of the present pass, in the order of asking: when it left.
    hops, macs, host_seconds
        Of the present pass.
    """

    def __init__(self, wafer: Any, gap: float = 0.0) -> None:
        self.wafer, self.link = wafer, Server(gap)
        self.origin, self.ended = wafer.fabric.cycle, 0
        for stream in chain(*wafer.resident.inputs):
            wafer.fabric.entered(stream)  # from here on it is kept in mind

    def set_clock(self, clock: int, ended: int) -> None:
        """Say what time it is on the clock of the system, and when the wafer ended its last pass."""
        self.origin, self.ended = self.wafer.fabric.cycle - clock, ended

    # --- values -------------------------------------------------------------------------------------------------------

    def expect(self, script: Script, streams: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        """Say what the words that come are for, and which are commands."""
        self.script = script
        self._control = np.concatenate([flags for _, flags in streams])
        self._words, self._given = np.zeros(script.n_words, np.uint32), 0
        self._numbers, self._taken = np.zeros(len(script.back), np.float32), 0

    def weights(self, words: np.ndarray) -> None:
        stop = self._given + len(words)
        self._words[self.script.sequence[self._given : stop]] = words
        self._given = stop

    def gradients(self, count: int) -> Iterator[np.ndarray]:
        """Yield the next numbers that came back, in the order of asking."""
        stop = self._taken + count
        numbers = self._numbers[self.script.back[self._taken : stop]]
        self._taken = stop
        for start in range(0, count, CHUNK):
            yield numbers[start : start + CHUNK]

    # --- time ---------------------------------------------------------------------------------------------------------

    def begin(self, ready: int) -> None:
        """Begin a pass; no word enters before `ready`."""
        script, columns = self.script, self.script.columns
        self.ready, self.clock, self.quiet = ready, self.ended, False
        self.link.free = float(ready)
        self.entered, self.left = np.full(script.n_words, np.nan), np.full(len(script.back), np.nan)
        self._known = KnownTimes(self.entered), KnownTimes(self.left)
        self._place, self._back = _inverse(script.sequence), _inverse(script.back)
        self._sender, self._first = script.sender, script.starts
        self._got = np.concatenate([[0], np.cumsum([len(places) for places in script.places])])
        self._in, self._out = [0] * columns, [0] * columns
        self._lengths, self._numbered = np.diff(self._first), np.diff(self._got)
        self._offered, self._last = np.zeros(columns, np.int64), np.zeros(columns, np.int64)
        self._leave, self._leaves = np.zeros(columns, np.int64), np.zeros(columns, np.int64)
        self._some = [[np.empty(0, np.int64)] * len(groups) for groups in self.wafer.resident.inputs]
        self.offered = self.allowed = 0
        self.limited, self._complete, self._new = False, False, True
        self.hops = self.macs = 0
        self.host_seconds = 0.0

    def offer(self, arrived: Times) -> None:
        """Let the next words of the pass enter when they have arrived, and those of their column before them."""
        if not len(arrived):
            return
        script, stop = self.script, self.offered + len(arrived)
        self._new = True
        numbers = script.sequence[self.offered : stop]
        there = link_times(self.link, arrived, self.ready, self.ended)
        for column, mine in _by_column(self._sender[numbers], script.columns):
            at = in_order(whole(there[mine]), self._last[column]).astype(np.int64)
            self._last[column], chosen = at[-1], numbers[mine]
            self._offered[column] += len(chosen)
            for stream in self.wafer.resident.inputs[column]:
                self.wafer.fabric.send(stream, self._words[chosen], self._control[chosen], at=at + self.origin)
        self.offered = stop

    def allow(self, taken: Times) -> None:
        """Let the next numbers of the pass leave, each not before its cycle; all of them so far."""
        if self.allowed == len(self.left):
            return
        if not self.limited:
            if len(taken) == len(self.left) and not taken.any():
                self.allowed = len(taken)
                return
            self.limited = self._new = True
            for stream in self.wafer.resident.outputs:
                self.wafer.fabric.accept(stream, None)
                self.wafer.fabric.accept(stream, np.empty(0, np.int64))
        new = self.script.back[self.allowed : self.allowed + len(taken)]
        self._new = self._new or len(new) > 0
        times = np.maximum(whole(taken), -self.origin)  # what is past is past
        for column, mine in _by_column(np.searchsorted(self._got, new, "right") - 1, self.script.columns):
            self._leave[column] += len(mine)
            self._leaves[column] = max(int(times[mine[-1]]), self._leaves[column])
            self.wafer.fabric.accept(self.wafer.resident.outputs[column], times[mine] + self.origin)
        self.allowed += len(taken)

    def lacks(self) -> tuple[float, float]:
        """Return the first cycles in which the wafer could lack a word that was not offered, and leave for a number.

        Through a stream goes one word a cycle, those that were offered first, the last of them not before its cycle.
        """
        more = self._offered < self._lengths
        some = np.array([max(map(len, ahead)) for ahead in self._some])
        dry = np.maximum(self.clock + self._offered - self._in - some, self._last + 1)[more]
        more = self.limited & (self._leave < self._numbered)
        full = np.maximum(self.clock + self._leave - self._out, self._leaves + 1)[more]
        return min(dry.tolist(), default=np.inf), min(full.tolist(), default=np.inf)

    def wanted(self, horizon: float) -> dict[str, Any] | None:
        """Return how the engine has to run until a cycle, or to the end of the pass if that is infinite.

        None: it does not, as it stands there already or is at rest, when each run would take it a cycle on.
        """
        last = bool(np.isinf(horizon))
        limit = None if last else int(whole(horizon)) + self.origin - self.wafer.fabric.cycle
        if limit is not None and limit <= 0:
            return None
        if self.quiet and not self._new and (not last or self._complete):
            return None
        return {"max_cycles": limit, "on_limit": "return", "on_wait": "raise" if last else "return"}

    def advance(self, horizon: float) -> bool:
        """Simulate until a cycle, or to the end of the pass if that is infinite; return whether anything happened."""
        how, last = self.wanted(horizon), bool(np.isinf(horizon))
        if how is None:
            self.clock = self.ended if last else int(whole(horizon))
            return False
        run = self.wafer.fabric.run(**how)
        self.quiet, self._complete, self._new = run.status != "limit", run.status == "complete", False
        if run.cycles:
            self.ended = run.start + run.cycles - self.origin
        self.clock = self.ended if last else int(whole(horizon))
        self.hops, self.macs = self.hops + run.wavelet_hops, self.macs + run.macs
        self.host_seconds += run.host_seconds
        return self._hear()

    def _hear(self) -> bool:
        """Take what entered and what left; return whether there was any."""
        resident, heard = self.wafer.resident, 0
        for column in range(len(resident.inputs)):
            times = self._entered(column)
            first = self._first[column] + self._in[column]
            self.entered[self._place[first : first + len(times)]] = times
            self._in[column] += len(times)
            heard += len(times)
        for column, stream in enumerate(resident.outputs):
            came = self.wafer.fabric.receive(stream)
            first = self._got[column] + self._out[column]
            self.left[self._back[first : first + len(came)]] = came.cycles - self.origin
            self._numbers[first : first + len(came)] = came.payload.view(np.float32)
            self._out[column] += len(came)
            heard += len(came)
        return heard > 0

    def _entered(self, column: int) -> NDArray[np.int64]:
        """Return when the next words of a column had entered, in all of its groups."""
        some = [
            np.concatenate([before, self.wafer.fabric.entered(stream) - self.origin])
            for before, stream in zip(self._some[column], self.wafer.resident.inputs[column], strict=True)
        ]
        count = min(map(len, some))
        self._some[column] = [times[count:] for times in some]
        return np.max([times[:count] for times in some], axis=0)

    def known(self) -> tuple[Times, Times]:
        """Return when words entered and numbers left, each with all before it, as far as that is known."""
        return self._known[0].now(), self._known[1].now()

    def finish(self) -> None:
        """End a pass of the wafer."""
        if self.limited:
            for stream in self.wafer.resident.outputs:
                self.wafer.fabric.accept(stream, None)


def _by_column(columns: NDArray[np.int64], count: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each of `count` columns that occurs, and the places where it does."""
    order = np.argsort(columns.astype(np.uint16), kind="stable")
    ends = np.searchsorted(columns[order], np.arange(count + 1))
    yield from ((k, order[ends[k] : ends[k + 1]]) for k in np.flatnonzero(np.diff(ends)).tolist())


def _inverse(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each number stands in an order of all of them."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return places


class KnownTimes:
    """A `KnownTimes` follows times as they become known, each together with all before it.

    Parameters
    ----------
    times : ndarray of float
        Not a number where not known yet; filled in by whoever learns of them.
    """

    BLOCK = 4096
    """So many are looked at together: work is proportional to what is new, however many are still to come."""

    def __init__(self, times: Times) -> None:
        self.times, self._ordered, self._count = times, np.empty(len(times)), 0

    def now(self) -> Times:
        """Return times in order up to the first that is not known."""
        found = self.BLOCK
        while found == self.BLOCK:
            block = self.times[self._count : self._count + self.BLOCK]
            missing = np.isnan(block)
            found = int(missing.argmax()) if missing.any() else len(block)
            last = float(self._ordered[self._count - 1]) if self._count else 0.0
            self._ordered[self._count : self._count + found] = in_order(block[:found], last)
            self._count += found
        return self._ordered[: self._count]
