"""A matrix-vector product y = A x is done over a mesh of PEs: local products, then an all-reduce along the rows.

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
from fabric.kernels.kit import tiles
from fabric.kernels.kit.check import Check, check_sum
from fabric.kernels.kit.data import data_params, wavelets_of
from fabric.kernels.kit.kernel import KernelParam, kernel
from fabric.kernels.kit.plmr import Plan, PlmrDevice
from fabric.kernels.kit.report import report
from fabric.kernels.kit.session import Session, Stamps
from fabric.kernels.kit.sizes import fit
from fabric.kernels.kit.verify import compared, comparing, joined, sampling
from fabric.kernels.matmul.local import Shape, emit_product, product_cycles
from fabric.kernels.matmul.problem import Problem
from fabric.kernels.matvec.line_sum import ALGORITHMS, LineSum, check_group
from fabric.layout.layout import Layout
from fabric.price import timing
from fabric.program.program import Program
from wse_core.errors import ProgramError
from wse_core.formats import Arithmetic, Bits
from wse_core.params import Machine

__all__ = ["Gemv", "Operands", "gemv", "gemv_params", "local_products"]

QUEUE_X = 3
ELEMENTS = 1 << 22
"""So many elements of A are written into the PEs, or compared with float64, at a time."""
STRIDE = 16
"""Of so many rows of a PE a sample has one."""
START, END, BEGUN, DONE = range(4)
"""The cycle counter is read here: the two of the whole, and the two around the product."""


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
    """A `Gemv` is a product on a mesh: tiles, all-reduce, layout, closed forms.

    Parameters
    ----------
    machine : Machine
    problem : Problem
        A is m x k, x and y have one column.
    algorithm, levels, group, broadcast, replicated
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
        problem: Problem,
        algorithm: str = "ktree",
        levels: int = 0,
        group: int = 0,
        broadcast: bool = False,
        replicated: bool = False,
    ) -> None:
        width, height, dtype = problem.width, problem.height, problem.dtype
        self.machine, self.width, self.height = machine, width, height
        self.sends_x = height > 1 and not replicated
        sums = "f32" if dtype == "f32" else problem.sums
        self.shape = Shape(2 * -(-problem.m // (2 * height)), -(-problem.k // width), 1, dtype, sums)
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
        PlmrDevice.of(self.machine).admit(plan, where="kernel gemv")

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
        """Return the `Layout` of all PEs."""
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

    def compared_rows(self, m: int, n: int) -> NDArray[np.int64]:
        """Return the rows of A that `compare` takes: all of them, a sample if A is large, none if it is not called.

        Of every PE's rows a sample has one in `STRIDE`, at least one; all PEs of a row of PEs sum them.
        """
        rows = np.arange(m if comparing() else 0)
        if not sampling(m * n, m * n):
            return rows
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

    def band(self) -> int:
        """Return the rows of PEs whose tiles are written at a time, so that the whole padded A is never there."""
        return max(1, ELEMENTS // (self.shape.rows * self.width * self.shape.depth))

    def tiles_of(self, a: Bits, y: int) -> tuple[str, Bits, int, int]:
        """Return the padded tiles of rows of A for the rows of PEs from y on, as `Session` takes them."""
        shape, width = self.shape, self.width
        high = min(self.band(), self.height - y)
        padded = tiles.pad(a, high * shape.rows, width * shape.depth)
        return "a", tiles.columns_first(tiles.tiles(padded, high, width)), 0, y

    def chunks_of(self, x: Bits) -> tuple[str, Bits, int, int]:
        """Return the padded parts of x for the row that sends them, or for all rows."""
        shape, width = self.shape, self.width
        chunks = tiles.pad(x, width * shape.depth, 1).reshape(1, width, shape.depth)
        return "x", chunks if self.sends_x else np.repeat(chunks, self.height, axis=0), 0, 0

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

    def compare(self, rows: NDArray[np.int64], a: Bits, x: Bits, got: Bits) -> Check:
        """Compare elements of y with the oracle and with float64.

        Parameters
        ----------
        rows : ndarray
            Which ones: what `compared_rows` returns.
        a, x : ndarray
            These rows of A, and x, without padding.
        got : ndarray
            What `result` returns.
        """
        shape = self.shape
        given = Arithmetic.of(self.machine, shape.dtype)
        depth = self.width * shape.depth
        expected = self.reference(tiles.pad(a, len(a), depth), tiles.pad(x, depth, 1), rows)
        plain, magnitude = np.empty((2, len(rows)))
        x_values = given.operand(x)[:, 0]
        step = max(1, ELEMENTS // len(x))
        for first in range(0, len(rows), step):
            at = slice(first, first + step)
            values = given.operand(a[at])
            with np.errstate(invalid="ignore", over="ignore"):
                plain[at] = values @ x_values
                magnitude[at] = np.abs(values, out=values) @ np.abs(x_values)
        seen = len(got), len(rows)
        part = check_sum(
            Arithmetic.of(self.machine, shape.c_dtype),
            got[:, rows],
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


class Operands:
    """A and x of a product, drawn while they are written: there is no room for all of a large A beside the PEs.

    Parameters
    ----------
    plan : Gemv
    m, n, seed, data
        As the kernel's.

    Attributes
    ----------
    rows : ndarray
        Numbers of the rows of A that are kept to be compared.
    x : ndarray
        Bits of x, shape (n, 1).
    """

    def __init__(self, plan: Gemv, m: int, n: int, seed: int, data: str) -> None:
        self.plan, self.size, self.seed, self.data = plan, (m, n), seed, data
        self.given = Arithmetic.of(plan.machine, plan.shape.dtype)
        self.rows = plan.compared_rows(m, n)
        self.x = np.zeros((n, 1), self.given.bits_dtype)
        self._kept: list[Bits] = []

    def inputs(self) -> Iterator[tuple[str, Bits, int, int]]:
        """Yield what a `Session` writes: the tiles of A by bands of rows of PEs, then x."""
        plan, rng, high = self.plan, np.random.default_rng(self.seed), self.plan.band()
        band = high * plan.shape.rows
        for k, part in enumerate(self.given.random_rows(rng, self.size, band, self.data, terms=self.size[1])):
            here = self.rows[(self.rows >= k * band) & (self.rows < (k + 1) * band)]
            self._kept.append(part[here - k * band])
            yield plan.tiles_of(part, k * high)
        x = "ones" if self.data == "ones" else "normal"  # one NaN here would be in every result
        self.x[...] = self.given.random(rng, self.x.shape, x)
        yield plan.chunks_of(self.x)

    def a(self) -> Bits:
        """Return the kept rows of A."""
        self._kept = [np.concatenate(self._kept)]
        return self._kept[0]


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
        problem = Problem(p, p if height == width else height, m, n, 1, dtype, sums)
        return Gemv(machine, problem, algorithm, levels, group, broadcast, replicated)

    def build(p: int, m: int, n: int) -> tuple[Gemv, Layout]:
        found = planned(p, m, n)
        found.admit()
        return found, found.layout()

    most = min(machine["fabric.width"], machine["fabric.height"])
    sizes, ranges = {"p": p, "m": m, "n": n}, {"m": (1, m), "n": (1, n), "p": (p, most)}
    plan, layout = fit("kernel gemv", machine, build, sizes, ranges, lambda **at: planned(**at).try_program())
    shape = plan.shape
    operands = Operands(plan, m, n, seed, data)
    session = Session(layout, operands.inputs(), expected=plan.cycles)
    got = plan.result(session, m)
    check = compared(lambda: plan.compare(operands.rows, operands.a(), operands.x, got))
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
