"""Normalisation goes over the features of a token, row by row; sums go round the ring of columns.

Without a mean it is the same with a mean of nothing, which is zero.  Heads are normalised one by one, each whole in its
column, so that nothing is joined.
"""

from __future__ import annotations

import numpy as np

from fabric.asm.operands import Dsd, Reg, Var
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.table import OPERATIONS
from fabric.networks.streamed.operations.code import ProgramCode
from fabric.networks.streamed.operations.lowering import Lowering, StepWriter
from wse_core.errors import UnsupportedError

__all__ = ["HEAD_RMS", "NORM"]

HEADS = {"head_back": "delta and aux row: back to the first one of the head"}
WITH_A_MEAN = ("sum_row", "grad_beta", "back_sum")
"""A normalisation without a mean and a shift does without these commands."""
CENTRED = ("norm", "centred")
"""These normalise with a mean; the others do not."""

COMMANDS = {
    "k_low": "data = lower half of an f32 constant, 1 / features",
    "k_high": "data = its upper half",
    "gamma": "data = factor of the next feature",
    "sum_row": "sums: plus a row",
    "mean": "keep sums times constant as the mean; sums: zero",
    "var_row": "sums: plus the square of (row - mean)",
    "deviation": "keep 1 / sqrt(sums times constant + epsilon), also as wide row; sums: zero",
    "recall": "deviation: what the wide row keeps",
    "norm_row": "aux row: (row - mean) / deviation",
    "affine": "row: aux row times factor plus data",
    "grad_gamma": "send the sum of delta row times aux row south",
    "grad_beta": "send the sum of the delta row south",
    "back_sum": "sums: plus delta row times factor",
    "back_dot": "sums: plus delta row times factor times aux row",
    "dot": "keep sums times constant as the mean product; sums: zero",
    "back_row": "delta row: (delta row times factor - mean - aux row times mean product) / deviation, the wide row",
}


def forward(w: StepWriter, step: NetworkStep) -> None:
    """Write the normalisation of a level: mean, deviation, unit rows, factors and shifts."""
    y = step.writes[0]
    rows, unit = f"{w.plan.array(y)}.rows", w.plan.kept(step, "n")
    _constant(w, step)
    if step.op in CENTRED:
        w.tell(row=rows)
        w.each(y, "sum_row")
        w.join("join_add")
    w.tell("mean", row=rows)  # of nothing it is zero
    w.each(y, "var_row")
    w.join("join_add")
    w.tell(wide=w.plan.kept(step, "v"))
    w.tell("deviation", row=rows, aux=unit)
    w.each(y, "norm_row")
    w.tell(row=rows, aux=unit)
    w.factors(step, ("affine",), shift=step.op == "norm")


def back(w: StepWriter, step: NetworkStep) -> None:
    """Write the gradients of factors and shifts, then those of what was normalised."""
    delta, unit = w.plan.array(step.writes[0]), w.plan.kept(step, "n")
    _constant(w, step)
    w.tell(delta=delta, wide=w.plan.kept(step, "v"))
    w.tell("recall")
    if step.op == "norm":
        w.factors(step, ("grad_beta",), gradient=1)
    w.tell(delta=delta, aux=unit)
    w.factors(step, ("grad_gamma",), gradient=0)
    if step.op in CENTRED:
        w.tell(delta=delta)
        w.factors(step, ("back_sum",))
        w.join("join_add")
    w.tell("mean", delta=delta, aux=unit)
    w.factors(step, ("back_dot",))
    w.join("join_add")
    w.tell("dot", delta=delta, aux=unit)
    w.factors(step, ("back_row",))


def forward_heads(w: StepWriter, step: NetworkStep) -> None:
    """Write the normalisation of heads: the deviations of all, then unit rows, then factors."""
    rows, unit, wide = f"{w.plan.array(step.writes[0])}.rows", w.plan.kept(step, "n"), w.plan.kept(step, "v")
    _constant(w, step)
    w.tell("mean", row=rows, wide=wide)  # of nothing it is zero
    w.channels(step, [(("var_row", None),), "deviation"])
    w.tell(row=rows, aux=unit, wide=wide)
    w.channels(step, ["recall", (("norm_row", None),)])
    w.tell(row=rows, aux=unit)
    w.factors(step, ("affine",))


def back_heads(w: StepWriter, step: NetworkStep) -> None:
    """Write the gradients of factors, then those of the heads, one by one."""
    delta, unit = w.plan.array(step.writes[0]), w.plan.kept(step, "n")
    _constant(w, step)
    w.tell("mean", delta=delta, aux=unit)
    w.factors(step, ("grad_gamma",), gradient=0)
    w.tell(delta=delta, aux=unit, wide=w.plan.kept(step, "v"))
    dots, rows = (("gamma", 0), ("back_dot", None)), (("gamma", 0), ("back_row", None))
    w.channels(step, [dots, "recall", "dot", "head_back", rows])


def _constant(w: StepWriter, step: NetworkStep) -> None:
    """Write the constant 1 / features."""
    features = step.reads[0].rows // dict(step.node.sizes).get("groups", 1)
    bits = int(np.array([1 / features], np.float32).view(np.uint32)[0])
    w.tell(k_low=bits & 0xFFFF, k_high=bits >> 16)


