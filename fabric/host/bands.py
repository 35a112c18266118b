"""How fabrics advance their rows: in bands with clocks of their own, by threads, or as the engine finds best.

No result depends on it (docs/internals.md, "Bands of rows"), only the time that a run takes.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from wse_core.errors import ConfigError

__all__ = ["Arrangement", "arrange", "arranged", "asked", "ran"]

MOST_THREADS = 64


@dataclass
class Arrangement:
    """An `Arrangement` is what is asked for of bands and threads, and what ran.

    Attributes
    ----------
    bands, threads : int or None
        Asked for; None: as the engine finds best.
    trains : bool or None
        Whether streams may be moved as trains; None: they may.
    most_bands, most_threads : int
        What ran, the most of any run so far.
    """

    bands: int | None = None
    threads: int | None = None
    trains: bool | None = None
    most_bands: int = 1
    most_threads: int = 1


_ASKED: contextvars.ContextVar[Arrangement | None] = contextvars.ContextVar("arranged", default=None)


@contextlib.contextmanager
def arranged(bands: int | None = None, threads: int | None = None, trains: bool | None = None) -> Iterator[Arrangement]:
    """Arrange the rows of every `Fabric` made inside the block; yield what was asked for and what ran.

    This is how a command arranges kernels, which make their fabrics themselves; a fabric of fewer rows than bands has a
    row per band.

    Parameters
    ----------
    bands : int, optional
        Bands of rows with clocks of their own; 1: all rows at one clock.
    threads : int, optional
        Threads that run them.
    trains : bool, optional
        Whether streams may be moved as trains (docs/internals.md); default they may.
    """
    for what, value, most in (("bands", bands, None), ("threads", threads, MOST_THREADS)):
        if value is not None and (value < 1 or (most is not None and value > most)):
            raise ConfigError(f"{value} {what}", where=f"--{what}", hint=f"1{f' to {most}' if most else ' or more'}")
    found = Arrangement(bands, threads, trains)
    token = _ASKED.set(found)
    try:
        yield found
    finally:
        _ASKED.reset(token)


def asked() -> Arrangement | None:
    """Return what `arranged` says here."""
    return _ASKED.get()


def arrange(engine: Any, bands: Any, threads: int | None, trains: bool | None = None) -> None:
    """Arrange the rows of an engine, if something is given; the plain-Python one has one way only."""
    if hasattr(engine, "arrange") and (bands is not None or threads is not None):
        engine.arrange(bands, threads)
    if hasattr(engine, "trains") and trains is not None:
        engine.trains = trains


def ran(engine: Any, arrangement: Arrangement | None) -> tuple[int, int]:
    """Return bands and threads of an engine's last run, and keep the most of them."""
    bands, threads = getattr(engine, "bands", 1), getattr(engine, "threads", 1)
    if arrangement is not None:
        arrangement.most_bands = max(arrangement.most_bands, bands)
        arrangement.most_threads = max(arrangement.most_threads, threads)
    return bands, threads
