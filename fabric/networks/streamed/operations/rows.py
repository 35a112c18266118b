"""Activations and their slopes work on single rows; `fabric.networks.graph.activations` says what they are.

A command per row; in a product it follows the row that has just landed.
"""

from __future__ import annotations

from functools import partial

from fabric.networks.graph.activations import ACTIVATIONS, Activation, ActivationOperands
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.streamed.operations.code import ProgramCode
from fabric.networks.streamed.operations.lowering import Lowering, StepWriter

__all__ = ["ROWS", "slope_task"]

SLOPE = {"slope": "delta row: times the aux row"}


def forward(w: StepWriter, step: NetworkStep) -> None:
    """Write an activation of all rows."""
    w.tell(row=f"{w.plan.array(step.writes[0])}.rows", aux=w.plan.kept(step, "s"))
    w.each(step.writes[0], step.op)


def back(w: StepWriter, step: NetworkStep) -> None:
    """Write the product of all rows of gradients with the slopes."""
    w.tell(delta=w.plan.array(step.writes[0]), aux=w.plan.kept(step, "s"))
    w.each(step.writes[0], "slope")


class RowTasks:
    """An activation has one task.

    Parameters
    ----------
    row : Activation
    code : ProgramCode
    """

    def __init__(self, row: Activation, code: ProgramCode) -> None:
        self.row, self.code = row, code

    def tasks(self) -> None:
        """Write the task of an activation."""
        code = self.code
        with code.command(self.row.name):
            read, write, slope = code.reads["row"], code.writes["row"], code.writes["aux"]
            wide = (code.one, code.two, code.peak)
            self.row.emit(ActivationOperands(code.p, read, code.short, write, code.short, slope, wide, code.functions))


def lowered(row: Activation) -> Lowering:
    """Return an activation in weight streaming."""
    meaning, after = f"row: {row.meaning}; aux row: its slope", {"forward": row.name, "back": "slope"}
    write = {"forward": forward, "back": back}
    return Lowering({row.name: meaning} | SLOPE, write, after=after, tasks_of=partial(RowTasks, row))


def slope_task(code: ProgramCode) -> None:
    """Write ``slope``, which all activations share."""
    with code.command("slope"):
        code.p.fmovh(code.short, code.reads["aux"])
        code.p.fmulh(code.writes["delta"], code.short, code.reads["delta"])


ROWS = {name: lowered(row) for name, row in ACTIVATIONS.items()}
"""Activations have these forms in weight streaming."""
