"""Known values are converted: by themselves, by `@as` and by `@bitcast`."""

from __future__ import annotations

import math
from typing import Any

from fabric.csl.comptime.numbers import bits_of, float_of, of_integer, rounded
from fabric.csl.comptime.values import FunctionValue, Pointer, Struct, Value, shown, struct_type
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.types import (
    BOOL,
    COMPTIME_FLOAT,
    COMPTIME_INT,
    VOID,
    AnyType,
    ArrayType,
    BoolType,
    EnumType,
    FloatType,
    FnType,
    IdType,
    IntType,
    PointerType,
    StructType,
    Type,
    leads_to_bytes,
)
from fabric.csl.types.rules import is_float, is_integer, widens

__all__ = ["bitcast", "cast", "check_fields", "coerce", "mismatch"]


def mismatch(value: Any, target: Type, span: Span, what: str = "this") -> Fault:
    """Return the fault for a value that does not convert to a type."""
    source = struct_type(value)
    hint = None
    if (is_integer(source) or is_float(source) or source == BOOL) and (
        isinstance(target, (IntType, FloatType)) or target == BOOL
    ):
        hint = f"write @as({target}, ...) if the change is meant"
    elif isinstance(target, IdType) and is_integer(source):
        hint = f"make one with @get_{target}(...)" if str(target) != "direction" else "NORTH, SOUTH, EAST, WEST or RAMP"
    elif isinstance(source, IdType) and is_integer(target):
        hint = "@get_int(...) gives the number of a color, task id or queue"
    kind = "comptime_struct" if isinstance(source, StructType) and not source.name else str(source)
    return Fault(f"{what} has type {kind}, but {target} is needed", span, hint)


def coerce(value: Value, target: Type | None, span: Span, what: str = "this") -> Value:
    """Return a known value as one of a type.

    Raises
    ------
    Fault
        If it does not convert by itself, or its number does not fit.
    """
    source = value.type
    if target is None or source == target or isinstance(target, AnyType):
        return value
    if is_integer(source):
        if isinstance(target, IntType):
            if not target.holds(value.data):
                raise Fault(f"{value.data} does not fit into {target} ({target.low} to {target.high})", span)
            return Value(target, value.data)
        if target == COMPTIME_INT:
            return Value(target, value.data)
        if source == COMPTIME_INT and is_float(target):
            return Value(target, of_integer(value.data, target))
    elif is_float(source):
        if target == COMPTIME_FLOAT or (
            isinstance(target, FloatType) and (source == COMPTIME_FLOAT or widens(source, target))
        ):
            return Value(target, rounded(value.data, target))
    elif isinstance(source, ArrayType):
        if isinstance(target, ArrayType) and target.dims == source.dims:
            items = [
                coerce(Value(source.element, item), target.element, span, "an element").data for item in value.data
            ]
            return Value(target, items)
    elif isinstance(value.data, Struct):
        if made := _struct_to(value.data, target, span):
            return made
    elif isinstance(value.data, Pointer) and isinstance(target, PointerType):
        if widens(source, target):
            return Value(target, value.data)
    elif isinstance(value.data, FunctionValue):
        if isinstance(target, FnType) and isinstance(source, FnType) and _same_shape(source, target):
            return Value(target, value.data)
        if isinstance(target, PointerType) and isinstance(target.target, FnType) and _same_shape(source, target.target):
            return Value(target, value.data)
    raise mismatch(value, target, span, what)


def _same_shape(source: Type, target: Type) -> bool:
    """Whether a function may stand where a type of functions is asked for."""
    return source == target


def _struct_to(struct: Struct, target: Type, span: Span) -> Value | None:
    """Return an anonymous struct or tuple as an array or named struct, or None."""
    if isinstance(target, ArrayType) and (struct.is_tuple or not struct.fields):
        if len(struct.fields) != target.count:
            raise Fault(f"{len(struct.fields)} elements for {target}, which has {target.count}", span)
        items = [coerce(item, target.element, span, "an element").data for item in struct.fields.values()]
        return Value(target, items)
    if isinstance(target, StructType) and not struct.is_tuple:
        names = dict(target.fields)
        for name in struct.fields:
            if name not in names:
                raise Fault(f"{target} has no field '{name}'", span)
        check_fields(struct, target, span)
        fields = {
            name: coerce(struct.fields[name], kind, span, f"the field '{name}'") if name in struct.fields else None
            for name, kind in target.fields
        }
        return Value(target, Struct({name: item for name, item in fields.items() if item is not None}))
    if target == VOID and not struct.fields:
        return Value(VOID, None)
    return None


