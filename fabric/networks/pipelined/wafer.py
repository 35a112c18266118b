"""A wafer is trained, or run, layer by layer: weights in, minibatches through, losses out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabric.host.engines import Backend
from fabric.host.fabric import Fabric
from fabric.host.result import RunResult
from fabric.host.running import Progress
from fabric.networks.pipelined.pipeline import Pipeline
from fabric.networks.pipelined.tile import Tile
from fabric.networks.pipelined.updates import CONSTANTS
from wse_core import numerics
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic

__all__ = ["PipelinedWafer", "Run"]


@dataclass(frozen=True)
class Run:
    """A `Run` says what a run did.

    Attributes
    ----------
    losses : ndarray of float32, shape (minibatches,)
        Sums over the samples of each; empty without training.
    loss_times : ndarray of int64
        When they left, in cycles since the beginning of the run.
    logits : ndarray of uint16, shape (samples, classes)
    asked : ndarray of int64
        When the first layer asked for each minibatch.
    cycles : int
    run : RunResult
    """

    losses: NDArray[np.float32]
    loss_times: NDArray[np.int64]
    logits: NDArray[np.uint16]
    asked: NDArray[np.int64]
    cycles: int
    run: RunResult


class PipelinedWafer:
    """A wafer has a pipelined network on it.

    Parameters
    ----------
    pipeline : Pipeline
    backend : {"compiled", "reference"}, optional
        As `fabric.host.fabric.Fabric` takes it.

    Attributes
    ----------
    fabric : Fabric
    """

    def __init__(self, pipeline: Pipeline, backend: Backend | None = None) -> None:
        self.pipeline = pipeline
        self.fabric = Fabric(pipeline.layout, backend)
        self.half = Arithmetic.of(pipeline.machine, pipeline.network.dtype)

    # --- weights ------------------------------------------------------------------------------------------------------

    def load(self, weights: Sequence[NDArray[np.float32]], state: Sequence[Mapping[str, NDArray[np.float32]]]) -> None:
        """Place weights and optimizer state in the SRAM of the PEs.

        Parameters
        ----------
        weights : list of ndarray of float32
            Of the shapes of the pipeline: matrices with biases in the last column, then factors and shifts.
        state : list of dict
            For each of them an array of its shape for each slot of the rule.
        """
        for k, tile in enumerate(self.pipeline.tiles):
            rect = self.pipeline.matrix(k)
            cut = _cut(tile, weights[k])
            self.fabric.write("w", cut, rect)
            bits = numerics.convert(cut.view(np.uint32), "f32", self.half.fmt, self.half.bias, self.half.ftz)
            self.fabric.write("a", np.asarray(bits, np.uint16), rect)
            self.fabric.write("g", 0.0, rect)
            for slot in self.pipeline.rule.slots:
                self.fabric.write(f"w.{slot}", _cut(tile, state[k][slot]), rect)
        for at, k in enumerate(self.pipeline.normalised, len(self.pipeline.tiles)):
            tile, rect = self.pipeline.tiles[k], self.pipeline.outputs(k)
            cut = _rows(tile, weights[at])
            self.fabric.write("norm", cut, rect)
            bits = numerics.convert(cut.view(np.uint32), "f32", self.half.fmt, self.half.bias, self.half.ftz)
            self.fabric.write("norm_copy", np.asarray(bits, np.uint16), rect)
            self.fabric.write("norm_g", 0.0, rect)
            for slot in self.pipeline.rule.slots:
                self.fabric.write(f"norm.{slot}", _rows(tile, state[at][slot]), rect)

    def weights(self) -> list[NDArray[np.float32]]:
        """Return weights, and factors and shifts, as `load` takes them."""
        matrices = [self._read(k, "w") for k in range(len(self.pipeline.tiles))]
        return matrices + [self._read_rows(k, "norm") for k in self.pipeline.normalised]

    def state(self) -> list[dict[str, NDArray[np.float32]]]:
        """Return the optimizer state, as `load` takes it."""
        slots, pipe = self.pipeline.rule.slots, self.pipeline
        matrices = [{slot: self._read(k, f"w.{slot}") for slot in slots} for k in range(len(pipe.tiles))]
        return matrices + [{slot: self._read_rows(k, f"norm.{slot}") for slot in slots} for k in pipe.normalised]

    def _read(self, number: int, symbol: str) -> NDArray[np.float32]:
        return _joined(self.pipeline.tiles[number], self.fabric.read(symbol, self.pipeline.matrix(number)))

    def _read_rows(self, number: int, symbol: str) -> NDArray[np.float32]:
        tile = self.pipeline.tiles[number]
        held = self.fabric.read(symbol, self.pipeline.outputs(number)).reshape(tile.rows, 2, tile.outputs)
        return np.ascontiguousarray(held.transpose(1, 0, 2).reshape(2, -1)[:, : tile.layer.outputs])

    # --- runs ---------------------------------------------------------------------------------------------------------

    def run(
        self,
        inputs: NDArray[np.uint16],
        labels: NDArray[np.uint16] | None = None,
        constants: NDArray[np.float32] | None = None,
        per_update: int = 1,
        scale: float = 1.0,
        progress: Progress | bool | None = None,
    ) -> Run:
        """Stream minibatches through the network, until all of them are done and the pipeline is empty.

        Parameters
        ----------
        inputs : ndarray of uint16, shape (samples, features)
            Bit patterns; whole minibatches.
        labels : ndarray of uint16, shape (samples, classes), optional
            Bit patterns of the wanted probabilities; none: no training.
        constants : ndarray of float32, shape (updates, len(CONSTANTS))
            Of each update.
        per_update : int
            Minibatches of an update.
        scale : float
            Loss scale.
        progress : callable, optional
            As `fabric.host.fabric.Fabric.run` takes it.

        Returns
        -------
        Run
        """
        pipe, fabric, training = self.pipeline, self.fabric, labels is not None
        count, rest = divmod(len(inputs), pipe.batch)
        if rest or not count:
            raise ConfigError(
                f"{len(inputs)} samples are not whole minibatches of {pipe.batch}", where="samples", value=len(inputs)
            )
        last = pipe.tiles[-1]
        self._set(count, training, per_update, scale, constants)
        fabric.send(pipe.samples, _padded(inputs, pipe.tiles[0].all_inputs))
        wanted = np.zeros((len(inputs), last.layer.outputs), np.uint16) if labels is None else labels
        fabric.send(pipe.stream("labels"), _padded(wanted, last.all_outputs))
        fabric.launch("begin")
        done = fabric.run(progress=progress)
        losses = fabric.receive(pipe.stream("losses"))
        logits = fabric.receive(pipe.stream(f"activations {len(pipe.tiles)}")).values("u16")
        asked = fabric.receive(pipe.stream("asking"))
        return Run(
            losses.values("f32"),
            losses.cycles - done.start,
            logits.reshape(len(inputs), last.all_outputs)[:, : last.layer.outputs],
            asked.cycles - done.start,
            done.cycles,
            done,
        )

    def _set(
        self, count: int, training: bool, per_update: int, scale: float, constants: NDArray[np.float32] | None
    ) -> None:
        """Tell the PEs how long the run is and what its updates are."""
        pipe, fabric = self.pipeline, self.fabric
        table = np.zeros((pipe.updates, len(CONSTANTS)), np.float32)
        if constants is not None:
            if len(constants) > pipe.updates:
                raise ConfigError(f"{len(constants)} updates, the PEs have room for {pipe.updates}", where="updates")
            table[: len(constants)] = constants
        for name, box in pipe.rectangles().items():
            if name.startswith("layer"):
                number = int(name.split()[1]) - 1
                rect = pipe.matrix(number)
                fabric.write("per_update", per_update, rect)
                fabric.write("rates", table.reshape(-1), rect)
                everyone = [rect, pipe.outputs(number)]
                if number in pipe.normalised:
                    fabric.write("per_update", per_update, pipe.outputs(number))
                    fabric.write("rates", table.reshape(-1), pipe.outputs(number))
                if number:
                    everyone.append((rect[0], rect[1] - 1, rect[2], 1))
            else:
                everyone = [box] if name == "loss" else []
            for rect in everyone:
                fabric.write("minibatches", count, rect)
                fabric.write("training", int(training), rect)
        fabric.write("scale", np.float32(scale), (*pipe.loss, 1, pipe.loss_rows))

    def occupancy(self) -> list[int]:
        """Return how many minibatches each layer held at most in the last run, all its PEs alike or the largest."""
        return [
            int(self.fabric.read("most_held", self.pipeline.matrix(k)).max()) for k in range(len(self.pipeline.tiles))
        ]


def _padded(values: NDArray[np.uint16], width: int) -> NDArray[np.uint16]:
    """Return rows with zeros behind them."""
    return np.pad(values, ((0, 0), (0, width - values.shape[1])))


def _cut(tile: Tile, matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what each PE holds of a matrix with its biases, shape (rows, columns, elements): tile by columns."""
    layer = tile.layer
    full = np.zeros((tile.all_outputs, tile.all_inputs), np.float32)
    full[: layer.outputs, : layer.inputs] = matrix[:, : layer.inputs]
    tiles = full.reshape(tile.rows, tile.outputs, tile.columns, tile.inputs).transpose(0, 2, 3, 1)
    if layer.bias:
        biases = np.zeros((tile.rows, tile.columns, 1, tile.outputs), np.float32)
        biases.reshape(tile.rows, tile.columns, -1)[:, 0] = np.pad(
            matrix[:, -1], (0, tile.all_outputs - layer.outputs)
        ).reshape(tile.rows, tile.outputs)
        tiles = np.concatenate([tiles, biases], axis=2)
    return np.ascontiguousarray(tiles.reshape(tile.rows, tile.columns, -1))


def _rows(tile: Tile, norm: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what each PE of a layer's outputs holds of factors and shifts, shape (rows, 1, elements)."""
    full = np.zeros((2, tile.all_outputs), np.float32)
    full[:, : tile.layer.outputs] = norm
    return np.ascontiguousarray(full.reshape(2, tile.rows, tile.outputs).transpose(1, 0, 2).reshape(tile.rows, 1, -1))


def _joined(tile: Tile, held: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the matrix with its biases from what the PEs hold; inverse of `_cut`."""
    layer = tile.layer
    tiles = held.reshape(tile.rows, tile.columns, -1, tile.outputs)
    full = tiles[:, :, : tile.inputs].transpose(0, 3, 1, 2).reshape(tile.all_outputs, tile.all_inputs)
    parts = [full[: layer.outputs, : layer.inputs]]
    if layer.bias:
        parts.append(tiles[:, 0, tile.inputs].reshape(-1)[: layer.outputs, None])
    return np.concatenate(parts, axis=1)
