"""The evaluator: from an expression of the tree to an operand (see `values`).

What is known is computed here.  What is not is handed to the methods `run_*`, which refuse in this class and make code
in `fabric.csl.check.checker.Checker`, so that names, fields, builtins and conversions mean the same at both times.
Places are in `places`, statements in `statements`, calls in `calls`, loops of layouts in `loops`, globals in `globals`,
builtins in `builtins`.
"""

from __future__ import annotations

from typing import Any

from fabric.csl import tree
from fabric.csl.comptime import lanes
from fabric.csl.comptime.asking import has_run
from fabric.csl.comptime.budget import check_parts
from fabric.csl.comptime.convert import cast, coerce
from fabric.csl.comptime.lanes import LaneValue, uniform
from fabric.csl.comptime.names import CONSTANTS, closest
from fabric.csl.comptime.numbers import COMPARISONS, calculate, compare
from fabric.csl.comptime.places import Places
from fabric.csl.comptime.session import CompilerSession
from fabric.csl.comptime.values import (
    FAULTY,
    NOTHING,
    ComptimeVariable,
    FunctionValue,
    Pointer,
    Scope,
    Struct,
    Value,
    boolean,
    integer,
    of_type,
    string,
)
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.syntax import nodes as n
from fabric.csl.types import (
    BOOL,
    COMPTIME_FLOAT,
    COMPTIME_INT,
    COMPTIME_STRUCT,
    MODULE,
    TYPE,
    VOID,
    ArrayType,
    BoolType,
    EnumType,
    FnType,
    IdType,
    IntType,
    PointerType,
    StructType,
    Type,
    named_type,
)
from fabric.csl.types.rules import common, is_float, is_integer, is_number

__all__ = ["Expressions"]


