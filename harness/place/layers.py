"""A layer of the pipelined mode takes so long in a rectangle: cycles of its programs, measured at few sizes.

A rectangle of w x h PEs has w - 1 columns and h - 1 rows of tiles (h for layer 1; `fabric.networks.pipelined.tile`).
`fabric.networks.pipelined.costs` runs the programs of tiles, outputs and gradients with updates and normalisation;
here they run at the corners of what sizes a PE can hold, and cycles between are those of the surface through them
(`_Surface`).  Streams are arithmetic.  The last layer waits for the loss in every turn: how long beyond its own
programs is measured in one rectangle.

The search (`harness.place.network`) takes these costs.  What it finds is then measured exactly; where the surfaces were
off, they are corrected by as much and the search runs again (`CORRECTIONS` times at most).  The best by measurement is
the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fabric.networks.graph.network import Network
from fabric.networks.pipelined import costs
from fabric.networks.pipelined.fit import loss_rows, outputs_words, tile_words
from fabric.networks.pipelined.pipeline import Pipeline, Placed
from fabric.networks.pipelined.tile import MOST_ROWS, Tile
from harness.place.network import Cost, NetworkPlacement, place
from wse_core.errors import ConfigError, LayoutError

if TYPE_CHECKING:
    from fabric.networks.pipelined.updates import Rule
    from wse_core.params import Machine

__all__ = ["LayerPlan", "layer_cost", "network_placed"]

CORRECTIONS = 2
CLOSE = 0.01
"""The surfaces may be off by this share before the slowest layer is searched again."""
LOW, HIGH = 2, 24
"""Features at which programs are measured, as far as they fit a PE."""


HOP = 7
"""A column or a row of tiles more adds so many cycles to the way of a sum."""


@dataclass(frozen=True)
class LayerPlan:
    """A `LayerPlan` is what layers are placed for.

    Attributes
    ----------
    network : Network
    machine : Machine
    batch : int
        Samples of a minibatch.
    rule : Rule
        How weights are updated.
    updates : int
        Of a run, at most: what constants a PE keeps.
    parts : int
        Minibatches of an update.
    """

    network: Network
    machine: Machine
    batch: int
    rule: Rule
    updates: int = 1
    parts: int = 1

    def tile(self, number: int, columns: int, rows: int) -> Tile:
        """Return a layer, from 0, on so many tiles."""
        layers = self.network.layers
        return Tile(layers[number], columns, rows, self.batch, 2 * (len(layers) - number) - 1, number == 0)

    def words(self, number: int, inputs: np.ndarray, outputs: np.ndarray) -> np.ndarray:
        """Return the SRAM words of the PEs of a layer by the sizes of its tiles."""
        layer, given = self.network.layers[number], (2 * (len(self.network.layers) - number) - 1, self.rule)
        tiles = tile_words(inputs, layer.bias, number == 0, outputs, self.batch, *given, self.updates)
        return np.maximum(tiles, outputs_words(layer, outputs, self.batch, *given, self.updates))

    def pipeline(self, placed: Sequence[Placed], height: int) -> Pipeline:
        """Return the layers where they are."""
        rows = loss_rows(self.batch, height - 1)
        given = self.network, self.machine, placed, self.batch, self.rule, self.updates
        return Pipeline(*given, loss_rows=rows)


class _Surface:
    """The surface is a + b x + c y + d x y through four measurements, or fewer where sizes do not differ.

    Cycles of a tile of any size are within some per cent of it (`tests/harness/place/test_network.py`).
    """

    def __init__(self, measure: Callable[[int, int], float], x: tuple[int, int], y: tuple[int, int]) -> None:
        self.x, self.y = x, y
        self.corners = [[measure(a, b) for b in y] for a in x]

    def __call__(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        s, t = ((at - low) / max(1, high - low) for at, (low, high) in ((x, self.x), (y, self.y)))
        (a, b), (c, d) = self.corners
        return (1 - s) * ((1 - t) * a + t * b) + s * ((1 - t) * c + t * d)


def _tiles(features: int, pieces: np.ndarray) -> np.ndarray:
    """Return the features of a tile, which are even."""
    found = -(-features // np.maximum(pieces, 1))
    return found + found % 2


def _sizes(plan: LayerPlan, number: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return least and largest inputs and outputs of the tiles that are measured: those that a PE has room for."""
    memory, layer = plan.machine["mem.words"], plan.network.layers[number]

    def largest(features: int, holds: Callable[[int], bool]) -> int:
        return next((k for k in range(min(HIGH, features + features % 2), LOW, -2) if holds(k)), LOW)

    outputs = largest(layer.outputs, lambda o: bool(plan.words(number, np.array(LOW), np.array(o)) <= memory))
    inputs = largest(layer.inputs, lambda i: bool(plan.words(number, np.array(i), np.array(outputs)) <= memory))
    return (LOW, inputs), (LOW, outputs)


