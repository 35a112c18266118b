"""How large code will become, estimated from the typed tree."""

from __future__ import annotations

from typing import Any

from fabric.csl import tree

__all__ = ["weight"]


def weight(node: Any) -> int:
    """Return about how many instructions a piece of the tree becomes."""
    if isinstance(node, (list, tuple)):
        return sum(weight(entry) for entry in node)
    if isinstance(node, tree.Block):
        return weight(node.body)
    if isinstance(node, (tree.Const, tree.VariablePlace)):
        return 0
    if isinstance(node, tree.Load):
        place = node.place
        local = isinstance(place, tree.VariablePlace) and isinstance(place.variable, tree.Local)
        return 0 if local else 1 + weight(place)
    if isinstance(node, tree.Element):
        return weight(node.base) + sum(0 if isinstance(s, tree.Const) else 1 + weight(s) for s in node.subscripts)
    if isinstance(node, tree.Deref):
        return weight(node.pointer)
    if isinstance(node, tree.Member):
        return weight(node.base)
    if isinstance(node, tree.Assign):
        place = node.place
        local = isinstance(place, tree.VariablePlace) and isinstance(place.variable, tree.Local)
        again = 0 if node.op == "=" else 1 + (0 if local else 1)
        return weight(node.value) + (0 if local else 1 + weight(place)) + again
    if isinstance(node, tree.Call):
        return 3 + weight(node.arguments)
    if isinstance(node, tree.BuiltinCall):
        return 1 + 2 * len(node.arguments) + weight([x for x in node.arguments if isinstance(x, tree.Expr)])
    if isinstance(node, tree.ForRange):
        return 4 + weight(node.body)
    if isinstance(node, (tree.Expr, tree.Statement)):
        parts: list[Any] = []
        for kind in type(node).__mro__:
            parts += [getattr(node, name) for name in getattr(kind, "__slots__", ()) if name not in ("span", "type")]
        own = [part for part in parts if isinstance(part, (tree.Expr, tree.Statement, list, tuple))]
        return 1 + sum(weight(part) for part in own)
    return 0
