"""The seven-point stencil in three dimensions has one column of nz cells per PE, repeated steps, zeros around.

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
    Between two readings on each PE, before the first and after the last step; the largest difference counts.  A step of
    a PE with k neighbours has three parts (`expected_cycles`):

    * *Exchange*: the task loads two descriptors for each receive and for the send.  Transfers share the slots of the
      datapath, one wavelet a cycle: what begins at a time, and all that begins later, takes as many cycles as it has
      wavelets.  A column arrives one way after its neighbour began to send it.
    * *Counting*: a task per completion.  Transfers go before the main thread, so that while they have data no task
      runs; k + 1 tasks come behind them, one after the other.
    * *Computation*: 1 + 2 + k operations and a copy, each with its descriptors, as `basic.vector` says.

    PEs at the edge have fewer neighbours and are done earlier, and then wait for their neighbours' next columns; so all
    PEs are followed from step to step, until they go through their steps evenly (`EVEN` steps).

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
from fabric.kernels.basic import vector
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
from wse_core.formats import Arithmetic, Bits
from wse_core.params import Machine

__all__ = ["C0", "C1", "expected_cycles", "reference", "stencil"]

C0, C1 = 0.25, 0.125
"""A cell and its six neighbours have these weights."""
STEP = {"W": (-1, 0), "E": (1, 0), "N": (0, -1), "S": (0, 1)}
OPPOSITE = dict(zip("WENS", "EWSN", strict=True))
TASKS = {
    "main": 24,
    "exchange": 25,
    "compute": 22,
    "count": 26,
    "count W": 27,
    "count E": 28,
    "count N": 30,
    "count S": 23,
}
"""Ids of the tasks: fixed, so that the traces of all PEs name them alike, whatever neighbours a PE has."""


EVEN = 24
"""Steps after which PEs follow one another evenly; further ones take as long as the last few did on average."""
U_BANK, V_BANK = 0, 2


def _color(x: int, y: int) -> int:
    return (x + 2 * y) % 5


def _program(
    machine: Machine, nz: int, steps: int, dtype: str, color: int, near: tuple[tuple[str, int], ...]
) -> Program:
    """Return the program of a PE; `near` is ((direction, color), ...) of its neighbours."""
    p = Program(f"stencil, color {color}, neighbours {''.join(d for d, _ in near) or 'none'}", machine)
    u, v = p.array("u", nz + 2, dtype, bank=U_BANK), p.array("v", nz, dtype, bank=V_BANK)
    halo = {d: p.array(f"from {d}", nz, dtype, bank=U_BANK) for d, _ in near}
    stamps = Stamps(p)
    half = dtype == "f16"
    move, multiply, multiply_add = (p.fmovh, p.fmulh, p.fmach) if half else (p.fmovs, p.fmuls, p.fmacs)
    pending, left = p.reg16("pending"), p.reg16("left")
    weights = [p.reg16("weight") if half else p.reg32("weight") for _ in range(2)]
    into = {d: p.fabin(p.input_queue(1 + "WENS".index(d), c), nz) for d, c in near}
    with p.task("main", id=TASKS["main"]):
        p.ldi(left, steps)
        for weight, value in zip(weights, (C0, C1), strict=True):
            (p.ldi if half else p.ldi32)(weight, int(np.float16(value).view(np.uint16)) if half else value)
        stamps.store(0)
        p.activate("exchange")
    with p.task("exchange", id=TASKS["exchange"]):
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
    with p.task("compute", id=TASKS["compute"]):
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
        with p.task(name, id=TASKS[name]):
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


def _shared(
    begin: np.ndarray, due: np.ndarray, came: np.ndarray, work: np.ndarray, issue: int, rate: np.ndarray
) -> tuple:
    """Follow the exchange task and the transfers that it starts, which share the slots of the datapath.

    Transfers that can go on take turns; the main thread goes on when they leave slots.

    Parameters
    ----------
    begin : ndarray, shape (height, width)
        First instruction of the task.
    due : ndarray, shape (jobs, height, width)
        Cycles of the task until it issues each transfer, if nothing is in its way.
    came : ndarray, shape (jobs, height, width)
        When the first wavelet of a transfer is there.
    work : ndarray, shape (jobs, height, width)
        Wavelets; 0 for what does not exist.
    issue : int
        From the issue of a transfer to its first step.
    rate : ndarray, shape (jobs, 1, 1)
        Most wavelets per cycle of a transfer.

    Returns
    -------
    first, done : ndarray, shape (jobs, height, width)
        First step of each transfer, and when the datapath is done with it.
    idle : ndarray, shape (height, width)
        Cycles behind the task in which transfers left slots.
    """
    left, now, main = work.astype(float), begin.astype(float), np.zeros(begin.shape)
    issued, done, idle = np.full(work.shape, np.inf), np.zeros(work.shape), np.zeros(begin.shape)
    for _ in range(4 * len(work)):
        waits = (left > 0) & np.isinf(issued)
        first = np.maximum(issued + issue, came)
        active = (first <= now) & (left > 0)
        share = active.sum(axis=0)
        each = np.minimum(rate, 1 / np.maximum(share, 1))  # wavelets per cycle of those that go on
        full = (active * rate).sum(axis=0) >= 1
        span = np.where(active, left / each, np.inf).min(axis=0)
        span = np.minimum(span, np.where((first > now) & (left > 0), first, np.inf).min(axis=0) - now)
        ahead = np.where(waits, due, np.inf).min(axis=0) - main
        span = np.minimum(span, np.where(full, np.inf, ahead))
        span = np.where(np.isfinite(span), span, 0.0)
        main += np.where(full, 0.0, span)
        idle += np.where(full | waits.any(axis=0), 0.0, span)
        left = np.where(active, left - span * each, left)
        now = now + span
        issued = np.where(waits & (main >= due - 1e-6), now, issued)
        ended = active & (left < 1e-6)
        left[ended] = 0
        done = np.where(ended, now, done)
    return np.maximum(issued + issue, came), done, idle


def _transferred(m: Machine, begin: np.ndarray, near: np.ndarray, wavelets: int) -> tuple[np.ndarray, np.ndarray]:
    """Return when the last transfer is done, and how long the main thread had nothing before it.

    Parameters
    ----------
    m : Machine
    begin : ndarray, shape (height, width)
        When the picker chooses the exchange task.
    near : ndarray of bool, shape (4, height, width)
        Whether there is a neighbour to the west, east, north, south.
    wavelets : int
        Of a column.
    """
    start, loads = begin + m["task.start"], timing.load(m, 2)
    receives = 1 + np.cumsum(near * (loads + 1), axis=0) - 1
    due = np.concatenate([receives, (receives[-1] + 1 + loads)[np.newaxis]])  # the send is the last
    work = np.concatenate([near, near.max(axis=0, keepdims=True)]) * wavelets
    own = np.full((1, *begin.shape), -np.inf)

    def from_neighbour(values: np.ndarray) -> np.ndarray:
        return np.array([np.roll(values, (-dy, -dx), (0, 1)) for dx, dy in STEP.values()]) + timing.way(m, 1)

    train = np.array([timing.train(m, wavelets, 1 + k, 0) for k in range(4)])[:, np.newaxis, np.newaxis]
    rate = wavelets / np.concatenate([train, train.max(axis=0, keepdims=True)])
    sends = start + due[-1] + timing.issue(m)
    for _ in range(3):  # a neighbour's send may itself wait for what arrives there
        came = from_neighbour(sends)
        first, done, idle = _shared(start, due, np.concatenate([came, own]), work, timing.issue(m), rate)
        sends = np.where(near.any(axis=0), first[-1], 0)
    # The last wavelet of a column comes a way after it was sent, and after what the slowest queue has let through.
    whole = np.maximum(from_neighbour(done[-1]), came + train)
    last = np.maximum(done.max(axis=0), np.where(near, whole, 0).max(axis=0))
    return np.maximum(last, sends), idle + last - done.max(axis=0)


def expected_cycles(machine: Machine, width: int, height: int, nz: int, dtype: str, steps: int) -> int:
    """Return the cycles between the two readings of the last PE: every PE followed from step to step."""
    m, half = machine, dtype == "f16"
    words, wavelets = 1 if half else 2, -(-nz // 2) if half else nz
    move, multiply, fma = (
        isa.BY_NAME[name] for name in (("fmovh", "fmulh", "fmach") if half else ("fmovs", "fmuls", "fmacs"))
    )
    y, x = np.mgrid[:height, :width]
    near = np.array([(x + dx >= 0) & (x + dx < width) & (y + dy >= 0) & (y + dy < height) for dx, dy in STEP.values()])
    count = near.sum(axis=0)

    def operate(op: isa.Op, to: int, *read: int) -> int:
        at = vector.expected_cycles(op, nz, 1, m, (to, words), [(address, words) for address in read])
        return timing.load(m, 2) + at - m["ce.tsc_read"]

    taken, on = m["ce.branch_taken"], m["ce.branch_not_taken"]
    compute = operate(multiply, V_BANK, U_BANK + words) + operate(move, U_BANK + words, V_BANK) + 1
    compute += sum(operate(fma, V_BANK, V_BANK, U_BANK + shift * words) for shift in (0, 2))
    compute = compute + count * operate(fma, V_BANK, V_BANK, U_BANK)
    counted = m["task.start"] + 1 + taken + 1  # a completion that is not the last; the last one goes on instead
    begin = np.full((height, width), timing.stamp(m) + 2)
    ends = []
    for _ in range(min(steps, EVEN)):
        last, idle = _transferred(m, begin, near, wavelets)
        early = np.minimum(idle, count * counted)  # tasks that count while nothing arrives
        counts = (count + 1) * counted - early - taken + on + 1
        alone = begin + m["task.start"] + 2
        now = np.where(count, last + counts, alone) + m["task.start"] + compute
        ends.append(now + taken)
        begin = now + on + 1 + taken + 1
    total = float(ends[-1].max())
    if steps > EVEN:
        total += (steps - EVEN) * float(ends[-1].max() - ends[EVEN // 2 - 1].max()) / (EVEN - EVEN // 2)
    return round(total)


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
    wavelets, lanes = (-(-nz // 2), 4) if dtype == "f16" else (nz, 1)
    senders = width * height if pairs else 0
    return report(
        session,
        check,
        (last - first).max(),
        expected_cycles=expected_cycles(machine, width, height, nz, dtype, steps),
        expected_hops=steps * wavelets * (senders + 2 * pairs),
        expected_macs=steps * nz * (2 * width * height + 2 * pairs),
        lanes=lanes,
        cycles_per_step=float((last - first).max() / steps),
        arrays={"u": got},
    )
