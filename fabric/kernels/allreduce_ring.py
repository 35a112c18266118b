"""The ring all-reduce of a line as a piece of kernels.

What moves
    The vector is cut into P chunks of equal length (the last ones padded).  In each of 2 (P - 1) steps every PE sends
    one chunk to the next PE of a ring and takes one from the one before.  In the first P - 1 steps it adds what it
    takes (in step s the PE of rank r sends chunk r + s and adds to chunk r + s + 1, modulo P), in the others it stores
    it.  A step sends from memory on a microthread while the main thread receives; the hardware holds the next step's
    sending back until the descriptor is free.  Rings are those of `fabric.kernels.ring`: ``plain`` comes back over the
    whole line, ``folded`` never goes farther than two PEs.

Colors and queues
    Three colors.  One input and one output queue.

Order of additions (bit exact)
    Chunk j begins as that of rank j: s = x[j]; s = x[(j - i) mod P] + s for i = 1 .. P-1, x numbered by rank.

Cycles
    The published form 2 (P - 1) B / P + 4 P - 6 + 2 (P - 1)(2 T_R + 1) lets a PE send and receive one wavelet in the
    same cycle.  Here a PE does one step of a vector operation per cycle, be it of the send or of the receive, so a
    chunk counts twice per step, and the scalar instructions of a step come on top; `RingAllreduce.estimate`.

Sources
    Luczynski et al., HPDC 2024 (arXiv 2404.15888); He et al., WaferLLM, section 6.1.
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fabric.kernels.reducing import wavelets_of
from fabric.kernels.ring import Ring
from wse_core import isa, numerics

__all__ = ["RingAllreduce"]


@dataclass(frozen=True)
class RingAllreduce:
    """Ring all-reduce over a line.

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
        Ring, see `fabric.kernels.ring`.
    queue : int
        Input and output queue.
    """

    line: object
    colors: tuple
    n: int
    dtype: str
    sums: str
    kind: str = "plain"
    queue: int = 2

    @cached_property
    def ring(self):
        """The `Ring`."""
        return Ring(len(self.line), self.kind)

    @property
    def chunk(self):
        """Elements of a chunk."""
        return -(-self.n // len(self.line))

    @property
    def padded(self):
        """Elements that the variables need."""
        return self.chunk * len(self.line)

    @property
    def words(self):
        """SRAM words of a chunk."""
        return self.chunk * (2 if self.sums == "f32" else 1)

    def roles(self):
        """Return (color taken from, color sent on) of each place; None for both if it is alone."""
        if len(self.line) == 1:
            return [(None, None)]
        numbers = [self.ring.colors(k) for k in range(len(self.line))]
        return [(self.colors[into], self.colors[out]) for out, into in numbers]

    def routes(self, layout):
        """Paint the routes."""
        if len(self.line) == 1:
            return
        for k, to in enumerate(self.ring.sends):
            color, step = self.colors[self.ring.color(k)], 1 if to > k else -1
            ahead, behind = "AT"[::step]
            self.line.route(layout, color, k, "R", ahead)
            for place in range(k + step, to, step):
                self.line.route(layout, color, place, behind, ahead)
            self.line.route(layout, color, to, behind, "R")

    def set_params(self, layout, name):
        """Give every PE the offset [words] of its first chunk, the parameter that `emit` is told."""
        for k, rect in enumerate(self.line.rects):
            layout.set_param(name, self.ring.rank[k] * self.words, rect)

    def emit(self, p, role, x, total, offset):
        """Write the part of a PE.

        Parameters
        ----------
        p : Program
            Inside a task.
        role : tuple
        x : Var
            The data, `padded` elements of `dtype`.
        total : Var
            The result: `x` itself, or a variable of `sums`.
        offset : Var
            Parameter that `set_params` sets.
        """
        wide = self.sums == "f32"
        if self.dtype != self.sums:
            p.fh2s(total, x)
        if role[0] is None:
            return
        c = self.chunk
        send, added, stored = p.dsr("src1"), p.dsr("src0"), p.dsr("dest")
        leaving, arriving = p.dsr("dest"), p.dsr("src1")
        at, end = p.reg16("at"), p.reg16("end")
        move, add = (p.mov32, p.fadds) if wide else (p.mov16, p.faddh)
        p.load(send, p.mem1d(total, c))
        p.load(added, p.mem1d(total, c))
        p.load(stored, p.mem1d(total, c))
        p.load(leaving, p.fabout(p.output_queue(self.queue, role[1]), c))
        p.load(arriving, p.fabin(p.input_queue(self.queue, role[0]), c))
        start = p.reg16("start")
        p.ld16(at, offset)
        p.ldi(start, total)
        p.add16(at, at, start)
        p.ldi(end, total[0] + len(self.line) * self.words)
        for target in (added, stored):
            with p.loop(len(self.line) - 1):
                p.dsr_base(send, at)
                move(leaving, send, async_=True)
                p.add16(at, at, self.words)
                with p.if_("eq", at, end):
                    p.mov16(at, start)
                p.dsr_base(target, at)
                if target is added:
                    add(added, added, arriving)
                else:
                    move(stored, arriving)
        p.free(at, end, start)

    # --- reference and counts -----------------------------------------------------------------------------------------

    def total(self, parts, given, result):
        """Return the bits of the sum in the order of the PEs; `parts` have `n` elements in their last axis."""
        p, values = len(parts), list(parts)
        if self.dtype != self.sums:
            values = [np.asarray(numerics.convert(np.ravel(v), self.dtype, "f32", given.bias, given.ftz)).reshape(
                np.shape(v)) for v in values]
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
    def hops(self):
        """Wavelet hops of all copies of the line."""
        steps = 2 * (len(self.line) - 1)
        return self.line.copies * steps * wavelets_of(self.chunk, self.sums) * self.ring.grants

    @property
    def additions(self):
        """Additions of elements, all copies together; those of the padding are not counted."""
        return self.line.copies * (len(self.line) - 1) * self.n

    @property
    def roundings(self):
        """Most additions that a value goes through."""
        return len(self.line) - 1

    def estimate(self, start, machine):
        """Return the cycle in which the last PE has its result, if all begin in cycle `start`.

        A step takes a PE the steps of its send and of its receive and the scalar instructions around them.  The
        message over the longest way is late once, by what its latency exceeds that; all later ones are no later.
        Exact for folded rings on machines with ``vec.start`` 0, where nobody ever waits for a message.
        """
        m, p, w = machine, len(self.line), wavelets_of(self.chunk, self.sums)
        load, edit, integer = m["ce.dsr_load"], m["ce.dsr_edit"], m["ce.int_latency"]
        taken, falls = m["ce.branch_taken"], m["ce.branch_not_taken"]
        if self.dtype != self.sums:
            lanes = isa.BY_NAME["fh2s"].lanes[m.preset != "wse2"]
            start += 2 * load + 1 + m["vec.start"] - (-self.padded // lanes) + m["vec.drain"]
        if p == 1:
            return start
        start += 5 * load + max(m["ce.load_latency"], 1 + integer) + max(3, integer)
        tail = m["vec.drain"] + integer + taken + edit           # last step of a receive to the issue of the next send
        own = 1 + w + integer + taken + edit + 1 + m["vec.start"] + w + tail
        ramps = m["ramp.execute"] + m["ramp.out"] + m["ramp.in"]
        message = 1 + m["vec.start"] + ramps + self.ring.hops * m["router.hop"] + w + tail
        wrap = max(0, taken - falls - integer)                   # the shorter way past the end of the vector, once
        return start + 2 * (p - 1) * own + max(0, message - own) + 1 - 2 * (taken - falls) - wrap
