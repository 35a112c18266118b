"""Softmax cross-entropy, and how many labels are told right; sums over all columns go round their ring.  Mean squares.

A label belongs to a sample, and a command works on a row of samples; or to a pixel, and it works on a plane, pixel
after pixel with all samples of the PE (`fabric.networks.streamed.operations.shapes.LossShape`).

Order of additions (bit exact)
    Sums over classes: rows of a column, then round the ring.  Losses: pixel by pixel in a PE, then north to south.  Of
    mean squares nothing goes round: squares of a column row by row, each times the share of a feature before that.
"""

from __future__ import annotations

from fabric.asm.operands import Dsd, Reg, Var
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.operations import APART
from fabric.networks.graph.tensors import NetworkTensor
from fabric.networks.streamed.operations.code import ProgramCode
from fabric.networks.streamed.operations.lookup import hot_row
from fabric.networks.streamed.operations.lowering import Lowering, StepWriter
from fabric.networks.streamed.operations.shapes import shape_number

__all__ = ["LOSS", "MEAN_SQUARES"]

COMMANDS = {
    "floor": "sums: minus infinity",
    "max_row": "sums: maximum with a row",
    "peak": "keep the sums as the largest logits; sums: zero",
    "exp_row": "wide row: exp(row - peak), added to the sums; hits: minus label times (row - peak)",
    "share": "keep 1 / sums",
    "log": "hits: plus log(sums)",
    "scale": "data = upper half of the f32 loss scale",
    "delta_row": "delta row: (wide row times share, minus label) times loss scale",
    "loss": "send the sum of the hits south; hits and sums: zero",
    "right_row": "hits: plus label, where the row is the largest logit",
}
OF_SQUARES = {
    "scale": COMMANDS["scale"],
    "error_row": "hits: plus (row - label)^2 / features; delta row: 2 (row - label) / features times loss scale",
    "square_row": "hits: plus (row - label)^2 / features",
    "loss": "send the sum of the hits south; hits: zero",
}


def forward(w: StepWriter, step: NetworkStep) -> None:
    """Write the losses and the gradients of the logits."""
    logits, delta, pixels = step.reads[0], step.writes[0], w.plan.network.label_pixels
    _peak(w, step, wide=True)
    _labelled(w, logits, "exp_row")
    w.join("join_add")
    w.tell("share")
    w.tell("log", columns=[0])
    w.scale()
    w.tell(label="labels", wide="expo", delta=w.plan.array(delta))
    _labelled(w, logits, "delta_row")
    w.answer()
    if pixels > 1:
        w.tell(shape=0)


def test(w: StepWriter, step: NetworkStep) -> None:
    """Write what counts the labels that have the largest logit."""
    _peak(w, step)
    _labelled(w, step.reads[0], "right_row")
    w.answer()
    if w.plan.network.label_pixels > 1:
        w.tell(shape=0)


def _labelled(w: StepWriter, logits: NetworkTensor, name: str) -> None:
    """Write a command per row, or plane, of logits, with the number of its class if labels are numbers."""
    if w.plan.network.numbered:
        w.numbered(logits, name)
    else:
        w.each(logits, name, unit=w.plan.network.label_pixels)


def _peak(w: StepWriter, step: NetworkStep, wide: bool = False) -> None:
    """Write the largest logit of each sample, then pointers to the logits and to what goes with them."""
    rows, pixels = f"{w.plan.array(step.reads[0])}.rows", w.plan.network.label_pixels
    if pixels > 1:
        w.tell(shape=shape_number(w.plan.network, step.node, step.direction))
    w.tell("floor", row=rows)
    w.each(step.reads[0], "max_row", unit=pixels)
    w.join("join_max")
    if wide:
        w.tell("peak", row=rows, label="labels", wide="expo")
    else:
        w.tell("peak", row=rows, label="labels")


def squares(w: StepWriter, step: NetworkStep) -> None:
    """Write the mean squares and the gradients of what is given."""
    given = step.reads[0]
    w.scale()
    w.tell(row=f"{w.plan.array(given)}.rows", label="labels", delta=w.plan.array(step.writes[0]))
    w.each(given, "error_row")
    w.answer()


def squares_alone(w: StepWriter, step: NetworkStep) -> None:
    """Write the mean squares."""
    w.tell(row=f"{w.plan.array(step.reads[0])}.rows", label="labels")
    w.each(step.reads[0], "square_row")
    w.answer()


