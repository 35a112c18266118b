"""R10: the product that every PE of a two-dimensional partition computes on its own, C += A B, in fp32.

A PE has N / height rows and K / width columns of A, all M columns of B and C.  The time is that between the stamps
right around the loops; nothing crosses the fabric, so one PE is enough.

*Dense*, all stored by rows: for each k and column j one fmacs of all rows, C[:, j] += A[:, k] B[k, j]; both vectors
have the stride of a row.  Descriptors stay in DSRs, and their bases are set.

*Sparse* (COO, CSC, CSR, ELLPACK): per stored element one fmacs of a row of B into a row of C.  B is stored by columns,
C by rows.  Descriptors are variables: loaded for each fmacs and moved by offsets computed from the indices: C's by
multiplying with the row length.  CSC and CSR call a function for each line.  COO and ELLPACK are padded with zeros at
(0, 0), to the longest PE and to the longest row of all PEs.

*Banks.*  A fmacs takes more than a cycle per element, and by the same amount for every pair of rows: the counts of COO
and ELLPACK vary by less than a cycle per fmacs between PEs with different patterns.  Rows that start in various banks
would meet for some pairs and not for others, so one of the two must have its elements in one bank and the other pass
through all: with B by columns, a row of B has a stride of whole columns, which are multiples of four words in all
published tiles.  Every fourth element meets then.  (An order of C by columns would cost another cycle per element, as
in the dense product.)

*Pattern.*  Every element is stored with the given probability.  Cycles depend on counts, and linearly, so a PE with
the mean count (CSC, CSR) stands for the published mean over PEs; the padded counts are the medians of the maxima over
all PEs.  Where a point says to how many elements its PEs are padded (``padded``), that counts.  Where the elements lie
is random with a fixed seed.

Source: pr0f3ss/SpMM_Cerebras (benchmarks); the compiled stream follows `harness.validation.programs.compiled`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from fabric.asm.operands import Reg
from fabric.csl.rules import unrolls
from fabric.kernels.kit.session import Session, Stamps
from fabric.layout.layout import Layout
from fabric.program.program import Program
from harness.validation.programs.compiled import Multiplier, Stack, counted, load_at
from harness.validation.recipe import CannotRun, Measurement, Point, Tell, agree, grid, integer, recipe
from wse_core.errors import ProgramError
from wse_core.params import Machine

__all__ = ["FORMATS", "dense", "padded_count", "sparse"]

FORMATS = ("COO", "CSC", "CSR", "ELLPACK")


# --- dense ------------------------------------------------------------------------------------------------------------


def _dense_program(machine: Machine, rows: int, cols: int, columns: int) -> Program:
    p = Program("dense product", machine)
    c = p.array("c", rows * columns, "f32", align=8)
    a = p.array("a", rows * cols, "f32", align=8)
    b = p.array("b", cols * columns, "f32")
    stamps = Stamps(p)
    with p.task("main"):
        dc, da = p.dsr("src0"), p.dsr("src1")
        k, j, at_b, at_c, at_a = (p.reg16(name) for name in ("k", "j", "b at", "c at", "a at"))
        factor = p.reg32("factor")
        stamps.start()
        p.load(dc, p.mem1d(c, rows, columns))
        p.load(da, p.mem1d(a, rows, cols))
        p.ldi(at_b, b)
        p.ldi(at_a, a)
        with counted(p, k, cols):
            p.ldi(at_c, c)
            with counted(p, j, columns):
                p.dsr_base(dc, at_c)
                p.ld32(factor, at_b)
                p.add16(at_c, at_c, 2)
                p.add16(at_b, at_b, 2)
                p.fmacs(dc, dc, da, factor)
            p.add16(at_a, at_a, 2)
            p.dsr_base(da, at_a)
        stamps.stop()
    return p


def _run(machine: Machine, program: Program, data: Mapping[str, np.ndarray]) -> tuple[int, np.ndarray]:
    layout = Layout(1, 1, machine)
    layout.place(program, 0, 0)
    session = Session(layout, [(k, np.asarray(v).reshape(1, 1, -1), 0, 0) for k, v in data.items()])
    first, last = session.stamps()
    return int(last[0, 0] - first[0, 0]), session.read("c").view(np.float32).ravel()


def dense(machine: Machine, a: np.ndarray, b: np.ndarray) -> tuple[int, np.ndarray]:
    """Return (cycles, C) of ``A B``; both float32, C starts as zeros."""
    (rows, cols), columns = a.shape, b.shape[1]
    try:
        program = _dense_program(machine, rows, cols, columns)
        program.assemble()
    except ProgramError as error:
        raise CannotRun(f"tiles of {rows} x {cols} and {cols} x {columns} do not fit into a PE: {error.what}") from None
    cycles, c = _run(machine, program, {"a": a, "b": b})
    return cycles, c.reshape(rows, columns)


# --- sparse -----------------------------------------------------------------------------------------------------------


class _Walker:
    """Emits what all formats share: the fmacs of one stored element."""

    def __init__(self, p: Program, columns: int, arrays: Mapping[str, np.ndarray], shape: tuple[int, int]) -> None:
        self.p, self.columns = p, columns
        self.rows, self.cols = shape
        self.var = {
            name: p.array(name, max(1, len(values)), "f32" if values.dtype.kind == "f" else "u16")
            for name, values in arrays.items()
        }
        self.c = p.array("c", self.rows * columns, "f32", bank=0)
        self.b = p.array("b", self.cols * columns, "f32", bank=4)
        self.b_row = p.mem4d(self.b, (columns,), (self.cols,))
        self.dc, self.sc, self.db = p.dsr("dest"), p.dsr("src0"), p.dsr("src1")
        self.at_b, self.at_c, self.offset = (p.reg16(name) for name in ("b at", "c at", "offset"))
        self.value = p.reg32("value")
        self.stack = Stack(p)
        self.multiplier = Multiplier(p, [columns], (self.offset, self.value.low), self.stack)
        self.of_loops: list[Reg] = []

    def registers(self, *names: str) -> list[Reg]:
        """Return registers that loops keep to their end, until `loops_are_over`."""
        found = [self.p.reg16(name) for name in names]
        self.of_loops += found
        return found

    def loops_are_over(self) -> None:
        """Give back the registers of the loops: behind them nothing of theirs is alive."""
        self.p.free(*self.of_loops)

    def row_of_c(self, index: Reg) -> None:
        """Set the offset of C's row to number `index` (a register)."""
        self.multiplier.emit(self.at_c, index, self.columns)
        self.p.add16(self.at_c, self.at_c, self.at_c)

    def row_of_b(self, index: Reg) -> None:
        """Set the offset of B's row to number `index` (a register); its elements are a column's length apart."""
        self.p.add16(self.at_b, index, index)

    def load_value(self, index: Reg) -> None:
        """Load the value of the stored element number `index`."""
        self.p.add16(self.offset, index, index)
        self.p.ld32(self.value, self.var["values"], index=self.offset)

    def multiply_add(self) -> None:
        """Issue C row += value * B row with descriptors loaded for it."""
        p = self.p
        load_at(p, (self.dc, self.sc), p.mem1d(self.c, self.columns), self.at_c)
        load_at(p, [self.db], self.b_row, self.at_b)
        p.fmacs(self.dc, self.sc, self.db, self.value)


