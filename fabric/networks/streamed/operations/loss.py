"""Softmax cross-entropy, and how many samples are classified right; sums over all columns go round their ring."""

from __future__ import annotations

from fabric.asm.operands import Var
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.operations import APART
from fabric.networks.streamed.operations.code import ProgramCode
from fabric.networks.streamed.operations.lowering import Lowering, StepWriter

__all__ = ["LOSS"]

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


def forward(w: StepWriter, step: NetworkStep) -> None:
    """Write the losses and the gradients of the logits."""
    logits, delta = step.reads[0], step.writes[0]
    _peak(w, step, wide=True)
    w.each(logits, "exp_row")
    w.join("join_add")
    w.tell("share")
    w.tell("log", columns=[0])
    w.scale()
    w.tell(label="labels", wide="expo", delta=w.plan.array(delta))
    w.each(logits, "delta_row")
    w.answer()


def test(w: StepWriter, step: NetworkStep) -> None:
    """Write what counts the samples whose label has the largest logit."""
    _peak(w, step)
    w.each(step.reads[0], "right_row")
    w.answer()


def _peak(w: StepWriter, step: NetworkStep, wide: bool = False) -> None:
    """Write the largest logit of each sample, then pointers to the logits and to what goes with them."""
    rows = f"{w.plan.array(step.reads[0])}.rows"
    w.tell("floor", row=rows)
    w.each(step.reads[0], "max_row")
    w.join("join_max")
    if wide:
        w.tell("peak", row=rows, label="labels", wide="expo")
    else:
        w.tell("peak", row=rows, label="labels")


class LossTasks:
    """What the tasks hold between commands, and the tasks."""

    def __init__(self, code: ProgramCode) -> None:
        self.code, p = code, code.p
        self.share = p.array("share", code.tokens, "f32", bank=4)
        self.hits = p.array("hits", code.tokens, "f32", bank=4)
        self.factor = p.reg32("loss scale")

    def tasks(self) -> None:
        """Write the tasks: the largest logit, the exponentials and their sum, gradients, losses, what is right."""
        code, p = self.code, self.code.p
        total, sums, one = code.product.total, code.product.sums, code.one
        with code.command("floor"):
            p.mov32(total, 0xFF800000)
        with code.command("max_row"):
            p.fh2s(one, code.reads["row"])
            p.fmaxs(sums, sums, one)
        with code.command("peak"):
            p.mov32(code.peak, sums)
            p.mov32(total, 0)
        self.losses()
        with code.command("loss"):
            code.send_sum(self.hits)
            p.mov32(self.hits, 0)
            p.mov32(total, 0)
        with code.command("right_row"):  # 1 where a logit is the largest, 0 where it is below
            p.fh2s(one, code.reads["row"])
            p.fsubs(one, one, code.peak)
            p.fmuls(one, one, APART)
            p.fmaxs(one, one, -1.0)
            p.fadds(one, one, 1.0)
            p.fh2s(code.two, code.reads["label"])
            p.fmuls(one, one, code.two)
            p.fadds(self.hits, self.hits, one)

    def losses(self) -> None:
        """Write exponentials, losses and the gradients of the logits."""
        code, p, one, two = self.code, self.code.p, self.code.one, self.code.two
        sums = code.product.sums
        with code.command("exp_row"):
            p.fh2s(one, code.reads["row"])
            p.fsubs(one, one, code.peak)
            p.fh2s(two, code.reads["label"])
            p.fmuls(two, two, one)
            p.fsubs(self.hits, self.hits, two)
            code.functions.exp(one, one)
            p.mov32(code.writes["wide"], one)
            p.fadds(sums, sums, one)
        with code.command("share"):
            code.functions.reciprocal(self.share, code.product.partial)
            self.where_labelled(self.share)
        with code.command("log"):
            code.functions.log(one, code.product.partial)
            self.where_labelled(one)
            p.fadds(self.hits, self.hits, one)
        with code.command("scale") as t:
            p.mov16(self.factor.high, t.data)
            p.mov16(self.factor.low, 0)
        with code.command("delta_row"):
            p.fmuls(one, self.share, code.reads["wide"])
            p.fh2s(two, code.reads["label"])
            p.fsubs(one, one, two)
            p.fmuls(one, one, self.factor)
            p.fs2h(code.writes["delta"], one)

    def where_labelled(self, row: Var) -> None:
        """Emit zeros for tokens without a label, if there may be some."""
        if self.code.network.some:
            self.code.p.fmuls(row, row, self.code.held["labelled"])


LOSS = Lowering(
    COMMANDS,
    {"forward": forward, "test": test},
    {"forward": ("loss", "loss"), "test": ("right ones", "test")},
    tasks_of=LossTasks,
    joins=True,
)
"""The loss has this form in weight streaming."""
