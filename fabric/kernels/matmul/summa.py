"""SUMMA does C = A B by broadcasts along rows and columns, one color per axis, routers turned by the PEs.

What moves
    A PE holds L/W tiles of A, L/H of B (one each on a square mesh) and its tile of C.  In step i = 0 .. L-1 the PEs of
    the column that has slice i of A send that tile along their row, to both sides at once, and the PEs of the row that
    has slice i of B theirs along their column.  Every PE adds the product of the two tiles of the step to its tile of
    C; a sender uses its own tile where it lies.

Colors, routers, queues
    One color per axis, 8 for A and 9 for B; input queues 0 and 1, output queues 2 and 3.  Along a row:

        steps before its own    rx = W   tx = E R    takes from the west, copies to its CE, passes on
        its own step            rx = R   tx = W E    sends to both sides; in switch position 1  tx = W E R
        steps after             rx = E   tx = W R    takes from the east, copies to its CE, passes on

    (B: north and south alike.)  A CE turns its router when it asks for the next tile, and must know that nothing of
    the step before is still to come through.  The control wavelet behind a tile (`advance_switch`) puts the sender's
    router, and no other since it is popped there, into position 1; the *token* sent after it goes to the others and to
    the sender's own CE.  It is the last wavelet of a step, and a router gives a wavelet to the next router and to its
    CE in the same cycle or not at all: who has the token can turn.  A wavelet of the next step that comes early waits
    at a port that is not open yet.  Each color has one open port per router at any time: no collisions possible.

    Why not two colors per axis, one for each direction, turned by control wavelets alone: a switch position of wse2
    changes either rx or tx, so that a sender would get, and have to drain, a copy of what it sends, and every tile
    would be sent twice.  The CE pays a slot per wavelet in either direction, and its slots are what this kernel is
    short of.

Tasks
    ``step`` runs when both tiles of a step are there: A activates it, B unblocks it.  It multiplies and asks for the
    next tiles; with ``buffers=2`` it asks first, so that tiles arrive on microthreads while it multiplies.  That hides
    latency only: an arriving wavelet takes its slot of the CE in either case, and the additional instructions cost
    as much as they save.  One buffer is the default, as it leaves room for larger tiles.

Order (bit exact)
    C starts from +0; for k = 0 .. K-1, padding included: C = fma(A[:, k], B[k, :], C); see
    `fabric.kernels.matmul.local`.

Cycles
    From the first to the last time stamp of a PE, the most of all PEs.  With SA and SB wavelets per tile, M cycles for
    the product of two tiles (`fabric.kernels.matmul.local`) and I for the instructions of a step, from the tokens of
    a step to those of the next:

        cycles = L (M + SA + SB + I) + start          (more than one PE)

    I is about 90 on wse2, of which 2 `ce.config` are the sender's; within 2 % of the measurement for steps of 500
    cycles and more, 10 % for the smallest tiles.  Broadcasts follow one another without waiting: the way of n-1 hops
    is paid once, not per step.

    Exactly: wavelet_hops = L (H ((SA + 1) W + 1) [W > 1] + W ((SB + 1) H + 1) [H > 1]), with tokens and moved switches.

Sources
    SUMMA: van de Geijn and Watts, 1997; on the machine in the vendor's gemm-collectives_2d example and in
    Wang-oss-tech/csl-experiments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fabric.asm.operands import Reg
from fabric.kernels.kit.session import Stamps
from fabric.kernels.matmul.broadcast_axis import AXES, BroadcastAxis
from fabric.kernels.matmul.distributed import Product
from fabric.kernels.matmul.local import emit_product, product_cycles
from fabric.kernels.matmul.problem import Problem
from fabric.layout.layout import Layout
from fabric.price import timing
from fabric.program.program import Program
from wse_core.formats import Bits
from wse_core.params import Machine

__all__ = ["Summa"]

MAIN, STEP = 24, 30
"""Ids of the tasks that every program has; those of transfers, which PEs at the ends lack, lie between."""


class Summa(Product):
    """A product by SUMMA; see `distributed.Product` and the head of this module.

    Parameters
    ----------
    buffers : {1, 2}
        Tiles of A and of B that can be received besides the own ones.
    """

    algorithm = "summa"

    def __init__(self, machine: Machine, problem: Problem, buffers: int = 1, where: str = "kernel gemm") -> None:
        self.buffers = buffers
        super().__init__(machine, problem, where)

    def ends(self, key: str) -> list[tuple[str, int, int]]:
        """Return (end, first, count): the places along an axis that need code of their own."""
        n = self.width if key == "a" else self.height
        if n == 1:
            return [("alone", 0, 1)]
        return [place for place in (("first", 0, 1), ("inner", 1, n - 2), ("last", n - 1, 1)) if place[2] > 0]

    @property
    def held(self) -> tuple[int, int]:
        """A PE holds so many tiles of A and of B."""
        return self.slices // self.width, self.slices // self.height

    def build(self) -> dict[Any, Program]:
        """Return the programs by (place in the row, place in the column), assembled."""
        return {
            (column[0], row[0]): self.program(column[0], row[0]) for column in self.ends("a") for row in self.ends("b")
        }

    def program(self, column: Any, row: Any) -> Program:
        """Return the program of the PEs at one kind of place in their row and in their column."""
        shape = self.shape
        p = Program(
            f"{self.algorithm} {column} column, {row} row", self.machine, half="cb16" if self.dtype == "cb16" else "f16"
        )
        c = p.array("c", shape.rows * shape.columns, shape.c_dtype, bank=0)
        stamps = Stamps(p)
        c_dsr, a_dsr = p.dsr("src0"), p.dsr("src1")
        a, b = self.axes(p, column, row)

        def multiply(a_base: Reg, b_base: Reg) -> None:
            emit_product(p, shape, c, c_dsr, a.own, a_dsr, a_base, b_base)

        if self.slices == 1:
            with p.task("main", id=MAIN):
                stamps.store(0)
                a_base, b_base = p.reg16("a base"), p.reg16("b base")
                a.take_own(a_base)
                b.take_own(b_base)
                multiply(a_base, b_base)
                stamps.store(1)
            p.assemble()
            return p
        step = p.reg16("step")

        with p.task("main", id=MAIN):
            stamps.store(0)
            a.prepare()
            b.prepare()
            p.ldi(step, 0)
            p.call("ask")

        self.write_ask(p, step, a, b)

        with p.task("step", id=STEP):
            p.block("step")
            self.write_step(p, step, a, b, multiply, stamps)
        p.blocked("step")
        p.assemble()
        return p

    def axes(self, p: Program, column: Any, row: Any) -> tuple[BroadcastAxis, BroadcastAxis]:
        """Return what a program has for the tiles of A and for those of B."""
        return (
            BroadcastAxis(p, "a", self.elements[0], self.dtype, column, self.held[0], self.buffers, self.shape.a_bank),
            BroadcastAxis(p, "b", self.elements[1], self.dtype, row, self.held[1], self.buffers, None),
        )

    def write_step(
        self,
        p: Program,
        step: Reg,
        a: BroadcastAxis,
        b: BroadcastAxis,
        multiply: Callable[[Reg, Reg], None],
        stamps: Stamps,
    ) -> None:
        """Write what happens when both tiles of a step are there; `multiply` takes the registers of their addresses."""
        two = self.buffers == 2
        a_base, b_base = p.reg16("a base"), p.reg16("b base")
        a.find(a_base, step)
        b.find(b_base, step)
        p.add16(step, step, 1)
        if two:
            a.toggle()
            b.toggle()
            with p.if_("ne", step, self.slices):
                p.call("ask")
        multiply(a_base, b_base)
        if two:
            with p.if_("eq", step, self.slices):
                stamps.store(1)
        else:
            with p.if_("ne", step, self.slices):
                p.call("ask")
            with p.else_():
                stamps.store(1)

    def write_ask(self, p: Program, step: Reg, a: BroadcastAxis, b: BroadcastAxis) -> None:
        """Write the function ``ask`` for the step in register `step`, and the tasks that belong to it."""
        with p.function("ask"):
            mine = p.reg16("mine")
            limit = p.reg16("limit") if max(self.held) > 1 else mine
            a.ask(step, mine, limit, activate="step")
            b.ask(step, mine, limit, unblock="step")
        a.sent()
        b.sent()

    @functools.cached_property
    def layout(self) -> Layout:
        """The `Layout` has programs, routes and parameters; the same for every run."""
        w, h = self.width, self.height
        layout = Layout(w, h, self.machine)
        for row, y, count_y in self.ends("b"):
            for column, x, count_x in self.ends("a"):
                layout.place(self.programs[column, row], x, y, count_x, count_y)
        for key, size, held in (("a", w, self.held[0]), ("b", h, self.held[1])):
            if size == 1:
                continue
            color, _, _, low, high = AXES[key]
            for end, at, count in self.ends(key):
                rect = (at, 0, count, h) if key == "a" else (0, at, w, count)
                layout.route(
                    color,
                    rect,
                    rx="R" if end == "first" else low,
                    tx=high if end == "first" else "R" if end == "last" else high + "R",
                    switches=[{"rx": "R"} if end == "last" else {"tx": "R"}],
                    pop="always_pop",
                )
            place = held * np.arange(size)
            layout.set_param(
                f"p{'x' if key == 'a' else 'y'}",
                np.broadcast_to(place if key == "a" else place[:, np.newaxis], (h, w)).copy(),
            )
        return layout

    def inputs(self, a: Bits, b: Bits) -> list[tuple[str, Bits, int, int]]:
        """Return what the host writes; see `Session`."""
        a, b = self.cut(a, b)
        (w, h), (held_a, held_b) = (self.width, self.height), self.held
        return [
            ("a", a.reshape(h, w, held_a * a.shape[-1]), 0, 0),
            ("b", b.reshape(h, held_b, w, -1).swapaxes(1, 2).reshape(h, w, -1), 0, 0),
        ]

    @property
    def colors(self) -> range:
        """The product has one color per axis."""
        used = [AXES[key][0] for key, size in (("a", self.width), ("b", self.height)) if size > 1]
        return range(min(used), max(used) + 1) if used else range(0)

    @property
    def way(self) -> int:
        """The farthest PE is so many links from the root of a broadcast."""
        return max(self.width, self.height) - 1

    @property
    def hops(self) -> int:
        """The product takes so many wavelet hops."""
        w, h, steps = self.width, self.height, self.slices
        return sum(
            steps * (w * h * (wavelets + 1) + w * h // size)  # a tile and its token, and what moves a switch
            for wavelets, size in zip(self.wavelets, (w, h), strict=True)
            if size > 1
        )

    def ask_cycles(self) -> int:
        """Return the cycles from the call of ``ask`` until both tiles and their tokens are there.

        Two ways through a step.  A PE that takes both tiles goes through ``ask`` and takes the wavelets, one slot each.
        A PE that sends one of them turns its router, sends, and starts a task for the token; the way to the others
        follows.  (One PE sends both, but those that wait for it wait for no other such PE in the next step.)
        """
        m = self.machine
        axes = [
            (wavelets, held > 1)
            for wavelets, held, size in zip(self.wavelets, self.held, (self.width, self.height), strict=True)
            if size > 1
        ]
        edits = 2 * m["ce.dsr_edit"] if self.points else 0
        # Both tiles come at once, and their wavelets share the slots of the CE, or come as slowly as links let them.
        trains = (
            timing.train(m, count + 1, *AXES[key][1:3])
            for count, key, size in zip(self.wavelets, "ab", (self.width, self.height), strict=True)
            if size > 1
        )
        slots = sum(count for count, _ in axes)
        if self.buffers == 1:  # with two, links have the time of a product as well
            slots = max(slots, *trains, 0)
        ends = m["ce.ret"] + m["ce.branch_taken"] + 1 + 2 - len(axes) + slots
        taken = sum(m["ce.load_latency"] + 2 * m["ce.branch_taken"] + 3 + 2 * several + edits for _, several in axes)
        sent = sum(
            m["ce.load_latency"]
            + m["ce.branch_not_taken"]
            + 2
            + 4 * several
            + edits
            + m["ce.branch_taken"]
            + m["task.start"]
            + 2
            for _, several in axes
        )
        sent += max((2 + several) * m["ce.config"] for _, several in axes)
        # Who sends A next has waited for B from two rows away, whose sender waited for A from two columns away ...
        return ends + max(taken, sent + timing.way(m, 2 if len(axes) == 2 and self.slices > 2 else 1))

    points = property(lambda self: self.buffers > 1, doc="Whether the descriptors of tiles are edited in every step.")

    def expected(self) -> float:
        """Return the cycles of the formula in the module's head."""
        m = self.machine
        local = product_cycles(self.shape, m)
        if self.slices == 1:
            return timing.stamp(m) + 2 + local  # and two addresses
        two = self.buffers == 2
        own = m["ce.load_latency"] + 2 + 3 + m["ce.branch_not_taken"]  # a sender of several tiles finds its next one
        find = sum(
            m["ce.load_latency"] + m["ce.branch_taken"] + 1 + two + own * (held > 1) if size > 1 else 5
            for held, size in zip(self.held, (self.width, self.height), strict=True)
        )
        around = (
            m["task.start"]
            + 1
            + find
            + 1
            + 2 * two  # block, find, count, toggle
            + 1
            + m["ce.branch_not_taken"]
            + m["ce.call"]
            + self.ask_cycles()
            + two
        )
        return self.slices * (local + around) + self.start_cycles()

    def start_cycles(self) -> int:
        """Return the cycles to the first step: descriptors, and once the second matrix that a PE has to send."""
        m, axes = self.machine, (self.width > 1) + (self.height > 1)
        return timing.stamp(m) + timing.load(m, 8 * axes) + 2 * m["ce.config"] * (axes == 2)