def _coo(w: _Walker, count: int) -> None:
    p = w.p
    e, index = w.registers("element", "index")
    with counted(p, e, count):
        p.ld16(index, w.var["row"], index=e)
        w.row_of_c(index)
        p.ld16(index, w.var["column"], index=e)
        w.row_of_b(index)
        w.load_value(e)
        w.multiply_add()


def _compressed(
    w: _Walker, lines: int, outer: Callable[[Reg], None], inner: Callable[[Reg], None]
) -> Callable[[], None]:
    """CSC and CSR: for each line the elements between two pointers, in a function."""
    p = w.p
    line, e, end, index = w.registers("line", "element", "end", "index")
    with counted(p, line, lines):
        p.mov16(index, line)  # the argument
        p.call("line")

    def function() -> None:
        with p.function("line"), w.stack.saved((e, end, index, w.at_b, w.at_c, w.offset, w.value.low, w.value.high)):
            outer(index)
            p.ld16(e, w.var["pointer"], index=index)
            p.ld16(end, w.var["pointer"], offset=1, index=index)
            done, again = p.new_label(), p.new_label()
            p.place(again)
            p.branch("geu", e, end, done, "16")
            p.ld16(index, w.var["index"], index=e)
            inner(index)
            w.load_value(e)
            w.multiply_add()
            p.add16(e, e, 1)
            p.jmp(again)
            p.place(done)

    return function


