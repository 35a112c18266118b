"""Seven-point stencil in three dimensions: one column of nz cells per PE, repeated steps, zeros around.

What moves
    Every PE holds the column of cells (x, y).  Per step it sends its column once; the routers multicast it to the up to
    four neighbours, and it receives theirs into four buffers.  All five transfers are asynchronous, so that no order
    of arrival can block a neighbour.  Completions are counted by a task; the last one starts the computation.

Colors and queues
    PE (x, y) sends on color (x + 2 y) mod 5: the four neighbours of a PE have four colors, none of them its own.
    Output queue 0 (microthread 0), input queues 1..4 for west, east, north, south (microthreads 1..4).

Order of additions (bit exact)
    v = C0 u, then v = v + C1 t, each one multiply-add with one rounding, for t = below, above, west, east, north,
    south; neighbours outside the grid are left out in x and y, and zeros in z.  Then u = v.

Formats
    f32: one cell per wavelet.  f16: two.

Cycles
    Between two readings on each PE, before the first and after the last step; the largest difference counts.  The
    datapath does all transfers and operations one after the other, so a step of a PE with k neighbours takes at least
    (k + 1) wavelets + (2 z neighbours + k) multiply-adds + one multiply + one copy of the column.  ``expected_cycles``
    is this bound for the PE with most neighbours; starting the operations and tasks comes on top.

Counts
    Multiply-adds: steps nz (2 W H + 2 L) with L = (W - 1) H + W (H - 1) pairs of neighbours.  Hops: per step and
    wavelet of a column one from each ramp that sends and one into each ramp that receives.

Sources
    Jacquelin et al., SC22, arXiv 2204.03775 (one column of z per PE).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.asm.operands import Dsd, Reg, Var
from fabric.kernels.kit.check import Check, check_sum
from fabric.kernels.kit.data import data_params
from fabric.kernels.kit.kernel import KernelParam, kernel
from fabric.kernels.kit.report import report
from fabric.kernels.kit.session import Session, Stamps
from fabric.kernels.kit.sizes import fit
from fabric.kernels.kit.verify import compared
from fabric.layout.layout import Layout
from fabric.program.program import Program
from wse_core.formats import Arithmetic, Bits
from wse_core.params import Machine

__all__ = ["C0", "C1", "reference", "stencil"]

C0, C1 = 0.25, 0.125
"""Weights of a cell and of its six neighbours."""
STEP = {"W": (-1, 0), "E": (1, 0), "N": (0, -1), "S": (0, 1)}
OPPOSITE = dict(zip("WENS", "EWSN", strict=True))


def _color(x: int, y: int) -> int:
    return (x + 2 * y) % 5


def _program(
    machine: Machine, nz: int, steps: int, dtype: str, color: int, near: tuple[tuple[str, int], ...]
) -> Program:
    """Return the program of a PE; `near` is ((direction, color), ...) of its neighbours."""
    p = Program(f"stencil, color {color}, neighbours {''.join(d for d, _ in near) or 'none'}", machine)
    u, v = p.array("u", nz + 2, dtype, bank=0), p.array("v", nz, dtype, bank=2)
    halo = {d: p.array(f"from {d}", nz, dtype, bank=0) for d, _ in near}
    stamps = Stamps(p)
    half = dtype == "f16"
    move, multiply, multiply_add = (p.fmovh, p.fmulh, p.fmach) if half else (p.fmovs, p.fmuls, p.fmacs)
    pending, left = p.reg16("pending"), p.reg16("left")
    weights = [p.reg16("weight") if half else p.reg32("weight") for _ in range(2)]
    into = {d: p.fabin(p.input_queue(1 + "WENS".index(d), c), nz) for d, c in near}
    with p.task("main"):
        p.ldi(left, steps)
        for weight, value in zip(weights, (C0, C1), strict=True):
            (p.ldi if half else p.ldi32)(weight, int(np.float16(value).view(np.uint16)) if half else value)
        stamps.store(0)
        p.activate("exchange")
    with p.task("exchange"):
        if near:
            out = p.fabout(p.output_queue(0, color), nz)
            p.ldi(pending, len(near) + 1)
            for d, _ in near:
                move(halo[d], into[d], async_=True, activate=f"count {d}")
            move(out, p.mem1d(u, nz, offset=1), async_=True, activate="count")
        else:
            p.activate("compute")
    if near:
        # A task each: two completions at once would activate a common task only once.
        _counters(p, pending, near)
    with p.task("compute"):
        multiply(v, p.mem1d(u, nz, offset=1), weights[0])
        sources: list[Dsd | Var] = [p.mem1d(u, nz), p.mem1d(u, nz, offset=2), *halo.values()]
        for source in sources:
            multiply_add(v, v, source, weights[1])
        move(p.mem1d(u, nz, offset=1), v)
        p.sub16(left, left, 1)
        with p.if_("ne", left, 0):
            p.activate("exchange")
        with p.else_():
            stamps.store(1)
    p.assemble()
    return p


def _counters(p: Program, pending: Reg, near: tuple[tuple[str, int], ...]) -> None:
    for name in ["count", *(f"count {d}" for d, _ in near)]:
        with p.task(name):
            p.sub16(pending, pending, 1)
            with p.if_("eq", pending, 0):
                p.activate("compute")


def reference(arithmetic: Arithmetic, u: Bits, steps: int) -> Bits:
    """Return the cells after `steps` steps as bit patterns, in the order of the PEs; `u` is (height, width, nz)."""
    height, width, _ = u.shape
    c0, c1 = arithmetic.encode(C0), arithmetic.encode(C1)
    for _ in range(steps):
        v = arithmetic.call("mul", u, np.broadcast_to(c0, u.shape))
        padded = np.pad(u, ((0, 0), (0, 0), (1, 1)))
        for t in (padded[:, :, :-2], padded[:, :, 2:]):
            v = arithmetic.call("fma", t, np.broadcast_to(c1, u.shape), v)
        for dx, dy in STEP.values():
            rows = slice(max(0, -dy), height - max(0, dy))
            columns = slice(max(0, -dx), width - max(0, dx))
            t = u[rows.start + dy : rows.stop + dy, columns.start + dx : columns.stop + dx]
            if t.size:
                v[rows, columns] = arithmetic.call("fma", t, np.broadcast_to(c1, t.shape), v[rows, columns])
        u = v
    return u


def _plain(u: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
    for _ in range(steps):
        p = np.pad(u, 1)
        u = C0 * u + C1 * (
            p[1:-1, 1:-1, :-2]
            + p[1:-1, 1:-1, 2:]
            + p[1:-1, :-2, 1:-1]
            + p[1:-1, 2:, 1:-1]
            + p[:-2, 1:-1, 1:-1]
            + p[2:, 1:-1, 1:-1]
        )
    return u


@kernel(
    "stencil",
    "seven-point stencil in 3-D, a column of z per PE",
    "Jacquelin et al., SC22, arXiv 2204.03775",
    [
        KernelParam("width", 8, int, "cells and PEs in x", low=1),
        KernelParam("height", 8, int, "cells and PEs in y", low=1),
        KernelParam("nz", 100, int, "cells in z", low=1, high=32000),
        KernelParam("steps", 4, int, "steps", low=1, high=65535),
        KernelParam("dtype", "f32", str, "format", ("f16", "f32")),
        *data_params(),
    ],
)
def stencil(
    machine: Machine, width: int, height: int, nz: int, steps: int, dtype: str, seed: int, data: str
) -> dict[str, Any]:
    """Run the kernel `stencil`; see the head of this module."""
    layout = Layout(width, height, machine)
    arithmetic = Arithmetic.of(machine, dtype)

    def neighbours(x: int, y: int) -> tuple[tuple[str, int], ...]:
        return tuple(
            (d, _color(x + dx, y + dy)) for d, (dx, dy) in STEP.items() if 0 <= x + dx < width and 0 <= y + dy < height
        )

    places = [(x, y, (_color(x, y), neighbours(x, y))) for y in range(height) for x in range(width)]

    def build(nz: int) -> dict[Any, Program]:
        return {key: _program(machine, nz, steps, dtype, *key) for key in dict.fromkeys(key for _, _, key in places)}

    programs = fit("kernel stencil", machine, build, {"nz": nz}, {"nz": (1, nz)})
    for x, y, key in places:
        layout.place(programs[key], x, y)
        color, near = key
        if near:
            layout.route(color, (x, y), rx="R", tx="".join(d for d, _ in near))
        for d, c in near:
            layout.route(c, (x, y), rx=d, tx="R")
    u = arithmetic.random(np.random.default_rng(seed), (height, width, nz), data, terms=7 * steps)
    session = Session(layout, [("u", np.pad(u, ((0, 0), (0, 0), (1, 1))), 0, 0)])
    got = session.read("u", 0, 0, width, height)[:, :, 1:-1]

    def compare() -> Check:
        values = arithmetic.operand(u)
        with np.errstate(all="ignore"):
            plain, magnitude = _plain(values, steps), _plain(np.abs(values), steps)
        return check_sum(arithmetic, got, reference(arithmetic, u, steps), plain, magnitude, 7 * steps)

    check = compared(compare)
    first, last = session.stamps(0, 0, width, height)
    pairs = (width - 1) * height + width * (height - 1)
    most = max(len(key[1]) for _, _, key in places)
    wavelets = -(-nz // 2) if dtype == "f16" else nz
    lanes, wide = (4, 4) if dtype == "f16" else (1, 2)
    moves = (most + 1) * wavelets if most else 0
    bound = moves + (3 + most) * -(-nz // lanes) + -(-nz // wide)
    senders = width * height if pairs else 0
    return report(
        session,
        check,
        (last - first).max(),
        expected_cycles=steps * bound,
        expected_hops=steps * wavelets * (senders + 2 * pairs),
        expected_macs=steps * nz * (2 * width * height + 2 * pairs),
        lanes=lanes,
        cycles_per_step=float((last - first).max() / steps),
        arrays={"u": got},
    )
