"""Arithmetic of the processing element on arrays of bit patterns.

What      the scalar forms of numerics.pxd, looped over numpy arrays with broadcasting: one code for the machine and
          for whoever checks it. `encode` and `decode` lead from float64 values to bits and back.
Contract  arguments and results are bit patterns: uint16 for f16, cb16 and bf16, uint32 for f32 (whole numbers that
          fit are taken too). One rounding per operation, to nearest even; NaN results canonical; see docs/numerics.md
          for the definitions and for what is assumed. Zero-dimensional arguments give numpy scalars.
Timing    none: cycles are counted elsewhere. Cost per element is that of the scalar form, 0.2 to 6 ns.
Errors    ConfigError for a wrong format, dtype, shape or setting, and if the calling thread does not round to nearest
          or flushes subnormals (some libraries switch that on for the whole process).
Known     bf16 is for storage and conversion; the element does not calculate in it, so arithmetic refuses it.
differences
Sources   IEEE 754-2019; docs/numerics.md.
"""
import numpy as np

from libc.stdint cimport int16_t, int32_t, uint8_t, uint16_t, uint32_t

from wse_core.errors import ConfigError

__all__ = [
    "BIAS_DEFAULT", "FORMATS", "absolute", "add", "add_mixed", "check_host", "convert", "decode", "div", "encode",
    "eq", "fma", "fma_mixed", "from_int", "le", "lt", "maximum", "minimum", "mul", "neg", "scale", "sqrt", "sub",
    "to_int",
]

BIAS_DEFAULT = CB16_BIAS_DEFAULT
FORMATS = ("f16", "cb16", "bf16", "f32")

cdef dict _CODES = {"f16": FMT_F16, "cb16": FMT_CB16, "bf16": FMT_BF16, "f32": FMT_F32}

cdef enum:
    OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_MAX, OP_MIN, OP_SQRT, OP_NEG, OP_ABS, OP_EQ, OP_LT, OP_LE


# ---- arguments --------------------------------------------------------------------------------------------------

def check_host():
    """Raise unless the calling thread's float mode is the one every result here relies on.

    Raises
    ------
    ConfigError
        Rounding is directed, or subnormals are flushed.
    """
    if not num_host_is_exact():
        raise ConfigError("this thread does not calculate with round-to-nearest and gradual underflow",
                          cause="a library built with -ffast-math, or a call that set flush-to-zero",
                          hint="load that library later, or run in a process of its own")


# Fills s and returns the format's code; refuses what makes no sense.
cdef int _settings(num_t* s, fmt, bias, ftz, bint arithmetic=True) except -1:
    check_host()
    code = _CODES.get(fmt) if isinstance(fmt, str) else None
    if code is None:
        raise ConfigError(f"no float format {fmt!r}", hint=f"one of {', '.join(FORMATS)}")
    if arithmetic and code == FMT_BF16:
        raise ConfigError("the element does not calculate in bf16", hint="convert to f32 first")
    if not isinstance(bias, (int, np.integer)) or not CB16_BIAS_MIN <= bias <= CB16_BIAS_MAX:
        raise ConfigError(f"cb16 bias is {bias!r}", hint=f"a whole number, {CB16_BIAS_MIN} to {CB16_BIAS_MAX}")
    s.half = FMT_CB16 if code == FMT_CB16 else FMT_F16
    s.bias = bias
    s.ftz = 1 if ftz else 0
    return code


def _operand(value, name, itemsize):
    """Return `value` as an array of unsigned integers of `itemsize` bytes, or raise ConfigError."""
    array = np.asarray(value)
    dtype = np.dtype(f"u{itemsize}")
    if array.dtype == dtype:
        return array
    if array.dtype.kind not in "iu":
        raise ConfigError(f"{name} has dtype {array.dtype}, bit patterns are {dtype}",
                          hint="array.view() for the bits of a float array, encode() for values")
    if array.size and not (array.min() >= 0 and array.max() < 1 << 8 * itemsize):
        raise ConfigError(f"{name} holds numbers that are no {8 * itemsize}-bit patterns")
    return array.astype(dtype)


