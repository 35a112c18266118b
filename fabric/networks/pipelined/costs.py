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

__all__ = ["last_cycles", "layer_cycles", "network_cycles"]

TURNS = 3
"""That are measured, after those that fill the pipeline."""
STREAM, BACK = 11, 12
"""Colors of what comes and goes; any two that mean nothing inside a rectangle."""
Link = tuple[str, int, int]
"""Side, color and wavelets per turn."""


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
def _parts(tile: Tile, rule: Rule, machine: Machine, half: str) -> dict[str, float]:
    """Return the cycles of a turn of each kind of PE of a layer, and of the streams that leave it."""
    n, batch, updates = tile.outputs, tile.batch, tile.kept + 2 * TURNS
    ahead, behind = tile.inputs * batch // 2, n * batch // 2
    place = MatrixPlace(True, True, 0, 0, tile.inputs, False)
    goes: list[Link] = [("E", colors.EAST[0], n * batch)]
    if not tile.first:
        goes.append(("N", colors.NORTH[0], tile.inputs * batch))
    found = {
        "tile": _turn(
            matrix_program(tile, place, STREAM, None, rule, updates, machine, half),
            [("W", STREAM, ahead), ("E", colors.DELTA, behind)],
            goes,
            tile.delay,
            machine,
        )
    }
    alone = replace(tile, columns=1, rows=1, layer=replace(tile.layer, outputs=min(n, tile.layer.outputs)))
    outputs = _turn(
        outputs_program(alone, OutputsPlace(0, True, True, n), STREAM, BACK, rule, updates, machine, half),
        [("W", colors.EAST[0], n * batch), ("E", BACK, behind)],
        [("N", STREAM, behind), ("W", colors.DELTA, behind)],
        tile.delay,
        machine,
    )
    marks = tile.rows if tile.rows > 1 else 0
    found["outputs"] = outputs + batch * (tile.all_outputs // 2 + marks - n // 2)
    if not tile.first:
        passing = _turn(
            passing_program(tile, True, True, STREAM, machine, half),
            [("S", colors.NORTH[0], tile.inputs * batch)],
            [("W", STREAM, ahead)],
            0,
            machine,
        )
        marks = tile.columns if tile.columns > 1 else 0
        found["gradients"] = passing + batch * (tile.all_inputs // 2 + marks - tile.inputs // 2)
    return found


def layer_cycles(tile: Tile, rule: Rule, machine: Machine, half: str) -> float:
    """Return the cycles that a layer takes for a minibatch when nothing else holds it up."""
    return max(_parts(tile, rule, machine, half).values())


def last_cycles(tile: Tile, rule: Rule, machine: Machine, half: str, loss_rows: int) -> float:
    """Return the same of the last layer with the loss, which it waits for in every turn."""
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
    first = _parts(replace(tile, first=True), rule, machine, half)["tile"]
    return alone + _parts(tile, rule, machine, half)["tile"] - first


def network_cycles(pipeline: Pipeline) -> dict[str, float]:
    """Return the cycles of every layer for a minibatch; the largest is that of the network in its steady state."""
    half, rule, machine = pipeline.network.dtype, pipeline.rule, pipeline.machine
    *tiles, last = pipeline.tiles
    found = {f"layer {k}": layer_cycles(tile, rule, machine, half) for k, tile in enumerate(tiles, 1)}
    found[f"layer {len(tiles) + 1}"] = max(
        layer_cycles(last, rule, machine, half), last_cycles(last, rule, machine, half, pipeline.loss_rows)
    )
    return found
