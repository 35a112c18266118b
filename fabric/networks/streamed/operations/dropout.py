"""Dropout is drawn by every PE for its own tokens, from a few numbers that come for each iteration.

What comes
    Per dropout and direction its keys, as commands that carry what the memory service drew, and a command per feature
    with its number.  The numbers of the tokens lie in the PE: they come with the batch.  Nothing is kept for the way
    back, which draws the same again; so does what is computed again.

Order
    Words of 16 bits, modulo 2^16; `fabric.networks.graph.dropout` has the rounds.  A number is multiplied by the factor
    and rounded, and what is dropped is a zero without a sign.

Cycles
    A row of T tokens takes 28.75 T and some 575: a turn is two shifts of a number a cycle, all else goes by fours, and
    each of some fifty operations loads its descriptors.
"""

from __future__ import annotations

from fabric.asm.operands import Dsd, Reg
from fabric.networks.graph.dropout import KEYS, drops_of, level_of, ratio_of
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.streamed.operations.code import ProgramCode
from fabric.networks.streamed.operations.lowering import Lowering, StepWriter

__all__ = ["DROPOUT", "NUMBERS"]

NUMBERS = "numbers"
"""The array of the numbers that tokens have in a batch has this name."""

COMMANDS = {
    "drop_key": "data = the last one of the numbers by which rows are dropped from here on, those before it move on",
    "drop": "data = number of a feature: row: larger, or zero as is drawn for the feature",
}


def forward(w: StepWriter, step: NetworkStep) -> None:
    """Write the dropout of all rows."""
    _dropped(w, step, ".rows")


def back(w: StepWriter, step: NetworkStep) -> None:
    """Write the same dropout of all rows of gradients."""
    _dropped(w, step, "")


def _dropped(w: StepWriter, step: NetworkStep, part: str) -> None:
    place = drops_of(w.plan.network.nodes).index(next(n for n in w.plan.network.nodes if n.name == step.node.name))
    w.tell(row=w.plan.array(step.writes[0]) + part)
    w.drawn(place)
    w.tell(drop_key=place)
    w.numbered(step.writes[0], "drop", step.node.size("together"))


class DropoutTasks:
    """A `DropoutTasks` has the tasks of dropout, and what they hold between commands."""

    def __init__(self, code: ProgramCode) -> None:
        self.code, p = code, code.p
        nodes, half = drops_of(code.network.nodes), code.half
        self.keys = p.array("keys", KEYS + 1, "u16")
        factors = [int(half.encode(1 / (1 - ratio_of(node)))) for node in nodes]
        self.levels = p.array("levels of dropout", len(nodes), "u16", init=[level_of(node) for node in nodes])
        self.factors = p.array("factors of dropout", len(nodes), "u16", init=factors)

    def tasks(self) -> None:
        """Write the tasks of both commands."""
        p, keys = self.code.p, self.keys
        with self.code.command("drop_key") as t:
            p.mov16(p.mem1d(keys, KEYS), p.mem1d(keys, KEYS, offset=1))
            p.st16(t.data, keys, offset=KEYS)
        with self.code.command("drop") as t:
            self._row(t.data)

    def _row(self, feature: Reg) -> None:
        """Emit the dropout of a row: what is drawn is a word of ones, or of zeros, that the result is masked by."""
        code, p, tokens = self.code, self.code.p, self.code.tokens
        rows = (code.short, code.one, code.two)
        x, y, spare = (p.mem1d(row, tokens, dtype="u16") for row in rows)  # two words of each token
        key, other = p.reg16("key"), p.reg16("second word")
        p.add16(x, p.mem1d(code.held[NUMBERS], dtype="u16"), feature)
        p.sll16(key, feature, 2)
        p.slr16(other, feature, 14)
        p.or16(other, other, key)
        for number in range(KEYS):
            if number:
                self._turn(x, 9, spare)
                p.add16(x, x, y)
            p.ld16(key, self.keys, offset=number)
            p.xor16(x, x, key)
            if number == 0:
                p.xor16(y, x, other)
            elif number < KEYS - 1:
                self._turn(y, 2, spare)
                p.xor16(y, y, x)
        p.ld16(other, self.keys, offset=KEYS)
        p.ld16(key, self.levels, index=other)
        p.sub16(key, key, 1)
        p.slr16(x, x, 1)
        p.sub16(x, key, x)
        p.sar16(x, x, 15)
        p.ld16(key, self.factors, index=other)
        p.fmulh(p.mem1d(code.one, tokens, dtype="half"), code.reads["row"], key)
        p.and16(x, x, y)
        p.fmovh(code.writes["row"], code.short)
        p.free(key, other)

    def _turn(self, words: Dsd, left: int, spare: Dsd) -> None:
        """Emit the turn of words of 16 bits to the left."""
        p = self.code.p
        p.sll16(spare, words, left)
        p.slr16(words, words, 16 - left)
        p.or16(words, words, spare)


DROPOUT = Lowering(
    COMMANDS,
    {"forward": forward, "back": back},
    {"forward": ("forward, {place}", "dropout"), "back": ("backward, {place}", "dropout back")},
    tasks_of=DropoutTasks,
)
"""Dropout has this form in weight streaming."""
