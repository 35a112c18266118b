"""Pictures of a run by their names, as `traces.trace.Trace.plot` and ``wse view --figure`` draw them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from traces import pictures
from traces.heatmap import heatmap, plane, sent
from wse_core.counters import LINKS, MOVED, USES
from wse_core.errors import TraceError
from wse_core.schema import suggestion

if TYPE_CHECKING:
    from traces.picture import Picture
    from traces.trace import Trace

__all__ = ["PLOTS", "plot"]

PLOTS = ("heat", "links", "stalls", "windows", "timeline", "utilisation")


def plot(
    trace: Trace,
    what: str,
    region: tuple[int, int, int, int] | None = None,
    cycles: tuple[int, int] | None = None,
    counter: str = "busy",
    window: int | None = None,
) -> Picture:
    """Draw one of `PLOTS` of a run.

    Parameters
    ----------
    trace : Trace
    what : str
    region, cycles : optional
        See `Trace.plot`.
    counter : str
        Of a heat map.
    window : int, optional
        Of a heat map, links and stalls: this window of the counters alone.

    Raises
    ------
    TraceError
        There is no such picture, or the file lacks what it shows.
    """
    run, title = trace.files[0], trace.meta.job
    if what == "heat":
        found, part = run.counter(counter), "" if window is None else f", window {window}"
        return heatmap(plane(found.values, window), f"{title}: {counter}{part}", found.unit)
    if what == "links":
        return pictures.links(_traffic(trace, window), f"{title}: wavelets per link")
    if what == "stalls":
        counters = {use: plane(run.counter(use).values, window) for use in USES}
        axis = "x" if next(iter(counters.values())).shape[1] > 1 else "y"
        return pictures.stalls(counters, axis, f"{title}: where the cycles went")
    if what == "windows":
        counted = {key: run.counter(key) for key in run.counters}
        if not set(USES) <= set(counted):
            raise TraceError("holds no counters of the uses of cycles", path=run.path, exit_code=2)
        return pictures.windows(counted, f"{title}: where the cycles went, over time", trace.meta.first_cycle)
    if what == "timeline":
        return pictures.timeline(trace, region, cycles, f"{title}: tasks, operations and waits")
    if what == "utilisation":
        return pictures.utilisation(trace, region, title=f"{title}: utilisation")
    raise TraceError(f"there is no picture {what!r}", hint=suggestion(what, PLOTS), exit_code=2)


def _traffic(trace: Trace, window: int | None = None) -> NDArray[np.uint64]:
    """Return (height, width, 4): wavelets that left each PE to W, E, N and S, from the counters of arrivals."""
    run = trace.files[0]
    counters = [run.counter(name) for name in run.counters if name.startswith(MOVED)]
    if not counters:
        raise TraceError("holds no counters of links", path=run.path, exit_code=2)
    parts = [plane(counter.values, window, link) for counter in counters for link in LINKS]
    moved = np.reshape(parts, (len(counters), len(LINKS), *parts[0].shape)).sum(axis=0)
    return sent(np.moveaxis(moved, 0, -1))
