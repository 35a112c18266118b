"""Group normalisation: whole groups of channels lie in a column, so a PE normalises them by itself.

Order of additions (bit exact)
    Sums over a group: from 0 over its channels and their pixels, all samples at once.  Gradients of factors and shifts:
    pixels first, then samples, then north to south.

Cycles
    Of a row of samples thirteen vector operations forward and nineteen back, in loops over the rows of a group or a
    channel.
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
    "group_norm": "aux rows of the next group: (rows - mean) / deviation, which the wide row keeps",
    "channel_sum": "sums over the group: plus those of the next channel, with its factor, data",
    "group_back": "keep the means of the sums; deviation: the wide row; delta and aux rows: from the group's first on",
    "channel_row": "delta rows of the next channel, whose factor is data: what goes back",
}


def forward(w: StepWriter, step: NetworkStep) -> None:
    """Write the normalisation of all groups, then factors and shifts."""
    rows, unit = f"{w.plan.array(step.writes[0])}.rows", w.plan.kept(step, "n")
    w.tell(shape=shape_number(w.plan.network, step.node, "forward"))
    w.tell(row=rows, aux=unit, wide=w.plan.kept(step, "v"))
    w.channels(step, ["group_norm"])
    w.tell(row=rows, aux=unit)
    w.channels(step, [(("channel_gamma", 0), ("channel_affine", 1))])


def back(w: StepWriter, step: NetworkStep) -> None:
    """Write the gradients of factors and shifts, then those of what was normalised."""
    delta, unit = w.plan.array(step.writes[0]), w.plan.kept(step, "n")
    w.tell(shape=shape_number(w.plan.network, step.node, "back"))
    w.tell(delta=delta, aux=unit)
    w.channels(step, [(("channel_gradients", None),)], answers=(0, 1))
    w.tell(delta=delta, aux=unit, wide=w.plan.kept(step, "v"))
    w.channels(step, [(("channel_sum", 0),), "group_back", (("channel_row", 0),)])


def tasks(c: ChannelTasks) -> None:
    """Write the tasks of both ways."""
    code, p, one = c.code, c.code.p, c.code.one
    total, sums, factor = code.product.total, code.product.sums, code.shapes.factor
    with code.command("group_norm"):
        with c.times("gap"):
            p.fh2s(one, code.reads["row"])
            p.fadds(sums, sums, one)
        code.over_strips(sums)
        p.fmuls(c.mean, sums, factor)
        p.mov32(total, 0)
        c.rewound("row")
        with c.times("gap"):
            c.centred()
            p.fmuls(one, one, one)
            p.fadds(sums, sums, one)
        code.over_strips(sums)
        p.fmuls(one, sums, factor)
        code.add_epsilon(one)
        code.functions.rsqrt(c.deviation, one)
        p.mov32(code.writes["wide"], c.deviation)
        p.mov32(total, 0)
        c.rewound("row")
        with c.times("gap"):
            c.centred()
            p.fmuls(one, one, c.deviation)
            p.fs2h(code.writes["aux"], one)
    with code.command("channel_sum") as t:
        p.mov16(c.gamma, t.data)
        with c.times("plane"):
            c.scaled_delta()
            p.fadds(c.sums, c.sums, one)
            c.with_units()
    with code.command("group_back"):
        code.over_strips(c.sums, sums)
        p.fmuls(c.mean, c.sums, factor)
        p.fmuls(c.dot, sums, factor)
        p.mov32(c.deviation, code.reads["wide"])
        c.zeroed()
        c.rewound("delta", "aux")
    with code.command("channel_row") as t:
        p.mov16(c.gamma, t.data)
        with c.times("plane"):
            c.scaled_delta()
            c.given_back()