def _ellpack(w: _Walker, width: int) -> None:
    p = w.p
    row, k, e, index = w.registers("row", "k", "element", "index")

    def unrolled() -> None:
        p.add16(w.offset, e, e)
        for turn in range(width):
            p.ld16(index, w.var["index"], offset=turn, index=e)
            w.row_of_b(index)
            p.ld32(w.value, w.var["values"], offset=2 * turn, index=w.offset)
            w.multiply_add()
        p.add16(e, e, width)

    def loop() -> None:
        with counted(p, k, width):
            p.ld16(index, w.var["index"], index=e)
            w.row_of_b(index)
            w.load_value(e)
            w.multiply_add()
            p.add16(e, e, 1)

    p.ldi(e, 0)
    with counted(p, row, w.rows):
        w.row_of_c(row)
        turn = 1 + 1 + 2 + 7 + 1 + 2  # index, row of B, value, multiply-add, next element, counting
        (unrolled if unrolls(width, turn) else loop)()


Walk: TypeAlias = Callable[[_Walker], Callable[[], None] | None]
"""Writes the loops over the stored elements; returns what writes the function that they call, if any."""


def _store(fmt: str, a: np.ndarray, padded: int) -> tuple[dict[str, np.ndarray], Walk]:
    """Return the arrays of a matrix in a format, and the function that emits the loops."""
    shape = a.shape
    if fmt == "COO":
        row, column = np.nonzero(a)
        fill = [(0, padded - len(row))]
        arrays = {"row": np.pad(row, fill), "column": np.pad(column, fill), "values": np.pad(a[row, column], fill)}
        return arrays, lambda w: _coo(w, padded)
    if fmt == "ELLPACK":
        index, values = np.zeros((shape[0], padded), int), np.zeros((shape[0], padded), np.float32)
        for i, line in enumerate(a):
            stored = np.flatnonzero(line)
            index[i, : len(stored)], values[i, : len(stored)] = stored, line[stored]
        return {"index": index.ravel(), "values": values.ravel()}, lambda w: _ellpack(w, padded)
    lines = a if fmt == "CSR" else a.T
    found = [np.flatnonzero(line) for line in lines]
    arrays = {
        "pointer": np.cumsum([0, *map(len, found)]),
        "index": np.concatenate(found),
        "values": np.concatenate([line[k] for line, k in zip(lines, found, strict=True)]),
    }
    if fmt == "CSR":
        return arrays, lambda w: _compressed(w, shape[0], w.row_of_c, w.row_of_b)
    return arrays, lambda w: _compressed(w, shape[1], w.row_of_b, w.row_of_c)


def sparse(machine: Machine, fmt: str, a: np.ndarray, b: np.ndarray, padded: int = 0) -> tuple[int, np.ndarray]:
    """Return (cycles, C) of ``A B`` with A stored in a sparse format.

    Parameters
    ----------
    fmt : {"COO", "CSC", "CSR", "ELLPACK"}
    a, b : ndarray of float32
    padded : int
        COO: elements, ELLPACK: elements per row, with padding.
    """
    arrays, walk = _store(fmt, a, padded)
    arrays = {name: values.astype(np.float32 if name == "values" else np.uint16) for name, values in arrays.items()}
    try:
        p = Program(f"{fmt} product", machine)
        w = _Walker(p, b.shape[1], arrays, a.shape)
        stamps = Stamps(p)
        with p.task("main"):
            w.stack.begin()
            stamps.store(0)
            function = walk(w)
            w.loops_are_over()
            stamps.store(1)
        if function:
            function()
        w.multiplier.routine()
        p.assemble()
    except ProgramError as error:
        raise CannotRun(f"tiles of {a.shape} and {b.shape} in {fmt} do not fit into a PE: {error.what}") from None
    data = {name: values for name, values in arrays.items() if len(values)}
    cycles, c = _run(machine, p, data | {"b": b.T.copy()})
    return cycles, c.reshape(a.shape[0], b.shape[1])


