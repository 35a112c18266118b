"""One pass of all wafers on one clock: each part goes as far as nothing can reach it.

A conservative simulation.  A wafer runs until the first cycle in which something could reach it that is not known yet:
a word that waits for room at a wafer, or leave for a number that waits for others on their way up.  Both take the
latency of the links, the lookahead, from wherever the wafers stand, and can matter no earlier than a column may have
taken what is known, a word a cycle (`swarm.ports.WaferPort.lacks`).  Words that carry what is made of sums of the same
pass (`fabric.networks.streamed.script.RoundTrip`) take as long from where the last wafer stands that still sums.  As
long as the buffers between memory service and wafers hold what is under way, everything else is known beforehand, and
each wafer runs to its end, or to such a sum, in one piece.

Wafers share nothing while they run.  Their order, and how many run side by side, cannot matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, wait

import numpy as np

from fabric.networks.streamed.script import RoundTrip
from swarm.down import Down
from swarm.ports import Times, WaferPort
from swarm.up import Up
from wse_core.errors import InternalError

__all__ = ["side_by_side", "together", "travel"]


def together(pool: Executor, calls: Sequence[tuple]) -> list:
    """Return what calls, (function, *arguments) each, return; after an interruption none of them runs on."""
    if len(calls) == 1:
        return [function(*arguments) for function, *arguments in calls]
    working = [pool.submit(*call) for call in calls]
    try:
        return [future.result() for future in working]
    finally:
        for future in working:
            future.cancel()
        wait(working)


def side_by_side(ports: Sequence[WaferPort], horizons: Sequence[float], pool: Executor) -> list[bool]:
    """Have every wafer simulated until its horizon; return whether anything happened there."""
    return together(pool, [(port.advance, horizon) for port, horizon in zip(ports, horizons, strict=True)])


def travel(
    ports: Sequence[WaferPort],
    down: Down,
    up: Up,
    pool: Executor | None,
    advance: Callable[..., list[bool]] = side_by_side,
    trips: Sequence[RoundTrip] = (),
    answer: Callable[[RoundTrip], None] | None = None,
) -> None:
    """Move the words of a pass down, let the wafers work on them, and move what they give up.

    Parameters
    ----------
    ports : sequence of WaferPort
        After `WaferPort.begin`.
    down, up : Down, Up
        After `begin`.
    pool : Executor or None
        In which wafers run; handed to `advance`.
    advance : callable, optional
        Called as `side_by_side`, which runs all of them in this process.
    trips : sequence of RoundTrip, optional
        Those of the pass.
    answer : callable, optional
        Called with each of them when its numbers are there, before its words go out.
    """
    left_to_do = list(trips)
    entered = [np.empty(0) for _ in ports]
    left = [np.empty(0) for _ in ports]
    common = 0
    while True:
        made, common = _made(entered, down.back, common), min(map(len, entered))
        before = down.known, up.known
        up.extend(left)
        while left_to_do and up.known >= left_to_do[0].needed:
            trip = left_to_do.pop(0)
            if answer is not None:
                answer(trip)
            down.open(up.answered(trip.needed, len(trip.places)))
        down.extend(made)
        for number, port in enumerate(ports):
            port.offer(down.arrived(number, port.offered, down.known))
            port.allow(up.taken(number, port.allowed))
        clocks = np.array([port.clock for port in ports], np.float64)
        top = down.reach(clocks, np.array([len(times) for times in entered]))
        counts = np.array([len(times) for times in left])
        bottom = up.reach(clocks, counts)
        if down.waits:
            top = up.answer(clocks, counts, left_to_do[0].needed, len(left_to_do[0].places))
        last = bool(np.isinf(top) and np.isinf(bottom))
        reached = zip(down.away, up.back, (port.lacks() for port in ports), strict=True)
        horizons = [min(max(top + away, dry), max(bottom + back, full)) for away, back, (dry, full) in reached]
        heard = advance(ports, horizons, pool)
        known = [port.known() for port in ports]
        entered, left = [times for times, _ in known], [times for _, times in known]
        if last:
            break
        if not any(heard) and all(port.quiet for port in ports) and before == (down.known, up.known):
            advance(ports, [np.inf] * len(ports), pool)  # says who waits for whom
            raise InternalError("nothing moves between memory service and wafers", where="system")
    down.end(_made(entered, down.back, common))
    up.extend(left)
    for port in ports:
        port.finish()


def _made(entered: Sequence[Times], back: Times, first: int) -> Times:
    """Return when words, from the first on that was not known, made room at the top: entered everywhere, and told."""
    common = min(map(len, entered))
    return np.max([times[first:common] + way for times, way in zip(entered, back, strict=True)], axis=0)
