"""Dropout of a file is read in all forms that exporters write, or left out where a configuration says so.

Exporters write it as a node `Dropout`, and that of whole channels (`Dropout2d`), or samples, as a comparison of numbers
that are drawn for each of them, a division by the share that stays, and a product.  Such a product becomes a node
`Dropout` too, whose attribute `WHOLE` says for how many numbers of a sample something is drawn.  Modules that drop
whole samples of a branch (stochastic depth, `DropPath`) do the same, divide the tensor before or behind the product in
place of what is drawn, or cut off what is drawn and the share together.

Source: ONNX operators, https://onnx.ai/onnx/operators/, versions 13 to 23.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from harness.kit.modules import need

__all__ = ["CHOICES", "LEAVES_OUT", "WHOLE", "by_channel", "known_of", "without"]

CHOICES = "", "ignore", "ignore-attention"
"""Configurations may have these values of ``network.dropout``."""
LEAVES_OUT = 'network.dropout = "ignore" leaves it out'
WHOLE = "wse_whole"
"""Nodes `Dropout` have this attribute here if numbers are drawn for whole channels or samples: the shape of those that
are drawn, of a sample."""
GUARDS = ("Where", "Identity", "Cast", "CastLike")
"""Shares of attention may go through these behind their softmax."""
DRAWN = ("RandomUniformLike", "RandomUniform", "Bernoulli")
MADE = (
    *("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Not"),
    *("Cast", "CastLike", "Div", "Mul", "Bernoulli", "Add", "Floor"),
)
"""By these numbers that were drawn become factors of which some are zero."""


def without(model: Any, which: str = "ignore") -> tuple[Any, list[str]]:
    """Return a model whose dropout drops nothing, and the names of the nodes that dropped something.

    Parameters
    ----------
    model : onnx.ModelProto
    which : {"ignore", "ignore-attention"}
        All dropout, or that of shares of attention alone.
    """
    dropping = _dropping(model)
    if which != CHOICES[1]:
        shares = _shares(model)
        dropping = {number: name for number, name in dropping.items() if name in shares}
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
    _unused(made)
    return made, [nodes[number].name or nodes[number].output[0] for number in dropping]


def _shares(model: Any) -> set[str]:
    """Return the names of what softmax gives, guards against rows without any keys included."""
    found: set[str] = set()
    for node in model.graph.node:
        if node.op_type == "Softmax" or (node.op_type in GUARDS and found & set(node.input)):
            found |= set(node.output)
    return found


def by_channel(model: Any) -> Any:
    """Return a model in which a product with ones and zeros that were drawn for whole channels is a node `Dropout`."""
    known, makers = known_of(model), {name: node for node in model.graph.node for name in node.output}
    helper, numpy_helper = (need(f"onnx.{one}", "a network from an .onnx file") for one in ("helper", "numpy_helper"))
    found: dict[int, tuple[str, list[int], float]] = {}
    for number, node in enumerate(model.graph.node):
        divided = _divided(makers, known, node) if node.op_type == "Div" else None
        product: Any = node if divided is None else makers.get(node.input[0])
        for place in range(2) if product is not None and product.op_type == "Mul" else ():
            drawn, x = _drawn(makers, known, product.input[place]), product.input[1 - place]
            if drawn is None:
                continue
            sides, stays, by = drawn
            before: Any = makers.get(x) if by is None and divided is None else None
            shares = [share for share in (by, divided, _divided(makers, known, before)) if share is not None]
            if len(shares) == 1 and abs(shares[0] - stays) < 1e-6:
                found[number] = (x if before is None else before.input[0], sides, stays)
    if not found:
        return model
    made = type(model)()
    made.CopyFrom(model)
    nodes = list(made.graph.node)
    for number, (x, shape, stays) in found.items():
        names = [f"{nodes[number].output[0]}.{what}" for what in ("ratio", "drops")]
        for name, value in zip(names, (np.array(1 - stays, np.float32), np.array(True)), strict=True):
            made.graph.initializer.append(numpy_helper.from_array(value, name))
        nodes[number].op_type, nodes[number].input[:] = "Dropout", [x, *names]
        nodes[number].attribute.append(helper.make_attribute(WHOLE, shape))
    _unused(made)
    return made


def _divided(makers: dict[str, Any], known: dict[str, np.ndarray], node: Any) -> float | None:
    """Return the number by which a node divides; None if it does not."""
    one = known.get(node.input[1]) if node is not None and node.op_type == "Div" else None
    return float(one.reshape(())) if one is not None and one.size == 1 else None


def _drawn(
    makers: dict[str, Any], known: dict[str, np.ndarray], name: str
) -> tuple[list[int], float, float | None] | None:
    """Return for which numbers of a sample factors are drawn, the share that is not zero, and what divides them.

    None if none are.
    """

    def maker(name: str, *ops: str) -> Any:
        while name in makers and makers[name].op_type in ("Cast", "CastLike"):
            name = makers[name].input[0]
        return makers[name] if name in makers and makers[name].op_type in ops else None

    divided = _divided(makers, known, maker(name, "Div"))
    made = maker(name if divided is None else maker(name, "Div").input[0], "Less", "Floor")
    chosen = maker(made.input[0], "Add") if made is not None and made.op_type == "Floor" else made
    draws = maker(chosen.input[0], "RandomUniformLike") if chosen is not None and chosen.input[1] in known else None
    empty = maker(draws.input[0], "ConstantOfShape", "Expand") if draws is not None else None
    shape = maker(empty.input[-1], "Concat") if empty is not None else None
    if shape is None or not all(one in known and known[one].size == 1 for one in shape.input[1:]):
        return None
    stays = float(np.ravel(known[chosen.input[1]])[0])
    sides = [int(known[one].item()) for one in shape.input[1:]]
    return (sides, stays, divided) if 0 < stays <= 1 else None


def _unused(model: Any) -> None:
    """Take out nodes that draw, and those behind them, if nothing takes what they give."""
    takes = Counter(name for node in model.graph.node for name in node.input)
    drawn = set(DRAWN) | set(MADE)
    ends = {one.name for one in model.graph.output}
    for node in reversed(list(model.graph.node)):
        if node.op_type in drawn and not any(takes[name] or name in ends for name in node.output):
            takes.subtract(node.input)
            model.graph.node.remove(node)


def _dropping(model: Any) -> dict[int, str]:
    """Return the numbers of the nodes that drop something, with the tensors of which they do.

    What is drawn becomes factors of which some are zero, and a product with a tensor that is none of them drops.
    """
    known, dropping, drawn = known_of(model), dict[int, str](), set[str]()
    for number, node in enumerate(model.graph.node):
        names = list(node.input)
        if node.op_type == "Dropout":
            drops = bool(np.all(known.get(names[2], True))) if len(names) > 2 and names[2] else False
            ratio = known.get(names[1], 0.5) if len(names) > 1 and names[1] else 0.5
            dropping |= {number: names[0]} if drops and np.any(ratio) else {}
        elif node.op_type in DRAWN or (node.op_type in MADE and _all_drawn(node, drawn, set(known))):
            drawn |= set(node.output)
        elif node.op_type == "Mul" and len(drawn & set(names)) == 1:
            dropping[number] = names[0] if names[1] in drawn else names[1]
    return dropping


def _all_drawn(node: Any, drawn: set[str], known: set[str]) -> bool:
    """Return whether a node works on numbers that were drawn, and besides on constants alone."""
    names = set(node.input[:1] if node.op_type == "CastLike" else node.input)
    return bool(names & drawn) and names - drawn <= known


def known_of(model: Any) -> dict[str, np.ndarray]:
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
