"""A chain of matrix-vector products without a transpose: the axis along which one is summed gives the next its input.

What moves
    Layers 0, 2, 4 ... multiply by an m x n matrix, layers 1, 3 ... by an n x m one.  At first every PE of column c has
    the chunk x[c].  An even layer multiplies PE by PE with the tile A[r, c] and sums along the rows; with the broadcast
    back every PE of row r has the chunk y[r], which is what an odd layer needs: PE (c, r) holds its tile A[c, r] and
    sums along the columns, after which every PE of column c has the chunk c again.  So the tiles are placed once, in
    one order for even and in the other for odd layers, and nothing but the all-reduces ever moves.

Colors and queues
    Those of the all-reduces (`fabric.kernels.matvec.line_sum`), of their own for rows and for columns and used again
    in every second layer; K of a K-tree is at most 3, since both directions need queues.

Order (bit exact)
    As `fabric.kernels.matvec.gemv`, layer by layer.  With f32 sums of 16-bit data every layer's result is rounded to
    the format of the data (fs2h) before it is the next one's input, the last one's as well.

Sizes that do not divide are padded with zeros to tiles of even height and width.

Cycles
    From the first time stamp to the last one of the slowest PE; ``layer_cycles`` are the ends of the layers one after
    the other.  The closed form adds the layers up as if each began everywhere when the slowest PE is ready; in truth
    places near a root go on earlier, by the hops of the broadcast at most.

Sources
    He et al., WaferLLM (OSDI 2025), sections 4.2 and 6.2: weights placed in advance, no transposes in decode.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fabric.kernels.collectives.pieces.lines import Line, compose
from fabric.kernels.collectives.pieces.sums import color_pool
from fabric.kernels.kit import tiles
from fabric.kernels.kit.check import Check, check_sum
from fabric.kernels.kit.data import data_params
from fabric.kernels.kit.kernel import KernelParam, kernel
from fabric.kernels.kit.plmr import Plan, PlmrDevice
from fabric.kernels.kit.report import report
from fabric.kernels.kit.session import Session, Stamps
from fabric.kernels.kit.sizes import fit
from fabric.kernels.kit.verify import compared
from fabric.kernels.matmul.local import Shape, emit_product, product_cycles
from fabric.kernels.matmul.problem import Problem
from fabric.kernels.matvec.gemv import gemv_params, local_products
from fabric.kernels.matvec.line_sum import LineSum, Queues, check_group
from fabric.layout.layout import Layout
from fabric.price import timing
from fabric.program.program import Program
from wse_core import numerics
from wse_core.formats import Arithmetic, Bits
from wse_core.params import Machine

__all__ = ["GemvChain", "gemv_chain"]

ALGORITHMS = ("pipeline", "ktree")
"""Rings load five descriptors per layer, which would soon be more than there are registers for."""
QUEUES = (Queues((2, 4, 0), 6, 2), Queues((3, 5, 1), 7, 3))
"""The sums along rows and those along columns have these queues."""


class GemvChain:
    """A `GemvChain` has the tiles, all-reduces, layout and closed forms of a chain of products.

    Parameters
    ----------
    machine : Machine
    problem : Problem
        The product of the first layer: its matrix is m x k.
    layers, algorithm, levels, group
        As the kernel's.

    Attributes
    ----------
    shapes : tuple of Shape
        Tiles of even and of odd layers.
    line_sums : tuple of LineSum
        Along rows, for even layers, and along columns, for odd ones.
    """

    def __init__(
        self, machine: Machine, problem: Problem, layers: int, algorithm: str = "ktree", levels: int = 0, group: int = 0
    ) -> None:
        width, height, dtype = problem.width, problem.height, problem.dtype
        self.machine, self.width, self.height, self.layers = machine, width, height, layers
        sums = "f32" if dtype == "f32" else problem.sums
        rows, depth = 2 * -(-problem.m // (2 * height)), 2 * -(-problem.k // (2 * width))
        self.shapes = Shape(rows, depth, 1, dtype, sums), Shape(depth, rows, 1, dtype, sums)
        pool = color_pool(machine)
        half = len(pool) // 2
        lines = Line.rows(width, height), Line.columns(width, height)
        check_group(group, *lines)
        self.line_sums = tuple(
            LineSum(
                algorithm, line, shape.rows, shape.c_dtype, machine, colors, levels, group, True, queues, ALGORITHMS
            )
            for line, shape, colors, queues in zip(lines, self.shapes, (pool[:half], pool[half:]), QUEUES, strict=True)
        )
        self.converts = self.shapes[0].c_dtype != dtype

    def admit(self) -> None:
        """Refuse more PEs than the machine has."""
        plan = Plan(
            "gemv_chain",
            self.width,
            self.height,
            0,
            sum(len(s.colors) for s in self.line_sums),
            max(self.width, self.height) - 1,
        )
        PlmrDevice.of(self.machine).admit(plan, where="kernel gemv_chain")

    def _program(self, roles: tuple[Any, ...]) -> Program:
        dtype = self.shapes[0].dtype
        p = Program(f"gemv_chain {roles}", self.machine, half="cb16" if dtype == "cb16" else "f16")
        x = p.array("x", self.shapes[0].depth, dtype)
        places = []
        for layer in range(self.layers):
            shape, along = self.shapes[layer % 2], self.line_sums[layer % 2]
            y = p.array(f"y{layer}", along.padded, shape.c_dtype, bank=0)
            a = p.array(f"a{layer}", shape.rows * shape.depth, dtype, bank=shape.a_bank)
            places.append((y, a, p.array(f"x{layer + 1}", shape.rows, dtype) if self.converts else y))
        stamps = Stamps(p, self.layers + 1)
        total, column = p.dsr("src0"), p.dsr("src1")
        with p.task("main"):
            stamps.store(0)
            for layer, (y, a, out) in enumerate(places):
                shape, k = self.shapes[layer % 2], layer % 2
                a_base, x_base = p.reg16("a base"), p.reg16("x base")
                p.ldi(a_base, a)
                p.ldi(x_base, x)
                emit_product(p, shape, y, total, a, column, a_base, x_base)
                p.free(a_base, x_base)
                self.line_sums[k].emit(p, roles[k], y)
                if self.converts:
                    p.fs2h(out, p.mem1d(y, shape.rows))
                stamps.store(layer + 1)
                x = out
        p.assemble()
        return p

    def layout(self) -> Layout:
        """Return the `Layout` of all PEs."""
        layout = Layout(self.width, self.height, self.machine)
        compose(layout, [(s.line, s.roles()) for s in self.line_sums], self._program)
        for line_sum in self.line_sums[: self.layers]:
            line_sum.routes(layout)
        layout.build()
        return layout

    def placed(self, layer: int, matrix: Bits) -> Bits:
        """Return the tiles of a layer's padded matrix as the PEs hold them: array (height, width, elements)."""
        if layer % 2 == 0:
            return tiles.columns_first(tiles.tiles(matrix, self.height, self.width))
        return np.ascontiguousarray(tiles.columns_first(tiles.tiles(matrix, self.width, self.height)).swapaxes(0, 1))

    def reference(self, matrices: Sequence[Bits], x: Bits, given: Arithmetic, single: Arithmetic) -> Bits:
        """Return the bits of the result, padding included, in the order of the PEs; all operands are padded."""
        result = single if self.shapes[0].c_dtype == "f32" else given
        for layer, matrix in enumerate(matrices):
            shape, along = self.shapes[layer % 2], self.line_sums[layer % 2]
            parts = local_products(given, matrix, x, len(along.line), shape.depth, shape.sums)
            y = along.total([part.reshape(-1, shape.rows) for part in parts], result).reshape(-1)
            if self.converts:
                y = np.asarray(numerics.convert(y, "f32", given.fmt, given.bias, given.ftz))
            x = y[:, np.newaxis]
        return x[:, 0]

    # --- closed forms -------------------------------------------------------------------------------------------------

    def cycles(self) -> int:
        """Return the cycles of the module's head."""
        m, now = self.machine, 0
        for layer in range(self.layers):
            shape, along = self.shapes[layer % 2], self.line_sums[layer % 2]
            now = along.end(now + timing.stamp(m) + 2 + product_cycles(shape, m))
            if self.converts:
                now += timing.load(m, 2) + timing.elementwise(m, "fs2h", shape.rows)
        return now

    def _sum(self, values: Sequence[int]) -> int:
        return sum(values[layer % 2] for layer in range(self.layers))

    def hops(self) -> int:
        """Return the wavelet hops: those of the all-reduces."""
        return self._sum([s.hops for s in self.line_sums])

    def macs(self) -> int:
        """Return the multiply-adds, those of the padding included."""
        return self.width * self.height * self._sum([s.rows * s.depth for s in self.shapes])

    def additions(self) -> int:
        """Return the additions of elements of the all-reduces."""
        return self._sum([s.additions for s in self.line_sums])

    def lower_bound(self) -> int:
        """Return cycles that no schedule on these tiles stays below: a layer needs the whole of the one before."""
        return self._sum(
            [
                math.ceil(shape.rows / shape.lanes(self.machine)) * shape.depth + s.lower_bound()
                for shape, s in zip(self.shapes, self.line_sums, strict=True)
            ]
        )


