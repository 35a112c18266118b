"""Scatter, gather and all-gather of a line as pieces of kernels: data that move and are not calculated with.

Every piece moves blocks of n elements (16-bit elements: an even number of them, so that blocks are whole wavelets; a
block has W wavelets) between P places of a `Line`.

`Gather`
    Everybody sends its block to place 0, nearest first: routers send their own and pass afterwards, since each PE moves
    its switch on behind its block (the routes of the tree ``star``).  Place 0 takes everything with one operation.
    One color.
`Scatter`
    Place 0 sends all blocks with one operation, farthest first; routers pass everything on and drop a copy, and a
    counter filter lets only the own block of each place through to its CE.  One color, one filter.
`AllGather`
    Two streams, away from place 0 and toward it.  On each, a router first sends its own block, then passes what comes
    from behind and drops a copy; a counter filter keeps the own block from coming back.  Blocks of a stream arrive
    nearest first and are stored by one operation each.  Two colors, two filters.

`end` of a piece is the closed form of its cycles (of an `AllGather`, a lower bound), `hops` that of its wavelet hops.
Sources: Luczynski et al., HPDC 2024 (arXiv 2404.15888) for the model; the schedules are derived here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fabric.asm.operands import Dsr, Var
from fabric.kernels.collectives.pieces import trees
from fabric.kernels.collectives.pieces.lines import Line
from fabric.kernels.kit.data import wavelets_of
from fabric.layout.layout import Layout
from fabric.price import timing
from fabric.program.program import Program
from wse_core.errors import InternalError
from wse_core.params import Machine

__all__ = ["AllGather", "Gather", "Scatter"]


@dataclass(frozen=True)
class _Moving:
    """A `_Moving` is the base of the pieces that move blocks along a line.

    Attributes
    ----------
    line : Line
    colors : tuple of int
    n : int
        Elements of a block.
    dtype : str
    queue : int
        First input and output queue.
    """

    line: Line
    colors: tuple[int, ...]
    n: int
    dtype: str
    queue: int = 2

    def __len__(self) -> int:
        return len(self.line)

    @property
    def w(self) -> int:
        """A block has so many wavelets."""
        return wavelets_of(self.n, self.dtype)

    def move(self, p: Program) -> Callable[..., None]:
        """Return the operation of a program that copies elements."""
        return p.mov32 if self.dtype == "f32" else p.mov16

    def _local(self, machine: Machine) -> int:
        """Return the cycles of a copy of a block from memory to memory, descriptors included."""
        op = "mov32" if self.dtype == "f32" else "mov16"
        return timing.load(machine, 2) + timing.elementwise(machine, op, self.n)


class Gather(_Moving):
    """A gather takes the blocks of all places to place 0, in the order of the places."""

    N_COLORS = 1

    def roles(self) -> list[str]:
        """Return the role of each place."""
        if len(self) == 1:
            return ["alone"]
        return ["root"] + ["inner"] * (len(self) - 2) + ["last"]

    def routes(self, layout: Layout) -> None:
        """Paint the routes of the line into a layout."""
        trees.star(len(self)).routes(self.line, layout, self.colors)

    def emit(self, p: Program, role: str, x: Var, everything: Var | None) -> None:
        """Write the part of a PE: `x` is its block, `everything` (P blocks) exists at place 0."""
        move, n, rest = self.move(p), self.n, (len(self) - 1) * self.n
        if role in ("inner", "last"):
            out = p.output_queue(self.queue, self.colors[0])
            move(p.fabout(out, n, advance_switch=role == "inner"), x)
            return
        if everything is None:
            raise InternalError(f"a {role} of a gather without a place for all blocks")
        if role == "root":
            move(p.mem1d(everything, rest, offset=n), p.fabin(p.input_queue(self.queue, self.colors[0]), rest))
        move(p.mem1d(everything, n), x)

    @property
    def hops(self) -> int:
        """Every block takes so many hops over a ramp and the links before it, what moves a switch one over a ramp."""
        p = len(self)
        return self.line.copies * sum((1 + k) * self.w + (k < p - 1) for k in range(1, p))

    def end(self, start: int, machine: Machine) -> int:
        """Return the cycle in which place 0 can issue what follows, if all places begin in cycle `start`.

        Blocks follow one another, with the gap of a cycle in which a switch is moved where it does not close, unless
        one has so far to come that the links are empty before it.
        """
        m, p = machine, len(self)
        if p > 1:
            closes = trees.gap_closes(m, self.w)
            # The first of wavelets that follow one another, how many have passed, and whether the last block waited.
            first, before, waits = timing.way(m, 1), 0, False
            for k in range(2, p):
                before += self.w + (not (waits and closes))
                waits = timing.way(m, k) <= first + timing.train(m, before + 1, self.queue, None) - 1
                if not waits:
                    first, before = timing.way(m, k), 0
            own = timing.train(m, self.w, self.queue, self.queue)
            last = max(first + timing.train(m, before + self.w, self.queue, None), timing.way(m, p - 1) + own)
            start += timing.load(m, 2) + timing.operation(m, last)
        return start + self._local(m)


class Scatter(_Moving):
    """A scatter takes the blocks of place 0 to all places."""

    N_COLORS = 1

    def roles(self) -> list[str]:
        """Return the role of each place."""
        return ["alone"] if len(self) == 1 else ["root"] + ["inner"] * (len(self) - 1)

    def routes(self, layout: Layout) -> None:
        """Paint the routes, with the filters."""
        p = len(self)
        if p == 1:
            return
        self.line.route(layout, self.colors[0], 0, "R", "A")
        total = (p - 1) * self.w
        for k in range(1, p):
            counter = {
                "kind": "counter",
                "max_counter": self.w - 1,
                "limit1": total - 1,
                "init_counter": (total - (p - 1 - k) * self.w) % total,
            }
            self.line.route(layout, self.colors[0], k, "T", "AR" if k < p - 1 else "R", filter=counter)

    def emit(self, p: Program, role: str, x: Var, everything: Var | None) -> None:
        """Write the part of a PE: `everything` (P blocks) exists at place 0, `x` takes the own block."""
        move, n, others = self.move(p), self.n, len(self) - 1
        if role == "inner":
            move(x, p.fabin(p.input_queue(self.queue, self.colors[0]), n))
            return
        if everything is None:
            raise InternalError(f"a {role} of a scatter without all blocks")
        if role == "root":
            out = p.fabout(p.output_queue(self.queue, self.colors[0]), others * n)
            move(out, p.mem4d(everything, (others, n), (-n, 1), offset=others * n))
        move(x, p.mem1d(everything, n))

    @property
    def hops(self) -> int:
        """The scatter takes so many wavelet hops: everything travels to the end of the line."""
        p = len(self)
        return self.line.copies * (p - 1) * self.w * p if p > 1 else 0

    def end(self, start: int, machine: Machine) -> int:
        """Return the cycle in which the last place can issue what follows, if all places begin in cycle `start`.

        Place k has its block when P - k of them have been sent, k hops later: the nearest last, if a block takes
        longer than a hop.  The copy at place 0 may take longer.
        """
        m, p = machine, len(self)
        own = start
        if p > 1:
            begin = start + timing.load(m, 2) + m["ce.dsr_dimension"]
            own = begin + timing.operation(m, timing.sending(m, (p - 1) * self.w, self.queue, self.queue))
            far = 0
            for k in (1, p - 1):  # the blocks before that of place k, and then its own
                before = timing.train(m, (p - 1 - k) * self.w + 1, None, self.queue) - 1
                far = max(far, before + timing.train(m, self.w, self.queue, self.queue) + timing.way(m, k))
                far = max(far, timing.train(m, (p - k) * self.w, None, self.queue) + timing.way(m, k))
            start = begin + timing.operation(m, far)
        return max(start, own + self._local(m))


class AllGather(_Moving):
    """An all-gather takes the blocks of all places to all places, in their order."""

    N_COLORS = 2
    PARAMS = ("own", "before", "after")

    def roles(self) -> list[str]:
        """Return the role of each place."""
        if len(self) == 1:
            return ["alone"]
        return ["root"] + ["inner"] * (len(self) - 2) + ["last"]

    def routes(self, layout: Layout) -> None:
        """Paint the routes, with the filters."""
        p, w = len(self), self.w
        if p == 1:
            return
        for color, ahead, behind in ((self.colors[0], "A", "T"), (self.colors[1], "T", "A")):
            for k in range(p):
                before = k if ahead == "A" else p - 1 - k  # blocks that come from behind
                if not before:
                    self.line.route(layout, color, k, "R", ahead)
                elif before == p - 1:
                    self.line.route(layout, color, k, behind, "R")
                else:
                    total = (before + 1) * w  # the own block first: counted, not let through
                    counter = {
                        "kind": "counter",
                        "max_counter": total - w - 1,
                        "limit1": total - 1,
                        "init_counter": total - w,
                    }
                    self.line.route(layout, color, k, "R", ahead + "R", {"rx": behind}, filter=counter)

    def set_params(self, layout: Layout, names: Sequence[str]) -> None:
        """Set the parameters of all PEs: elements before the own block, address offset of it, elements behind it."""
        words = self.n * (2 if self.dtype == "f32" else 1)
        own, before, after = names
        for k, rect in enumerate(self.line.rects):
            layout.set_param(own, k * words, rect)
            layout.set_param(before, k * self.n, rect)
            layout.set_param(after, (len(self) - 1 - k) * self.n, rect)

    def emit(self, p: Program, role: str, x: Var, everything: Var, params: Sequence[Var]) -> None:
        """Write the part of a PE: `x` is its block, `everything` takes P blocks; `params` as `set_params` names them.

        Both sends and one of the receives are asynchronous; at the end the main thread touches their descriptors, which
        waits for them.
        """
        move, n, words = self.move(p), self.n, self.n * (2 if self.dtype == "f32" else 1)
        own, before, after = params
        at, base = p.reg16("at"), p.reg16("base")
        p.ld16(at, own)
        p.ldi(base, everything)
        p.add16(at, at, base)
        place = p.dsr("dest")
        source = p.dsr("src1")
        p.load(place, p.mem1d(everything, n))
        p.dsr_base(place, at)
        p.load(source, x)
        move(place, source)
        waits = []
        if role in ("root", "inner"):
            waits.append(self._send(p, 0, x))
        if role in ("last", "inner"):
            waits.append(self._send(p, 1, x))
        count = p.reg16("count")
        # Ahead of place k lie blocks k + 1 .. P - 1, nearest first; behind it k - 1 .. 0, nearest first.
        if role in ("root", "inner"):
            target, arriving = p.dsr("dest"), p.dsr("src1")
            p.load(target, p.mem4d(everything, (len(self) - 1, n), (n, 1)))
            p.add16(at, at, words)
            p.dsr_base(target, at)
            p.load(arriving, p.fabin(p.input_queue(self.queue + 2, self.colors[1]), n))
            p.ld16(count, after)
            p.dsr_len(arriving, count)
            move(target, arriving, async_=role == "inner")
            if role == "inner":
                waits.append(target)
                p.sub16(at, at, words)
        if role in ("last", "inner"):
            target, arriving = p.dsr("dest"), p.dsr("src1")
            p.load(target, p.mem4d(everything, (len(self) - 1, n), (-n, 1), check=False))
            p.sub16(at, at, words)
            p.dsr_base(target, at)
            p.load(arriving, p.fabin(p.input_queue(self.queue + 3, self.colors[0]), n))
            p.ld16(count, before)
            p.dsr_len(arriving, count)
            move(target, arriving)
        for dsr in waits:
            p.dsr_off(dsr, 0)
        p.free(at, base, count)

    def _send(self, p: Program, number: int, x: Var) -> Dsr:
        leaving, source = p.dsr("dest"), p.dsr("src1")
        out = p.output_queue(self.queue + number, self.colors[number])
        p.load(leaving, p.fabout(out, self.n, advance_switch=True))
        p.load(source, x)
        self.move(p)(leaving, source, async_=True)
        return leaving

    @property
    def hops(self) -> int:
        """Every block takes these hops out of a ramp and over all links on either side, its switch's word one."""
        p = len(self)
        if p == 1:
            return 0
        return self.line.copies * (2 * (p - 1) * (self.w + 1) + p * (p - 1) * self.w)

    def end(self, start: int, machine: Machine) -> int:
        """Return a cycle before which the busiest place cannot issue what follows.

        Its own work: instructions, the copy, both sends with what moves their switches, all receives, one wavelet per
        cycle; and all blocks of the others one after the other over a link.  It is no closed form: a stream goes on
        only when all CEs on its way have taken its wavelets, each CE takes from one stream at a time, and which one
        depends on what has come where; long blocks on long lines take up to half as much again.
        """
        m, p = machine, len(self)
        load, edit, issue = timing.load(m), m["ce.dsr_edit"], timing.issue(m)
        scalar = max(m["ce.load_latency"], 1 + m["ce.int_latency"]) + m["ce.int_latency"]
        start += scalar + edit + self._local(m)
        if p == 1:
            return start
        receive = 2 * load + m["ce.dsr_dimension"] + 2 * edit + m["ce.load_latency"] + 1 + issue
        streams = 1 if p == 2 else 2
        first = start + 2 * load + issue
        work = start + streams * (2 * load + issue + receive + self.w + 1) + (p - 1) * self.w + m["vec.drain"]
        work += (streams - 1) + (2 * streams - 1) * edit  # touching what is still on its way
        # What is sent and what comes while it loads descriptors takes no time of its own.
        work -= (2 if p == 2 else 6) * load + m["ce.dsr_dimension"] + (2 * streams - 1) * (m["vec.start"] + edit)
        others = (p - 1) * self.w  # and the cycles between them, in which switches are moved
        stream = max(timing.train(m, others + p - 2, None, None), timing.train(m, others, self.queue + 2, None))
        far = timing.way(m, p - 1) + timing.train(m, self.w, self.queue + 2, self.queue)
        return max(work, first + max(timing.way(m, 1) + stream, far))
