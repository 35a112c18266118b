"""The points of a sweep may be run on a cluster of Dask: ``wse sweep FILE.toml --scheduler tcp://host:8786``.

Every worker of the cluster needs this version of wse-sim.  A worker that is lost gives its points to others, as Dask
decides; a point that no worker survives is told as failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.kit.modules import need
from harness.sweep.point import Measured, Point, measure, origin
from wse_core.errors import ConfigError

__all__ = ["on_cluster"]

PATIENCE = "10s"
"""A scheduler is waited for so long."""


def on_cluster(points: Sequence[Point], address: str) -> Iterator[tuple[int, Measured]]:
    """Yield the number of each point and what it gave, as they end.

    Parameters
    ----------
    points : sequence of Point
    address : str
        Of the scheduler.

    Raises
    ------
    ConfigError
        Dask is not installed, no scheduler answers, or its workers have no, or another, wse-sim.
    """
    distributed = need("distributed", "a sweep on a cluster")
    try:
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"no scheduler of Dask answers at {address!r} ({' '.join(str(error).split())})",
            where="--scheduler",
            hint="the address that `dask scheduler` printed, for example tcp://host:8786",
        ) from None
    with client:
        futures = {client.submit(measure, point, pure=False): number for number, point in enumerate(points)}
        try:
            for future in distributed.as_completed(list(futures), loop=client.loop):
                yield futures[future], _taken(future)
        finally:
            client.cancel(list(futures), force=True)


def _taken(future: object) -> Measured:
    """Return what a worker measured, or that none could."""
    error = future.exception()  # type: ignore[attr-defined]
    if isinstance(error, ImportError):
        raise ConfigError(
            f"workers of the cluster cannot import wse-sim ({error})", where="--scheduler", hint="install it there"
        )
    if error is not None:
        return Measured({"error": f"no worker of the cluster could measure this point: {error}"}, final=False)
    found: Measured = future.result()  # type: ignore[attr-defined]
    if found.origin != origin():
        raise ConfigError(
            f"workers of the cluster have version {found.origin}, this is {origin()}: one table would mix them",
            where="--scheduler",
            hint="the same installation everywhere",
        )
    return found
