"""A reduce is the sum of vectors over rows, columns or a rectangle of PEs, by a choice of algorithms.

What moves
    Every PE holds n elements.  ``row``: in every row the sum goes to column 0; ``column``: in every column to row 0;
    ``xy``: along the rows, then along column 0 to PE (0, 0); ``snake``: along one line through all PEs to PE (0, 0).
    The algorithm on a line is one of the trees of `fabric.kernels.collectives.pieces.trees`; ``auto`` takes the one
    that this machine is fastest with (by `Reduce.end`), ``two_phase`` with group=0 groups near sqrt(P).

Colors and queues
    As many as the tree needs: star 1, chain and two_phase 2, tree ceil(log2 P), optimal at most what there are.
    Input and output queue 2 on the first line, 3 on the second.  A plan with more colors than the machine has is
    refused with a `PlanError`.

Order of additions (bit exact)
    Each PE adds its children's sums to its own value, nearest child first; a child has done so before it sends.

Cycles
    From the first time stamp of a PE that keeps a sum to its second one, all PEs starting together:
    `Reduce.end` follows each message from PE to PE.  Beside it stand ``model_cycles``, the published closed form of the
    algorithm, and ``lower_bound``, which no algorithm can beat (`fabric.kernels.collectives.costs`).

Sources
    Luczynski et al., Near-Optimal Wafer-Scale Reduce, HPDC 2024 (arXiv 2404.15888).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.asm.operands import Var
from fabric.kernels.collectives import costs
from fabric.kernels.collectives.costs import Wire
from fabric.kernels.collectives.pieces.line_reduce import Reduce
from fabric.kernels.collectives.pieces.lines import compose
from fabric.kernels.collectives.pieces.ring_allreduce import RingAllreduce
from fabric.kernels.collectives.pieces.sums import FORMS, admit, format_params, lines_of, pick_sums, reduces
from fabric.kernels.kit.check import BLOCK, Check, check_sum
from fabric.kernels.kit.data import data_params, wavelets_of
from fabric.kernels.kit.kernel import KernelParam, kernel
from fabric.kernels.kit.report import report
from fabric.kernels.kit.session import Session, Stamps
from fabric.kernels.kit.sizes import fit
from fabric.kernels.kit.verify import compared
from fabric.layout.layout import Layout
from fabric.program.program import Program
from wse_core.formats import Arithmetic, Bits
from wse_core.params import Machine

__all__ = ["model_cycles", "plain_sums", "program", "reduce", "reduce_params", "reference"]


def program(
    roles: tuple[Any, ...],
    pieces: Sequence[Reduce],
    n: int,
    dtype: str,
    sums: str,
    machine: Machine,
    after: Callable[[Program, tuple[Any, ...], Var], None] | None = None,
) -> Program:
    """Return the program of a PE with one role per piece; `after` writes what follows, with the roles left over."""
    p = Program(f"reduce {roles}", machine, half="cb16" if dtype == "cb16" else "f16")
    x = p.array("x", n, dtype)
    own = list(zip(pieces, roles, strict=False))
    wants = any(r.needs_total(role) for r, role in own if role is not None)
    total = p.array("total", n, sums) if wants or (after is not None and dtype != sums) else x
    stamps = Stamps(p)
    with p.task("main"):
        stamps.start()
        value = x
        for piece, role in own:
            if role is not None:
                piece.emit(p, role, value, total)
                value = total
        if after is not None:
            after(p, roles[len(pieces) :], total)
        stamps.stop()
    p.assemble()
    return p


def reduce_params(algorithms: tuple[str, ...]) -> list[KernelParam]:
    """Return the declarations of the parameters of kernels that sum."""
    return [
        KernelParam("algorithm", "auto", str, "auto takes the fastest one by the closed forms", ("auto", *algorithms)),
        KernelParam("form", "row", str, "all rows, all columns, rows then column 0, or one line for all PEs", FORMS),
        KernelParam("width", 32, int, "PEs along x", low=1),
        KernelParam("height", 1, int, "PEs along y", low=1),
        KernelParam("n", 256, int, "elements on each PE", low=1),
        KernelParam("group", 0, int, "PEs per group of two_phase; 0: near the square root of the line", low=0),
        *format_params(),
        *data_params(),
    ]


def model_cycles(
    form: str, pieces: Sequence[Reduce], width: int, height: int, b: int, group: int, wire: Wire
) -> tuple[float, float]:
    """Return (published cost, lower bound) of a reduce."""
    cost = sum(costs.reduce(r.tree.name, len(r.line), b, wire, group or None) for r in pieces)
    bound = (
        costs.lower_bound(len(pieces[0].line), b, wire)
        if form in ("row", "column")
        else costs.lower_bound_2d(width, height, b, wire)
    )
    return cost, bound


def reference(
    form: str, pieces: Sequence[Reduce] | Sequence[RingAllreduce], x: Bits, given: Arithmetic, result: Arithmetic
) -> tuple[Bits, int]:
    """Return the bits of the sums and the most roundings of a value.

    Parameters
    ----------
    form : str
    pieces : sequence of Reduce or RingAllreduce
        One per line.
    x : ndarray
        Bit patterns (height, width, n).
    given, result : Arithmetic
        Of the data and of the sums.

    Returns
    -------
    (ndarray, int)
        Shape (rows, columns, n) of the lines, 1 along them.
    """
    if form == "column":
        parts = list(x)
    elif form == "snake":
        parts = [x[top, left] for left, top, _, _ in pieces[0].line.rects]
    else:
        parts = list(np.moveaxis(x, 1, 0))
    sums = pieces[0].total(parts, given, result)
    if form == "xy":
        sums = pieces[1].total(list(sums), result, result)
    shape = {"row": (x.shape[0], 1, -1), "column": (1, x.shape[1], -1)}.get(form, (1, 1, -1))
    return sums.reshape(shape), sum(piece.roundings for piece in pieces)


def plain_sums(form: str, x: Bits, given: Arithmetic, touched: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (sums, sums of absolute values) in float64, shape as `reference`; `touched`: any operation was done."""
    height, width, n = x.shape
    along_x, along_y = form != "column", form != "row"
    sums = np.zeros((2, 1 if along_y else height, 1 if along_x else width, n))
    step = max(1, BLOCK // (width * n))  # rows whose float64 copies stay in cache
    for y in range(0, height, step):
        rows = x[y : y + step]
        values = given.operand(rows) if touched else given.decode(rows)
        place = slice(0, 1) if along_y else slice(y, y + step)
        axes = (1,) * along_x + (0,) * along_y
        with np.errstate(invalid="ignore"):
            sums[0, place] += values.sum(axis=axes, keepdims=True)
            sums[1, place] += np.abs(values).sum(axis=axes, keepdims=True)
    return sums[0], sums[1]


@kernel(
    "reduce",
    "sum of vectors over rows, columns or a rectangle by star, chain, tree, two phases or the best tree",
    "Luczynski et al., HPDC 2024, arXiv 2404.15888",
    reduce_params(costs.ALGORITHMS),
)
def reduce(
    machine: Machine,
    algorithm: str,
    form: str,
    width: int,
    height: int,
    n: int,
    group: int,
    dtype: str,
    sums: str,
    seed: int,
    data: str,
) -> dict[str, Any]:
    """Run the kernel `reduce`; see the head of this module."""
    sums = pick_sums(dtype, sums, "kernel reduce")
    given, result = Arithmetic.of(machine, dtype), Arithmetic.of(machine, sums)

    def build(n: int) -> tuple[Layout, list[Reduce]]:
        pieces = reduces(lines_of(form, width, height), algorithm, group, n, dtype, sums, machine)
        admit(machine, "reduce", (width, height), pieces)
        layout = Layout(width, height, machine)
        compose(
            layout, [(r.line, r.roles()) for r in pieces], lambda roles: program(roles, pieces, n, dtype, sums, machine)
        )
        for piece in pieces:
            piece.routes(layout)
        return layout, pieces

    layout, pieces = fit("kernel reduce", machine, build, {"n": n}, {"n": (1, n)})
    keepers = {"row": (1, height), "column": (width, 1)}.get(form, (1, 1))
    x = given.random(np.random.default_rng(seed), (height, width, n), data, terms=width * height)
    session = Session(layout, [("x", x, 0, 0)])
    got = session.read("total" if dtype != sums else "x", 0, 0, *keepers)
    first, last = session.stamps(0, 0, *keepers)

    def compare() -> Check:
        expected, roundings = reference(form, pieces, x, given, result)
        adds = any(len(r.tree) > 1 for r in pieces)
        plain, magnitude = plain_sums(form, x, given, adds or dtype != sums)
        operations = sum(len(r.tree) - 1 for r in pieces)
        return check_sum(result, got, expected, plain, magnitude, roundings, operations)

    check = compared(compare)
    now = machine["ce.tsc_read"]
    for piece in pieces:
        now = piece.end(now, machine)
    b, wire = wavelets_of(n, sums), costs.Wire.of(machine)
    cost, bound = model_cycles(form, pieces, width, height, b, group, wire)
    return report(
        session,
        check,
        (last - first).max(),
        expected_cycles=now,
        expected_hops=sum(r.hops for r in pieces),
        expected_macs=0,
        model_cycles=cost,
        lower_bound=bound,
        additions=sum(r.additions for r in pieces),
        algorithms="+".join(r.tree.name for r in pieces),
        colors=sum(r.tree.colors for r in pieces),
        depth=sum(r.tree.depth for r in pieces),
        arrays={"total": got} if got.nbytes <= 1 << 24 else {},
    )
