"""Normalisation over the channels of each pixel: sums of planes go round the ring of columns, a plane long.

Every command works on the plane of a channel, pixel after pixel with all samples of the PE.  One over the deviations is
made pixel by pixel, and kept in their plane.

Order of additions (bit exact)
    Sums over channels: those of a column from 0, then round the ring.  Gradients of factors and shifts: pixels in
    order, samples within a pixel, then north to south.

Cycles
    Of a plane ten vector operations forward and eighteen back; two joins of a plane each way; a root per pixel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabric.asm.operands import Var
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.streamed.operations.lowering import StepWriter
from fabric.networks.streamed.operations.shapes import PlaneShape, shape_number

if TYPE_CHECKING:
    from fabric.networks.streamed.operations.channels import ChannelTasks

__all__ = ["COMMANDS", "PlaneNormTasks", "back", "forward"]

COMMANDS = {
    "plane_sum": "sums: plus the next plane",
    "plane_mean": "keep sums times one over the channels as the means; sums: zero",
    "plane_square": "sums: plus the squares of (the next plane - means)",
    "plane_variance": "wide plane: sums times one over the channels, plus epsilon; sums: zero",
    "roots": "data = how many wide rows: each becomes one over its root",
    "plane_norm": "the next aux plane: (next plane - means) times wide plane; the plane: that times factor plus data",
    "plane_gradients": "send the sums of the next delta plane times the next aux plane, and of the delta plane, south",
    "plane_back_sum": "sums: plus the next delta plane times factor",
    "plane_back_dot": "sums: plus the next delta plane times factor times the next aux plane",
    "plane_dot": "sums: times one over the channels",
    "plane_back": "the next delta plane: (that times factor - means - next aux plane times sums) times the wide plane",
}


def forward(w: StepWriter, step: NetworkStep) -> None:
    """Write means, deviations, unit planes, then factors and shifts."""
    network, node, y = w.plan.network, step.node, step.writes[0]
    rows, unit, wide = f"{w.plan.array(y)}.rows", w.plan.kept(step, "n"), w.plan.kept(step, "v")
    number, pixels = shape_number(network, node, "forward"), node.size("height") * node.size("width")
    w.tell(shape=number)
    w.tell(row=rows)
    w.each(y, "plane_sum", unit=pixels)
    w.join("join_add")
    w.tell("plane_mean", row=rows)
    w.each(y, "plane_square", unit=pixels)
    w.join("join_add")
    w.tell(wide=wide)
    w.tell("plane_variance", shape=0)
    w.tell(wide=wide)
    w.tell(roots=pixels)
    w.tell(shape=number)
    w.tell(row=rows, aux=unit, wide=wide)
    w.channels(step, [(("channel_gamma", 0), ("plane_norm", 1))])
    w.tell(shape=0)


def back(w: StepWriter, step: NetworkStep) -> None:
    """Write the gradients of factors and shifts, then those of what was normalised."""
    delta, unit = w.plan.array(step.writes[0]), w.plan.kept(step, "n")
    w.tell(shape=shape_number(w.plan.network, step.node, "back"))
    w.tell(delta=delta, aux=unit)
    w.channels(step, [(("plane_gradients", None),)], answers=(0, 1))
    w.tell(delta=delta)
    w.channels(step, [(("channel_gamma", 0), ("plane_back_sum", None))])
    w.join("join_add")
    w.tell("plane_mean", delta=delta, aux=unit)
    w.channels(step, [(("channel_gamma", 0), ("plane_back_dot", None))])
    w.join("join_add")
    w.tell("plane_dot", delta=delta, aux=unit, wide=w.plan.kept(step, "v"))
    w.channels(step, [(("channel_gamma", 0), ("plane_back", None))])
    w.tell("plane_mean", shape=0)  # zeros for the sums


class PlaneNormTasks:
    """These tasks have planes of f32 numbers, in arrays of products and one of their own.

    Parameters
    ----------
    channels : ChannelTasks

    Attributes
    ----------
    one, other : Dsr
        A plane each, to change; in the second one unit planes are wide.
    of_one : Dsr
        Reads the first one.
    of_other, of_sums, of_means : Var
        The other one, the sums and the means, to read: as many numbers as what an operation changes.
    """

    def __init__(self, channels: ChannelTasks) -> None:
        self.channels, self.code = channels, channels.code
        code, p = self.code, self.code.p
        shapes = [shape for shape in code.shapes.every if isinstance(shape, PlaneShape)]
        self.unit = p.array("unit plane", max(shape.rows for shape in shapes) * code.tokens, "f32", bank=4)
        self.one, self.other = code.plane, code.gradient.factor
        self.of_one, self.of_other, self.of_sums = code.gradient.other, self.unit, code.product.partial
        self.means, self.of_means = code.gradient.wide, code.gradient.product
        code.planes = self

    def load(self, words: int) -> None:
        """Emit the loads of the descriptors of planes of so many numbers."""
        code, p = self.code, self.code.p
        code.product.over(p.mem1d(code.held["a0"], code.tokens, check=False), words)
        code.gradient.over(p.mem1d(code.held["a0"], code.tokens, check=False), words)
        code.over(words)
        p.load(self.one, p.mem1d(code.gradient.gradient, words))  # as what reads it
        p.load(self.other, p.mem1d(self.unit, words))
        for way in (code.reads, code.writes):  # a plane that all channels have
            p.load(way["wide"], p.mem1d(code.held["expo"], words, check=False))

    def tasks(self) -> None:
        """Write the tasks of both ways."""
        code, p, total = self.code, self.code.p, self.code.product.total
        one, factor, wide = self.one, self.code.shapes.factor, self.code.reads["wide"]
        with code.command("plane_sum"):
            p.fh2s(one, code.reads["row"])
            p.fadds(total, total, self.of_one)
        with code.command("plane_mean"):
            p.fmuls(total, total, factor)
            self.moved(self.of_sums)
            p.mov32(self.means, self.of_one)
            p.mov32(total, 0)
        with code.command("plane_square"):
            p.fh2s(one, code.reads["row"])
            p.fsubs(one, one, self.of_means)
            p.fmuls(one, one, self.of_one)
            p.fadds(total, total, self.of_one)
        with code.command("plane_variance"):
            p.fmuls(total, total, factor)
            code.add_epsilon(total)
            self.moved(self.of_sums)
            p.mov32(code.writes["wide"], self.of_one)
            p.mov32(total, 0)
        with code.command("roots") as t:
            count = p.reg16("rows")
            p.mov16(count, t.data)
            with p.loop(count):
                p.mov32(code.one, wide)
                code.functions.rsqrt(self.channels.deviation, code.one)
                p.mov32(code.writes["wide"], self.channels.deviation)
            p.free(count)
        with code.command("plane_norm") as t:
            p.fh2s(one, code.reads["row"])
            p.fsubs(one, one, self.of_means)
            p.fmuls(one, one, wide)
            p.fs2h(code.writes["aux"], self.of_one)
            beta = p.reg32("shift of a channel")
            p.fh2s(beta, t.data)
            p.mov32(one, beta)
            p.fmachs(one, one, code.reads["aux"], code.gamma)
            p.fs2h(code.writes["row"], self.of_one)
            p.free(beta)
        self.back()

    def back(self) -> None:
        """Write the tasks of the way back."""
        code, p, total = self.code, self.code.p, self.code.product.total
        one, other, factor = self.one, self.other, self.code.shapes.factor
        with code.command("plane_gradients"):
            p.fh2s(other, code.reads["delta"])
            p.fh2s(one, code.reads["aux"])
            p.fmuls(one, one, self.of_other)
            self.send()
            self.moved(self.of_other)
            self.send()
        with code.command("plane_back_sum"):
            self.scaled()
            p.fadds(total, total, self.of_one)
        with code.command("plane_back_dot"):
            self.scaled()
            p.fh2s(other, code.reads["aux"])
            p.fmuls(one, one, self.of_other)
            p.fadds(total, total, self.of_one)
        with code.command("plane_dot"):
            p.fmuls(total, total, factor)
        with code.command("plane_back"):
            self.scaled()
            p.fsubs(one, one, self.of_means)
            p.fh2s(other, code.reads["aux"])
            p.fmuls(other, other, self.of_sums)
            p.fsubs(one, one, self.of_other)
            p.fmuls(one, one, code.reads["wide"])
            p.fs2h(code.writes["delta"], self.of_one)

    def scaled(self) -> None:
        """Emit ``one`` = the delta plane times factor."""
        p, one = self.code.p, self.one
        p.mov32(one, 0)
        p.fmachs(one, one, self.code.reads["delta"], self.code.gamma)

    def moved(self, plane: Var) -> None:
        """Emit ``one`` = a plane; a zero has no sign."""
        p, one = self.code.p, self.one
        p.mov32(one, 0)
        p.fadds(one, one, plane)

    def send(self) -> None:
        """Emit the sum of ``one``, sent south."""
        p = self.code.p
        found = p.reg32("sum")
        p.mov32(found, 0)
        p.fadds(found, found, self.of_one)
        self.code.gradient.send_south(found)
        p.free(found)
