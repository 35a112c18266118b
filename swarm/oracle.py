"""A wafer's place is taken by numpy: the same numbers in the same order of additions, without a fabric.

`Trainer(config, backend="numpy")` trains with it.  Its weights must equal those of the wafers bit for bit; the plain
trainer of `harness.train.plain`, which adds in numpy's own order, agrees up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabric.networks.streamed.oracle.walk import StreamedOracle
from fabric.networks.streamed.resident import Resident
from fabric.networks.streamed.script import Script
from memx.coordinator import Coordinator
from swarm.tree import CHUNK, Endpoint

__all__ = ["OraclePort"]


class OraclePort(Endpoint):
    """Stands where a `swarm.ports.WaferPort` stands; takes values from the parameters, not from the stream.

    Parameters
    ----------
    resident : Resident
    coordinator : Coordinator
    """

    def __init__(self, resident: Resident, coordinator: Coordinator) -> None:
        r = resident
        self.oracle = StreamedOracle(r.network, r.machine, r.width, r.height, r.samples)
        self.coordinator, self.wafer = coordinator, self
        self._numbers: np.ndarray = np.empty(0, np.float32)

    def load(self, inputs: np.ndarray, labels: np.ndarray) -> None:
        """Keep a batch of samples."""
        self._inputs, self._labels = inputs, labels

    def expect(self, script: Script, streams: list[tuple[np.ndarray, np.ndarray]]) -> None:
        """Keep in which order numbers come back; the words are known."""
        self._order = np.concatenate(script.places)[script.back]

    def weights(self, words: np.ndarray) -> None:
        pass

    def work(self, kind: str, loss_scale: float = 1.0) -> None:
        """Calculate what the wafer would in a pass."""
        self.oracle.forward(self._inputs, self.coordinator.parameters)
        if kind == "test":
            self._numbers = self.oracle.right(self._labels).view(np.float32)  # in the order of the columns
            return
        losses, delta = self.oracle.loss(self._labels, loss_scale)
        self._numbers = np.concatenate([*self.oracle.backward(delta), losses]).view(np.float32)[self._order]

    def gradients(self, count: int) -> Iterator[np.ndarray]:
        for start in range(0, count, CHUNK):
            yield self._numbers[start : start + CHUNK]

    def activations(self, level: int) -> np.ndarray:
        """Return the activations of a level as bit patterns."""
        return self.oracle.activations[level]
