"""The state of every PE of a region in a given cycle is put together from the events before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from traces.naming import task_number
from wse_core.events import KINDS, WAITS

if TYPE_CHECKING:
    from traces.trace import Trace

__all__ = ["MAIN", "OPEN", "PEState", "RegionStates", "spans"]

MAIN = 8
THREADS = (*(f"ut{k}" for k in range(8)), "main")
OPEN = (1 << 64) - 1
"""What did not end has this cycle as its end."""
SPAN = np.dtype(
    [
        ("begin", "u8"),
        ("end", "u8"),
        ("x", "u2"),
        ("y", "u2"),
        ("lane", "u1"),
        ("what", "u4"),
        ("word", "u2"),
        ("done", "u4"),
    ]
)


@dataclass
class PEState:
    """A `PEState` says what a PE does in a cycle.

    Attributes
    ----------
    task : int or None
        `traces.naming.task_number` of the task that runs.
    operations : dict[str, int]
        Thread -> opcode of its vector operation.
    wait : str or None
        Reason for which the CE waits.
    grants : list of (color, port it came from, outputs as bits, payload)
        Of the router in this cycle.
    """

    task: int | None = None
    operations: dict = field(default_factory=dict)
    wait: str | None = None
    grants: list = field(default_factory=list)


def spans(events: np.ndarray, kind: str) -> np.ndarray:
    """Return what lasts as an array of spans, in the order in which they begin in the events.

    Parameters
    ----------
    events : numpy.ndarray of EVENT_DTYPE
        In order.
    kind : {"task", "op", "wait"}

    Returns
    -------
    numpy.ndarray
        Fields ``begin``, ``end`` (the cycle after the last; `OPEN` if it did not end), ``x``, ``y``, ``lane`` (thread
        of an operation, else 0), ``what`` (`traces.naming.task_number`, opcode, or place in `WAITS`), ``word`` (code
        word of an operation, or of a task's entry) and ``done`` (elements of an operation that ended).  Waits stand in
        the order in which they end.
    """
    if kind == "wait":
        waits = events[events["kind"] == KINDS.index("wait")]
        result = np.zeros(len(waits), SPAN)
        result["begin"], result["end"], result["what"] = waits["cycle"] - waits["data"], waits["cycle"], waits["aux"]
        result["x"], result["y"] = waits["x"], waits["y"]
        return result
    start, end = (KINDS.index(f"{kind}_{part}") for part in ("start", "end"))
    chosen = events[(events["kind"] == start) | (events["kind"] == end)]
    place = chosen["y"].astype(np.int64) << 16 | chosen["x"]
    if kind == "op":
        place = place << 8 | chosen["aux"]
    order = np.argsort(place, kind="stable")
    place, starts = place[order], chosen["kind"][order] == start
    at = np.flatnonzero(starts)  # what begins, by place and time
    after = np.minimum(at + 1, max(0, len(order) - 1))
    ended = ~starts[after] & (place[after] == place[at])
    begun, last = chosen[order[at]], chosen[order[after]]
    result = np.zeros(len(at), SPAN)
    result["begin"], result["end"] = begun["cycle"], np.where(ended, last["cycle"] + np.uint64(1), np.uint64(OPEN))
    result["x"], result["y"], result["word"] = begun["x"], begun["y"], begun["data"] & 0xFFFF
    if kind == "op":
        result["lane"], result["what"], result["done"] = begun["aux"], begun["data"] >> 16, last["data"] * ended
    else:
        result["what"] = task_number(begun["aux"].astype(np.uint32), begun["flags"].astype(np.uint32))
    return result[np.argsort(order[at])]


class RegionStates:
    """The states of a region over the whole trace.

    Parameters
    ----------
    trace : Trace
    region : tuple[int, int, int, int]
        x, y, width, height.
    """

    def __init__(self, trace: Trace, region: tuple[int, int, int, int]) -> None:
        self.trace, self.region = trace, region
        lasting = ("task_start", "task_end", "op_start", "op_end", "wait")
        kinds = [kind for kind in lasting if kind in trace.filter.kinds]
        events = trace.events(kinds=kinds, region=region)
        self.tasks, self.operations, self.waits = (spans(events, kind) for kind in ("task", "op", "wait"))
        self.has_grants = "depart" in trace.filter.kinds

    def at(self, cycle: int) -> dict[tuple[int, int], PEState]:
        """Return the state of every PE in a cycle, a dict (x, y) -> `PEState`."""
        x, y, width, height = self.region
        states = {(column, row): PEState() for row in range(y, y + height) for column in range(x, x + width)}
        for span in _during(self.tasks, cycle):
            states[int(span["x"]), int(span["y"])].task = int(span["what"])
        for span in _during(self.operations, cycle):
            states[int(span["x"]), int(span["y"])].operations[THREADS[span["lane"]]] = int(span["what"])
        for span in _during(self.waits, cycle):
            states[int(span["x"]), int(span["y"])].wait = WAITS[span["what"]]
        if self.has_grants:
            for event in self.trace.events(cycles=(cycle, cycle + 1), kinds=("depart",), region=self.region):
                grant = int(event["color"]), int(event["flags"]) >> 1 & 7, int(event["aux"]), int(event["data"])
                states[int(event["x"]), int(event["y"])].grants.append(grant)
        return states


def _during(found: np.ndarray, cycle: int) -> np.ndarray:
    return found[(found["begin"] <= cycle) & (found["end"] > cycle)]
