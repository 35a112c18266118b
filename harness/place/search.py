"""Search over plans and time limits: simulated annealing in rounds, whose sequence depends on the seed alone.

The cost of a plan at a time limit is the limit times its weight, plus the length of wires times theirs.  A plan that
needs more columns of PEs than there are is not refused but costs as if time grew with the area that is missing: it
leads to better ones, and after each round `Search.settle` finds the time limit at which the best plan of the round
really fits.

A round anneals one plan of a small pool.  Plans to begin with are the network cut into 1, 2, ... columns in the order
in which data flow, up one and down the next.  Of `FEW` items or fewer all plans are tried instead, in the first round:
there is no other way to lie apart for so few rectangles, so what is found is the best.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random

import numpy as np

from harness.place.bands import Plan, Sizer
from harness.place.moves import random_move

__all__ = ["Found", "Search", "SearchTask", "flow_order"]

STEPS = 2000
"""A round has so many steps."""
FEW = 3
"""Items of which all plans are tried; these are 66 then, and would be 984 of one more."""
POOL = 6
"""So many plans are annealed in turn."""
MOST_COLUMNS = 16
"""A plan to begin with has at most so many columns."""
STARTS = (1.03, 1.1, 1.25, 1.6, 2.2, 3.5, 6.0, 12.0, 25.0)
"""Time limits at which plans to begin with are made, over the bound by area; more if nothing fits."""
SETTLE = (1.0, 1.005, 1.01, 1.02, 1.035, 1.05, 1.08, 1.13, 1.2, 1.35, 1.6, 2.0, 2.5, 3.2, 4.0, 5.6, 8.0)
"""These time limits are tried for a plan, over the least at which it fits."""
RATIO = 1.0002
"""Of neighbouring time limits: those of a search are the bound times its powers, and are named by the exponent."""
COARSE = 256
"""Time limits that are so many exponents apart are tried first, so that plans ask for the same ones; a power of two."""
FAR = 14_000
"""A plan is tried up to so many exponents above its own: 16 times the time."""
ROUND = 16
"""`SETTLE` is rounded to so many exponents, likewise."""
MOST_LIMITS = 160
"""Time limits whose curves are remembered; those of a contest problem are 100 kilobytes."""
STRETCHES = (1.0, 0.5, 0.0)
"""Columns get this share of the width that is left; `Sizer.plan`."""
SHORTER = 0.9
"""To what share of their length a step shortens all wires together at most; what would need more is not measured."""
HOT, COLD = 4e-3, 2e-5
"""Temperature at the begin of the first rounds and at the end of all, over the cost."""


@dataclass(frozen=True)
class SearchTask:
    """A `SearchTask` is what is to be placed.

    Attributes
    ----------
    kinds : sequence of int
        Kind of each item.
    curves : callable
        Time limit -> of each kind, the least height for widths 0 .. width; falls, and falls with the limit.
    width, height : int
        Of the wafer [PEs].
    wires : sequence of (int, int)
        Items that are connected.
    bound : Fraction
        A time limit that is not above any possible one.
    time_weight, wire_weight : float
        Of the slowest item and of the length of wires.
    """

    kinds: Sequence[int]
    curves: Callable[[Fraction], Sequence[np.ndarray]]
    width: int
    height: int
    wires: Sequence[tuple[int, int]]
    bound: Fraction
    time_weight: float
    wire_weight: float


@dataclass(frozen=True)
class Found:
    """A `Found` is a plan that fits at a time limit with columns stretched so far (`Sizer.plan`), and what it costs
    there.
    """

    cost: float
    level: int
    limit: Fraction
    wire: float
    plan: Plan
    stretch: float


def flow_order(items: int, wires: Sequence[tuple[int, int]]) -> list[int]:
    """Return the items in an order in which data flow, along one branch as far as it goes; circles come last."""
    after: list[list[int]] = [[] for _ in range(items)]
    before = [0] * items
    for source, target in wires:
        after[source].append(target)
        before[target] += 1
    order: list[int] = []
    ready = [item for item in reversed(range(items)) if not before[item]]
    while ready:
        item = ready.pop()
        order.append(item)
        for target in after[item]:
            before[target] -= 1
            if not before[target]:
                ready.append(target)
    placed = set(order)
    return order + [item for item in range(items) if item not in placed]


class Search:
    """One sequence of rounds.

    Parameters
    ----------
    task : SearchTask
    seed : int or str
        Two searches of one task and one seed take the same steps.

    Attributes
    ----------
    best : Found or None
        The cheapest plan that fits.
    rounds : int
        How many have been done.
    """

    def __init__(self, task: SearchTask, seed: int | str = 0) -> None:
        self.task, self.random = task, Random(seed)
        self.items = len(task.kinds)
        self.ends = np.array([pair[0] for pair in task.wires], int), np.array([pair[1] for pair in task.wires], int)
        self.neighbours: list[list[int]] = [[] for _ in range(self.items)]
        for first, second in task.wires:
            self.neighbours[first].append(second)
            self.neighbours[second].append(first)
        self.x, self.y = np.zeros(self.items), np.zeros(self.items)
        self.sizers: dict[int, Sizer] = {}
        self.curves: dict[int, Sequence[np.ndarray]] = {}
        self.best: Found | None = None
        self.rounds = 0
        self.pool: list[tuple[int, Plan, float]] = []

    def limit(self, level: int) -> Fraction:
        """Return the time limit with an exponent."""
        return Fraction(float(self.task.bound) * RATIO**level) if level else self.task.bound

    def _sizer(self, level: int) -> Sizer:
        """Return what sizes plans at a time limit; the last few are kept, and the curves of many."""
        found = self.sizers.get(level)
        if found is None:
            if len(self.sizers) >= 4:
                self.sizers.pop(next(iter(self.sizers)))
            found = self.sizers[level] = Sizer(self._curves(level), self.task.kinds, self.task.height)
        return found

    def _curves(self, level: int) -> Sequence[np.ndarray]:
        """Return the curves at a time limit."""
        found = self.curves.pop(level, None)
        if found is None:
            found = self.task.curves(self.limit(level))
            if len(self.curves) >= MOST_LIMITS:
                self.curves.pop(next(iter(self.curves)))
        self.curves[level] = found
        return found

    def measure(self, sizer: Sizer, plan: Plan, stretch: float) -> tuple[int, float] | None:
        """Return the width that a plan takes and the length of its wires; None if a column has no size."""
        left = 0
        columns = sizer.plan(plan, stretch)
        if columns is None:
            return None
        for sized in columns:
            self.x[sized.items] = sized.x + left
            self.y[sized.items] = sized.y
            left += sized.width
        first, second = self.ends
        across = np.abs(self.x[first] - self.x[second]).sum() + np.abs(self.y[first] - self.y[second]).sum()
        return left, float(across)

    def cost(self, limit: float, measured: tuple[int, float]) -> float:
        """Return the cost of a plan of some width and wires; too much width counts as time."""
        width, wire = measured
        over = max(1.0, width / self.task.width)
        return self.task.time_weight * limit * over**1.5 + self.task.wire_weight * wire

    def begin(self) -> None:
        """Fill the pool with plans to begin with, the cheapest first and of different numbers of columns."""
        order = flow_order(self.items, self.task.wires)
        found: list[tuple[float, int, int, Plan]] = []
        factors = iter(STARTS)
        factor = 1.0
        while factor < 1e12 and not (found and factor >= STARTS[-1]):
            factor = next(factors, factor * 2)
            level = _levels(factor)
            sizer, limit = self._sizer(level), float(self.limit(level))
            for columns in range(1, min(self.items, MOST_COLUMNS) + 1):
                plan = _cut(order, columns)
                measured = self.measure(sizer, plan, 1.0)
                if measured is not None:
                    found.append((self.cost(limit, measured), columns, level, plan))
        found.sort(key=lambda start: start[:3])
        seen: set[int] = set()
        for _, columns, level, plan in found:
            if columns not in seen and len(self.pool) < POOL:
                seen.add(columns)
                self.pool.append((level, plan, 1.0))

    def round(self) -> bool:
        """Anneal one plan; return whether a cheaper one that fits was found."""
        if self.items <= FEW:
            self.rounds += 1
            return self.rounds == 1 and self._try_all()
        if not self.pool:
            self.begin()
            if not self.pool:
                return False
        first = self.rounds < len(self.pool)
        index = self.rounds if first else 0 if self.random.random() < 0.6 else self.random.randrange(len(self.pool))
        hot = HOT if first else COLD * (HOT / COLD) ** self.random.uniform(0.25, 1.0)
        level, plan, stretch = self.pool[index]
        if not first and self.random.random() < 0.25:
            stretch = self.random.choice(STRETCHES)
        plan = self._annealed(level, plan, stretch, hot)
        self.rounds += 1
        settled = self.settle(level, plan)
        if settled is None:
            return False
        self.pool[index] = settled.level, settled.plan, settled.stretch
        better = self.best is None or settled.cost < self.best.cost
        if better:
            self.best = settled
            self.pool[index], self.pool[0] = self.pool[0], self.pool[index]
        elif not first and index:
            # A plan that stays behind gives way to the best, to go another way from there.
            assert self.best is not None
            if settled.cost > 1.02 * self.best.cost:
                self.pool[index] = self.best.level, self.best.plan, self.best.stretch
        return better

    def _try_all(self) -> bool:
        """Settle all plans there are; return whether one fits."""
        for plan in _all_plans(self.items):
            settled = self.settle(_levels(STARTS[-1]) if self.best is None else self.best.level, plan)
            if settled is not None and (self.best is None or settled.cost < self.best.cost):
                self.best = settled
        return self.best is not None

    def _annealed(self, level: int, plan: Plan, stretch: float, hot: float) -> Plan:
        """Return the cheapest plan met on a random walk that grows colder."""
        sizer, random, most = self._sizer(level), self.random, float(self.limit(level))
        measured = self.measure(sizer, plan, stretch)
        assert measured is not None
        cost = best_cost = self.cost(most, measured)
        best, wire = plan, measured[1]
        heat, cooling = hot * cost, (COLD / hot) ** (1 / STEPS)
        for _ in range(STEPS):
            heat *= cooling
            new = random_move(plan, self.items, self.neighbours, random)
            if new is None:
                continue
            bearable = cost - heat * math.log(1 - random.random())
            if self.cost(most, (sizer.needed(new), SHORTER * wire)) > bearable:
                continue  # most plans are too wide: their wires need not be looked at
            measured = self.measure(sizer, new, stretch)
            if measured is None:
                continue
            new_cost = self.cost(most, measured)
            if new_cost <= bearable:
                plan, cost, wire = new, new_cost, measured[1]
                if cost < best_cost:
                    best, best_cost = plan, cost
        return best

    def fits(self, level: int, plan: Plan) -> bool:
        """Whether a plan fits at a time limit."""
        return self._sizer(level).needed(plan) <= self.task.width

    def _least(self, level: int, plan: Plan) -> int | None:
        """Return the least time limit at which a plan fits, near the given one; None if it fits at none."""
        low, high, step = -1, level, COARSE
        if self.fits(level, plan):
            while (down := (high - 1) // step * step) >= 0:
                if not self.fits(down, plan):
                    low = down
                    break
                high, step = down, 2 * step
        else:
            while not self.fits(high, plan):
                low, high, step = high, (high // step + 1) * step, 2 * step
                if high > level + FAR:
                    return None
        while high - low > 1:
            middle = _roundest(low, high)
            low, high = (low, middle) if self.fits(middle, plan) else (middle, high)
        return high

    def settle(self, level: int, plan: Plan) -> Found | None:
        """Return a plan at the time limit that makes it cheapest; None if it fits at none."""
        least = self._least(level, plan)
        if least is None:
            return None
        found = None
        for factor in SETTLE:
            at = least if factor == 1 else -(-(least + _levels(factor)) // ROUND) * ROUND
            limit = self.limit(at)
            if found is not None and self.task.time_weight * float(limit) >= found.cost:
                break  # without any wire it would cost more
            for stretch in STRETCHES:
                measured = self.measure(self._sizer(at), plan, stretch)
                if measured is None or measured[0] > self.task.width:
                    continue
                cost = self.cost(float(limit), measured)
                if found is None or cost < found.cost:
                    found = Found(cost, at, limit, measured[1], plan, stretch)
        return found


def _levels(factor: float) -> int:
    """Return the exponents between time limits whose ratio is given."""
    return round(math.log(factor) / math.log(RATIO))


def _roundest(low: int, high: int) -> int:
    """Return the number between two others that the largest power of two divides."""
    shift = (high - low).bit_length()
    while ((high - 1) >> shift) << shift <= low:
        shift -= 1
    return ((high - 1) >> shift) << shift


def _all_plans(items: int) -> Iterator[Plan]:
    """Yield all plans, but those in which a row is nothing but a stack, which is as good as rows of its items."""
    for order in itertools.permutations(range(items)):
        for begins in itertools.product(range(4), repeat=items - 1):  # what begins with each item after the first one
            columns: list[list[list[list[int]]]] = [[[[order[0]]]]]
            for item, begin in zip(order[1:], begins, strict=True):
                if begin == 3:
                    columns.append([[[item]]])
                elif begin == 2:
                    columns[-1].append([[item]])
                elif begin == 1:
                    columns[-1][-1].append([item])
                else:
                    columns[-1][-1][-1].append(item)
            if all(len(row) > 1 or len(row[0]) == 1 for column in columns for row in column):
                yield tuple(tuple(tuple(tuple(stack) for stack in row) for row in column) for column in columns)


def _cut(order: Sequence[int], columns: int) -> Plan:
    """Return the items in columns of like number, up one and down the next."""
    cuts = [round(index * len(order) / columns) for index in range(columns + 1)]
    parts = [order[cuts[index] : cuts[index + 1]] for index in range(columns)]
    return tuple(
        tuple(((item,),) for item in (reversed(part) if index % 2 else part)) for index, part in enumerate(parts)
    )
