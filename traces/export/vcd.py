"""A value change dump shows a small region: per PE the task, the wait and what the router grants, a cycle a nanosecond.

==================  ==========================================================================
signal              value
==================  ==========================================================================
``task``            name of the task that runs; ``-`` when none does
``wait``            reason of `wse_core.events.WAITS` while the CE waits; ``-`` else
``grant_D``         payload that leaves in direction D in this cycle; z when none does
``color_D``         its color; z when none does
==================  ==========================================================================
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from traces.naming import task_name, task_number
from traces.trace import Trace
from wse_core.errors import TraceError
from wse_core.events import KINDS, WAITS

__all__ = ["MOST_PES", "write_vcd"]

MOST_PES = 1024
NONE = "-"
_Signal: TypeAlias = str | tuple[str, str]
"""The name of a signal of a PE; those per direction have the direction beside it."""
DEPART, TASK_START, TASK_END, WAIT = (KINDS.index(kind) for kind in ("depart", "task_start", "task_end", "wait"))


def write_vcd(trace: Trace, events: np.ndarray, stream: BinaryIO) -> None:
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
        signals: dict[tuple[int, int], dict[_Signal, Any]] = {}
        wide, high = (len(str(int(events[name].max(initial=0)))) for name in ("x", "y"))
        for place in places:
            x, y = int(place["x"]), int(place["y"])
            scope = f"pe_{x:0{wide}}_{y:0{high}}"  # viewers sort by letters
            signals[x, y] = {
                "task": writer.register_var(scope, "task", "string", init=NONE),
                "wait": writer.register_var(scope, "wait", "string", init=NONE),
            }
            for direction in "WENSR":
                for name, size in (("grant", 32), ("color", 8)):
                    signals[x, y][name, direction] = writer.register_var(
                        scope, f"{name}_{direction}", "wire", size=size, init="z"
                    )
        for cycle, x, y, signal, value in _changes(events, trace.names):
            writer.change(signals[x, y][signal], cycle, value)
    text.detach()


def _word(text: str) -> str:
    """Return a text as one word of ASCII, which is all that a value of this format can be."""
    return "".join(letter if letter.isascii() and letter.isprintable() and letter != " " else "_" for letter in text)


def _changes(events: np.ndarray, names: Mapping[str, Any]) -> list[tuple[int, int, int, _Signal, int | str]]:
    """Return (cycle, x, y, signal, value) in order; of several values in a cycle the last stands."""
    changes: dict[tuple[int, int, int, _Signal], int | str] = {}
    columns = [events[name].tolist() for name in ("cycle", "x", "y", "kind", "color", "aux", "data", "flags")]
    for cycle, x, y, kind, color, aux, data, flags in zip(*columns, strict=True):
        if kind == TASK_START:
            changes[cycle, x, y, "task"] = _word(task_name(names, task_number(aux, flags)))
        elif kind == TASK_END:
            changes.setdefault((cycle + 1, x, y, "task"), NONE)
        elif kind == WAIT:
            changes[cycle - data, x, y, "wait"] = WAITS[aux]
            changes.setdefault((cycle, x, y, "wait"), NONE)
        elif kind == DEPART:
            for number, direction in enumerate("WENSR"):
                if aux >> number & 1:
                    for name, value in (("grant", data), ("color", color)):
                        changes[cycle, x, y, (name, direction)] = value
                        changes.setdefault((cycle + 1, x, y, (name, direction)), "z")
    return sorted(((*key, value) for key, value in changes.items()), key=lambda item: item[0])
