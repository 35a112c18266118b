"""A sparse matrix-vector product y = A x is done over a mesh of PEs: A in CSR, blocks of rows and columns, no zero
multiplied.

What moves
    PE (c, r) holds the entries of block A[r, c] as CSR: where each row begins, the column of each entry within the
    block, the values.  The chunk x[c] lies in row 0, whose PEs send it south; the routers copy it to every PE of the
    column.  Then every PE multiplies its entries one by one, and the partial results of a row of PEs are added up to
    column 0 (`fabric.kernels.collectives.pieces.line_reduce`), where y[r] stays.

Colors and queues
    The reduce: those of its tree, queue 2.  One color more for x, input and output queue 3.

Order of additions (bit exact)
    Per row of a block from +0, acc = fma(A[i, j], x[j], acc) over its entries, columns ascending (16-bit data: exact
    products, sums in f32), then the order of the reduce's tree.

Sizes that do not divide: the last blocks have fewer columns, or rows that are empty.

Cycles
    A row costs its loads, the store of its sum and a turn of the loop, an entry three loads, a multiply-add and a turn
    of the loop over entries (`row_cycles`): exact sums over the pattern.  ``expected_cycles``, from the first time
    stamp to the last one in column 0: each PE begins its rows when it has its chunk of x, and the reduce when it has
    done them (`Reduce.end`, exact but for what it leaves out).

Counts
    Multiply-adds: the entries of A.  Hops: of x, one from each ramp of row 0 and one per PE below, and the reduce's.

Sources
    CSR with local columns as the sparse products of github.com/pr0f3ss/SpMM_Cerebras; wafer-scale practice of 2-D
    blocks: Rocki et al., SC20, arXiv 2010.03660 (SpMV of a stencil matrix).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.asm.operands import Var
from fabric.kernels.collectives.pieces.flood import flood_line
from fabric.kernels.collectives.pieces.line_reduce import Reduce, Role
from fabric.kernels.collectives.pieces.lines import Line, compose
from fabric.kernels.collectives.pieces.sums import AUTO, admit, color_pool, reduces
from fabric.kernels.kit.check import Check, check_sum
from fabric.kernels.kit.data import data_params, wavelets_of
from fabric.kernels.kit.kernel import KernelParam, kernel
from fabric.kernels.kit.plmr import Plan, PlmrDevice
from fabric.kernels.kit.report import report
from fabric.kernels.kit.session import Session, Stamps
from fabric.kernels.kit.sizes import fit
from fabric.kernels.kit.verify import compared
from fabric.layout.layout import Layout
from fabric.price import timing
from fabric.program.program import Program
from wse_core.formats import Arithmetic, Bits
from wse_core.params import Machine

__all__ = ["MatrixBlocks", "row_cycles", "spmv"]

QUEUE_X = 3


class MatrixBlocks:
    """A `MatrixBlocks` has the entries of a sparse matrix, cut into the blocks of a mesh.

    Parameters
    ----------
    width, height : int
        PEs.
    shape : tuple[int, int]
        Rows and columns of the matrix.
    flat : ndarray of int
        Where its entries are, row by row: row * columns + column, ascending.

    Attributes
    ----------
    i, j : ndarray
        Row and column of each entry.
    rows, columns : int
        Of a block.
    counts : ndarray, shape (height, width, rows)
        Entries of each row of each block.
    entries : ndarray, shape (height, width, most entries of a block)
        Number of each entry of each block, row by row; -1 behind the last one.
    """

    def __init__(self, width: int, height: int, shape: tuple[int, int], flat: NDArray[np.int64]) -> None:
        m, n = shape
        self.rows, self.columns = -(-m // height), -(-n // width)
        self.i, self.j = np.divmod(flat, n)
        block = self.i // self.rows * width + self.j // self.columns
        row = block * self.rows + self.i % self.rows
        order = np.argsort(row, kind="stable")  # columns ascend within a row
        self.counts = np.bincount(row, minlength=width * height * self.rows).reshape(height, width, self.rows)
        sizes = self.counts.sum(axis=2).ravel()
        entries = np.full((height * width, max(1, int(sizes.max(initial=0)))), -1, np.int64)
        entries[block[order], np.arange(len(flat)) - np.repeat(np.cumsum(sizes) - sizes, sizes)] = order
        self.entries = entries.reshape(height, width, -1)

    @property
    def ends(self) -> NDArray[np.int64]:
        """Each row of each block has its end here among its entries."""
        return self.counts.cumsum(axis=2)

    def gather(self, values: Bits) -> Bits:
        """Return what belongs to the entries of the blocks, given what belongs to each; 0 behind the last one."""
        return np.where(self.entries >= 0, np.append(values, values.dtype.type(0))[self.entries], 0)

    def products(self, given: Arithmetic, single: Arithmetic, a: Bits, x: Bits) -> NDArray[np.uint32]:
        """Return the partial results of all blocks in the order of their PEs, f32 bits (height, width, rows).

        Parameters
        ----------
        given, single : Arithmetic
            Format of A and x, and f32.
        a, x : ndarray
            Bit patterns, of the entries and of x.
        """
        sums = np.zeros(self.counts.shape, np.uint32)
        first = self.ends - self.counts
        for turn in range(int(self.counts.max(initial=0))):
            at = np.nonzero(self.counts > turn)
            entry = self.entries[at[0], at[1], first[at] + turn]
            factors = a[entry], x[self.j[entry]]
            sums[at] = (
                single.call("fma", *factors, sums[at])
                if given.fmt == "f32"
                else given.call("fma_mixed", *factors, sums[at])
            )
        return sums


def emit_rows(p: Program, rows: int, x: Var, y: Var, ends: Var, columns: Var, values: Var) -> None:
    """Write y = A x of a block into the task of a program that is being written.

    Parameters
    ----------
    p : Program
    rows : int
    x, y : Var
        y in f32.
    ends, columns, values : Var
        CSR: where rows end, the offset in x of each entry [words], values in the format of x.
    """
    wide = x.words_per_element == 2
    load, number, multiply_add = (p.ld32, p.reg32, p.fmacs) if wide else (p.ld16, p.reg16, p.fmachs)
    entry, end, place, at = (p.reg16(name) for name in ("entry", "end", "place in x", "place in y"))
    acc, value, factor = p.reg32("sum"), number("value"), number("x")
    word = p.reg16("place of the value") if wide else entry
    p.ldi(entry, 0)
    p.ldi(at, 0)
    if wide:
        p.ldi(word, 0)
    with p.loop(rows, index=True) as row:
        p.ld16(end, ends, index=row)
        p.ldi32(acc, 0)
        done = p.new_label()
        p.branch("eq", entry, end, done, "16")
        more = p.label()
        p.ld16(place, columns, index=entry)
        load(value, values, index=word)
        load(factor, x, index=place)
        p.add16(entry, entry, 1)
        if wide:
            p.add16(word, word, 2)
        multiply_add(acc, acc, value, factor)
        p.branch("ne", entry, end, more, "16")
        p.place(done)
        p.st32(acc, y, index=at)
        p.add16(at, at, 2)
    p.free(entry, end, place, at, acc, value, factor, *[word] * wide)


def row_cycles(counts: NDArray[np.int64], wide: bool, machine: Machine) -> NDArray[np.int64] | int:
    """Return the cycles of `emit_rows`, from the issue of its first instruction to that of the next one after it.

    Parameters
    ----------
    counts : ndarray of int, shape (..., rows)
        Entries of each row.
    wide : bool
        Whether values are f32.
    """
    m = machine
    taken, on, load = m["ce.branch_taken"], m["ce.branch_not_taken"], m["ce.load_latency"]
    head = max(2, load)  # end and sum, then the branch around an empty row
    multiply = max(2, load) + max(2 + wide, load)  # three loads and the additions before the multiply-add
    entry = multiply + 1 + taken
    last = max(1 + on, m["ce.fp_latency"]) - 1 - taken  # the last branch goes on, the store waits for the sum
    full = np.where(counts, on + counts * entry + last, taken)
    turn = 2 + 2 + taken  # store, place in y, the two counters, the branch
    rows = counts.shape[-1]
    return 2 + wide + 2 + full.sum(axis=-1) + rows * (head + turn) - taken + on


def _program(
    roles: tuple[str | None, Role], piece: Reduce, blocks: MatrixBlocks, dtype: str, color: int, machine: Machine
) -> Program:
    """Return the program of a PE with its part in the distribution of x and in the reduce."""
    part, role = roles
    p = Program(f"spmv {part}, {role}", machine, half="cb16" if dtype == "cb16" else "f16")
    move = p.mov32 if dtype == "f32" else p.mov16
    size = blocks.entries.shape[2]
    x, y = p.array("x", blocks.columns, dtype), p.array("y", blocks.rows, "f32")
    ends, columns = p.array("ends", blocks.rows, "u16"), p.array("columns", size, "u16")
    values = p.array("values", size, dtype)
    stamps = Stamps(p)
    with p.task("main"):
        stamps.store(0)
        if part == "sends":
            move(p.fabout(p.output_queue(QUEUE_X, color), blocks.columns), x)
        elif part == "takes":
            move(x, p.fabin(p.input_queue(QUEUE_X, color), blocks.columns))
        emit_rows(p, blocks.rows, x, y, ends, columns, values)
        piece.emit(p, role, y, y)
        stamps.store(1)
    p.assemble()
    return p


def _layout(blocks: MatrixBlocks, algorithm: str, dtype: str, machine: Machine) -> tuple[Reduce, Layout]:
    """Return the `Reduce` along the rows and the `Layout`."""
    height, width, _ = blocks.counts.shape
    line, down = Line.rows(width, height), Line.columns(width, height)
    (piece,) = reduces([line], algorithm, 0, blocks.rows, "f32", "f32", machine, spare=1)
    admit(machine, "spmv", (width, height), [piece], extra=int(height > 1))
    color = next((c for c in color_pool(machine) if c not in piece.colors), -1)  # -1: `admit` saw that none is needed
    parts = [None] if height == 1 else ["sends", *["takes"] * (height - 1)]
    layout = Layout(width, height, machine)
    compose(
        layout,
        [(down, parts), (line, piece.roles())],
        lambda roles: _program(roles, piece, blocks, dtype, color, machine),
    )
    piece.routes(layout)
    if height > 1:
        flood_line(down, layout, color)
    return piece, layout


def expected_cycles(blocks: MatrixBlocks, piece: Reduce, dtype: str, machine: Machine) -> int:
    """Return the cycles from the first reading to the last one in column 0: exact sums over the pattern."""
    m, height = machine, len(blocks.counts)
    begin = np.full(height, timing.stamp(m), np.int64)
    if height > 1:
        words, queue = wavelets_of(blocks.columns, dtype), QUEUE_X
        begin += timing.load(m, 2)
        begin[0] += timing.operation(m, timing.sending(m, words, queue, queue))
        begin[1:] += timing.operation(m, timing.train(m, words, queue, queue)) + timing.way(m, np.arange(1, height))
    ready = begin[:, np.newaxis] + row_cycles(blocks.counts, dtype == "f32", m)
    return max(piece.end([int(cycle) for cycle in row], m) for row in ready)


@kernel(
    "spmv",
    "sparse matrix-vector product, CSR, blocks of rows and columns on a mesh, zeros never multiplied",
    "SpMM_Cerebras (CSR products); Luczynski et al., HPDC 2024 (reduces)",
    [
        KernelParam("width", 4, int, "PEs in x: blocks of columns", low=1),
        KernelParam("height", 4, int, "PEs in y: blocks of rows", low=1),
        KernelParam("m", 256, int, "rows of A", low=1),
        KernelParam("n", 256, int, "columns of A", low=1),
        KernelParam("density", 0.05, float, "share of entries that are not zero", low=0, high=1),
        KernelParam("pattern", 1, int, "seed of the pattern", low=0),
        KernelParam(
            "algorithm", "auto", str, "of the reduce; auto takes the fastest by the closed forms", ("auto", *AUTO)
        ),
        KernelParam("dtype", "f32", str, "format of A and x; sums are f32", ("f16", "cb16", "f32")),
        *data_params(),
    ],
)
def spmv(
    machine: Machine,
    width: int,
    height: int,
    m: int,
    n: int,
    density: float,
    pattern: int,
    algorithm: str,
    dtype: str,
    seed: int,
    data: str,
) -> dict[str, Any]:
    """Run the kernel `spmv`; see the head of this module."""
    PlmrDevice.of(machine).admit(
        Plan("spmv", width, height, round(density * m * n) // (width * height), 0, width - 1), where="kernel spmv"
    )  # even if the entries were spread evenly

    def build(m: int, n: int) -> tuple[MatrixBlocks, Reduce, Layout]:
        flat = np.random.default_rng(pattern).choice(m * n, round(density * m * n), replace=False, shuffle=False)
        blocks = MatrixBlocks(width, height, (m, n), np.sort(flat))
        return blocks, *_layout(blocks, algorithm, dtype, machine)

    blocks, piece, layout = fit("kernel spmv", machine, build, {"m": m, "n": n}, {"m": (1, m), "n": (1, n)})
    given, single = Arithmetic.of(machine, dtype), Arithmetic.of(machine, "f32")
    entries = len(blocks.i)
    rng = np.random.default_rng(seed)
    a = given.random(rng, (entries,), "ones" if data == "ones" else "normal")
    x = given.random(rng, (n,), data, terms=max(1, round(density * n)))
    chunks = np.zeros((1, width, blocks.columns), x.dtype)
    chunks.reshape(-1)[:n] = x
    offsets = blocks.j % blocks.columns * (2 if dtype == "f32" else 1)
    session = Session(
        layout,
        [
            ("x", chunks, 0, 0),
            ("ends", blocks.ends.astype(np.uint16), 0, 0),
            ("values", blocks.gather(a), 0, 0),
            ("columns", blocks.gather(offsets.astype(np.uint16)), 0, 0),
        ],
    )
    got = session.read("y", 0, 0, 1, height).reshape(-1)

    def compare() -> Check:
        partial = blocks.products(given, single, a, x)
        expected = piece.total(list(np.moveaxis(partial, 1, 0)), single, single).reshape(-1)
        terms = given.operand(a) * given.operand(x)[blocks.j]
        with np.errstate(all="ignore"):
            plain, magnitude = (np.bincount(blocks.i, values, minlength=len(got)) for values in (terms, np.abs(terms)))
        return check_sum(single, got, expected, plain, magnitude, int(blocks.counts.max(initial=0)) + width)

    check = compared(compare)
    first, last = session.stamps(0, 0, 1, height)
    sent = wavelets_of(blocks.columns, dtype) * height * width if height > 1 else 0
    return report(
        session,
        check,
        (last - first).max(),
        expected_cycles=expected_cycles(blocks, piece, dtype, machine),
        expected_hops=sent + piece.hops,
        expected_macs=entries,
        lanes=1,
        nonzeros=entries,
        most_entries=int(blocks.counts.sum(axis=2).max()),
        additions=piece.additions,
        algorithms=piece.tree.name,
        arrays={"y": got[:m]},
    )
