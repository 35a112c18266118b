"""What the array forms of the arithmetic take: settings, operands that broadcast, and the float mode around them.

What      `settings` checks and decodes format, bias and flushing; `operand`, `spread` and `shaped` bring array_likes
          into flat contiguous arrays and back; `DefaultMode` is the float mode in which results are computed.
Contract  ConfigError for a wrong format, dtype, shape or setting; nothing is guessed, so True is no bias.
"""
import numpy as np

from wse_core.float_mode cimport float_mode_enter, float_mode_leave
from wse_core.arithmetic cimport CB16_BIAS_MAX, CB16_BIAS_MIN, FMT_BF16, FMT_CB16, FMT_F16, FMT_F32

from wse_core.errors import ConfigError

CODES = {"f16": FMT_F16, "cb16": FMT_CB16, "bf16": FMT_BF16, "f32": FMT_F32}
"""Code of each float format."""
UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
"""Unsigned integers of so many bytes."""


cdef class DefaultMode:
    """Context in which this thread rounds to nearest and keeps subnormals, whatever it did before and does after."""

    def __enter__(self):
        self.was = float_mode_enter()

    def __exit__(self, *exception):
        float_mode_leave(self.was)


# Fills s and returns the format's code; refuses what makes no sense.
cdef int settings(num_t* s, fmt, bias, ftz, bint arithmetic=True) except -1:
    code = CODES.get(fmt) if isinstance(fmt, str) else None
    if code is None:
        raise ConfigError(f"no float format {fmt!r}", hint=f"one of {', '.join(CODES)}")
    if arithmetic and code == FMT_BF16:
        raise ConfigError("the element does not calculate in bf16", hint="convert to f32 first")
    if isinstance(bias, bool) or not isinstance(bias, (int, np.integer)) or not CB16_BIAS_MIN <= bias <= CB16_BIAS_MAX:
        raise ConfigError(f"cb16 bias is {bias!r}", hint=f"a whole number, {CB16_BIAS_MIN} to {CB16_BIAS_MAX}")
    if not isinstance(ftz, (bool, int, np.bool_, np.integer)) or ftz not in (0, 1):
        raise ConfigError(f"ftz is {ftz!r}", hint="True or False")
    s.half = FMT_CB16 if code == FMT_CB16 else FMT_F16
    s.bias = bias
    s.separate = 0
    s.ftz = 1 if ftz else 0
    return code


def operand(value, name, itemsize):
    """Return `value` as an array of unsigned integers of `itemsize` bytes, or raise ConfigError."""
    array = np.asarray(value)
    dtype = UNSIGNED[itemsize]
    if array.dtype == dtype:
        return array
    if array.dtype.kind not in "iu":
        raise ConfigError(f"{name} has dtype {array.dtype}, bit patterns are {dtype}",
                          hint="array.view() for the bits of a float array, encode() for values")
    if array.size and not (array.min() >= 0 and array.max() < 1 << 8 * itemsize):
        raise ConfigError(f"{name} holds numbers that are no {8 * itemsize}-bit patterns")
    return array.astype(dtype)


def spread(*arrays):
    """Return the common shape and the arrays, broadcast to it, flat and contiguous."""
    first = arrays[0].shape
    for array in arrays:
        if array.shape != first:
            break
    else:  # as nearly always, and of few numbers what follows takes longer than computing with them
        return first, *(array.ravel() for array in arrays)
    try:
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError as error:
        raise ConfigError(f"shapes do not broadcast: {', '.join(str(array.shape) for array in arrays)}") from error
    return shape, *(np.ascontiguousarray(np.broadcast_to(array, shape)).reshape(-1) for array in arrays)


def shaped(out, shape):
    """Return the flat `out` in `shape`; a numpy scalar if that has no dimension."""
    return out.reshape(shape)[()]


def itemsize_of(code):
    """Return the bytes of a pattern in a format, which is given by its code."""
    return 4 if code == FMT_F32 else 2
