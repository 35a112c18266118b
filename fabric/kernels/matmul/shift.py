"""Cyclic shifts give a matrix product: Cannon on the plain ring, MeshGEMM on the folded one.

What moves
    Each row of PEs is a ring for its tiles of A, each column one for its tiles of B
    (`fabric.kernels.collectives.pieces.ring`; `cannon`: neighbours and a way back of n-1 hops, `meshgemm`: no step
    longer than two hops).  A PE holds L/W tiles of A and L/H of B in the order of the ring (L = lcm(W, H), one each on
    a square) and multiplies the first of each.  Then every ring turns by one tile: a PE sends its first tiles and
    receives new last ones, while it multiplies.

    *Alignment* comes first, so that the first tiles belong to the same slice: the PE of rank r in its column turns its
    row by r L/H tiles, that of rank r in its row its column by r L/W; each row and each column the shorter way round,
    L/2 turns at most.  ``align="host"`` leaves that to the host, which then writes tiles where the first step wants
    them, as for weights that are placed in advance.

    Rows of a square mesh start with A and B as they are cut, tile k of a row on PE k.  Otherwise PE of rank r has
    slices r L/W, r L/W + 1 ...: for A and B alike, which natural places cannot give when the rings differ.

Colors, routers, queues
    Three colors per axis, 8 .. 10 along x and 11 .. 13 along y, all routes static.  Input queues 0 and 1, output queues
    2 and 3; each runs its own microthread.  Rows and columns that are aligned the other way round have three more,
    14 .. 16 along x and 17 .. 19 along y, input queues 2 and 3, output queues 0 and 1.

Memory
    One tile more than the PE holds, per matrix, into which the next one arrives; the place of a tile that has been
    sent and multiplied is the next such place.

Tasks
    ``align a`` and ``align b`` run once per tile that has arrived while the rings are aligned; when both are through,
    ``aligned`` takes a time stamp.  ``step`` runs when both tiles of a step are there (A activates it, B unblocks it):
    it moves on by one tile, starts the next transfers, multiplies.  It does not ask whether the tile before has left:
    a descriptor register in use by a microthread makes the main thread wait, and each is edited here before its use.

Order (bit exact)
    C starts from +0; PE (x, y) of ranks (i, j) takes slices i L/W + j L/H, + 1, + 2 ... modulo L (in the order of the
    ring on a square mesh), and within a slice k upwards.

Cycles
    From the first to the last time stamp of a PE, the most of all PEs.  With SA and SB wavelets per tile, M cycles for
    the product of two tiles, I for the instructions of a step (32 on wse2) and J for those of a turn of alignment (24):

        alignment = RA (2 SA + J) + RB (2 SB + J)     RA, RB the most turns of a row and of a column, about L/2
        cycles    = alignment + L (M + I) + (L - 1) 2 (SA + SB) + ways

    within 1 % of the measurement, 4 % for Cannon with alignment, 12 % for the smallest tiles.  A wavelet takes a slot
    of the CE when it is sent and one when it is received; transfers overlap with the product only where it waits.
    `ways`: a PE starts when its own tiles are there, and in L steps a tile passes the way back of a plain ring once per
    axis.  So Cannon pays its n-1 hops once, as far as they are longer than a step, and not per step.

    Exactly: wavelet_hops = SA G (turns of all rows) + SB G' (turns of all columns), G and G' = `Ring.grants`.

Sources
    He et al., WaferLLM (OSDI 2025), section 5; Cannon, 1969.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.collectives.pieces.ring import Ring
from fabric.kernels.kit.session import Session, Stamps
from fabric.kernels.matmul.distributed import Product, place_all, strides
from fabric.kernels.matmul.local import emit_product, product_cycles
from fabric.kernels.matmul.problem import Problem
from fabric.kernels.matmul.ring_axis import BACK, BACK_QUEUES, FIRST, QUEUES, RingAxis
from fabric.layout.layout import Layout
from fabric.price import timing
from fabric.program.program import Program
from wse_core.formats import Bits
from wse_core.params import Machine

__all__ = ["Cannon", "MeshGemm"]


def _in_rows(rows: range, place: int) -> tuple[int, ...]:
    """Return the PEs of a place of a row, in some rows."""
    return place, rows[0], 1, rows[-1] - rows[0] + 1, 1, rows.step


def _in_columns(columns: range, place: int) -> tuple[int, ...]:
    """Return the PEs of a place of a column, in some columns."""
    return columns[0], place, columns[-1] - columns[0] + 1, 1, columns.step, 1


class Shift(Product):
    """A product by cyclic shifts; see `distributed.Product` and the head of this module.

    Parameters
    ----------
    align : {"fabric", "host"}
        Who brings the tiles to where the first step wants them.
    """

    kind = ""

    def __init__(self, machine: Machine, problem: Problem, align: str = "fabric", where: str = "kernel gemm") -> None:
        self.align = align
        self.rings = {"a": Ring(problem.width, self.kind), "b": Ring(problem.height, self.kind)}
        super().__init__(machine, problem, where)

    @property
    def colors(self) -> range:
        """Both rings have these colors, and so have both the other way round if a row or a column is aligned so."""
        used = [key for key, ring in self.rings.items() if ring.n > 1]
        first = [FIRST[key] for key in used]
        first += [BACK[key] for key, lines in zip("ab", self.backwards, strict=True) if lines.any()]
        return range(min(first), max(first) + 3) if used else range(0)

    @property
    def way(self) -> int:
        """The longest step of a ring has so many links."""
        return max(ring.hops for ring in self.rings.values())

    @property
    def held(self) -> tuple[int, int]:
        """A PE holds so many tiles of A and of B."""
        return self.slices // self.width, self.slices // self.height

    # --- programs -----------------------------------------------------------------------------------------------------

    def build(self) -> dict[Any, Program]:
        """Return the programs by (colors along x, colors along y), assembled."""
        if self.width == self.height != self.rings["a"].n:
            self.rings = {key: Ring(self.width, self.kind) for key in "ab"}  # a larger square that might fit
            backs = dict.fromkeys("ab", self.align == "fabric" and self.width > 2)
            return {None: self.program(self.rings["a"].colors(0), self.rings["b"].colors(0), backs)}
        columns, rows = (set(self.kinds_along(key)) for key in "ab")
        return {
            (column, row): self.program(column[0], row[0], {"a": row[1], "b": column[1]})
            for column in columns
            for row in rows
        }

    def try_build(self) -> None:
        """Build the largest program: that of a PE whose lines are both aligned the other way round, if any is."""
        if self.width == self.height != self.rings["a"].n:
            self.build()
            return
        x_colors, y_colors = (ring.colors(0) if ring.n > 1 else None for ring in self.rings.values())
        rows, columns = self.backwards
        self.program(x_colors, y_colors, {"a": bool(rows.any()), "b": bool(columns.any())})

    def kinds_along(self, key: str) -> list[tuple[tuple[int, int] | None, bool]]:
        """Return per place (colors sent and received on its ring, whether the other ring is aligned backwards)."""
        ring, back = self.rings[key], self.backwards[1 if key == "a" else 0]
        return [(ring.colors(k) if ring.n > 1 else None, bool(back[k])) for k in range(ring.n)]

    def program(
        self, x_colors: tuple[int, int] | None, y_colors: tuple[int, int] | None, backs: Mapping[str, bool]
    ) -> Program:
        """Return the program of the PEs with those colors; `backs`: per axis, whether it is aligned backwards."""
        shape = self.shape
        p = Program(
            " ".join((self.algorithm, f"{x_colors} {y_colors}", *(f"{key} back" for key in "ab" if backs[key]))),
            self.machine,
            half="cb16" if self.dtype == "cb16" else "f16",
        )
        c = p.array("c", shape.rows * shape.columns, shape.c_dtype, bank=0)
        stamps, aligned = Stamps(p), p.array("aligned", 3, "u16")
        c_dsr, a_dsr = p.dsr("src0"), p.dsr("src1")
        axes = [
            RingAxis(p, "a", self.elements[0], self.dtype, self.held[0], x_colors, shape.a_bank, backs["a"]),
            RingAxis(p, "b", self.elements[1], self.dtype, self.held[1], y_colors, back=backs["b"]),
        ]
        steps = p.reg16("steps")
        turns = {axis.key: p.param(f"turns_{axis.key}", "u16") for axis in axes}

        with p.task("main"):
            stamps.store(0)
            for axis in axes:
                axis.prepare()
            p.ldi(steps, self.slices)
            if self.align == "fabric":
                p.activate("align a")
                p.activate("align b")
            else:
                p.activate("aligned")

        if self.align == "fabric":
            for axis, signal in zip(axes, ({"activate": "aligned"}, {"unblock": "aligned"}), strict=True):
                with p.task(f"align {axis.key}"):
                    left = p.reg16("left")
                    p.ld16(left, turns[axis.key])
                    with p.if_("ne", left, 0):
                        p.sub16(left, left, 1)
                        p.st16(left, turns[axis.key])
                        (axis.retreat if axis.back else axis.advance)()
                        axis.turn(activate=f"align {axis.key}", back=axis.back)
                    with p.else_():
                        p.activate("aligned") if "activate" in signal else p.unblock("aligned")
            p.blocked("aligned")

        with p.task("aligned"):
            p.store_tsc(aligned[0])
            p.activate("step")
            p.unblock("step")

        with p.task("step"):
            p.block("step")
            for axis in axes:
                axis.advance()
            p.sub16(steps, steps, 1)
            with p.if_("ne", steps, 0):
                axes[0].turn(activate="step")
                axes[1].turn(unblock="step")
            b_base = p.reg16("b base")
            p.mov16(b_base, axes[1].current)
            emit_product(p, shape, c, c_dsr, axes[0].store, a_dsr, axes[0].current, b_base)
            with p.if_("eq", steps, 0):
                stamps.store(1)
        p.blocked("step")
        p.assemble()
        return p

    # --- layout and data ----------------------------------------------------------------------------------------------

    @functools.cached_property
    def layout(self) -> Layout:
        """The `Layout` has programs, routes and parameters; the same for every run."""
        w, h = self.width, self.height
        layout = Layout(w, h, self.machine)
        place_all(layout, self.programs, self.kinds_along("a"), self.kinds_along("b"))
        self.rings["a"].paint(layout, FIRST["a"], "E", "W", lambda k: (k, 0, 1, h))
        self.rings["b"].paint(layout, FIRST["b"], "S", "N", lambda k: (0, k, w, 1))
        backwards = [[at for back, at in strides(list(lines)) if back] for lines in self.backwards]
        for rows in backwards[0]:
            self.rings["a"].paint(layout, BACK["a"], "E", "W", partial(_in_rows, rows), back=True)
        for columns in backwards[1]:
            self.rings["b"].paint(layout, BACK["b"], "S", "N", partial(_in_columns, columns), back=True)
        turns = self.turns
        layout.set_param("turns_a", turns[0])
        layout.set_param("turns_b", turns[1])
        return layout

    @property
    def moved(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Each row of A and each column of B is moved by so many tiles by the alignment, counted along the ring."""
        x, y = (np.array(self.rings[key].rank) for key in "ab")
        return y * self.held[1], x * self.held[0]

    @property
    def backwards(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Whether each row of A and each column of B is aligned the other way round its ring, which is shorter."""
        if self.align == "host":
            return np.zeros(self.height, bool), np.zeros(self.width, bool)
        rows, columns = (
            (2 * moved > self.slices) & (ring.n > 1)
            for moved, ring in zip(self.moved, self.rings.values(), strict=True)
        )
        return rows, columns

    @property
    def line_turns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Each row of A and each column of B takes so many turns of alignment."""
        rows, columns = (
            np.where(back, self.slices - moved, moved) for back, moved in zip(self.backwards, self.moved, strict=True)
        )
        return rows, columns

    @property
    def turns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Each PE does so many turns of alignment: of the tiles of A, of those of B; arrays (H, W)."""
        shape = self.height, self.width
        rows, columns = self.line_turns
        return np.broadcast_to(rows[:, np.newaxis], shape).copy(), np.broadcast_to(columns, shape).copy()

    @property
    def sequence(self) -> NDArray[np.int64]:
        """Slices along a ring: position t of the ring is slice ``sequence[t]``."""
        if self.width == self.height:
            return np.array(self.rings["a"].order)
        return np.arange(self.slices)

    in_order = False

    def order(self, y: int, x: int) -> NDArray[np.int64]:
        """Return the slices in the order in which PE (x, y) takes them."""
        first = self.rings["a"].rank[x] * self.held[0] + self.rings["b"].rank[y] * self.held[1]
        return self.sequence[(first + np.arange(self.slices)) % self.slices]

    def inputs(self, a: Bits, b: Bits) -> list[tuple[str, Bits, int, int]]:
        """Return what the host writes; see `Session`."""
        a, b = self.cut(a, b)
        x, y = (np.array(self.rings[key].rank) for key in "ab")
        rows, columns = np.arange(self.height)[:, np.newaxis], np.arange(self.width)
        found = []
        rows_by, columns_by = self.moved if self.align == "host" else (np.zeros(1, int), np.zeros(1, int))
        places = (
            (x * self.held[0])[np.newaxis, :] + rows_by[:, np.newaxis],
            (y * self.held[1])[:, np.newaxis] + columns_by[np.newaxis, :],
        )
        for key, first, held in zip("ab", places, self.held, strict=True):
            first = np.broadcast_to(first, (self.height, self.width))
            at = [self.sequence[(first + t) % self.slices] for t in range(held)]
            parts = [a[rows, t] if key == "a" else b[t, columns] for t in at]
            if self.rings[key].n > 1:
                parts.append(np.zeros_like(parts[0]))
            found.append((key, np.concatenate(parts, axis=-1), 0, 0))
        return found

    # --- counts -------------------------------------------------------------------------------------------------------

    @property
    def hops(self) -> int:
        """The product takes so many wavelet hops, alignment included."""
        turns = self.turns if self.align == "fabric" else (np.zeros((self.height, self.width), int),) * 2
        per_row, per_column = (turns[0][:, 0] + self.slices - 1).sum(), (turns[1][0] + self.slices - 1).sum()
        return int(
            self.wavelets[0] * self.rings["a"].grants * per_row + self.wavelets[1] * self.rings["b"].grants * per_column
        )

    def align_cycles(self, session: Session) -> int:
        """Return the most cycles from the start to the end of the alignment of a PE."""
        words = session.read("aligned", 0, 0, self.width, self.height).astype(np.int64)
        starts, _ = session.stamps(0, 0, self.width, self.height)
        return int((words @ (1 << 16 * np.arange(3, dtype=np.int64)) - starts).max())

    def costs(self) -> list[tuple[int, int, int]]:
        """Return the cycles (advance, turn) of the code of `RingAxis` and the slots of a turn's wavelets, per axis."""
        m, found = self.machine, []
        for ring, held, count in zip(self.rings.values(), self.held, self.wavelets, strict=True):
            moves = ring.n > 1
            advance = {1: 0, 2: 3}.get(held + moves, 3 + m["ce.branch_taken"])
            found.append((advance, 2 * m["ce.dsr_edit"] + 2 if moves else 1, 2 * count * moves))
        return found

    def expected(self) -> float:
        """Return the cycles of the formula in the module's head."""
        m, costs = self.machine, self.costs()
        moving = sum(ring.n > 1 for ring in self.rings.values())
        turns, slots = sum(turn for _, turn, _ in costs), sum(count for _, _, count in costs)
        step = (
            m["task.start"]
            + 1
            + sum(advance for advance, _, _ in costs)
            + 1
            + m["ce.branch_not_taken"]
            + turns
            + 1
            + m["ce.branch_taken"]
            + 1
            + product_cycles(self.shape, m)
        )
        # A tile may come later than its step could begin: all ways round a ring of n are 2 n - 2 hops together.
        late, behind = (
            0.0,
            [costs[1][1] + m["ce.dsr_edit"] + 1, m["ce.dsr_edit"] + 1],
        )  # what follows a send in its step
        for (key, ring), count, more in zip(self.rings.items(), self.wavelets, behind, strict=True):
            if ring.n > 1:
                way = timing.ramps(m) + m["router.hop"] * (2 - 2 / ring.n)
                late = max(late, way + timing.train(m, count, *QUEUES[key]) - more)
        local = product_cycles(self.shape, m) + 1 + m["ce.branch_taken"] + 1  # begins after the transfers
        slots = max(slots, round(late + timing.issue(m) + 1 - local) if moving else 0)
        loop = self.slices * step + (self.slices - 1) * slots - turns - 1  # the last step starts no transfers
        return self.expected_align() + loop + self.ways(step + slots) + timing.load(m, 4 * moving)

    def expected_align(self) -> float:
        """Return the cycles to the end of the alignment, without the loads of descriptors that all PEs need."""
        m = self.machine
        start = timing.stamp(m) + 8 + m["task.start"] + timing.stamp(m) + 3
        if self.align == "host":
            return start
        test = m["task.start"] + m["ce.load_latency"]
        last = test + m["ce.branch_taken"] + 2
        both = one = 0
        for key, wavelets, lines, back, (advance, turn, slots) in zip(
            "ab", self.wavelets, self.line_turns, self.backwards, self.costs(), strict=True
        ):
            begin = test + m["ce.branch_not_taken"] + 2 + advance + turn
            loads = np.where(back, timing.load(m, 2), 0)
            both += int((lines * (begin + m["ce.branch_taken"] + 1 + slots) + loads).max())
            for queues, mine in ((QUEUES, ~back), (BACK_QUEUES, back)):
                # A line of one PE moves its tiles by name only.
                travel = timing.way(m, 2) + timing.train(m, wavelets, *queues[key]) if slots else 0
                one = max(one, int((lines * (begin + travel + 2) + loads)[mine].max(initial=0)))
        return start + 2 * last + max(both, one)

    def ways(self, step: int) -> int:
        """Return what the longest ways of both rings cost: once, if they are longer than the cycles of a step."""
        m, total = self.machine, 0
        for ring, count in zip(self.rings.values(), self.wavelets, strict=True):
            if ring.n > 1:
                total += max(0, timing.way(m, ring.hops) + count - step)
        return total


class Cannon(Shift):
    """Cannon's algorithm: the ring runs through neighbours and comes back over the whole line."""

    algorithm, kind = "cannon", "plain"


class MeshGemm(Shift):
    """MeshGEMM has the folded ring, on which no step is longer than two hops."""

    algorithm, kind = "meshgemm", "folded"
