"""Watchers are told how far the run of a kernel is: cycles done and expected, and the time that is left.

A kernel that has a closed form hands it to `Session`; it is asked only for runs that last.  The estimate takes the
cycles that are left to cost what those of the later half of the time so far did: the beginning of a run, when data are
spread, is seldom like the rest.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["Status", "Watch", "listener", "watching"]


@dataclass(frozen=True)
class Status:
    """A `Status` says how far a run is.

    Attributes
    ----------
    cycles : int
        Done.
    expected : float or None
        In all, by the closed form of the kernel; None if it has none.
    seconds : float
        Of the host, since the start.
    pace : float
        Cycles per second of the host lately.
    """

    cycles: int
    expected: float | None
    seconds: float
    pace: float

    @property
    def left(self) -> float | None:
        """The rest will take so many seconds; None if that cannot be said."""
        if not self.expected or not self.pace:
            return None
        return max(0.0, (self.expected - self.cycles) / self.pace)


class Watch:
    """Tells `hear` how far a run is.

    Parameters
    ----------
    hear : callable
    expected : callable or None
        Returns the cycles of the closed form.
    """

    def __init__(self, hear: Callable[[Status], object], expected: Callable[[], float] | None) -> None:
        self.hear, self._expected = hear, expected
        self._total: float | None = None
        self._marks = [(0, 0.0)]  # (cycles, seconds), each at twice the seconds of the one before

    def __call__(self, cycles: int, seconds: float) -> None:
        """Hear of a run; `fabric.host.running.Progress`."""
        if self._expected is not None and self._total is None:
            self._total = self._expected()
        if seconds >= 2 * self._marks[-1][1]:
            self._marks.append((cycles, seconds))
        begun, since = next(mark for mark in reversed(self._marks) if 2 * mark[1] <= seconds)
        pace = (cycles - begun) / (seconds - since) if seconds > since else 0.0
        self.hear(Status(cycles, self._total, seconds, pace))


_LISTENER: contextvars.ContextVar[Callable[[Status], object] | None] = contextvars.ContextVar("listener", default=None)


@contextmanager
def watching(hear: Callable[[Status], object]) -> Iterator[None]:
    """Call ``hear(status)`` some times a second during runs of kernels inside the block."""
    token = _LISTENER.set(hear)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def listener() -> Callable[[Status], object] | None:
    """Return who hears of runs here, if anybody."""
    return _LISTENER.get()
