"""Matrix product by allgather: every PE collects its panels of A and B, then multiplies once.

What moves
    The broadcasts of SUMMA (`fabric.kernels.matmul.summa`, same colors, queues and switches), one after the other
    and without products between them.  A PE (x, y) ends with all of row y of A and of column x of B.

Memory
    2 L + 1 tiles: two whole panels and C.  Products whose panels do not fit are refused.

Order (bit exact)
    C starts from +0, k upwards, as SUMMA.

Cycles
    From the first to the last time stamp of a PE, the most of all PEs:

        cycles = L (M + SA + SB + I) + start

    with the names of `summa`; I is about 80 for the transfer of two tiles and 9 for the turn of the loop over the
    products.  Nothing overlaps, which costs little on a CE whose slots pay for transfers and products alike.

Sources
    He et al., WaferLLM (OSDI 2025), section 5.1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fabric.asm.operands import Dsr, Reg
from fabric.kernels.kit.session import Stamps
from fabric.kernels.matmul.broadcast_axis import BroadcastAxis, slot_elements
from fabric.kernels.matmul.local import product_cycles
from fabric.kernels.matmul.problem import Problem
from fabric.kernels.matmul.summa import Summa
from fabric.program.program import Program
from wse_core.formats import Bits
from wse_core.params import Machine

__all__ = ["AllGatherProduct"]


class PanelAxis(BroadcastAxis):
    """The tiles of one matrix have each its place in a panel of all slices."""

    def declare(self, elements: int, dtype: str, bank: int | None) -> None:
        """Declare the panel; the host writes the PE's own tiles to their places."""
        self.own = self.received = self.p.array(self.key, self.buffers * self.slot, dtype, bank=bank)
        self.at = None

    def choose_sent(self, since: Reg) -> None:
        """Point the descriptor at the tile to send."""
        self._point(self.dsrs["send"][1])

    def choose_received(self) -> None:
        """Point the descriptor at the place of the tile to receive."""
        self._point(self.dsrs["receive"][0])

    def _point(self, dsr: Dsr) -> None:
        self.p.dsr_base(dsr, self.own)
        if self.offset is not None:
            self.p.dsr_off(dsr, self.offset)

    def toggle(self) -> None:
        """Go on to the next place."""
        if self.offset is not None:
            self.p.add16(self.offset, self.offset, self.slot_words)


class AllGatherProduct(Summa):
    """A product by allgather; see `distributed.Product` and the head of this module."""

    algorithm = "allgather"

    def __init__(self, machine: Machine, problem: Problem, where: str = "kernel gemm") -> None:
        super().__init__(machine, problem, where=where)

    def axes(self, p: Program, column: str, row: str) -> tuple[BroadcastAxis, BroadcastAxis]:
        """Return what a program has for the panels of A and of B; one PE alone has no panels."""
        if self.slices == 1:
            return super().axes(p, column, row)
        return (
            PanelAxis(p, "a", self.elements[0], self.dtype, column, self.held[0], self.slices, self.shape.a_bank),
            PanelAxis(p, "b", self.elements[1], self.dtype, row, self.held[1], self.slices, None),
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
        """Write what happens when both tiles of a step are there: the next ones, and behind the last the products."""
        p.add16(step, step, 1)
        a.toggle()
        b.toggle()
        with p.if_("ne", step, self.slices):
            p.call("ask")
        with p.else_():
            a_base, b_base = p.reg16("a base"), p.reg16("b base")
            p.ldi(a_base, a.own)
            p.ldi(b_base, b.own)
            with p.loop(self.slices, counter=step):
                multiply(a_base, b_base)
                p.add16(a_base, a_base, a.slot_words)
                p.add16(b_base, b_base, b.slot_words - b.words)  # the product leaves it behind the tile
            stamps.store(1)

    def inputs(self, a: Bits, b: Bits) -> list[tuple[str, Bits, int, int]]:
        """Return what the host writes; see `Session`."""
        if self.slices == 1:
            return super().inputs(a, b)
        a, b = self.cut(a, b)
        w, h, steps = self.width, self.height, self.slices
        slots = np.arange(steps)
        mine_a = slots // self.held[0] == np.arange(w)[:, np.newaxis]  # (W, L)
        mine_b = slots // self.held[1] == np.arange(h)[:, np.newaxis]  # (H, L)
        a = np.where(mine_a[np.newaxis, ..., np.newaxis], a[:, np.newaxis], 0).astype(a.dtype)
        b = np.where(mine_b[:, np.newaxis, :, np.newaxis], b.swapaxes(0, 1)[np.newaxis], 0).astype(b.dtype)
        a, b = (
            np.pad(found, [(0, 0)] * 3 + [(0, slot_elements(found.shape[-1]) - found.shape[-1])]) for found in (a, b)
        )
        return [("a", a.reshape(h, w, -1), 0, 0), ("b", b.reshape(h, w, -1), 0, 0)]

    points = True

    def expected(self) -> float:
        """Return the cycles of the formula in the module's head."""
        m = self.machine
        if self.slices == 1:
            return super().expected()
        around = (
            m["task.start"]
            + 2
            + (self.width > 1)
            + (self.height > 1)
            + m["ce.branch_not_taken"]
            + m["ce.call"]
            + self.ask_cycles()
        )
        product = product_cycles(self.shape, m) + 3 + m["ce.branch_taken"]
        return self.slices * (product + around) + self.start_cycles()
