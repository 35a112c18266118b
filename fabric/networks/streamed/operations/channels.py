"""Normalisations of images are done on whole channels, plane by plane: what groups and batches have in common.

Factors and shifts are one per channel.  Gradients of both go south, channel by channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fabric.networks.streamed.operations import batch_norm, channel_norm, group_norm, scale, shift
from fabric.networks.streamed.operations.code import ProgramCode
from fabric.networks.streamed.operations.lowering import Lowering
from fabric.networks.streamed.operations.shapes import SHAPE

__all__ = ["BATCH_NORM", "CHANNEL_NORM", "GROUP_NORM", "MULTIPLE", "SCALE", "SHIFT", "ChannelTasks"]

GAMMA = {"channel_gamma": "data = factor of the next channel"}
FACTORS = GAMMA | {"channel_affine": "rows of the next channel: aux rows times factor plus data"}
COMMANDS = FACTORS | {
    "channel_gradients": "send the sums of delta rows times aux rows, and of delta rows, of the next channel south"
}


class ChannelTasks:
    """A `ChannelTasks` has the tasks of normalisations of images, and what they hold between commands.

    Parameters
    ----------
    code : ProgramCode

    Attributes
    ----------
    mean, deviation, dot, sums : Var
        A row of tokens each, f32.
    gamma : Reg
        Factor of a channel.
    """

    def __init__(self, code: ProgramCode) -> None:
        self.code, p = code, code.p
        names = ("channel mean", "channel deviation", "channel dot", "channel sums")
        self.mean, self.deviation, self.dot, self.sums = (p.array(name, code.tokens, "f32") for name in names)
        self.gamma = code.gamma
        self.planes = channel_norm.PlaneNormTasks(self) if "plane_norm" in code.ids else None

    def tasks(self) -> None:
        """Write the tasks of both ways."""
        code = self.code
        if "channel_shift" in code.ids:
            shift.tasks(self)
        if "channel_gamma" in code.ids:
            self.affine()
        if "channel_dot" in code.ids:
            scale.tasks(self)
        if "channel_gradients" in code.ids:
            self.gradients()
        if "group_norm" in code.ids:
            group_norm.tasks(self)
        if "batch_sums" in code.ids:
            batch_norm.tasks(self)
        if self.planes is not None:
            self.planes.tasks()

    def affine(self) -> None:
        """Write the tasks of factors and shifts of what was normalised."""
        code, p, one = self.code, self.code.p, self.code.one
        with code.command("channel_gamma") as t:
            p.mov16(self.gamma, t.data)
        if "channel_affine" not in code.ids:
            return
        with code.command("channel_affine") as t:
            beta = p.reg32("shift of a channel")
            p.fh2s(beta, t.data)
            with self.times("plane"):
                p.mov32(one, beta)
                p.fmachs(one, one, code.reads["aux"], self.gamma)
                p.fs2h(code.writes["row"], one)
            p.free(beta)

    def gradients(self) -> None:
        """Write the task of the gradients of factors and shifts."""
        code, p, one = self.code, self.code.p, self.code.one
        with code.command("channel_gradients"):
            with self.times("plane"):
                p.fh2s(one, code.reads["delta"])
                p.fadds(self.sums, self.sums, one)
                self.with_units()
            code.send_sum(code.product.sums)
            code.send_sum(self.sums)
            self.zeroed()

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

    def centred(self) -> None:
        """Emit ``one`` = row - mean."""
        self.code.p.fh2s(self.code.one, self.code.reads["row"])
        self.code.p.fsubs(self.code.one, self.code.one, self.mean)

    def with_units(self) -> None:
        """Emit sums += one times the unit row."""
        code, p, one, two = self.code, self.code.p, self.code.one, self.code.two
        sums = code.product.sums
        p.fh2s(two, code.reads["aux"])
        p.fmuls(one, one, two)
        p.fadds(sums, sums, one)

    def given_back(self) -> None:
        """Emit the delta row: (``one`` - mean - unit row times mean product) times deviation."""
        code, p, one, two = self.code, self.code.p, self.code.one, self.code.two
        p.fsubs(one, one, self.mean)
        p.fh2s(two, code.reads["aux"])
        p.fmuls(two, two, self.dot)
        p.fsubs(one, one, two)
        p.fmuls(one, one, self.deviation)
        p.fs2h(code.writes["delta"], one)

    def zeroed(self) -> None:
        """Emit zeros for both sums."""
        self.code.p.mov32(self.code.product.total, 0)
        self.code.p.mov32(self.sums, 0)

    def scaled_delta(self) -> None:
        """Emit ``one`` = delta row times factor."""
        p, one = self.code.p, self.code.one
        p.mov32(one, 0)
        p.fmachs(one, one, self.code.reads["delta"], self.gamma)


PHASES = {"forward": ("forward, {place}", "normalise"), "back": ("backward, normalisation {number}", "norm")}

GROUP_NORM = Lowering(
    SHAPE | COMMANDS | group_norm.COMMANDS,
    {"forward": group_norm.forward, "back": group_norm.back},
    PHASES,
    tasks_of=ChannelTasks,
)
"""A group normalisation has this form in weight streaming."""

BATCH_NORM = Lowering(
    SHAPE | COMMANDS | batch_norm.COMMANDS,
    {"forward": batch_norm.forward, "known": batch_norm.known, "back": batch_norm.back},
    PHASES | {"known": PHASES["forward"]},
    tasks_of=ChannelTasks,
)
"""A batch normalisation has this form in weight streaming."""

CHANNEL_NORM = Lowering(
    SHAPE | GAMMA | channel_norm.COMMANDS,
    {"forward": channel_norm.forward, "back": channel_norm.back},
    PHASES,
    tasks_of=ChannelTasks,
    joins=True,
)
"""A normalisation over the channels of each pixel has this form in weight streaming."""

SHIFT = Lowering(
    SHAPE | shift.COMMANDS,
    {"forward": shift.forward, "back": shift.back},
    {"forward": ("forward, {place}", "shift"), "back": ("backward, {place}", "shift back")},
    tasks_of=ChannelTasks,
)
"""A learned number per channel has this form in weight streaming."""

SCALE = Lowering(
    SHAPE | FACTORS | scale.COMMANDS,
    {"forward": scale.forward, "back": scale.back},
    {"forward": ("forward, {place}", "scale"), "back": ("backward, {place}", "scale back")},
    tasks_of=ChannelTasks,
)
"""A learned factor per channel has this form in weight streaming."""

MULTIPLE = Lowering(
    SHAPE | FACTORS,
    {"forward": scale.multiplied, "back": scale.multiplied_back},
    {"forward": ("forward, {place}", "multiple"), "back": ("backward, {place}", "multiple back")},
    tasks_of=ChannelTasks,
)
"""A product with a constant has this form in weight streaming."""
