"""A minibatch takes a layer so many cycles: its programs are measured on one PE each, with the streams between layers.

A PE's program runs with streams of the host in place of its neighbours; a few turns more, less a few turns, are the
cycles of a turn.  So nothing of a program's cost is written down twice.  What a PE waits for is arithmetic:

Streams
    A stream of W wavelets takes W cycles, whoever is first in it.  Behind the part of each PE that sends comes a
    wavelet that moves its switch on; the gate is busy with the loop around its samples besides.
Sums and inputs
    Inputs of a layer and the sums of its first row go east over the same links, which both then pass every other cycle.
    The sums of a minibatch are a wave that moves a column of tiles in `timing.stage` cycles; as long as it is under
    way the stream goes at half its rate, whichever link the wave is on.  Where a tile has so many inputs that these
    land more slowly than that at half the rate, the wave is held up by them part of its way: the mean of both counts.
There and back
    The gradients of a minibatch are wanted two turns after its outputs have left (`Tile.delay` of neighbours differs by
    two).  So two turns are at least as long as its way: outputs, stream, forward, gradients of the inputs, stream.

Updates
    Where an update has several minibatches (`parts`), its cycles are shared among them: the mean is what is returned.
    Turns with an update and turns without one are then of different lengths, and not everywhere at the same time: what
    the slowest layer waits for that is found by following minibatches (`turns`).

The last layer cannot begin a minibatch before the one before has come back from the loss, so the two are measured
together, as the only layer of a network.

A network takes the cycles of its slowest part per minibatch, since every part works on a minibatch of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fabric.host.engines import Backend
from fabric.host.fabric import Fabric
from fabric.layout.layout import Layout
from fabric.layout.streams import Side
from fabric.networks.graph.network import Network
from fabric.networks.pipelined import colors
from fabric.networks.pipelined.loss import gate_program
from fabric.networks.pipelined.matrix import MatrixPlace, matrix_program
from fabric.networks.pipelined.outputs import OutputsPlace, outputs_program, passing_program
from fabric.networks.pipelined.pipeline import Pipeline, Placed
from fabric.networks.pipelined.tile import Tile
from fabric.networks.pipelined.turns import Turn, pace
from fabric.networks.pipelined.updates import Rule
from fabric.networks.pipelined.wafer import PipelinedWafer
from fabric.price.timing import stage
from fabric.program.program import Program
from wse_core.formats import Half
from wse_core.params import Machine

__all__ = [
    "forward_and_back_cycles",
    "gate_cycles",
    "gradients_cycles",
    "last_cycles",
    "layer_cycles",
    "layer_parts",
    "network_cycles",
    "outputs_cycles",
    "streams",
    "there_and_back_cycles",
    "tile_cycles",
    "turns_of",
]

ENGINE: Backend = "compiled"
"""Costs are measured on this engine, whichever one trains: both take the same cycles."""
TURNS = 3
"""So many turns are measured, after those that fill the pipeline."""
STREAM, BACK = 11, 12
"""Colors of what comes and goes; any two that mean nothing inside a rectangle."""
Link = tuple[Side, int, int]
"""A link has a side, a color and wavelets per turn."""
NEVER = 0xFFFF
"""Minibatches of an update that does not come while turns are measured."""
FEW = 8
"""Of the last layer so many columns of tiles are simulated."""
Size: TypeAlias = Any
"""A size is a number, or an array of numbers."""


def _run(
    program: Program,
    comes: list[Link],
    goes: list[Link],
    turns: Sequence[int],
    machine: Machine,
    training: bool = True,
    per_update: int = 1,
) -> list[tuple[int, list[NDArray[np.int64]]]]:
    """Run a program between streams of the host; return for each number of turns the cycles and when wavelets left."""
    layout = Layout(1, 1, machine)
    layout.place(program, 0, 0)
    for side, color, _ in comes:
        layout.route(color, (0, 0), rx=side, tx="R")
    for side, color, _ in goes:
        layout.route(color, (0, 0), rx="R", tx=side)
    into = [(layout.input_stream(0, 0, side, color), count) for side, color, count in comes]
    out = [layout.output_stream(0, 0, side, color) for side, color, _ in goes]
    fabric, found = Fabric(layout, ENGINE), []
    symbols = fabric.spec.programs[0].symbols
    for count in turns:
        values = {"minibatches": count, "training": int(training), "per_update": per_update}
        for name in values.keys() & symbols.keys():
            fabric.write(name, values[name])
        for stream, wavelets in into:
            fabric.send(stream, np.zeros(count * wavelets, np.uint32))
        if "minibatches" in symbols:
            fabric.launch("begin")
        done = fabric.run()
        found.append((done.cycles, [fabric.receive(stream).cycles - done.start for stream in out]))
    return found


def _turn(
    program: Program,
    comes: list[Link],
    goes: list[Link],
    delay: int,
    machine: Machine,
    training: bool = True,
    per_update: int = 1,
) -> float:
    """Return the cycles of a turn of a program between streams of the host."""
    turns = delay + TURNS, delay + 2 * TURNS
    (few, _), (many, _) = _run(program, comes, goes, turns, machine, training, per_update)
    return (many - few) / TURNS


def _mean(measured: Callable[[int], float], parts: int) -> float:
    """Return the mean cycles of the minibatches of an update, of which one has it."""
    every = measured(1)
    if parts == 1:
        return every
    rest = measured(NEVER)
    return rest + (every - rest) / parts


def _tile_program(tile: Tile, rule: Rule, machine: Machine, half: Half) -> tuple[Program, Link, Link]:
    """Return the program of a tile alone, its inputs and its sums."""
    place = MatrixPlace(True, True, 0, 0, tile.inputs, False)
    program = matrix_program(tile, place, STREAM, None, rule, tile.kept + 2 * TURNS, machine, half)
    return program, ("W", STREAM, tile.inputs * tile.batch // 2), ("E", colors.EAST[0], tile.outputs * tile.batch)


@lru_cache(maxsize=4096)
def _tile_forward(tile: Tile, rule: Rule, machine: Machine, half: Half) -> float:
    """Return the cycles of a minibatch that goes forward only."""
    program, inputs, sums = _tile_program(tile, rule, machine, half)
    return _turn(program, [inputs], [sums], 0, machine, training=False)


@lru_cache(maxsize=4096)
def _tile(tile: Tile, rule: Rule, machine: Machine, half: Half, per_update: int = 1) -> tuple[float, float]:
    """Return the cycles of a turn, and of it those from its begin until the gradients of the inputs have left."""
    n, batch = tile.outputs, tile.batch
    program, inputs, sums = _tile_program(tile, rule, machine, half)
    gradients: Link = ("N", colors.NORTH[0], tile.inputs * batch)
    comes: list[Link] = [inputs, ("E", colors.DELTA, n * batch // 2)]
    if tile.first:
        return _turn(program, comes, [sums], tile.delay, machine, True, per_update), 0.0
    turns = tile.delay + TURNS, tile.delay + 2 * TURNS
    (few, _), (many, (east, north)) = _run(program, comes, [sums, gradients], turns, machine, True, per_update)
    forward = _tile_forward(tile, rule, machine, half)
    # Of the first turn that has both ways: from its last sum to its last gradient.
    back = north[gradients[2] - 1] - east[(tile.delay + 1) * sums[2] - 1]
    return (many - few) / TURNS, forward + float(back)


def tile_cycles(tile: Tile, rule: Rule, machine: Machine, half: Half, parts: int = 1) -> float:
    """Return the cycles of a turn of a PE with a tile."""
    return _mean(lambda count: _tile(_one_tile(tile), rule, machine, half, count)[0], parts)


def forward_and_back_cycles(tile: Tile, rule: Rule, machine: Machine, half: Half) -> float:
    """Return the cycles of a PE with a tile from a minibatch's inputs until gradients of inputs have left it."""
    return _tile(_one_tile(tile), rule, machine, half)[1]


