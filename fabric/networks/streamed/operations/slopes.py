"""Scores fall with the distance of a query from a key, by a slope of each head: a row of distances lies in the PE.

Distances of a row of queries from a key are neighbours in one array, those from the next key begin one before them.  So
a key takes one multiply-add of its row of scores, behind the scale and before the mask, on the way back as well.  The
slopes of a column's heads are parameters of its PEs.

Rounding
    Slopes and distances to 16 bits, their product with the score in f32, rounded once.

Cycles
    Half a cycle per query and key, and some 20 per key; 18 more where a sequence lies on several rows of PEs.

Memory
    2 bytes for each distance that a PE's queries can have: a sequence and a PE's tokens of one if causal, else two
    sequences.

Source: O. Press et al., "Train Short, Test Long", 2022, as `fabric.networks.graph.attention` has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fabric.asm.operands import Dsr, Reg
from fabric.networks.graph.attention import distances, group_of, slopes_of
from fabric.networks.graph.layouts import ColumnLayout
from fabric.networks.graph.nodes import Node
from wse_core.formats import Arithmetic

if TYPE_CHECKING:
    from fabric.networks.streamed.operations.code import ProgramCode

__all__ = ["SLOPES", "SlopeTasks", "slopes_by_column"]

SLOPES = "slopes of heads"
"""A PE has them in an array of this name."""


def slopes_by_column(node: Node, layout: ColumnLayout, half: Arithmetic) -> NDArray[np.uint16]:
    """Return the slopes of a node's query heads, in the order in which they lie in each column, and zeros behind them.

    Parameters
    ----------
    node : Node
        Whose heads have slopes.
    layout : ColumnLayout
        Of its result.
    half : Arithmetic

    Returns
    -------
    ndarray of uint16, shape (columns, heads)
    """
    slopes, size = slopes_of(node), layout.features // node.size("heads")
    assert slopes is not None
    found = np.zeros((len(layout.starts) - 1, len(slopes)), np.uint16)
    for column, row in enumerate(found):
        heads = list(dict.fromkeys((layout.column(column) // size).tolist()))
        row[: len(heads)] = half.encode(slopes[heads])
    return found


class SlopeTasks:
    """A program has this to let scores fall.

    Parameters
    ----------
    code : ProgramCode
    node : Node
    length, rows : int
        Tokens of a sequence in the PE, and rows of PEs that it lies on.
    row : Dsr
        Reads a row of 16-bit numbers, in steps of one; it is lent.
    """

    def __init__(self, code: ProgramCode, node: Node, length: int, rows: int, row: Dsr) -> None:
        self.code, self.length, self.rows, self.row = code, length, rows, row
        p, self.group = code.p, group_of(node)
        least, most = 1 - (length if node.size("causal") else length * rows), length * rows - 1
        self.zero = -least  # the place of distance 0
        self.slopes = p.array(SLOPES, node.size("heads"), "u16")
        words = code.half.encode(distances(least, most))
        self.table = p.array("distances", len(words), "u16", init=words)
        self.now = p.scalar("place of the slope", "u16")

    def begin(self, head: Reg) -> None:
        """Emit the choice of the slope of a head of keys' first head of queries."""
        p, place, first = self.code.p, self.code.p.reg16("place of the slope"), self.code.p.reg16("slopes")
        p.mul16(place, head, self.group)
        p.ldi(first, self.slopes)
        p.add16(place, place, first)
        p.st16(place, self.now)
        p.free(place, first)

    def next(self) -> None:
        """Emit the choice of the slope of the next head of queries."""
        p, place = self.code.p, self.code.p.reg16("place of the slope")
        p.ld16(place, self.now)
        p.add16(place, place, 1)
        p.st16(place, self.now)
        p.free(place)

    def move(self, scores: Any, left: Reg, own: bool) -> None:
        """Emit a row of scores of queries with a key, less what they fall by.

        Parameters
        ----------
        scores : Dsr or Dsd
            The row, f32.
        left : Reg
            Of the keys of the block, with this one.
        own : bool
            Queries are the own ones, and keys those of the block; else the other way round.
        """
        p, at, slope = self.code.p, self.code.p.reg16("distance"), self.code.p.reg16("slope")
        p.ldi(at, self.table)
        p.ldi(slope, self.zero - self.length)
        p.add16(at, at, slope)
        p.add16(at, at, left)
        if self.rows > 1:
            blocks = self.code.blocks
            assert blocks is not None
            queries, keys = (blocks.here, blocks.block) if own else (blocks.block, blocks.here)
            for block, move in ((queries, p.add16), (keys, p.sub16)):
                p.ld16(slope, block)
                p.mul16(slope, slope, self.length)
                move(at, at, slope)
        p.dsr_base(self.row, at)
        p.ld16(at, self.now)
        p.ld16(slope, at)
        p.fmachs(scores, scores, self.row, slope)
        p.free(at, slope)
