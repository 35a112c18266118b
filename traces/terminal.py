"""A region at a cycle is shown as text.

A PE is a cell of three lines: task or wait, operation, and the links on which its router sends in this cycle::

    main      what runs: the task; `wait in`, `wait out`, `wait fifo`, `wait res` while the CE waits; `-` if nothing
    fadds     the operation of the main thread, or how many microthreads are busy
    ^>vR      a mark per output in use: ^ north, > east, v south, < west, R up to the CE
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from traces.naming import operation_name, task_name
from traces.state import OPEN, PEState, RegionStates
from wse_core.events import KINDS

__all__ = ["as_data", "describe_wavelet", "grid", "task_table"]

CELL = 10
ARROWS = "<>^vR"  # W, E, N, S, R
SHORT = {"input": "in", "output": "out", "fifo": "fifo", "resource": "res"}
PORTS = "WENSR"


def grid(region: RegionStates, cycle: int, names: Mapping[str, Any]) -> list[str]:
    """Return the lines of a picture of a `traces.state.RegionStates` in a cycle.

    Parameters
    ----------
    region : RegionStates
    cycle : int
    names : dict
        `Trace.names`.
    """
    states = region.at(cycle)
    x, y, width, height = region.region
    rule = "     +" + ("-" * CELL + "+") * width
    lines = [f"cycle {cycle}", "      " + " ".join(f"{f'x={column}':<{CELL}}" for column in range(x, x + width)), rule]
    for row in range(y, y + height):
        cells = [_cell(states[column, row], names) for column in range(x, x + width)]
        for part in range(3):
            label = f"y={row}" if part == 0 else ""
            lines.append(f"{label:<5}|" + "|".join(f"{cell[part][:CELL]:<{CELL}}" for cell in cells) + "|")
        lines.append(rule)
    return lines


def as_data(region: RegionStates, cycle: int, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `grid` shows as plain data: cycle, region and, per PE, task, wait, operations and grants."""
    states = region.at(cycle)
    pes = []
    for (x, y), state in sorted(states.items(), key=lambda entry: entry[0][::-1]):
        pes.append(
            {
                "x": x,
                "y": y,
                "task": None if state.task is None else task_name(names, state.task),
                "wait": state.wait,
                "operations": {thread: operation_name(names, code) for thread, code in state.operations.items()},
                "grants": [
                    {
                        "color": color,
                        "from": PORTS[port],
                        "to": "".join(name for bit, name in enumerate(PORTS) if outputs >> bit & 1),
                        "payload": payload,
                    }
                    for color, port, outputs, payload in state.grants
                ],
            }
        )
    return {"cycle": cycle, "region": list(region.region), "pes": pes}


def _cell(state: PEState, names: Mapping[str, Any]) -> tuple[str, str, str]:
    if state.wait is not None:
        first = f"wait {SHORT[state.wait]}"
    elif state.task is not None:
        first = task_name(names, state.task)
    else:
        first = "-"
    busy = [thread for thread in state.operations if thread != "main"]
    second = ""
    if "main" in state.operations:
        second = operation_name(names, state.operations["main"])
    if busy:
        second = f"{second} +{len(busy)}ut".strip()
    used = 0
    for _, _, outputs, _ in state.grants:
        used |= outputs
    return first, second, "".join(mark for bit, mark in enumerate(ARROWS) if used >> bit & 1)


def task_table(region: RegionStates, x: int, y: int, names: Mapping[str, Any]) -> list[str]:
    """Return lines: the tasks of one PE, begin, end and length."""
    found = region.tasks[(region.tasks["x"] == x) & (region.tasks["y"] == y)]
    lines = [f"{'task':<20} {'begin':>12} {'end':>12} {'cycles':>10}"]
    for span in found:
        name = task_name(names, int(span["what"]))
        begin, end = int(span["begin"]), int(span["end"])
        open_end = end == OPEN
        lines.append(
            f"{name:<20} {begin:>12,} {'runs on' if open_end else f'{end:,}':>12} "
            f"{'' if open_end else f'{end - begin:,}':>10}"
        )
    return lines if len(found) else [f"PE ({x}, {y}) started no task"]


def describe_wavelet(events: np.ndarray) -> list[str]:
    """Return lines: the way of one wavelet, from the events that `traces.paths.follow` gives."""
    lines = []
    for event in events:
        kind, where = KINDS[event["kind"]], f"({event['x']}, {event['y']})"
        text = {
            "inject": f"sent by the CE through output queue {event['aux']}",
            "enter": f"enters from outside at port {PORTS[event['aux']]}" if event["aux"] < len(PORTS) else "",
            "take": f"taken by the CE from input queue {event['aux']}",
        }.get(kind)
        if kind == "depart":
            out = "".join(port for bit, port in enumerate(PORTS) if event["aux"] >> bit & 1)
            out = out or ("the host" if event["aux"] >> len(PORTS) & 1 else "nowhere")
            text = f"leaves from port {PORTS[event['flags'] >> 1 & 7]} to {out}"
        cycle, payload = int(event["cycle"]), int(event["data"])
        lines.append(f"{cycle:>10,}  {where:<12} color {event['color']:<3} {payload:08x}  {text}")
    return lines
