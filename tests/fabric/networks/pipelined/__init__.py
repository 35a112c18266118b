"""A pipelined network with random weights, on a wafer and in the oracle."""

from __future__ import annotations

import numpy as np

from fabric.networks.graph.network import Network
from fabric.networks.pipelined.oracle import PipelinedOracle
from fabric.networks.pipelined.pipeline import Pipeline, Placed, row_of_rectangles
from fabric.networks.pipelined.updates import Rule
from fabric.networks.pipelined.wafer import PipelinedWafer
from wse_core.formats import Arithmetic
from wse_core.params import machine

__all__ = ["Case", "scattered"]


class Case:
    """A network of features on tiles of shapes, and minibatches for it."""

    def __init__(
        self,
        features,
        shapes,
        *,
        activation="relu",
        dtype="f16",
        bias=True,
        norm=False,
        rule=None,
        batch=4,
        loss_rows=1,
        updates=8,
        placed=None,
        seed=0,
        backend=None,
        **options,
    ):
        self.rng = np.random.default_rng(seed)
        self.network = Network.dense(features, activation, dtype, bias, norm)
        self.rule, self.batch = rule or Rule(), batch
        placed = placed or row_of_rectangles(self.network, shapes)
        self.machine = machine("wse2")
        self.pipeline = Pipeline(
            self.network, self.machine, placed, batch, self.rule, updates, loss_rows=loss_rows, **options
        )
        self.half = Arithmetic.of(self.machine, dtype)
        self.weights = [self.rng.standard_normal(shape).astype(np.float32) / 2 for shape in self.pipeline.shapes]
        self.state = [
            {slot: (np.abs(self.rng.standard_normal(shape)) / 99).astype(np.float32) for slot in self.rule.slots}
            for shape in self.pipeline.shapes
        ]
        self.wafer = PipelinedWafer(self.pipeline, backend)
        self.wafer.load(self.weights, self.state)
        self.oracle = PipelinedOracle(self.pipeline, self.weights, self.state)

    def samples(self, minibatches):
        """Return (inputs, labels) as bit patterns."""
        count, classes = minibatches * self.batch, self.network.features[-1]
        inputs = self.half.encode(self.rng.standard_normal((count, self.network.features[0])))
        return inputs, self.half.encode(np.eye(classes)[self.rng.integers(0, classes, count)])

    def constants(self, updates, first=0, scale=1.0, samples=1, rate=0.125):
        """Return the constants of updates."""
        return np.stack([self.rule.constants(first + k + 1, scale, samples, rate) for k in range(updates)])

    def agree(self):
        """Whether weights and optimizer state of wafer and oracle are the same, bit for bit."""
        pairs = list(zip(self.wafer.weights(), self.oracle.weights(), strict=True))
        for mine, other in zip(self.wafer.state(), self.oracle.state(), strict=True):
            assert mine.keys() == other.keys()
            pairs += [(mine[name], other[name]) for name in mine]
        return all(np.array_equal(a.view(np.uint32), b.view(np.uint32)) for a, b in pairs)


def scattered(shapes, rng):
    """Return a gate, rectangles in any order on a grid with gaps, and the place of the loss."""
    wide, high = max(c for c, _ in shapes) + 3, max(r for _, r in shapes) + 3
    across = -(-(len(shapes) + 1) // 2)
    places = [(1 + wide * (k % across), 1 + high * (k // across)) for k in range(2 * across)]
    order = rng.permutation(len(places))
    placed = [Placed(*places[order[k]], *shape) for k, shape in enumerate(shapes)]
    size = 2 + wide * across, 2 + high * 2
    return {"placed": placed, "loss": places[order[len(shapes)]], "size": size}
