"""A layer is cut on its rectangle: sizes of the tiles, what streams by, what each PE holds.

Rectangle of a layer, `width` x `height` PEs, for tiles in c columns and r rows:

    ====================  =========================================================  ==================
    PEs                   what they hold                                             number
    ====================  =========================================================  ==================
    tiles                 a tile of the matrix, its optimizer state, the inputs of   c x r
                          the minibatches that are under way
    outputs, east of      a row's sums: activations and slopes; they pass them on    r
    the tiles
    gradients, north of   a column's sums: gradients of the inputs; they pass them   c
    the tiles             back.  Not in layer 1, whose inputs need none
    ====================  =========================================================  ==================

Input features lie over x, output features over y; tiles are padded to even sizes by zeros, which no product and no
update ever changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from fabric.networks.graph.network import Layer
from wse_core.errors import ConfigError

__all__ = ["MOST_ROWS", "WRITTEN", "Tile", "even"]

MOST_ROWS = 126
"""Rows of a tile: gradients of the inputs walk along rows of the matrix, and a stride is a signed byte."""

WRITTEN = 128
"""The cache of each kind of program holds so many, those that were asked for last: a placement is chosen by what
programs take, layers are alike, and a run is checked and trained with the same ones.
"""


def even(number: int) -> int:
    """Return the next even number."""
    return number + number % 2


@dataclass(frozen=True)
class Tile:
    """A layer lies on c x r tiles.

    Attributes
    ----------
    layer : Layer
    columns, rows : int
        Tiles along x and y.
    batch : int
        Samples of a minibatch.
    kept : int
        Minibatches whose inputs are kept: 2 (L - l) - 1 for layer l of L, from 0.
    first : bool
        Layer 1.
    """

    layer: Layer
    columns: int
    rows: int
    batch: int
    kept: int
    first: bool

    def __post_init__(self) -> None:
        if self.columns < 1 or self.rows < 1 or self.batch < 1:
            raise ConfigError(
                f"{self.columns} x {self.rows} tiles for minibatches of {self.batch} samples", where="placement"
            )
        if self.outputs > MOST_ROWS:
            raise ConfigError(
                f"{self.layer.outputs} outputs on {self.rows} rows of PEs are {self.outputs} a tile, at most "
                f"{MOST_ROWS} can be",
                where="placement",
                hint=f"{-(-self.layer.outputs // MOST_ROWS)} rows or more",
            )

    @property
    def inputs(self) -> int:
        """A tile has so many input features."""
        return even(-(-self.layer.inputs // self.columns))

    @property
    def outputs(self) -> int:
        """A tile has so many output features."""
        return even(-(-self.layer.outputs // self.rows))

    @property
    def all_inputs(self) -> int:
        """There are so many input features with their padding: what a sample's gradients going back are."""
        return self.inputs * self.columns

    @property
    def all_outputs(self) -> int:
        """There are so many output features with their padding: what a sample's activations going on are."""
        return self.outputs * self.rows

    @property
    def delay(self) -> int:
        """There are so many steps from a minibatch's way forward to its way back."""
        return self.kept - 1

    @property
    def slots(self) -> int:
        """There are so many places for inputs: those kept, and one in which the next minibatch arrives."""
        return self.kept + 1

    @property
    def width(self) -> int:
        """The rectangle has so many PEs along x."""
        return self.columns + 1

    @property
    def height(self) -> int:
        """The rectangle has so many PEs along y."""
        return self.rows + (not self.first)

    @property
    def matrix(self) -> int:
        """Elements of a PE's part of the matrix; its biases are the last column."""
        return self.outputs * (self.inputs + self.layer.bias)


def received(total: int, part: int, number: int) -> int:
    """Return how many of the features `number` x `part` ... there are in a stream of `total` features."""
    return max(0, min(part, total - number * part))
