"""Products: a matrix streams past the activations, its transpose past the gradients, its mask asks for gradients.

The tasks are those of `fabric.kernels.streamed.forward` and `fabric.kernels.streamed.gradient`; programs for rows
without gaps have some more.

Source: weight streaming white paper, sections 7.3.1 to 7.3.3, 6.2.
"""

from __future__ import annotations

from collections.abc import Mapping

from fabric.asm.operands import Dsr
from fabric.kernels.streamed.forward import ProductTasks
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.streamed.operations.code import ProgramCode
from fabric.networks.streamed.operations.kept import KEEP, LEAVE
from fabric.networks.streamed.operations.lowering import Lowering, StepWriter

__all__ = ["DENSE", "LINEAR", "TURN", "dense_tasks", "turn_task"]

COMMANDS = {
    "begin": "send the partial sums round the ring of columns",
    "pass": "add the own partial sums to those that arrive and send them on",
    "land": "add the own partial sums, round, keep the row",
    "send": "a row of the mask: send the own row of output gradients to all columns, then answer data places (DENSE)",
    "from_west": "a row of the mask: take the row of output gradients from the west, then the same",
    "from_east": "the same from the east",
    "ask": "a place of the mask, data = step to the feature: send its gradient south",
}
"""A row of weights or of a mask is followed by one of these commands."""
DENSE = {
    "bias": "sums: plus data, the weight of the constant input",
    "last": "sums: plus data times the present feature: the last weight of a row with an odd number of them",
    "pairs": "a data wavelet carries the weights of the next two features",
    "steps": "a data wavelet carries a weight and the step to its feature",
}
"""Rows without gaps: what follows from their order is not sent.  Only programs for dense matrices have these tasks; in
them a command that begins a row of the mask asks for all gradients of the row too, if its data say how many."""
TURN = {
    "turn": "copy the features token by token; data = how many rows: gradients of dense rows are made from the copy"
}
"""Only programs have this command in which that pays (`fabric.networks.streamed.operations.gradients`)."""


def forward(w: StepWriter, step: NetworkStep) -> None:
    """Write a product with the activations; slopes are those of whatever function follows on the level."""
    rows = f"{w.plan.array(step.writes[0])}.rows"
    behind = ".rows" * w.in_pairs(step)  # a step of weights in pairs is none over the row of ones
    w.tell(source=w.plan.array(step.reads[0]) + behind, result=rows, row=rows)
    slopes = w.plan.slopes(step.writes[0])
    if slopes:
        w.tell(aux=slopes)
    keeps = w.keeps(step)
    if keeps:
        w.tell(kept=KEEP)
    w.product(step)
    if keeps:
        w.tell(kept=LEAVE)


def back(w: StepWriter, step: NetworkStep) -> None:
    """Write the product of the transposed matrix, without biases, with the gradients; it comes again, or was kept."""
    target = w.plan.array(step.writes[0])
    if w.keeps(step):
        w.tell(mine=w.plan.array(step.reads[0]))
        w.gather(step)
    w.tell(source=w.plan.array(step.reads[0]), result=target)
    for later in step.then:
        w.tell(delta=target, aux=w.plan.kept(later, "s"))
    w.product(step)


def ask(w: StepWriter, step: NetworkStep) -> None:
    """Write the requests for gradients of the weights."""
    x, delta = step.reads
    w.tell(source=w.plan.array(x), mine=w.plan.array(delta))
    w.ask(step)


def dense_tasks(product: ProductTasks, ids: Mapping[str, int], constant: Dsr) -> None:
    """Write the commands between pairs of weights; `constant` reads the constant input."""
    p = product.p
    with p.task("bias", kind="control", id=ids["bias"]) as t:
        p.fmachs(product.total, product.total, constant, t.data)
    with p.task("last", kind="control", id=ids["last"]) as t:
        product.use((t.data,), onward=False)
    if product.in_pairs is None:
        return
    for name in ("pairs", "steps"):
        with p.task(name, kind="control", id=ids[name]):
            p.mov16(product.in_pairs, int(name == "pairs"))


def turn_task(code: ProgramCode) -> None:
    """Write the command that copies features for gradients made as rows times scalars."""
    with code.command("turn") as t:
        code.gradient.turn(t.data)


LINEAR = Lowering(
    COMMANDS | DENSE,
    {"forward": forward, "back": back, "ask": ask},
    {
        "forward": ("forward, {place}", "forward"),
        "back": ("backward, {place}", "backward"),
        "ask": ("gradients, {place}", "gradient"),
    },
)
"""A product has this form in weight streaming."""
