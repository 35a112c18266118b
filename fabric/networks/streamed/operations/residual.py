"""Sums of two tensors row by row, and copies; gradients of what several operations take are added up by the same."""

from __future__ import annotations

from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.tensors import NetworkTensor
from fabric.networks.streamed.operations.code import ProgramCode
from fabric.networks.streamed.operations.lowering import Lowering, StepWriter

__all__ = ["ADD", "MUL"]

COMMANDS = {"add": "row: aux row plus delta row", "copy": "row: aux row"}
TIMES = {"times": "row: aux row times delta row"}


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


def times(w: StepWriter, step: NetworkStep) -> None:
    """Write the products of two tensors, number by number."""
    y, (a, b) = step.writes[0], step.reads
    w.tell(row=_rows(w, y), aux=_rows(w, a), delta=_rows(w, b))
    w.each(y, "times")


def times_back(w: StepWriter, step: NetworkStep) -> None:
    """Write the gradients of both factors: that of the product times the other one."""
    dy, taken = step.reads[0], step.node.inputs[::-1]
    for dx, other in zip(step.writes, taken, strict=True):
        w.tell(row=_rows(w, dx), aux=_rows(w, dy), delta=f"{w.plan.activation(other)}.rows")
        w.each(dx, "times")


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


class MulTasks:
    """A product has one task."""

    def __init__(self, code: ProgramCode) -> None:
        self.code = code

    def tasks(self) -> None:
        """Write the task of products."""
        code = self.code
        with code.command("times"):
            code.p.fmovh(code.short, code.reads["aux"])
            code.p.fmulh(code.short, code.short, code.reads["delta"])
            code.p.fmovh(code.writes["row"], code.short)


ADD = Lowering(
    COMMANDS,
    {"forward": add, "sum": add, "copy": copy, "back": copy},
    {"forward": ("forward, {place}", "add"), "copy": ("copies, {place}", "copy"), "sum": ("sums, {place}", "sum")},
    tasks_of=AddTasks,
)
"""A sum has this form in weight streaming."""

MUL = Lowering(
    TIMES,
    {"forward": times, "back": times_back},
    {"forward": ("forward, {place}", "mul"), "back": ("backward, {place}", "mul back")},
    tasks_of=MulTasks,
)
"""A product, number by number, has this form in weight streaming."""
