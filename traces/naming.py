"""Tasks, control tasks and operations get their names by the numbers that events have.

Control tasks have ids of their own, so a task is told from them by `task_number`: its id, or `CONTROL` more than the id
of a control task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wse_core.errors.values import CONTROLS
from wse_core.events import KINDS

__all__ = ["CONTROL", "clean", "names_of_events", "operation_at", "operation_name", "plain", "task_name", "task_number"]

CONTROL = 256


def task_number(aux: Any, flags: Any) -> Any:
    """Return the number of a task from the fields of its `task_start`; also of columns of numbers."""
    return aux + CONTROL * (flags & 1)


def task_name(names: Mapping[str, Any], number: int) -> str:
    """Return the name of a task by its `task_number`.

    Parameters
    ----------
    names : Mapping
        `traces.trace.Trace.names`.
    number : int
    """
    if number >= CONTROL:
        return clean(names.get("control_tasks", {}).get(str(number - CONTROL), f"control task {number - CONTROL}"))
    return clean(names.get("tasks", {}).get(str(number), f"task {number}"))


def operation_name(names: Mapping[str, Any], opcode: int) -> str:
    """Return the name of an operation by its opcode."""
    return clean(names.get("opcodes", {}).get(str(opcode), f"op {opcode}"))


def operation_at(names: Mapping[str, Any], code: int) -> str:
    """Return the name of an operation and its source line by its opcode, above 16 bits of its code word."""
    line = names.get("lines", {}).get(str(code & 0xFFFF), "")
    return clean(f"{operation_name(names, code >> 16)} {line.rpartition('/')[2]}".strip())


def names_of_events(names: Mapping[str, Any], events: NDArray[Any]) -> dict[str, list[str | None]]:
    """Return what events are of: columns ``task``, ``op`` and ``source``, as far as their fields and a file tell.

    An event of the end of an operation, or of its conflicts, has the name of what began last on its PE and thread.

    Parameters
    ----------
    names : Mapping
        `traces.trace.Trace.names`.
    events : numpy.ndarray
        In order.
    """
    fields, found = set(events.dtype.names or ()), dict[str, list[str | None]]()
    if {"kind", "aux", "flags"} <= fields:
        of_task = np.isin(events["kind"], [KINDS.index(kind) for kind in ("activate", "task_start", "task_end")])
        number = np.where(of_task, task_number(events["aux"].astype(np.int64), events["flags"].astype(np.int64)), -1)
        found["task"] = _named(number, lambda one: task_name(names, one))
    if {"kind", "aux", "data", "x", "y"} <= fields:
        code, lines = _codes(events), names.get("lines", {})
        found["op"] = _named(code, lambda one: operation_name(names, one >> 16))
        found["source"] = _named(code, lambda one: clean(lines.get(str(one & 0xFFFF), "")) or None)
    return found


def _named(numbers: NDArray[Any], name: Callable[[int], str | None]) -> list[str | None]:
    """Return the name of each number, None of those below zero."""
    known = {one: name(one) if one >= 0 else None for one in np.unique(numbers).tolist()}
    return [known[one] for one in numbers.tolist()]


def _codes(events: NDArray[Any]) -> NDArray[np.int64]:
    """Return the opcode above 16 bits of the code word of each event of an operation, -1 of others."""
    start = events["kind"] == KINDS.index("op_start")
    of = start | np.isin(events["kind"], [KINDS.index("op_end"), KINDS.index("conflict")])
    place = (events["y"].astype(np.int64) << 24) | (events["x"].astype(np.int64) << 8) | events["aux"]
    order = np.flatnonzero(of)
    order = order[np.argsort(place[order], kind="stable")]
    last = np.maximum.accumulate(np.where(start[order], np.arange(len(order)), -1))
    there = (last >= 0) & (place[order][last] == place[order])
    code = np.full(len(events), -1, np.int64)
    code[order] = np.where(there, events["data"][order][last].astype(np.int64), -1)
    return code


def clean(text: object) -> str:
    """Return a text of a run file for pictures and other viewers: control characters as ``\\xNN``."""
    return str(text).translate(CONTROLS)


def plain(text: object) -> str:
    """Return a text of a run file as Matplotlib shows it: no sign begins a formula."""
    return clean(text).replace("$", r"\$")
