"""Arithmetic of the processing element on arrays of bit patterns.

What      the scalar forms of arithmetic.pxd, looped over numpy arrays with broadcasting: one code for the machine and
          for whoever checks it. `encode` and `decode` lead from float64 values to bits and back.
Contract  arguments and results are bit patterns: uint16 for f16, cb16 and bf16, uint32 for f32 (whole numbers that
          fit are taken too). One rounding per operation, to nearest even; NaN results canonical; see docs/numerics.md
          for the definitions and for what is assumed. Zero-dimensional arguments give numpy scalars.
Timing    none: cycles are counted elsewhere. Cost per element is that of the scalar form, 0.2 to 6 ns.
          The calling thread's float mode does not matter (some libraries flush subnormals in the whole process).
Errors    ConfigError for a wrong format, dtype, shape or setting.
Known     bf16 is for storage and conversion; the element does not calculate in it, so arithmetic refuses it.
differences
Sources   IEEE 754-2019; docs/numerics.md.
"""
import numpy as np

from libc.stdint cimport int16_t, int32_t, uint16_t, uint32_t

from wse_core cimport loops
from wse_core.arguments cimport DefaultMode, settings
from wse_core.arithmetic cimport *

from wse_core.arguments import CODES, itemsize_of, operand, shaped, spread
from wse_core.errors import ConfigError

__all__ = [
    "BIAS_DEFAULT", "FORMATS", "absolute", "add", "add_mixed", "convert", "decode", "div", "encode",
    "eq", "fma", "fma_mixed", "from_int", "le", "lt", "maximum", "minimum", "mul", "neg", "scale", "sqrt", "sub",
    "to_int",
]

BIAS_DEFAULT = CB16_BIAS_DEFAULT
FORMATS = tuple(CODES)


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
        Unknown format, bias out of range, wrong dtype, or shapes that do not
        broadcast.

    Examples
    --------
    >>> hex(add(0x3C00, 0x3C00))
    '0x4000'
    """
    return loops.binary(loops.OP_ADD, a, b, fmt, bias, ftz)


def sub(a, b, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return r(a - b). Parameters, result and errors as `add`; x - x is +0."""
    return loops.binary(loops.OP_SUB, a, b, fmt, bias, ftz)


