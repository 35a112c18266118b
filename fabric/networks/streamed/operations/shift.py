"""A learned number is added to each channel; its gradient is the sum of those of the channel.

Order of additions (bit exact)
    A number is added in f32 and rounded once.  Its gradient: pixels first, then samples, then north to south.

Cycles
    Of a row of samples three vector operations forward and two back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.streamed.operations.lowering import StepWriter
from fabric.networks.streamed.operations.shapes import shape_number

if TYPE_CHECKING:
    from fabric.networks.streamed.operations.channels import ChannelTasks

__all__ = ["COMMANDS", "back", "forward", "tasks"]

COMMANDS = {
    "channel_shift": "rows of the next channel: plus data",
    "channel_total": "send the sum of delta rows of the next channel south",
}


def forward(w: StepWriter, step: NetworkStep) -> None:
    """Write the sums with the number of each channel."""
    w.tell(shape=shape_number(w.plan.network, step.node, "forward"))
    w.tell(row=f"{w.plan.array(step.writes[0])}.rows")
    w.channels(step, [(("channel_shift", 0),)])


def back(w: StepWriter, step: NetworkStep) -> None:
    """Write the gradients of the numbers; those of the rows stay as they are."""
    w.tell(shape=shape_number(w.plan.network, step.node, "back"))
    w.tell(delta=w.plan.array(step.writes[0] if step.writes else step.reads[0]))
    w.channels(step, [(("channel_total", None),)], answers=(0,))


def tasks(c: ChannelTasks) -> None:
    """Write the tasks of both ways."""
    code, p, one = c.code, c.code.p, c.code.one
    with code.command("channel_shift") as t:
        number = p.reg32("shift of a channel")
        p.fh2s(number, t.data)
        with c.times("plane"):
            p.fh2s(one, code.reads["row"])
            p.fadds(one, one, number)
            p.fs2h(code.writes["row"], one)
        p.free(number)
    with code.command("channel_total"):
        with c.times("plane"):
            p.fh2s(one, code.reads["delta"])
            p.fadds(c.sums, c.sums, one)
        code.send_sum(c.sums)
        p.mov32(c.sums, 0)
