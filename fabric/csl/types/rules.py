"""These rules say which type converts to which without being asked, and the common type of two operands.

Known values are more liberal than these rules, see `fabric.csl.comptime.convert`: an integer that is known converts to
every integer type that holds it.
"""

from __future__ import annotations

from fabric.csl.types.kinds import (
    COMPTIME_FLOAT,
    COMPTIME_INT,
    ArrayType,
    ComptimeType,
    FloatType,
    FnType,
    IntType,
    PointerType,
    Type,
)

__all__ = ["common", "is_float", "is_integer", "is_number", "widens"]


def is_integer(type: Type) -> bool:
    """Whether a type is one of integers, `comptime_int` included."""
    return isinstance(type, IntType) or type == COMPTIME_INT


def is_float(type: Type) -> bool:
    """Whether a type is one of floats, `comptime_float` included."""
    return isinstance(type, FloatType) or type == COMPTIME_FLOAT


def is_number(type: Type) -> bool:
    """Whether a type is one of numbers."""
    return is_integer(type) or is_float(type)


def widens(source: Type, target: Type) -> bool:
    """Whether each value of `source` is one of `target` and converts by itself."""
    if source == target:
        return True
    if isinstance(source, IntType) and isinstance(target, IntType):
        return target.low <= source.low and source.high <= target.high
    if isinstance(source, FloatType) and isinstance(target, FloatType):
        return source.bits < target.bits
    if isinstance(target, PointerType):
        if isinstance(source, FnType):
            return target.target == source and not target.many
        return isinstance(source, PointerType) and _points(source, target)
    return False


def _points(source: PointerType, target: PointerType) -> bool:
    """Whether a pointer converts to another: losing the right to store, an array's length, or gaining a length of 1."""
    if source.const and not target.const:
        return False
    if target.target == ComptimeType("anyopaque"):
        return True
    if source.target == target.target:
        return source.many == target.many or (target.many and not isinstance(source.target, ArrayType))
    if target.many:
        return isinstance(source.target, ArrayType) and source.target.element == target.target and not source.many
    if isinstance(target.target, ArrayType) and not source.many:
        one = target.target
        if isinstance(source.target, ArrayType):
            return one.element == source.target.element and one.count == source.target.count
        return one.count == 1 and one.element == source.target
    return False


def common(left: Type, right: Type) -> Type | None:
    """Return the type in which two operands meet, or None."""
    if left == right:
        return left
    if right == COMPTIME_INT and is_number(left):
        return left
    if left == COMPTIME_INT and is_number(right):
        return right
    if right == COMPTIME_FLOAT and isinstance(left, FloatType):
        return left
    if left == COMPTIME_FLOAT and isinstance(right, FloatType):
        return right
    if widens(left, right):
        return right
    if widens(right, left):
        return left
    return None