class Expressions(Places):
    """`Expressions` evaluates expressions; a mix-in of `fabric.csl.comptime.interpreter.Interpreter`."""

    def __init__(self, session: CompilerSession, unit: Any) -> None:
        self.session = session
        self.report = session.report
        self.unit = unit
        self._forms = {
            n.Name: self.name,
            n.Int: self._int,
            n.Float: self._float,
            n.String: lambda node, scope: string(node.value),
            n.Unary: self._unary,
            n.Binary: self._binary,
            n.Comptime: self._comptime,
            n.IfExpr: self._if,
            n.Switch: self.switch_value,
            n.BlockExpr: self.block_value,
            n.Block: self._block,
            n.Access: self._access,
            n.FieldAccess: self._field,
            n.Deref: self._deref,
            n.Index: self._index,
            n.Call: self.call,
            n.Builtin: self._builtin,
            n.StructLiteral: self._struct_literal,
            n.TupleLiteral: self._tuple_literal,
            n.Init: self._init,
            n.PointerType: self._pointer_type,
            n.ArrayType: self._array_type,
            n.FnType: self._fn_type,
            n.StructType: self._struct_type,
            n.EnumType: self._enum_type,
            n.Asm: self._asm,
        }

    # ---- leaves

    def _int(self, node: n.Int, scope: Scope) -> Value:
        return Value(COMPTIME_INT, node.value)

    def _float(self, node: n.Float, scope: Scope) -> Value:
        return Value(COMPTIME_FLOAT, node.value)

    def _asm(self, node: n.Asm, scope: Scope) -> Any:
        raise Fault("inline assembly is not supported", node.span, "write it with builtins")

    def _block(self, node: n.Block, scope: Scope) -> Any:
        if not node.body:
            return NOTHING
        return self.block_value(n.BlockExpr(None, node, span=node.span), scope)

    def name(self, node: n.Name, scope: Scope) -> Any:
        """Return what a name stands for."""
        name = node.name
        found = scope.find(name)
        if found is None:
            entry = scope.module.globals.get(name)
            if entry is not None:
                return self.resolve(entry, node.span)
            return self.predefined(node, scope)
        if found.__class__ is ComptimeVariable:
            return self.read(found, node.span)
        if found is FAULTY:
            raise Fault(None)
        if isinstance(found, tree.Local):
            return tree.Load(found.type, node.span, tree.VariablePlace(found.type, node.span, found))
        return found

    def predefined(self, node: n.Name, scope: Scope) -> Any:
        """Return what a name stands for everywhere."""
        found = CONSTANTS.get(node.name)
        if found is not None:
            return found
        kind = named_type(node.name)
        if kind is not None:
            return of_type(self.type(node, scope))
        if node.name == "undefined":
            raise Fault("'undefined' is no value; it stands alone behind '=' of a declaration with a type", node.span)
        hint = closest(node.name, scope)
        raise Fault(f"'{node.name}' is not known here", node.span, f"did you mean '{hint}'?" if hint else None)

    # ---- operators

    def _comptime(self, node: n.Comptime, scope: Scope) -> Any:
        return self.known(node.value, scope, "a comptime expression")

    def _unary(self, node: n.Unary, scope: Scope) -> Any:
        op = node.op
        if op == "&":
            return self.address(node.value, scope, node.span)
        value = self.expr(node.value, scope)
        kind = value.type
        if op == "!" and kind != BOOL:
            raise Fault(f"'!' needs a bool, not {kind}", node.span)
        if op == "~" and not isinstance(kind, IntType):
            raise Fault(f"'~' needs an integer of fixed width, not {kind}", node.span)
        if op == "-" and not is_number(kind):
            raise Fault(f"'-' needs a number, not {kind}", node.span)
        if isinstance(value, tree.Expr):
            return self.run_unary(node, value)
        if value.__class__ is LaneValue and op == "-":
            return self._mixed("-", integer(0), value, node)
        value = uniform(value, self.level)
        if op == "!":
            return boolean(not value.data)
        if op == "~":
            return Value(kind, kind.wrap(~value.data))
        if is_float(kind):
            return Value(kind, -value.data)
        return Value(kind, kind.wrap(-value.data) if isinstance(kind, IntType) else -value.data)

    def _binary(self, node: n.Binary, scope: Scope) -> Any:
        op = node.op
        if op in ("and", "or"):
            return self._logical(node, scope)
        if op == "&" and isinstance(node.right, n.Unary) and node.right.op == "&":
            raise Fault("'&&' is no operator", node.span, "'and' is the operator: a and b")
        left, right = self.expr(node.left, scope), self.expr(node.right, scope)
        if left.__class__ is Value and right.__class__ is Value:
            return self.fold(op, left, right, node.span)
        return self._mixed(op, left, right, node)

    def _mixed(self, op: str, left: Any, right: Any, node: n.SyntaxNode) -> Any:
        if isinstance(left, tree.Expr) or isinstance(right, tree.Expr):
            return self.run_binary(op, left, right, node.span)
        assert self.level is not None
        if op not in ("<<", ">>"):
            kind = self.meet(op, left, right, node.span)
            a, b = self.convert(left, kind, node.span), self.convert(right, kind, node.span)
            if a.__class__ is LaneValue or b.__class__ is LaneValue:
                found = lanes.binary(op, a, b, kind, self.level)
                if found is not None:
                    return found
        return self.fold(op, uniform(left, self.level), uniform(right, self.level), node.span)

    def _logical(self, node: n.Binary, scope: Scope) -> Any:
        left = self.truth(node.left, scope)
        if left is (node.op == "or"):
            return boolean(left)
        right = self.expr(node.right, scope)
        if right.type != BOOL:
            raise Fault(f"'{node.op}' needs a bool, not {right.type}", node.right.span)
        if isinstance(left, bool):
            return right
        return self.run_binary(node.op, left, right, node.span)

    def fold(self, op: str, left: Value, right: Value, span: Span) -> Value:
        """Return an operator on two known values."""
        a, b = left.type, right.type
        if op in ("<<", ">>"):
            if not is_integer(a) or not is_integer(b):
                raise Fault(f"'{op}' needs integers, not {a} and {b}", span)
            return Value(a, calculate(op, left.data, right.data, a, span))
        kind = self.meet(op, left, right, span)
        if op in COMPARISONS:
            if kind is None:
                return boolean((self.same(left, right)) == (op == "=="))
            x, y = coerce(left, kind, span).data, coerce(right, kind, span).data
            return boolean(compare(op, x, y))
        assert kind is not None
        return Value(kind, calculate(op, coerce(left, kind, span).data, coerce(right, kind, span).data, kind, span))

    def same(self, left: Value, right: Value) -> bool:
        """Whether two known values that are no numbers are equal."""
        a, b = left.data, right.data
        if isinstance(a, FunctionValue) and isinstance(b, FunctionValue):
            return a.decl is b.decl and a.module is b.module
        if isinstance(a, Pointer) and isinstance(b, Pointer):
            return a.target is b.target and (a.offset or 0) == (b.offset or 0)
        return bool(left.type == right.type and a == b)

    def meet(self, op: str, left: Any, right: Any, span: Span) -> Any:
        """Return the type in which the operands of an operator meet; None for a comparison of what is no number.

        Raises
        ------
        Fault
            If the operator does not take them.
        """
        a, b = left.type, right.type
        if is_number(a) and is_number(b):
            kind = common(a, b)
            if kind is None and is_integer(a) and is_integer(b):
                # A known integer takes the type of the other operand if it fits there.
                if right.__class__ is Value and a.holds(right.data):
                    kind = a
                elif left.__class__ is Value and b.holds(left.data):
                    kind = b
                elif left.__class__ is LaneValue or right.__class__ is LaneValue:
                    kind = COMPTIME_INT if op in COMPARISONS else a
            if kind is None:
                hint = f"convert one: @as({a}, ...) or @as({b}, ...)"
                if COMPTIME_FLOAT in (a, b):
                    hint = "convert the integer: @as(f32, ...)"
                raise Fault(f"'{op}' has operands of the types {a} and {b}", span, hint)
            if is_float(kind) and op in ("%", "&", "|", "^"):
                raise Fault(f"'{op}' works on integers, not on {kind}", span)
            return kind
        if op in ("==", "!="):
            if a == b and (isinstance(a, (BoolType, IdType, EnumType, PointerType)) or a in (TYPE, VOID)):
                return a if isinstance(a, (BoolType, IdType, EnumType)) else None
            if isinstance(a, FnType) and isinstance(b, FnType):
                return None
            if isinstance(common(a, b), PointerType):
                return None
            if a == b and left.__class__ is Value and right.__class__ is Value and a not in (MODULE, COMPTIME_STRUCT):
                return None
        elif a == BOOL and b == BOOL and op in ("&", "|", "^"):
            return BOOL
        raise Fault(f"'{op}' does not take {a} and {b}", span)

    # ---- choices

    def _if(self, node: n.IfExpr, scope: Scope) -> Any:
        condition = self.truth(node.condition, scope)
        if isinstance(condition, bool):
            if condition:
                return self.expr(node.then, scope)
            return NOTHING if node.otherwise is None else self.expr(node.otherwise, scope)
        if node.otherwise is None:
            raise Fault("an 'if' that gives a value at run time needs an 'else'", node.span)
        return self.run_select(node, condition, self.expr(node.then, scope), self.expr(node.otherwise, scope))

    # ---- literals and types

    def _struct_literal(self, node: n.StructLiteral, scope: Scope) -> Value:
        made = Struct({name: self.expr(value, scope) for name, value in node.fields})
        check_parts(made.parts, node.span)
        return Value(COMPTIME_STRUCT, made)

    def _tuple_literal(self, node: n.TupleLiteral, scope: Scope) -> Value:
        items = {str(i): self.expr(value, scope) for i, value in enumerate(node.items)}
        made = Struct(items, is_tuple=True)
        check_parts(made.parts, node.span)
        return Value(COMPTIME_STRUCT, made)

    def _init(self, node: n.Init, scope: Scope) -> Any:
        kind = self.type(node.type, scope)
        body = self.expr(node.body, scope)
        if not isinstance(kind, (ArrayType, StructType)):
            raise Fault(f"{kind} has no literal with braces", node.span)
        if isinstance(kind, ArrayType) and not body.data.is_tuple and body.data.fields:
            raise Fault("elements of an array have no names", node.body.span)
        if has_run(body):
            return self.run_init(node, kind, body)
        body = self._uniform_fields(body)
        if isinstance(kind, ArrayType) and len(body.data.fields) == kind.count:
            nodes = node.body.items if isinstance(node.body, n.TupleLiteral) else []
            items = zip(body.data.fields.values(), nodes, strict=True)
            return Value(kind, [coerce(item, kind.element, at.span, "this element").data for item, at in items])
        return coerce(body, kind, node.span)

    def _pointer_type(self, node: n.PointerType, scope: Scope) -> Value:
        return of_type(PointerType(self.type(node.target, scope), node.const, node.many))

    def _array_type(self, node: n.ArrayType, scope: Scope) -> Value:
        dims = []
        for entry in node.dims:
            size = self.number(entry, scope, "the size of an array")
            if size < 0:
                raise Fault(f"an array cannot have the size {size}", entry.span)
            dims.append(size)
        element = self.type(node.element, scope)
        if isinstance(element, ArrayType):
            raise Fault("there are no arrays of arrays", node.span, "write [M, N]T")
        return of_type(ArrayType(tuple(dims), element))

    def _fn_type(self, node: n.FnType, scope: Scope) -> Value:
        return of_type(
            FnType(node.kind, tuple(self.type(p, scope) for p in node.params), self.type(node.result, scope))
        )

    def _struct_type(self, node: n.StructType, scope: Scope) -> Value:
        fields = tuple((name, self.type(kind, scope)) for name, kind in node.fields)
        for form in (f"a {node.packing} {node.form}", f"a {node.form}"):
            self.session.dialect.use(form, node.span)
        return of_type(StructType(fields, f"{node.form} of {node.span}", node.form, node.packing))

    def _enum_type(self, node: n.EnumType, scope: Scope) -> Value:
        base = self.type(node.base, scope) if node.base else IntType(16, False)
        if not isinstance(base, IntType):
            raise Fault(f"the base of an enum is an integer type, not {base}", node.span)
        numbers: dict[str, int] = {}
        for name, value in node.members:
            if name in numbers:
                raise Fault(f"the enum has '{name}' twice", node.span)
            numbers[name] = -1 if value is None else self.number(value, scope, f"the number of '{name}'", base)
        taken = {numbers[name] for name, value in node.members if value is not None}
        free = 0
        for name, value in node.members:
            if value is not None:
                continue
            while free in taken:
                free += 1
            if not base.holds(free):
                raise Fault(f"the number {free} of '{name}' does not fit into {base}", node.span, "enum(u32)")
            numbers[name] = free
            free += 1
        return of_type(EnumType(f"enum of {node.span}", base, tuple(numbers.items())))

    # ---- builtins

    def _builtin(self, node: n.Builtin, scope: Scope) -> Any:
        found = self.builtins.get(node.name)
        if found is None:
            hint = closest(node.name, None, self.builtins)
            raise Fault(f"there is no builtin {node.name}", node.span, f"did you mean {hint}?" if hint else None)
        found.check(self, node)
        self.session.dialect.use(found.name, node.span)
        return found.handler(self, node, scope)

    def cast(self, value: Any, target: Type, span: Span) -> Any:
        """Return what `@as` makes of an operand."""
        if value.__class__ is LaneValue:
            assert self.level is not None
            if is_integer(value.type):
                found = lanes.converted(value, target, self.level, wraps=value.type != COMPTIME_INT)
                if found is not None:
                    return found
            value = uniform(value, self.level)
        if value.__class__ is Value:
            return cast(value, target, span)
        return self.run_cast(value, target, span)
