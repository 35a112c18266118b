"""Bulk forms of the element's arithmetic: long vectors at host vector speed, scalar bits.

What      the ten vector operations that a data structure descriptor can run over (see vector.pxd), each as a loop over
          the scalar form, plus kernels for x86 hosts with AVX2 or AVX-512 (vector.h), chosen when the module is
          imported.
Contract  every path gives the bits of the scalar form in arithmetic.pxd, canonical NaNs included. With `num_t.ftz` set
          the scalar loop runs. The kernels need the float mode that arithmetic.pxd describes; `run` and the engine
          set it.
Rounding  16-bit fused multiply-add: the product is exact in f32; the f32 sum is rounded to odd with the error of a
          two-sum; the last conversion is then the only rounding (Boldo and Melquiond: two spare bits suffice, f32 has
          13). A plain f32 sum in its place is wrong for a few operands in a million. 16-bit sums and differences go
          through one f32 rounding, which is harmless (24 >= 2*11 + 2, Figueroa). CB16 is decoded and encoded with
          integers, f16 by the host's conversion instructions.
Gain      256 elements in cache, scalar loop / AVX2 / AVX-512, ns per element: fmach f16 3.8 / 0.27 / 0.14, cb16
          5.5 / 0.95 / 0.45; fmachs f16 1.7 / 0.05 / 0.04; fmacs 1.6 / 0.05 / 0.05. docs/numerics.md has all of
          them. Naive twin: set_backend("portable").
Sources   docs/numerics.md; Boldo and Melquiond, Emulation of FMA and correctly rounded sums: proved algorithms
          using rounding to odd.
"""
import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint16_t, uint32_t

from wse_core.arguments cimport DefaultMode, settings
from wse_core.arithmetic cimport (
    CB16_BIAS_DEFAULT, FMT_F16, FMT_F32, in_h, f32_add, f32_fma, f32_mul, f32_of_bits, f32_sub, h_add, h_fma, h_mul,
    h_sub, hs_add, hs_fma, num_t,
)

from wse_core.arguments import itemsize_of, operand
from wse_core.errors import ConfigError, UnsupportedError

__all__ = ["backend", "backends", "product", "run", "set_backend"]

