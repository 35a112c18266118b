"""The content of a data structure register is followed, as far as it is known before a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from wse_core.image import DSD_CIRCULAR, DSD_FABIN, DSD_FABOUT, DSD_MEM1D, DSD_MEM4D, ENDLESS, F_PACKED, F_SAVE, NO_TASK

__all__ = ["FABRIC", "MEMORY", "Content", "joined", "loaded"]

FABRIC = (DSD_FABIN, DSD_FABOUT)
MEMORY = (DSD_MEM1D, DSD_MEM4D, DSD_CIRCULAR)


@dataclass(frozen=True)
class Content:
    """The content of a DSR; a field that is None is not known.

    Attributes
    ----------
    kind, flags, queue, fifo, push_task, pop_task, ndim, length : int
        As of a descriptor (`wse_core.image.DESC_DTYPE`).
    base : int
        Word address; if `moves`, one of those it has had.
    index : int or None
        First element of a circular buffer.
    extent, stride : tuple of (int or None)
    moves : bool
        Whether the base is some number of rows behind or before `base`, not known how many.
    """

    kind: int
    flags: int
    queue: int
    fifo: int
    push_task: int
    pop_task: int
    ndim: int
    length: int
    base: int
    index: int | None
    extent: tuple[int | None, ...]
    stride: tuple[int | None, ...]
    moves: bool = False

    @property
    def elements(self) -> int | None:
        """The register has so many elements, None if that is not known; `ENDLESS` if there is no end."""
        if self.extent[0] == ENDLESS:
            return ENDLESS
        if self.kind != DSD_MEM4D:
            return self.extent[0]
        extents = [n for n in self.extent[: self.ndim] if n is not None]
        return prod(extents) if len(extents) == self.ndim else None

    @property
    def innermost(self) -> int | None:
        """This stride leads from one element of a mem1d or mem4d to the next, in elements."""
        return self.stride[self.ndim - 1] if self.kind == DSD_MEM4D else self.stride[0]

    @property
    def packed(self) -> bool:
        """Whether a wavelet carries two elements, if they have 16 bits."""
        return self.kind in FABRIC and bool(self.flags & F_PACKED)

    def behind(self, done: int | None, words: int) -> Content:
        """Return what is held behind an operation of `done` elements of so many words; None: not known how many."""
        if not self.flags & F_SAVE or self.kind not in (DSD_MEM1D, DSD_CIRCULAR):
            return self
        if self.kind == DSD_CIRCULAR:
            known = self.index is not None and done is not None
            return replace(self, index=(self.index + done) % self.length if known else None)  # type: ignore[operator]
        if done is None or self.stride[0] is None:
            return replace(self, moves=True)
        return replace(self, base=self.base + done * self.stride[0] * words & 0xFFFF)


def loaded(row: np.void) -> Content:
    """Return the content of a DSR behind the load of a descriptor."""
    same = ("kind", "flags", "queue", "push_task", "pop_task", "ndim", "length", "base", "index")
    numbers: dict[str, Any] = {name: int(row[name]) for name in same}
    shape: dict[str, Any] = {name: tuple(int(v) for v in row[name]) for name in ("extent", "stride")}
    return Content(**numbers, fifo=int(row["xdsr"]), **shape)


def joined(one: Content, other: Content) -> Content | None:
    """Return what is known of a DSR that holds one or the other; None if they are of different kinds."""
    if one == other:
        return one
    if any(getattr(one, name) != getattr(other, name) for name in ("kind", "flags", "ndim", "length", "fifo")):
        return None

    def both(a: tuple[int | None, ...], b: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return tuple(x if x == y else None for x, y in zip(a, b, strict=True))

    return replace(
        one,
        queue=one.queue if one.queue == other.queue else -1,
        push_task=one.push_task if one.push_task == other.push_task else NO_TASK,
        pop_task=one.pop_task if one.pop_task == other.pop_task else NO_TASK,
        index=one.index if one.index == other.index else None,
        extent=both(one.extent, other.extent),
        stride=both(one.stride, other.stride),
        moves=one.moves or other.moves or one.base != other.base,
    )
