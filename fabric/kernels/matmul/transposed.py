"""dist-GEMM-T does C = A B^T without a transpose: A stays, B shifts along y, sums run along x.

What moves
    PE (x, y) of W x H holds the tile A[y, x] (m x k over H x W), tiles of B (n x k over L x W, L = lcm(W, H); L/H of
    them) and L/W tiles of C (m x n over H x L).  A column of PEs is a folded ring for its tiles of B
    (`fabric.kernels.collectives.pieces.ring`).  In each of L steps a PE multiplies A[y, x] with the transpose of the
    tile of B that has come, all of one row of PEs with the same slice j of n, and the row adds its products up on PE j
    div (L/W):  from both ends toward it, each PE adding its own product to the sum that passes.  Then the ring turns by
    one tile.

    Nothing is aligned: a row starts with the slice that its PEs hold.  A does not move at all, and no tile is ever
    transposed: the product reads B as scalars, in whatever order it lies in.

Colors, routers, queues
    B: three colors, 11 .. 13, all static.  Sums: color 8 or 9 to the east, 10 or 14 to the west, by the parity of the
    sender, all static, so that the changing root needs no change of routes.  Input queues: 1 for B, 0 from the west, 4
    from the east; output queues 3 for B, 2 to the east, 4 to the west.

Memory
    A, C, one tile more of B than the PE holds, a tile of partial sums; a word per step that says where the sum goes.

Order (bit exact)
    Partial sums start from +0, k upwards.  At the root: (own + sum from the west) + sum from the east; on the way own +
    passing.

Cycles
    From the first to the last time stamp of a PE, the most of all PEs.  With S words of partial sums, M cycles of a
    product and I instructions, about

        cycles = L (M + 2 SB + 2 S + clear + I) + 6 (W - 1)

    Each PE adds S words in a step, the root those of both sides, and it clears its own; the next root, a place or two
    farther on, waits for it.  Who waits for whom is followed at the end of this file, PE by PE.

Sources
    He et al., WaferLLM (OSDI 2025), sections 4.1 and 5.4.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.asm.operands import Reg, Var
from fabric.kernels.collectives.pieces.ring import Ring
from fabric.kernels.kit import tiles
from fabric.kernels.kit.check import sequential_sum
from fabric.kernels.kit.data import wavelets_of
from fabric.kernels.kit.session import Stamps
from fabric.kernels.matmul.distributed import Product, place_all
from fabric.kernels.matmul.local import Shape, emit_product, product_cycles
from fabric.kernels.matmul.problem import Problem
from fabric.kernels.matmul.ring_axis import FIRST, RingAxis
from fabric.layout.layout import Layout
from fabric.price import timing
from fabric.program.program import Program
from wse_core.formats import Bits
from wse_core.params import Machine

__all__ = ["GemmT"]

EAST, WEST = (8, 9), (10, 14)
"""The sums have these colors by the parity of the sender."""
TO_WEST, TO_EAST, HERE = 0, 1, 2
"""A sum goes to one of these; `HERE` plus the word offset of the tile of C."""
QUEUES = {"west": (0, 2), "east": (4, 4)}
"""Wavelets from a side come by this input queue; those who sent them have this output queue."""


class GemmT(Product):
    """C = A B^T; see `distributed.Product` (B is n x k here) and the head of this module."""

    algorithm = "gemm_t"

    def __init__(self, machine: Machine, problem: Problem, where: str = "kernel gemm_t") -> None:
        self.ring = Ring(problem.height)
        super().__init__(machine, problem, where)

    def shape_of(self, m: int, k: int, n: int) -> Shape:
        """Return the `Shape` of the tiles."""
        found = super().shape_of(m, k, n)
        return replace(found, depth=-(-k // self.width), columns=-(-n // self.slices))

    @property
    def held(self) -> tuple[int, int]:
        """A PE holds so many tiles of B and of C."""
        return self.slices // self.height, self.slices // self.width

    @property
    def c_tiles(self) -> int:
        """A PE has so many tiles of C, side by side."""
        return self.held[1]

    # --- programs -----------------------------------------------------------------------------------------------------

    def build(self) -> dict[Any, Program]:
        """Return the programs by ((place in the row, parity of the column), colors along y), assembled."""
        if self.width == self.height != self.ring.n:
            self.ring = Ring(self.height)  # a larger square that might fit
            return {None: self.program("inner", 0, self.ring.colors(0))}
        rows = self.ring.kinds()
        return {
            (self.column(x), row): self.program(*self.column(x), row)
            for x in sorted({0, min(1, self.width - 1), min(2, self.width - 1), self.width - 1})
            for row in rows
        }

    def colors_along(self) -> list[tuple[int, int] | None]:
        """Return the colors (sent, received) of the ring per row."""
        return [self.ring.colors(y) if self.ring.n > 1 else None for y in range(self.height)]

    def column(self, x: int) -> tuple[str, int]:
        """Return (place in the row, parity) of a column."""
        if self.width == 1:
            return "alone", 0
        return "first" if x == 0 else "last" if x == self.width - 1 else "inner", x % 2

    def program(self, end: str, parity: int, y_colors: tuple[int, int] | None) -> Program:
        """Return the program of the PEs of one kind."""
        shape = self.shape
        p = Program(f"gemm_t {end} {parity} {y_colors}", self.machine, half="cb16" if self.dtype == "cb16" else "f16")
        count = shape.rows * shape.columns
        c = p.array("c", count * self.c_tiles, shape.c_dtype, bank=0)
        part = p.array("part", count, shape.c_dtype, bank=0)
        a = p.array("a", shape.rows * shape.depth, self.dtype, bank=shape.a_bank)
        stamps = Stamps(p)
        c_dsr, a_dsr = p.dsr("src0"), p.dsr("src1")
        b = RingAxis(p, "b", shape.depth * shape.columns, self.dtype, self.held[0], y_colors)
        goes = p.param("goes", "u16", count=self.slices)
        steps, at = p.reg16("steps"), p.reg16("at")
        row = _Row(p, end, parity, part, c, count, shape.c_dtype)

        with p.task("main"):
            stamps.store(0)
            b.prepare()
            row.prepare()
            p.ldi(steps, self.slices)
            p.ldi(at, goes)
            p.activate("step")

        with p.task("step"):
            b.advance()
            p.sub16(steps, steps, 1)
            with p.if_("ne", steps, 0):
                b.turn(activate="step")
            a_base, b_base = p.reg16("a base"), p.reg16("b base")
            p.ldi(a_base, a)
            p.mov16(b_base, b.current)
            emit_product(p, shape, part, c_dsr, a, a_dsr, a_base, b_base)
            p.ld16(a_base, at)
            p.add16(at, at, 1)
            row.add(a_base)
            with p.if_("eq", steps, 0):
                stamps.store(1)
        p.assemble()
        return p

    # --- layout and data ----------------------------------------------------------------------------------------------

    @functools.cached_property
    def layout(self) -> Layout:
        """The `Layout` has programs, routes and parameters; the same for every run."""
        w, h = self.width, self.height
        layout = Layout(w, h, self.machine)
        place_all(layout, self.programs, [self.column(x) for x in range(w)], self.colors_along())
        self.ring.paint(layout, FIRST["b"], "S", "N", lambda k: (0, k, w, 1))
        for x in range(w - 1):
            layout.route(EAST[x % 2], (x, 0, 1, h), rx="R", tx="E")
            layout.route(EAST[x % 2], (x + 1, 0, 1, h), rx="W", tx="R")
            layout.route(WEST[(x + 1) % 2], (x + 1, 0, 1, h), rx="R", tx="W")
            layout.route(WEST[(x + 1) % 2], (x, 0, 1, h), rx="E", tx="R")
        layout.set_param("goes", self.goes())
        return layout

    def slice_order(self) -> NDArray[np.int64]:
        """Return the slices of n in the order in which each row takes them: array (H, L)."""
        held = self.held[0]
        sequence = (np.array(self.ring.order)[:, np.newaxis] * held + np.arange(held)).reshape(-1)
        first = np.array(self.ring.rank)[:, np.newaxis] * held
        return sequence[(first + np.arange(self.slices)) % self.slices]

    def goes(self) -> NDArray[np.int64]:
        """Return what each PE does with its sum in each step: array (H, W, L)."""
        slices, x = self.slice_order()[:, np.newaxis, :], np.arange(self.width)[:, np.newaxis]
        root, tile = slices // self.held[1], slices % self.held[1]
        words = self.shape.rows * self.shape.columns * (2 if self.shape.c_dtype == "f32" else 1)
        return np.where(root < x, TO_WEST, np.where(root > x, TO_EAST, HERE + tile * words))

    def padded(self, a: Bits, b: Bits) -> tuple[Bits, Bits]:
        """Return A and B as bit patterns with the zeros that complete the tiles."""
        s, (w, h) = self.shape, (self.width, self.height)
        return tiles.pad(a, h * s.rows, w * s.depth), tiles.pad(b, self.slices * s.columns, w * s.depth)

    def inputs(self, a: Bits, b: Bits) -> list[tuple[str, Bits, int, int]]:
        """Return what the host writes; see `Session`."""
        a, b = self.padded(a, b)
        w, h = self.width, self.height
        a = tiles.columns_first(tiles.tiles(a, h, w))
        b = self.b_elements(tiles.tiles(b, self.slices, w).swapaxes(2, 3))
        b = b.reshape(h, self.held[0], w, -1).swapaxes(1, 2).reshape(h, w, -1)
        if self.ring.n > 1:
            b = np.concatenate([b, np.zeros((h, w, self.elements[1]), b.dtype)], axis=-1)
        return [("a", a, 0, 0), ("b", b, 0, 0)]

    # --- references ---------------------------------------------------------------------------------------------------

    def reference(self, a: Bits, b: Bits) -> Bits:
        """Return C, m x n, calculated in the order of the PEs."""
        a, b = self.padded(a, b)
        parts = self._parts(a, b)
        c = np.empty_like(parts[0])
        for root in range(self.width):
            _, at = self.held_by(0, root)
            c[:, at] = self._total([part[:, at] for part in parts], root)
        return c[: self.m, : self.n]

    def _parts(self, a: Bits, b: Bits) -> list[Bits]:
        """Return the partial sums of each column of PEs."""
        depth, zeros = self.shape.depth, np.zeros((a.shape[0], b.shape[0]), self.result.bits_dtype)
        slices = [slice(x * depth, (x + 1) * depth) for x in range(self.width)]
        return [self.given.product(a[:, at], b[:, at].T, zeros) for at in slices]

    def _total(self, parts: list[Bits], root: int) -> Bits:
        """Return the sum of the parts as the PE in column `root` forms it: its own, then what each side has summed."""
        total = parts[root]
        for side in (parts[:root], parts[:root:-1]):
            if side:
                total = self.result.call("add", total, sequential_sum(self.result, list(reversed(side))))
        return total

    def held_by(self, y: int, x: int) -> tuple[slice, slice]:
        """Return the rows and the columns of C, padding included, that PE (x, y) holds in the end."""
        s, wide = self.shape, self.c_tiles * self.shape.columns
        return slice(y * s.rows, (y + 1) * s.rows), slice(x * wide, (x + 1) * wide)

    def columns_of(self, b: Bits, columns: slice) -> Bits:
        """Return the rows of B that some columns of C stand on."""
        return b[columns]

    def padded_for_one(self, a: Bits, b: Bits) -> tuple[Bits, Bits]:
        """Return the rows of A and of B of one PE, padded as `padded` does it."""
        s = self.shape
        return tiles.pad(a, s.rows, self.width * s.depth), tiles.pad(b, self.c_tiles * s.columns, self.width * s.depth)

    def tile(self, a: Bits, b: Bits, y: int, x: int) -> Bits:
        """Return the part of C on PE (x, y): the sums of its row, from both sides."""
        return self._total(self._parts(a, b), x)

    def plain(self, a: Bits, b: Bits) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return C and the sums of absolute products by numpy, in float64."""
        return super().plain(a, b.T)

    roundings = property(lambda self: self.shape.depth + self.width, doc="Roundings that a term of C goes through.")

    # --- counts -------------------------------------------------------------------------------------------------------

    @property
    def part_wavelets(self) -> int:
        """A tile of partial sums has so many wavelets."""
        return wavelets_of(self.shape.rows * self.shape.columns, self.shape.c_dtype)

    @property
    def colors(self) -> range:
        """The colors are those of the sums along x and of the ring along y."""
        used = [color for color in (*EAST, *WEST) if self.width > 1]
        used += [FIRST["b"] + k for k in range(3) if self.ring.n > 1]
        return range(min(used), max(used) + 1) if used else range(0)

    @property
    def way(self) -> int:
        """The longest step of the ring, or a sum that ends at an end of its row, has so many links."""
        return max(self.ring.hops, self.width - 1)

    @property
    def hops(self) -> int:
        """The product takes so many wavelet hops."""
        w, h, steps = self.width, self.height, self.slices
        return self.wavelets[1] * self.ring.grants * (steps - 1) * w + steps * h * 2 * (w - 1) * self.part_wavelets

    @property
    def lower_bound(self) -> int:
        """Cycles that no algorithm with A in place goes below; see `distributed`."""
        m, (w, h) = self.machine, (self.width, self.height)
        rows, depth = -(-self.m // h), -(-self.k // w)
        foreign = wavelets_of(self.n * depth * (h - 1) // h, self.dtype)
        way = max(w, h) - 1
        work = -(-rows // self.shape.lanes(m)) * depth * self.n + foreign
        return max(work, timing.way(m, way) if way else 0)

    def expected(self) -> int:
        """Return the cycles of a product, every PE followed from step to step."""
        return _expected(self)


class _Row:
    """A PE has these descriptors and this code for the sum along its row.

    Parameters
    ----------
    p : Program
    end : {"first", "inner", "last", "alone"}
    parity : {0, 1}
        Of the column.
    part, c : Var
        Partial sums of the step, tiles of C.
    count : int
        Elements of a tile.
    dtype : str
        Format of the sums.
    """

    def __init__(self, p: Program, end: str, parity: int, part: Var, c: Var, count: int, dtype: str) -> None:
        self.p, self.end, self.part, self.c, self.count = p, end, part, c, count
        self.add_op, self.move = (p.fadds, p.fmovs) if dtype == "f32" else (p.faddh, p.fmovh)
        self.from_west = self.from_east = None
        if end not in ("first", "alone"):
            self.from_west = p.input_queue(0, EAST[1 - parity])
            self.to_west = p.output_queue(4, WEST[parity])
        if end not in ("last", "alone"):
            self.from_east = p.input_queue(4, WEST[1 - parity])
            self.to_east = p.output_queue(2, EAST[parity])

    def prepare(self) -> None:
        """Load the descriptors; in the task that begins."""
        p, n, part = self.p, self.count, self.part
        self.clear, self.result = p.dsr("dest", name="clear"), p.dsr("dest", name="result")
        p.load(self.clear, p.mem1d(part, n))
        p.load(self.result, p.mem1d(self.c, n))
        self.own = p.dsr("src0" if self.end != "alone" else "src1", name="own")
        p.load(self.own, p.mem1d(part, n))
        for side in ("west", "east"):
            queue = getattr(self, f"from_{side}")
            if queue is None:
                continue
            other = {"west": "east", "east": "west"}[side]
            source, out, mine = p.dsr("src1", name=f"from {side}"), p.dsr("dest", name=f"to {side}"), None
            p.load(source, p.fabin(queue, n))
            p.load(out, p.fabout(getattr(self, f"to_{side}"), n, zero=True))
            # what comes from the other side, if anything, goes out to this one
            mine = p.dsr("src0" if getattr(self, f"from_{other}") is not None else "src1", name=f"own to {side}")
            p.load(mine, p.mem1d(part, n))
            setattr(self, f"{side}_dsrs", (source, out, mine))

    def add(self, goes: Reg) -> None:
        """Do what register `goes` says with the partial sums, and clear them; `goes` is free then."""
        p = self.p
        if self.end == "alone":
            self._keep(goes)
            return
        if self.end == "inner":
            with p.if_("eq", goes, TO_WEST):
                self._pass("west", "east")
            with p.else_():
                with p.if_("eq", goes, TO_EAST):
                    self._pass("east", "west")
                with p.else_():
                    self._keep(goes)
            return
        away = "east" if self.end == "first" else "west"
        with p.if_("eq", goes, TO_EAST if away == "east" else TO_WEST):
            _, out, mine = getattr(self, f"{away}_dsrs")
            self.move(out, mine)
        with p.else_():
            self._keep(goes)

    def _pass(self, to: str, come: str) -> None:
        _, out, mine = getattr(self, f"{to}_dsrs")
        self.add_op(out, mine, getattr(self, f"{come}_dsrs")[0])

    def _keep(self, goes: Reg) -> None:
        """Add what comes from both sides and put the sum into C."""
        p = self.p
        p.sub16(goes, goes, HERE)
        p.dsr_base(self.result, self.c)
        p.dsr_off(self.result, goes)
        sides = [
            getattr(self, f"{side}_dsrs")[0] for side in ("west", "east") if getattr(self, f"from_{side}") is not None
        ]
        if len(sides) == 2:
            self.add_op(self.own, self.own, sides[0])
        if sides:
            self.add_op(self.result, self.own, sides[-1])
        else:
            self.move(self.result, self.own)
        self.move(self.clear, 0.0)


# --- how long it takes: every PE followed from step to step -----------------------------------------------------------
#
# A step of a PE: it goes on to its tile of B and lets the ring turn, multiplies, and takes its part in the sum along
# the row.  The tile that is sent and the one that comes take the datapath before the product does.  Then the sum runs
# from both ends of the row toward the root of the step: a PE takes what comes when it is ready, one wavelet a cycle,
# and hands it on; one that is early waits, one that is late makes the PEs behind it wait when the queues between them
# are full.  The root adds one side, then the other, stores and clears.  The next step begins when a PE is done and its
# tile is there.  No numbers of its own: `fabric.price.timing`.


class _RowTimes:
    """A `_RowTimes` has the cycles of the sum along a row: what each PE does between its product and the end of its
    step.
    """

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


def _expected(product: GemmT) -> int:
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
    row = _RowTimes(product)
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
