"""Run-time values are checked: their conversions, operators and places become typed nodes, the counterpart of what the
evaluator folds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard, cast

from fabric.csl import tree
from fabric.csl.comptime.convert import check_fields, mismatch
from fabric.csl.comptime.interpreter import Interpreter
from fabric.csl.comptime.numbers import COMPARISONS
from fabric.csl.comptime.statements import valued
from fabric.csl.comptime.values import ComptimeVariable, Pointer, Scope, Struct, Value
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.syntax import nodes as n
from fabric.csl.tree import Const, Convert, Deref, Element, Expr, Load, Local, Member, VariablePlace
from fabric.csl.types import (
    BOOL,
    COMPTIME_FLOAT,
    COMPTIME_INT,
    F32,
    I16,
    ArrayType,
    BoolType,
    DsdType,
    EnumType,
    FloatType,
    FnType,
    IdType,
    IntType,
    PointerType,
    StructType,
    Type,
)
from fabric.csl.types.rules import common, is_integer, is_number, widens

__all__ = ["RunTimeValues", "giving", "root_of"]

LITERALS = (COMPTIME_INT, COMPTIME_FLOAT)


class RunTimeValues(Interpreter):
    """`RunTimeValues` checks expressions over values that are not known; a mix-in of
    `fabric.csl.check.checker.Checker`.
    """

    forced = 0
    trying = 0
    """Calls of inline functions that are evaluated to see whether they give a value and do nothing else."""
    """How many reasons there are to need known values at the moment."""

    # ---- knowing

    @property
    def place(self) -> str:
        if self.trying:
            return "value"
        return super().place if self.forced else "run"

    def known(self, node: n.SyntaxNode, scope: Scope, what: str = "this") -> Any:
        self.forced += 1
        try:
            return super().known(node, scope, what)
        finally:
            self.forced -= 1

    def _begin(self, entry: Any, span: Span) -> None:
        before, self.forced, self.trying = (self.forced, self.trying), 1, 0
        try:
            super()._begin(entry, span)
        finally:
            self.forced, self.trying = before

    def as_expr(self, value: Any, span: Span) -> Expr:
        if _is_literal_choice(value):
            return self._typed_select(value, I16 if value.type == COMPTIME_INT else F32)
        if isinstance(value, Expr):
            return value
        if value.type == COMPTIME_INT:
            value = self.convert(value, I16, span)
        elif value.type == COMPTIME_FLOAT:
            value = self.convert(value, F32, span)
        return Const(value.type, span, value)

    # ---- conversions

    def run_convert(self, value: Expr, target: Type, span: Span, what: str) -> Any:
        if value.type == target or str(target) == "anytype":
            return value
        if self.forced:
            return super().run_convert(value, target, span, what)
        if is_number(target) and _is_literal_choice(value):
            return self._typed_select(value, target)
        if widens(value.type, target):
            kind = "pointer" if isinstance(target, PointerType) else "as"
            if kind == "as":
                self.session.dialect.use("an implicit conversion to a wider type", span)
            return Convert(target, span, kind, value)
        raise mismatch(value, target, span, what)

    def _each(self, choice: tree.Select, change: Callable[[Value], Value]) -> tree.Select:
        """Return a choice between literals, each changed in one way."""
        sides: list[Any] = [
            change(x.value) if isinstance(x, Const) else self._each(cast("tree.Select", x), change)
            for x in (choice.then, choice.otherwise)
        ]
        spans = [choice.then.span, choice.otherwise.span]
        return self._literals(self.peer(sides, spans, "the branches"), choice.span, choice.condition, sides, spans)

    def _typed_select(self, choice: tree.Select, target: Type) -> tree.Select:
        """Return a choice between literals, which take the type that is asked for."""
        a, b = (
            self.as_expr(self.convert(x.value if isinstance(x, Const) else x, target, x.span), x.span)
            for x in (choice.then, choice.otherwise)
        )
        return tree.Select(target, choice.span, choice.condition, a, b)

    def run_cast(self, value: Expr, target: Type, span: Span) -> Any:
        if self.forced:
            return super().run_cast(value, target, span)
        source = value.type
        if source == target:
            return value
        plain = (IntType, FloatType, BoolType, EnumType)
        if isinstance(source, plain) and isinstance(target, plain):
            if isinstance(source, EnumType) and isinstance(target, (FloatType, EnumType)):
                raise mismatch(value, target, span, "the value")
            return Convert(target, span, "as", value)
        if target in LITERALS:
            raise Fault(f"a value that is known at run time only cannot be a {target}", span)
        return self.run_convert(value, target, span, "the value")

    def run_bitcast(self, value: Expr, target: Type, span: Span) -> Any:
        if self.forced:
            return super().run_bitcast(value, target, span)
        sizes = [self._bits(value.type), self._bits(target)]
        if StructType in (type(value.type), type(target)):
            return self._bits_of_struct(value, target, span)
        if 0 in sizes:
            raise Fault(f"the bits of a {value.type} mean nothing as {target}", span)
        if sizes[0] != sizes[1]:
            raise Fault(f"{value.type} has {sizes[0]} bits and {target} has {sizes[1]}", span)
        return Convert(target, span, "bitcast", value)

    def _bits_of_struct(self, value: Expr, target: Type, span: Span) -> Any:
        """Return a packed struct as a number, or a number as a packed struct: the words in memory are the same."""
        sizes = [
            16 * (kind.words or 0) if isinstance(kind, StructType) and kind.packing == "packed" else self._bits(kind)
            for kind in (value.type, target)
        ]
        if 0 in sizes or sizes[0] != sizes[1]:
            raise Fault(f"the bits of a {value.type} mean nothing as {target}", span, "packed structs of equal size do")
        return Convert(target, span, "bitcast", value)

    def _bits(self, kind: Type) -> int:
        """Return the width of a type whose bits can be looked at, else 0."""
        if isinstance(kind, (IntType, FloatType)):
            return kind.bits
        if isinstance(kind, EnumType):
            return kind.base.bits
        return 16 if isinstance(kind, (IdType, PointerType)) else 0

    def run_pointer(self, value: Expr, target: Type, span: Span) -> Any:
        if self.forced:
            return super().run_pointer(value, target, span)
        return Convert(target, span, "pointer", value)

    # ---- operators

    def run_unary(self, node: n.Unary, value: Expr) -> Any:
        if self.forced:
            self.settle(value, node.span, "an operand")
        if _is_literal_choice(value):
            return self._each(value, lambda entry: Value(entry.type, -entry.data))
        return tree.Unary(value.type, node.span, node.op, value)

    def run_binary(self, op: str, left: Any, right: Any, span: Span) -> Any:
        if self.forced:
            return super().run_binary(op, left, right, span)
        if op in ("and", "or"):
            a, b = (Value(BOOL, x) if isinstance(x, bool) else x for x in (left, right))
            return tree.Binary(BOOL, span, op, self.as_expr(a, span), self.as_expr(b, span))
        if op in ("<<", ">>"):
            return self._shift(op, left, right, span)
        if _is_literal_choice(left) and isinstance(right, Value) and right.type in LITERALS:
            return self._each(left, lambda entry: self.fold(op, entry, right, span))
        if _is_literal_choice(right) and isinstance(left, Value) and left.type in LITERALS:
            return self._each(right, lambda entry: self.fold(op, left, entry, span))
        kind = self.meet(op, left, right, span)
        if kind is None:
            if not isinstance(left.type, (PointerType, IdType)) and not isinstance(right.type, PointerType):
                raise Fault(f"'{op}' does not take {left.type} at run time", span)
            kind = common(left.type, right.type) or left.type
        if kind in LITERALS:  # two choices
            kind = I16 if kind == COMPTIME_INT else F32
        a, b = (self.as_expr(self.convert(x, kind, span), span) for x in (left, right))
        if op in ("/", "%") and is_integer(kind) and isinstance(b, Const) and b.value.data == 0:
            raise Fault("division by zero", span)
        return tree.Binary(BOOL if op in COMPARISONS else kind, span, op, a, b)

    def _shift(self, op: str, left: Any, right: Any, span: Span) -> Any:
        if not isinstance(left.type, IntType):
            hint = "give the left side a type: @as(u32, ...)" if left.type == COMPTIME_INT else None
            raise Fault(f"'{op}' needs an integer of fixed width on its left, not {left.type}", span, hint)
        if not is_integer(right.type):
            raise Fault(f"the count of '{op}' must be an integer, not {right.type}", span)
        if isinstance(right, Value):
            if not 0 <= right.data < left.type.bits:
                raise Fault(f"a shift by {right.data} of a {left.type}, which has {left.type.bits} bits", span)
            if right.type == COMPTIME_INT:
                right = Value(IntType(16, False), right.data)
        return tree.Binary(left.type, span, op, self.as_expr(left, span), self.as_expr(right, span))

    def peer(self, values: list[Any], spans: list[Span], what: str) -> Type:
        """Return the type in which alternatives meet; of functions the running program chooses the address."""
        kinds = [PointerType(x.type, True) if isinstance(x.type, FnType) else x.type for x in values]
        kind = kinds[0]
        for value, other, span in zip(values[1:], kinds[1:], spans[1:], strict=True):
            found = common(kind, other)
            if found is None:
                raise Fault(f"{what} have the types {kind} and {value.type}", span)
            kind = found
        return kind

    def _if(self, node: n.IfExpr, scope: Scope) -> Any:
        block = None if self.forced else giving(node)
        return super()._if(node, scope) if block is None else self.block_value(block, scope)

    def run_select(self, node: n.IfExpr, condition: Expr, then: Any, otherwise: Any) -> Any:
        if self.forced:
            self.settle(condition, node.condition.span, "the condition")
        assert node.otherwise is not None
        spans = [node.then.span, node.otherwise.span]
        kind = self.peer([then, otherwise], spans, "the branches")
        if kind in LITERALS:
            return self._literals(kind, node.span, condition, [then, otherwise], spans)
        if kind.words is None and not isinstance(kind, DsdType):
            raise Fault(f"a {kind} cannot be chosen at run time", node.span, "make the condition known")
        a = self.as_expr(self.convert(then, kind, node.then.span), node.then.span)
        b = self.as_expr(self.convert(otherwise, kind, node.otherwise.span), node.otherwise.span)
        return tree.Select(kind, node.span, condition, a, b)

    def _literals(self, kind: Type, span: Span, condition: Expr, values: list[Any], spans: list[Span]) -> tree.Select:
        """Return a choice between literals; what uses it gives it a type."""
        a, b = (
            value if isinstance(value, Expr) else Const(value.type, at, value)
            for value, at in zip(values, spans, strict=True)
        )
        return tree.Select(kind, span, condition, a, b)

    def switch_value(self, node: n.Switch, scope: Scope) -> Any:
        subject = self.expr(node.subject, scope)
        if isinstance(subject, Value) or self.forced:
            return super().switch_value(node, scope)
        self._check_complete(node, subject.type, scope)
        if (block := giving(node)) is not None:
            return self.block_value(block, scope)
        chain: Any = None
        for case in reversed(node.cases):
            body = case.body.value if isinstance(case.body, n.ExprStatement) else case.body
            if not isinstance(case.body, (n.ExprStatement, n.Switch)):
                raise Fault("a branch that gives a value at run time must be an expression", case.span)
            value = self.expr(body, scope)
            if case.values is None or chain is None:
                chain = value
                continue
            for entry in reversed(case.values):
                same = self.run_binary("==", subject, self.scalar(entry, scope, "a case"), entry.span)
                span = case.body.span
                kind = self.peer([value, chain], [span, span], "the branches")
                if kind in LITERALS:
                    chain = self._literals(kind, span, same, [value, chain], [span, span])
                    continue
                a, b = (self.as_expr(self.convert(x, kind, span), span) for x in (value, chain))
                chain = tree.Select(kind, span, same, a, b)
        return chain

    def _check_complete(self, node: n.Switch, kind: Type, scope: Scope) -> None:
        """Refuse a choice of values that has none for some number."""
        if any(case.values is None for case in node.cases):
            return
        given = [self.scalar(entry, scope, "a case") for case in node.cases for entry in case.values or ()]
        numbers = {entry.data for entry in given if isinstance(entry, Value)}
        wanted = {number for _, number in kind.members} if isinstance(kind, EnumType) else {False, True}
        if (not isinstance(kind, EnumType) and kind != BOOL) or wanted - numbers:
            missing = [name for name, number in getattr(kind, "members", ()) if number not in numbers]
            what = f"the switch gives no value for {', '.join(missing)}" if missing else "the switch has no 'else'"
            raise Fault(what, node.span, "else => ...")

    # ---- places

    def materialised(self, value: Value, name: str, span: Span) -> tree.Variable:
        """Return memory that holds a known value."""
        if value.type.words is None:
            raise Fault(f"a {value.type} has no address", span)
        made = tree.Variable(name, value.type, True, value, span)
        self.need(made)
        return made

    def address(self, node: n.SyntaxNode, scope: Scope, span: Span) -> Any:
        if isinstance(node, n.Name) and isinstance(cell := scope.find(node.name), ComptimeVariable) and not self.forced:
            variable = self.held.get(id(cell))
            if variable is None:
                if not cell.const:
                    raise Fault(f"'{node.name}' exists at compile time only; it has no address", span)
                variable = self.held[id(cell)] = self.materialised(self.read(cell, span), cell.name, span)
            return Value(PointerType(variable.type, True), Pointer(variable))
        return super().address(node, scope, span)

    held: dict[int, tree.Variable]
    """Known constants whose address was taken have this memory, by the identity of their cell."""

    def run_address(self, place: tree.Lvalue, span: Span) -> Any:
        if self.forced:
            return super().run_address(place, span)
        root = root_of(place)
        if isinstance(root, VariablePlace) and isinstance(root.variable, Local):
            root.variable.addressed = True
        return tree.AddressOf(PointerType(place.type, place.const), span, place)

    def run_element(self, node: n.Index, scope: Scope, base: Any, subscripts: list[Any]) -> Any:
        operands = [self.as_expr(value, at.span) for value, at in zip(subscripts, node.subscripts, strict=True)]
        kind = base.type
        where: Any
        if isinstance(kind, ArrayType):
            if isinstance(base, Value) and isinstance(kind.element, DsdType):
                where = VariablePlace(kind, node.span, tree.Variable("descriptors", kind, True, base, node.span))
            elif isinstance(base, Value):
                pointer = self.address(node.base, scope, node.span)
                where = VariablePlace(kind, node.span, pointer.data.target)
            else:
                where = base.place if isinstance(base, Load) else base
            return self._checked_element(node, kind, where, operands)
        if isinstance(kind, PointerType) and isinstance(kind.target, ArrayType) and not kind.many:
            where = Deref(kind.target, node.span, self.as_expr(base, node.span))
            return self._checked_element(node, kind.target, where, operands)
        if not isinstance(kind, PointerType) or not kind.many:
            raise Fault(f"a {kind} has no elements", node.span)
        if len(operands) != 1:
            raise Fault(f"a {kind} takes one subscript, not {len(operands)}", node.span)
        target = kind.target
        return Load(target, node.span, Element(target, node.span, self.as_expr(base, node.span), tuple(operands)))

    def _checked_element(self, node: n.Index, kind: ArrayType, where: Any, operands: list[Expr]) -> Load:
        self.check_rank(node, kind)
        for operand, size in zip(operands, kind.dims, strict=True):
            if isinstance(operand, Const) and not 0 <= operand.value.data < size:
                raise Fault(f"index {operand.value.data} is outside of {kind}", operand.span)
        return Load(kind.element, node.span, Element(kind.element, node.span, where, tuple(operands)))

    def run_member(self, base: Expr, name: str, span: Span) -> Any:
        if self.forced:
            return super().run_member(base, name, span)
        kind: Any = base.type
        where: Any = base.place if isinstance(base, Load) else base
        if isinstance(kind, PointerType) and isinstance(kind.target, StructType):
            kind, where = kind.target, Deref(kind.target, span, base)
        if not isinstance(kind, StructType):
            raise Fault(f"a {kind} has no field '{name}'", span)
        found = kind.field(name)
        if found is None:
            names = ", ".join(field for field, _ in kind.fields)
            raise Fault(f"{kind} has no field '{name}'", span, f"its fields: {names}")
        return Load(found, span, Member(found, span, where, name))

    def run_init(self, node: n.Init, kind: Type, body: Value) -> Any:
        if self.forced:
            return super().run_init(node, kind, body)
        fields: dict[str, Any] = body.data.fields
        at = {str(i): x.span for i, x in enumerate(getattr(node.body, "items", ()))}
        if isinstance(kind, ArrayType):
            if len(fields) != kind.count:
                raise Fault(f"{len(fields)} elements for {kind}, which has {kind.count}", node.span)
            items = [
                self.as_expr(self.convert(value, kind.element, at[name], "an element"), at[name])
                for name, value in fields.items()
            ]
            return tree.BuiltinCall(kind, node.span, "array", tuple(items))
        assert isinstance(kind, StructType)
        made = {}
        for name, value in fields.items():
            found = kind.field(name)
            if found is None:
                raise Fault(f"{kind} has no field '{name}'", node.span)
            made[name] = self.as_expr(self.convert(value, found, node.span, f"the field '{name}'"), node.span)
        return tree.BuiltinCall(kind, node.span, "struct", (), made)

    def run_struct(self, struct: Struct, kind: ArrayType | StructType, span: Span) -> Any:
        if self.forced:
            return super().run_struct(struct, kind, span)
        names = list(struct.fields)
        if isinstance(kind, ArrayType) and len(names) != kind.count:
            raise Fault(f"{len(names)} elements for {kind}, which has {kind.count}", span)
        wanted = dict.fromkeys(names, kind.element) if isinstance(kind, ArrayType) else dict(kind.fields)
        for name in names:
            if name not in wanted:
                raise Fault(f"{kind} has no field '{name}'", span)
        if isinstance(kind, StructType):
            check_fields(struct, kind, span)
        made = {
            name: self.as_expr(self.convert(struct.fields[name], wanted[name], span, f"the field '{name}'"), span)
            for name in names
        }
        if isinstance(kind, ArrayType):
            return tree.BuiltinCall(kind, span, "array", tuple(made.values()))
        return tree.BuiltinCall(kind, span, "struct", (), made)

    def run_builtin(
        self, node: n.Builtin, arguments: tuple[Any, ...], type: Type, options: dict[str, Any] | None = None
    ) -> Any:
        if self.forced:
            return super().run_builtin(node, arguments, type, options)
        return tree.BuiltinCall(type, node.span, node.name, arguments, options or {})

    def is_scalar(self, value: Any) -> bool:
        """Whether an operand is one number."""
        return is_number(value.type) or isinstance(value.type, (BoolType, IdType, EnumType))

    def is_options(self, value: Any) -> bool:
        """Whether an operand is a struct of options."""
        return isinstance(value, Value) and isinstance(value.data, Struct)


def root_of(place: Any) -> Any:
    """Return the place that an element or field is a part of."""
    while isinstance(place, (Element, Member)) and isinstance(place.base, tree.Lvalue):
        place = place.base
    return place


def _is_literal_choice(value: Any) -> TypeGuard[tree.Select]:
    """Whether a value is a choice between literals, which has no type of its own yet."""
    return isinstance(value, tree.Select) and value.type in LITERALS


CHOICE = "+choice"
"""Of the block that `giving` makes; no label of a source begins like that."""


def giving(node: n.SyntaxNode) -> n.BlockExpr | None:
    """Return a choice as a block that gives its value, if a branch of it leaves the function or a loop instead."""
    made: n.SyntaxNode
    if isinstance(node, n.Switch) and any(_leaves(case.body) or _is_open(case.body) for case in node.cases):
        made = n.Switch(
            node.subject, [n.Case(x.values, _given(x.body), span=x.span) for x in node.cases], span=node.span
        )
    elif isinstance(node, n.IfExpr) and node.otherwise is not None and any(map(_leaves, (node.then, node.otherwise))):
        made = n.If(node.condition, _given(node.then), _given(node.otherwise), span=node.span)
    else:
        return None
    return n.BlockExpr(CHOICE, n.Block([made], span=node.span), span=node.span)


def _leaves(node: n.SyntaxNode) -> bool:
    """Whether a branch of a choice ends by leaving what is around it."""
    if isinstance(node, n.BlockExpr):
        return node.label is None and _leaves(node.body)
    if isinstance(node, n.Block):
        return bool(node.body) and _leaves(node.body[-1])
    return isinstance(node, (n.Return, n.Continue)) or (isinstance(node, n.Break) and node.value is None)


def _is_open(node: n.SyntaxNode) -> bool:
    """Whether a case is a choice of which one branch gives a value and another one leaves."""
    return isinstance(node, n.If) and node.otherwise is not None


def _given(node: n.SyntaxNode) -> n.SyntaxNode:
    """Return a branch of a choice as a statement that leaves the block around it with the branch's value."""
    if _leaves(node):
        return node.body if isinstance(node, n.BlockExpr) else node
    return n.Break(CHOICE, valued(node), span=node.span)
