"""How large code will become, estimated from the typed tree."""

from __future__ import annotations

from typing import Any

from fabric.csl import tree
from fabric.csl.comptime.builtins.operations import OPERATIONS
from fabric.csl.rules import size_of_product, unrolls
from fabric.csl.types import ArrayType, DsdType, DsrType, IntType

__all__ = ["folds", "weight"]

EDITS = ("@increment_dsd_offset", "@set_dsd_base_addr", "@set_dsd_length", "@set_dsd_stride")


def weight(node: Any) -> int:
    """Return about how many instructions a piece of the tree becomes."""
    if isinstance(node, (list, tuple)):
        return sum(weight(entry) for entry in node)
    if isinstance(node, tree.Block):
        return weight(node.body)
    if isinstance(node, (tree.Const, tree.VariablePlace)):
        return 0
    if isinstance(node, tree.Load):
        return 0 if _is_local(node.place) else 1 + weight(node.place)
    if isinstance(node, tree.Element):
        return weight(node.base) + _index(node)
    if isinstance(node, tree.Deref):
        return weight(node.pointer)
    if isinstance(node, tree.Member):
        return weight(node.base)
    if isinstance(node, tree.Binary) and node.op == "*" and isinstance(node.right, tree.Const):
        known = node.right.value.data
        whole = isinstance(node.type, IntType) and isinstance(known, int)
        return weight(node.left) + (size_of_product(known) if whole else 1)
    if isinstance(node, tree.Convert):
        same = isinstance(node.type, IntType) and node.value.type.words == node.type.words
        return weight(node.value) + (0 if same or node.kind != "as" else 1)
    if isinstance(node, tree.Assign):
        local = _is_local(node.place)
        again = 0 if node.op == "=" else 1 + (0 if local else 1)
        return weight(node.value) + (0 if local else 1 + weight(node.place)) + again
    if isinstance(node, (tree.Declare, tree.Evaluate)):
        return weight(node.value)
    if isinstance(node, tree.Call):
        return 3 + weight(node.arguments)
    if isinstance(node, tree.BuiltinCall):
        return _builtin(node)
    if isinstance(node, tree.ForRange):
        return _loop(node)
    if isinstance(node, (tree.Expr, tree.Statement)):
        parts: list[Any] = []
        for kind in type(node).__mro__:
            parts += [getattr(node, name) for name in getattr(kind, "__slots__", ()) if name not in ("span", "type")]
        own = [part for part in parts if isinstance(part, (tree.Expr, tree.Statement, list, tuple))]
        return 1 + sum(weight(part) for part in own)
    return 0


def _loop(node: tree.ForRange) -> int:
    """Return the instructions of a counted loop, all turns if it will be unrolled."""
    bounds = [part.value.data for part in (node.start, node.stop, node.step) if isinstance(part, tree.Const)]
    one = weight(node.body)
    if len(bounds) == 3 and bounds[2]:
        turns, known = max(0, -(-(bounds[1] - bounds[0]) // bounds[2])), folds(node)
        if unrolls(turns, one + 2, known):
            return turns * (one - _of_indices(node.body) if known else one)
    return 4 + one


def folds(node: tree.ForRange) -> bool:
    """Whether all arithmetic of a loop is that of its index, so that nothing is left of it when the loop is unrolled.

    Loads and operations on vectors are left, and descriptors that move on by known steps.
    """
    found = False
    for inner in tree.nodes(node.body):
        if isinstance(inner, (tree.If, tree.Switch, tree.While, tree.Call, tree.PointerCall)):
            return False
        if isinstance(inner, tree.BuiltinCall) and inner.name not in (*EDITS, *OPERATIONS):
            return False
        if isinstance(inner, tree.BuiltinCall) and inner.name in EDITS and any(map(_reads, inner.arguments[1:])):
            return False
        if isinstance(inner, tree.Assign) and not isinstance(inner.place.type, DsdType):
            return False
        if isinstance(inner, tree.Binary):
            if not isinstance(inner.type, IntType) or _reads(inner):
                return False
            found = True
    return found


def _reads(expr: Any) -> bool:
    """Whether an expression needs something of memory."""
    places = [inner.place for inner in tree.nodes(expr) if isinstance(inner, tree.Load)]
    return any(not _is_local(place) for place in places)


def _of_indices(block: Any) -> int:
    """Return the instructions of a loop's body that are left out when its index is known."""
    return sum(_index(inner) for inner in tree.nodes(block) if isinstance(inner, tree.Element))


def _is_local(place: Any) -> bool:
    return isinstance(place, tree.VariablePlace) and isinstance(place.variable, tree.Local)


def _index(node: tree.Element) -> int:
    """Return the instructions of an address: products of outer subscripts are taken to lie before the loop."""
    varying = [subscript for subscript in node.subscripts if not isinstance(subscript, tree.Const)]
    kind = node.base.type
    element = kind.element if isinstance(kind, ArrayType) else None
    scaled = bool(varying) and element is not None and element.words == 2
    return weight(varying) + max(0, len(varying) - 1) + scaled


def _builtin(node: tree.BuiltinCall) -> int:
    if node.name in EDITS:
        moved, *numbers = node.arguments
        count = numbers[0] if numbers else None
        far = node.name == "@increment_dsd_offset" and not isinstance(count, tree.Const) and numbers[1].type.words == 2
        return weight(moved) + weight(count) + far
    if node.name in OPERATIONS:
        return 1 + sum(_operand(value) for value in node.arguments)
    expressions = [value for value in node.arguments if isinstance(value, tree.Expr)]
    return 1 + 2 * len(node.arguments) + weight(expressions)


def _operand(value: Any) -> int:
    """Return the instructions of an operand: a descriptor is loaded, and one that changes gets a number as well."""
    kind = getattr(value, "type", None)
    if isinstance(kind, DsrType):
        return 0
    if not isinstance(kind, DsdType):
        return weight(value)
    if isinstance(value, tree.Load):
        return 2 if _is_local(value.place) else 3
    return 1 if not isinstance(value, tree.BuiltinCall) else 2 + weight(value)
