"""Equal nodes of a file, which do the same with the same tensor, become one.

A module may call another one several times with what it has called it with before, a normalisation before each of two
products for example.  A file then has equal nodes, which share their parameters.  The gradient of the one that stays is
the sum of theirs.
"""

from __future__ import annotations

from typing import Any

__all__ = ["RANDOM", "once"]

RANDOM = (
    "Dropout",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Bernoulli",
    "Multinomial",
)
"""Two of these are not the same, whatever they are given."""


def once(model: Any) -> Any:
    """Return a model without nodes that do what one before them does; the same one if there are none."""
    first: dict[tuple[object, ...], list[str]] = {}
    names: dict[str, str] = {}
    kept: list[tuple[Any, list[str]]] = []
    ends = {item.name for item in model.graph.output}
    for node in model.graph.node:
        inputs = [names.get(name, name) for name in node.input]
        key = node.op_type, node.domain, tuple(inputs), _said(node), len(node.output)
        if key in first and node.op_type not in RANDOM and not ends & set(node.output):
            names |= dict(zip(node.output, first[key], strict=True))
            continue
        first.setdefault(key, list(node.output))
        kept.append((node, inputs))
    if not names:
        return model
    made = type(model)()
    made.CopyFrom(model)
    del made.graph.node[:]
    for node, inputs in kept:
        made.graph.node.append(node)
        made.graph.node[-1].input[:] = inputs
    return made


def _said(node: Any) -> tuple[bytes, ...]:
    """Return the attributes of a node, whatever its numbers are called."""
    found = []
    for item in node.attribute:
        own = type(item)()
        own.CopyFrom(item)
        own.t.name = own.doc_string = ""
        found.append(own.SerializeToString())
    return tuple(sorted(found))
