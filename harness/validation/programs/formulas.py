"""R15 compares closed forms of published models with our kernels that do the same.

Reduce-then-broadcast is taken with the chain, the general form with a gather, and the form of a SUMMA with hand-written
multicast with the products of recipe R8, without the broadcasts (120 cycles per step in the formula).  The points have
no sizes of their own, so P = 64 PEs with B = 256 words are taken (128 for a gather: all must fit into one PE), or what
the point says.  A formula counts from the first step to the last; a kernel's interval has start and end of its program
besides, some 20 cycles, and that of a gather the copy of the own vector.

Sources: Luczynski et al., HPDC 2024, arXiv 2404.15888; Wang-oss-tech/csl-experiments for the SUMMA.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fabric.kernels import registry
from fabric.kernels.collectives import costs
from harness.validation.programs import summa_multicast
from harness.validation.recipe import CannotRun, Measurement, Point, Tell, integer, recipe
from wse_core.params import Machine

__all__ = ["FORMULAS", "SUMMA", "sizes"]

SUMMA = (4, 14)
"""The author of the formula of a whole SUMMA has checked it at this P and this side of the tiles."""


def _gather(p: int, b: int, s: int, wire: costs.Wire) -> float:
    """Return the general form for a gather, which has none of its own: P - 1 vectors through one ramp."""
    return costs.general((p - 1) * b, b * p * (p - 1) / 2, p - 1, p - 1, 1, wire)


def _line(p: int, b: int, s: int) -> dict[str, Any]:
    return {"form": "row", "width": p, "height": 1, "n": b, "dtype": "f32"}


FORMULAS: dict[str, tuple[Callable[..., float], str, Callable[[int, int, int], dict[str, Any]]]] = {
    "chain reduce": (
        lambda p, b, s, wire: costs.chain(p, b, wire),
        "reduce",
        lambda p, b, s: _line(p, b, s) | {"algorithm": "chain"},
    ),
    "star reduce": (
        lambda p, b, s, wire: costs.star(p, b, wire),
        "reduce",
        lambda p, b, s: _line(p, b, s) | {"algorithm": "star"},
    ),
    "binary tree reduce": (
        lambda p, b, s, wire: costs.tree(p, b, wire),
        "reduce",
        lambda p, b, s: _line(p, b, s) | {"algorithm": "tree"},
    ),
    "two-phase reduce": (
        costs.two_phase,
        "reduce",
        lambda p, b, s: _line(p, b, s) | {"algorithm": "two_phase", "group": s},
    ),
    "1-d flood broadcast": (
        lambda p, b, s, wire: costs.broadcast(p, b, wire),
        "broadcast",
        lambda p, b, s: {"shape": "row", "width": p, "height": 1, "n": b, "dtype": "f32"},
    ),
    "2-d broadcast": (
        lambda p, b, s, wire: costs.broadcast_2d(p, p, b, wire),
        "broadcast",
        lambda p, b, s: {"shape": "2d", "width": p, "height": p, "n": b, "dtype": "f32"},
    ),
    "reduce-then-broadcast": (
        lambda p, b, s, wire: costs.reduce_broadcast("chain", p, b, wire),
        "allreduce",
        lambda p, b, s: _line(p, b, s) | {"algorithm": "chain"},
    ),
    "ring allreduce": (
        lambda p, b, s, wire: costs.ring(p, b, wire),
        "allreduce",
        lambda p, b, s: _line(p, b, s) | {"algorithm": "ring"},
    ),
    "general cost of a 1-d collective": (_gather, "gather", _line),
}
"""A workload that begins so has these: formula of P, B, S and the wire; kernel; its parameters."""


def sizes(point: Point, words: int = 256) -> tuple[int, int, int]:
    """Return P, B and S of a point: PEs, words and PEs per group, or what is taken if it does not say."""
    params = point["params"]
    p = integer(params, "P", 64)
    return p, integer(params, "B", words), integer(params, "S", max(1, math.isqrt(p)))


@recipe(
    "R15",
    ("formula",),
    "closed forms of published models against our kernels",
    ("formula", "P", "B", "S", "tile", "dtype"),
)
def formula(machine: Machine, point: Point, progress: Tell) -> Measurement:
    """Run the kernel that the formula is about."""
    name, params = point.get("workload", "").lower(), point["params"]
    if name.startswith("summa with hand-written multicast"):
        p, t = integer(params, "P", SUMMA[0]), integer(params, "tile", SUMMA[1])
        a, b = np.random.default_rng(t).standard_normal((2, t, t)).astype(np.float32)
        return Measurement(
            summa_multicast.products(machine, t, p, a, b)[0],
            f"products of one PE, P = {p}, tiles of {t}",
            costs.summa(p, t, t, t),
        )
    found = next((entry for start, entry in FORMULAS.items() if name.startswith(start)), None)
    if found is None:
        raise CannotRun("a formula without a kernel of its own; its parts are compared elsewhere")
    evaluate, kernel, arguments = found
    p, b, s = sizes(point, 128 if found[1] == "gather" else 256)
    entry = registry.KERNELS.get(kernel)
    wanted = arguments(p, b, s)
    choices = {param.name: param.choices for param in entry.params} if entry else {}
    if entry is None or any(
        key not in choices or (choices[key] and value not in choices[key]) for key, value in wanted.items()
    ):
        raise CannotRun(f"there is no kernel {kernel} that does it")
    result = entry.run(machine, **wanted)
    return Measurement(
        result["cycles"], f"kernel {kernel}, P = {p}, B = {b}", evaluate(p, b, s, costs.Wire.of(machine))
    )
