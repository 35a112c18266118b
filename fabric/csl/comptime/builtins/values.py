"""Builtins that make and change values."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from fabric.csl import tree
from fabric.csl.comptime.builtins.table import builtin
from fabric.csl.comptime.convert import bitcast
from fabric.csl.comptime.lanes import uniform
from fabric.csl.comptime.values import Pointer, Range, Value, integer
from fabric.csl.diagnostics import Fault
from fabric.csl.syntax import nodes as n
from fabric.csl.types import BOOL, U16, ArrayType, EnumType, FloatType, IdType, IntType, PointerType, RangeType, Type
from fabric.csl.types.rules import is_integer

GROUP = "values and types"


@builtin("@as", 2, 2, "any", GROUP, "conversion of numbers, bools and enums")
def _as(ev: Any, node: n.Builtin, scope: Any) -> Any:
    target = ev.type(node.arguments[0], scope)
    return ev.cast(ev.expr(node.arguments[1], scope), target, node.arguments[1].span)


@builtin("@bitcast", 2, 2, "any", GROUP, "the same bits as another type")
def _bitcast(ev: Any, node: n.Builtin, scope: Any) -> Any:
    target = ev.type(node.arguments[0], scope)
    value = ev.expr(node.arguments[1], scope)
    if isinstance(value, tree.Call) and isinstance(target, PointerType):
        # An address that a function works out of known numbers: registers have such addresses.
        with suppress(Fault):
            value = ev.known(node.arguments[1], scope)
    if isinstance(value, tree.Expr):
        return ev.run_bitcast(value, target, node.span)
    if isinstance(getattr(value, "data", None), Pointer) and ev.place == "run":
        return ev.run_bitcast(ev.as_expr(value, node.arguments[1].span), target, node.span)
    return bitcast(uniform(value, ev.level), target, node.span)


@builtin("@ptrcast", 2, 2, "any", GROUP, "a pointer as one of another type")
def _ptrcast(ev: Any, node: n.Builtin, scope: Any) -> Any:
    target = ev.type(node.arguments[0], scope)
    value = ev.expr(node.arguments[1], scope)
    for kind, at in ((target, node.arguments[0]), (value.type, node.arguments[1])):
        if not isinstance(kind, PointerType):
            raise Fault(f"@ptrcast makes a pointer of a pointer, not of {kind}", at.span)
    if isinstance(value, tree.Expr):
        return ev.run_pointer(value, target, node.span)
    return Value(target, value.data)


def _zero(kind: Type) -> Any:
    return 0.0 if isinstance(kind, FloatType) else False if kind == BOOL else 0


@builtin("@zeros", 1, 1, "any", GROUP, "an array of zeros")
def _zeros(ev: Any, node: n.Builtin, scope: Any) -> Value:
    kind = ev.type(node.arguments[0], scope)
    if not isinstance(kind, ArrayType) or not isinstance(kind.element, (IntType, FloatType)):
        raise Fault(f"@zeros makes arrays of numbers, not {kind}", node.span)
    return Value(kind, [_zero(kind.element)] * kind.count)


@builtin("@constants", 2, 2, "any", GROUP, "an array of one value")
def _constants(ev: Any, node: n.Builtin, scope: Any) -> Any:
    kind = ev.type(node.arguments[0], scope)
    if not isinstance(kind, ArrayType):
        raise Fault(f"@constants makes arrays, not {kind}", node.span)
    value = ev.convert(ev.expr(node.arguments[1], scope), kind.element, node.arguments[1].span, "the value")
    if isinstance(value, tree.Expr):
        return ev.run_builtin(node, (value,), kind)
    return Value(kind, [uniform(value, ev.level).data] * kind.count)


@builtin("@range", 2, 4, "any", GROUP, "numbers for a loop: @range(T, stop) or @range(T, start, stop, step)")
def _range(ev: Any, node: n.Builtin, scope: Any) -> Value:
    kind = ev.type(node.arguments[0], scope)
    if not is_integer(kind):
        raise Fault(f"@range counts in integers, not in {kind}", node.arguments[0].span)
    if len(node.arguments) == 3:
        raise Fault("@range takes (T, stop) or (T, start, stop, step)", node.span)
    given = [(ev.expr(entry, scope), entry.span) for entry in node.arguments[1:]]
    for value, at in given:
        if not is_integer(value.type):
            raise Fault(f"a bound of @range must be an integer, not {value.type}", at)
    # The end may be one past the largest number of the type.
    parts = []
    for value, at in given:
        if value.__class__ is Value and isinstance(kind, IntType) and value.data == kind.high + 1:
            parts.append(integer(value.data))
        elif isinstance(value, tree.Expr):
            parts.append(ev.run_convert(value, kind, at, "a bound"))
        else:
            parts.append(ev.convert(value, kind if value.__class__ is Value and value.data >= 0 else None, at))
    if len(parts) == 1:
        return Value(RangeType(kind), Range(Value(kind, 0), parts[0], Value(kind, 1)))
    return Value(RangeType(kind), Range(*parts))


def _part(name: str, which: str) -> None:
    @builtin(name, 1, 1, "any", GROUP, f"the {which} of a range")
    def part(ev: Any, node: n.Builtin, scope: Any) -> Any:
        value = ev.known(node.arguments[0], scope)
        if not isinstance(value.type, RangeType):
            raise Fault(f"{name} takes a range, not {value.type}", node.span)
        return getattr(value.data, which)


_part("@range_start", "start")
_part("@range_stop", "stop")
_part("@range_step", "step")


@builtin("@get_int", 1, 1, "any", GROUP, "the number of a color, task id, queue or enum")
def _get_int(ev: Any, node: n.Builtin, scope: Any) -> Any:
    value = ev.expr(node.arguments[0], scope)
    kind = value.type
    if isinstance(kind, EnumType):
        target: Type = kind.base
    elif isinstance(kind, IdType):
        target = U16
    else:
        raise Fault(f"@get_int takes a color, task id, queue or enum, not {kind}", node.span)
    if isinstance(value, tree.Expr):
        return ev.run_bitcast(value, target, node.span)
    return Value(target, uniform(value, ev.level).data)
