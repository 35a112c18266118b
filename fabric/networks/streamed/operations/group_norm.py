"""Group normalisation: whole groups of channels lie in a column, so a PE normalises them by itself.

Order of additions (bit exact)
    Sums over a group: from 0 over its channels and their pixels, all samples at once.  Gradients of factors and shifts:
    pixels first, then samples, then north to south.

Cycles
    Of a row of samples thirteen vector operations forward and nineteen back, in loops over the rows of a group or a
    channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.operations import EPSILON
from fabric.networks.streamed.operations.code import ProgramCode
from fabric.networks.streamed.operations.lowering import Lowering, StepWriter
from fabric.networks.streamed.operations.shapes import SHAPE, shape_number

__all__ = ["GROUP_NORM"]

COMMANDS = {
    "group_norm": "aux rows of the next group: (rows - mean) / deviation, which the wide row keeps",
    "channel_gamma": "data = factor of the next channel",
    "channel_affine": "rows of the next channel: aux rows times factor plus data",
    "channel_gradients": "send the sums of delta rows times aux rows, and of delta rows, of the next channel south",
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


class GroupNormTasks:
    """What the tasks hold between commands, and the tasks.

    Parameters
    ----------
    code : ProgramCode
    """

    def __init__(self, code: ProgramCode) -> None:
        self.code, p = code, code.p
        names = ("group mean", "group deviation", "group dot", "group sums")
        self.mean, self.deviation, self.dot, self.sums = (p.array(name, code.tokens, "f32") for name in names)
        self.gamma = p.reg16("factor of a channel")

    def tasks(self) -> None:
        """Write the tasks of both ways."""
        code, p, one = self.code, self.code.p, self.code.one
        with code.command("group_norm"):
            self.normalise()
        with code.command("channel_gamma") as t:
            p.mov16(self.gamma, t.data)
        with code.command("channel_affine") as t:
            beta = p.reg32("shift of a channel")
            p.fh2s(beta, t.data)
            with self.times("plane"):
                p.mov32(one, beta)
                p.fmachs(one, one, code.reads["aux"], self.gamma)
                p.fs2h(code.writes["row"], one)
            p.free(beta)
        self.back()

    @contextmanager
    def times(self, name: str) -> Iterator[None]:
        """Emit what is done as often as a number of the shape says."""
        count = self.code.shapes.number(name)
        with self.code.p.loop(count):
            yield
        self.code.p.free(count)

    def rewound(self, *names: str) -> None:
        """Emit the way of pointers to read back to the first row of a group."""
        words = self.code.shapes.number("rest")
        for name in names:
            self.code.p.dsr_off(self.code.reads[name], words)
        self.code.p.free(words)

    def normalise(self) -> None:
        """Emit mean, deviation and unit rows of a group."""
        code, p, one = self.code, self.code.p, self.code.one
        total, sums, factor = code.product.total, code.product.sums, code.shapes.factor
        with self.times("gap"):
            p.fh2s(one, code.reads["row"])
            p.fadds(sums, sums, one)
        p.fmuls(self.mean, sums, factor)
        p.mov32(total, 0)
        self.rewound("row")
        with self.times("gap"):
            self.centred()
            p.fmuls(one, one, one)
            p.fadds(sums, sums, one)
        p.fmuls(one, sums, factor)
        p.fadds(one, one, EPSILON)
        code.functions.rsqrt(self.deviation, one)
        p.mov32(code.writes["wide"], self.deviation)
        p.mov32(total, 0)
        self.rewound("row")
        with self.times("gap"):
            self.centred()
            p.fmuls(one, one, self.deviation)
            p.fs2h(code.writes["aux"], one)

    def centred(self) -> None:
        """Emit ``one`` = row - mean."""
        self.code.p.fh2s(self.code.one, self.code.reads["row"])
        self.code.p.fsubs(self.code.one, self.code.one, self.mean)

    def back(self) -> None:
        """Write the commands on the way back."""
        code, p, one, two = self.code, self.code.p, self.code.one, self.code.two
        sums, factor = code.product.sums, code.shapes.factor
        with code.command("channel_gradients"):
            with self.times("plane"):
                p.fh2s(one, code.reads["delta"])
                p.fadds(self.sums, self.sums, one)
                self.with_units()
            code.send_sum(sums)
            code.send_sum(self.sums)
            self.zeroed()
        with code.command("channel_sum") as t:
            p.mov16(self.gamma, t.data)
            with self.times("plane"):
                self.scaled_delta()
                p.fadds(self.sums, self.sums, one)
                self.with_units()
        with code.command("group_back"):
            p.fmuls(self.mean, self.sums, factor)
            p.fmuls(self.dot, sums, factor)
            p.mov32(self.deviation, code.reads["wide"])
            self.zeroed()
            self.rewound("delta", "aux")
        with code.command("channel_row") as t:
            p.mov16(self.gamma, t.data)
            with self.times("plane"):
                self.scaled_delta()
                p.fsubs(one, one, self.mean)
                p.fh2s(two, code.reads["aux"])
                p.fmuls(two, two, self.dot)
                p.fsubs(one, one, two)
                p.fmuls(one, one, self.deviation)
                p.fs2h(code.writes["delta"], one)

    def with_units(self) -> None:
        """Emit sums += one times the unit row."""
        code, p, one, two = self.code, self.code.p, self.code.one, self.code.two
        sums = code.product.sums
        p.fh2s(two, code.reads["aux"])
        p.fmuls(one, one, two)
        p.fadds(sums, sums, one)

    def zeroed(self) -> None:
        """Emit zeros for both sums."""
        self.code.p.mov32(self.code.product.total, 0)
        self.code.p.mov32(self.sums, 0)

    def scaled_delta(self) -> None:
        """Emit ``one`` = delta row times factor."""
        p, one = self.code.p, self.code.one
        p.mov32(one, 0)
        p.fmachs(one, one, self.code.reads["delta"], self.gamma)


GROUP_NORM = Lowering(
    SHAPE | COMMANDS,
    {"forward": forward, "back": back},
    {"forward": ("forward, {place}", "normalise"), "back": ("backward, normalisation {number}", "norm")},
    tasks_of=GroupNormTasks,
)
"""A group normalisation has this form in weight streaming."""
