"""How long a kernel on many PEs will take, said before it is composed: from small copies of it, run on this host.

Two copies with the same work per PE on fewer PEs give, by their difference, what a PE costs to compose, write, read and
compare and how much memory it takes; the rest, mostly programs, is there once.  What is simulated is told by wavelets:
a hop costs as much as in the larger copy, and how cycles and hops of a PE grow with the side of the mesh is a line
through both.  A line overstates what grows slower, such as a tree.  The copies have at most a sixteenth of the PEs, and
are not run for kernels on fewer than `MANY`, which take seconds.  All is CPU time, which the host's other users do not
change.

A kernel says by its parameters what its mesh is (`SIDES`) and which sizes grow with it (`SIZES`); the rest, the work of
a PE, stays.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fabric.host.resident import peak_bytes, resident_bytes, restart_peak
from fabric.kernels.kit.verify import sampling
from wse_core.errors import WseError

__all__ = ["MANY", "SIDES", "SIZES", "RunEstimate", "estimate", "mesh", "scaled"]

MANY = 4096
"""Copies are run before a run of so many PEs or more."""
COPIES = (64, 16)
"""The PEs of the kernel are so many times those of a copy."""
MOST = 1024
"""The largest copy has so many PEs."""
SIDES = ("p", "pes", "width", "height")
"""These parameters are sides of the mesh."""
SIZES: dict[str, dict[str, str]] = {
    "gemv": {"m": "height", "n": "width"},
    "gemv_chain": {"m": "height", "n": "width"},
    "gemm": {"m": "height", "k": "width", "n": "width"},
    "gemm_t": {"m": "height", "k": "width", "n": "height"},
    "spmv": {"m": "height", "n": "width"},
    "ws_forward": {"inputs": "width", "outputs": "width", "tokens": "height"},
    "ws_gradient": {"inputs": "width", "outputs": "width", "tokens": "height"},
}
"""Each kernel has these sizes that are cut over the mesh, with the side that cuts them."""


@dataclass(frozen=True)
class RunEstimate:
    """A `RunEstimate` is what a run will take.

    Attributes
    ----------
    pes : int
    cycles : float
        Of the line through both copies.
    seconds : float
        Of a processor of this host, all in.
    gigabytes : float
        Of memory [2^30 bytes].
    """

    pes: int
    cycles: float
    seconds: float
    gigabytes: float


def mesh(values: Mapping[str, Any]) -> tuple[int, int]:
    """Return the PEs along x and y of a kernel's parameters."""
    if "pes" in values:
        return values["pes"], 1
    square = values.get("p", 1)
    return values.get("width") or square, values.get("height") or square


def scaled(name: str, values: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Return parameters of a copy with about `most` PEs at the most and the same work per PE."""
    width, height = mesh(values)
    factor = (most / (width * height)) ** 0.5 if min(width, height) ** 2 * most >= width * height else 0.0
    if factor:
        small = {"width": max(1, round(width * factor)), "height": max(1, round(height * factor))}
    else:  # a line stays one
        keep = min(width, height)
        small = {"width": width if width == keep else max(1, most // keep), "height": 0}
        small["height"] = height if height == keep and width != keep else max(1, most // keep)
    found = dict(values)
    if "pes" in values:
        found["pes"] = small["width"]
    for key in ("width", "height"):
        if values.get(key):
            found[key] = small[key]
    if "p" in values:
        found["p"] = small["width"]
    for key, side in SIZES.get(name, {}).items():
        whole = width if side == "width" else height
        found[key] = max(1, round(values[key] * small[side] / whole))
    return found


def estimate(
    name: str, values: Mapping[str, Any], run: Callable[[dict[str, Any]], Mapping[str, Any]]
) -> RunEstimate | None:
    """Return what a kernel will take, or None for one on few PEs, or if a copy cannot run.

    Parameters
    ----------
    name : str
    values : mapping
        All parameters.
    run : callable
        Runs the kernel with parameters and returns its result.
    """
    if not any(key in values for key in SIDES):
        return None
    width, height = mesh(values)
    pes = width * height
    if pes < MANY:
        return None
    found, asked = [], dict(values)
    sizes = [values[key] for key in SIZES.get(name, {})]
    if values.get("verify") == "auto" and sampling(math.prod(sizes[:2]), math.prod(sizes)):
        asked["verify"] = "sample"
    try:
        run(scaled(name, asked, 1))  # imports and tables are paid once
        for share in sorted(COPIES, reverse=True):
            copy = scaled(name, asked, min(pes // share, MOST * COPIES[1] // share))
            restart_peak()
            before, begin = resident_bytes(), time.process_time()
            result = run(copy)
            seconds, more = time.process_time() - begin, peak_bytes() - before
            w, h = mesh(copy)
            simulated = min(seconds, float(result.get("run_cpu_seconds", 0.0)))
            found.append(
                _Copy(w * h, w + h, result["cycles"], result["wavelet_hops"], seconds - simulated, simulated, more)
            )
    except (WseError, ValueError):
        return None
    few, many = found
    further = width + height - many.side
    each = max(0.0, many.made - few.made) / max(1, many.pes - few.pes)
    turn = many.simulated / many.pes
    if many.hops:
        turn *= _along(few.hops / few.pes, few, many.hops / many.pes, many, further) / (many.hops / many.pes)
    grown = max(0, many.more - few.more) / max(1, many.pes - few.pes) * (pes - many.pes)
    memory = resident_bytes() + many.more + grown
    cycles = _along(few.cycles, few, many.cycles, many, further)
    return RunEstimate(pes, cycles, many.made + each * (pes - many.pes) + turn * pes, memory / 2**30)


class _Copy(NamedTuple):
    """A `_Copy` is what was found: PEs, sum of the sides, cycles, hops, CPU seconds without and of the simulation,
    bytes taken.
    """

    pes: int
    side: int
    cycles: float
    hops: float
    made: float
    simulated: float
    more: int


def _along(less: float, few: _Copy, more: float, many: _Copy, further: int) -> float:
    """Return a value beyond two copies, on the line through them, but not less than that of the larger one."""
    slope = (more - less) / (many.side - few.side) if many.side > few.side else 0.0
    return max(more, more + slope * further)