def _spread(*arrays):
    """Return the common shape and the arrays, broadcast to it, flat and contiguous."""
    try:
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError as error:
        raise ConfigError(f"shapes do not broadcast: {', '.join(str(array.shape) for array in arrays)}") from error
    return shape, *(np.ascontiguousarray(np.broadcast_to(array, shape)).reshape(-1) for array in arrays)


def _shaped(out, shape):
    """Return the flat `out` in `shape`; a numpy scalar if that has no dimension."""
    return out.reshape(shape)[()]


def _itemsize(code):
    return 4 if code == FMT_F32 else 2


# ---- loops ------------------------------------------------------------------------------------------------------

cdef void _binary_h(int op, const num_t* s, const uint16_t[::1] a, const uint16_t[::1] b,
                    uint16_t[::1] d) noexcept nogil:
    cdef Py_ssize_t i, n = d.shape[0]
    if op == OP_ADD:
        for i in range(n):
            d[i] = h_add(s, a[i], b[i])
    elif op == OP_SUB:
        for i in range(n):
            d[i] = h_sub(s, a[i], b[i])
    elif op == OP_MUL:
        for i in range(n):
            d[i] = h_mul(s, a[i], b[i])
    elif op == OP_DIV:
        for i in range(n):
            d[i] = h_div(s, a[i], b[i])
    elif op == OP_MAX:
        for i in range(n):
            d[i] = h_max(s, a[i], b[i])
    else:
        for i in range(n):
            d[i] = h_min(s, a[i], b[i])


cdef void _binary_s(int op, int ftz, const uint32_t[::1] a, const uint32_t[::1] b, uint32_t[::1] d) noexcept nogil:
    cdef Py_ssize_t i, n = d.shape[0]
    if op == OP_ADD:
        for i in range(n):
            d[i] = f32_add(a[i], b[i], ftz)
    elif op == OP_SUB:
        for i in range(n):
            d[i] = f32_sub(a[i], b[i], ftz)
    elif op == OP_MUL:
        for i in range(n):
            d[i] = f32_mul(a[i], b[i], ftz)
    elif op == OP_DIV:
        for i in range(n):
            d[i] = f32_div(a[i], b[i], ftz)
    elif op == OP_MAX:
        for i in range(n):
            d[i] = f32_max(a[i], b[i], ftz)
    else:
        for i in range(n):
            d[i] = f32_min(a[i], b[i], ftz)


cdef void _compare_h(int op, const num_t* s, const uint16_t[::1] a, const uint16_t[::1] b,
                     uint8_t[::1] d) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(d.shape[0]):
        if op == OP_EQ:
            d[i] = h_eq(s, a[i], b[i])
        elif op == OP_LT:
            d[i] = h_lt(s, a[i], b[i])
        else:
            d[i] = h_le(s, a[i], b[i])


cdef void _compare_s(int op, int ftz, const uint32_t[::1] a, const uint32_t[::1] b, uint8_t[::1] d) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(d.shape[0]):
        if op == OP_EQ:
            d[i] = f32_eq(a[i], b[i], ftz)
        elif op == OP_LT:
            d[i] = f32_lt(a[i], b[i], ftz)
        else:
            d[i] = f32_le(a[i], b[i], ftz)


cdef void _unary_h(int op, const num_t* s, const uint16_t[::1] a, uint16_t[::1] d) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(d.shape[0]):
        if op == OP_SQRT:
            d[i] = h_sqrt(s, a[i])
        elif op == OP_NEG:
            d[i] = h_neg(a[i])
        else:
            d[i] = h_abs(a[i])


cdef void _unary_s(int op, int ftz, const uint32_t[::1] a, uint32_t[::1] d) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(d.shape[0]):
        if op == OP_SQRT:
            d[i] = f32_sqrt(a[i], ftz)
        elif op == OP_NEG:
            d[i] = f32_neg(a[i])
        else:
            d[i] = f32_abs(a[i])


