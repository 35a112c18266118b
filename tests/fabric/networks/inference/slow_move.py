"""How long keys and values take to another mesh, from sizes and modelled numbers alone.

Entries are followed from PE to PE: along the columns, where each row takes and passes on what `shared_out` says, then
along the rows to the other mesh, whose roots receive, flood and pick.  Each PE begins when it has read its part of the
prompt (`fabric.networks.inference.prefill.cycles`).  A PE that sends is not held up by one that receives later: where
that is slower, all of it is on its side.

Measured against the engine: tests/fabric/networks/inference/test_move.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.kit.data import wavelets_of
from fabric.networks.inference.move.code import QUEUE_ALONG
from fabric.networks.inference.move.two_meshes import TwoMeshes
from fabric.networks.inference.prefill.channels import FROM_WEST, TO_EAST
from fabric.networks.inference.prefill.cycles import PromptCycles
from fabric.networks.inference.work import Work
from fabric.price import timing

__all__ = ["SlowMove"]

Times = list[float]
Ends = NDArray[np.float64]


class SlowMove(Work):
    """The same as `MoveCycles`, entry by entry in plain Python.

    Parameters
    ----------
    meshes : TwoMeshes
    """

    def __init__(self, meshes: TwoMeshes) -> None:
        super().__init__(meshes.machine)
        m = self.m
        self.meshes, self.old, self.new = meshes, meshes.before.place, meshes.behind.place
        self.prompt = PromptCycles(meshes.prefill)
        self.dsr, self.edit, self.taken = m["ce.dsr_load"], m["ce.dsr_edit"], m["ce.branch_taken"]
        self.issue, self.drain, self.way = timing.issue(m), m["vec.drain"], timing.way(m, 1)
        self.wavelets = wavelets_of(meshes.entry, self.old.dtype)
        flood = meshes.decode.sums["back"]
        self.root: int = flood.piece.root if flood.floods else 0  # type: ignore[union-attr]
        self.turn, self.end = 2, self.load + self.taken  # of what is repeated as often as a variable says
        self.walk = self.dsr + m["ce.dsr_dimension"] + self.edit

    # --- work of a PE -------------------------------------------------------------------------------------------------

    def _entry(self, rows: int, heads: int, part: int, loads: int) -> int:
        """Return the cycles of an entry between its place in the cache and a vector, keys and values."""
        by_head = heads * -(-part // self.m.lanes("mov16"))
        return 2 * self.walk + self.serial(rows, loads) + self.serial(by_head, loads) + 2

    def _own(self) -> int:
        """Return the cycles of taking an entry out of the cache."""
        return self._entry(self.old.kv_rows, self.old.kv_heads, self.old.part, 1)

    def pick(self) -> int:
        """Return the cycles in which a PE of the other mesh puts its features of a token into its cache."""
        first, second = max(0, self.load - 2), max(0, self.load - 3)  # of loads, while an address is made
        each = 9 + first + second + self.taken
        return (
            1
            + 2 * self.new.kv_rows * each
            + self.taken
            + self._entry(self.new.kv_rows, self.new.kv_heads, self.new.part, 1)
        )

    # --- what moves ---------------------------------------------------------------------------------------------------

    def _sent(self, now: float, out: int) -> tuple[float, float]:
        """Return when the first wavelet of an entry leaves, and when its sender can go on."""
        first = now + 2 * self.dsr + self.issue
        return first, first + timing.sending(self.m, self.wavelets, QUEUE_ALONG[0], out) + self.drain

    def _passed(self, now: float, arrival: float, into: int, out: int) -> tuple[float, float]:
        """Return the same of an entry that is passed on."""
        ready = now + 2 * self.dsr + self.issue
        return max(ready, arrival), timing.received(self.m, self.wavelets, ready, arrival, into, out) + self.drain

    def _along(self, now: float, row: int, arrivals: Times) -> tuple[float, Times]:
        """Return when a PE has the entries of its row in the end, and when those that it sends reach the next row."""
        share, down = self.meshes.shares[row], self.meshes.rows()[row].down
        has_cache, (into, out) = row < self.old.height, QUEUE_ALONG
        coming, leaving = iter(arrivals), []
        source, target = self.meshes.rows()[row].source, self.meshes.rows()[row].target

        def received(now: float) -> float:
            if not source:
                return now
            for _ in range(share.received):
                ready = now + self.turn + 2 * self.dsr + self.edit + self.issue
                now = timing.received(self.m, self.wavelets, ready, next(coming), into, out)
                now += self.drain + 1 + self.taken
            return now + self.end

        def passed(now: float) -> float:
            if not (source and target):
                return now
            for _ in range(share.passed):
                first, now = self._passed(now + self.turn, next(coming), into, out)
                leaving.append(first + self.way)
                now += self.taken
            return now + self.end

        def kept(now: float) -> float:
            put = self.dsr + self.edit + self.vector("mov16", self.meshes.entry, 1) + 1
            return now + has_cache * (share.kept * (self.turn + self._own() + put + self.taken) + self.end)

        def sent(now: float) -> float:
            if not (has_cache and target):
                return now
            for _ in range(share.sent):
                first, now = self._sent(now + self.turn + self._own(), out)
                leaving.append(first + self.way)
                now += self.taken
            return now + self.end

        order = (received, passed, kept, sent) if down else (sent, passed, kept, received)
        now += 1 + has_cache
        for part in order:
            now = part(now)
        return now, leaving

    def _token(
        self, now: float, column: int, coming: Iterator[float], room: Callable[[int], float] = lambda number: 0.0
    ) -> tuple[Times, float]:
        """Return when the entries of a token leave a PE, its own first, and when it can go on.

        `room` says until when it is busy with the entry of a number at least, since nobody takes it before.
        """
        leaving = []
        for number in range(1 + column):
            if number:
                first, now = self._passed(now + self.turn, next(coming), FROM_WEST, TO_EAST)
            else:
                first, now = self._sent(now + self.turn + self.edit, TO_EAST)
            now = max(now, room(number)) + (self.taken if number else 1 + self.load * (column > 0))
            leaving.append(first + self.way)
        return leaving, now + self.taken + self.taken * (column > 0)

    def _across(self, now: float, column: int, count: int, arrivals: Times) -> tuple[float, Times]:
        """Return when a PE has sent the entries of its row to the east, and when they reach the next column."""
        coming, leaving = iter(arrivals), []
        now += 1
        for _ in range(count):
            times, now = self._token(now, column, coming)
            leaving += times
        return now + self.end, leaving

    def _crossed(self, now: float, root: float, count: int, arrivals: Times) -> tuple[float, float]:
        """Return when the last PE of a row has sent its entries, and when the root of the other mesh is through.

        What the root does not take yet stands in queues; where they are full the PE waits.
        """
        m, flood, column = self.m, self.meshes.decode.sums["back"], self.old.width - 1
        into, coming, hops = flood.queues.flood_in, iter(arrivals), 1 + self.root
        places = (
            m["queue.out_depth"][TO_EAST]
            + (1 + hops) * m["router.depth"]
            + m["queue.in_depth"][into]
            + m["ramp.in_buffer"]
        )
        whole = wavelets_of(self.old.width * self.meshes.entry, self.old.dtype)
        now, root = now + 1, root + 1 + self.load
        for _ in range(count):
            ready = root + self.turn + 2 * self.dsr + self.issue

            def room(number: int, ready: float = ready) -> float:
                """Return when so few wavelets are left that the others have places."""
                over = (number + 1) * self.wavelets - places
                return ready + over + hops * m["router.hop"] if over > 0 else 0.0

            leaving, now = self._token(now, column, coming, room)
            late = self.root * m["router.hop"]
            root = timing.received(m, whole, ready, leaving[0] + late, into, TO_EAST)
            root = max(root, leaving[-1] + late + self.wavelets) + self.drain
            if flood.floods:
                root += 2 * self.dsr + self.issue
                root += timing.sending(m, whole, into, flood.queues.flood_out) + self.drain
            root += self.pick() + self.taken
        return now + self.end, root + self.taken + self.load + 2 + 1 + self.taken

    def moved(self, begun: Ends) -> float:
        """Return when the last PE of the other mesh has its entries.

        Parameters
        ----------
        begun : ndarray, shape (height, width)
            When each PE of the first mesh has read the prompt.
        """
        old, new = self.old, self.new
        rows = len(self.meshes.shares)
        at = np.zeros((rows, old.width))
        at[: old.height] = begun + timing.stamp(self.m) + 1
        taken, order = [0.0] * new.height, list(range(rows))
        if new.height <= old.height:
            order.reverse()
        layers = old.decoder.layers
        before, moved = np.append(at, taken), np.zeros(at.size + new.height)
        for layer in range(layers):
            leaving: list[Times] = [[] for _ in range(old.width)]
            for r in order:
                for x in range(old.width):
                    at[r, x], leaving[x] = self._along(float(at[r, x]) + 1, r, leaving[x])
                if r >= new.height:
                    continue
                arrivals: Times = []
                has = self.meshes.shares[r].has
                for x in range(old.width - 1):
                    at[r, x], arrivals = self._across(float(at[r, x]), x, has, arrivals)
                at[r, -1], taken[r] = self._crossed(float(at[r, -1]), taken[r], has, arrivals)
            at[: old.height] += 2 * (self.load + 1) + 1
            at += 1 + self.taken
            now = np.append(at, taken)
            if layer > 1 and np.array_equal(now - before, moved):  # each PE takes as long as in the layer before
                taken = list(now[at.size :] + (layers - 1 - layer) * moved[at.size :])
                break
            moved, before = now - before, now
        far = max(self.root, new.width - 1 - self.root)
        return max(taken) + (timing.way(self.m, far) if far else 0)

    def cycles(self) -> tuple[int, int]:
        """Return the cycles of the prompt, and those from its end to the last entry in its place."""
        begun = self.prompt.ends()
        read = float(begun.max())
        return round(read), round(self.moved(begun) - read)
