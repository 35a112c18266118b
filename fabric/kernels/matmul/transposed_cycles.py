"""How long dist-GEMM-T takes: every PE of `fabric.kernels.matmul.transposed` followed from step to step.

A step of a PE: it goes on to its tile of B and lets the ring turn, multiplies, and takes its part in the sum along the
row.  The tile that is sent and the one that comes take the datapath before the product does.  Then the sum runs from
both ends of the row toward the root of the step: a PE takes what comes when it is ready, one wavelet a cycle, and hands
it on; one that is early waits, one that is late makes the PEs behind it wait when the queues between them are full.
The root adds one side, then the other, stores and clears.  The next step begins when a PE is done and its tile is
there.

Timing: no numbers of its own, `fabric.price.timing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fabric.kernels.matmul.local import product_cycles
from fabric.price import timing

if TYPE_CHECKING:
    from fabric.kernels.matmul.transposed import GemmT

__all__ = ["expected_cycles"]

QUEUES = {"west": (0, 2), "east": (4, 4)}
"""Input queue of what comes from a side, output queue of those who sent it."""


class _Row:
    """Cycles of the sum along a row: what each PE does between its product and the end of its step."""

    def __init__(self, product: GemmT):
        m, s = product.machine, product.shape
        self.m, self.wavelets, self.width = m, product.part_wavelets, product.width
        count = s.rows * s.columns
        self.clear = timing.elementwise(m, "fmovs" if s.c_dtype == "f32" else "fmovh", count)
        self.room = {
            side: m["queue.in_depth"][into] + m["ramp.in_buffer"] + m["queue.out_depth"][out] + 2 * m["router.depth"]
            for side, (into, out) in QUEUES.items()
        }

    def branches(self, x: int, towards: int) -> tuple[int, int]:
        """Return the cycles of the branches before and behind the operation of PE x: -1 to the west, 1, or 0: root."""
        m, last = self.m, self.width - 1
        taken, on = m["ce.branch_taken"], m["ce.branch_not_taken"]
        if last == 0:
            return 0, 0
        if x in (0, last):
            return (on, taken) if towards else (taken, 0)
        return {-1: (on, taken), 1: (taken + on, taken), 0: (2 * taken, 0)}[towards]

    def ends(self, ready: list[float], root: int) -> list[float]:
        """Return when each PE can issue what follows, if it comes to its part in the sum at `ready`."""
        m, w = self.m, self.wavelets
        issue, drain, stage = timing.issue(m), m["vec.drain"], timing.stage(m)
        first, last, done = [0.0] * self.width, [0.0] * self.width, [0.0] * self.width
        for side, places in (("west", range(root)), ("east", range(self.width - 1, root, -1))):
            before = None
            for x in places:
                begin = ready[x] + self.branches(x, 1 if side == "west" else -1)[0] + issue
                arrival = begin if before is None else first[before] + stage
                first[x] = max(begin, arrival)
                last[x] = timing.received(m, w, begin, arrival, *QUEUES[side])
                before = x
        now = ready[root] + self.branches(root, 0)[0] + 1 + 2 * m["ce.dsr_edit"]
        taken = {}
        for side, place in (("west", root - 1), ("east", root + 1)):
            if 0 <= place < self.width:
                arrival = first[place] + stage
                taken[side] = max(now + issue, arrival)
                now = timing.received(m, w, now + issue, arrival, *QUEUES[side]) + drain
        if not taken:
            now += self.clear
        done[root] = now + self.clear + self.branches(root, 0)[1]
        for side, places in (("west", range(root - 1, -1, -1)), ("east", range(root + 1, self.width))):
            late = taken.get(side, now)
            for x in places:
                if w > self.room[side]:
                    last[x] = max(last[x], late + w - self.room[side])
                done[x] = last[x] + drain + self.branches(x, 1 if side == "west" else -1)[1]
                late = first[x]
        return done


def expected_cycles(product: GemmT) -> int:
    """Return the cycles from the first to the last time stamp of a PE, the most of all PEs."""
    m, (w, h), steps = product.machine, (product.width, product.height), product.slices
    moves, tile = product.ring.n > 1, product.wavelets[1]
    taken, on = m["ce.branch_taken"], m["ce.branch_not_taken"]
    issue = timing.issue(m)
    places = product.held[0] + moves
    advance = 0 if places == 1 else 3 if places == 2 else 3 + taken
    turn = m["task.start"] + advance + 1 + on + (2 * m["ce.dsr_edit"] + 1 if moves else 0)  # to the issue of the send
    local = 2 + product_cycles(product.shape, m) + max(2, m["ce.load_latency"])
    ways = np.abs(np.arange(h) - np.array(product.ring.sends)) if moves else np.zeros(h, int)
    sends = np.array([timing.way(m, int(hops)) for hops in ways])
    arrives = np.maximum(sends + timing.train(m, tile, 1, 3), np.maximum(2 * tile, sends + tile)) + issue
    receives = list(product.ring.receives) if moves else list(range(h))
    roots = product.slice_order() // product.held[1]
    row = _Row(product)
    start = timing.stamp(m) + timing.load(m, 4 * moves + 3 * min(3, w)) + 6 + (places > 1) - 1
    begin = np.full((h, w), float(start))
    end = begin
    for step in range(steps):
        last = step == steps - 1
        sent = begin + turn
        ready = (begin + turn - on + taken - (2 * m["ce.dsr_edit"] + 1) * moves if last else sent + 1) + local
        if moves and not last:
            ready += 2 * tile
        end = np.array([row.ends(list(ready[y]), int(roots[y, step])) for y in range(h)])
        begin = end + taken + 1
        if moves and not last:
            begin = np.maximum(begin, (sent + arrives[:, np.newaxis])[receives] + 1)
    return round(float((end + on).max()))
