"""The oracle computes what a pipelined wafer does, by numpy on bit patterns, in the machine's order of operations.

A step of the schedule at a time: in step s layer l (from 0) takes minibatch s - l forward, then minibatch
s - (2 L - 2 - l) back.  That is all there is to know about time; what wafers really do overlaps, and gives these bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabric.networks.arithmetic import MixedArithmetic
from fabric.networks.graph.operations import EPSILON
from fabric.networks.graph.table import activation
from fabric.networks.pipelined.pipeline import Pipeline
from fabric.networks.pipelined.tile import Tile
from fabric.networks.pipelined.updates import CONSTANTS, TINY

__all__ = ["PipelinedOracle", "Trained"]

Bits = NDArray[np.uint32]
Halves = NDArray[np.uint16]


@dataclass(frozen=True)
class Trained:
    """A `Trained` is what a run gives.

    Attributes
    ----------
    losses : ndarray of float32, shape (minibatches,)
    logits : ndarray of uint16, shape (samples, classes)
    steps : list of (int, list of (int, str, int))
        Per step which layer did what with which minibatch: layer from 1, ``forward`` or ``back``.
    """

    losses: NDArray[np.float32]
    logits: Halves
    steps: list[list[tuple[int, str, int]]]


class PipelinedOracle(MixedArithmetic):
    """The oracle holds the network of a `Pipeline` with its weights.

    Parameters
    ----------
    pipeline : Pipeline
    weights, state
        As `fabric.networks.pipelined.wafer.PipelinedWafer.load` takes them.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        weights: Sequence[NDArray[np.float32]],
        state: Sequence[Mapping[str, NDArray[np.float32]]],
    ) -> None:
        super().__init__(pipeline.machine, pipeline.network.dtype)
        self.pipeline, self.rule = pipeline, pipeline.rule
        norms: list[int | None] = [None] * len(pipeline.tiles)
        for at, k in enumerate(pipeline.normalised, len(pipeline.tiles)):
            norms[k] = at
        self.layers = [
            _Layer(self, tile, weights[k], state[k], *((weights[at], state[at]) if at else (None, None)))
            for k, (tile, at) in enumerate(zip(pipeline.tiles, norms, strict=True))
        ]

    def weights(self) -> list[NDArray[np.float32]]:
        """Return weights, and factors and shifts."""
        matrices = [layer.joined(layer.w) for layer in self.layers]
        return matrices + [layer.norm.values(layer.norm.w) for layer in self.layers if layer.norm]

    def state(self) -> list[dict[str, NDArray[np.float32]]]:
        """Return the optimizer state."""
        matrices = [{name: layer.joined(bits) for name, bits in layer.state.items()} for layer in self.layers]
        norms = [layer.norm for layer in self.layers if layer.norm]
        return matrices + [{name: norm.values(bits) for name, bits in norm.state.items()} for norm in norms]

    def run(
        self,
        inputs: Halves,
        labels: Halves | None = None,
        constants: NDArray[np.float32] | None = None,
        per_update: int = 1,
        scale: float = 1.0,
    ) -> Trained:
        """Do what `fabric.networks.pipelined.wafer.PipelinedWafer.run` does."""
        batch, layers = self.pipeline.batch, self.layers
        count, depth = len(inputs) // batch, len(layers)
        table = np.zeros((1, len(CONSTANTS)), np.float32) if constants is None else constants
        going = {(0, k): inputs[k * batch : (k + 1) * batch].T for k in range(count)}
        coming: dict[tuple[int, int], Halves] = {}
        losses, logits, steps = [], [], []
        for layer in layers:
            layer.begin(table.view(np.uint32), per_update)
        for step in range(count + 2 * depth - 2):
            done = []
            for number, layer in enumerate(layers):
                forward, back = step - number, step - (2 * depth - 2 - number)
                if 0 <= forward < count:
                    going[number + 1, forward] = layer.forward(going.pop((number, forward)))
                    done.append((number + 1, "forward", forward))
                    if number == depth - 1:
                        rows = going.pop((depth, forward))
                        logits.append(rows[: layer.tile.layer.outputs].T)
                        if labels is not None:
                            wanted = labels[forward * batch : (forward + 1) * batch].T
                            loss, coming[depth, forward] = self.loss(rows, wanted, scale)
                            losses.append(loss)
                if labels is not None and 0 <= back < count:
                    coming[number, back] = layer.back(coming.pop((number + 1, back)))
                    done.append((number + 1, "back", back))
            steps.append(done)
        return Trained(np.array(losses, np.uint32).view(np.float32), np.concatenate(logits), steps)

    # --- loss ---------------------------------------------------------------------------------------------------------

    def loss(self, rows: Halves, labels: Halves, scale: float) -> tuple[int, Halves]:
        """Return (bits of the loss of a minibatch, gradients of its logits, padding included)."""
        classes = len(labels)
        below, wanted = self.widen(rows[:classes]), self.widen(labels)
        peak = np.full(below.shape[1], 0xFF800000, np.uint32)
        for row in below:
            peak = self.larger(peak, row)
        below = self.sub(below, np.broadcast_to(peak, below.shape))
        hits = np.zeros_like(peak)
        for row in self.mul(wanted, below):
            hits = self.sub(hits, row)
        powers, sums = self.functions.exp(below), np.zeros_like(peak)
        for row in powers:
            sums = self.add(sums, row)
        share = self.functions.reciprocal(sums)
        hits = self.add(hits, self.functions.log(sums))
        delta = self.sub(self.mul(powers, np.broadcast_to(share, powers.shape)), wanted)
        found = np.zeros_like(rows)
        found[:classes] = self.narrow(self.times(delta, scale))
        sums = np.zeros(self.pipeline.loss_rows, np.uint32)
        for column in hits.reshape(self.pipeline.loss_rows, -1).T:
            sums = self.add(column, sums)
        total = sums[:1]
        for part in sums[1:]:
            total = self.add(total, part)
        return int(total[0]), found


