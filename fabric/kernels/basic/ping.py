"""One wavelet is sent over a number of hops, with a time stamp at every PE that it passes.

What moves
    PE 0 of a row (or column) sends one 32-bit wavelet.  The routers pass it on and, in the same cycle, drop a copy to
    their own CE, so that each PE on the way notes when its data task begins.  One wavelet, one color, no switches.

Cycles
    From the issue of the send to the first instruction of the task that the wavelet starts, `hops` routers further:

        cycles = 1 + vec.start + ramp.execute + ramp.out + hops * router.hop + ramp.in + task.start

    9 + hops on wse2.  The slope over the PEs on the way is `router.hop`: 1 on wse2, 2 on wse3.

Sources
    One hop per cycle: arch §8.4.  Ramps: Luczynski et al., HPDC 2024 (2 T_R + 1 = 5).  Task start: arch §6.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fabric.kernels.kit.check import Check
from fabric.kernels.kit.data import DATA
from fabric.kernels.kit.kernel import KernelParam, kernel
from fabric.kernels.kit.report import report
from fabric.kernels.kit.session import Session, Stamps
from fabric.kernels.kit.verify import compared
from fabric.layout.layout import Layout
from fabric.price import timing
from fabric.program.program import Program
from wse_core.errors import PlanError
from wse_core.params import Machine

__all__ = ["expected_cycles", "ping"]

COLOR, QUEUE = 3, 2
_OPPOSITE = {"E": "W", "W": "E", "N": "S", "S": "N"}


def expected_cycles(hops: int, machine: Machine) -> int:
    """Return the one-way cycles: the formula of the module's head."""
    m = machine
    return timing.issue(m) + timing.way(m, hops) + m["task.start"]


def send_program(machine: Machine) -> Program:
    """Return the program that sends ``value``; its first time stamp is sampled `ce.tsc_read` before the send issues."""
    p = Program("ping sender", machine)
    value = p.scalar("value", "u32")
    stamps = Stamps(p)
    leaving = p.fabout(p.output_queue(QUEUE, COLOR), 1)
    dest, source = p.dsr("dest"), p.dsr("src1")
    with p.task("main"):
        p.load(dest, leaving)
        p.load(source, value)
        stamps.start()
        p.mov32(dest, source)
        stamps.stop()
    return p


def receive_program(machine: Machine) -> Program:
    """Return the program whose data task stores the wavelet in ``value`` after its time stamp."""
    p = Program("ping receiver", machine)
    value = p.scalar("value", "u32")
    stamps = Stamps(p)
    p.input_queue(QUEUE, COLOR)
    with p.task("arrive", kind="data", color=COLOR) as t:
        stamps.start()
        p.st32(t.word, value)
        stamps.stop()
    return p


@kernel(
    "ping",
    "one wavelet over a number of hops, with a time stamp at every PE on the way",
    "one hop per cycle: arch §8.4; ramp latency: Luczynski et al., HPDC 2024",
    [
        KernelParam("hops", 16, int, "routers after the sender's", low=1),
        KernelParam("direction", "E", str, "where the wavelet goes", tuple(_OPPOSITE)),
        KernelParam("seed", 0, int, "seed of the payload", low=0),
        KernelParam("data", "normal", str, "payload: random bits, the number 1, or a NaN with all bits set", DATA),
    ],
)
def ping(machine: Machine, hops: int, direction: str, seed: int, data: str) -> dict[str, Any]:
    """Run the kernel `ping`; see the head of this module."""
    axis = "fabric.width" if direction in "EW" else "fabric.height"
    if hops >= machine[axis]:
        raise PlanError(
            f"{hops} hops need {hops + 1} PEs, {machine.preset} has {machine[axis]} in this direction",
            where="kernel ping: hops",
            hint=f"at most {machine[axis] - 1}",
            limit=axis.split(".")[1],
            needed=hops + 1,
            available=machine[axis],
        )
    size = (hops + 1, 1) if direction in "EW" else (1, hops + 1)
    layout = Layout(*size, machine)
    places = [(k, 0) if direction in "EW" else (0, k) for k in range(hops + 1)]
    if direction in "WN":
        places.reverse()
    came = _OPPOSITE[direction]
    first, *inner, last = places
    layout.place(send_program(machine), first)
    receiver = receive_program(machine)
    layout.route(COLOR, first, rx="R", tx=direction)
    for place in (*inner, last):
        layout.place(receiver, place)
        layout.route(COLOR, place, rx=came, tx="R" if place == last else direction + "R")
    payload = {
        "normal": np.random.default_rng(seed).integers(0, 1 << 32, dtype=np.uint32),
        "ones": np.uint32(1),
        "special": np.uint32(0xFFFFFFFF),
    }[data]
    session = Session(layout, [("value", np.full((1, 1, 1), payload), *first)])

    stamps = session.stamps(0, 0, *size)
    along = slice(None, None, -1 if direction in "WN" else 1)
    begun = stamps[0].ravel()[along]
    arrivals = begun[1:] - begun[0] - machine["ce.tsc_read"]
    got = session.read("value", 0, 0, *size).ravel()
    same = bool((got == payload).all())

    def compare() -> Check:
        return Check(
            bit_exact=same,
            within_bound=same,
            max_abs_error=float(np.abs(got.astype(np.int64) - int(payload)).max()),
            max_bound=0.0,
            n_results=hops,
            n_bounded=hops,
        )

    check = compared(compare)
    slope = round(float(np.polyfit(np.arange(1, hops + 1), arrivals, 1)[0]), 9) if hops > 1 else None
    return report(
        session,
        check,
        arrivals[-1],
        expected_cycles=expected_cycles(hops, machine),
        expected_hops=hops + 1,
        expected_macs=0,
        cycles_per_hop=slope,
        arrays={"arrivals": arrivals},
    )
