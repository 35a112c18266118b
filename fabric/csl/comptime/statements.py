"""Statements at compile time: they run.

A statement returns None, or a `Signal` if it left by ``return``, ``break`` or ``continue``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fabric.csl import tree
from fabric.csl.comptime.calls import Calls, Left, Signal
from fabric.csl.comptime.lanes import Carried, LaneValue, uniform
from fabric.csl.comptime.values import NOTHING, ComptimeVariable, Pointer, Range, Scope, Struct, Value, blank, copied
from fabric.csl.diagnostics import Fault
from fabric.csl.syntax import nodes as n
from fabric.csl.types import TYPE, U16, VOID, ArrayType, PointerType, RangeType

__all__ = ["Statements", "is_nothing", "valued"]


def valued(node: n.SyntaxNode) -> n.SyntaxNode:
    """Return a branch of a choice as an expression; one that leaves the function or a loop is a block that does so."""
    if isinstance(node, n.ExprStatement):
        return node.value
    if isinstance(node, n.If) and node.otherwise is not None:
        return n.IfExpr(node.condition, valued(node.then), valued(node.otherwise), span=node.span)
    if isinstance(node, (n.Return, n.Break, n.Continue)):
        node = n.Block([node], span=node.span)
    return n.BlockExpr(None, node, span=node.span) if isinstance(node, n.Block) else node


class Statements(Calls):
    """`Statements` runs statements at compile time; a mix-in of `fabric.csl.comptime.interpreter.Interpreter`."""

    def __init__(self, session: Any, unit: Any) -> None:
        super().__init__(session, unit)
        self._statements: dict[type, Callable[[Any, Scope], Signal | None]] = {
            n.Block: self.block,
            n.VarDecl: self._declare,
            n.Assign: self._assign,
            n.ExprStatement: self._expression,
            n.If: self._if_statement,
            n.For: self.for_loop,
            n.While: self.while_loop,
            n.Switch: self._switch,
            n.Labelled: self._labelled,
            n.ComptimeBlock: lambda node, scope: self.block(node.body, scope),
            n.Return: self._return,
            n.Break: self._break,
            n.Continue: lambda node, scope: Signal("continue", node.label),
        }

    def execute(self, node: n.SyntaxNode, scope: Scope) -> Signal | None:
        try:
            return self._statements[node.__class__](node, scope)
        except Left as left:
            return left.signal

    def block(self, node: n.Block, scope: Scope) -> Signal | None:
        """Run the statements of a block in a scope of its own."""
        inner = Scope(scope.module, scope)
        statements = self._statements
        try:
            for statement in node.body:
                signal = statements[statement.__class__](statement, inner)
                if signal is not None:
                    return signal
        except Left as left:
            return left.signal
        return None

    def declare(self, scope: Scope, decl: n.VarDecl, held: Any) -> None:
        """Enter a local name; a name of the same block may not be taken twice."""
        if decl.name in scope.names:
            raise Fault(f"'{decl.name}' is declared twice in this block", decl.span)
        scope.names[decl.name] = held

    def _declare(self, node: n.VarDecl, scope: Scope) -> None:
        kind = self.type(node.type, scope) if node.type is not None else None
        if node.begins_with is None or node.value is None:
            if kind is None:
                raise Fault(f"'{node.name}' has neither type nor value", node.span)
            self.declare(scope, node, ComptimeVariable(kind, blank(kind), False, node.name, self.depth))
            return
        value = self.known(node.value, scope, f"the value of '{node.name}'")
        value = self.convert(value, kind, node.value.span, f"the value of '{node.name}'")
        held = kind if kind is not None else value.type
        self.declare(scope, node, ComptimeVariable(held, copied(value), node.kind == "const", node.name, self.depth))

    def _expression(self, node: n.ExprStatement, scope: Scope) -> None:
        value = self.expr(node.value, scope)
        if not is_nothing(value) and not isinstance(node.value, (n.Call, n.Builtin)):
            raise Fault("the value of this expression is not used", node.span, "assign it to _ if that is meant")

    def _return(self, node: n.Return, scope: Scope) -> Signal:
        return Signal("return", None, NOTHING if node.value is None else self.known(node.value, scope, "the result"))

    def _break(self, node: n.Break, scope: Scope) -> Signal:
        return Signal(
            "break", node.label, NOTHING if node.value is None else self.known(node.value, scope, "the value")
        )

    def _if_statement(self, node: n.If, scope: Scope) -> Signal | None:
        if self.decided(node.condition, scope):
            return self.execute(node.then, scope)
        return None if node.otherwise is None else self.execute(node.otherwise, scope)

    def decided(self, node: n.SyntaxNode, scope: Scope) -> bool:
        """Return a condition that must be known."""
        value = self.truth(node, scope)
        if isinstance(value, tree.Expr):
            return bool(self.settle(value, node.span, "the condition").data)
        return bool(value)

    def _labelled(self, node: n.Labelled, scope: Scope) -> Signal | None:
        self.session.dialect.use("a label", node.span)
        if isinstance(node.body, n.For):
            signal = self.for_loop(node.body, scope, node.label)
        elif isinstance(node.body, n.While):
            signal = self.while_loop(node.body, scope, node.label)
        else:
            signal = self.execute(node.body, scope)
        return None if signal is not None and signal.kind == "break" and signal.label == node.label else signal

    # ---- switch, block as a value

    def chosen(self, node: n.Switch, subject: Value, scope: Scope) -> n.Case | None:
        """Return the branch that a known value selects."""
        default = None
        for case in node.cases:
            if case.values is None:
                default = case
                continue
            for entry in case.values:
                value = self.scalar(entry, scope, "a case")
                if self.fold("==", subject, value, entry.span).data:
                    return case
        return default

    def _switch(self, node: n.Switch, scope: Scope) -> Signal | None:
        case = self.chosen(node, self.scalar(node.subject, scope, "the subject of a switch"), scope)
        return None if case is None else self.execute(case.body, scope)

    def switch_value(self, node: n.Switch, scope: Scope) -> Any:
        case = self.chosen(node, self.scalar(node.subject, scope, "the subject of a switch"), scope)
        if case is None:
            raise Fault("no branch of the switch fits", node.span, "add an 'else' branch")
        return self.expr(valued(case.body), scope)

    def block_value(self, node: n.BlockExpr, scope: Scope) -> Any:
        signal = self.execute(node.body, scope)
        if signal is None:
            return NOTHING
        if signal.kind == "break":
            own = not is_nothing(signal.value) if signal.label is None else signal.label == node.label
            if own:
                return signal.value
        raise Left(f"'{signal.kind}' cannot leave a value here", node.span, signal)

    # ---- loops

    def for_loop(self, node: n.For, scope: Scope, label: str | None = None) -> Signal | None:
        """Run a ``for`` loop at compile time, within the budget."""
        sequence = self.known(node.sequence, scope, "what a loop runs over")
        found = self.items(sequence, node)
        budget = self.session.budget
        weight = budget.weight(node)
        for index, value in enumerate(found):
            budget.turn(index + 1, node.span, weight)
            signal = self.for_body(node, scope, value, Value(U16, index & 0xFFFF))
            if signal is not None and (signal := self._after(signal, label)) is not None:
                return None if signal.kind == "end" else signal
        return None

    def for_body(self, node: n.For, scope: Scope, value: Any, index: Any) -> Signal | None:
        """Run one iteration of a ``for``."""
        inner = Scope(scope.module, scope)
        if node.item != "_":
            inner.names[node.item] = ComptimeVariable(value.type, value, True, node.item, self.depth)
        if node.index is not None and node.index != "_":
            inner.names[node.index] = ComptimeVariable(index.type, index, True, node.index, self.depth)
        return self.execute(node.body, inner)

    def items(self, sequence: Any, node: n.For) -> Any:
        """Return the values that a loop runs over, one after the other."""
        sequence = uniform(sequence, self.level)
        if isinstance(sequence.type, RangeType):
            return (Value(sequence.type.element, number) for number in self.numbers(sequence, node))
        if isinstance(sequence.type, ArrayType):
            return (Value(sequence.type.element, entry) for entry in sequence.data)
        if isinstance(sequence.data, Pointer) and isinstance(sequence.data.target, ComptimeVariable):
            return self.items(self.read(sequence.data.target, node.span), node)
        if isinstance(sequence.data, Struct) and sequence.data.is_tuple:
            return list(sequence.data.fields.values())
        raise Fault(f"a loop runs over a range or an array, not over {sequence.type}", node.sequence.span)

    def numbers(self, sequence: Value, node: n.For) -> range:
        """Return the numbers of a known range."""
        parts: Range = sequence.data
        known = [uniform(part, self.level) for part in (parts.start, parts.stop, parts.step)]
        if known[2].data == 0:
            raise Fault("the step of the range is 0", node.sequence.span)
        return range(known[0].data, known[1].data, known[2].data)

    def while_loop(self, node: n.While, scope: Scope, label: str | None = None) -> Signal | None:
        """Run a ``while`` loop at compile time, within the budget."""
        turns, budget = 0, self.session.budget
        weight = budget.weight(node)
        while self.decided(node.condition, scope):
            turns += 1
            budget.turn(turns, node.span, weight)
            signal = self.execute(node.body, scope)
            if signal is not None and (signal := self._after(signal, label)) is not None:
                return None if signal.kind == "end" else signal
            if node.step is not None:
                self.execute(node.step, scope)
        return None

    def _after(self, signal: Signal, label: str | None) -> Signal | None:
        """Return what becomes of a signal at the end of an iteration: None to go on, "end" to stop, or the signal."""
        if signal.label is None or signal.label == label:
            if signal.kind == "continue":
                return None
            if signal.kind == "break":
                return Signal("end")
        return signal

    # ---- assignment

    def _assign(self, node: n.Assign, scope: Scope) -> None:
        target = node.target
        if isinstance(target, n.Name):
            if target.name == "_" and scope.find("_") is None:
                self.expr(node.value, scope)
                return
            cell = scope.find(target.name)
            if cell.__class__ is ComptimeVariable:
                self._assign_cell(cell, node, scope)
                return
        get, put = self.target(target, scope)
        value = self.known(node.value, scope, "the value")
        if node.op != "=":
            value = self.combine(node, get(), value)
        put(value)

    def combine(self, node: n.Assign, old: Any, value: Any) -> Any:
        """Return what a compound assignment stores."""
        op = node.op[:-1]
        if old.__class__ is Value and value.__class__ is Value:
            return self.fold(op, old, value, node.span)
        return self._mixed(op, old, value, node)

    def _assign_cell(self, cell: ComptimeVariable, node: n.Assign, scope: Scope) -> None:
        if cell.const:
            raise Fault(f"'{cell.name}' is a const; it cannot change", node.span)
        value = self.known(node.value, scope, "the value")
        if node.op != "=":
            value = self.combine(node, self.read(cell, node.target.span), value)
        self.store(cell, self.convert(value, cell.type, node.value.span, "the value"))

    def store(self, cell: ComptimeVariable, value: Any) -> None:
        """Give a variable a new value."""
        if cell.level < self.depth:
            raise Carried(cell.name)
        cell.value = value if value.__class__ is LaneValue else copied(value)

    def target(self, node: n.SyntaxNode, scope: Scope) -> tuple[Callable[[], Any], Callable[[Any], None]]:
        """Return functions that read and write what an assignment stores to."""
        if isinstance(node, n.Name):
            cell = scope.find(node.name)
            if isinstance(cell, ComptimeVariable):
                if cell.const:
                    raise Fault(f"'{cell.name}' is a const; it cannot change", node.span)
                return lambda: self.read(cell, node.span), lambda value: self.store(
                    cell, self.convert(value, cell.type, node.span)
                )
            if cell is None:
                self.name(node, scope)
                raise Fault(f"'{node.name}' cannot be changed at compile time", node.span)
        if isinstance(node, n.Deref):
            pointer = self.known(node.base, scope, "a pointer")
            if isinstance(pointer.data, Pointer) and isinstance(pointer.data.target, ComptimeVariable):
                return self._pointed(pointer.data, node)
            raise Fault("a store to memory is not done at compile time", node.span)
        if isinstance(node, n.Index):
            return self._element_target(node, scope)
        if isinstance(node, n.FieldAccess) or (isinstance(node, n.Builtin) and node.name == "@field"):
            return self._field_target(node, scope)
        raise Fault("this cannot be assigned to", node.span)

    def _pointed(self, pointer: Pointer, node: n.SyntaxNode) -> tuple[Callable[[], Any], Callable[[Any], None]]:
        cell = pointer.target
        assert isinstance(cell, ComptimeVariable)
        if pointer.offset is None:
            return lambda: self.read(cell, node.span), lambda value: self.store(
                cell, self.convert(value, cell.type, node.span)
            )
        return self._slot(cell, pointer.offset, node)

    def _slot(
        self, cell: ComptimeVariable, offset: int, node: n.SyntaxNode
    ) -> tuple[Callable[[], Any], Callable[[Any], None]]:
        array = self.read(cell, node.span)
        kind = array.type.element

        def put(value: Any) -> None:
            if cell.level < self.depth:
                raise Carried(cell.name)
            array.data[offset] = uniform(self.convert(value, kind, node.span), self.level).data

        return lambda: Value(kind, array.data[offset]), put

    def _pointer(self, node: n.SyntaxNode, scope: Scope) -> Any:
        """Return the pointer to a variable of the evaluation that a name or field holds, or None."""
        root = node
        while isinstance(root, n.FieldAccess):
            root = root.base
        if not isinstance(root, n.Name) or not isinstance(scope.find(root.name), ComptimeVariable):
            return None
        value = self.expr(node, scope)
        if not isinstance(value.type, PointerType) or value.__class__ is not Value:
            return None
        if not isinstance(value.data, Pointer) or not isinstance(value.data.target, ComptimeVariable):
            raise Fault("a store to memory is not done at compile time", node.span)
        if value.type.const:
            raise Fault(f"a {value.type} does not let its target change", node.span)
        return value

    def _slot_behind(
        self, pointer: Any, node: n.Index, scope: Scope
    ) -> tuple[Callable[[], Any], Callable[[Any], None]]:
        """Return functions that read and write an element behind a pointer ``[*]T``."""
        cell, first = pointer.data.target, pointer.data.offset or 0
        subscripts = [self.scalar(entry, scope, "an index") for entry in node.subscripts]
        kind = self.read(cell, node.span).type
        count = kind.count if isinstance(kind, ArrayType) else 1
        place = first + subscripts[0].data
        if len(subscripts) != 1 or not 0 <= place < count or not isinstance(kind, ArrayType):
            raise Fault(f"index {subscripts[0].data} is outside of the {kind} that this points to", node.span)
        return self._slot(cell, place, node)

    def _element_target(self, node: n.Index, scope: Scope) -> tuple[Callable[[], Any], Callable[[Any], None]]:
        if isinstance(node.base, n.Name) and isinstance(cell := scope.find(node.base.name), ComptimeVariable):
            value = self.read(cell, node.span)
            if isinstance(value.type, ArrayType):
                if cell.const:
                    raise Fault(f"'{cell.name}' is a const; it cannot change", node.span)
                subscripts = [self.scalar(entry, scope, "an index") for entry in node.subscripts]
                return self._slot(cell, self.offset(node, value.type, subscripts), node)
        if (pointer := self._pointer(node.base, scope)) is not None and pointer.type.many:
            return self._slot_behind(pointer, node, scope)
        get, put = self.target(node.base, scope)
        array = get()
        if not isinstance(array.type, ArrayType):
            raise Fault(f"a {array.type} has no elements", node.span)
        offset = self.offset(node, array.type, [self.scalar(entry, scope, "an index") for entry in node.subscripts])

        def change(value: Any) -> None:
            new = copied(get())
            new.data[offset] = uniform(self.convert(value, array.type.element, node.span), self.level).data
            put(new)

        return lambda: Value(array.type.element, array.data[offset]), change

    def _field_target(self, node: Any, scope: Scope) -> tuple[Callable[[], Any], Callable[[Any], None]]:
        if isinstance(node, n.FieldAccess):
            base, name = node.base, node.name
        else:
            base, name = node.arguments[0], self.text(node.arguments[1], scope, "a field's name")
        pointer = self._pointer(base, scope)
        if pointer is None or pointer.type.many:
            get, put = self.target(base, scope)
        else:
            get, put = self._pointed(pointer.data, node)
        old = get()
        if not isinstance(old.data, Struct) or name not in old.data.fields:
            raise Fault(f"a {old.type} has no field '{name}'", node.span)

        def change(value: Any) -> None:
            fields = dict(get().data.fields)
            fields[name] = self.convert(value, fields[name].type, node.span)
            put(Value(old.type, Struct(fields, old.data.is_tuple)))

        return lambda: old.data.fields[name], change


def is_nothing(value: Any) -> bool:
    """Whether a statement may leave a value unused: one of type void, or the type itself, as in ``else => void``."""
    return value.type == VOID or (value.type == TYPE and getattr(value, "data", None) == VOID)
