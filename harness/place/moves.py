"""A step of the search is a plan with one item, row or column elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from harness.place.bands import Column, Plan, Row
from wse_core.errors import InternalError

__all__ = ["position", "random_move"]

MOST_STACKS = 4
MOST_ITEMS = 5
"""Stacks of a row and items of a stack: curves of more are seldom useful and are computed anew each time."""


def position(plan: Plan, item: int) -> tuple[int, int, int, int]:
    """Return column, row, stack and place in it of an item."""
    for c, column in enumerate(plan):
        for r, row in enumerate(column):
            for s, stack in enumerate(row):
                if item in stack:
                    return c, r, s, stack.index(item)
    raise InternalError(f"item {item} is not in the plan")


def _replaced(plan: Plan, index: int, column: Column) -> Plan:
    """Return a plan with another column at a place, or without it if that is empty."""
    return (*plan[:index], *([column] if column else []), *plan[index + 1 :])


def _without(plan: Plan, item: int, at: tuple[int, int, int, int]) -> Plan:
    """Return a plan without one item; what becomes empty goes."""
    c, r, s, _ = at
    column, row = plan[c], plan[c][r]
    stack = tuple(other for other in row[s] if other != item)
    row = (*row[:s], *([stack] if stack else []), *row[s + 1 :])
    return _replaced(plan, c, (*column[:r], *([row] if row else []), *column[r + 1 :]))


def _relocated(plan: Plan, item: int, beside: int, random: Random) -> Plan | None:
    """Return a plan in which an item stands next to another one: in its stack, its row or its column."""
    plan = _without(plan, item, position(plan, item))
    c, r, s, p = position(plan, beside)
    column, row, stack = plan[c], plan[c][r], plan[c][r][s]
    kind, after = random.random(), random.randrange(2)
    if kind < 0.5:
        return _replaced(plan, c, (*column[: r + after], ((item,),), *column[r + after :]))
    new: Row
    if kind < 0.8:
        if len(row) >= MOST_STACKS:
            return None
        new = (*row[: s + after], (item,), *row[s + after :])
    else:
        if len(stack) >= MOST_ITEMS:
            return None
        new = (*row[:s], (*stack[: p + after], item, *stack[p + after :]), *row[s + 1 :])
    return _replaced(plan, c, (*column[:r], new, *column[r + 1 :]))


def _swapped(plan: Plan, first: int, second: int) -> Plan:
    """Return a plan in which two items have changed places."""
    to = {first: second, second: first}
    for c in sorted({position(plan, first)[0], position(plan, second)[0]}):
        column = tuple(tuple(tuple(to.get(i, i) for i in stack) for stack in row) for row in plan[c])
        plan = _replaced(plan, c, column)
    return plan


def _row_moved(plan: Plan, random: Random) -> Plan | None:
    """Return a plan with one row, or some that follow each other, at another place, upside down or not."""
    c = random.randrange(len(plan))
    column = plan[c]
    first = random.randrange(len(column))
    last = min(len(column), first + 1 + int(random.expovariate(0.7)))
    block = column[first:last]
    if random.random() < 0.5:
        block = block[::-1]
    rest = _replaced(plan, c, (*column[:first], *column[last:]))
    if not rest:
        return None
    near = min(len(rest) - 1, max(0, c + random.choice((-1, -1, 0, 0, 0, 1, 1))))
    target = rest[near]
    at = random.choice((0, len(target), random.randrange(len(target) + 1)))
    return _replaced(rest, near, (*target[:at], *block, *target[at:]))


def _mirrored(plan: Plan, random: Random) -> Plan:
    """Return a plan with part of a column upside down, or a row or a stack the other way round."""
    c = random.randrange(len(plan))
    column = plan[c]
    if random.random() < 0.5:
        first, last = sorted((random.randrange(len(column) + 1), random.randrange(len(column) + 1)))
        return _replaced(plan, c, (*column[:first], *column[first:last][::-1], *column[last:]))
    r = random.randrange(len(column))
    row = column[r]
    if random.random() < 0.5:
        row = row[::-1]
    else:
        s = random.randrange(len(row))
        row = (*row[:s], row[s][::-1], *row[s + 1 :])
    return _replaced(plan, c, (*column[:r], row, *column[r + 1 :]))


def _columns_changed(plan: Plan, random: Random) -> Plan | None:
    """Return a plan with a column cut in two, two made one, two exchanged, or all cut anew."""
    kind = random.random()
    c = random.randrange(len(plan))
    column = plan[c]
    if kind < 0.2 and len(column) > 1:
        cut = random.randrange(1, len(column))
        return (*plan[:c], column[:cut], column[: cut - 1 : -1] if cut else column[::-1], *plan[c + 1 :])
    if len(plan) < 2:
        return None
    if kind < 0.4:
        other = (c + 1) % len(plan)
        first, second = sorted((c, other))
        joined = (*plan[first], *plan[second][::-1])
        return (*plan[:first], joined, *plan[first + 1 : second], *plan[second + 1 :])
    if kind < 0.7:
        other = random.randrange(len(plan))
        new = list(plan)
        new[c], new[other] = new[other], new[c]
        return tuple(new)
    first = random.randrange(len(plan))
    last = random.randrange(len(plan)) + 1
    if last <= first:
        return None
    return (*plan[:first], *plan[first:last][::-1], *plan[last:])


def _row_changed(plan: Plan, random: Random) -> Plan | None:
    """Return a plan in which a row has become several, or two rows stand side by side."""
    c = random.randrange(len(plan))
    column = plan[c]
    r = random.randrange(len(column))
    row = column[r]
    if len(row) > 1:
        return _replaced(plan, c, (*column[:r], *((stack,) for stack in row), *column[r + 1 :]))
    if r + 1 < len(column) and len(row) + len(column[r + 1]) <= MOST_STACKS:
        return _replaced(plan, c, (*column[:r], (*row, *column[r + 1]), *column[r + 2 :]))
    return None


def random_move(plan: Plan, items: int, neighbours: Sequence[Sequence[int]], random: Random) -> Plan | None:
    """Return a plan one random step away, or None if the step drawn is impossible.

    Parameters
    ----------
    plan : Plan
    items : int
        How many there are.
    neighbours : sequence of sequence of int
        Items to which each is connected: half of the steps bring one to one of these.
    random : random.Random
    """
    kind = random.random()
    if kind < 0.4:
        item = random.randrange(items)
        near = neighbours[item]
        beside = random.choice(near) if near and random.random() < 0.6 else random.randrange(items)
        return None if beside == item else _relocated(plan, item, beside, random)
    if kind < 0.6:
        item, other = random.randrange(items), random.randrange(items)
        if neighbours[other] and random.random() < 0.5:
            other = random.choice(neighbours[other])
        return None if other == item else _swapped(plan, item, other)
    if kind < 0.75:
        return _row_moved(plan, random)
    if kind < 0.85:
        return _mirrored(plan, random)
    if kind < 0.93:
        return _row_changed(plan, random)
    return _columns_changed(plan, random)
