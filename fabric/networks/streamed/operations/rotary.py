"""Rotary embedding is done where whole pairs lie in a column: nothing moves.

A command per head turns its pairs of rows, all tokens of the PE at once, by cosines and sines that lie in its memory: 8
bytes per pair and token.  Where a sequence lies on several rows of PEs, each has those of its own places, and a column
with a part of a head those of its pairs.

Rounding
    Products, sums and differences in f32, each rounded; the result to 16 bits.

Cycles
    A pair of rows of T tokens takes 12 T, and some 90.

Source: RoFormer, as `fabric.networks.graph.rotary` has it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.rotary import BASE, base_of, turned_of, turns
from fabric.networks.streamed.operations.attention import head_of, the_form
from fabric.networks.streamed.operations.blocks import rows_of
from fabric.networks.streamed.operations.code import ProgramCode
from fabric.networks.streamed.operations.lowering import Lowering, StepWriter

__all__ = ["ROTARY", "TABLE", "tables_of"]

TABLE = "cosines and sines"
"""A PE has them in an array of this name."""

COMMANDS = {
    "rotary": "data = number of the array whose heads are turned next",
    "rotate": "turn the next head by the places of the tokens",
    "rotate_back": "turn the next head back",
}


def forward(w: StepWriter, step: NetworkStep) -> None:
    """Write the turning of all heads."""
    w.tell(rotary=f"{w.plan.array(step.writes[0])}.rows")
    w.heads(step, "rotate", sequences=False)


def back(w: StepWriter, step: NetworkStep) -> None:
    """Write the turning back of gradients."""
    w.tell(rotary=w.plan.array(step.writes[0]))
    w.heads(step, "rotate_back", sequences=False)


def tables_of(features: int, sequence: int, tokens: int, pairs: slice, base: int = BASE) -> NDArray[np.float32]:
    """Return the cosines and sines of the PEs of each row of a sequence.

    Parameters
    ----------
    features : int
        Of a head, that are turned.
    sequence, tokens : int
        Tokens of a sequence, and of a PE.
    pairs : slice
        Those of a head that a column has.
    base : int
        Of the angles.

    Returns
    -------
    ndarray of float32, shape (rows, numbers of a PE)
    """
    places = np.arange(rows_of(sequence, tokens) * tokens) % sequence
    table = turns(features, sequence, base)[pairs][..., places]
    return np.moveaxis(table.reshape(*table.shape[:2], -1, tokens), 2, 0).reshape(len(places) // tokens, -1)


class RotaryTasks:
    """A `RotaryTasks` has the tasks of rotary embedding, and what they hold between commands."""

    def __init__(self, code: ProgramCode) -> None:
        self.code, p = code, code.p
        node, tokens = the_form(code.network, "rotary"), code.tokens
        features = head_of(code.network, node)
        self.size = features if code.part is None else code.part.features
        self.turned_features = turned_of(node, self.size) if code.part is None else self.size
        pairs = slice(self.turned_features // 2)
        table = tables_of(turned_of(node, features), node.size("sequence"), tokens, pairs, base_of(node))
        self.table = p.array(TABLE, table[0].size, "f32", init=table[0], bank=6)
        self.head = p.scalar("head that is turned next", "u16")
        self.turned = p.array("turned", tokens, "f32", bank=6)

    def tasks(self) -> None:
        """Write the tasks of both ways."""
        code, p = self.code, self.code.p
        with code.command("rotary") as t:
            p.st16(code.place(t.data), self.head)
        for name, first, second in (("rotate", p.fsubs, p.fadds), ("rotate_back", p.fadds, p.fsubs)):
            with code.command(name):
                self.rotate(first, second)

    def rotate(self, first: object, second: object) -> None:
        """Emit the turning of a head: sums of the halves of pairs times cosines and sines, by two operations."""
        code, p, tokens = self.code, self.code.p, self.code.tokens
        rows, table, into = (
            code.reads["label"],
            code.reads["wide"],
            code.writes["row"],
        )  # set before they are used again
        one, two, low, high = code.one, code.two, code.peak, self.turned
        p.load(rows, p.mem1d(code.held["a0"], tokens))
        p.load(into, p.mem1d(code.held["a0"], tokens))
        p.load(table, p.mem1d(self.table, tokens))
        a, b = p.reg16("first half"), p.reg16("second half")
        p.ld16(a, self.head)
        p.ldi(b, self.turned_features // 2 * tokens)
        p.add16(b, b, a)
        with p.loop(self.turned_features // 2):
            for wide, at in ((one, a), (two, b)):
                p.dsr_base(rows, at)
                p.fh2s(wide, rows)
            p.fmuls(low, one, table)
            p.fmuls(high, two, table)
            p.dsr_off(table, 2 * tokens)
            p.fmuls(two, two, table)
            p.fmuls(one, one, table)
            p.dsr_off(table, 2 * tokens)
            first(low, low, two)  # type: ignore[operator]
            second(high, high, one)  # type: ignore[operator]
            for wide, at in ((low, a), (high, b)):
                p.dsr_base(into, at)
                p.fs2h(into, wide)
                p.add16(at, at, tokens)
        if self.turned_features < self.size:
            p.add16(b, b, (self.size - self.turned_features) * tokens)
        p.st16(b, self.head)  # behind the second half, and what is not turned, the next head begins
        p.free(a, b)
        code.prepare()


ROTARY = Lowering(
    COMMANDS,
    {"forward": forward, "back": back},
    {"forward": ("forward, {place}", "rotary"), "back": ("backward, {place}", "rotary back")},
    tasks_of=RotaryTasks,
)
"""Rotary embedding has this form in weight streaming."""
