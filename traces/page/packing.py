"""Columns of whole numbers become short texts, which stand in a page and are numbers again in a browser.

A column is a dict: ``bytes`` is the width of what is stored (1, 2 or 4), ``delta`` whether each number is stored as its
difference to the one before it, modulo 2^32, and ``data`` the base64 of a zlib stream.  In the stream stand the lowest
bytes of all numbers, then the next ones: numbers that are close have the same high bytes, which take no room then.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["packed"]


def packed(values: NDArray[Any]) -> dict[str, Any]:
    """Return a column as a dict of width, coding and text; numbers or differences, what takes less room.

    Parameters
    ----------
    values : numpy.ndarray
        Whole numbers from 0 to 2^32 - 1.
    """
    whole = values.astype(np.uint32)
    steps = np.diff(whole, prepend=np.uint32(0))
    found = []
    for numbers, delta in ((whole, False), (steps, True)):
        width = next(width for width in (1, 2, 4) if int(numbers.max(initial=0)) < 1 << 8 * width)
        planes = numbers.astype(f"<u{width}").view(np.uint8).reshape(-1, width).T
        found.append((zlib.compress(planes.tobytes(), 6), width, delta))
    data, width, delta = min(found, key=lambda one: len(one[0]))
    return {"bytes": width, "delta": delta, "data": base64.b64encode(data).decode("ascii")}
