"""The oracle of a whole network does its operations one after the other, and back."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import Node
from fabric.networks.graph.strips import on_strips, strips_of
from fabric.networks.graph.tensors import INPUT, NetworkTensor
from fabric.networks.streamed.oracle import loss
from fabric.networks.streamed.oracle.places import placed
from fabric.networks.streamed.oracle.table import BACK, FORWARD, StreamedArithmetic
from fabric.networks.streamed.parameters import StreamedParameter
from wse_core.errors import InternalError
from wse_core.params import Machine

__all__ = ["Course", "StreamedOracle"]

Result = TypeVar("Result")
Course: TypeAlias = Generator[tuple[str, StreamedParameter, NDArray[np.uint32]], None, Result]
"""What an oracle does stops where it needs sums of all wafers, and has a result."""


class StreamedOracle(StreamedArithmetic):
    """The oracle holds a network on a mesh.

    Parameters
    ----------
    network : Network
    machine : Machine
    width, height : int
        PEs of a group of columns.
    samples : int
    column_groups : int

    Attributes
    ----------
    results : dict[str, ndarray of uint16], shape (features, samples)
        Of each node, after `forward`; ``input`` is the samples.
    keys : dict[str, ndarray of uint16]
        Of each dropout; without, none may be calculated but in tests.
    first : int
        Number in the batch of the first token.
    said : sequence of ndarray of int
        Numbers of each table that is looked up whose rows the weights are; none: all.
    gradients : dict[str, ndarray of uint32]
        Of each parameter, as far as the way back has come; as f32 bits.
    """

    def __init__(
        self, network: Network, machine: Machine, width: int, height: int, samples: int, column_groups: int = 1
    ) -> None:
        super().__init__(machine, network.dtype, width, height, samples, network.image_rows, column_groups)
        self._striped = {node.name for node in strips_of(network).network.nodes if on_strips(node)}
        self.network, self._placed = network, placed(network, width)
        self.head_columns = network.head_columns
        self.results: dict[str, NDArray[np.uint16]] = {}
        self.gradients: dict[str, NDArray[np.uint32]] = {}

    def _begin(self, node: Node) -> None:
        """Say which strips of images the operation of a node works on, and what it adds below a root."""
        self.strips = self.image_rows if node.name in self._striped else 1
        self.epsilon = node.epsilon(self.network.epsilon)

    def columns(self, tensor: NetworkTensor) -> list[NDArray[np.int64]]:
        """Return the features of each column, of a tensor of the network."""
        return self._placed[tensor.name]

    @property
    def activations(self) -> list[NDArray[np.uint16]]:
        """These are the samples, then what is left in each place when all is done in place that can be."""
        return [self.results[name] for name in self.network.levels]

    def forward(self, inputs: NDArray[np.uint16], weights: Sequence[StreamedParameter]) -> NDArray[np.uint16]:
        """Return the logits of a batch, bit patterns of shape (classes, samples); see `going_forward`."""
        return _alone(self.going_forward(inputs, weights))

    def going_forward(
        self, inputs: NDArray[np.uint16], weights: Sequence[StreamedParameter], test: bool = False
    ) -> Course[NDArray[np.uint16]]:
        """Return the logits of a batch, bit patterns of shape (classes, samples), in the end.

        Before, it stops at every sum over all wafers: it yields (direction, parameter, sums as f32 bits), and goes on
        when the parameter's statistics have what the memory service makes of them.

        Parameters
        ----------
        inputs : ndarray of uint16, shape (features, samples)
        weights : sequence of StreamedParameter
            In the order of `Network.parameters`.
        test : bool
            What is normalised over batches takes known statistics, and nothing is summed.
        """
        self.test = test
        self._weights = dict(zip([tensor.name for tensor in self.network.parameters], weights, strict=True))
        self.results, self._kept, self.gradients = {INPUT: inputs}, dict[str, Any](), {}
        for node, row, parameter in self.network.operations():
            weight = None if parameter is None else self._weights[parameter.name]
            given = tuple(self.results[name] for name in node.inputs)
            self._begin(node)
            found = FORWARD[node.op](self, node, given if row.operands > 1 else given[0], weight)
            if isinstance(found, Generator):
                found = yield from found
            self.results[node.name], self._kept[node.name] = found
        return self.results[self.network.logits.name]

    def loss(self, labels: NDArray[np.uint16], scale: float) -> tuple[NDArray[np.uint32], NDArray[np.uint16]]:
        """Return (losses per column as f32 bits, gradients of the logits)."""
        self._begin(self.network.nodes[-1])
        logits = self.network.logits
        if not self.network.loss.judges:
            return loss.squares(self, logits, self.results[logits.name], labels, scale)
        some, pixels = self.network.some, self.network.label_pixels
        return loss.forward(self, logits, self.results[logits.name], self._wanted(labels), scale, some, pixels)

    def right(self, labels: NDArray[np.uint16]) -> NDArray[np.uint32]:
        """Return per column how many labels there are none of whose logits is larger than their own, as f32 bits.

        A loss that does not tell right from wrong is what counts in their place.
        """
        self._begin(self.network.nodes[-1])
        logits = self.network.logits
        if not self.network.loss.judges:
            return loss.squares(self, logits, self.results[logits.name], labels, 0.0)[0]
        return loss.right(self, logits, self.results[logits.name], self._wanted(labels), self.network.label_pixels)

    def _wanted(self, labels: NDArray[np.uint16]) -> NDArray[np.uint16]:
        """Return a row of each class, ones where it is the label, if labels are numbers."""
        if not self.network.numbered:
            return labels
        return np.where(np.arange(self.network.classes)[:, None] == labels, np.uint16(self.one), np.uint16(0))

    def backward(self, delta: NDArray[np.uint16]) -> list[NDArray[np.uint32]]:
        """Return the gradients that are asked for as f32 bits, in the order of `Network.parameters`."""
        return _alone(self.going_back(delta))

    def going_back(self, delta: NDArray[np.uint16]) -> Course[list[NDArray[np.uint32]]]:
        """Return what `backward` does, in the end; it stops as `going_forward`, with `gradients` as far as they are."""
        deltas = {self.network.logits.name: delta}
        for node, row, parameter in reversed(self.network.operations()):
            weight = None if parameter is None else self._weights[parameter.name]
            self._begin(node)
            made = BACK[node.op](self, node, deltas.pop(node.name), self._kept[node.name], weight)
            if isinstance(made, Generator):
                made = yield from made
            below, gradient = made
            for name, part in zip(node.inputs, below if row.operands > 1 else (below,), strict=True):
                if name == INPUT:  # nobody needs it
                    continue
                deltas[name] = self.half.call("add", deltas[name], part) if name in deltas else part
            if parameter is not None:
                self.gradients[parameter.name] = gradient
        return [self.gradients[tensor.name] for tensor in self.network.parameters]


def _alone(course: Course[Result]) -> Result:
    """Return the result of a course that needs no other wafer."""
    try:
        direction, parameter, _ = next(course)
    except StopIteration as end:
        return cast("Result", end.value)
    raise InternalError(f"{parameter.name} needs sums of all wafers, {direction}", where="oracle")
