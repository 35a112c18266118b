"""Value change dump of a small region: per PE the task, the wait and what the router grants, a cycle a nanosecond.

==================  ==========================================================================
signal              value
==================  ==========================================================================
``task``            id of the task that runs, 256 more for a control task; z when none does
``wait``            1 + place in `wse_core.events.WAITS` while the CE waits; 0 else
``grant_D``         payload that leaves in direction D in this cycle; z when none does
``color_D``         its color; z when none does
==================  ==========================================================================
"""

from __future__ import annotations

import io

import numpy as np

from traces.naming import task_number
from wse_core.errors import TraceError
from wse_core.events import KINDS

__all__ = ["MOST_PES", "write_vcd"]

MOST_PES = 1024
DEPART, TASK_START, TASK_END, WAIT = (KINDS.index(kind) for kind in ("depart", "task_start", "task_end", "wait"))


def write_vcd(trace, events, stream):
    """Write the value change dump.

    Raises
    ------
    TraceError
        The events come from more than `MOST_PES` PEs.
    """
    from vcd import VCDWriter

    places = np.unique(events[["y", "x"]])
    if len(places) > MOST_PES:
        raise TraceError(
            f"a value change dump of {len(places):,} PEs would be of no use",
            exit_code=2,
            hint=f"a region of at most {MOST_PES} PEs",
        )
    text = io.TextIOWrapper(stream, encoding="ascii", write_through=True)
    first = int(events["cycle"].min(initial=0)) if len(events) else 0
    with VCDWriter(text, timescale="1 ns", date="", version="wse-sim", init_timestamp=first) as writer:
        signals = {}
        for place in places:
            x, y = int(place["x"]), int(place["y"])
            scope = f"pe_{x}_{y}"
            signals[x, y] = {
                "task": writer.register_var(scope, "task", "integer", size=16, init="z"),
                "wait": writer.register_var(scope, "wait", "integer", size=4, init=0),
            }
            for direction in "WENSR":
                for name, size in (("grant", 32), ("color", 8)):
                    signals[x, y][name, direction] = writer.register_var(
                        scope, f"{name}_{direction}", "wire", size=size, init="z"
                    )
        for cycle, x, y, signal, value in _changes(events):
            writer.change(signals[x, y][signal], cycle, value)
    text.detach()


def _changes(events):
    """Return (cycle, x, y, signal, value) in order; of several values in a cycle the last stands."""
    changes = {}
    columns = [events[name].tolist() for name in ("cycle", "x", "y", "kind", "color", "aux", "data", "flags")]
    for cycle, x, y, kind, color, aux, data, flags in zip(*columns, strict=True):
        if kind == TASK_START:
            changes[cycle, x, y, "task"] = task_number(aux, flags)
        elif kind == TASK_END:
            changes.setdefault((cycle + 1, x, y, "task"), "z")
        elif kind == WAIT:
            changes[cycle - data, x, y, "wait"] = aux + 1
            changes.setdefault((cycle, x, y, "wait"), 0)
        elif kind == DEPART:
            for number, direction in enumerate("WENSR"):
                if aux >> number & 1:
                    for name, value in (("grant", data), ("color", color)):
                        changes[cycle, x, y, (name, direction)] = value
                        changes.setdefault((cycle + 1, x, y, (name, direction)), "z")
    return sorted(((*key, value) for key, value in changes.items()), key=lambda item: item[0])
