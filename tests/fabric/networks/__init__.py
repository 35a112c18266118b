"""Networks on a wafer against `fabric.networks.streamed.oracle`, bit for bit."""

from __future__ import annotations

import numpy as np

from fabric.networks.graph.network import Network
from fabric.networks.streamed.oracle.walk import StreamedOracle
from fabric.networks.streamed.resident import Resident
from fabric.networks.streamed.wafer import Wafer
from memx.coordinator import Coordinator
from memx.parameter import Parameter
from memx.pattern import Pattern
from wse_core.params import machine


class Case:
    """A network with random weights on a wafer, its coordinator, its oracle, and a batch."""

    def __init__(
        self,
        features,
        width=1,
        height=1,
        tokens=4,
        activation="relu",
        norm=False,
        bias=True,
        density=1.0,
        seed=0,
        dtype="f16",
        backend=None,
        form="steps",
        turned=None,
        name="wse2",
    ):
        self.network = Network.dense(features, activation, dtype, bias, norm)
        self.resident = Resident(self.network, machine(name), width, height, height * tokens, form, turned)
        self.rng = rng = np.random.default_rng(seed)
        self.matrices, self.norms = [], {}
        for k, layer in enumerate(self.network.layers):
            mask = rng.random(layer.shape) < density
            mask[:, layer.inputs :] = True
            self.matrices.append(
                Parameter(
                    f"w{k}",
                    rng.standard_normal(layer.shape) / np.sqrt(layer.inputs),
                    dtype,
                    pattern=Pattern.of_mask(mask),
                )
            )
            if layer.norm:
                self.norms[k] = Parameter(f"n{k}", 1 + 0.3 * rng.standard_normal((2, layer.outputs)), dtype)
        self.coordinator = Coordinator(self.resident, self.matrices, self.norms)
        self.oracle = StreamedOracle(self.network, machine(), width, height, height * tokens)
        self.wafer = Wafer(self.resident, backend)
        samples = self.resident.samples
        self.inputs = self.oracle.half.encode(rng.standard_normal((features[0], samples)))
        self.targets = rng.integers(0, features[-1], samples)
        self.labels = self.oracle.half.encode(np.eye(features[-1])[self.targets].T)

    def load(self):
        """Place the batch."""
        self.wafer.load(self.inputs, self.labels)

    def train(self, scale=1.0):
        """Run an iteration; return (pass, gradients and losses as f32 bits)."""
        self.load()
        passed = self.wafer.run(self.coordinator.streams("train", scale))
        script = self.coordinator.script("train")
        found = np.zeros(script.offsets[-1] + self.resident.width, np.uint32)
        for places, numbers in zip(script.places, passed.numbers, strict=True):
            found[places] = numbers.view(np.uint32)
        return passed, found

    def expected(self, scale=1.0):
        """Return what `train` must give."""
        self.oracle.forward(self.inputs, self.coordinator.parameters)
        losses, delta = self.oracle.loss(self.labels, scale)
        return np.concatenate([*self.oracle.backward(delta), losses])