class LossTasks:
    """A `LossTasks` has the tasks of the loss, and what they hold between commands.

    Parameters
    ----------
    code : ProgramCode

    Attributes
    ----------
    sums, one, two : Var or Dsd
        What a command works on and with: a row of samples, or a plane.
    spare : Var
        Where `one` lies.
    peak, share, hits : Var
        The largest logits; one over the sums of exponentials; losses, or what is right.
    """

    def __init__(self, code: ProgramCode) -> None:
        self.code, p = code, code.p
        words = self.words = code.tokens * code.network.label_pixels
        self.sums: Var | Dsd = code.product.sums
        self.one: Var | Dsd = code.one
        self.two: Var | Dsd = code.two
        self.share = p.array("share", words, "f32", bank=4)
        self.hits = p.array("hits", words, "f32", bank=4)
        self.peak, self.spare = code.peak, code.one
        if words > code.tokens:  # nothing asks for gradients meanwhile, and shares come behind exponentials
            self.peak, self.spare = self.share, code.gradient.product
            self.sums, self.one = p.mem1d(code.product.partial, words), p.mem1d(self.spare, words)
            self.two = p.mem1d(code.gradient.gradient, words)
        self.factor = p.reg32("loss scale")

    def tasks(self) -> None:
        """Write the tasks: the largest logit, the exponentials and their sum, gradients, losses, what is right."""
        code, p = self.code, self.code.p
        total, sums, one = code.product.total, self.sums, self.one
        with code.command("floor"):
            p.mov32(total, 0xFF800000)
        with code.command("max_row"):
            p.fh2s(one, code.reads["row"])
            p.fmaxs(sums, sums, one)
        with code.command("peak"):
            p.mov32(self.peak, sums)
            p.mov32(total, 0)
        self.losses()
        with code.command("loss"):
            code.send_sum(self.hits)
            p.mov32(self.hits, 0)
            p.mov32(total, 0)
        with code.command("right_row") as t:  # 1 where a logit is the largest, 0 where it is below
            p.fh2s(one, code.reads["row"])
            p.fsubs(one, one, self.peak)
            p.fmuls(one, one, APART)
            p.fmaxs(one, one, -1.0)
            p.fadds(one, one, 1.0)
            self.wanted(t.data)
            p.fmuls(one, one, self.two)
            p.fadds(self.hits, self.hits, one)

    def losses(self) -> None:
        """Write exponentials, losses and the gradients of the logits."""
        code, p, one, two, sums = self.code, self.code.p, self.one, self.two, self.sums
        with code.command("exp_row") as t:
            p.fh2s(one, code.reads["row"])
            p.fsubs(one, one, self.peak)
            self.wanted(t.data)
            p.fmuls(two, two, one)
            p.fsubs(self.hits, self.hits, two)
            with code.functions.first(self.words):
                code.functions.exp(self.spare, self.spare)
            p.mov32(code.writes["wide"], one)
            p.fadds(sums, sums, one)
        with code.command("share"):
            with code.functions.first(self.words):
                code.functions.reciprocal(self.share, code.product.partial)
            self.where_labelled(self.share)
        with code.command("log"):
            with code.functions.first(self.words):
                code.functions.log(self.spare, code.product.partial)
            self.where_labelled(one)
            p.fadds(self.hits, self.hits, one)
        with code.command("scale") as t:
            p.mov16(self.factor.high, t.data)
            p.mov16(self.factor.low, 0)
        with code.command("delta_row") as t:
            p.fmuls(one, self.share, code.reads["wide"])
            self.wanted(t.data)
            p.fsubs(one, one, two)
            p.fmuls(one, one, self.factor)
            p.fs2h(code.writes["delta"], one)

    def wanted(self, number: Reg) -> None:
        """Emit the probabilities that are wanted of a class, in `two`: ones where labels are its number, or a row."""
        code, p = self.code, self.code.p
        if code.network.numbered:
            hot_row(code, code.short, code.held["labels"], number, int(code.half.encode(1.0)))
        p.fh2s(self.two, code.short if code.network.numbered else code.reads["label"])

    def where_labelled(self, row: Var | Dsd) -> None:
        """Emit zeros for tokens, or pixels, without a label, if there may be some."""
        if self.code.network.some:
            self.code.p.fmuls(row, row, self.code.held["labelled"])


class SquareTasks:
    """A `SquareTasks` has the tasks of mean squares, and what they hold between commands.

    Parameters
    ----------
    code : ProgramCode

    Attributes
    ----------
    hits : Var
        Losses of a row of samples.
    """

    def __init__(self, code: ProgramCode) -> None:
        self.code = code
        self.hits = code.p.array("hits", code.tokens, "f32", bank=4)
        self.factor = code.p.reg32("loss scale")

    def tasks(self) -> None:
        """Write the tasks: squares, and those with gradients."""
        code, p, two = self.code, self.code.p, self.code.two
        with code.command("scale") as t:
            p.mov16(self.factor.high, t.data)
            p.mov16(self.factor.low, 0)
        with code.command("error_row"):
            self.square()
            p.fmuls(two, two, self.factor)
            p.fadds(two, two, two)
            p.fs2h(code.writes["delta"], two)
        with code.command("square_row"):
            self.square()
        with code.command("loss"):
            code.send_sum(self.hits)
            p.mov32(self.hits, 0)

    def square(self) -> None:
        """Emit a row of squares, added to the losses; `two` then has the differences times the share of a feature."""
        code, p, one, two = self.code, self.code.p, self.code.one, self.code.two
        p.fh2s(one, code.reads["row"])
        p.fh2s(two, code.reads["label"])
        p.fsubs(one, one, two)
        p.fmuls(one, one, code.held["labelled"])
        p.fmuls(two, one, 1 / code.network.logits.rows)
        p.fmuls(one, one, two)
        p.fadds(self.hits, self.hits, one)


LOSS = Lowering(
    COMMANDS,
    {"forward": forward, "test": test},
    {"forward": ("loss", "loss"), "test": ("right ones", "test")},
    tasks_of=LossTasks,
    joins=True,
)
"""The loss has this form in weight streaming."""

MEAN_SQUARES = Lowering(
    OF_SQUARES,
    {"forward": squares, "test": squares_alone},
    {"forward": ("loss", "loss"), "test": ("squares", "test")},
    tasks_of=SquareTasks,
    joins=True,
)
"""Mean squares have this form in weight streaming."""