@kernel(
    "gemv_chain",
    "matrix-vector products one after the other, summed along rows and columns in turn: no transpose",
    "WaferLLM (OSDI 2025), sections 4.2 and 6.2",
    [
        KernelParam("p", 8, int, "PEs along x", low=1),
        KernelParam("height", 0, int, "PEs along y; 0: as many as along x", low=0),
        KernelParam("m", 256, int, "elements of the results of layers 0, 2 ...", low=1),
        KernelParam("n", 256, int, "elements of x and of the results of layers 1, 3 ...", low=1),
        KernelParam("layers", 3, int, "products", low=1, high=64),
        *gemv_params(ALGORITHMS),
        *data_params(),
    ],
)
def gemv_chain(
    machine: Machine,
    p: int,
    height: int,
    m: int,
    n: int,
    layers: int,
    dtype: str,
    sums: str,
    algorithm: str,
    levels: int,
    group: int,
    seed: int,
    data: str,
) -> dict[str, Any]:
    """Run the kernel `gemv_chain`; see the head of this module."""
    width, height = p, height or p

    def build(m: int, n: int, layers: int) -> tuple[GemvChain, Layout]:
        found = GemvChain(machine, Problem(width, height, m, n, 1, dtype, sums), layers, algorithm, levels, group)
        found.admit()
        return found, found.layout()

    plan, layout = fit(
        "kernel gemv_chain",
        machine,
        build,
        {"m": m, "n": n, "layers": layers},
        {"m": (1, m), "n": (1, n), "layers": (1, layers)},
    )
    given, single = Arithmetic.of(machine, dtype), Arithmetic.of(machine, "f32")
    rng = np.random.default_rng(seed)
    sizes = [(m, n) if layer % 2 == 0 else (n, m) for layer in range(layers)]
    matrices = [given.random(rng, size, data, terms=size[1] * layers) for size in sizes]
    if data == "normal":  # results of the size of the input
        matrices = [given.encode(given.decode(bits) / math.sqrt(bits.shape[1])) for bits in matrices]
    x = given.random(rng, (n, 1), "ones" if data == "ones" else "normal")
    full = [width * plan.shapes[0].depth, height * plan.shapes[0].rows]  # padded n and m
    padded = [tiles.pad(bits, full[1 - k % 2], full[k % 2]) for k, bits in enumerate(matrices)]
    x_full = tiles.pad(x, full[0], 1)
    chunks = np.repeat(x_full.reshape(1, width, -1), height, axis=0)
    session = Session(
        layout,
        [("x", chunks, 0, 0), *((f"a{k}", plan.placed(k, bits), 0, 0) for k, bits in enumerate(padded))],
        expected=plan.cycles,
    )

    last = layers - 1
    got = session.read(f"x{layers}" if plan.converts else f"y{last}", 0, 0, width, height)
    got = got[..., : plan.shapes[last % 2].rows]
    got = got.swapaxes(0, 1) if last % 2 == 0 else got  # (copies, chunks, elements)
    copies = got.reshape(got.shape[0], -1)[:, : sizes[last][0]]

    def compare() -> Check:
        expected = plan.reference(padded, x_full, given, single)[: sizes[last][0]]
        return _check(plan, given, copies, expected, matrices, x)

    check = compared(compare)

    readings = session.stamps(0, 0, width, height)
    ends = [int(reading.max() - readings[0].min()) for reading in readings]
    return report(
        session,
        check,
        ends[-1],
        expected_cycles=plan.cycles(),
        expected_hops=plan.hops(),
        expected_macs=plan.macs(),
        lanes=plan.shapes[0].lanes(machine),
        useful_macs=layers * m * n,
        layer_cycles=[b - a for a, b in pairwise(ends)],
        lower_bound=plan.lower_bound(),
        additions=plan.additions(),
        algorithms="+".join(s.name for s in plan.line_sums[:layers]),
        groups=", ".join(" x ".join(map(str, s.groups)) for s in plan.line_sums[:layers]),
        colors=sum(len(s.colors) for s in plan.line_sums[:layers]),
        arrays={"y": copies[0]},
    )


