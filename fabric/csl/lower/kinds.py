"""Of which kinds the descriptors are that a variable may hold: a kind is all of a descriptor but its numbers.

The machine keeps color, queue and the like in the same words as base and length, so a program may choose among them
while it runs.  Here each kind gets a number, which stands beside base, length and stride; an operation is written once
per kind.  A variable's kinds are those of everything that is assigned to it anywhere, through other variables,
parameters, results and choices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from fabric.csl import tree
from fabric.csl.comptime.values import DsdValue, Value
from fabric.csl.diagnostics import Source, Span
from fabric.csl.ir import Fifo
from fabric.csl.lower.dsd import CHANGES, Fixed, fabric_kind, memory_kind
from fabric.csl.types import ArrayType, DsdType, IdType

__all__ = ["FIFO_LENGTHS", "Kinds", "about_descriptors", "returned"]

FIFO_LENGTHS = {"@set_fifo_read_length": True, "@set_fifo_write_length": False}
"""These say how many elements an operation has that the FIFO is a source of, or not: its target."""


class Kinds:
    """`Kinds` finds out which kinds of descriptors and ids may flow where, in one program.

    Parameters
    ----------
    functions : list of tree.Function
        All checked functions.
    variables : list of tree.Variable
        All globals.
    unit : ProgramUnit
        The colors and queues that the program configures.
    fifo : callable
        Returns the FIFO of the fields of a descriptor.
    """

    def __init__(
        self, functions: list[Any], variables: list[Any], unit: Any, fifo: Callable[[dict[str, Any], Span], Fifo]
    ) -> None:
        self._fifo = fifo
        self._span = functions[0].span if functions else Span(Source("", ""), 0, 0)
        self._given: dict[int, list[Any]] = {}
        self._numbers: dict[Fixed, int] = {}
        self._ids: dict[str, dict[int, None]] = {}
        self.params = {id(param) for function in functions for param in function.params}
        for function in functions:
            for node in function.fact("descriptors", about_descriptors):
                for goal, value in _given(node):
                    self._given.setdefault(id(goal), []).append(value)
        self._roots = [function.body for function in functions]
        self._variables, self._unit = variables, unit

    def number(self, kind: Fixed) -> int:
        """Return the number of a kind in this program."""
        return self._numbers.setdefault(kind, len(self._numbers))

    def ids(self, name: str) -> tuple[int, ...]:
        """Return the colors, or queues, that the program names anywhere: those that a variable may hold."""
        if not self._ids:
            for kind, number in self._named():
                self._ids.setdefault(kind, {})[number] = None
        return tuple(sorted(self._ids.get(name, ())))

    @cached_property
    def made(self) -> frozenset[str]:
        """The program makes ids of these types of numbers while it runs, which may be others than it names."""
        found = [node for node in tree.nodes(self._roots) if isinstance(node, tree.Convert)]
        return frozenset(str(x.type) for x in found if isinstance(x.type, IdType) and x.value.type != x.type)

    def _named(self) -> Iterator[tuple[str, int]]:
        yield from (("color", number) for number in self._unit.configs)
        yield from self._unit.queues
        values = [variable.initial for variable in self._variables if isinstance(variable.initial, Value)]
        for node in tree.nodes(self._roots):
            if isinstance(node, tree.Const):
                values.append(node.value)
            elif isinstance(node, (tree.Call, tree.BuiltinCall)):
                values += [entry for entry in node.arguments if isinstance(entry, Value)]
                values += [entry for entry in getattr(node, "options", {}).values() if isinstance(entry, Value)]
        while values:
            value = values.pop()
            if isinstance(value.data, DsdValue):
                values += [entry for entry in value.data.fields.values() if isinstance(entry, Value)]
            if isinstance(value.type, IdType) and isinstance(value.data, int):
                yield str(value.type), value.data
            elif isinstance(value.type, ArrayType) and isinstance(value.type.element, IdType):
                for number in value.data:
                    yield str(value.type.element), number

    def of(self, start: Any, env: dict[int, Any] | None = None, skip: Any = None) -> tuple[Fixed, ...]:
        """Return the kinds of an expression or variable, in the order in which they are met.

        Parameters
        ----------
        start
            An expression, a variable, or a list of them.
        env : dict, optional
            What parameters hold where the question is asked, by their identity.
        skip
            A variable that says nothing, because it is the one that is asked about.
        """
        found: dict[Fixed, None] = {}
        seen: set[int] = set() if skip is None else {id(skip)}
        stack = list(reversed(start)) if isinstance(start, list) else [start]
        while stack:
            here = stack.pop()
            if isinstance(here, (tree.Variable, tree.Local)):
                if id(here) in seen:
                    continue
                seen.add(id(here))
                held = env.get(id(here)) if env is not None and id(here) in self.params else None
                if held is not None:
                    found |= dict.fromkeys(held.kinds)
                    continue
                stack += reversed(self._given.get(id(here), []))
                initial = getattr(here, "initial", None)
                stack += [] if initial is None else [initial]
            elif id(here) not in seen:
                seen.add(id(here))
                made, rest = self._parts(here)
                found |= dict.fromkeys(made)
                stack += reversed(rest)
        return tuple(found)

    def _parts(self, expr: Any) -> tuple[list[Fixed], list[Any]]:
        """Return the kinds that an expression gives by itself, and what else it may give."""
        expr = expr.value if isinstance(expr, tree.Const) else expr
        if isinstance(expr, Value):
            entries = expr.data if isinstance(expr.data, list) else [expr.data]
            return [kind for dsd in entries for kind in self._of_fields(dsd.kind, dsd.fields)], []
        if isinstance(expr, tree.BuiltinCall) and expr.name == "@get_dsd":
            return self._of_fields(str(expr.type), expr.options), []
        if isinstance(expr, tree.BuiltinCall) and expr.name in CHANGES:
            return [], [expr.arguments[0]]
        if isinstance(expr, tree.BuiltinCall) and expr.name == "array":
            return [], list(expr.arguments)
        if isinstance(expr, tree.Select):
            return [], [expr.then, expr.otherwise]
        if isinstance(expr, tree.Convert):
            return [], [expr.value]
        if isinstance(expr, tree.Load):
            place = expr.place.base if isinstance(expr.place, tree.Element) else expr.place
            return [], [place.variable] if isinstance(place, tree.VariablePlace) else []
        if isinstance(expr, tree.Call):
            return [], returned(expr.function)
        if isinstance(expr, tree.BlockValue):
            return [], [node.value for node in tree.nodes(expr.block) if isinstance(node, tree.Break) and node.value]
        return [], []

    def _of_fields(self, kind: str, fields: dict[str, Any]) -> list[Fixed]:
        """Return the kinds of the fields of `@get_dsd`: several if its color or queue is known at run time only."""
        if kind == "fifo_dsd":
            return [Fixed("fifo", fifo=self._fifo(fields, self._span))]
        if kind not in ("fabin_dsd", "fabout_dsd"):
            return [memory_kind(kind, fields, self._span)]
        queue = "input_queue" if kind == "fabin_dsd" else "output_queue"
        ids = [
            self.known_ids(fields.get(name), id_name) for name, id_name in (("fabric_color", "color"), (queue, queue))
        ]
        return [fabric_kind(kind, fields, color, number) for color in ids[0] for number in ids[1]]

    def known_ids(self, value: Any, name: str) -> tuple[int | None, ...]:
        """Return the colors or queues that a field may hold; (None,) if it is not there."""
        value = value.value if isinstance(value, tree.Const) else value
        if value is None:
            return (None,)
        return (value.data,) if isinstance(value, Value) else self.ids(name)


def about_descriptors(function: tree.Function) -> list[Any]:
    """Return the nodes of a function that load DSRs, walk over them, set a FIFO's length or give a descriptor to a
    variable.
    """
    found = []
    for node in tree.nodes(function.body):
        if isinstance(node, tree.BuiltinCall):
            wanted = node.name in ("@map", *FIFO_LENGTHS) or node.name.startswith("@load_to_dsr")
        elif isinstance(node, tree.Assign):
            wanted = isinstance(node.place.type, DsdType)
        elif isinstance(node, tree.Call):
            wanted = any(isinstance(param.type, DsdType) for param in node.function.params)
        else:
            wanted = isinstance(node, tree.Declare) and isinstance(node.local.type, DsdType)
        if wanted:
            found.append(node)
    return found


def _given(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield what a node gives to variables of descriptors: (variable, value)."""
    if isinstance(node, tree.Declare) and node.value is not None:
        yield node.local, node.value
    elif isinstance(node, tree.Assign):
        variable = getattr(getattr(node.place, "base", node.place), "variable", None)
        if variable is not None:
            yield variable, node.value
    elif isinstance(node, tree.Call):
        for param, value in zip(node.function.params, node.arguments, strict=True):
            if isinstance(param.type, DsdType):
                yield param, value


def returned(function: tree.Function) -> list[Any]:
    """Return what a function may return."""
    return [node.value for node in tree.nodes(function.body) if isinstance(node, tree.Return) and node.value]
