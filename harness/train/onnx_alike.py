"""Nodes that say in other words what readers know are put in those words before a file is read.

============================================================  ==========================================
in the file                                                   becomes
============================================================  ==========================================
rows of a table by index (`GatherND`): ``self.table[ids]``    `Gather`, a look-up
ones among zeros (`OneHot`, or `Equal`) times a matrix        `Gather` of its rows
letters (`Einsum`) for a product with a matrix                `MatMul`
means of means, the largest of the largest                    one, over all their axes
============================================================  ==========================================

Source: ONNX operators, https://onnx.ai/onnx/operators/, versions 13 to 23.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from harness.kit.modules import need
from harness.train.onnx_dropout import known_of

__all__ = ["alike"]

CASTS = ("Cast", "CastLike", "Identity")


def alike(model: Any) -> Any:
    """Return a model in words that readers know; the same one if it is written in them."""
    graph = _ForeignWords(model)
    found = {number: made for number, node in enumerate(model.graph.node) if (made := graph.said(node))}
    if not found:
        return model
    made = type(model)()
    made.CopyFrom(model)
    nodes = [one for number, node in enumerate(model.graph.node) for one in found.get(number, [node])]
    taken = {one.name for one in model.graph.output}
    kept = []
    for node in reversed(nodes):
        if taken & set(node.output):
            taken |= set(node.input)
            kept.append(node)
    del made.graph.node[:]
    made.graph.node.extend(kept[::-1])
    return made


class _ForeignWords:
    """A graph knows what gives each tensor, and what is constant.

    Parameters
    ----------
    model : onnx.ModelProto
    """

    def __init__(self, model: Any) -> None:
        self.helper = need("onnx.helper", "a network from an .onnx file")
        self.from_array = need("onnx.numpy_helper", "a network from an .onnx file").from_array
        self.makers = {name: node for node in model.graph.node for name in node.output}
        self.known = known_of(model)
        self.sides = {one.name: len(one.dims) for one in model.graph.initializer}

    def said(self, node: Any) -> list[Any]:
        """Return the nodes that say the same, none if a node is in the right words."""
        says: dict[str, Callable[[Any], list[Any]]] = {
            "GatherND": self._indexed,
            "MatMul": self._chosen,
            "Einsum": self._multiplied,
            "ReduceMean": self._at_once,
            "ReduceMax": self._at_once,
        }
        return says[node.op_type](node) if node.op_type in says else []

    def _behind(self, name: str, *ops: str) -> str:
        """Return the tensor of which another is the first input's, behind nodes of these operations."""
        while name in self.makers and self.makers[name].op_type in ops:
            name = self.makers[name].input[0]
        return name

    def _attribute(self, node: Any, name: str, default: Any) -> Any:
        found = next((item for item in node.attribute if item.name == name), None)
        return default if found is None else self.helper.get_attribute_value(found)

    def _at_once(self, node: Any) -> list[Any]:
        """Say that axes of which one after the other is left out are left out together."""
        inner = self.makers.get(node.input[0])
        if inner is None or inner.op_type != node.op_type or len(node.input) < 2 or len(inner.input) < 2:
            return []
        first, second = (self.known.get(self._behind(one.input[1], *CASTS, "Reshape")) for one in (inner, node))
        gone = not self._attribute(inner, "keepdims", 1) and not self._attribute(node, "keepdims", 1)
        if not gone or first is None or second is None:
            return []
        axes = [*np.ravel(first).tolist(), *np.ravel(second).tolist()]
        if not axes[: first.size] or len({axis < 0 for axis in axes}) > 1 or second.size == 0:
            return []
        left = (axis for axis in (itertools.count(-1, -1) if axes[0] < 0 else itertools.count()))
        places = list(itertools.islice((axis for axis in left if axis not in axes[: first.size]), 8))
        both = sorted({*axes[: first.size], *(places[-1 - axis if axis < 0 else axis] for axis in axes[first.size :])})
        name = f"{node.output[0]}.axes"
        value = self.from_array(np.array(both, np.int64), name)
        made = self.helper.make_node("Constant", [], [name], name, value=value)
        ins = [inner.input[0], name]
        return [made, self.helper.make_node(node.op_type, ins, list(node.output), node.name, keepdims=0)]

    def _indexed(self, node: Any) -> list[Any]:
        """Say which rows of a table are taken."""
        table, index = node.input[0], self.makers.get(node.input[1])
        turned = self.makers.get(table)
        if turned is not None and turned.op_type == "Transpose" and list(self._attribute(turned, "perm", [])) == [0, 1]:
            table = turned.input[0]
        if index is not None and index.op_type == "Concat" and len(index.input) == 1:
            index = self.makers.get(index.input[0])
        last = index is not None and index.op_type == "Unsqueeze" and np.all(self.known.get(index.input[1], 0) == -1)
        if index is None or not last or self.sides.get(table) != 2 or self._attribute(node, "batch_dims", 0):
            return []
        ids = index.input[0]
        wide = self.makers.get(ids)
        if wide is not None and wide.op_type == "Expand":  # to the shape that it has
            shape = self.makers.get(wide.input[1])
            if shape is None or shape.op_type != "Shape" or self._alone(shape.input[0]) != wide.input[0]:
                return []
            ids = wide.input[0]
        return [self.helper.make_node("Gather", [table, ids], list(node.output), node.name, axis=0)]

    def _alone(self, name: str) -> str:
        """Return the tensor that is the only one of which another is the largest: that one."""
        node = self.makers.get(name)
        return node.input[0] if node is not None and node.op_type == "Max" and len(node.input) == 1 else name

    def _chosen(self, node: Any) -> list[Any]:
        """Say which rows of a matrix ones among zeros choose."""
        ones: Any = self.makers.get(self._behind(node.input[0], *CASTS))
        matrix = self._behind(node.input[1], "Transpose")
        rows = self.known[matrix].shape[matrix != node.input[1]] if self.sides.get(matrix) == 2 else 0
        if ones is None or not rows:
            return []
        if ones.op_type == "OneHot":
            ends = [
                np.ravel(self.known.get(self._behind(name, *CASTS), np.zeros(0))).tolist() for name in ones.input[1:]
            ]
            ids, plain = ones.input[0], self._attribute(ones, "axis", -1) == -1 and ends == [[rows], [0, 1]]
        else:
            apart: Any = self.makers.get(ones.input[0]) if ones.op_type == "Equal" else None
            plain = apart is not None and apart.op_type == "Unsqueeze" and self._counts(ones.input[1], rows)
            plain = plain and np.all(self.known.get(apart.input[1], 0) == -1)
            ids = apart.input[0] if plain else ""
        if not plain:
            return []
        ids = self._behind(ids, *CASTS)
        return [self.helper.make_node("Gather", [node.input[1], ids], list(node.output), node.name, axis=0)]

    def _counts(self, name: str, count: int) -> bool:
        """Return whether a tensor has the numbers from 0 on, so many."""
        node = self.makers.get(name)
        if node is None or node.op_type != "Range":
            return np.array_equal(self.known.get(name, ()), np.arange(count))
        ends = [self.known.get(self._behind(one, *CASTS), np.zeros(2)) for one in node.input]
        return [one.tolist() for one in ends] == [0, count, 1]

    def _multiplied(self, node: Any) -> list[Any]:
        """Say that features are multiplied with a matrix."""
        letters = self._attribute(node, "equation", b"").decode().replace(" ", "")
        given, arrow, result = letters.partition("->")
        sides = dict(zip(node.input, given.split(","), strict=False))
        matrix = next((name for name in sides if self.sides.get(name) == 2), "")
        x = next((name for name in sides if name != matrix), "")
        if not arrow or len(sides) != 2 or not matrix or x in self.sides or len(sides[matrix]) != 2:
            return []
        own, (one, other) = sides[x], sides[matrix]
        made = other if own[-1:] == one else one
        if own[-1:] not in (one, other) or one == other or made in own or result != own[:-1] + made:
            return []
        name, nodes = matrix, []
        if made == one:
            name = f"{node.output[0]}.turned"
            nodes.append(self.helper.make_node("Transpose", [matrix], [name], name, perm=[1, 0]))
        return [*nodes, self.helper.make_node("MatMul", [x, name], list(node.output), node.name)]
