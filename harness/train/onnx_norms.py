"""Layer normalisations that a file takes apart are put together again before it is read.

``(x - mean x) / sqrt(mean (x - mean x)^2 + epsilon)`` times factors, plus shifts: modules that normalise channels by
hand are exported so.  Over the last axis it becomes `LayerNormalization`, over the second one of images
`ChannelNormalization`, which is no operator of ONNX but one of `harness.train.onnx_reader`.

Source: ONNX operators, https://onnx.ai/onnx/operators/, versions 13 to 23.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import numpy as np

from harness.kit.modules import need

__all__ = ["put_together"]

PASSES = ("Cast", "CastLike", "Identity", "Reshape", "Squeeze", "Unsqueeze")
"""Numbers behind one of these are the same."""


def put_together(model: Any) -> Any:
    """Return a model whose layer normalisations are whole; the same one if there are none in parts."""
    graph = _NormGraph(model.graph)
    found = [(node, norm) for node in model.graph.node if (norm := graph.norm_at(node)) is not None]
    if not found:
        return model
    made = copy.deepcopy(model)
    ends = {node.output[0]: norm for node, norm in found}
    nodes = [ends.get(node.output[0] if node.output else "", node) for node in made.graph.node]
    taken = _taken(nodes, made.graph.output[0].name)
    del made.graph.node[:]
    made.graph.node.extend(node for node in nodes if any(name in taken for name in node.output))
    return made


def _taken(nodes: list[Any], result: str) -> set[str]:
    """Return the names of tensors on which the result depends."""
    found = {result}
    for node in reversed(nodes):
        if any(name in found for name in node.output):
            found |= set(node.input)
    return found


class _NormGraph:
    """A graph knows what gives each tensor, and how often it is taken.

    Parameters
    ----------
    graph : onnx.GraphProto
    """

    def __init__(self, graph: Any) -> None:
        self.helper, numpy_helper = (
            need(f"onnx.{name}", "a network from an .onnx file") for name in ("helper", "numpy_helper")
        )
        self.given = {name: node for node in graph.node for name in node.output}
        self.takes = Counter(name for node in graph.node for name in node.input)
        self.known = {one.name: one for one in graph.initializer}
        self.array = numpy_helper.to_array

    def norm_at(self, node: Any) -> Any:
        """Return the normalisation that ends with the sum `node`, None if none does."""
        for product, shift in self._either(node, "Add"):
            for unit, factor in self._either(product, "Mul"):
                found = self._unit(unit)
                if found is not None and not any(name in self.given and self._varies(name) for name in (shift, factor)):
                    x, axis, epsilon = found
                    op = "LayerNormalization" if axis == -1 else "ChannelNormalization"
                    more = {"axis": axis, "epsilon": epsilon}
                    return self.helper.make_node(op, [x, factor, shift], list(node.output), node.name, **more)
        return None

    def _either(self, node: Any, op: str) -> list[tuple[Any, str]]:
        """Return (what gives an operand, the other one) both ways round, of a node of an operation."""
        if node is None or node.op_type != op:
            return []
        one, other = node.input
        return [(self.given.get(one), other), (self.given.get(other), one)]

    def _varies(self, name: str) -> bool:
        """Return whether a tensor depends on more than initializers."""
        node = self.given.get(name)
        if node is None:
            return name not in self.known
        return any(self._varies(one) for one in node.input if one)

    def _unit(self, node: Any) -> tuple[str, int, float] | None:
        """Return (tensor, axis, epsilon) of a normalised tensor; None if a node does not give one."""
        if node is None or node.op_type not in ("Div", "Mul"):
            return None
        centred, below = self._centred(node.input[0]), self.given.get(node.input[1])
        if node.op_type == "Mul" and below is not None:
            below = self.given.get(below.input[0]) if below.op_type == "Reciprocal" else None
        if centred is None or below is None or centred[1] not in (-1, 1):
            return None
        variance, epsilon = self._plus(below)
        square = self._squared(variance)
        same = square is not None and square[1] == centred[1] and self._centred(square[0]) == centred
        return (*centred, epsilon) if same and epsilon is not None else None

    def _centred(self, name: str) -> tuple[str, int] | None:
        """Return (tensor, axis) of what less its mean a tensor is; None if it is not."""
        node = self.given.get(name)
        if node is None or node.op_type != "Sub":
            return None
        mean = self._mean_of(node.input[1])
        return mean if mean is not None and mean[0] == node.input[0] else None

    def _plus(self, root: Any) -> tuple[Any, float | None]:
        """Return (what gives a variance, the number that is added to it) below a root."""
        power = root.op_type == "Pow" and self._number(root.input[1]) == 0.5
        total = self.given.get(root.input[0]) if root.op_type == "Sqrt" or power else None
        for variance, other in self._either(total, "Add"):
            number = self._number(other)
            if number is not None:
                return variance, number
        return None, None

    def _squared(self, mean: Any) -> tuple[str, int] | None:
        """Return (tensor, axis) of the mean of its squares."""
        found = None if mean is None else self._mean_of(mean.output[0])
        square = None if found is None else self.given.get(found[0])
        if found is None or square is None:
            return None
        if square.op_type == "Pow" and self._number(square.input[1]) == 2:
            return square.input[0], found[1]
        same = square.op_type == "Mul" and square.input[0] == square.input[1]
        return (square.input[0], found[1]) if same else None

    def _mean_of(self, name: str) -> tuple[str, int] | None:
        """Return (tensor, axis) of a mean over one axis that stays."""
        node = self.given.get(name)
        if node is None or node.op_type != "ReduceMean":
            return None
        held = {item.name: item for item in node.attribute}
        if "keepdims" in held and not held["keepdims"].i:
            return None
        axes = list(held["axes"].ints) if "axes" in held else None
        if axes is None and len(node.input) > 1:
            array = self._constant(node.input[1])
            axes = None if array is None else array.ravel().tolist()
        return (node.input[0], int(axes[0])) if axes is not None and len(axes) == 1 else None

    def _number(self, name: str) -> float | None:
        array = self._constant(name)
        return float(array.reshape(())) if array is not None and array.size == 1 else None

    def _constant(self, name: str) -> np.ndarray | None:
        """Return a constant, None if a tensor is none."""
        node = self.given.get(name)
        while node is not None and node.op_type in PASSES:
            name, node = node.input[0], self.given.get(node.input[0])
        if name in self.known:
            return np.asarray(self.array(self.known[name]))
        if node is None or node.op_type != "Constant":
            return None
        value = self.helper.get_attribute_value(node.attribute[0])
        return np.asarray(self.array(value) if node.attribute[0].name == "value" else value)
