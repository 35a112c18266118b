"""How many cycles a minibatch takes a layer: its programs measured on one PE each, and the streams between layers.

A PE's program runs with streams of the host in place of its neighbours; a few turns more, less a few turns, are the
cycles of a turn.  So nothing of a program's cost is written down twice.  What a PE waits for is arithmetic: a stream of
W wavelets takes W cycles, whoever is first in it.

The last layer cannot begin a minibatch before the one before has come back from the loss, so the two are measured
together, as the only layer of a network.

A network takes the cycles of its slowest part per minibatch, since every part works on a minibatch of its own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from fabric.host.fabric import Fabric
from fabric.layout.layout import Layout
from fabric.networks.pipelined import colors
from fabric.networks.pipelined.matrix import MatrixPlace, matrix_program
from fabric.networks.pipelined.outputs import OutputsPlace, outputs_program, passing_program
from fabric.networks.pipelined.pipeline import Pipeline, Placed
from fabric.networks.pipelined.tile import Tile
from fabric.networks.pipelined.updates import Rule
from fabric.networks.pipelined.wafer import PipelinedWafer
from fabric.networks.streamed.network import Network
from fabric.program.program import Program
from wse_core.params import Machine

__all__ = [
    "gradients_cycles",
    "last_cycles",
    "layer_cycles",
    "layer_parts",
    "network_cycles",
    "outputs_cycles",
    "streams",
    "tile_cycles",
]

TURNS = 3
"""That are measured, after those that fill the pipeline."""
STREAM, BACK = 11, 12
"""Colors of what comes and goes; any two that mean nothing inside a rectangle."""
Link = tuple[str, int, int]
"""Side, color and wavelets per turn."""
GATE = 11
"""Cycles of the gate for a sample beside its wavelets."""
LANDING, ASKING, ACROSS = 40, 75, 3
"""Cycles from a minibatch's inputs to those of the next: after a layer, through the gate, for each column of tiles.