def _possible(plan: LayerPlan, number: int, width: np.ndarray, height: np.ndarray) -> np.ndarray:
    """Return which rectangles hold a layer, from 0: without what measures its programs."""
    layer = plan.network.layers[number]
    columns, rows = width - 1, height - (number > 0)
    i, o = _tiles(layer.inputs, columns), _tiles(layer.outputs, rows)
    found = (columns >= 1) & (rows >= 1) & (o <= MOST_ROWS)
    return found & (plan.words(number, i, o) <= plan.machine["mem.words"])


def layer_cost(plan: LayerPlan, number: int) -> Cost:
    """Return the cycles of a layer, from 0, as a function of widths and heights; infinite where it cannot be.

    Raises
    ------
    ConfigError
        A PE has no room for the smallest tile.
    """
    layer, first = plan.network.layers[number], number == 0
    machine, half, memory = plan.machine, plan.network.dtype, plan.machine["mem.words"]
    if plan.words(number, np.array(LOW), np.array(LOW)) > memory:
        return lambda width, height: np.full(np.broadcast_shapes(width.shape, height.shape), np.inf)
    given = plan.rule, machine, half
    inputs, outputs = _sizes(plan, number)

    def sized(i: int, o: int) -> Tile:
        kept = 2 * (len(plan.network.layers) - number) - 1
        return Tile(replace(layer, inputs=i, outputs=o), 1, 1, plan.batch, kept, first)

    tiles = _Surface(lambda i, o: costs.tile_cycles(sized(i, o), *given, plan.parts), inputs, outputs)
    rows_of = _Surface(lambda _, o: costs.outputs_cycles(sized(2, o), *given, plan.parts), (0, 0), outputs)
    passing = _Surface(lambda i, _: costs.gradients_cycles(sized(i, 2), machine, half), inputs, (0, 0))

    def cost(width: np.ndarray, height: np.ndarray) -> np.ndarray:
        columns, rows = width - 1, height - (0 if first else 1)
        i, o = _tiles(layer.inputs, columns), _tiles(layer.outputs, rows)
        ahead, behind, entering = costs.streams(machine, plan.batch, first, columns, rows, i, o)
        longest = np.maximum(np.maximum(tiles(i, o), rows_of(o * 0, o) + ahead), entering)
        if not first:
            longest = np.maximum(longest, passing(i, i * 0) + behind)
        return np.where(_possible(plan, number, width, height), longest, np.inf)

    if number < len(plan.network.layers) - 1:
        return cost
    return _with_loss(plan, cost, lambda o: rows_of(o * 0, o), tiles)


