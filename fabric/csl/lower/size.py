"""A loop is weighed, by its typed tree, so that one bound says which loops are unrolled.

An instruction weighs 1 and a 32-bit integer operation 2, a product that is no shift `fabric.csl.rules.PRODUCT`, what
does not change from turn to turn nothing: it leaves the loop.  How a program spells a value does not matter: casts,
pointers that are followed and names of parts weigh nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fabric.csl import tree
from fabric.csl.comptime.builtins.operations import OPERATIONS
from fabric.csl.rules import MAPPED, NAMED_BASE, PRODUCT, unrolls
from fabric.csl.types import ArrayType, DsdType, DsrType, IntType

__all__ = ["turn", "weight"]

Expands = Callable[[tree.Function], bool]
Known = dict[int, int]
EDITS = ("@increment_dsd_offset", "@set_dsd_base_addr", "@set_dsd_length", "@set_dsd_stride")


def turn(node: tree.ForRange, expands: Expands, known: Known | None = None) -> int:
    """Return what a turn of a counted loop weighs; counting and jump fall away where it is unrolled.

    Parameters
    ----------
    node : tree.ForRange
    expands : callable
        Whether a function is written in place of its calls: then it weighs what its body does.
    known : dict, optional
        What loops and functions of the same program weigh, by their ids; added to.
    """
    known = {} if known is None else known
    if id(node) in known:
        return known[id(node)]
    moving = {id(local) for local in (node.item, node.index) if local is not None}
    for inner in tree.nodes(node.body):
        if isinstance(inner, tree.Declare):
            moving.add(id(inner.local))
        elif isinstance(inner, tree.Assign) and _is_local(inner.place):
            moving.add(id(inner.place.variable))  # type: ignore[attr-defined]
        elif isinstance(inner, (tree.ForRange, tree.ForArray)):
            moving.update(id(local) for local in (inner.item, inner.index) if local is not None)
    known[id(node)] = Weights(moving, expands, known).of(node.body)
    return known[id(node)]


def weight(body: tree.Block | None) -> int:
    """Return what a function weighs, where nothing leaves it."""
    return Weights(None, lambda function: False, {}).of(body)


class Weights:
    """A `Weights` estimates what pieces of a tree weigh in a loop.

    Parameters
    ----------
    moving : set of int or None
        Ids of the locals that change in it; None: everything does.
    expands, known
        See `turn`.
    """

    def __init__(self, moving: set[int] | None, expands: Expands, known: Known) -> None:
        self.moving, self.expands, self.known = moving, expands, known

    def of(self, node: Any) -> int:
        """Return what a piece of the tree weighs."""
        if isinstance(node, (list, tuple)):
            return sum(self.of(entry) for entry in node)
        if isinstance(node, tree.Block):
            return self.of(node.body)
        if isinstance(node, tree.Expr):
            return 0 if self._is_steady(node) else self._of_value(node)
        if isinstance(node, tree.Assign):
            local = _is_local(node.place)
            again = 0 if node.op == "=" else _words(node.place) + (not local)
            return self.of(node.value) + (0 if local else 1 + self._of_place(node.place)) + again
        if isinstance(node, (tree.Declare, tree.Evaluate)):
            return self.of(node.value)
        if isinstance(node, tree.ForRange):
            return self._of_loop(node)
        return 1 + self._of_parts(node) if isinstance(node, tree.Statement) else 0

    def _of_parts(self, node: Any) -> int:
        parts: list[Any] = []
        for kind in type(node).__mro__:
            parts += [getattr(node, name) for name in getattr(kind, "__slots__", ()) if name not in ("span", "type")]
        return sum(self.of(part) for part in parts if isinstance(part, (tree.Expr, tree.Statement, list, tuple)))

    def _is_steady(self, expr: Any) -> bool:
        """Whether a value is the same in all turns, and no load."""
        if isinstance(expr.type, (DsdType, DsrType)):
            return False
        if self.moving is None:
            return isinstance(expr, tree.Const)
        for inner in tree.nodes(expr):
            if isinstance(inner, (tree.Call, tree.PointerCall, tree.BuiltinCall, tree.BlockValue)):
                return False
            if isinstance(inner, tree.Load) and not _is_local(inner.place):
                return False
            if isinstance(inner, tree.VariablePlace) and id(inner.variable) in self.moving:
                return False
        return True

    def _of_value(self, node: Any) -> int:
        if isinstance(node, tree.Load):
            return 0 if _is_local(node.place) else 1 + self._of_place(node.place)
        if isinstance(node, tree.AddressOf):
            return self._of_place(node.place)
        if isinstance(node, tree.Lvalue):
            return self._of_place(node)
        if isinstance(node, tree.Binary):
            return self.of(node.left) + self.of(node.right) + self._of_operator(node)
        if isinstance(node, tree.Convert):
            return self.of(node.value) + (not _is_renamed(node))
        if isinstance(node, tree.Call):
            own = self._of_function(node.function) if self.expands(node.function) else 3
            return own + self.of(node.arguments)
        if isinstance(node, tree.BuiltinCall):
            return self._of_builtin(node)
        return 1 + self._of_parts(node)

    def _of_function(self, function: tree.Function) -> int:
        """Return what a function weighs that is written in place."""
        if id(function) not in self.known:
            self.known[id(function)] = Weights(None, self.expands, self.known).of(function.body)
        return self.known[id(function)]

    @staticmethod
    def _of_operator(node: tree.Binary) -> int:
        if not isinstance(node.type, IntType) or node.op in ("<", "<=", ">", ">=", "==", "!="):
            return 1
        if node.op == "*" and not any(map(_is_power, (node.left, node.right))):
            return PRODUCT
        return _words(node)

    def _of_place(self, node: Any) -> int:
        if isinstance(node, tree.Element):
            return self._of_place(node.base) + self.index(node)
        if isinstance(node, tree.Member):
            return self._of_place(node.base)
        if isinstance(node, tree.Deref):
            return self.of(node.pointer)
        return 0 if isinstance(node, tree.VariablePlace) else self.of(node)

    def index(self, node: tree.Element) -> int:
        """Return what the address of an element takes: subscripts, their sum, its size, where a global array lies."""
        moving = [subscript for subscript in node.subscripts if not self._is_steady(subscript)]
        if not moving:
            return 0
        base = node.base.type
        element = base.element if isinstance(base, ArrayType) else node.type
        fixed = isinstance(node.base, tree.VariablePlace) and not _is_local(node.base)
        return self.of(moving) + len(moving) - 1 + (element.words == 2) + fixed

    def _of_loop(self, node: tree.ForRange) -> int:
        """Return what a counted loop weighs, all turns if it will be unrolled: then their addresses are known."""
        bounds = [part.value.data for part in (node.start, node.stop, node.step) if isinstance(part, tree.Const)]
        one = self.of(node.body)
        if len(bounds) == 3 and bounds[2]:
            turns = max(0, -(-(bounds[1] - bounds[0]) // bounds[2]))
            if unrolls(turns, turn(node, self.expands, self.known)):
                known = sum(self.index(inner) for inner in tree.nodes(node.body) if isinstance(inner, tree.Element))
                return turns * max(0, one - known)
        return 4 + one

    def _of_builtin(self, node: tree.BuiltinCall) -> int:
        if node.name in EDITS:
            moved, *numbers = node.arguments
            count = numbers[0] if numbers else None
            words = numbers[1].type.words if len(numbers) > 1 else 1
            scaled = node.name == "@increment_dsd_offset" and not isinstance(count, tree.Const) and words == 2
            return self.of(moved) + self.of(count) + scaled + 1
        if node.name in OPERATIONS:
            return 1 + sum(self._of_operand(value) for value in node.arguments)
        if node.name == "@map":
            return MAPPED
        if node.name == "@set_dsr_base_addr":
            return NAMED_BASE + self.of(node.arguments[1])
        expressions = [value for value in node.arguments if isinstance(value, tree.Expr)]
        return 1 + 2 * len(node.arguments) + self.of(expressions)

    def _of_operand(self, value: Any) -> int:
        """Return what an operand takes: a descriptor is loaded, and one that changes gets a number as well."""
        kind = getattr(value, "type", None)
        if isinstance(kind, DsrType):
            return 0
        if not isinstance(kind, DsdType):
            return self.of(value)
        if isinstance(value, tree.Load):
            return 2 if _is_local(value.place) else 3
        return 1 if not isinstance(value, tree.BuiltinCall) else 2 + self.of(value)


def _is_local(place: Any) -> bool:
    return isinstance(place, tree.VariablePlace) and isinstance(place.variable, tree.Local)


def _is_power(factor: Any) -> bool:
    """Whether a product with this is a shift."""
    known = factor.value.data if isinstance(factor, tree.Const) else None
    return isinstance(known, int) and known > 0 and known & known - 1 == 0


def _is_renamed(node: tree.Convert) -> bool:
    """Whether the bits of a value stay where they are."""
    same = isinstance(node.type, IntType) and node.value.type.words == node.type.words
    return same or node.kind != "as"


def _words(node: Any) -> int:
    """Return how many registers an integer takes, 1 for what is none."""
    return node.type.words if isinstance(node.type, IntType) and node.type.words else 1