Every column must have taken its part and be ready for the next one before the stream goes on.
"""
FEW = 8
Size: TypeAlias = Any
"""A number, or an array of numbers."""


def _turn(program: Program, comes: list[Link], goes: list[Link], delay: int, machine: Machine) -> float:
    """Return the cycles of a turn of a program between streams of the host."""
    layout = Layout(1, 1, machine)
    layout.place(program, 0, 0)
    for side, color, _ in comes:
        layout.route(color, (0, 0), rx=side, tx="R")
    for side, color, _ in goes:
        layout.route(color, (0, 0), rx="R", tx=side)
    into = [(layout.input_stream(0, 0, side, color), count) for side, color, count in comes]
    for side, color, _ in goes:
        layout.output_stream(0, 0, side, color)
    fabric, taken = Fabric(layout), []
    for turns in (delay + TURNS, delay + 2 * TURNS):
        for name in ("minibatches", "training", "per_update"):
            if name in fabric.spec.programs[0].symbols:
                fabric.write(name, turns if name == "minibatches" else 1)
        for stream, count in into:
            fabric.send(stream, np.zeros(turns * count, np.uint32))
        fabric.launch("begin")
        taken.append(fabric.run().cycles)
    return (taken[1] - taken[0]) / TURNS


@lru_cache(maxsize=4096)
def _tile(tile: Tile, rule: Rule, machine: Machine, half: str) -> float:
    n, batch, place = tile.outputs, tile.batch, MatrixPlace(True, True, 0, 0, tile.inputs, False)
    goes: list[Link] = [("E", colors.EAST[0], n * batch)]
    if not tile.first:
        goes.append(("N", colors.NORTH[0], tile.inputs * batch))
    return _turn(
        matrix_program(tile, place, STREAM, None, rule, tile.kept + 2 * TURNS, machine, half),
        [("W", STREAM, tile.inputs * batch // 2), ("E", colors.DELTA, n * batch // 2)],
        goes,
        tile.delay,
        machine,
    )


def tile_cycles(tile: Tile, rule: Rule, machine: Machine, half: str) -> float:
    """Return the cycles of a turn of a PE with a tile."""
    layer = replace(tile.layer, inputs=tile.inputs, outputs=tile.outputs, activation="none", norm=False)
    return _tile(replace(tile, layer=layer, columns=1, rows=1), rule, machine, half)


@lru_cache(maxsize=4096)
def _outputs(tile: Tile, rule: Rule, machine: Machine, half: str) -> float:
    n, count = tile.outputs, tile.outputs * tile.batch
    return _turn(
        outputs_program(tile, OutputsPlace(0, True, True, n), STREAM, BACK, rule, tile.kept + 2 * TURNS, machine, half),
        [("W", colors.EAST[0], count), ("E", BACK, count // 2)],
        [("N", STREAM, count // 2), ("W", colors.DELTA, count // 2)],
        tile.delay,
        machine,
    )


def outputs_cycles(tile: Tile, rule: Rule, machine: Machine, half: str) -> float:
    """Return the cycles of a turn of a PE with the outputs of a row, the stream of all rows not counted."""
    layer = replace(tile.layer, inputs=2, outputs=min(tile.outputs, tile.layer.outputs))
    return _outputs(replace(tile, layer=layer, columns=1, rows=1), rule, machine, half)


@lru_cache(maxsize=4096)
def _gradients(tile: Tile, machine: Machine, half: str) -> float:
    count = tile.inputs * tile.batch
    program = passing_program(tile, True, True, STREAM, machine, half)
    return _turn(program, [("S", colors.NORTH[0], count)], [("W", STREAM, count // 2)], 0, machine)


def gradients_cycles(tile: Tile, machine: Machine, half: str) -> float:
    """Return the cycles of a turn of a PE that passes gradients back, the stream of all columns not counted."""
    layer = replace(tile.layer, inputs=tile.inputs, outputs=2, activation="none", norm=False)
    return _gradients(replace(tile, layer=layer, columns=1, rows=1, kept=1), machine, half)


def streams(
    batch: int, first: bool, columns: Size, rows: Size, inputs: Size, outputs: Size, rows_before: Size = 1
) -> tuple[Size, Size, Size]:
    """Return cycles of streams: what they add to outputs and to gradients beside a PE's own part, and of the inputs.

    A wavelet carries two features; behind the part of each PE comes a wavelet that moves its switch on.  `rows_before`
    are those of the layer that sends the inputs.
    """
    ahead = batch * (outputs * (rows - 1) // 2 + _marks(rows))
    behind = batch * (inputs * (columns - 1) // 2 + _marks(columns))
    words = inputs * columns // 2 + (GATE if first else _marks(rows_before))
    return ahead, behind, batch * words + (ASKING if first else LANDING) + ACROSS * columns


def _marks(pes: Size) -> Size:
    """Return the wavelets behind the parts of so many PEs; one that is alone sends none."""
    return np.where(np.asarray(pes) > 1, pes, 0)


def layer_parts(tile: Tile, rule: Rule, machine: Machine, half: str, rows_before: int = 1) -> dict[str, float]:
    """Return the cycles of a minibatch in each kind of PE of a layer, and in the streams that enter and leave it."""
    given = tile.batch, tile.first, tile.columns, tile.rows, tile.inputs, tile.outputs, rows_before
    ahead, behind, entering = (float(cycles) for cycles in streams(*given))
    found = {"inputs": entering, "tile": tile_cycles(tile, rule, machine, half)}
    found["outputs"] = outputs_cycles(tile, rule, machine, half) + ahead
    if tile.first:
        return found
    return found | {"gradients": gradients_cycles(tile, machine, half) + behind}


def layer_cycles(tile: Tile, rule: Rule, machine: Machine, half: str, rows_before: int = 1) -> float:
    """Return the cycles that a layer takes for a minibatch when nothing else holds it up."""
    return max(layer_parts(tile, rule, machine, half, rows_before).values())


def last_cycles(tile: Tile, rule: Rule, machine: Machine, half: str, loss_rows: int) -> float:
    """Return the same of the last layer with the loss, which it waits for in every turn.

    More than `FEW` columns of tiles are not simulated: each adds as many cycles as one of the last few.
    """
    if tile.columns > FEW:
        fewer = (FEW // 2, FEW)
        near, far = (
            last_cycles(replace(tile, layer=replace(tile.layer, inputs=tile.inputs * c), columns=c), *given)
            for given in [(rule, machine, half, loss_rows)]
            for c in fewer
        )
        return far + (far - near) / (fewer[1] - fewer[0]) * (tile.columns - FEW)
    return _last(tile, rule, machine, half, loss_rows)


@lru_cache(maxsize=1024)
def _last(tile: Tile, rule: Rule, machine: Machine, half: str, loss_rows: int) -> float:
    network = Network((tile.layer,), half)
    turns = 2 * TURNS
    pipeline = Pipeline(
        network, machine, [Placed(1, 1, tile.columns, tile.rows)], tile.batch, rule, turns, loss_rows=loss_rows
    )
    wafer = PipelinedWafer(pipeline)
    inputs = np.zeros((turns * tile.batch, tile.layer.inputs), np.uint16)
    labels = np.zeros((turns * tile.batch, tile.layer.outputs), np.uint16)
    times = wafer.run(inputs, labels, np.zeros((turns, 5), np.float32)).loss_times
    alone = float(times[-1] - times[1]) / (turns - 2)
    if tile.first:
        return alone
    first = tile_cycles(replace(tile, first=True), rule, machine, half)
    return alone + tile_cycles(tile, rule, machine, half) - first


def network_cycles(pipeline: Pipeline) -> dict[str, float]:
    """Return the cycles of every layer for a minibatch; the largest is that of the network in its steady state."""
    half, rule, machine = pipeline.network.dtype, pipeline.rule, pipeline.machine
    before = [1, *(tile.rows for tile in pipeline.tiles)]
    found = {
        f"layer {k}": layer_cycles(tile, rule, machine, half, rows)
        for k, (tile, rows) in enumerate(zip(pipeline.tiles, before, strict=False), 1)
    }
    name, last = f"layer {len(pipeline.tiles)}", pipeline.tiles[-1]
    found[name] = max(found[name], last_cycles(last, rule, machine, half, pipeline.loss_rows))
    return found
