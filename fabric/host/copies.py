"""Arrays of the host are copied to and from symbols of the PEs of a rectangle."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fabric.asm.operands import Var
from fabric.asm.values import decode_array, encode_array
from fabric.layout.classes import occurring
from fabric.layout.rectangles import Rect, runs
from wse_core.errors import LayoutError
from wse_core.image import FabricSpec, ProgramImage, Symbol

__all__ = ["Copies", "control_id", "control_names", "task_id", "task_names"]


LAST = 16
"""So many names and rectangles are kept with where their symbols lie, the last ones."""


class Copies:
    """A `Copies` has symbols by name over rectangles of one engine.

    Parameters
    ----------
    engine : Engine or ReferenceMachine
    spec : FabricSpec
    """

    def __init__(self, engine: Any, spec: FabricSpec) -> None:
        self.engine, self.spec = engine, spec
        self._last: dict[tuple[str, Rect], list[tuple[Symbol, np.ndarray | None]]] = {}

    def rect(self, x: Any, y: int | None = None, w: int | None = None, h: int | None = None) -> Rect:
        """Return a rectangle of `Fabric.write`; refuse one that leaves the fabric."""
        if isinstance(x, (tuple, list)):
            given = tuple(x)
        elif x is None and y is None and w is None and h is None:
            given = (0, 0, self.spec.width, self.spec.height)
        else:
            given = (0 if x is None else x, 0 if y is None else y, 1 if w is None else w, 1 if h is None else h)
        try:
            rect = Rect(*(operator.index(v) for v in given))
        except TypeError:
            raise LayoutError(
                f"{given!r} is no rectangle", hint="whole numbers: x, y, or x, y, width and height"
            ) from None
        if rect.sx != 1 or rect.sy != 1:
            raise LayoutError("host access takes rectangles without steps", x=rect.x, y=rect.y)
        if (
            rect.x < 0
            or rect.y < 0
            or rect.w < 1
            or rect.h < 1
            or rect.x + rect.w > self.spec.width
            or rect.y + rect.h > self.spec.height
        ):
            raise LayoutError(
                f"rectangle {tuple(rect[:4])} is empty or reaches outside the {self.spec.width} x "
                f"{self.spec.height} PEs",
                x=rect.x,
                y=rect.y,
            )
        return rect

    def find(self, name: str | Var, rect: Rect) -> list[tuple[Symbol, np.ndarray | None]]:
        """Return ``[(Symbol, mask or None)]`` of a name over a rectangle; None = everywhere."""
        name = name.name if isinstance(name, Var) else name
        if not isinstance(name, str):
            raise LayoutError(f"{name!r} is no symbol", hint="its name, or what Program.array returned")
        if (name, rect) in self._last:  # programs stay where they are, and the same is often asked for in turns
            return self._last[name, rect]
        index = self.spec.program_index[rect.slices]
        found = []
        for k in occurring(index):
            symbol = self.spec.programs[k].symbols.get(name) if k >= 0 else None
            if symbol is None:
                row, column = np.argwhere(index == k)[0]
                have = ", ".join(sorted(self.spec.programs[k].symbols)) if k >= 0 else ""
                raise LayoutError(
                    f"program {self.spec.programs[k].name!r} has no symbol {name!r}"
                    if k >= 0
                    else f"no program runs here, so there is no symbol {name!r}",
                    x=int(rect.x + column),
                    y=int(rect.y + row),
                    hint=f"symbols: {have}" if have else None,
                )
            found.append((symbol, k))
        if len({(s.count, s.dtype) for s, _ in found}) > 1:
            raise LayoutError(
                f"symbol {name!r} has different types or lengths in the programs of the rectangle", x=rect.x, y=rect.y
            )
        places: dict[int, list[int]] = {}
        symbols = {symbol.address: symbol for symbol, _ in found}
        for symbol, k in found:
            places.setdefault(symbol.address, []).append(k)
        where: list[tuple[Symbol, np.ndarray | None]] = [(found[0][0], None)]
        if len(places) > 1:
            where = [(symbols[address], np.isin(index, programs)) for address, programs in places.items()]
        if len(self._last) >= LAST:
            self._last.clear()
        self._last[name, rect] = where
        return where

    def write(self, symbol: str | Var, values: ArrayLike, rect: Rect) -> int:
        """Copy an array into a symbol, as `Fabric.write`; return the number of words written."""
        count = 0
        for found, mask in self.find(symbol, rect):
            words = encode_array(values, found.dtype, self.spec.machine["num.cb16_bias"], f"write {found.name!r}")
            per = found.words // found.count
            size, n = words.size // per, found.count
            self._check_shape(np.shape(values), found, rect)
            if size == rect.w * rect.h * n:
                words = words.reshape(rect.h, rect.w, found.words)
            elif size == n:
                words = np.broadcast_to(words.reshape(found.words), (rect.h, rect.w, found.words))
            elif size == 1:
                words = np.broadcast_to(np.tile(words.reshape(per), n), (rect.h, rect.w, found.words))
            else:
                raise LayoutError(
                    f"write {found.name!r}: {size} values for {rect.h} x {rect.w} PEs with {n} elements each",
                    x=rect.x,
                    y=rect.y,
                    hint="shape (h, w, n), (n,) or one number",
                )
            for (row, stop), first, last in runs(mask) if mask is not None else [((0, rect.h), 0, rect.w)]:
                self.engine.write_rect(
                    found.address, np.ascontiguousarray(words[row:stop, first:last]), rect.x + first, rect.y + row
                )
            count = rect.w * rect.h * found.words
        return count

    @staticmethod
    def _check_shape(shape: tuple[int, ...], found: Symbol, rect: Rect) -> None:
        """Refuse an array of the right size whose axes are none of those that `Fabric.write` names: it would scramble.

        The elements of one PE may have any shape, since they lie in the order of the array.
        """
        h, w, n = rect.h, rect.w, found.count
        whole = len(shape) >= 2 and shape[:2] == (h, w) and math.prod(shape[2:]) == n
        if len(shape) > 1 and not whole and not (h == w == 1) and math.prod(shape) == h * w * n:
            raise LayoutError(
                f"write {found.name!r}: an array of shape {shape} for {h} rows of {w} PEs with {n} elements each",
                x=rect.x,
                y=rect.y,
                hint=f"shape ({h}, {w}, {n}): rows, columns, elements; or one axis in this order",
            )

    def read(self, symbol: str | Var, rect: Rect) -> np.ndarray:
        """Return a symbol of the PEs of a rectangle, as `Fabric.read`."""
        parts = self.find(symbol, rect)
        found = parts[0][0]
        words = np.empty((rect.h, rect.w, found.words), np.uint16)
        for part, mask in parts:
            for (row, stop), first, last in runs(mask) if mask is not None else [((0, rect.h), 0, rect.w)]:
                words[row:stop, first:last] = self.engine.read_rect(
                    part.address, part.words, rect.x + first, rect.y + row, last - first, stop - row
                )
        return decode_array(words, found.dtype)

    def tasks(self, name: str, rect: Rect) -> list[tuple[int, list[int]]]:
        """Return [(id, numbers of the programs)] of a task by name over a rectangle, as `Fabric.launch` needs it."""
        index = self.spec.program_index[rect.slices]
        ids: dict[int, list[int]] = {}
        for k in occurring(index):
            number = task_id(self.spec.programs[k], name) if k >= 0 else None
            if number is not None:
                ids.setdefault(number, []).append(k)
        if not ids:
            known = sorted({n for p in self.spec.programs for n in task_names(p)})
            raise LayoutError(
                f"no program in the rectangle {tuple(rect[:4])} has a task {name!r}",
                hint=f"tasks: {', '.join(known) or 'none'}",
            )
        return list(ids.items())


def task_id(image: ProgramImage, name: str) -> int | None:
    """Return the id of a local or data task of a program by name, None if there is none."""
    return _id_of(image.entry, image, name)


def task_names(image: ProgramImage) -> list[str]:
    """Return the names of a program's local and data tasks."""
    return [name for name in _named(image) if task_id(image, name) is not None]


def control_id(image: ProgramImage, name: str) -> int | None:
    """Return the id of a control task of a program by name, None if there is none; these ids are their own space."""
    return _id_of(image.control_entry, image, name)


def control_names(image: ProgramImage) -> list[str]:
    """Return the names of a program's control tasks."""
    return [name for name in _named(image) if control_id(image, name) is not None]


def _named(image: ProgramImage) -> list[str]:
    """Return the labels that have a name: a loop may begin where a task does, and its label is only a number."""
    return [name for name in image.labels if not name.startswith(".")]


def _id_of(entries: np.ndarray, image: ProgramImage, name: str) -> int | None:
    """Return the first id that starts at a label."""
    at = image.labels.get(name)
    if at is None:
        return None
    ids = np.flatnonzero(entries == at)
    return int(ids[0]) if len(ids) else None