class _Parameter:
    """A parameter has weights with gradients and optimizer state, and their update."""

    def __init__(self, oracle: PipelinedOracle, weights: Bits, state: dict[str, Bits]) -> None:
        self.oracle, self.w, self.state = oracle, weights, state
        self.g = np.zeros_like(weights)

    def update(self, constants: Bits) -> None:
        """Update the weights in place and forget the gradients."""
        o, rule = self.oracle, self.oracle.rule
        inverse, rate, shrink, first, second = (np.full_like(self.g, number) for number in constants)
        g = o.mul(self.g, inverse)
        if rule.weight_decay and rule.name != "adamw":
            g = o.add(g, o.times(self.w, rule.weight_decay))
        if rule.adam:
            if rule.name == "adamw":
                self.w = o.sub(self.w, o.mul(self.w, shrink))
            m = o.add(o.times(self.state["m"], rule.beta1), o.times(g, 1 - rule.beta1))
            v = o.add(o.times(self.state["v"], rule.beta2), o.times(o.mul(g, g), 1 - rule.beta2))
            self.state["m"], self.state["v"] = m, v
            corrected = o.mul(v, second)
            root = o.mul(corrected, o.functions.rsqrt(o.plus(corrected, TINY)))
            g = o.mul(o.mul(o.mul(m, first), o.functions.reciprocal(o.plus(root, rule.eps))), rate)
        elif rule.momentum:
            self.state["velocity"] = g = o.add(o.times(self.state["velocity"], rule.momentum), g)
            g = o.mul(g, rate)
        else:
            g = o.mul(g, rate)
        self.w = o.sub(self.w, g)
        self.g = np.zeros_like(self.g)


