"""The star stencil of radius 4 in three dimensions has 25 points: one column of nz cells per PE, steps, zeros around.

What moves
    Every PE holds the column of cells (x, y).  Per step it sends its column once in each of the four directions, to the
    r PEs there (`fabric.kernels.collectives.pieces.neighbours`), and receives those of the r PEs on each side,
    multiplying and adding while they arrive: a column takes nz cycles, with no buffer and no copy.  All PEs go through
    the turns in one order, turn by turn and in a turn east, west, north, south, and in each either send or receive (or
    do nothing, near an edge); so the least advanced PEs can always go on, and nothing is asynchronous.

Colors and queues
    0..3 for columns travelling east, west, north, south; input and output queue of the same number.

Order of additions (bit exact)
    v = C0 u; for k = 1..r: v = v + Ck u(z - k), v = v + Ck u(z + k), zeros outside; then in the order of the turns
    v = v + Ck t for the column t of the PE at distance k, each one multiply-add with one rounding.  In turn t a PE at
    place p of its line (from the end where the columns come from) takes that of distance (p - t) mod (r + 1); PEs
    outside the grid are left out.  Then u = v.

Weights
    One step of diffusion, u + (laplacian u) / 10, with the central difference of order 2 r: Ck = D(k) / 10,
    D(k) = 2 (-1)^(k+1) r!^2 / (k^2 (r - k)! (r + k)!), C0 = 1 - 6 (C1 + .. + Cr); rounded to the format.

Formats
    f32: one cell per wavelet.  f16: two.

Cycles
    Between two readings on each PE, before the first and after the last step; the largest difference counts.
    ``expected_cycles`` follows every PE from turn to turn: a column takes w cycles from its first wavelet, which comes
    one ramp up, d hops and one ramp down after its sender's; sender and receivers begin when they are done with what
    comes before, and wait for a receiver that is later than the queues on the way can make up for.  Not counted:
    wavelets of another direction that come early and share a ramp with those that are being taken, a few cycles in
    some turns.

Counts
    Multiply-adds: steps nz (2 r W H + pairs of PEs up to r apart in x or y).  Hops: `Nearby.hops` of the four
    directions, per step.

Sources
    Jacquelin et al., SC22, arXiv 2204.03775.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import factorial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.basic import vector
from fabric.kernels.collectives.pieces.lines import Line, compose
from fabric.kernels.collectives.pieces.neighbours import Nearby, SidePlan
from fabric.kernels.kit.check import Check, check_sum
from fabric.kernels.kit.data import data_params
from fabric.kernels.kit.kernel import KernelParam, kernel
from fabric.kernels.kit.report import report
from fabric.kernels.kit.session import Session, Stamps
from fabric.kernels.kit.sizes import fit
from fabric.kernels.kit.verify import compared
from fabric.layout.layout import Layout
from fabric.price import timing
from fabric.program.program import Program
from wse_core import isa
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic, Bits
from wse_core.isa import Op
from wse_core.params import Machine

__all__ = ["directions", "expected_cycles", "reference", "stencil25", "weights"]

STEPS = (1, 0), (-1, 0), (0, -1), (0, 1)
"""The columns of cells travel this way, by color."""
V_BANK = 4
"""Bank of the sums; that of the cells is 0, so that in f16 none of the shifts by up to 4 cells conflicts."""


def weights(radius: int) -> NDArray[np.float64]:
    """Return the weights by distance, the cell's own first, as float64."""
    r = radius
    near = [
        2 * (-1) ** (k + 1) * factorial(r) ** 2 / (k * k * factorial(r - k) * factorial(r + k)) / 10
        for k in range(1, r + 1)
    ]
    return np.array([1 - 6 * sum(near), *near])


def directions(width: int, height: int, radius: int, wavelets: int) -> list[Nearby]:
    """Return the `Nearby` of columns that travel east, west, north and south."""
    east, south = Line.rows(width, height), Line.columns(width, height)
    lines = east, Line(east.rects[::-1]), Line(south.rects[::-1]), south
    return [Nearby(line, radius, color, wavelets) for color, line in enumerate(lines)]


