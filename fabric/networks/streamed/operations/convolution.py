"""In a convolution filters are streamed past planes of pixels, which lie in the PEs with a border of zeros.

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
    Gradients of a row without gaps come together where that pays: a window of all channels of the column times each
    number of the row (`GradientTasks.answer_windows`).

Source: weight streaming white paper, sections 6 to 8; the layout with whole images in a PE is ours.
"""

from __future__ import annotations

from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.tensors import NetworkTensor
from fabric.networks.graph.windows import window_of
from fabric.networks.streamed.operations.code import ProgramCode
from fabric.networks.streamed.operations.linear import COMMANDS as PRODUCTS
from fabric.networks.streamed.operations.lowering import Lowering, StepWriter
from fabric.networks.streamed.operations.shapes import SHAPE, edge_number, shape_number

__all__ = ["CONVOLUTION", "WINDOWS"]

COMMANDS = {
    "blank": "padded planes: zero",
    "halo": "the next padded plane: what the next rows are, within its border",
    "plane_bias": "sums: plus data, the bias of a channel",
    "ask_plane": "send the sum of the present plane of output gradients south",
}
WINDOWS = {
    "ask_windows": "gradients of all places of some channels' windows as rows times scalars; "
    "data = the first channel of the column, 8 bits, and how many"
}
"""Only programs have this command in which that pays (`fabric.networks.streamed.operations.gradients`)."""


def product(w: StepWriter, step: NetworkStep) -> None:
    """Write a product of filters with planes: forward, or back with planes of gradients."""
    _padded(w, step, step.reads[0])
    w.tell(source="padded", result=_rows(w, step.writes[0]))
    w.filters(step)
    w.tell(shape=0)


def ask(w: StepWriter, step: NetworkStep) -> None:
    """Write the requests for gradients of the filters: windows of the larger image times planes of the smaller one."""
    larger, smaller = step.reads[::-1] if step.node.op == "transposed" else step.reads
    _padded(w, step, larger)
    w.tell(source="padded", mine=_rows(w, smaller))
    w.ask_filters(step)
    w.tell(shape=0)


def _rows(w: StepWriter, tensor: NetworkTensor) -> str:
    """Return the name of the rows of a tensor, behind the row of ones if there is one."""
    return w.plan.array(tensor) + ".rows" * (tensor.kind != "gradient")


def _padded(w: StepWriter, step: NetworkStep, given: NetworkTensor) -> None:
    """Write the copy of the planes that an operation reads."""
    larger = step.node.name if step.node.op == "transposed" else step.node.inputs[0]
    window = window_of(step.node, w.plan.network.tensors[larger].rows)
    shape, edged = (number(w.plan.network, step.node, step.direction) for number in (shape_number, edge_number))
    w.tell(shape=edged or shape)
    w.tell("blank", row=_rows(w, given))
    w.each(given, "edges" if edged else "halo", unit=window.plane if given.name == larger else window.out_plane)
    if edged:
        w.tell(shape=shape)


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
        if "ask_windows" in code.ids:
            with code.command("ask_windows") as t:
                code.gradient.answer_windows(t.data, code.writes["row"], code.held["padded"], code.shapes.number)


CONVOLUTION = Lowering(
    SHAPE | PRODUCTS | COMMANDS,
    {"forward": product, "back": product, "ask": ask},
    {
        "forward": ("forward, {place}", "forward"),
        "back": ("backward, {place}", "backward"),
        "ask": ("gradients, {place}", "gradient"),
    },
    tasks_of=ConvolutionTasks,
)
"""A convolution has this form in weight streaming, and so has a transposed one."""