class _Norm(_Parameter):
    """A normalised layer has factors (row 0) and shifts (row 1), padding included."""

    def __init__(
        self, oracle: PipelinedOracle, tile: Tile, norm: NDArray[np.float32], state: Mapping[str, NDArray[np.float32]]
    ) -> None:
        self.tile = tile
        slots = {name: self.full(state[name]) for name in oracle.rule.slots}
        super().__init__(oracle, self.full(norm), slots)
        self.kept: list[tuple[Halves, Bits]] = []

    def full(self, norm: NDArray[np.float32]) -> Bits:
        """Return bits with padding."""
        found = np.zeros((2, self.tile.all_outputs), np.float32)
        found[:, : self.tile.layer.outputs] = norm
        return found.view(np.uint32)

    def values(self, bits: Bits) -> NDArray[np.float32]:
        """Return numbers without padding."""
        return bits.view(np.float32)[:, : self.tile.layer.outputs]

    def mean(self, rows: Bits) -> Bits:
        """Return the means over the features of each sample: in each PE from 0, then south to north."""
        o, tile = self.oracle, self.tile
        total = None
        for row in range(tile.rows - 1, -1, -1):
            part = np.zeros(tile.batch, np.uint32)
            for feature in range(row * tile.outputs, min((row + 1) * tile.outputs, tile.layer.outputs)):
                part = o.add(part, rows[feature])
            total = part if total is None else o.add(part, total)
        assert total is not None
        return o.times(total, 1 / tile.layer.outputs)[None]

    def forward(self, rows: Halves) -> Halves:
        """Return normalised, scaled and shifted rows."""
        o, real = self.oracle, self.tile.layer.outputs
        wide = o.widen(rows)[:real]
        wide = o.sub(wide, np.broadcast_to(self.mean(wide), wide.shape))
        variance = self.mean(o.mul(wide, wide))
        inverse = o.functions.rsqrt(o.plus(variance, EPSILON))
        unit = o.narrow(o.mul(wide, np.broadcast_to(inverse, wide.shape)))
        self.kept.append((unit, inverse))
        factors, shifts = o.narrow(self.w)[:, :real, None]
        found = np.zeros_like(rows)
        found[:real] = o.narrow(o.fma(unit, factors, np.broadcast_to(o.widen(shifts), wide.shape)))
        return found

    def back(self, delta: Halves) -> Halves:
        """Take gradients of what `forward` returned; return those of what it took."""
        o, real = self.oracle, self.tile.layer.outputs
        unit, inverse = self.kept.pop(0)
        wide, units = o.widen(delta)[:real], o.widen(unit)
        for k, rows in enumerate((o.mul(wide, units), wide)):
            for column in rows.T:
                self.g[k, :real] = o.add(column, self.g[k, :real])
        factors = o.narrow(self.w)[0, :real, None]
        scaled = o.fma(delta[:real], factors, np.zeros_like(wide))
        mean, dot = self.mean(scaled), self.mean(o.mul(scaled, units))
        back = o.sub(scaled, np.broadcast_to(mean, wide.shape))
        back = o.sub(back, o.mul(units, np.broadcast_to(dot, wide.shape)))
        found = np.zeros_like(delta)
        found[:real] = o.narrow(o.mul(back, np.broadcast_to(inverse, wide.shape)))
        return found


