"""How long the reading of a prompt takes, part by part, from sizes and modelled numbers alone.

Work on a PE is counted instruction by instruction from the text of the parts.  What moves is followed from PE to PE and
from step to step: each has a time at which it is ready, a piece or a sum comes when its neighbour has passed it on, a
tile when the PE before it on the ring has sent it.

Tiles are sent and received by microthreads beside the main thread, and every wavelet of theirs takes a slot of the CE:
what a PE owes in slots stretches its work, or passes while it waits.

Measured against the engine, part by part: tests/fabric/networks/inference/test_prefill_cycles.py.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.kit import timing
from fabric.kernels.kit.data import wavelets_of
from fabric.networks.inference.elementwise import ANGLE_BANK, FINE, TURNED_BANK
from fabric.networks.inference.prefill.channels import FROM_EAST, FROM_WEST, TO_EAST, TO_WEST
from fabric.networks.inference.prefill.placement import EAST, HERE, WEST, TokenShape
from fabric.networks.inference.prefill.program import PARTS, Prefill
from fabric.networks.inference.work import Work
from fabric.networks.inference.writer import CHUNK

__all__ = ["PromptCycles"]

SHARE = 2 / 3
"""Of the cycles in which a PE waits, those that pass slots of tiles: the PEs at both ends of its transfers mostly work
meanwhile, and give a third of their slots to each of the two."""
Times = NDArray[np.float64]
Step = Callable[[list[float], list[float], int], None]
"""Moves the times of a line, and what its PEs owe to tiles, over what a step of a product does toward a home."""


class PromptCycles(Work):
    """Closed forms of a prompt.

    Parameters
    ----------
    prefill : Prefill
    """

    def __init__(self, prefill: Prefill) -> None:
        super().__init__(prefill.machine)
        self.prefill, self.prompt, self.place = prefill, prefill.prompt, prefill.place
        self.stamp = timing.stamp(self.m) if prefill.timed else 0
        self.dsr, self.edit = self.m["ce.dsr_load"], self.m["ce.dsr_edit"]
        self.taken, self.issue = self.m["ce.branch_taken"], timing.issue(self.m)

    # --- work of a PE -------------------------------------------------------------------------------------------------

    def _pieces(self, count: int, each: Callable[[int], int], moves: int) -> int:
        """Return the cycles of functions of a vector, as many numbers at a time as they take (`in_pieces`)."""
        if count <= CHUNK:
            return each(count)
        found, left = 2, count
        while left:
            now = min(left, CHUNK)
            found += 1 + 1 + 1 + (self.taken if left <= CHUNK else 2) + each(now) + moves * self.edit + 3 + self.taken
            left -= now
        return found + self.taken

    def product(self, shape: TokenShape, based: bool = False) -> int:
        """Return the cycles of a step's local product."""
        size, full, rest = shape.groups()
        step = timing.elementwise(self.m, "fmachs", shape.rows)

        def group(count: int) -> int:
            return max(count + 1, self.load) + count * step

        column = 2 * self.edit + self.loop(full, group(size)) + (group(rest) if rest else 0)
        return 2 * self.dsr + self.edit * based + self.loop(shape.columns, column)

    def norm(self) -> tuple[int, int]:
        """Return the cycles of a norm before and behind its all-reduce."""
        m, prompt, hidden = self.m, self.prompt, self.place.hidden
        slots, s, fp = prompt.slots, prompt.tokens, m["ce.fp_latency"]
        all_of = slots * prompt.piece
        before = 3 * self.dsr + timing.operation(m, all_of * (1 + m["mem.conflict_cycles"]))
        before += self.dsr + m["ce.dsr_dimension"] + 1
        before += self.loop(s, 1 + timing.operation(m, slots * hidden) + self.edit + fp + 1)
        behind = self.vector("fmuls", s, 2) + self.vector("fadds", s, 1)
        behind += self._pieces(s, lambda n: self.function("rsqrt", n), 4)
        behind += 2 * (self.dsr + m["ce.dsr_dimension"]) + 1
        behind += self.loop(s, self.load + timing.operation(m, slots * hidden) + 2 * self.edit + 1)
        behind += self.taking + self.dsr + 2 * m["ce.dsr_dimension"] + self.edit + self.vector("fmuls", all_of, 2)
        return before, behind + self.vector("fs2h", all_of, 2)

    def biases(self) -> int:
        """Return the cycles of the biases; none if there are none."""
        s, rows = self.prompt.tokens, self.prompt.shapes["qkv"].rows
        if not self.place.decoder.qkv_bias:
            return 0
        return self.taking + 3 * self.dsr + self.m["ce.dsr_dimension"] + self.edit + self.rows("faddhs", s, rows, 0, 0)

    def angles(self) -> list[int]:
        """Return the cycles of the angles of each row's tokens."""
        n = self.place.pairs
        turn = 4 * self.vector("fmuls", n, 3) + 2 * self.vector("fadds", n, 2)
        leap = 1 + 2 * self.vector("mov32", n, 1) + turn
        found = []
        for first in self.prompt.firsts:
            leaps = sum((first + k + 1) % FINE == 0 for k in range(self.prompt.tokens))
            advance = turn + self.load + 2 + self.taken + 1
            each = turn + self.dsr + self.edit + self.vector("mov32", 2 * n, 1) + advance + 1
            found.append(1 + self.loop(self.prompt.tokens, each) + leaps * (leap - self.taken + 1))
        return found

    def limits(self) -> int:
        """Return the cycles of the causal mask, a row of keys of which half is hidden taken for all."""
        prompt, m = self.prompt, self.m
        row = self.load + 7 + timing.elementwise(m, "mov32", prompt.keys // 2) + 2
        block = 2 + self.loop(prompt.tokens, row) + 2
        start = self.vector("mov32", prompt.tokens * prompt.width_of_keys, 1) + self.dsr + 2
        return start + self.loop(prompt.key_slots, block)

    def _meetings(self, apart: NDArray[np.int64], n: int, lanes: int) -> int:
        """Return how many steps of rows of n numbers, whose sources are so many words apart, meet in a bank."""
        m = self.m
        if m["mem.conflict_rule"] == "none":
            return 0
        near = np.minimum(apart % m["mem.banks"], -apart % m["mem.banks"])
        return -(-n // lanes) * int((near <= (2 if min(n, lanes) > 1 else 0)).sum())

    def _turning(self) -> int:
        """Return the cycles that turning queries and keys loses to banks."""
        place, s, n = self.place, self.prompt.tokens, self.place.pairs
        heads, rows = place.heads + place.kv_heads, self.prompt.shapes["qkv"].rows
        token, head = np.ogrid[:s, :heads]
        a, angle = 2 * (token * rows + 2 * n * head), ANGLE_BANK + 4 * n * token
        products = TURNED_BANK + 2 * n * (token * heads + head)
        multiplied = (a - angle - 2 * n, a - angle, a - angle, a + 2 * n - angle)
        added = (a - products - 2 * n * s * heads, a + 2 * n - products)
        return sum(self._meetings(d, n, 1) for d in multiplied) + sum(self._meetings(d, n, 2) for d in added)

    def rotary(self) -> int:
        """Return the cycles of positions, and of keys and values into the cache."""
        place, prompt = self.place, self.prompt
        s, n, part = prompt.tokens, place.pairs, place.part
        heads, kv = place.heads + place.kv_heads, place.kv_rows
        found = (
            self._turning() + 2 * self.rows("fmuls", s * heads, n, 3, 4) + 2 * self.rows("fmuls", s * heads, n, 2, 4)
        )
        found += 2 * self.rows("fadds", s * heads, n, 2, 2) + self.rows("fmuls", s, place.query_rows, 1, 1)
        found += self.rows("fs2h", place.heads * s, part, 2, 2) + self.rows("fs2h", kv, s, 2, 2)
        found += self.rows("fs2h", place.kv_heads * s, part, 2, 4)
        found += self.taking + 2 * self.edit + 1
        return found + self.rows("mov16", kv, s, 2, 2) + self.rows("mov16", place.kv_heads, s * part, 2, 2)

    def softmax(self) -> tuple[int, int, int]:
        """Return the cycles of softmax before, between and behind its two all-reduces."""
        m, place, prompt = self.m, self.place, self.prompt
        s, wide, heads = prompt.tokens, prompt.width_of_keys, place.heads
        rows, fp = heads * s, m["ce.fp_latency"]
        before = self.dsr + self.loop(heads, self.vector("fmins", s * wide, 1)) + self.dsr + 1
        reduced = timing.operation(m, wide) + 1 + fp + 1
        before += self.loop(rows, reduced)
        between = self.dsr + 1 + self.loop(rows, self.load + timing.elementwise(m, "fsubs", wide) + 1)
        between += (
            self._pieces(rows * wide, lambda n: self.function("exp", n), 6) + self.dsr + 1 + self.loop(rows, reduced)
        )
        return before, between, self.vector("fs2h", rows * wide, 2)

    def divide(self) -> int:
        """Return the cycles of the division by the sums of shares."""
        place, s, part = self.place, self.prompt.tokens, self.place.part
        rows = place.heads * s
        found = self._pieces(rows, lambda n: self.function("reciprocal", n), 4) + self.dsr + 1
        found += self.loop(rows, self.load + timing.elementwise(self.m, "fmuls", part) + 1)
        return found + self.rows("fs2h", rows, part, 2, 2)

    def swiglu(self) -> int:
        """Return the cycles of SwiGLU."""
        s, n = self.prompt.tokens, self.place.ffn
        found = self.rows("fnegs", s, n, 2, 1) + self.vector("fmins", s * n, 1)
        found += self._pieces(
            s * n,
            lambda k: self.function("exp", k) + self.function("reciprocal", k) + timing.elementwise(self.m, "fadds", k),
            10,
        )
        return found + 2 * self.rows("fmuls", s, n, 2, 1) + self.vector("fs2h", s * n, 2)

    # --- what moves ---------------------------------------------------------------------------------------------------

    def _either(self, ends: tuple[bool, bool], where: int) -> int:
        """Return the cycles of finding out where the home is, and of the way back behind it."""
        west, east = ends
        if where == WEST:
            return 1 + self.taken
        begin = (self.taken if west else 0) + 1
        if where == EAST:
            return begin + 1 + self.taken
        return begin + (self.taken if east else 0) + 1

    @staticmethod
    def _pay(owed: list[float], x: int, waited: float, slots: int) -> float:
        """Let a PE that waits and then uses some slots pay what it owes to its tiles; return by how much it is late."""
        owed[x] = max(0.0, owed[x] - max(0.0, waited) * SHARE)
        late = min(owed[x], 2.0 * slots)
        owed[x] -= late
        return late

    def _spread(self, times: list[float], owed: list[float], home: int, count: int, here: int) -> None:
        """Move the times of a line over a piece that its home spreads; `here`: cycles of finding it."""
        m, w, last = self.m, wavelets_of(count, self.place.dtype), len(times) - 1
        ends = [(x > 0, x < last) for x in range(len(times))]
        now = times[home] + self._either(ends[home], HERE) + here + (self.dsr + self.edit if last else 0)
        sent = {}  # side: its first and its last wavelet
        for there, side in ((home < last, 1), (home > 0, -1)):
            if there:
                first = now + self.dsr + self.issue
                now = first + timing.sending(m, w, FROM_WEST, TO_EAST if side > 0 else TO_WEST)
                now += self._pay(owed, home, 0, w)
                sent[side] = first, now
        times[home] = now
        way = timing.way(m, 1)
        for side, (first, end) in sent.items():
            into, out = (FROM_WEST, TO_EAST) if side > 0 else (FROM_EAST, TO_WEST)
            x = home + side
            while 0 <= x <= last:
                ready = times[x] + self._either(ends[x], WEST if side > 0 else EAST) - self.taken
                ready += 2 * self.dsr + self.issue
                came = timing.received(m, w, ready, first + way, into, out)
                came = max(came + self._pay(owed, x, first + way - ready, w), end + way)
                if 0 <= x + side <= last:
                    first = came + 2 * self.dsr + self.issue
                    came = end = first + timing.sending(m, w, into, out) + self._pay(owed, x, 0, w)
                times[x] = came + 1 + self.taken
                x += side

    def _sum(self, times: list[float], owed: list[float], home: int, count: int, keep: int) -> None:
        """Move the times of a line over a sum toward its home; `keep`: cycles of what the home does with it."""
        m, w, last = self.m, wavelets_of(count, "f32"), len(times) - 1
        arrivals = []
        for side, into, out in ((1, FROM_WEST, TO_EAST), (-1, FROM_EAST, TO_WEST)):
            arrival, x = None, 0 if side > 0 else last
            while x != home:
                ends = x > 0, x < last
                loads = 2 if arrival is None else 3
                ready = times[x] + self._either(ends, EAST if side > 0 else WEST) - self.taken
                first = ready + loads * self.dsr + self.issue
                if arrival is None:
                    end = first + timing.sending(m, w, into, out) + self._pay(owed, x, 0, w)
                else:
                    end = timing.received(m, w, first, arrival, into, out) + self._pay(owed, x, arrival - first, w)
                    first = max(first, arrival)
                arrival, times[x] = first + timing.way(m, 1), end + self.taken
                x += side
            arrivals.append(arrival)
        now = times[home] + self._either((home > 0, home < last), HERE)
        for arrival, (into, out) in zip(arrivals, ((FROM_WEST, TO_EAST), (FROM_EAST, TO_WEST)), strict=True):
            if arrival is not None:
                first = now + 2 * self.dsr + self.issue
                now = timing.received(m, w, first, arrival, into, out) + self._pay(owed, home, arrival - first, w)
        times[home] = now + keep

    def _all(self, times: list[float], count: int) -> None:
        """Move the times of a line over an all-reduce inside a head: to its last column and back."""
        m, w, last = self.m, wavelets_of(count, "f32"), len(times) - 1
        if not last:
            return
        first = times[0] + 2 * self.dsr + self.issue
        times[0], arrival = first + timing.sending(m, w, FROM_WEST, TO_EAST), first + timing.way(m, 1)
        for x in range(1, last + 1):
            first = times[x] + (3 if x < last else 2) * self.dsr + self.issue
            times[x] = timing.received(m, w, first, arrival, FROM_WEST, TO_EAST)
            arrival = max(first, arrival) + timing.way(m, 1)
        first = times[last] + 2 * self.dsr + self.issue
        times[last], arrival = first + timing.sending(m, w, FROM_EAST, TO_WEST), first + timing.way(m, 1)
        for x in range(last - 1, -1, -1):
            times[x] = timing.received(m, w, times[x] + 2 * self.dsr + self.issue, arrival, FROM_EAST, TO_WEST)
            if x:
                first = times[x] + 2 * self.dsr + self.issue
                times[x], arrival = first + timing.sending(m, w, FROM_EAST, TO_WEST), first + timing.way(m, 1)

    def _lines(self, columns: int) -> list[list[int]]:
        """Return the columns of each line of so many that takes part."""
        width = self.place.width
        lines = [list(range(x, x + columns)) for x in range(0, width - columns + 1, columns)]
        return [line for line in lines if columns == width or not self.prompt.is_idle(line[0])]

    def _on_ring(self, at: Times, name: str, columns: int, before: int, step: Step) -> None:
        """Move the times over a product whose right matrix goes round; `before`: cycles of the local work of a step.

        Work comes before `step` for sums, behind it for pieces that are spread.
        """
        m, prompt, height = self.m, self.prompt, self.place.height
        ring, moving = prompt.ring, height > 1
        wavelets = wavelets_of(prompt.tile_elements[name], self.place.dtype) if moving else 0
        spread = name in ("qkv", "gate_up", "mix")
        homes = prompt.homes(columns)
        lines = self._lines(columns)
        taking = [x for line in lines for x in line]
        at[:, taking] += 2 + (4 * self.dsr + 2 if moving else 0)
        owed = np.zeros_like(at)
        arrival = np.full_like(at, -np.inf)

        def works(cycles: int) -> None:
            paid = np.minimum(owed, 2 * cycles)
            at[:, taking] += cycles + paid[:, taking]
            owed[:, taking] -= paid[:, taking]

        for number in range(height):
            last = number == height - 1
            at[:, taking] += 2
            if moving:
                at[:] = np.where(np.isfinite(arrival), np.maximum(at + owed, arrival), at)
                at[:, taking] += self.edit + 2
                begun = at.copy()
                owed[:] = 0
                if last:
                    at[:, taking] += self.taken - 1
                else:
                    at[:, taking] += self.edit + 2
                    owed[:, taking] = 2 * wavelets
            if not spread:
                works(before)
            at[:, taking] += self.load
            for y in range(height):
                home = homes[prompt.sequence[y, number]][0]
                for line in lines:
                    times, debts = list(at[y, line]), list(owed[y, line])
                    step(times, debts, home)
                    at[y, line], owed[y, line] = times, debts
            if spread:
                works(before)
            at[:, taking] += (3 if moving else 0) + self.taken
            if moving and not last:
                busy = np.minimum(3 * wavelets, at + owed - begun)
                senders = list(ring.receives)
                ways = np.array([timing.way(m, abs(k - sender)) for k, sender in enumerate(senders)])
                arrival = (begun + busy)[senders] + ways[:, np.newaxis]
        at[:, taking] += self.taken

    # --- the parts ----------------------------------------------------------------------------------------------------

    def _entered(self) -> Times:
        """Return when each PE has its embeddings, from the cycle in which the first begins to enter."""
        m, width, own = self.m, self.place.width, self.prompt.slots * self.prompt.piece
        w = wavelets_of(own, self.place.dtype)
        begins = {(0, k): float(timing.ramps(m)) for k in range(width)}
        found = []
        for x in range(width):
            ready = float(2 * self.dsr + self.issue)
            now = max(ready, begins[x, 0]) + w
            if x < width - 1:
                now += self.load + 1 + 1
            for k in range(1, width - x):
                first = max(now + 2 * self.dsr + self.issue, begins[x, k])
                begins[x + 1, k - 1] = first + timing.way(m, 1)
                now = first + w + 2 + self.taken
            found.append(now + self.vector("fh2s", own, 2))
        return np.tile(np.array(found), (self.place.height, 1))

    def _norm(self, at: Times) -> None:
        before, behind = self.norm()
        at[:] = self.prefill.squares.ends((at + before).astype(np.int64)) if self.place.width > 1 else at + before
        at += behind

    def _product(self, at: Times, name: str) -> None:
        """Move the times over one of the four products with weights."""
        place, prompt = self.place, self.prompt
        shape, work = prompt.shapes[name], self.product(prompt.shapes[name])
        at += self.taking
        if name in ("qkv", "gate_up"):
            at += self.vector("mov32", shape.rows * shape.columns, 1)
            self._on_ring(
                at, name, place.width, work, lambda times, owed, home: self._spread(times, owed, home, prompt.piece, 4)
            )
            return
        work += self.vector("mov32", prompt.piece, 1) + 1
        keep = 2 + self.dsr + self.edit + self.vector("fadds", prompt.piece, 1)
        self._on_ring(
            at, name, place.width, work, lambda times, owed, home: self._sum(times, owed, home, prompt.piece, keep)
        )

    def _heads(self, name: str) -> int:
        """Return the cycles of the product of a step for all heads of keys and values."""
        kv = self.place.kv_heads
        return 3 + self.loop(kv, self.product(self.prompt.shapes[name], True) + (2 if kv > 1 else 0))

    def _attention(self, at: Times, done: Callable[[str], None]) -> None:
        place, prompt, dimension = self.place, self.prompt, self.m["ce.dsr_dimension"]
        group, rows = place.group, place.heads * prompt.tokens
        busy = [x for line in self._lines(group) for x in line] if group < place.width else list(range(place.width))
        blocks = self.rows("mov32", rows, prompt.keys, 1, 0)
        work = self.vector("mov32", prompt.block, 1) + self._heads("scores")
        keep = 2 + self.dsr + dimension + self.edit + blocks
        self._on_ring(
            at, "scores", group, work, lambda times, owed, home: self._sum(times, owed, home, prompt.block, keep)
        )
        done("scores")
        before, between, behind = self.softmax()
        at[:, busy] += before
        self._heads_all(at, rows)
        at[:, busy] += between
        self._heads_all(at, rows)
        at[:, busy] += behind
        done("softmax")
        at[:, busy] += self.vector("mov32", place.heads * prompt.tokens * place.part, 1)
        find = 2 + self.dsr + dimension + self.edit + self.rows("mov16", rows, prompt.keys, 1, 0) + 1
        self._on_ring(
            at,
            "mix",
            group,
            self._heads("mix"),
            lambda times, owed, home: self._spread(times, owed, home, prompt.block, find),
        )
        done("mix")
        at[:, busy] += self.divide()
        done("divide")

    def _heads_all(self, at: Times, count: int) -> None:
        for y in range(self.place.height):
            for line in self._lines(self.place.group):
                times = list(at[y, line])
                self._all(times, count)
                at[y, line] = times

    def _run(self) -> tuple[dict[str, float], Times]:
        """Return when each of `PARTS` is done, those of layers in the last layer, and when each PE is through.

        From the first embedding on.
        """
        place, found = self.place, {}
        at = self._entered() + self.stamp

        def done(part: str) -> None:
            found[part] = float(at.max())
            at[:] += self.stamp

        done("enter")
        at += np.array(self.angles())[:, np.newaxis] + self.limits() + 2 * (4 if place.decoder.qkv_bias else 3)
        done("begin")
        for _ in range(place.decoder.layers):
            self._norm(at)
            done("norm 1")
            self._product(at, "qkv")
            at += self.biases()
            done("qkv")
            at += self.rotary()
            done("rotary")
            self._attention(at, done)
            self._product(at, "o")
            done("o")
            self._norm(at)
            done("norm 2")
            self._product(at, "gate_up")
            done("gate_up")
            at += self.swiglu()
            done("swiglu")
            self._product(at, "down")
            at += 1 + self.taken
        hidden = self.prompt.slots * place.hidden
        at += self.vector("mov32", hidden, 1) + self.load + 4 + self.vector("mov32", hidden, 2, 1) + self.edit
        done("down")
        return found, at

    def parts(self) -> dict[str, float]:
        """Return the cycles of each of `PARTS`: from when the slowest PE is through with the part before."""
        ends, _ = self._run()
        cuts = [0.0, *[ends[part] for part in PARTS]]
        return {part: b - a for part, (a, b) in zip(PARTS, pairwise(cuts), strict=True)}

    def prompt_cycles(self) -> float:
        """Return the cycles of a prompt, from its first embedding to the end of the last PE."""
        return self._run()[0][PARTS[-1]]

    def ends(self) -> Times:
        """Return when each PE has read the prompt, (height, width)."""
        return self._run()[1]
