"""A number is multiplied with each channel, or a constant with all; its gradient is a sum over those of the channel.

Order of additions (bit exact)
    A product is exact in f32 and rounded once; a zero has no sign.  The gradient of a number: pixels first, then
    samples, then north to south.

Cycles
    Of a row of samples three vector operations a product, and four the gradient of a number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.scale import factor_of
from fabric.networks.streamed.operations.lowering import StepWriter
from fabric.networks.streamed.operations.shapes import pixels_of_multiple, shape_number

if TYPE_CHECKING:
    from fabric.networks.streamed.operations.channels import ChannelTasks

__all__ = ["COMMANDS", "back", "forward", "multiplied", "multiplied_back", "tasks"]

COMMANDS = {"channel_dot": "send the sum of delta rows times aux rows of the next channel south"}
PRODUCT = (("channel_gamma", 0), ("channel_affine", None))
"""Aux rows that were told last are multiplied with the number of each channel by these commands."""


def forward(w: StepWriter, step: NetworkStep) -> None:
    """Write the products with the number of each channel."""
    w.tell(shape=shape_number(w.plan.network, step.node, "forward"))
    w.tell(row=f"{w.plan.array(step.writes[0])}.rows", aux=f"{w.plan.array(step.reads[0])}.rows")
    w.channels(step, [PRODUCT])


def back(w: StepWriter, step: NetworkStep) -> None:
    """Write the gradients of the numbers, then those of what was multiplied."""
    delta = w.plan.array(step.reads[0])
    w.tell(shape=shape_number(w.plan.network, step.node, "back"))
    w.tell(delta=delta, aux=f"{w.plan.activation(step.node.inputs[0])}.rows")
    w.channels(step, [(("channel_dot", None),)], answers=(0,))
    if step.writes:
        w.tell(row=w.plan.array(step.writes[0]), aux=delta)
        w.channels(step, [PRODUCT])


def multiplied(w: StepWriter, step: NetworkStep) -> None:
    """Write the products with a constant."""
    _multiplied(w, step, ".rows")


def multiplied_back(w: StepWriter, step: NetworkStep) -> None:
    """Write the products of gradients with a constant."""
    _multiplied(w, step, "")


def _multiplied(w: StepWriter, step: NetworkStep, part: str) -> None:
    network, x, y = w.plan.network, step.reads[0], step.writes[0]
    factor = int(w.half.encode(factor_of(step.node)))
    w.tell(shape=shape_number(network, step.node, step.direction))
    w.tell(row=w.plan.array(y) + part, aux=w.plan.array(x) + part, channel_gamma=factor)
    w.each(y, "channel_affine", unit=pixels_of_multiple(network, step.node))


def tasks(c: ChannelTasks) -> None:
    """Write the task of the gradient of a number."""
    code, p, one, two = c.code, c.code.p, c.code.one, c.code.two
    with code.command("channel_dot"):
        with c.times("plane"):
            p.fh2s(one, code.reads["delta"])
            p.fh2s(two, code.reads["aux"])
            p.fmuls(one, one, two)
            p.fadds(c.sums, c.sums, one)
        code.send_sum(c.sums)
        p.mov32(c.sums, 0)
