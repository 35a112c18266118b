"""Learned numbers are added to scores: a table of each head lies in the PE, and sums of gradients beside it.

A table has a place for each distance of a query behind a key, or for each key and query; what a row of queries gets
with a key lies there side by side.  It comes with the stream before each way, since another node may have been done in
between; a key takes one addition more.  On the way back gradients of scores are added up where their numbers lie, over
all keys, sequences and nodes of a PE, and go south number by number.

Order of additions (bit exact)
    In a PE sequence after sequence, key after key, from 0; then over the PEs as all gradients.

Cycles
    Half a cycle per query and key forward, one and a half back, some 20 and 40 per key; 10 per number and way that
    comes, and some 20 for each that goes.

Memory
    6 bytes per place of a table and head of a column.

Source: `fabric.networks.graph.attention`; that tables lie in PEs is ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fabric.asm.operands import Dsr, Reg
from fabric.networks.graph.attention import BY_PAIR, biases_of, group_of
from fabric.networks.graph.nodes import Node

if TYPE_CHECKING:
    from fabric.networks.streamed.operations.code import ProgramCode

__all__ = ["COMMANDS", "TABLE", "TOTALS", "BiasTasks"]

TABLE, TOTALS = "biases", "sums of biases"
"""A PE has arrays of these names."""
COMMANDS = {
    "score_sums": "begin sums of gradients of biases of scores anew",
    "score_head": "data = head of the column whose biases come next",
    "score_bias": "data = next bias of a head",
    "score_sum": "send the next sum of gradients of a head's biases south",
}


class BiasTasks:
    """A program has this to add learned numbers to scores.

    Parameters
    ----------
    code : ProgramCode
    node : Node
    length : int
        Tokens of a sequence.
    row, sums : Dsr
        Read a row of 16-bit numbers, and read and write one of f32 numbers, in steps of one; they are lent.
    """

    def __init__(self, code: ProgramCode, node: Node, length: int, row: Dsr, sums: Dsr) -> None:
        self.code, self.length, self.row, self.sums, self.group = code, length, row, sums, group_of(node)
        p, found = code.p, biases_of(node)
        assert found is not None
        self.size, self.first, self.by_pair = found.size, found.first, dict(node.sizes)["biases"] == BY_PAIR
        self.table, self.total = (code.held[name] for name in (TABLE, TOTALS))
        self.now, self.next_one = p.scalar("place of the biases", "u16"), p.scalar("next bias", "u16")

    def tasks(self) -> None:
        """Write the tasks of the commands."""
        code, p = self.code, self.code.p
        with code.command("score_sums"):
            p.mov32(self.total, 0)
        with code.command("score_head") as t:
            first = p.reg16("first")
            p.mul16(t.data, t.data, self.size)
            p.ldi(first, self.first)
            p.add16(first, first, t.data)
            p.st16(first, self.next_one)
        with code.command("score_bias") as t:
            place = self._stepped()
            p.st16(t.data, self.table, index=place)
        with code.command("score_sum"):
            place, number = self._stepped(), p.reg32("sum of a bias")
            p.sll16(place, place, 1)
            p.ld32(number, self.total, index=place)
            code.gradient.send_south(number)

    def _stepped(self) -> Reg:
        """Emit the step to the next place; return the register with the present one."""
        p, place, behind = self.code.p, self.code.p.reg16("bias"), self.code.p.reg16("next bias")
        p.ld16(place, self.next_one)
        p.ldi(behind, 1)
        p.add16(behind, behind, place)
        p.st16(behind, self.next_one)
        p.free(behind)
        return place

    def begin(self, head: Reg) -> None:
        """Emit the choice of the table of a head of keys' first head of queries."""
        p, place = self.code.p, self.code.p.reg16("place of the biases")
        p.mul16(place, head, self.group * self.size)
        p.st16(place, self.now)
        p.free(place)

    def next(self) -> None:
        """Emit the choice of the table of the next head of queries."""
        p, place, more = self.code.p, self.code.p.reg16("place of the biases"), self.code.p.reg16("size")
        p.ld16(place, self.now)
        p.ldi(more, self.size)
        p.add16(place, place, more)
        p.st16(place, self.now)
        p.free(place, more)

    def _place(self, left: Reg) -> Reg:
        """Emit the place of the row of a key, `left` keys from the end; return the register with it."""
        p, place, key = self.code.p, self.code.p.reg16("place of the row"), self.code.p.reg16("key")
        p.ld16(place, self.now)
        if self.by_pair:
            p.ldi(key, self.length)
            p.sub16(key, key, left)
            p.mul16(key, key, self.length)
        else:  # distances of the queries from it begin one before those from the key before it
            p.sub16(key, left, 1)
        p.add16(place, place, key)
        p.free(key)
        return place

    def move(self, scores: Any, left: Reg, own: bool) -> None:
        """Emit a row of scores of queries with a key, and their biases."""
        p, place, other = self.code.p, self._place(left), self.code.p.reg16("table")
        p.ldi(other, self.table)
        p.add16(place, place, other)
        p.dsr_base(self.row, place)
        p.ldi(other, self.code.half.encode(1.0).item())
        p.fmachs(scores, scores, self.row, other)
        p.free(place, other)

    def add_up(self, slopes: Any, left: Reg) -> None:
        """Emit sums of gradients of scores of queries with a key."""
        p, place, other = self.code.p, self._place(left), self.code.p.reg16("sums")
        p.sll16(place, place, 1)
        p.ldi(other, self.total)
        p.add16(place, place, other)
        p.dsr_base(self.sums, place)
        p.fadds(self.sums, self.sums, slopes)
        p.load(self.sums, slopes)
        p.free(place, other)
