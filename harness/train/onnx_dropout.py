"""Dropout of a file is left out where a configuration says so.

Exporters write it as a node `Dropout`, and that of whole channels (`Dropout2d`) as a comparison of numbers that are
drawn for each.  Either becomes a node that gives what it takes.

Source: ONNX operators, https://onnx.ai/onnx/operators/, versions 13 to 23.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from harness.kit.modules import need

__all__ = ["CHOICES", "without"]

CHOICES = "", "ignore"
"""Configurations may have these values of ``network.dropout``."""
DRAWN = ("RandomUniformLike", "RandomUniform", "Bernoulli")
MADE = ("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Cast", "CastLike", "Div", "Mul", "Bernoulli", "Not")
"""By these numbers that were drawn become factors of which some are zero."""


def without(model: Any) -> tuple[Any, list[str]]:
    """Return a model whose dropout drops nothing, and the names of the nodes that dropped something."""
    dropping, drawn = _dropping(model)
    if not dropping:
        return model, []
    made = type(model)()
    made.CopyFrom(model)
    nodes = list(made.graph.node)
    for number, name in dropping.items():
        node = nodes[number]
        del node.attribute[:], node.input[:], node.output[1:]
        node.op_type, node.domain = "Identity", ""
        node.input.append(name)
    takes = Counter(name for node in nodes for name in node.input)
    for number in sorted(drawn, reverse=True):
        if not any(takes[name] for name in nodes[number].output):
            takes.subtract(nodes[number].input)
            made.graph.node.remove(nodes[number])
    return made, [nodes[number].name or nodes[number].output[0] for number in dropping]


def _dropping(model: Any) -> tuple[dict[int, str], list[int]]:
    """Return the numbers of the nodes that drop something, with the tensors of which they do, and of those that draw.

    What is drawn becomes factors of which some are zero, and a product with a tensor that is none of them drops.
    """
    known, dropping = _known(model), dict[int, str]()
    drawn, drawing = set[str](), list[int]()
    for number, node in enumerate(model.graph.node):
        names = list(node.input)
        if node.op_type == "Dropout":
            drops = bool(np.all(known.get(names[2], True))) if len(names) > 2 and names[2] else False
            ratio = known.get(names[1], 0.5) if len(names) > 1 and names[1] else 0.5
            dropping |= {number: names[0]} if drops and np.any(ratio) else {}
        elif node.op_type in DRAWN or (node.op_type in MADE and _all_drawn(node, drawn, set(known))):
            drawn |= set(node.output)
            drawing.append(number)
        elif node.op_type == "Mul" and len(drawn & set(names)) == 1:
            dropping[number] = names[0] if names[1] in drawn else names[1]
    return dropping, drawing


def _all_drawn(node: Any, drawn: set[str], known: set[str]) -> bool:
    """Return whether a node works on numbers that were drawn, and besides on constants alone."""
    names = set(node.input[:1] if node.op_type == "CastLike" else node.input)
    return bool(names & drawn) and names - drawn <= known


def _known(model: Any) -> dict[str, np.ndarray]:
    """Return the constants of a graph by name."""
    numpy_helper, helper = (need(f"onnx.{one}", "a network from an .onnx file") for one in ("numpy_helper", "helper"))
    known = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    for node in model.graph.node:
        for one in node.attribute if node.op_type == "Constant" else ():
            value = helper.get_attribute_value(one)
            known[node.output[0]] = numpy_helper.to_array(value) if one.name == "value" else np.array(value)
        if node.op_type in ("Cast", "CastLike", "Identity") and node.input[0] in known:
            known[node.output[0]] = known[node.input[0]]
    return known