def _program(
    machine: Machine,
    nz: int,
    steps: int,
    dtype: str,
    factors: Bits,
    ways: list[Nearby],
    plans: Sequence[SidePlan | None],
) -> Program:
    """Return the program of a PE; `factors` are its weights, `plans` says what it does per direction and turn."""
    p = Program(f"star stencil {plans}", machine)
    radius = len(factors) - 1
    u, v = p.array("u", nz + 2 * radius, dtype, bank=0), p.array("v", nz, dtype, bank=V_BANK)
    stamps = Stamps(p)
    half = dtype == "f16"
    move, multiply, multiply_add = (p.fmovh, p.fmulh, p.fmach) if half else (p.fmovs, p.fmuls, p.fmacs)
    command = p.array("command", 1, "u32", init=[ways[0].command])
    scalars = [p.reg16("weight") if half else p.reg32("weight") for _ in factors]
    left = p.reg16("left")
    own, sums, switch = (p.dsr("src1") for _ in range(3))
    total, result = p.dsr("src0"), p.dsr("dest")
    shifted = [p.dsr("src1") for _ in range(2 * radius)]
    arriving = [p.dsr("src1") if plan and any(plan) else None for plan in plans]
    leaving = [(p.dsr("dest"), p.dsr("dest")) if plan and 0 in plan else None for plan in plans]
    with p.task("main"):
        p.ldi(left, steps)
        for scalar, value in zip(scalars, factors, strict=True):
            (p.ldi if half else p.ldi32)(scalar, int(value))
        p.load(own, p.mem1d(u, nz, offset=radius))
        p.load(result, p.mem1d(u, nz, offset=radius))
        p.load(total, v)
        p.load(sums, v)
        p.load(switch, command)
        for k in range(1, radius + 1):
            p.load(shifted[2 * k - 2], p.mem1d(u, nz, offset=radius - k))
            p.load(shifted[2 * k - 1], p.mem1d(u, nz, offset=radius + k))
        for k, way in enumerate(ways):
            if (taken := arriving[k]) is not None:
                p.load(taken, p.fabin(p.input_queue(k, way.color), nz, dtype=dtype))
            if (gone := leaving[k]) is not None:
                out = p.output_queue(k, way.color)
                p.load(gone[0], p.fabout(out, nz, dtype=dtype))
                p.load(gone[1], p.fabout(out, 1, control=True, dtype="u32"))
        stamps.store(0)
        again = p.label()
        multiply(total, own, scalars[0])
        for k, source in enumerate(shifted):
            multiply_add(total, total, source, scalars[k // 2 + 1])
        for turn in range(radius + 1):
            for k, plan in enumerate(plans):
                distance = None if plan is None else plan[turn]
                if distance is None:
                    continue
                if distance and (taken := arriving[k]) is not None:
                    multiply_add(total, total, taken, scalars[distance])
                elif (gone := leaving[k]) is not None:
                    move(gone[0], own)
                    p.mov32(gone[1], switch)
        move(result, sums)
        p.sub16(left, left, 1)
        p.branch("ne", left, 0, again, "16")
        stamps.store(1)
    p.assemble()
    return p


def _turns(ways: list[Nearby], height: int, width: int) -> Iterator[tuple[int, tuple[int, int], NDArray[np.int64]]]:
    """Yield (number of the direction, its step (dx, dy), plans of all PEs) in the order of the PEs; -1 is no plan."""
    plans = []
    for way in ways:
        table = np.array([[-1 if d is None else d for d in way.plan(k)] for k in range(len(way.line))])
        place = np.zeros((height, width), np.int64)
        for k, (x, y, w, h) in enumerate(way.line.rects):
            place[y : y + h, x : x + w] = k
        plans.append(np.moveaxis(table[place], -1, 0))
    for turn in range(ways[0].turns):
        for k, plan in enumerate(plans):
            yield k, STEPS[k], plan[turn]


def reference(arithmetic: Arithmetic, u: Bits, factors: Bits, ways: list[Nearby], steps: int) -> Bits:
    """Return the cells after some steps as bit patterns, in the order of the PEs.

    Parameters
    ----------
    arithmetic : Arithmetic
    u : ndarray of bit patterns, shape (height, width, nz)
    factors : ndarray of bit patterns
        Weights by distance.
    ways : sequence of Nearby
        Of `directions`.
    steps : int
    """
    height, width, nz = u.shape
    radius = len(factors) - 1
    turns = []
    for _, (dx, dy), plan in _turns(ways, height, width):
        y, x = np.nonzero(plan > 0)
        distance = plan[y, x]
        turns.append(((y, x), (y - distance * dy, x - distance * dx), factors[distance][:, np.newaxis]))
    for _ in range(steps):
        v = arithmetic.call("mul", u, np.broadcast_to(factors[0], u.shape))
        padded = np.pad(u, ((0, 0), (0, 0), (radius, radius)))
        for k in range(1, radius + 1):
            for shift in (-k, k):
                t = padded[:, :, radius + shift : radius + shift + nz]
                v = arithmetic.call("fma", t, np.broadcast_to(factors[k], t.shape), v)
        for here, there, factor in turns:
            if len(here[0]):
                v[here] = arithmetic.call("fma", u[there], np.broadcast_to(factor, u[there].shape), v[here])
        u = v
    return u


def _plain(u: NDArray[np.float64], factors: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
    """Return the cells after some steps in float64, sums in any order."""
    radius = len(factors) - 1
    for _ in range(steps):
        padded, v = np.pad(u, radius), factors[0] * u
        for axis in range(3):
            for k in range(1, radius + 1):
                for shift in (-k, k):
                    here = [slice(radius, radius + n) for n in u.shape]
                    here[axis] = slice(radius + shift, radius + shift + u.shape[axis])
                    v = v + factors[k] * padded[tuple(here)]
        u = v
    return u


def _turn(
    m: Machine, way: Nearby, queue: int, moves: tuple[int, int], plan: NDArray[np.int64], now: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return when all PEs can issue what follows a direction's part of a turn, if they begin it at `now`.

    A receiver takes its first wavelet when it is ready and the wavelet is there, then one per cycle.  A wavelet passes
    a router, or enters the sender's ramp, when all routers after it and the queue of a late receiver had room for it.
    """
    (dx, dy), w, hop = moves, way.wavelets, m["router.hop"]
    issue, drain = timing.issue(m), m["vec.drain"]
    room = m["queue.in_depth"][queue] + m["ramp.in_buffer"]
    ramp_room = m["queue.out_depth"][queue] + m["router.depth"]
    first, busy = now + issue, np.nonzero(plan >= 0)
    (y, x), distance = busy, plan[busy]
    from_y, from_x = y - distance * dy, x - distance * dx
    sent = first[from_y, from_x] + timing.way(m, distance)
    first[busy] = np.where(distance, np.maximum(first[busy], sent), first[busy])
    train, sending = (found(m, w, queue, queue) for found in (timing.train, timing.sending))
    last = np.maximum(first[busy] + np.where(distance, w, sending), np.where(distance, sent + train, 0)) - 1
    for far in range(1, way.reach + 1):  # a receiver that may be late
        late_y, late_x = from_y + far * dy, from_x + far * dx
        there = (late_y >= 0) & (late_y < plan.shape[0]) & (late_x >= 0) & (late_x < plan.shape[1])
        late = first[np.where(there, late_y, 0), np.where(there, late_x, 0)]
        between = np.maximum(far - distance, 0)  # routers between, that hold wavelets
        held = room + between * m["router.depth"] + np.where(distance, 0, ramp_room)
        passed = late + (w - 1 - held) + between * hop + 1 + np.maximum(distance - far, 0) * hop
        passed += np.where(distance, m["ramp.in"], 1)
        last = np.where(there & (w > held), np.maximum(last, passed), last)
    now = now.copy()
    now[busy] = last + 1 + drain + np.where(distance, 0, issue + 1 + drain)
    return now


def expected_cycles(
    machine: Machine, shape: tuple[int, int, int], dtype: str, radius: int, ways: list[Nearby], steps: int
) -> int:
    """Return the cycles between the two readings of the last PE: every PE followed from turn to turn."""
    m, (height, width, nz) = machine, shape
    words = 2 if dtype == "f32" else 1
    names = ("fmovs", "fmuls", "fmacs") if words == 2 else ("fmovh", "fmulh", "fmach")
    move, multiply, multiply_add = (isa.BY_NAME[name] for name in names)

    def local(op: Op, *read: int) -> int:
        at = vector.expected_cycles(op, nz, 1, m, (V_BANK, words), [(address, words) for address in read])
        return at - m["ce.tsc_read"]

    before = local(multiply, 0) + sum(
        local(multiply_add, V_BANK, words * (radius + shift)) for shift in range(-radius, radius + 1) if shift
    )
    turns = list(_turns(ways, height, width))
    plans = np.array([plan for _, _, plan in turns]).reshape(-1, len(ways), height, width)
    descriptors = (plans > 0).any(axis=0).sum(axis=0) + 2 * (plans == 0).any(axis=0).sum(axis=0)
    start: NDArray[np.int64] = timing.load(m, descriptors)  # PEs with fewer neighbours are ready earlier
    now = start
    for step in range(steps):
        now = now + before
        for k, moves, plan in turns:
            now = _turn(m, ways[k], k, moves, plan, now)
        now = now + local(move, 0) + 1 + m["ce.branch_taken" if step < steps - 1 else "ce.branch_not_taken"]
    return int((now - start).max()) + timing.stamp(m)


@kernel(
    "stencil25",
    "star stencil of 25 points in 3-D, radius 4, a column of z per PE",
    "Jacquelin et al., SC22, arXiv 2204.03775",
    [
        KernelParam("width", 8, int, "cells and PEs in x", low=1),
        KernelParam("height", 8, int, "cells and PEs in y", low=1),
        KernelParam("nz", 100, int, "cells in z", low=1, high=32000),
        KernelParam("steps", 4, int, "steps", low=1, high=65535),
        KernelParam(
            "radius", 4, int, "cells on each side; 4 is the 25-point stencil; for 1 see stencil", low=1, high=4
        ),
        KernelParam("dtype", "f32", str, "format", ("f16", "f32")),
        *data_params(),
    ],
)
def stencil25(
    machine: Machine, width: int, height: int, nz: int, steps: int, radius: int, dtype: str, seed: int, data: str
) -> dict[str, Any]:
    """Run the kernel `stencil25`; see the head of this module."""
    if radius == 1:
        raise ConfigError("radius 1 has 7 points and a kernel of its own", where="radius", hint="wse kernel stencil")
    layout = Layout(width, height, machine)
    arithmetic = Arithmetic.of(machine, dtype)
    ways = directions(width, height, radius, -(-nz // 2) if dtype == "f16" else nz)
    factors = arithmetic.encode(weights(radius))
    parts = [(way.line, [way.plan(k) for k in range(len(way.line))]) for way in ways]

    def build(nz: int, plans: Sequence[SidePlan | None]) -> Program:
        return _program(machine, nz, steps, dtype, factors, ways, plans)

    most = tuple(tuple((k - turn) % (radius + 1) for turn in range(radius + 1)) for k in range(4))
    fit("kernel stencil25", machine, lambda nz: build(nz, most), {"nz": nz}, {"nz": (1, nz)})
    compose(layout, parts, lambda plans: build(nz, plans))
    for way in ways:
        way.routes(layout)
    u = arithmetic.random(np.random.default_rng(seed), (height, width, nz), data, terms=(6 * radius + 1) * steps)
    session = Session(
        layout,
        [("u", np.pad(u, ((0, 0), (0, 0), (radius, radius))), 0, 0)],
        expected=lambda: expected_cycles(machine, u.shape, dtype, radius, ways, steps),
    )
    got = session.read("u", 0, 0, width, height)[:, :, radius:-radius]

    def compare() -> Check:
        values, exact = arithmetic.operand(u), arithmetic.decode(factors)
        with np.errstate(all="ignore"):
            plain, magnitude = _plain(values, exact, steps), _plain(np.abs(values), np.abs(exact), steps)
        return check_sum(
            arithmetic, got, reference(arithmetic, u, factors, ways, steps), plain, magnitude, (6 * radius + 1) * steps
        )

    check = compared(compare)
    first, last = session.stamps(0, 0, width, height)
    cycles = int((last - first).max())
    return report(
        session,
        check,
        cycles,
        expected_cycles=expected_cycles(machine, u.shape, dtype, radius, ways, steps),
        expected_hops=steps * sum(way.hops for way in ways),
        expected_macs=steps * nz * (2 * radius * width * height + sum(way.pairs for way in ways)),
        lanes=4 if dtype == "f16" else 1,
        cycles_per_step=cycles / steps,
        arrays={"u": got},
    )