class _Layer(_Parameter):
    """A layer holds its tiles, padding included, as whole arrays."""

    def __init__(
        self,
        oracle: PipelinedOracle,
        tile: Tile,
        weights: NDArray[np.float32],
        state: Mapping[str, NDArray[np.float32]],
        norm: NDArray[np.float32] | None,
        norm_state: Mapping[str, NDArray[np.float32]] | None,
    ) -> None:
        self.tile = tile
        self.norm = None if norm is None or norm_state is None else _Norm(oracle, tile, norm, norm_state)
        slots = {name: self.full(state[name]) for name in oracle.rule.slots}
        super().__init__(oracle, self.full(weights), slots)
        self.kept: list[tuple[Halves, Halves | None]] = []

    def full(self, matrix: NDArray[np.float32]) -> Bits:
        """Return bits of a matrix with its padding, biases in the last column."""
        layer, tile = self.tile.layer, self.tile
        found = np.zeros((tile.all_outputs, tile.all_inputs + 1), np.float32)
        found[: layer.outputs, : layer.inputs] = matrix[:, : layer.inputs]
        if layer.bias:
            found[: layer.outputs, -1] = matrix[:, -1]
        return found.view(np.uint32)

    def joined(self, bits: Bits) -> NDArray[np.float32]:
        """Return the matrix without padding."""
        layer, values = self.tile.layer, bits.view(np.float32)[: self.tile.layer.outputs]
        return np.concatenate([values[:, : layer.inputs], values[:, -1:]][: 1 + layer.bias], axis=1)

    def begin(self, constants: Bits, per_update: int) -> None:
        """Begin a run with its constants."""
        self.constants, self.per_update, self.updates, self.since = constants, per_update, 0, 0

    def forward(self, inputs: Halves) -> Halves:
        """Return the activations of a minibatch, shape (features, samples), padding included."""
        o, tile = self.oracle, self.tile
        x = np.zeros((tile.all_inputs, tile.batch), np.uint16)
        x[: len(inputs)] = inputs[: tile.all_inputs]
        a = o.narrow(self.w)
        total = None
        for first in range(0, tile.all_inputs, tile.inputs):
            part = np.zeros((tile.all_outputs, tile.batch), np.uint32)
            if first == 0 and tile.layer.bias:
                part = np.repeat(o.widen(a[:, -1:]), tile.batch, axis=1)
            for k in range(first, first + tile.inputs):
                part = o.fma(a[:, k : k + 1], x[k][None], part)
            total = part if total is None else o.add(part, total)
        assert total is not None
        rows = o.narrow(total)
        if self.norm:
            rows = self.norm.forward(rows)
        rows, slopes = self.activate(rows)
        self.kept.append((x, slopes))
        return rows

    def activate(self, rows: Halves) -> tuple[Halves, Halves | None]:
        """Return activations and their slopes."""
        row = activation(self.tile.layer.activation)
        return (rows, None) if row is None else row.bits(self.oracle, rows)

    def back(self, gradients: Halves) -> Halves:
        """Take gradients of the activations; return those of the inputs."""
        o, tile = self.oracle, self.tile
        x, slopes = self.kept.pop(0)
        delta = np.zeros((tile.all_outputs, tile.batch), np.uint16)
        delta[: len(gradients)] = gradients[: tile.all_outputs]
        if slopes is not None:
            delta = o.half.call("mul", delta, slopes)
        if self.norm:
            delta = self.norm.back(delta)
        found = self.passed(delta)
        for j in range(tile.batch):
            column = delta[:, j : j + 1]
            self.g[:, :-1] = o.fma(column, x[:, j][None], self.g[:, :-1])
            if tile.layer.bias:
                self.g[:, -1:] = o.fma(column, np.full_like(column, o.one), self.g[:, -1:])
        self.since += 1
        if self.since == self.per_update:
            self.update(self.constants[self.updates])
            if self.norm:
                self.norm.update(self.constants[self.updates])
            self.updates, self.since = self.updates + 1, 0
        return found

    def passed(self, delta: Halves) -> Halves:
        """Return the gradients of the inputs."""
        o, tile = self.oracle, self.tile
        a = o.narrow(self.w)
        total = None
        for first in range(tile.all_outputs - tile.outputs, -1, -tile.outputs):  # south to north
            part = np.zeros((tile.all_inputs, tile.batch), np.uint32)
            for r in range(first, first + tile.outputs):
                part = o.fma(a[r, :-1, None], delta[r][None], part)
            total = part if total is None else o.add(part, total)
        assert total is not None
        return o.narrow(total)
