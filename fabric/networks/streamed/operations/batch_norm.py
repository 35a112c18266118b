"""Batch normalisation: sums over a channel go south, the memory service answers with numbers of each channel.

Numbers are f32 and come as two halves; a command fills a row of tokens with one, so that what follows is the same for
all samples.

Order of additions (bit exact)
    Sums over a channel: pixels first, then samples, then north to south; then over the wafers, as gradients are.

Cycles
    Of a row of samples four vector operations for the sums, six to normalise, and eleven back, besides the round trips.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabric.networks.graph.batch_norm import NUMBERS
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.streamed.operations.lowering import StepWriter
from fabric.networks.streamed.operations.shapes import shape_number

if TYPE_CHECKING:
    from fabric.networks.streamed.operations.channels import ChannelTasks

__all__ = ["COMMANDS", "back", "forward", "known", "tasks"]

COMMANDS = {
    "number_low": "data = lower half of a number of the next channel",
    "as_mean": "data = its upper half: the mean of all samples",
    "as_dot": "data = its upper half: the mean product of all samples",
    "as_deviation": "data = its upper half: what all samples are multiplied with",
    "batch_sums": "send the sums of (row - mean), and of its square, of the next channel south",
    "batch_unit": "aux rows of the next channel: (row - mean) times deviation",
    "batch_row": "delta rows of the next channel: (delta row - mean - aux row times mean product) times deviation",
}


def forward(w: StepWriter, step: NetworkStep) -> None:
    """Write the sums of the batch, then what is done with its mean and deviation."""
    w.tell(shape=shape_number(w.plan.network, step.node, "forward"))
    w.tell(row=f"{w.plan.array(step.writes[0])}.rows")
    w.channels(step, [(*_number("shift", "as_mean"), ("batch_sums", None))], answers=(0, 1), made=True)
    w.round_trip(step)
    _normalise(w, step)


def known(w: StepWriter, step: NetworkStep) -> None:
    """Write what is done with running statistics, in a test."""
    w.tell(shape=shape_number(w.plan.network, step.node, "forward"))
    _normalise(w, step)


def _normalise(w: StepWriter, step: NetworkStep) -> None:
    rows, unit = f"{w.plan.array(step.writes[0])}.rows", w.plan.kept(step, "n")
    w.tell(row=rows, aux=unit)
    numbers = *_number("mean", "as_mean"), *_number("inverse", "as_deviation")
    w.channels(step, [(*numbers, ("batch_unit", None))], made=True)
    w.tell(row=rows, aux=unit)
    w.channels(step, [(("channel_gamma", 0), ("channel_affine", 1))])


def back(w: StepWriter, step: NetworkStep) -> None:
    """Write the gradients of factors and shifts, then, with their sums over the batch, those of what was normalised."""
    delta, unit = w.plan.array(step.writes[0]), w.plan.kept(step, "n")
    w.tell(shape=shape_number(w.plan.network, step.node, "back"))
    w.tell(delta=delta, aux=unit)
    w.channels(step, [(("channel_gradients", None),)], answers=(0, 1))
    w.round_trip(step)
    w.tell(delta=delta, aux=unit)
    numbers = *_number("back_mean", "as_mean"), *_number("back_dot", "as_dot"), *_number("scale", "as_deviation")
    w.channels(step, [(*numbers, ("batch_row", None))], made=True)


def _number(name: str, command: str) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return the two commands that bring a number of a channel."""
    row = 2 * NUMBERS.index(name)
    return ("number_low", row), (command, row + 1)


def tasks(c: ChannelTasks) -> None:
    """Write the tasks of both ways."""
    code, p, one = c.code, c.code.p, c.code.one
    low = p.scalar("half of a number", "u16", 0)
    with code.command("number_low") as t:
        p.st16(t.data, low)
    for name, row in (("as_mean", c.mean), ("as_dot", c.dot), ("as_deviation", c.deviation)):
        with code.command(name) as t:
            number = p.reg32("number of a channel")
            p.ld16(number.low, low)
            p.mov16(number.high, t.data)
            p.mov32(row, number)
            p.free(number)
    with code.command("batch_sums"):
        with c.times("plane"):
            c.centred()
            p.fadds(c.sums, c.sums, one)
            p.fmuls(one, one, one)
            p.fadds(code.product.sums, code.product.sums, one)
        code.send_sum(c.sums)
        code.send_sum(code.product.sums)
        c.zeroed()
    with code.command("batch_unit"), c.times("plane"):
        c.centred()
        p.fmuls(one, one, c.deviation)
        p.fs2h(code.writes["aux"], one)
    with code.command("batch_row"), c.times("plane"):
        p.fh2s(one, code.reads["delta"])
        c.given_back()
