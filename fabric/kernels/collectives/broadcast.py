"""A flood broadcast takes a vector of one PE to all PEs of its row, of its column, or of the whole rectangle.

What moves
    ``row``: the first PE of every row sends n elements east; routers pass them on and drop a copy to their own CE in
    the same cycle.  ``column``: the same, south.  ``2d``: PE (0, 0) sends; the routers of row 0 pass everything both
    east and south, the others south.  The CEs on the way only receive.

Colors and queues
    One color, input queue 2, output queue 2.  One input per router: no collisions possible.

Formats
    f32: one element per wavelet; f16 and cb16: two.  Bits are copied, NaNs with their payload.

Cycles
    All PEs start together, descriptors are loaded before the first time stamp.  From the stamp of the sender to the
    latest second stamp of a receiver, with W wavelets and the farthest PE D hops away,

        cycles = ce.tsc_read + W + 1 + vec.start + D * router.hop + ramp.execute + ramp.out + ramp.in + vec.drain

    that is W + D + 11 on wse2; where hops or ramps take longer than their buffers cover, `timing.train` stands for W.
    Published forms: B + P + 2 T_R along a row of P, and B + M + N - 2 + 2 T_R + 1 over M x N, without the time stamps.

Sources
    Luczynski et al., HPDC 2024, arXiv 2404.15888, broadcast.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fabric.kernels.collectives.pieces.flood import flood_line, flood_rectangle
from fabric.kernels.collectives.pieces.lines import Line
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
from wse_core.formats import Arithmetic
from wse_core.params import Machine

__all__ = ["broadcast", "expected_cycles"]

COLOR, QUEUE = 4, 2


def expected_cycles(wavelets: int, distance: int, machine: Machine) -> int:
    """Return the cycles from the sender's first to the latest last time stamp: the formula of the module's head."""
    m = machine
    if not distance:
        return m["ce.tsc_read"]
    return m["ce.tsc_read"] + timing.operation(m, timing.way(m, distance) + timing.train(m, wavelets, QUEUE, QUEUE))


def program(role: str, n: int, dtype: str, machine: Machine) -> Program:
    """Return the program of a ``sender``, a ``receiver``, or of a PE that is ``alone``."""
    p = Program(f"broadcast {role}", machine, half="cb16" if dtype == "cb16" else "f16")
    x = p.array("x", n, dtype)
    stamps = Stamps(p)
    move = p.mov32 if dtype == "f32" else p.mov16
    pair = (p.dsr("dest"), p.dsr("src1")) if role != "alone" else None
    if role == "sender":
        leaving, walk = p.fabout(p.output_queue(QUEUE, COLOR), n), p.mem1d(x)
    elif role == "receiver":
        leaving, walk = p.mem1d(x), p.fabin(p.input_queue(QUEUE, COLOR), n)
    with p.task("main"):
        if pair is not None:
            p.load(pair[0], leaving)
            p.load(pair[1], walk)
        stamps.start()
        if pair is not None:
            move(*pair)
        stamps.stop()
    p.assemble()
    return p


def broadcast_layout(shape: str, width: int, height: int, n: int, dtype: str, machine: Machine) -> Layout:
    """Return the `Layout`; senders are column 0 (``row``), row 0 (``column``) or PE (0, 0) (``2d``)."""
    layout = Layout(width, height, machine)

    roots = {"row": (0, 0, 1, height), "column": (0, 0, width, 1), "2d": (0, 0, 1, 1)}[shape]
    w, h = roots[2], roots[3]
    roles = ("alone",) if (w, h) == (width, height) else ("sender", "receiver")
    sender, *receivers = fit(
        "kernel broadcast",
        machine,
        lambda n: [program(role, n, dtype, machine) for role in roles],
        {"n": n},
        {"n": (1, n)},
    )
    layout.place(sender, roots)
    if not receivers:
        return layout
    receiver = receivers[0]
    if w < width:
        layout.place(receiver, (w, 0, width - w, h))
    if h < height:
        layout.place(receiver, (0, h, width, height - h))
    if shape == "2d":
        flood_rectangle(layout, COLOR, width, height)
    else:
        flood_line((Line.rows if shape == "row" else Line.columns)(width, height), layout, COLOR)
    return layout


@kernel(
    "broadcast",
    "a vector to all PEs of a row, of a column, or of a rectangle, copied by the routers",
    "Luczynski et al., HPDC 2024, arXiv 2404.15888: flood broadcast",
    [
        KernelParam(
            "shape", "2d", str, "along every row, along every column, or from PE (0, 0) to all", ("row", "column", "2d")
        ),
        KernelParam("width", 32, int, "PEs along x", low=1),
        KernelParam("height", 32, int, "PEs along y", low=1),
        KernelParam("n", 1024, int, "elements", low=1),
        KernelParam("dtype", "f32", str, "format", ("f16", "cb16", "f32")),
        *data_params(),
    ],
)
def broadcast(
    machine: Machine, shape: str, width: int, height: int, n: int, dtype: str, seed: int, data: str
) -> dict[str, Any]:
    """Run the kernel `broadcast`; see the head of this module."""
    arithmetic = Arithmetic.of(machine, dtype)
    layout = broadcast_layout(shape, width, height, n, dtype, machine)
    senders = {"row": (1, height), "column": (width, 1), "2d": (1, 1)}[shape]
    x = arithmetic.random(np.random.default_rng(seed), (senders[1], senders[0], n), data)
    session = Session(layout, [("x", x, 0, 0)])
    got = session.read("x", 0, 0, width, height)

    def compare() -> Check:
        return check_sum(arithmetic, got, np.broadcast_to(x, got.shape), None, None, 0)

    check = compared(compare)
    wavelets = -(-n // 2) if arithmetic.words == 1 else n
    distance = {"row": width - 1, "column": height - 1, "2d": width + height - 2}[shape]
    starts, stops = session.stamps(0, 0, width, height)
    published = wavelets + 2 * machine["ramp.in"] + (distance + 1)
    return report(
        session,
        check,
        stops.max() - starts[0, 0] if distance else (stops - starts).max(),
        expected_cycles=expected_cycles(wavelets, distance, machine),
        expected_hops=wavelets * width * height if distance else 0,
        expected_macs=0,
        published_form=published,
        arrays={"x": got} if got.nbytes <= 1 << 24 else {},
    )
