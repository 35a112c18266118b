"""What every PE of a region does in a given cycle, put together from the events before it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from traces.naming import task_number
from traces.trace import Trace
from wse_core.events import KINDS, WAITS

__all__ = ["PEState", "RegionStates", "spans"]

MAIN = 8
THREADS = (*(f"ut{k}" for k in range(8)), "main")


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
    """Return what lasts as an array of spans.

    Parameters
    ----------
    events : numpy.ndarray of EVENT_DTYPE
        In order.
    kind : {"task", "op", "wait"}

    Returns
    -------
    numpy.ndarray
        Fields ``begin``, ``end`` (the cycle after the last; the largest number if it did not end), ``x``, ``y``,
        ``lane`` (thread of an operation, else 0) and ``what`` (`traces.naming.task_number`, opcode, or place in
        `WAITS`).
    """
    dtype = np.dtype([("begin", "u8"), ("end", "u8"), ("x", "u2"), ("y", "u2"), ("lane", "u1"), ("what", "u4")])
    if kind == "wait":
        waits = events[events["kind"] == KINDS.index("wait")]
        result = np.zeros(len(waits), dtype)
        result["begin"], result["end"], result["what"] = waits["cycle"] - waits["data"], waits["cycle"], waits["aux"]
        result["x"], result["y"] = waits["x"], waits["y"]
        return result
    start, end = (KINDS.index(f"{kind}_{part}") for part in ("start", "end"))
    chosen = events[(events["kind"] == start) | (events["kind"] == end)]
    running: dict[tuple[int, ...], int] = {}
    found: list[list[int]] = []
    columns = [chosen[name].tolist() for name in ("cycle", "x", "y", "kind", "aux", "data", "flags")]
    for cycle, x, y, number, aux, data, flags in zip(*columns, strict=True):
        key = (x, y) if kind == "task" else (x, y, aux)
        if number == start:
            running[key] = len(found)
            what, lane = (task_number(aux, flags), 0) if kind == "task" else (data >> 16, aux)
            found.append([cycle, np.iinfo(np.uint64).max, x, y, lane, what])
        elif key in running:
            found[running.pop(key)][1] = cycle + 1
    return np.array([tuple(span) for span in found], dtype)


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