def check_fields(struct: Struct, target: StructType, span: Span) -> None:
    """Refuse a struct that lacks a field of its type, and a union that has not one."""
    if target.form == "union":
        if len(struct.fields) != 1:
            raise Fault(f"a union has one field at a time, not {len(struct.fields)}", span)
        return
    for name, _ in target.fields:
        if name not in struct.fields:
            raise Fault(f"the field '{name}' of {target} is missing", span)


def cast(value: Value, target: Type, span: Span) -> Value:
    """Return what ``@as(target, value)`` gives."""
    source, data = value.type, value.data
    if source == target:
        return value
    if isinstance(source, EnumType) or (source == BOOL and (is_integer(target) or is_float(target))):
        source, data = COMPTIME_INT if source == BOOL else source.base, int(data)  # type: ignore[union-attr]
    number = is_integer(source) or is_float(source)
    if number and isinstance(target, BoolType):
        return Value(BOOL, data != 0)
    if number and isinstance(target, EnumType):
        if data not in {number for _, number in target.members}:
            raise Fault(f"{target} has no member with the number {data}", span)
        return Value(target, int(data))
    if is_integer(source):
        if isinstance(target, IntType):
            if source == COMPTIME_INT and not target.holds(data):
                raise Fault(f"{data} does not fit into {target} ({target.low} to {target.high})", span)
            return Value(target, target.wrap(data))
        if target == COMPTIME_INT:
            return Value(target, data)
        if is_float(target):
            return Value(target, of_integer(data, target))
    if is_float(source):
        if is_float(target):
            return Value(target, rounded(data, target))
        if is_integer(target):
            if math.isnan(data) or math.isinf(data) or (isinstance(target, IntType) and not target.holds(int(data))):
                raise Fault(f"{shown(value)} is outside of {target}", span)
            return Value(target, int(data))
    return coerce(value, target, span, "the value")


def bitcast(value: Value, target: Type, span: Span) -> Value:
    """Return what ``@bitcast(target, value)`` gives."""
    source, data = value.type, value.data
    if source == COMPTIME_INT and isinstance(target, (IntType, FloatType)):
        bits = target.bits
        if not -(1 << bits - 1) <= data < 1 << bits:
            raise Fault(f"{data} has more than the {bits} bits of {target}", span)
        data &= (1 << bits) - 1
    elif isinstance(source, IntType):
        bits, data = source.bits, data & (1 << source.bits) - 1
    elif isinstance(source, FloatType):
        bits, data = source.bits, bits_of(data, source)
    elif isinstance(source, EnumType):
        bits, data = source.base.bits, data & (1 << source.base.bits) - 1
    elif isinstance(source, IdType):
        bits = 16
    else:
        raise Fault(f"the bits of a {source} mean nothing as {target}", span)
    wanted = target.bits if isinstance(target, (IntType, FloatType)) else 16
    if isinstance(target, EnumType):
        wanted = target.base.bits
    elif not isinstance(target, (IntType, FloatType, IdType, PointerType)):
        raise Fault(f"@bitcast makes numbers and pointers, not {target}", span)
    if bits != wanted:
        raise Fault(f"{source} has {bits} bits and {target} has {wanted}", span)
    if isinstance(target, IntType):
        return Value(target, target.wrap(data))
    if isinstance(target, FloatType):
        return Value(target, float_of(data, target))
    if isinstance(target, PointerType):
        # As a number a pointer counts bytes; one to bytes keeps the half of the word in its highest bit.
        return Value(target, data >> 1 | ((data & 1) << 15 if leads_to_bytes(target) else 0))
    return Value(target, data)
