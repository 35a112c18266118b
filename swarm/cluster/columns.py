"""The rows of a matrix take a row of PEs so long: when each column can go on, and who waits for whom.

All rows of PEs do the same, a few cycles after one another, so one of them is followed, all its columns at once.  A
column is through with its tasks at `Columns.free`.  Three things make columns wait for each other:

ring       the sums of a row of a product go round all columns to the column that keeps them
join       sums that all columns need go along all columns, and from the last one to all
broadcast  a row of gradients goes from its owner to all columns

What a task takes is what its instructions take (`fabric.price`), what lies between two columns the numbers
of ramps, routers and queues (`fabric.price.timing`), as in the kernels' own closed forms
(`fabric.kernels.streamed.forward`, `fabric.kernels.streamed.gradient_cycles`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.streamed.forward import QUEUE_RING
from fabric.kernels.streamed.gradient_cycles import QUEUES
from fabric.price import timing
from fabric.price.prices import TaskPrice
from wse_core.params import Machine

__all__ = ["Columns"]

Times = NDArray[np.float64]
WAVELETS = 24
"""Wavelets of a row of gradients that are followed: behind those every column takes them as fast as it can."""


class Columns:
    """`Columns` of PEs begin free, at cycle 0.

    Parameters
    ----------
    machine : Machine
    count : int
    tokens : int
        Of a PE: elements of a row; rows may have others from some time on.
    owner : int
        Column that sent the last row of gradients of the iteration before: routes still lead away from it.

    Attributes
    ----------
    free : ndarray
        When each column can choose its next task.
    """

    def __init__(self, machine: Machine, count: int, tokens: int, owner: int = 0) -> None:
        self.machine, self.count = machine, count
        self.free: Times = np.zeros(count)
        self._place = np.arange(count)
        m = machine
        self._waiting = m["queue.in_depth"][QUEUE_RING] + m["ramp.in_buffer"] + m["router.depth"]
        self._room = np.full(count, self._waiting + m["queue.out_depth"][QUEUE_RING] + m["router.depth"])
        self._room[0] += m["router.depth"] * max(0, count - 2)  # on the way back from the last column to the first
        self._row_room = m["queue.in_depth"][QUEUES[0]] + m["ramp.in_buffer"]
        self.tokens = tokens
        self._taken_rows: list[Times] = []
        self._got = np.full(count, -np.inf)  # when each column had the last sums that came round the ring
        self._owner = owner
        self._hop, self._back = timing.stage(m), timing.way(m, max(1, count - 1))

    @property
    def end(self) -> float:
        """All columns are free at this time."""
        return float(self.free.max())

    def spend(self, cycles: Times | float) -> None:
        """Let every column work for some cycles."""
        self.free = self.free + cycles

    # --- what goes from column to column ------------------------------------------------------------------------------

    @property
    def tokens(self) -> int:
        """A row has so many elements."""
        return self._tokens

    @tokens.setter
    def tokens(self, tokens: int) -> None:
        m, queues = self.machine, (QUEUE_RING, QUEUE_RING)
        self._tokens, waiting = tokens, self._waiting
        self._train = timing.train(m, tokens, *queues)
        self._sending = timing.sending(m, tokens, *queues)
        self._late = timing.train(m, tokens - waiting, *queues) if tokens > waiting else 0

    def _taken(self, ready: Times, arrival: Times) -> tuple[Times, Times]:
        """Return the first step of receivers that can begin at `ready`, and the cycle behind their last one."""
        first = np.maximum(ready, arrival)
        last = np.maximum(first + self.tokens, arrival + self._train)
        return first, np.maximum(last, first + self._late)

    def ring(self, owner: int, begin: TaskPrice, through: TaskPrice, land: TaskPrice) -> None:
        """Send the sums of a row round the ring: the column after the owner begins, the owner lands them."""
        if self.count == 1:
            self.spend(land.alone)
            return
        order = np.roll(self._place, -owner - 1)
        ready = self.free[order] + through.before
        ready[0] += begin.before - through.before
        ready[-1] += land.before - through.before
        last = self._passed_on(order, ready)
        last += through.after
        last[0] += begin.after - through.after
        last[-1] += land.after - through.after
        self.free[order] = last

    def _passed_on(self, order: NDArray[np.int64], ready: Times) -> Times:
        """Return the cycle behind the last step of each column if sums go from one to the next.

        Columns stand in `order`, the one that begins first, the one that keeps the sums last; `ready` says when each
        can take its first step.
        """
        delay = np.where(order == 0, self._back, self._hop).astype(np.float64)
        delay[0] = 0
        behind = np.cumsum(delay)
        first = np.maximum.accumulate(ready - behind) + behind
        arrival = np.concatenate([[-np.inf], first[:-1] + delay[1:]])
        last = self._taken(ready, arrival)[1]
        last[0] = first[0] + self._sending
        got, room = self._got[order], self._room[order][1:]
        # Who is early waits until the next column has made room: it may still take the row before, or not yet this one.
        more = self.tokens - room
        freed = np.where(more > 0, first[1:], np.where(more + self.tokens > 0, got[1:], -np.inf))
        last[:-1] = np.maximum(last[:-1], freed + more)
        got[1:] = last[1:]
        self._got[order] = got
        return last

    def join(self, begin: TaskPrice, through: TaskPrice, land: TaskPrice, take: TaskPrice) -> None:
        """Join sums over all columns: each adds its own to what comes, the last one sends the total to all.

        It takes that itself, too, and both go through one pipeline.
        """
        if self.count == 1:
            return
        m, owner = self.machine, self.count - 1
        ready = self.free + through.before
        ready[0] += begin.before - through.before
        ready[owner] += land.before - through.before
        last = self._passed_on(self._place, ready)
        self.free[:owner] = last[:owner] + through.after
        self.free[0] += begin.after - through.after
        sent = float(last[owner]) + m["ce.config"] + timing.issue(m)
        self._spread(owner, sent, sent + 1, take.after, take, self.tokens, turns=2)

    def broadcast(self, owner: int, send: TaskPrice, take: TaskPrice) -> None:
        """Send a row of gradients from its owner to all columns; `send` takes it, too, after an instruction more.

        A router passes a wavelet to its column and to the next router at once: only if both have room, and only if its
        route leads from the owner's side already.  So a column that is late holds up all beyond it, and those before
        it as soon as the queues between are full.
        """
        if self.count == 1:
            self.spend(send.alone)
            return
        own = float(self.free[owner] + send.before)
        self._spread(owner, own - 1, own, send.after, take, -(-self.tokens // 2))

    def _spread(
        self, owner: int, sent: float, own: float, after: float, take: TaskPrice, wavelets: int, turns: int = 1
    ) -> None:
        """Let wavelets go from their owner to all columns.

        Its first one is sent at `sent`; it can take the first one itself at `own`, and is through `after` the last.
        Once there is no more room for what it takes itself, it sends one every so many `turns`.
        """
        m, place, hop = self.machine, self._place, self.machine["router.hop"]
        ready = self.free + take.before
        low, high = sorted((owner, self._owner))
        turned = (place >= low) & (place <= high) & (place != owner)  # routes between the last owner and this one
        passed = np.where(turned, ready - timing.issue(m) + 1, -np.inf)
        self._owner = owner
        ready[owner] = own
        behind = hop * np.abs(place - owner)
        up = sent + m["ramp.execute"] + m["ramp.out"]
        each = take.length / wavelets
        steps, followed = ready - each, min(wavelets, WAVELETS)
        on = [np.full(self.count, -np.inf)] * m["router.depth"]
        for number in range(followed):
            passed = np.maximum(passed + (number > 0), _beyond(on[-m["router.depth"]], owner) + 1)
            if len(self._taken_rows) >= self._row_room:
                passed = np.maximum(passed, self._taken_rows[-self._row_room] + 1)
            behind_room = max(0, number - self._row_room)
            passed[owner] = max(passed[owner], up + number + behind_room * (turns - 1))
            ahead = passed - behind
            west, east = np.maximum.accumulate(ahead[owner::-1])[::-1], np.maximum.accumulate(ahead[owner:])
            passed = np.concatenate([west[:-1], east]) + behind
            on.append(passed)
            steps = np.maximum(steps + each, passed + m["ramp.in"])
            self._taken_rows.append(steps)
        rest = max(each, turns) * (wavelets - followed)
        self._taken_rows = [steps + rest for steps in self._taken_rows[-self._row_room :]]
        done = steps + rest + each
        done[owner] = max(done[owner], sent + wavelets + self.tokens)  # the sending goes first
        self.free = done + take.after
        self.free[owner] += after - take.after


def _beyond(times: Times, owner: int) -> Times:
    """Return the times of the next columns on the way from the owner; its own is the later of both neighbours'."""
    found = np.full(len(times), -np.inf)
    found[owner:-1] = times[owner + 1 :]
    found[1:owner] = times[: max(0, owner - 1)]
    if owner:
        found[owner] = max(found[owner], times[owner - 1])
    return found
