"""A program surely comes to some operations: no condition keeps it from them, on every PE that runs it.

A PE's program has branches for PEs elsewhere: `if (x == 0) ...`.  A message about a color in such a branch would be
wrong for a PE that never comes there, so that only what surely happens is looked at: functions for the host, tasks that
comptime blocks activate, and what those call and activate, up to the first condition.  It is less than what happens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fabric.csl import tree
from fabric.csl.check.program import CheckedProgram
from fabric.csl.comptime.values import FunctionValue, Value

__all__ = ["certain"]

LEAVES = (tree.Return, tree.Break, tree.Continue)


def certain(program: CheckedProgram) -> set[tuple[str, int]]:
    """Return the places, (file, start), of all calls of builtins that a program surely comes to."""
    unit = program.unit
    by_decl = {(id(f.module), f.span.start, f.span.source.name): f for f in program.functions}

    def typed(function: FunctionValue) -> tree.Function | None:
        span = function.decl.span
        return by_decl.get((id(function.module), span.start, span.source.name))

    def bound(value: Any) -> tree.Function | None:
        value = value.value if isinstance(value, tree.Const) else value
        if not isinstance(value, Value):
            return None
        if isinstance(value.data, FunctionValue):
            return typed(value.data)
        entry = unit.tasks.get(("task", value.data))
        return None if entry is None else typed(entry[1])

    roots = [typed(entry.target) for entry in unit.exports if isinstance(entry.target, FunctionValue)]
    roots += [typed(unit.tasks["task", ident][1]) for ident in unit.active if ("task", ident) in unit.tasks]
    stack = [function for function in roots if function is not None]
    seen: set[int] = set()
    found: set[tuple[str, int]] = set()
    while stack:
        function = stack.pop()
        if id(function) in seen or function.body is None:
            continue
        seen.add(id(function))
        for node in _statements(function.body):
            if isinstance(node, tree.Call):
                stack.append(node.function)
            elif isinstance(node, tree.BuiltinCall):
                found.add((node.span.source.name, node.span.start))
                after = [node.arguments[0]] if node.name == "@activate" else [node.options.get("activate")]
                stack += [task for value in after if (task := bound(value)) is not None]
    return found


def _statements(block: tree.Block) -> Iterator[Any]:
    """Yield the expressions that a block evaluates whenever it is entered."""
    for statement in block.body:
        if isinstance(statement, tree.Block):
            yield from _statements(statement)
        elif isinstance(statement, (tree.If, tree.While)):
            yield from _parts(statement.condition)
        elif isinstance(statement, tree.Switch):
            yield from _parts(statement.subject)
        elif isinstance(statement, tree.ForArray):
            yield from _statements(statement.body)
        elif isinstance(statement, tree.ForRange):
            yield from _parts([statement.start, statement.stop, statement.step])
            if _turns(statement):
                yield from _statements(statement.body)
        else:
            yield from _parts([getattr(statement, name, None) for name in ("place", "value")])
        if any(isinstance(node, LEAVES) for node in tree.nodes(statement)):
            return


def _turns(loop: tree.ForRange) -> bool:
    """Whether a loop surely has a turn."""
    ends = [node.value.data for node in (loop.start, loop.stop, loop.step) if isinstance(node, tree.Const)]
    if len(ends) < 3:
        return False
    start, stop, step = ends
    return bool(start < stop if step > 0 else start > stop)


def _parts(root: Any) -> Iterator[Any]:
    """Yield the nodes of an expression that are evaluated whatever its conditions are."""
    if isinstance(root, (list, tuple)):
        for part in root:
            yield from _parts(part)
    elif isinstance(root, tree.Select):
        yield from _parts(root.condition)
    elif isinstance(root, tree.Binary) and root.op in ("and", "or"):
        yield from _parts(root.left)
    elif isinstance(root, tree.BlockValue):
        yield from _statements(root.block)
    elif isinstance(root, tree.Expr):
        yield root
        names = (name for base in type(root).__mro__ for name in getattr(base, "__slots__", ()))
        for name in names:
            if name not in ("span", "type", "function", "options"):
                yield from _parts(getattr(root, name))
