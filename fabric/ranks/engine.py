"""The engine interface over ranks holds the rows of one fabric in several processes, with the results of one.

Every rank makes the same calls.  What the host writes goes to the ranks that have the rows; what it reads comes from
them to all.  Members are those of docs/internals.md, "Who talks to what".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabric.engine.engine import Engine
from fabric.engine.part import Part
from fabric.ranks import clock
from fabric.ranks.rows import crosses, owner, part_of, rows_of
from fabric.ranks.world import World
from wse_core.errors import UnsupportedError, WseError
from wse_core.image import FabricSpec
from wse_core.work import found_in

__all__ = ["RankedEngine"]

T = TypeVar("T")


class RankedEngine:
    """A `RankedEngine` is one rank's side of a fabric that several have together.

    Parameters
    ----------
    spec : FabricSpec
        The whole fabric; the same on every rank.
    world : World
        The ranks.

    Attributes
    ----------
    exchanges : int
        Messages to neighbours in the last run.
    """

    bands = threads = 1

    def __init__(self, spec: FabricSpec, world: World) -> None:
        self.spec, self.world, self.status, self.exchanges = spec, world, "new", 0
        self.low, self.high = rows_of(spec.height, world.rank, world.size)
        self._engine = Engine(part_of(spec, self.low, self.high), pack=False)
        self._part = Part(self._engine, self.low, self.high, crosses(spec, self.low), crosses(spec, self.high))
        self._buffers = clock.buffers_of(self._part)
        self._facts = clock.gathered(self._part, world)
        self.fault: dict[str, Any] | None = None
        # The streams of each rank are numbered from 0.
        self._inputs = self._numbers(spec.inputs)
        self._outputs = self._numbers(spec.outputs)

    @property
    def trains(self) -> bool:
        """Whether streams may be moved as trains in the rows of this rank."""
        return self._engine.trains

    @trains.setter
    def trains(self, wanted: bool) -> None:
        self._engine.trains = wanted

    def _numbers(self, streams: tuple[tuple[int, int, int, int], ...]) -> list[tuple[int, int]]:
        """Return for each stream the rank that has it, and its number there."""
        counts, found = [0] * self.world.size, []
        for _, y, _, _ in streams:
            rank = owner(y, self.spec.height, self.world.size)
            found.append((rank, counts[rank]))
            counts[rank] += 1
        return found

    # --- what one rank has --------------------------------------------------------------------------------------------
    def _from(self, rank: int, call: Callable[[], T]) -> T:
        """Return on every rank what a call gives on one of them, or raise there what it raises."""
        found: Any = None
        if rank == self.world.rank:
            try:
                found = call()
            except WseError as error:
                found = error
        found = self.world.share(found)[rank]
        if isinstance(found, WseError):
            raise found
        return found

    def _mine(self, y: int, h: int) -> tuple[int, int]:
        """Return the rows of a rectangle that this rank has: the first and how many."""
        first = max(y, self.low)
        return first, max(0, min(y + h, self.high) - first)

    def _owner(self, y: int) -> int:
        return owner(min(max(y, 0), self.spec.height - 1), self.spec.height, self.world.size)

    # --- host access --------------------------------------------------------------------------------------------------
    @property
    def cycle(self) -> int:
        """The fabric has done so many cycles so far."""
        return self._engine.cycle

    @property
    def last_active(self) -> int:
        """The last cycle with anything happening was this; -1 before the first.  Asked anew: who looks inside may move
        it.
        """
        return int(self.world.gather(np.array([self._engine.last_active], np.int64)).max())

    @property
    def wavelet_hops(self) -> int:
        """Routers have moved so many wavelets so far."""
        return self._facts.hops

    def read_words(self, x: int, y: int, address: int, count: int) -> NDArray[np.uint16]:
        """Return `count` words of one PE's SRAM."""
        return self._from(self._owner(y), lambda: self._engine.read_words(x, y, address, count))

    def write_words(self, x: int, y: int, address: int, words: ArrayLike) -> None:
        """Write words into one PE's SRAM."""
        if self._owner(y) == self.world.rank:
            self._engine.write_words(x, y, address, words)

    def read_rect(self, address: int, count: int, x: int, y: int, w: int, h: int) -> NDArray[np.uint16]:
        """Return the words of every PE of a rectangle, shape (h, w, count)."""
        first, rows = self._mine(y, h)
        found: Any = None
        try:
            if rows:
                found = self._engine.read_rect(address, count, x, first, w, rows)
        except WseError as error:
            found = error
        parts = [part for part in self.world.share(found) if part is not None]
        for part in parts:
            if isinstance(part, WseError):
                raise part
        return np.concatenate([*parts, np.empty((0, w, count), np.uint16)])

    def write_rect(self, address: int, words: ArrayLike, x: int, y: int) -> None:
        """Write words of shape (h, w, count) into the rectangle whose corner is (x, y)."""
        words = np.asarray(words)
        first, rows = self._mine(y, len(words))
        if rows:
            self._engine.write_rect(address, words[first - y : first - y + rows], x, first)

    def activate(self, task_id: int, x: int, y: int, w: int, h: int) -> None:
        """Set the activated bit of a task in every PE of a rectangle that has a program."""
        first, rows = self._mine(y, h)
        if rows:
            self._engine.activate(task_id, x, first, w, rows)

    def push_input(
        self, index: int, payload: ArrayLike, control: ArrayLike | None = None, cycles: ArrayLike | None = None
    ) -> None:
        """Append wavelets to an input stream."""
        rank, number = self._inputs[index]
        if rank == self.world.rank:
            self._engine.push_input(number, payload, control, cycles)
        elif control is not None and np.any(control):
            self._part.note_controls(self.spec.inputs[index][3])

    def entered(self, index: int) -> NDArray[np.int64]:
        """Return the cycles in which words of an input stream entered since the last call."""
        rank, number = self._inputs[index]
        return self._from(rank, lambda: self._engine.entered(number))

    def limit_output(self, index: int, cycles: ArrayLike | None) -> None:
        """Let the host take one more wavelet per entry of `cycles`; None: all that comes."""
        rank, number = self._outputs[index]
        if rank == self.world.rank:
            self._engine.limit_output(number, cycles)

    def pop_output(self, index: int) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.bool_]]:
        """Return (cycles, payloads, controls) that arrived at an output stream since the last call."""
        rank, number = self._outputs[index]
        return self._from(rank, lambda: self._engine.pop_output(number))

    # --- looking inside -----------------------------------------------------------------------------------------------
    def totals(self) -> dict[str, int]:
        """Return the sum of each counter over all PEs."""
        mine = self._engine.totals((self.low, self.high))
        sums = self.world.gather(np.array(list(mine.values()), np.int64))
        return dict(zip(mine, sums.sum(axis=0).tolist(), strict=True))

    def work(self) -> NDArray[np.uint64]:
        """Return instructions and elements done so far, of all ranks (`wse_core.work`)."""
        mine = self._engine.work()
        sums = self.world.gather(mine.astype(np.int64).ravel())
        return sums.sum(axis=0).reshape(mine.shape).astype(np.uint64)

    def _whole(self, mine: dict[Any, NDArray[np.uint64]]) -> dict[Any, NDArray[np.uint64]]:
        """Return arrays of which each rank has its rows."""
        parts = self.world.share({key: values[self.low : self.high] for key, values in mine.items()})
        return {key: np.concatenate([part[key] for part in parts]) for key in mine}

    def counters(self) -> dict[str, NDArray[np.uint64]]:
        """Return dict name -> uint64 array (height, width)."""
        return self._whole(self._engine.counters())

    def link_counts(self) -> dict[int, NDArray[np.uint64]]:
        """Return dict color -> uint64 (height, width, 5): wavelets that left each input port's queue."""
        return self._whole(self._engine.link_counts())

    def snapshot(self) -> dict[str, Any]:
        """Return the canonical state for comparison with another machine."""
        mine = self._engine.snapshot()
        for part in ("pe", "router"):
            mine[part] = {(x, y): entry for (x, y), entry in mine[part].items() if self.low <= y < self.high}
        states = self.world.share(mine)
        whole: dict[str, Any] = {"cycle": self.cycle, "pe": {}, "router": {}, "work": found_in(self.work())}
        for state in states:
            whole["pe"] |= state["pe"]
            whole["router"] |= state["router"]
        return whole

    def lost(self) -> list[tuple[int, int, int]]:
        """Return the tasks, (x, y, id), that were activated again before they had begun."""
        mine = [row for row in self._engine.lost() if self.low <= row[1] < self.high]
        return sorted(row for part in self.world.share(mine) for row in part)

    def waiters(self) -> list[dict[str, Any]]:
        """Return what is left to do and why it cannot go on, in the order of one engine."""
        mine = []
        streams = [k for k, (rank, _) in enumerate(self._inputs) if rank == self.world.rank]
        for entry in self._engine.waiters():
            if entry["kind"] == "stream":
                mine.append(entry | {"index": streams[entry["index"]]})
            elif self.low <= entry["y"] < self.high:
                mine.append(entry)
        every = [entry for part in self.world.share(mine) for entry in part]
        colors = list(self.spec.routes)
        routers = [entry for entry in every if entry["kind"] == "router"]
        routers.sort(key=lambda entry: (colors.index(entry["color"]), entry["port"]))  # rows are in order already
        left = [entry for entry in every if entry["kind"] == "stream"]
        left.sort(key=lambda entry: entry["index"])
        return [entry for entry in every if entry["kind"] not in ("router", "stream")] + routers + left

    # --- running ------------------------------------------------------------------------------------------------------
    def run(self, limit: int, on_break: Callable[[], int] | None = None, piece: int = 0) -> str:
        """Run to cycle `limit` at most; return ``limit``, ``complete``, ``stuck`` or ``fault``.

        Breaks come after turns, whatever `piece` says: it is a host's time, and ranks may have different hosts.
        """
        if self.status == "fault":
            return self.status
        stop = min(int(limit), (1 << 62) - 1)
        self._part.set_clock(self.cycle)
        self.exchanges = 0
        reached = clock.Stop("limit" if self.cycle >= stop else None, self.cycle)
        while reached.status is None:
            start = reached.cycle
            self._part.begin(stop)
            end = min(stop, self._part.next_refresh, start + clock.TURN)
            self.exchanges += clock.turn(self._part, self.world, start, end, self._buffers)
            self._facts = clock.gathered(self._part, self.world)
            if 0 <= self._facts.fault < end:
                self._part.settle()
                self._facts = clock.gathered(self._part, self.world)
            reached = clock.what_next(self._facts, end, stop, self._part.next_refresh)
            self._part.set_clock(reached.cycle)
            if on_break is not None:
                on_break()
        self.status = reached.status
        if reached.status == "quiet":
            self._part.set_clock(max(reached.cycle, self._facts.last_active) + 1)
            self.status = "stuck" if self.waiters() else "complete"
        elif reached.status == "fault":
            y = self._facts.cell // self._engine_stride - 1
            self.fault = self._from(self._owner(y), lambda: self._engine.fault)
        return self.status

    @property
    def _engine_stride(self) -> int:
        """Cells of a row; see `wse_core/records.pxd`."""
        return (self.spec.width + 2 + 63) // 64 * 64

    # --- what one engine has and ranks have not -----------------------------------------------------------------------
    def _alone(self, what: str) -> NoReturn:
        raise UnsupportedError(
            f"{what} over ranks", where="ranks", feature=f"{what} over ranks", hint="the same run in one process"
        )

    def arrange(self, bands: Any = None, threads: int | None = None, turn: int = 0) -> None:
        """Refuse: a rank runs its rows at one clock, with one thread."""
        self._alone("bands and threads")

    def trace(self, sink: Any, filter: Any = None) -> None:
        """Refused: events are recorded in one process."""
        if sink is not None:
            self._alone("recording events")

    def save_state(self) -> NoReturn:
        """Refused: states are kept in one process."""
        self._alone("keeping a state")

    def restore_state(self, saved: Any) -> NoReturn:
        """Refused: states are kept in one process."""
        self._alone("going back to a state")
