"""The ring all-reduce of a line is a piece of kernels.

What moves
    The vector is cut into P chunks of equal length (the last ones padded).  In each of 2 (P - 1) steps every PE sends
    one chunk to the next PE of a ring and takes one from the one before.  In the first P - 1 steps it adds what it
    takes (in step s the PE of rank r sends chunk r + s and adds to chunk r + s + 1, modulo P), in the others it stores
    it.  A step sends from memory on a microthread while the main thread receives; the hardware holds the next step's
    sending back until microthread and descriptors are free.  Descriptors of circular buffers move on by themselves, so
    a step is two instructions; each PE has its own program, since where it begins is part of a descriptor.  Rings are
    those of `fabric.kernels.collectives.pieces.ring`: ``plain`` comes back over the whole line, ``folded`` never goes
    farther than two PEs.

Colors and queues
    Three colors.  One input and one output queue.

Order of additions (bit exact)
    Chunk j begins as that of rank j: s = x[j]; s = x[(j - i) mod P] + s for i = 1 .. P-1, x numbered by rank.

Cycles
    The published form 2 (P - 1) B / P + 4 P - 6 + 2 (P - 1)(2 T_R + 1) lets a PE send and receive one wavelet in the
    same cycle.  Here a PE does one step of a vector operation per cycle, be it of the send or of the receive, so long
    chunks count twice; short ones overlap with the latency of a message.  `RingAllreduce.estimate`.

Sources
    Luczynski et al., HPDC 2024 (arXiv 2404.15888); He et al., WaferLLM, section 6.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fabric.asm.operands import Dsd, Var
from fabric.kernels.collectives.pieces.lines import Line
from fabric.kernels.collectives.pieces.ring import Ring
from fabric.kernels.kit.data import wavelets_of
from fabric.layout.layout import Layout
from fabric.price import timing
from fabric.program.program import Program
from wse_core import numerics
from wse_core.formats import Arithmetic, Bits
from wse_core.params import Machine

__all__ = ["UNROLLED", "RingAllreduce"]

UNROLLED = 8
"""A turn of the loop over steps does so many steps."""


RingRole: TypeAlias = tuple[int, int | None, int | None]
"""A `RingRole` is the part of a PE: rank, color taken from, color sent on; no colors if it is alone."""


@dataclass(frozen=True)
class RingAllreduce:
    """A `RingAllreduce` gives all places of a line the sum of their vectors.

    Attributes
    ----------
    line : Line
    colors : tuple of int
        Three.
    n : int
        Elements of the vector.
    dtype, sums : str
        Formats of the data and of the sums; data of another format are converted first.
    kind : {"plain", "folded"}
        Ring, see `fabric.kernels.collectives.pieces.ring`.
    queue : int
        Input and output queue.
    """

    line: Line
    colors: tuple[int, ...]
    n: int
    dtype: str
    sums: str
    kind: str = "plain"
    queue: int = 2

    @cached_property
    def ring(self) -> Ring:
        """The sum goes round this `Ring`."""
        return Ring(len(self.line), self.kind)

    @property
    def chunk(self) -> int:
        """A chunk has so many elements."""
        return -(-self.n // len(self.line))

    @property
    def padded(self) -> int:
        """The variables need so many elements."""
        return self.chunk * len(self.line)

    def roles(self) -> list[RingRole]:
        """Return (rank, color taken from, color sent on) of each place; no colors if it is alone."""
        if len(self.line) == 1:
            return [(0, None, None)]
        numbers = [self.ring.colors(k) for k in range(len(self.line))]
        return [(self.ring.rank[k], self.colors[into], self.colors[out]) for k, (out, into) in enumerate(numbers)]

    def routes(self, layout: Layout) -> None:
        """Paint the routes of the ring into a layout."""
        if len(self.line) == 1:
            return
        for k, to in enumerate(self.ring.sends):
            color, step = self.colors[self.ring.color(k)], 1 if to > k else -1
            ahead, behind = ("A", "T") if step > 0 else ("T", "A")
            self.line.route(layout, color, k, "R", ahead)
            for place in range(k + step, to, step):
                self.line.route(layout, color, place, behind, ahead)
            self.line.route(layout, color, to, behind, "R")

    def emit(self, p: Program, role: RingRole, x: Var, total: Var) -> None:
        """Write the part of a PE.

        Parameters
        ----------
        p : Program
            Inside a task.
        role : tuple
        x : Var
            The data, `padded` elements of `dtype`, or more.
        total : Var
            The result: `x` itself, or a variable of `sums`.
        """
        rank, into, out = role
        if self.dtype != self.sums:
            p.fh2s(total, x)
        if out is None or into is None:
            return
        c, every = self.chunk, self.padded

        def walk(first: int) -> Dsd:
            return p.circular(total, c, start=first % len(self.line) * c, save=True, length=every)

        send, added, stored = p.dsr("src1"), p.dsr("src0"), p.dsr("dest")
        leaving, arriving = p.dsr("dest"), p.dsr("src1")
        move, add = (p.mov32, p.fadds) if self.sums == "f32" else (p.mov16, p.faddh)
        p.load(leaving, p.fabout(p.output_queue(self.queue, out), c))
        p.load(send, walk(rank))
        p.load(arriving, p.fabin(p.input_queue(self.queue, into), c))
        p.load(added, walk(rank + 1))
        p.load(stored, walk(rank))

        def step(adds: bool) -> None:
            move(leaving, send, async_=True)
            if adds:
                add(added, added, arriving)
            else:
                move(stored, arriving)

        turns, rest = divmod(len(self.line) - 1, UNROLLED)
        for adds in (True, False):
            if turns:
                with p.loop(turns):
                    for _ in range(UNROLLED):
                        step(adds)
            for _ in range(rest):
                step(adds)

    # --- reference and counts -----------------------------------------------------------------------------------------

    def total(self, parts: Sequence[Bits], given: Arithmetic, result: Arithmetic) -> Bits:
        """Return the bits of the sum in the order of the PEs; `parts` have `n` elements in their last axis."""
        p = len(parts)
        values: list[NDArray[Any]] = list(parts)
        if self.dtype != self.sums:
            values = [
                np.asarray(numerics.convert(np.ravel(v), given.fmt, "f32", given.bias, given.ftz)).reshape(np.shape(v))
                for v in values
            ]
        values = [values[k] for k in self.ring.order]
        pieces = []
        for j in range(p):
            cut = slice(j * self.chunk, (j + 1) * self.chunk)
            s = values[j][..., cut]
            for i in range(1, p):
                s = result.call("add", values[(j - i) % p][..., cut], s) if s.size else s
            pieces.append(s)
        return np.concatenate(pieces, axis=-1)

    @property
    def hops(self) -> int:
        """All copies of the line take so many wavelet hops."""
        steps = 2 * (len(self.line) - 1)
        return self.line.copies * steps * wavelets_of(self.chunk, self.sums) * self.ring.grants

    @property
    def additions(self) -> int:
        """Additions of elements, all copies together; those of the padding are not counted."""
        return self.line.copies * (len(self.line) - 1) * self.n

    @property
    def roundings(self) -> int:
        """A value goes through at most so many additions."""
        return len(self.line) - 1

    def estimate(self, start: int, machine: Machine) -> int:
        """Return the cycle in which the last PE has its result, if all begin in cycle `start`.

        A send waits for the end of the receive before it: for the PE's own sending and receiving, or for a message,
        whose latency grows with its hops, and the receiving.  The longest chain of such waits passes m messages, one
        after the other around the ring, and the PE's own work in the other steps; m = 0, 1, once around with the
        longest way at both ends, or all.  Exact but for chunks that do not fit into the queues on the way.
        """
        m, p, w = machine, len(self.line), wavelets_of(self.chunk, self.sums)
        if self.dtype != self.sums:
            start += timing.load(m, 2) + timing.elementwise(m, "fh2s", self.padded)
        if p == 1:
            return start
        steps = 2 * (p - 1)
        own = timing.operation(m, 2 * w + 1)
        train = timing.train(m, w, self.queue, self.queue)
        message = timing.operation(m, timing.ramps(m) + train)  # and its hops
        hops = [abs(k - self.ring.sends[k]) for k in self.ring.order[::-1]]
        far = np.concatenate(([0], np.cumsum(hops * 3)))
        longest = max(
            (steps - passed) * own
            + passed * message
            + m["router.hop"] * int((far[passed : passed + p] - far[:p]).max())
            for passed in {0, 1, min(p + 1, steps), steps}
        )
        # Nor does any link let all messages through faster than it can.
        every = timing.train(m, steps * w, self.queue, self.queue)
        longest = max(longest, timing.operation(m, timing.way(m, self.ring.hops) + every))
        turns = (p - 1) // UNROLLED
        loops = (
            2
            * (
                1
                + turns * (m["ce.int_latency"] + m["ce.branch_taken"])
                - m["ce.branch_taken"]
                + m["ce.branch_not_taken"]
            )
            if turns
            else 0
        )
        return start + timing.load(m, 5) + longest + loops
