"""The result of a kernel is reported: measured beside expected, work done, speed of the simulation."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from fabric.kernels.kit.check import Check
from fabric.kernels.kit.session import Session
from wse_core.counters import limits

__all__ = ["report", "without_counters"]

MOST_PES = 1 << 16
"""PEs up to which a run is asked what limited it also where its counters are not kept: they are copied for that."""
_COUNTED: contextvars.ContextVar[bool] = contextvars.ContextVar("counted", default=True)


@contextmanager
def without_counters() -> Iterator[None]:
    """Leave the counters of PEs and links out of results inside the block: they are copies of a word per PE each."""
    token = _COUNTED.set(False)
    try:
        yield
    finally:
        _COUNTED.reset(token)


def report(
    session: Session,
    check: Check,
    cycles: int,
    *,
    expected_cycles: float | None,
    expected_hops: float,
    expected_macs: float,
    lanes: int = 0,
    arrays: Mapping[str, NDArray[Any]] | None = None,
    **extra: Any,
) -> dict[str, Any]:
    """Return the result of a kernel.

    Parameters
    ----------
    session : Session
    check : Check
    cycles : int
        Measured interval.
    expected_cycles, expected_hops, expected_macs : number
        What the formulas of the kernel's page say; ``cycle_error`` is the relative difference.  Cycles are None where
        the kernel has no closed form but only a ``lower_bound``, which then is among `extra`.
    lanes : int
        Multiply-adds that a PE can do per cycle; 0 if the kernel does none.
    arrays : dict, optional
        Arrays for the run file.
    **extra
        Further facts.
    """
    run, cycles = session.run, int(cycles)
    seconds = max(run.host_seconds, 1e-9)
    pe_cycles = run.n_pe * run.cycles
    closed: dict[str, Any] = {}
    if expected_cycles is not None:
        error = cycles / expected_cycles - 1 if expected_cycles else 0.0
        closed = {"expected_cycles": expected_cycles, "cycle_error": error}
    result = {
        "cycles": cycles,
        "wavelet_hops": run.wavelet_hops,
        "macs": run.macs,
        **check.fields(),
        **closed,
        "expected_hops": expected_hops,
        "expected_macs": expected_macs,
        "run_cycles": run.cycles,
        "pes_used": run.n_pe,
        "utilisation": run.counters["busy"] / max(1, pe_cycles),
    }
    if lanes:
        result["mac_utilisation"] = run.macs / max(1, lanes * pe_cycles)
    result |= run.energy.as_dict() | extra
    counters = session.counters() if _COUNTED.get() or run.n_pe <= MOST_PES else {}
    result |= _limited(counters, result) | {
        "run_seconds": run.host_seconds,
        "run_cpu_seconds": run.cpu_seconds,
        "hops_per_second": run.wavelet_hops / seconds,
        "pe_cycles_per_second": pe_cycles / seconds,
    }
    return result | {"counters": counters if _COUNTED.get() else {}, "arrays": arrays or {}}


def _limited(counters: Mapping[str, tuple[NDArray[Any], str]], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return how near a result came to its lower bound, and what limited the run."""
    found: dict[str, Any] = {}
    if "lower_bound" in result:
        found["lower_bound_share"] = result["lower_bound"] / max(1, result["cycles"])
    for first in limits({name: values for name, (values, _) in counters.items()})[:1]:
        found |= {"bottleneck": first.name, "bottleneck_share": first.share}
        found |= {"bottleneck_at": first.where} if first.where else {}
    return found
