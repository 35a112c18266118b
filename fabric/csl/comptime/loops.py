"""Loops of a layout with all their iterations at once, where that means the same (see `lanes`).

A loop qualifies if its body neither leaves it nor carries a value from one iteration to the next.  The first is seen
in the tree.  The second shows while it runs: a variable from outside that the body assigns holds `POISON` at the start
of an iteration, and reading that gives the loop up; it then runs iteration by iteration, after its effects were taken
back.
A ``while`` qualifies if it counts: ``while (v < limit) : (v += step)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fabric.csl.comptime.calls import Signal
from fabric.csl.comptime.lanes import POISON, Carried, Diverge, LaneValue, Level, Sequential, lifted, settled
from fabric.csl.comptime.statements import Statements
from fabric.csl.comptime.values import ComptimeVariable, Scope, Value, frozen
from fabric.csl.syntax import nodes as n
from fabric.csl.types import U16, ArrayType, RangeType
from fabric.csl.types.rules import is_integer

__all__ = ["Loops"]

MOST = 1 << 22
"""A loop is evaluated at once up to so many iterations, since an array holds a number of each."""
FEWEST = 8
"""A loop is worth evaluating at once from so many iterations on."""


class Loops(Statements):
    """`Loops` evaluates all iterations of a loop of a layout at once; a mix-in of
    `fabric.csl.comptime.interpreter.Interpreter`.
    """

    def for_loop(self, node: n.For, scope: Scope, label: str | None = None) -> Signal | None:
        if not self.unit.lanes or label is not None or not _closed(node):
            return super().for_loop(node, scope, label)
        sequence = self.known(node.sequence, scope, "what a loop runs over")
        if sequence.__class__ is not Value:
            return super().for_loop(node, scope, label)
        if isinstance(sequence.type, RangeType):
            numbers = self.numbers(sequence, node)
            kind, items = sequence.type.element, _array(numbers)
        elif isinstance(sequence.type, ArrayType) and is_integer(sequence.type.element):
            kind, items = sequence.type.element, np.array(sequence.data, np.int64)
        else:
            return super().for_loop(node, scope, label)
        if items is None or len(items) < FEWEST:
            return super().for_loop(node, scope, label)

        def iteration(level: Level, lane: np.ndarray) -> Signal | None:
            item = settled(kind, level, items[lane])
            return self.for_body(node, scope, item, settled(U16, level, lane & 0xFFFF))

        if self._at_once(node, scope, len(items), iteration, {}):
            return None
        return super().for_loop(node, scope, label)

    def while_loop(self, node: n.While, scope: Scope, label: str | None = None) -> Signal | None:
        if self.unit.lanes and label is None and _closed(node) and self._counted(node, scope):
            return None
        return super().while_loop(node, scope, label)

    def _counted(self, node: n.While, scope: Scope) -> bool:
        """Run a counting ``while`` at once; return whether that was possible."""
        condition, step = node.condition, node.step
        if not (
            isinstance(condition, n.Binary)
            and condition.op in ("<", "<=", ">", ">=")
            and isinstance(condition.left, n.Name)
            and isinstance(step, n.Assign)
            and step.op in ("+=", "-=")
            and isinstance(step.target, n.Name)
            and step.target.name == condition.left.name
            and isinstance(step.value, n.Int)
            and step.value.value > 0
        ):
            return False
        name = step.target.name
        cell = scope.find(name)
        changed = _assigned(node.body)
        if not isinstance(cell, ComptimeVariable) or cell.const or cell.level != self.depth or name in changed:
            return False
        if any(isinstance(x, n.Name) and x.name in changed for x in n.walk(condition.right)):
            return False
        limit, start = self.known(condition.right, scope), cell.value
        if limit.__class__ is not Value or start.__class__ is not Value or not is_integer(start.type):
            return False
        if not is_integer(limit.type):
            return False
        by = step.value.value if step.op == "+=" else -step.value.value
        end = limit.data + {"<": 0, "<=": 1, ">": 0, ">=": -1}[condition.op]
        if (by > 0) != (condition.op in ("<", "<=")):
            return False
        numbers = range(start.data, end, by)
        kind = cell.type or start.type
        final = start.data + by * len(numbers)
        if len(numbers) < FEWEST or (hasattr(kind, "holds") and not (kind.holds(final) and kind.holds(limit.data))):
            return False
        items = _array(numbers)
        if items is None:
            return False

        def iteration(level: Level, lane: np.ndarray) -> Signal | None:
            cell.value, cell.level = settled(start.type, level, items[lane]), self.depth
            return self.execute(node.body, scope)

        depth = cell.level
        done = False
        try:
            done = self._at_once(node, scope, len(items), iteration, {id(cell): cell})
        finally:
            cell.level, cell.value = depth, start
        if done:
            cell.value = Value(start.type, final)
        return done

    def _at_once(
        self,
        node: n.For | n.While,
        scope: Scope,
        count: int,
        iteration: Callable[[Level, np.ndarray], Signal | None],
        skip: dict[int, ComptimeVariable],
    ) -> bool:
        """Run all iterations of a loop, group by group; return False with nothing done if that cannot be."""
        outer, depth, mark = self.level, self.depth, self.unit.mark()
        parents = outer.count if outer else 1
        owned = [
            (cell, cell.value, cell.level)
            for name in sorted(_assigned(node.body))
            if isinstance(cell := scope.find(name), ComptimeVariable) and not cell.const and id(cell) not in skip
        ]
        results: list[tuple[np.ndarray, list[Any]]] = []
        todo = [np.arange(parents * count, dtype=np.int64)]
        calls, self.depth = self.calls, depth + 1
        try:
            while todo:
                lanes = todo.pop()
                self.level = Level(outer, lanes // count)
                start = self.unit.mark()
                for cell, _, _ in owned:
                    cell.value, cell.level = POISON, self.depth
                self.session.budget.spend(1, node.span)
                try:
                    iteration(self.level, lanes % count)
                except Diverge as parting:
                    self.calls = calls
                    self.unit.rewind(start)
                    todo += [lanes[group] for group in reversed(parting.groups)]
                    continue
                results.append((lanes, [self._frame(cell.value) for cell, _, _ in owned]))
            finals = [self._final(i, results, outer, parents, count) for i in range(len(owned))]
        except Sequential:
            self.calls = calls
            self.unit.rewind(mark)
            for cell, value, level in owned:
                cell.value, cell.level = value, level
            return False
        except BaseException:
            for cell, value, level in owned:
                cell.value, cell.level = value, level
            raise
        finally:
            self.level, self.depth = outer, depth
        for (cell, _, level), final in zip(owned, finals, strict=True):
            cell.value, cell.level = final, level
        return True

    def _frame(self, value: Any) -> Any:
        """Return a variable's value after the body, with lanes of this very level."""
        if value.__class__ is LaneValue:
            assert self.level is not None
            return LaneValue(value.type, self.level, lifted(value, self.level))
        return value

    def _final(
        self, i: int, results: list[tuple[np.ndarray, list[Any]]], outer: Level | None, parents: int, count: int
    ) -> Any:
        """Return what variable `i` holds after the last iteration, for each lane of the loop around."""
        wanted = np.arange(parents, dtype=np.int64) * count + count - 1
        found = [(np.isin(lanes, wanted), lanes, values[i]) for lanes, values in results]
        found = [(hit, lanes, value) for hit, lanes, value in found if hit.any()]
        if any(value is POISON for _, _, value in found):
            raise Carried("the last iteration leaves an earlier value")
        known = all(value.__class__ is Value for _, _, value in found)
        if known and len({frozen(value) for _, _, value in found}) == 1:
            return found[0][2]
        if outer is None:
            value = found[0][2]
            return Value(value.type, value.array[found[0][0]][0].item()) if value.__class__ is LaneValue else value
        kinds = {value.type for _, _, value in found}
        if len(kinds) != 1 or not all(isinstance(getattr(v, "data", 0), int) for _, _, v in found):
            raise Sequential
        last = np.zeros(parents, np.int64)
        for hit, lanes, value in found:
            last[lanes[hit] // count] = value.array[hit] if value.__class__ is LaneValue else value.data
        kind = kinds.pop()
        return settled(kind, outer, last.astype(bool) if str(kind) == "bool" else last)


def _array(numbers: range) -> np.ndarray | None:
    """Return the numbers of a range, or None if they do not fit."""
    if numbers and (max(abs(numbers[0]), abs(numbers[-1])) >= 1 << 61 or numbers[MOST:]):
        return None
    return np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.int64)


def _closed(node: n.For | n.While) -> bool:
    """Whether nothing in the body of a loop leaves it, or does something whose order counts."""
    return not any(
        isinstance(inner, (n.Return, n.Break, n.Continue))
        or (isinstance(inner, n.Builtin) and inner.name in ("@comptime_print", "@export_name", "@set_rectangle"))
        for inner in n.walk(node.body)
    )


def _assigned(body: n.SyntaxNode) -> set[str]:
    """Return the names that statements of a body assign to, or whose address it takes."""
    found = set()
    for node in n.walk(body):
        target: Any = node.target if isinstance(node, n.Assign) else None
        if isinstance(node, n.Unary) and node.op == "&":
            target = node.value
        while isinstance(target, (n.Index, n.FieldAccess, n.Deref)):
            target = target.base
        if isinstance(target, n.Builtin) and target.arguments:
            target = target.arguments[0]
        if isinstance(target, n.Name):
            found.add(target.name)
    return found
