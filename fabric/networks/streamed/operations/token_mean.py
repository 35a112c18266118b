"""Means over the tokens of a sequence, row by row of features; rows of PEs of one sequence hand their sums on.

A command does all rows of the column: its data are how many.  Where a sequence lies whole in a PE nothing moves.  Else
each PE adds its own tokens of every row, hands these sums on to the other rows of PEs as a block of f32 numbers
(`fabric.networks.streamed.operations.blocks`), adds those of all in the order of the sequence, and so has the same bits
as the others.  A column with fewer rows of features than another sends numbers that nobody looks at behind its own.

Order of additions (bit exact)
    The tokens of a PE in order, from 0; then the PEs of the sequence in order, from 0.

Cycles
    A row of T tokens takes some 2 T and 20 per sequence of it; a block of n sums on R rows R n and its way.
"""

from __future__ import annotations

from fabric.asm.operands import Dsr, Reg, Var
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.tensors import NetworkTensor
from fabric.networks.streamed.operations.blocks import Travelling, blocks_of, rows_of
from fabric.networks.streamed.operations.code import ProgramCode
from fabric.networks.streamed.operations.lowering import Lowering, StepWriter

__all__ = ["SUMS", "TOKEN_MEAN"]

SUMS = ("token sums", "token sums that came", "token totals")
"""These are arrays of f32 numbers, one per row of features, where a sequence lies on several rows of PEs."""

COMMANDS = {
    "averaged": "data = number of the array whose means over tokens are taken next",
    "average": "data = how many rows: each token is given the mean over its sequence",
}


def forward(w: StepWriter, step: NetworkStep) -> None:
    """Write the means of all rows."""
    _averaged(w, step.writes[0], f"{w.plan.array(step.writes[0])}.rows")


def back(w: StepWriter, step: NetworkStep) -> None:
    """Write the means of all rows of gradients."""
    _averaged(w, step.writes[0], w.plan.array(step.writes[0]))


def _averaged(w: StepWriter, tensor: NetworkTensor, array: str) -> None:
    w.tell(averaged=array)
    w.owned(tensor, "average")


class TokenMeanTasks:
    """A `TokenMeanTasks` has the tasks of the mean of tokens, and what they hold between commands."""

    def __init__(self, code: ProgramCode) -> None:
        self.code, p = code, code.p
        node = next(node for node in code.network.nodes if node.op == "tokenmean")
        self.share = 1 / node.size("sequence")
        self.rows = rows_of(node.size("sequence"), code.tokens)
        self.own = node.size("sequence") // self.rows
        self.first, self.many = p.scalar("first row of means", "u16"), p.scalar("rows of means", "u16")
        if self.rows > 1:
            self.sums, came, self.totals = (code.held[name] for name in SUMS)
            most = self.sums.count
            self.blocks = blocks_of(code, self.rows)
            self.block = Travelling(most, True, came, self.sums)

    def tasks(self) -> None:
        """Write the tasks of both commands."""
        code, p = self.code, self.code.p
        with code.command("averaged") as t:
            p.st16(code.place(t.data), self.first)
        with code.command("average") as t:
            count = p.reg16("rows")
            p.mov16(count, t.data)
            (self.whole if self.rows == 1 else self.parted)(count)
            code.prepare()

    def loads(self) -> tuple[Dsr, Dsr]:
        """Emit the loads of what reads and writes a row of 16-bit numbers; both are set before they are used again."""
        p, code = self.code.p, self.code
        rows, into = code.reads["label"], code.writes["row"]
        for dsr in (rows, into):
            p.load(dsr, p.mem1d(code.held["a0"], code.tokens))
        return rows, into

    def sum(self, total: Reg, numbers: Var | Dsr) -> None:
        """Emit the sum of f32 numbers."""
        self.code.p.mov32(total, 0)
        self.code.p.fadds(total, numbers, total)

    def whole(self, count: Reg) -> None:
        """Emit the means of rows whose sequences lie whole in the PE."""
        p, code, s = self.code.p, self.code, self.own
        rows, into = self.loads()
        numbers, filled = code.reads["wide"], code.writes["wide"]
        at, total = p.reg16("row"), p.reg32("total")
        p.ld16(at, self.first)
        with p.loop(count):
            p.dsr_base(rows, at)
            p.fh2s(code.one, rows)
            p.load(numbers, p.mem1d(code.one, s))
            p.load(filled, p.mem1d(code.two, s))
            with p.loop(code.tokens // s):
                self.sum(total, numbers)
                p.fmuls(total, total, self.share)
                p.mov32(filled, total)
                p.dsr_off(numbers, 2 * s)
                p.dsr_off(filled, 2 * s)
            p.dsr_base(into, at)
            p.fs2h(into, code.two)
            p.add16(at, at, code.tokens)
        p.free(count, at, total)

    def parted(self, count: Reg) -> None:
        """Emit the means of rows of a sequence that lies on several rows of PEs."""
        p, code, most = self.code.p, self.code, self.block.words
        rows, into = self.loads()
        at, to, total = p.reg16("row"), p.reg16("sum"), p.reg32("total")
        p.st16(count, self.many)
        p.ld16(at, self.first)
        p.ldi(to, self.sums)
        with p.loop(count):
            p.dsr_base(rows, at)
            p.fh2s(code.one, rows)
            self.sum(total, code.one)
            p.st32(total, to)
            p.add16(at, at, code.tokens)
            p.add16(to, to, 2)
        p.free(at, to, total, count)  # what hands blocks on takes as many
        totals = p.mem1d(self.totals, most)
        p.mov32(totals, 0)
        with self.blocks.each([self.block], "SN"):
            p.fadds(totals, totals, p.mem1d(self.block.taken, most))
        p.fmuls(totals, totals, self.share)
        count, at, to, total = p.reg16("rows"), p.reg16("row"), p.reg16("sum"), p.reg32("total")
        p.ld16(count, self.many)
        p.ld16(at, self.first)
        p.ldi(to, self.totals)
        with p.loop(count):
            p.ld32(total, to)
            p.mov32(code.one, total)
            p.dsr_base(into, at)
            p.fs2h(into, code.one)
            p.add16(at, at, code.tokens)
            p.add16(to, to, 2)
        p.free(count, at, to, total)


TOKEN_MEAN = Lowering(
    COMMANDS,
    {"forward": forward, "back": back},
    {"forward": ("forward, {place}", "mean over tokens"), "back": ("backward, {place}", "mean over tokens back")},
    tasks_of=TokenMeanTasks,
)
"""A mean over the tokens of a sequence has this form in weight streaming."""
