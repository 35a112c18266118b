"""The evaluator's base asks for values, and refuses what is not known at compile time.

The methods `run_*` stand for what happens at run time: here they refuse, the checker makes code of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fabric.csl import tree
from fabric.csl.comptime import lanes
from fabric.csl.comptime.convert import coerce, mismatch
from fabric.csl.comptime.lanes import POISON, Carried, LaneValue, Level, uniform
from fabric.csl.comptime.session import CompilerSession
from fabric.csl.comptime.values import ComptimeVariable, Global, Scope, Struct, Value, shown
from fabric.csl.diagnostics import Fault, Report, Span
from fabric.csl.syntax import nodes as n
from fabric.csl.types import (
    BOOL,
    COMPTIME_STRUCT,
    TYPE,
    ArrayType,
    DsdType,
    IdType,
    IntType,
    StructType,
    Type,
    named_type,
)
from fabric.csl.types.rules import is_integer, is_number

if TYPE_CHECKING:
    from fabric.csl.comptime.builtins.operations import Operation

__all__ = ["Asking", "has_run"]


class Asking(ABC):
    """`Asking` asks expressions for their values; a mix-in of `fabric.csl.comptime.interpreter.Interpreter`."""

    session: CompilerSession
    unit: Any
    level: Level | None = None
    depth = 0
    builtins: dict[str, Any]
    report: Report
    _forms: dict[type, Callable[[Any, Scope], Any]]

    @property
    def place(self) -> str:
        """The code that is evaluated stands in a layout, in comptime code of a program, or in run-time code."""
        return "layout" if self.unit.kind == "layout" else "setup"

    # ---- what comes from other parts

    @abstractmethod
    def call(self, node: n.Call, scope: Scope) -> Any:
        """Return the result of a call."""

    @abstractmethod
    def switch_value(self, node: n.Switch, scope: Scope) -> Any:
        """Return the value of a switch."""

    @abstractmethod
    def block_value(self, node: n.BlockExpr, scope: Scope) -> Any:
        """Return the value of a block."""

    @abstractmethod
    def resolve(self, entry: Global, span: Span) -> Any:
        """Return the operand of a global."""

    @abstractmethod
    def variable_of(self, entry: Global, span: Span) -> tree.Variable:
        """Return the memory of a global."""

    # ---- asking for more than an operand

    def expr(self, node: n.SyntaxNode, scope: Scope) -> Any:
        """Return the operand that an expression gives."""
        return self._forms[node.__class__](node, scope)

    def known(self, node: n.SyntaxNode, scope: Scope, what: str = "this") -> Any:
        """Return an operand that is known, all lanes included."""
        value = self.expr(node, scope)
        if isinstance(value, tree.Expr):
            return self.settle(value, node.span, what)
        return value

    def settle(self, value: tree.Expr, span: Span, what: str) -> Any:
        """Return the value of a run-time expression that is known after all, or refuse it."""
        if isinstance(value, tree.Const):
            return value.value
        place = value.place if isinstance(value, tree.Load) else None
        variable = place.variable if isinstance(place, tree.VariablePlace) else None
        if isinstance(variable, tree.Variable) and isinstance(variable.type, DsdType):
            return variable.initial
        name = f"the value of var '{variable.name}'" if variable is not None else what
        raise Fault(f"{name} is not known at compile time", span)

    def scalar(self, node: n.SyntaxNode, scope: Scope, what: str = "this") -> Value:
        """Return a known operand that is the same for all lanes."""
        value = uniform(self.known(node, scope, what), self.level)
        if value is None:
            raise Fault(f"{what} is needed here, not what this is a part of", node.span)
        return value

    def type(self, node: n.SyntaxNode, scope: Scope) -> Type:
        """Return the type that an expression stands for; a variable named like a type does not hide it here."""
        plain = named_type(node.name) if isinstance(node, n.Name) else None
        if plain is not None:
            assert isinstance(node, n.Name)
            known = not isinstance(plain, IntType) or plain.bits in (8, 16, 32, 64)
            self.session.dialect.use(node.name if known else "an integer of this width", node.span)
            return plain
        value = self.scalar(node, scope, "a type")
        if value.type != TYPE:
            raise Fault(f"a type is needed here, not {shown(value)} of type {value.type}", node.span)
        return value.data

    def number(self, node: n.SyntaxNode, scope: Scope, what: str, type: Type | None = None) -> int:
        """Return a known integer."""
        value = self.scalar(node, scope, what)
        if not is_integer(value.type):
            raise Fault(f"{what} must be an integer, not {value.type}", node.span)
        return coerce(value, type, node.span, what).data

    def text(self, node: n.SyntaxNode, scope: Scope, what: str) -> str:
        """Return a known string."""
        value = self.scalar(node, scope, what)
        if value.data.__class__ is not str:
            raise Fault(f"{what} must be a string, not {value.type}", node.span)
        return value.data

    def truth(self, node: n.SyntaxNode, scope: Scope) -> Any:
        """Return a condition as a bool, or as an expression of type bool."""
        value = self.expr(node, scope)
        if value.type != BOOL:
            hint = "compare with 0" if is_number(value.type) else None
            raise Fault(f"a condition must be a bool, not {value.type}", node.span, hint)
        if isinstance(value, tree.Expr):
            return value
        return uniform(value, self.level).data

    def convert(self, value: Any, target: Type | None, span: Span, what: str = "this") -> Any:
        """Return an operand as one of a type, where that happens by itself."""
        if target is None or value.type == target:
            return value
        if target.__class__ is IdType and str(value.type) == "color" and str(target) == "local_task_id":
            return self._task_of_color(value, target, span, what)
        if value.__class__ is Value:
            if value.data.__class__ is Struct and target == COMPTIME_STRUCT:
                return value
            if value.data.__class__ is Struct:
                if isinstance(target, StructType):
                    self.session.dialect.use("an anonymous struct for a named one", span)
                value = self._uniform_fields(value)
                if isinstance(target, (ArrayType, StructType)) and has_run(value):
                    return self.run_struct(value.data, target, span)
            return coerce(value, target, span, what)
        if value.__class__ is LaneValue:
            assert self.level is not None
            if is_integer(value.type):
                found = lanes.converted(value, target, self.level, wraps=False)
                if found is not None:
                    return found
            return coerce(uniform(value, self.level), target, span, what)
        return self.run_convert(value, target, span, what)

    def _task_of_color(self, value: Any, target: Type, span: Span, what: str) -> Any:
        """Return the id of the local task that has the number of a color, as programs before SDK 1.0 start it."""
        if self.session.machine["task.by_queue"]:
            raise mismatch(value, target, span, what)
        self.session.dialect.use("a color for the id of a local task", span)
        if isinstance(value, tree.Expr):
            return self.run_bitcast(value, target, span)
        return Value(target, uniform(value, self.level).data)

    def _uniform_fields(self, value: Value) -> Value:
        fields = {name: uniform(item, self.level) for name, item in value.data.fields.items()}
        return Value(value.type, Struct(fields, value.data.is_tuple))

    def read(self, cell: ComptimeVariable, span: Span) -> Any:
        """Return the value of a variable at compile time."""
        value = cell.value
        if value is None:
            raise Fault(f"'{cell.name}' has no value yet", span)
        if value is POISON:
            raise Carried(cell.name)
        return value

    def check_rank(self, node: n.Index, kind: ArrayType) -> None:
        """Refuse a wrong number of subscripts."""
        given, wanted = len(node.subscripts), len(kind.dims)
        if given != wanted:
            raise Fault(f"{given} subscripts for {kind}, which has {wanted} dimensions", node.span)

    # ---- what happens at run time: refused here, made into code by the checker

    def run_load(self, place: tree.Lvalue, span: Span) -> Any:
        """Return the value at a place."""
        return tree.Load(place.type, span, place)

    def run_element(self, node: n.Index, scope: Scope, base: Any, subscripts: list[Any]) -> Any:
        """Return an element of an array in memory."""
        if isinstance(base, tree.Load) and isinstance(base.type, ArrayType):
            self.check_rank(node, base.type)
            operands = tuple(self.as_expr(s, at.span) for s, at in zip(subscripts, node.subscripts, strict=True))
            return tree.Load(
                base.type.element, node.span, tree.Element(base.type.element, node.span, base.place, operands)
            )
        raise Fault("an element of run-time data is not known at compile time", node.span)

    def as_expr(self, value: Any, span: Span) -> tree.Expr:
        """Return an operand as an expression of the run-time tree."""
        if isinstance(value, tree.Expr):
            return value
        return tree.Const(value.type, span, uniform(value, self.level))

    def refuse(self, span: Span) -> Fault:
        """Return the fault for a value that is needed at compile time."""
        return Fault("this is not known at compile time", span)

    def run_unary(self, node: n.Unary, value: tree.Expr) -> Any:
        """Return a prefix operator on a run-time value."""
        raise self.refuse(node.span)

    def run_binary(self, op: str, left: Any, right: Any, span: Span) -> Any:
        """Return an operator on operands not all of which are known."""
        at = left if isinstance(left, tree.Expr) else right
        self.settle(at, at.span, "an operand")
        raise self.refuse(span)

    def run_convert(self, value: tree.Expr, target: Type, span: Span, what: str) -> Any:
        """Return a run-time value as one of a type."""
        if value.type == target:
            return self.settle(value, value.span, what)
        raise mismatch(value, target, span, what)

    def run_cast(self, value: tree.Expr, target: Type, span: Span) -> Any:
        """Return what `@as` makes of a run-time value."""
        raise self.refuse(span)

    def run_select(self, node: n.IfExpr, condition: tree.Expr, then: Any, otherwise: Any) -> Any:
        """Return an `if` as a value."""
        raise self.refuse(node.span)

    def run_member(self, base: tree.Expr, name: str, span: Span) -> Any:
        """Return a field of a run-time struct."""
        raise self.refuse(span)

    def run_address(self, place: tree.Lvalue, span: Span) -> Any:
        """Return the address of a place that is not known."""
        raise self.refuse(span)

    def run_bitcast(self, value: tree.Expr, target: Type, span: Span) -> Any:
        """Return what `@bitcast` makes of a run-time value."""
        raise self.refuse(value.span)

    def run_pointer(self, value: tree.Expr, target: Type, span: Span) -> Any:
        """Return what `@ptrcast` makes of a run-time pointer."""
        raise self.refuse(value.span)

    def run_operation(self, row: Operation, node: n.Builtin, scope: Scope) -> Any:
        """Return what a vector operation becomes at run time; the evaluator refuses it."""
        raise self.refuse(node.span)

    def run_map(self, node: n.Builtin, scope: Scope) -> Any:
        """Return what a `@map` becomes at run time; the evaluator refuses it."""
        raise self.refuse(node.span)

    def run_dfilt(self, node: n.Builtin, scope: Scope) -> Any:
        """Return what a `@dfilt` becomes at run time; the evaluator refuses it."""
        raise self.refuse(node.span)

    def run_builtin(
        self, node: n.Builtin, arguments: tuple[Any, ...], type: Type, options: dict[str, Any] | None = None
    ) -> Any:
        """Return a builtin that is done at run time."""
        for argument in (*arguments, *(options or {}).values()):
            if isinstance(argument, tree.Expr):
                self.settle(argument, argument.span, "an argument")
        raise Fault(f"{node.name} is not done at compile time", node.span)

    def run_init(self, node: n.Init, kind: Type, body: Value) -> Any:
        """Return a literal with run-time parts."""
        raise self.refuse(node.span)

    def run_struct(self, struct: Struct, kind: ArrayType | StructType, span: Span) -> Any:
        """Return an anonymous struct with run-time parts as one of a type."""
        raise self.refuse(span)


def has_run(value: Any) -> bool:
    """Whether a part of a struct is known at run time only."""
    if isinstance(value, tree.Expr):
        return True
    return isinstance(value, Value) and isinstance(value.data, Struct) and any(map(has_run, value.data.fields.values()))
