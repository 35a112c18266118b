"""Scatter, gather and all-gather move blocks of n elements between one PE, or all PEs, and all PEs of a line or
rectangle.

What moves
    ``row``, ``column``: along every row or column; ``xy``: gathers go along the rows first, then along column 0 (all
    columns for allgather) with the whole rows as blocks, scatters the other way round; ``snake``: one line through all
    PEs.  The result is in the order of the PEs of the line, rows first for ``xy``.  How a line does it stands in
    `fabric.kernels.collectives.pieces.line_moves`.

Colors and queues
    Gather and scatter one color per line, allgather two.  Gather and scatter use queue 2 on the first line and 3 on the
    second; allgather output queues 2, 3 and input queues 4, 5, then 4, 5 and 6, 7.

Formats
    f32: one element per wavelet; f16 and cb16: two, blocks of an odd number of elements padded.  Bits are copied.

Cycles
    From the first time stamp of the receiving PE (gather) or of the sending one (scatter, allgather: PE (0, 0)) to the
    latest last one, all PEs starting together; formulas `Gather.end`, `Scatter.end`.  An all-gather has a lower bound
    instead, `AllGather.end` says why.

Sources
    Luczynski et al., HPDC 2024 (arXiv 2404.15888): the cost model; PLMR: memory grows with the number of PEs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fabric.kernels.collectives import costs
from fabric.kernels.collectives.pieces.line_moves import AllGather, Gather, Scatter
from fabric.kernels.collectives.pieces.lines import Line, compose
from fabric.kernels.collectives.pieces.sums import FORMS, color_pool, lines_of
from fabric.kernels.kit.check import Check, check_sum
from fabric.kernels.kit.data import data_params
from fabric.kernels.kit.kernel import KernelParam, kernel
from fabric.kernels.kit.plmr import Plan, PlmrDevice
from fabric.kernels.kit.report import report
from fabric.kernels.kit.session import Session, Stamps
from fabric.kernels.kit.sizes import fit
from fabric.kernels.kit.verify import compared
from fabric.layout.layout import Layout
from fabric.program.program import Program
from wse_core.formats import Arithmetic, Bits
from wse_core.params import Machine

__all__ = ["allgather", "gather", "scatter"]

PARAMS = [
    KernelParam("form", "row", str, "all rows, all columns, rows then columns, or one line through all PEs", FORMS),
    KernelParam("width", 16, int, "PEs along x", low=1),
    KernelParam("height", 1, int, "PEs along y", low=1),
    KernelParam("n", 64, int, "elements of a block", low=1),
    KernelParam("dtype", "f32", str, "format", ("f16", "cb16", "f32")),
    *data_params(),
]


class _Move:
    """A move has the lines, pieces, layout and data of one run.

    Attributes
    ----------
    pieces : list
        In the order in which they run, with blocks of growing (gathers) or shrinking (scatter) size.
    """

    def __init__(
        self,
        kind: type[Gather] | type[Scatter] | type[AllGather],
        machine: Machine,
        form: str,
        width: int,
        height: int,
        n: int,
        dtype: str,
    ) -> None:
        self.kind, self.machine, self.form, self.dtype = kind, machine, form, dtype
        self.width, self.height, self.n = width, height, n
        self.block = n if dtype == "f32" else n + n % 2
        lines = lines_of(form, width, height)
        if form == "xy" and kind is AllGather:
            lines[1] = Line.columns(width, height)
        pool, self.pieces, block = color_pool(machine), [], self.block
        for k, line in enumerate(lines):
            numbers = range(kind.N_COLORS * k, kind.N_COLORS * (k + 1))
            colors = tuple(pool[i % len(pool)] for i in numbers)
            self.pieces.append(kind(line, colors, block, dtype, 2 + k * kind.N_COLORS))
            block *= len(line)
        self.total = block
        names = [f"level{k}" for k in range(1, len(lines))]
        self.symbols = ["x", *names, "all"]  # blocks that each piece takes from and puts into
        if kind is Scatter:
            self.pieces.reverse()
        words = self.total * (2 if dtype == "f32" else 1)
        plan = Plan(
            kind.__name__.lower(),
            width,
            height,
            words,
            kind.N_COLORS * len(lines),
            sum(len(line) - 1 for line in lines),
        )
        PlmrDevice.of(machine).admit(plan, where=f"kernel {plan.name}")

    def layout(self) -> Layout:
        """Return the `Layout` of all PEs."""
        layout = Layout(self.width, self.height, self.machine)
        compose(layout, [(piece.line, piece.roles()) for piece in self.pieces], self._program)
        for k, piece in enumerate(self.pieces):
            piece.routes(layout)
            if isinstance(piece, AllGather) and len(piece) > 1:
                piece.set_params(layout, [f"{name}{k}" for name in AllGather.PARAMS])
        return layout

    def _program(self, roles: tuple[str | None, ...]) -> Program:
        p = Program(
            f"{self.kind.__name__.lower()} {roles}", self.machine, half="cb16" if self.dtype == "cb16" else "f16"
        )
        order = list(enumerate(zip(self.pieces, roles, strict=True)))
        sizes = {"x": self.block}
        for k, (piece, role) in order:
            small = len(self.pieces) - 1 - k if self.kind is Scatter else k
            if role is not None:
                sizes.setdefault(self.symbols[small], piece.n)
                if self.kind is AllGather or role in ("root", "alone"):
                    sizes[self.symbols[small + 1]] = piece.n * len(piece)
        arrays = {name: p.array(name, size, self.dtype) for name, size in sizes.items()}
        params = {}
        if self.kind is AllGather:
            params = {k: [p.param(f"{name}{k}", "u16") for name in AllGather.PARAMS] for k, _ in order}
        stamps = Stamps(p)
        with p.task("main"):
            stamps.start()
            for k, (piece, role) in order:
                if role is None:
                    continue
                small = len(self.pieces) - 1 - k if self.kind is Scatter else k
                if isinstance(piece, AllGather):
                    piece.emit(p, role, arrays[self.symbols[small]], arrays[self.symbols[small + 1]], params[k])
                else:
                    piece.emit(p, role, arrays[self.symbols[small]], arrays.get(self.symbols[small + 1]))
            stamps.stop()
        p.assemble()
        return p

    def order(self, blocks: Bits) -> Bits:
        """Return the blocks (height, width, n) of all PEs as the gathered array (height, width, blocks in order, n)."""
        if self.form == "row":
            return blocks[:, None].repeat(self.width, axis=1)
        if self.form == "column":
            return np.moveaxis(blocks, 0, 1)[None].repeat(self.height, axis=0)
        if self.form == "snake":
            flat = np.stack([blocks[y, x] for x, y, _, _ in self.pieces[0].line.rects])
        else:
            flat = blocks.reshape(-1, blocks.shape[-1])
        return np.broadcast_to(flat, (self.height, self.width, *flat.shape))

    @property
    def roots(self) -> tuple[int, int]:
        """So many (columns, rows) of PEs are place 0 of everything."""
        return {"row": (1, self.height), "column": (self.width, 1)}.get(self.form, (1, 1))

    def expected(self) -> int:
        """Return the closed form of the cycles."""
        now = self.machine["ce.tsc_read"]
        for piece in self.pieces:
            now = piece.end(now, self.machine)
        return now


def _run(
    kind: type[Gather] | type[Scatter] | type[AllGather],
    machine: Machine,
    form: str,
    width: int,
    height: int,
    n: int,
    dtype: str,
    seed: int,
    data: str,
) -> dict[str, Any]:
    name = kind.__name__.lower()
    arithmetic = Arithmetic.of(machine, dtype)

    def build(n: int) -> tuple[_Move, Layout]:
        move = _Move(kind, machine, form, width, height, n, dtype)
        layout = move.layout()
        layout.build()
        return move, layout

    move, layout = fit(f"kernel {name}", machine, build, {"n": n}, {"n": (1, n)})
    blocks = np.zeros((height, width, move.block), arithmetic.bits_dtype)
    blocks[..., :n] = arithmetic.random(np.random.default_rng(seed), (height, width, n), data)
    columns, rows = move.roots
    everything = move.order(blocks)
    flat = everything.reshape(height, width, -1)
    if kind is Scatter:
        session = Session(layout, [("all", flat[:rows, :columns], 0, 0)])
        got, expected = session.read("x", 0, 0, width, height)[..., :n], blocks[..., :n]
    else:
        session = Session(layout, [("x", blocks, 0, 0)])
        if kind is AllGather:
            columns, rows = width, height
        got = session.read("all", 0, 0, columns, rows).reshape(rows, columns, -1, move.block)[..., :n]
        expected = everything[:rows, :columns, :, :n]
    first, last = session.stamps(0, 0, width, height)
    ends = last[:rows, :columns] if kind is Gather else last

    def compare() -> Check:
        return check_sum(arithmetic, got, expected, None, None, 0)

    check = compared(compare)
    count, b, wire = move.total // move.block, move.pieces[0].w, costs.Wire.of(machine)
    b = min(piece.w for piece in move.pieces)
    gathers, bound = kind is AllGather, costs.lower_bound_move  # an all-gather has no closed form, see `AllGather.end`
    span = {"row": width, "column": height, "snake": width * height}.get(form, width + height - 1)
    return report(
        session,
        check,
        ends.max() - first[0, 0],
        expected_cycles=None if gathers else move.expected(),
        expected_hops=sum(piece.hops for piece in move.pieces),
        expected_macs=0,
        lower_bound=max(bound(count, span, b, wire), move.expected() if gathers else 0),
        colors=kind.N_COLORS * len(move.pieces),
        arrays={"all" if kind is not Scatter else "x": got} if got.nbytes <= 1 << 24 else {},
    )


@kernel(
    "scatter",
    "blocks of one PE to all PEs of its row, column or rectangle",
    "Luczynski et al., HPDC 2024, arXiv 2404.15888: cost model",
    PARAMS,
)
def scatter(
    machine: Machine, form: str, width: int, height: int, n: int, dtype: str, seed: int, data: str
) -> dict[str, Any]:
    """Run the kernel `scatter`; see the head of this module."""
    return _run(Scatter, machine, form, width, height, n, dtype, seed, data)


@kernel(
    "gather",
    "blocks of all PEs of a row, column or rectangle to one PE",
    "Luczynski et al., HPDC 2024, arXiv 2404.15888: cost model",
    PARAMS,
)
def gather(
    machine: Machine, form: str, width: int, height: int, n: int, dtype: str, seed: int, data: str
) -> dict[str, Any]:
    """Run the kernel `gather`; see the head of this module."""
    return _run(Gather, machine, form, width, height, n, dtype, seed, data)


@kernel(
    "allgather",
    "blocks of all PEs of a row, column or rectangle to all of them",
    "Luczynski et al., HPDC 2024, arXiv 2404.15888: cost model",
    PARAMS,
)
def allgather(
    machine: Machine, form: str, width: int, height: int, n: int, dtype: str, seed: int, data: str
) -> dict[str, Any]:
    """Run the kernel `allgather`; see the head of this module."""
    return _run(AllGather, machine, form, width, height, n, dtype, seed, data)
