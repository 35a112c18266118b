"""`cerebras.sdk.sdk_utils` makes arrays of the host into the words that transfers carry."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["calculate_cycles", "input_array_to_u32", "memcpy_view"]


def memcpy_view(array: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Return the low bytes of each 32-bit word as numbers of a type; writing to the view changes the array."""
    dtype = np.dtype(dtype)
    words = array.view(np.uint32)
    if dtype.itemsize == 4:
        return words.view(dtype)
    return words.view(dtype)[..., :: 4 // dtype.itemsize]


def input_array_to_u32(np_arr: NDArray[Any], sentinel: int | None = None, fast_dim_sz: int = 1) -> NDArray[np.uint32]:
    """Return an array of 16-bit or 32-bit numbers as words; the upper half of a 16-bit one is 0, or its index."""
    array = np.ascontiguousarray(np_arr)
    if array.dtype.itemsize == 4:
        return array.ravel().view(np.uint32)
    low = array.ravel().view(np.uint16).astype(np.uint32)
    if sentinel is None:
        return low
    index = (np.arange(low.size) % fast_dim_sz).astype(np.uint32)
    return low | index << np.uint32(16)


def calculate_cycles(timestamp_buf: NDArray[Any]) -> int:
    """Return the cycles between two time stamps of three 16-bit words each, packed into three words."""
    words = np.ascontiguousarray(timestamp_buf).view(np.uint32)
    parts = [int(half) for word in words[:3] for half in (word & 0xFFFF, word >> 16)]
    start = parts[0] | parts[1] << 16 | parts[2] << 32
    end = parts[3] | parts[4] << 16 | parts[5] << 32
    return end - start
