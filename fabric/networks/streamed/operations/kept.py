"""Weights of the last product may stay on the wafers from the forward pass to the way back, in place of coming twice.

What moves
    On the way forward every PE puts down the weights that it is sent: row by row, those of its column's features.  On
    the way back they lie where the features are that they lead to, so no partial sum has to move: each column gathers
    the gradients of all results, row after row along the rows of PEs as requests for gradients do, and makes the
    gradients of its own features alone, for one token after the other: the weights of a row times a number.

Order of additions (bit exact)
    That of the product with the transposed matrix: the results of a column, ascending, from 0; the sums of the columns
    in the order of the ring, which ends with the column of the feature.  So it does not show in any bit whether weights
    were kept.

Memory
    Of n features of a column and V results: n V weights, V rows of tokens, two rows of n numbers in f32.

Cycles
    For each token a multiply-add of n numbers per result, and an addition of n per column with results
    (`fabric.price` has them); rows are gathered once for this and once more when their gradients are asked for.

Source: the page on execution modes ("the implementation can retain the weights of the output layer"); how, is ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fabric.asm.operands import Reg
from fabric.kernels.streamed.gradient import AT_ONCE
from fabric.layout.part import Painted
from fabric.networks.graph.plan import MemoryPlan

if TYPE_CHECKING:
    from fabric.networks.streamed.operations.code import ProgramCode

__all__ = ["GATHER", "INTO", "KEEP", "KEPT", "LEAVE", "KeptTasks", "order_of", "place_order"]

KEPT = {
    "kept": "data = 0: put down the row of gradients that is at hand; 1: put down the weights that come from here on; "
    "2: no more of them; others, less 3: the array for the gradients of all own features"
}
"""Only programs that keep weights have this command."""
GATHER, KEEP, LEAVE, INTO = 0, 1, 2, 3
"""The command has these data."""
ORDER, STRIDE = "order of the kept sums", "weights of a kept row"
"""Parameters of a PE have these names: the first row of the column where the ring begins, the words to its weights, how
far a walk through all rows ends from where it began; then of each column in turn whether it begins again with the first
row, and by how many its rows are more than the fewest, and `END`; and the features of the own column."""
ON, AGAIN, END = 0, 1, 2


def order_of(plan: MemoryPlan, column: int) -> dict[str | int, Any]:
    """Return the parameters of the PEs of a column, by name.

    Columns without results, which add nothing, are left out.
    """
    product = next(node for node in plan.network.nodes if plan.network.keeps(node))
    stride = int(plan.layouts[plan.level(product.inputs[0])].counts[column])
    counts = plan.layout(plan.network.logits).counts
    before, few = np.cumsum(counts) - counts, fewest(plan)
    turns = [turn % len(counts) for turn in range(column + 1, column + 1 + len(counts)) if counts[turn % len(counts)]]
    first = before[turns[0]]
    order = [first, first * stride, first or counts.sum()]
    for place, turn in enumerate(turns):
        order += [AGAIN if place and before[turn] == 0 else ON, counts[turn] - few]
    return {ORDER: [*map(int, order), END], STRIDE: stride}


def fewest(plan: MemoryPlan) -> int:
    """Return the fewest results of a column that has some."""
    counts = plan.layout(plan.network.logits).counts
    return int(counts[counts > 0].min())


def place_order(layout: Painted, plan: MemoryPlan) -> None:
    """Give the PEs of each column the order of their sums."""
    for x in range(layout.width):
        for name, value in order_of(plan, x).items():
            layout.set_param(str(name), value, (x, 0, 1, layout.height))


class KeptTasks:
    """A program that keeps the weights of the last product has this for it.

    Parameters
    ----------
    code : ProgramCode
    plan : MemoryPlan
    """

    def __init__(self, code: ProgramCode, plan: MemoryPlan) -> None:
        self.code, self.few, p = code, fewest(plan), code.p
        counts = plan.layout(plan.network.logits).counts
        self.results = int(counts.sum())
        self.order = p.param(ORDER, "u16", count=4 + 2 * int(np.count_nonzero(counts)))
        self.stride = p.param(STRIDE, "u16")
        self.at, self.turn = p.scalar("place of the next gathered row", "u16"), p.scalar("column in turn", "u16")
        most = code.held["kept"].count // self.results
        self.partial, self.whole = p.array("kept sums", most, "f32", bank=0), p.array("kept total", most, "f32", bank=2)
        self.sums, self.total, self.again = code.product.total, code.product.again, code.reads["wide"]  # all are lent
        self.weights, self.into = code.reads["label"], code.product.result

    def _borrow(self) -> None:
        """Emit the loads of the DSRs."""
        p, most = self.code.p, self.partial.count
        for dsr, array in ((self.sums, self.partial), (self.again, self.partial), (self.total, self.whole)):
            p.load(dsr, p.mem1d(array, most))
        p.load(self.weights, p.mem1d(self.code.held["kept"], most, save=True, check=False))
        p.load(self.into, p.mem1d(self.code.held["kept"], most, stride=self.code.tokens, check=False))
        count = p.reg16("features of the column")
        p.ld16(count, self.stride)
        for dsr in (self.sums, self.again, self.total, self.into):
            p.dsr_len(dsr, count)
        p.free(count)

    def _give_back(self) -> None:
        """Emit the loads of the DSRs as their owners have them."""
        p, product, tokens = self.code.p, self.code.product, self.code.tokens
        for dsr in (product.total, product.again):
            p.load(dsr, product.sums)
        for dsr, name in ((self.again, "expo"), (self.weights, "a0"), (self.into, "a0")):
            p.load(dsr, p.mem1d(self.code.held[name], tokens, save=True, check=False))

    def tasks(self) -> None:
        """Write the command of `KEPT`."""
        p, held, put = self.code.p, self.code.held, self.code.product.put
        assert put is not None
        with self.code.command("kept") as t:
            others, multiply, place = p.new_label(), p.new_label(), p.reg16("place of a number")
            p.br16("ne", t.data, GATHER, others)
            p.load(self.into, p.mem1d(held["gathered"], self.code.tokens, stride=self.results))
            p.ld16(place, self.at)
            p.dsr_base(self.into, place)
            p.fs2h(self.into, self.code.gradient.other)  # a conversion back, which changes no bit
            p.add16(place, place, 1)
            p.st16(place, self.at)
            p.done()
            p.place(others)
            p.br16("ge", t.data, INTO, multiply)
            p.ldi(place, held["gathered"])
            p.st16(place, self.at)
            end = p.new_label()
            p.ldi(put, self.code.product.none_kept)
            p.br16("eq", t.data, LEAVE, end)
            p.ldi(put, held["kept"])
            p.place(end)
            p.done()
            p.place(multiply)
            self._borrow()
            p.sub16(place, t.data, INTO)
            address = self.code.place(place)
            p.dsr_base(self.into, address)
            p.free(address)
            p.ldi(place, held["gathered"])
            with p.loop(self.code.tokens):
                self._token(place)
                p.dsr_off(self.into, 1)
                p.add16(place, place, self.results)
            self._give_back()

    def _token(self, place: Reg) -> None:
        """Emit the gradients of all own features for the token whose gradients of results lie at `place`."""
        p, weights = self.code.p, self.weights
        again, on = p.new_label(), p.new_label()

        def rows(count: int) -> None:
            number = p.reg16("number")
            for row in range(count):
                p.ld16(number, place, offset=row)
                p.fmachs(self.sums, self.sums, weights, number)
            p.add16(place, place, count)
            p.free(number)

        p.mov32(self.total, 0)
        number = p.reg16("number")
        p.ldi(number, self.order[3])
        p.st16(number, self.turn)
        p.ld16(number, self.order)
        p.add16(place, place, number)
        p.ld16(number, self.order, offset=1)
        p.dsr_base(weights, self.code.held["kept"])
        p.dsr_off(weights, number)
        p.jump(on)
        p.place(again)
        p.dsr_base(weights, self.code.held["kept"])
        p.sub16(place, place, self.results)
        p.place(on)
        p.free(number)
        p.mov32(self.sums, 0)
        turns, rest = divmod(self.few, AT_ONCE) if self.few > AT_ONCE else (0, self.few)
        if turns:
            with p.loop(turns):
                rows(AT_ONCE)
        rows(rest)
        more = p.reg16("rows more")
        p.ld16(more, self.turn)
        p.ld16(more, more, offset=1)
        with p.loop(more, counter=more):
            rows(1)
        p.fadds(self.total, self.total, self.again)
        p.ld16(more, self.turn)
        p.add16(more, more, 2)
        p.st16(more, self.turn)
        p.ld16(more, more)
        p.br16("eq", more, AGAIN, again)
        p.br16("eq", more, ON, on)
        p.ld16(more, self.order, offset=2)
        p.sub16(place, place, more)
        p.fs2h(self.into, self.total)
        p.free(more)
