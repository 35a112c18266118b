"""Statements of run-time code are translated from the syntax tree to the typed tree.

A statement that is wrong is reported and left out; what it would have declared counts as faulty, so that one mistake
gives one message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fabric.csl import tree
from fabric.csl.check.operations import VectorOperations
from fabric.csl.check.values import giving, root_of
from fabric.csl.comptime.budget import INLINED, check_size
from fabric.csl.comptime.statements import is_nothing
from fabric.csl.comptime.values import FAULTY, NOTHING, ComptimeVariable, Range, Scope, Struct, Value, copied
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.syntax import nodes as n
from fabric.csl.tree import Const, Element, Load, Local, VariablePlace
from fabric.csl.types import (
    BOOL,
    COMPTIME_FLOAT,
    COMPTIME_INT,
    F32,
    I16,
    U16,
    VOID,
    ArrayType,
    DsdType,
    EnumType,
    PointerType,
    RangeType,
    Type,
)

__all__ = ["Around", "RunTimeStatements"]

CHOICES = (n.If, n.Switch, n.For, n.While)
"""Of these statements a known condition may leave only a jump away."""
ROUND = "+"
"""Behind the label of an unrolled loop: the label of each of its rounds."""


@dataclass(frozen=True, slots=True)
class Around:
    """An `Around` is a loop or labelled block that encloses a statement, so that `break` and `continue` can mean it.

    Attributes
    ----------
    label : str or None
        Its label in the source.
    loop : bool
        Whether `break` and `continue` without a label mean it.
    place : str or None
        For a loop whose rounds are written one after the other: the label in the typed tree of the block with all of
        them; that of a round has `ROUND` behind it.
    """

    label: str | None
    loop: bool = True
    place: str | None = None


class RunTimeStatements(VectorOperations):
    """Checks of statements; a mix-in of `fabric.csl.check.checker.Checker`."""

    result: Type = VOID
    loops: list[Around]
    """These loops and labelled blocks enclose the statement at work, the innermost last."""
    givers: list[tuple[str | None, str, list[tuple[tree.Break, Any]]]]
    """These blocks around give a value: their label, the label in the typed tree, and how they were left so far."""
    wanted: Type | None = None
    """The value of a block is needed in this type."""

    def code(self, node: n.SyntaxNode, scope: Scope) -> list[tree.Statement]:
        """Return the code of a statement."""
        return getattr(self, f"_code_{node.__class__.__name__}")(node, scope)

    def body(self, node: n.SyntaxNode, scope: Scope, label: str | None = None) -> tree.Block:
        """Return the code of a body in a scope of its own."""
        inner = Scope(scope.module, scope)
        statements = node.body if isinstance(node, n.Block) else [node]
        found: list[tree.Statement] = []
        for statement in statements:
            try:
                code = self.code(statement, inner)
            except Fault as fault:
                self.report.fault(fault)
                if isinstance(statement, n.VarDecl):
                    inner.names.setdefault(statement.name, FAULTY)
                continue
            found += code
            if isinstance(statement, CHOICES) and _leaves(code):
                break  # a known condition ends the body here; what follows is as little analysed as a branch not taken
        return tree.Block(node.span, found, label)

    def _code_Block(self, node: n.Block, scope: Scope) -> list[tree.Statement]:
        return [self.body(node, scope)]

    def _code_ComptimeBlock(self, node: n.ComptimeBlock, scope: Scope) -> list[tree.Statement]:
        self.forced += 1
        try:
            self.block(node.body, scope)
        finally:
            self.forced -= 1
        return []

    # ---- declarations

    def _code_VarDecl(self, node: n.VarDecl, scope: Scope) -> list[tree.Statement]:
        if node.comptime:
            self._declare(node, scope)
            return []
        kind = self.type(node.type, scope) if node.type is not None else None
        if node.begins_with is None or node.value is None:
            if kind is None:
                raise Fault(f"'{node.name}' has neither type nor value", node.span)
            return [tree.Declare(node.span, self._local(node, kind, scope), None)]
        value = self.needed(node.value, scope, kind)
        value = self.convert(value, kind, node.value.span, f"the value of '{node.name}'")
        if node.kind == "const" and isinstance(value, Value):
            self.declare(scope, node, ComptimeVariable(kind or value.type, copied(value), True, node.name))
            return []
        if value.type in (COMPTIME_INT, COMPTIME_FLOAT):
            found = I16 if value.type == COMPTIME_INT else F32
            hint = f"write var {node.name}: {found} = ..."
            self.report.warn(f"'{node.name}' has no type; {found} is taken", node.span, hint)
            value = self.convert(value, found, node.value.span)
        if value.type == VOID:
            raise Fault(f"'{node.name}' would be void", node.value.span)
        return [tree.Declare(node.span, self._local(node, value.type, scope), self.as_expr(value, node.value.span))]

    def _local(self, node: n.VarDecl, kind: Type, scope: Scope) -> Local:
        if kind.words is None and not isinstance(kind, DsdType):
            hint = "use const" if node.kind == "var" else None
            raise Fault(f"a {kind} exists at compile time only; '{node.name}' cannot hold one", node.span, hint)
        check_size(kind, True, node.span)
        made = Local(node.name, kind, node.kind == "const", node.span)
        self.declare(scope, node, made)
        return made

    # ---- simple statements

    def _code_ExprStatement(self, node: n.ExprStatement, scope: Scope) -> list[tree.Statement]:
        if isinstance(node.value, n.IfExpr):
            return [self.body(_without_value(node.value), scope)]
        value = self.expr(node.value, scope)
        if not is_nothing(value) and not isinstance(node.value, n.Builtin):
            if not isinstance(node.value, n.Call):
                raise Fault("the value of this expression is not used", node.span, "assign it to _ if that is meant")
            hint = "assign it to _ if that is meant"
            self.report.warn(f"the result, a {value.type}, is not used", node.span, hint)
        return [] if isinstance(value, Value) else [tree.Evaluate(node.span, value)]

    def _code_Assign(self, node: n.Assign, scope: Scope) -> list[tree.Statement]:
        target = node.target
        if isinstance(target, n.Name):
            found = scope.find(target.name)
            if target.name == "_" and found is None:
                value = self.expr(node.value, scope)
                return [] if isinstance(value, Value) else [tree.Evaluate(node.span, value)]
            if isinstance(found, ComptimeVariable):
                if found.const:
                    raise Fault(f"'{found.name}' is a const; it cannot change", target.span)
                self._assign(node, scope)
                return []
        goal = self.expr(target, scope)
        if not isinstance(goal, Load):
            what = "this cannot be assigned to"
            if isinstance(target, n.Name):
                decl = getattr(scope.module.globals.get(target.name), "decl", None)
                fixed = "param" if isinstance(decl, n.ParamDecl) else getattr(decl, "kind", "")
                is_fixed = fixed in ("const", "param")
                what = f"'{target.name}' is " + (f"a {fixed}; it cannot change" if is_fixed else "not a variable")
            raise Fault(what, target.span)
        place = goal.place
        if place.const:
            name = f"'{target.name}' is a const" if isinstance(target, n.Name) else "this is const"
            raise Fault(f"{name}; it cannot change", target.span)
        value = self.needed(node.value, scope, place.type)
        if node.op == "=":
            value = self.convert(value, place.type, node.value.span, "the value")
            return [tree.Assign(node.span, place, "=", self.as_expr(value, node.value.span))]
        return [tree.Assign(node.span, place, node.op, self._operand(node, goal, value))]

    def _operand(self, node: n.Assign, goal: Load, value: Any) -> tree.Expr:
        """Return the right side of a compound assignment in the type that it is needed in."""
        made = self.run_binary(node.op[:-1], goal, value, node.span)
        if made.type != goal.type:
            raise Fault(f"'{node.op}' would make a {made.type} of a {goal.type}", node.span)
        return made.right

    def _code_Return(self, node: n.Return, scope: Scope) -> list[tree.Statement]:
        if node.value is None:
            if self.result != VOID:
                raise Fault(f"a {self.result} must be returned", node.span)
            return [tree.Return(node.span, None)]
        if self.result == VOID and isinstance(node.value, (n.IfExpr, n.Switch)):
            return [self.body(_without_value(node.value), scope), tree.Return(node.span, None)]
        value = self.needed(node.value, scope, self.result)
        if self.result == VOID and value.type != VOID:
            raise Fault(f"a {value.type} is returned where the result is void", node.value.span)
        value = self.convert(value, self.result, node.value.span, "the result")
        return [tree.Return(node.span, None if value.type == VOID else self.as_expr(value, node.value.span))]

    def _leave(self, node: n.Break | n.Continue, what: str) -> None:
        if not self.loops:
            raise Fault(f"'{what}' stands outside of a loop", node.span)
        if node.label is not None and all(node.label != around.label for around in self.loops):
            raise Fault(f"no loop around has the label '{node.label}'", node.span)

    def _place(self, label: str | None) -> str | None:
        """Return the label in the typed tree of the unrolled loop that a `break` or `continue` means, if it is one."""
        for around in reversed(self.loops):
            if around.loop if label is None else around.label == label:
                return around.place
        return None

    def _code_Break(self, node: n.Break, scope: Scope) -> list[tree.Statement]:
        self._leave(node, "break")
        if node.value is None:
            return [tree.Break(node.span, self._place(node.label) or node.label)]
        for label, name, left in reversed(self.givers):
            if node.label in (None, label):
                made = tree.Break(node.span, name)
                left.append((made, self.expr(node.value, scope)))
                return [made]
        raise Fault("no block around gives a value", node.span)

    def _code_Continue(self, node: n.Continue, scope: Scope) -> list[tree.Statement]:
        self._leave(node, "continue")
        place = self._place(node.label)
        return [tree.Break(node.span, place + ROUND) if place else tree.Continue(node.span, node.label)]

    # ---- choices

    def _code_If(self, node: n.If, scope: Scope) -> list[tree.Statement]:
        condition = self.truth(node.condition, scope)
        if isinstance(condition, bool):
            chosen = node.then if condition else node.otherwise
            return [] if chosen is None else [self.body(chosen, scope)]
        then = self.body(node.then, scope)
        otherwise = None if node.otherwise is None else self.body(node.otherwise, scope)
        return [tree.If(node.span, condition, then, otherwise)]

    def _code_Switch(self, node: n.Switch, scope: Scope) -> list[tree.Statement]:
        subject = self.expr(node.subject, scope)
        if isinstance(subject, Value):
            case = self.chosen(node, subject, scope)
            return [] if case is None else [self.body(case.body, scope)]
        cases: list[tuple[tuple[Const, ...] | None, tree.Block]] = []
        seen: dict[Any, Span] = {}
        for case in node.cases:
            values: list[Const] | None = None
            if case.values is not None:
                values = []
                for entry in case.values:
                    value = self.convert(self.scalar(entry, scope, "a case"), subject.type, entry.span, "the case")
                    if value.data in seen:
                        raise Fault("the switch has this case twice", entry.span)
                    seen[value.data] = entry.span
                    values.append(Const(value.type, entry.span, value))
            cases.append((None if values is None else tuple(values), self.body(case.body, scope)))
        if isinstance(subject.type, EnumType) and all(values is not None for values, _ in cases):
            missing = [name for name, number in subject.type.members if number not in seen]
            if missing:
                raise Fault(f"the switch has no branch for {', '.join(missing)}", node.span, "add it, or an 'else'")
        elif subject.type not in (BOOL,) and all(values is not None for values, _ in cases):
            what = f"for other values of the {subject.type} this switch does nothing"
            self.report.warn(what, node.span, "say so: else => {}; the vendor's compiler may ask for it")
        return [tree.Switch(node.span, subject, cases)]

    # ---- loops

    def _code_Labelled(self, node: n.Labelled, scope: Scope) -> list[tree.Statement]:
        self.session.dialect.use("a label", node.span)
        if isinstance(node.body, n.For):
            return self._code_For(node.body, scope, node.label)
        if isinstance(node.body, n.While):
            return self._code_While(node.body, scope, node.label)
        self.loops.append(Around(node.label, loop=False))
        try:
            return [self.body(node.body, scope, node.label)]
        finally:
            self.loops.pop()

    def _round(self, node: n.SyntaxNode, scope: Scope, label: str | None) -> tree.Block:
        """Return the code of a loop's body."""
        self.loops.append(Around(label))
        try:
            return self.body(node, scope)
        finally:
            self.loops.pop()

    def _code_For(self, node: n.For, scope: Scope, label: str | None = None) -> list[tree.Statement]:
        sequence = self.expr(node.sequence, scope)
        kind = sequence.type
        if isinstance(kind, PointerType) and isinstance(kind.target, ArrayType):
            sequence = self.pointee(sequence, node.sequence.span)
            kind = kind.target
        is_tuple = isinstance(sequence, Value) and isinstance(sequence.data, Struct) and sequence.data.is_tuple
        of_dsds = isinstance(kind, ArrayType) and isinstance(kind.element, DsdType)
        if node.inline or is_tuple or (of_dsds and isinstance(sequence, Value)):
            return self._unrolled(node, scope, sequence, label)
        if not isinstance(kind, (RangeType, ArrayType)):
            raise Fault(f"a loop runs over a range or an array, not over {kind}", node.sequence.span)
        element = kind.element if kind.element != COMPTIME_INT else I16
        inner = Scope(scope.module, scope)
        item = Local(node.item, element, True, node.span)
        index = Local(node.index, U16, True, node.span) if node.index not in (None, "_") else None
        if node.item != "_":
            inner.names[node.item] = item
        if index is not None:
            inner.names[index.name] = index
        if of_dsds:
            return [self._over_dsds(node, sequence, item, index, inner, label)]
        if isinstance(kind, ArrayType):
            array = self._array(node, scope, sequence)
            return [tree.ForArray(node.span, item, index, array, self._round(node.body, inner, label), label)]
        parts: Range = sequence.data
        start, stop, step = (
            part if isinstance(part, tree.Expr) else Const(element, node.sequence.span, Value(element, part.data))
            for part in (parts.start, parts.stop, parts.step)
        )
        if isinstance(step, Const) and step.value.data == 0:
            raise Fault("the step of the range is 0", node.sequence.span)
        if kind.element == COMPTIME_INT and (numbers := self.numbers(sequence, node)):
            for number in (numbers[0], numbers[-1]):
                if not I16.holds(number):
                    hint = "name a type that holds it: @range(i32, ...)"
                    raise Fault(
                        f"{number} does not fit into {I16}, which this loop counts in", node.sequence.span, hint
                    )
        return [tree.ForRange(node.span, item, index, start, stop, step, self._round(node.body, inner, label), label)]

    def _over_dsds(
        self, node: n.For, array: Any, item: Local, index: Local | None, inner: Scope, label: str | None
    ) -> tree.ForRange:
        """Return a loop over descriptors, which are no words to walk over: a count, and the element at it."""
        at, count = node.sequence.span, index or Local("#", U16, True, node.span)
        kind = array.type
        if not isinstance(array, Load) or not isinstance(kind, ArrayType):
            raise Fault("a loop over descriptors needs a variable", at, "var all = [2]mem1d_dsd{ ... };")
        place = Element(item.type, at, array.place, (Load(U16, at, VariablePlace(U16, at, count)),))
        first = tree.Declare(node.span, item, Load(item.type, at, place))
        body = tree.Block(node.span, [first, self._round(node.body, inner, label)])
        start, stop, step = (Const(U16, at, Value(U16, number)) for number in (0, kind.count, 1))
        return tree.ForRange(node.span, count, None, start, stop, step, body, label)

    def _array(self, node: n.For, scope: Scope, sequence: Any) -> tree.Expr:
        """Return the array that a loop runs over, in memory."""
        if isinstance(sequence, tree.Expr):
            return sequence
        variable = self.materialised(sequence, "array", node.sequence.span)
        return Load(variable.type, node.sequence.span, VariablePlace(variable.type, node.sequence.span, variable))

    def _unrolled(self, node: n.For, scope: Scope, sequence: Any, label: str | None) -> list[tree.Statement]:
        if isinstance(sequence, tree.Expr):
            raise Fault("an inline loop must be known at compile time", node.sequence.span)

        def rounds() -> Iterator[tree.Block]:
            for number, value in enumerate(self.items(sequence, node)):
                self.session.budget.turn(number + 1, node.span, INLINED)
                inner = Scope(scope.module, scope)
                inner.names[node.item] = ComptimeVariable(value.type, value, True, node.item)
                if node.index is not None:
                    inner.names[node.index] = ComptimeVariable(U16, Value(U16, number), True, node.index)
                yield self.body(node.body, inner)

        return self._rounds(node, label, rounds())

    def _rounds(self, node: n.For | n.While, label: str | None, rounds: Iterator[tree.Block]) -> list[tree.Statement]:
        """Return the rounds of an unrolled loop, up to one that surely leaves it; blocks have labels if they need."""
        place = f"~{len(self.loops)}"
        self.loops.append(Around(label, place=place))
        found: list[tree.Statement] = []
        used: set[str | None] = set()
        try:
            for block in rounds:
                left = {inner.label for inner in tree.nodes(block) if isinstance(inner, tree.Break)}
                used |= left
                block.label = place + ROUND if place + ROUND in left else None
                found.append(block)
                if block.label is None and _leaves([block]):
                    break
        finally:
            self.loops.pop()
        return [tree.Block(node.span, found, place)] if place in used else found

    def _code_While(self, node: n.While, scope: Scope, label: str | None = None) -> list[tree.Statement]:
        if node.inline:
            return self._rounds(node, label, self._while_rounds(node, scope))
        condition = self.truth(node.condition, scope)
        if condition is False:
            return []
        if condition is True:
            condition = Const(BOOL, node.condition.span, Value(BOOL, True))
        step = self.code(node.step, scope) if node.step is not None else []
        body = self._round(node.body, scope, label)
        return [tree.While(node.span, condition, step[0] if step else None, body, label)]

    def _while_rounds(self, node: n.While, scope: Scope) -> Iterator[tree.Block]:
        """Give the code of each round of an inline loop; its step changes what is known at compile time."""
        turns = 0
        while self.decided(node.condition, scope):
            turns += 1
            self.session.budget.turn(turns, node.span, INLINED)
            yield self.body(node.body, scope)
            if node.step is not None and (step := self.code(node.step, scope)):
                yield tree.Block(node.span, step)

    def block_value(self, node: n.BlockExpr, scope: Scope) -> Any:
        """Return what a block gives: at compile time if that can be, else by code."""
        if not node.body.body:
            return NOTHING
        self.forced += 1
        try:
            return super().block_value(node, scope)
        except Fault:
            if self.forced > 1:
                raise
        finally:
            self.forced -= 1
        return self._given_by(node, scope)

    def needed(self, node: n.SyntaxNode, scope: Scope, kind: Type | None) -> Any:
        """Return the operand that an expression gives where a type is asked for."""
        node = node if self.forced else giving(node) or node
        before, self.wanted = self.wanted, kind if isinstance(node, n.BlockExpr) else None
        try:
            return self.expr(node, scope)
        finally:
            self.wanted = before

    def _given_by(self, node: n.BlockExpr, scope: Scope) -> tree.BlockValue:
        kind, self.wanted = self.wanted, None
        left: list[tuple[tree.Break, Any]] = []
        name = node.label or f"#{len(self.givers)}"
        self.givers.append((node.label, name, left))
        self.loops.append(Around(node.label, loop=False))
        wrong = len(self.report.errors)
        try:
            block = self.body(node.body, scope, name)
        finally:
            self.loops.pop()
            self.givers.pop()
        if not left and len(self.report.errors) > wrong:
            raise Fault(None)
        if not left:
            raise Fault("this block gives no value", node.span, "leave it by 'break' with one")
        spans = [end.span for end, _ in left]
        kind = kind or self.peer([value for _, value in left], spans, "the values of the block")
        kind = I16 if kind == COMPTIME_INT else F32 if kind == COMPTIME_FLOAT else kind
        for end, value in left:
            end.value = self.as_expr(self.convert(value, kind, end.span, "the value of the block"), end.span)
        for inner in tree.nodes(block):  # what is to the left of the block reads the old value: not a register
            local = getattr(root_of(inner.place), "variable", None) if isinstance(inner, tree.Assign) else None
            if isinstance(local, Local) and not isinstance(local.type, DsdType):
                local.addressed = True
        return tree.BlockValue(kind, node.span, block)

    # ---- does it end?

    def ends(self, statements: list[tree.Statement]) -> bool:
        """Whether code surely does not run on past its last statement."""
        for statement in statements:
            if isinstance(statement, tree.Return):
                return True
            if isinstance(statement, tree.Block) and statement.label is None and self.ends(statement.body):
                return True
            blocks: list[tree.Block] = []
            if isinstance(statement, tree.If) and statement.otherwise is not None:
                blocks = [statement.then, statement.otherwise]
            if isinstance(statement, tree.Switch):
                whole = isinstance(statement.subject.type, EnumType) or any(v is None for v, _ in statement.cases)
                blocks = [block for _, block in statement.cases] if whole else []
            if blocks and all(self.ends(block.body) for block in blocks):
                return True
            if isinstance(statement, tree.While) and isinstance(statement.condition, Const):
                return True
            if isinstance(statement, tree.Evaluate) and isinstance(statement.value, tree.BuiltinCall):
                call = statement.value
                if call.name == "@assert" and isinstance(call.arguments[0], Value) and not call.arguments[0].data:
                    return True
        return False


def _leaves(code: list[tree.Statement]) -> bool:
    """Whether code as it stands, under no condition any more, ends with a jump away."""
    if not code:
        return False
    last = code[-1]
    if isinstance(last, tree.Block):
        return last.label is None and _leaves(last.body)
    return isinstance(last, (tree.Return, tree.Break, tree.Continue))


def _without_value(node: n.SyntaxNode) -> n.SyntaxNode:
    """Return the statement that does what an expression says whose value is void."""
    if isinstance(node, n.Switch):
        return node
    if not isinstance(node, n.IfExpr):
        return n.ExprStatement(node, span=node.span)
    otherwise = None if node.otherwise is None else _without_value(node.otherwise)
    return n.If(node.condition, _without_value(node.then), otherwise, span=node.span)
