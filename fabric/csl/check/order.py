"""The order of functions, callees first, and which calls may go round in circles.

Functions may call themselves and each other (`fabric.csl.lower.recursion`); where each call in a circle is the last
thing that its function does (a tail call), it is a jump.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fabric.csl import tree
from fabric.csl.diagnostics import Fault, Report
from fabric.csl.types import ArrayType, DsdType, IntType, StructType, Type

__all__ = ["calls_itself", "circles", "in_registers", "ordered", "tail_calls"]


def tail_calls(function: tree.Function) -> list[tree.Call]:
    """Return the calls after which a function does nothing more."""
    found: list[tree.Call] = []
    if function.body is not None:
        _tails(function.body.body, found)
    return found


def _tails(statements: list[tree.Statement], found: list[tree.Call]) -> None:
    for place, statement in enumerate(statements):
        last = place == len(statements) - 1 or _is_return(statements[place + 1])
        if isinstance(statement, tree.Return):
            if isinstance(statement.value, tree.Call):
                found.append(statement.value)
        elif isinstance(statement, tree.Evaluate):
            if last and isinstance(statement.value, tree.Call):
                found.append(statement.value)
        else:
            for block in _blocks(statement):
                if last:
                    _tails(block.body, found)
                elif block.body and _is_return(block.body[-1]):
                    _tails(block.body[-2:], found)


def _is_return(statement: tree.Statement) -> bool:
    return isinstance(statement, tree.Return) and statement.value is None


def _blocks(statement: tree.Statement) -> list[tree.Block]:
    """Return the blocks after which a statement is over."""
    if isinstance(statement, tree.Block):
        return [statement]
    if isinstance(statement, tree.If):
        return [block for block in (statement.then, statement.otherwise) if block is not None]
    if isinstance(statement, tree.Switch):
        return [block for _, block in statement.cases]
    return []


def ordered(functions: list[tree.Function], report: Report) -> list[tree.Function]:
    """Return functions with callees before callers; report circles with values that are not in registers."""
    order: list[tree.Function] = []
    for circle in circles(functions):
        order += circle
        _check_circle(circle, report)
    return order


def circles(functions: list[tree.Function]) -> Iterator[list[tree.Function]]:
    """Yield the functions that call each other in a circle, or one that is in none, callees before callers."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    open_: list[tree.Function] = []
    is_open: set[int] = set()
    for root in functions:
        if id(root) in index:
            continue
        stack = [(root, iter(root.calls))]
        while stack:
            here, rest = stack[-1]
            if id(here) not in index:
                index[id(here)] = low[id(here)] = len(index)
                open_.append(here)
                is_open.add(id(here))
            callee = next(rest, None)
            if callee is not None:
                if id(callee) not in index:
                    stack.append((callee, iter(callee.calls)))
                elif id(callee) in is_open:
                    low[id(here)] = min(low[id(here)], index[id(callee)])
                continue
            stack.pop()
            if stack:
                above = stack[-1][0]
                low[id(above)] = min(low[id(above)], low[id(here)])
            if low[id(here)] == index[id(here)]:
                yield _close(here, open_, is_open)


def _close(here: tree.Function, open_: list[tree.Function], is_open: set[int]) -> list[tree.Function]:
    """Return the functions that call each other in a circle with one of them, or it alone."""
    circle = []
    while True:
        function = open_.pop()
        is_open.discard(id(function))
        circle.append(function)
        if function is here:
            return circle


def calls_itself(circle: list[tree.Function]) -> bool:
    """Whether functions call each other, or one itself, before they are done."""
    members = {id(function) for function in circle}
    return any(
        id(call.function) in members and id(call) not in tails
        for function in circle
        for tails in ({id(call) for call in tail_calls(function)},)
        for call in function.sites
    )


def in_registers(params: Iterable[Type], result: Type) -> Type | None:
    """Return a type of a parameter or of the result that does not lie in one or two registers; None if all do."""
    for kind in (*params, result):
        wide = isinstance(kind, IntType) and (kind.words or 0) > 2
        if wide or isinstance(kind, (ArrayType, StructType, DsdType)):
            return kind
    return None


def _check_circle(circle: list[tree.Function], report: Report) -> None:
    members = {id(function) for function in circle}
    for function in circle:
        large = in_registers([param.type for param in function.params], function.result)
        for call in function.sites:
            if id(call.function) in members and large is not None:
                what = f"'{call.function.name}' calls itself again, and '{function.name}' has a {large}"
                report.fault(Fault(what, call.span, "pass a pointer, or write a loop"))
