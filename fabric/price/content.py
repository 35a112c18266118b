"""The content of a data structure register is followed, as far as it is known before a run."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wse_core.image import (
    DESC_DTYPE,
    DSD_CIRCULAR,
    DSD_FABIN,
    DSD_FABOUT,
    DSD_MEM1D,
    DSD_MEM4D,
    ENDLESS,
    F_PACKED,
    F_SAVE,
    NO_TASK,
)

__all__ = ["FABRIC", "MEMORY", "Content", "Walked", "contents_of", "joined"]

FABRIC = (DSD_FABIN, DSD_FABOUT)
MEMORY = (DSD_MEM1D, DSD_MEM4D, DSD_CIRCULAR)


class Walked(NamedTuple):
    """A `Walked` says what a DSR goes over, but for the place; a field that is None is not known.

    Attributes
    ----------
    kind, flags, queue, fifo, push_task, pop_task, ndim, length : int
        As of a descriptor (`wse_core.image.DESC_DTYPE`).
    start : int or None
        First element of a circular buffer.
    extent, stride : tuple of (int or None)
    """

    kind: int
    flags: int
    queue: int
    fifo: int
    push_task: int
    pop_task: int
    ndim: int
    length: int
    start: int | None
    extent: tuple[int | None, ...]
    stride: tuple[int | None, ...]


class Content:
    """A `Content` is what a DSR holds, as far as it is known; it does not change.

    Tasks move bases far more often than it changes anything else, so the rest is one object that many contents have.

    Attributes
    ----------
    shape : Walked
        Its fields are those of the content too.
    base : int
        Word address; if `moves`, one of those it has had.
    moves : bool
        Whether the base is some number of rows behind or before `base`, not known how many.
    number : int
        Equal for equal shapes.
    """

    __slots__ = ("base", "kind", "moves", "number", "shape")

    def __init__(self, shape: Walked, base: int, moves: bool = False) -> None:
        self.shape, self.base, self.moves, self.kind = shape, base, moves, shape.kind
        self.number = _NUMBERS.setdefault(shape, len(_NUMBERS))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Content):
            return NotImplemented
        return self.number == other.number and self.base == other.base and self.moves == other.moves

    def __hash__(self) -> int:
        return hash((self.number, self.base, self.moves))

    def at(self, base: int, moves: bool = False) -> Content:
        """Return the same with another base."""
        found = Content.__new__(Content)
        found.shape, found.base, found.moves, found.kind, found.number = self.shape, base, moves, self.kind, self.number
        return found

    def moved(self) -> Content:
        """Return the same with a base of which it is not known by how many rows it has moved."""
        return self.at(self.base, True)

    def changed(self, **fields: Any) -> Content:
        """Return the same with other fields of its shape."""
        return Content(self.shape._replace(**fields), self.base, self.moves)

    @property
    def elements(self) -> int | None:
        """The register has so many elements, None if that is not known; `ENDLESS` if there is no end."""
        shape = self.shape
        if shape.extent[0] == ENDLESS:
            return ENDLESS
        if shape.kind != DSD_MEM4D:
            return shape.extent[0]
        extents = [n for n in shape.extent[: shape.ndim] if n is not None]
        return prod(extents) if len(extents) == shape.ndim else None

    @property
    def innermost(self) -> int | None:
        """This stride leads from one element of a mem1d or mem4d to the next, in elements."""
        return self.shape.stride[self.shape.ndim - 1 if self.kind == DSD_MEM4D else 0]

    @property
    def packed(self) -> bool:
        """Whether a wavelet carries two elements, if they have 16 bits."""
        return self.kind in FABRIC and bool(self.shape.flags & F_PACKED)

    def behind(self, done: int | None, words: int) -> Content:
        """Return what is held behind an operation of `done` elements of so many words; None: not known how many."""
        shape = self.shape
        if not shape.flags & F_SAVE or self.kind not in (DSD_MEM1D, DSD_CIRCULAR):
            return self
        if self.kind == DSD_CIRCULAR:
            known = shape.start is not None and done is not None
            return self.changed(start=(shape.start + done) % shape.length if known else None)  # type: ignore[operator]
        if done is None or shape.stride[0] is None:
            return self.moved()
        return self.at(self.base + done * shape.stride[0] * words & 0xFFFF, self.moves)


_NUMBERS: dict[Walked, int] = {}


def contents_of(descriptors: NDArray[np.void]) -> list[Content]:
    """Return the content of a DSR behind the load of each descriptor of a table."""
    data, size = descriptors.tobytes(), descriptors.itemsize
    return [_loaded(data[at : at + size]) for at in range(0, len(data), size)]


@lru_cache(maxsize=4096)
def _loaded(data: bytes) -> Content:
    """Return the content of a DSR behind the load of a descriptor, of which there are the bytes."""
    row = np.frombuffer(data, DESC_DTYPE)[0]
    same = ("kind", "flags", "queue", "push_task", "pop_task", "ndim", "length")
    numbers: dict[str, Any] = {name: int(row[name]) for name in same}
    sides: dict[str, Any] = {name: tuple(row[name].tolist()) for name in ("extent", "stride")}
    return Content(Walked(**numbers, fifo=int(row["xdsr"]), start=int(row["index"]), **sides), int(row["base"]))


def joined(one: Content, other: Content) -> Content | None:
    """Return what is known of a DSR that holds one or the other; None if they are of different kinds."""
    if one == other:
        return one
    a, b = one.shape, other.shape
    moves = one.moves or other.moves or one.base != other.base
    if one.number == other.number:
        return one.at(one.base, moves)
    if (a.kind, a.flags, a.ndim, a.length, a.fifo) != (b.kind, b.flags, b.ndim, b.length, b.fifo):
        return None

    def both(x: tuple[int | None, ...], y: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return tuple(p if p == q else None for p, q in zip(x, y, strict=True))

    shape = a._replace(
        queue=a.queue if a.queue == b.queue else -1,
        push_task=a.push_task if a.push_task == b.push_task else NO_TASK,
        pop_task=a.pop_task if a.pop_task == b.pop_task else NO_TASK,
        start=a.start if a.start == b.start else None,
        extent=both(a.extent, b.extent),
        stride=both(a.stride, b.stride),
    )
    return Content(shape, one.base, moves)