class NormTasks:
    """A `NormTasks` has the tasks of a normalisation, and what they hold between commands."""

    def __init__(self, code: ProgramCode) -> None:
        self.code, p = code, code.p
        self.mean, self.deviation = p.array("mean", code.tokens, "f32"), p.array("deviation", code.tokens, "f32")
        self.dot = p.array("dot", code.tokens, "f32")
        convolves = any(OPERATIONS[node.op].matrix and node.op != "linear" for node in code.network.nodes)
        self.constant = p.array("constant", 2, "u16") if convolves else p.reg32("constant")  # filters need registers
        self.gamma = code.gamma
        heads = [node for node in code.network.nodes if node.op == "headrms"]
        self.heads = sorted({node.size("channels") // node.size("groups") for node in heads})
        if len(self.heads) > 1:
            what = f"{heads[-1].name}: heads of {self.heads[0]} and of {self.heads[-1]} features are normalised"
            raise UnsupportedError(what, feature="operation", where="graph", hint="heads of one size")

    def tasks(self) -> None:
        """Write the tasks of both ways."""
        code, p = self.code, self.code.p
        for half, name in enumerate(("k_low", "k_high")):
            with code.command(name) as t:
                if isinstance(self.constant, Reg):
                    p.mov16((self.constant.low, self.constant.high)[half], t.data)
                else:
                    p.st16(t.data, self.constant, offset=half)
        with code.command("gamma") as t:
            p.mov16(self.gamma, t.data)
        self.forward()
        self.back()

    def averaged(self, rows: Var, sums: Var | Dsd) -> None:
        """Emit rows = sums times the constant."""
        p = self.code.p
        if isinstance(self.constant, Reg):
            p.fmuls(rows, sums, self.constant)
            return
        constant = p.reg32("constant")
        p.ld16(constant.low, self.constant)
        p.ld16(constant.high, self.constant, offset=1)
        p.fmuls(rows, sums, constant)
        p.free(constant)

    def forward(self) -> None:
        """Write the commands on the way forward, and those of means, which both ways have."""
        code, p = self.code, self.code.p
        total, sums, one = code.product.total, code.product.sums, code.one
        if "sum_row" in code.ids:
            with code.command("sum_row"):
                p.fh2s(one, code.reads["row"])
                p.fadds(sums, sums, one)
        for name, kept in (("mean", self.mean), ("dot", self.dot)):
            with code.command(name):
                self.averaged(kept, sums)
                p.mov32(total, 0)
        with code.command("var_row"):
            self.centred()
            p.fmuls(one, one, one)
            p.fadds(sums, sums, one)
        with code.command("deviation"):
            self.averaged(one, sums)
            code.add_epsilon(one)
            code.functions.rsqrt(self.deviation, one)
            p.mov32(code.writes["wide"], self.deviation)
            p.mov32(total, 0)
        with code.command("recall"):
            p.mov32(self.deviation, code.reads["wide"])
        with code.command("norm_row"):
            self.centred()
            p.fmuls(one, one, self.deviation)
            p.fs2h(code.writes["aux"], one)
        with code.command("affine") as t:
            beta = p.reg32("beta")
            p.fh2s(beta, t.data)
            p.mov32(one, beta)
            p.fmachs(one, one, code.reads["aux"], self.gamma)
            p.fs2h(code.writes["row"], one)

    def back(self) -> None:
        """Write the commands on the way back."""
        code, p, one, two = self.code, self.code.p, self.code.one, self.code.two
        sums = code.product.sums
        if "grad_beta" in code.ids:
            with code.command("grad_beta"):
                p.fh2s(one, code.reads["delta"])
                code.send_sum(one)
        with code.command("grad_gamma"):
            p.fh2s(one, code.reads["delta"])
            p.fh2s(two, code.reads["aux"])
            p.fmuls(one, one, two)
            code.send_sum(one)
        if "back_sum" in code.ids:
            with code.command("back_sum"):
                self.scaled_delta()
                p.fadds(sums, sums, one)
        for size in self.heads:
            with code.command("head_back"):
                for name in ("delta", "aux"):
                    p.dsr_off(code.reads[name], -size * code.tokens)
        with code.command("back_dot"):
            self.scaled_delta()
            p.fh2s(two, code.reads["aux"])
            p.fmuls(one, one, two)
            p.fadds(sums, sums, one)
        with code.command("back_row"):
            self.scaled_delta()
            p.fsubs(one, one, self.mean)
            p.fh2s(two, code.reads["aux"])
            p.fmuls(two, two, self.dot)
            p.fsubs(one, one, two)
            p.fmuls(one, one, self.deviation)
            p.fs2h(code.writes["delta"], one)

    def centred(self) -> None:
        """Emit ``one`` = row - mean."""
        self.code.p.fh2s(self.code.one, self.code.reads["row"])
        self.code.p.fsubs(self.code.one, self.code.one, self.mean)

    def scaled_delta(self) -> None:
        """Emit ``one`` = delta row times factor."""
        p, one = self.code.p, self.code.one
        p.mov32(one, 0)
        p.fmachs(one, one, self.code.reads["delta"], self.gamma)


NORM = Lowering(
    COMMANDS,
    {"forward": forward, "back": back},
    {"forward": ("forward, {place}", "normalise"), "back": ("backward, normalisation {number}", "norm")},
    tasks_of=NormTasks,
    joins=True,
)
"""A normalisation has this form in weight streaming."""

HEAD_RMS = Lowering(
    {name: text for name, text in COMMANDS.items() if name not in WITH_A_MEAN} | HEADS,
    {"forward": forward_heads, "back": back_heads},
    {"forward": ("forward, {place}", "normalise"), "back": ("backward, normalisation {number}", "norm")},
    tasks_of=NormTasks,
    joins=True,
)
"""A normalisation of heads has this form in weight streaming."""
