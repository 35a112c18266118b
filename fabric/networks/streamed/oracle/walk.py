"""The oracle of a whole network does its operations one after the other, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.network import Network
from fabric.networks.graph.tensors import INPUT
from fabric.networks.streamed.oracle import loss
from fabric.networks.streamed.oracle.table import BACK, FORWARD, StreamedArithmetic
from fabric.networks.streamed.parameters import StreamedParameter
from wse_core.params import Machine

__all__ = ["StreamedOracle"]


class StreamedOracle(StreamedArithmetic):
    """The oracle holds a network on a mesh.

    Parameters
    ----------
    network : Network
    machine : Machine
    width, height : int
        PEs.
    samples : int

    Attributes
    ----------
    results : dict[str, ndarray of uint16], shape (features, samples)
        Of each node, after `forward`; ``input`` is the samples.
    """

    def __init__(self, network: Network, machine: Machine, width: int, height: int, samples: int) -> None:
        super().__init__(machine, network.dtype, width, height, samples)
        self.network = network
        self.results: dict[str, NDArray[np.uint16]] = {}

    @property
    def activations(self) -> list[NDArray[np.uint16]]:
        """The samples, then what is left in each place when all is done in place that can be."""
        return [self.results[name] for name in self.network.levels]

    def forward(self, inputs: NDArray[np.uint16], weights: Sequence[StreamedParameter]) -> NDArray[np.uint16]:
        """Return the logits of a batch, bit patterns of shape (classes, samples).

        Parameters
        ----------
        inputs : ndarray of uint16, shape (features, samples)
        weights : sequence of StreamedParameter
            In the order of `Network.parameters`.
        """
        self._weights = dict(zip([tensor.name for tensor in self.network.parameters], weights, strict=True))
        self.results, self._kept = {INPUT: inputs}, dict[str, Any]()
        for node, row, parameter in self.network.operations():
            weight = None if parameter is None else self._weights[parameter.name]
            given = tuple(self.results[name] for name in node.inputs)
            found = FORWARD[node.op](self, node, given if row.operands > 1 else given[0], weight)
            self.results[node.name], self._kept[node.name] = found
        return self.results[self.network.logits.name]

    def loss(self, labels: NDArray[np.uint16], scale: float) -> tuple[NDArray[np.uint32], NDArray[np.uint16]]:
        """Return (losses per column as f32 bits, gradients of the logits)."""
        logits = self.network.logits
        return loss.forward(self, logits, self.results[logits.name], labels, scale, self.network.some)

    def right(self, labels: NDArray[np.uint16]) -> NDArray[np.uint32]:
        """Return per column how many samples no logit of which is larger than that of their label, as f32 bits."""
        return loss.right(self, self.network.logits, self.results[self.network.logits.name], labels)

    def backward(self, delta: NDArray[np.uint16]) -> list[NDArray[np.uint32]]:
        """Return the gradients that are asked for as f32 bits, in the order of `Network.parameters`."""
        found, deltas = {}, {self.network.logits.name: delta}
        for node, row, parameter in reversed(self.network.operations()):
            weight = None if parameter is None else self._weights[parameter.name]
            below, gradient = BACK[node.op](self, node, deltas.pop(node.name), self._kept[node.name], weight)
            for name, part in zip(node.inputs, below if row.operands > 1 else (below,), strict=True):
                deltas[name] = self.half.call("add", deltas[name], part) if name in deltas else part
            if parameter is not None:
                found[parameter.name] = gradient
        return [found[tensor.name] for tensor in self.network.parameters]
