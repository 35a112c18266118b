"""A wafer's place is taken by numpy: the same numbers in the same order of additions, without a fabric.

`Trainer(config, backend="numpy")` trains with it.  Its weights must equal those of the wafers bit for bit; the plain
trainer of `harness.train.plain`, which adds in numpy's own order, agrees up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from fabric.networks.streamed.oracle.walk import Course, StreamedOracle
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
        self.oracle = StreamedOracle(r.network, r.machine, r.width, r.height, r.samples, r.column_groups)
        self.coordinator, self.wafer = coordinator, self
        self._course: Course[None] | None = None

    def load(self, inputs: np.ndarray, labels: np.ndarray, first: int = 0) -> None:
        """Keep a batch of samples, and the number of its first one among those of all wafers."""
        self._inputs, self._labels, self.oracle.first = inputs, labels, first

    def expect(self, script: Script, streams: list[tuple[np.ndarray, np.ndarray]]) -> None:
        """Keep in which order numbers come back; the words are known."""
        self._script, self._taken = script, 0
        self._numbers, self._trips = np.zeros(script.n_places, np.uint32), list(script.trips)

    def weights(self, words: np.ndarray) -> None:
        pass

    def begin(self, kind: str, loss_scale: float = 1.0) -> None:
        """Begin a pass of the stream."""
        self._course = self._pass(kind, loss_scale)

    def work(self) -> None:
        """Calculate what the wafer would, to the next sums over all wafers or to the end of the pass."""
        assert self._course is not None
        trip = self._trips.pop(0) if self._trips else None
        stop = next(self._course, None)
        assert (stop is None) == (trip is None)
        if trip is not None and stop is not None:
            self._put(self.oracle.gradients)
            self._numbers[trip.places] = stop[2]

    def _pass(self, kind: str, loss_scale: float) -> Course[None]:
        """Calculate the numbers of a pass."""
        self.oracle.keys, self.oracle.said = self.coordinator.keys, self.coordinator.said
        yield from self.oracle.going_forward(self._inputs, self.coordinator.streamed, kind == "test")
        first = int(self._script.offsets[-1])
        if kind == "test":
            right = self.oracle.right(self._labels)
            self._numbers[first : first + len(right)] = right
            return
        losses, delta = self.oracle.loss(self._labels, loss_scale)
        self._numbers[first : first + len(losses)] = losses
        yield from self.oracle.going_back(delta)
        self._put(self.oracle.gradients)

    def _put(self, gradients: Mapping[str, NDArray[np.uint32]]) -> None:
        """Keep the gradients of parameters that are known."""
        for number, tensor in enumerate(self.oracle.network.parameters):
            if tensor.name in gradients:
                first, last = self._script.offsets[number : number + 2]
                self._numbers[first:last] = gradients[tensor.name]

    def gradients(self, count: int) -> Iterator[np.ndarray]:
        stop = self._taken + count
        numbers = self._numbers[self._script.returned[self._taken : stop]].view(np.float32)
        self._taken = stop
        for start in range(0, count, CHUNK):
            yield numbers[start : start + CHUNK]

    def activations(self, level: int) -> np.ndarray:
        """Return the activations of a level as bit patterns."""
        return self.oracle.activations[level]