def mul(a, b, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return r(a * b). Parameters, result and errors as `add`."""
    return loops.binary(loops.OP_MUL, a, b, fmt, bias, ftz)


def div(a, b, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return r(a / b). Parameters, result and errors as `add`.

    Nonzero over zero is infinity, 0/0 NaN. The element has no divide instruction; this is what a library routine
    should return.
    """
    return loops.binary(loops.OP_DIV, a, b, fmt, bias, ftz)


def maximum(a, b, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return the larger operand, as IEEE 754-2019 `maximum`: NaN if either is NaN, and +0 counts above -0.

    Parameters, result and errors as `add`. numpy.maximum agrees except for two zeros of different sign.
    """
    return loops.binary(loops.OP_MAX, a, b, fmt, bias, ftz)


def minimum(a, b, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return the smaller operand, as IEEE 754-2019 `minimum`: NaN if either is NaN, and -0 counts below +0.

    Parameters, result and errors as `add`.
    """
    return loops.binary(loops.OP_MIN, a, b, fmt, bias, ftz)


def fma(a, b, c, fmt="f16", bias=BIAS_DEFAULT, ftz=False, fused=True):
    """Return r(a*b + c) with a single rounding: FMACH for f16 and cb16, FMACS for f32; r(r(a*b) + c) unless `fused`.

    Parameters
    ----------
    a, b, c : array_like of uint16 or uint32
        Bit patterns in `fmt`; they broadcast.
    fmt, bias, ftz
        As `add`.
    fused : bool
        Whether the product is not rounded by itself (``num.fmac`` of a machine).

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
    if not fused:
        return add(c, mul(a, b, fmt, bias, ftz), fmt, bias, ftz)
    cdef num_t s
    cdef int code = settings(&s, fmt, bias, ftz)
    cdef Py_ssize_t i
    cdef const uint16_t[::1] ah, bh, ch
    cdef const uint32_t[::1] aw, bw, cw
    cdef uint16_t[::1] dh
    cdef uint32_t[::1] dw
    itemsize = itemsize_of(code)
    shape, a, b, c = spread(operand(a, "a", itemsize), operand(b, "b", itemsize), operand(c, "c", itemsize))
    out = np.empty(len(a), f"u{itemsize}")
    if code == FMT_F32:
        aw, bw, cw, dw = a, b, c, out
        with DefaultMode(), nogil:
            for i in range(dw.shape[0]):
                dw[i] = f32_fma(aw[i], bw[i], cw[i], s.ftz)
    else:
        ah, bh, ch, dh = a, b, c, out
        with DefaultMode(), nogil:
            for i in range(dh.shape[0]):
                dh[i] = h_fma(&s, ah[i], bh[i], ch[i])
    return shaped(out, shape)


cdef int _mixed_settings(num_t* s, fmt, bias, ftz) except -1:
    if settings(s, fmt, bias, ftz) == FMT_F32:
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
    shape, a, b, c = spread(operand(a, "a", 2), operand(b, "b", 2), operand(c, "c", 4))
    out = np.empty(len(a), np.uint32)
    av, bv, cv, dv = a, b, c, out
    with DefaultMode(), nogil:
        for i in range(dv.shape[0]):
            dv[i] = hs_fma(&s, av[i], bv[i], cv[i])
    return shaped(out, shape)


def add_mixed(a, b, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return r(a + b) for a 16-bit `a` and an f32 `b`, rounded to f32: FADDHS.

    Parameters, result and errors as `fma_mixed`.
    """
    cdef num_t s
    cdef Py_ssize_t i
    cdef const uint16_t[::1] av
    cdef const uint32_t[::1] bv
    cdef uint32_t[::1] dv
    _mixed_settings(&s, fmt, bias, ftz)
    shape, a, b = spread(operand(a, "a", 2), operand(b, "b", 4))
    out = np.empty(len(a), np.uint32)
    av, bv, dv = a, b, out
    with DefaultMode(), nogil:
        for i in range(dv.shape[0]):
            dv[i] = hs_add(&s, av[i], bv[i])
    return shaped(out, shape)


def sqrt(a, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return r(square root of a); NaN below zero, -0 for -0. Parameters, result and errors as `add`.

    Not an instruction of the element: what a library routine should return.
    """
    return loops.unary(loops.OP_SQRT, a, fmt, bias, ftz)


def neg(a, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return `a` with the sign bit flipped, zeros and NaNs included. A bit operation: never flushes.

    Parameters, result and errors as `add`.
    """
    return loops.unary(loops.OP_NEG, a, fmt, bias, ftz)


def absolute(a, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return `a` with the sign bit cleared, NaNs included. A bit operation: never flushes.

    Parameters, result and errors as `add`.
    """
    return loops.unary(loops.OP_ABS, a, fmt, bias, ftz)


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
    cdef int code = settings(&s, fmt, bias, ftz)
    cdef Py_ssize_t i
    cdef const uint16_t[::1] ah
    cdef const uint32_t[::1] aw
    cdef const int32_t[::1] nv
    cdef uint16_t[::1] dh
    cdef uint32_t[::1] dw
    n = np.asarray(n)
    if n.dtype.kind not in "iu":
        raise ConfigError(f"n has dtype {n.dtype}", hint="whole numbers")
    itemsize = itemsize_of(code)
    # +-1000 is beyond every format's range, so clipping loses nothing
    shape, a, n = spread(operand(a, "a", itemsize), np.clip(n, -1000, 1000).astype(np.int32))
    out = np.empty(len(a), f"u{itemsize}")
    nv = n
    if code == FMT_F32:
        aw, dw = a, out
        with DefaultMode(), nogil:
            for i in range(dw.shape[0]):
                dw[i] = f32_scale(aw[i], nv[i], s.ftz)
    else:
        ah, dh = a, out
        with DefaultMode(), nogil:
            for i in range(dh.shape[0]):
                dh[i] = h_scale(&s, ah[i], nv[i])
    return shaped(out, shape)


# ---- comparisons ------------------------------------------------------------------------------------------------

def eq(a, b, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return a == b as booleans: quiet, false with NaN, -0 equals +0. Parameters and errors as `add`."""
    return loops.compare(loops.OP_EQ, a, b, fmt, bias, ftz)


def lt(a, b, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return a < b as booleans: quiet, false with NaN. Parameters and errors as `add`."""
    return loops.compare(loops.OP_LT, a, b, fmt, bias, ftz)


def le(a, b, fmt="f16", bias=BIAS_DEFAULT, ftz=False):
    """Return a <= b as booleans: quiet, false with NaN. Parameters and errors as `add`."""
    return loops.compare(loops.OP_LE, a, b, fmt, bias, ftz)


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
    cdef int source = settings(&s, from_fmt, bias, ftz, False)
    cdef int target = settings(&s, to_fmt, bias, ftz, False)
    cdef Py_ssize_t i
    cdef const uint32_t[::1] a
    cdef uint32_t[::1] d
    shape, flat = spread(operand(bits, "bits", itemsize_of(source)))
    a = flat.astype(np.uint32, copy=False)
    out = np.empty(len(flat), np.uint32)
    d = out
    with DefaultMode(), nogil:
        for i in range(d.shape[0]):
            d[i] = convert(source, target, a[i], s.bias, s.ftz)
    return shaped(out.astype(f"u{itemsize_of(target)}", copy=False), shape)


# The scalar form in arithmetic.pxd has the same name, which Cython binds at compile time; users see the array form.
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
    cdef int code = settings(&s, fmt, bias, False)
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
    shape, a = spread(operand(bits, "bits", itemsize_of(code)))
    out = np.empty(len(a), np.int32)
    d = out
    if code == FMT_F32:
        aw = a
        with DefaultMode(), nogil:
            for i in range(d.shape[0]):
                if kind == 0:
                    d[i] = f32_to_i16(aw[i], rne)
                elif kind == 1:
                    d[i] = f32_to_u16(aw[i], rne)
                else:
                    d[i] = f32_to_i32(aw[i], rne)
    else:
        ah = a
        with DefaultMode(), nogil:
            for i in range(d.shape[0]):
                if kind == 0:
                    d[i] = h_to_i16(&s, ah[i], rne)
                elif kind == 1:
                    d[i] = h_to_u16(&s, ah[i], rne)
                else:
                    d[i] = h_to_i32(&s, ah[i], rne)
    return shaped(out.astype(dtype, copy=False), shape)


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
    cdef int code = settings(&s, fmt, bias, False)
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
    shape, flat = spread(values.astype(np.int32))
    out = np.empty(len(flat), np.uint32)
    v, d = flat, out
    with DefaultMode(), nogil:
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
    return shaped(out.astype(f"u{itemsize_of(code)}", copy=False), shape)


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
    cdef int code = settings(&s, fmt, bias, ftz, False)
    cdef Py_ssize_t i
    cdef const double[::1] v
    cdef uint16_t[::1] dh
    cdef uint32_t[::1] dw
    values = np.asarray(values)
    if values.dtype.kind not in "fiub":
        raise ConfigError(f"values have dtype {values.dtype}", hint="real numbers")
    with DefaultMode():         # a float32 subnormal must survive the conversion too
        shape, flat = spread(values.astype(np.float64))
    out = np.empty(len(flat), f"u{itemsize_of(code)}")
    v = flat
    if code == FMT_F32:
        dw = out
        with DefaultMode(), nogil:
            for i in range(dw.shape[0]):
                dw[i] = out_f32(<float>v[i], s.ftz)
    else:
        dh = out
        with DefaultMode(), nogil:
            for i in range(dh.shape[0]):
                if code == FMT_BF16:
                    dh[i] = encode16(v[i], 7, 127, s.ftz)
                else:
                    dh[i] = out_h(&s, v[i])
    return shaped(out, shape)


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
    cdef int code = settings(&s, fmt, bias, False, False)
    cdef Py_ssize_t i
    cdef const uint32_t[::1] a
    cdef double[::1] d
    shape, flat = spread(operand(bits, "bits", itemsize_of(code)))
    a = flat.astype(np.uint32, copy=False)
    out = np.empty(len(flat), np.float64)
    d = out
    with DefaultMode(), nogil:
        for i in range(d.shape[0]):
            d[i] = f32_of_bits(convert(code, FMT_F32, a[i], s.bias, 0))
    return shaped(out, shape)
