"""What a fully connected layer of the pipelined mode costs in a rectangle: closed forms of its tiles.

A rectangle of w x h PEs has w - 1 columns and h - 1 rows of tiles (h for layer 1; `fabric.networks.pipelined.tile`).  A
layer takes the longer of the steps of its products, with what an operation costs besides, and of the streams that
enter and leave: a wavelet carries two features and passes in a cycle.  Norms and the loss are left out.
"""

from __future__ import annotations

import numpy as np

from fabric.networks.pipelined.fit import CODE
from fabric.networks.pipelined.tile import MOST_ROWS
from fabric.networks.streamed.network import Layer, Network
from harness.place.network import Cost, Placement, place
from wse_core.errors import ConfigError, LayoutError

__all__ = ["fully_connected", "network_placed"]

BESIDE = 3
"""Cycles of an operation besides its steps; `fabric.networks.pipelined.products` has the cycles of one."""
MOST_STATE = 14
"""Words for an output of a tile, besides sums, with the optimizer that needs most."""


def _tiles(features: int, pieces: np.ndarray) -> np.ndarray:
    """Return the features of a tile, which are even."""
    found = -(-features // np.maximum(pieces, 1))
    return found + found % 2


def fully_connected(layer: Layer, number: int, layers: int, batch: int, slots: int, memory: int) -> Cost:
    """Return the cost of a layer.

    Parameters
    ----------
    layer : Layer
    number, layers : int
        Which of how many, from 0: how many minibatches it keeps.
    batch : int
        Samples of a minibatch.
    slots : int
        Numbers that the optimizer keeps for a weight.
    memory : int
        Of a PE [words].
    """
    first, kept = number == 0, 2 * (layers - number) - 1

    def cost(width: np.ndarray, height: np.ndarray) -> np.ndarray:
        columns, rows = width - 1, height - (0 if first else 1)
        i, o = _tiles(layer.inputs, columns), _tiles(layer.outputs, rows)
        forward = batch * i * (o // 2 + BESIDE)  # and the gradients of the weights take as many
        back = 0 * i if first else batch * o * (i // 2 + BESIDE)
        streams = np.maximum(batch * i * columns // 2, batch * o * rows // 2)
        words = o * (i + layer.bias) * (5 + 2 * slots) + (kept + 1 + 2 * (not first)) * i * batch
        words = words + (3 * batch + MOST_STATE) * o
        possible = (columns >= 1) & (rows >= 1) & (o <= MOST_ROWS) & (words + CODE <= memory)
        return np.where(possible, np.maximum(2 * forward + back, streams), np.inf)

    return cost


def network_placed(
    network: Network, width: int, height: int, batch: int, slots: int, memory: int, rounds: int, seed: int
) -> Placement:
    """Place the layers of a network between a column for the gate and one for the loss.

    Raises
    ------
    LayoutError
        A layer or all of them together do not fit.
    """
    if width < 4:
        raise ConfigError(f"{width} columns of PEs", where="mesh", hint="4 or more: gate, tiles, their outputs, loss")
    layers = network.layers
    costs = [fully_connected(layer, number, len(layers), batch, slots, memory) for number, layer in enumerate(layers)]
    try:
        found = place(costs, width - 2, height, rounds=rounds, seed=seed)
    except LayoutError as error:
        error.hint = "more PEs, or a smaller minibatch"
        raise
    moved = tuple(rectangle._replace(x=rectangle.x + 1) for rectangle in found.rectangles)
    return Placement(moved, found.cycles, found.bound)
