"""Parts of an inference have these cycles: closed forms of kernels, and functions run on one PE.

==================  ===============================================================================================
`all_reduce`        K-tree with flood over a line: `fabric.kernels.matvec.line_sum`, whose kernel is ``gemv``
`axis_sums`         several of them over one line with one K, since switches and colors are one set for all
`group_sum`         the same over the columns of a head group, by tree or chain, whichever is faster
`matrix_vector`     product on one PE: `fabric.kernels.matmul.local`
`mesh_gemm`         MeshGEMM, tiles in place: `fabric.kernels.matmul.shift`; `alignment` of its left matrix
`scores`            Q K^T inside a group of columns: `fabric.kernels.matmul.transposed`
`vector_function`   exp, reciprocal, rsqrt of f32 vectors: the program itself, run on one PE of the engine
`elementwise`       one operation of the table over a vector in memory, with the loads of its descriptors
==================  ===============================================================================================

Each is a `PartCost`: it remembers what is done in its cycles that costs energy (`harness.inference.works`).  Nothing
here is fitted to a published time.  What has no kernel yet (P V by floods, the shift of the cache) is written where it
is used and says so.
"""

from __future__ import annotations

from functools import cache

from fabric.kernels.collectives import costs as published_forms
from fabric.kernels.kit.data import wavelets_of
from fabric.kernels.matmul.gemm import make
from fabric.kernels.matmul.local import Shape, product_cycles
from fabric.kernels.matmul.problem import Problem
from fabric.price import timing
from harness.inference import works
from harness.inference.ledger import PartCost
from wse_core.errors import ConfigError
from wse_core.params import Machine

__all__ = [
    "alignment",
    "all_reduce",
    "axis_sums",
    "cdiv",
    "elementwise",
    "even",
    "flooded",
    "group_sum",
    "matrix_vector",
    "mesh_gemm",
    "moved",
    "published_ring",
    "run_function",
    "scores",
    "step_instructions",
    "vector_function",
]

MOST_LEVELS = 3
"""Largest K that is tried: more levels have no queues left (`fabric.kernels.collectives.pieces.ktree`)."""
LONGEST = 64
"""A function is run for vectors of at most this length; cycles grow evenly from there on."""