cdef extern from "wse_core/vector.h":
    int LEVEL_PORTABLE "WSE_VEC_PORTABLE"
    int LEVEL_AVX2 "WSE_VEC_AVX2"
    int LEVEL_AVX512 "WSE_VEC_AVX512"
    int detect "wse_vec_detect"() noexcept nogil
    Py_ssize_t odd_bits "wse_vec_odd_bits"(int level) noexcept nogil
    Py_ssize_t kernel_fmacs(int level, uint32_t* d, const uint32_t* a, const uint32_t* b, float k, int bias,
                            Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fadds(int level, uint32_t* d, const uint32_t* a, const uint32_t* b, float k, int bias,
                            Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fsubs(int level, uint32_t* d, const uint32_t* a, const uint32_t* b, float k, int bias,
                            Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fmuls(int level, uint32_t* d, const uint32_t* a, const uint32_t* b, float k, int bias,
                            Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fmach_f16(int level, uint16_t* d, const uint16_t* a, const uint16_t* b, float k, int bias,
                                Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_faddh_f16(int level, uint16_t* d, const uint16_t* a, const uint16_t* b, float k, int bias,
                                Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fsubh_f16(int level, uint16_t* d, const uint16_t* a, const uint16_t* b, float k, int bias,
                                Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fmulh_f16(int level, uint16_t* d, const uint16_t* a, const uint16_t* b, float k, int bias,
                                Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fmachs_f16(int level, uint32_t* d, const uint32_t* a, const uint16_t* b, float k, int bias,
                                 Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_faddhs_f16(int level, uint32_t* d, const uint16_t* a, const uint32_t* b, float k, int bias,
                                 Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fmach_cb16(int level, uint16_t* d, const uint16_t* a, const uint16_t* b, float k, int bias,
                                 Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_faddh_cb16(int level, uint16_t* d, const uint16_t* a, const uint16_t* b, float k, int bias,
                                 Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fsubh_cb16(int level, uint16_t* d, const uint16_t* a, const uint16_t* b, float k, int bias,
                                 Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fmulh_cb16(int level, uint16_t* d, const uint16_t* a, const uint16_t* b, float k, int bias,
                                 Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_fmachs_cb16(int level, uint32_t* d, const uint32_t* a, const uint16_t* b, float k, int bias,
                                  Py_ssize_t n) noexcept nogil
    Py_ssize_t kernel_faddhs_cb16(int level, uint32_t* d, const uint16_t* a, const uint32_t* b, float k, int bias,
                                  Py_ssize_t n) noexcept nogil

# What the host can do, and what is in use. Written only by set_backend.
cdef int _host_level = detect()
cdef int _level = _host_level
# Bits of a number of elements that the kernels in use leave something of.
cdef Py_ssize_t _left = odd_bits(_level)


# ---- the operations ---------------------------------------------------------------------------------------------
# Each: the kernel if there is one for this host and nothing is flushed; then the scalar form for what is left. Of those
# that streamed networks are made of, `parts_` does both, and where nothing is left, the kernel is jumped to (gain: a
# third of the instructions of 16 elements).

cdef void parts_fmacs(const num_t* s, uint32_t* d, const uint32_t* a, const uint32_t* b, uint32_t k,
                      Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, done = 0
    if s.separate:
        for i in range(n):
            d[i] = f32_add(a[i], f32_mul(b[i], k, s.ftz), s.ftz)
        return
    if s.ftz == 0:
        done = kernel_fmacs(_level, d, a, b, f32_of_bits(k), 0, n)
    for i in range(done, n):
        d[i] = f32_fma(b[i], k, a[i], s.ftz)

cdef void vec_fmacs(const num_t* s, uint32_t* d, const uint32_t* a, const uint32_t* b, uint32_t k,
                    Py_ssize_t n) noexcept nogil:
    if s.separate or s.ftz:
        parts_fmacs(s, d, a, b, k, n)
    elif n & _left:
        parts_fmacs(s, d, a, b, k, n)
    else:
        kernel_fmacs(_level, d, a, b, f32_of_bits(k), 0, n)


cdef void vec_fmach(const num_t* s, uint16_t* d, const uint16_t* a, const uint16_t* b, uint16_t k,
                    Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, done = 0
    if s.separate:
        for i in range(n):
            d[i] = h_add(s, a[i], h_mul(s, b[i], k))
        return
    if s.ftz == 0:
        if s.half == FMT_F16:
            done = kernel_fmach_f16(_level, d, a, b, in_h(s, k), 0, n)
        else:
            done = kernel_fmach_cb16(_level, d, a, b, in_h(s, k), s.bias, n)
    for i in range(done, n):
        d[i] = h_fma(s, b[i], k, a[i])


cdef void parts_fmachs(const num_t* s, uint32_t* d, const uint32_t* a, const uint16_t* b, uint16_t k,
                       Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, done = 0
    if s.ftz == 0:
        if s.half == FMT_F16:
            done = kernel_fmachs_f16(_level, d, a, b, in_h(s, k), 0, n)
        else:
            done = kernel_fmachs_cb16(_level, d, a, b, in_h(s, k), s.bias, n)
    for i in range(done, n):
        d[i] = hs_fma(s, b[i], k, a[i])

cdef void vec_fmachs(const num_t* s, uint32_t* d, const uint32_t* a, const uint16_t* b, uint16_t k,
                     Py_ssize_t n) noexcept nogil:
    if s.ftz or s.half != FMT_F16:
        parts_fmachs(s, d, a, b, k, n)
    elif n & _left:
        parts_fmachs(s, d, a, b, k, n)
    else:
        kernel_fmachs_f16(_level, d, a, b, in_h(s, k), 0, n)


cdef void parts_fadds(const num_t* s, uint32_t* d, const uint32_t* a, const uint32_t* b, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, done = 0
    if s.ftz == 0:
        done = kernel_fadds(_level, d, a, b, 0.0, 0, n)
    for i in range(done, n):
        d[i] = f32_add(a[i], b[i], s.ftz)

cdef void vec_fadds(const num_t* s, uint32_t* d, const uint32_t* a, const uint32_t* b, Py_ssize_t n) noexcept nogil:
    if s.ftz:
        parts_fadds(s, d, a, b, n)
    elif n & _left:
        parts_fadds(s, d, a, b, n)
    else:
        kernel_fadds(_level, d, a, b, 0.0, 0, n)


cdef void vec_fsubs(const num_t* s, uint32_t* d, const uint32_t* a, const uint32_t* b, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, done = 0
    if s.ftz == 0:
        done = kernel_fsubs(_level, d, a, b, 0.0, 0, n)
    for i in range(done, n):
        d[i] = f32_sub(a[i], b[i], s.ftz)


cdef void parts_fmuls(const num_t* s, uint32_t* d, const uint32_t* a, const uint32_t* b, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, done = 0
    if s.ftz == 0:
        done = kernel_fmuls(_level, d, a, b, 0.0, 0, n)
    for i in range(done, n):
        d[i] = f32_mul(a[i], b[i], s.ftz)

cdef void vec_fmuls(const num_t* s, uint32_t* d, const uint32_t* a, const uint32_t* b, Py_ssize_t n) noexcept nogil:
    if s.ftz:
        parts_fmuls(s, d, a, b, n)
    elif n & _left:
        parts_fmuls(s, d, a, b, n)
    else:
        kernel_fmuls(_level, d, a, b, 0.0, 0, n)


cdef void vec_faddh(const num_t* s, uint16_t* d, const uint16_t* a, const uint16_t* b, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, done = 0
    if s.ftz == 0:
        if s.half == FMT_F16:
            done = kernel_faddh_f16(_level, d, a, b, 0.0, 0, n)
        else:
            done = kernel_faddh_cb16(_level, d, a, b, 0.0, s.bias, n)
    for i in range(done, n):
        d[i] = h_add(s, a[i], b[i])


cdef void vec_fsubh(const num_t* s, uint16_t* d, const uint16_t* a, const uint16_t* b, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, done = 0
    if s.ftz == 0:
        if s.half == FMT_F16:
            done = kernel_fsubh_f16(_level, d, a, b, 0.0, 0, n)
        else:
            done = kernel_fsubh_cb16(_level, d, a, b, 0.0, s.bias, n)
    for i in range(done, n):
        d[i] = h_sub(s, a[i], b[i])


cdef void vec_fmulh(const num_t* s, uint16_t* d, const uint16_t* a, const uint16_t* b, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, done = 0
    if s.ftz == 0:
        if s.half == FMT_F16:
            done = kernel_fmulh_f16(_level, d, a, b, 0.0, 0, n)
        else:
            done = kernel_fmulh_cb16(_level, d, a, b, 0.0, s.bias, n)
    for i in range(done, n):
        d[i] = h_mul(s, a[i], b[i])


cdef void parts_faddhs(const num_t* s, uint32_t* d, const uint16_t* a, const uint32_t* b, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, done = 0
    if s.ftz == 0:
        if s.half == FMT_F16:
            done = kernel_faddhs_f16(_level, d, a, b, 0.0, 0, n)
        else:
            done = kernel_faddhs_cb16(_level, d, a, b, 0.0, s.bias, n)
    for i in range(done, n):
        d[i] = hs_add(s, a[i], b[i])

cdef void vec_faddhs(const num_t* s, uint32_t* d, const uint16_t* a, const uint32_t* b, Py_ssize_t n) noexcept nogil:
    if s.ftz or s.half != FMT_F16:
        parts_faddhs(s, d, a, b, n)
    elif n & _left:
        parts_faddhs(s, d, a, b, n)
    else:
        kernel_faddhs_f16(_level, d, a, b, 0.0, 0, n)


# ---- Python side: choice of the kernels, and one door to the operations for tests and measurements ---------------

_LEVELS = {"portable": LEVEL_PORTABLE, "avx2": LEVEL_AVX2, "avx512": LEVEL_AVX512}


def backend():
    """Return the kernels in use.

    Returns
    -------
    str
        "avx512", "avx2" or "portable". Results do not depend on it.
    """
    return next(name for name, level in _LEVELS.items() if level == _level)


def backends():
    """Return the names that `set_backend` accepts on this host, slowest first, as a list of str."""
    return [name for name, level in _LEVELS.items() if level <= _host_level]


def set_backend(name="best"):
    """Choose the kernels, for tests and measurements. Not while a run is in progress.

    Parameters
    ----------
    name : str
        "portable", "avx2", "avx512", or "best" for the fastest that this host has.

    Returns
    -------
    str
        The choice that was in force before, ready to be set again.

    Raises
    ------
    ConfigError
        No such name.
    UnsupportedError
        The host's processor lacks the instructions.
    """
    global _level, _left
    before = backend()
    if name == "best":
        _level = _host_level
        _left = odd_bits(_level)
        return before
    if name not in _LEVELS:
        raise ConfigError(f"no vector backend {name!r}", hint=f"one of best, {', '.join(_LEVELS)}")
    if _LEVELS[name] > _host_level:
        raise UnsupportedError(f"vector backend {name!r} needs instructions that this processor does not have",
                               feature="vector-backend", hint=f"one of best, {', '.join(backends())}")
    _level = _LEVELS[name]
    _left = odd_bits(_level)
    return before


# name: itemsize of d, a, b, k (0 if there is none)
_OPERATIONS = {
    "fmacs": (4, 4, 4, 4), "fmach": (2, 2, 2, 2), "fmachs": (4, 4, 2, 2),
    "fadds": (4, 4, 4, 0), "fsubs": (4, 4, 4, 0), "fmuls": (4, 4, 4, 0),
    "faddh": (2, 2, 2, 0), "fsubh": (2, 2, 2, 0), "fmulh": (2, 2, 2, 0),
    "faddhs": (4, 2, 4, 0),
}


cdef void* _address(array, int itemsize, str name, bint writable) except? NULL:
    if (not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype != f"u{itemsize}"
            or not array.flags.c_contiguous or (writable and not array.flags.writeable)):
        raise ConfigError(f"{name} must be a contiguous one-dimensional uint{8 * itemsize} array"
                          + (" that may be written" if writable else ""))
    return <void*><size_t>array.ctypes.data


def run(operation, a, b, k=0, *, out=None, fmt="f16", bias=CB16_BIAS_DEFAULT, ftz=False, repeat=1):
    """Run one bulk operation on bit patterns.

    Parameters
    ----------
    operation : str
        "fmacs", "fmach", "fmachs", "fadds", "fsubs", "fmuls", "faddh", "fsubh", "fmulh" or "faddhs".
    a, b : numpy.ndarray
        Contiguous vectors of equal length; uint16 or uint32 as the operation says (last letter h or s; for fmachs b,
        for faddhs a is uint16).
    k : int
        Bits of the scalar factor of the three multiply-adds, d = a + b*k.
    out : numpy.ndarray, optional
        Result vector; may be `a` or `b` itself.
    fmt : {"f16", "cb16"}
        The 16-bit format.
    bias : int
        Exponent bias of cb16.
    ftz : bool
        Flush subnormal operands and results.
    repeat : int
        How often to run, for measurements.

    Returns
    -------
    numpy.ndarray
        `out`, or a new array.

    Raises
    ------
    ConfigError
        Unknown operation or format, wrong dtype or length, a bias or flag that is none.
    """
    cdef num_t s
    cdef void* d_at
    cdef void* a_at
    cdef void* b_at
    cdef Py_ssize_t n
    cdef int _i, code, times = repeat
    cdef uint32_t factor
    if operation not in _OPERATIONS:
        raise ConfigError(f"no bulk operation {operation!r}", hint=f"one of {', '.join(_OPERATIONS)}")
    if fmt not in ("f16", "cb16"):
        raise ConfigError(f"fmt is {fmt!r}", hint="f16 or cb16")
    size_d, size_a, size_b, size_k = _OPERATIONS[operation]
    if out is None:
        out = np.empty(len(a), f"u{size_d}")
    d_at = _address(out, size_d, "out", True)
    a_at = _address(a, size_a, "a", False)
    b_at = _address(b, size_b, "b", False)
    if not len(out) == len(a) == len(b):
        raise ConfigError(f"lengths differ: out {len(out)}, a {len(a)}, b {len(b)}")
    for name, other in (("a", a), ("b", b)):
        if np.may_share_memory(out, other) and (out.ctypes.data != other.ctypes.data
                                                or out.itemsize != other.itemsize):
            raise ConfigError(f"out overlaps {name} without being the same vector")
    if not 0 <= k < (1 << 8 * size_k if size_k else 1):
        raise ConfigError(f"k is {k}", hint=f"bits of {8 * size_k} width" if size_k else "0, this operation has none")
    settings(&s, fmt, bias, ftz)
    n = len(a)
    factor = k
    code = list(_OPERATIONS).index(operation)
    with DefaultMode(), nogil:
        for _i in range(times):
            if code == 0:
                vec_fmacs(&s, <uint32_t*>d_at, <uint32_t*>a_at, <uint32_t*>b_at, factor, n)
            elif code == 1:
                vec_fmach(&s, <uint16_t*>d_at, <uint16_t*>a_at, <uint16_t*>b_at, <uint16_t>factor, n)
            elif code == 2:
                vec_fmachs(&s, <uint32_t*>d_at, <uint32_t*>a_at, <uint16_t*>b_at, <uint16_t>factor, n)
            elif code == 3:
                vec_fadds(&s, <uint32_t*>d_at, <uint32_t*>a_at, <uint32_t*>b_at, n)
            elif code == 4:
                vec_fsubs(&s, <uint32_t*>d_at, <uint32_t*>a_at, <uint32_t*>b_at, n)
            elif code == 5:
                vec_fmuls(&s, <uint32_t*>d_at, <uint32_t*>a_at, <uint32_t*>b_at, n)
            elif code == 6:
                vec_faddh(&s, <uint16_t*>d_at, <uint16_t*>a_at, <uint16_t*>b_at, n)
            elif code == 7:
                vec_fsubh(&s, <uint16_t*>d_at, <uint16_t*>a_at, <uint16_t*>b_at, n)
            elif code == 8:
                vec_fmulh(&s, <uint16_t*>d_at, <uint16_t*>a_at, <uint16_t*>b_at, n)
            else:
                vec_faddhs(&s, <uint32_t*>d_at, <uint16_t*>a_at, <uint32_t*>b_at, n)
    return out


# ---- products in the order of the machine ------------------------------------------------------------------------

cdef Py_ssize_t PIECE = 1 << 23      # multiply-adds between two looks at Ctrl-C


cdef void _rows_s(const num_t* s, uint32_t[:, ::1] c, const uint32_t[:, ::1] a, const uint32_t[:, ::1] b,
                  Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    cdef Py_ssize_t i, k, n = c.shape[1]
    for i in range(first, last):
        for k in range(a.shape[1]):
            vec_fmacs(s, &c[i, 0], &c[i, 0], &b[k, 0], a[i, k], n)


cdef void _rows_h(const num_t* s, uint16_t[:, ::1] c, const uint16_t[:, ::1] a, const uint16_t[:, ::1] b,
                  Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    cdef Py_ssize_t i, k, n = c.shape[1]
    for i in range(first, last):
        for k in range(a.shape[1]):
            vec_fmach(s, &c[i, 0], &c[i, 0], &b[k, 0], a[i, k], n)


cdef void _rows_hs(const num_t* s, uint32_t[:, ::1] c, const uint16_t[:, ::1] a, const uint16_t[:, ::1] b,
                   Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    cdef Py_ssize_t i, k, n = c.shape[1]
    for i in range(first, last):
        for k in range(a.shape[1]):
            vec_fmachs(s, &c[i, 0], &c[i, 0], &b[k, 0], a[i, k], n)


def product(a, b, c, fmt="f16", bias=CB16_BIAS_DEFAULT, ftz=False, fused=True):
    """Return C + A B: for k = 0, 1 ... ``C = fma(A[:, k], B[k, :], C)``, each step rounded once.

    The bits are those of `wse_core.numerics.fma` (or `fma_mixed`, for 16-bit factors and C in f32) called in this
    order; the rows of C (or its columns, if they are longer) go through the bulk forms of this module.

    Parameters
    ----------
    a, b, c : array_like
        Bit patterns, shapes (m, k), (k, n), (m, n); `a` and `b` in `fmt`, `c` in `fmt` or, as uint32, in f32.
    fmt : {"f16", "cb16", "f32"}
        Format of the factors.
    bias, ftz
        As `run`.
    fused : bool
        Whether products are not rounded by themselves, as in `wse_core.numerics.fma`.

    Returns
    -------
    numpy.ndarray
        New array of the type of `c`.

    Raises
    ------
    ConfigError
        Unknown format, wrong dtype or shapes, a bias or flag that is none.
    """
    cdef num_t s
    cdef int code = settings(&s, fmt, bias, ftz)
    s.separate = not fused
    cdef Py_ssize_t first, last, step, rows
    cdef bint mixed
    cdef const uint16_t[:, ::1] ah, bh
    cdef const uint32_t[:, ::1] aw, bw
    cdef uint16_t[:, ::1] ch
    cdef uint32_t[:, ::1] cw
    itemsize = itemsize_of(code)
    c = np.asarray(c)
    mixed = code != FMT_F32 and c.dtype == np.uint32
    a, b, c = operand(a, "a", itemsize), operand(b, "b", itemsize), operand(c, "c", 4 if mixed else itemsize)
    if a.ndim != 2 or b.ndim != 2 or c.ndim != 2 or a.shape[1] != b.shape[0] or c.shape != (a.shape[0], b.shape[1]):
        raise ConfigError(f"a product of shapes {a.shape} and {b.shape} added to {c.shape}",
                          hint="(m, k) and (k, n) added to (m, n)")
    turned = c.shape[0] > c.shape[1]
    if turned:
        a, b, c = b.T, a.T, c.T
    a, b, out = np.ascontiguousarray(a), np.ascontiguousarray(b), np.array(c, order="C")
    if out.size and a.shape[1]:
        rows, first = out.shape[0], 0
        step = max(1, PIECE // (a.shape[1] * out.shape[1]))
        if code == FMT_F32:
            aw, bw, cw = a, b, out
        elif mixed:
            ah, bh, cw = a, b, out
        else:
            ah, bh, ch = a, b, out
        while first < rows:
            last = min(rows, first + step)
            with DefaultMode(), nogil:
                if code == FMT_F32:
                    _rows_s(&s, cw, aw, bw, first, last)
                elif mixed:
                    _rows_hs(&s, cw, ah, bh, first, last)
                else:
                    _rows_h(&s, ch, ah, bh, first, last)
            PyErr_CheckSignals()
            first = last
    return np.ascontiguousarray(out.T) if turned else out
