"""The reduce of a line is a piece of kernels: routes for a layout, a PE's part of a program, order, counts and cycles.

A `Reduce` is made from a `Line`, a `Tree`, the element count and the formats.  `routes` paints; `emit` writes the part
of one PE into the task being written, reading and leaving its data in variables that the kernel chose; `total` is the
bit-exact reference; `hops`, `additions` and `end` are closed forms.  Pieces on different lines follow one another in
one task, with different colors and queues.

A PE with m children adds m vectors.  The last addition of a PE that sends on is fused with its sending (fabric to
fabric); the others go to memory: one operation for all of them (a descriptor that walks the vector m times) where the
tree says so, else one each.

Formats: f32 one element per wavelet; f16 and cb16 two.  With sums in f32 and 16-bit data every message carries f32:
a leaf converts while it sends (fh2s), the first addition of every other PE takes its own 16-bit data (faddhs, one
rounding to f32), the following ones are fadds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabric.asm.control import ADVANCE
from fabric.asm.operands import Dsd, Var
from fabric.kernels.collectives.pieces import trees
from fabric.kernels.collectives.pieces.lines import Line
from fabric.kernels.collectives.pieces.trees import Advance, Tree
from fabric.kernels.kit.data import wavelets_of
from fabric.layout.layout import Layout
from fabric.price import timing
from fabric.program.program import Program
from wse_core import numerics
from wse_core.errors import InternalError
from wse_core.formats import Arithmetic, Bits
from wse_core.image import ENDLESS
from wse_core.params import Machine

__all__ = ["COMBINE", "Reduce", "Role"]

COMBINE = {"add": ("fadds", "add"), "max": ("fmaxs", "maximum"), "min": ("fmins", "minimum")}
"""One of these makes one number of two: the operation of f32 vectors and its name in `wse_core.numerics`."""


class Role(NamedTuple):
    """A PE has this part in a reduce: children, color received on, color sent on (None: nothing), switches moved."""

    messages: int
    into: int | None
    out: int | None
    advance: Advance

    def leaving(self, p: Program, queue: int, n: int) -> Dsd:
        """Return the descriptor of the message that the PE sends: `n` elements over output queue `queue`."""
        return p.fabout(p.output_queue(queue, self.color), n, advance_switch=self.advance == "own")

    def close(self, p: Program, queue: int) -> None:
        """Write what follows the message: the control wavelet that goes its way, if there is one."""
        if self.advance == "way":
            p.mov32(p.fabout(p.output_queue(queue, self.color), 1, dtype="u32", control=True), ADVANCE)

    @property
    def color(self) -> int:
        """The PE sends on this color."""
        if self.out is None:
            raise InternalError("a PE that sends nothing has no color to send on", where="reduce")
        return self.out


class _ReduceStep(NamedTuple):
    """A vector operation: source ``x`` or ``total``, whether it leaves, messages taken, as one op or in a loop."""

    source: str
    leaves: bool
    messages: int
    form: str = "one"  # one, merged, loop


@dataclass(frozen=True)
class Reduce:
    """A `Reduce` is the sum of vectors over a line, to its place 0.

    Attributes
    ----------
    line : Line
    tree : Tree
    colors : tuple of int
        At least ``tree.colors`` of them.
    n : int
        Elements.
    dtype, sums : str
        Formats of the data and of the sums; different only for 16-bit data with f32 sums.
    queue : int
        Input and output queue.
    combine : {"add", "max", "min"}
        What makes one number of two; the largest and the smallest are for f32 only.
    """

    line: Line
    tree: Tree
    colors: tuple[int, ...]
    n: int
    dtype: str
    sums: str
    queue: int = 2
    combine: str = "add"

    @property
    def mixed(self) -> bool:
        """Whether data and sums have different formats."""
        return self.dtype != self.sums

    @property
    def wavelets(self) -> int:
        """A message has so many wavelets."""
        return wavelets_of(self.n, self.sums)

    def roles(self) -> list[Role]:
        """Return the `Role` of each place."""

        def color(number: int) -> int | None:
            return None if number < 0 else self.colors[number]

        found = []
        for k in range(len(self.tree)):
            messages, into, out, advance = self.tree.role(k)
            found.append(Role(messages, color(into), color(out), advance))
        return found

    def routes(self, layout: Layout) -> None:
        """Paint the routes of the line into a layout."""
        self.tree.routes(self.line, layout, self.colors)

    def needs_total(self, role: Role) -> bool:
        """Return whether a PE needs a variable for sums beside its data."""
        return self.mixed and (role.messages > 1 or role.out is None)

    # --- code ---------------------------------------------------------------------------------------------------------

    def _steps(self, messages: int, sends: bool) -> list[_ReduceStep]:
        if not messages:
            return [_ReduceStep("x", sends, 0)] if sends or self.mixed else []
        steps: list[_ReduceStep] = []
        keep = messages - sends
        if keep and self.mixed:
            steps, keep = [_ReduceStep("x", False, 1)], keep - 1
        if keep > 1 and not self.tree.merge:
            steps += [_ReduceStep("total", False, 1)] * keep
        elif keep > 1:
            steps.append(_ReduceStep("total", False, keep, "loop" if self.sums != "f32" and self.n % 2 else "merged"))
        elif keep:
            steps.append(_ReduceStep("total", False, 1))
        source = "total" if messages > sends else "x"
        return [*steps, _ReduceStep(source, True, 1)] if sends else steps

    def emit(self, p: Program, role: Role, x: Var, total: Var) -> None:
        """Write the part of a PE.

        Parameters
        ----------
        p : Program
            Inside a task.
        role : Role
        x : Var
            Its data, ``n`` elements of `dtype`; overwritten if sums have the same format.
        total : Var or None
            Where sums go: `x` itself, or a variable of `sums` if `needs_total`.
        """
        n = self.n
        arriving = leaving = None
        if role.into is not None:
            into = p.input_queue(self.queue, role.into)
            arriving = p.fabin(into, n)
        if role.out is not None:
            leaving = role.leaving(p, self.queue, n)
        for step in self._steps(role.messages, role.out is not None):
            widen = self.mixed and step.source == "x"
            source = x if step.source == "x" or not self.mixed else total
            target = leaving if step.leaves and leaving is not None else total if self.mixed else x
            if arriving is None:
                (p.fh2s if widen else p.mov32 if self.sums == "f32" else p.mov16)(target, source)
                continue
            combine = getattr(p, COMBINE[self.combine][0])
            add = p.faddhs if widen else combine if self.sums == "f32" else p.faddh
            if step.form == "merged":
                walk = p.mem4d(source, (step.messages, n), (0, 1))
                many = step.messages * n
                add(walk, walk, p.fabin(into, many if many < ENDLESS else ENDLESS))
            elif step.form == "loop":
                with p.loop(step.messages):
                    add(target, source, arriving)
            else:
                add(target, source, arriving)
        role.close(p, self.queue)

    # --- reference, counts, cycles ------------------------------------------------------------------------------------

    def total(self, parts: Sequence[Bits], given: Arithmetic, result: Arithmetic) -> Bits:
        """Return the bits of the sum in the order of the PEs.

        Parameters
        ----------
        parts : sequence of ndarray
            Bit patterns of each place's data.
        given, result : Arithmetic
            Of the data and of the sums.
        """
        values: dict[int, NDArray[Any]] = dict(enumerate(parts))
        for k in range(len(parts) - 1, -1, -1):
            children = self.tree.children[k]
            if self.mixed and not children:
                flat = np.ravel(values[k])
                values[k] = np.asarray(numerics.convert(flat, given.fmt, "f32", given.bias, given.ftz)).reshape(
                    np.shape(values[k])
                )
            for i, child in enumerate(children):
                values[k] = (
                    given.call("add_mixed", values[k], values[child])
                    if self.mixed and not i
                    else result.call(COMBINE[self.combine][1], values[k], values[child])
                )
                del values[child]
        return values[0]

    @property
    def roundings(self) -> int:
        """A value goes through at most so many additions."""
        return self.tree.roundings

    @property
    def hops(self) -> int:
        """All copies take so many wavelet hops: per message one from the ramp and one per link, commands included."""
        total = 0
        for k in range(1, len(self.tree)):
            far, advance = 1 + k - self.tree.parent[k], self.tree.advance[k]
            total += (self.wavelets + (advance == "way")) * far + (advance == "own")  # which leaves a ramp only
        return self.line.copies * total

    @property
    def additions(self) -> int:
        """All copies together do so many additions of elements: (P - 1) n each."""
        return self.line.copies * (len(self.tree) - 1) * self.n

    def end(self, start: int | Sequence[int], machine: Machine) -> int:
        """Return the cycle in which place 0 can issue what follows, if the places begin in cycle `start`.

        `start` is one number for all places or a sequence with one for each.
        A message arrives one wavelet per cycle once its sender has taken its first step, and not before the previous
        message on the same links is through; a PE takes it once it has loaded its descriptors.  How far consumption
        lags behind arrival is limited by the input queue, so the gap that a control wavelet leaves between two messages
        counts only if no lag is left.  One that moves the sender's own switch leaves a gap of a cycle, which
        may close (`trees.gap_closes`); one that goes the way of the message comes as an operation of its own.

        Not counted: wavelets of a message that has to wait slip into the links before it while another color still
        uses them, at most `router.depth` per router that they wait at.  Star and chain have none of that.  But where
        place 0 begins later than the others, or adds the first message in an operation of its own since the sums have
        another format, messages wait: some are behind their senders' switches by then, and leave no gap.  Routers take
        `router.depth` wavelets of each, the last one and its queue the rest, so that a star may be through room /
        (wavelets - `router.depth`) cycles earlier.
        """
        m, w = machine, self.wavelets
        room = m["queue.in_depth"][self.queue] + m["ramp.in_buffer"]
        # Cycles to the first wavelet of the next message on the same links, without or with a command between, which
        # routers take and the receiver does not.
        down = timing.train(m, w + 1, self.queue, self.queue)
        follow = {
            "none": down,
            "own": max(down, timing.train(m, w + 1, None, self.queue) + 1),
            "way": max(down, timing.train(m, w, self.queue, self.queue) + timing.command(m) + 1),
        }
        issue, load, drain, through = timing.issue(m), timing.load(m), m["vec.drain"], m["ramp.in"] + 1
        dimension, turns = m["ce.dsr_dimension"], (1 + m["ce.branch_taken"], 1 + m["ce.branch_not_taken"])
        ramps, hop = timing.ramps(m), m["router.hop"]
        closes = trees.gap_closes(m, w)
        behind = {"none": 0, "own": 1, "way": timing.command(m)}
        received = timing.receiver(m, w, self.queue, self.queue)
        first = [0] * len(self.tree)
        begins = start if isinstance(start, Sequence) else [start] * len(self.tree)
        now = begins[0]
        for k in range(len(self.tree) - 1, -1, -1):
            children, begin = iter(self.tree.children[k]), begins[k]
            now, passed, sends, starts = begin, -1, k > 0, []
            for step in self._steps(len(self.tree.children[k]), sends):
                if not step.messages and not step.leaves:  # one PE alone: conversion
                    return begin + 2 * load + timing.elementwise(m, "fh2s", self.n)
                if not step.messages:
                    first[k] = begin + 2 * load + issue
                    continue
                loads = (3 if step.leaves or (self.mixed and step.source == "x") else 2) * load
                loads += dimension * (step.form == "merged")
                now += step.form == "loop"
                ready = now + loads + issue
                for turn in range(step.messages):
                    child = next(children)
                    own = first[child] + ramps + hop * (child - k)
                    arrival = max(own, passed)
                    first[k] = max(ready, arrival)
                    starts.append(first[k])
                    last = int(received(ready, arrival)) - 1
                    freed, rest = divmod(len(starts) * w - 1 - room, w)  # the step that made room for the last wavelet
                    queued = starts[freed] + rest + through if freed >= 0 else 0
                    command = self.tree.advance[child]
                    gap = follow["none" if command == "own" and passed > own and closes else command]
                    passed = max(arrival + gap - 1, queued + 1 + behind[command])
                    now = last + 1 + drain
                    if step.form == "loop":
                        now += turns[turn == step.messages - 1]
                    ready = last + 1 if step.form == "merged" else now + loads + issue
        return now
