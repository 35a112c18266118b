"""A PE does this in parts of an inference, on average over the PEs of a mesh: counts of what costs energy, from runs.

==================  ===============================================================================================
`line_work`         an all-reduce over a line: the line itself, run
`product_work`      a product of tiles on one PE, run
`function_work`     a function of a vector, run on one PE
`elementwise_work`  one operation over a vector in memory
`mesh_gemm_work`    MeshGEMM: what a PE does grows by equal parts with every step, as two small meshes tell, run with
                    the true tiles; its hops are the closed form of the kernel
`ring_work`         wavelets that a ring of PEs moves on by a place
`flood_work`        wavelets that all PEs of a line take
`partial_work`      a step's products of `gemm_t`, cleared and summed along a row
==================  ===============================================================================================

Nothing here is fitted: each number is a count of the engine, or follows from counts of the same program on other
meshes, and tests compare it with larger runs.  Cycles of PEs, at work or not, are left to who knows how many there are.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from fabric.host.fabric import Fabric
from fabric.host.result import RunResult
from fabric.kernels.collectives.pieces.lines import Line
from fabric.kernels.collectives.pieces.ring import Ring
from fabric.kernels.collectives.pieces.sums import color_pool
from fabric.kernels.kit.data import wavelets_of
from fabric.kernels.matmul.gemm import make
from fabric.kernels.matmul.local import Shape, emit_product
from fabric.kernels.matmul.problem import Problem
from fabric.kernels.matmul.shift import Shift
from fabric.kernels.matvec.line_sum import LineSum
from fabric.layout.layout import Layout
from fabric.program.functions import Emit
from fabric.program.program import Program
from wse_core import isa
from wse_core.encoding import N_HALVES, WORK_COLUMNS, column_of
from wse_core.params import Machine
from wse_core.work import CountedWork

__all__ = [
    "elementwise_work",
    "flood_work",
    "function_work",
    "line_sum",
    "line_work",
    "mesh_gemm_work",
    "partial_work",
    "product_work",
    "ring_work",
    "run_function",
    "run_work",
]


def run_work(layout: Layout) -> CountedWork:
    """Return what a layout does whose task ``main`` is launched, cycles of PEs left out."""
    fabric = Fabric(layout)
    fabric.launch("main")
    return done_in(fabric.run(on_wait="return"))


def done_in(run: RunResult) -> CountedWork:
    """Return what a run does, cycles of PEs left out."""
    return replace(run.work, cycle=0)


def line_sum(machine: Machine, places: int, n: int, dtype: str, levels: int, among: tuple[str, ...]) -> LineSum:
    """Return an all-reduce over a line; arguments as of `costs.all_reduce`."""
    name, pool = "auto" if among else "ktree", color_pool(machine)
    return LineSum(name, Line.rows(places, 1), n, dtype, machine, pool, levels, 0, True, among=among or ("ktree",))


@cache
def line_work(machine: Machine, places: int, n: int, dtype: str, levels: int, among: tuple[str, ...]) -> CountedWork:
    """Return what a place of a line does in an all-reduce, on average; arguments as of `line_sum`."""
    total, layout = line_sum(machine, places, n, dtype, levels, among), Layout(places, 1, machine)
    programs: dict[object, Program] = {}
    for place, role in enumerate(total.roles()):
        if role not in programs:
            programs[role] = p = Program(f"sum {len(programs)}", machine)
            x = p.array("x", total.padded, dtype)
            with p.task("main"):
                total.emit(p, role, x)
        layout.place(programs[role], place, 0)
    total.routes(layout)
    return run_work(layout) * (1 / places)


@cache
def product_work(machine: Machine, rows: int, depth: int, columns: int, sums: str) -> CountedWork:
    """Return what a PE does in a product of tiles of 16-bit data."""
    shape = Shape(rows, depth, columns, "f16", sums)
    p = Program("product", machine)
    c = p.array("c", rows * columns, shape.c_dtype, bank=0)
    a, b = p.array("a", rows * depth, "f16", bank=shape.a_bank), p.array("b", depth * columns, "f16")
    with p.task("main"):
        a_base, b_base = p.reg16("a base"), p.reg16("b base")
        p.ldi(a_base, a)
        p.ldi(b_base, b)
        emit_product(p, shape, c, p.dsr("src0"), a, p.dsr("src1"), a_base, b_base)
    layout = Layout(1, 1, machine)
    layout.place(p, 0, 0)
    return run_work(layout) - CountedWork(issue=3)  # two addresses, and the end of the task


@cache
def run_function(machine: Machine, name: str, n: int) -> RunResult:
    """Run a task that calls one function of n f32 numbers, on one PE."""
    p = Program(f"{name} {n}", machine)
    x, y = p.array("x", n, "f32"), p.array("y", n, "f32")
    functions = Emit(p, n)
    with p.task("main"):
        getattr(functions, name)(y, x)
    layout = Layout(1, 1, machine)
    layout.place(p, 0, 0)
    fabric = Fabric(layout)
    fabric.launch("main")
    return fabric.run()


def function_work(machine: Machine, name: str, n: int) -> CountedWork:
    """Return what a PE does in a function of n f32 numbers."""
    return done_in(run_function(machine, name, n))


@cache
def elementwise_work(machine: Machine, op: str, n: int, operands: int) -> CountedWork:
    """Return what a PE does in one operation over n elements in memory, with the loads of so many descriptors."""
    row = isa.BY_NAME[op]
    words = [isa.WORDS[letter] for letter in row.types]
    table = np.zeros((len(isa.OPS), N_HALVES, WORK_COLUMNS), np.uint64)
    table[row.code, 0, column_of(words[1] + words[2], words[0])] = n
    return CountedWork.of(machine, table, 1 + operands)


@cache
def _product(machine: Machine, width: int, height: int, rows: int, depth: int, columns: int, sums: str) -> Shift:
    """Return MeshGEMM of a mesh with such tiles, which lie where the first step wants them."""
    slices = int(np.lcm(width, height))
    problem = Problem(width, height, rows * height, depth * slices, columns * width, "f16", sums)
    found = make("meshgemm", machine, problem, align="host")
    assert isinstance(found, Shift)
    return found


@cache
def _square(machine: Machine, side: int, rows: int, depth: int, columns: int, sums: str) -> CountedWork:
    """Return what a PE of a square does in MeshGEMM, run; hops left out."""
    found = run_work(_product(machine, side, side, rows, depth, columns, sums).layout) * (1 / side**2)
    return found - CountedWork(hop=found.hop)


SMALL = (3, 4)
"""MeshGEMM runs on squares of these sides: on each, PEs do one step more than on the one before."""


@cache
def mesh_gemm_work(
    machine: Machine, width: int, height: int, rows: int, depth: int, columns: int, sums: str
) -> CountedWork:
    """Return what a PE does in MeshGEMM; arguments as of `costs.mesh_gemm`."""
    whole = _product(machine, width, height, rows, depth, columns, sums)
    hops = CountedWork(hop=whole.hops / (width * height))
    if whole.slices <= max(SMALL) and width == height:
        return _square(machine, width, rows, depth, columns, sums) + hops
    first, second = (_square(machine, side, rows, depth, columns, sums) for side in SMALL)
    return first + (second - first) * (whole.slices - SMALL[0]) + hops


@cache
def ring_work(places: int, wavelets: int) -> CountedWork:
    """Return what a PE does, on average, when all of a folded ring send wavelets of two 16-bit elements on."""
    moved = 2 * wavelets
    return CountedWork(hop=wavelets * Ring(places, "folded").grants / places, read=moved, write=moved, issue=2)


@cache
def flood_work(wavelets: int) -> CountedWork:
    """Return what a PE does that takes wavelets of 16-bit elements, two each, which its router hands on as well."""
    return CountedWork(hop=wavelets, write=2 * wavelets, issue=2)


@cache
def partial_work(places: int, n: int, sums: str) -> CountedWork:
    """Return what a PE does, on average, to clear n sums and to add them up along a row, as `gemm_t` does it.

    The PEs at both ends send their own, the others add theirs to what passes, and one of them keeps the sum.
    """
    words, kind = (2, "f32_add") if sums == "f32" else (1, "f16_add")
    passing = 2 * wavelets_of(n, "f32" if sums == "f32" else "f16") * (places - 1)
    own = CountedWork(read=words * n, write=words * n, issue=6)
    return own + CountedWork(hop=passing / places, write=words * n / places, **{kind: n * (places - 1) / places})


def multiplied(n: int) -> CountedWork:
    """Return the work of one multiply-add of n elements of 16 bits, with its issue."""
    return CountedWork(read=2 * n, write=n, issue=1, f16_add=n, f16_multiply=n)
