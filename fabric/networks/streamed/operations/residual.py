"""Sums of two tensors row by row, and copies; gradients of what several operations take are added up by the same."""

from __future__ import annotations

from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.tensors import NetworkTensor
from fabric.networks.streamed.operations.code import ProgramCode
from fabric.networks.streamed.operations.lowering import Lowering, StepWriter

__all__ = ["ADD"]

COMMANDS = {"add": "row: aux row plus delta row", "copy": "row: aux row"}


def add(w: StepWriter, step: NetworkStep) -> None:
    """Write the sum of two tensors."""
    y, (a, b) = step.writes[0], step.reads
    w.tell(row=_rows(w, y), aux=_rows(w, a), delta=_rows(w, b))
    w.each(y, "add")


def copy(w: StepWriter, step: NetworkStep) -> None:
    """Write copies of a tensor."""
    for y in step.writes:
        w.tell(row=_rows(w, y), aux=_rows(w, step.reads[0]))
        w.each(y, "copy")


def _rows(w: StepWriter, tensor: NetworkTensor) -> str:
    """Return the name of the rows of a tensor, behind the row of ones if there is one."""
    return w.plan.array(tensor) + ".rows" * (tensor.kind != "gradient")


class AddTasks:
    """A sum and a copy have a task each."""

    def __init__(self, code: ProgramCode) -> None:
        self.code = code

    def tasks(self) -> None:
        """Write the tasks of sums and copies."""
        code = self.code
        with code.command("add"):
            code.p.fmovh(code.short, code.reads["aux"])
            code.p.faddh(code.short, code.short, code.reads["delta"])
            code.p.fmovh(code.writes["row"], code.short)
        with code.command("copy"):
            code.p.fmovh(code.writes["row"], code.reads["aux"])


ADD = Lowering(
    COMMANDS,
    {"forward": add, "sum": add, "copy": copy, "back": copy},
    {"forward": ("forward, {place}", "add"), "copy": ("copies, {place}", "copy"), "sum": ("sums, {place}", "sum")},
    tasks_of=AddTasks,
)
"""A sum has this form in weight streaming."""