def _check(plan: GemvChain, given: Arithmetic, got: Bits, expected: Bits, matrices: Sequence[Bits], x: Bits) -> Check:
    """Compare with plain numpy: terms are products of one number per layer, and roundings of all layers add up.

    The error of a result that underflows in one layer grows with the matrices of the layers behind it, by the largest
    sum of absolute values of a row each.  All roundings are counted with the unit of the data, the coarser one.
    """
    roundings, operations = 0, 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        plain = given.operand(x)[:, 0]
        magnitude = np.abs(plain)
        for layer, bits in enumerate(matrices):
            shape, along = plan.shapes[layer % 2], plan.line_sums[layer % 2]
            values = given.operand(bits)
            plain, magnitude = values @ plain, np.abs(values) @ magnitude
            # What may overflow between layers has no bound, nor has what follows from it.
            magnitude = np.where(magnitude <= given.largest, magnitude, np.inf)
            roundings += shape.depth + len(along.line)  # local, all-reduce, conversion
            operations = operations * np.abs(values).sum(axis=1).max() + bits.shape[1] + 2 * len(along.line)
    return check_sum(
        given,
        got,
        np.broadcast_to(expected, got.shape),
        np.broadcast_to(plain, got.shape),
        np.broadcast_to(magnitude, got.shape),
        roundings,
        operations,
    )
