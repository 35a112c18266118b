"""A descriptor has, as the back end sees it, a fixed part, and numbers that may change while a PE runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from fabric.csl import tree
from fabric.csl.comptime.values import DsdValue, Struct, TensorAccess, Value
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.ir import Fifo, Operand, Vreg, signed

__all__ = ["CHANGES", "FIELDS", "Chosen", "Descriptor", "DsdVariable", "Fixed", "fabric_kind", "memory_kind"]

CHANGES = {
    "@set_dsd_base_addr": "base",
    "@increment_dsd_offset": "base",
    "@set_dsd_length": "extent",
    "@set_dsd_stride": "stride",
}
"""This number of a descriptor is changed by each of these builtins."""
PACKED = ("simd_32", "simd_64", "simd_32_or_64", "simd_max")
_SOURCES = ("first_source", "second_source")


@dataclass(frozen=True)
class Fixed:
    """A `Fixed` holds what never changes about a descriptor, whatever edits it."""

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
    ends: bool = False
    """Whether an operation ends that finds the FIFO empty, or full."""
    length: int = 0
    priority: str | None = None
    bound: bool = False
    """The color is the one that its queue has at the moment (`fabric.csl.lower.rebinding`)."""
    flush: bool = False
    """The operation has no elements; it is over when its queue is empty."""

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
    span: Span | None = field(default=None, compare=False)
    """The program makes the descriptor here."""

    def with_(self, **changes: Any) -> Descriptor:
        """Return the descriptor with other numbers."""
        return replace(self, **changes)

    @property
    def kinds(self) -> tuple[Fixed, ...]:
        """The descriptor has this one kind; a choice of several has more."""
        return (self.fixed,)

    def reach(self, words: int) -> tuple[int, int] | None:
        """Return the first and the last word that it walks over, from its base on, with elements of some words.

        None if that is not known, or if it has no element.
        """
        if self.fixed.kind == "mem4d":
            walk = list(zip(self.fixed.extents, self.fixed.strides, strict=True))
        elif self.fixed.kind == "mem1d" and isinstance(self.extent, int) and isinstance(self.stride, int):
            walk = [(self.extent, signed(self.stride, 16))]
        else:
            return None
        if any(extent == 0 for extent, _ in walk):
            return None
        steps = [(extent - 1) * stride * words for extent, stride in walk]
        return sum(min(0, step) for step in steps), sum(max(0, step) for step in steps) + words - 1

    @property
    def numbers(self) -> tuple[str, ...]:
        """The names of its numbers; those of a mem4d but its base are fixed, and a stream has a length only."""
        return tuple(name for name in FIELDS if getattr(self, name) is not None)


@dataclass(frozen=True)
class Chosen:
    """One of several descriptors of different kinds; `which` says at run time, by one of `codes`, which one."""

    which: Vreg
    codes: tuple[int, ...]
    options: tuple[Descriptor, ...]

    @property
    def kinds(self) -> tuple[Fixed, ...]:
        """The descriptor may be of each of these kinds."""
        return tuple(option.fixed for option in self.options)

    def with_(self, **changes: Any) -> Chosen:
        """Return the same choice among descriptors with other numbers."""
        return replace(self, options=tuple(option.with_(**changes) for option in self.options))


FIELDS = ("base", "extent", "stride")


@dataclass(frozen=True)
class DsdVariable:
    """A `DsdVariable` is a global variable that holds descriptors.

    Attributes
    ----------
    memory : Memory
        Per descriptor the numbers that some assignment changes, behind them, if there are several kinds, that of its
        kind.
    initial : Descriptor
        With what it begins.
    fields : tuple of str
        The names of those numbers.
    kinds : tuple of Fixed
        The kinds that it may have.
    """

    memory: Any
    initial: Descriptor
    fields: tuple[str, ...]
    kinds: tuple[Fixed, ...]

    @property
    def words(self) -> int:
        """A descriptor takes so many words of the variable."""
        return len(self.fields) + (len(self.kinds) > 1)


def memory_kind(kind: str, fields: dict[str, Any], span: Span) -> Fixed:
    """Return the kind of a descriptor of memory with some fields of `@get_dsd`."""
    if kind == "circbuf_dsd":
        length = fields.get("wraparound") or fields["extent"]
        length = length.value if isinstance(length, tree.Const) else length
        if not isinstance(length, Value):
            raise Fault("the length of a circular buffer must be known", span)
        return Fixed("circular", length=length.data)
    entry, access = fields.get("tensor_access"), access_of(fields)
    if kind == "mem1d_dsd":
        return Fixed("mem1d", indexed=flag(fields, "wavelet_index_offset"))
    if access is not None:
        return Fixed("mem4d", extents=access.extents, strides=access.strides)
    if isinstance(getattr(entry, "data", None), Struct):
        fields = {**fields, **entry.data.fields}  # type: ignore[union-attr]
    extents = numbers(fields["extent"], span)
    deltas = numbers(fields["stride"], span) if "stride" in fields else (1,) * len(extents)
    return Fixed("mem4d", extents=extents, strides=plain_strides(extents, deltas))


def fabric_kind(kind: str, fields: dict[str, Any], color: int | None, queue: int | None) -> Fixed:
    """Return the kind of a descriptor of a stream with some fields of `@get_dsd`, whose ids are known."""
    mode = fields.get("simd_mode")
    packed = mode is not None and any(name in PACKED and bool(entry.data) for name, entry in mode.data.fields.items())
    return Fixed(
        "fabin" if kind == "fabin_dsd" else "fabout",
        color=color,
        queue=queue,
        packed=packed,
        control=flag(fields, "control"),
        advance=flag(fields, "advance_switch"),
        zero=fields.get("zero") is not None and any(flag(fields["zero"].data.fields, x) for x in _SOURCES),
        indexed=flag(fields, "wavelet_index_offset"),
        priority=chosen(fields, "priority"),
    )


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


def chosen(fields: dict[str, Any], name: str) -> str | None:
    """Return the flag that is set in a field which is a struct of flags; None if there is none."""
    entry = fields.get(name)
    flags = {} if entry is None else entry.data.fields
    return next((flag for flag, value in flags.items() if value.data), None)


def is_known(dsd: Any) -> bool:
    """Whether an operand is a descriptor that is known at compile time."""
    return isinstance(dsd, Value) and isinstance(dsd.data, DsdValue)
