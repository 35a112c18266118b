"""Two tensors are added or multiplied row by row, and copied; several gradients of a tensor are added by the same."""

from __future__ import annotations

from functools import partial

from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.tensors import NetworkTensor
from fabric.networks.streamed.operations.code import ProgramCode
from fabric.networks.streamed.operations.lowering import Lowering, StepWriter

__all__ = ["ADD", "CONCAT", "MUL"]

OF_SUMS = {"add": "row: aux row plus delta row", "copy": "row: aux row"}
OF_PRODUCTS = {"times": "row: aux row times delta row"}


def add(w: StepWriter, step: NetworkStep) -> None:
    """Write the sum of two tensors."""
    _combined(w, "add", step.writes[0], *(_rows(w, tensor) for tensor in step.reads))


def copy(w: StepWriter, step: NetworkStep) -> None:
    """Write copies of a tensor."""
    for y in step.writes:
        w.tell(row=_rows(w, y), aux=_rows(w, step.reads[0]))
        w.each(y, "copy")


def beside(w: StepWriter, step: NetworkStep) -> None:
    """Write copies of two tensors, one behind the other."""
    w.tell(row=_rows(w, step.writes[0]))
    for x in step.reads:
        w.tell(aux=_rows(w, x))
        w.each(x, "copy")


def apart(w: StepWriter, step: NetworkStep) -> None:
    """Write copies of the two parts of a gradient."""
    w.tell(aux=_rows(w, step.reads[0]))
    for dx in step.writes:
        w.tell(row=_rows(w, dx))
        w.each(dx, "copy")


def times(w: StepWriter, step: NetworkStep) -> None:
    """Write the products of two tensors, number by number."""
    _combined(w, "times", step.writes[0], *(_rows(w, tensor) for tensor in step.reads))


def times_back(w: StepWriter, step: NetworkStep) -> None:
    """Write the gradients of both factors: that of the product times the other one."""
    for dx, other in zip(step.writes, step.node.inputs[::-1], strict=True):
        _combined(w, "times", dx, _rows(w, step.reads[0]), f"{w.plan.activation(other)}.rows")


def _combined(w: StepWriter, name: str, y: NetworkTensor, a: str, b: str) -> None:
    """Write a command for every row of a tensor, made of those of two arrays."""
    w.tell(row=_rows(w, y), aux=a, delta=b)
    w.each(y, name)


def _rows(w: StepWriter, tensor: NetworkTensor) -> str:
    """Return the name of the rows of a tensor, behind the row of ones if there is one."""
    return w.plan.array(tensor) + ".rows" * (tensor.kind != "gradient")


class PairTasks:
    """A command on two rows has a task; sums have one more, which copies.

    Parameters
    ----------
    code : ProgramCode
    name : {"add", "times"}
    """

    def __init__(self, code: ProgramCode, name: str) -> None:
        self.code, self.name = code, name

    def tasks(self) -> None:
        """Write the tasks of an operation on two rows."""
        code, p = self.code, self.code.p
        with code.command(self.name):
            p.fmovh(code.short, code.reads["aux"])
            (p.faddh if self.name == "add" else p.fmulh)(code.short, code.short, code.reads["delta"])
            p.fmovh(code.writes["row"], code.short)
        if self.name == "add":
            with code.command("copy"):
                p.fmovh(code.writes["row"], code.reads["aux"])


ADD = Lowering(
    OF_SUMS,
    {"forward": add, "sum": add, "copy": copy, "back": copy},
    {"forward": ("forward, {place}", "add"), "copy": ("copies, {place}", "copy"), "sum": ("sums, {place}", "sum")},
    tasks_of=partial(PairTasks, name="add"),
)
"""A sum has this form in weight streaming."""

CONCAT = Lowering(
    OF_SUMS,
    {"forward": beside, "back": apart},
    {"forward": ("forward, {place}", "concat"), "back": ("backward, {place}", "concat back")},
    tasks_of=ADD.tasks_of,
)
"""Two tensors side by side have this form in weight streaming."""

MUL = Lowering(
    OF_PRODUCTS,
    {"forward": times, "back": times_back},
    {"forward": ("forward, {place}", "mul"), "back": ("backward, {place}", "mul back")},
    tasks_of=partial(PairTasks, name="times"),
)
"""A product, number by number, has this form in weight streaming."""
