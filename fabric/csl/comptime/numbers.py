"""Arithmetic on known numbers follows their types: integers wrap at their width, floats round once per operation.

A `comptime_int` has no width; a `comptime_float` is a double.  `/` truncates towards zero and `%` has the sign of the
dividend, as on the machine.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from fabric.csl.diagnostics import Fault, Span
from fabric.csl.types import BOOL, COMPTIME_FLOAT, COMPTIME_INT, F32, FloatType, IntType, Type
from wse_core.formats import Arithmetic
from wse_core.params import machine

__all__ = ["bits_of", "calculate", "compare", "divide", "float_of", "of_integer", "remainder", "rounded"]


def of_integer(number: int, type: Type) -> float:
    """Return an integer as a float, as the machine converts it: rounded once, for 16 bits by way of f32.

    A double in between would round twice; so all bits behind its first 52 become one that says whether there are any.
    """
    lost = max(0, abs(number).bit_length() - 52)
    try:
        if type == COMPTIME_FLOAT:
            return float(number)
        kept = abs(number) >> lost
        kept |= (kept << lost) != abs(number)
        near = math.ldexp(-kept if number < 0 else kept, lost)
    except OverflowError:
        near = -math.inf if number < 0 else math.inf
    return rounded(rounded(near, F32), type)


def rounded(number: float, type: Type) -> float:
    """Return the value of a float type nearest to a number."""
    if type == COMPTIME_FLOAT or math.isnan(number) or math.isinf(number):
        return number
    assert isinstance(type, FloatType)
    if type.name == "cb16":
        arithmetic = Arithmetic.of(machine(), "cb16")
        return float(arithmetic.decode(arithmetic.encode([number]))[0])
    if type.name == "bf16":
        return float_of(bits_of(number, type), type)
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(number) if type.name == "f32" else np.float16(number))


def bits_of(number: float, type: FloatType) -> int:
    """Return the bit pattern of a float."""
    if type.name == "cb16":
        return int(Arithmetic.of(machine(), "cb16").encode([number])[0])
    if type.name == "f16":
        return int(np.float16(number).view(np.uint16))
    with np.errstate(over="ignore"):
        bits = int(np.float32(number).view(np.uint32))
    if type.name == "f32":
        return bits
    if math.isnan(number):
        return bits >> 16
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def float_of(bits: int, type: FloatType) -> float:
    """Return the float of a bit pattern."""
    if type.name == "cb16":
        return float(Arithmetic.of(machine(), "cb16").decode(np.array([bits], np.uint16))[0])
    if type.name == "f16":
        return float(np.uint16(bits).view(np.float16))
    return float(struct.unpack("<f", struct.pack("<I", bits << 16 if type.name == "bf16" else bits))[0])


def divide(left: int, right: int) -> int:
    """Return the quotient, truncated towards zero."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def remainder(left: int, right: int) -> int:
    """Return the remainder with the sign of the dividend."""
    return left - right * divide(left, right)


INTEGER: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": divide,
    "%": remainder,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
}
FLOAT: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
MOST_BITS = 14_000
"""Width up to which a `comptime_int` may grow, some 4,200 digits; more is a mistake that would fill the memory."""


def calculate(op: str, left: Any, right: Any, type: Type, span: Span) -> Any:
    """Return the result of an operator on two numbers of one type (the count of a shift is any non-negative integer).

    Raises
    ------
    Fault
        For a division by zero, a shift by a negative number, or an operator that the type does not have.
    """
    if type == BOOL and op in ("&", "|", "^"):
        return bool(INTEGER[op](left, right))
    if isinstance(type, IntType) or type == COMPTIME_INT:
        if op in ("/", "%") and right == 0:
            raise Fault("division by zero", span)
        if op in ("<<", ">>"):
            if right < 0:
                raise Fault(f"a shift by {right}: the count is negative", span)
            if isinstance(type, IntType) and right >= type.bits:
                raise Fault(f"a shift by {right} of a {type}, which has {type.bits} bits", span)
            if right > MOST_BITS:
                raise Fault(f"a shift by {right} is too far", span)
            if op == ">>" and isinstance(type, IntType) and not type.signed:
                left &= (1 << type.bits) - 1
        result = INTEGER[op](left, right)
        if isinstance(type, IntType):
            return type.wrap(result)
        if result.bit_length() > MOST_BITS:
            raise Fault(f"this number has more than {MOST_BITS:,} bits", span, "give the operands a type, such as u32")
        return result
    function = FLOAT.get(op)
    if function is None:
        raise Fault(f"'{op}' works on integers, not on {type}", span)
    if op == "/" and right == 0:
        if type == COMPTIME_FLOAT:
            raise Fault("division by zero", span)
        return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1.0, right)
    try:
        return rounded(function(left, right), type)
    except OverflowError:
        return math.inf


def compare(op: str, left: Any, right: Any) -> bool:
    """Return whether a comparison holds."""
    return COMPARISONS[op](left, right)