def _with_loss(plan: LayerPlan, cost: Cost, outputs: Callable[[np.ndarray], np.ndarray], tiles: _Surface) -> Cost:
    """Return the cost of the last layer: its tiles, its outputs and the loss come one after the other."""
    number = len(plan.network.layers) - 1
    layer, memory = plan.network.layers[number], plan.machine["mem.words"]

    def chain(i: np.ndarray, o: np.ndarray, columns: np.ndarray, rows: np.ndarray) -> np.ndarray:
        there_and_back = plan.batch * o * rows + HOP * (columns + rows)
        return tiles(i, o) + outputs(o) + there_and_back

    def rest(height: int) -> float:
        """Return what the chain does not know, in a rectangle like those that may be found."""
        rows = max(1, min(height, -(-layer.outputs // 2)))
        columns = 1
        while True:
            i, o = _tiles(layer.inputs, np.array(columns)), _tiles(layer.outputs, np.array(rows))
            if plan.words(number, i, o) <= memory or i <= LOW:
                break
            columns *= 2
        tile = plan.tile(number, columns, rows)
        half, loss = plan.network.dtype, loss_rows(plan.batch, max(1, height))
        known = float(chain(i, o, np.array(columns), np.array(rows)))
        return costs.last_cycles(tile, plan.rule, plan.machine, half, loss, plan.parts) - known

    def whole(width: np.ndarray, height: np.ndarray) -> np.ndarray:
        own = cost(width, height)
        if not np.isfinite(own).any():
            return own
        columns, rows = width - 1, height - (number > 0)
        i, o = _tiles(layer.inputs, columns), _tiles(layer.outputs, rows)
        serial = chain(i, o, columns, rows) + rest(int(np.max(height)) - 1)
        return np.where(np.isfinite(own), np.maximum(own, serial), np.inf)

    return whole


def network_placed(
    plan: LayerPlan, width: int, height: int, rounds: int, seed: int
) -> tuple[NetworkPlacement, Pipeline]:
    """Place the layers of a network between a column for the gate and one for the loss.

    Returns
    -------
    tuple of Placement and Pipeline
        Cycles of the placement are measured; the bound is that of the surfaces.

    Raises
    ------
    LayoutError, ConfigError
        A layer or all of them together do not fit, or a data path finds no way.
    """
    if width < 4:
        raise ConfigError(f"{width} columns of PEs", where="mesh", hint="4 or more: gate, tiles, their outputs, loss")
    if height < 2:
        raise ConfigError(f"{height} row of PEs", where="mesh", hint="2 or more: layers, and what leads around them")
    numbers = range(len(plan.network.layers))
    sides = np.arange(1, width - 1)[None, :], np.arange(1, height + 1)[:, None]
    for number in numbers:  # before programs are measured for nothing
        if not _possible(plan, number, *sides).any():
            what, hint = f"fits no rectangle of {width - 2} x {height} PEs", "more PEs, or a smaller minibatch"
            raise LayoutError(what, where=f"layer {number + 1}", hint=hint)
    surfaces = [layer_cost(plan, number) for number in numbers]
    factors = np.ones(len(surfaces))
    best: tuple[NetworkPlacement, Pipeline] | None = None
    for _ in range(1 + CORRECTIONS):
        corrected = [_scaled(surface, factor) for surface, factor in zip(surfaces, factors, strict=True)]
        try:
            found = place(corrected, width - 2, height, rounds=rounds, seed=seed)
        except LayoutError as error:
            error.hint = "more PEs, or a smaller minibatch"
            raise
        rectangles = tuple(rectangle._replace(x=rectangle.x + 1) for rectangle in found.rectangles)
        placed = [Placed(r.x, r.y, r.width - 1, r.height - (number > 0)) for number, r in enumerate(rectangles)]
        pipeline = plan.pipeline(placed, height)
        measured = tuple(costs.network_cycles(pipeline, plan.parts).values())
        if best is None or max(measured) < best[0].slowest:
            best = NetworkPlacement(rectangles, measured, found.bound), pipeline
        off = np.array(measured) / np.array(found.cycles)
        if max(measured) <= (1 + CLOSE) * found.slowest and min(off[np.argmax(measured)], 1) > 1 - CLOSE:
            break
        factors *= off
    assert best is not None
    if not best[1].paths:
        raise LayoutError("data paths find no way", hint="more PEs")
    return best


def _scaled(cost: Cost, factor: float) -> Cost:
    """Return a cost times a number."""
    return lambda width, height: cost(width, height) * factor
