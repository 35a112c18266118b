"""Element-wise tasks of a resident program: activations, softmax cross-entropy, normalisation, row by row.

What moves
    Nothing but the sums that the ring of columns joins, and one f32 number south per sum over tokens.  A command names
    no place: pointers, set by commands, move to the next row of tokens with each use.

Queues and colors
    Those of the two products (`fabric.kernels.streamed.forward`, `fabric.kernels.streamed.gradient`).

Rounding
    A row is widened to f32, worked on in f32 (`fabric.program.functions` for exp, log and roots) and rounded once where
    it is stored.

Cycles
    A command costs the start of a task, a DSR load per operand that is no pointer, and the steps of its operations:
    ``fabric.networks.streamed.commands`` lists what each one does.

Source: requirements WS-38 to WS-46; the white paper leaves element-wise layers to the wafer (section 4.2).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from fabric.asm.operands import Reg, Task, Var
from fabric.kernels.streamed.forward import ProductTasks
from fabric.kernels.streamed.gradient import GradientTasks
from fabric.networks.streamed.commands import IDS
from fabric.program import functions
from fabric.program.program import Program

__all__ = ["APART", "EPSILON", "POINTERS", "RowTasks"]

EPSILON = 1e-5
"""Added to the variance before the root."""
APART = 2.0**100
"""Times this, any two 16-bit numbers that differ are more than one apart."""
POINTERS = ("row", "aux", "delta", "label", "wide")
"""Pointers of `RowTasks`: name of the command that sets each."""


class RowTasks:
    """The element-wise tasks in a program.

    Parameters
    ----------
    p : Program
    product : ProductTasks
        Its sums and its ring of columns are used.
    gradient : GradientTasks
        Its way south is used.
    half, wide : Var
        Any array of 16-bit rows and of f32 rows, to make descriptors from.
    tokens : int
        Elements of a row.
    activations : frozenset of str
        Activations that the network uses; their code is left out otherwise.
    norm : bool
        Whether a layer is normalised.
    place : callable
        Takes the register with the number of an array, emits the look-up, returns the register with its address.
    """

    def __init__(
        self,
        p: Program,
        product: ProductTasks,
        gradient: GradientTasks,
        half: Var,
        wide: Var,
        tokens: int,
        activations: frozenset[str],
        norm: bool,
        place: Callable[[Reg], Reg],
    ) -> None:
        self.place = place
        self.p, self.product, self.gradient, self.tokens = p, product, gradient, tokens
        self.half, self.wide_row, self.activations, self.norm = half, wide, activations, norm
        self.reads = {name: p.dsr("src1") for name in POINTERS}
        self.writes = {name: p.dsr("dest") for name in POINTERS if name != "label"}
        self.onward = p.dsr("dest") if product.arriving else None
        self.one, self.two = p.array("one", tokens, "f32", bank=0), p.array("two", tokens, "f32", bank=2)
        self.short = p.array("short", tokens, "half")
        self.peak, self.share = p.array("peak", tokens, "f32", bank=4), p.array("share", tokens, "f32", bank=4)
        self.hits = p.array("hits", tokens, "f32", bank=4)
        self.scale = p.reg32("loss scale")
        if norm:
            self.mean, self.deviation = p.array("mean", tokens, "f32"), p.array("deviation", tokens, "f32")
            self.dot = p.array("dot", tokens, "f32")
            self.constant, self.gamma = p.reg32("constant"), p.reg16("gamma")
        self.functions = functions.Emit(p, tokens)

    def prepare(self) -> None:
        """Emit the loads of the pointers."""
        for pointers in (self.reads, self.writes):
            for name, dsr in pointers.items():
                var = self.wide_row if name == "wide" else self.half
                self.p.load(dsr, self.p.mem1d(var, self.tokens, save=True, check=False))
        if self.onward:
            self.p.load(self.onward, self.p.fabout(self.product.out, self.tokens, dtype="f32"))

    def command(self, name: str) -> AbstractContextManager[Task]:
        """Begin the task of a command."""
        return self.p.task(name, kind="control", id=IDS[name])

    def tasks(self) -> None:
        """Write the tasks."""
        p = self.p
        self.pointer_tasks()
        if "relu" in self.activations:
            self.relu_tasks()
        if "gelu" in self.activations:
            self.gelu_tasks()
        if self.activations & {"relu", "gelu"}:
            with self.command("slope"):
                p.fmovh(self.short, self.reads["aux"])
                p.fmulh(self.writes["delta"], self.short, self.reads["delta"])
        self.ring_tasks()
        self.loss_tasks()
        if self.norm:
            self.norm_tasks()

    def pointer_tasks(self) -> None:
        """Write the commands that set pointers."""
        for name in POINTERS:
            with self.command(name) as t:
                place = self.place(t.data)
                self.p.dsr_base(self.reads[name], place)
                if name in self.writes:
                    self.p.dsr_base(self.writes[name], place)

    def relu_tasks(self) -> None:
        """Write ``relu``: integer arithmetic makes a mask of what is above zero."""
        p = self.p
        one = {"f16": 0x3C00, "cb16": p.machine["num.cb16_bias"] << 9}[p.half]
        bits = p.mem1d(self.short, dtype="u16")
        with self.command("relu"):
            p.fmaxh(self.short, self.reads["row"], 0.0)
            p.fmovh(self.writes["row"], self.short)
            p.sub16(bits, 0, bits)
            p.sar16(bits, bits, 15)
            p.and16(bits, bits, one)
            p.fmovh(self.writes["aux"], self.short)

    def gelu_tasks(self) -> None:
        """Write ``gelu``."""
        p = self.p
        with self.command("gelu"):
            p.fh2s(self.one, self.reads["row"])
            self.functions.gelu(self.two, self.peak, self.one)
            p.fs2h(self.writes["row"], self.two)
            p.fs2h(self.writes["aux"], self.peak)

    def ring_tasks(self) -> None:
        """Write what joins the sums of all columns."""
        p, total, arriving = self.p, self.product.total, self.product.arriving
        if arriving is None or self.onward is None:
            return
        with self.command("onward"):
            p.mov32(self.onward, self.product.sums)
        with self.command("join_add"):
            p.fadds(total, total, arriving)
        with self.command("take"):
            p.mov32(total, arriving)
        with self.command("join_max"):
            p.fmaxs(total, total, arriving)

    def loss_tasks(self) -> None:
        """Write softmax cross-entropy: the largest logit, the exponentials and their sum, gradients, losses."""
        p, total, sums, one, two = self.p, self.product.total, self.product.sums, self.one, self.two
        with self.command("floor"):
            p.mov32(total, 0xFF800000)
        with self.command("max_row"):
            p.fh2s(one, self.reads["row"])
            p.fmaxs(sums, sums, one)
        with self.command("peak"):
            p.mov32(self.peak, sums)
            p.mov32(total, 0)
        with self.command("exp_row"):
            p.fh2s(one, self.reads["row"])
            p.fsubs(one, one, self.peak)
            p.fh2s(two, self.reads["label"])
            p.fmuls(two, two, one)
            p.fsubs(self.hits, self.hits, two)
            self.functions.exp(one, one)
            p.mov32(self.writes["wide"], one)
            p.fadds(sums, sums, one)
        with self.command("share"):
            self.functions.reciprocal(self.share, sums)
        with self.command("log"):
            self.functions.log(one, sums)
            p.fadds(self.hits, self.hits, one)
        with self.command("scale") as t:
            p.mov16(self.scale.high, t.data)
            p.mov16(self.scale.low, 0)
        with self.command("delta_row"):
            p.fmuls(one, self.share, self.reads["wide"])
            p.fh2s(two, self.reads["label"])
            p.fsubs(one, one, two)
            p.fmuls(one, one, self.scale)
            p.fs2h(self.writes["delta"], one)
        with self.command("loss"):
            self.send_sum(self.hits)
            p.mov32(self.hits, 0)
            p.mov32(total, 0)
        with self.command("right_row"):  # 1 where a logit is the largest, 0 where it is below
            p.fh2s(one, self.reads["row"])
            p.fsubs(one, one, self.peak)
            p.fmuls(one, one, APART)
            p.fmaxs(one, one, -1.0)
            p.fadds(one, one, 1.0)
            p.fh2s(two, self.reads["label"])
            p.fmuls(one, one, two)
            p.fadds(self.hits, self.hits, one)

    def send_sum(self, vector: Var) -> None:
        """Emit the sum of a vector over the tokens, sent south."""
        total = self.p.reg32("sum")
        self.p.mov32(total, 0)
        self.p.fadds(total, vector, total)
        self.gradient.send_south(total)
        self.p.free(total)

    def norm_tasks(self) -> None:
        """Write normalisation over the features of a sample, forward and backward."""
        p, total, sums, one, two = self.p, self.product.total, self.product.sums, self.one, self.two
        constant, gamma = self.constant, self.gamma
        for name, half in (("k_low", constant.low), ("k_high", constant.high), ("gamma", gamma)):
            with self.command(name) as t:
                p.mov16(half, t.data)
        with self.command("sum_row"):
            p.fh2s(one, self.reads["row"])
            p.fadds(sums, sums, one)
        for name, kept in (("mean", self.mean), ("dot", self.dot)):
            with self.command(name):
                p.fmuls(kept, sums, constant)
                p.mov32(total, 0)
        with self.command("var_row"):
            self.centred()
            p.fmuls(one, one, one)
            p.fadds(sums, sums, one)
        with self.command("deviation"):
            p.fmuls(one, sums, constant)
            p.fadds(one, one, EPSILON)
            self.functions.rsqrt(self.deviation, one)
            p.mov32(self.writes["wide"], self.deviation)
            p.mov32(total, 0)
        with self.command("recall"):
            p.mov32(self.deviation, self.reads["wide"])
        with self.command("norm_row"):
            self.centred()
            p.fmuls(one, one, self.deviation)
            p.fs2h(self.writes["aux"], one)
        with self.command("affine") as t:
            beta = p.reg32("beta")
            p.fh2s(beta, t.data)
            p.mov32(one, beta)
            p.fmachs(one, one, self.reads["aux"], gamma)
            p.fs2h(self.writes["row"], one)
        with self.command("grad_beta"):
            p.fh2s(one, self.reads["delta"])
            self.send_sum(one)
        with self.command("grad_gamma"):
            self.product_of_rows()
            self.send_sum(one)
        with self.command("back_sum"):
            self.scaled_delta()
            p.fadds(sums, sums, one)
        with self.command("back_dot"):
            self.scaled_delta()
            p.fh2s(two, self.reads["aux"])
            p.fmuls(one, one, two)
            p.fadds(sums, sums, one)
        with self.command("back_row"):
            self.scaled_delta()
            p.fsubs(one, one, self.mean)
            p.fh2s(two, self.reads["aux"])
            p.fmuls(two, two, self.dot)
            p.fsubs(one, one, two)
            p.fmuls(one, one, self.deviation)
            p.fs2h(self.writes["delta"], one)

    def centred(self) -> None:
        """Emit ``one`` = row - mean."""
        self.p.fh2s(self.one, self.reads["row"])
        self.p.fsubs(self.one, self.one, self.mean)

    def scaled_delta(self) -> None:
        """Emit ``one`` = delta row times factor."""
        self.p.mov32(self.one, 0)
        self.p.fmachs(self.one, self.one, self.reads["delta"], self.gamma)

    def product_of_rows(self) -> None:
        """Emit ``one`` = delta row times aux row."""
        self.p.fh2s(self.one, self.reads["delta"])
        self.p.fh2s(self.two, self.reads["aux"])
        self.p.fmuls(self.one, self.one, self.two)
