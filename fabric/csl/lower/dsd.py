"""Descriptors as the back end sees them: what is fixed about one, and the numbers that may change while a PE runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fabric.csl.comptime.values import Dsd, Struct, TensorAccess, Value
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.ir import Fifo, Operand

__all__ = ["Descriptor", "DsdVariable", "Fixed", "plain_strides"]


@dataclass(frozen=True)
class Fixed:
    """What never changes about a descriptor."""

    kind: str
    color: int | None = None
    queue: int | None = None
    packed: bool = False
    control: bool = False
    advance: bool = False
    zero: bool = False
    indexed: bool = False
    extents: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    fifo: Fifo | None = None
    length: int = 0

    @property
    def is_memory(self) -> bool:
        """Whether it walks over memory."""
        return self.kind in ("mem1d", "mem4d", "circular")


@dataclass(frozen=True)
class Descriptor:
    """A descriptor: `base` is a word address, `extent` and `stride` count elements; those of mem4d are fixed."""

    fixed: Fixed
    base: Operand | None = None
    extent: Operand | None = None
    stride: Operand | None = None

    def with_(self, **changes: Any) -> Descriptor:
        """Return the descriptor with other numbers."""
        return replace(self, **changes)


FIELDS = ("base", "extent", "stride")


@dataclass(frozen=True)
class DsdVariable:
    """A global variable that holds a descriptor: in memory lie the numbers that some assignment changes."""

    memory: Any
    initial: Descriptor
    fields: tuple[str, ...]


def plain_strides(extents: tuple[int, ...], deltas: tuple[int, ...]) -> tuple[int, ...]:
    """Return strides, outermost first, of a walk given as steps from each dimension's end to the next element.

    Parameters
    ----------
    extents : tuple of int
        Outermost first.
    deltas : tuple of int
        Innermost first, as CSL writes them.
    """
    found: list[int] = []
    inner = 0
    for delta, extent in zip(deltas, reversed(extents), strict=True):
        found.append(delta + inner)
        inner += (extent - 1) * found[-1]
    return tuple(reversed(found))


def numbers(value: Any, span: Span) -> tuple[int, ...]:
    """Return a tuple of known numbers."""
    if isinstance(value, Value) and isinstance(value.data, Struct):
        return tuple(entry.data for entry in value.data.fields.values())
    raise Fault("this must be a tuple of numbers", span)


def access_of(fields: dict[str, Any]) -> TensorAccess | None:
    """Return the access expression of a descriptor's fields."""
    entry = fields.get("tensor_access")
    data = getattr(entry, "data", None)
    if isinstance(data, TensorAccess):
        return data
    if isinstance(data, Struct):
        inner = data.fields.get("tensor_access")
        return inner.data if inner is not None and isinstance(inner.data, TensorAccess) else None
    return None


def flag(fields: dict[str, Any], name: str) -> bool:
    """Return a field that is true or false; false if it is not there."""
    entry = fields.get(name)
    return bool(entry.data) if isinstance(entry, Value) else False


def is_known(dsd: Any) -> bool:
    """Whether an operand is a descriptor that is known at compile time."""
    return isinstance(dsd, Value) and isinstance(dsd.data, Dsd)
