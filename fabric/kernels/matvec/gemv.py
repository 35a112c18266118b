"""Matrix-vector product y = A x over a mesh of PEs: local products, then an all-reduce along the rows.

What moves
    PE (c, r) holds the tile A[r, c] and needs the chunk x[c].  With ``replicated`` every PE of column c has it from the
    start (split on one axis, replicated on the other, as in WaferLLM); otherwise it is in row 0, whose PEs send it
    south and the routers copy it to every PE of the column.  Then every PE multiplies its tile with its chunk, and the
    partial results of a row are added up: by a chain to column 0 (``pipeline``), by a two-way K-tree to the middle
    (``ktree``, MeshGEMV), or by a ring, after which every PE has them (``ring``: neighbours and the long way back,
    ``folded_ring``: no step is longer than two hops).  With ``broadcast`` all PEs of the row get y[r].

Colors and queues
    The all-reduce: see `fabric.kernels.matvec.line_sum`.  One color more for x (input and output queue 3).  Row 0
    sends x on a microthread while it multiplies.

Order (bit exact)
    Per tile acc = fma(A[:, k], x[k], acc) for k = 0, 1 ..., from +0, then the order of the all-reduce.  Sums are f32
    (16-bit data: exact products, fmachs), or, with ``sums=same``, of the format of the data (fmach).

Sizes that do not divide are padded with zeros, the rows of a tile to an even number.

Cycles
    From the first time stamp to the latest last one of the PEs that end with a part of y, with X wavelets of x, tiles
    of mt x kt, and H rows of PEs:

        cycles = start + X + (H-1) hop + ramps         the last row has its chunk; nothing if it is replicated
               + product(mt, kt)                       fabric.kernels.matmul.local
               + all-reduce(mt) [+ broadcast(mt)]      fabric.kernels.matvec.line_sum

    Time stamps before and behind the product split them into ``compute_cycles`` and ``communication_cycles``.

Sources
    He et al., WaferLLM (OSDI 2025), section 6; chain: Luczynski et al., HPDC 2024.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.collectives.pieces.lines import Line, compose
from fabric.kernels.collectives.pieces.sums import color_pool
from fabric.kernels.kit import tiles, timing
from fabric.kernels.kit.check import Check, check_sum
from fabric.kernels.kit.data import data_params, wavelets_of
from fabric.kernels.kit.kernel import KernelParam, kernel
from fabric.kernels.kit.plmr import Device, Plan
from fabric.kernels.kit.report import report
from fabric.kernels.kit.session import Session, Stamps
from fabric.kernels.kit.sizes import fit
from fabric.kernels.kit.verify import compared, joined, sampling
from fabric.kernels.matmul.local import Shape, emit_product, product_cycles
from fabric.kernels.matvec.line_sum import ALGORITHMS, LineSum, check_group
from fabric.layout.layout import Layout
from fabric.program.program import Program
from wse_core.errors import ProgramError
from wse_core.formats import Arithmetic, Bits
from wse_core.params import Machine

__all__ = ["Gemv", "gemv", "gemv_params", "local_products"]

QUEUE_X = 3
BLOCK = 1 << 11
"""Rows of A that are compared with float64 at a time."""
ELEMENTS = 1 << 22
"""Elements of A that are written into the PEs at a time."""
STRIDE = 16
"""Of so many rows of a PE a sample has one."""
START, END, BEGUN, DONE = range(4)
"""Readings of the cycle counter: the two of the whole, and the two around the product."""


def local_products(given: Arithmetic, a: Bits, x: Bits, width: int, depth: int, sums: str) -> list[Bits]:
    """Return the partial results of each column of PEs in the order of the machine, bits of shape (rows,).

    Parameters
    ----------
    given : Arithmetic
        Format of A and x.
    a, x : ndarray
        Bit patterns, shapes (rows, width * depth) and (width * depth, 1).
    sums : {"f32", "same"}
    """
    zeros = np.zeros((len(a), 1), np.uint32 if sums == "f32" else given.bits_dtype)
    chunks = [slice(c * depth, (c + 1) * depth) for c in range(width)]
    return [given.product(a[:, at], x[at], zeros)[:, 0] for at in chunks]


class Gemv:
    """A product on a mesh: tiles, all-reduce, layout, closed forms.

    Parameters
    ----------
    machine : Machine
    width, height : int
        PEs along x and y.
    m, n : int
        A is m x n.
    dtype, sums, algorithm, levels, group, broadcast, replicated
        As the kernel's.

    Attributes
    ----------
    shape : Shape
        Of the tiles.
    sum : LineSum
        Along the rows.
    """

    def __init__(
        self,
        machine: Machine,
        width: int,
        height: int,
        m: int,
        n: int,
        dtype: str = "f16",
        sums: str = "f32",
        algorithm: str = "ktree",
        levels: int = 0,
        group: int = 0,
        broadcast: bool = False,
        replicated: bool = False,
    ) -> None:
        self.machine, self.width, self.height = machine, width, height
        self.sends_x = height > 1 and not replicated
        sums = "f32" if dtype == "f32" else sums
        self.shape = Shape(2 * -(-m // (2 * height)), -(-n // width), 1, dtype, sums)
        pool = color_pool(machine)
        self.color_x = pool[-1]
        line = Line.rows(width, height)
        check_group(group, line)
        self.sum = LineSum(
            algorithm,
            line,
            self.shape.rows,
            self.shape.c_dtype,
            machine,
            pool[:-1] if self.sends_x else pool,
            levels,
            group,
            broadcast,
        )
        self.colors = len(self.sum.colors) + self.sends_x
        self.wavelets_x = wavelets_of(self.shape.depth, dtype)

    def admit(self) -> None:
        """Refuse more PEs than the machine has."""
        plan = Plan(f"gemv by {self.sum.name}", self.width, self.height, 0, self.colors, self.width - 1, self.sum.depth)
        Device.of(self.machine).admit(plan, where="kernel gemv")

    def _program(self, roles: tuple[Any, ...]) -> Program:
        shape, (role, top) = self.shape, roles
        p = Program(f"gemv {self.sum.name} {role}", self.machine, half="cb16" if shape.dtype == "cb16" else "f16")
        y = p.array("y", self.sum.padded, shape.c_dtype, bank=0)
        a = p.array("a", shape.rows * shape.depth, shape.dtype, bank=shape.a_bank)
        x = p.array("x", shape.depth, shape.dtype)
        stamps = Stamps(p, 4)
        total, column = p.dsr("src0"), p.dsr("src1")
        move = p.mov32 if shape.words == 2 else p.mov16
        with p.task("main"):
            stamps.store(START)
            if self.sends_x and top:
                move(p.fabout(p.output_queue(QUEUE_X, self.color_x), shape.depth), x, async_=True)
            elif self.sends_x:
                move(x, p.fabin(p.input_queue(QUEUE_X, self.color_x), shape.depth))
            if self.sends_x:
                stamps.store(BEGUN)
            a_base, x_base = p.reg16("a base"), p.reg16("x base")
            p.ldi(a_base, a)
            p.ldi(x_base, x)
            emit_product(p, shape, y, total, a, column, a_base, x_base)
            p.free(a_base, x_base)
            stamps.store(DONE)
            self.sum.emit(p, role, y)
            stamps.store(END)
        p.assemble()
        return p

    def layout(self) -> Layout:
        """Return the `Layout`."""
        width, height = self.width, self.height
        layout = Layout(width, height, self.machine)
        place = [True] + [False] * (height - 1) if self.sends_x else [False] * height
        compose(layout, [(self.sum.line, self.sum.roles()), (Line.columns(width, height), place)], self._program)
        self.sum.routes(layout)
        if self.sends_x:
            layout.route(self.color_x, (0, 0, width, 1), rx="R", tx="S")
            layout.route(self.color_x, (0, 1, width, height - 1), rx="N", tx="SR")
            layout.route(self.color_x, (0, height - 1, width, 1), rx="N", tx="R")
        layout.build()
        return layout

    def try_program(self) -> Program:
        """Return the program of the first PE of a row without x, which is as large as any but for some instructions.

        Raises
        ------
        ProgramError
            It does not fit into a PE.
        """
        return self._program((self.sum.roles()[0], False))

    def fits(self) -> bool:
        """Return whether tile and program fit into a PE."""
        try:
            self.try_program()
        except ProgramError:
            return False
        return True

    # --- references ---------------------------------------------------------------------------------------------------

    def sampled_rows(self, m: int) -> NDArray[np.int64]:
        """Return rows of A, one in `STRIDE` of every PE's, at least one each; all PEs of a row of PEs sum them."""
        rows = np.arange(m)
        y, own = np.divmod(rows, self.shape.rows)
        return rows[((own + y) % STRIDE == 0) | (own == 0)]

    def reference(self, a: Bits, x: Bits, rows: NDArray[np.int64]) -> Bits:
        """Return the bits of some rows of y in the order of the PEs, from those rows of the padded A."""
        shape, given = self.shape, Arithmetic.of(self.machine, self.shape.dtype)
        result = Arithmetic.of(self.machine, shape.c_dtype)
        parts = []
        for found in local_products(given, a, x, self.width, shape.depth, shape.sums):
            whole = np.zeros(self.height * shape.rows, found.dtype)
            whole[rows] = found
            parts.append(whole.reshape(self.height, shape.rows))
        return self.sum.total(parts, result).reshape(-1)[rows]

    # --- a run --------------------------------------------------------------------------------------------------------

    def inputs(self, a: Bits, x: Bits) -> Iterator[tuple[str, Bits, int, int]]:
        """Yield the tiles of the padded A by bands of rows of PEs, so that A is never there twice, and the padded x."""
        shape, width, height = self.shape, self.width, self.height
        step = max(1, ELEMENTS // (shape.rows * a.shape[1]))
        for y in range(0, height, step):
            band = a[y * shape.rows : (y + step) * shape.rows]
            yield "a", tiles.columns_first(tiles.tiles(band, len(band) // shape.rows, width)), 0, y
        chunks = x.reshape(1, width, shape.depth)
        yield "x", chunks if self.sends_x else np.repeat(chunks, height, axis=0), 0, 0

    def keeps(self) -> tuple[int, int]:
        """Return the columns of PEs that end with a part of y: the first of them and how many."""
        return (0, self.width) if self.sum.root is None else (self.sum.root, 1)

    def result(self, session: Session, m: int) -> Bits:
        """Return the m elements of y as bits, once for each column that keeps them."""
        first, count = self.keeps()
        got = session.read("y", first, 0, count, self.height)[..., : self.shape.rows]
        return got.swapaxes(0, 1).reshape(count, -1)[:, :m]

    def times(self, session: Session) -> tuple[int, int]:
        """Return the cycles from the first stamp to the last of those that keep y, and those of the product."""
        readings = session.stamps(0, 0, self.width, self.height)
        start, end, done = (readings[k] for k in (START, END, DONE))
        first, count = self.keeps()
        cycles = end[:, first : first + count].max() - start.min()
        begun = readings[BEGUN] if self.sends_x else start
        compute = (done - begun)[-1].max()  # of the last row, which only receives: nothing else runs beside its product
        return int(cycles), int(compute)

    def compare(self, a: Bits, x: Bits, got: Bits) -> Check:
        """Compare y with the oracle and with float64: all of it, or sampled rows if A is large.

        Parameters
        ----------
        a, x : ndarray
            The operands without padding.
        got : ndarray
            What `result` returns.
        """
        shape, m = self.shape, len(a)
        given = Arithmetic.of(self.machine, shape.dtype)
        depth = self.width * shape.depth
        picks = self.sampled_rows(m) if sampling(a.size, a.size) else np.arange(m)
        expected = self.reference(tiles.pad(a[picks], len(picks), depth), tiles.pad(x, depth, 1), picks)
        plain, magnitude = np.empty((2, len(picks)))
        x_values = given.operand(x)[:, 0]
        for first in range(0, len(picks), BLOCK):
            at = slice(first, first + BLOCK)
            values = given.operand(a[picks[at]])
            with np.errstate(invalid="ignore", over="ignore"):
                plain[at], magnitude[at] = values @ x_values, np.abs(values) @ np.abs(x_values)
        seen = len(got), len(picks)
        part = check_sum(
            Arithmetic.of(self.machine, shape.c_dtype),
            got[:, picks],
            np.broadcast_to(expected, seen),
            np.broadcast_to(plain, seen),
            np.broadcast_to(magnitude, seen),
            shape.depth + self.width - 1,
            depth + self.width - 1,
        )
        return joined([part], got.size)

    # --- closed forms -------------------------------------------------------------------------------------------------

    def compute_cycles(self) -> int:
        """Return the cycles between the stamps around the product; the earlier one's stores fall between them."""
        return timing.stamp(self.machine) + 2 + product_cycles(self.shape, self.machine)

    def cycles(self) -> int:
        """Return the cycles of the formula in the module's head."""
        m, now = self.machine, 0
        if self.sends_x:
            now = timing.stamp(m) + timing.transfer(m, self.wavelets_x, self.height - 1, QUEUE_X, QUEUE_X)
        return self.sum.end(now + self.compute_cycles() + timing.stamp(m))

    def hops(self) -> int:
        """Return the wavelet hops."""
        return self.sum.hops + (self.width * self.height * self.wavelets_x if self.sends_x else 0)

    def macs(self) -> int:
        """Return the multiply-adds, those of the padding included."""
        return self.width * self.height * self.shape.rows * self.shape.depth

    def lower_bound(self) -> int:
        """Return cycles that no schedule of this product on these tiles stays below."""
        shape = self.shape
        return math.ceil(shape.rows / shape.lanes(self.machine)) * shape.depth + self.sum.lower_bound()


def gemv_params(algorithms: tuple[str, ...] = ALGORITHMS) -> list[KernelParam]:
    """Return the declarations of the parameters that say how sums are formed."""
    return [
        KernelParam("dtype", "f16", str, "format of A and x", ("f16", "cb16", "f32")),
        KernelParam("sums", "f32", str, "format of the sums: f32, or that of the data", ("f32", "same")),
        KernelParam(
            "algorithm", "ktree", str, "all-reduce; auto takes the fastest by the closed forms", (*algorithms, "auto")
        ),
        KernelParam("levels", 0, int, "K of the K-tree; 0: the fastest by the closed form", low=0),
        KernelParam("group", 0, int, "PEs of a group of the K-tree on all levels but the last; 0: equal groups", low=0),
    ]


@kernel(
    "gemv",
    "matrix-vector product over a mesh of PEs: local products, then an all-reduce along the rows",
    "WaferLLM (OSDI 2025), section 6: MeshGEMV against pipeline and ring",
    [
        KernelParam("p", 8, int, "PEs along x", low=1),
        KernelParam("height", 0, int, "PEs along y; 0: as many as along x", low=0),
        KernelParam("m", 512, int, "rows of A", low=1),
        KernelParam("n", 512, int, "columns of A", low=1),
        *gemv_params(),
        KernelParam("broadcast", False, bool, "all PEs of a row get their part of y"),
        KernelParam("replicated", False, bool, "every row has x from the start; else row 0 has it and sends it"),
        *data_params(),
    ],
)
def gemv(
    machine: Machine,
    p: int,
    height: int,
    m: int,
    n: int,
    dtype: str,
    sums: str,
    algorithm: str,
    levels: int,
    group: int,
    broadcast: bool,
    replicated: bool,
    seed: int,
    data: str,
) -> dict[str, Any]:
    """Run the kernel `gemv`; see the head of this module."""
    width, height = p, height or p

    def planned(p: int, m: int, n: int) -> Gemv:
        return Gemv(
            machine,
            p,
            p if height == width else height,
            m,
            n,
            dtype,
            sums,
            algorithm,
            levels,
            group,
            broadcast,
            replicated,
        )

    def build(p: int, m: int, n: int) -> tuple[Gemv, Layout]:
        found = planned(p, m, n)
        found.admit()
        return found, found.layout()

    most = min(machine["fabric.width"], machine["fabric.height"])
    sizes, ranges = {"p": p, "m": m, "n": n}, {"m": (1, m), "n": (1, n), "p": (p, most)}
    plan, layout = fit("kernel gemv", machine, build, sizes, ranges, lambda **at: planned(**at).try_program())
    shape, given = plan.shape, Arithmetic.of(machine, dtype)
    rng = np.random.default_rng(seed)
    a = given.random(rng, (m, n), data, terms=n)
    x = given.random(rng, (n, 1), "ones" if data == "ones" else "normal")  # one NaN here would be in every result
    depth = width * shape.depth
    padded = tiles.pad(a, height * shape.rows, depth), tiles.pad(x, depth, 1)
    a = padded[0][:m, :n]  # the one that was drawn goes
    session = Session(layout, plan.inputs(*padded), expected=plan.cycles)
    got = plan.result(session, m)
    check = compared(lambda: plan.compare(a, x, got))
    cycles, compute = plan.times(session)
    return report(
        session,
        check,
        cycles,
        expected_cycles=plan.cycles(),
        expected_hops=plan.hops(),
        expected_macs=plan.macs(),
        lanes=shape.lanes(machine),
        useful_macs=m * n,
        compute_cycles=compute,
        communication_cycles=cycles - compute,
        expected_compute_cycles=plan.compute_cycles(),
        product_cycles=product_cycles(shape, machine),
        lower_bound=plan.lower_bound(),
        additions=plan.sum.additions,
        critical_additions=plan.sum.depth,
        algorithms=plan.sum.name,
        groups=" x ".join(map(str, plan.sum.groups)),
        colors=plan.colors,
        tile=f"{shape.rows} x {shape.depth}",
        arrays={"y": got[0]},
    )
