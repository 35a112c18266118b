"""Ids are of several kinds, and an architecture says which of them name data tasks and which are blocked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabric.csl.diagnostics import Fault, Span
from fabric.csl.types import IdType

if TYPE_CHECKING:
    from fabric.csl.comptime.interpreter import Interpreter

__all__ = [
    "COLOR",
    "CONTROL",
    "DATA",
    "INPUT",
    "LOCAL",
    "OUTPUT",
    "THREAD",
    "activated",
    "by_queue",
    "gates",
    "only_by_queue",
]

COLOR, DATA, LOCAL, CONTROL = (IdType(x) for x in ("color", "data_task_id", "local_task_id", "control_task_id"))
INPUT, OUTPUT, THREAD = IdType("input_queue"), IdType("output_queue"), IdType("ut_id")


def by_queue(ev: Interpreter) -> bool:
    """Whether a data task, and what blocks it, is named by its input queue: on WSE-3."""
    return bool(ev.session.machine["task.by_queue"])


def gates(ev: Interpreter) -> tuple[IdType, ...]:
    """Return the kinds of ids that can be blocked."""
    return (INPUT, DATA, LOCAL) if by_queue(ev) else (COLOR, DATA, LOCAL)


def activated(ev: Interpreter) -> tuple[IdType, ...]:
    """Return the kinds of ids that can be activated; on WSE-2 a color names its local task, as before SDK 1.0."""
    return (LOCAL,) if by_queue(ev) else (LOCAL, COLOR)


def only_by_queue(ev: Interpreter, name: str, span: Span) -> None:
    """Refuse what WSE-2 does not have."""
    if not by_queue(ev):
        raise Fault(f"{name} exists on WSE-3 only", span, "guard it with @is_arch")
