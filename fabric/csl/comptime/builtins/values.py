"""These builtins make and convert values."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fabric.csl import tree
from fabric.csl.comptime.budget import check_size
from fabric.csl.comptime.builtins.table import Operand, builtin
from fabric.csl.comptime.convert import bitcast
from fabric.csl.comptime.lanes import uniform
from fabric.csl.comptime.values import Pointer, Range, Scope, Value, integer
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.syntax import nodes as n
from fabric.csl.types import BOOL, U16, ArrayType, EnumType, FloatType, IdType, IntType, PointerType, RangeType, Type
from fabric.csl.types.rules import is_integer

if TYPE_CHECKING:
    from fabric.csl.comptime.interpreter import Interpreter

GROUP = "values and types"


@builtin("@as", 2, 2, "any", GROUP, "conversion of numbers, bools and enums")
def _as(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
    target = ev.type(node.arguments[0], scope)
    return ev.cast(ev.expr(node.arguments[1], scope), target, node.arguments[1].span)


@builtin("@bitcast", 2, 2, "any", GROUP, "the same bits as another type")
def _bitcast(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
    target = ev.type(node.arguments[0], scope)
    value = ev.expr(node.arguments[1], scope)
    if isinstance(value, tree.Call) and isinstance(target, PointerType):
        # An address that a function works out of known numbers: registers have such addresses.
        with suppress(Fault):
            value = ev.known(node.arguments[1], scope)
    if isinstance(target, PointerType) and not isinstance(value.type, PointerType):
        ev.session.by_address |= not node.span.source.is_library
    if isinstance(value, tree.Expr):
        return ev.run_bitcast(value, target, node.span)
    if isinstance(getattr(value, "data", None), Pointer) and ev.place == "run":
        return ev.run_bitcast(ev.as_expr(value, node.arguments[1].span), target, node.span)
    return bitcast(uniform(value, ev.level), target, node.span)


@builtin("@ptrcast", 2, 2, "any", GROUP, "a pointer as one of another type")
def _ptrcast(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
    target = ev.type(node.arguments[0], scope)
    value = ev.expr(node.arguments[1], scope)
    for kind, at in ((target, node.arguments[0]), (value.type, node.arguments[1])):
        if not isinstance(kind, PointerType):
            raise Fault(f"@ptrcast makes a pointer of a pointer, not of {kind}", at.span)
    if isinstance(value, tree.Expr):
        return ev.run_pointer(value, target, node.span)
    return Value(target, value.data)


def _zero(kind: Type) -> float:
    return 0.0 if isinstance(kind, FloatType) else False if kind == BOOL else 0


@builtin("@zeros", 1, 1, "any", GROUP, "an array of zeros")
def _zeros(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    kind = ev.type(node.arguments[0], scope)
    if not isinstance(kind, ArrayType) or not isinstance(kind.element, (IntType, FloatType)):
        raise Fault(f"@zeros makes arrays of numbers, not {kind}", node.span)
    check_size(kind, ev.unit.kind == "program", node.arguments[0].span)
    return Value(kind, [_zero(kind.element)] * kind.count)


@builtin("@constants", 2, 2, "any", GROUP, "an array of one value")
def _constants(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
    kind = ev.type(node.arguments[0], scope)
    if not isinstance(kind, ArrayType):
        raise Fault(f"@constants makes arrays, not {kind}", node.span)
    check_size(kind, ev.unit.kind == "program", node.arguments[0].span)
    value = ev.convert(ev.expr(node.arguments[1], scope), kind.element, node.arguments[1].span, "the value")
    if isinstance(value, tree.Expr):
        return ev.run_builtin(node, (value,), kind)
    return Value(kind, [uniform(value, ev.level).data] * kind.count)


@builtin("@range", 2, 4, "any", GROUP, "numbers for a loop: @range(T, stop) or @range(T, start, stop, step)")
def _range(ev: Interpreter, node: n.Builtin, scope: Scope) -> Value:
    kind = ev.type(node.arguments[0], scope)
    if not is_integer(kind):
        raise Fault(f"@range counts in integers, not in {kind}", node.arguments[0].span)
    if len(node.arguments) == 3:
        raise Fault("@range takes (T, stop) or (T, start, stop, step)", node.span)
    given = [(ev.expr(entry, scope), entry.span) for entry in node.arguments[1:]]
    for value, at in given:
        if not is_integer(value.type):
            raise Fault(f"a bound of @range must be an integer, not {value.type}", at)
    start, stop, step = (
        (_bound(ev, kind, *entry, name) if entry is not None else None)
        for entry, name in zip(
            (None, given[0], None) if len(given) == 1 else given, ("start", "stop", "step"), strict=True
        )
    )
    return Value(RangeType(kind), Range(start or Value(kind, 0), stop, step or Value(kind, 1)))


def _bound(ev: Interpreter, kind: Type, value: Any, at: Span, name: str) -> Operand:
    """Return a part of a range as an operand; known numbers stay as they are where the type cannot hold them.

    A stop lies beyond the type where the range takes in the type's last number, and a step may lead down in an unsigned
    type.
    """
    if isinstance(value, tree.Expr):
        return ev.run_convert(value, kind, at, "a bound")
    if value.__class__ is not Value or not isinstance(kind, IntType):
        return ev.convert(value, kind, at)
    number = value.data
    beyond = number == kind.high + 1 or number < 0
    if (name == "stop" and beyond) or (name == "step" and -kind.high <= number < 0):
        return integer(number)
    return ev.convert(value, kind, at)


def _part(name: str, which: str) -> None:
    @builtin(name, 1, 1, "any", GROUP, f"the {which} of a range")
    def part(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
        value = ev.known(node.arguments[0], scope)
        if not isinstance(value.type, RangeType):
            raise Fault(f"{name} takes a range, not {value.type}", node.span)
        return getattr(value.data, which)


_part("@range_start", "start")
_part("@range_stop", "stop")
_part("@range_step", "step")


@builtin("@get_color_id", 1, 1, "any", GROUP, "old: the number of a color")
@builtin("@get_int", 1, 1, "any", GROUP, "the number of a color, task id, queue or enum")
def _get_int(ev: Interpreter, node: n.Builtin, scope: Scope) -> Operand:
    value = ev.expr(node.arguments[0], scope)
    kind = value.type
    if isinstance(kind, EnumType):
        target: Type = kind.base
    elif isinstance(kind, IdType):
        target = U16
    else:
        raise Fault(f"{node.name} takes a color, task id, queue or enum, not {kind}", node.span)
    if isinstance(value, tree.Expr):
        return ev.run_bitcast(value, target, node.span)
    return Value(target, uniform(value, ev.level).data)