def padded_count(n: int, density: float, draws: int) -> int:
    """Return the median of the largest of `draws` binomial (n, density) numbers."""
    tail, k = 0.0, n
    while k >= 0:
        log = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        tail += math.exp(log + k * math.log(density) + (n - k) * math.log1p(-density))
        if draws * math.log1p(-min(tail, 1 - 1e-16)) < -math.log(2):
            return k
        k -= 1
    return 0


# --- points -----------------------------------------------------------------------------------------------------------


def _tile(params: Mapping[str, Any]) -> tuple[int, int]:
    """Return (rows, columns) of A that a PE holds."""
    width, height = grid(params, "pe_grid")
    n, k = integer(params, "N"), integer(params, "K")
    if n % height or k % width:
        raise CannotRun(f"{n} x {k} does not divide over {width} x {height} PEs")
    agree(params, {"rows_per_pe": n // height, "cols_per_pe": k // width})
    return n // height, k // width


@recipe(
    "R10",
    ("gemm-local",),
    "dense local product",
    ("pe_grid", "N", "K", "M", "density_pct", "rows_per_pe", "cols_per_pe", "dtype"),
)
def local_gemm(machine: Machine, point: Point, progress: Tell) -> Measurement:
    """Run the product of one PE."""
    rows, cols = _tile(point["params"])
    agree(point["params"], {"density_pct": 100})
    rng = np.random.default_rng(1)
    a = rng.standard_normal((rows, cols)).astype(np.float32)
    b = rng.standard_normal((cols, integer(point["params"], "M"))).astype(np.float32)
    return Measurement(dense(machine, a, b)[0], "fabric, one PE")


@recipe(
    "R10",
    ("spmm-local",),
    "sparse local product",
    ("pe_grid", "N", "K", "M", "density_pct", "rows_per_pe", "cols_per_pe", "padded", "dtype"),
)
def local_spmm(machine: Machine, point: Point, progress: Tell) -> Measurement:
    """Run the product of a PE with the mean number of stored elements."""
    params, workload = point["params"], point.get("workload", "")
    fmt = next((name for name in FORMATS if name in workload), None)
    if fmt is None:
        raise CannotRun(f"the point names none of the formats {', '.join(FORMATS)}")
    rows, cols = _tile(params)
    width, height = grid(params, "pe_grid")
    density = integer(params, "density_pct") / 100
    if density >= 1:
        raise CannotRun("a density of 100 % leaves nothing sparse")
    rng = np.random.default_rng(1)
    a = np.zeros((rows, cols), np.float32)
    chosen = rng.choice(rows * cols, max(1, round(rows * cols * density)), replace=False)
    a.flat[chosen] = rng.standard_normal(len(chosen))
    padded = 0
    if "padded" in params:
        padded = integer(params, "padded")
        if fmt != "COO":
            raise CannotRun(f"padded: {fmt} is not padded to a number of elements per PE")
        if not len(chosen) <= padded <= rows * cols:
            raise CannotRun(f"padded: {padded} elements, of which {len(chosen)} are stored and {rows * cols} have room")
    elif fmt == "COO":
        padded = max(len(chosen), padded_count(rows * cols, density, width * height))
    elif fmt == "ELLPACK":
        padded = max(np.count_nonzero(a, axis=1).max(), padded_count(cols, density, rows * height * width))
    b = rng.standard_normal((cols, integer(params, "M"))).astype(np.float32)
    return Measurement(sparse(machine, fmt, a, b, int(padded))[0], "fabric, one PE with the mean pattern")
