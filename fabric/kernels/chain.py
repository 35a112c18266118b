"""Chain reduce: the sum of a vector over a row of PEs, ending in the westernmost one.

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

import numpy as np

from fabric.kernels import common
from fabric.kernels.kernel import KernelParam, kernel
from fabric.layout import Layout
from fabric.program import Program
from wse_core import isa
from wse_core.errors import ConfigError

__all__ = ["COLORS", "chain_layout", "chain_places", "chain_reduce", "stage_cycles"]

COLORS = (0, 1)  # sent by even and by odd columns
QUEUE = 2  # input and output: the deepest output queue


def reduce_program(role, parity, n, dtype, sums, machine):
    """Return the program of one role: ``first`` (easternmost), ``middle``, ``last`` or ``only``."""
    half = "cb16" if dtype == "cb16" else "f16"
    p = Program(f"chain reduce {role}, {'odd' if parity else 'even'} column", machine, half=half)
    mixed = dtype != sums
    x = p.array("x", n, dtype)
    total = p.array("total", n, sums) if mixed and role in ("last", "only") else x
    stamps = common.Stamps(p)
    if role in ("middle", "last"):
        arriving = p.fabin(p.input_queue(QUEUE, COLORS[1 - parity]), n)
    if role in ("first", "middle"):
        leaving = p.fabout(p.output_queue(QUEUE, COLORS[parity]), n)
    add = p.fadds if sums == "f32" and not mixed else p.faddhs if mixed else p.faddh
    move = p.fh2s if mixed else p.mov32 if sums == "f32" else p.mov16
    with p.task("main"):
        stamps.start()
        if role == "first":
            move(leaving, x)
        elif role == "middle":
            add(leaving, x, arriving)
        elif role == "last":
            add(total, x, arriving)
        elif mixed:
            move(total, x)
        stamps.stop()
    p.assemble()
    return p


def chain_places(pes):
    """Return (role, parity of the columns, first column, columns) of the PEs of a chain; steps of two columns."""
    if pes == 1:
        return [("only", 0, 0, 1)]
    inner = [("middle", x % 2, x, pes - 1 - x) for x in (1, 2) if x < pes - 1]
    return [("last", 0, 0, 1), ("first", (pes - 1) % 2, pes - 1, 1), *inner]


def chain_layout(pes, n, dtype, sums, machine):
    """Return the `Layout` of a chain over a row of `pes` PEs."""
    layout = Layout(pes, 1, machine)
    places = chain_places(pes)

    def build(n):
        return [reduce_program(role, parity, n, dtype, sums, machine) for role, parity, *_ in places]

    programs = common.fit("kernel chain_reduce", machine, build, {"n": n}, {"n": (1, n)})
    for program, (_, _, x, w) in zip(programs, places, strict=True):
        layout.place(program, (x, 0, w, 1, 2, 1))
    for x in (1, 2):  # senders
        if x < pes:
            layout.route(COLORS[x % 2], (x, 0, pes - x, 1, 2, 1), rx="R", tx="W")
    for x in (0, 1):  # receivers
        if x < pes - 1:
            layout.route(COLORS[1 - x % 2], (x, 0, pes - 1 - x, 1, 2, 1), rx="E", tx="R")
    return layout


def stage_cycles(machine):
    """Return the latency that one more PE of a chain adds [cycles]."""
    return machine["ramp.in"] + machine["ramp.execute"] + machine["ramp.out"] + machine["router.hop"]


def expected_cycles(pes, wavelets, machine, mixed=False):
    """Return the cycles between the time stamps of PE 0: the formula of the module's head, for any machine.

    A PE can take its first step once it has loaded its descriptors; a chain of short latency waits for that.  One PE
    alone converts its data to the format of the sums, if that is another, at the rate of `fh2s`.
    """
    def ready(loads):
        return machine["ce.tsc_read"] + loads * machine["ce.dsr_load"] + 1 + machine["vec.start"]

    if pes == 1 and not mixed:
        return machine["ce.tsc_read"]
    if pes == 1:
        wavelets = -(-wavelets // isa.BY_NAME["fh2s"].lanes[machine.preset != "wse2"])
    first = ready(2)
    for k in range(pes - 1):
        first = max(first + stage_cycles(machine), ready(2 + mixed) if k == pes - 2 else ready(3))
    return first + wavelets + machine["vec.drain"]


@kernel("chain_reduce", "sum of a vector over a row of PEs by a chain of fused additions",
        "Luczynski et al., HPDC 2024, arXiv 2404.15888: 512 PEs x 4,096 f32 take 7,218 cycles", [
            KernelParam("pes", 512, int, "PEs in the row", low=1),
            KernelParam("n", 4096, int, "elements on each PE", low=1),
            KernelParam("dtype", "f32", str, "format of the data", ("f16", "cb16", "f32")),
            KernelParam("sums", "auto", str, "format of the sums: that of the data, or f32 for 16-bit data",
                        ("auto", "f16", "cb16", "f32")),
            *common.data_params(),
        ])
def chain_reduce(machine, pes, n, dtype, sums, seed, data):
    """Run the kernel `chain_reduce`; see the head of this module."""
    sums = dtype if sums == "auto" else sums
    if sums not in (dtype, "f32"):
        raise ConfigError(f"{dtype} data cannot be summed in {sums}", where="kernel chain_reduce: sums",
                          hint=f"{dtype} or f32" if dtype != "f32" else "f32", value=sums)
    mixed = sums != dtype
    given, result = common.Arithmetic.of(machine, dtype), common.Arithmetic.of(machine, sums)
    x = given.random(np.random.default_rng(seed), (1, pes, n), data, terms=pes)
    session = common.Session(chain_layout(pes, n, dtype, sums, machine), [("x", x, 0, 0)])
    total = session.read("total" if mixed else "x")[0, 0]
    first, last = session.stamps()

    rows = list(x[0])
    if mixed:
        expected = np.asarray(common.numerics.convert(rows[-1], dtype, "f32", given.bias, given.ftz))
        for row in rows[-2::-1]:
            expected = given.call("add_mixed", row, expected)
    else:
        expected = common.sequential_sum(given, rows)
    values = given.decode(x[0]) if pes == 1 and not mixed else given.operand(x[0])
    with np.errstate(invalid="ignore"):
        plain = values.sum(axis=0)
    check = common.check_sum(result, total, expected, plain, np.abs(values).sum(axis=0), pes - 1)
    wavelets = -(-n // 2) if sums != "f32" else n
    return common.report(
        session, check, (last - first)[0, 0], expected_cycles=expected_cycles(pes, wavelets, machine, mixed),
        expected_hops=2 * (pes - 1) * wavelets, expected_macs=0,
        published_form=wavelets + (2 * machine["ramp.in"] + 2) * (pes - 1), additions=(pes - 1) * n,
        cycles_per_stage=stage_cycles(machine), arrays={"total": total})
