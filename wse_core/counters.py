"""The counters of a run have these names, and say what kept it from being over sooner.

A run cannot be shorter than the work of its busiest PE, nor than the wavelets of its busiest link, one a cycle.  What
neither of the two explains is latency: PEs wait for what is on its way, or for each other in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["LIMITS", "LINKS", "MOVED", "USES", "USE_TEXT", "Limit", "limits", "said"]

USES = ("busy", "stall_pipe", "stall_conflict", "stall_resource", "stall_input", "stall_output", "stall_fifo", "idle")
"""Each cycle of a PE is counted under one of these."""
USE_TEXT = {
    "busy": "issuing or calculating",
    "stall_pipe": "waiting for the pipeline",
    "stall_conflict": "bank conflicts",
    "stall_resource": "waiting for a DSR or a microthread",
    "stall_input": "waiting for wavelets",
    "stall_output": "waiting for room to send",
    "stall_fifo": "waiting for a FIFO",
    "idle": "nothing to do",
}
"""A cycle is called so in all pictures, pages and notebooks."""
LINKS = ("W", "E", "N", "S", "R")
"""The last axis of a per-link counter has this order: the five ports of a router as the machine numbers them
(`wse_core.image.DIRS`), R being the ramp.
"""
MOVED = "moved_color_"
"""The name of a per-link counter begins so; the number of its color follows."""
LIMITS = {
    "arithmetic": "instructions of the PE that works most, without those that keep up with a link",
    "memory": "bank conflicts of that PE",
    "link": "wavelets of the busiest link, one a cycle",
    "latency": "cycles that neither of them explains",
}
"""The classes are these, with what each counts."""


class Limit(NamedTuple):
    """A `Limit` is a class of `LIMITS` with the cycles that it takes of a run.

    Attributes
    ----------
    name : {"arithmetic", "memory", "link", "latency"}
    cycles : int
        Cycles that the run could not do without, as it was programmed; of latency those that are left.
    share : float
        Of the cycles of the run, 0 .. 1.
    where : str
        The PE or the link; nothing for latency.
    """

    name: str
    cycles: int
    share: float
    where: str


def limits(counters: Mapping[str, NDArray[Any]]) -> list[Limit]:
    """Return what limits a run by its counters, the largest first; the first is its bottleneck.

    Parameters
    ----------
    counters : dict
        Name to an array, as `fabric.Fabric.all_counters` and run files have them: (..., height, width) of PEs,
        (..., height, width, 5) of the links of a color.  Windows, in front, are summed.

    Returns
    -------
    list of Limit
        Empty without the counters of a PE's cycles, or of a run without a cycle.

    Notes
    -----
    Work of a PE is ``busy`` and ``stall_pipe``, and ``stall_conflict`` (memory).  An instruction that takes or sends a
    wavelet a cycle goes as fast as a link does, whatever it calculates with them: as many of the busy cycles as the PE
    took or sent wavelets, the larger of the two, are no arithmetic.  Latency is what is left of the run beside the
    larger of that PE's work and the busiest link's wavelets.
    """
    if not {*USES, "sent", "received"} <= set(counters):
        return []
    sums = {name: _summed(counters[name], 2) for name in USES}
    cycles = int(sum(sums.values()).max(initial=0))  # type: ignore[union-attr]
    if not cycles:
        return []
    memory = sums["stall_conflict"]
    works = sums["busy"] + sums["stall_pipe"] + memory
    y, x = np.unravel_index(int(works.argmax()), works.shape)
    busiest, where = _busiest_link(counters)
    moves = max(int(_summed(counters[name], 2)[y, x]) for name in ("sent", "received"))
    arithmetic = max(0, int(works[y, x] - memory[y, x]) - moves)
    taken = {
        "arithmetic": (arithmetic, f"PE ({x}, {y})"),
        "memory": (int(memory[y, x]), f"PE ({x}, {y})"),
        "link": (busiest, where),
        "latency": (cycles - max(int(works[y, x]), busiest), ""),
    }
    found = [Limit(name, count, count / cycles, place) for name, (count, place) in taken.items()]
    return sorted(found, key=lambda limit: -limit.cycles)


def _summed(values: NDArray[Any], axes: int) -> NDArray[np.int64]:
    """Return an array summed over the axes in front of its last ones."""
    values = np.asarray(values)
    return values.reshape(-1, *values.shape[values.ndim - axes :]).sum(axis=0, dtype=np.int64)


def _busiest_link(counters: Mapping[str, NDArray[Any]]) -> tuple[int, str]:
    """Return the wavelets of the busiest link, over all colors, and its name."""
    total = sum(_summed(values, 3) for name, values in counters.items() if name.startswith(MOVED))
    found = (0, "")
    if isinstance(total, np.ndarray):
        y, x, port = np.unravel_index(int(total.argmax()), total.shape)
        link = LINKS[int(port)]
        name = f"ramp of the CE at ({x}, {y})" if link == "R" else f"link into ({x}, {y}) from {link}"
        found = (int(total[y, x, port]), name)
    received = _summed(counters["received"], 2)
    y, x = np.unravel_index(int(received.argmax()), received.shape)
    return max(found, (int(received[y, x]), f"ramp into the CE at ({x}, {y})"), key=lambda pair: pair[0])


def said(found: Iterable[Limit]) -> str:
    """Return one line about what limits a run: the bottleneck first, and shares of its cycles."""
    parts = [f"{limit.name} {limit.share:.0%}" + (f" ({limit.where})" if limit.where else "") for limit in found]
    return "; ".join(parts)