def _one_tile(tile: Tile) -> Tile:
    """Return a tile alone."""
    layer = replace(tile.layer, inputs=tile.inputs, outputs=tile.outputs, activation="none", norm=False)
    return replace(tile, layer=layer, columns=1, rows=1)


@lru_cache(maxsize=64)
def gate_cycles(batch: int, machine: Machine) -> float:
    """Return the cycles of the gate for a minibatch beside its wavelets."""
    words = 8
    tile = Tile(Network.dense((2 * words, 2)).layers[0], 1, 1, batch, 1, True)
    program = gate_program(tile, STREAM, BACK, machine)
    comes: list[Link] = [("E", STREAM, 1), ("W", colors.ENTRY, words * batch)]
    return _turn(program, comes, [("N", BACK, words * batch)], 0, machine) - words * batch


def _outputs_program(tile: Tile, rule: Rule, machine: Machine, half: Half) -> tuple[Program, Link, Link]:
    """Return the program of the outputs of a row alone, its sums and what it sends on."""
    count, place = tile.outputs * tile.batch, OutputsPlace(0, True, True, tile.outputs)
    program = outputs_program(tile, place, STREAM, BACK, rule, tile.kept + 2 * TURNS, machine, half)
    return program, ("W", colors.EAST[0], count), ("N", STREAM, count // 2)


@lru_cache(maxsize=4096)
def _outputs_forward(tile: Tile, rule: Rule, machine: Machine, half: Half) -> float:
    """Return the cycles of a minibatch that goes forward only."""
    program, sums, leaves = _outputs_program(tile, rule, machine, half)
    return _turn(program, [sums], [leaves], 0, machine, training=False)


@lru_cache(maxsize=4096)
def _outputs(tile: Tile, rule: Rule, machine: Machine, half: Half, per_update: int = 1) -> tuple[float, float]:
    """Return the cycles of a turn, and of it those before the first output leaves."""
    count = tile.outputs * tile.batch
    program, sums, on = _outputs_program(tile, rule, machine, half)
    comes: list[Link] = [sums, ("E", BACK, count // 2)]
    goes: list[Link] = [on, ("W", colors.DELTA, count // 2)]
    turns = tile.delay + TURNS, tile.delay + 2 * TURNS
    (few, _), (many, (leaves, _)) = _run(program, comes, goes, turns, machine, True, per_update)
    turn = (many - few) / TURNS
    return turn, turn - float(leaves[-1] - leaves[-(count // 2)])


def _one_row(tile: Tile) -> Tile:
    """Return the tile of a PE with the outputs of a row."""
    layer = replace(tile.layer, inputs=2, outputs=min(tile.outputs, tile.layer.outputs))
    return replace(tile, layer=layer, columns=1, rows=1)


def outputs_cycles(tile: Tile, rule: Rule, machine: Machine, half: Half, parts: int = 1) -> float:
    """Return the cycles of a turn of a PE with the outputs of a row, the stream of all rows not counted."""
    return _mean(lambda count: _outputs(_one_row(tile), rule, machine, half, count)[0], parts)


def _outputs_ahead(tile: Tile, rule: Rule, machine: Machine, half: Half) -> float:
    """Return of these cycles those before the first output leaves."""
    return _outputs(_one_row(tile), rule, machine, half)[1]


@lru_cache(maxsize=4096)
def _gradients(tile: Tile, machine: Machine, half: Half) -> float:
    count = tile.inputs * tile.batch
    program = passing_program(tile, True, True, STREAM, machine, half)
    return _turn(program, [("S", colors.NORTH[0], count)], [("W", STREAM, count // 2)], 0, machine)


def gradients_cycles(tile: Tile, machine: Machine, half: Half) -> float:
    """Return the cycles of a turn of a PE that passes gradients back, the stream of all columns not counted."""
    layer = replace(tile.layer, inputs=tile.inputs, outputs=2, activation="none", norm=False)
    return _gradients(replace(tile, layer=layer, columns=1, rows=1, kept=1), machine, half)


def streams(
    machine: Machine,
    batch: int,
    first: bool,
    columns: Size,
    rows: Size,
    inputs: Size,
    outputs: Size,
    rows_before: Size = 1,
) -> tuple[Size, Size, Size]:
    """Return cycles of streams: what they add to outputs and to gradients beside a PE's own part, and of the inputs.

    A wavelet carries two features.  `rows_before` are the rows of the layer that sends the inputs.
    """
    ahead = batch * (outputs * (rows - 1) // 2 + _marks(rows))
    behind = batch * (inputs * (columns - 1) // 2 + _marks(columns))
    words = batch * (inputs * columns // 2)
    beside = gate_cycles(batch, machine) if first else batch * _marks(rows_before)
    wave = (stage(machine) + np.maximum(stage(machine), inputs)) / 2
    shared = np.minimum(wave / 2, outputs * batch)
    return ahead, behind, words + beside + (columns - 1) * shared


def _marks(pes: Size) -> Size:
    """Return the wavelets behind the parts of so many PEs; one that is alone sends none."""
    return np.where(np.asarray(pes) > 1, pes, 0)


def layer_parts(
    tile: Tile, rule: Rule, machine: Machine, half: Half, rows_before: int = 1, parts: int = 1
) -> dict[str, float]:
    """Return the cycles of a minibatch in each kind of PE of a layer, and in the streams that enter and leave it."""
    given = machine, tile.batch, tile.first, tile.columns, tile.rows, tile.inputs, tile.outputs, rows_before
    ahead, behind, entering = (float(cycles) for cycles in streams(*given))
    found = {"inputs": entering, "tile": tile_cycles(tile, rule, machine, half, parts)}
    found["outputs"] = outputs_cycles(tile, rule, machine, half, parts) + ahead
    if tile.first:
        return found
    return found | {"gradients": gradients_cycles(tile, machine, half) + behind}


def layer_cycles(tile: Tile, rule: Rule, machine: Machine, half: Half, rows_before: int = 1, parts: int = 1) -> float:
    """Return the cycles that a layer takes for a minibatch when nothing else holds it up."""
    return max(layer_parts(tile, rule, machine, half, rows_before, parts).values())


def last_cycles(tile: Tile, rule: Rule, machine: Machine, half: Half, loss_rows: int, parts: int = 1) -> float:
    """Return the same of the last layer with the loss, which it waits for in every turn."""
    return _mean(lambda count: _last_turn(tile, rule, machine, half, loss_rows, count), parts)


def _last_turn(tile: Tile, rule: Rule, machine: Machine, half: Half, loss_rows: int, per_update: int) -> float:
    """Return the cycles of a turn of the last layer.

    More than `FEW` columns of tiles are not simulated: each adds as many cycles as one of the last few.
    """
    if tile.columns <= FEW:
        return _last(tile, rule, machine, half, loss_rows, per_update)
    fewer = (FEW // 2, FEW)
    near, far = (
        _last(replace(tile, layer=replace(tile.layer, inputs=tile.inputs * c), columns=c), *given)
        for given in [(rule, machine, half, loss_rows, per_update)]
        for c in fewer
    )
    return far + (far - near) / (fewer[1] - fewer[0]) * (tile.columns - FEW)


@lru_cache(maxsize=1024)
def _last(tile: Tile, rule: Rule, machine: Machine, half: Half, loss_rows: int, per_update: int) -> float:
    network = Network.of((tile.layer,), half)
    turns = 2 * TURNS
    pipeline = Pipeline(
        network, machine, [Placed(1, 1, tile.columns, tile.rows)], tile.batch, rule, turns, loss_rows=loss_rows
    )
    wafer = PipelinedWafer(pipeline, ENGINE)
    inputs = np.zeros((turns * tile.batch, tile.layer.inputs), np.uint16)
    labels = np.zeros((turns * tile.batch, tile.layer.outputs), np.uint16)
    times = wafer.run(inputs, labels, np.zeros((turns, 5), np.float32), per_update).loss_times
    alone = float(times[-1] - times[1]) / (turns - 2)
    if tile.first:
        return alone
    own, first = (_one_tile(replace(tile, first=first)) for first in (False, True))
    return alone + _tile(own, rule, machine, half, per_update)[0] - _tile(first, rule, machine, half, per_update)[0]


def there_and_back_cycles(below: Tile, tile: Tile, rule: Rule, machine: Machine, half: Half) -> float:
    """Return the cycles from the gradients that a layer's outputs await to those of the minibatch that then leaves.

    Columns of tiles begin one after the other, as their inputs land and as the wave of sums comes; the gradients of the
    first sample leave as the last of both lets them, those of the others one behind the other.

    Parameters
    ----------
    below, tile : Tile
        Of the layer and of the next one.
    """
    given = machine, tile.batch, False, tile.columns, tile.rows, tile.inputs, tile.outputs, below.rows
    entering = float(streams(*given)[2])
    inside = forward_and_back_cycles(tile, rule, machine, half) + stage(machine) * tile.rows
    leaving = _leaving(tile)
    sample = tile.inputs * tile.columns / 2
    first = max(leaving, stage(machine) * tile.columns) - sample
    return _outputs_ahead(below, rule, machine, half) + entering + inside + first + (tile.batch - 1) * leaving


def _leaving(tile: Tile) -> float:
    """Return the cycles of the stream of a sample's gradients of the inputs."""
    return tile.inputs * tile.columns / 2 + float(_marks(tile.columns))


def turns_of(pipeline: Pipeline) -> list[Turn]:
    """Return what the programs of each layer do with a minibatch, in cycles, each measured alone on one PE.

    What the last layer's turn takes beyond its own programs is the loss, with the ways there and back.
    """
    given = pipeline.rule, pipeline.machine, pipeline.network.dtype
    found, before = [], 1
    for tile in pipeline.tiles:
        one, row, sums = _one_tile(tile), _one_row(tile), tile.outputs * tile.batch
        (plain, ways), every = _tile(one, *given, NEVER), _tile(one, *given, 1)[0]
        forward, ahead = _tile_forward(one, *given), _outputs_forward(row, *given)
        back = 0.0 if tile.first else ways - forward
        outputs, norm = (_outputs(row, *given, count)[0] for count in (NEVER, 1))
        sizes = tile.columns, tile.rows, tile.inputs, tile.outputs, before
        turn = Turn(
            tile.delay,
            entering=float(streams(pipeline.machine, tile.batch, tile.first, *sizes)[2]),
            forward=forward,
            sums=sums,
            back=back,
            rest=plain - forward - back,
            update=every - plain,
            activation=ahead - sums - sums // 2,
            slopes=outputs - ahead,
            norm=norm - outputs,
            leaving=0.0 if tile.first else tile.batch * _leaving(tile),
        )
        found.append(turn)
        before = tile.rows
    last = _last_turn(pipeline.tiles[-1], *given, pipeline.loss_rows, NEVER)
    found[-1] = replace(turn, loss=last - plain - turn.activation - turn.slopes)
    return found


def network_cycles(pipeline: Pipeline, parts: int = 1) -> dict[str, float]:
    """Return the cycles of every layer for a minibatch; the largest is that of the network in its steady state.

    Where an update has several minibatches, the slowest layer's cycles have those in which it waits for the updates of
    other PEs.

    A slow layer begins with a lead, since its first minibatches have no way back; until that is used up, which may take
    some tens of minibatches, losses come as fast as the layers behind it are.

    Parameters
    ----------
    pipeline : Pipeline
    parts : int
        Minibatches of an update.
    """
    half, rule, machine = pipeline.network.dtype, pipeline.rule, pipeline.machine
    before = [1, *(tile.rows for tile in pipeline.tiles)]
    found = {
        f"layer {k}": layer_cycles(tile, rule, machine, half, rows, parts)
        for k, (tile, rows) in enumerate(zip(pipeline.tiles, before, strict=False), 1)
    }
    for k, (tile, below) in enumerate(zip(pipeline.tiles[1:], pipeline.tiles, strict=False), 2):
        found[f"layer {k}"] = max(found[f"layer {k}"], there_and_back_cycles(below, tile, rule, machine, half) / 2)
    name, last = f"layer {len(pipeline.tiles)}", pipeline.tiles[-1]
    found[name] = max(found[name], last_cycles(last, rule, machine, half, pipeline.loss_rows, parts))
    if parts > 1:
        slowest = max(found, key=lambda layer: found[layer])
        found[slowest] = max(found[slowest], pace(turns_of(pipeline), parts))
    return found
