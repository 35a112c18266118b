"""`Layout.set_param` puts values into the SRAM of PEs before a run."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fabric.asm.values import encode_array
from fabric.layout.classes import occurring
from fabric.layout.rectangles import Rect, runs
from wse_core.errors import LayoutError
from wse_core.image import ProgramImage, Symbol

__all__ = ["writes_of"]

Write = tuple[int, np.ndarray, int, int]
"""A write has an address, words of shape (h, w, n), x and y."""


def writes_of(
    programs: tuple[ProgramImage, ...], program_index: np.ndarray, name: str, value: ArrayLike, rect: Rect, bias: int
) -> list[Write]:
    """Return what puts `value` into the symbol `name` of the PEs of a rectangle.

    Parameters
    ----------
    programs : tuple of ProgramImage
    program_index : ndarray
        Number of the program per PE, -1 for none.
    name, value, rect
        As given to `Layout.set_param`.
    bias : int
        Exponent bias of cb16.
    """
    index = program_index[rect.slices]
    have = [k for k in occurring(index) if k >= 0 and name in programs[k].symbols]
    if not have:
        raise LayoutError(
            f"set_param: no program in the rectangle has the symbol {name!r}",
            x=rect.x,
            y=rect.y,
            hint=f"symbols: {', '.join(sorted({s for p in programs for s in p.symbols})) or 'none'}",
        )
    shape, core = np.shape(value), _core(value)
    alike: dict[Symbol, list[int]] = {}
    for k in have:
        alike.setdefault(programs[k].symbols[name], []).append(k)
    encoded: dict[str, np.ndarray] = {}
    writes = []
    for symbol, numbers in alike.items():
        if symbol.dtype not in encoded:
            encoded[symbol.dtype] = encode_array(core, symbol.dtype, bias, f"set_param {name!r}")
        words = _spread(encoded[symbol.dtype], shape, symbol, rect)
        if len(shape) > 1:
            words = words.reshape(*np.shape(core)[:2], symbol.words)
        full = np.broadcast_to(words, (*rect.shape, symbol.words))
        for row, first, stop in runs(np.isin(index, numbers)):
            if rect.sx == 1 and rect.sy == 1:
                place = rect.x + first, rect.y + row[0]
                writes.append((symbol.address, full[row[0] : row[1], first:stop], *place))
            else:
                for r in range(*row):
                    for c in range(first, stop):
                        place = rect.x + c * rect.sx, rect.y + r * rect.sy
                        writes.append((symbol.address, full[r : r + 1, c : c + 1], *place))
    return writes


def _core(value: ArrayLike) -> ArrayLike:
    """Return a value with one entry of each axis along which an array was only broadcast: so many are encoded."""
    if not isinstance(value, np.ndarray) or value.ndim < 2:
        return value
    return value[tuple(slice(0, 1) if step == 0 else slice(None) for step in value.strides[:2])]


def _spread(words: np.ndarray, shape: tuple[int, ...], symbol: Symbol, rect: Rect) -> np.ndarray:
    """Return the `words` of a value of a `shape`, those of one number in all elements; refuse another shape."""
    per = symbol.words // symbol.count
    if len(shape) < 2:
        if len(words) not in (per, symbol.words):
            raise LayoutError(
                f"set_param: {len(words) // per} values for the {symbol.count} elements of {symbol.name!r}",
                x=rect.x,
                y=rect.y,
            )
        return np.tile(words, symbol.count) if len(words) < symbol.words else words
    if shape not in ((*rect.shape, symbol.count), rect.shape if symbol.count == 1 else None):
        raise LayoutError(
            f"set_param: values of shape {shape} for {symbol.name!r} with {symbol.count} elements on "
            f"{rect.shape[0]} rows of {rect.shape[1]} PEs",
            x=rect.x,
            y=rect.y,
            hint="one value, (h, w) for scalars, or (h, w, elements)",
        )
    return words
