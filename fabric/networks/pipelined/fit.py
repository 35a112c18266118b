"""Tiles for the layers of a network on a part of the wafer: rectangles side by side, all of one height.

Every layer gets the fewest columns that its SRAM needs; then the slowest one gets a column more, until none is left or
it cannot use any.  Work is counted in steps of the products, which is what dominates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fabric.networks.pipelined.pipeline import Placed, row_of_rectangles
from fabric.networks.pipelined.tile import MOST_ROWS, Tile, even
from fabric.networks.pipelined.updates import CONSTANTS, Rule
from fabric.networks.streamed.network import Layer, Network
from wse_core.errors import ConfigError
from wse_core.params import Machine

__all__ = ["CODE", "loss_rows", "parameters", "placed_in_a_row", "words"]

CODE = 1600
"""SRAM words that the program of a tile takes at most."""


def parameters(network: Network) -> int:
    """Return the number of weights, biases and factors."""
    return sum(layer.outputs * (layer.inputs + layer.bias + 2 * layer.norm) for layer in network.layers)


def words(tile: Tile, rule: Rule, updates: int) -> int:
    """Return the SRAM words that a tile takes: matrix, gradients, 16-bit copy, optimizer state, inputs, sums, code."""
    n, part = tile.outputs, tile.inputs * tile.batch
    held = tile.matrix * (2 + 2 + 1 + 2 * len(rule.slots)) + tile.slots * part + n * tile.batch * 3
    held += 0 if tile.first else 2 * part
    return held + 2 * len(CONSTANTS) * updates + n * (14 if rule.adam else 2) + CODE


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
    layers, depth = network.layers, len(network.layers)
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