def cdiv(a: int, b: int) -> int:
    """Return a / b rounded up."""
    return -(-a // b)


def even(n: int) -> int:
    """Return n rounded up to an even number: 16-bit values travel in pairs."""
    return 2 * cdiv(n, 2)


@cache
def all_reduce(
    machine: Machine, places: int, n: int, dtype: str, levels: int = 0, among: tuple[str, ...] = ()
) -> PartCost:
    """Return the cycles in which every place of a line gets the sum of n values.

    Parameters
    ----------
    places : int
        PEs of the line; a single one has nothing to do.
    dtype : {"f16", "f32"}
        Of values and sums.
    levels : int
        K of the tree; 0: the fastest.
    among : tuple of str
        Algorithms to choose from, if it need not be the tree.
    """
    if places == 1:
        return PartCost(0)
    count = even(n) if dtype == "f16" else n
    cycles = works.line_sum(machine, places, count, dtype, levels, among).end(0)
    return PartCost.of(cycles, works.line_work, machine, places, count, dtype, levels, among)


def axis_sums(
    machine: Machine, places: int, counts: tuple[int, ...], dtype: str, levels: int = 0
) -> tuple[list[PartCost], int]:
    """Return the cycles of each all-reduce along one axis, and the K that all of them share.

    Without `levels` the K is taken that makes their sum smallest.
    """
    if places == 1:
        return [PartCost(0)] * len(counts), 0
    found = []
    for k in (levels,) if levels else range(1, MOST_LEVELS + 1):
        try:
            found.append(([all_reduce(machine, places, n, dtype, k) for n in counts], k))
        except ConfigError:  # more levels than a short line has groups for
            continue
    return min(found, key=lambda each: sum(each[0]))


def group_sum(machine: Machine, places: int, n: int, dtype: str = "f32") -> PartCost:
    """Return the cycles of an all-reduce over the columns of a head group."""
    return all_reduce(machine, places, n, dtype, 0, ("ktree", "pipeline"))


@cache
def matrix_vector(machine: Machine, rows: int, depth: int, sums: str, columns: int = 1) -> PartCost:
    """Return the cycles of a product of tiles on one PE: rows x depth by depth x columns, 16-bit data."""
    cycles = product_cycles(Shape(even(rows), depth, columns, "f16", sums), machine)
    return PartCost.of(cycles, works.product_work, machine, even(rows), depth, columns, sums)


@cache
def _mesh_gemm(machine: Machine, width: int, height: int, sums: str) -> object:
    """Return a MeshGEMM of a mesh, to be sized."""
    return make("meshgemm", machine, Problem(width, height, 1, 1, 1, "f16", sums), align="host")


@cache
def mesh_gemm(machine: Machine, width: int, height: int, rows: int, depth: int, columns: int, sums: str) -> PartCost:
    """Return the cycles of MeshGEMM from tiles that lie where the first step wants them.

    A tile of the left matrix is rows x depth, of the right one depth x columns, of the result rows x columns.
    """
    product = _mesh_gemm(machine, width, height, sums)
    cycles = product.sized(rows * height, depth * product.slices, columns * width).expected()  # type: ignore[attr-defined]
    return PartCost.of(cycles, works.mesh_gemm_work, machine, width, height, rows, depth, columns, sums)


def alignment(machine: Machine, places: int, turns: int, wavelets: int) -> PartCost:
    """Return the cycles of so many turns of the left matrix before a MeshGEMM; the weights lie aligned from the start.

    The matrix turns in rings of so many places.  One turn is the wavelets twice, out and in, and the instructions of a
    task that moves on by one tile.
    """
    m = machine
    task = m["task.start"] + m["ce.load_latency"] + m["ce.branch_not_taken"] + 2
    move = 3 + 2 * m["ce.dsr_edit"] + 2 + m["ce.branch_taken"] + 1
    return turns * (PartCost.code(task + move) + moved(places, wavelets))


def moved(places: int, wavelets: int) -> PartCost:
    """Return the slots in which every PE of a folded ring of so many sends wavelets on, and takes as many."""
    return PartCost.of(2 * wavelets, works.ring_work, places, wavelets)


def flooded(wavelets: int) -> PartCost:
    """Return the slots in which every PE of a line takes wavelets that routers hand on to all of it."""
    return PartCost.of(wavelets, works.flood_work, wavelets)


def scores(
    machine: Machine, width: int, height: int, rows: int, depth: int, sums: str, heads: int = 1, rounds: int = 1
) -> PartCost:
    """Return the cycles of Q K^T inside a group of columns, as `gemm_t` does it, a step per row of PEs.

    Parameters
    ----------
    width, height : int
        Columns of the group, and rows, over which the tokens are cut.
    rows, depth : int
        Tokens of a row, features of a key on a column.
    sums : {"f32", "same"}
    heads : int
        Query heads that share a key that passes: each has a product and a sum of its own in every step.
    rounds : int
        Key heads that pass one after the other.
    """
    m = machine
    partial = wavelets_of(even(rows) * rows, "f32" if sums == "f32" else "f16")
    clear = timing.elementwise(m, "fmovs" if sums == "f32" else "fmovh", even(rows) * rows)
    summed = PartCost.of(2 * partial + clear, works.partial_work, width, even(rows) * rows, sums)
    each = matrix_vector(m, rows, depth, sums, rows) + summed
    tile = moved(height, wavelets_of(even(rows * depth), "f16"))
    return height * (heads * each + rounds * (tile + step_instructions(m))) + timing.stage(m) * (width - 1)


def step_instructions(machine: Machine) -> PartCost:
    """Return the cycles of a step of `gemm_t` beside its product, its sums and its wavelets."""
    m = machine
    turn = m["task.start"] + 3 + m["ce.branch_taken"] + 1 + m["ce.branch_not_taken"] + 2 * m["ce.dsr_edit"] + 1
    return PartCost.code(turn + 2 + max(2, m["ce.load_latency"]) + 2 * m["ce.branch_taken"] + 1 + 2 * m["ce.dsr_edit"])


def run_function(machine: Machine, name: str, n: int) -> PartCost:
    """Return the cycles of a task that calls one function of n numbers, run on one PE."""
    return PartCost.of(works.run_function(machine, name, n).cycles, works.function_work, machine, name, n)


def vector_function(machine: Machine, name: str, n: int) -> PartCost:
    """Return the cycles of ``exp``, ``reciprocal`` or ``rsqrt`` of n f32 numbers, n rounded up to four."""
    count = 4 * cdiv(n, 4)
    if count <= LONGEST:
        return run_function(machine, name, count)
    half, whole = run_function(machine, name, LONGEST // 2), run_function(machine, name, LONGEST)
    more, each = count - LONGEST, LONGEST // 2
    cycles = int(whole) + (int(whole) - int(half)) * more // each
    return PartCost(cycles, (whole + (whole - half) * (more / each)).terms)


def elementwise(machine: Machine, op: str, n: int, operands: int = 2) -> PartCost:
    """Return the cycles of one operation over n elements, with the loads of so many descriptors."""
    cycles = timing.load(machine, operands) + timing.elementwise(machine, op, n)
    return PartCost.of(cycles, works.elementwise_work, machine, op, n, operands)


def published_ring(machine: Machine, places: int, n: int) -> float:
    """Return the published closed form of a ring all-reduce of n 16-bit values (FORM-RING)."""
    return published_forms.ring(places, wavelets_of(even(n), "f16"), published_forms.Wire.of(machine))
