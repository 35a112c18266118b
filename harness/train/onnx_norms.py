"""Layer normalisations that a file takes apart are put together again before it is read.

``(x - mean x) / sqrt(mean (x - mean x)^2 + epsilon)`` times factors, plus shifts: modules that normalise channels by
hand are exported so.  Over the last axis it becomes `LayerNormalization`, over the second one of images
`ChannelNormalization`, which is no operator of ONNX but one of `harness.train.onnx_reader`.

Over the last axis factors and shifts may lack, or come before the division; epsilon may lack, or be added to the root;
and variances may be those of a sample, divided by one less than there are numbers.  Rows that are divided by their
lengths (``F.normalize``) become such as are normalised without a mean.  What has no epsilon below its root has one of
`NONE` in place of it.

Source: ONNX operators, https://onnx.ai/onnx/operators/, versions 13 to 23.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from harness.kit.modules import need

__all__ = ["put_together"]

PASSES = ("Cast", "CastLike", "Identity", "Reshape", "Squeeze", "Unsqueeze")
"""Numbers behind one of these are the same."""
NONE = 1e-12
"""An epsilon of nothing: less than this lengths and deviations are not, but of rows that are zero."""
SMALL = 1e-4
"""What is added to a root, or is the least length, is taken for nothing up to this."""


def put_together(model: Any) -> Any:
    """Return a model whose layer normalisations are whole; the same one if there are none in parts."""
    graph = _NormGraph(model.graph)
    ends = {node.output[0]: [norm] for node in model.graph.node if (norm := graph.norm_at(node)) is not None}
    parts = {node.output[0]: unit for node in model.graph.node if (unit := graph.unit_at(node)) is not None}
    if not ends and not parts:
        return model
    ends = {name: graph.written(name, unit) for name, unit in parts.items()} | ends
    made = copy.deepcopy(model)
    nodes = [one for node in made.graph.node for one in ends.get(node.output[0] if node.output else "", [node])]
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


class _Unit(NamedTuple):
    """Rows are normalised over the last axis.

    Attributes
    ----------
    x : str
        The tensor.
    numbers : int
        Numbers of a row.
    epsilon : float
        Below the root; 0: there is none.
    times : float
        Besides they are multiplied with this.
    factor : str
        And with this tensor, empty if there is none.
    mean : bool
        They are what is above their mean.
    """

    x: str
    numbers: int
    epsilon: float
    times: float
    factor: str
    mean: bool


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
        self.from_array = numpy_helper.from_array
        self.given = {name: node for node in graph.node for name in node.output}
        self.takes = Counter(name for node in graph.node for name in node.input)
        self.known = {one.name: one for one in graph.initializer}
        self.array = numpy_helper.to_array
        self.shapes = {
            one.name: [side.dim_value for side in one.type.tensor_type.shape.dim]
            for one in (*graph.value_info, *graph.input)
        }

    def unit_at(self, node: Any) -> _Unit | None:
        """Return how `node` normalises rows, None if it does not."""
        if node.op_type not in ("Div", "Mul"):
            return None
        below = node.input[1]
        if node.op_type == "Mul":
            inverse = self.given.get(below)
            below = inverse.input[0] if inverse is not None and inverse.op_type == "Reciprocal" else ""
        return self._centred_by(node.input[0], below) or self._by_length(node.input[0], below) if below else None

    def _centred_by(self, name: str, below: str) -> _Unit | None:
        """Return the normalisation of what is above a mean, and may be multiplied already, by a deviation."""
        centred, factor = self._centred(name), ""
        for one, other in self._either(self.given.get(name), "Mul"):
            if one is not None and centred is None and not self._varies(other):
                centred, factor = self._centred(one.output[0]), other
        found = self._deviation(below)
        if centred is None or found is None or centred != found[:2] or centred[1] != -1:
            return None
        _, _, epsilon, times, outside = found
        count = self._count(centred[0])
        known = count and (not times or count > 1)
        if not known or outside > SMALL or (outside and epsilon):
            return None
        share = (count - 1) / count if times else 1.0  # of a variance that is that of a sample
        return _Unit(centred[0], count, epsilon * share, share**0.5, factor, True)

    def _deviation(self, name: str) -> tuple[str, int, float, bool, float] | None:
        """Return (tensor, axis, epsilon, whether of a sample, what is added to the root) of a deviation."""
        node, outside = self._back(name), 0.0
        for root, other in self._either(node, "Add"):
            number = self._number(other)
            if root is not None and number is not None:
                node, outside = self._back(root.output[0]), number
        power = node is not None and node.op_type == "Pow" and self._number(node.input[1]) == 0.5
        if node is None or not (power or node.op_type == "Sqrt"):
            return None
        variance, epsilon, sample = self._back(node.input[0]), 0.0, False
        for inner, other in self._either(variance, "Add"):
            number = self._number(other)
            if inner is not None and number is not None:
                variance, epsilon = self._back(inner.output[0]), number
        if variance is not None and variance.op_type == "Div":  # by one less than there are
            times, less = self.given.get(variance.input[0]), self.given.get(variance.input[1])
            if times is None or less is None or (times.op_type, less.op_type) != ("Mul", "Sub"):
                return None
            if times.input[1] != less.input[0] or self._number(less.input[1]) != 1:
                return None
            variance, sample = self._back(times.input[0]), True
        square = self._squared(variance)
        centred = None if square is None else self._centred(square[0])
        if square is None or centred is None or centred[1] != square[1]:
            return None
        return (*centred, epsilon, sample, outside)

    def _by_length(self, name: str, below: str) -> _Unit | None:
        """Return the normalisation of rows by their lengths, which may have a least one."""
        node, share = self._share_of(self._back(below), 1.0)
        if node is not None and node.op_type in ("Clip", "Max", "Add"):
            least = self._number(node.input[1])
            above = node.op_type == "Clip" and len(node.input) > 2 and bool(node.input[2])
            if least is None or not 0 <= least <= SMALL or above:
                return None
            node, share = self._share_of(self._back(node.input[0]), share)
        if node is not None and node.op_type == "Sqrt":
            inner = self._back(node.input[0])
            square = None if inner is None else self._mean_of(inner.output[0], "ReduceSum")
            found = None if square is None else self._square_of(square[0])
            same = square is not None and found == name and square[1] == -1
        else:
            square = None if node is None else self._mean_of(node.output[0], "ReduceL2")
            same = square == (name, -1)
        count = self._count(name)
        times = round(count**-0.5 / share, 6) if count and share else 0.0  # 1 if it is the root of the mean of squares
        return _Unit(name, count, 0.0, times, "", False) if same and times else None

    def _share_of(self, node: Any, share: float) -> tuple[Any, float]:
        """Return what is multiplied with, or divided by, a number, and that number besides."""
        number = self._number(node.input[1]) if node is not None and node.op_type in ("Mul", "Div") else None
        if node is None or not number:
            return node, share
        return self._back(node.input[0]), share * number if node.op_type == "Mul" else share / number

    def _count(self, name: str) -> int:
        """Return how many numbers a row of a tensor has, 0 if that is not known."""
        return (self._sides(name) or [0])[-1]

    def _sides(self, name: str) -> list[int]:
        """Return the sides of a tensor; empty if they are not known."""
        node = self.given.get(name)
        while name not in self.shapes and node is not None and node.op_type in ("Sub", "Mul", "Pow"):  # by its own
            name, node = node.input[0], self.given.get(node.input[0])
        return self.shapes.get(name, [])

    def _back(self, name: str) -> Any:
        """Return what gives a tensor with one number for each row, seen with other axes or repeated."""
        node = self.given.get(name)
        while node is not None and node.op_type in (*PASSES, "Expand"):
            name, node = node.input[0], self.given.get(node.input[0])
        return node

    def written(self, result: str, unit: _Unit) -> list[Any]:
        """Return nodes that normalise rows."""
        nodes: list[Any] = []

        def add(op: str, *given: Any, **how: Any) -> str:
            names = []
            for one in given:
                names.append(one if isinstance(one, str) else f"{result}.{len(nodes)}.number")
                if not isinstance(one, str):
                    value = self.from_array(np.asarray(one), names[-1])
                    nodes.append(self.helper.make_node("Constant", [], names[-1:], names[-1], value=value))
            made = f"{result}.{len(nodes)}"
            nodes.append(self.helper.make_node(op, names, [made], made, **how))
            return made

        op = "LayerNormalization" if unit.mean else "RMSNormalization"
        x = add(op, unit.x, np.ones(unit.numbers, np.float32), axis=-1, epsilon=unit.epsilon or NONE)
        x = x if unit.times == 1 else add("Mul", x, np.float32(unit.times))
        x = add("Mul", unit.factor, x) if unit.factor else x
        nodes[-1].output[0] = result
        return nodes

    def norm_at(self, node: Any) -> Any:
        """Return the normalisation that ends with the sum `node`, None if none does."""
        for product, shift in self._either(node, "Add"):
            for unit, factor in (*self._either(product, "Mul"), (product, "")):
                found = self._unit(unit) if factor else self._whole(unit)
                if found is None:
                    continue
                x, axis, epsilon, *own = found
                names = [*own, *[factor] * (not own), shift]
                if not any(name in self.given and self._varies(name) for name in names):
                    op = "LayerNormalization" if axis == -1 else "ChannelNormalization"
                    more = {"axis": axis, "epsilon": epsilon}
                    return self.helper.make_node(op, [x, *names], list(node.output), node.name, **more)
        return None

    def _whole(self, node: Any) -> tuple[str, int, float, str] | None:
        """Return (tensor, axis, epsilon, factors) of what is multiplied before it is divided; None if a node is not."""
        unit = None if node is None else self.unit_at(node)
        plain = unit is not None and unit.mean and unit.factor and unit.epsilon and unit.times == 1
        return (unit.x, -1, unit.epsilon, unit.factor) if unit is not None and plain else None

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
        found = self._deviation(below.output[0])
        if found is None:
            return None
        x, axis, epsilon, sample, outside = found
        right = (x, axis) == centred and epsilon and not sample and not outside
        return (x, axis, epsilon) if right else None

    def _centred(self, name: str) -> tuple[str, int] | None:
        """Return (tensor, axis) of what less its mean a tensor is; None if it is not."""
        node = self.given.get(name)
        if node is None or node.op_type != "Sub":
            return None
        mean = self._mean_of(node.input[1])
        return mean if mean is not None and mean[0] == node.input[0] else None

    def _squared(self, mean: Any) -> tuple[str, int] | None:
        """Return (tensor, axis) of the mean of its squares."""
        found = None if mean is None else self._mean_of(mean.output[0])
        square = None if found is None else self._square_of(found[0])
        return None if found is None or square is None else (square, found[1])

    def _square_of(self, name: str) -> str | None:
        """Return the tensor whose squares a tensor has, None if there is none."""
        square = self.given.get(name)
        if square is None:
            return None
        power = square.op_type == "Pow" and self._number(square.input[1]) == 2
        return square.input[0] if power or (square.op_type == "Mul" and square.input[0] == square.input[1]) else None

    def _mean_of(self, name: str, op: str = "ReduceMean") -> tuple[str, int] | None:
        """Return (tensor, axis) of a mean, or sum, over one axis that stays, or comes back for the last one: -1."""
        node = self.given.get(name)
        if node is None or node.op_type != op:
            return None
        held = {item.name: item for item in node.attribute}
        axes = list(held["axes"].ints) if "axes" in held else None
        if axes is None and len(node.input) > 1:
            array = self._constant(node.input[1])
            axes = None if array is None else array.ravel().tolist()
        count = len(self._sides(node.input[0]))
        if axes is None or len(axes) != 1:
            return None
        axis = -1 if count and int(axes[0]) % count == count - 1 else int(axes[0])
        stays = "keepdims" not in held or held["keepdims"].i
        return (node.input[0], axis) if stays or (axis == -1 and self._comes_back(name, count)) else None

    def _comes_back(self, name: str, count: int) -> bool:
        """Return whether an axis that was left out is put in again at the end, in all that takes a tensor."""
        names = {name}
        for node in self.given.values():
            if names & set(node.input) and node.op_type not in ("Shape", "CastLike"):
                sides = self.shapes.get(node.output[0], [])
                if len(sides) in (0, count - 1) and node.op_type in ("Mul", "Div", *PASSES):
                    names.add(node.output[0])
                elif len(sides) != count or sides[-1] != 1:
                    return False
        return True

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
