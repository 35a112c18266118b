"""Convolution: filters stream past planes of pixels that lie in the PEs with a border of zeros.

What moves
    As in products of matrices: weights down the columns, partial sums of a plane round the ring of columns, planes of
    gradients along the rows, sums of a weight's gradient south.  No pixel leaves its PE: whole images lie in it, their
    channels over the columns.

Way back
    The product back is a convolution of the gradients, with zeros between them where windows are more than a pixel
    apart; the filters come transposed, channel by channel of what is given, and turned round.

Order of additions (bit exact)
    Forward: the bias, then channels, rows and columns of a filter as they lie, column by column round the ring as in a
    product.  Back: channels of the result, rows and columns from the last to the first.  Gradient of a weight: pixels
    in order, samples within a pixel, then north to south.

Cycles
    A weight, a row of sums and a gradient cost what they cost in products of matrices whose rows are a plane of the
    result long (`fabric.kernels.streamed.forward`, `fabric.kernels.streamed.gradient`), plus a copy of the planes each.

Source: weight streaming white paper, sections 6 to 8; the layout with whole images in a PE is ours.
"""

from __future__ import annotations

from dataclasses import replace

from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.tensors import NetworkTensor
from fabric.networks.graph.windows import Window, window_of
from fabric.networks.streamed.operations.code import ProgramCode
from fabric.networks.streamed.operations.linear import COMMANDS as PRODUCTS
from fabric.networks.streamed.operations.lowering import Lowering, StepWriter
from fabric.networks.streamed.operations.shapes import SHAPE, shape_number

__all__ = ["CONVOLUTION", "TRANSPOSED"]

COMMANDS = {
    "blank": "padded planes: zero",
    "halo": "the next padded plane: what the next rows are, within its border",
    "plane_bias": "sums: plus data, the bias of a channel",
    "ask_plane": "send the sum of the present plane of output gradients south",
}


def forward(w: StepWriter, step: NetworkStep) -> None:
    """Write a product of filters with planes."""
    x, y = step.reads[0], step.writes[0]
    _padded(w, step, "forward", x, _window(w, step).plane)
    w.tell(source="padded", result=f"{w.plan.array(y)}.rows")
    w.filters(step)
    w.tell(shape=0)


def back(w: StepWriter, step: NetworkStep) -> None:
    """Write the product of the transposed filters with planes of gradients."""
    _padded(w, step, "back", step.reads[0], _window(w, step).out_plane)
    w.tell(source="padded", result=w.plan.array(step.writes[0]))
    w.filters(step)
    w.tell(shape=0)


def ask(w: StepWriter, step: NetworkStep) -> None:
    """Write the requests for gradients of the filters."""
    x, delta = step.reads
    _padded(w, step, "ask", x, _window(w, step).plane)
    w.tell(source="padded", mine=w.plan.array(delta))
    w.ask_filters(step)
    w.tell(shape=0)


def enlarge(w: StepWriter, step: NetworkStep) -> None:
    """Write a transposed convolution: the product back of the one that goes the other way."""
    x, y = step.reads[0], step.writes[0]
    _padded(w, step, "forward", x, _window(w, step).out_plane)
    w.tell(source="padded", result=f"{w.plan.array(y)}.rows")
    w.filters(step)
    w.tell(shape=0)


def enlarged_back(w: StepWriter, step: NetworkStep) -> None:
    """Write the gradients of what was enlarged: a convolution of those of the result."""
    _padded(w, step, "back", step.reads[0], _window(w, step).plane)
    w.tell(source="padded", result=w.plan.array(step.writes[0]))
    w.filters(step)
    w.tell(shape=0)


def enlarged_ask(w: StepWriter, step: NetworkStep) -> None:
    """Write the requests for gradients of the filters: windows of gradients times planes that were given."""
    x, delta = step.reads
    _padded(w, step, "ask", delta, _window(w, step).plane)
    w.tell(source="padded", mine=f"{w.plan.array(x)}.rows")
    w.ask_filters(step)
    w.tell(shape=0)


def _window(w: StepWriter, step: NetworkStep) -> Window:
    large = step.node.name if step.node.op == "transposed" else step.node.inputs[0]
    return window_of(step.node, w.plan.network.tensors[large].rows)


def _padded(w: StepWriter, step: NetworkStep, direction: str, given: NetworkTensor, plane: int) -> None:
    """Write the copy of the planes that an operation reads."""
    rows = w.plan.array(given) + ".rows" * (given.kind != "gradient")
    w.tell(shape=shape_number(w.plan.network, step.node, direction))
    w.tell("blank", row=rows)
    w.each(given, "halo", unit=plane)


class ConvolutionTasks:
    """Convolutions have these tasks besides those of products.

    Parameters
    ----------
    code : ProgramCode
    """

    def __init__(self, code: ProgramCode) -> None:
        self.code = code

    def tasks(self) -> None:
        """Write the tasks: copies of planes, biases and their gradients."""
        code, p, total = self.code, self.code.p, self.code.product.total
        with code.command("blank"):
            p.fmovh(code.held["padded"], 0.0)
        with code.command("halo"):
            p.fmovh(code.writes["aux"], code.reads["row"])
            plane = code.shapes.number("plane")
            p.dsr_off(code.writes["aux"], plane)
            p.free(plane)
        with code.command("plane_bias") as t:
            bias = p.reg32("bias")
            p.fh2s(bias, t.data)
            p.fadds(total, total, bias)
            p.free(bias)
        with code.command("ask_plane"):
            found = p.reg32("sum")
            p.mov32(found, 0)
            p.fadds(found, found, code.gradient.other)
            code.gradient.send_south(found)
            p.free(found)


CONVOLUTION = Lowering(
    SHAPE | PRODUCTS | COMMANDS,
    {"forward": forward, "back": back, "ask": ask},
    {
        "forward": ("forward, {place}", "forward"),
        "back": ("backward, {place}", "backward"),
        "ask": ("gradients, {place}", "gradient"),
    },
    tasks_of=ConvolutionTasks,
)
"""A convolution has this form in weight streaming."""

TRANSPOSED = replace(CONVOLUTION, write={"forward": enlarge, "back": enlarged_back, "ask": enlarged_ask})
"""A transposed convolution has this form in weight streaming."""
