"""A running machine sends these reports: the kinds of events and the record that holds one.

Both machines, the compiled one and the plain-Python reference, report the same events; tests compare them.  An event is
a fact that cannot be derived from others: a router's grant is one, the landing at the neighbour ``router.hop`` cycles
later is not, so it is not stored (`traces.event_log` derives it).

No event bears a cycle before the one in which it was reported, so what is older than the machine's clock is complete.
Order in a file: `sort_key`.

============  =============================================  ========================  ===============================
kind          the cycle is that of                           aux                       data
============  =============================================  ========================  ===============================
inject        a step that puts a wavelet into an output      output queue              payload
              queue
depart        a router's grant                               outputs, a bit each;      payload that left
                                                             bit 5: to the host
enter         the host's stream handing a wavelet to an      port; R: to the CE,       payload
              edge router, or to a CE                        down the ramp
take          a CE taking a wavelet from an input queue      input queue               payload
activate      the activated bit of a task being set          task id                   0
task_start    the picker's choice                            task id                   code word of the entry
task_end      the instruction `done`                         task id                   0
op_start      the issue of a vector operation                thread (8 = main)         code word, opcode << 16
op_end        its last step                                  thread                    elements done
conflict      the last step of an operation that lost        thread                    cycles lost by the operation
              cycles to bank conflicts
wait          the first cycle after a wait of the CE;        reason (`WAITS`)          cycles waited
              input and output: for a queue of ``color``
switch        the cause of a new switch position             new position              0 wavelet, 1 CE
route         a CE's change of a route                       position                  rx, tx << 5
teardown      begin (aux 1) or end (aux 0) of a teardown     1 or 0                    0
host          an access of the host, at the corner of its    `HOST`                    PEs launched; 16-bit words or
              rectangle, before anything else in this cycle                            wavelets copied
mark          the beginning of a phase, see `traces.marks`   0                         which of the marks
============  =============================================  ========================  ===============================

``color`` is `NO_COLOR` where none is concerned.  Bit 0 of ``flags`` says that the wavelet is a control wavelet; for
`depart` bits 1 to 3 are the port from which it came and bit 4 says that it arrived as the other color of its pair
(color swap).  For `wait` bits 1 to 3 are the number of the queue.  For `task_start` and `task_end` bit 0 says that
``aux`` is the id of a control task; these are numbered by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from wse_core.encoding import KINDS, NO_COLOR, WAITS
from wse_core.errors import ConfigError

__all__ = [
    "COLUMNS",
    "EVENT_DTYPE",
    "HOST",
    "KINDS",
    "LEVELS",
    "NO_COLOR",
    "WAITS",
    "TraceFilter",
    "joined",
    "sort_key",
    "sorted_events",
]

HOST = ("launch", "write", "read", "stream", "receive")
"""Accesses of the host are these events: it activates a task, copies to and from memories, to and from streams."""

EVENT_DTYPE = np.dtype(
    [
        ("cycle", "<u8"),
        ("data", "<u4"),
        ("x", "<u2"),
        ("y", "<u2"),
        ("kind", "u1"),
        ("color", "u1"),
        ("aux", "u1"),
        ("flags", "u1"),
    ]
)
"""An event is a record of 20 bytes."""

COLUMNS = {
    "cycle": "cycles since the start of the run",
    "data": "payload or number, see the kinds",
    "x": "column of the PE, west is 0",
    "y": "row of the PE, north is 0",
    "kind": "index into KINDS",
    "color": "color of the wavelet, 255 = none",
    "aux": "queue, port, task, thread or position, see the kinds",
    "flags": "bit 0: control wavelet or control task; depart: bits 1-3 port it came from, bit 4 swapped color; "
    "wait: bits 1-3 queue",
}
"""An event file has these columns: name -> what it holds."""


LEVELS = {
    "events": (
        "activate",
        "task_start",
        "task_end",
        "op_start",
        "op_end",
        "conflict",
        "wait",
        "switch",
        "route",
        "teardown",
        "host",
        "mark",
    ),
    "full": KINDS,
}
"""Kinds of events that a level of tracing records: ``events`` leaves out what comes once per wavelet."""

FOREVER = (1 << 64) - 1


@dataclass(frozen=True)
class TraceFilter:
    """A `TraceFilter` says which events are recorded.

    Attributes
    ----------
    kinds : tuple[str, ...]
        Of `KINDS`.
    colors : tuple[int, ...] or None
        Events that concern a color are recorded for these only; None for all.
    region : tuple[int, int, int, int] or None
        x, y, width and height of the rectangle of PEs; None for the whole fabric.
    cycles : tuple[int, int]
        First cycle and the one after the last.

    Raises
    ------
    ConfigError
        For kinds, colors or a rectangle that cannot be.
    """

    kinds: tuple[str, ...] = KINDS
    colors: tuple[int, ...] | None = None
    region: tuple[int, int, int, int] | None = None
    cycles: tuple[int, int] = (0, FOREVER)

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in KINDS:
                raise ConfigError(
                    f"{kind!r} is no kind of event", where="trace filter", value=kind, hint=f"one of {', '.join(KINDS)}"
                )
        for color in self.colors or ():
            if not 0 <= color < NO_COLOR:
                raise ConfigError(f"{color} is no color", where="trace filter", value=color)
        if self.region is not None and (len(self.region) != 4 or min(self.region[2:]) < 1):
            raise ConfigError(
                f"{self.region} is no rectangle", where="trace filter", value=self.region, hint="x, y, width, height"
            )
        if not 0 <= self.cycles[0] <= self.cycles[1] <= FOREVER:
            raise ConfigError(
                f"{self.cycles} is no range of cycles",
                where="trace filter",
                value=self.cycles,
                hint="first cycle, cycle after the last",
            )

    def keeps(self, events: np.ndarray) -> np.ndarray:
        """Return which of `events` are recorded, an array of bool."""
        wanted = np.zeros(256, bool)
        wanted[[KINDS.index(kind) for kind in self.kinds]] = True
        kept = wanted[events["kind"]]
        if self.colors is not None:
            wanted = np.zeros(256, bool)
            wanted[[*self.colors, NO_COLOR]] = True
            kept &= wanted[events["color"]]
        if self.region is not None:
            x, y, width, height = self.region
            kept &= (events["x"] >= x) & (events["x"] < x + width) & (events["y"] >= y) & (events["y"] < y + height)
        first, stop = self.cycles
        if first > 0 or stop < FOREVER:
            kept &= (events["cycle"] >= first) & (events["cycle"] < stop)
        return kept

    def chosen(self, events: np.ndarray) -> np.ndarray:
        """Return those of `events` that are recorded."""
        kept = self.keeps(events)
        return events if kept.all() else events.take(np.flatnonzero(kept))


def sort_key(events: np.ndarray, first_cycle: int) -> np.ndarray:
    """Return keys that order events by cycle, row, column, kind, color and aux.

    Parameters
    ----------
    events : numpy.ndarray of EVENT_DTYPE
        Within 2^20 cycles from `first_cycle`, of a fabric with fewer than 2^10 rows and columns.
    first_cycle : int

    Returns
    -------
    numpy.ndarray of uint64
    """
    key = (events["cycle"] - np.uint64(first_cycle)) << np.uint64(44)
    for name, shift in (("y", 34), ("x", 24), ("kind", 16), ("color", 8), ("aux", 0)):
        key |= events[name].astype(np.uint64) << np.uint64(shift)
    return key


def joined(parts: Iterable[np.ndarray], dtype: np.dtype[Any] = EVENT_DTYPE) -> np.ndarray:
    """Return arrays of events as one, copied record by record; NumPy by itself goes field by field, far slower."""
    parts = [part for part in parts if len(part)]
    if len(parts) == 1:
        return parts[0]
    raw = [np.ascontiguousarray(part).view(f"V{dtype.itemsize}") for part in parts]
    return np.concatenate(raw).view(dtype) if raw else np.empty(0, dtype)


def sorted_events(events: np.ndarray) -> np.ndarray:
    """Return `events` in the order of a file: by cycle, row, column, kind, color, aux; equal ones keep their order."""
    if not len(events):
        return events
    first = int(events["cycle"].min())
    if int(events["cycle"].max()) - first < 1 << 20 and events["x"].max() < 1 << 10 and events["y"].max() < 1 << 10:
        key = sort_key(events, first)
        return events if np.all(key[:-1] <= key[1:]) else events.take(np.argsort(key, kind="stable"))
    return events.take(np.lexsort([events[name] for name in ("aux", "color", "kind", "x", "y", "cycle")]))
