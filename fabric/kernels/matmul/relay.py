"""SUMMA may be routed by software: C = A B with tiles that cores hand on, for meshes whose routers could not.

What moves
    The tiles and the steps of SUMMA (`fabric.kernels.matmul.summa`): in step i those PEs that have slice i send it to
    both sides.  But no wavelet passes a router that is not its goal's: a PE receives a tile into its SRAM, sends it on
    to the next PE while it multiplies, and takes the tile after it when that has left.  Slices before its own come from
    lower places and go to higher ones, those behind it the other way.

Colors, routers, queues
    Two colors per axis and direction, of which PEs at even places send one and those at odd places the other: along a
    row 8, 9 (to the east) and 10, 11 (to the west), along a column 12, 13 and 14, 15; eight in all, however large the
    mesh, where broadcasts with a route of their own for each owner would need 2 n (WaferLLM).  All routes are static
    and one link long.  Input queues 4..7, output queues 0..3, each the microthread of one transfer.

Tasks
    ``ask`` starts what comes next of both matrices.  ``a from low`` and its like run when a tile has come that has to
    go on; they start its way on and tell ``step``, which multiplies: A activates it, B unblocks it.  A tile is received
    only after an edit of the descriptor by which the tile before is sent, which waits until that has left.  Who waits
    does so for a PE that is a step behind, so nobody waits in a circle.

Order (bit exact)
    As SUMMA: C starts from +0; for k = 0 .. K-1, padding included: C = fma(A[:, k], B[k, :], C).

Cycles
    From the first to the last time stamp of a PE, the most of all PEs; `fabric.kernels.matmul.relay_cycles` follows
    every PE from step to step.  A wavelet takes a slot of every CE when it comes and one when it goes on, and who is
    far from the sender waits for all tiles before: with SA, SB wavelets per tile and M cycles for the product about

        cycles = L (M + 2 (SA + SB) + I + D)

    with I about 90 for the instructions of a step and D what the distance costs: the owner of the next step is one
    place further, so who lies behind it waits for one more PE to hand the tile on in every step, SA + SB + 40 cycles on
    wse2.  To the cycle along a line; on squares within 2 % of the measurement.

    Exactly: wavelet_hops = 2 L ((W - 1) H SA + (H - 1) W SB), an own ramp and a link for each time a tile is handed on.

Sources
    He et al., WaferLLM (OSDI 2025), section 3.1: what is beyond the routes of a core is forwarded by software.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from fabric.kernels.matmul.broadcast_axis import AXES
from fabric.kernels.matmul.distributed import place_all
from fabric.kernels.matmul.problem import Problem
from fabric.kernels.matmul.relay_axis import COLORS, RelayAxis
from fabric.kernels.matmul.relay_cycles import relay_cycles
from fabric.kernels.matmul.summa import Summa
from fabric.layout.layout import Layout
from fabric.program.program import Program
from wse_core.params import Machine

__all__ = ["SummaRelay"]


class SummaRelay(Summa):
    """A product by SUMMA whose tiles are handed on by cores; see the head of this module."""

    algorithm = "summa-relay"

    def __init__(self, machine: Machine, problem: Problem, where: str = "kernel gemm") -> None:
        super().__init__(machine, problem, where=where)

    def kinds_along(self, key: str) -> list[tuple[str, int]]:
        """Return per place along an axis its end and its parity: what asks for code of its own."""
        return [(end, at % 2) for end, first, count in self.ends(key) for at in range(first, first + count)]

    def build(self) -> dict[Any, Program]:
        """Return the programs by (kind of column, kind of row), assembled."""
        columns, rows = (dict.fromkeys(self.kinds_along(key)) for key in "ab")
        return {(column, row): self.program(column, row) for column in columns for row in rows}

    def try_build(self) -> None:
        """Build the largest program: that of a PE inside, or of the nearest there is to it."""
        column, row = (self.kinds_along(key)[(self.width if key == "a" else self.height) // 2] for key in "ab")
        self.program(column, row)

    def axes(self, p: Program, column: Any, row: Any) -> tuple[RelayAxis, RelayAxis]:
        """Return what a program has for the tiles of A and for those of B."""
        return (
            RelayAxis(p, "a", self.elements[0], self.dtype, column, self.held[0], self.shape.a_bank),
            RelayAxis(p, "b", self.elements[1], self.dtype, row, self.held[1], None),
        )

    @functools.cached_property
    def layout(self) -> Layout:
        """The `Layout` has programs, routes and parameters; the same for every run."""
        w, h = self.width, self.height
        layout = Layout(w, h, self.machine)
        place_all(layout, self.programs, self.kinds_along("a"), self.kinds_along("b"))
        for key, size, held in (("a", w, self.held[0]), ("b", h, self.held[1])):
            if size == 1:
                continue
            _, _, _, low, high = AXES[key]
            for toward, away, first in ((high, low, 0), (low, high, 1)):
                color = COLORS[key]["high" if toward == high else "low"]
                for parity in range(2):
                    # Who sends has a neighbour in that direction, who receives one behind.
                    sends = range(first + (first + parity) % 2, size - 1 + first, 2)
                    comes = range(1 - first + (1 - first + 1 - parity) % 2, size - first, 2)
                    for places, route in ((sends, ("R", toward)), (comes, (away, "R"))):
                        if len(places):
                            rect = (places[0], 0, places[-1] - places[0] + 1, h, 2, 1)
                            if key == "b":
                                rect = (0, places[0], w, places[-1] - places[0] + 1, 1, 2)
                            layout.route(color + parity, rect, rx=route[0], tx=route[1])
            place = held * np.arange(size)
            layout.set_param(
                f"p{'x' if key == 'a' else 'y'}",
                np.broadcast_to(place if key == "a" else place[:, np.newaxis], (h, w)).copy(),
            )
        return layout

    @property
    def colors(self) -> range:
        """An axis has four colors: two directions, two parities; on a line of two PEs one each way."""
        used = [
            color + parity
            for key, size in (("a", self.width), ("b", self.height))
            for toward, color in COLORS[key].items()
            for parity in range(2)
            if size > 2 or (size == 2 and parity == (toward == "low"))
        ]
        return range(min(used), max(used) + 1) if used else range(0)

    @property
    def way(self) -> int:
        """The longest path without a core on it has so many links."""
        return min(1, max(self.width, self.height) - 1)

    @property
    def hops(self) -> int:
        """The product takes so many wavelet hops."""
        (w, h), (a, b) = (self.width, self.height), self.wavelets
        return 2 * self.slices * ((w - 1) * h * a + (h - 1) * w * b)

    def expected(self) -> float:
        """Return the cycles by `relay_cycles`."""
        if self.slices == 1:
            return super().expected()
        return relay_cycles(self.machine, self.width, self.height, self.slices, self.held, self.wavelets, self.shape)
