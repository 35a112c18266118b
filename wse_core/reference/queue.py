"""Queues hold wavelets, and so do the host's streams at the edge, which look like queues from inside.

What      `WaveletQueue` between routers, at the ramp and at the CE; `InputStream` and `OutputStream` at the edge.
Contract  what is pushed in a cycle is ready in a later one, and a place that is freed in a cycle counts as full in it:
          no order of visits within a cycle can be seen.
Timing    docs/machine.md, "Time".
Sources   docs/machine.md; arch §7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wse_core.image import DIR_W

__all__ = ["NEVER", "Emit", "InputStream", "OutputStream", "Wavelet", "WaveletQueue", "no_trace"]

NEVER = -1  # a cycle before the first


Emit = Callable[..., None]
"""What takes the events of a part; called as `no_trace` is."""


def no_trace(
    x: int, y: int, cycle: int, kind: str, color: int | None = None, aux: int = 0, data: int = 0, flags: int = 0
) -> None:
    """Report nothing: what `emit` is when nobody listens."""


@dataclass(slots=True)
class Wavelet:
    """A `Wavelet` is what is in a queue: 32 bits, the control bit, the first cycle in which the receiver can use it.

    `own` marks what goes no further than the router of the PE that has sent it.
    """

    payload: int
    control: bool
    ready: int
    own: bool = False

    @property
    def index(self) -> int:
        """The upper half of the payload is its index."""
        return self.payload >> 16

    @property
    def data(self) -> int:
        """The lower half of the payload is its data."""
        return self.payload & 0xFFFF


class WaveletQueue:
    """A queue is a ring of fixed capacity.

    Parameters
    ----------
    capacity : int
    color : int
    """

    def __init__(self, capacity: int, color: int) -> None:
        self.capacity, self.color = capacity, color
        self.wavelets: list[Wavelet] = []
        self.removed_in = NEVER  # cycle of the last removal ...
        self.removed = 0  # ... and how many were removed in it

    def has_room(self, t: int) -> bool:
        """Whether a wavelet can be pushed in cycle t: those removed in t still count."""
        still_there = self.removed if self.removed_in == t else 0
        return len(self.wavelets) + still_there < self.capacity

    def is_empty(self, t: int) -> bool:
        """Whether nothing is left of what was pushed: what is removed in t still counts."""
        return not self.wavelets and self.removed_in != t

    def head(self, t: int) -> Wavelet | None:
        """Return the first wavelet if it is ready in cycle t, else None."""
        if self.wavelets and self.wavelets[0].ready <= t:
            return self.wavelets[0]
        return None

    def push(self, payload: int, control: bool, ready: int, own: bool = False) -> None:
        """Append a wavelet at the tail; `own`: it goes no further than the PE's own router."""
        self.wavelets.append(Wavelet(payload, control, ready, own))

    def take(self, t: int) -> Wavelet:
        """Remove the first wavelet in cycle t and return it."""
        if self.removed_in != t:
            self.removed_in, self.removed = t, 0
        self.removed += 1
        return self.wavelets.pop(0)

    def contents(self) -> list[tuple[int, bool, int]]:
        """Return the wavelets as plain tuples (payload, control, ready)."""
        return [(wavelet.payload, wavelet.control, wavelet.ready) for wavelet in self.wavelets]


class OutputStream:
    """An `OutputStream` is where the host takes what leaves a router: all of it, or from given cycles on."""

    def __init__(self) -> None:
        self.arrived: list[Wavelet] = []
        self.places: list[int] | None = None  # cycles from which the next wavelets are taken; None = all, at once

    def has_room(self, t: int) -> bool:
        """Whether the host takes a wavelet in cycle t."""
        return self.places is None or (bool(self.places) and self.places[0] <= t)

    def push(self, payload: int, control: bool, ready: int) -> None:
        """Note a wavelet that has left the fabric."""
        self.arrived.append(Wavelet(payload, control, ready))
        if self.places is not None:
            self.places.pop(0)

    def future(self, t: int) -> bool:
        """Whether the host takes a wavelet after cycle t that it does not take in t."""
        return self.places is not None and bool(self.places) and self.places[0] > t


class InputStream:
    """Wavelets that the host wants to send, and the queue that takes them `latency` cycles later.

    It is one of an edge PE's router, or, with port R, an input queue of a CE.
    """

    def __init__(self, queue: WaveletQueue, latency: int, x: int = 0, y: int = 0, port: int = DIR_W) -> None:
        self.queue, self.latency, self.x, self.y, self.port = queue, latency, x, y, port
        self.waiting: list[tuple[int, bool, int]] = []  # (payload, control, first cycle)
        self.entered: list[int] = []  # cycles
        self.logged = False  # the host asks for them
        self.emit: Emit = no_trace

    def future(self, t: int) -> bool:
        """Whether the next wavelet may enter only after cycle t."""
        return bool(self.waiting) and self.waiting[0][2] > t

    def phase(self, t: int) -> bool:
        """Push the next wavelet if its time has come and there is room; return whether one was pushed."""
        if not self.waiting or self.waiting[0][2] > t or not self.queue.has_room(t):
            return False
        payload, control, _ = self.waiting.pop(0)
        self.queue.push(payload, control, t + self.latency)
        self.entered.append(t)
        self.emit(self.x, self.y, t, "enter", self.queue.color, self.port, payload, control)
        return True
