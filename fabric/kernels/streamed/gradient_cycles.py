"""How long a streamed gradient takes: rows of PEs of `fabric.kernels.streamed.gradient` followed mask row by mask row.

Timing: no numbers of its own, `fabric.kernels.kit.timing`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.kit import timing
from fabric.kernels.streamed.placement import Placement
from wse_core.params import Machine

__all__ = ["dot_cycles", "expected_cycles", "turn_cycles"]


def dot_cycles(tokens: int, machine: Machine) -> int:
    """Return the cycles that a place of the mask costs its PE."""
    m = machine
    product = timing.elementwise(m, "fh2s", tokens) + timing.elementwise(m, "fmuls", tokens)
    return m["task.start"] + 1 + m["ce.dsr_edit"] + 1 + product + _added(tokens, m) + timing.operation(m, 1) + 1


def turn_cycles(tokens: int, machine: Machine) -> int:
    """Return the cycles that two neighbouring places of a dense mask cost their PE when a command asks for a row."""
    m = machine
    answer = dot_cycles(tokens, m) - m["task.start"] - 1 - m["ce.dsr_edit"] - 1
    return 2 * (answer + m["ce.dsr_edit"]) + 1 + m["ce.branch_taken"]


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
    ends = []
    sizes = np.diff(inputs.token_starts)
    for count, hops, slower, tokens in ((loads, 1, 0, int(sizes[0])), (south, height, more, int(sizes[-1]))):
        ready = max(m["task.start"] + timing.load(m, count) + 1, m["ramp.in"] + m["router.hop"] * hops)
        ends.append(_followed(indptr, indices, inputs, outputs, m, ready, tokens, slower))
    if not len(indices):
        return max(ends)
    way = timing.stage(m) * (height - 1)
    # The northern row's last sum, or a southern row that is slower from its first sum on.
    last = max(ends[0] + way + more + (groups - 1) * timing.way(m, columns), ends[1], ends[1] + way if more else 0)
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

    A row of dY takes two cycles per wavelet at each receiver, and the slowest keeps all others waiting once its queue
    is full.
    """
    columns, wavelets = inputs.columns, -(-tokens // 2)
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    counts = np.zeros((len(indptr) - 1, columns), np.int64)
    np.add.at(counts, (rows, np.searchsorted(inputs.feature_starts, indices, side="right") - 1), 1)
    dot, issue, edit, drain = dot_cycles(tokens, m) + slower, timing.issue(m), m["ce.dsr_edit"], m["vec.drain"]
    free, distance = np.full(columns, begin, np.float64), np.arange(columns)
    buffered = m["queue.in_depth"][1] + m["ramp.in_buffer"]
    lead = m["task.start"] + edit + m["ce.config"]
    for row, here in enumerate(counts):
        if columns == 1:
            free = free + m["task.start"] + 2 * edit + timing.elementwise(m, "fh2s", tokens) + 1
        else:
            owner = outputs.owner(row)
            sent = free[owner] + lead + issue
            came = sent + np.where(distance == owner, timing.ramps(m), timing.way(m, np.abs(distance - owner)))
            ready = free + lead + issue
            ready[owner] += 1
            first = np.maximum(ready, came)
            done = np.maximum(first + tokens, came + timing.train(m, wavelets, 1, 3) + 1)
            done[owner] = max(done[owner], sent + wavelets + tokens)  # the send goes first
            if wavelets > buffered:
                done = np.maximum(done, first.max() + 2 * (wavelets - buffered))
            free = done + drain + 1
            free[owner] += edit
        free = free + here * dot
    return float(free.max())
