"""The cycles of a streamed gradient are found by following rows of PEs mask row by mask row.

Timing: no numbers of its own, `fabric.price.timing`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.streamed.placement import Placement
from fabric.price import timing
from wse_core.params import Machine

__all__ = ["QUEUES", "dot_cycles", "expected_cycles"]

QUEUES = 1, 3
"""The rows of dY have this input and this output queue."""

AHEAD = 4
"""Rows before the present one that may still lie in queues."""


def dot_cycles(tokens: int, machine: Machine) -> int:
    """Return the cycles that a place of the mask costs its PE."""
    m = machine
    product = timing.elementwise(m, "fh2s", tokens) + timing.elementwise(m, "fmuls", tokens)
    return m["task.start"] + 1 + m["ce.dsr_edit"] + 1 + product + _added(tokens, m) + timing.operation(m, 1) + 1


def _added(steps: int, m: Machine) -> int:
    """Return the cycles of additions to a register, one a step, to the issue of what uses the sum."""
    return timing.operation(m, steps) + max(0, m["ce.fp_latency"] - 1 - m["vec.drain"])


def expected_cycles(
    indptr: NDArray[np.int64], indices: NDArray[np.int64], inputs: Placement, outputs: Placement, machine: Machine
) -> float:
    """Return the cycles from the first command to the last sum: every column followed row by row.

    Followed are the northern row of the first group and the southern one of the last, which has most to load and to
    add.  Sums reach the southern edge a stage per row later, and then go from group to group.
    """
    m, columns, height, groups = machine, inputs.columns, inputs.height, inputs.groups
    loads = 7 + 2 * (columns > 1)
    south = loads + (height > 1) + (groups > 1)
    more = _added(1, m) if height > 1 and groups > 1 else 0
    ends, begins = [], []
    sizes = np.diff(inputs.token_starts)
    for count, hops, slower, tokens in ((loads, 1, 0, int(sizes[0])), (south, height, more, int(sizes[-1]))):
        begins.append(max(m["task.start"] + timing.load(m, count) + 1, m["ramp.in"] + m["router.hop"] * hops))
        ends.append(_followed(indptr, indices, inputs, outputs, m, begins[-1], tokens, slower))
    if not len(indices):
        return max(ends)
    way = timing.stage(m) * (height - 1)
    # The northern row's last sum, or a southern row that is slower from its first sum on, for which it may have waited.
    waited = max(0, way - (begins[1] - begins[0])) if more else 0
    last = max(ends[0] + way + more + (groups - 1) * timing.way(m, columns), ends[1] + waited)
    return max(last - m["vec.drain"] - 2 + m["ramp.execute"] + m["ramp.out"] + 1, last)


def _followed(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int64],
    inputs: Placement,
    outputs: Placement,
    m: Machine,
    begin: int,
    tokens: int,
    slower: int,
) -> float:
    """Return when the last PE of a row of PEs is done, if all begin at `begin`; a place costs `slower` cycles more.

    A row of dY takes two cycles per wavelet at each receiver.  One that comes late keeps the others waiting once there
    is no room before it: those behind it get what it has let through, those before it have the routers between too.
    """
    columns, wavelets = inputs.columns, -(-tokens // 2)
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    counts = np.zeros((len(indptr) - 1, columns), np.int64)
    np.add.at(counts, (rows, np.searchsorted(inputs.feature_starts, indices, side="right") - 1), 1)
    dot, issue, edit, drain = dot_cycles(tokens, m) + slower, timing.issue(m), m["ce.dsr_edit"], m["vec.drain"]
    free, distance = np.full(columns, begin, np.float64), np.arange(columns)
    room = m["queue.in_depth"][QUEUES[0]] + m["ramp.in_buffer"]
    lead = m["task.start"] + edit + m["ce.config"]
    pace = max(2, timing.train(m, wavelets, *QUEUES) / max(1, wavelets))  # cycles per wavelet of a row that has waited
    firsts: list[NDArray[np.float64]] = []
    # From one's router to another's CE.
    apart = m["ramp.in"] + m["router.hop"] * np.abs(distance[:, np.newaxis] - distance)
    ways = np.full(columns, 2)  # the side of each PE on which the owner of the row before lies, as a sign
    for row, here in enumerate(counts):
        if columns == 1:
            free = free + m["task.start"] + 2 * edit + timing.elementwise(m, "fh2s", tokens) + 1
        else:
            owner = outputs.owner(row)
            side = distance - owner
            behind = (np.sign(side)[:, np.newaxis] == np.sign(side)) & (np.abs(side)[:, np.newaxis] > np.abs(side))
            behind &= side != 0  # [who, behind whom]
            sent = free[owner] + lead + issue
            came = sent + np.where(side == 0, timing.ramps(m), timing.way(m, np.abs(side)))
            # A router whose CE has not turned it lets nothing through; it need not turn if the last row came that way.
            turned = np.where(np.sign(side) == ways, -np.inf, free + lead)
            ways = np.sign(side)
            through = turned + apart
            came = np.maximum(came, np.where(behind, through, -np.inf).max(axis=1))
            ready = free + lead + issue
            ready[owner] += 1
            first = np.maximum(ready, came)
            done = np.maximum(first + tokens, came + timing.train(m, wavelets, *QUEUES) + 1)
            done[owner] = max(done[owner], sent + wavelets + tokens)  # the send goes first
            between = np.abs(side) - np.where(
                np.sign(side)[:, np.newaxis] == np.sign(side), np.abs(side)[:, np.newaxis], 0
            )
            space = room + m["router.depth"] * np.maximum(0, between)  # [who, before whom]
            space[owner] += m["queue.out_depth"][QUEUES[1]]  # who sends goes on when its row has left
            firsts = [first, *firsts[:AHEAD]]
            for back, begun in enumerate(firsts):
                held = (back + 1) * wavelets - space
                late = np.where((side != 0) & (held > 0) & (held <= wavelets), begun + pace * held + apart, -np.inf)
                done = np.maximum(done, late.max(axis=1))
            held = wavelets - space + room
            shut = np.where(
                (side != 0) & (held > 0) & ~behind & ~np.eye(columns, dtype=bool), turned + held + 1, -np.inf
            )
            done = np.maximum(done, shut.max(axis=1))
            free = done + drain + 1
            free[owner] += edit
        free = free + here * dot
    return float(free.max())
