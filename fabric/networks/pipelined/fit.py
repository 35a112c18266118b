"""Each layer of a network has tiles on a part of the wafer: rectangles side by side, all of one height.

Every layer gets the fewest columns that its SRAM needs; then the slowest one gets a column more, until none is left or
it cannot use any.  Work is counted in steps of the products, which is what dominates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from fabric.networks.graph.network import Layer, Network
from fabric.networks.graph.table import activation
from fabric.networks.pipelined.kernels import layers_of
from fabric.networks.pipelined.pipeline import Placed, row_of_rectangles
from fabric.networks.pipelined.tile import MOST_ROWS, Tile, even
from fabric.networks.pipelined.updates import CONSTANTS, Rule
from wse_core.errors import ConfigError
from wse_core.params import Machine

__all__ = ["CODE", "loss_rows", "outputs_words", "placed_in_a_row", "tile_words", "words"]

CODE = 1600
"""The program of a tile takes at most so many SRAM words, and so does that of outputs without normalisation."""
NORM_CODE = 1900
"""A normalisation adds at most so many SRAM words to it."""
Size: TypeAlias = Any
"""A size is a number of elements, or an array of them."""


def words(tile: Tile, rule: Rule, updates: int) -> int:
    """Return the SRAM words of the PE of a layer that needs most: one with a tile, or one with a row's outputs."""
    given = tile.outputs, tile.batch, tile.kept, rule, updates
    return max(
        int(tile_words(tile.inputs, tile.layer.bias, tile.first, *given)), int(outputs_words(tile.layer, *given))
    )


def tile_words(
    inputs: Size, bias: bool, first: bool, outputs: Size, batch: int, kept: int, rule: Rule, updates: int
) -> Size:
    """Return the SRAM words of tiles of some sizes: matrix, gradients, 16-bit copy, optimizer state, inputs, sums."""
    part = inputs * batch
    held = outputs * (inputs + bias) * (2 + 2 + 1 + 2 * len(rule.slots)) + (kept + 1) * part + outputs * batch * 3
    held = held + (0 if first else 2 * part)
    return held + 2 * len(CONSTANTS) * updates + outputs * (14 if rule.adam else 2) + CODE


def outputs_words(layer: Layer, outputs: Size, batch: int, kept: int, rule: Rule, updates: int) -> Size:
    """Return the SRAM words of PEs with so many outputs: what comes and goes, slopes, functions, normalisation."""
    size = outputs * batch
    held = 4 * size + CODE
    row = activation(layer.activation)
    smooth = row is not None and row.smooth
    if row is not None:
        held = held + kept * size
    if smooth:
        held = held + 4 * size
    if layer.norm:
        held = held + 6 * size + kept * (size + 2 * batch) + 4 * batch
        held = held + outputs * (2 * (5 + 2 * len(rule.slots)) + 2) + 2 * len(CONSTANTS) * updates + NORM_CODE
    lengths = [size * smooth] + [batch, outputs * rule.adam] * layer.norm
    longest = lengths[0]
    for length in lengths[1:]:
        longest = np.maximum(longest, length)
    return held + 12 * longest


def steps(tile: Tile) -> int:
    """Return the steps of the products of a tile for one minibatch, with what an operation costs besides."""
    forward = tile.batch * tile.inputs * (tile.outputs // 2 + 3)
    back = 0 if tile.first else tile.batch * tile.outputs * (tile.inputs // 2 + 3)
    return 2 * forward + back


def loss_rows(batch: int, height: int) -> int:
    """Return the PEs that share the loss: as many as divide a minibatch and fit."""
    return next(k for k in range(min(batch, height), 0, -1) if batch % k == 0)


def placed_in_a_row(
    network: Network, machine: Machine, width: int, height: int, batch: int, rule: Rule, updates: int = 1
) -> list[Placed]:
    """Return a rectangle for every layer, on `width` x `height` PEs.

    Raises
    ------
    ConfigError
        They do not fit; the message says which layer, and how many columns all of them need.
    """
    layers = layers_of(network)
    depth = len(layers)
    room = width - 2 - depth  # without the gate, the loss, the outputs of each layer
    rows = [max(1, min(height - 1, -(-layer.outputs // 2))) for layer in layers]

    def tile(number: int, columns: int) -> Tile:
        return Tile(layers[number], columns, rows[number], batch, 2 * (depth - number) - 1, number == 0)

    def fits(number: int, columns: int) -> bool:
        return words(tile(number, columns), rule, updates) <= machine["mem.words"]

    if height < 2:
        raise ConfigError("layers need two rows of PEs or more", where="mesh.height", value=height)
    columns = []
    for number, layer in enumerate(layers):
        most = -(-layer.inputs // 2)
        if even(-(-layer.outputs // rows[number])) > MOST_ROWS or not fits(number, most):
            raise ConfigError(
                f"layer {number + 1} of {layer.inputs} x {layer.outputs} does not fit the PEs of {height} rows",
                where="mesh",
                hint="more rows, or smaller minibatches",
            )
        low, high = 0, most  # the fewest columns that fit
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(number, middle) else (middle, high)
        columns.append(high)
    if sum(columns) > room:
        raise ConfigError(
            f"{depth} layers need {sum(columns) + 2 + depth} columns of PEs, there are {width}", where="mesh.width"
        )
    return row_of_rectangles(network, list(zip(_shared(layers, columns, room, tile), rows, strict=True)))


def _shared(layers: Sequence[Layer], columns: list[int], room: int, tile: Callable[[int, int], Tile]) -> list[int]:
    """Return columns for the layers, the slowest one served first."""
    left = room - sum(columns)
    while left > 0:
        slowest = max(range(len(layers)), key=lambda k: steps(tile(k, columns[k])))
        now = tile(slowest, columns[slowest]).inputs
        if now <= 2:
            break
        wanted = -(-layers[slowest].inputs // (now - 2)) - columns[slowest]  # until a tile has two inputs fewer
        if wanted > left:
            break
        columns[slowest] += wanted
        left -= wanted
    return columns
