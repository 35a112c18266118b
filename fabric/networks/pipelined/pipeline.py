"""A network on a wafer has a rectangle per layer: programs, data paths, layout.

From west to east in the simplest placement: the gate, the layers in order, the loss.  Any other placement of rectangles
that do not overlap is as good: what joins them are `fabric.networks.pipelined.paths`.

Source: vendor documentation, execution modes, section on the layer-pipelined mode; requirements LP-13 to LP-18.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fabric.layout.layout import Layout
from fabric.layout.streams import Side, Stream
from fabric.networks.graph.network import Network
from fabric.networks.pipelined import colors
from fabric.networks.pipelined.kernels import layers_of
from fabric.networks.pipelined.loss import gate_program, loss_program
from fabric.networks.pipelined.matrix import MatrixPlace, matrix_program
from fabric.networks.pipelined.outputs import OutputsPlace, outputs_program, passing_program
from fabric.networks.pipelined.paths import FoundPath, Path, colored, paint
from fabric.networks.pipelined.tile import Tile, received
from fabric.networks.pipelined.updates import Rule
from fabric.program.program import Program
from wse_core.errors import ConfigError
from wse_core.params import Machine

__all__ = ["Pipeline", "Placed", "row_of_rectangles"]


@dataclass(frozen=True)
class Placed:
    """A `Placed` says where a layer lies.

    Attributes
    ----------
    x, y : int
        PE at north and west of the rectangle.
    columns, rows : int
        Tiles along x and y; the rectangle has a column more, and a row more except for layer 1.
    """

    x: int
    y: int
    columns: int
    rows: int


def row_of_rectangles(network: Network, shapes: Sequence[tuple[int, int]]) -> list[Placed]:
    """Return rectangles of (columns, rows) tiles side by side, behind a column for the gate."""
    found, x = [], 1
    for k, (columns, rows) in enumerate(shapes):
        found.append(Placed(x, int(k == 0), columns, rows))
        x += columns + 1
    return found


class Pipeline:
    """A pipeline is a network placed on a wafer, layer by layer.

    Parameters
    ----------
    network : Network
    machine : Machine
    placed : sequence of Placed
        One per layer.
    batch : int
        Samples of a minibatch.
    rule : Rule
        How weights are updated.
    updates : int
        Of a run, at most.
    gate, loss : (x, y), optional
        PE of the gate, first PE of the loss; default west of everything and east of it.
    loss_rows : int
        PEs of the loss, which divide a minibatch.
    size : (width, height), optional
        PEs of the wafer; default as many as are needed.
    ways : dict[str, FoundPath], optional
        Of all paths, found before; default they are looked for.

    Attributes
    ----------
    tiles : list of Tile

    Raises
    ------
    ConfigError
        Rectangles overlap or leave the wafer, a tile does not fit its PE, or paths have no room.
    """

    def __init__(
        self,
        network: Network,
        machine: Machine,
        placed: Sequence[Placed],
        batch: int,
        rule: Rule,
        updates: int = 1,
        gate: tuple[int, int] = (0, 0),
        loss: tuple[int, int] | None = None,
        loss_rows: int = 1,
        size: tuple[int, int] | None = None,
        ways: Mapping[str, FoundPath] | None = None,
    ) -> None:
        self.network, self.machine, self.placed, self.batch = network, machine, list(placed), batch
        self.rule, self.updates, self.gate, self.loss_rows, self.ways = rule, updates, gate, loss_rows, ways
        layers = layers_of(network)
        if len(self.placed) != len(layers):
            raise ConfigError(f"{len(self.placed)} rectangles for {len(layers)} layers", where="placement")
        if batch % loss_rows:
            raise ConfigError(f"{batch} samples do not divide over {loss_rows} PEs of the loss", where="placement")
        self.tiles = [
            Tile(layer, at.columns, at.rows, batch, 2 * (len(layers) - k) - 1, k == 0)
            for k, (layer, at) in enumerate(zip(layers, self.placed, strict=True))
        ]
        self.loss = loss or (max(self.rectangle(k)[0] + self.rectangle(k)[2] for k in range(len(layers))), 1)
        boxes = self.rectangles()
        needed = max(x + w for x, _, w, _ in boxes.values()), max(y + h for _, y, _, h in boxes.values())
        self.width, self.height = size or needed
        self._check(boxes)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Weights have these shapes, biases in the last column; then come factors and shifts of normalised layers."""
        return [parameter.shape for parameter in self.network.parameters]

    @property
    def normalised(self) -> list[int]:
        """The normalised layers have these numbers, from 0."""
        return [k for k, layer in enumerate(self.network.layers) if layer.norm]

    # --- places -------------------------------------------------------------------------------------------------------

    def rectangle(self, number: int) -> tuple[int, int, int, int]:
        """Return (x, y, width, height) of a layer, from 0."""
        at, tile = self.placed[number], self.tiles[number]
        return at.x, at.y, tile.width, tile.height

    def rectangles(self) -> dict[str, tuple[int, int, int, int]]:
        """Return (x, y, width, height) of everything that runs a program."""
        layers = {f"layer {k + 1}": self.rectangle(k) for k in range(len(self.tiles))}
        return {"gate": (*self.gate, 1, 1), **layers, "loss": (*self.loss, 1, self.loss_rows)}

    def _check(self, boxes: dict[str, tuple[int, int, int, int]]) -> None:
        for limit, size, name in (("fabric.width", self.width, "wide"), ("fabric.height", self.height, "high")):
            if size > self.machine[limit]:
                raise ConfigError(
                    f"the rectangles are {size} PEs {name}, the wafer {self.machine[limit]}", where="placement"
                )
        taken = np.full((self.height, self.width), -1, np.int32)
        for number, (name, (x, y, w, h)) in enumerate(boxes.items()):
            if x < 0 or y < 0 or x + w > self.width or y + h > self.height:
                raise ConfigError(
                    f"{name} at {x}, {y} with {w} x {h} PEs leaves the {self.width} x {self.height} of the wafer",
                    where="placement",
                )
            part = taken[y : y + h, x : x + w]
            if (part >= 0).any():
                other = list(boxes)[int(part.max())]
                raise ConfigError(f"{name} and {other} overlap", where="placement")
            part[...] = number

    def matrix(self, number: int) -> tuple[int, int, int, int]:
        """Return the rectangle of a layer's tiles."""
        at, tile = self.placed[number], self.tiles[number]
        return at.x, at.y + (not tile.first), at.columns, at.rows

    def outputs(self, number: int) -> tuple[int, int, int, int]:
        """Return the column of PEs of a layer's outputs."""
        x, y, w, h = self.matrix(number)
        return x + w, y, 1, h

    # --- paths --------------------------------------------------------------------------------------------------------

    @cached_property
    def paths(self) -> dict[str, Path]:
        """The data paths have ways and colors.

        ``activations 0`` leads from the gate to layer 1, ``activations k`` from layer k on, ``gradients k`` to layer k;
        besides ``asking``, ``labels`` and ``losses``.
        """
        last, found = len(self.tiles), {}
        for k in range(last + 1):
            source = [self.gate] if k == 0 else _column(self.outputs(k - 1))
            found[f"activations {k}"] = self._activations(k, source)
        loss_box = (*self.loss, 1, self.loss_rows)
        for k in range(1, last + 1):
            source = _column(loss_box)
            if k < last:
                x, y, w, _ = self.rectangle(k)
                source = [(x + i, y) for i in range(w - 1)]
            found[f"gradients {k}"] = self._gradients(k, source)
        found["asking"] = Path("asking", [self.matrix(0)[:2]], (*self.gate, 1, 1), onward=True)
        found["labels"] = Path("labels", [], loss_box, self._samples())
        found["losses"] = Path("losses", [_column(loss_box)[-1]], None)
        if self.ways is None:
            free, switched = colors.pool(self.machine["router.colors"]), self.machine["switch.colors"]
            colored(found.values(), free, self.width, self.height, switched)
            return found
        if self.ways.keys() != found.keys():
            raise ConfigError("the ways are those of other paths", where="placement", hint="compile again")
        for name, path in found.items():
            path.color, path.way, path.way_out = vars(self.ways[name]).values()
        return found

    def _activations(self, number: int, source: list[tuple[int, int]]) -> Path:
        name = f"activations {number}"
        if number == len(self.tiles):
            return Path(name, source, (*self.loss, 1, self.loss_rows), self._samples(), onward=True)
        tile, box = self.tiles[number], self.matrix(number)
        total = tile.all_inputs if number == 0 else self.tiles[number - 1].all_outputs
        columns = -(-min(total, tile.all_inputs) // tile.inputs)  # nothing is for those behind them
        numbers = np.broadcast_to(np.arange(columns), (box[3], columns))
        return Path(name, source, (*box[:2], columns, box[3]), _window(total, tile.inputs, numbers))

    def _gradients(self, number: int, source: list[tuple[int, int]]) -> Path:
        tile, box = self.tiles[number - 1], self.outputs(number - 1)
        total = tile.all_outputs if number == len(self.tiles) else self.tiles[number].all_inputs
        rows = -(-min(total, tile.all_outputs) // tile.outputs)
        window = _window(total, tile.outputs, np.arange(rows)[:, None])
        return Path(f"gradients {number}", source, (*box[:2], 1, rows), window)

    def _samples(self) -> dict[str, object] | None:
        """Return the filter that gives each PE of the loss its samples of a minibatch."""
        part = self.batch // self.loss_rows * self.tiles[-1].all_outputs
        return _window(part * self.loss_rows, part, np.arange(self.loss_rows)[:, None])

    # --- layout -------------------------------------------------------------------------------------------------------

    @cached_property
    def layout(self) -> Layout:
        """The `Layout`; streams are in `samples`, `labels`, `logits`, `losses` and `asked`."""
        layout, machine, half = Layout(self.width, self.height, self.machine), self.machine, self.network.dtype
        color = {name: path.color for name, path in self.paths.items()}
        last = len(self.tiles)
        layout.place(gate_program(self.tiles[0], color["asking"], color["activations 0"], machine), *self.gate)
        for k in range(last):
            self._place_layer(layout, k, color)
        loss = {
            "logits": color[f"activations {last}"],
            "labels": color["labels"],
            "gradients": color[f"gradients {last}"],
            "losses": color["losses"],
        }
        x, y = self.loss
        for row in range(self.loss_rows):
            part = self.batch // self.loss_rows
            layout.place(loss_program(self.tiles[-1], part, row, self.loss_rows, loss, machine, half), x, y + row)
            if row < self.loss_rows - 1:
                layout.route(colors.LOSS[row % 2], (x, y + row), rx="R", tx="S")
                layout.route(colors.LOSS[row % 2], (x, y + row + 1), rx="N", tx="R")
        for path in self.paths.values():
            paint(path, layout)
        side: Side = "W" if self.gate[0] == 0 else "E" if self.gate[0] == self.width - 1 else "N"
        layout.route(colors.ENTRY, self.gate, rx=side, tx="R")
        self.samples = layout.input_stream(*self.gate, side, colors.ENTRY)
        return layout

    def stream(self, name: str) -> Stream:
        """Return the stream of the host on a path."""
        found = self.paths[name].stream
        assert found is not None
        return found

    def _place_layer(self, layout: Layout, number: int, color: dict[str, int]) -> None:
        tile, (x0, y0, w, h) = self.tiles[number], self.matrix(number)
        arriving = tile.all_inputs if number == 0 else self.tiles[number - 1].all_outputs
        coming = tile.all_outputs if number == len(self.tiles) - 1 else self.tiles[number + 1].all_inputs
        made: dict[object, Program] = {}

        def put(key: object, make: object, x: int, y: int) -> None:
            if key not in made:
                made[key] = make(key)  # type: ignore[operator]
            layout.place(made[key], x, y)

        def tile_program(place: MatrixPlace) -> Program:
            asking = color["asking"] if place.asks else None
            given = tile, place, color[f"activations {number}"], asking, self.rule, self.updates
            return matrix_program(*given, self.machine, self.network.dtype)

        def row_program(place: OutputsPlace) -> Program:
            leaving, gradients = color[f"activations {number + 1}"], color[f"gradients {number + 1}"]
            given = tile, place, leaving, gradients, self.rule, self.updates
            return outputs_program(*given, self.machine, self.network.dtype)

        def column_program(ends: tuple[bool, bool]) -> Program:
            return passing_program(tile, *ends, color[f"gradients {number}"], self.machine, self.network.dtype)

        for i in range(w):
            here = received(arriving, tile.inputs, i)
            for j in range(h):
                asks = number == 0 and (i, j) == (0, 0)
                put(MatrixPlace(i == 0, j == h - 1, i % 2, j % 2, here, asks), tile_program, x0 + i, y0 + j)
            if not tile.first:
                put((i == 0, i == w - 1), column_program, x0 + i, y0 - 1)
        for j in range(h):
            here = received(coming, tile.outputs, j)
            put(OutputsPlace(j * tile.layer.norm, j == 0, j == h - 1, here), row_program, x0 + w, y0 + j)
        self._route_layer(layout, number)

    def _route_layer(self, layout: Layout, number: int) -> None:
        """Route what stays inside a layer's rectangle."""
        tile, (x0, y0, w, h) = self.tiles[number], self.matrix(number)
        for i in range(w):
            layout.route(colors.EAST[i % 2], (x0 + i, y0, 1, h), rx="R", tx="E")
            layout.route(colors.EAST[i % 2], (x0 + i + 1, y0, 1, h), rx="W", tx="R")
        layout.route(colors.DELTA, (x0 + w, y0, 1, h), rx="R", tx="W")
        layout.route(colors.DELTA, (x0, y0, w, h), rx="E", tx="WR")
        layout.route(colors.DELTA, (x0, y0, 1, h), rx="E", tx="R")
        if tile.layer.norm and h > 1:
            for j in range(1, h):
                layout.route(colors.NORM[j % 2], (x0 + w, y0 + j), rx="R", tx="N")
                layout.route(colors.NORM[j % 2], (x0 + w, y0 + j - 1), rx="S", tx="R")
            layout.route(colors.NORM[2], (x0 + w, y0), rx="R", tx="S")
            layout.route(colors.NORM[2], (x0 + w, y0 + 1, 1, h - 1), rx="N", tx="RS")
            layout.route(colors.NORM[2], (x0 + w, y0 + h - 1), rx="N", tx="R")
        if tile.first:
            return
        for j in range(h):
            layout.route(colors.NORTH[j % 2], (x0, y0 + j, w, 1), rx="R", tx="N")
            layout.route(colors.NORTH[j % 2], (x0, y0 + j - 1, w, 1), rx="S", tx="R")


def _column(box: tuple[int, int, int, int]) -> list[tuple[int, int]]:
    """Return the PEs of a column, north to south."""
    x, y, _, h = box
    return [(x, y + k) for k in range(h)]


def _window(total: int, part: int, numbers: np.ndarray) -> dict[str, object] | None:
    """Return a counter filter for a stream that repeats every `total` 16-bit elements: `part` ones per number."""
    if total <= part:
        return None
    words = total // 2
    if words > 0xFFFF:
        raise ConfigError(f"a filter cannot count {words} wavelets", where="placement", hint="smaller minibatches")
    begin = numbers * (part // 2)
    count = np.clip(words - begin, 0, part // 2)
    # The counter runs from 0 to words - 1 and over; what finds it at most `max` passes.
    start = np.where(count > 0, (words - begin) % words, 0)
    return {"kind": "counter", "init_counter": start, "max_counter": np.maximum(count - 1, 0), "limit1": words - 1}
