"""What a file takes by strides from a tensor that lies in one piece is the tensor itself, and is read as that.

PyTorch gives the means of whole images that lie with their channels last such strides, and its exporter writes them
out: all numbers in a row, taken at sums of ranges times strides.  Where each stride is the product of the sizes behind
it, that is a `Reshape`.

Source: ONNX operators, https://onnx.ai/onnx/operators/, versions 13 to 23.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from harness.kit.modules import need
from harness.train.onnx_dropout import known_of

__all__ = ["in_one_piece"]

PASSES = ("Reshape", "Identity", "Cast", "Squeeze", "Unsqueeze")
"""A single number stays the same behind these."""


def in_one_piece(model: Any) -> Any:
    """Return a model without numbers that are taken where they lie anyway; the same one if there are none."""
    graph = _StridedGraph(model)
    found = {
        number: sizes
        for number, node in enumerate(model.graph.node)
        if node.op_type == "Gather" and (sizes := graph.sizes(node)) is not None
    }
    if not found:
        return model
    made, numpy_helper = type(model)(), need("onnx.numpy_helper", "a network from an .onnx file")
    made.CopyFrom(model)
    for number, sizes in found.items():
        node = made.graph.node[number]
        name = f"{node.output[0]}.sizes"
        made.graph.initializer.append(numpy_helper.from_array(np.array([-1, *sizes], np.int64), name))
        del node.attribute[:]
        node.op_type, node.input[:] = "Reshape", [graph.makers[node.input[0]].input[0], name]
    takes = {name for node in made.graph.node for name in node.input} | {one.name for one in made.graph.output}
    for node in reversed(list(made.graph.node)):
        if not takes & set(node.output):
            made.graph.node.remove(node)
            takes = {name for one in made.graph.node for name in one.input} | {one.name for one in made.graph.output}
    return made


class _StridedGraph:
    """A graph knows what gives each tensor, and single numbers that are constants.

    Parameters
    ----------
    model : onnx.ModelProto
    """

    def __init__(self, model: Any) -> None:
        self.makers = {name: node for node in model.graph.node for name in node.output}
        self.known = known_of(model)

    def number(self, name: str) -> int | None:
        """Return a constant that is a single number, whatever its axes; None if it is none."""
        while name not in self.known and name in self.makers and self.makers[name].op_type in PASSES:
            name = self.makers[name].input[0]
        found = self.known.get(name)
        return int(found.reshape(())) if found is not None and found.size == 1 else None

    def sizes(self, node: Any) -> list[int] | None:
        """Return the sizes of a sample that is taken from all numbers in a row; None if it is taken otherwise."""
        row = self.makers.get(node.input[0])
        if row is None or row.op_type != "Reshape" or self.number(row.input[1]) != -1:
            return None
        parts = self._parts(node.input[1])
        if parts is None or sorted(parts) != list(range(len(parts))):
            return None
        sizes = [self.number(parts[axis][0]) for axis in range(1, len(parts))]
        strides = [self.number(parts[axis][1]) for axis in range(len(parts))]
        if None in sizes or None in strides or self.number(parts[0][0]) is not None:
            return None
        counts = [int(one or 0) for one in sizes]
        wanted = [math.prod(counts[axis:]) for axis in range(len(parts))]
        apart = zip([0, *counts], strides, wanted, strict=True)
        return counts if all(size == 1 or stride == want for size, stride, want in apart) else None

    def _parts(self, name: str) -> dict[int, tuple[str, str]] | None:
        """Return the size and the stride of each axis of a sum of ranges; None if it is something else."""
        if self.number(name) == 0:
            return {}
        node = self.makers.get(name)
        if node is not None and node.op_type == "Add":
            both = [self._parts(one) for one in node.input]
            if both[0] is None or both[1] is None or both[0].keys() & both[1].keys():
                return None
            return both[0] | both[1]
        times = self.makers.get(node.input[0]) if node is not None and node.op_type == "Unsqueeze" else None
        steps = self.makers.get(times.input[0]) if times is not None and times.op_type == "Mul" else None
        if node is None or times is None or steps is None or steps.op_type != "Range":
            return None
        others = self.known.get(node.input[1])
        if others is None or [self.number(steps.input[0]), self.number(steps.input[2])] != [0, 1]:
            return None
        (own,) = set(range(others.size + 1)) - set(map(int, others.ravel()))
        return {own: (steps.input[1], times.input[1])}
