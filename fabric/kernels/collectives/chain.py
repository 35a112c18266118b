"""A chain reduce is the sum of a vector over a row of PEs, ending in the westernmost one.

What moves
    Each PE holds n elements.  The easternmost PE sends its vector west; every other PE adds its own vector to what
    arrives, element by element, and sends the partial sums on while they arrive: one fused operation
    ``out[k] = x[k] + in[k]`` from fabric to fabric.  PE 0 keeps the sum.

Colors and queues
    Two colors, alternating by column parity: even columns send on color 0 and receive on color 1, odd ones the other
    way round.  Input queue 2 and output queue 2 throughout.  No switches, no control wavelets, no collisions possible:
    each color has one input per router.

Order of additions (bit exact)
    s = x[P-1]; s = x[c] + s for c = P-2 .. 0.  With ``sums=f32`` and 16-bit data: s = f32(x[P-1]); s = x[c] + s, one
    rounding to f32 per addition (faddhs).

Formats
    f32: one element per wavelet.  f16 and cb16: two per wavelet, summed in 16 bits, or, with ``sums=f32``, one f32
    partial sum per wavelet.

Cycles
    One wavelet per cycle passes every PE, and every PE adds the latency of one dependent stage: down the ramp
    (`ramp.in`), the addition (`ramp.execute`), up the ramp (`ramp.out`), one hop (`router.hop`), 6 in all.  With W
    wavelets, all PEs starting together, PE 0 measures between two time stamps around loading its descriptors and its
    operation

        cycles = W + (ramp.in + ramp.execute + ramp.out + router.hop) * (P - 1) + start

    where start is what the first PE needs to get going, later than PE 0's first time stamp: 18 here.  Published: the
    form B + (2 T_R + 2)(P - 1) with T_R = 2, and 7,218 cycles for 512 PEs and 4,096 elements on the machine.

Sources
    Luczynski et al., Near-Optimal Wafer-Scale Reduce, HPDC 2024 (arXiv 2404.15888).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fabric.kernels.collectives.pieces import trees
from fabric.kernels.collectives.pieces.line_reduce import Reduce, Role
from fabric.kernels.collectives.pieces.lines import Line, compose
from fabric.kernels.collectives.pieces.sums import format_params, pick_sums
from fabric.kernels.kit.check import Check, check_sum, sequential_sum
from fabric.kernels.kit.data import data_params
from fabric.kernels.kit.kernel import KernelParam, kernel
from fabric.kernels.kit.report import report
from fabric.kernels.kit.session import Session, Stamps
from fabric.kernels.kit.sizes import fit
from fabric.kernels.kit.verify import compared
from fabric.layout.layout import Layout
from fabric.price import timing
from fabric.program.program import Program
from wse_core import numerics
from wse_core.formats import Arithmetic
from wse_core.params import Machine

__all__ = ["COLORS", "chain_layout", "chain_piece", "chain_reduce"]

COLORS = (0, 1)  # sent by even and by odd columns
QUEUE = 2  # input and output: the deepest output queue


def chain_piece(pes: int, n: int, dtype: str, sums: str) -> Reduce:
    """Return the `Reduce` of a chain over a row of `pes` PEs."""
    return Reduce(Line.rows(pes, 1), trees.chain(pes), COLORS[::-1], n, dtype, sums, QUEUE)


def chain_layout(pes: int, n: int, dtype: str, sums: str, machine: Machine) -> Layout:
    """Return the `Layout` of a chain over a row of `pes` PEs."""
    piece = chain_piece(pes, n, dtype, sums)

    def program(n: int, role: Role) -> Program:
        place = "only" if pes == 1 else "last" if role.out is None else "middle" if role.messages else "first"
        parity = COLORS.index(role.out) if role.out is not None else 0
        p = Program(
            f"chain reduce {place}, {'odd' if parity else 'even'} column",
            machine,
            half="cb16" if dtype == "cb16" else "f16",
        )
        x = p.array("x", n, dtype)
        total = p.array("total", n, sums) if piece.needs_total(role) else x
        stamps = Stamps(p)
        with p.task("main"):
            stamps.start()
            chain_piece(pes, n, dtype, sums).emit(p, role, x, total)
            stamps.stop()
        p.assemble()
        return p

    roles = piece.roles()
    programs = fit(
        "kernel chain_reduce",
        machine,
        lambda n: {role: program(n, role) for role in dict.fromkeys(roles)},
        {"n": n},
        {"n": (1, n)},
    )
    layout = Layout(pes, 1, machine)
    compose(layout, [(piece.line, roles)], lambda roles: programs[roles[0]])
    piece.routes(layout)
    return layout


@kernel(
    "chain_reduce",
    "sum of a vector over a row of PEs by a chain of fused additions",
    "Luczynski et al., HPDC 2024, arXiv 2404.15888: 512 PEs x 4,096 f32 take 7,218 cycles",
    [
        KernelParam("pes", 512, int, "PEs in the row", low=1),
        KernelParam("n", 4096, int, "elements on each PE", low=1),
        *format_params(),
        *data_params(),
    ],
)
def chain_reduce(machine: Machine, pes: int, n: int, dtype: str, sums: str, seed: int, data: str) -> dict[str, Any]:
    """Run the kernel `chain_reduce`; see the head of this module."""
    sums = pick_sums(dtype, sums, "kernel chain_reduce")
    mixed = sums != dtype
    given, result = Arithmetic.of(machine, dtype), Arithmetic.of(machine, sums)
    x = given.random(np.random.default_rng(seed), (1, pes, n), data, terms=pes)
    session = Session(chain_layout(pes, n, dtype, sums, machine), [("x", x, 0, 0)])
    total = session.read("total" if mixed else "x")[0, 0]
    first, last = session.stamps()

    def compare() -> Check:
        rows = list(x[0])
        if mixed:
            expected = np.asarray(numerics.convert(rows[-1], given.fmt, "f32", given.bias, given.ftz))
            for row in rows[-2::-1]:
                expected = given.call("add_mixed", row, expected)
        else:
            expected = sequential_sum(given, rows)
        values = given.decode(x[0]) if pes == 1 and not mixed else given.operand(x[0])
        with np.errstate(invalid="ignore"):
            plain = values.sum(axis=0)
        return check_sum(result, total, expected, plain, np.abs(values).sum(axis=0), pes - 1)

    check = compared(compare)
    wavelets = -(-n // 2) if sums != "f32" else n
    expected_cycles = chain_piece(pes, n, dtype, sums).end(machine["ce.tsc_read"], machine)
    return report(
        session,
        check,
        (last - first)[0, 0],
        expected_cycles=expected_cycles,
        expected_hops=2 * (pes - 1) * wavelets,
        expected_macs=0,
        published_form=wavelets + (2 * machine["ramp.in"] + 2) * (pes - 1),
        additions=(pes - 1) * n,
        cycles_per_stage=timing.stage(machine),
        arrays={"total": total},
    )
