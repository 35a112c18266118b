"""What events number has names: tasks, control tasks, operations.

Control tasks have ids of their own, so a task is told from them by `task_number`: its id, or `CONTROL` more than the id
of a control task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wse_core.errors.values import CONTROLS

__all__ = ["CONTROL", "clean", "operation_name", "task_name", "task_number"]

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


def clean(text: object) -> str:
    """Return a text of a run file for pictures and other viewers: control characters as ``\\xNN``."""
    return str(text).translate(CONTROLS)
