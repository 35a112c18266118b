"""The clock of a rank: cycles of its rows, exchanges with its neighbours, and when all ranks stop.

Two neighbours exchange after a cycle in which something may cross the border between them.  Each message says when that
may be so again, as far as its sender knows; the earlier of the two is the next exchange, or the next cycle if something
has just crossed.  Both know both numbers, so they agree without asking.  After a turn of some cycles all ranks gather
what one clock would know: a fault, whether anything is under way, and when something is to be done next.

Rows of other ranks may have gone on to the end of a turn when a fault is found, as bands of rows may.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fabric.engine.part import Part
from fabric.ranks.world import Words, World

__all__ = ["TURN", "Facts", "Stop", "buffers_of", "gathered", "turn", "what_next"]

TURN = 64  # cycles between two looks of all ranks at each other


class Facts(NamedTuple):
    """What a rank, or all of them, know after a turn.

    Attributes
    ----------
    fault, cell : int
        Cycle and place of the earliest fault; -1: none.
    seen : int
        The last cycle that had to be looked at.
    due : int
        Whether queues become ready at a known time.
    next : int
        The next cycle in which a PE or the host has something to do; 0: never.
    quiet : int
        The cycle in which one clock would have found that nothing is left to do, if nothing is.
    last_active : int
        The last cycle in which anything happened.
    hops : int
        Wavelets moved so far.
    """

    fault: int
    cell: int
    seen: int
    due: int
    next: int
    quiet: int
    last_active: int
    hops: int


class Stop(NamedTuple):
    """A `Stop` says where a turn leads: whether the run ends, why and in which cycle.

    Attributes
    ----------
    status : {"limit", "quiet", "fault"} or None
        Why the run ends; None: it goes on.
    cycle : int
        At which the clock stands.
    """

    status: str | None
    cycle: int


def gathered(part: Part, world: World) -> Facts:
    """Return what all ranks together know."""
    facts = world.gather(part.facts())
    faulty = facts[facts[:, 0] >= 0]
    fault, cell = min((int(row[0]), int(row[1])) for row in faulty) if len(faulty) else (-1, 0)
    times = facts[:, 4][facts[:, 4] > 0]
    return Facts(
        fault,
        cell,
        int(facts[:, 2].max()),
        int(facts[:, 3].max()),
        int(times.min()) if len(times) else 0,
        int(facts[:, 5].max()),
        int(facts[:, 6].max()),
        int(facts[:, 7].sum()),
    )


def turn(part: Part, world: World, start: int, end: int, buffers: dict[int, Words]) -> int:
    """Advance the rows of this rank from cycle `start` to `end`; return the number of exchanges."""
    due = dict.fromkeys(part.sides, start)  # the host may have done anything in the meantime
    now, exchanges = start, 0
    while now < end:
        now = min([end, *(cycle + 1 for cycle in due.values())])
        part.advance(now)
        messages, told = {}, {}
        for side, cycle in due.items():
            if cycle + 1 == now:
                length, crossed = part.give(side, buffers[side])
                messages[side] = buffers[side][:length]
                told[side] = now if crossed else int(buffers[side][0])
        if not messages:
            continue
        exchanges += 1
        for side, words in world.swap(messages, part.room).items():
            then, crossed = part.take(side, words)
            due[side] = max(now, min(told[side], now if crossed else then, end - 1))
    return exchanges


def what_next(facts: Facts, end: int, limit: int, refresh: int) -> Stop:
    """Return where a turn that went to cycle `end` leads: what one clock would do there."""
    if 0 <= facts.fault < end:
        return Stop("fault", facts.fault + 1)
    if facts.seen == end or facts.due:
        return Stop("limit" if end >= limit else None, end)
    times = [time for time in (facts.next, facts.fault) if time > 0]
    if not times:
        return Stop("quiet", facts.quiet)
    cycle = min([*times, limit, refresh])
    return Stop("limit" if cycle >= limit else None, cycle)


def buffers_of(part: Part) -> dict[int, Words]:
    """Return room for the messages of a rank."""
    return {side: np.empty(part.room, np.uint64) for side in part.sides}
