"""Values may differ from iteration to iteration, so that loops over the PEs of a layout run once and not per PE.

A `Level` is a loop whose iterations ("lanes") are evaluated together; an inner loop's lanes are the product with those
of the outer ones.  A `LaneValue` holds one number per lane of its level.  Whatever needs one number for all, such as a
condition or an array's size, calls `uniform`: where lanes differ it raises `Diverge` with the groups that agree, and
the loop runs its body again, from its start, for each group (`loops`).  So every meaning stays that of the loop run
lane by lane; only work is saved.  `Options.lanes = False` is the slow twin; tests compare both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fabric.csl.comptime.numbers import COMPARISONS
from fabric.csl.comptime.values import Value
from fabric.csl.types import BOOL, COMPTIME_INT, IntType, Type

__all__ = [
    "POISON",
    "Carried",
    "Diverge",
    "LaneValue",
    "Level",
    "Sequential",
    "binary",
    "lifted",
    "partition",
    "uniform",
]

SAFE = 1 << 61
"""Lanes of unbounded integers are computed in 64 bits up to this magnitude."""


POISON = object()
"""A variable that no iteration of the loop at work has written yet is given this value."""


WHOLE: dict[str, Any] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
}
"""These operators are applied to all lanes at once."""


class Level:
    """The lanes of a loop: `origin` gives for each the lane of the loop around it."""

    __slots__ = ("count", "depth", "origin", "parent")

    def __init__(self, parent: Level | None, origin: np.ndarray) -> None:
        self.parent = parent
        self.origin = origin
        self.count = len(origin)
        self.depth: int = parent.depth + 1 if parent else 1


class LaneValue:
    """A `LaneValue` is a known number or bool for each lane."""

    __slots__ = ("array", "level", "type")

    def __init__(self, type: Type, level: Level, array: np.ndarray) -> None:
        self.type = type
        self.level = level
        self.array = array


class Diverge(Exception):
    """Lanes of the innermost level must part: `groups` are arrays of lane numbers."""

    def __init__(self, groups: list[np.ndarray]) -> None:
        super().__init__("lanes differ")
        self.groups = groups


class Sequential(Exception):
    """Something happened whose order counts: the innermost loop must run iteration by iteration."""


class Carried(Sequential):
    """`Carried` is raised where an iteration reads what an earlier one wrote."""


def lifted(value: LaneValue, level: Level) -> np.ndarray:
    """Return the numbers of a value for the lanes of a level at or inside its own."""
    if value.level is level:
        return value.array
    index, here = level.origin, level.parent
    while here is not value.level:
        assert here is not None, "a lane value outlived its loop"
        index, here = here.origin[index], here.parent
    return value.array[index]


def settled(type: Type, level: Level, array: np.ndarray) -> Any:
    """Return the numbers of all lanes as an operand."""
    if level.count == 1:
        return Value(type, array[0].item())
    return LaneValue(type, level, array)


def partition(array: np.ndarray) -> list[np.ndarray]:
    """Return the lanes of equal numbers, group by group."""
    order = np.argsort(array, kind="stable")
    ends = np.flatnonzero(np.diff(array[order])) + 1
    return np.split(order, ends)


def uniform(value: Any, level: Level | None) -> Any:
    """Return an operand that is the same for all lanes, or raise `Diverge`."""
    if value.__class__ is not LaneValue:
        return value
    assert level is not None
    array = lifted(value, level)
    first = array[0]
    if (array == first).all():
        return Value(value.type, first.item())
    raise Diverge(partition(array))


def _numbers(value: Any, level: Level) -> Any:
    return lifted(value, level) if value.__class__ is LaneValue else value.data


def binary(op: str, left: Any, right: Any, type: Type, level: Level) -> Any:
    """Return an operator on operands of one type, at least one of them of lanes; None if it has to be done per lane."""
    a, b = _numbers(left, level), _numbers(right, level)
    if op in COMPARISONS:
        return settled(BOOL, level, np.asarray(COMPARISONS[op](a, b)))
    if type == BOOL or not (type == COMPTIME_INT or (isinstance(type, IntType) and type.bits <= 32)):
        return None
    largest = [max(abs(int(np.max(x))), abs(int(np.min(x)))) for x in (a, b)]
    if max(largest) >= SAFE or (op == "*" and largest[0] * largest[1] >= SAFE):
        return None
    if op in ("/", "%"):
        if np.any(np.equal(b, 0)):
            return None
        quotient = np.abs(a) // np.abs(b) * np.sign(a) * np.sign(b)
        result = quotient if op == "/" else a - quotient * b
    elif op in ("<<", ">>"):
        return None
    else:
        result = WHOLE[op](a, b)
    if isinstance(type, IntType):
        result = np.bitwise_and(result, (1 << type.bits) - 1)
        if type.signed:
            result = np.where(result >> (type.bits - 1), result - (1 << type.bits), result)
    return settled(type, level, np.asarray(result, np.int64))


def converted(value: LaneValue, target: Type, level: Level, wraps: bool) -> Any:
    """Return lanes of integers as another integer type; None if that has to be done per lane."""
    array = lifted(value, level)
    if value.type == BOOL or array.dtype == bool:
        return None
    if target == COMPTIME_INT:
        return settled(target, level, array)
    if not isinstance(target, IntType) or target.bits > 32:
        return None
    if array.min() < target.low or array.max() > target.high:
        if not wraps:
            return None
        array = array & ((1 << target.bits) - 1)
        if target.signed:
            array = np.where(array >> (target.bits - 1), array - (1 << target.bits), array)
    return settled(target, level, array)