cdef _binary(int op, a, b, fmt, bias, ftz):
    cdef num_t s
    cdef int code = _settings(&s, fmt, bias, ftz)
    itemsize = _itemsize(code)
    shape, a, b = _spread(_operand(a, "a", itemsize), _operand(b, "b", itemsize))
    out = np.empty(len(a), f"u{itemsize}")
    if code == FMT_F32:
        _binary_s(op, s.ftz, a, b, out)
    else:
        _binary_h(op, &s, a, b, out)
    return _shaped(out, shape)


cdef _compare(int op, a, b, fmt, bias, ftz):
    cdef num_t s
    cdef int code = _settings(&s, fmt, bias, ftz)
    itemsize = _itemsize(code)
    shape, a, b = _spread(_operand(a, "a", itemsize), _operand(b, "b", itemsize))
    out = np.empty(len(a), np.uint8)
    if code == FMT_F32:
        _compare_s(op, s.ftz, a, b, out)
    else:
        _compare_h(op, &s, a, b, out)
    return _shaped(out.view(np.bool_), shape)


cdef _unary(int op, a, fmt, bias, ftz):
    cdef num_t s
    cdef int code = _settings(&s, fmt, bias, ftz)
    itemsize = _itemsize(code)
    shape, a = _spread(_operand(a, "a", itemsize))
    out = np.empty(len(a), f"u{itemsize}")
    if code == FMT_F32:
        _unary_s(op, s.ftz, a, out)
    else:
        _unary_h(op, &s, a, out)
    return _shaped(out, shape)


# ---- arithmetic -------------------------------------------------------------------------------------------------

