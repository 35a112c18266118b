"""Numbers of the host become the 16-bit words of SRAM that stand for them."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wse_core.errors import ProgramError
from wse_core.params import PARAMETERS

__all__ = ["NUMPY", "WORDS", "decode_array", "encode_array", "encode_number"]

WORDS = {"f16": 1, "cb16": 1, "i16": 1, "u16": 1, "f32": 2, "i32": 2, "u32": 2}
"""An element of each type takes so many words of SRAM."""
NUMPY: dict[str, Any] = {
    "f16": np.float16,
    "cb16": np.uint16,
    "f32": np.float32,
    "i16": np.int16,
    "u16": np.uint16,
    "i32": np.int32,
    "u32": np.uint32,
}
"""An element lies in this type of numpy; cb16 as bit patterns."""


def encode_array(values: ArrayLike, dtype: str, bias: int | None = None, what: str = "value") -> NDArray[np.uint16]:
    """Return `values` as SRAM words.

    Parameters
    ----------
    values : array_like
        Numbers.  A numpy array of the unsigned type of the element's size (uint16 or uint32) given for a float type
        is taken as bit patterns.
    dtype : str
        ``f16``, ``cb16``, ``f32``, ``i16``, ``u16``, ``i32`` or ``u32``.
    bias : int, optional
        Exponent bias of cb16; default that of the presets.
    what : str
        Name for messages.

    Returns
    -------
    ndarray[uint16]
        Shape of `values` with the last axis doubled for 32-bit types; a scalar counts as shape (1,).

    Raises
    ------
    ProgramError
        A finite number out of range, a complex or otherwise unfit value.
    """
    raw = isinstance(values, np.ndarray) and values.dtype == np.dtype(f"u{2 * WORDS[dtype]}")
    try:
        array = np.atleast_1d(np.asarray(values))
    except ValueError as error:  # rows of different lengths
        raise ProgramError(f"{what}: the values are no array: {error}") from None
    if array.dtype.kind not in "fiub":
        raise ProgramError(f"{what}: {array.dtype} is not a kind of number that {dtype} can hold")
    if dtype in ("f16", "f32", "cb16"):
        bias = PARAMETERS["num.cb16_bias"].value if bias is None else bias
        if raw:
            bits = array
        elif dtype == "cb16":
            from wse_core import numerics

            bits = np.asarray(numerics.encode(array.astype(np.float64), "cb16", bias), np.uint16).reshape(array.shape)
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                bits = array.astype(NUMPY[dtype])
        if not raw:
            _refuse_overflow(array, bits, dtype, bias, what)
    else:
        if array.dtype.kind == "f":
            raise ProgramError(f"{what}: floating point given for {dtype}", hint="convert it with numpy first")
        info = np.iinfo(np.dtype(NUMPY[dtype]))
        if array.size and not (array.min() >= info.min and array.max() <= info.max):
            bad = array[(array < info.min) | (array > info.max)].flat[0]
            raise ProgramError(f"{what}: {bad} is outside {info.min} .. {info.max} of {dtype}")
        bits = array.astype(NUMPY[dtype])
    return (
        np.ascontiguousarray(bits)
        .astype(bits.dtype.newbyteorder("<"), copy=False)
        .view("<u2")
        .astype(np.uint16, copy=False)
    )


@lru_cache(maxsize=4096)
def _words_of(value: float, sign: float, dtype: str, bias: int) -> tuple[int, ...]:
    """Return the words of one number; `sign` because the zeros are equal."""
    return tuple(encode_array(value, dtype, bias).tolist())


def encode_number(value: float, dtype: str, bias: int) -> tuple[int, ...]:
    """Return a number as SRAM words; see `encode_array`."""
    return _words_of(value, math.copysign(1.0, value), dtype, bias)


def _refuse_overflow(array: NDArray[Any], bits: NDArray[Any], dtype: str, bias: int, what: str) -> None:
    """Refuse finite numbers that have become infinite."""
    if dtype == "cb16":
        from wse_core import numerics

        infinite = np.isinf(numerics.decode(bits, "cb16", bias)).reshape(array.shape)
    else:
        infinite = np.isinf(bits)
    if infinite.any() and (lost := infinite & np.isfinite(array)).any():
        raise ProgramError(
            f"{what}: {array[lost].flat[0]:g} is too large for {dtype}", hint="numpy.inf, if infinity is meant"
        )


def decode_array(words: NDArray[np.uint16], dtype: str) -> NDArray[Any]:
    """Return SRAM words as numbers; inverse of `encode_array`, except that cb16 stays as bit patterns (uint16)."""
    words = np.ascontiguousarray(words, dtype="<u2")
    return words.view(np.dtype(NUMPY[dtype]).newbyteorder("<")).astype(NUMPY[dtype], copy=False)
