"""Every PE of a SUMMA by software is followed from step to step, to find its cycles.

Per step and PE: when it asks for the tiles, when each has come and has gone on, when the product begins and ends.  A CE
has one slot a cycle, and transfers are served before the main thread: those that run together share the slots, and the
main thread goes on when they are through, or when they wait for a PE that has not asked yet; what such a PE takes later
makes the product longer.  PEs are taken by their distance from the owners of a step, since a tile comes to a PE from
one that is nearer.

Source: docs/machine.md; the instructions are those of `fabric.kernels.matmul.relay_axis` and `summa`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.matmul.local import Shape, product_cycles
from fabric.kernels.matmul.relay_axis import QUEUES
from fabric.price import timing
from wse_core.params import Machine

__all__ = ["SIDES", "STEPS", "relay_cycles"]

SIDES = (8, 16)
"""Larger squares are continued from these sizes."""
STEPS = 96
"""So many steps are followed on other meshes."""

Times = NDArray[np.float64]
"""The array has a cycle per PE, or per PE of a row or column."""


@dataclass(frozen=True)
class _Axis:
    """An axis has the tiles of one matrix: along axis 1 of arrays (H, W) those of A, along axis 0 those of B."""

    machine: Machine
    key: str
    size: int
    held: int
    wavelets: int

    def own(self, step: int) -> int:
        """Return the place that has the tile of a step."""
        return step // self.held

    def sides(self, place: int) -> int:
        """Return how many neighbours a place has."""
        return (place > 0) + (place < self.size - 1)

    def loads(self) -> int:
        """Return the cycles of what is loaded before the first step, of a place inside."""
        found = 2 * (self.held > 1)
        if self.size > 1:
            found += timing.load(self.machine, 1 + 3 * min(2, self.size - 1))
        return found

    def asking(self, place: int, step: int) -> tuple[int, int, int]:
        """Return the cycles of ``ask`` to the first transfer, between two that send, and from the last to its end."""
        m = self.machine
        if self.size == 1:
            return 1, 0, 0
        several = self.held > 1
        start = m["ce.load_latency"] + 2 * several
        each = m["ce.dsr_edit"] + 1
        if self.own(step) == place:
            start += m["ce.branch_not_taken"] + several * m["ce.load_latency"]
            return start + each, each, 1 + m["ce.branch_taken"]
        start += m["ce.branch_taken"]
        if self.sides(place) < 2:
            return start + 1, 0, 0
        low = step < place * self.held
        start += (m["ce.branch_not_taken"] if low else m["ce.branch_taken"]) + each
        return start, 0, low * m["ce.branch_taken"]

    def finding(self, place: int, step: int) -> int:
        """Return the cycles of finding the tile of a step for the product."""
        m = self.machine
        take = 1 if self.held == 1 else m["ce.load_latency"] + 3
        if self.size == 1:
            return take
        start = m["ce.load_latency"] + 2 * (self.held > 1)
        if self.own(step) == place:
            return start + m["ce.branch_not_taken"] + take + m["ce.branch_taken"]
        return start + m["ce.branch_taken"] + 1

    @property
    def waiting(self) -> int:
        """So many wavelets have room between two PEs while the second takes none."""
        m, (into, out) = self.machine, QUEUES[self.key]["low"]
        return m["queue.in_depth"][into] + m["ramp.in_buffer"] + 2 * m["router.depth"] + m["queue.out_depth"][out]

    @property
    def sending(self) -> int:
        """A PE takes so many cycles from the first to the last wavelet that it sends."""
        return timing.sending(self.machine, self.wavelets, *QUEUES[self.key]["low"])

    @property
    def share(self) -> float:
        """A train takes so many slots of a cycle: all, or what the slowest queue on its way lets through."""
        return self.wavelets / timing.train(self.machine, self.wavelets, *QUEUES[self.key]["low"])

    @property
    def busy(self) -> int:
        """After so many wavelets a PE that sends has a slot left: all, or those that find room where links are slow."""
        m, (_, out) = self.machine, QUEUES[self.key]["low"]
        if self.share == 1:
            return self.wavelets
        return min(self.wavelets, m["queue.out_depth"][out] + m["router.depth"])

    def spread(self, values: Sequence[int], shape: tuple[int, int]) -> Times:
        """Return values per place for all PEs."""
        found = np.array(values, float)
        return np.broadcast_to(found if self.key == "a" else found[:, np.newaxis], shape)


def _together(start: Times, end: Times, count: int, other: Times, others: Times, more: int) -> tuple[Times, Times]:
    """Return when two trains end that share the slots of a CE: one alone takes from `start` to `end`, and so the other.

    Who has less left when both are there is through first; each slot of it has made the other one cycle later.
    """
    apart = (other >= end) | (start >= others) | ~np.isfinite(start) | ~np.isfinite(other)
    start, other = (np.where(apart, 0, found) for found in (start, other))
    begin = np.minimum(start, other)
    late = np.maximum(0, begin + count + more - np.maximum(end, others))
    both = np.maximum(start, other)
    first = end <= others
    less = np.minimum(np.where(first, end, others) - both, late)
    return (
        np.where(apart, end, end + np.where(first, less, late)),
        np.where(apart, others, others + np.where(first, late, less)),
    )


class _Step:
    """One step on all PEs; arrays are (H, W), per axis where they are in a list."""

    def __init__(self, axes: Sequence[_Axis], step: int, asks: Times, gone: Sequence[Times]) -> None:
        self.axes, self.step, self.m = axes, step, axes[0].machine
        places: Any = np.indices(asks.shape)
        self.offsets = [places[1] - axes[0].own(step), places[0] - axes[1].own(step)]
        self.never = np.full(asks.shape, -np.inf)
        self.ready: list[Times] = []
        self.begun = [{-1: self.never.copy(), 1: self.never.copy()} for _ in axes]
        self.through = [{-1: self.never.copy(), 1: self.never.copy()} for _ in axes]
        self.gone, self.come = [self.never.copy() for _ in axes], [self.never.copy() for _ in axes]
        self.main = asks
        for k, left in enumerate(gone):
            self._ask(k, left)
        self.main = self.main + self.m["ce.ret"] + (self.m["ce.branch_taken"] if step else 0) + 1
        distance = np.abs(self.offsets[0]) + np.abs(self.offsets[1])
        order = np.argsort(distance, axis=None, kind="stable")
        ends = np.cumsum(np.bincount(distance.ravel()))
        for begin, end in zip([0, *ends[:-1]], ends, strict=True):
            self._places(np.unravel_index(order[begin:end], asks.shape))

    def _ask(self, k: int, left: Times) -> None:
        """Follow the main threads through ``ask`` for one matrix; owners send."""
        m, axis, shape = self.m, self.axes[k], self.main.shape
        first, between, last = (
            axis.spread([axis.asking(place, self.step)[part] for place in range(axis.size)], shape) for part in range(3)
        )
        waits = np.where(np.isfinite(left), np.maximum(0, left + 1 - (self.main + first - 1 - m["ce.dsr_edit"])), 0)
        issued = self.main + first + waits
        self.ready.append(issued + m["vec.start"])
        self.main = issued + last
        own = axis.own(self.step)
        at = np.s_[:, own] if k == 0 else np.s_[own, :]
        begin, serial = issued[at] + m["vec.start"], m["vec.start"] <= m["ce.dsr_edit"]
        sides = [side for side in (-1, 1) if 0 <= own + side < axis.size]
        for number, side in enumerate(sides):
            shared = 0 if serial else (len(sides) - 1) * axis.wavelets
            self.begun[k][side][at] = begin
            self.through[k][side][at] = begin + axis.sending + shared
            begin = begin + between[at] + serial * axis.busy
            self.main[at] += (number > 0) * between[at] + axis.busy
        for side in sides:
            self.gone[k][at] = np.maximum(self.gone[k][at], self.through[k][side][at])

    def _before(self, k: int, at: Any) -> Any:
        """Return the PEs from which those at some places get their tile."""
        y, x = at
        side = np.sign(self.offsets[k][at])
        return (y, x - side) if k == 0 else (y - side, x)

    def _arrival(self, k: int, at: Any) -> tuple[Times, Times]:
        """Return when the first wavelet of a tile is taken, and when the last one has been, by a PE with no other."""
        m, axis = self.m, self.axes[k]
        ready, offset = self.ready[k][at], self.offsets[k][at]
        if axis.size == 1:
            return np.full(len(ready), -np.inf), ready
        before, way, count = self._before(k, at), timing.way(m, 1), axis.wavelets
        into, out = QUEUES[axis.key]["low"]
        sent, whole = (
            np.where(offset > 0, found[k][1][before], found[k][-1][before]) for found in (self.begun, self.through)
        )
        first = np.maximum(ready, sent + way)
        late = first + max(count, timing.train(m, count - axis.waiting, into, out))
        end = np.maximum(late, np.maximum(whole + way, sent + way + timing.train(m, count, into, out)))
        return np.where(offset == 0, -np.inf, first), np.where(offset == 0, ready, end)

    def _places(self, at: Any) -> None:
        """Follow the PEs of one distance: what comes, what they hand on, until they can multiply."""
        m = self.m
        starts, ends = (list(found) for found in zip(*(self._arrival(k, at) for k in range(2)), strict=True))
        counts = [axis.wavelets for axis in self.axes]
        ends = list(_together(starts[0], ends[0], counts[0], starts[1], ends[1], counts[1]))
        main = self.main[at]
        for start, count in zip(starts, counts, strict=True):
            main = main + np.where(np.isfinite(start) & (start < main), count, 0)
        hands = []
        for k, axis in enumerate(self.axes):
            place = axis.own(self.step) + self.offsets[k][at]
            hands.append((self.offsets[k][at] != 0) & (place > 0) & (place < axis.size - 1))
        first = np.where(hands[0] & (~hands[1] | (ends[0] <= ends[1])), 0, 1)
        free = main
        for turn in range(2):
            which = first if turn == 0 else 1 - first
            for k, axis in enumerate(self.axes):
                mine = (which == k) & hands[k]
                if not mine.any():
                    continue
                issue = np.maximum(ends[k], free) + m["task.start"] + 1
                begin = issue + m["vec.start"]
                whole, slot = begin + axis.sending, begin + axis.busy
                j = 1 - k
                clash = mine & np.isfinite(starts[j]) & (begin < ends[j]) & (whole > starts[j])
                shared = np.where(
                    clash, axis.share * np.minimum(axis.wavelets, ends[j] - np.maximum(begin, starts[j])), 0
                )
                ends[j] = ends[j] + shared
                whole, slot = whole + shared, slot + shared
                self._hand(k, at, mine, begin, whole)
                left = max(0, 2 - m["vec.start"])  # the signal and the end of the task, behind the wavelets
                free = np.where(mine, np.maximum(slot + left, issue + 2), free)
        self.main[at] = free
        for k in range(2):
            self.come[k][at] = ends[k]
            came = self.offsets[k][at] != 0
            here = tuple(index[came] for index in at)
            before = self._before(k, here)
            axis = self.axes[k]
            if axis.size > 1:
                last = ends[k][came] - timing.way(m, 1) - min(axis.wavelets, axis.waiting) + 1
                np.maximum.at(self.gone[k], before, last)

    def _hand(self, k: int, at: Any, mine: Any, begin: Times, whole: Times) -> None:
        """Note what some of the PEs hand on."""
        here = tuple(index[mine] for index in at)
        side = np.sign(self.offsets[k][here])
        for way in (-1, 1):
            there = tuple(index[side == way] for index in here)
            self.begun[k][way][there], self.through[k][way][there] = begin[mine][side == way], whole[mine][side == way]
        self.gone[k][here] = np.maximum(self.gone[k][here], whole[mine])

    def ends(self, product: int) -> Times:
        """Return when the products of the PEs end."""
        m, shape = self.m, self.main.shape
        found = sum(axis.spread([axis.finding(p, self.step) for p in range(axis.size)], shape) for axis in self.axes)
        told = np.maximum(self.main, np.maximum(*self.come))
        start = told + m["task.start"] + 1 + found + 1
        end = start + product
        for axis, gone in zip(self.axes, self.gone, strict=True):
            end = end + np.where(np.isfinite(gone), np.clip((gone - start) * axis.share, 0, axis.wavelets), 0)
        return end


def relay_cycles(
    machine: Machine, width: int, height: int, slices: int, held: Sequence[int], wavelets: Sequence[int], shape: Shape
) -> float:
    """Return the cycles from the first to the last time stamp of the PE with most of them.

    Squares beyond `SIDES` are continued from those two by a line, on which they lie within half a percent, and other
    meshes with more than `STEPS` steps from the later half of those.
    """
    if width == height > SIDES[1]:
        low, high = (relay_cycles(machine, side, side, side, held, wavelets, shape) for side in SIDES)
        return high + (width - SIDES[1]) * (high - low) / (SIDES[1] - SIDES[0])
    m = machine
    axes = (_Axis(m, "a", width, held[0], int(wavelets[0])), _Axis(m, "b", height, held[1], int(wavelets[1])))
    product = product_cycles(shape, m)
    asks = np.full((height, width), float(timing.stamp(m) + sum(axis.loads() for axis in axes) + 1 + m["ce.call"]))
    gone: Sequence[Times] = [np.full((height, width), -np.inf) for _ in axes]
    ends = []
    for step in range(min(slices, STEPS)):
        found = _Step(axes, step, asks, gone)
        gone = found.gone
        last = found.ends(product)
        ends.append(float(last.max()))
        asks = last + 1 + m["ce.branch_not_taken"] + m["ce.call"]
    rest = (slices - len(ends)) * (ends[-1] - ends[len(ends) // 2]) / max(1, len(ends) - 1 - len(ends) // 2)
    return ends[-1] + rest + 1 + m["ce.branch_taken"]