def add(a, b, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return r(a + b).

    Parameters
    ----------
    a, b : array_like of uint16 or uint32
        Bit patterns in `fmt`; they broadcast.
    fmt : {"f16", "cb16", "f32"}
        Format of operands and result.
    bias : int
        Exponent bias of cb16, 1 to 62; other formats ignore it. source: CSL type page for 42.
    ftz : bool
        Take subnormal operands and results as zeros of their sign.

    Returns
    -------
    numpy.ndarray or numpy scalar
        Bits of the sums, dtype as the operands.

    Raises
    ------
    ConfigError
        Unknown format, bias out of range, wrong dtype, shapes that do not broadcast, or an unusable host float mode.

    Examples
    --------
    >>> hex(add(0x3C00, 0x3C00))
    '0x4000'
    """
    return _binary(OP_ADD, a, b, fmt, bias, ftz)


def sub(a, b, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return r(a - b). Parameters, result and errors as `add`; x - x is +0."""
    return _binary(OP_SUB, a, b, fmt, bias, ftz)


def mul(a, b, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return r(a * b). Parameters, result and errors as `add`."""
    return _binary(OP_MUL, a, b, fmt, bias, ftz)


def div(a, b, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return r(a / b). Parameters, result and errors as `add`.

    Nonzero over zero is infinity, 0/0 NaN. The element has no divide instruction; this is what a library routine
    should return.
    """
    return _binary(OP_DIV, a, b, fmt, bias, ftz)


def maximum(a, b, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return the larger operand, as IEEE 754-2019 `maximum`: NaN if either is NaN, and +0 counts above -0.

    Parameters, result and errors as `add`. numpy.maximum agrees except for two zeros of different sign.
    """
    return _binary(OP_MAX, a, b, fmt, bias, ftz)


def minimum(a, b, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return the smaller operand, as IEEE 754-2019 `minimum`: NaN if either is NaN, and -0 counts below +0.

    Parameters, result and errors as `add`.
    """
    return _binary(OP_MIN, a, b, fmt, bias, ftz)


def fma(a, b, c, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return r(a*b + c) with a single rounding: FMACH for f16 and cb16, FMACS for f32.

    Parameters
    ----------
    a, b, c : array_like of uint16 or uint32
        Bit patterns in `fmt`; they broadcast.
    fmt, bias, ftz
        As `add`.

    Returns
    -------
    numpy.ndarray or numpy scalar
        Bits of the results.

    Raises
    ------
    ConfigError
        As `add`.

    Examples
    --------
    >>> hex(fma(0x03FE, 0xC402, 0x3BFF))        # a float32 in between would give 0x3bfe
    '0x3bff'
    """
    cdef num_t s
    cdef int code = _settings(&s, fmt, bias, ftz)
    cdef Py_ssize_t i
    cdef const uint16_t[::1] ah, bh, ch
    cdef const uint32_t[::1] aw, bw, cw
    cdef uint16_t[::1] dh
    cdef uint32_t[::1] dw
    itemsize = _itemsize(code)
    shape, a, b, c = _spread(_operand(a, "a", itemsize), _operand(b, "b", itemsize), _operand(c, "c", itemsize))
    out = np.empty(len(a), f"u{itemsize}")
    if code == FMT_F32:
        aw, bw, cw, dw = a, b, c, out
        with nogil:
            for i in range(dw.shape[0]):
                dw[i] = f32_fma(aw[i], bw[i], cw[i], s.ftz)
    else:
        ah, bh, ch, dh = a, b, c, out
        with nogil:
            for i in range(dh.shape[0]):
                dh[i] = h_fma(&s, ah[i], bh[i], ch[i])
    return _shaped(out, shape)


cdef int _mixed_settings(num_t* s, fmt, bias, ftz) except -1:
    if _settings(s, fmt, bias, ftz) == FMT_F32:
        raise ConfigError("a mixed operation takes a 16-bit format", hint="f16 or cb16")
    return 0


def fma_mixed(a, b, c, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return r(a*b + c) for 16-bit factors and an f32 addend, rounded once to f32: FMACHS.

    Parameters
    ----------
    a, b : array_like of uint16
        Bit patterns in `fmt`.
    c : array_like of uint32
        Bit patterns in f32; all three broadcast.
    fmt : {"f16", "cb16"}
        Format of the factors.
    bias, ftz
        As `add`; flushing applies to both formats.

    Returns
    -------
    numpy.ndarray or numpy scalar
        f32 bits, uint32.

    Raises
    ------
    ConfigError
        As `add`.
    """
    cdef num_t s
    cdef Py_ssize_t i
    cdef const uint16_t[::1] av, bv
    cdef const uint32_t[::1] cv
    cdef uint32_t[::1] dv
    _mixed_settings(&s, fmt, bias, ftz)
    shape, a, b, c = _spread(_operand(a, "a", 2), _operand(b, "b", 2), _operand(c, "c", 4))
    out = np.empty(len(a), np.uint32)
    av, bv, cv, dv = a, b, c, out
    with nogil:
        for i in range(dv.shape[0]):
            dv[i] = hs_fma(&s, av[i], bv[i], cv[i])
    return _shaped(out, shape)


def add_mixed(a, b, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return r(a + b) for a 16-bit `a` and an f32 `b`, rounded to f32: FADDHS.

    Parameters
    ----------
    a : array_like of uint16
        Bit patterns in `fmt`.
    b : array_like of uint32
        Bit patterns in f32; both broadcast.
    fmt, bias, ftz
        As `fma_mixed`.

    Returns
    -------
    numpy.ndarray or numpy scalar
        f32 bits, uint32.

    Raises
    ------
    ConfigError
        As `add`.
    """
    cdef num_t s
    cdef Py_ssize_t i
    cdef const uint16_t[::1] av
    cdef const uint32_t[::1] bv
    cdef uint32_t[::1] dv
    _mixed_settings(&s, fmt, bias, ftz)
    shape, a, b = _spread(_operand(a, "a", 2), _operand(b, "b", 4))
    out = np.empty(len(a), np.uint32)
    av, bv, dv = a, b, out
    with nogil:
        for i in range(dv.shape[0]):
            dv[i] = hs_add(&s, av[i], bv[i])
    return _shaped(out, shape)


def sqrt(a, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return r(square root of a); NaN below zero, -0 for -0. Parameters, result and errors as `add`.

    Not an instruction of the element: what a library routine should return.
    """
    return _unary(OP_SQRT, a, fmt, bias, ftz)


def neg(a, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return `a` with the sign bit flipped, zeros and NaNs included. A bit operation: never flushes.

    Parameters, result and errors as `add`.
    """
    return _unary(OP_NEG, a, fmt, bias, ftz)


def absolute(a, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return `a` with the sign bit cleared, NaNs included. A bit operation: never flushes.

    Parameters, result and errors as `add`.
    """
    return _unary(OP_ABS, a, fmt, bias, ftz)


def scale(a, n, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return r(a * 2**n), rounded once even where the result is subnormal.

    Parameters
    ----------
    a : array_like of uint16 or uint32
        Bit patterns in `fmt`.
    n : array_like of int
        Powers of two; broadcasts with `a`.
    fmt, bias, ftz
        As `add`.

    Returns
    -------
    numpy.ndarray or numpy scalar
        Bits of the results.

    Raises
    ------
    ConfigError
        As `add`, and if `n` is not whole.
    """
    cdef num_t s
    cdef int code = _settings(&s, fmt, bias, ftz)
    cdef Py_ssize_t i
    cdef const uint16_t[::1] ah
    cdef const uint32_t[::1] aw
    cdef const int32_t[::1] nv
    cdef uint16_t[::1] dh
    cdef uint32_t[::1] dw
    n = np.asarray(n)
    if n.dtype.kind not in "iu":
        raise ConfigError(f"n has dtype {n.dtype}", hint="whole numbers")
    itemsize = _itemsize(code)
    # +-1000 is beyond every format's range, so clipping loses nothing
    shape, a, n = _spread(_operand(a, "a", itemsize), np.clip(n, -1000, 1000).astype(np.int32))
    out = np.empty(len(a), f"u{itemsize}")
    nv = n
    if code == FMT_F32:
        aw, dw = a, out
        with nogil:
            for i in range(dw.shape[0]):
                dw[i] = f32_scale(aw[i], nv[i], s.ftz)
    else:
        ah, dh = a, out
        with nogil:
            for i in range(dh.shape[0]):
                dh[i] = h_scale(&s, ah[i], nv[i])
    return _shaped(out, shape)


# ---- comparisons ------------------------------------------------------------------------------------------------

def eq(a, b, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return a == b as booleans: quiet, false with NaN, -0 equals +0. Parameters and errors as `add`."""
    return _compare(OP_EQ, a, b, fmt, bias, ftz)


def lt(a, b, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return a < b as booleans: quiet, false with NaN. Parameters and errors as `add`."""
    return _compare(OP_LT, a, b, fmt, bias, ftz)


def le(a, b, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return a <= b as booleans: quiet, false with NaN. Parameters and errors as `add`."""
    return _compare(OP_LE, a, b, fmt, bias, ftz)


# ---- conversions ------------------------------------------------------------------------------------------------

def _convert(bits, from_fmt, to_fmt, bias=BIAS_DEFAULT, ftz=False):
    """Return the values in another float format, rounded once and directly.

    Parameters
    ----------
    bits : array_like of uint16 or uint32
        Bit patterns in `from_fmt`.
    from_fmt, to_fmt : {"f16", "cb16", "bf16", "f32"}
        Formats; the same one twice is allowed and makes NaNs canonical.
    bias, ftz
        As `add`.

    Returns
    -------
    numpy.ndarray or numpy scalar
        Bits in `to_fmt`, overflow as infinity, NaN canonical.

    Raises
    ------
    ConfigError
        As `add`.
    """
    cdef num_t s
    cdef int source = _settings(&s, from_fmt, bias, ftz, False)
    cdef int target = _settings(&s, to_fmt, bias, ftz, False)
    cdef Py_ssize_t i
    cdef const uint32_t[::1] a
    cdef uint32_t[::1] d
    shape, flat = _spread(_operand(bits, "bits", _itemsize(source)))
    a = flat.astype(np.uint32, copy=False)
    out = np.empty(len(flat), np.uint32)
    d = out
    with nogil:
        for i in range(d.shape[0]):
            d[i] = convert(source, target, a[i], s.bias, s.ftz)
    return _shaped(out.astype(f"u{_itemsize(target)}", copy=False), shape)


# The scalar form in numerics.pxd has the same name, which Cython binds at compile time; users see the array form.
_convert.__name__ = _convert.__qualname__ = "convert"
globals()["convert"] = _convert


def to_int(bits, fmt="f16", dtype="int16", rounding="truncate", bias=BIAS_DEFAULT):
    """Return the values as integers. Out of range saturates, NaN gives 0: this model's choice, not the hardware's.

    Parameters
    ----------
    bits : array_like of uint16 or uint32
        Bit patterns in `fmt`.
    fmt : {"f16", "cb16", "f32"}
        Format of `bits`.
    dtype : {"int16", "uint16", "int32"}
        Type of the result.
    rounding : {"truncate", "nearest"}
        Towards zero as the language's casts do, or to nearest even.
    bias : int
        Exponent bias of cb16.

    Returns
    -------
    numpy.ndarray or numpy scalar
        Integers of type `dtype`.

    Raises
    ------
    ConfigError
        As `add`, and for another `dtype` or `rounding`.
    """
    cdef num_t s
    cdef int code = _settings(&s, fmt, bias, False)
    cdef int rne = 0
    cdef int kind
    cdef Py_ssize_t i
    cdef const uint16_t[::1] ah
    cdef const uint32_t[::1] aw
    cdef int32_t[::1] d
    if dtype not in ("int16", "uint16", "int32"):
        raise ConfigError(f"no integer type {dtype!r}", hint="int16, uint16 or int32")
    if rounding not in ("truncate", "nearest"):
        raise ConfigError(f"no rounding {rounding!r}", hint="truncate or nearest")
    rne = rounding == "nearest"
    kind = 0 if dtype == "int16" else 1 if dtype == "uint16" else 2
    shape, a = _spread(_operand(bits, "bits", _itemsize(code)))
    out = np.empty(len(a), np.int32)
    d = out
    if code == FMT_F32:
        aw = a
        with nogil:
            for i in range(d.shape[0]):
                if kind == 0:
                    d[i] = f32_to_i16(aw[i], rne)
                elif kind == 1:
                    d[i] = f32_to_u16(aw[i], rne)
                else:
                    d[i] = f32_to_i32(aw[i], rne)
    else:
        ah = a
        with nogil:
            for i in range(d.shape[0]):
                if kind == 0:
                    d[i] = h_to_i16(&s, ah[i], rne)
                elif kind == 1:
                    d[i] = h_to_u16(&s, ah[i], rne)
                else:
                    d[i] = h_to_i32(&s, ah[i], rne)
    return _shaped(out.astype(dtype, copy=False), shape)


def from_int(values, fmt="f16", bias=BIAS_DEFAULT):
    """Return whole numbers as floats, rounded once and directly.

    Parameters
    ----------
    values : array_like of int
        Whole numbers from -2**31 to 2**31 - 1.
    fmt : {"f16", "cb16", "f32"}
        Format of the result.
    bias : int
        Exponent bias of cb16.

    Returns
    -------
    numpy.ndarray or numpy scalar
        Bits in `fmt`, overflow as infinity.

    Raises
    ------
    ConfigError
        As `add`, and for values that are not whole or do not fit into 32 bits.
    """
    cdef num_t s
    cdef int code = _settings(&s, fmt, bias, False)
    cdef int kind
    cdef Py_ssize_t i
    cdef const int32_t[::1] v
    cdef uint32_t[::1] d
    values = np.asarray(values)
    if values.dtype.kind not in "iu":
        raise ConfigError(f"values have dtype {values.dtype}", hint="whole numbers")
    if values.size and not (values.min() >= -2**31 and values.max() < 2**31):
        raise ConfigError("values do not fit into 32 bits with sign")
    kind = 0 if values.dtype == np.int16 else 1 if values.dtype == np.uint16 else 2
    shape, flat = _spread(values.astype(np.int32))
    out = np.empty(len(flat), np.uint32)
    v, d = flat, out
    with nogil:
        for i in range(d.shape[0]):
            if code == FMT_F32:
                if kind == 0:
                    d[i] = i16_to_f32(<int16_t>v[i])
                elif kind == 1:
                    d[i] = u16_to_f32(<uint16_t>v[i])
                else:
                    d[i] = i32_to_f32(v[i])
            elif kind == 0:
                d[i] = i16_to_h(&s, <int16_t>v[i])
            elif kind == 1:
                d[i] = u16_to_h(&s, <uint16_t>v[i])
            else:
                d[i] = i32_to_h(&s, v[i])
    return _shaped(out.astype(f"u{_itemsize(code)}", copy=False), shape)


def encode(values, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return real numbers as bits, each rounded once from float64.

    Parameters
    ----------
    values : array_like of float
        Numbers; taken as float64.
    fmt : {"f16", "cb16", "bf16", "f32"}
        Format of the result.
    bias : int
        Exponent bias of cb16.
    ftz : bool
        Write results that are subnormal after rounding as zeros.

    Returns
    -------
    numpy.ndarray or numpy scalar
        uint16, or uint32 for f32; overflow as infinity, NaN canonical.

    Raises
    ------
    ConfigError
        As `add`, and for values that are not real numbers.

    Examples
    --------
    >>> hex(encode(6.0, "cb16"))
    '0x5900'
    """
    cdef num_t s
    cdef int code = _settings(&s, fmt, bias, ftz, False)
    cdef Py_ssize_t i
    cdef const double[::1] v
    cdef uint16_t[::1] dh
    cdef uint32_t[::1] dw
    values = np.asarray(values)
    if values.dtype.kind not in "fiub":
        raise ConfigError(f"values have dtype {values.dtype}", hint="real numbers")
    shape, flat = _spread(values.astype(np.float64))
    out = np.empty(len(flat), f"u{_itemsize(code)}")
    v = flat
    if code == FMT_F32:
        dw = out
        with nogil:
            for i in range(dw.shape[0]):
                dw[i] = _f32_out(<float>v[i], s.ftz)
    else:
        dh = out
        with nogil:
            for i in range(dh.shape[0]):
                if code == FMT_BF16:
                    dh[i] = _encode16(v[i], 7, 127, s.ftz)
                else:
                    dh[i] = _h_out(&s, v[i])
    return _shaped(out, shape)


def decode(bits, fmt="f16", bias=BIAS_DEFAULT):
    """Return the values of bit patterns, exactly.

    Parameters
    ----------
    bits : array_like of uint16 or uint32
        Bit patterns in `fmt`.
    fmt : {"f16", "cb16", "bf16", "f32"}
        Their format.
    bias : int
        Exponent bias of cb16.

    Returns
    -------
    numpy.ndarray or numpy scalar
        float64; every value of the four formats is one.

    Raises
    ------
    ConfigError
        As `add`.

    Examples
    --------
    >>> float(decode(0x5900, "cb16"))
    6.0
    """
    cdef num_t s
    cdef int code = _settings(&s, fmt, bias, False, False)
    cdef Py_ssize_t i
    cdef const uint32_t[::1] a
    cdef double[::1] d
    shape, flat = _spread(_operand(bits, "bits", _itemsize(code)))
    a = flat.astype(np.uint32, copy=False)
    out = np.empty(len(flat), np.float64)
    d = out
    with nogil:
        for i in range(d.shape[0]):
            d[i] = f32_of_bits(convert(code, FMT_F32, a[i], s.bias, 0))
    return _shaped(out, shape)
