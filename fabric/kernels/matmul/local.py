"""The local part of matrix products is C += A B on the SRAM of one PE, as instructions and as a cycle count.

C (rows x columns) lies by columns; A (rows x depth) by columns; B (depth x columns) gives scalars.  Each pair (k, j)
is one vector multiply-add over a column: ``C[:, j] += A[:, k] * B[k, j]``, `fmachs` for 16-bit factors and sums in f32
(two lanes on wse2, products exact, one rounding to f32), `fmach` for sums in the 16-bit format of the factors (four
lanes, one rounding), `fmacs` for f32.  Every element of C sees k = 0, 1, 2 ... in this order, which is all that its
bits depend on.

The inner loop runs over the longer of k and j.  The descriptor that moves with it keeps its address from one
operation to the next (save_address), so that moving costs nothing; the other one is moved once per outer turn.
Scalars are loaded in groups of up to `GROUP` before the operations that use them, which hides the latency of the
loads; B is stored in the order in which it is read.  Rows are an even number, A begins at an odd word (16-bit) or at
2 modulo 4 (f32), C at a multiple of 4: then C and A are never in one bank class in the same step, for any column.

Cycles: with S steps of the operation (rows / lanes), an operation takes S + 2 from issue to issue and its scalar load
1; to this come 1 per group, 7 per turn of a loop (3 fewer in the last one) and 4 per outer turn for the two
descriptors.  `product_cycles` adds that up, for machines whose integer latency is 1.  Published for comparison:
Mt + 1 per operation and 43 more per scalar around it (csl-experiments, code of a compiler; FORM-SUMMA14).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fabric.asm.operands import Dsr, Reg, Var
from fabric.price import timing
from fabric.program.program import Program
from wse_core import isa
from wse_core.isa import Op
from wse_core.params import Machine

__all__ = ["GROUP", "Shape", "emit_column", "emit_product", "product_cycles"]

GROUP = {1: 6, 2: 3}
"""So many scalars are loaded ahead, by their words: what the registers of a task have room for."""


@dataclass(frozen=True)
class Shape:
    """A `Shape` has the sizes of the tiles on one PE.

    Attributes
    ----------
    rows, depth, columns : int
        A is rows x depth, B depth x columns, C rows x columns; `rows` is even.
    dtype : str
        Format of A and B: ``f16``, ``cb16`` or ``f32``.
    sums : {"f32", "same"}
        Format of C: f32, or that of A and B.
    by_columns : bool
        Whether B is stored by columns even if they are more than the depth.
    """

    rows: int
    depth: int
    columns: int
    dtype: str
    sums: str = "f32"
    by_columns: bool = False

    @property
    def words(self) -> int:
        """An element of A and B takes so many words of SRAM."""
        return 2 if self.dtype == "f32" else 1

    @property
    def c_dtype(self) -> str:
        """The tile of C has this format."""
        return self.dtype if self.sums == "same" else "f32"

    @property
    def inner_k(self) -> bool:
        """Whether the inner loop runs over k; B is then stored by columns, else by rows."""
        return self.by_columns or self.depth >= self.columns

    @property
    def a_bank(self) -> int:
        """Bank in which A has to begin; C begins in bank 0."""
        return 2 if self.words == 2 else 1

    @property
    def op(self) -> Op:
        """The op table has this multiply-add for the formats."""
        return isa.BY_NAME["fmacs" if self.words == 2 else "fmachs" if self.sums == "f32" else "fmach"]

    def lanes(self, machine: Machine) -> int:
        """Return the multiply-adds that the operation does per cycle."""
        return machine.lanes(self.op)

    def groups(self) -> tuple[int, int, int]:
        """Return (scalars per group, number of full groups, scalars in the last one) of the inner loop."""
        inner = self.depth if self.inner_k else self.columns
        count = -(-inner // GROUP[self.words])
        size = -(-inner // count)
        return size, inner // size, inner % size


def emit_product(p: Program, shape: Shape, c: Var, c_dsr: Dsr, a: Var, a_dsr: Dsr, a_base: Reg, b_base: Reg) -> None:
    """Write C += A B into the task of a program that is being written.

    Parameters
    ----------
    p : Program
    shape : Shape
    c : Var
        C; begins at a multiple of 4.
    c_dsr : Dsr
        Of file src0; loaded here.
    a : Var
        A, or one of several places for it.
    a_dsr : Dsr
        Of file src1; loaded here.
    a_base : Reg
        Word address of the A to use.
    b_base : Reg
        Word address of the B to use; changed.
    """
    rows, words = shape.rows, shape.words
    outer = shape.columns if shape.inner_k else shape.depth
    moving = shape.inner_k
    p.load(c_dsr, p.mem1d(c, rows, save=not moving))
    p.load(a_dsr, p.mem1d(a, rows, save=moving))
    p.dsr_base(a_dsr, a_base)
    scalars = _scalars(p, shape)
    if outer == 1:
        _turn(p, shape, scalars, c_dsr, a_dsr, b_base)
    else:
        with p.loop(outer):
            _turn(p, shape, scalars, c_dsr, a_dsr, b_base)
            if moving:
                p.dsr_base(a_dsr, a_base)
                p.dsr_off(c_dsr, rows * c.words_per_element)
            else:
                p.dsr_base(c_dsr, c)
                p.dsr_off(a_dsr, words * rows)
    p.free(*scalars)


def emit_column(p: Program, shape: Shape, c_dsr: Dsr, a_dsr: Dsr, b_base: Reg) -> None:
    """Write C += A B of one column, for descriptors that point to A and C.

    Parameters
    ----------
    p : Program
    shape : Shape
        With one column.
    c_dsr, a_dsr : Dsr
        Of files src0 and src1, the second one with save_address.
    b_base : Reg
        Word address of the B to use; behind it in the end.
    """
    scalars = _scalars(p, shape)
    _turn(p, shape, scalars, c_dsr, a_dsr, b_base)
    p.free(*scalars)


def _scalars(p: Program, shape: Shape) -> list[Reg]:
    """Return registers for a group of scalars."""
    return [p.reg16("b") if shape.words == 1 else p.reg32("b") for _ in range(shape.groups()[0])]


def _turn(p: Program, shape: Shape, scalars: Sequence[Reg], c_dsr: Dsr, a_dsr: Dsr, b_base: Reg) -> None:
    """Write a turn of the outer loop."""
    words = shape.words
    size, full, rest = shape.groups()

    def group(count: int) -> None:
        for k in range(count):
            (p.ld16 if words == 1 else p.ld32)(scalars[k], b_base, offset=k * words)
        p.add16(b_base, b_base, count * words)
        for k in range(count):
            getattr(p, shape.op.name)(c_dsr, c_dsr, a_dsr, scalars[k])

    if full > 1:
        with p.loop(full):
            group(size)
    else:
        group(size)
    if rest:
        group(rest)


def product_cycles(shape: Shape, machine: Machine) -> int:
    """Return the cycles of `emit_product`, from the issue of its first instruction to that of the next one after it."""
    m = machine
    size, full, rest = shape.groups()
    outer = shape.columns if shape.inner_k else shape.depth
    steps = -(-shape.rows // shape.lanes(m))
    steps *= 1 + (m["mem.conflict_cycles"] if m["mem.read_ports"] == 1 else 0)
    operation = timing.operation(m, steps)

    def loop(turns: int, body: int) -> int:
        return 1 + turns * (body + 1) + (turns - 1) * m["ce.branch_taken"] + m["ce.branch_not_taken"]

    def group(count: int) -> int:
        return max(count + 1, m["ce.load_latency"]) + count * operation

    inner = loop(full, group(size)) if full > 1 else group(size)
    inner += group(rest) if rest else 0
    whole = inner if outer == 1 else loop(outer, inner + 2 * m["ce.dsr_edit"])
    return timing.load(m, 2) + m["ce.dsr_edit"] + whole
